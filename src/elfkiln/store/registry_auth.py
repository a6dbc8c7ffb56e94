"""Who one is at a registry: docker's config.json, credential helpers, and the bearer tokens a registry asks for.

Files, in order: `$REGISTRY_AUTH_FILE`, `$DOCKER_CONFIG/config.json`, `$XDG_RUNTIME_DIR/containers/auth.json`,
`~/.docker/config.json`. The first that exists decides. Formats: docker's config file (`auths`, `credsStore`,
`credHelpers`) and the credential-helper protocol; token exchange: distribution's token specification. No secret ever
enters a message or a log.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Refused, refusal
from elfkiln.io.checked import Value
from elfkiln.io.child import GIB, MIB, ChildStopped, Limits, run_child
from elfkiln.io.strict_json import parse_strict_json, read_strict_json

_HELPER_LIMITS = Limits(seconds=30.0, cpu_seconds=30, memory_bytes=4 * GIB, file_bytes=64 * MIB, printed_bytes=MIB)
_MOST_CONFIG = 1 << 20
_HELPER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_CHALLENGE = re.compile(r'([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user name and a password, or an identity token in the password's place (`user` is then `<token>`)."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"Credentials(user={self.user!r})"

    @property
    def basic(self) -> str:
        """The value of an `Authorization: Basic` header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")


def credentials_for(host: str, environment: Mapping[str, str] | None = None) -> Credentials | None:
    """Return the credentials that docker's configuration has for a host, None when it has none.

    Raises `Refused` for a configuration that cannot be read and for a helper that fails; the line names both.
    """
    given = os.environ if environment is None else environment
    path = _config_file(given)
    if path is None:
        return None
    config = read_strict_json(path, limit=_MOST_CONFIG)
    if not isinstance(config, dict):
        raise refusal(f"{path}", expected="a JSON object, as docker login writes it", found=type(config).__name__)
    helper = _text(path, config, "credHelpers", host) or config.get("credsStore") or ""
    if helper:
        return _ask_helper(path, str(helper), host, given)
    entry = _table(path, config, "auths").get(host) or _table(path, config, "auths").get(f"https://{host}")
    return _decoded(path, host, entry) if entry else None


def parse_challenge(header: str) -> tuple[str, dict[str, str]]:
    """Return the scheme (lower case) and parameters of a `WWW-Authenticate` header.

    >>> parse_challenge('Bearer realm="https://a/t",service="s",scope="repository:x:pull"')[1]["scope"]
    'repository:x:pull'
    """
    scheme, _, rest = header.strip().partition(" ")
    return scheme.lower(), {key.lower(): value for key, value in _CHALLENGE.findall(rest)}


def _config_file(environment: Mapping[str, str]) -> Path | None:
    places = []
    if environment.get("REGISTRY_AUTH_FILE"):
        places.append(Path(environment["REGISTRY_AUTH_FILE"]))
    if environment.get("DOCKER_CONFIG"):
        places.append(Path(environment["DOCKER_CONFIG"]) / "config.json")
    if environment.get("XDG_RUNTIME_DIR"):
        places.append(Path(environment["XDG_RUNTIME_DIR"]) / "containers" / "auth.json")
    if environment.get("HOME"):
        places.append(Path(environment["HOME"]) / ".docker" / "config.json")
    return next((place for place in places if place.exists()), None)


def _table(path: Path, config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key, {})
    if not isinstance(value, dict):
        raise refusal(f"{path}: {key}", expected="an object", found=type(value).__name__)
    return value


def _text(path: Path, config: Mapping[str, Any], key: str, host: str) -> str:
    value = _table(path, config, key).get(host, "")
    if not isinstance(value, str):
        raise refusal(f"{path}: {key}.{host}", expected="a helper's name", found=type(value).__name__)
    return value


def _decoded(path: Path, host: str, entry: object) -> Credentials | None:
    where = f"{path}: auths.{host}"
    if not isinstance(entry, dict):
        raise refusal(where, expected="an object", found=type(entry).__name__)
    if isinstance(entry.get("identitytoken"), str) and entry["identitytoken"]:
        return Credentials("<token>", entry["identitytoken"])
    text = entry.get("auth", "")
    if not text:
        return None
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError, TypeError):
        user = colon = password = ""
    if not colon or not user:
        raise refusal(f"{where}.auth", expected="user:password in base64", found="another value", remedy="log in again")
    return Credentials(user, password)


def _ask_helper(path: Path, helper: str, host: str, environment: Mapping[str, str]) -> Credentials | None:
    if not _HELPER_NAME.fullmatch(helper):
        raise refusal(f"{path}: credential helper", expected="a name", found=helper)
    program = f"docker-credential-{helper}"
    place = shutil.which(program, path=environment.get("PATH", os.defpath))
    if place is None:
        raise Refused(f"{path}: names {program}, which is not on PATH; install it or log in without it")
    try:
        done = run_child(
            [place, "get"],
            name=program,
            cwd=Path(),
            environment=environment,
            limits=_HELPER_LIMITS,
            given=host.encode(),
        )
    except ChildStopped as error:
        raise Refused(f"{error}; it was asked for {host}") from error
    if done.exit_code:
        if "credentials not found" in done.out + done.err:
            return None
        raise Refused(f"{program}: {done.ending} for {host}; log in again")
    try:
        answer = Value(parse_strict_json(done.stdout, program), program)
        return Credentials(answer["Username"].text(empty=True), answer["Secret"].text(empty=True))
    except Refused:
        # What it said may be a secret.
        raise Refused(f"{program}: expected Username and Secret as JSON for {host}, found something else") from None

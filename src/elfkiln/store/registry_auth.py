"""Who one is at a registry: docker's config.json, credential helpers, and the bearer tokens a registry asks for.

Files, in order: `$REGISTRY_AUTH_FILE`, `$DOCKER_CONFIG/config.json`, `$XDG_RUNTIME_DIR/containers/auth.json`,
`~/.docker/config.json`. The first that exists decides. Formats: docker's config file (`auths`, `credsStore`,
`credHelpers`) and the credential-helper protocol; token exchange: distribution's token specification. No secret ever
enters a message or a log.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Refused, refusal
from elfkiln.io.strict_json import read_strict_json

_HELPER_SECONDS = 30.0
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
    try:
        done = subprocess.run(
            [program, "get"],
            input=host.encode(),
            capture_output=True,
            timeout=_HELPER_SECONDS,
            env=dict(environment),
            check=False,
        )
    except FileNotFoundError:
        raise Refused(f"{path}: names {program}, which is not on PATH; install it or log in without it") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{program}: did not answer for {host} within {_HELPER_SECONDS:g} s") from None
    except OSError as error:
        raise Refused(f"{program}: cannot be run ({error.strerror or error})") from error
    if done.returncode:
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        if "credentials not found" in said:
            return None
        raise Refused(f"{program}: exit code {done.returncode} for {host}; log in again")
    try:
        answer = json.loads(done.stdout)
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError, RecursionError):
        user = secret = None
    if not isinstance(user, str) or not isinstance(secret, str):
        raise Refused(f"{program}: expected Username and Secret as JSON for {host}, found something else")
    return Credentials(user, secret)

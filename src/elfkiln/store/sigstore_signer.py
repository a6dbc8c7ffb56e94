"""Signs statements as an identity, with the sigstore services that a client trust config names.

A token of an OpenID Connect issuer says who one is. Fulcio makes a certificate of ten minutes or so for it and a key
that is thrown away; Rekor, the transparency log, keeps what was signed. Both are sigstore-python's work (the extra
`elfkiln[sigstore]`). What comes back is verified by the config's own trusted root before anybody sees it.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import canonical_json
from elfkiln.io.checked import Value
from elfkiln.io.reading import read_regular
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.sigstore_bundle import SigstoreBundle, identity_of, read_bundle
from elfkiln.store.sigstore_verifier import BundleVerifier, first_line, need_sigstore

AMBIENT = "ambient"
ENVIRONMENT = "ELFKILN_IDENTITY_TOKEN"
CONFIG_TYPE = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
SECONDS = 60
"""How long a service may say nothing: a log answers when an entry is in it, which takes a few."""
_MOST_TOKEN = 1 << 16
_MOST_CONFIG = 8 << 20


class IdentitySigner:
    """Signs statements as one identity, for as long as its token and certificate are valid."""

    def __init__(self, trust: Path, token: str) -> None:
        """Take the client trust config's file and a token, and get a certificate.

        Raises `Refused` for a config or token that is not one, and `Differs` when Fulcio does not answer or refuses.
        """
        need_sigstore("sign: identity=")
        from sigstore.models import ClientTrustConfig
        from sigstore.oidc import IdentityToken
        from sigstore.sign import SigningContext

        data = read_regular(trust, limit=_MOST_CONFIG, remedy="name a client trust config of sigstore")
        top = Value(parse_strict_json(data, str(trust)), str(trust))
        top["mediaType"].choice((CONFIG_TYPE,))
        for kind in ("caUrls", "rekorTlogUrls", "tsaUrls"):
            urls = top["signingConfig"][kind]
            for one in () if urls.absent else urls.items():
                _check_url(one["url"])
        self.verifier = BundleVerifier(canonical_json(top["trustedRoot"].raw), str(trust))
        try:
            context = SigningContext.from_trust_config(ClientTrustConfig.from_json(data.decode()))
            for service in (context._fulcio.session, context._rekor._session):
                _bound(service)
        except Exception as error:
            # A file by anybody in the hands of several libraries, each with errors of its own.
            raise refusal(
                str(trust), expected="a client trust config of sigstore", found=_said(error, token)
            ) from error
        try:
            identity = IdentityToken(token)
        except Exception as error:
            why = _said(error.__cause__ or error, token)
            raise Refused(f"identity token: expected one for sigstore, in its time ({why}); get a new one") from None
        try:
            with context.signer(identity) as signer:
                self._signer: Any = signer
                # The certificate says who one is to verifiers; the token's own claims need not.
                self.identity = identity_of(signer._signing_cert())
        except Exception as error:
            raise Differs(
                f"no certificate for the identity token by {trust}: {_said(error, token)}; nothing was signed"
            ) from None
        self._token = token

    def seal(self, payload: bytes) -> bytes:
        """Return the bundle of a statement; raises `Differs` when a service fails or gives what cannot be verified."""
        from sigstore.dsse import Statement

        try:
            data: bytes = self._signer.sign_dsse(Statement(payload)).to_json().encode()
        except Exception as error:
            # Of the services, the way to them, the time of token and certificate; whatever, there is no signature.
            raise Differs(f"no bundle from the transparency log: {_said(error, self._token)}; run again") from None
        try:
            bundle = read_bundle(data, "what sigstore made")
            if bundle is None or bundle.payload != payload or self.verifier.signer(bundle) != self.identity:
                raise Differs("it says something else")
        except (Differs, Refused) as error:
            raise Differs(f"what the services made cannot be verified by their own root: {error}") from error
        return data

    def made(self, bundle: SigstoreBundle) -> bool:
        """Whether a bundle is one of the same identity."""
        try:
            return self.verifier.signer(bundle) == self.identity
        except Differs:
            return False


def find_token(identity: str) -> str:
    """Return the token that `identity=` means: `ambient`, or a file that has it.

    Ambient is `ELFKILN_IDENTITY_TOKEN`, else what a CI (GitHub, GitLab, Buildkite, CircleCI, Google Cloud) offers to
    its jobs. Raises `Refused` where there is none. A token is a secret: it is in no message.
    """
    if identity != AMBIENT:
        data = read_regular(Path(identity), limit=_MOST_TOKEN, remedy="name a file with an identity token, or ambient")
        where = identity
    elif ENVIRONMENT in os.environ:
        data, where = os.environ[ENVIRONMENT].encode(errors="replace"), ENVIRONMENT
    else:
        data, where = _detected().encode(errors="replace"), "the ambient identity token"
    text = data.strip()
    if not text or not text.isascii() or len(text.split()) != 1:
        raise refusal(where, expected="an identity token, one word", found="something else")
    return text.decode()


def _detected() -> str:
    need_sigstore("sign: identity=")
    from sigstore.oidc import detect_credential

    try:
        token = detect_credential()
    except Exception as error:
        raise Refused(f"identity=ambient: this CI offers none to this job ({_said(error, '')})") from None
    if token is None:
        raise Refused(
            f"identity=ambient: expected {ENVIRONMENT} or a CI that offers an identity, found neither; "
            "name a file with a token, or sign with key="
        )
    return str(token)


def _bound(session: Any) -> None:
    """Let no request of a session wait for ever, as sigstore-python's do."""
    plain = session.send

    def send(request: Any, **how: Any) -> Any:
        return plain(request, **(how | {"timeout": SECONDS}))

    session.send = send


def _check_url(value: Value) -> None:
    """Refuse a service to which the token would go in clear over a network."""
    text = value.text()
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        raise value.refuse("a URL") from None
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and loopback)):
        raise value.refuse("https://HOST, or http:// on this machine", text)


def _said(error: BaseException, token: str) -> str:
    """Return the first line of an error without the token, which some library might quote."""
    text = first_line(error)
    return text.replace(token, "<token>") if token else text

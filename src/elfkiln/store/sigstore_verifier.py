"""Whether a sigstore bundle is what it claims, by a trusted root that somebody gave, without any network.

The work is sigstore-python's (the extra `elfkiln[sigstore]`, imported when a verifier is made): the certificate chains
to an authority of the root and was valid when the log, or a timestamp authority, saw it; a certificate log has it; the
transparency log has the entry, by proof and signed checkpoint; the entry is about this envelope; the signature fits.
There is no root but the one given: not sigstore's public one either.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elfkiln.errors import Differs, Refused, brief, refusal
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.reading import read_regular
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.sigstore_bundle import Identity, SigstoreBundle, identity_of
from elfkiln.store.statement_types import PAYLOAD_TYPE

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

ROOT_TYPE = "application/vnd.dev.sigstore.trustedroot+json;version=0.1"
_MOST_BYTES = 4 << 20
# What sigstore-python's messages hold -> what that means for whoever reads ours. The first that fits is taken.
_WORDS = (
    ("failed to build timestamp certificate chain", "its certificate is by no authority of {root} for that time"),
    ("failed to verify SCT", "its certificate is in no certificate log of {root}"),
    ("expected exactly one log entry", "its log entry is missing"),
    ("entry must contain inclusion proof", "its log entry has no proof"),
    ("bundle must contain an inclusion promise", "no log or timestamp authority says when it was signed"),
    ("not enough sources of verified time", "no log or timestamp authority of {root} says when it was signed"),
    ("no Timestamp Authorities", "its timestamp is by no authority of {root}"),
    ("invalid log entry", "its log entry is in no log of {root}, or forged"),
    ("invalid signing cert", "its certificate was not valid when it was signed"),
    ("DSSE: invalid signature", "statement or signature was changed"),
    ("Unsupported DSSE log entry type", "its log entry is of a kind that does not bind a statement"),
    ("log entry", "its log entry is about something else"),
)


def need_sigstore(what: str) -> None:
    """Raise `Refused`, saying `what` needs it, unless the extra is installed."""
    try:
        import sigstore.models  # noqa: F401
    except ImportError:
        raise Refused(f"{what}: needs sigstore, which is not installed; pip install 'elfkiln[sigstore]'") from None
    # Its warnings (a key of the root it cannot use, a timestamp it could not get) are not lines for people; what
    # comes of them is said in ours.
    logging.getLogger("sigstore").addHandler(logging.NullHandler())


class BundleVerifier:
    """Verifies bundles by one trusted root; what was verified once is remembered."""

    def __init__(self, root: bytes, where: str) -> None:
        """Take the bytes of a trusted root; raises `Refused` when they are not one, or sigstore is not installed."""
        need_sigstore(where)
        from sigstore.models import TrustedRoot
        from sigstore.verify import Verifier
        from sigstore_models.trustroot.v1 import TrustedRoot as RootTable

        top = Value(parse_strict_json(root, where), where)
        top["mediaType"].choice((ROOT_TYPE,))
        for kind in ("certificateAuthorities", "ctlogs", "tlogs"):
            top[kind].items(least=1)
        try:
            trusted = TrustedRoot(RootTable.from_json(root))
            trusted.get_fulcio_certs()
            self._verifier: Any = Verifier(trusted_root=trusted)
        except Exception as error:
            # A file by anybody in the hands of several libraries, each with errors of its own.
            raise refusal(where, expected="a trusted root of sigstore", found=_first_line(error)) from error
        self.where = where
        self._known: dict[str, Identity | str] = {}

    def signer(self, bundle: SigstoreBundle) -> Identity:
        """Return who signed a bundle's payload; raises `Differs` with the reason when that is not proven."""
        key = sha256_hex(bundle.data)
        if key not in self._known:
            self._known[key] = self._verified(bundle)
        found = self._known[key]
        if isinstance(found, str):
            raise Differs(found)
        return found

    def _verified(self, bundle: SigstoreBundle) -> Identity | str:
        from sigstore.models import Bundle

        who = _Named()
        try:
            kind, payload = self._verifier.verify_dsse(Bundle.from_json(bundle.data), who)
        except Exception as error:
            # As above: whatever a library says of hostile bytes is a bundle that is not proven.
            return self._words(error)
        if who.identity is None or kind != PAYLOAD_TYPE or payload != bundle.payload:
            return "two readers see different things in it"
        return who.identity

    def _words(self, error: Exception) -> str:
        text = _first_line(error)
        root = brief(self.where, 120)
        for part, words in _WORDS:
            if part in text:
                return words.format(root=root)
        return f"it cannot be verified by {root} ({text})"


class _Named:
    """A policy of sigstore-python that takes every identity and keeps it: elfkiln's own policy decides."""

    def __init__(self) -> None:
        self.identity: Identity | None = None

    def verify(self, cert: Certificate) -> None:
        """Keep the identity of a certificate that was verified."""
        self.identity = identity_of(cert)


def read_root(path: Path, digest: str | None) -> bytes:
    """Return the bytes of a trusted root's file; raises `Refused` when they have not the sha256 that was named."""
    data = read_regular(path, limit=_MOST_BYTES, remedy="name the trusted root's file")
    if digest is not None and (found := sha256_hex(data)) != digest:
        raise refusal(
            str(path), expected=f"sha256:{digest}", found=f"sha256:{found}", remedy="find out who changed the root"
        )
    return data


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return brief(lines[0], 200)

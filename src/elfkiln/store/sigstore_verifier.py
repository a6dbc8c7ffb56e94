"""Whether a sigstore bundle is what it claims, by a trusted root that somebody gave, without any network.

The work is sigstore-python's (the extra `elfkiln[sigstore]`, imported when a verifier is made): the certificate chains
to an authority of the root and was valid when the log, or a timestamp authority, saw it; a certificate log has it; the
transparency log has the entry, by proof and signed checkpoint; the entry is about this envelope; the signature fits.
There is no root but the one given: not sigstore's public one either. Of that root, authorities and logs count for the
times it gives them alone, which sigstore-python does not ask of all: a retired authority's key makes no identity.
"""

from __future__ import annotations

import base64
import json
import logging
from datetime import UTC, datetime
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
            self._root: Any = RootTable.from_json(root)
            trusted = TrustedRoot(self._root)
            trusted.get_fulcio_certs()
            Verifier(trusted_root=trusted)
        except Exception as error:
            # A file by anybody in the hands of several libraries, each with errors of its own.
            raise refusal(where, expected="a trusted root of sigstore", found=first_line(error)) from error
        self.where = where
        self._known: dict[str, Identity | str] = {}
        self._verifiers: dict[tuple[int, ...], Any] = {}

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
            parsed = Bundle.from_json(bundle.data)
            kind, payload = self._at(_times(bundle.data), parsed.signing_certificate).verify_dsse(parsed, who)
        except Exception as error:
            # As above: whatever a library says of hostile bytes is a bundle that is not proven.
            return self._words(error)
        if who.identity is None or kind != PAYLOAD_TYPE or payload != bundle.payload:
            return "two readers see different things in it"
        return who.identity

    def _at(self, times: list[datetime], certificate: Certificate) -> Any:
        """Return a verifier with what of the root counted at all these times.

        Whichever of them is verified later, what verified it is in force then. A certificate log is asked before the
        certificate is used, so one that ended in between counts.
        """
        from sigstore.models import TrustedRoot
        from sigstore.verify import Verifier

        if not times:
            raise Differs("not enough sources of verified time")
        first, last, begin = min(times), max(times), certificate.not_valid_before_utc
        root = self._root
        kept = {
            "certificate_authorities": [
                one for one in root.certificate_authorities if _covers(one.valid_for, first, last)
            ],
            "tlogs": [one for one in root.tlogs if _covers(one.public_key.valid_for, first, last)],
            "ctlogs": [one for one in root.ctlogs if _covers(one.public_key.valid_for, last, min(begin, first))],
        }
        for kind, words in (
            ("certificate_authorities", "failed to build timestamp certificate chain"),
            ("tlogs", "invalid log entry"),
            ("ctlogs", "failed to verify SCT"),
        ):
            if not kept[kind]:
                raise Differs(words)
        key = tuple(id(one) for rows in kept.values() for one in rows)
        if key not in self._verifiers:
            self._verifiers[key] = Verifier(trusted_root=TrustedRoot(root.model_copy(update=kept)))
        return self._verifiers[key]

    def _words(self, error: Exception) -> str:
        text = str(error)
        root = brief(self.where, 120)
        for part, words in _WORDS:
            if part in text:
                return words.format(root=root)
        return f"it cannot be verified by {root} ({first_line(error)})"


class _Named:
    """A policy of sigstore-python that takes every identity and keeps it: elfkiln's own policy decides."""

    def __init__(self) -> None:
        self.identity: Identity | None = None

    def verify(self, cert: Certificate) -> None:
        """Keep the identity of a certificate that was verified."""
        self.identity = identity_of(cert)


def _times(data: bytes) -> list[datetime]:
    """Return when a bundle says that it was signed: by the log's promise, and by time stamps. None is verified here."""
    from rfc3161_client import decode_timestamp_response

    material = json.loads(data)["verificationMaterial"]
    entry = material["tlogEntries"][0]
    stamps = (material.get("timestampVerificationData") or {}).get("rfc3161Timestamps") or ()
    found = [decode_timestamp_response(base64.b64decode(one["signedTimestamp"])).tst_info.gen_time for one in stamps]
    if entry.get("inclusionPromise") and entry.get("integratedTime"):
        found.append(datetime.fromtimestamp(int(entry["integratedTime"]), UTC))
    return found


def _covers(period: Any, begin: datetime, end: datetime) -> bool:
    """Whether a period of a trusted root has begun at one time and not ended at another; none at all always counts."""
    if period is None:
        return True
    started = period.start is None or period.start <= begin
    return started and (period.end is None or end <= period.end)


def read_root(path: Path, digest: str | None) -> bytes:
    """Return the bytes of a trusted root's file; raises `Refused` when they have not the sha256 that was named."""
    data = read_regular(path, limit=_MOST_BYTES, remedy="name the trusted root's file")
    if digest is not None and (found := sha256_hex(data)) != digest:
        raise refusal(
            str(path), expected=f"sha256:{digest}", found=f"sha256:{found}", remedy="find out who changed the root"
        )
    return data


def first_line(error: BaseException) -> str:
    """Return what an error of a library says, on one line; of a field that does not fit, its place and why."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "validation error" in lines[0] and len(lines) > 2:
        # Pydantic's form: a count, then each place and, indented, the reason with what was found in brackets.
        return brief(f"{lines[1].strip()}: {lines[2].strip().partition(' [type=')[0]}", 200)
    return brief(lines[0], 200)

"""Sigstore bundles of version 0.3: an in-toto statement signed by an identity, with what proves it later, offline.

A bundle has the statement in a DSSE envelope with one signature, the short-lived certificate that binds the signing key
to an identity, and the entry of the transparency log that saw both. Here its structure alone is read, without the
`sigstore` extra: what it says and whose it claims to be. Whether that is true is asked of `sigstore_verifier`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509

from elfkiln.errors import refusal
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.dsse import MOST_BYTES, base64_of
from elfkiln.store.statement_types import BUNDLE_TYPE, PAYLOAD_TYPE

# Extensions of a certificate by Fulcio (its docs/oid-info.md): the issuer as bare bytes and, in newer ones, as a
# UTF8String too; and a name that is neither a mail address nor a URI.
_ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_ISSUER_2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_OTHER_NAME = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7")
_UTF8_STRING = 0x0C
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody is (a mail address, a workflow's URI or the like), and which OpenID Connect issuer says so."""

    name: str
    issuer: str

    def __str__(self) -> str:
        """Return both, for messages."""
        return f"{self.name} (by {self.issuer})"


@dataclass(frozen=True, slots=True)
class SigstoreBundle:
    """A bundle as it is stored, the payload in it, and the identity in its certificate; nothing of it is verified."""

    data: bytes
    payload: bytes
    claimed: Identity


def read_bundle(data: bytes, where: str) -> SigstoreBundle | None:
    """Return what a bundle holds; None for one on a plain message, as `cosign sign` may attach, which states nothing.

    Raises `Refused` naming the field for another version, for a second payload, signature or log entry, for a field
    that is not of the format or stands twice, and for a certificate with no single identity and issuer.
    """
    if len(data) > MOST_BYTES:
        raise refusal(where, expected=f"a bundle of at most {MOST_BYTES} bytes", found=f"{len(data)} bytes")
    top = Value(parse_strict_json(data, where), where)
    top["mediaType"].choice((BUNDLE_TYPE,))
    if top["dsseEnvelope"].absent and not top["messageSignature"].absent:
        return None
    # Readers of this format also take names_like_this: a second payload under such a name must not be there either.
    top.table(("mediaType", "verificationMaterial", "dsseEnvelope"))
    envelope = top["dsseEnvelope"]
    envelope.table(("payload", "payloadType", "signatures"))
    envelope["payloadType"].choice((PAYLOAD_TYPE,))
    _one(envelope["signatures"], "signature").table(("sig", "keyid"), optional=("keyid",))
    base64_of(envelope["signatures"].items()[0]["sig"])
    material = top["verificationMaterial"]
    material.table(("certificate", "tlogEntries", "timestampVerificationData"), optional=("timestampVerificationData",))
    _one(material["tlogEntries"], "entry of a log")
    raw = material["certificate"]["rawBytes"]
    try:
        claimed = identity_of(x509.load_der_x509_certificate(base64_of(raw)))
    except (ValueError, x509.InvalidVersion) as error:
        raise raw.refuse("a certificate of one identity by one issuer", str(error)) from None
    return SigstoreBundle(data, base64_of(envelope["payload"]), claimed)


def identity_of(certificate: x509.Certificate) -> Identity:
    """Return the one identity of a certificate and its issuer; raises `ValueError` when there is not exactly one."""
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    except (x509.UnsupportedGeneralNameType, x509.DuplicateExtension) as error:
        raise ValueError(f"not what X.509 allows: {error}") from error
    if len(names) != 1:
        raise ValueError(f"{len(names)} names")
    (one,) = names
    if isinstance(one, x509.OtherName) and one.type_id == _OTHER_NAME:
        name = _utf8_string(one.value)
    elif isinstance(one, x509.RFC822Name | x509.UniformResourceIdentifier):
        name = one.value
    else:
        raise ValueError("a name of another kind")
    issuers = {
        _text(value) if oid == _ISSUER else _utf8_string(value)
        for oid in (_ISSUER, _ISSUER_2)
        if (value := _extension(certificate, oid)) is not None
    }
    if len(issuers) != 1:
        raise ValueError(f"{len(issuers)} issuers")
    issuer = issuers.pop()
    if not name or not issuer or max(len(name), len(issuer)) > _LONGEST:
        raise ValueError("an empty or an overlong name")
    return Identity(name, issuer)


def _one(value: Value, what: str) -> Value:
    items = value.items()
    if len(items) != 1:
        raise value.refuse(f"one {what}", len(items))
    return items[0]


def _extension(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> bytes | None:
    try:
        extension = certificate.extensions.get_extension_for_oid(oid).value
    except x509.ExtensionNotFound:
        return None
    return extension.value if isinstance(extension, x509.UnrecognizedExtension) else None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("a name that is not UTF-8") from None


def _utf8_string(der: bytes) -> str:
    """Return the text of a DER UTF8String: its tag, its length in one byte or as 81 LL or 82 LL LL, its bytes."""
    long = der[1] - 0x80 if len(der) > 1 and der[1] in (0x81, 0x82) else 0
    head = 2 + long
    size = int.from_bytes(der[2:head]) if long else (der[1] if len(der) > 1 else 0)
    if der[:1] != bytes((_UTF8_STRING,)) or len(der) != head + size:
        raise ValueError("a name that is not a UTF8String")
    return _text(der[head:])

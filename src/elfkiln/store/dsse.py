"""Signed envelopes: DSSE over in-toto statements, with ed25519 keys.

A signature is over PAE("DSSEv1", type, payload), so no payload can be taken for one of another type. The key id in an
envelope is a hint that anybody can write: which key signed is found by trying the keys one trusts. Nothing of a
payload is parsed before a signature on it was verified. Format: DSSE 1.0 (secure-systems-lab/dsse).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from elfkiln.errors import refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.statement_types import PAYLOAD_TYPE

MOST_BYTES = 4 << 20
MOST_SIGNATURES = 8
_SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload of type in-toto JSON and the signatures on it; whose they are is not known yet.

    `hints` are the key ids it names, which anybody can write: for messages alone.
    """

    payload: bytes
    signatures: tuple[bytes, ...]
    hints: tuple[str, ...] = ()


def pae(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """Return what is signed: the pre-authentication encoding of a type and a payload.

    >>> pae(b"hello world", "http://example.com/HelloWorld")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(payload: bytes, keys: Iterable[Ed25519PrivateKey]) -> bytes:
    """Return the envelope of a payload signed by each key, as canonical JSON; equal inputs give equal bytes."""
    signatures = [
        {"keyid": key_id(key.public_key()), "sig": base64.b64encode(key.sign(pae(payload))).decode()} for key in keys
    ]
    if not 1 <= len(signatures) <= MOST_SIGNATURES:
        raise refusal("signatures", expected=f"1 to {MOST_SIGNATURES} keys", found=len(signatures))
    return canonical_json(
        {"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": signatures}
    )


def read_envelope(data: bytes, where: str) -> Envelope:
    """Return the envelope that bytes say; raises `Refused` naming the field for what is not one.

    A field that stands twice is refused, so an envelope has one payload whoever reads it.
    """
    if len(data) > MOST_BYTES:
        raise refusal(where, expected=f"an envelope of at most {MOST_BYTES} bytes", found=f"{len(data)} bytes")
    top = Value(parse_strict_json(data, where), where)
    top["payloadType"].choice((PAYLOAD_TYPE,))
    items = top["signatures"].items(least=1)
    if len(items) > MOST_SIGNATURES:
        raise top["signatures"].refuse(f"at most {MOST_SIGNATURES} signatures", f"{len(items)} of them")
    hints = tuple(item["keyid"].raw for item in items if isinstance(item["keyid"].raw, str))
    return Envelope(base64_of(top["payload"]), tuple(base64_of(item["sig"]) for item in items), hints)


def signers(envelope: Envelope, keys: Mapping[str, Ed25519PublicKey]) -> frozenset[str]:
    """Return the names of the keys that signed an envelope's payload."""
    signed = pae(envelope.payload)
    return frozenset(
        name
        for name, key in keys.items()
        if any(_verifies(key, signature, signed) for signature in envelope.signatures)
    )


def key_id(key: Ed25519PublicKey) -> str:
    """Return the hint by which people find a key again: the sha256 of its 32 bytes."""
    return f"sha256:{sha256_hex(key.public_bytes(Encoding.Raw, PublicFormat.Raw))}"


def _verifies(key: Ed25519PublicKey, signature: bytes, signed: bytes) -> bool:
    if len(signature) != _SIGNATURE_BYTES:
        return False
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def base64_of(value: Value) -> bytes:
    """Return what base64 says; DSSE allows the plain alphabet and the one for file names, one of them at a time."""
    text = value.text(empty=True)
    if ("-" in text or "_" in text) and ("+" in text or "/" in text):
        raise value.refuse("base64 in one alphabet", "letters of both")
    try:
        plain = text.replace("-", "+").replace("_", "/").encode("ascii")
        data = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        raise value.refuse("base64", "something else") from None
    if base64.b64encode(data) != plain:
        raise value.refuse("base64 as it is written by everybody", "unused bits that are set")
    return data

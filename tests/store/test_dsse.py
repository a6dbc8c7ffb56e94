"""Envelopes and keys: the published encoding, RFC 8032's vectors, and envelopes that are not what they say."""

from __future__ import annotations

import base64
import json
import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from elfkiln.errors import Refused
from elfkiln.store.dsse import pae, read_envelope, seal, signers
from elfkiln.store.signing_keys import load_key, public_text, write_key_pair

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
BODY = b'{"a": 1}'


def test_what_is_signed_is_the_published_encoding():
    # DSSE protocol, "Test vectors".
    assert pae(b"hello world", "http://example.com/HelloWorld") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )
    assert pae(b"", "") == b"DSSEv1 0  0 "


def test_signatures_are_rfc_8032s():
    # RFC 8032, 7.1, test 2.
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    key = Ed25519PrivateKey.from_private_bytes(secret)
    assert base64.b64decode(public_text(key.public_key())).hex() == (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    )
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


def test_round_trip_and_who_signed():
    envelope = read_envelope(seal(BODY, [KEY, OTHER]), "e")
    assert envelope.payload == BODY
    keys = {"key": KEY.public_key(), "other": OTHER.public_key(), "third": Ed25519PrivateKey.generate().public_key()}
    assert signers(envelope, keys) == {"key", "other"}
    assert seal(BODY, [KEY]) == seal(BODY, [KEY])


def test_a_key_id_is_a_hint_that_decides_nothing():
    table = json.loads(seal(BODY, [OTHER]))
    table["signatures"][0]["keyid"] = json.loads(seal(BODY, [KEY]))["signatures"][0]["keyid"]
    envelope = read_envelope(json.dumps(table).encode(), "e")
    assert signers(envelope, {"key": KEY.public_key()}) == set()


def changed(change):
    table = json.loads(seal(BODY, [KEY]))
    change(table)
    return json.dumps(table).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update(payload=base64.b64encode(BODY + b" ").decode()),
        lambda t: t["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()),
        lambda t: t["signatures"][0].update(sig=base64.b64encode(b"short").decode()),
    ],
)
def test_a_tampered_envelope_is_signed_by_nobody(change):
    assert signers(read_envelope(changed(change), "e"), {"key": KEY.public_key()}) == set()


TWICE = seal(BODY, [KEY]).replace(b'"payload":', b'"payload":"e30=","payload":', 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "e: "),
        (b"[]", "expected an object"),
        (TWICE, "payload"),
        (changed(lambda t: t.update(payloadType="text/plain")), "payloadType: expected application/vnd.in-toto.json"),
        (changed(lambda t: t.update(payload="***")), "payload: expected base64"),
        (changed(lambda t: t.update(payload="YQ")), "payload: expected base64"),
        (changed(lambda t: t.update(payload="YR==")), "unused bits that are set"),
        (changed(lambda t: t.update(payload="-/==")), "one alphabet"),
        (changed(lambda t: t.update(signatures=[])), "signatures: expected a list of at least 1"),
        (changed(lambda t: t.update(signatures=t["signatures"] * 9)), "at most 8 signatures"),
        (changed(lambda t: t.update(signatures=[1])), r"signatures\[0\]"),
        (changed(lambda t: t.pop("payload")), "payload: expected"),
    ],
)
def test_what_is_not_an_envelope(data, words):
    with pytest.raises(Refused, match=words):
        read_envelope(data, "e")


# Keys.


def test_a_key_pair(tmp_path):
    path = tmp_path / "k"
    before = os.umask(0)
    try:
        public = write_key_pair(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (tmp_path / "k.pub").read_text() == f"{public}\n"
    assert public_text(load_key(path).public_key()) == public
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "k"
    path.write_text("precious")
    with pytest.raises(Refused, match="expected a new file"):
        write_key_pair(path)
    assert path.read_text() == "precious"
    assert not (tmp_path / "k.pub").exists()


def test_a_key_that_others_can_read(tmp_path):
    path = tmp_path / "k"
    write_key_pair(path)
    path.chmod(0o644)
    with pytest.raises(Refused, match=r"mode: expected 0600, found 0644; run chmod 600"):
        load_key(path)


def test_a_key_with_a_passphrase_without_a_terminal(tmp_path, monkeypatch):
    path = tmp_path / "k"
    write_key_pair(path, b"secret")
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        with pytest.raises(Refused, match="asked for on a terminal only"):
            load_key(path)


def test_a_key_from_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "k"
    public = write_key_pair(path)
    monkeypatch.setenv("ELFKILN_SIGNING_KEY", path.read_text())
    assert public_text(load_key(None).public_key()) == public
    monkeypatch.setenv("ELFKILN_SIGNING_KEY", "")
    with pytest.raises(Refused, match="expected a key file"):
        load_key(None)


@pytest.mark.parametrize("data", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_not_a_key(tmp_path, data):
    path = tmp_path / "k"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(Refused, match="expected an ed25519 key in PEM") as caught:
        load_key(path)
    assert "AAAA" not in str(caught.value)

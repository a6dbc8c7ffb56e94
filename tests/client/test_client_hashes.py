"""elfkiln.h's own arithmetic: sha256 on both paths, sha512, ed25519, base64 and dates, against independent ones."""

from __future__ import annotations

import base64
import datetime
import hashlib
import random
from pathlib import Path

import pytest

import ed25519_signer as ed
from client_sets import policy_key, policy_rule, policy_table
from elfkiln.errors import Refused
from elfkiln.store.policy import parse_policy

RANDOM = random.Random(20261130)


def messages():
    lengths = [*range(260), 447, 448, 511, 512, 513, 4095, 4096, 4097, 100_003]
    return [RANDOM.randbytes(length) for length in lengths]


@pytest.mark.parametrize("question", ["sha256", "sha256-portable"])
def test_sha256_of_every_length_around_a_block(probe, question):
    data = messages()
    assert probe.frames(question, data) == [hashlib.sha256(one).hexdigest() for one in data]


def test_sha512_of_every_length_around_a_block(probe):
    data = messages()
    assert probe.frames("sha512", data) == [hashlib.sha512(one).hexdigest() for one in data]


def test_the_sha_extensions_are_found_where_the_kernel_says_they_are(probe):
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(line for line in lines if line.startswith("flags")).split()
    assert probe.has_sha() == ("sha_ni" in flags)


# RFC 8032, section 7.1: seed, key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        hashlib.sha512(b"abc").hexdigest(),
        (
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
            "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704"
        ),
    ),
]


def test_the_vectors_of_rfc_8032(probe):
    rows = [tuple(bytes.fromhex(field) for field in row) for row in RFC_8032]
    assert probe.frames("ed25519", [key + signature + message for _, key, message, signature in rows]) == ["1"] * 4
    assert probe.frames("key", [key for _, key, _, _ in rows]) == ["1"] * 4
    # The tests' own signer is held to them too.
    assert [ed.public_key(seed) for seed, _, _, _ in rows] == [key for _, key, _, _ in rows]
    assert [ed.sign(seed, message) for seed, _, message, _ in rows] == [signature for *_, signature in rows]


def test_signatures_of_random_keys_and_messages_and_every_flipped_bit(probe):
    seed, message = RANDOM.randbytes(32), RANDOM.randbytes(200)
    key, signature = ed.public_key(seed), ed.sign(seed, message)
    whole = key + signature + message
    flipped = []
    for bit in range(8 * 96):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(data))
    for at in (96, 150, len(whole) - 1):
        data = bytearray(whole)
        data[at] ^= 0x10
        flipped.append(bytes(data))
    assert probe.frames("ed25519", [whole, *flipped, whole[:-1], whole + b"\0"]) == ["1", *["0"] * (len(flipped) + 2)]
    for length in (0, 1, 63, 64, 127, 128, 129, 1000):
        seed, message = RANDOM.randbytes(32), RANDOM.randbytes(length)
        assert probe.frames("ed25519", [ed.public_key(seed) + ed.sign(seed, message) + message]) == ["1"]


def test_a_signature_has_one_spelling(probe):
    seed, message = b"\7" * 32, b"one spelling"
    key, signature = ed.public_key(seed), ed.sign(seed, message)
    s = int.from_bytes(signature[32:], "little")
    others = [signature[:32] + (s + times * ed.ORDER).to_bytes(32, "little") for times in (1, 2, 7)]
    assert probe.frames("ed25519", [key + other + message for other in (signature, *others)]) == ["1", "0", "0", "0"]


def small_order_points():
    """Every point whose order divides 8, from one of order 8 found by clearing the large part of a random point."""
    while True:
        point = ed.decode(RANDOM.randbytes(32))
        if point is None:
            continue
        small = ed.multiply(ed.ORDER, point)
        points = {ed.multiply(times, small) for times in range(8)}
        if len(points) == 8:
            return points


def in_a_policy(key):
    """Whether elfkiln's own reader takes a policy with that key."""
    table = policy_table([policy_key("k", "builder", ed25519=base64.b64encode(key).decode())], [policy_rule("builder")])
    try:
        return bool(parse_policy(table, "policy.json"))
    except Refused:
        return False


def test_a_key_of_small_order_is_none(probe):
    points = small_order_points()
    # Such a key accepts one signature for many messages: with A the neutral point, R = [S]B fits every message.
    forged = ed.encode(ed.BASE) + (1).to_bytes(32, "little")
    assert ed.verify(ed.encode(ed.NEUTRAL), forged, b"anything")
    mixed = [ed.encode(ed.add(point, ed.multiply(5, ed.BASE))) for point in points]
    keys = [ed.encode(point) for point in sorted(points)]
    assert probe.frames("key", [*keys, *mixed]) == ["0"] * 8 + ["1"] * 8
    assert [in_a_policy(key) for key in (*keys, *mixed)] == [False] * 8 + [True] * 8


def test_a_key_has_one_spelling_and_lies_on_the_curve(probe):
    # y = 0..18 has a second spelling, y + p; x = 0 with the sign bit set has none.
    again = [(y + ed.P | odd << 255).to_bytes(32, "little") for y in range(19) for odd in (0, 1)]
    minus_zero = [(y | 1 << 255).to_bytes(32, "little") for y in (1, ed.P - 1)]
    assert probe.frames("key", [*again, *minus_zero]) == ["0"] * 40
    random_bytes = [RANDOM.randbytes(32) for _ in range(40)]
    expected = [str(int(ed.decode(data) is not None)) for data in random_bytes]
    assert set(expected) == {"0", "1"}
    assert probe.frames("key", random_bytes) == expected
    assert [str(int(in_a_policy(key))) for key in (*again, *minus_zero, *random_bytes)] == ["0"] * 40 + expected


def test_verification_agrees_with_the_definition_on_points_of_mixed_order(probe):
    """Without cofactor, as most libraries: a signature whose R or key has a part of small order counts by equality."""
    small, frames = sorted(small_order_points()), []
    for index, point in enumerate(small):
        secret = 1000 + index
        key = ed.encode(ed.add(ed.multiply(secret, ed.BASE), point))
        r = ed.encode(ed.add(ed.multiply(77, ed.BASE), small[index - 1]))
        for message in (b"a", b"b", b"c", b"d"):
            s = (77 + ed.challenge(r, key, message) * secret) % ed.ORDER
            frames.append((key, r + s.to_bytes(32, "little"), message))
    expected = [str(int(ed.verify(*frame))) for frame in frames]
    assert set(expected) == {"0", "1"}
    assert probe.frames("ed25519", [b"".join(frame) for frame in frames]) == expected


def test_base64_in_either_alphabet_padded_and_in_one_spelling(probe):
    data = [RANDOM.randbytes(length) for length in (0, 1, 2, 3, 4, 47, 48, 49, 64)] + [b"\xfb\xff\xfe"]
    texts = [encode(one) for one in data for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    assert probe.frames("base64", texts) == [one.hex() for one in data for _ in range(2)]
    wrong = [
        b"A",
        b"AA",
        b"AAA",
        b"AAAAA",
        b"A===",
        b"====",
        b"AB==",
        b"AAB=",
        b"AA=A",
        b"AAA\n",
        b" AAA",
        b"+_AA",
        b"AAA\0",
    ]
    assert probe.frames("base64", [*wrong, b"AA==AAAA", b"AA= "]) == ["none"] * 15


def test_dates_are_those_of_the_calendar(probe):
    days = [
        "1970-01-01T00:00:00Z",
        "1999-12-31T23:59:59Z",
        "2000-02-29T12:00:00Z",
        "2028-02-29T23:59:59Z",
        "2100-03-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ]
    expected = [str(int(datetime.datetime.fromisoformat(day).timestamp())) for day in days]
    assert probe.frames("time", [day.encode() for day in days]) == expected
    wrong = [
        "1969-12-31T23:59:59Z",
        "2027-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2027-13-01T00:00:00Z",
        "2027-00-01T00:00:00Z",
        "2027-04-31T00:00:00Z",
        "2027-01-00T00:00:00Z",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:60:00Z",
        "2027-01-01T00:00:60Z",
        "2027-01-01T00:00:00",
        "2027-01-01 00:00:00Z",
        "2027-01-01T00:00:00+00:00",
        "2027-1-1T0:0:0Z",
        "",
    ]
    assert probe.frames("time", [day.encode() for day in wrong]) == ["none"] * len(wrong)

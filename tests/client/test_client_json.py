"""elfkiln.h takes and refuses the JSON that elfkiln's own strict reader takes and refuses."""

from __future__ import annotations

import json
import random

import pytest

from elfkiln.errors import Refused
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.models.plan.load import MAX_PLAN_BYTES
from elfkiln.work.kernels_lock import MAX_BYTES

TOO_LARGE = 2**1024 - 2**970  # the least whole number that rounds to more than a double holds

GOOD = [
    b"{}",
    b" \t\r\n[ ] ",
    b'"\\ud83d\\ude00 \\u00e9 \\/ \xf0\x9f\x98\x80"',
    b'{"a": {"a": 1}, "b": {"a": 1}}',
    b'{"": 0, " ": 1}',
    b"-0",
    b"[-0.0e-0, 1E+2, 12345678901234567890123, 1.7976931348623157e308, 1e-999999999999, 0e999999999999]",
    b"[" * 64 + b"]" * 64,
    b"1" * 4300,
    b"-" + b"1" * 4300,
    b"%d.0" % (TOO_LARGE - 1),
    b"0." + b"0" * 2000 + b"1e2308",
    b'"\x7f"',
    b"null",
]
BAD = {
    "nothing": b"",
    "white space alone": b" \n",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a NUL between": b'{"a":\x001}',
    "a NUL at the end": b"{}\0",
    "a NUL in a string": b'"a\x00b"',
    "a NUL by escape": b'"a\\u0000b"',
    "a NUL by escape in a key": b'{"a\\u0000": 1}',
    "a key twice": b'{"a": 1, "a": 1}',
    "a key twice, far apart": b'{"k": 0' + b"".join(b', "%d": 1' % i for i in range(500)) + b', "k": 2}',
    "a key twice by escape": b'{"a": 1, "\\u0061": 1}',
    "a key twice in a list in an object": b'{"x": [{"a": {}, "b": 1, "a": []}]}',
    "an empty key twice": b'{"": 1, "": 2}',
    "65 lists": b"[" * 65 + b"]" * 65,
    "65 objects": b'{"a":' * 65 + b"1" + b"}" * 65,
    "a hundred thousand lists": b"[" * 100_000,
    "an upper half alone": b'"\\ud83d"',
    "a lower half alone": b'"\\ude00"',
    "halves in the wrong order": b'"\\ude00\\ud83d"',
    "an upper half twice": b'"\\ud83d\\ud83d\\ude00"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "an overlong form": b'"\xc0\x80"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "Latin-1": b'"\xe9"',
    "half a sequence": b'"\xe2\x82"',
    "half a sequence at the end": b'"\xe2',
    "a line break in a string": b'"a\nb"',
    "an escape of C": b'"\\x41"',
    "a short escape": b'"\\u12"',
    "an escape at the end": b'"\\',
    "a number with a 0 before": b"01",
    "a minus alone": b"-",
    "a plus": b"+1",
    "a point at the end": b"1.",
    "a point at the start": b".5",
    "an exponent without digits": b"1e+",
    "hexadecimal": b"0x10",
    "digits of another script": "\u0661".encode(),
    "a number of 4301 digits": b"1" * 4301,
    "a negative one of 4301 digits": b"-" + b"1" * 4301,
    "the least number that is too large": b"%d.0" % TOO_LARGE,
    "a negative one": b"-1e309",
    "too large by its exponent": b"0." + b"0" * 2000 + b"1e2310",
    "NaN": b"NaN",
    "Infinity": b"[Infinity]",
    "minus infinity": b"-Infinity",
    "a comma at the end": b"[1,]",
    "a comma at the end of an object": b'{"a": 1,}',
    "two values": b"1 2",
    "a key without quotes": b"{a: 1}",
    "a key without a value": b'{"a"}',
    "a number as key": b"{1: 2}",
    "an open list": b"[1",
    "an open object": b'{"a": 1',
    "a wrong bracket": b'{"a": 1]',
    "a comment": b"[1] // one",
    "True": b"True",
    "half a word": b"tru",
    "a longer word": b"nulls",
    "a form feed": b"\x0c1",
    "a no-break space": b"\xc2\xa01",
}


def python_takes(data):
    try:
        parse_strict_json(data, "t.json")
    except Refused:
        return False
    return True


def client_takes(probe, documents):
    return [answer == "0" for answer in probe.frames("json", documents)]


def test_sound_documents_are_taken(probe):
    assert client_takes(probe, GOOD) == [True] * len(GOOD)
    assert [python_takes(data) for data in GOOD] == [True] * len(GOOD)


@pytest.mark.parametrize("what", BAD)
def test_what_is_not_is_refused(probe, what):
    assert client_takes(probe, [BAD[what]]) == [False]
    assert not python_takes(BAD[what])


TOKENS = (
    *b"{ } [ ] , : 1 - 0 .5 e9 E-3 1e308 1e309 null true false NaN -Infinity 00 -0 1.".split(),
    *(
        b'"',
        b'"a"',
        b'"a":',
        b'"b":',
        b'"\\u0061":',
        b" ",
        b"\n",
        b"\x0b",
        b"\xc2\xa0",
        b"\xef\xbb\xbf",
        b"\0",
        b"\x1f",
    ),
    *(b"\\u0041", b"\\ud83d\\ude00", b"\\ud83d", b"\\ude00", b"\\u0000", b"\\n", b"\\x", b'\\"', b"\\\\"),
    *(b"\xe2\x82\xac", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf5\x80\x80\x80", b"[" * 40, b"]" * 40),
)


def mutant(rng):
    """Return a document that is often JSON, or nearly."""
    if rng.random() < 0.3:
        return b"".join(rng.choice(TOKENS) for _ in range(rng.randrange(1, 9)))
    data = bytearray(rng.choice(GOOD[:7]) if rng.random() < 0.3 else json.dumps(_value(rng, 0)).encode())
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(3):
            case 0:
                data[at:at] = rng.choice(TOKENS)
            case 1:
                del data[at : at + rng.randrange(1, 4)]
            case _:
                data[at : at + 1] = bytes([rng.randrange(256)])
    return bytes(data)


def _value(rng, depth):
    if depth > 3 or rng.random() < 0.3:
        return rng.choice([1, -2.5e3, None, True, "x", "\u00e9\n", 10**19])
    if rng.random() < 0.5:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice("abcdefgh"): _value(rng, depth + 1) for _ in range(rng.randrange(4))}


def test_the_verdict_is_the_strict_reader_s_on_twelve_thousand_mutants(probe):
    rng = random.Random(7)
    documents = [mutant(rng) for _ in range(12_000)]
    expected = [python_takes(data) for data in documents]
    assert 1500 < sum(expected) < 10_000
    differing = [
        data
        for data, wanted, taken in zip(documents, expected, client_takes(probe, documents), strict=True)
        if wanted != taken
    ]
    assert differing == []


@pytest.mark.parametrize(
    ("file", "most", "word"), [("kernels.lock.json", MAX_BYTES, "bad lock"), ("plan.json", MAX_PLAN_BYTES, "bad plan")]
)
def test_a_file_may_be_as_long_as_elfkiln_takes_it_and_no_longer(probe, client_folder, file, most, word):
    path = client_folder / file
    data = path.read_bytes()
    path.write_bytes(data + b" " * (most - len(data)))
    assert len(probe.names(dir=client_folder, target="sim")) == 14
    path.write_bytes(data + b" " * (most - len(data) + 1))
    said = f"{path}: expected at most {most} bytes, found a longer file"
    assert probe.refusal(dir=client_folder, target="sim") == (word, said)


def test_a_refusal_names_file_fault_and_place_and_keeps_to_one_line(probe, client_folder):
    path = client_folder / "kernels.lock.json"
    path.write_bytes(b'{"schema": "x\x1b[31m", "target"\n: 1, "a": 1, "a": 2}')
    word, text = probe.refusal(dir=client_folder, target="sim")
    assert word == "bad lock"
    assert text.startswith(
        f"{path}: expected JSON with each key once, found a control character in a string at byte 13"
    )
    path.write_bytes(b'{"schema": "one\\u001b[31m\\u2028\\u0085\xc2\x9b"}')
    word, text = probe.refusal(dir=client_folder, target="sim")
    assert text.endswith(r"found 'one\x1b[31m\xe2\x80\xa8\xc2\x85\xc2\x9b'")
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert "byte order mark" in probe.refusal(dir=client_folder, target="sim")[1]

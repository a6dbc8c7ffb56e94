"""JSON read strictly: duplicates, NaN, nesting, size and odd files are refused in one line."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.errors import Refused
from elfkiln.io.strict_json import MAX_DEPTH, parse_strict_json, read_strict_json


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected JSON"),
        (b'{"a": 1', "expected JSON"),
        (b'{"a": 1}{', "Extra data"),
        (b"\xef\xbb\xbf{}", "expected JSON"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'{"a": 1, "a": 1}', "found 'a' twice"),
        (b'{"b": {"x": 1, "y": 2, "x": 3}}', "found 'x' twice"),
        (b'{"a": NaN}', "found NaN"),
        (b'{"a": [-Infinity]}', "found -Infinity"),
        (b'{"a": 1e999}', "found 1e999"),
        (b'{"a": -1E+400}', "found -1E+400"),
        (b"\0", "expected JSON"),
        (b'{"a": "\n"}', "found Invalid control character at line 1 column 8"),
        (b'{"a": "b\\u0000"}', "texts without NUL"),
        (b'{"\\ud800": 1}', "halves of surrogate pairs"),
        (b'{"a": [["\\udc80"]]}', "halves of surrogate pairs"),
        (b"[" * 100_000, "nesting"),
        (b"[" * 70 + b"]" * 70, "at most 64 levels"),
        (b'{"a": ' * 70 + b"1" + b"}" * 70, "at most 64 levels"),
        (b"1" * 5000, "ordinary size"),
    ],
)
def test_refusals(data, said):
    with pytest.raises(Refused) as caught:
        parse_strict_json(data, "t.json")
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert len(message) < 500


def test_nesting_up_to_the_limit_is_read():
    value = parse_strict_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, "t.json")
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == []


def test_escapes_of_whole_characters_are_read():
    assert parse_strict_json(b'["\\ud83d\\ude00", "\\u00e4", "\\n"]', "t.json") == ["\U0001f600", "\u00e4", "\n"]


def test_the_largest_double_is_read():
    assert parse_strict_json(b"[1.7976931348623157e308, 5e-324]", "t.json") == [1.7976931348623157e308, 5e-324]


def test_infinity_is_let_through_where_a_config_may_hold_it():
    assert parse_strict_json(b'{"time_step_limit": [0.0, Infinity]}', "config.json", non_finite=True) == {
        "time_step_limit": [0.0, float("inf")]
    }


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b" " * 101)
    for name, said in (
        ("absent", "missing"),
        ("folder", "a folder"),
        ("pipe", "a pipe"),
        ("long", "at most 100 bytes"),
    ):
        with pytest.raises(Refused, match=said):
            read_strict_json(tmp_path / name, limit=100)
    with pytest.raises(Refused):
        read_strict_json(tmp_path / "nul\0name", limit=100)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_refusal(data):
    try:
        parse_strict_json(data, "t.json")
    except Refused as error:
        assert "\n" not in str(error)

"""TOML read strictly: what has no digest, or would end in a traceback, is refused in one line."""

from __future__ import annotations

import pytest

from elfkiln.errors import Refused
from elfkiln.io.strict_toml import parse_strict_toml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "t.toml: expected TOML, found Invalid value"),
        ("a = 1\na = 2\n", "expected TOML, found Cannot overwrite a value"),
        ("\0", "expected TOML"),
        ("a = " + "[" * 20_000, "deeper nesting"),
        ("a = " + "[" * 70 + "]" * 70, "at most 64 levels"),
        ("a = " + "1" * 5000, "expected TOML"),
        ("[a]\nb = [1, inf]", "t.toml: a.b[1]: expected a text, a finite number"),
        ("a = nan", "t.toml: a: expected a text, a finite number"),
        ("a = 1e999", "t.toml: a: expected a text, a finite number"),
        ("a = 1979-05-27T07:32:00Z", "t.toml: a: expected a text, a finite number"),
        ("a = 07:32:00", "t.toml: a: expected a text, a finite number"),
    ],
)
def test_refusals(text, said):
    with pytest.raises(Refused) as caught:
        parse_strict_toml(text, "t.toml", remedy="restore it")
    message = str(caught.value)
    assert said in message
    assert message.endswith("; restore it") or "64 levels" in message
    assert message.isprintable()
    assert len(message) < 500


def test_what_fits_is_read():
    assert parse_strict_toml("a = 1.5\nb = [true, 'x']\n[c]\nd = -3\n", "t.toml") == {
        "a": 1.5,
        "b": [True, "x"],
        "c": {"d": -3},
    }

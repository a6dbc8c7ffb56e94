"""The one checked reader of fields: types, bounds and places, for JSON, TOML and YAML alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.errors import Refused
from elfkiln.io.checked import JSON, TOML, YAML, Value, is_below
from elfkiln.io.strict_yaml import parse_strict_yaml

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
QUESTIONS = {
    "table": Value.table,
    "items": Value.items,
    "text": Value.text,
    "texts": Value.texts,
    "whole": Value.whole,
    "boolean": Value.boolean,
    "choice": lambda value: value.choice(("a", "b")),
    "digest": Value.digest,
    "below": lambda value: value.below("here"),
    "field": lambda value: value["x"].text(),
}


def line(ask):
    with pytest.raises(Refused) as caught:
        ask()
    return str(caught.value)


def yaml(text):
    return Value(parse_strict_yaml(text, "t.yaml"), "t.yaml", words=YAML)


@pytest.mark.parametrize("question", QUESTIONS)
@settings(deadline=None)
@given(raw=JSON_VALUES)
def test_any_value_gives_an_answer_or_one_line(question, raw):
    try:
        QUESTIONS[question](Value(raw, "t.json", "a.b"))
    except Refused as error:
        message = str(error)
        assert message.startswith("t.json: a.b")
        assert message.isprintable()
        assert len(message) < 700
        # Python's own names of its kinds mean nothing to the reader of a message.
        assert not any(word in message and word not in repr(raw) for word in ("NoneType", "dict", "class '"))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda top: top["n"].text(), "t.json: n: expected a string, found 3"),
        (lambda top: top["gone"].text(), "t.json: gone: expected a string, found nothing"),
        (lambda top: top["null"].whole(), "t.json: null: expected a whole number of at least 1, found nothing"),
        (lambda top: top["t"].whole(), "t.json: t: expected a whole number of at least 1, found true"),
        (lambda top: top["n"].whole(4, 9), "t.json: n: expected a whole number from 4 to 9, found 3"),
        (lambda top: top["big"].whole(), "found a number of 333 bits"),
        (lambda top: top["f"].whole(), "found 1.5"),
        (lambda top: top["n"].boolean(), "t.json: n: expected true or false, found 3"),
        (lambda top: top["s"].choice(("x", "")), "t.json: s: expected one of x, '', found 'text'"),
        (lambda top: top["s"].choice(("x",)), "t.json: s: expected x, found 'text'"),
        (lambda top: top["empty"].text(), "t.json: empty: expected a string, found ''"),
        (lambda top: top["s"].items(), "t.json: s: expected a list, found 'text'"),
        (lambda top: top["l"].items(least=4), "t.json: l: expected a list of at least 4, found a list of 2"),
        (lambda top: top["l"].texts(), "t.json: l[1]: expected a string, found 7"),
        (lambda top: top["l"].table(), "t.json: l: expected an object, found a list of 2"),
        (lambda top: top["n"]["inner"].text(), "t.json: n: expected an object, found 3"),
        (lambda top: top["o"]["k"]["m"].text(), "t.json: o.k: expected an object, found 1"),
        (lambda top: top["o"].table(("k", "m")), "t.json: o: expected the fields k m, found no m"),
        (lambda top: top["o"].table(("m",)), "t.json: o: expected the fields m, found k"),
        (lambda top: top["s"].digest(), "t.json: s: expected 64 lower-case hex digits of a sha256, found 'text'"),
        (lambda top: top["up"].below("kernels/"), "t.json: up: expected a path below kernels/, found 'a/../../b'"),
    ],
)
def test_refusals_name_file_field_expectation_and_finding(ask, said):
    top = Value(
        {
            "n": 3,
            "null": None,
            "t": True,
            "big": 10**100,
            "f": 1.5,
            "s": "text",
            "empty": "",
            "l": ["a", 7],
            "o": {"k": 1},
            "up": "a/../../b",
        },
        "t.json",
    )
    assert line(lambda: ask(top)).endswith(said)


def test_what_fits_comes_back():
    digest = "0123456789abcdef" * 4
    top = Value(
        {"n": 0, "t": False, "s": "", "l": [], "o": {"a": 1}, "d": digest, "p": f"sha256:{digest}", "b": "x/y"}, "t"
    )
    assert top["n"].whole(0) == 0
    assert top["t"].boolean() is False
    assert top["s"].text(empty=True) == ""
    assert top["l"].items() == []
    assert top["o"].table(("a", "b"), optional=("b",))["a"].whole() == 1
    assert top["d"].digest() == top["p"].digest("sha256:") == digest
    assert top["b"].below("here") == "x/y"
    assert top["gone"].absent
    assert not top["s"].absent


@pytest.mark.parametrize("wrong", ["SHA256:" + "0" * 64, "sha256:" + "0" * 63, "sha256:" + "A" * 64, "0" * 64])
def test_a_digest_of_the_wrong_form_is_none(wrong):
    assert "sha256:<64 lower-case hex digits>" in line(lambda: Value(wrong, "t").digest("sha256:"))


def test_yaml_names_its_lines_and_takes_only_plain_scalars_for_numbers():
    top = yaml("a: 8\nb: '8'\nc: true\nd: 0x10\ne: [x, 'y']\nf:\n")
    assert top["a"].whole() == 8
    assert top["a"].text() == "8"
    assert top["c"].boolean() is True
    assert top["e"].texts() == ("x", "y")
    assert line(top["b"].whole) == "t.yaml line 2: b: expected a whole number of at least 1, found '8'"
    assert line(top["d"].whole) == "t.yaml line 4: d: expected a whole number of at least 1, found '0x10'"
    assert line(top["e"].items()[1].whole).startswith("t.yaml line 5: e[1]: ")
    assert line(top["f"].whole).endswith("found nothing")
    assert line(top["e"].table) == "t.yaml line 5: e: expected a mapping, found a list of 2"


def test_each_format_has_its_own_words_and_remedy():
    said = {words: line(Value(3, "t", "f", words=words, remedy="restore it").table) for words in (JSON, TOML, YAML)}
    assert list(said.values()) == [
        f"t: f: expected {kind}, found 3; restore it" for kind in ("an object", "a table", "a mapping")
    ]


@settings(deadline=None)
@given(st.text(alphabet="a./\\\0\x1b", max_size=6))
def test_a_path_below_never_leaves(path):
    from pathlib import PurePosixPath

    if is_below(path):
        assert not PurePosixPath(path).is_absolute()
        assert ".." not in PurePosixPath(path).parts
        assert "\0" not in path
        assert "\x1b" not in path

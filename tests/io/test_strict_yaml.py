"""YAML read strictly: hidden structure, duplicates and size are refused with file and line."""

import os

import pytest

from elfkiln.errors import Refused
from elfkiln.io.strict_yaml import MAX_BYTES, MAX_DEPTH, parse_strict_yaml, read_strict_yaml


def refused(text):
    with pytest.raises(Refused) as caught:
        parse_strict_yaml(text, "t.yaml")
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_values_keep_their_lines_and_quoting():
    top = parse_strict_yaml("a: 1\nb:\n  - x\n  - 'y'\n", "t.yaml").value
    assert (top["a"].value, top["a"].line, top["a"].plain) == ("1", 1, True)
    assert [(item.value, item.line, item.plain) for item in top["b"].value] == [("x", 3, True), ("y", 4, False)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "t.yaml line 2: a: expected each key once"),
        ("a: &x 1\nb: *x\n", "t.yaml line 1: expected no anchors"),
        ("a: !!python/object:os.system x\n", "t.yaml line 1: expected no tags"),
        ("a: !!str 1\n", "line 1: expected no tags"),
        ("a: 1\n---\nb: 2\n", "line 2: expected one document"),
        ("? [a]\n: 1\n", "line 1: expected a word as key"),
        ("a: [1\n", "expected YAML"),
        ("a: \x00\n", "expected YAML"),
        ("", "expected a mapping, found an empty file"),
        ("a: " + "[" * 17 + "]" * 17, "at most 16 levels"),
        ("[" * 20_000, "nesting"),
        ("- " * 20_000 + "x", "at most 16 levels"),
        ("a: *b\n", "line 1: expected no anchors and aliases"),
        ("- &a x\n", "line 1: expected no anchors and aliases"),
        ("\0", "expected YAML"),
    ],
)
def test_refusals_name_file_and_line(text, said):
    assert said in refused(text)


def test_nesting_up_to_the_limit_is_read():
    value = parse_strict_yaml("[" * MAX_DEPTH + "x" + "]" * MAX_DEPTH, "t.yaml")
    for _ in range(MAX_DEPTH):
        (value,) = value.value
    assert value.value == "x"


@pytest.mark.parametrize("text", ["8", "true", "~", "0x10", "x y"])
def test_only_unquoted_scalars_are_plain(text):
    quoted = parse_strict_yaml(f"- {text}\n- '{text}'\n- \"{text}\"\n- |-\n  {text}\n", "t.yaml").value
    assert [(item.value, item.plain) for item in quoted] == [(text, True), *[(text, False)] * 3]


def test_an_alias_bomb_is_refused_at_its_first_anchor():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    assert "line 1" in refused("\n".join(lines))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    for name, make, said in (
        ("absent.yaml", lambda _: None, "missing"),
        ("folder.yaml", lambda path: path.mkdir(), "not a regular file (a folder)"),
        ("long.yaml", lambda path: path.write_text("a: " + "x" * MAX_BYTES), "at most 262144 bytes"),
        ("latin.yaml", lambda path: path.write_bytes(b"a: \xe4\n"), "byte 3 is not UTF-8"),
        ("pipe.yaml", os.mkfifo, "not a regular file (a pipe)"),
    ):
        make(tmp_path / name)
        with pytest.raises(Refused) as caught:
            read_strict_yaml(tmp_path / name)
        assert said in str(caught.value)


def test_ten_megabytes_are_refused_by_size(tmp_path):
    file = tmp_path / "big.yaml"
    with file.open("wb") as stream:
        os.truncate(stream.fileno(), 10 * 1024 * 1024)
    with pytest.raises(Refused, match="at most"):
        read_strict_yaml(file)

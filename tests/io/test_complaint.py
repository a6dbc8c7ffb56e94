"""One picker of the line that says what went wrong, for compilers, Python, pip and everything else."""

from __future__ import annotations

import pytest

from elfkiln.io.complaint import complaint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # clang, zig, aie-opt: the first error; what follows from it comes after.
        ("note: a\nx.mlir:3:1: error: no\nx.mlir:4:1: error: more\n", "x.mlir:3:1: error: no"),
        (
            "a.cc:1:10: fatal error: 'b.h' file not found\n1 error generated.\n",
            "a.cc:1:10: fatal error: 'b.h' file not found",
        ),
        ("ld.lld: Error: x\n", "ld.lld: Error: x"),
        (
            "aiecc: error while loading shared libraries: libz.so.1\n",
            "aiecc: error while loading shared libraries: libz.so.1",
        ),
        # Not every word with these letters is one.
        ("3 errors so far\nterror\nlast words\n", "last words"),
        ("WARNING: an error of the index is ignored\nlast words\n", "last words"),
        # Python says it last, whatever came before.
        ('error: a\nTraceback (most recent call last):\n  File "x", line 1\nValueError: K\n\n', "ValueError: K"),
        # pip goes from the general to the particular.
        (
            "ERROR: Could not find a\nERROR: No matching distribution found for a==1\n",
            "No matching distribution found for a==1",
        ),
        ("warning\n\n  last words  \n\n", "last words"),
        ("", "it said nothing"),
        (" \n\n", "it said nothing"),
        ("x\x1b[31merror: red\x07\n", "x\\x1b[31merror: red\\x07"),
    ],
)
def test_the_line_that_says_it(text, expected):
    assert complaint(text) == expected


def test_all_lines_where_none_is_an_error():
    text = "WARNING: pip is old\na 1 requires b.\na 1 requires c.\n"
    assert complaint(text, otherwise_all=True) == "a 1 requires b.; a 1 requires c."
    assert complaint(text) == "a 1 requires c."
    assert complaint("WARNING: x\n", otherwise_all=True) == "it said nothing"


def test_a_line_without_end_is_cut():
    assert len(complaint("error: " + "x" * 10_000)) == 300

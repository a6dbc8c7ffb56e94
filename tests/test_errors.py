"""Every refusal is one line with field, expected, found and remedy, whatever the input holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elfkiln.errors import BuildFailed, Differs, ElfkilnError, Refused, SimulationFailed, brief, refusal


def test_the_line():
    error = refusal("roles.yaml: hidden", expected="a positive integer", found=-1, remedy="correct the table")
    assert str(error) == "roles.yaml: hidden: expected a positive integer, found -1; correct the table"


@pytest.mark.parametrize(
    ("kind", "code"), [(Refused, 2), (Differs, 1), (BuildFailed, 1), (SimulationFailed, 1), (ElfkilnError, 2)]
)
def test_exit_codes(kind, code):
    assert kind("x").exit_code == code


@given(st.text(max_size=400) | st.integers() | st.binary(max_size=50) | st.none() | st.lists(st.text()))
def test_brief_is_one_short_line(value):
    text = brief(value)
    assert len(text) <= 160 * 10
    assert text.isprintable()


def test_a_number_python_will_not_print():
    assert brief(10**5000) == "a number of thousands of digits"


def test_a_long_value_is_cut():
    assert brief("x" * 10**7) == "x" * 157 + "..."

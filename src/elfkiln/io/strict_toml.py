"""TOML parsed strictly: bounded nesting, only values that JSON has too."""

from __future__ import annotations

import math
import tomllib
from typing import Any

from elfkiln.errors import brief, refusal
from elfkiln.io.file_kinds import HEAD_BYTES, disguise
from elfkiln.io.strict_json import check_depth


def parse_strict_toml(text: str, where: str, *, remedy: str = "") -> dict[str, Any]:
    """Parse TOML text; raises `Refused` naming `where`, which stands for the file, and `remedy` says what to do.

    Refused: what is not TOML; nesting over 64 levels; dates, times, NaN and infinity, which have no canonical JSON and
    so no digest.

    >>> parse_strict_toml("a = [1, 'x']", "t.toml")
    {'a': [1, 'x']}
    """
    other = disguise(text[:HEAD_BYTES].encode())
    if other is not None:
        raise refusal(where, expected="TOML", found=other[0], remedy=other[1])
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise refusal(where, expected="TOML", found="deeper nesting than can be read", remedy=remedy) from None
    except ValueError as error:  # also a number of more digits than Python converts
        raise refusal(where, expected="TOML", found=brief(error), remedy=remedy) from error
    check_depth(table, where)
    _check_values(table, where, remedy)
    return table


def _check_values(table: dict[str, Any], where: str, remedy: str) -> None:
    waiting: list[tuple[str, Any]] = list(table.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{name}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{name}[{position}]", inner) for position, inner in enumerate(value)]
        elif not isinstance(value, str | bool | int) and not (isinstance(value, float) and math.isfinite(value)):
            expected = "a text, a finite number, true or false, a list or a table"
            raise refusal(f"{where}: {name}", expected=expected, found=brief(value, 80), remedy=remedy)

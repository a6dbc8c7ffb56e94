"""JSON read strictly: from a regular file of bounded size, no duplicate keys, bounded nesting; never a traceback."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from elfkiln.errors import brief, refusal
from elfkiln.io.file_kinds import HEAD_BYTES, disguise
from elfkiln.io.reading import read_regular

MAX_DEPTH = 64


def read_strict_json(path: Path, *, limit: int, non_finite: bool = False) -> Any:
    """Read a JSON file of at most `limit` bytes; raises `Refused` naming the file as it was given.

    Refused: a file that is absent, no regular file (a pipe would block), too long, not UTF-8 or not JSON; a key given
    twice in one object; nesting over 64 levels; a text with a NUL or half of a surrogate pair, which no path and no
    UTF-8 file can hold; a number beyond the range of a double; NaN and Infinity unless `non_finite` (some published
    config.json files hold them).
    """
    return parse_strict_json(read_regular(path, limit=limit), brief(path, 4096), non_finite=non_finite)


def parse_strict_json(data: bytes, where: str, *, non_finite: bool = False) -> Any:
    """Parse JSON bytes as `read_strict_json` does; `where` stands for the file in messages.

    >>> parse_strict_json(b'{"a": [1, 2]}', "t.json")
    {'a': [1, 2]}
    """

    def constant(word: str) -> float:
        if not non_finite:
            raise refusal(where, expected="finite numbers", found=word)
        return float(word)

    def number(word: str) -> float:
        value = float(word)
        if math.isinf(value):
            # 1e999 is JSON, and no double: what it was meant to be is lost.
            raise refusal(where, expected="finite numbers", found=brief(word, 40))
        return value

    def pairs(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in entries}) != len(entries):
            twice = next(key for key, count in Counter(key for key, _ in entries).items() if count > 1)
            raise refusal(where, expected="each key once in an object", found=f"{brief(repr(twice), 80)} twice")
        return dict(entries)

    other = disguise(data[:HEAD_BYTES])
    if other is not None:
        raise refusal(where, expected="JSON", found=other[0], remedy=other[1])
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=constant, parse_float=number, object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise refusal(where, expected="UTF-8 text", found=f"byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        found = f"{error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        raise refusal(where, expected="JSON", found=found) from error
    except RecursionError:
        _too_deep(where)
    except ValueError as error:  # a number of more digits than Python converts
        expected = "JSON with numbers of ordinary size"
        raise refusal(where, expected=expected, found="one of thousands of digits") from error
    check_depth(value, where)
    if b"\\u" in data:
        _check_texts(value, where)
    return value


def shown(value: Any) -> str:
    """Return a value that was found in JSON as JSON would write it, for messages; a large one by its size.

    >>> shown(None), shown(True), shown([1, 2]), shown("one"), shown(float("inf"))
    ('nothing', 'true', 'a list of 2', "'one'", 'Infinity')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return brief(repr(value[:200]), 120)
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return json.dumps(value)
    return brief(value, 40)


def check_depth(value: Any, where: str) -> None:
    """Raise `Refused` when lists and mappings nest deeper than 64 levels."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [item for item in level if isinstance(item, (dict, list))]
        level = [part for item in inner for part in (item.values() if isinstance(item, dict) else item)]
        if not inner:
            return
    _too_deep(where)


def _check_texts(value: Any, where: str) -> None:
    """Refuse texts that only an escape can bring in: bare UTF-8 holds no surrogate, and JSON no bare NUL."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and ("\0" in item or any("\ud800" <= letter <= "\udfff" for letter in item)):
            expected = "texts without NUL and halves of surrogate pairs"
            raise refusal(where, expected=expected, found=brief(repr(item), 80))


def _too_deep(where: str) -> NoReturn:
    raise refusal(where, expected=f"at most {MAX_DEPTH} levels of nesting", found="more")

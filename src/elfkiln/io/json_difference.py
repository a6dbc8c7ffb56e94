"""How two JSON values differ, field by field."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from elfkiln.errors import brief

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_SHOWN = 200


class Absent(Enum):
    """The type of `ABSENT`, which stands for a field that is not there: null is a value like another."""

    ABSENT = "nothing"


ABSENT: Final = Absent.ABSENT

Path = tuple[str | int, ...]
"""Where a value lies: keys of objects and positions in lists. Never joined, as a key may hold dots and brackets."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which two values differ; `ABSENT` where one has it not."""

    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """Return the one-line form.

        >>> str(Difference("kernels.tag", "", "_b8")), str(Difference("x", None, ABSENT))
        ('kernels.tag: "" -> "_b8"', 'x: null -> nothing')
        """
        old, new = (
            value.value if isinstance(value, Absent) else brief(json.dumps(value), _SHOWN)
            for value in (self.old, self.new)
        )
        return f"{self.field}: {old} -> {new}"

    def data(self, old: str, new: str) -> dict[str, Any]:
        """Return the field and its two values under the keys given, without the one that is absent."""
        values = ((old, self.old), (new, self.new))
        return {"field": self.field} | {key: value for key, value in values if not isinstance(value, Absent)}


def differences(old: Any, new: Any) -> tuple[Difference, ...]:
    """Return the fields in which two JSON values differ, in the order of the new one, then those only in the old.

    Values are compared by where they lie in the structure: a key that is spelt like a path is another field. What one
    side lacks altogether is one difference.

    >>> [str(d) for d in differences({"a": {"K": 1}, "b": [2]}, {"a.K": 1, "b": [2, 4]})]
    ['["a.K"]: nothing -> 1', 'b[1]: nothing -> 4', 'a: {"K": 1} -> nothing']
    """
    return tuple(_differences(old, new, ()))


def with_defaults(written: Any, full: Any) -> Any:
    """Return a value as `full` has it, with the fields that only `written` has.

    `written` is a file's own data and `full` what a loader made of it: what the file leaves out or spells otherwise is
    as the loader reads it, and what the loader ignores is kept.

    >>> with_defaults({"a": "./x", "odd": 1}, {"a": "x", "b": 0})
    {'a': 'x', 'b': 0, 'odd': 1}
    """
    if isinstance(written, dict) and isinstance(full, dict):
        known = {key: with_defaults(written[key], full[key]) if key in written else full[key] for key in full}
        return known | {key: written[key] for key in written if key not in full}
    if isinstance(written, list) and isinstance(full, list) and len(written) == len(full):
        return [with_defaults(*pair) for pair in zip(written, full, strict=True)]
    return full


def _differences(old: Any, new: Any, path: Path) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*new, *old)):
            yield from _differences(old.get(key, ABSENT), new.get(key, ABSENT), (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index, pair in enumerate(itertools.zip_longest(old, new, fillvalue=ABSENT)):
            yield from _differences(*pair, (*path, index))
    elif type(old) is not type(new) or old != new:
        yield Difference(_spelt(path), old, new)


def _spelt(path: Path) -> str:
    """Return a path as text: plain keys with dots, positions and all other keys in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{brief(json.dumps(step), 80)}]"
    return text or "the whole"

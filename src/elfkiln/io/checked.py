"""The one checked reader of fields: what a JSON, TOML or YAML file says, asked for by type, refused by place.

    top = Value(read_strict_json(path, limit=4096), path.name)
    top["model"]["hidden"].whole()

A `Value` is a value of a file with the place it has there. Asking for it as a type it does not have raises `Refused`
with the file (for YAML also the line), the field, what was expected and what was found; no Python word such as
`NoneType` gets into a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.strict_json import shown
from elfkiln.io.strict_yaml import Field

LARGEST = 2**53
"""Above this not every reader of JSON takes a whole number for itself."""

_ABSENT: Final = object()
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,29})", re.ASCII)
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Words:
    """What a format calls its own things, with their articles."""

    table: str
    text: str


JSON = Words("an object", "a string")
TOML = Words("a table", "a text")
YAML = Words("a mapping", "a text")


class Value:
    """A value of a file: `raw` is it as parsed, `where` the file, `path` the field, `remedy` what to do if it is wrong.

    Of YAML, `raw` is the `Field` of `strict_yaml`: only an unquoted scalar counts as a number or as true or false.

    >>> top = Value({"size": 3, "names": ["a"]}, "t.json")
    >>> top["size"].whole(), top["names"].texts()
    (3, ('a',))
    >>> top["names"].items()[0].whole()
    Traceback (most recent call last):
    elfkiln.errors.Refused: t.json: names[0]: expected a whole number of at least 1, found 'a'
    """

    __slots__ = ("path", "raw", "remedy", "where", "words")

    def __init__(self, raw: Any, where: str, path: str = "", *, words: Words = JSON, remedy: str = "") -> None:
        """Take a parsed value and its place."""
        self.raw, self.where, self.path, self.words, self.remedy = raw, where, path, words, remedy

    @property
    def place(self) -> str:
        """The place as messages name it: file, line where it is known, field."""
        where = f"{self.where} line {self.raw.line}" if isinstance(self.raw, Field) else self.where
        return f"{where}: {brief(self.path, 200)}" if self.path else where

    @property
    def absent(self) -> bool:
        """Whether the field is not there at all."""
        return self.raw is _ABSENT

    def refuse(self, expected: object, found: object = _ABSENT, remedy: str = "") -> Refused:
        """Return the `Refused` for this value; `found` is shown as it is, the value itself if it is not given."""
        said = self._shown() if found is _ABSENT else found
        return refusal(self.place, expected=expected, found=said, remedy=remedy or self.remedy)

    def table(self, fields: Iterable[str] | None = None, optional: Iterable[str] = ()) -> dict[str, Value]:
        """Return a mapping's values by key.

        With `fields`, every one of them must be there but for the `optional`, and no other; without, any may.
        """
        raw = self._structure()
        if not isinstance(raw, dict):
            raise self.refuse(self.words.table)
        if fields is not None:
            self._check_fields(raw, frozenset(fields), frozenset(optional))
        return {key: self._inner(value, f"{self.path}.{key}" if self.path else key) for key, value in raw.items()}

    def items(self, *, least: int = 0) -> list[Value]:
        """Return a list's values; `least` is how many there must be."""
        raw = self._structure()
        if not isinstance(raw, list) or len(raw) < least:
            raise self.refuse("a list" if least == 0 else f"a list of at least {least}")
        return [self._inner(value, f"{self.path}[{position}]") for position, value in enumerate(raw)]

    def __getitem__(self, key: str) -> Value:
        """Return a mapping's value, for a key that is not there one that every question but `absent` refuses."""
        raw = self._structure()
        if not isinstance(raw, dict):
            raise self.refuse(self.words.table)
        return self._inner(raw.get(key, _ABSENT), f"{self.path}.{key}" if self.path else key)

    def text(self, *, empty: bool = False) -> str:
        """Return a text; an empty one is refused unless `empty`."""
        raw = self.raw.value if isinstance(self.raw, Field) else self.raw
        if not isinstance(raw, str) or not (raw or empty):
            raise self.refuse(self.words.text)
        return raw

    def texts(self) -> tuple[str, ...]:
        """Return a list of texts, none of them empty."""
        return tuple(item.text() for item in self.items())

    def whole(self, least: int = 1, most: int = LARGEST) -> int:
        """Return a whole number within the bounds; true and false are none."""
        value = self._plain()
        if type(value) is not int or not least <= value <= most:
            bounds = f"of at least {least}" if most == LARGEST else f"from {least} to {most}"
            raise self.refuse(f"a whole number {bounds}")
        return value

    def boolean(self) -> bool:
        """Return true or false."""
        value = self._plain()
        if not isinstance(value, bool):
            raise self.refuse("true or false")
        return value

    def choice(self, allowed: Iterable[str]) -> str:
        """Return a text that is one of the allowed."""
        known = tuple(allowed)
        value = self._plain()
        if not isinstance(value, str) or value not in known:
            words = [text or repr(text) for text in known]
            raise self.refuse(words[0] if len(words) == 1 else "one of " + ", ".join(words))
        return value

    def digest(self, prefix: str = "") -> str:
        """Return the 64 hex digits of a sha256; `prefix` must stand before them (`sha256:`) and is taken off."""
        value = self._plain()
        digits = value.removeprefix(prefix) if isinstance(value, str) and value.startswith(prefix) else ""
        if not is_sha256(digits):
            expected = f"{prefix}<64 lower-case hex digits>" if prefix else "64 lower-case hex digits of a sha256"
            raise self.refuse(expected)
        return digits

    def below(self, folder: str) -> str:
        """Return a relative path with `/` that stays below `folder`, which is how the message calls the place."""
        path = self.text()
        if not is_below(path):
            raise self.refuse(f"a path below {folder}")
        return path

    def _check_fields(self, raw: dict[str, Any], fields: frozenset[str], optional: frozenset[str]) -> None:
        unknown, missing = sorted(raw.keys() - fields), sorted(fields - optional - raw.keys())
        if unknown:
            raise self.refuse(_fields_of(fields), found=brief(" ".join(unknown)))
        if missing:
            raise self.refuse(_fields_of(fields), found="no " + ", no ".join(missing))

    def _shown(self) -> str:
        value = self._plain()
        if isinstance(value, dict):
            return f"{self.words.table} of {len(value)} key{'' if len(value) == 1 else 's'}"
        return shown(None if value is _ABSENT else value)

    def _inner(self, raw: Any, path: str) -> Value:
        return Value(raw, self.where, path, words=self.words, remedy=self.remedy)

    def _structure(self) -> Any:
        return self.raw.value if isinstance(self.raw, Field) else self.raw

    def _plain(self) -> Any:
        """Return the value as Python has it; a plain scalar of YAML as the number or truth value it is."""
        if not isinstance(self.raw, Field):
            return self.raw
        value = self.raw.value
        if not self.raw.plain or not isinstance(value, str):
            return value
        if _WHOLE.fullmatch(value):
            return int(value)
        return {"true": True, "false": False, "": None, "~": None, "null": None}.get(value, value)


def _fields_of(fields: frozenset[str]) -> str:
    return "the fields " + " ".join(sorted(fields))


def is_sha256(text: object) -> bool:
    """Whether a value is 64 lower-case hex digits; guards every path that is made of a digest."""
    return isinstance(text, str) and len(text) == 64 and _HEX.issuperset(text)


def is_below(path: str) -> bool:
    """Whether a path is relative, uses `/`, prints, and has no step upwards.

    >>> [is_below(path) for path in ("a/b", "a/../b", "/a", "a\\\\b", ".", "")]
    [True, False, False, False, False, False]
    """
    steps = path.split("/")
    return path.isprintable() and "\\" not in path and all(step not in ("", ".", "..") for step in steps)

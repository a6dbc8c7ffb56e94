"""What a field of plan.json may hold: one check for each kind of value, and the words of its refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError, brief, refusal
from elfkiln.io.strict_json import shown

MAX_NUMBER = 2**31 - 1
"""Largest whole number taken: the engine reads plans into C ints."""

MAX_NOTED = 20
"""How many ignored fields of one place, or unknown roles, are named before the rest is counted."""

MAX_STEPS = 32
MAX_STEP_BYTES = 255
"""Bounds of a path of decode.dirs: no file system takes a longer step, and no folder of kernels lies deeper."""

_INDEX = re.compile(r"\[[0-9]+\]", re.ASCII)
_BARE_FORBIDDEN = ("/", "\\", "\0")


@dataclass(frozen=True, slots=True)
class PlanReader:
    """What the checks of one plan share: the file's name in messages, whether roles are strict, and the notes."""

    where: str
    strict: bool = True
    notes: list[str] = field(default_factory=list)
    ignored: dict[str, set[str]] = field(default_factory=dict)

    def refuse(self, name: str, *, expected: object, found: Any, remedy: str = "") -> ElfkilnError:
        """Return the refusal of a field whose value is `found`."""
        return self.refuse_as(name, expected=expected, found=shown(found), remedy=remedy)

    def refuse_as(self, name: str, *, expected: object, found: object, remedy: str = "") -> ElfkilnError:
        """Return the refusal of a field, with `found` in words."""
        return refusal(f"{self.where}: {name}" if name else self.where, expected=expected, found=found, remedy=remedy)

    def object(self, name: str, value: Any, known: Iterable[str]) -> dict[str, Any]:
        """Return an object; keys that are not `known` are noted, as the engine ignores them."""
        if not isinstance(value, dict):
            raise self.refuse(name, expected="an object", found=value)
        keys = frozenset(known)
        self.note_ignored(name, (key for key in value if key not in keys))
        return value

    def note_ignored(self, name: str, keys: Iterable[str]) -> None:
        """Note keys that are not fields, each once for all items of a list; `finish` counts those over the bound."""
        place = _INDEX.sub("[]", name)
        seen = self.ignored.setdefault(place, set())
        for key in keys:
            if key in seen:
                continue
            seen.add(key)
            if len(seen) <= MAX_NOTED:
                spelt = f"{place}.{brief(key, 60)}" if place else brief(key, 60)
                self.notes.append(f"{spelt}: not a field of {contract.PLAN_FORMAT}, ignored")

    def finish(self) -> tuple[str, ...]:
        """Return all notes; a plan of many unknown fields names the first of each place and counts the rest."""
        more = (
            f"{place or self.where}: {len(keys) - MAX_NOTED} more fields ignored"
            for place, keys in self.ignored.items()
            if len(keys) > MAX_NOTED
        )
        return (*self.notes, *more)


Check: TypeAlias = Callable[[PlanReader, str, Any], Any]
"""Takes the reader, a field's dotted name and its value; returns the value to keep, or raises `Refused`."""


def text(reader: PlanReader, name: str, value: Any) -> str:
    """Take any string."""
    if not isinstance(value, str):
        raise reader.refuse(name, expected="a string", found=value)
    return value


def boolean(reader: PlanReader, name: str, value: Any) -> bool:
    """Take true or false."""
    if not isinstance(value, bool):
        raise reader.refuse(name, expected="true or false", found=value)
    return value


def choice(*allowed: str) -> Check:
    """Take one of the strings listed."""
    words = [word or repr(word) for word in allowed]
    expected = words[0] if len(words) == 1 else "one of " + ", ".join(words)

    def check(reader: PlanReader, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise reader.refuse(name, expected=expected, found=value)
        return value

    return check


def known_or_noted(*known: str) -> Check:
    """Take any string; note one that is not known (the table it is held against is partly a guess)."""

    def check(reader: PlanReader, name: str, value: Any) -> str:
        word = text(reader, name, value)
        if word and word not in known:
            reader.notes.append(f"{name}: {brief(repr(word), 80)} is not one of {', '.join(known)}")
        return word

    return check


def whole(reader: PlanReader, name: str, value: Any) -> int:
    """Take a whole number from 0."""
    return _within(reader, name, value, 0, "a whole number")


def positive(reader: PlanReader, name: str, value: Any) -> int:
    """Take a whole number from 1."""
    return _within(reader, name, value, 1, "a positive whole number")


def only(number: int, why: str) -> Check:
    """Take that one number."""

    def check(reader: PlanReader, name: str, value: Any) -> int:
        if positive(reader, name, value) != number:
            raise reader.refuse(name, expected=f"{number}, {why}", found=value)
        return number

    return check


def power_of_two(least: int, most: int) -> Check:
    """Take 0 or a power of two within the bounds."""
    expected = f"0 or a power of two in {least}..{most}"

    def check(reader: PlanReader, name: str, value: Any) -> int:
        number = _within(reader, name, value, 0, expected)
        if number and (not least <= number <= most or number & (number - 1)):
            raise reader.refuse(name, expected=expected, found=value)
        return number

    return check


def bare_name(reader: PlanReader, name: str, value: Any) -> str:
    """Take a file name without a folder, or nothing."""
    word = text(reader, name, value)
    if word in (".", "..") or any(mark in word for mark in _BARE_FORBIDDEN) or not word.isprintable():
        raise reader.refuse(name, expected="a bare file name", found=word)
    return word


def relative_path(reader: PlanReader, name: str, value: Any) -> str:
    """Take a path that stays below its root; return it without empty and `.` steps ("." for the root itself)."""
    path = text(reader, name, value)
    fault = _path_fault(path)
    if fault:
        expected = "a relative path with / that stays below its root"
        raise reader.refuse_as(name, expected=expected, found=f"{fault}: {shown(path)}")
    return "/".join(_steps(path)) or "."


def list_of(check: Check, expected: str) -> Check:
    """Take a list that is not empty and whose items all pass `check`."""

    def check_all(reader: PlanReader, name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise reader.refuse(name, expected=expected, found=value)
        return tuple(check(reader, f"{name}[{index}]", item) for index, item in enumerate(value))

    return check_all


def _within(reader: PlanReader, name: str, value: Any, least: int, expected: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise reader.refuse(name, expected=expected, found=value)
    if value > MAX_NUMBER:
        raise reader.refuse(name, expected=f"{expected} below 2^31, as the engine reads it into an int", found=value)
    return value


def _steps(path: str) -> list[str]:
    return [step for step in path.split("/") if step not in ("", ".")]


def _path_fault(path: str) -> str:
    """Return what is wrong with a path of decode.dirs, "" for nothing.

    The published rule forbids `..` anywhere, within a step too.
    """
    if not path:
        return "an empty path"
    if path.startswith("/"):
        return "an absolute path"
    if "\\" in path:
        return "a backslash"
    if ".." in path:
        return "'..'"
    if not path.isprintable():
        return "a character that does not print"
    steps = _steps(path)
    if len(steps) > MAX_STEPS:
        return f"{len(steps)} steps, where {MAX_STEPS} are taken"
    if any(len(step.encode("utf-8", "surrogatepass")) > MAX_STEP_BYTES for step in steps):
        return f"a step of over {MAX_STEP_BYTES} bytes"
    return ""

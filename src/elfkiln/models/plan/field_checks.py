"""What a field of plan.json may hold: one check for each kind of value, on top of the one reader of fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from elfkiln.engine import contract
from elfkiln.errors import brief
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import shown

MAX_NUMBER = 2**31 - 1
"""Largest whole number taken: the engine reads plans into C ints."""

MAX_NOTED = 20
"""How many ignored fields of one place, or unknown roles, are named before the rest is counted."""

MAX_STEPS = 32
MAX_STEP_BYTES = 255
"""Bounds of a path of decode.dirs: no file system takes a longer step, and no folder of kernels is deeper."""

_INDEX = re.compile(r"\[[0-9]+\]", re.ASCII)
_BARE_FORBIDDEN = ("/", "\\", "\0")


@dataclass(frozen=True, slots=True)
class PlanReading:
    """What the checks of one plan share: whether unknown roles are refused, and the notes."""

    strict: bool = True
    notes: list[str] = field(default_factory=list)
    ignored: dict[str, set[str]] = field(default_factory=dict)

    def object(self, value: Value, known: Iterable[str]) -> dict[str, Value]:
        """Return an object's fields; keys that are not `known` are noted, as the engine ignores them.

        A key is noted once for all items of a list.
        """
        fields, keys = value.table(), frozenset(known)
        place = _INDEX.sub("[]", value.path)
        seen = self.ignored.setdefault(place, set())
        for key in fields:
            if key in keys or key in seen:
                continue
            seen.add(key)
            if len(seen) <= MAX_NOTED:
                spelt = f"{place}.{brief(key, 60)}" if place else brief(key, 60)
                self.notes.append(f"{spelt}: not a field of {contract.PLAN_FORMAT}, ignored")
        return fields

    def finish(self, where: str) -> tuple[str, ...]:
        """Return all notes; a plan of many unknown fields names the first of each place and counts the rest."""
        more = (
            f"{place or where}: {len(keys) - MAX_NOTED} more fields ignored"
            for place, keys in self.ignored.items()
            if len(keys) > MAX_NOTED
        )
        return (*self.notes, *more)


Check: TypeAlias = Callable[[PlanReading, Value], Any]
"""Takes the reading and a field's value; returns what to keep, or raises `Refused` naming the field."""


def text(_: PlanReading, value: Value) -> str:
    """Take any string."""
    return value.text(empty=True)


def boolean(_: PlanReading, value: Value) -> bool:
    """Take true or false."""
    return value.boolean()


def choice(*allowed: str) -> Check:
    """Take one of the strings listed."""

    def check(_: PlanReading, value: Value) -> str:
        return value.choice(allowed)

    return check


def known_or_noted(*known: str) -> Check:
    """Take any string; note one that is not known (the table it is held against is partly a guess)."""

    def check(reading: PlanReading, value: Value) -> str:
        word = text(reading, value)
        if word and word not in known:
            reading.notes.append(f"{value.path}: {brief(repr(word), 80)} is not one of {', '.join(known)}")
        return word

    return check


def whole(_: PlanReading, value: Value) -> int:
    """Take a whole number from 0."""
    return _within(value, 0, "a whole number")


def positive(_: PlanReading, value: Value) -> int:
    """Take a whole number from 1."""
    return _within(value, 1, "a positive whole number")


def only(number: int, why: str) -> Check:
    """Take that one number."""

    def check(reading: PlanReading, value: Value) -> int:
        if positive(reading, value) != number:
            raise value.refuse(f"{number}, {why}")
        return number

    return check


def power_of_two(least: int, most: int) -> Check:
    """Take 0 or a power of two within the bounds."""
    expected = f"0 or a power of two in {least}..{most}"

    def check(_: PlanReading, value: Value) -> int:
        number = _within(value, 0, expected)
        if number and (not least <= number <= most or number & (number - 1)):
            raise value.refuse(expected)
        return number

    return check


def bare_name(reading: PlanReading, value: Value) -> str:
    """Take a file name without a folder, or nothing."""
    word = text(reading, value)
    if word in (".", "..") or any(mark in word for mark in _BARE_FORBIDDEN) or not word.isprintable():
        raise value.refuse("a bare file name")
    return word


def relative_path(reading: PlanReading, value: Value) -> str:
    """Take a path that stays below its root; return it without empty and `.` steps ("." for the root itself)."""
    path = text(reading, value)
    fault = _path_fault(path)
    if fault:
        raise value.refuse("a relative path with / that stays below its root", f"{fault}: {shown(path)}")
    return "/".join(_steps(path)) or "."


def list_of(check: Check, expected: str) -> Check:
    """Take a list that is not empty and whose items all pass `check`."""

    def check_all(reading: PlanReading, value: Value) -> tuple[Any, ...]:
        if not isinstance(value.raw, list) or not value.raw:
            raise value.refuse(expected)
        return tuple(check(reading, item) for item in value.items())

    return check_all


def _within(value: Value, least: int, expected: str) -> int:
    number = value.raw
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise value.refuse(expected)
    if number > MAX_NUMBER:
        raise value.refuse(f"{expected} below 2^31, as the engine reads it into an int")
    return number


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

"""How the classes of `schema` are a list of plan.json's fields, and how an object of the file becomes one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from elfkiln.io.checked import Value
from elfkiln.models.plan.field_checks import Check, PlanReading

_KEY = "plan field"
_NEEDED: Final = object()
_NONE_WHERE_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field: its dotted place below the object of its class, the check of its value, and its default as JSON.

    `written` says that the generator writes it even where it has its default; `compared`, that two plans differ if it
    does. `section` is the class of an object whose fields are listed there.
    """

    place: str
    check: Check
    default: Any
    written: bool = True
    compared: bool = True
    section: type[Any] | None = None

    @property
    def needed(self) -> bool:
        """Whether a file that leaves the field out is refused."""
        return self.default is _NEEDED

    @property
    def none_where_absent(self) -> bool:
        """Whether the attribute is None where the file has no such field (null in the file is refused)."""
        return self.default is _NONE_WHERE_ABSENT


def plan_field(place: str, check: Check, *, default: Any = _NEEDED, written: bool = True, compared: bool = True) -> Any:
    """Declare an attribute that is a field of the file; `default` is the JSON value that stands for an absent one."""
    return field(metadata={_KEY: FieldSpec(place, check, default, written, compared)})


def optional_field(place: str, check: Check) -> Any:
    """Declare an attribute that is a field of the file, or None where the file leaves it out."""
    return field(default=None, metadata={_KEY: FieldSpec(place, check, _NONE_WHERE_ABSENT, written=False)})


def plan_section(place: str, section: type[Any], *, default: Any = _NEEDED, written: bool = True) -> Any:
    """Declare an attribute that is an object of fields; `default` is the object that stands for an absent one."""

    def check(reading: PlanReading, value: Value) -> Any:
        return read_fields(section, reading, value)

    return field(metadata={_KEY: FieldSpec(place, check, default, written, section=section)})


def specs(schema: type[Any]) -> Iterator[tuple[str, FieldSpec]]:
    """Yield attribute and spec of each field of a class, in the order of the file."""
    for entry in fields(schema):
        if _KEY in entry.metadata:
            yield entry.name, entry.metadata[_KEY]


def read_fields(schema: type[Any], reading: PlanReading, value: Value, *, also: Iterable[str] = (), **more: Any) -> Any:
    """Return the object of `schema` that a JSON value says; raises `Refused` naming the field that cannot be taken.

    `also` are keys of the value that are read elsewhere, and `more` the attributes they became.
    """
    keys = _keys(schema)
    objects = {"": reading.object(value, (*keys.pop(""), *also))}

    def at(place: str, default: Any) -> Value:
        parent, _, key = place.rpartition(".")
        return objects[parent].get(key) or Value(default, value.where, f"{value.path}.{place}" if value.path else place)

    for place, known in keys.items():
        # A section that is left out is an empty one, unless a field of it is needed: then the section itself is asked
        # for, since "model: found nothing" says more than "model.hidden: found nothing".
        objects[place] = reading.object(at(place, None if _is_needed(schema, place) else {}), known)
    values = {}
    for attribute, spec in specs(schema):
        found = at(spec.place, None if spec.needed or spec.none_where_absent else spec.default)
        if not spec.none_where_absent or _is_there(objects, spec.place):
            values[attribute] = spec.check(reading, found)
    return schema(**values, **more)


def _is_there(objects: Mapping[str, Mapping[str, Value]], place: str) -> bool:
    parent, _, key = place.rpartition(".")
    return key in objects[parent]


def _keys(schema: type[Any]) -> dict[str, list[str]]:
    """Return the keys of every object that the places of a class go through, by its place; "" is the class's own."""
    keys: dict[str, list[str]] = {"": []}
    for _, spec in specs(schema):
        steps = spec.place.split(".")
        for depth, step in enumerate(steps):
            inner = keys.setdefault(".".join(steps[:depth]), [])
            if step not in inner:
                inner.append(step)
    return keys


def _is_needed(schema: type[Any], place: str) -> bool:
    return any(spec.needed for _, spec in specs(schema) if spec.place.startswith(f"{place}."))

"""Compares plans: the fields of two, the names they ask for, and a file with what its model folder gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Refused
from elfkiln.io.json_difference import Difference, differences, with_defaults
from elfkiln.io.strict_json import read_strict_json
from elfkiln.models.plan.fields import header_fields, plan_fields
from elfkiln.models.plan.generate import Generated
from elfkiln.models.plan.load import MAX_PLAN_BYTES, load_plan
from elfkiln.models.plan.names import plan_requirements
from elfkiln.models.plan.schema import FREE_TEXT, Plan
from elfkiln.models.requirement import Requirement, RequirementSet


@dataclass(frozen=True, slots=True)
class Change:
    """A name both ask for, and each attribute that differs: (attribute, old, new)."""

    name: str
    attributes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class SetDifference:
    """How one requirement set differs from another. `headers` are differing plan fields where both are plans."""

    gained: tuple[Requirement, ...]
    lost: tuple[Requirement, ...]
    changed: tuple[Change, ...]
    headers: tuple[Difference, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether both ask for the same, field for field."""
        return not (self.gained or self.lost or self.changed or self.headers)


@dataclass(frozen=True, slots=True)
class Checked:
    """How a plan file compares with what its model folder gives.

    `differences` are the fields that differ in meaning; `refused` is what the loader refuses the file for, "" when it
    takes it; `notes` are the loader's.
    """

    differences: tuple[Difference, ...]
    refused: str = ""
    notes: tuple[str, ...] = ()

    @property
    def current(self) -> bool:
        """Whether the file is sound and says what its model folder gives."""
        return not self.differences and not self.refused


def compare_sets(old: RequirementSet, new: RequirementSet) -> SetDifference:
    """Return what `new` asks for beyond `old`, what no longer, and what otherwise.

    Names are matched by file name; compared are directory, columns, rows, the sealed geometries, and what runs it
    (the layers only one of them names where both are plans, the count of launches where one is a role table).
    """
    before = {requirement.file_name: requirement for requirement in old.requirements}
    after = {requirement.file_name: requirement for requirement in new.requirements}
    changed = (Change(name, _attributes(before[name], after[name])) for name in before if name in after)
    return SetDifference(
        tuple(after[name] for name in after if name not in before),
        tuple(before[name] for name in before if name not in after),
        tuple(change for change in changed if change.attributes),
    )


def compare_headers(old: Plan, new: Plan) -> tuple[Difference, ...]:
    """Return the plan fields, layers apart, in which two plans differ; generated_by is free text and does not count.

    Fields a plan leaves out count with their defaults.
    """
    return differences(header_fields(old), header_fields(new))


def check_plan(path: Path, generated: Generated) -> Checked:
    """Compare the plan at `path` with a freshly generated one, and try it on the loader and the requirements.

    What the engine reads alike counts as equal: white space, order, fields left out for their default, `generated_by`.
    A field the loader ignores is a difference. Raises `Refused` when the file is absent or no JSON.
    """
    written = read_strict_json(path, limit=MAX_PLAN_BYTES)
    try:
        plan = load_plan(path)
        plan_requirements(plan, path.parent.name)
    except Refused as error:
        return Checked(differences(_meaning(written), _meaning(generated.data)), str(error))
    old, new = (
        _meaning(with_defaults(data, plan_fields(read)))
        for data, read in ((written, plan), (generated.data, generated.plan))
    )
    return Checked(differences(old, new), notes=plan.notes)


def _meaning(data: Any) -> Any:
    return {key: value for key, value in data.items() if key != FREE_TEXT} if isinstance(data, dict) else data


def _attributes(old: Requirement, new: Requirement) -> tuple[tuple[str, str, str], ...]:
    by_layer = all(use.layer is not None for use in (*old.layers, *new.layers))
    pairs = (
        ("directory", old.directory, new.directory),
        ("columns", old.columns, new.columns),
        ("rows", old.rows, new.rows),
        ("sealed", _geometries(old), _geometries(new)),
        _layers(old, new) if by_layer else ("launches", old.launches, new.launches),
    )
    return tuple((name, str(one), str(other)) for name, one, other in pairs if one != other)


def _geometries(requirement: Requirement) -> str:
    return " ".join(f"{K}x{N}" for K, N in requirement.sealed)


def _layers(old: Requirement, new: Requirement) -> tuple[str, str, str]:
    """Return the layers that run only the old one, and only the new one."""
    before, after = ({use.layer for use in entry.layers if use.layer is not None} for entry in (old, new))
    return "layers", _ranges(before - after), _ranges(after - before)


def _ranges(numbers: set[int]) -> str:
    """Return numbers as ranges.

    >>> _ranges({0, 1, 2, 4}), _ranges(set())
    ('0-2 4', 'none')
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "none"

"""Compares what two plans ask for: names gained, lost and changed, and the plan fields behind it."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.models.plan.fields import Difference, differences, header_fields
from elfkiln.models.plan.schema import Plan
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

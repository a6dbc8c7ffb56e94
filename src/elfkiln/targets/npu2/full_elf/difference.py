"""What differs between two ELFs of one recipe: a rebuild check says which parts, not only that digests differ."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.targets.kinds import BadElf
from elfkiln.targets.npu2.full_elf.sections import Section, read_sections

IDENTICAL = "identical"
UID_ONLY = "uid-only"
INSTRUCTIONS = "instructions"
PDI = "pdi"
PDI_AND_INSTRUCTIONS = "pdi-and-instructions"
TABLES = "tables"
NOT_COMPARABLE = "not-comparable"

_UID = ".note.xrt.UID"
# These follow from the instruction streams, so a change there shows here too.
_FOLLOWING = frozenset({_UID, ".dynstr", ".dynsym", ".rela.dyn", ".dynamic"})


@dataclass(frozen=True, slots=True)
class Difference:
    """How two ELFs differ: `kind` in one word, then per section the bytes that differ (size changes count whole)."""

    kind: str
    sections: tuple[tuple[str, int], ...] = ()

    @property
    def line(self) -> str:
        """The difference on one line."""
        parts = ", ".join(f"{name} {count:,} bytes" for name, count in self.sections)
        return f"{self.kind}: {parts}" if parts else self.kind


def classify_difference(a: bytes, b: bytes) -> Difference:
    """Return which sections of two ELFs differ and what that means.

    `uid-only` is the same program under another UID note, `instructions` another stream on the same array
    configuration, `pdi` another configuration (core programs, routes) under the same stream. Files that are not ELFs
    are `not-comparable`.
    """
    if a == b:
        return Difference(IDENTICAL)
    try:
        ours, theirs = (_by_name(read_sections(data)) for data in (a, b))
    except BadElf:
        return Difference(NOT_COMPARABLE)
    changed = {}
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        count = _changed(ours.get(name), theirs.get(name))
        if count:
            changed[name] = count
    return Difference(_kind(set(changed)), tuple(changed.items()))


def _by_name(sections: tuple[Section, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for section in sections:
        if section.name:
            found[section.name] = found.get(section.name, b"") + section.data
    return found


def _changed(one: bytes | None, other: bytes | None) -> int:
    one, other = one or b"", other or b""
    common = sum(x != y for x, y in zip(one, other, strict=False)) if one != other else 0
    return common + abs(len(one) - len(other))


def _kind(changed: set[str]) -> str:
    pdi = any(name.startswith(".pdi") for name in changed)
    stream = any(name.startswith(".ctrltext") for name in changed)
    rest = {name for name in changed if not name.startswith((".pdi", ".ctrltext"))}
    if pdi or stream:
        kind = PDI_AND_INSTRUCTIONS if pdi and stream else PDI if pdi else INSTRUCTIONS
        return kind if rest <= _FOLLOWING else TABLES
    return UID_ONLY if rest == {_UID} else TABLES

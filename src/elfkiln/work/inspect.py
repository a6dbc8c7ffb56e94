"""Says what a file is: a full ELF, a sim ELF, or one of the wrong things that have stood behind artifact names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import SEALED_ELF
from elfkiln.errors import Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.reading import read_regular
from elfkiln.targets.kinds import MAX_ELF_BYTES, other_kind
from elfkiln.targets.table import TARGETS, target_named
from elfkiln.targets.target import Look


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a file is (`kind`, a word of `elfkiln.targets.kinds`) and facts about it.

    `reject` is the class of what is wrong with it, of the same words, and `fault` the line that says it (None: sound).
    """

    path: str
    kind: str
    size: int
    sha256: str
    facts: Mapping[str, Any]
    reject: str | None
    fault: str | None

    @property
    def sound(self) -> bool:
        """Whether the file is an artifact, and the one its name says."""
        return self.fault is None

    def to_json(self) -> dict[str, Any]:
        """The inspection for machines."""
        head = {"path": self.path, "kind": self.kind, "size": self.size, "sha256": self.sha256}
        return {**head, **self.facts, "sound": self.sound, "reject": self.reject, "fault": self.fault}

    def lines(self) -> list[str]:
        """The inspection for a person: one fact a line, the fault last."""
        rows = [f"{self.path}: {self.kind}, {self.size:,} bytes, sha256:{self.sha256}"]
        for key, value in self.facts.items():
            values = value if isinstance(value, list) else [value]
            rows += [f"  {key}: {_flat(one)}" for one in values]
        if self.fault is not None:
            rows.append(f"  fault: {self.fault}")
        return rows


Name: TypeAlias = "ArtifactName | str"
"""An artifact's name, or that of the sealed ELF (`pb16i_sealed.elf`), which says no geometry."""


def name_of(text: str) -> Name:
    """Read what an ELF may be called: an artifact name or the sealed ELF's; `Refused` for anything else."""
    return text if text == SEALED_ELF else ArtifactName.parse(text)


def inspect(path: Path, name: Name | None = None, target: str | None = None) -> Inspection:
    """Say what a file is; with a name (or an artifact's file name) also whether it computes what the name says.

    Of a sealed ELF the sequences say the geometries: `init` and at least one of `seq_K.._N..`, each computing its own.

    `target` makes an ELF of another target a fault. Raises `Refused` when the file cannot be read, and for an unknown
    target.
    """
    row = None if target is None else target_named(target)
    data = read_regular(path, limit=MAX_ELF_BYTES, remedy="give an ELF")
    found = _look(data, name if name is not None else _own_name(path.name))
    kind, reject, fault = found.kind, found.reject, found.fault
    if fault is None and row is not None and kind != row.kind:
        meaning = next(one.kinds[kind] for one in TARGETS.values() if kind in one.kinds)
        reject, fault = kind, f"{kind}: expected an ELF of target {target}, found {meaning}"
    return Inspection(path.name, kind, len(data), sha256_hex(data), found.facts, reject, fault)


def _own_name(text: str) -> Name | None:
    try:
        return name_of(text)
    except Refused:
        return None


def _look(data: bytes, name: Name | None) -> Look:
    for target in TARGETS.values():
        found = target.look(data, name)
        if found is not None:
            return found
    other = other_kind(data)
    assert other is not None, "target npu2 takes every 32-bit ELF"
    return Look(other.kind, {}, other.kind, str(other))


def _flat(value: Any) -> str:
    """Return a fact on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(one)}" for key, one in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_flat(one) for one in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)

"""The table of targets, and what is asked of a target by its name. A new target is one row here."""

from __future__ import annotations

from pathlib import Path

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import one_of, refusal
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2 import TARGET as NPU2
from elfkiln.targets.sim import TARGET as SIM
from elfkiln.targets.target import Builder, OpenedElf, Target

TARGETS: dict[str, Target] = {"npu2": NPU2, "sim": SIM}

HOST = SIM
"""The target that runs designs on this machine: what `verify` compares with."""


def target_named(name: str) -> Target:
    """Return a target; `Refused` for a name the table does not have.

    >>> target_named("sim").kind
    'sim'
    """
    if name not in TARGETS:
        raise refusal("target", expected=one_of(name, sorted(TARGETS)), found=name)
    return TARGETS[name]


def builder_for(project: Project, name: str | None) -> Builder:
    """Return the builder of a target (default: `default_target` of toolchain.lock).

    Raises `Refused` for an unknown target, or when the tools that would run are not the locked ones.
    """
    pin = read_lock(project.lock_file).target(name)
    return target_named(pin.name).builder(project, pin)


def open_elf(target: str, elf: Path) -> OpenedElf:
    """Read an ELF of a target; raises `Differs` for a stub, a damaged or foreign file, an ELF of another target.

    No toolchain is needed.
    """
    return target_named(target).open(elf)


def check_elf(target: str, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
    """Check that a file is an ELF of the target and is what the name, or the sealed geometries, say.

    Raises `Differs` with one line, as `open_elf` does and for another geometry.
    """
    open_elf(target, elf).check(name, sealed)

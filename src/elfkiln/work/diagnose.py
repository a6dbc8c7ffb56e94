"""Says what a file is that the engine would open for a name and that is not the registered one."""

from __future__ import annotations

import os
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import ElfkilnError
from elfkiln.targets.kinds import MAX_ELF_BYTES
from elfkiln.targets.table import open_elf
from elfkiln.work.answers import look_at
from elfkiln.work.fast_check import NO_DIGEST, Row, other_bytes
from elfkiln.work.gaps import Gap, kind_of


def diagnose(row: Row, target: str, opened: str, later: list[str], state: str) -> Gap | None:
    """Return the gap behind a name whose file is `opened`, None when the file is what is asked for after all.

    `state` is what `look_at` said of it. A sealed ELF of the right digest is read: its own metadata says which
    geometries it holds. `later` are the files that the engine does not come to.
    """
    expected = None if row.digest == NO_DIGEST else row.digest

    def gap(kind: str, detail: str, found: str | None = None) -> Gap:
        return Gap(row.key, opened, kind, detail, expected, found)  # type: ignore[arg-type]

    if state == row.digest:
        problem = row.problem or _fault(row, target, opened)
        return gap(kind_of(problem), problem, state) if problem else None
    right = next((place for place in later if expected and look_at(place, row.size) == expected), None)
    if right is not None:
        detail = f"the registered file is {right}, but the engine opens this one first; remove it"
        return gap("shadowed", detail, state if len(state) == 64 else None)
    size = os.stat(opened).st_size
    if size < contract.MIN_ELF_BYTES:
        return gap("stub", f"expected a kernel ELF of at least {contract.MIN_ELF_BYTES} bytes, found {size} bytes")
    if size > MAX_ELF_BYTES:
        return gap("wrong bytes", f"expected a kernel ELF of at most {MAX_ELF_BYTES} bytes, found {size} bytes")
    try:
        elf = open_elf(target, Path(opened))
    except ElfkilnError as error:
        return gap("wrong bytes", str(error))
    try:
        elf.check(_name(row), _geometries(row))
    except ElfkilnError as error:
        return gap("wrong geometry", str(error))
    if expected is None:
        return gap("not registered", f"a sound ELF, but registry.yaml has no {row.key} for target {target}")
    return other_bytes(row, opened, state)


def sealed_fault(target: str, path: Path, sealed: tuple[tuple[int, int], ...]) -> str | None:
    """Return what a sealed ELF's own metadata says against the geometries asked for, None when it holds them."""
    try:
        open_elf(target, path).check(None, sealed)
    except ElfkilnError as error:
        return " ".join(str(error).split())
    return None


def _fault(row: Row, target: str, opened: str) -> str | None:
    return sealed_fault(target, Path(opened), _geometries(row)) if row.sealed else None


def _name(row: Row) -> ArtifactName | None:
    return None if row.sealed else ArtifactName.parse(row.key)


def _geometries(row: Row) -> tuple[tuple[int, int], ...]:
    pairs = (pair.split("x") for pair in row.sealed.split(",") if pair)
    return tuple((int(K), int(N)) for K, N in pairs)

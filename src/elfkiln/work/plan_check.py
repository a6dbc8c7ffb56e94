"""What an engine would open for a plan, and whether it is what the registry says: the walk of decode.dirs, on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, ElfkilnError
from elfkiln.io.canonical import file_sha256
from elfkiln.io.files import digest_or_none
from elfkiln.models.plan.search import Candidates, Choice, choose
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.store.registry import Entry
from elfkiln.targets.table import open_elf
from elfkiln.work.jobs import entry_of, registry_key, sealed_problem


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one artifact of a plan on disk.

    `state` is `ok`, `missing`, `stub`, `wrong geometry`, `wrong bytes`, `shadowed` (an earlier directory holds other
    bytes under the name while the right file lies later) or `not registered`. `opened` is what the engine would open.
    """

    requirement: Requirement
    key: str
    state: str
    opened: Path | None
    digest: str | None
    detail: str
    candidates: tuple[Path, ...]

    @property
    def shown(self) -> Path:
        """The path the engine would print: what it opens, or the last place it looked."""
        return self.opened or self.candidates[-1]

    def lines(self) -> list[str]:
        """Return the lines for a person; none when it is ok."""
        if self.state == "ok":
            return []
        head = "missing full ELF" if self.state == "missing" else f"{self.state} in full ELF"
        return [f"{head} {self.shown}", f"  {self.detail}"] if self.detail else [f"{head} {self.shown}"]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.requirement.file_name,
            "state": self.state,
            "opened": str(self.opened) if self.opened else None,
            "sha256": self.digest,
            "detail": self.detail,
            "candidates": [str(path) for path in self.candidates],
            "layers": [str(use) for use in self.requirement.layers],
        }


def check_candidates(
    target: str, wanted: RequirementSet, found: list[Candidates], entries: Mapping[str, Entry]
) -> list[Finding]:
    """Return the state of every artifact, in the order of the plan.

    `entries` is the registry's part for `target`. Files are read and hashed; a file that cannot be read is `missing`.
    """
    return [
        _finding(target, candidates, entry_of(entries, wanted, candidates.requirement), wanted) for candidates in found
    ]


def exit_code_of(findings: list[Finding]) -> int:
    """Return 0 when every artifact is ok, else 1."""
    return EXIT_DONE if all(finding.state == "ok" for finding in findings) else EXIT_DIFFERS


def size_of(path: Path) -> int | None:
    """Return the bytes of a regular file, None when there is none that can be read."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) and os.access(path, os.R_OK) else None


def opened_of(candidates: Candidates) -> Choice:
    """Return what the engine opens of an artifact's candidates."""
    return choose(candidates.paths, size_of)


def _finding(target: str, candidates: Candidates, entry: Entry | None, wanted: RequirementSet) -> Finding:
    need = candidates.requirement
    choice = opened_of(candidates)
    key = registry_key(wanted, need)

    def finding(state: str, detail: str, digest: str | None = None) -> Finding:
        return Finding(need, key, state, choice.opened, digest, detail, candidates.paths)

    if choice.opened is None:
        places = ", ".join(str(path.parent) for path in candidates.paths)
        empty = f"; {choice.empty[0]} is empty" if choice.empty else ""
        return finding("missing", f"looked in {places}{empty}")
    try:
        digest = file_sha256(choice.opened)
    except OSError as error:
        return finding("missing", f"{choice.opened}: {error.strerror or error}")
    if entry is not None and digest == entry.elf:
        problem = sealed_problem(need, entry) or _sealed_fault(target, choice.opened, need)
        return finding("wrong geometry", problem, digest) if problem else finding("ok", "", digest)
    later = next((path for path in choice.shadowed if entry and digest_or_none(path) == entry.elf), None)
    if later is not None and entry is not None:
        return finding(
            "shadowed",
            f"the registered file is {later}, but the engine opens this one first: expected sha256:{entry.elf}, found "
            f"sha256:{digest}; remove it",
            digest,
        )
    size = choice.opened.stat().st_size
    if size < contract.MIN_ELF_BYTES:
        return finding(
            "stub", f"expected a kernel ELF of at least {contract.MIN_ELF_BYTES} bytes, found {size} bytes", digest
        )
    try:
        opened = open_elf(target, choice.opened)
    except ElfkilnError as error:
        return finding("wrong bytes", str(error), digest)
    try:
        opened.check(need.name, need.sealed)
    except ElfkilnError as error:
        return finding("wrong geometry", str(error), digest)
    if entry is None:
        return finding("not registered", f"a sound ELF, but registry.yaml has no {key} for target {target}", digest)
    return finding("wrong bytes", f"expected sha256:{entry.elf} (registry.yaml), found sha256:{digest}", digest)


def _sealed_fault(target: str, path: Path, need: Requirement) -> str | None:
    """Return what a sealed ELF's own metadata says against the geometries asked for; None for a single GEMM."""
    if need.name is not None:
        return None
    try:
        open_elf(target, path).check(None, need.sealed)
    except ElfkilnError as error:
        return str(error)
    return None

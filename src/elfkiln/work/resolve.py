"""Which file the engine would open for a name, which it would pass over, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, did_you_mean, one_line, refusal
from elfkiln.models.plan.search import Candidates, choose, walk_candidates
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.targets.kinds import MAX_ELF_BYTES
from elfkiln.work.answers import look_at
from elfkiln.work.asked import Asked


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place the engine looks: what it does there, and the bytes and sha256 of a regular file it could read.

    `registered` are the names whose registered ELF has these bytes.
    """

    path: Path
    state: str
    size: int | None
    sha256: str | None
    registered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the engine opens for a name (None: nothing) and every place it looks, in its order."""

    name: str
    opened: Path | None
    candidates: tuple[Candidate, ...]

    @property
    def exit_code(self) -> int:
        """0 when the engine would find a file, else 1."""
        return EXIT_DONE if self.opened else EXIT_DIFFERS

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        rows = [
            {
                "path": str(one.path),
                "state": one.state,
                "bytes": one.size,
                "sha256": one.sha256,
                "is": ", ".join(one.registered) or None,
            }
            for one in self.candidates
        ]
        return {"name": self.name, "opened": str(self.opened) if self.opened else None, "candidates": rows}

    def text(self) -> str:
        """Return the lines for a person."""
        lines = []
        for one in self.candidates:
            known = ", ".join(one.registered) or "nothing"
            detail = f"  sha256:{one.sha256}, registered as {known}" if one.sha256 else ""
            lines.append(f"{one_line(one.path)}  {one.state}{detail}")
        found = (
            f"opens {one_line(self.opened)}"
            if self.opened
            else f"missing full ELF {one_line(self.candidates[-1].path)}"
        )
        return "\n".join([*lines, found])


def resolve(project: Project, asked: Asked, name: str, folder: Path, kernels: Path | None = None) -> Resolution:
    """Walk the places of one name as the engine does, in `folder` and `kernels` (its --kernels directory).

    A place that cannot be looked at (a name that is too long, say) is passed over, as a missing one is. Raises
    `Refused` for a name that is not asked for.
    """
    found = _candidates(asked, name, folder, kernels)
    names: dict[str, list[str]] = {}
    for key, entry in sorted(load_registry(project.registry_file).entries(asked.target).items()):
        names.setdefault(entry.elf, []).append(key)
    choice = choose(found.paths, size_of)
    rows = []
    for path in found.paths:
        # The engine opens a file of any size; one that is larger than any kernel ELF is not hashed to say so.
        size = size_of(path)
        seen = "" if size is not None and size > MAX_ELF_BYTES else look_at(str(path), None)
        digest = seen if len(seen) == 64 else None
        if path == choice.opened:
            state = "opened: the first that exists and has at least one byte"
        elif path in choice.shadowed:
            state = "shadowed: an earlier directory has the name"
        elif path in choice.empty:
            state = "passed over: empty"
        elif seen.startswith("irregular: "):
            state = "passed over: not a regular file"
        else:
            state = f"passed over: {seen.removeprefix('absent: ')}"
        if not seen:
            state += f"; {size} bytes are more than a kernel ELF has ({MAX_ELF_BYTES})"
        rows.append(Candidate(path, state, size, digest, tuple(names.get(digest or "", ()))))
    return Resolution(found.requirement.file_name, choice.opened, tuple(rows))


def size_of(path: Path) -> int | None:
    """Return the bytes of a regular file, None when there is none that can be read."""
    try:
        if not path.is_file() or not os.access(path, os.R_OK):
            return None
        return path.stat().st_size
    except (OSError, ValueError):
        return None


def _candidates(asked: Asked, name: str, folder: Path, kernels: Path | None) -> Candidates:
    known = []
    for candidates in walk_candidates(asked.plan, asked.wanted, folder, kernels):
        known.append(candidates.requirement.file_name)
        if known[-1] == name:
            return candidates
    near = did_you_mean(name, known)
    raise refusal(
        "resolve",
        expected=f"a name {asked.wanted.model} asks for in layout {asked.wanted.layout}{near}",
        found=name,
        remedy="elfkiln lookup lists them",
    )

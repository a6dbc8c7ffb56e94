"""What a candidate lock would change: recipes of what is registered, and how much of the plans is not built yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import ElfkilnError
from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.project import Project
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.npu2.candidate_lock import CandidateLock, candidate_lock
from elfkiln.work.jobs import entry_of, registry_key


@dataclass(frozen=True, slots=True)
class Bump:
    """A candidate lock and what it would change.

    `names` are those of registry.yaml whose recipes it changes, `recipes` the number of those recipes. Of the `wanted`
    names that the `models` below plans/ ask for, `unbuilt` have no npu2 recipe yet: whichever lock is there when they
    are built makes them. `notes` are what a person has to see to.
    """

    lock: CandidateLock
    notes: tuple[str, ...]
    names: tuple[str, ...]
    recipes: int
    models: int
    wanted: int
    unbuilt: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value without the text."""
        return {
            "digest": self.lock.digest,
            "digest_before": self.lock.digest_before,
            "changes": [{"name": c.name, "before": c.before, "after": c.after} for c in self.lock.changes],
            "notes": list(self.notes),
            "names": list(self.names),
            "recipes": self.recipes,
            "models": self.models,
            "wanted": self.wanted,
            "unbuilt": self.unbuilt,
        }


def bump(project: Project, paths: Iterable[Path], assembler: Path | None = None) -> Bump:
    """Make the candidate lock of given wheels and say what it would change; nothing is written, installed or built.

    `assembler` is the machine's aiebu-asm to pin, or None. Raises `Refused` for an unusable wheel or program, or when
    the lock cannot be edited.
    """
    lock = candidate_lock(project.lock_file, paths, assembler)
    notes = [*lock.notes]
    registered = load_registry(project.registry_file).entries("npu2")
    models, wanted = _wanted(project, registered, notes)
    changed = registered if lock.digest != lock.digest_before else {}
    return Bump(
        lock,
        tuple(notes),
        tuple(sorted(changed)),
        len({entry.recipe for entry in changed.values()}),
        models,
        len(wanted),
        sum(not there for there in wanted.values()),
    )


def _wanted(project: Project, registered: Mapping[str, Entry], notes: list[str]) -> tuple[int, dict[str, bool]]:
    """Return how many models below plans/ could be read, and for each name they ask for whether it is registered."""
    models, wanted = 0, dict[str, bool]()
    for model in all_models(project):
        try:
            asked = model_requirements(project, model)
        except ElfkilnError as error:
            notes.append(f"model {model} is not counted: {error}")
            continue
        models += 1
        for need in asked.requirements:
            wanted[registry_key(asked, need)] = entry_of(registered, asked, need) is not None
    return models, wanted

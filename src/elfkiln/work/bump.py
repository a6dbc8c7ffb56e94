"""What a candidate lock would change: recipes of what is registered, and how much of the plans is not built yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from elfkiln.errors import ElfkilnError, Refused, refusal
from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.project import Project
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.toolchain_lock import Lock, TargetPin, read_lock
from elfkiln.targets.given_wheels import CandidateLock, WheelName, find_wheels
from elfkiln.targets.table import TARGETS, target_named
from elfkiln.work.jobs import entry_of, registry_key


@dataclass(frozen=True, slots=True)
class Bump:
    """A candidate lock of one target and what it would change.

    `names` are the target's names of registry.yaml whose recipes it changes, `recipes` the number of those recipes. Of
    the `wanted` names that the `models` below plans/ ask for, `unbuilt` have no recipe of the target yet: whichever
    lock is there when they are built makes them. `notes` are what a person has to see to.
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
            "target": self.lock.target,
            "digest": self.lock.digest,
            "digest_before": self.lock.digest_before,
            "changes": [{"name": c.name, "before": c.before, "after": c.after} for c in self.lock.changes],
            "notes": list(self.notes),
            "why": self.lock.why or None,
            "names": list(self.names),
            "recipes": self.recipes,
            "models": self.models,
            "wanted": self.wanted,
            "unbuilt": self.unbuilt,
        }


def bump(project: Project, paths: Iterable[Path], assembler: Path | None = None) -> Bump:
    """Make the candidate lock of given wheels and say what it would change; nothing is written, installed or built.

    `assembler` is the machine's aiebu-asm to pin, or None. Raises `Refused` for an unusable wheel or program, for
    wheels of two targets, or when the lock cannot be edited.
    """
    given = tuple(paths)
    wheels = find_wheels(given) if given or assembler is None else ()
    target = target_of_wheels(read_lock(project.lock_file), wheels, assembler=assembler is not None)
    lock = target_named(target).candidate(project.lock_file, wheels, assembler)
    notes = [*lock.notes]
    registered = load_registry(project.registry_file).entries(target)
    models, wanted = _wanted(project, registered, notes)
    changed = registered if lock.why else {}
    return Bump(
        lock,
        tuple(notes),
        tuple(sorted(changed)),
        len({entry.recipe for entry in changed.values()}),
        models,
        len(wanted),
        sum(not there for there in wanted.values()),
    )


def target_of_wheels(lock: Lock, wheels: Iterable[Path], *, assembler: bool = False) -> str:
    """Return the target of toolchain.lock whose packages wheels are, told by the names of their files.

    What no target pins is a new package of the target that has wheels of its own, whose the `assembler` is too. Raises
    `Refused` for wheels of two targets, and for one of none.
    """
    pinned = {name: _packages(pin) for name, pin in lock.targets.items()}
    own = next((name for name in pinned if name in TARGETS and TARGETS[name].has_wheels), None)
    found: dict[str, str] = {}
    if assembler and own is not None:
        found[own] = "aiebu-asm"
    for path in wheels:
        package = WheelName.parse(path.name).name
        owners = [name for name, packages in pinned.items() if package in packages]
        owner = owners[0] if owners else own
        if owner is None:
            known = ", ".join(sorted(set().union(*pinned.values())))
            raise refusal(path.name, expected=f"a wheel of a package that toolchain.lock pins: {known}", found=package)
        found.setdefault(owner, package)
    if len(found) > 1:
        raise refusal(
            "wheels",
            expected="those of one target, since each has its own digest and its own names",
            found=" and ".join(f"{package} of {name}" for name, package in sorted(found.items())),
            remedy="name the wheels of one target at a time, comma between them",
        )
    if not found:
        raise Refused("toolchain.lock: it has no target that takes aiebu-asm; restore it from the repository")
    return next(iter(found))


def _packages(pin: TargetPin) -> frozenset[str]:
    """Return the packages that a section of the lock pins: the rows of `wheels`, and each table that names a wheel."""
    rows = pin.table.get("wheels")
    names = [row.get("name") for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    names += [name for name, table in pin.table.items() if isinstance(table, Mapping) and "wheel" in table]
    return frozenset(canonicalize_name(name) for name in names if isinstance(name, str))


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

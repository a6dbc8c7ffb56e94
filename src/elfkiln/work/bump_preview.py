"""What a candidate lock makes of the registered names, built in a folder of its own: nothing of it is registered."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elfkiln.errors import refusal
from elfkiln.io.files import storage_refusal
from elfkiln.io.workspace import private_folder, sweep
from elfkiln.models.catalogue import every_requirement
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import LOCK_FILE, PLANS, Project
from elfkiln.store.artifacts import recipe_table
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import differing_inputs
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.table import target_named
from elfkiln.targets.target import Builder
from elfkiln.work.build import build_elfs
from elfkiln.work.jobs import registered_problem, registry_key
from elfkiln.work.progress import Progress

_SOURCES = ("generators", "templates", "kernels", PLANS)


@dataclass(frozen=True, slots=True)
class Previewed:
    """One registered name under a candidate lock: its ELF's digest (hex) before and after, and why it changes.

    `why` are the inputs of its recipe that differ; empty where the old recipe is not in the store. `difference` says, a
    line each, which bytes differ; empty where the old ELF is not in the store. `failure` says why there is no `after`.
    """

    key: str
    before: str
    after: str | None
    why: tuple[str, ...]
    failure: str = ""
    difference: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether its bytes change, as far as is known."""
        return self.after != self.before

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.key,
            "elf": f"sha256:{self.before}",
            "candidate_elf": f"sha256:{self.after}" if self.after else None,
            "why": list(self.why),
            "difference": list(self.difference),
            "failure": self.failure or None,
        }

    def lines(self) -> list[str]:
        """Return the lines for a person."""
        return [self.line(), *(f"  {line}" for line in self.difference)]

    def line(self) -> str:
        """Return the line of the digests."""
        if self.after is None:
            return f"{self.key}: not built: {self.failure}"
        if not self.changed:
            return f"{self.key}: the same bytes"
        why = f" ({', '.join(self.why)})" if self.why else ""
        return f"{self.key}: {self.before[:12]} -> {self.after[:12]}{why}"


def preview(
    project: Project,
    candidate: str,
    target: str,
    builder_of: Callable[[Project], Builder],
    *,
    progress: Progress | None = None,
) -> tuple[Previewed, ...]:
    """Build every registered name of a target under a candidate lock's text, and compare its ELF with the registered.

    Everything happens in a private folder, with a store and a registry of its own, which goes afterwards; installed
    toolchains are shared. `builder_of` is given the project there and returns its builder, installing what it needs.
    Raises `Refused` when nothing is registered for the target, and what `builder_of` raises.
    """
    registered = load_registry(project.registry_file).entries(target)
    if not registered:
        raise refusal("toolchain bump --build", expected=f"names registered for {target}", found="none")
    # A preview that was killed leaves an unpacked compiler.
    sweep(project.work)
    with private_folder(project.work) as folder:
        trial = _trial(project, folder, candidate)
        report = build_elfs(trial, builder_of(trial), _asked(project, registered), progress=progress)
        made = load_registry(trial.registry_file).entries(target)
        failures = {failure.key: failure.reason for failure in report.failures}
        stores = Store(project.store), Store(trial.store)
        return tuple(
            _compare(target, key, registered[key], made.get(key), failures, *stores) for key in sorted(registered)
        )


def _trial(project: Project, folder: Path, candidate: str) -> Project:
    try:
        for name in _SOURCES:
            # Copied: the candidate builds from what is there now.
            shutil.copytree(project.root / name, folder / name, symlinks=True)
        (folder / LOCK_FILE).write_text(candidate, encoding="utf-8")
        trial = Project(folder)
        trial.out.mkdir()
        project.toolchains.mkdir(parents=True, exist_ok=True)
        trial.toolchains.symlink_to(project.toolchains)
    except OSError as error:
        raise storage_refusal(folder, error) from error
    return trial


def _asked(project: Project, registered: Mapping[str, Entry]) -> Iterable[RequirementSet]:
    """Return a set of one requirement for each registered name that a model asks for as registered."""
    left = set(registered)
    for wanted, need in every_requirement(project):
        key = registry_key(wanted, need)
        if key in left and registered_problem(need, registered[key]) is None:
            left.remove(key)
            yield replace(wanted, requirements=(need,))


def _compare(
    target: str, key: str, before: Entry, after: Entry | None, failures: Mapping[str, str], store: Store, trial: Store
) -> Previewed:
    if after is None:
        why_not = failures.get(key, "no model below plans/ asks for it")
        return Previewed(key, before.elf, None, (), why_not)
    old, new = recipe_table(store, before.recipe), recipe_table(trial, after.recipe)
    why = tuple(name for name, _, _ in differing_inputs(old, new)) if old and new else ()
    difference: tuple[str, ...] = ()
    if after.elf != before.elf and store.holds(before.elf):
        difference = target_named(target).difference(store.read(before.elf), trial.read(after.elf))
    return Previewed(key, before.elf, after.elf, why, difference=difference)

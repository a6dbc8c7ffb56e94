"""What a model or a plan asks for under a target: the one place that every verb has names and columns from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from elfkiln.engine.contract import PLAN_FILE
from elfkiln.engine.legality import rows_for
from elfkiln.errors import did_you_mean, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.models.catalogue import model_plan, model_requirements
from elfkiln.models.plan.load import load_plan, plan_file, require_target
from elfkiln.models.plan.names import folder_columns, plan_requirements
from elfkiln.models.plan.schema import Plan
from elfkiln.models.requirement import RequirementSet
from elfkiln.models.role_table import ROLES_FILE
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.table import target_named
from elfkiln.work.jobs import entry_of, registry_key


@dataclass(frozen=True, slots=True)
class Asked:
    """What one model or plan asks for under a target.

    `plan` is None for a model with a role table only; `folder` is where the engine's walk starts, None for a model
    below plans/, whose ELFs are installed elsewhere; `words` are what a command line names it by.
    """

    wanted: RequirementSet
    target: str
    plan: Plan | None
    folder: Path | None
    words: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the plan, with its file."""
        return tuple(f"{self.plan.where}: {note}" for note in self.plan.notes) if self.plan else ()

    def require_target(self) -> None:
        """Raise `Refused` when the plan needs of the target what it does not have (an int8 cache, today)."""
        if self.plan is not None:
            require_target(self.plan, target_named(self.target).capabilities)


def asked_by_model(
    project: Project, model: str, *, target: str | None = None, layout: str | None = None, strict: bool = True
) -> Asked:
    """Return what a model below plans/ asks for, in its own layout or another one of its role table.

    `target` defaults to `default_target` of toolchain.lock. Raises `Refused` as `model_requirements` and the loader of
    plans do; `strict` is that of `load_plan`.
    """
    chosen = read_lock(project.lock_file).target(target).name
    wanted = model_requirements(project, model, layout, strict=strict)
    plan = model_plan(project, model, strict=strict)
    words = (f"model={model}", *((f"layout={layout}",) if layout else ()))
    return Asked(wanted, chosen, plan, None, words)


def asked_by_plan(project: Project, path: Path, *, target: str | None = None, strict: bool = True) -> Asked:
    """Return what a plan.json, or the one in a model folder, asks for.

    A model's own plan below plans/ asks for what the model asks for; any other as `asked_of_plan` says. Raises
    `Refused` as the loader of plans does.
    """
    file = plan_file(path)
    folder = file.parent.resolve()
    words = (f"plan={path}",)
    if folder.parent == project.plans.resolve() and file.name == PLAN_FILE:
        own = asked_by_model(project, folder.name, target=target, strict=strict)
        return replace(own, folder=folder, words=words)
    return asked_of_plan(project, load_plan(file, strict=strict), folder, words, target=target)


def asked_by_word(project: Project, word: str, *, target: str | None = None, strict: bool = True) -> Asked:
    """Return what a word asks for: a plan.json, a folder with one, or else a model below plans/."""
    path = Path(word)
    if "/" in word or path.suffix == ".json" or os.path.lexists(path / PLAN_FILE):
        return asked_by_plan(project, path, target=target, strict=strict)
    return asked_by_model(project, word, target=target, strict=strict)


def asked_of_plan(
    project: Project | None, plan: Plan, folder: Path, words: tuple[str, ...] = (), *, target: str | None = None
) -> Asked:
    """Return what a plan of a model folder asks for, written there or not.

    Columns come from a roles.yaml in the folder; without one the names keep the columns they are registered with for
    the target: columns are this project's choice, not the engine's. Without a project nothing is registered.
    """
    name = re.sub(r"[^a-z0-9._-]+|\.{2,}", "-", folder.name.lower()).strip("-.")[:64]
    wanted = plan_requirements(plan, name or "model", folder_columns(folder))
    if project is None:
        return Asked(wanted, target or "", plan, folder, words)
    chosen = read_lock(project.lock_file).target(target).name
    if folder.parent != project.plans.resolve():
        wanted = _named_by_content(wanted)
    if not os.path.lexists(folder / ROLES_FILE):
        wanted = _with_registered_columns(project, chosen, wanted)
    return Asked(wanted, chosen, plan, folder, words)


def named_only(sets: Iterable[RequirementSet], names: Iterable[str]) -> tuple[RequirementSet, ...]:
    """Return the sets cut down to these file names or registry keys; `Refused` for one that none of them asks for."""
    rest = dict.fromkeys(names)
    left, kept, known = set(rest), [], []
    for wanted in sets:
        needs = []
        for need in wanted.requirements:
            spelled = {need.file_name, registry_key(wanted, need)}
            known += sorted(spelled)
            if spelled & rest.keys():
                needs.append(need)
                left -= spelled
        kept.append(replace(wanted, requirements=tuple(needs)))
    for name in rest:
        if name in left:
            raise refusal("elfs", expected=f"a name that is asked for{did_you_mean(name, known)}", found=name)
    return tuple(wanted for wanted in kept if wanted.requirements)


def _named_by_content(wanted: RequirementSet) -> RequirementSet:
    """Return the set under a model name that tells sealed ELFs of other geometries apart.

    Folders elsewhere may share a base name; a sealed ELF is registered under the model's name, so that one must not
    stand for two sets of geometries.
    """
    geometries = [list(pair) for need in wanted.requirements for pair in need.sealed]
    if not geometries:
        return wanted
    return replace(wanted, model=f"{wanted.model[:48]}-{sha256_hex(canonical_json(sorted(geometries)))[:8]}")


def _with_registered_columns(project: Project, target: str, wanted: RequirementSet) -> RequirementSet:
    entries = load_registry(project.registry_file).entries(target)
    needs = []
    for need in wanted.requirements:
        entry = entry_of(entries, wanted, need)
        if entry is None or entry.columns == need.columns:
            needs.append(need)
        else:
            rows = None if need.name is None else rows_for(entry.columns, need.name.layout, m16=need.name.m16)
            needs.append(replace(need, columns=entry.columns, rows=rows))
    return replace(wanted, requirements=tuple(needs))

"""What several verbs share: opening the project, choosing models, plans and targets, printing JSON."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.named_plan import ROLES, open_plan, plan_notes, show_notes, strict_roles
from elfkiln.engine.legality import rows_for
from elfkiln.errors import Refused
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.models.catalogue import all_models, model_plan, model_requirements
from elfkiln.models.plan.load import plan_file, require_target
from elfkiln.models.plan.names import folder_columns, plan_requirements
from elfkiln.models.plan.schema import Plan
from elfkiln.models.requirement import RequirementSet
from elfkiln.models.role_table import ROLES_FILE
from elfkiln.project import Project, find_project
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.table import TARGETS, target_named
from elfkiln.work.jobs import entry_of

ROOT = {"root": "the elfkiln checkout (default: the nearest one upwards)"}
MODEL = {"model": "a model below plans/, or all"}
PLAN = {"plan": "a plan.json, or a model folder with one, instead of model="} | ROLES
LAYOUT = {"layout": "rm, b8, ... (default: the model's own)"}
TARGET_WORDS = " or ".join(sorted(TARGETS))
TARGET = {"target": f"{TARGET_WORDS} (default: default_target of toolchain.lock)"}


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A plan that was named on the command line: itself, its model folder, and what it asks for."""

    plan: Plan
    folder: Path
    wanted: RequirementSet


def project_of(arguments: Arguments) -> Project:
    """Return the project that `root=` names, or the nearest one."""
    return find_project(arguments.keys.get("root"))


def target_of(project: Project, arguments: Arguments) -> str:
    """Return the target asked for, checked against toolchain.lock."""
    return read_lock(project.lock_file).target(arguments.keys.get("target")).name


def planned_model(project: Project, arguments: Arguments, verb: str) -> PlannedModel | None:
    """Return the plan that `plan=` names, None without one; an int8 cache the target cannot serve is `Refused`."""
    text = arguments.keys.get("plan")
    if text is None:
        return None
    if "model" in arguments.keys:
        raise Refused(f"{verb}: takes model= or plan=, not both")
    if "layout" in arguments.keys:
        raise Refused(f"{verb}: layout= does not go with plan=: container.layout of the plan decides")
    file = plan_file(Path(text))
    plan = open_plan(file, arguments)
    require_target(plan, target_named(target_of(project, arguments)).capabilities)
    folder = file.parent.resolve()
    name = re.sub(r"[^a-z0-9._-]+|\.{2,}", "-", folder.name.lower()).strip("-.")[:64]
    wanted = plan_requirements(plan, name or "model", folder_columns(folder))
    if folder.parent != project.plans.resolve():
        wanted = _named_by_content(wanted)
    return PlannedModel(plan, folder, _with_registered_columns(project, arguments, folder, wanted))


def _named_by_content(wanted: RequirementSet) -> RequirementSet:
    """Return the set under a model name that tells sealed ELFs of other geometries apart.

    Folders elsewhere may share a base name; a sealed ELF is registered under the model's name, so that one must not
    stand for two sets of geometries.
    """
    geometries = [list(pair) for need in wanted.requirements for pair in need.sealed]
    if not geometries:
        return wanted
    return replace(wanted, model=f"{wanted.model[:48]}-{sha256_hex(canonical_json(sorted(geometries)))[:8]}")


def _with_registered_columns(
    project: Project, arguments: Arguments, folder: Path, wanted: RequirementSet
) -> RequirementSet:
    """Return the set with the columns its names are registered with, for a plan that says nothing of columns itself.

    Columns are this project's choice, not the engine's: a plan of somebody's model folder takes what is there.
    """
    if (folder / ROLES_FILE).is_file():
        return wanted
    entries = load_registry(project.registry_file).entries(target_of(project, arguments))
    needs = []
    for need in wanted.requirements:
        entry = entry_of(entries, wanted, need)
        if entry is None or entry.columns == need.columns:
            needs.append(need)
        else:
            rows = None if need.name is None else rows_for(entry.columns, m16=need.name.m16)
            needs.append(replace(need, columns=entry.columns, rows=rows))
    return replace(wanted, requirements=tuple(needs))


def models_of(project: Project, arguments: Arguments, verb: str) -> tuple[str, ...]:
    """Return the models that `model=` names; `Refused` listing the known ones when it is absent."""
    model = arguments.keys.get("model")
    known = all_models(project)
    if not model:
        raise Refused(f"{verb}: model= is needed: all, or one of {', '.join(known) or 'none yet'}")
    return known if model == "all" else (model,)


def sets_of(project: Project, arguments: Arguments, verb: str) -> tuple[RequirementSet, ...]:
    """Return the requirement sets that `plan=`, or `model=` and `layout=`, name."""
    planned = planned_model(project, arguments, verb)
    if planned is not None:
        return (planned.wanted,)
    layout, target, strict = arguments.keys.get("layout"), target_of(project, arguments), strict_roles(arguments)
    sets = []
    for model in models_of(project, arguments, verb):
        sets.append(model_requirements(project, model, layout, strict=strict))
        plan = model_plan(project, model, strict=strict)
        if plan is not None:
            require_target(plan, target_named(target).capabilities)
            show_notes(plan_notes(plan))
    return tuple(sets)


def one_set_of(project: Project, arguments: Arguments, verb: str) -> RequirementSet:
    """Return the one requirement set that `plan=` or `model=` names; `model=all` is `Refused`."""
    if arguments.keys.get("model") == "all":
        raise Refused(f"{verb}: one model at a time: expected model=NAME or plan=PATH, found model=all")
    return sets_of(project, arguments, verb)[0]


def print_json(value: object) -> None:
    """Print a JSON value for machines: indented, keys sorted."""
    print(json.dumps(value, indent=2, sort_keys=True))

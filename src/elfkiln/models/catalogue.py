"""What a model asks for: its plan if it has one, else its role table, turned into the names the engine will open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import checked_model_name
from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import ElfkilnError, Refused, did_you_mean
from elfkiln.io.reading import require_inside
from elfkiln.models.plan.schema import Plan
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.models.role_table import ROLES_FILE, read_role_table
from elfkiln.project import Project, models_below


def all_models(project: Project) -> tuple[str, ...]:
    """Return the names of the models below plans/, sorted: every folder with a plan.json or a roles.yaml."""
    return tuple(models_below(project.root))


def _folder(project: Project, model: str) -> Path:
    """Return a model's folder; `Refused` for a name that is none, and for a link that leads out of plans/."""
    folder = project.plans / checked_model_name(model)
    require_inside(project.plans, folder, f"plans/{model}")
    return folder


def _has(folder: Path, name: str) -> bool:
    return os.path.lexists(folder / name)


def model_requirements(
    project: Project, model: str, layout: str | None = None, *, strict: bool = True
) -> RequirementSet:
    """Return what the engine will ask for to run `model`.

    The plan of the model decides where there is one, else its role table; `layout` (default: the model's own) picks
    another layout of a role table. Raises `Refused` for a hostile or unknown model name, a layout the model cannot
    have, and whatever the plan or table is refused for.
    """
    folder = _folder(project, model)
    if _has(folder, PLAN_FILE):
        from elfkiln.models.plan.names import folder_requirements

        return folder_requirements(folder, layout, strict=strict)
    if _has(folder, ROLES_FILE):
        return read_role_table(folder / ROLES_FILE).requirements(layout)
    models = all_models(project)
    known, near = ", ".join(models) or "none", did_you_mean(model, models)
    raise Refused(f"model={model}: no plan.json or roles.yaml in plans/{model}{near}; known models: {known}")


def every_requirement(project: Project) -> Iterator[tuple[RequirementSet, Requirement]]:
    """Yield what every model below plans/ asks for, in its own layout first and then in every other it can be in.

    A model whose tables are refused, or a layout it cannot have, is passed over.
    """
    for model in all_models(project):
        for layout in (None, *contract.LAYOUTS):
            try:
                wanted = model_requirements(project, model, layout)
            except ElfkilnError:
                continue
            for need in wanted.requirements:
                yield wanted, need


def model_plan(project: Project, model: str, *, strict: bool = True) -> Plan | None:
    """Return the plan of a model below plans/, None when it has only a role table; raises `Refused` as the loader."""
    folder = _folder(project, model)
    if not _has(folder, PLAN_FILE):
        return None
    from elfkiln.models.plan.load import load_plan

    return load_plan(folder, strict=strict)


def model_dimensions(project: Project, model: str) -> tuple[int, int]:
    """Return the hidden size and the number of layers of a model; raises `Refused` as `model_requirements` does."""
    plan = model_plan(project, model)
    if plan is not None:
        return plan.hidden, len(plan.layers)
    table = read_role_table(project.plans / model / ROLES_FILE)
    return table.hidden, sum(table.layers.values())

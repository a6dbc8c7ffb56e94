"""What several verbs share: opening the project, choosing models and targets, printing JSON."""

from __future__ import annotations

import json

from elfkiln.artifact_set import RequirementSet
from elfkiln.cli.arguments import Arguments
from elfkiln.errors import Refused
from elfkiln.project import Project, find_project
from elfkiln.requirements import all_models, model_requirements
from elfkiln.toolchain_lock import read_lock

ROOT = {"root": "the elfkiln checkout (default: the nearest one upwards)"}
MODEL = {"model": "a model below plans/, or all"}
LAYOUT = {"layout": "rm, b8, ... (default: the model's own)"}
TARGET = {"target": "sim or npu2 (default: default_target of toolchain.lock)"}


def project_of(arguments: Arguments) -> Project:
    """Return the project that `root=` names, or the nearest one."""
    return find_project(arguments.keys.get("root"))


def target_of(project: Project, arguments: Arguments) -> str:
    """Return the target asked for, checked against toolchain.lock."""
    return read_lock(project.lock_file).target(arguments.keys.get("target")).name


def models_of(project: Project, arguments: Arguments, verb: str) -> tuple[str, ...]:
    """Return the models that `model=` names; `Refused` listing the known ones when it is absent."""
    model = arguments.keys.get("model")
    known = all_models(project)
    if not model:
        raise Refused(f"{verb}: model= is needed: all, or one of {', '.join(known) or 'none yet'}")
    return known if model == "all" else (model,)


def sets_of(project: Project, arguments: Arguments, verb: str) -> tuple[RequirementSet, ...]:
    """Return the requirement sets that `model=` and `layout=` name."""
    layout = arguments.keys.get("layout")
    return tuple(model_requirements(project, model, layout) for model in models_of(project, arguments, verb))


def print_json(value: object) -> None:
    """Print a JSON value for machines: indented, keys sorted."""
    print(json.dumps(value, indent=2, sort_keys=True))

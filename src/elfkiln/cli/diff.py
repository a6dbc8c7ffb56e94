"""`elfkiln diff`: which names one plan or model asks for beyond another."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import ROOT, print_json, project_of
from elfkiln.cli.named_plan import ROLES, open_plan, plan_notes, strict_roles
from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.models.catalogue import model_requirements
from elfkiln.models.plan.compare import SetDifference, compare_headers, compare_sets
from elfkiln.models.plan.load import plan_file
from elfkiln.models.plan.names import folder_columns, plan_requirements
from elfkiln.models.plan.schema import Plan
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project

HELP = "compare what two plans or models ask for: names gained, lost and changed"
SPEC = Spec(keys=ROOT | ROLES, words=("PLAN1", "PLAN2"))


def run(arguments: Arguments) -> int:
    """Compare; return 1 when they differ. A word is a plan.json, a folder with one, or a model below plans/."""
    (old_set, old_plan), (new_set, new_plan) = (_asked(arguments, word) for word in arguments.words)
    found = compare_sets(old_set, new_set)
    if old_plan is not None and new_plan is not None:
        found = replace(found, headers=compare_headers(old_plan, new_plan))
    if arguments.json:
        notes = dict.fromkeys(note for plan in (old_plan, new_plan) if plan for note in plan_notes(plan))
        print_json(_data(found) | {"notes": list(notes)})
    else:
        print("\n".join(_lines(found, arguments.words)))
    return EXIT_DONE if found.empty else EXIT_DIFFERS


def _asked(arguments: Arguments, word: str) -> tuple[RequirementSet, Plan | None]:
    path = Path(word)
    if "/" in word or path.suffix == ".json" or os.path.isfile(path / PLAN_FILE):
        return _planned(plan_file(path), arguments)
    project: Project = project_of(arguments)
    wanted = model_requirements(project, word, strict=strict_roles(arguments))
    file = project.plans / word / PLAN_FILE
    return wanted, open_plan(file, arguments) if file.is_file() else None


def _planned(file: Path, arguments: Arguments) -> tuple[RequirementSet, Plan]:
    plan = open_plan(file, arguments)
    return plan_requirements(plan, file.parent.name, folder_columns(file.parent)), plan


def _lines(found: SetDifference, words: tuple[str, ...]) -> list[str]:
    if found.empty:
        return [f"{words[0]} and {words[1]} ask for the same names in the same way"]
    lines = [str(entry) for entry in found.headers]
    for title, entries in (("gained", found.gained), ("lost", found.lost)):
        lines += [f"{title}  {entry.path}" for entry in entries]
    for change in found.changed:
        told = ", ".join(f"{name} {old} -> {new}" for name, old, new in change.attributes)
        lines.append(f"changed {change.name}: {told}")
    lines.append(f"{len(found.gained)} gained, {len(found.lost)} lost, {len(found.changed)} changed")
    return lines


def _data(found: SetDifference) -> dict[str, object]:
    return {
        "same": found.empty,
        "fields": [entry.data("old", "new") for entry in found.headers],
        "gained": [_row(entry) for entry in found.gained],
        "lost": [_row(entry) for entry in found.lost],
        "changed": [
            {"name": change.name, **{name: {"old": old, "new": new} for name, old, new in change.attributes}}
            for change in found.changed
        ],
    }


def _row(requirement: Requirement) -> dict[str, object]:
    return {"name": requirement.file_name, "directory": requirement.directory, "columns": requirement.columns}

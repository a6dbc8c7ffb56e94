"""`elfkiln list`: the models, and how much of each is registered."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import ROOT, TARGET, print_json, project_of, target_of
from elfkiln.errors import EXIT_DONE, ElfkilnError
from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.project import Project
from elfkiln.work.lookup import lookup_set

HELP = "list the models, their layout, and how many of their names are registered"
SPEC = Spec(keys=TARGET | ROOT)


def run(arguments: Arguments) -> int:
    """Print one line per model."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    rows = [_row(project, target, model) for model in all_models(project)]
    if arguments.json:
        print_json({"target": target, "models": rows})
    else:
        width = max((len(str(row["model"])) for row in rows), default=0)
        for row in rows:
            state = row.get("refused") or f"{row['registered']} of {row['names']} names registered"
            print(f"{row['model']:<{width}}  {row.get('layout', '-'):<5}  {state}")
        print(f"target {target}")
    return EXIT_DONE


def _row(project: Project, target: str, model: str) -> dict[str, object]:
    try:
        wanted = model_requirements(project, model)
        found = lookup_set(project, target, wanted)
    except ElfkilnError as error:
        return {"model": model, "refused": str(error)}
    registered = sum(row.entry is not None for row in found)
    return {"model": model, "layout": wanted.layout, "names": len(found), "registered": registered}

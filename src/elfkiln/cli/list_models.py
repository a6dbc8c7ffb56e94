"""`elfkiln list`: the models, and how much of each is registered."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.errors import EXIT_DONE
from elfkiln.work.list_models import list_models


def run(arguments: Arguments) -> int:
    """Print one line per model."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    rows = list_models(project, target)
    if arguments.json:
        print_json({"target": target, "models": [row.to_json() for row in rows]})
    else:
        width = max((len(row.model) for row in rows), default=0)
        for row in rows:
            state = row.refused or f"{row.registered} of {row.names} names registered"
            print(f"{row.model:<{width}}  {row.layout or '-':<5}  {state}")
        print(f"target {target}")
    return EXIT_DONE

"""`elfkiln lookup`: which bytes stand behind a name, a pattern, a model's names or a plan's layers."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import asked_of, one_asked_of, print_json, project_of, target_of
from elfkiln.errors import Refused
from elfkiln.store.registry import load_registry
from elfkiln.work.lookup import lookup, lookup_exit_code, lookup_glob


def run(arguments: Arguments) -> int:
    """Print one row per name; return 1 when one of them is not registered."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    given = len(arguments.words) + ("model" in arguments.keys) + ("plan" in arguments.keys)
    if given != 1:
        raise Refused(
            "lookup: takes one of model=..., plan=..., or a name or pattern, e.g. elfkiln lookup 'full_i8_QKV_*'"
        )
    if "plan" in arguments.keys:
        found = lookup(project, one_asked_of(project, arguments, "lookup"))
        if arguments.json:
            print_json(found.to_json())
        else:
            print(found.text())
        return lookup_exit_code(found.rows)
    if arguments.words:
        rows = lookup_glob(project, target, arguments.words[0])
    else:
        entries = load_registry(project.registry_file).entries(target)
        asked = asked_of(project, arguments, "lookup")
        rows = tuple(row for one in asked for row in lookup(project, one, entries).rows)
    if arguments.json:
        print_json([row.to_json() for row in rows])
    else:
        print("\n".join(row.line() for row in rows))
    return lookup_exit_code(rows)

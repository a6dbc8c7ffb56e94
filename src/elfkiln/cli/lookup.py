"""`elfkiln lookup`: which bytes stand behind a name, a pattern or a model's names."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import LAYOUT, MODEL, ROOT, TARGET, print_json, project_of, sets_of, target_of
from elfkiln.errors import Refused
from elfkiln.lookup import lookup_exit_code, lookup_glob, lookup_set

HELP = "print digest, size and recipe of a model's names, or of names that fit a pattern"
SPEC = Spec(keys=MODEL | LAYOUT | TARGET | ROOT, words=("NAME-OR-PATTERN",), optional_words=1)


def run(arguments: Arguments) -> int:
    """Print one row per name; return 1 when one of them is not registered."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    if bool(arguments.words) == ("model" in arguments.keys):
        raise Refused("lookup: takes either model=... or a name or pattern, e.g. elfkiln lookup 'full_i8_QKV_*'")
    if arguments.words:
        rows = lookup_glob(project, target, arguments.words[0])
    else:
        rows = tuple(
            row for wanted in sets_of(project, arguments, "lookup") for row in lookup_set(project, target, wanted)
        )
    if arguments.json:
        print_json([row.to_json() for row in rows])
    else:
        print("\n".join(row.line() for row in rows))
    return lookup_exit_code(rows)

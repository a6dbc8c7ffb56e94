"""`elfkiln attestations NAME`: what is said about an ELF, by whom."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import asked_of, print_json, project_of, target_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.work.lookup import Found, lookup_glob, lookup_set
from elfkiln.work.trust import said_of


def run(arguments: Arguments) -> int:
    """Print what is said about each name."""
    said = said_of(project_of(arguments), rows_of(arguments, "attestations"))
    if arguments.json:
        print_json([one.to_json() for one in said])
    else:
        print("\n".join(one.text() for one in said))
    return EXIT_DONE


def rows_of(arguments: Arguments, verb: str) -> tuple[Found, ...]:
    """Return the registered names that a name or pattern, model= or plan= mean; `Refused` unless it is one of these."""
    project = project_of(arguments)
    if len(arguments.words) + ("model" in arguments.keys) + ("plan" in arguments.keys) != 1:
        raise Refused(f"{verb}: takes one of model=..., plan=..., or a name or pattern")
    if arguments.words:
        return lookup_glob(project, target_of(project, arguments), arguments.words[0])
    sets = asked_of(project, arguments, verb)
    return tuple(row for one in sets for row in lookup_set(project, one.target, one.wanted))

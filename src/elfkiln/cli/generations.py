"""`elfkiln generations`: what registry.yaml was after each run that changed it."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.work.generations import history


def run(arguments: Arguments) -> int:
    """List them, the latest first; return 1 when one is damaged."""
    found = history(project_of(arguments))
    if arguments.json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
    return EXIT_DIFFERS if found.damaged else EXIT_DONE

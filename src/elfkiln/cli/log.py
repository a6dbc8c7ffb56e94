"""`elfkiln log [NAME]`: what the tools said when an ELF was built, or when that failed; or what runs changed."""

from __future__ import annotations

import sys

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.cli.generations import run as generations
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.work.build_log import NONE, log_of


def run(arguments: Arguments) -> int:
    """Print the log; return 0 when there is one, else 1. Without a name this is `generations`."""
    if not arguments.words:
        return generations(arguments)
    project = project_of(arguments)
    found = log_of(project, target_of(project, arguments), arguments.words[0])
    if arguments.json:
        print_json(found.to_json())
    else:
        print(found.line)
        sys.stdout.write(found.text)
    return EXIT_DIFFERS if found.state == NONE else EXIT_DONE

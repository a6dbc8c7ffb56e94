"""`elfkiln import FILE.tar`: take the sets of an archive into the store and register their names."""

from __future__ import annotations

import sys

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.work.archive import import_sets


def run(arguments: Arguments) -> int:
    """Read the archive once, from its start; `-` is standard input."""
    project, file = project_of(arguments), arguments.words[0]
    if file == "-":
        taken = import_sets(project, sys.stdin.buffer, "standard input")
    else:
        try:
            with open(file, "rb") as stream:
                taken = import_sets(project, stream, file)
        except OSError as error:
            raise Refused(f"{file}: cannot be read: {error.strerror or error}") from error
    if arguments.json:
        print_json([one.to_json() for one in taken])
    else:
        print("\n".join(one.text() for one in taken))
    return EXIT_DONE

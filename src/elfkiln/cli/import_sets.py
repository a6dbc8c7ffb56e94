"""`elfkiln import FILE.tar`: take the sets of an archive into the store and register their names."""

from __future__ import annotations

import sys

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import policy_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.io.reading import open_regular, reason_of
from elfkiln.work.archive import import_sets
from elfkiln.work.trust import accepting


def run(arguments: Arguments) -> int:
    """Read the archive once, from its start; `-` is standard input."""
    project, file = project_of(arguments), arguments.words[0]
    accept = accepting(project, policy_of(arguments, "import"))
    if file == "-":
        taken = import_sets(project, sys.stdin.buffer, "standard input", accept)
    else:
        try:
            with open(open_regular(file), "rb") as stream:
                taken = import_sets(project, stream, file, accept)
        except OSError as error:
            raise Refused(f"{file}: {reason_of(error)}; name an archive, or - for standard input") from error
    if arguments.json:
        print_json([one.to_json() for one in taken])
    else:
        print("\n".join(one.text() for one in taken))
    return EXIT_DONE

"""`elfkiln export FILE.tar model=...`: sets in one file, for machines without a network."""

from __future__ import annotations

import sys
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import asked_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.io.files import writing_atomic
from elfkiln.work.archive import export_sets


def run(arguments: Arguments) -> int:
    """Write the archive, whole or not at all; `-` is standard output."""
    project, file = project_of(arguments), arguments.words[0]
    sets = asked_of(project, arguments, "export")
    if file == "-":
        if arguments.json:
            raise Refused("export: --json and an archive on standard output do not go together; name a file")
        export_sets(project, sets, sys.stdout.buffer)
        return EXIT_DONE
    with writing_atomic(Path(file)) as stream:
        done = export_sets(project, sets, stream)
    if arguments.json:
        print_json(done.to_json() | {"file": file})
    else:
        print(done.text())
    return EXIT_DONE

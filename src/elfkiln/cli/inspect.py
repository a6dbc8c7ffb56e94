"""`elfkiln inspect`: what a file is, whether it is what its name says, and what is said about its bytes."""

from __future__ import annotations

import os
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, ElfkilnError
from elfkiln.project import Project, find_project, named_project
from elfkiln.work.inspect import inspect, name_of
from elfkiln.work.trust import Said, named_file, said_of_digest


def run(arguments: Arguments) -> int:
    """Print what the file is; return 1 when it is not an artifact, or not the one its name says."""
    project = _project(arguments)
    path, name = Path(arguments.words[0]), arguments.keys.get("name")
    if project is not None and not os.path.lexists(path):
        # A registered name stands for its ELF in the store.
        found_path = named_file(project, arguments.words[0], arguments.keys.get("target"))
        if found_path is not None:
            path, name = found_path, name or arguments.words[0].rpartition("/")[2]
    found = inspect(path, name_of(name) if name is not None else None, arguments.keys.get("target"))
    said: tuple[Said, ...] = () if project is None else said_of_digest(project, found.sha256)
    if arguments.json:
        print_json(found.to_json() | {"attestations": [one.summary() for one in said]})
    else:
        print("\n".join(found.lines()))
        for one in said:
            print("\n".join(f"  {line}" for line in one.text().splitlines()))
    return EXIT_DONE if found.sound else EXIT_DIFFERS


def _project(arguments: Arguments) -> Project | None:
    """Return the checkout that may know of the bytes; a file is looked at without one, too."""
    if "root" in arguments.keys:
        return named_project(arguments.keys["root"])
    try:
        return find_project()
    except ElfkilnError:
        return None

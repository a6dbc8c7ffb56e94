"""`elfkiln inspect`: what a file is, and whether it is what its name says."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.work.inspect import inspect, name_of


def run(arguments: Arguments) -> int:
    """Print what the file is; return 1 when it is not an artifact, or not the one its name says."""
    text = arguments.keys.get("name")
    name = name_of(text) if text is not None else None
    found = inspect(Path(arguments.words[0]), name, arguments.keys.get("target"))
    if arguments.json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
    return EXIT_DONE if found.sound else EXIT_DIFFERS

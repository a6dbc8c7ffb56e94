"""`elfkiln inspect`: what a file is, and whether it is what its name says."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import TARGET_WORDS, print_json
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.work.inspect import inspect, name_of

HELP = "say what an ELF is, what it exports and computes, and whether that is what its name says"
SPEC = Spec(
    keys={
        "name": "the artifact name (or pb16i_sealed.elf) to compare with (default: the file's own, if it is one)",
        "target": f"{TARGET_WORDS}: an ELF of another target is a fault",
    },
    words=("FILE",),
)


def run(arguments: Arguments) -> int:
    """Print what the file is; return 1 when it is no artifact, or not the one its name says."""
    text = arguments.keys.get("name")
    name = name_of(text) if text is not None else None
    found = inspect(Path(arguments.words[0]), name, arguments.keys.get("target"))
    if arguments.json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
    return EXIT_DONE if found.sound else EXIT_DIFFERS

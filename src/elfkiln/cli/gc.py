"""`elfkiln gc [--delete]`: what nothing reaches, and freeing it."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused
from elfkiln.work.gc import GRACE, collect
from elfkiln.work.generations import KEPT

_MOST = 10**9


def run(arguments: Arguments) -> int:
    """Print what would be freed; free it with --delete."""
    delete, damaged = "--delete" in arguments.flags, "--damaged" in arguments.flags
    if damaged and not delete:
        raise Refused("gc: --damaged goes with --delete")
    found = collect(
        project_of(arguments),
        delete=delete,
        damaged=damaged,
        generations=_whole(arguments, "--keep", KEPT),
        grace=_whole(arguments, "--grace", int(GRACE)),
    )
    if arguments.json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
    return EXIT_DONE


def _whole(arguments: Arguments, name: str, default: int) -> int:
    text = arguments.valued.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or int(text) > _MOST:
        raise Refused(f"gc: {name}: expected a whole number from 0 to {_MOST}, found {text!r}")
    return int(text)

"""`elfkiln rollback GEN`: registry.yaml as it was in a generation."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused
from elfkiln.work.generations import roll_back


def run(arguments: Arguments) -> int:
    """Roll back; return 1 when the store lacks what some names of it stand for."""
    word = arguments.words[0]
    if not word.isascii() or not word.isdigit() or len(word) > 9:
        raise Refused(f"rollback: expected the number of a generation, found {word!r}; elfkiln generations lists them")
    done = roll_back(project_of(arguments), int(word))
    if arguments.json:
        print_json(done.to_json())
    else:
        made = "it is that already" if done.made is None else f"which is generation {done.made}"
        print(f"registry.yaml is that of generation {done.to} ({done.names} names), {made}")
        for name in done.incomplete:
            print(f"{name}: not whole in the store; pull it, or check out its sources and run elfkiln fsck --repair")
    return EXIT_DIFFERS if done.incomplete else EXIT_DONE

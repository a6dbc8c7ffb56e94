"""`elfkiln sign model=... key=FILE`: seal what is said about a model's ELFs with a key."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.attestations import rows_of
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.errors import EXIT_DONE
from elfkiln.store.signing_keys import load_key
from elfkiln.work.trust import sign


def run(arguments: Arguments) -> int:
    """Sign, and say how many statements were sealed."""
    project = project_of(arguments)
    key = load_key(Path(arguments.keys["key"]) if "key" in arguments.keys else None)
    rows = rows_of(arguments, "sign")
    made = sign(project, target_of(project, arguments), rows, key)
    if arguments.json:
        print_json({"names": len(rows), "signed": made})
    else:
        print(f"{len(rows)} names: {made} statements signed")
    return EXIT_DONE

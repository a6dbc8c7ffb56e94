"""`elfkiln registry check [--against REV]`: nothing left registry.yaml or changed in it without a reason."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import Refused
from elfkiln.work.registry_check import check_registry


def run(arguments: Arguments) -> int:
    """Check, and return 1 where a reason is missing."""
    if arguments.words != ("check",):
        raise Refused(f"registry: takes check, found {arguments.words[0]}")
    found = check_registry(project_of(arguments), arguments.valued.get("--against"))
    if arguments.json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
    return found.exit_code

"""`elfkiln doctor`: whether this machine can do what the project asks, and what to do where it cannot."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.work.doctor import doctor


def run(arguments: Arguments) -> int:
    """Print what was looked at; return 1 when something is wrong."""
    found = doctor(project_of(arguments))
    if arguments.json:
        print_json(found.to_json())
    else:
        print(found.text())
    return found.exit_code

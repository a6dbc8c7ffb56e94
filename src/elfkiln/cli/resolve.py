"""`elfkiln resolve NAME`: what the engine would open for a name, and why."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import one_asked_of, print_json, project_of
from elfkiln.errors import Refused
from elfkiln.work.resolve import resolve


def run(arguments: Arguments) -> int:
    """Print the candidates in order; return 1 when the engine would find none."""
    project, keys = project_of(arguments), arguments.keys
    if "plan" not in keys and not keys.get("dir"):
        raise Refused("resolve: dir= is needed with model=: the model folder the engine would be given")
    asked = one_asked_of(project, arguments, "resolve")
    folder = Path(keys["dir"]) if keys.get("dir") else asked.folder
    assert folder is not None  # a plan has one
    kernels = Path(keys["kernels"]) if "kernels" in keys else None
    found = resolve(project, asked, arguments.words[0], folder, kernels)
    if arguments.json:
        print_json(found.to_json())
    else:
        print(found.text())
    return found.exit_code

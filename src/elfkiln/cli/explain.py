"""`elfkiln explain NAME`: why a name would be rebuilt."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.targets.table import builder_for
from elfkiln.work.explain import explain


def run(arguments: Arguments) -> int:
    """Print the explanation; return 0 when the name is up to date, else 1."""
    project = project_of(arguments)
    answer = explain(project, builder_for(project, arguments.keys.get("target")), arguments.words[0])
    if arguments.json:
        print_json(answer.to_json())
    else:
        print(answer.text())
    return EXIT_DONE if answer.state == "up to date" else EXIT_DIFFERS

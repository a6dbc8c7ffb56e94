"""`elfkiln explain NAME`: why a name would be rebuilt."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.project import Project
from elfkiln.targets.table import builder_for
from elfkiln.targets.target import Builder, RemoteSpec, RemoteStep
from elfkiln.work.explain import explain


def run(arguments: Arguments) -> int:
    """Print the explanation; return 0 when the name is up to date, else 1."""
    project = project_of(arguments)
    builder = builder_for(project, arguments.keys.get("target"))
    answer = explain(project, builder, arguments.words[0])
    address = arguments.keys.get("remote")
    steps = None if address is None else _remote_steps(project, builder, arguments.words[0], address)
    if arguments.json:
        far = {} if steps is None else {"remote": {"address": address, "steps": [step.to_json() for step in steps]}}
        print_json(answer.to_json() | far)
    else:
        print(answer.text())
        if steps is not None:
            print(f"remote {address}:")
            print("\n".join(line for step in steps for line in step.lines()))
    return EXIT_DONE if answer.state == "up to date" else EXIT_DIFFERS


def _remote_steps(project: Project, builder: Builder, name: str, address: str) -> tuple[RemoteStep, ...]:
    from elfkiln.cli.remote_words import remote_builder
    from elfkiln.work.explain import inputs_of_name

    used = remote_builder(builder, "explain")
    used.use_remote(RemoteSpec(address, project.locks, 0))
    return used.explain_remote(inputs_of_name(project, builder, name))

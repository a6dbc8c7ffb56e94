"""`elfkiln explain NAME`: why a name would be rebuilt."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.project import Project
from elfkiln.targets.table import builder_for
from elfkiln.targets.target import Builder, RemoteAnswer, RemoteSpec
from elfkiln.work.explain import explain


def run(arguments: Arguments) -> int:
    """Print the explanation; return 0 when the name is up to date, else 1."""
    project = project_of(arguments)
    builder = builder_for(project, arguments.keys.get("target"))
    answer = explain(project, builder, arguments.words[0])
    address = arguments.keys.get("remote")
    far = None if address is None else _remote_answer(project, builder, arguments.words[0], address)
    if arguments.json:
        print_json(answer.to_json() | ({} if far is None else {"remote": {"address": address} | far.to_json()}))
    else:
        print(answer.text())
        if far is not None:
            print("\n".join([f"remote {address}:", *far.lines()]))
    return EXIT_DONE if answer.state == "up to date" else EXIT_DIFFERS


def _remote_answer(project: Project, builder: Builder, name: str, address: str) -> RemoteAnswer:
    from elfkiln.cli.remote_words import remote_builder
    from elfkiln.work.explain import inputs_of_name

    used = remote_builder(builder, "explain")
    used.use_remote(RemoteSpec(address, project.locks, 0))
    return used.explain_remote(inputs_of_name(project, builder, name))

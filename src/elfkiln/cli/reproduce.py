"""`elfkiln reproduce`: rebuild under other conditions, compare every byte with registry.yaml, say what differs."""

from __future__ import annotations

import sys

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.cli.elfs import job_count, sets_asked
from elfkiln.io.child import ends_at_sigterm
from elfkiln.work.reproduce import reproduce


def run(arguments: Arguments) -> int:
    """Rebuild and return 0 when every name came out as registered, else 1."""
    project = project_of(arguments)
    with ends_at_sigterm():
        done = reproduce(
            project,
            target_of(project, arguments),
            sets_asked(project, arguments, arguments.words, "reproduce"),
            jobs=job_count(arguments.valued.get("-n")),
            take="--take" in arguments.flags,
            say=lambda line: None if arguments.json else print(f"note: {line}", file=sys.stderr),
        )
    if arguments.json:
        print_json(done.to_json())
    else:
        print("\n".join(done.lines()))
    return done.exit_code

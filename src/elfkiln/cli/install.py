"""`elfkiln install model=... dir=...`: put a model's ELFs where the engine looks."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import one_asked_of, policy_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused, one_line
from elfkiln.work.install import install
from elfkiln.work.kernels_lock import LOCK_NAME
from elfkiln.work.lookup import lookup_set


def run(arguments: Arguments) -> int:
    """Install one model's set."""
    project = project_of(arguments)
    folder = arguments.keys.get("dir")
    if not folder:
        raise Refused("install: dir= is needed: the model folder to install into")
    asked = one_asked_of(project, arguments, "install")
    if "--fetch" in arguments.flags:
        from elfkiln.cli.check_missing import fetch

        fetch(project, [asked], arguments, "install")
    policy = policy_of(arguments, "install")
    if policy is not None:
        from elfkiln.work.trust import require_signed

        require_signed(project, asked.target, lookup_set(project, asked.target, asked.wanted), policy)
    done = install(project, asked.target, asked.wanted, Path(folder))
    if arguments.json:
        print_json(done.to_json())
    else:
        print(
            f"{len(done.paths)} ELFs of target {done.target} in {one_line(folder)} ({done.linked} linked, "
            f"{done.copied} copied, {done.unchanged} already there), digests in {LOCK_NAME}"
        )
        for path in done.dropped:
            why = f"stood in {LOCK_NAME} and is not of this project; it lies there, and is listed no more"
            print(f"{one_line(path)}: {why}")
    return EXIT_DONE

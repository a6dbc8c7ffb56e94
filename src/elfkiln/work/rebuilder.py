"""The process that rebuilds for `reproduce`: a fresh folder, other conditions, and nothing that was built before.

Started as a program with the file of a request (`Request`, pickled); what it prints is one JSON object. The
environment, the clock and the order of listings are given to it from outside; umask and processors it sets itself.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elfkiln.errors import ElfkilnError, Refused
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.targets.target import Builder

MakeBuilder = Callable[[Project, str], Builder]
"""Makes the builder of a project for a target; a function of a module, since it is sent to this process."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to rebuild, with which builder, and how."""

    root: str
    target: str
    sets: tuple[RequirementSet, ...]
    builder: MakeBuilder
    umask: int
    jobs: int
    cpus: int | None


def main(argv: list[str]) -> int:
    """Rebuild what the request names and print what came of it; returns 0 also where recipes failed."""
    path, package = argv
    here = Path(__file__).resolve().parents[2]
    if not here.samefile(package):
        raise Refused(f"reproduce: expected the copy of elfkiln that is rebuilt with, found {here}")
    with open(path, "rb") as stream:
        request: Request = pickle.load(stream)
    os.umask(request.umask)
    if request.cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: request.cpus])
    sys.stdout.write(json.dumps(rebuild(request)))
    return 0


def rebuild(request: Request) -> dict[str, object]:
    """Rebuild in this process and return the report."""
    from elfkiln.work.build import build_elfs

    project = Project(Path(request.root))
    try:
        builder = request.builder(project, request.target)
        # No mirrors: what is fetched was not rebuilt.
        report = build_elfs(project, builder, request.sets, jobs=request.jobs, mirrors=None)
    except ElfkilnError as error:
        return {"refused": str(error)}
    return {
        "built": list(report.built),
        "failed": [[failure.key, failure.reason] for failure in report.failures],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

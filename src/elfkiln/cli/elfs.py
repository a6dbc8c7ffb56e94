"""`elfkiln elfs model=...`: build, check and register every ELF a model asks for."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import LAYOUT, MODEL, PLAN, ROOT, TARGET, print_json, project_of, sets_of
from elfkiln.errors import Refused
from elfkiln.targets.table import builder_for
from elfkiln.work.build import build_elfs
from elfkiln.work.progress import Progress

HELP = "build, check and register every ELF a model asks for"
SPEC = Spec(
    keys=MODEL | PLAN | LAYOUT | TARGET | ROOT,
    valued={"-n": "how many recipes are built at once (default: the number of processors)"},
    flags={"--rebuild": "build also what is up to date and compare the bytes with the registry"},
)


def run(arguments: Arguments) -> int:
    """Build and return the report's exit code."""
    project = project_of(arguments)
    report = build_elfs(
        project,
        builder_for(project, arguments.keys.get("target")),
        sets_of(project, arguments, "elfs"),
        jobs=job_count(arguments.valued.get("-n")),
        rebuild="--rebuild" in arguments.flags,
        progress=Progress.silent() if arguments.json else Progress.console(),
    )
    if arguments.json:
        print_json(report.to_json())
    return report.exit_code


def job_count(text: str | None) -> int | None:
    """Return the number of `-n`, None when it was not given; `Refused` for anything below 1."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise Refused(f"elfs: -n: expected a number of jobs from 1 to 1024, found {text!r}")
    return int(text)

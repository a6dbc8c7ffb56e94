"""`elfkiln elfs model=...`: build, check and register every ELF a model asks for."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import asked_of, mirrors_of, print_json, project_of, sets_of
from elfkiln.cli.remote_words import AT_ONCE_THERE, remote_of
from elfkiln.errors import EXIT_DONE, EXIT_REFUSED, Refused
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.targets.table import builder_for
from elfkiln.targets.target import Builder, headline_of
from elfkiln.work.asked import named_only
from elfkiln.work.build import build_elfs
from elfkiln.work.build_state import keep_state
from elfkiln.work.explain import UP_TO_DATE, Explanation, explain_sets, find_requirement
from elfkiln.work.progress import Progress


def run(arguments: Arguments) -> int:
    """Build and return the report's exit code; where nothing is left to do, that is kept for the next time."""
    project = project_of(arguments)
    builder = builder_for(project, arguments.keys.get("target"))
    sets = sets_asked(project, arguments, arguments.words, "elfs")
    if {"-k", "--fail-fast"} <= arguments.flags:
        raise Refused("elfs: -k and --fail-fast: expected one of them; the first goes on at a failure, the other ends")
    if "--dry-run" in arguments.flags:
        return _dry_run(builder, explain_sets(project, builder, sets), as_json=arguments.json)
    jobs = job_count(arguments.valued.get("-n"))
    remote = remote_of(arguments, project, builder)
    report = build_elfs(
        project,
        builder,
        sets,
        jobs=jobs if jobs or remote is None else remote.local + AT_ONCE_THERE,
        rebuild="--rebuild" in arguments.flags,
        fail_fast="--fail-fast" in arguments.flags,
        progress=Progress.silent() if arguments.json else Progress.console(),
        mirrors=mirrors_of(arguments, project, "elfs"),
    )
    if arguments.json:
        far = {} if remote is None else {"remote": {"address": remote.address} | report.remote.to_json()}
        print_json(report.to_json() | far)
    elif remote is not None:
        print(f"remote {remote.address}: {report.remote.line()}")
    plain = "model" in arguments.keys and "roles" not in arguments.keys and not arguments.words
    if report.exit_code == EXIT_DONE and plain:
        sys.stdout.flush()
        keep_state(project, builder, asked_of(project, arguments, "elfs", notes=False), arguments.keys.get("target"))
    return report.exit_code


def _dry_run(builder: Builder, names: Sequence[Explanation], *, as_json: bool) -> int:
    """Say what a build would do with each name, and why; return 2 when one is refused, else 0."""
    if as_json:
        rows = [{"name": one.key, "state": one.state, "why": one.line} for one in names]
        print_json({"target": builder.pin.name, "toolchain": builder.pin.digest, "dry_run": rows})
    else:
        print(headline_of(builder))
        for one in names:
            if one.state != UP_TO_DATE:
                print(f"{one.key}: {one.line}")
        counts = Counter(one.state for one in names)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        print(f"{len(names)} names: {states}; nothing was built")
    return EXIT_REFUSED if any(one.refusal for one in names) else EXIT_DONE


def states_of(arguments: Arguments, names: Sequence[str]) -> tuple[Explanation, ...]:
    """Return the state of every ELF asked for, or of those of these names; builds nothing."""
    project = project_of(arguments)
    sets = sets_asked(project, arguments, names, "elfs")
    return explain_sets(project, builder_for(project, arguments.keys.get("target")), sets)


def sets_asked(project: Project, arguments: Arguments, names: Sequence[str], verb: str) -> tuple[RequirementSet, ...]:
    """Return what the model or plan asks for, cut down to names where some are given; those may do without either."""
    if names and not {"model", "plan"} & arguments.keys.keys():
        found = [find_requirement(project, name, verb) for name in names]
        return tuple(replace(wanted, requirements=(need,)) for wanted, need in found)
    sets = sets_of(project, arguments, verb)
    return named_only(sets, names) if names else sets


def job_count(text: str | None) -> int | None:
    """Return the number of `-n`, None when it was not given; `Refused` for anything below 1."""
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise Refused(f"elfs: -n: expected a number of jobs from 1 to 1024, found {text!r}")
    return int(text)

"""`elfkiln check-missing model=...`: is every ELF there, and are its bytes the registered ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import (
    asked_of,
    mirrors_of,
    models_of,
    one_asked_of,
    policy_of,
    print_json,
    project_of,
    strict_roles,
)
from elfkiln.errors import Refused, one_line
from elfkiln.project import Project
from elfkiln.work.asked import Asked
from elfkiln.work.check import check_models, check_plan


def run(arguments: Arguments) -> int:
    """Check every model asked for; return 1 when anything is missing or differs, 2 when a model was refused."""
    project = project_of(arguments)
    keys = arguments.keys
    folder = Path(keys["dir"]) if "dir" in keys else None
    if "--fetch" in arguments.flags:
        fetch(project, asked_of(project, arguments, "check-missing", notes=False), arguments, "check-missing")
    if "plan" in keys:
        kernels = Path(keys["kernels"]) if "kernels" in keys else None
        report = check_plan(project, one_asked_of(project, arguments, "check-missing"), folder, kernels)
    elif "kernels" in keys:
        raise Refused("check-missing: kernels= goes with plan=")
    else:
        report = check_models(
            project,
            models_of(project, arguments, "check-missing"),
            target=keys.get("target"),
            layout=keys.get("layout"),
            folder=folder,
            strict=strict_roles(arguments),
        )
    policy = policy_of(arguments, "check-missing")
    if policy is not None:
        from elfkiln.work.trust import add_untrusted

        add_untrusted(
            project, report, policy, one_asked_of(project, arguments, "check-missing") if "plan" in keys else None
        )
    if keys.get("model") not in (None, "all") and report.refusals:
        raise Refused(report.refusals[0])
    if arguments.json:
        print_json(report.to_json())
    else:
        print(report.text(), end="")
    for line in report.refusals:
        print(f"elfkiln: {one_line(line)}", file=sys.stderr)
    return report.exit_code


def fetch(project: Project, sets: Sequence[Asked], arguments: Arguments, verb: str) -> None:
    """Fetch what is registered for these sets and missing in the store from a mirror, and say so on standard error."""
    from elfkiln.work.lookup import lookup_set
    from elfkiln.work.mirrors import fetch_missing

    mirrors = mirrors_of(arguments, project, verb)
    rows = [row for one in sets for row in lookup_set(project, one.target, one.wanted)]
    came = fetch_missing(project, sets[0].target, rows, mirrors) if sets else ()
    print(f"note: {len(came)} names fetched from {', '.join(mirrors.addresses)}", file=sys.stderr)

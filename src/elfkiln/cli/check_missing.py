"""`elfkiln check-missing model=...`: is every ELF there, and are its bytes the registered ones."""

from __future__ import annotations

import sys
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import models_of, one_asked_of, policy_of, print_json, project_of, strict_roles
from elfkiln.errors import Refused, one_line
from elfkiln.work.check import check_models, check_plan


def run(arguments: Arguments) -> int:
    """Check every model asked for; return 1 when anything is missing or differs, 2 when a model was refused."""
    project = project_of(arguments)
    keys = arguments.keys
    folder = Path(keys["dir"]) if "dir" in keys else None
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

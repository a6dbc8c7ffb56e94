"""`elfkiln cross-check`: the published geometry tables against the engine's derivation."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, did_you_mean, refusal
from elfkiln.studies.cross_check import cross_check, models


def run(arguments: Arguments) -> int:
    """Print every disagreement; return 1 when there is one."""
    wanted = arguments.keys.get("model", "all")
    if wanted not in (*models(), "all"):
        near = did_you_mean(wanted, models())
        raise refusal("cross-check: model", expected=f"all, or one with published geometry{near}", found=wanted)
    findings = {model: cross_check(model) for model in (models() if wanted == "all" else (wanted,))}
    if arguments.json:
        rows = {
            model: [{"where": one.where, "subject": one.subject, "what": one.what} for one in found]
            for model, found in findings.items()
        }
        print_json(rows)
    else:
        for model, found in findings.items():
            print("\n".join(str(one) for one in found) if found else f"{model}: agrees")
    return EXIT_DIFFERS if any(findings.values()) else EXIT_DONE

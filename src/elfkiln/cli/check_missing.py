"""`elfkiln check-missing model=...`: is every ELF there, and are its bytes the registered ones."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import (
    LAYOUT,
    MODEL,
    PLAN,
    ROOT,
    TARGET,
    PlannedModel,
    models_of,
    planned_model,
    print_json,
    project_of,
    target_of,
)
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused
from elfkiln.models.plan.search import walk_candidates
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.work import fast_check
from elfkiln.work.check_index import current_index
from elfkiln.work.plan_check import check_candidates, exit_code_of

HELP = "say which ELFs of a model are missing or have other bytes than registered"
SPEC = Spec(
    keys=MODEL
    | PLAN
    | LAYOUT
    | TARGET
    | {
        "dir": "a model folder with an installed set, checked on disk (with plan=: where the engine's walk starts)",
        "kernels": "with plan=: the engine's --kernels directory",
    }
    | ROOT
)


def run(arguments: Arguments) -> int:
    """Check every model asked for; return 1 when anything is missing or differs."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    planned = planned_model(project, arguments, "check-missing")
    if planned is not None:
        return _check_plan(project, target, planned, arguments)
    if "kernels" in arguments.keys:
        raise Refused("check-missing: kernels= goes with plan=")
    folder = arguments.keys.get("dir")
    tables = []
    missing = 0
    for model in models_of(project, arguments, "check-missing"):
        rows = _rows(project, model, target, arguments.keys.get("layout"))
        gaps = fast_check.find_gaps(rows, str(project.root / "out" / "registry" / "blobs" / "sha256"), folder)
        missing += len(gaps)
        if not arguments.json:
            print(fast_check.report(model, target, len(rows), gaps, dir_given=folder is not None))
        tables.append(
            {
                "model": model,
                "target": target,
                "names": len(rows),
                "gaps": [{"path": g.path, "name": g.key, "kind": g.kind, "detail": g.detail} for g in gaps],
            }
        )
    if arguments.json:
        print_json({"models": tables, "missing": missing})
    return EXIT_DIFFERS if missing else EXIT_DONE


def _rows(project: Project, model: str, target: str, layout: str | None) -> list[fast_check.Row]:
    index = current_index(project, model)
    chosen = layout or index.layout
    if target in index.unserved:
        raise Refused(index.unserved[target])
    if chosen in index.refused:
        raise Refused(index.refused[chosen])
    rows = fast_check.select_rows(index, target, chosen)
    if not rows:
        raise Refused(f"check-missing: layout={chosen}: expected a layout of {model}, found {chosen!r}")
    return rows


def _check_plan(project: Project, target: str, planned: PlannedModel, arguments: Arguments) -> int:
    """Walk the plan's directories as the engine does and say the state of every name."""
    folder = Path(arguments.keys["dir"]) if "dir" in arguments.keys else planned.folder
    kernels = Path(arguments.keys["kernels"]) if "kernels" in arguments.keys else None
    found = walk_candidates(planned.plan, planned.wanted, folder, kernels)
    entries = load_registry(project.registry_file).entries(target)
    findings = check_candidates(target, planned.wanted, found, entries)
    gaps = [finding for finding in findings if finding.state != "ok"]
    if arguments.json:
        print_json({"model": planned.wanted.model, "target": target, "names": [f.to_json() for f in findings]})
        return exit_code_of(findings)
    for finding in gaps:
        print("\n".join(finding.lines()))
    if gaps:
        print(f"{planned.wanted.model}: {len(gaps)} of {len(findings)} names not as registered (target {target})")
    else:
        print(f"{planned.wanted.model}: {len(findings)} names, what the engine would open verifies (target {target})")
    return exit_code_of(findings)

"""`elfkiln check-missing model=...`: is every ELF there, and are its bytes the registered ones."""

from __future__ import annotations

from elfkiln import fast_check
from elfkiln.check_index import current_index
from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import LAYOUT, MODEL, ROOT, TARGET, models_of, print_json, project_of, target_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused
from elfkiln.project import Project

HELP = "say which ELFs of a model are missing or have other bytes than registered"
SPEC = Spec(keys=MODEL | LAYOUT | TARGET | {"dir": "a model folder with an installed set, checked on disk"} | ROOT)


def run(arguments: Arguments) -> int:
    """Check every model asked for; return 1 when anything is missing or differs."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    folder = arguments.keys.get("dir")
    tables = []
    code = EXIT_DONE
    for model in models_of(project, arguments, "check-missing"):
        rows = _rows(project, model, target, arguments.keys.get("layout"))
        gaps = fast_check.find_gaps(rows, str(project.root / "out" / "registry" / "blobs" / "sha256"), folder)
        if gaps:
            code = EXIT_DIFFERS
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
        print_json({"models": tables, "missing": sum(len(table["gaps"]) for table in tables)})
    return code


def _rows(project: Project, model: str, target: str, layout: str | None) -> list[fast_check.Row]:
    index = current_index(project, model)
    chosen = layout or index.layout
    if chosen in index.refused:
        raise Refused(index.refused[chosen])
    rows = fast_check.select_rows(index, target, chosen)
    if not rows:
        raise Refused(f"check-missing: layout={chosen}: expected a layout of {model}, found {chosen!r}")
    return rows

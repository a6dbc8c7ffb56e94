"""`elfkiln lookup`: which bytes stand behind a name, a pattern, a model's names or a plan's layers."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import (
    LAYOUT,
    MODEL,
    PLAN,
    ROOT,
    TARGET,
    planned_model,
    print_json,
    project_of,
    sets_of,
    target_of,
)
from elfkiln.errors import Refused
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.work.lookup import Found, lookup_exit_code, lookup_glob, lookup_set, set_digest_of

HELP = "print digest, size and recipe of a model's names, of a plan's layers, or of names that fit a pattern"
SPEC = Spec(keys=MODEL | PLAN | LAYOUT | TARGET | ROOT, words=("NAME-OR-PATTERN",), optional_words=1)


def run(arguments: Arguments) -> int:
    """Print one row per name; return 1 when one of them is not registered."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    given = len(arguments.words) + ("model" in arguments.keys) + ("plan" in arguments.keys)
    if given != 1:
        raise Refused(
            "lookup: takes one of model=..., plan=..., or a name or pattern, e.g. elfkiln lookup 'full_i8_QKV_*'"
        )
    planned = planned_model(project, arguments, "lookup")
    if planned is not None:
        return _lookup_plan(project, target, planned.wanted, json=arguments.json)
    if arguments.words:
        rows = lookup_glob(project, target, arguments.words[0])
    else:
        sets = sets_of(project, arguments, "lookup")
        rows = tuple(row for wanted in sets for row in lookup_set(project, target, wanted))
    if arguments.json:
        print_json([row.to_json() for row in rows])
    else:
        print("\n".join(row.line() for row in rows))
    return lookup_exit_code(rows)


def _lookup_plan(project: Project, target: str, wanted: RequirementSet, *, json: bool) -> int:
    rows = lookup_set(project, target, wanted)
    whole = set_digest_of(rows)
    if json:
        table = [
            row.to_json() | {"directory": need.directory, "uses": [str(use) for use in need.layers]}
            for row, need in zip(rows, wanted.requirements, strict=True)
        ]
        print_json(
            {
                "model": wanted.model,
                "layout": wanted.layout,
                "target": target,
                "set_digest": f"sha256:{whole}" if whole else None,
                "names": table,
                "layers": _layers(wanted, rows),
            }
        )
    else:
        for layer in _layers(wanted, rows):
            digest = layer["elf"] or f"not registered for target {target}"
            print(f"{layer['use']}  {layer['path']}  {digest}  {layer['size'] or '-'}  recipe {layer['recipe'] or '-'}")
        print(f"set digest sha256:{whole}" if whole else f"set digest: none, not every name is registered for {target}")
    return lookup_exit_code(rows)


def _layers(wanted: RequirementSet, rows: tuple[Found, ...]) -> list[dict[str, object]]:
    """Return one row per layer, role and file, in the order of the layers; a sealed ELF stands for no single layer."""
    table: list[tuple[int, dict[str, object]]] = []
    for need, row in zip(wanted.requirements, rows, strict=True):
        shared = row.to_json()
        for use in need.layers:
            order = use.layer if use.layer is not None else len(wanted.requirements) * 1000
            role = need.name.role if need.name else None
            table.append((order, {"use": str(use), "layer": use.layer, "role": role} | shared))
    return [entry for _, entry in sorted(table, key=lambda pair: pair[0])]

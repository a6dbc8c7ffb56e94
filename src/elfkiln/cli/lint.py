"""`elfkiln lint`: a design against the array's limits and the tools' known traps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import TARGET_WORDS, print_json
from elfkiln.design.reader import MAX_CHARACTERS, read_for_lint
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused
from elfkiln.io.reading import read_text
from elfkiln.lint import ERROR, Finding, TileBudget, budgets, lint
from elfkiln.targets.table import target_named

HELP = "check a design (generic MLIR) against the array's limits and the tools' known traps"
_MOST_LINES = 40
_REMEDY = "give the generic MLIR of a design"
_DEFAULT_TARGET = "npu2"
SPEC = Spec(keys={"target": f"{TARGET_WORDS} (default: {_DEFAULT_TARGET})"}, words=("DESIGN.mlir",))


def run(arguments: Arguments) -> int:
    """Print the findings and what each tile has left; return 1 when a finding is an error.

    A file that no design can be made of is `Refused`; with --json the line is printed as `refused` as well.
    """
    path = Path(arguments.words[0])
    target = target_named(arguments.keys.get("target", _DEFAULT_TARGET)).lint_name
    try:
        design = read_for_lint(read_text(path, limit=MAX_CHARACTERS, remedy=_REMEDY), name=path.name)
        found = lint(design, target)
    except Refused as refused:
        if arguments.json:
            print_json({"refused": str(refused)})
        raise
    tiles = budgets(design)
    errors = sum(finding.severity == ERROR for finding in found)
    if arguments.json:
        print_json(_json(found, tiles, errors))
    else:
        for line in finding_lines(found):
            print(line)
        for line in budget_lines(tiles):
            print(line)
        print(f"{path.name}: {_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}")
    return EXIT_DIFFERS if errors else EXIT_DONE


def finding_lines(found: Sequence[Finding]) -> list[str]:
    """Return one line per finding; of a rule broken in very many places the first ones, and how many more there are."""
    lines, told = [], Counter[str]()
    for finding in found:
        told[finding.rule] += 1
        if told[finding.rule] <= _MOST_LINES:
            lines.append(finding.line)
    for rule, count in told.items():
        if count > _MOST_LINES:
            lines.append(f"{rule}: {count - _MOST_LINES:,} more like these; --json lists them all")
    return lines


def budget_lines(tiles: Sequence[TileBudget]) -> list[str]:
    """Return what each tile has taken and left, one line for tiles that are alike."""
    alike: dict[tuple[object, ...], list[TileBudget]] = {}
    for tile in tiles:
        sizes = tuple((pool.count, pool.bytes_each) for pool in tile.pools)
        taken = (tile.s2mm, tile.mm2s, tile.descriptors, tile.locks)
        alike.setdefault((tile.tile.kind, tile.stack, sizes, taken), []).append(tile)
    return [_budget_line(group) for group in alike.values()]


def _budget_line(group: list[TileBudget]) -> str:
    first = group[0]
    parts = [f"stack {first.stack:,}"] if first.stack else []
    parts += [f"@{pool.owner} {pool.count} x {pool.bytes_each:,}" for pool in first.pools]
    more = f" and {len(group) - 1} alike" if len(group) > 1 else ""
    return (
        f"{first.tile}{more}: {first.used:,} of {first.memory:,} bytes ({', '.join(parts) or 'nothing'}), "
        f"{first.free:,} free; channels in {first.s2mm}, out {first.mm2s}; {first.descriptors} BDs; {first.locks} locks"
    )


def _json(found: Sequence[Finding], tiles: Sequence[TileBudget], errors: int) -> dict[str, object]:
    rows = [
        {
            "tile": str(tile.tile),
            "memory": tile.memory,
            "stack": tile.stack,
            "buffers": [{"name": p.owner, "count": p.count, "bytes_each": p.bytes_each} for p in tile.pools],
            "used": tile.used,
            "free": tile.free,
            "s2mm": tile.s2mm,
            "mm2s": tile.mm2s,
            "descriptors": tile.descriptors,
            "locks": tile.locks,
        }
        for tile in tiles
    ]
    return {
        "errors": errors,
        "warnings": len(found) - errors,
        "findings": [asdict(finding) for finding in found],
        "tiles": rows,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

"""`elfkiln lint`: a design against the array's limits and the tools' known traps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import Refused
from elfkiln.lint import Finding, TileBudget
from elfkiln.work.lint import DEFAULT_TARGET, lint_file

_MOST_LINES = 40


def run(arguments: Arguments) -> int:
    """Print the findings and what each tile has left; return 1 when a finding is an error.

    A file that no design can be made of is `Refused`; with --json the line is printed as `refused` as well.
    """
    try:
        found = lint_file(Path(arguments.words[0]), arguments.keys.get("target", DEFAULT_TARGET))
    except Refused as refused:
        if arguments.json:
            print_json({"refused": str(refused)})
        raise
    if arguments.json:
        print_json(found.to_json())
    else:
        for line in (*finding_lines(found.findings), *budget_lines(found.tiles)):
            print(line)
        warnings = len(found.findings) - found.errors
        print(f"{found.name}: {_count(found.errors, 'error')}, {_count(warnings, 'warning')}")
    return found.exit_code


def finding_lines(found: Sequence[Finding]) -> list[str]:
    """Return one line per finding; of a rule broken in very many places the first ones, and how many more there are."""
    lines, said = [], Counter[str]()
    for finding in found:
        said[finding.rule] += 1
        if said[finding.rule] <= _MOST_LINES:
            lines.append(finding.line)
    for rule, count in said.items():
        if count > _MOST_LINES:
            lines.append(f"{rule}: {count - _MOST_LINES:,} more like these; --json lists them all")
    return lines


def budget_lines(tiles: Sequence[TileBudget]) -> list[str]:
    """Return what each tile has taken and left, one line for tiles that are alike."""
    alike: dict[tuple[object, ...], list[TileBudget]] = {}
    for tile in tiles:
        sizes = tuple((stored.count, stored.bytes_each) for stored in tile.stored)
        taken = (tile.s2mm, tile.mm2s, tile.descriptors, tile.locks)
        alike.setdefault((tile.tile.kind, tile.stack, sizes, taken), []).append(tile)
    return [_budget_line(group) for group in alike.values()]


def _budget_line(group: list[TileBudget]) -> str:
    first = group[0]
    parts = [f"stack {first.stack:,}"] if first.stack else []
    parts += [f"@{stored.owner} {stored.count} x {stored.bytes_each:,}" for stored in first.stored]
    more = f" and {len(group) - 1} alike" if len(group) > 1 else ""
    return (
        f"{first.tile}{more}: {first.used:,} of {first.memory:,} bytes ({', '.join(parts) or 'nothing'}), "
        f"{first.free:,} free; channels in {first.s2mm}, out {first.mm2s}; {first.descriptors} BDs; {first.locks} locks"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

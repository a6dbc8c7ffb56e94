"""A design's findings against the array's limits and the tools' known traps, and what each tile has left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elfkiln.design.reader import MAX_CHARACTERS, read_for_lint
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.io.reading import read_text
from elfkiln.lint import ERROR, Finding, TileBudget, budgets, lint
from elfkiln.targets.table import target_named

DEFAULT_TARGET = "npu2"


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings of a design, errors and warnings, and the budget of every tile."""

    name: str
    findings: Sequence[Finding]
    tiles: Sequence[TileBudget]

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.severity == ERROR for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """1 when a finding is an error, else 0."""
        return EXIT_DIFFERS if self.errors else EXIT_DONE

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        rows = [
            {
                "tile": str(tile.tile),
                "memory": tile.memory,
                "stack": tile.stack,
                "buffers": [{"name": p.owner, "count": p.count, "bytes_each": p.bytes_each} for p in tile.stored],
                "used": tile.used,
                "free": tile.free,
                "s2mm": tile.s2mm,
                "mm2s": tile.mm2s,
                "descriptors": tile.descriptors,
                "locks": tile.locks,
            }
            for tile in self.tiles
        ]
        return {
            "errors": self.errors,
            "warnings": len(self.findings) - self.errors,
            "findings": [asdict(finding) for finding in self.findings],
            "tiles": rows,
        }


def lint_file(path: Path, target: str = DEFAULT_TARGET) -> Linted:
    """Lint a design's generic MLIR for a target; `Refused` for an unknown one, and a file no design can be made of."""
    rules = target_named(target).lint_name
    text = read_text(path, limit=MAX_CHARACTERS, remedy="give the generic MLIR of a design")
    design = read_for_lint(text, name=path.name)
    return Linted(path.name, lint(design, rules), budgets(design))

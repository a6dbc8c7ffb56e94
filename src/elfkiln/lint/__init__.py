"""Lint: checks a design against the hardware and the tools' known traps, before anything is compiled."""

from __future__ import annotations

from elfkiln.design.fifo_lowering import place
from elfkiln.design.model import Design
from elfkiln.errors import refusal
from elfkiln.lint.array import TileBudget, budgets, lint_array, lint_tiles
from elfkiln.lint.fifos import lint_fifos
from elfkiln.lint.finding import Finding, Findings
from elfkiln.lint.products import lint_products
from elfkiln.lint.programs import Exports, lint_programs
from elfkiln.lint.rules import ERROR, RULES, WARNING, Rule, rule
from elfkiln.lint.sequences import lint_entry, lint_sequences

__all__ = ["ERROR", "RULES", "WARNING", "Finding", "Rule", "TileBudget", "budgets", "lint", "rule"]

TARGETS = ("npu2", "sim")


def lint(design: Design, target: str = "npu2", *, exports: Exports | None = None) -> tuple[Finding, ...]:
    """Return what is wrong with a design: errors fail or hang, warnings are known traps that may be meant.

    `exports` maps object files to the entries they define, where that is known. Findings stand in the order array,
    FIFOs, programs, sequences; errors and warnings mix. An unknown target is `Refused`. Limits and sources are rows of
    `elfkiln.hardware.limits`, rules those of `elfkiln.lint.rules`.
    """
    if target not in TARGETS:
        raise refusal("lint: target", expected=" or ".join(TARGETS), found=target)
    findings = Findings(target)
    if not lint_tiles(design, findings):
        return tuple(findings.found)
    placement = place(design)
    lint_array(design, placement, findings)
    lint_fifos(design, placement, findings)
    lint_programs(design, placement, findings, exports)
    lint_sequences(design, placement, findings)
    lint_entry(design, findings)
    lint_products(design, findings)
    return tuple(findings.found)

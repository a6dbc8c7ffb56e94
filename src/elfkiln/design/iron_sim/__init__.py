"""The `aie` package for target sim: what IRON generators at the dialect level use of mlir-aie, built on xDSL.

A generator imports `aie`; `elfkiln.design.run_generator` puts this package under that name in the child process that
runs it, and nowhere else. Names, signatures, refusals and printed modules are those of mlir-aie 1.4 (August 2026); what
a generator may not do with the real package it may not do here. Functions of the real package that a design of elfkiln
cannot hold raise `NotImplementedError`.
"""

from __future__ import annotations

MODULES: tuple[str, ...] = (
    "ir",
    "dialects",
    "dialects.aie",
    "dialects.aiex",
    "dialects.arith",
    "extras",
    "extras.context",
    "extras.types",
    "extras.dialects",
    "extras.dialects.arith",
    "helpers",
    "helpers.dialects",
    "helpers.dialects.scf",
    "helpers.taplib",
    "iron",
    "iron.controlflow",
)
"""The modules a generator may import below `aie`."""

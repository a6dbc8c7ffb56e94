"""`mlir_mod_ctx`: the context in which a generator builds its module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from elfkiln.design.iron_sim.building import constructing
from elfkiln.design.iron_sim.ir import Module

__all__ = ["mlir_mod_ctx"]


@dataclass(frozen=True, slots=True)
class ModuleContext:
    """What `mlir_mod_ctx` hands to the generator."""

    module: Module


@contextmanager
def mlir_mod_ctx() -> Iterator[ModuleContext]:
    """Make an empty module the one under construction."""
    op = ModuleOp([])
    with constructing(op):
        yield ModuleContext(Module(op))

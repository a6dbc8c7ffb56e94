"""The part of MLIR that designs use, as xDSL definitions: aie, aiex and a few operations of the standard dialects."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect

from elfkiln.design.mlir.aie_ops import AIE
from elfkiln.design.mlir.aiex_ops import AIEX

_STANDARD = (
    Dialect("arith", [arith.ConstantOp, arith.IndexCastOp]),
    Dialect("func", [func.FuncOp, func.CallOp]),
    Dialect("memref", [memref.LoadOp, memref.StoreOp]),
    Dialect("scf", [scf.ForOp, scf.YieldOp]),
)


def design_context() -> Context:
    """Return a context that knows exactly the operations a design may hold, so that any other is named and refused."""
    context = Context()
    for dialect in (Builtin, *_STANDARD, AIE, AIEX):
        context.load_dialect(dialect)
    return context

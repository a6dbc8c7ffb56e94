"""`_for`, which generators import as `range_`: a loop of the core's program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from xdsl.dialects import scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Region, SSAValue

from elfkiln.design.iron_sim.building import Value, absent_from, constant, emit, inserting, unsupported
from elfkiln.design.iron_sim.dialects.arith import IndexCastOp

__all__ = ["_for"]

__getattr__ = absent_from("aie.helpers.dialects.scf")


def _for(
    start: int | Value,
    stop: int | Value | None = None,
    step: int | Value | None = None,
    iter_args: object = None,
    insert_yield: bool = True,
) -> Iterator[Value]:
    """Loop from `start` below `stop` by `step`, or from 0 below `start`; bounds are integers or values.

    The loop's body is what the generator does between the one value this hands out and the next turn: a `break` leaves
    the loop unfinished, which the verifier refuses.
    """
    unsupported("range_", iter_args=iter_args)
    if not insert_yield:
        raise NotImplementedError("range_: insert_yield=False is not supported by elfkiln's aie")
    if not isinstance(start, int | np.integer | Value):
        raise ValueError(f"MLIR SCF for loops can only use integer types, not {type(start)}")
    first, last = (0, start) if stop is None else (start, stop)
    bounds = [_bound(bound) for bound in (first, last, 1 if step is None else step)]
    # The block joins after the operation is made: xDSL would end it with a yield at once.
    op = emit(scf.ForOp.create(operands=bounds, regions=[Region()]))
    block = Block(arg_types=[IndexType()])
    op.body.add_block(block)
    with inserting(block):
        yield Value(block.args[0])
        emit(scf.YieldOp.create())


def _bound(bound: int | Value) -> SSAValue:
    if isinstance(bound, int | np.integer):
        return constant(int(bound), IndexType())
    if not isinstance(bound, Value):
        raise ValueError(f"MLIR SCF for loops can only use integer types, not {type(bound)}")
    if isinstance(bound.type, IndexType):
        return bound.ssa
    return IndexCastOp(IndexType(), bound).result.ssa

"""The arith dialect as `aie.dialects.arith` spells it: result types first."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute

from elfkiln.design.iron_sim import building
from elfkiln.design.iron_sim.building import Value, emit, ssa_of, whole_number

__all__ = ["ConstantOp", "IndexCastOp", "constant", "index_cast"]


class ConstantOp:
    """`arith.constant`."""

    def __init__(self, result: Attribute, value: int) -> None:
        """Make the constant `value` of type `result`."""
        self.result = Value(building.constant(whole_number(value, "arith.constant"), result))


class IndexCastOp:
    """`arith.index_cast`: an integer as an index, or an index as an integer."""

    def __init__(self, out: Attribute, in_: object) -> None:
        """Cast a value to type `out`."""
        operand = ssa_of(in_, "arith.index_cast")
        if isinstance(out, IndexType) == isinstance(operand.type, IndexType):
            raise building.MLIRError(
                f"arith.index_cast: expected an index and an integer, found {operand.type} to {out}"
            )
        self.result = Value(emit(arith.IndexCastOp.create(operands=[operand], result_types=[out])).result)


def constant(result: Attribute, value: int) -> Value:
    """Return the constant `value` of type `result`."""
    return ConstantOp(result, value).result


def index_cast(out: Attribute, in_: object) -> Value:
    """Return a value cast to type `out`."""
    return IndexCastOp(out, in_).result

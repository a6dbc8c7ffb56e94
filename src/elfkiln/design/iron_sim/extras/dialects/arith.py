"""The arith builders of `aie.extras.dialects.arith`: values first."""

from __future__ import annotations

from xdsl.ir import Attribute

from elfkiln.design.iron_sim import building
from elfkiln.design.iron_sim.building import Value, absent_from, whole_number
from elfkiln.design.iron_sim.dialects.arith import IndexCastOp
from elfkiln.design.iron_sim.extras import types

__all__ = ["constant", "index_cast"]

__getattr__ = absent_from("aie.extras.dialects.arith")


def constant(value: int, type: Attribute | None = None, index: bool | None = None) -> Value:  # noqa: A002
    """Return a constant: of `type`, of index when `index` is true, else of i32."""
    if index and type is not None:
        raise ValueError("can't specify both `index` and `type`")
    chosen = types.index() if index else type or types.i32()
    return Value(building.constant(whole_number(value, "arith.constant"), chosen))


def index_cast(value: object, to: Attribute) -> Value:
    """Return a value cast to the type `to`."""
    return IndexCastOp(to, value).result

"""Type constructors of `aie.extras.types` (usually imported as `T`)."""

from __future__ import annotations

from xdsl.dialects.builtin import BFloat16Type, Float32Type, IndexType, IntegerType, MemRefType, Signedness
from xdsl.ir import Attribute

from elfkiln.design.iron_sim.building import absent_from

__all__ = ["bf16", "f32", "i8", "i16", "i32", "i64", "index", "memref", "ui8", "ui16", "ui32"]

__getattr__ = absent_from("aie.extras.types")


def index() -> IndexType:
    """Return `index`."""
    return IndexType()


def i8() -> IntegerType:
    """Return `i8`."""
    return IntegerType(8)


def i16() -> IntegerType:
    """Return `i16`."""
    return IntegerType(16)


def i32() -> IntegerType:
    """Return `i32`."""
    return IntegerType(32)


def i64() -> IntegerType:
    """Return `i64`."""
    return IntegerType(64)


def bf16() -> BFloat16Type:
    """Return `bf16`."""
    return BFloat16Type()


def f32() -> Float32Type:
    """Return `f32`."""
    return Float32Type()


def ui8() -> IntegerType:
    """Return `ui8`."""
    return IntegerType(8, Signedness.UNSIGNED)


def ui16() -> IntegerType:
    """Return `ui16`."""
    return IntegerType(16, Signedness.UNSIGNED)


def ui32() -> IntegerType:
    """Return `ui32`."""
    return IntegerType(32, Signedness.UNSIGNED)


def memref(*shape: int, element_type: Attribute) -> MemRefType:
    """Return `memref<shape x element_type>`."""
    return MemRefType(element_type, shape)

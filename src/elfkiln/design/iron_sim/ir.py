"""What generators use of `aie.ir`: types, the verifier's error and the module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import builtin
from xdsl.dialects.builtin import ModuleOp, Signedness
from xdsl.ir import Attribute

from elfkiln.design.iron_sim.building import MLIRError, Value, type_of, verify
from elfkiln.design.mlir.generic_text import generic_text

__all__ = ["BF16Type", "F32Type", "IndexType", "IntegerType", "MLIRError", "MemRefType", "Module", "Value"]


listeners: list[Callable[[str, ModuleOp], None]] = []
"""Called with each text of a verified module, and the module as it is then: what runs generators listens."""


class IndexType:
    """The type of sizes and loop counters."""

    @staticmethod
    def get() -> builtin.IndexType:
        """Return `index`."""
        return builtin.IndexType()


class BF16Type:
    """The type of bfloat16 numbers."""

    @staticmethod
    def get() -> builtin.BFloat16Type:
        """Return `bf16`."""
        return builtin.BFloat16Type()


class F32Type:
    """The type of float32 numbers."""

    @staticmethod
    def get() -> builtin.Float32Type:
        """Return `f32`."""
        return builtin.Float32Type()


class IntegerType:
    """Integer types of 8, 16, 32 or 64 bits."""

    @staticmethod
    def get_signless(width: int) -> builtin.IntegerType:
        """Return `i<width>`."""
        return builtin.IntegerType(width)

    @staticmethod
    def get_unsigned(width: int) -> builtin.IntegerType:
        """Return `ui<width>`."""
        return builtin.IntegerType(width, Signedness.UNSIGNED)


class MemRefType:
    """Types of buffers."""

    @staticmethod
    def get(shape: Sequence[int], element_type: Attribute) -> builtin.MemRefType:
        """Return `memref<shape x element_type>`."""
        return builtin.MemRefType(type_of(element_type, "MemRefType.get"), shape)


class Module:
    """The module a generator builds; its text is the generic form."""

    def __init__(self, op: ModuleOp) -> None:
        """Wrap an xDSL module."""
        self._op = op

    @property
    def operation(self) -> Module:
        """The module's operation: this object stands for both."""
        return self

    def verify(self) -> bool:
        """Check the module: True, or `MLIRError`."""
        verify(self._op)
        return True

    def get_asm(self, *, print_generic_op_form: bool = True, assume_verified: bool = False) -> str:
        """Return the text, which is the generic form in any case."""
        del print_generic_op_form
        if not assume_verified:
            verify(self._op)
        text = generic_text(self._op)
        if not assume_verified:
            for listener in listeners:
                listener(text, self._op)
        return text

    def __str__(self) -> str:
        """Return the generic form of the verified module."""
        return self.get_asm()

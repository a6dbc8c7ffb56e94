"""Types and attributes of the aie dialect: object FIFO types and the layouts of buffer-descriptor dimensions."""

from __future__ import annotations

from typing import TypeAlias

from xdsl.dialects.builtin import BFloat16Type, Float32Type, IntegerType, MemRefType, Signedness
from xdsl.ir import Attribute, Data, OpaqueSyntaxAttribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

DimPair: TypeAlias = tuple[int, int]
"""Size and stride of one dimension, in elements."""


def _parse_dims(parser: AttrParser) -> tuple[DimPair, ...]:
    def one() -> DimPair:
        with parser.in_angle_brackets():
            parser.parse_keyword("size")
            parser.parse_punctuation("=")
            size = parser.parse_integer(allow_boolean=False)
            parser.parse_punctuation(",")
            parser.parse_keyword("stride")
            parser.parse_punctuation("=")
            stride = parser.parse_integer(allow_boolean=False)
        return size, stride

    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, one))


def _print_dims(dims: tuple[DimPair, ...]) -> str:
    return f"[{', '.join(f'<size = {size}, stride = {stride}>' for size, stride in dims)}]"


@irdl_attr_definition
class BDDimLayoutArrayAttr(OpaqueSyntaxAttribute, Data[tuple[DimPair, ...]]):
    """`#aie<bd_dim_layout_array[<size = 8, stride = 1>, ...]>`, outermost dimension first."""

    name = "aie.bd_dim_layout_array"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[DimPair, ...]:
        """Parse the bracketed list."""
        return _parse_dims(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Print the bracketed list."""
        printer.print_string(_print_dims(self.data))


@irdl_attr_definition
class BDDimLayoutArrayArrayAttr(OpaqueSyntaxAttribute, Data[tuple[tuple[DimPair, ...], ...]]):
    """`#aie<bd_dim_layout_array_array[[...], ...]>`: one layout per consumer of an object FIFO."""

    name = "aie.bd_dim_layout_array_array"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[tuple[DimPair, ...], ...]:
        """Parse the list of lists."""
        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_dims(parser)))

    def print_parameter(self, printer: Printer) -> None:
        """Print the list of lists."""
        printer.print_string(f"[{', '.join(map(_print_dims, self.data))}]")


@irdl_attr_definition
class ObjectFifoType(ParametrizedAttribute, TypeAttribute):
    """`!aie.objectfifo<memref<...>>`: a FIFO of objects of that type."""

    name = "aie.objectfifo"

    element_type: MemRefType


@irdl_attr_definition
class ObjectFifoSubviewType(ParametrizedAttribute, TypeAttribute):
    """`!aie.objectfifosubview<memref<...>>`: the objects one acquire hands out."""

    name = "aie.objectfifosubview"

    element_type: MemRefType


_ELEMENTS: dict[tuple[int, Signedness], str] = {
    (8, Signedness.SIGNLESS): "i8",
    (16, Signedness.SIGNLESS): "i16",
    (32, Signedness.SIGNLESS): "i32",
    (8, Signedness.UNSIGNED): "ui8",
    (16, Signedness.UNSIGNED): "ui16",
    (32, Signedness.UNSIGNED): "ui32",
    (64, Signedness.SIGNLESS): "i64",
}
_FLOATS: dict[type[Attribute], str] = {BFloat16Type: "bf16", Float32Type: "f32"}


def element_name(type_: Attribute) -> str | None:
    """Return the MLIR name of an element type that designs may use, or None for any other type.

    >>> element_name(IntegerType(8)), element_name(IntegerType(16, Signedness.UNSIGNED)), element_name(IntegerType(24))
    ('i8', 'ui16', None)
    >>> element_name(BFloat16Type())
    'bf16'
    """
    if not isinstance(type_, IntegerType):
        return _FLOATS.get(type(type_))
    return _ELEMENTS.get((type_.width.data, type_.signedness.data))

"""Prints modules in generic form: xDSL's text, to the byte, in a fraction of the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO

from xdsl.dialects.builtin import FunctionType, ModuleOp, UnitAttr, UnregisteredOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove


def generic_text(module: ModuleOp) -> str:
    """Return the generic form of a module, without a line break at its end.

    What no design has (values with names of their own, several blocks in a region, operations that are not known) is
    left to xDSL's printer.
    """
    printer = _GenericPrinter()
    try:
        printer.operation(module, "\n")
    except _Unusual:
        return _spelt_by_xdsl(module)
    return "".join(printer.parts)


def _spelt_by_xdsl(module: ModuleOp) -> str:
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return stream.getvalue()


class _Unusual(Exception):
    """A module has what only xDSL's printer prints."""


class _GenericPrinter:
    """Prints one module into `parts`. A design repeats the same attributes and types thousands of times: a memo."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._names: dict[SSAValue, str] = {}
        self._next = 0
        self._attributes: dict[Attribute, str] = {}
        # By identity, which is found at once: the module keeps its attributes while it is printed.
        self._same: dict[int, str] = {}
        self._isolated: dict[type[Operation], bool] = {}

    def operation(self, op: Operation, line: str) -> None:
        """Print an operation; `line` is a line break with the indentation it stands at."""
        if op.successors or isinstance(op, UnregisteredOp):
            raise _Unusual
        add = self.parts.append
        if op.results:
            add(f"{', '.join(map(self.name, op.results))} = ")
        kind = type(op)
        if kind not in self._isolated:
            self._isolated[kind] = bool(op.get_traits_of_type(IsolatedFromAbove))
        # Numbers that were given inside of such an operation are given again behind it.
        first = self._next
        add(f'"{op.name}"({", ".join(map(self.name, op.operands))})')
        if op.properties:
            add(f" <{self.dictionary(op.properties)}>")
        if op.regions:
            add(" (")
            for number, region in enumerate(op.regions):
                add(", " if number else "")
                self.region(region, line)
            add(")")
        if op.attributes:
            add(f" {self.dictionary(op.attributes)}")
        add(f" : {self.function(op.operand_types, op.result_types)}")
        if self._isolated[kind]:
            self._next = first

    def region(self, region: Region, line: str) -> None:
        """Print a region with its one block, or without (a function that is declared)."""
        blocks = list(region.blocks)
        if len(blocks) > 1:
            raise _Unusual
        self.parts.append("{")
        for block in blocks:
            self.block(block, line)
        self.parts.append(f"{line}}}")

    def block(self, block: Block, line: str) -> None:
        """Print the operations of a block, its arguments first if it has any."""
        if block.name_hint:
            raise _Unusual
        inner = f"{line}  "
        if block.args or not block.ops:
            arguments = ", ".join(f"{self.name(one)}: {self.attribute(one.type)}" for one in block.args)
            self.parts.append(f"{line}^bb0({arguments}):" if arguments else f"{line}^bb0:")
        for op in block.ops:
            self.parts.append(inner)
            self.operation(op, inner)

    def name(self, value: SSAValue) -> str:
        """Return the name of a value; they are numbered as they come."""
        known = self._names.get(value)
        if known is None:
            if value.name_hint:
                raise _Unusual
            known = self._names[value] = f"%{self._next}"
            self._next += 1
        return known

    def dictionary(self, entries: Mapping[str, Attribute]) -> str:
        """Return properties or attributes in braces."""
        return f"{{{', '.join(self._entry(name, one) for name, one in entries.items())}}}"

    def _entry(self, name: str, attribute: Attribute) -> str:
        if not (name.isascii() and name.replace(".", "_").isidentifier()):
            raise _Unusual
        return name if isinstance(attribute, UnitAttr) else f"{name} = {self.attribute(attribute)}"

    def function(self, inputs: Iterable[Attribute], outputs: Iterable[Attribute]) -> str:
        """Return a function type; a single result stands alone, unless it is a function type itself."""
        given, got = list(map(self.attribute, inputs)), list(outputs)
        texts = ", ".join(map(self.attribute, got))
        alone = len(got) == 1 and not isinstance(got[0], FunctionType)
        return f"({', '.join(given)}) -> {texts if alone else f'({texts})'}"

    def attribute(self, attribute: Attribute) -> str:
        """Return an attribute as xDSL spells it."""
        text = self._same.get(id(attribute))
        if text is None:
            text = self._same[id(attribute)] = self._spelt(attribute)
        return text

    def _spelt(self, attribute: Attribute) -> str:
        text = self._attributes.get(attribute)
        if text is None:
            stream = StringIO()
            Printer(stream, print_generic_format=True).print_attribute(attribute)
            text = self._attributes[attribute] = stream.getvalue()
            if "\n" in text:
                raise _Unusual
        return text

"""The printer of generic form against xDSL's own, to the byte."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects import test as dialect
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, UnitAttr
from xdsl.ir import Block, Region
from xdsl.printer import Printer

from elfkiln.design.mlir import generic_text as module
from elfkiln.design.mlir.generic_text import generic_text
from elfkiln.design.reader import parse_design_module

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*.generic.mlir") if path.stat().st_size < 100_000)


def by_xdsl(op):
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(op)
    return stream.getvalue()


@pytest.fixture
def alone(monkeypatch):
    """Printing is not left to xDSL."""

    def refuse(_module):
        raise AssertionError("left to xDSL")

    monkeypatch.setattr(module, "_spelt_by_xdsl", refuse)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("file", FILES, ids=str)
def test_designs_are_printed_as_xdsl_prints_them(file):
    op = parse_design_module((EXAMPLES / file).read_text())
    for inner in op.walk():
        blocks = [block for region in inner.regions for block in region.blocks]
        for named in (*blocks, *inner.results, *(one for block in blocks for one in block.args)):
            named.name_hint = None
    assert generic_text(op) == by_xdsl(op)


def test_there_are_designs_to_print():
    assert len(FILES) >= 8


@pytest.mark.usefixtures("alone")
def test_odd_words_regions_and_results_are_printed_as_xdsl_prints_them():
    odd = {"text": StringAttr('a "quoted" \\ line\n'), "unit": UnitAttr(), "i": IntegerAttr(-1, 64)}
    i32 = IntegerAttr(1, 32).type
    empty = dialect.TestOp(regions=[Region(Block())])
    inner = dialect.TestOp(result_types=[i32, i32], attributes={"nested": DictionaryAttr(odd)}, properties=odd)
    outer = dialect.TestOp(
        regions=[Region(Block([inner, empty], arg_types=[i32])), Region(Block([dialect.TestOp(inner.results)]))]
    )
    op = ModuleOp([outer, dialect.TestOp(result_types=[i32])])
    assert generic_text(op) == by_xdsl(op)


@pytest.mark.parametrize("what", ["name", "key", "blocks"])
def test_what_no_design_has_is_left_to_xdsl(what):
    inner = dialect.TestOp(result_types=[IntegerAttr(1, 32).type])
    if what == "name":
        inner.results[0].name_hint = "value"
    elif what == "key":
        inner.attributes["not a word"] = UnitAttr()
    op = ModuleOp(
        [dialect.TestOp(regions=[Region([Block([inner]), Block()] if what == "blocks" else [Block([inner])])])]
    )
    assert generic_text(op) == by_xdsl(op)

"""The verification of modules against xDSL's own: the same verdict, in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, SymbolRefAttr, f32, i16
from xdsl.ir import Block, Operation, Region
from xdsl.irdl.constraints import VerificationContext
from xdsl.utils.exceptions import VerifyException

from elfkiln.design.mlir import aie_ops as aie
from elfkiln.design.mlir import aiex_ops as aiex
from elfkiln.design.mlir import verification
from elfkiln.design.mlir.verification import verify_module
from elfkiln.design.reader import parse_design_module

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TEXT = (EXAMPLES / "iron" / "gemm_2x2.2026-08.generic.mlir").read_text()


def verdict(verify, module):
    """Return the first line of what a verification raises, None when it raises nothing."""
    try:
        verify(module)
    except (VerifyException, ValueError, KeyError, AttributeError) as error:
        return type(error), str(error)
    return None


@pytest.fixture
def alone(monkeypatch):
    """No verification is left to xDSL."""
    monkeypatch.setattr("xdsl.dialects.builtin.ModuleOp.verify", lambda _: pytest.fail("left to xDSL"), raising=False)


@pytest.mark.usefixtures("alone")
def test_what_is_sound_needs_no_second_look():
    verify_module(parse_design_module(TEXT))


def wrong_width(op, name):
    op.properties[name] = IntegerAttr(1, i16)


def wrong_kind(op, name):
    op.properties[name] = StringAttr("one")


def absent(op, name):
    del op.properties[name]


def unknown(op, _):
    op.properties["nobody_knows"] = StringAttr("")


def nested(op, name):
    op.properties[name] = SymbolRefAttr(op.properties[name].root_reference, ArrayAttr([StringAttr("inner")]))


DEFECTS = [
    (aie.DMABDOp, "static_len", wrong_width),
    (aie.DMABDOp, "burst_length", wrong_kind),
    (aie.DMABDOp, "static_offset", unknown),
    (aie.TileOp, "col", absent),
    (aie.TileOp, "row", wrong_width),
    (aie.ObjectFifoAcquireOp, "objFifo_name", nested),
    (aie.ObjectFifoReleaseOp, "size", wrong_kind),
    (aiex.ConfigureTaskForOp, "alloc", nested),
    (aiex.ConfigureTaskForOp, "repeat_count", wrong_width),
    (aiex.StartTaskOp, "", unknown),
]


def last(module, kind):
    """Return the last operation of a kind: those before it are sound, and of its shape."""
    return [op for op in module.walk() if isinstance(op, kind)][-1]


@pytest.mark.parametrize(("kind", "name", "spoil"), DEFECTS, ids=lambda one: getattr(one, "__name__", one))
def test_a_defect_in_the_last_of_many_is_said_as_xdsl_says_it(kind, name, spoil):
    module = parse_design_module(TEXT)
    spoil(last(module, kind), name)
    found = verdict(verify_module, module)
    assert found is not None
    assert found == verdict(Operation.verify, module)


def operand_of_another_type(module):
    start = last(module, aiex.StartTaskOp)
    loaded = last(module, aie.DMABDOp)
    start.operands[0] = loaded.buffer


def one_operand_too_many(module):
    start = last(module, aiex.StartTaskOp)
    start.operands = [*start.operands, *start.operands]


def task_without_its_end(module):
    last(module, aiex.ConfigureTaskForOp).body.block.last_op.detach()


def task_with_nothing(module):
    task = last(module, aiex.ConfigureTaskForOp)
    for op in list(task.body.block.ops):
        op.detach()


def end_before_the_descriptor(module):
    block = last(module, aiex.ConfigureTaskForOp).body.block
    end = block.last_op
    end.detach()
    block.insert_op_before(end, block.first_op)


def two_blocks(module):
    last(module, aiex.ConfigureTaskForOp).body.add_block(Block([aie.EndOp()]))


def second_region(module):
    last(module, aiex.ConfigureTaskForOp).add_region(Region(Block([aie.EndOp()])))


def argument_of_a_task(module):
    last(module, aiex.ConfigureTaskForOp).body.block.insert_arg(f32, 0)


def symbol_twice(module):
    fifos = [op for op in module.walk() if isinstance(op, aie.ObjectFifoCreateOp)]
    fifos[-1].properties["sym_name"] = fifos[0].properties["sym_name"]


@pytest.mark.parametrize(
    "spoil",
    [
        operand_of_another_type,
        one_operand_too_many,
        task_without_its_end,
        task_with_nothing,
        end_before_the_descriptor,
        two_blocks,
        second_region,
        argument_of_a_task,
        symbol_twice,
    ],
    ids=lambda one: one.__name__,
)
def test_a_defect_of_structure_is_said_as_xdsl_says_it(spoil):
    module = parse_design_module(TEXT)
    spoil(module)
    found = verdict(verify_module, module)
    assert found is not None
    assert found == verdict(Operation.verify, module)


def test_no_definition_asks_for_more_of_an_integer_than_its_type():
    """Of two integers of one type the second is not looked at, so none may be refused for its value."""
    for kind in verification._DEFINED:
        for definition in kind.get_irdl_definition().properties.values():
            for width in (1, 32, 64):
                verdicts = set()
                for value in (0, 1) if width == 1 else (0, 1, -1, 2**31 - 1, -(2**31)):
                    try:
                        definition.constr.verify(IntegerAttr(value, width), VerificationContext())
                        verdicts.add(True)
                    except VerifyException:
                        verdicts.add(False)
                assert len(verdicts) == 1

"""The `aie` stand-in: generators run unchanged and print the modules that the real package printed."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from xdsl.dialects.builtin import IntegerAttr, i32

from elfkiln.design import iron_sim
from elfkiln.design.model import (
    Acquire,
    BufferRef,
    Call,
    Const,
    Dim,
    Link,
    Load,
    Loaded,
    Loop,
    LoopIndex,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    SetLock,
    Store,
    Task,
    Tile,
    UseLock,
)
from elfkiln.design.reader import canonical_text, design_digest, parse_design_module, read_design
from elfkiln.design.run_generator import run_generator
from rendered import design_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "iron"
NAMES = ("copy_one_core", "gemm_2x2", "panel_gemm", "sequences_rtp")

HEAD = """\
import numpy as np
from aie.dialects.aie import *
from aie.dialects.aiex import *
from aie.extras.context import mlir_mod_ctx
from aie.helpers.dialects.scf import _for as range_
T64 = np.ndarray[(64,), np.dtype[np.int8]]
T256 = np.ndarray[(4, 64), np.dtype[np.int8]]
"""


@cache
def printed(name):
    """What the generator of an example prints."""
    with tempfile.TemporaryDirectory() as folder:
        return run_generator((EXAMPLES / f"{name}.py").read_text(), workdir=Path(folder))


@pytest.fixture
def built():
    """Run a program that builds a device named `dev` from the given lines; return its design."""

    def build(lines, name="dev"):
        body = "\n".join(f"        {line}" for line in lines.strip("\n").splitlines())
        program = (
            f"{HEAD}with mlir_mod_ctx() as ctx:\n    @device(AIEDevice.npu2, sym_name={name!r})\n    def _():\n{body}\n"
            "    print(ctx.module)\n"
        )
        return design_of(program)

    return build


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_print_what_the_real_package_printed(name):
    ours = parse_design_module(printed(name))
    real = parse_design_module((EXAMPLES / f"{name}.2026-08.generic.mlir").read_text())
    # Same operations in the same order with the same properties, attributes, types, symbols and uses of values.
    assert ours.is_structurally_equivalent(real)
    april = parse_design_module((EXAMPLES / f"{name}.2026-04.generic.mlir").read_text())
    assert not ours.is_structurally_equivalent(april)


def test_the_comparison_sees_one_changed_number():
    ours, other = parse_design_module(printed("copy_one_core")), parse_design_module(printed("copy_one_core"))
    assert ours.is_structurally_equivalent(other)
    tile = next(op for op in other.walk() if op.name == "aie.tile")
    tile.properties["row"] = IntegerAttr(1, i32)
    assert not ours.is_structurally_equivalent(other)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_is_canonical_and_the_same_every_time(name, tmp_path):
    text = printed(name)
    program = (EXAMPLES / f"{name}.py").read_text()
    assert run_generator(program, workdir=tmp_path / "another folder") == text
    assert canonical_text(parse_design_module(text)) == text
    assert design_digest(text) == design_digest((EXAMPLES / f"{name}.2026-08.generic.mlir").read_text())


def test_it_is_no_aie_for_anyone_else():
    script = (
        "import sys, elfkiln.design.iron_sim, elfkiln.design.run_generator, elfkiln.design.iron_sim.dialects.aiex\n"
        "assert 'aie' not in sys.modules\n"
        "try:\n    import aie\nexcept ModuleNotFoundError:\n    print('no aie')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "no aie\n"


def test_every_module_of_the_table_is_there_and_no_other():
    root = Path(iron_sim.__file__).parent
    own = {"building", "__main__"}
    found = set()
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name and name not in own:
            found.add(name)
    assert found == set(iron_sim.MODULES)
    for name in iron_sim.MODULES:
        module = importlib.import_module(f"elfkiln.design.iron_sim.{name}")
        for exported in getattr(module, "__all__", ()):
            assert hasattr(module, exported)


def test_depths_dims_and_repeats_of_fifos(built):
    design = built("""
shim, mem, a, b = tile(2, 0), tile(2, 1), tile(2, 2), tile(3, 2)
object_fifo("wide", shim, mem, [2, 5], T256, dimensionsFromStreamPerConsumer=[[(4, 8), (8, 32), (8, 1)]])
from_stream = [[], [(4, 64), (64, 1)]]
fifo = object_fifo("fan", mem, [a, b], [2, 3, 4], T256, [(8, 8), (4, 64), (8, 1)], from_stream, via_DMA=True)
fifo.set_repeat_count(7)
object_fifo_link("wide", fifo)
""")
    wide, fan = design.fifos
    assert (wide.producer, wide.consumers, wide.depths) == (Tile(2, 0), (Tile(2, 1),), (2, 5))
    assert wide.depth_per_end
    assert wide.from_stream == ((Dim(4, 8), Dim(8, 32), Dim(8, 1)),)
    assert (fan.depths, fan.repeat_count, fan.via_dma) == ((2, 3, 4), 7, True)
    assert fan.to_stream == (Dim(8, 8), Dim(4, 64), Dim(8, 1))
    assert fan.from_stream == ((), (Dim(4, 64), Dim(64, 1)))
    assert fan.object_type == MemRef((4, 64), "i8")
    assert design.links == (Link(("wide",), ("fan",)),)
    assert design.name == "dev"


def test_join_and_distribute(built):
    design = built("""
shim, mem, cores = tile(0, 0), tile(0, 1), [tile(0, 2 + r) for r in range(4)]
source = object_fifo("source", shim, mem, 2, T256)
parts = [object_fifo(f"part_{r}", mem, cores[r], 2, T64) for r in range(4)]
object_fifo_link(source, parts, [], [64 * r for r in range(4)])
pieces = [object_fifo(f"piece_{r}", cores[r], mem, 1, T64) for r in range(4)]
whole = object_fifo("whole", mem, shim, 2, T256)
object_fifo_link(pieces, "whole", srcOffsets=[0, 64, 128, 192])
""")
    assert design.links == (
        Link(("source",), ("part_0", "part_1", "part_2", "part_3"), dst_offsets=(0, 64, 128, 192)),
        Link(("piece_0", "piece_1", "piece_2", "piece_3"), ("whole",), src_offsets=(0, 64, 128, 192)),
    )


def test_core_programs_with_constants_counters_lists_and_buffers(built):
    design = built("""
place = tile(1, 3)
neighbour = tile(1, 4)
U16 = np.ndarray[(2,), np.dtype[np.uint16]]
kernel = external_func("mix", inputs=[T64, T64, np.int32, np.int8, U16], link_with="k.o")
fifo = object_fifo("in", tile(1, 0), place, 4, T64)
numbers = buffer(place, U16, "numbers")
gate = lock(neighbour, init=2, sym_name="gate")

@core(place)
def body():
    use_lock(gate, LockAction.Acquire, value=3)
    for i in range_(2, 10, 4):
        first, second = fifo.acquire(ObjectFifoPort.Consume, 2)
        kernel(first, second, i, 7, numbers)
        kernel(second, first, -1, -128, numbers)
        fifo.release(ObjectFifoPort.Consume, 2)
    use_lock(gate, LockAction.Release)
""")
    assert design.kernels[0].parameters == (
        MemRef((64,), "i8"),
        MemRef((64,), "i8"),
        "i32",
        "i8",
        MemRef((2,), "ui16"),
    )
    (core,) = design.cores
    # A core that names no stack gets the array's 0x400 bytes.
    assert (core.tile, core.stack_size) == (Tile(1, 3), 0x400)
    one, two, numbers = ObjectRef(0, 0), ObjectRef(0, 1), BufferRef("numbers")
    assert core.body == (
        UseLock("gate", "acquire", Const(3)),
        Loop(
            0,
            Const(2),
            Const(10),
            Const(4),
            (
                Acquire(0, "in", "consume", 2),
                Call("mix", (one, two, LoopIndex(0), Const(7), numbers)),
                Call("mix", (two, one, Const(-1), Const(-128), numbers)),
                Release("in", "consume", 2),
            ),
        ),
        UseLock("gate", "release", Const(1)),
    )


def test_sequences_with_taps_blocks_and_parameters(built):
    design = built("""
from aie.helpers.taplib import TensorAccessPattern
place = tile(4, 2)
inwards = object_fifo("inwards", tile(4, 0), place, 2, T64)
outwards = object_fifo("outwards", place, tile(4, 0), 2, T64)
counts = buffer(place, np.ndarray[(3,), np.dtype[np.int32]], "counts", use_write_rtp=True)
go = lock(place, init=0, sym_name="go")
WHOLE = np.ndarray[(64, 64), np.dtype[np.int8]]

@runtime_sequence(WHOLE)
def first(A):
    npu_load_pdi(device_ref="dev")
    tap = TensorAccessPattern((64, 64), 128, [3, 2, 8, 16], [1024, 16, 64, 1])
    task = shim_dma_single_bd_task(inwards, A, tap, issue_token=True, burst_length=128)
    dma_start_task(task)
    dma_await_task(task)
    task = dma_configure_task_for("outwards", repeat_count=2)
    with bds(task) as bd:
        with bd[0]:
            shim_dma_bd(A, offset=np.int64(64), sizes=[1, 1, 1, 64], strides=[0, 0, 0, 1])
            EndOp()
    dma_start_task(task)
    dma_free_task(task)

@runtime_sequence(WHOLE, T64, sym_name="second")
def other(A, B):
    counts[1] = 9
    npu_write_rtp(counts, 2, -1)
    npu_rtp_write("counts", 0, 2**31 - 1)
    set_lock(go, 1)
    # A tap of three dimensions gets an outer one of size 1, so nothing is repeated.
    dma_start_task(shim_dma_single_bd_task("inwards", B, sizes=[2, 4, 8], strides=[32, 8, 1]))
""")
    first, second = design.sequences
    assert (first.name, second.name) == ("first", "second")
    assert first.arguments == (MemRef((64, 64), "i8"),)
    assert first.tasks == (
        Task(0, "inwards", 0, 128, (3, 2, 8, 16), (1024, 16, 64, 1), 2 * 8 * 16, 2, True, 128, 1),
        Task(1, "outwards", 0, 64, (1, 1, 1, 64), (0, 0, 0, 1), 64, 2, False, 0, 3),
    )
    assert second.tasks == (Task(0, "inwards", 1, 0, (1, 2, 4, 8), (0, 32, 8, 1), 64, 0, False, 0, 4),)
    assert second.steps[:4] == (
        RtpWrite("counts", 1, 9),
        RtpWrite("counts", 2, -1),
        RtpWrite("counts", 0, 2**31 - 1),
        SetLock("go", 1),
    )


def test_other_spellings_of_the_same_names(built):
    design = built("""
from aie.dialects import arith
from aie.dialects.arith import ConstantOp, constant, index_cast
from aie.extras import types as T
from aie.extras.dialects import arith as extended
from aie.iron.controlflow import range_ as again
from aie.ir import IndexType, IntegerType, MemRefType
place = tile(0, 2)
counts = buffer(place, MemRefType.get((2,), IntegerType.get_signless(32)), "counts")
kernel = external_func("k", inputs=[T.index(), T.i32(), T.memref(2, element_type=T.i32())])
@core(place, stack_size=4096, dynamic_objfifo_lowering=True)
def body():
    bound = index_cast(T.index(), counts[constant(IndexType.get(), 1)])
    for i in again(bound):
        kernel(i, extended.constant(5), counts)
        kernel(extended.constant(6, index=True), ConstantOp(T.i32(), 8).result, counts)
        kernel(extended.index_cast(counts[0], to=T.index()), extended.constant(7, type=T.i32()), counts)
""")
    (core,) = design.cores
    load, loop = core.body
    assert load.index == Const(1)
    assert loop.body[0] == Call("k", (LoopIndex(0), Const(5), BufferRef("counts")))
    assert loop.body[1] == Call("k", (Const(6), Const(8), BufferRef("counts")))
    assert loop.body[3].arguments[1] == Const(7)
    assert design.kernels[0].link_with is None
    assert core.dynamic is True


def test_the_elements_that_people_write(built):
    design = built("""
from aie.extras import types as T
from ml_dtypes import bfloat16
place, other = tile(0, 2), tile(0, 3)
kinds = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float32, bfloat16]
for number, kind in enumerate(kinds):
    object_fifo(f"f{number}", place, other, 2, np.ndarray[(8,), np.dtype[kind]])
external_func("k", inputs=[T.memref(4, element_type=T.bf16()), T.memref(4, element_type=T.f32()), T.i64()])
""")
    assert [fifo.object_type.element for fifo in design.fifos] == [
        *("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "f32", "bf16")
    ]
    assert [fifo.object_type.bytes for fifo in design.fifos] == [8, 8, 16, 16, 32, 32, 64, 32, 16]
    assert design.kernels[0].parameters == (MemRef((4,), "bf16"), MemRef((4,), "f32"), "i64")


def test_fifos_with_initial_values_and_a_count_of_iterations(built):
    design = built("""
one, two, mem = tile(0, 2), tile(0, 3), tile(0, 1)
I4 = np.ndarray[(4,), np.dtype[np.int32]]
object_fifo("a", one, two, 2, I4, initValues=[np.array([1, 2, 3, -1], np.int32), [5, 6, 7, 8]])
object_fifo("b", mem, two, 2, T64, iter_count=3)
""")
    a, b = design.fifos
    assert a.initial == (
        b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\xff\xff\xff\xff",
        b"\x05\0\0\0\x06\0\0\0\x07\0\0\0\x08\0\0\0",
    )
    assert (a.iter_count, b.iter_count, b.initial) == (0, 3, ())


def test_buffers_with_a_place_values_and_no_name(built):
    design = built("""
one = tile(0, 2)
I2 = np.ndarray[(2, 2), np.dtype[np.int32]]
table = buffer(one, I2, "table", address=0x4000, initial_value=np.array([[1, 2], [3, 4]], np.int32))
plain = buffer(one, np.ndarray[(4,), np.dtype[np.int8]])
again = buffer(one, np.ndarray[(4,), np.dtype[np.int8]])
k = external_func("k", inputs=[I2, np.ndarray[(4,), np.dtype[np.int8]]], link_with="k.o")
@core(one)
def body():
    plain[2] = -7
    for i in range_(4):
        again[i] = 1
    table[1, 0] = table[0, 1]
    k(table, again)
""")
    table, plain, again = design.buffers
    assert (table.address, table.initial) == (0x4000, bytes((1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0)))
    assert (plain.name, again.name) == ("buffer_1", "buffer_2")
    assert (plain.address, plain.initial) == (None, None)
    first, loop, load, second, call = design.cores[0].body
    assert first == Store("buffer_1", Const(2), Const(-7))
    assert loop.body == (Store("buffer_2", LoopIndex(0), Const(1)),)
    # Elements of two dimensions count row by row.
    assert (load, second) == (Load(0, "table", Const(1)), Store("table", Const(2), Loaded(0)))
    assert call == Call("k", (BufferRef("table"), BufferRef("buffer_2")))


def test_what_is_stored_prints_as_the_real_package_prints_it(tmp_path):
    program = (
        HEAD
        + """
with mlir_mod_ctx() as ctx:
    @device(AIEDevice.npu2_4col)
    def main():
        one = tile(0, 2)
        values = np.arange(4, dtype=np.int32)
        scratch = buffer(one, np.ndarray[(4,), np.dtype[np.int32]], "scratch", initial_value=values)
        @core(one)
        def body():
            scratch[0] = 1
    print(ctx.module)
"""
    )
    text = run_generator(program, workdir=tmp_path)
    assert "device = 12 : i32" in text
    assert "initial_value = dense<[0, 1, 2, 3]> : tensor<4xi32>" in text
    assert '"memref.store"(' in text
    assert "(i32, memref<4xi32>, index) -> ()" in text
    assert read_design(text).device == "npu2_4col"


def test_a_short_tap_gets_outer_dimensions_in_front(built):
    design = built("""
fifo = object_fifo("f", tile(0, 0), tile(0, 2), 2, T64)
@runtime_sequence(np.ndarray[(256,), np.dtype[np.int8]])
def seq(A):
    for sizes, strides in (([4, 64], [64, 1]), ([64], [1]), ([2, 2, 64], [128, 64, 1])):
        shim_dma_single_bd_task(fifo, A, sizes=sizes, strides=strides)
""")
    taps = [(task.sizes, task.strides, task.repeat_count) for task in design.sequences[0].tasks]
    assert taps == [
        ((1, 1, 4, 64), (0, 0, 64, 1), 0),
        ((1, 1, 1, 64), (0, 0, 0, 1), 0),
        ((1, 2, 2, 64), (0, 128, 64, 1), 0),
    ]


def test_a_core_may_acquire_more_than_the_depth(built):
    design = built("""
one = tile(0, 2)
fifo = object_fifo("f", tile(0, 0), one, 2, T64)
@core(one)
def body():
    fifo.acquire(ObjectFifoPort.Consume, 3)
""")
    assert design.cores[0].body == (Acquire(0, "f", "consume", 3),)


def test_a_parameter_of_32_unsigned_bits_is_negative_in_the_module(built):
    design = built("""
one = tile(0, 2)
counts = buffer(one, np.ndarray[(2,), np.dtype[np.int32]], "counts", use_write_rtp=True)
@runtime_sequence(T64)
def seq(A):
    npu_rtp_write("counts", 0, 0xFFFFFFFF)
    counts[1] = 2**31
""")
    assert design.sequences[0].steps == (RtpWrite("counts", 0, -1), RtpWrite("counts", 1, -(2**31)))

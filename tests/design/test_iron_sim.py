"""The `aie` stand-in: generators run unchanged and print the modules that the real package printed."""

from __future__ import annotations

import importlib
import subprocess
import sys
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
    Loop,
    LoopIndex,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    SetLock,
    Task,
    Tile,
    UseLock,
)
from elfkiln.design.reader import canonical_text, design_digest, parse_design_module, read_design
from elfkiln.design.run_generator import run_generator

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


@pytest.fixture
def built(tmp_path):
    """Run a program that builds a device named `dev` from the given lines; return its design."""

    def build(lines, name="dev"):
        body = "\n".join(f"        {line}" for line in lines.strip("\n").splitlines())
        program = (
            f"{HEAD}with mlir_mod_ctx() as ctx:\n    @device(AIEDevice.npu2, sym_name={name!r})\n    def _():\n{body}\n"
            "    print(ctx.module)\n"
        )
        return read_design(run_generator(program, workdir=tmp_path))

    return build


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_print_what_the_real_package_printed(name, tmp_path):
    printed = run_generator((EXAMPLES / f"{name}.py").read_text(), workdir=tmp_path)
    ours = parse_design_module(printed)
    real = parse_design_module((EXAMPLES / f"{name}.2026-08.generic.mlir").read_text())
    # Same operations in the same order with the same properties, attributes, types, symbols and uses of values.
    assert ours.is_structurally_equivalent(real)
    april = parse_design_module((EXAMPLES / f"{name}.2026-04.generic.mlir").read_text())
    assert not ours.is_structurally_equivalent(april)


def test_the_comparison_sees_one_changed_number(tmp_path):
    printed = run_generator((EXAMPLES / "copy_one_core.py").read_text(), workdir=tmp_path)
    ours, other = parse_design_module(printed), parse_design_module(printed)
    assert ours.is_structurally_equivalent(other)
    tile = next(op for op in other.walk() if op.name == "aie.tile")
    tile.properties["row"] = IntegerAttr(1, i32)
    assert not ours.is_structurally_equivalent(other)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_printed_is_canonical_and_the_same_every_time(name, tmp_path):
    program = (EXAMPLES / f"{name}.py").read_text()
    printed = run_generator(program, workdir=tmp_path / "a")
    assert run_generator(program, workdir=tmp_path / "another folder") == printed
    assert canonical_text(parse_design_module(printed)) == printed
    assert design_digest(printed) == design_digest((EXAMPLES / f"{name}.2026-08.generic.mlir").read_text())


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
    npu_rtp_write(counts, 2, -1)
    npu_write_rtp("counts", 0, 2**31 - 1)
    set_lock(go, 1)
    # A tap of three dimensions: its first size is both a dimension and the repeat, as in the real package.
    dma_start_task(shim_dma_single_bd_task("inwards", B, sizes=[2, 4, 8], strides=[32, 8, 1]))
""")
    first, second = design.sequences
    assert (first.name, second.name) == ("first", "second")
    assert first.arguments == (MemRef((64, 64), "i8"),)
    assert first.tasks == (
        Task(0, "inwards", 0, 128, (3, 2, 8, 16), (1024, 16, 64, 1), 2 * 8 * 16, 2, True, 128, 1),
        Task(1, "outwards", 0, 64, (1, 1, 1, 64), (0, 0, 0, 1), 64, 2, False, 0, 3),
    )
    assert second.tasks == (Task(0, "inwards", 1, 0, (1, 2, 4, 8), (0, 32, 8, 1), 64, 1, False, 0, 4),)
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

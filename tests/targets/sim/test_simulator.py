"""Designs run right: the recorded examples, GEMMs of all layouts, and every way the array moves data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    BufferRef,
    Call,
    Const,
    Core,
    Dim,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    Loop,
    LoopIndex,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    UseLock,
)
from elfkiln.errors import SimulationFailed
from elfkiln.families.family import DesignRequest, render, render_sealed
from gemm_designs import Shape, panel_b8, panel_rm, v27
from projects import CHECKOUT
from rendered import design_of
from sim_designs import CORE, FOREVER, MEM, NEXT, SHIM, copying, design, fifo, forever, scalar_design, task
from simulating import (
    blocked,
    coordinates,
    example,
    mm_i8,
    mm_pb16i,
    packed_ternary,
    plain,
    product,
    relay,
    row_major_a,
)

GENERATIONS = ["2026-04", "2026-08"]


def random(rng, rows, columns, low=-127, high=127):
    return rng.integers(low, high + 1, (rows, columns), dtype=np.int8)


@pytest.fixture
def rng():
    return np.random.default_rng(20260)


# The recorded designs.


@pytest.mark.parametrize("generation", GENERATIONS)
def test_copy_one_core_reorders_each_block(simulator, generation, rng):
    elf = simulator.elf(example("copy_one_core", generation), plain())
    source = rng.integers(-128, 128, 4096, dtype=np.int8)
    result = elf.run(source, np.zeros(4096, np.int8))
    # Out of the mem tile: 8 blocks of 16 rows that lie 64 apart, 8 bytes each.
    expected = source.reshape(4, 16, 8, 8).transpose(0, 2, 1, 3).reshape(-1)
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_gemm_2x2_joins_its_rows(simulator, generation):
    elf = simulator.elf(example("gemm_2x2", generation), row_major_a(32, "mm_32x64x128.o"))
    a, b = coordinates(64, 128), coordinates(128, 256, 5)
    assert np.array_equal(elf.run(a, blocked(b)), product(a, b))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_panel_gemm_overlaps_its_groups(simulator, generation):
    elf = simulator.elf(example("panel_gemm", generation), mm_i8(16, "mm_16x64x128.o"))
    a, b = coordinates(32, 256), coordinates(256, 512, 5)
    assert np.array_equal(elf.run(a, blocked(b)), product(a, b))


@pytest.mark.parametrize("generation", GENERATIONS)
def test_sequences_share_one_configuration(simulator, generation, rng):
    elf = simulator.elf(example("sequences_rtp", generation), mm_pb16i(16, "mm_pb16i_16x64x128.o"))
    elf.call("init")
    for K, N in ((128, 256), (256, 512), (128, 256), (256, 512)):
        a, b = random(rng, 16, K), random(rng, K, N, -1, 1)
        assert np.array_equal(elf.run(a, packed_ternary(b), sequence=f"seq_K{K}_N{N}"), product(a, b))


def test_a_geometry_before_init_is_refused_by_name(simulator):
    elf = simulator.elf(example("sequences_rtp"), mm_pb16i(16, "mm_pb16i_16x64x128.o"))
    with pytest.raises(SimulationFailed) as caught:
        elf.run(np.zeros((16, 128), np.int8), np.full(8192, 0x55, np.uint8), sequence="seq_K128_N256")
    assert str(caught.value) == (
        "main_seq_K128_N256 step 0 (write element 0 of counts_0 at core(0,2)): the array is not configured, "
        "load_pdi comes first; run main_init before"
    )


# GEMMs.


@pytest.mark.parametrize(
    "shape",
    [
        Shape(32, 256, 512, 2, 2, m=16),
        Shape(128, 128, 512, 4, 4),
        Shape(64, 64, 384, 1, 3),
        Shape(32, 192, 256, 1, 2),
        Shape(16, 128, 1024, 1, 8, m=16),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["b8", "rm"])
def test_panel_designs(simulator, shape, layout, rng):
    design = panel_b8(shape) if layout == "b8" else panel_rm(shape)
    elf = simulator.elf(design, mm_i8(shape.m))
    geometry = elf.info.entries[0].geometry
    assert (geometry.M, geometry.K, geometry.N) == (shape.M, shape.K, shape.N)
    assert (geometry.weight_bits, geometry.contiguous) == (8, layout == "b8")
    assert (geometry.columns, geometry.rows) == (shape.columns, shape.rows)
    for a, b in (
        (random(rng, shape.M, shape.K), random(rng, shape.K, shape.N)),
        (coordinates(shape.M, shape.K), coordinates(shape.K, shape.N, 7)),
        (np.full((shape.M, shape.K), -128, np.int8), np.full((shape.K, shape.N), -128, np.int8)),
    ):
        assert np.array_equal(elf.run(a, blocked(b) if layout == "b8" else b), product(a, b))


def test_one_task_per_tile(simulator, rng):
    shape = Shape(64, 640, 256, 2, 2)
    elf = simulator.elf(v27(shape), row_major_a(32, "mm.o"))
    a, b = random(rng, 64, 640), random(rng, 640, 256)
    assert np.array_equal(elf.run(a, b), product(a, b))


@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i"])
@pytest.mark.parametrize("M", [128, 16])
def test_rendered_generators(simulator, tag, M, rng):
    generator = render(CHECKOUT, DesignRequest(192, 1280, M, tag, 5))
    elf = simulator.elf(design_of(generator.text), *generator.kernels)
    ternary = tag == "_pb16i"
    a, b = random(rng, M, 192), random(rng, 192, 1280, *((-1, 1) if ternary else ()))
    packed = {"": b, "_b8": blocked(b), "_pb16i": packed_ternary(b)}[tag]
    assert np.array_equal(elf.run(a, packed), product(a, b))


def test_the_rendered_sealed_design_goes_from_geometry_to_geometry(simulator, rng):
    geometries = [(128, 512), (256, 256), (320, 768)]
    generator = render_sealed(CHECKOUT, "_pb16i", geometries, 2)
    elf = simulator.elf(design_of(generator.text), *generator.kernels)
    elf.call("init")
    for K, N in (*geometries, *reversed(geometries), geometries[0]):
        a, b = random(rng, 16, K), random(rng, K, N, -1, 1)
        assert np.array_equal(elf.run(a, packed_ternary(b), sequence=f"seq_K{K}_N{N}"), product(a, b))


def test_b8_fed_row_major_weights_differs(simulator, rng):
    elf = simulator.elf(panel_b8(Shape(32, 256, 512, 2, 2, m=16)), mm_i8(16))
    a, b = random(rng, 32, 256), random(rng, 256, 512)
    assert not np.array_equal(elf.run(a, b), product(a, b))


@pytest.mark.full_size
@pytest.mark.parametrize("M", [128, 16])
def test_full_size(simulator, M, rng):
    generator = render(CHECKOUT, DesignRequest(5120, 14336, M, "_b8", 8))
    elf = simulator.elf(design_of(generator.text), *generator.kernels)
    a, b = random(rng, M, 5120), random(rng, 5120, 14336)
    # float64 holds every sum: they stay below 2**53.
    assert np.array_equal(elf.run(a, blocked(b)), a.astype(np.float64) @ b.astype(np.float64))


# Data movement, with kernels that only copy.


def run(simulator, design, *kernels, elements=4096, seed=5):
    source = np.random.default_rng(seed).integers(-128, 128, elements, dtype=np.int8)
    other = np.random.default_rng(seed + 1).integers(-128, 128, elements, dtype=np.int8)
    return source, other, simulator.elf(design, *(kernels or (relay(),))).run(source, other)


def test_an_iteration_dimension_repeats_the_other_three(simulator):
    # 4 runs, 64 apart, of 4 x 16 x 16 bytes: rows of 16 every 256, blocks of them every 16.
    fill = task(0, "in", 0, 1024, sizes=(4, 4, 16, 16), strides=(64, 16, 256, 1), repeat=3)
    drain = task(1, "out", 2, 4096, token=True)
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [fill, drain],
    )
    source, _, result = run(simulator, made)
    grid = source.reshape(16, 4, 4, 16)  # row, run, block, byte
    assert np.array_equal(result, grid.transpose(1, 2, 0, 3).reshape(-1))


def test_a_linear_task_may_repeat(simulator):
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [task(0, "in", 0, 1024, offset=512, repeat=3), task(1, "out", 2, 4096, token=True)],
    )
    source, _, result = run(simulator, made)
    assert np.array_equal(result, np.tile(source[512:1536], 4))


def test_repeats_go_round_an_iteration_dimension(simulator):
    fill = task(0, "in", 0, 512, sizes=(2, 1, 1, 512), strides=(1024, 0, 0, 1), repeat=7)
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [fill, task(1, "out", 2, 4096, token=True)],
    )
    source, _, result = run(simulator, made)
    assert np.array_equal(result, np.tile(np.concatenate([source[:512], source[1024:1536]]), 4))


def test_tasks_may_cut_objects_anywhere(simulator):
    cuts = [(0, 700), (700, 900), (1600, 4), (1604, 2492)]
    tasks = [task(n, "in", 0, length, offset=offset) for n, (offset, length) in enumerate(cuts)]
    tasks += [task(4, "out", 2, 1500), task(5, "out", 2, 2596, offset=1500, token=True)]
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)], [Core(CORE, 1024, forever(*copying("in", "out")))], tasks
    )
    source, _, result = run(simulator, made)
    assert np.array_equal(result, source)


def test_dimensions_at_both_ends_of_a_stream(simulator):
    # The producer core sends its 32 x 32 object transposed; the mem tile stores each stream of 1024 as 4 columns.
    out = fifo("out", CORE, MEM, to_stream=(Dim(32, 1), Dim(32, 32)), from_stream=((Dim(4, 1), Dim(256, 4)),))
    made = design(
        [fifo("in", SHIM, CORE), out, fifo("last", MEM, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [task(0, "in", 0, 4096), task(1, "last", 2, 4096, token=True)],
        links=[Link(("out",), ("last",))],
    )
    source, _, result = run(simulator, made)
    sent = source.reshape(4, 32, 32).transpose(0, 2, 1).reshape(4, 4, 256)
    assert np.array_equal(result, sent.transpose(0, 2, 1).reshape(-1))


def test_a_broadcast_gives_every_consumer_its_own_order(simulator):
    wide = fifo("in", SHIM, CORE, NEXT, from_stream=((), (Dim(32, 1), Dim(32, 32))))
    made = design(
        [wide, fifo("one", CORE, MEM), fifo("two", NEXT, MEM), fifo("both", MEM, SHIM, size=2048)],
        [Core(CORE, 1024, forever(*copying("in", "one"))), Core(NEXT, 1024, forever(*copying("in", "two")))],
        [task(0, "in", 0, 2048), task(1, "both", 2, 4096, token=True)],
        links=[Link(("one", "two"), ("both",), src_offsets=(0, 1024))],
    )
    source, _, result = run(simulator, made)
    blocks = source[:2048].reshape(2, 1024)
    turned = blocks.reshape(2, 32, 32).transpose(0, 2, 1).reshape(2, 1024)
    assert np.array_equal(result, np.stack([blocks, turned], axis=1).reshape(-1))


def test_a_join_takes_its_dimensions_piece_by_piece(simulator):
    both = fifo("both", MEM, SHIM, size=2048, to_stream=(Dim(32, 1), Dim(32, 32)))
    made = design(
        [fifo("a", SHIM, CORE), fifo("b", SHIM, NEXT), fifo("one", CORE, MEM), fifo("two", NEXT, MEM), both],
        [Core(CORE, 1024, forever(*copying("a", "one"))), Core(NEXT, 1024, forever(*copying("b", "two")))],
        [task(0, "a", 0, 2048), task(1, "b", 1, 2048), task(2, "both", 2, 4096, token=True)],
        links=[Link(("one", "two"), ("both",), src_offsets=(0, 1024))],
    )
    source, other, result = run(simulator, made)
    pieces = np.stack([source[:2048].reshape(2, 32, 32), other[:2048].reshape(2, 32, 32)], axis=1)
    assert np.array_equal(result, pieces.transpose(0, 1, 3, 2).reshape(-1))


def test_a_distribute_deals_the_pieces_out(simulator):
    made = design(
        [
            fifo("in", SHIM, MEM, size=2048),
            fifo("one", MEM, CORE),
            fifo("two", MEM, NEXT),
            fifo("a", CORE, SHIM),
            fifo("b", NEXT, SHIM),
        ],
        [Core(CORE, 1024, forever(*copying("one", "a"))), Core(NEXT, 1024, forever(*copying("two", "b")))],
        [
            task(0, "in", 0, 4096),
            task(1, "a", 2, 2048, token=True),
            task(2, "b", 2, 2048, offset=2048, token=True),
        ],
        links=[Link(("in",), ("one", "two"), dst_offsets=(0, 1024))],
    )
    source, _, result = run(simulator, made)
    pieces = source.reshape(2, 2, 1024)
    assert np.array_equal(result, pieces.transpose(1, 0, 2).reshape(-1))


@pytest.mark.parametrize("sizes", [(2048, 1024), (1024, 2048)], ids=["cut", "gathered"])
def test_a_link_between_objects_of_two_sizes(simulator, sizes):
    into, onward = sizes
    made = design(
        [fifo("in", SHIM, MEM, size=into), fifo("on", MEM, CORE, size=onward), fifo("out", CORE, SHIM, size=onward)],
        [Core(CORE, 1024, forever(*copying("on", "out")))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 4096, token=True)],
        links=[Link(("in",), ("on",))],
        kernels=(Kernel("relay", (MemRef((onward,), "i8"),) * 2, "relay.o"),),
    )
    source, _, result = run(simulator, made, relay(onward))
    assert np.array_equal(result, source)


def test_a_repeat_count_sends_each_object_again(simulator):
    made = design(
        [fifo("in", SHIM, MEM), fifo("on", MEM, CORE, repeat_count=2), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("on", "out")))],
        [task(0, "in", 0, 2048), task(1, "out", 2, 4096, token=True)],
        links=[Link(("in",), ("on",))],
    )
    source, _, result = run(simulator, made)
    assert np.array_equal(result, np.repeat(source[:2048].reshape(2, 1, 1024), 2, axis=1).reshape(-1))


@pytest.mark.parametrize("via_dma", [False, True], ids=["shared", "dma"])
def test_cores_pass_objects_to_each_other(simulator, via_dma):
    made = design(
        [fifo("in", SHIM, CORE), fifo("pass", CORE, NEXT, via_dma=via_dma), fifo("out", NEXT, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "pass"))), Core(NEXT, 1024, forever(*copying("pass", "out")))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 4096, token=True)],
    )
    source, _, result = run(simulator, made)
    assert np.array_equal(result, source)


def test_a_window_slides_over_a_fifo(simulator):
    """Acquire 3 and release 1: two objects stay held from turn to turn."""
    size, objects = 64, 10
    window = (
        Acquire(0, "in", "consume", 3),
        Acquire(1, "out", "produce", 1),
        Call("sum_of_three", (ObjectRef(0, 0), ObjectRef(0, 1), ObjectRef(0, 2), ObjectRef(1, 0))),
        Release("in", "consume", 1),
        Release("out", "produce", 1),
    )
    body = (Loop(0, Const(0), Const(objects - 2), Const(1), window), Release("in", "consume", 2))
    made = design(
        [fifo("in", SHIM, CORE, size=size, depth=3), fifo("out", CORE, SHIM, size=size)],
        [Core(CORE, 1024, body)],
        [task(0, "in", 0, objects * size), task(1, "out", 2, (objects - 2) * size, token=True)],
        kernels=(Kernel("sum_of_three", (MemRef((size,), "i8"),) * 4, "relay.o"),),
    )
    made = replace(
        made,
        sequences=(
            replace(
                made.sequences[0], arguments=(*made.sequences[0].arguments[:2], MemRef(((objects - 2) * size,), "i8"))
            ),
        ),
    )
    source, _, result = run(simulator, made, plain())
    rows = source[: objects * size].reshape(objects, size)
    assert np.array_equal(result.reshape(-1, size), rows[:-2] + rows[1:-1] + rows[2:])


def test_loops_bounds_and_scalars(simulator):
    """Loop indices are passed as scalars; bounds, steps and nesting are those of scf.for."""
    call = (
        Acquire(0, "out", "produce", 1),
        Call("fill_i32", (ObjectRef(0, 0), LoopIndex(1))),
        Release("out", "produce", 1),
    )
    body = (
        Loop(0, Const(0), Const(2), Const(1), (Loop(1, Const(5), Const(12), Const(3), call),)),
        Loop(2, Const(3), Const(3), Const(1), call),  # no turn
    )
    made = scalar_design(
        "fill_i32", (MemRef((16,), "i32"), "i32"), body, elements=96,
        steps=(LoadPdi("main"), StartTask(0), AwaitTask(0)),
    )  # fmt: skip
    elf = simulator.elf(made, plain())
    result = elf.run(np.zeros(16, np.int8), np.zeros(16, np.int8))
    assert result.reshape(6, 16)[:, 0].tolist() == [5, 8, 11, 5, 8, 11]
    assert np.array_equal(result, np.repeat([5, 8, 11, 5, 8, 11], 16))


def test_run_time_parameters_are_read_with_their_sign(simulator):
    parameters = Buffer("counts", CORE, MemRef((4,), "i32"))
    body = forever(
        UseLock("go", "acquire_ge", Const(1)),
        Load(0, "counts", Const(3)),
        Acquire(0, "out", "produce", 1),
        Call("fill_i32", (ObjectRef(0, 0), Loaded(0))),
        Release("out", "produce", 1),
    )
    made = scalar_design(
        "fill_i32", (MemRef((16,), "i32"), "i32"), body, buffers=(parameters,), locks=(Lock("go", CORE, 0),),
        steps=(LoadPdi("main"), RtpWrite("counts", 3, -7), SetLock("go", 1), StartTask(0), AwaitTask(0)),
    )  # fmt: skip
    assert simulator.elf(made, plain()).run(np.zeros(16, np.int8), np.zeros(16, np.int8)).tolist() == [-7] * 16


def test_a_buffer_is_passed_to_a_kernel(simulator):
    table = Buffer("table", CORE, MemRef((16,), "i32"))
    body = forever(
        UseLock("go", "acquire_ge", Const(1)),
        Acquire(0, "out", "produce", 1),
        Call("add_table", (BufferRef("table"), ObjectRef(0, 0))),
        Release("out", "produce", 1),
    )
    writes = tuple(RtpWrite("table", i, 10 * i) for i in range(16))
    made = scalar_design(
        "add_table", (MemRef((16,), "i32"), MemRef((16,), "i32")), body, buffers=(table,), locks=(Lock("go", CORE, 0),),
        steps=(LoadPdi("main"), *writes, SetLock("go", 1), StartTask(0), AwaitTask(0)),
    )  # fmt: skip
    result = simulator.elf(made, plain()).run(np.zeros(16, np.int8), np.zeros(16, np.int8))
    assert result.tolist() == [10 * i + 1 for i in range(16)]


def test_a_lock_is_a_counter(simulator):
    """Two cores take turns: each acquires what the other released."""
    mine = (
        UseLock("ping", "acquire", Const(1)),
        *copying("in", "one"),
        UseLock("pong", "release", Const(2)),
    )
    yours = (
        UseLock("pong", "acquire_ge", Const(2)),
        *copying("one", "out"),
        UseLock("ping", "release", Const(1)),
    )
    made = design(
        [fifo("in", SHIM, CORE), fifo("one", CORE, NEXT, via_dma=True), fifo("out", NEXT, SHIM)],
        [Core(CORE, 1024, forever(*mine)), Core(NEXT, 1024, forever(*yours))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 4096, token=True)],
        locks=[Lock("ping", CORE, 1), Lock("pong", NEXT, 0)],
    )
    source, _, result = run(simulator, made)
    assert np.array_equal(result, source)


def test_state_stays_between_runs_without_load_pdi(simulator):
    """The core's own count goes on from run to run; load_pdi begins it again."""
    body = (
        Loop(
            0,
            Const(0),
            Const(FOREVER),
            Const(1),
            (
                Acquire(0, "out", "produce", 1),
                UseLock("go", "acquire_ge", Const(1)),
                Call("fill_i32", (ObjectRef(0, 0), LoopIndex(0))),
                Release("out", "produce", 1),
            ),
        ),
    )
    made = scalar_design(
        "fill_i32", (MemRef((16,), "i32"), "i32"), body, locks=(Lock("go", CORE, 0),),
        steps=(SetLock("go", 1), StartTask(0), AwaitTask(0)),
    )  # fmt: skip
    init = Sequence("init", made.sequences[0].arguments, (), (LoadPdi("main"),))
    elf = simulator.elf(replace(made, sequences=(init, *made.sequences)), plain())
    nothing = np.zeros(16, np.int8)
    elf.call("init")
    assert [int(elf.run(nothing, nothing)[0]) for _ in range(3)] == [0, 1, 2]
    elf.call("init")
    assert int(elf.run(nothing, nothing)[0]) == 0


def test_two_loaded_copies_have_two_arrays(simulator):
    path = simulator.path(example("sequences_rtp"), mm_pb16i(16, "mm_pb16i_16x64x128.o"))
    from elfkiln.targets.sim.sim_elf import SimElf

    one, two = SimElf(path), SimElf(path)
    one.call("init")
    with pytest.raises(SimulationFailed, match="run main_init before"):
        two.run(np.zeros((16, 128), np.int8), np.full(8192, 0x55, np.uint8), sequence="seq_K128_N256")

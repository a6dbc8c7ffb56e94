"""Wrong designs end their run with a line that names tile, FIFO and step, never with a wrong number."""

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
    FreeTask,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    Loop,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    SetLock,
    StartTask,
    Task,
    Tile,
    UseLock,
)
from elfkiln.errors import ElfkilnError, Refused, SimulationFailed
from gemm_designs import Shape, panel_b8
from sim_designs import CORE, MEM, NEXT, SHIM, copying, design, fifo, forever, scalar_design, task
from simulating import mm_i8, plain, relay
from small_designs import with_core, with_fifo, with_link, with_sequence, with_steps, with_task

BASE = panel_b8(Shape(32, 256, 512, 2, 2, m=16))
STEPS = BASE.sequences[0].steps
TASKS = BASE.sequences[0].tasks

# In BASE, group 0 has tasks 0 to 5 (A_0, A_1, B_mem_0, B_mem_1, C_0, C_1), started at steps 1 to 6; group 1 likewise
# 6 to 11 at steps 7 to 12. Steps 13 and 14 await 4 and 5, 15 to 18 free 0 to 3, 19 and 20 await 10 and 11, 21 to 24
# free 6 to 9. A core's statements: 0 loop, 1 acquire C, 2 zero, 3 loop, 4 acquire A, 5 acquire B, 6 matmul,
# 7 release A, 8 release B, 9 release C.
A_0, B_MEM_0, C_0, C_1 = 0, 2, 4, 5
START_A_0, START_B_MEM_0, START_C_0, START_C_1, AWAIT_C_0, AWAIT_C_1 = 1, 3, 5, 6, 13, 14
ACQUIRE_A, ACQUIRE_B, MATMUL, RELEASE_A, RELEASE_C = 4, 5, 6, 7, 9


def edited(body, change):
    """A program with `change` applied to every statement: it returns the statements that take its place."""
    found = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = replace(statement, body=edited(statement.body, change))
        found += change(statement)
    return tuple(found)


def at_core(change, tile=CORE, base=BASE):
    (core,) = [core for core in base.cores if core.tile == tile]
    return with_core(base, tile, body=edited(core.body, change))


def without(kind, name):
    return lambda s: [] if isinstance(s, kind) and name in (getattr(s, "fifo", ""), getattr(s, "kernel", "")) else [s]


def changed(kind, name, **changes):
    return lambda s: [replace(s, **changes) if isinstance(s, kind) and getattr(s, "fifo", "") == name else s]


def failure(simulator, made, *kernels):
    """The line with which a run over ones ends."""
    elf = simulator.elf(made, *(kernels or (mm_i8(16),)))
    sizes = [argument.elements for argument in made.sequences[0].arguments]
    with pytest.raises(SimulationFailed) as caught:
        elf.run(np.ones(sizes[0], np.int8), np.ones(sizes[1], np.int8))
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1500
    return line


def check(line, *words):
    for word in words:
        assert word in line, (word, line)


# What cores do.

CORE_FAULTS = {
    "drop_zero": (
        without(Call, "zero_i32"),
        [f"core(0,2) step {MATMUL - 1} (call matmul_i8_i32), turn 0.0", "C_0_0", "read before anything wrote it"],
    ),
    "release_twice": (
        lambda s: [s, s] if isinstance(s, Release) and s.fifo == "A_0" else [s],
        [f"core(0,2) step {RELEASE_A + 1} (release 1 of A_0 to consume), turn 0.0", "it holds 0"],
    ),
    "release_more": (
        changed(Release, "B_0", count=2),
        [f"core(0,2) step {RELEASE_A + 1} (release 2 of B_0 to consume), turn 0.0", "it holds 1"],
    ),
    "release_beyond_depth": (
        changed(Release, "A_0", count=3),
        [f"core(0,2) step {RELEASE_A} (release 3 of A_0 to consume)", "A_0 has 2 objects there"],
    ),
    "acquire_none": (changed(Acquire, "A_0", count=0), [f"core(0,2) step {ACQUIRE_A}", "A_0", "at least 1"]),
    "wrong_port": (
        changed(Acquire, "A_0", port="produce"),
        [f"core(0,2) step {ACQUIRE_A} (acquire 1 of A_0 to produce)", "its producer is shim(0,0)"],
    ),
    "wrong_row": (
        lambda s: [replace(s, fifo="A_1") if isinstance(s, Acquire | Release) and s.fifo == "A_0" else s],
        [f"core(0,2) step {ACQUIRE_A} (acquire 1 of A_1 to consume)", "its consumers are core(0,3), core(1,3)"],
    ),
    "unknown_fifo": (
        lambda s: [replace(s, fifo="nowhere") if isinstance(s, Acquire | Release) and s.fifo == "A_0" else s],
        [f"core(0,2) step {ACQUIRE_A}", "there is no FIFO nowhere"],
    ),
    "use_after_release": (
        lambda s: (
            [Release("A_0", "consume", 1), s]
            if isinstance(s, Call) and s.kernel != "zero_i32"
            else without(Release, "A_0")(s)
        ),
        [f"core(0,2) step {MATMUL + 1} (call matmul_i8_i32), turn 0.0", "A_0", "was released before"],
    ),
    "wrong_argument": (
        lambda s: (
            [replace(s, arguments=(ObjectRef(1, 0), ObjectRef(1, 0), ObjectRef(0, 0)))]
            if isinstance(s, Call) and s.kernel != "zero_i32"
            else [s]
        ),
        [f"core(0,2) step {MATMUL}", "argument 1 of matmul_i8_i32", "memref<64x128xi8>", "memref<16x64xi8>"],
    ),
    "argument_not_acquired": (
        lambda s: (
            [replace(s, arguments=(ObjectRef(1, 1), ObjectRef(2, 0), ObjectRef(0, 0)))]
            if isinstance(s, Call) and s.kernel != "zero_i32"
            else [s]
        ),
        [f"core(0,2) step {MATMUL}", "object 1 of 1 acquired of A_0"],
    ),
    "drop_release_a": (
        without(Release, "A_0"),
        # The core goes on with the one object it holds; the second stays in the FIFO, and core(1,2) gets no third.
        [
            f"main_seq step {AWAIT_C_1} (await task {C_1}, which drains C_1): deadlock",
            f"core(0,2) step {ACQUIRE_B} (acquire 1 of B_0 to consume)",
            "no room at core(0,2), where A_0 has 2 objects, 1 of them taken and not released",
            f"core(1,2) step {ACQUIRE_A} (acquire 1 of A_0 to consume), turn 0.2: 0 ready",
        ],
    ),
    "drop_release_c": (
        without(Release, "C_0_0"),
        [
            f"main_seq step {AWAIT_C_0} (await task {C_0}, which drains C_0): deadlock",
            f"core(0,2) step {ACQUIRE_A}",
            "C_0_0",
            "0 of 16384 bytes",
        ],
    ),
    "too_many_k_tiles": (
        lambda s: [replace(s, upper=Const(5)) if isinstance(s, Loop) and s.number == 1 else s],
        ["deadlock", "it begins with A_0", "no task is queued to fill it", f"core(0,2) step {ACQUIRE_A}", "turn 1.3"],
    ),
    "too_few_k_tiles": (
        lambda s: [replace(s, upper=Const(3)) if isinstance(s, Loop) and s.number == 1 else s],
        [
            f"main_seq ends: core(0,2) step {ACQUIRE_A}",
            "turn 2.2",
            "in the middle of an object of C_0_0",
            "consumed 4 objects",
        ],
    ),
    "program_ends": (
        lambda s: [replace(s, upper=Const(1)) if isinstance(s, Loop) and s.number == 0 else s],
        ["main_seq step 19 (await task 10", "deadlock", "it begins with the program of core(0,2) has ended", "C_0_0"],
    ),
    "loop_without_steps": (
        lambda s: [replace(s, step=Const(0)) if isinstance(s, Loop) and s.number == 1 else s],
        ["core(0,2) step 3 (loop), turn 0", "it steps by 0"],
    ),
}


@pytest.mark.parametrize("name", CORE_FAULTS)
def test_misuse_by_a_core(simulator, name):
    change, words = CORE_FAULTS[name]
    check(failure(simulator, at_core(change)), *words)


def test_an_object_that_nothing_wrote_is_not_released(simulator):
    made = at_core(lambda s: [] if isinstance(s, Call) else [s])
    check(failure(simulator, made), "core(0,2) step", "(release 1 of C_0_0 to produce)", "nothing wrote the object")


def test_a_core_that_is_missing(simulator):
    made = replace(BASE, cores=BASE.cores[1:])
    line = failure(simulator, made)
    check(line, "deadlock", "it begins with C_0_0 (core(0,2) to mem(0,1))", "nothing ever writes one")


@pytest.mark.parametrize("body", [(), (Call("does_nothing", ()),)], ids=["empty", "calls"])
def test_a_loop_that_never_comes_to_an_object_ends(simulator, body):
    made = design(
        [fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, (Loop(0, Const(0), Const(1 << 40), Const(1), body), Release("out", "produce", 1)))],
        [task(0, "out", 2, 4096, token=True)],
        kernels=(Kernel("does_nothing", (), "relay.o"),),
    )
    check(failure(simulator, made, plain()), "core(0,2) step", "works on without a byte for the host and without end")


def test_cores_that_keep_each_other_busy_for_ever_end(simulator):
    back_and_forth = design(
        [fifo("there", CORE, NEXT), fifo("back", NEXT, CORE, via_dma=True), fifo("out", CORE, SHIM)],
        [
            Core(
                CORE,
                1024,
                forever(
                    Acquire(0, "there", "produce", 1),
                    Call("fill", (ObjectRef(0, 0), Const(1))),
                    Release("there", "produce", 1),
                    Acquire(1, "back", "consume", 1),
                    Release("back", "consume", 1),
                ),
            ),
            Core(
                NEXT,
                1024,
                forever(
                    Acquire(0, "there", "consume", 1),
                    Release("there", "consume", 1),
                    Acquire(1, "back", "produce", 1),
                    Call("fill", (ObjectRef(1, 0), Const(2))),
                    Release("back", "produce", 1),
                ),
            ),
        ],
        [task(0, "out", 2, 4096, token=True)],
        kernels=(Kernel("fill", (MemRef((64,), "i8"), "i32"), "relay.o"),),
    )
    small = replace(
        back_and_forth,
        fifos=tuple(replace(one, object_type=MemRef((64,), "i8")) for one in back_and_forth.fifos),
        kernels=(Kernel("fill_i32", (MemRef((64,), "i8"), "i32"), "relay.o"),),
        cores=tuple(
            replace(
                core,
                body=edited(core.body, lambda s: [replace(s, kernel="fill_i32")] if isinstance(s, Call) else [s]),
            )
            for core in back_and_forth.cores
        ),
    )
    check(failure(simulator, small, plain()), "without a byte for the host and without end")


# What the sequence does.

SEQUENCE_FAULTS = {
    "no_load_pdi": (STEPS[1:], ["main_seq step 0 (start task 0, which fills A_0)", "load_pdi comes first"]),
    "other_device": ((LoadPdi("other"), *STEPS[1:]), ["main_seq step 0 (load_pdi)", "other", "holds main"]),
    "no_await": (
        tuple(step for step in STEPS if not isinstance(step, AwaitTask)),
        ["main_seq step 13 (free task 0, which fills A_0)", "may still run"],
    ),
    "no_await_no_free": (
        tuple(step for step in STEPS if not isinstance(step, AwaitTask | FreeTask)),
        ["main_seq ends: task 0, which fills A_0, may still run", "main_seq step 1 (start task 0"],
    ),
    "last_await_missing": (
        tuple(step for step in STEPS if step != AwaitTask(11)),
        ["main_seq ends: task 11, which drains C_1, was never awaited", "read early", "step 12"],
    ),
    "await_before_start": (
        (STEPS[0], AwaitTask(C_0), *STEPS[1:]),
        ["main_seq step 1 (await task 4, which drains C_0)", "not started"],
    ),
    "free_before_start": (
        (STEPS[0], FreeTask(A_0), *STEPS[1:]),
        ["main_seq step 1 (free task 0, which fills A_0)", "not started"],
    ),
    "free_while_running": (
        (*STEPS[:2], FreeTask(A_0), *STEPS[2:]),
        ["main_seq step 2 (free task 0, which fills A_0)", "may still run"],
    ),
    "free_twice": (
        (*STEPS, FreeTask(A_0)),
        ["main_seq step 25 (free task 0, which fills A_0)", "given back before"],
    ),
    "free_after_await": (
        (*STEPS, FreeTask(C_0)),
        ["main_seq step 25 (free task 4, which drains C_0)", "given back before"],
    ),
    "start_twice": (
        (*STEPS[:2], STEPS[1], *STEPS[2:]),
        ["main_seq step 2 (start task 0, which fills A_0)", "started before, at step 1"],
    ),
    "start_after_free": (
        (*STEPS, StartTask(A_0)),
        ["main_seq step 25 (start task 0, which fills A_0)", "given back before"],
    ),
    "nothing_filled": (
        (STEPS[0], StartTask(C_0), AwaitTask(C_0)),
        ["main_seq step 2 (await task 4, which drains C_0): deadlock", "it begins with A_0", "no task is queued"],
    ),
    "tokens_out_of_order": (
        (*STEPS[:13], AwaitTask(10)),
        ["main_seq step 13 (await task 10, which drains C_0)", "token of task 4"],
    ),
    "load_pdi_again_while_running": (
        (*STEPS[:13], LoadPdi("main")),
        ["task 0, which fills A_0, may still run"],
    ),
}


@pytest.mark.parametrize("name", SEQUENCE_FAULTS)
def test_misuse_by_the_sequence(simulator, name):
    steps, words = SEQUENCE_FAULTS[name]
    check(failure(simulator, with_steps(BASE, *steps)), *words)


def test_an_await_takes_a_token(simulator):
    made = with_task(BASE, C_0, issue_token=False)
    check(failure(simulator, made), f"main_seq step {AWAIT_C_0} (await task 4, which drains C_0)", "issue_token")


def test_a_task_of_a_channel_is_seen_done_by_the_await_of_a_later_one(simulator):
    """A channel runs its tasks in order, so one await at the end covers those before it."""
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 1024), task(2, "out", 2, 3072, offset=1024, token=True)],
    )
    source = np.arange(4096).astype(np.int8)
    assert np.array_equal(simulator.elf(made, relay()).run(source, source.copy()), source)


def test_a_shim_has_sixteen_buffer_descriptors(simulator):
    tasks = tuple(Task(n, "C_0", 2, n * 64, (), (), 64, 0, False, configured_at=1) for n in range(17))
    made = with_sequence(BASE, tasks=tasks, steps=(LoadPdi("main"), StartTask(0)))
    check(failure(simulator, made), "main_seq step 1", "task 16 on C_0", "all 16 buffer descriptors of shim(0,0)")


def test_a_full_channel_drops_a_task(simulator):
    tasks = tuple(Task(n, "B_mem_0", 1, n * 16384, (), (), 16384, 0, True, configured_at=1) for n in range(8))
    made = with_sequence(BASE, tasks=tasks, steps=(LoadPdi("main"), *(StartTask(n) for n in range(8))))
    # The mem tile takes 4 tiles of 8192 and the core 2: three tasks go through, four wait, the eighth is lost.
    check(failure(simulator, made), "main_seq step 8 (start task 7, which fills B_mem_0)", "holds 4 tasks")


# Access patterns.

TASK_FAULTS = {
    "fill_past_the_end": (A_0, {"offset": 4097}, [f"step {START_A_0}", "fills A_0", "4097 to 8192 of A", "has 8192"]),
    "drain_past_the_end": (
        C_0,
        {"offset": 32 * 512 - 100},
        [f"step {START_C_0} (start task 4, which drains C_0)", "of C", "which has 16384"],
    ),
    "swapped_strides": (
        C_0,
        {"strides": (8, 4096, 512, 1)},
        # 3*8 + 15*4096 + 7*512 + 7 is the furthest element.
        [f"step {START_C_0} (start task 4, which drains C_0)", "elements 0 to 65055 of C", "which has 16384"],
    ),
    "overlapping_drains": (
        C_1,
        {"offset": 0},
        ["C_1 (mem(1,1) to shim(1,0)), task 5: element 0 of C is written twice", f"main_seq step {START_C_1}"],
    ),
    "overlap_within_a_drain": (
        C_0,
        {"strides": (4096, 8, 8, 1)},
        # Rows 8 apart instead of 512: the second column block begins where the second row did.
        ["C_0 (mem(0,1) to shim(0,0)), task 4: element 8 of C is written twice", f"main_seq step {START_C_0}"],
    ),
    "length_disagrees": (
        B_MEM_0,
        {"length": 100},
        [f"step {START_B_MEM_0}", "fills B_mem_0", "length is 100", "[1, 1, 1, 32768]"],
    ),
    "moves_nothing": (B_MEM_0, {"sizes": (1, 1, 0, 8), "length": 0}, [f"step {START_B_MEM_0}", "move nothing"]),
    "moves_for_ever": (
        B_MEM_0,
        {"repeat_count": (1 << 31) - 1},
        [f"step {START_B_MEM_0}", f"moves {(1 << 31) * 32768} bytes"],
    ),
    "writes_an_input": (
        C_0,
        {"argument": 1},
        [f"step {START_C_0}", "drains C_0", "writes argument B", "only C"],
    ),
    "no_such_argument": (C_0, {"argument": 5}, [f"step {START_C_0}", "argument 5 of 3"]),
    "unknown_fifo": (C_0, {"fifo": "nowhere"}, [f"step {START_C_0}", "there is no FIFO nowhere"]),
    "inner_fifo": (C_0, {"fifo": "B_0"}, [f"step {START_C_0}", "FIFO B_0 has no end on a shim tile"]),
    "too_short_a_fill": (
        A_0,
        {"sizes": (1, 16, 16, 8), "length": 2048},
        ["deadlock", "it begins with A_0 (shim(0,0) to core(0,2) and 1 more)", "no task is queued to fill it"],
    ),
    "half_an_object": (
        B_MEM_0,
        {"sizes": (1, 1, 1, 28672), "length": 28672},
        ["deadlock", "it begins with B_mem_0", "an object at mem(0,1) has 4096 of its 8192 bytes"],
    ),
    "half_an_object_more": (
        A_0,
        {"sizes": (1, 36, 16, 8), "strides": (0, 4, 256, 1), "length": 4608},
        ["main_seq ends: A_0 (shim(0,0) to core(0,2) and 1 more) has 512 of 1024 bytes of an object at core(0,2)"],
    ),
    "a_whole_object_more": (
        B_MEM_0,
        {"sizes": (2, 1, 1, 20480), "strides": (0, 0, 0, 1), "length": 20480, "repeat_count": 1},
        ["main_seq ends: B_0 at core(0,2) still has 1 object; core(0,2) step 4 (acquire 1 of A_0 to consume)"],
    ),
    "repeats_disagree": (
        B_MEM_0,
        {"sizes": (2, 1, 1, 8192), "length": 8192, "repeat_count": 2},
        [f"step {START_B_MEM_0}", "runs 3 times", "outermost size 2"],
    ),
}


@pytest.mark.parametrize("name", TASK_FAULTS)
def test_wrong_access_patterns(simulator, name):
    number, changes, words = TASK_FAULTS[name]
    check(failure(simulator, with_task(BASE, number, **changes)), *words)


def test_a_whole_k_tile_more_is_left(simulator):
    """One more object of every input leaves the cores in the middle of a tile of C."""
    made = BASE
    for number, name in ((6, "A"), (7, "A"), (8, "B"), (9, "B")):
        sizes, strides = ((1, 40, 16, 8), (0, 0, 256, 1)) if name == "A" else ((1, 1, 5, 8192), (0, 0, 0, 1))
        made = with_task(made, number, sizes=sizes, strides=strides, length=sizes[1] * sizes[2] * sizes[3])
    check(
        failure(simulator, made),
        "main_seq ends: core(",
        "in the middle of an object of C_",
        "since it acquired it, it consumed 2 objects",
    )


def test_an_object_left_in_a_fifo(simulator):
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 2048, token=True)],
        steps=(LoadPdi("main"), StartTask(0), StartTask(1), AwaitTask(1)),
    )
    # Two objects are drained, two wait in the core's memory.
    check(failure(simulator, made, relay()), "main_seq ends: out at core(0,2) still has 2 objects")


def test_an_element_that_nothing_wrote(simulator):
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [task(0, "in", 0, 2048), task(1, "out", 2, 2048, token=True)],
    )
    check(failure(simulator, made, relay()), "main_seq ends: element 2048 of C was never written")


def test_an_element_read_before_it_is_written(simulator):
    """The second fill reads back what the first drain has not written yet."""
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [
            task(0, "in", 0, 2048),
            task(1, "in", 2, 2048, offset=64),
            task(2, "out", 2, 4096, token=True),
        ],
        steps=(LoadPdi("main"), StartTask(0), StartTask(2), StartTask(1), AwaitTask(2), FreeTask(0), FreeTask(1)),
    )
    line = failure(simulator, made, relay())
    check(line, "in (shim(0,0) to core(0,2)), task 1: element", "of C is read before it is written", "step 3")


def test_what_was_written_may_be_read_back(simulator):
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [
            task(0, "in", 0, 2048),
            task(1, "out", 2, 2048, token=True),
            task(2, "in", 2, 2048),
            task(3, "out", 2, 2048, offset=2048, token=True),
        ],
        steps=(
            LoadPdi("main"), StartTask(0), StartTask(1), AwaitTask(1), FreeTask(0),
            StartTask(2), StartTask(3), AwaitTask(3), FreeTask(2),
        ),
    )  # fmt: skip
    source = np.arange(4096).astype(np.int8)
    result = simulator.elf(made, relay()).run(source, source.copy())
    assert np.array_equal(result, np.tile(source[:2048], 2))


# FIFOs and links.

C_JOIN = "link of C_0_0, C_0_1 to C_0 at mem(0,1)"
ARRAY_FAULTS = {
    "join_offset_too_small": (
        with_link(BASE, "C_0", src_offsets=(0, 1024)),
        [C_JOIN, "C_0_0", "elements 0 to 1023 of the 4096", "2048"],
    ),
    "join_offsets_swapped": (with_link(BASE, "C_0", src_offsets=(2048, 0)), [C_JOIN, "first offset is 2048"]),
    "join_offset_missing": (with_link(BASE, "C_0", src_offsets=(0,)), [C_JOIN, "2 FIFOs and 1 offsets"]),
    "join_offset_past_the_end": (
        with_link(BASE, "C_0", src_offsets=(0, 5000)),
        [C_JOIN, "C_0_0", "elements 0 to 4999 of the 4096"],
    ),
    "linked_twice": (replace(BASE, links=(*BASE.links, BASE.links[0])), ["B_mem_0", "two links"]),
    "link_of_nothing": (with_link(BASE, "B_0", ins=("nowhere",)), ["link of nowhere to B_0", "no FIFO nowhere"]),
    "link_apart": (with_link(BASE, "B_0", ins=("B_mem_1",)), ["link of B_mem_1 to B_0", "do not meet"]),
    "join_on_a_core": (
        replace(BASE, links=(Link(("A_0", "B_0"), ("C_0_0",), src_offsets=(0, 1024)),)),
        ["link of A_0, B_0 to C_0_0 at core(0,2)", "only mem tiles join and distribute"],
    ),
    "dimensions_too_few": (
        with_fifo(BASE, "B_0", to_stream=(Dim(8, 8), Dim(8, 1))),
        ["FIFO B_0 at mem(0,1)", "to the stream", "move 64 elements of an object of 8192"],
    ),
    "dimensions_outside": (
        with_fifo(BASE, "B_0", to_stream=(Dim(64, 512), Dim(128, 1))),
        # 63*512 + 127
        ["FIFO B_0 at mem(0,1)", "elements 0 to 32383 of an object of 8192"],
    ),
    "dimensions_overlap": (
        with_fifo(BASE, "B_0", from_stream=((), (Dim(64, 0), Dim(128, 1)))),
        ["FIFO B_0 at core(0,3)", "from the stream", "twice"],
    ),
    "no_consumer": (with_fifo(BASE, "A_0", consumers=()), ["FIFO A_0 at shim(0,0) has no consumer"]),
}


@pytest.mark.parametrize("name", ARRAY_FAULTS)
def test_an_array_that_cannot_be_loaded(simulator, name):
    made, words = ARRAY_FAULTS[name]
    check(failure(simulator, made), "main_seq step 0 (load_pdi)", *words)


def test_an_acquire_beyond_a_depth_that_stands(simulator):
    """With a depth for each end the core gets no more than that, however much it acquires."""
    ends = len(next(f for f in BASE.fifos if f.name == "A_0").consumers) + 1
    made = with_fifo(at_core(changed(Acquire, "A_0", count=3)), "A_0", depths=(2,) * ends, depth_per_end=True)
    line = failure(simulator, made)
    check(line, f"core(0,2) step {ACQUIRE_A} (acquire 3 of A_0 to consume)", "A_0 has 2 objects there")


def test_a_core_that_uses_what_its_tile_links(simulator):
    made = replace(BASE, links=(Link(("A_0",), ("C_0_0",)), *BASE.links[:1], *BASE.links[2:3]))
    line = failure(simulator, made)
    check(
        line, "core(0,2) step", "acquire 1 of C_0_0", "C_0_0 is linked at core(0,2), so its DMA moves the objects there"
    )


def test_a_missing_link(simulator):
    line = failure(simulator, replace(BASE, links=BASE.links[1:]))
    check(line, "deadlock", "it begins with B_0 (mem(0,1) to core(0,2) and 1 more)", "nothing ever writes one")


def test_objects_of_another_size_than_the_kernel_takes(simulator):
    made = with_fifo(BASE, "A_0", object_type=MemRef((16, 32), "i8"))
    check(failure(simulator, made), f"core(0,2) step {MATMUL}", "memref<16x64xi8>", "memref<16x32xi8>")


def test_a_microkernel_compiled_for_another_tile(simulator):
    line = failure(simulator, BASE, mm_i8(32))
    check(line, "core(0,2) step 2 (call zero_i32)", "C_0_0", "8192 bytes", "compiled for 16384")


def test_a_microkernel_with_other_arguments(simulator):
    made = replace(BASE, kernels=(BASE.kernels[0], replace(BASE.kernels[1], parameters=BASE.kernels[1].parameters[:2])))
    check(failure(simulator, made), f"core(0,2) step {MATMUL}", "takes 2 arguments, found 3")
    made = at_core(
        lambda s: [replace(s, arguments=s.arguments[:2])] if isinstance(s, Call) and s.kernel != "zero_i32" else [s],
        base=made,
    )
    check(failure(simulator, made), f"core(0,2) step {MATMUL}", "passes 2 arguments, the microkernel takes 3")


def test_arguments_that_share_an_object(simulator):
    """relay's parameters are __restrict: an object cannot be copied onto itself."""
    body = forever(
        Acquire(0, "in", "consume", 1),
        Call("relay", (ObjectRef(0, 0), ObjectRef(0, 0))),
        Release("in", "consume", 1),
    )
    made = design([fifo("in", SHIM, CORE)], [Core(CORE, 1024, body)], [task(0, "in", 0, 4096, token=True)])
    line = failure(simulator, made, relay())
    check(line, "core(0,2) step 2 (call relay), turn 0", "argument 1, an object of in,", "argument 0")


def four_early_then_four_late(room):
    """The stream brings early and late objects in turn; the core wants four early ones before the first late one."""
    body = (
        Loop(1, Const(0), Const(4), Const(1), copying("early", "out")),
        Loop(2, Const(0), Const(4), Const(1), copying("late", "out")),
    )
    return design(
        [
            fifo("in", SHIM, MEM, depth=1),
            fifo("early", MEM, CORE, size=512, depth=1),
            fifo("late", MEM, CORE, size=512, depth=(1, room), depth_per_end=True),
            fifo("out", CORE, SHIM, size=512),
        ],
        [Core(CORE, 1024, forever(*body))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 4096, token=True)],
        links=[Link(("in",), ("early", "late"), dst_offsets=(0, 512))],
        kernels=(Kernel("relay", (MemRef((512,), "i8"),) * 2, "relay.o"),),
    )


def test_a_depth_that_is_enough(simulator):
    # Before the fourth early object come three late ones: two fit at the core, one in the mem tile.
    source = np.random.default_rng(1).integers(-128, 128, 4096, dtype=np.int8)
    result = simulator.elf(four_early_then_four_late(2), relay(512)).run(source, source.copy())
    assert np.array_equal(result, source.reshape(4, 2, 512).transpose(1, 0, 2).reshape(-1))


def test_a_depth_that_is_too_small(simulator):
    line = failure(simulator, four_early_then_four_late(1), relay(512))
    check(line, "main_seq step 3 (await task 1, which drains out): deadlock, 1536 of 4096 bytes moved")
    check(line, "core(0,2) step 2 (acquire 1 of early to consume), turn 0.3: 0 ready")
    check(line, "in (shim(0,0) to mem(0,1)): no room at mem(0,1), where late in in has 1 object")
    check(line, "late (mem(0,1) to core(0,2)): no room at core(0,2), where late has 1 object")


def test_a_circle_of_waits(simulator):
    """Each of two cores waits for the other's object before it makes its own."""
    made = design(
        [fifo("there", CORE, NEXT), fifo("back", NEXT, CORE, via_dma=True), fifo("out", CORE, SHIM)],
        [
            Core(CORE, 1024, forever(*copying("back", "there"), Acquire(2, "out", "produce", 1))),
            Core(NEXT, 1024, forever(*copying("there", "back"))),
        ],
        [task(0, "out", 2, 4096, token=True)],
    )
    line = failure(simulator, made, relay())
    check(line, "main_seq step 2 (await task 0, which drains out): deadlock", "waits go round")
    check(line, "core(0,2) step 1 (acquire 1 of back to consume), turn 0", "core(0,3) step 1 (acquire 1 of there")


# Locks, parameters, kernels, calls.


def guarded(*, steps, load=0, value=1, inner=()):
    body = forever(
        UseLock("go", "acquire_ge", Const(value)),
        Load(0, "counts", Const(load)),
        Acquire(0, "out", "produce", 1),
        Call("fill_i32", (ObjectRef(0, 0), Loaded(0))),
        Release("out", "produce", 1),
        *inner,
    )
    return scalar_design(
        "fill_i32", (MemRef((16,), "i32"), "i32"), body, buffers=(Buffer("counts", CORE, MemRef((4,), "i32")),),
        locks=(Lock("go", CORE, 0),), steps=steps,
    )  # fmt: skip


GO = (RtpWrite("counts", 0, 3), SetLock("go", 1), StartTask(0), AwaitTask(0))
LOCK_FAULTS = {
    "lock_never_set": (
        guarded(steps=(LoadPdi("main"), GO[0], *GO[2:])),
        ["main_seq step 3", "deadlock", "core(0,2) step 1 (acquire go), turn 0: go holds 0"],
    ),
    "parameter_never_written": (
        guarded(steps=(LoadPdi("main"), *GO), load=2),
        ["core(0,2) step 2 (load from counts), turn 0", "element 2 of counts is read before it is written"],
    ),
    "element_outside": (
        guarded(steps=(LoadPdi("main"), *GO), load=9),
        ["core(0,2) step 2 (load from counts)", "element 9 of 4"],
    ),
    "write_outside": (
        guarded(steps=(LoadPdi("main"), RtpWrite("counts", 4, 1), *GO)),
        ["main_seq step 1 (write element 4", "counts at core(0,2) has 4 elements"],
    ),
    "unknown_buffer": (
        guarded(steps=(LoadPdi("main"), RtpWrite("nowhere", 0, 1), *GO)),
        ["main_seq step 1", "there is no buffer nowhere"],
    ),
    "unknown_lock": (
        guarded(steps=(LoadPdi("main"), SetLock("nowhere", 1), *GO)),
        ["main_seq step 1", "there is no lock nowhere"],
    ),
    "lock_too_high": (
        guarded(steps=(LoadPdi("main"), SetLock("go", 64))),
        ["main_seq step 1", "go is set to 64", "0 to 63"],
    ),
    "lock_set_twice": (
        guarded(steps=(LoadPdi("main"), SetLock("go", 1), *GO)),
        ["main_seq step 3 (set go at core(0,2))", "still holds 1, which no core has taken"],
    ),
    "lock_overflows": (
        guarded(
            steps=(LoadPdi("main"), *GO),
            inner=(UseLock("go", "release", Const(63)), UseLock("go", "release", Const(1))),
        ),
        ["core(0,2) step 7 (release go), turn 0", "holds 63"],
    ),
    "lock_value": (
        guarded(steps=(LoadPdi("main"), *GO), value=64),
        ["core(0,2) step 1 (acquire go)", "the value is 64", "0 to 63"],
    ),
}


@pytest.mark.parametrize("name", LOCK_FAULTS)
def test_misuse_of_locks_and_parameters(simulator, name):
    made, words = LOCK_FAULTS[name]
    elf = simulator.elf(made, plain())
    with pytest.raises(SimulationFailed) as caught:
        elf.run(np.zeros(16, np.int8), np.zeros(16, np.int8))
    check(str(caught.value), *words)


def test_a_buffer_that_a_kernel_reads_is_written_before(simulator):
    """A microkernel that says that it reads a table needs all of it."""
    source = """
        #include <stdint.h>
        #include "kernel_entry.h"
        ELFKILN_ENTRY(add_table, ELFKILN_READS(64), ELFKILN_WRITES(64))
        extern "C" void add_table(int32_t *table, int32_t *to) { for (int i = 0; i < 16; ++i) to[i] = table[i]; }
    """
    (simulator.root / "kernels" / "declared_table.cc").write_text(source)
    body = forever(
        UseLock("go", "acquire_ge", Const(1)),
        Acquire(0, "out", "produce", 1),
        Call("add_table", (BufferRef("table"), ObjectRef(0, 0))),
        Release("out", "produce", 1),
    )
    writes = tuple(RtpWrite("table", i, i) for i in range(15))
    made = scalar_design(
        "add_table", (MemRef((16,), "i32"), MemRef((16,), "i32")), body, locks=(Lock("go", CORE, 0),),
        buffers=(Buffer("table", CORE, MemRef((16,), "i32")),),
        steps=(LoadPdi("main"), *writes, SetLock("go", 1), StartTask(0), AwaitTask(0)),
    )  # fmt: skip
    kernel = replace(plain(), source="declared_table.cc")
    line = failure(simulator, made, kernel)
    check(line, "core(0,2) step 3 (call add_table)", "argument 0, buffer table,", "read before anything wrote it")


def test_a_kernel_that_breaks_a_rule_ends_and_says_which(simulator):
    source = """
        #include <aie_api/aie.hpp>
        extern "C" void relay(int8_t *from, int8_t *to) {
            aie::store_v(to + 8, aie::load_v<32>(from));
            to[0] = 1;
        }
    """
    (simulator.root / "kernels" / "misaligned.cc").write_text(source)
    made = design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, forever(*copying("in", "out")))],
        [task(0, "in", 0, 4096), task(1, "out", 2, 4096, token=True)],
    )
    line = failure(simulator, made, replace(relay(), source="misaligned.cc", defines={}))
    check(line, "core(0,2) step 3 (call relay), turn 0: aie::store_v: the address is not aligned")


def test_after_a_failure_the_array_must_be_loaded_again(simulator):
    made = guarded(steps=(LoadPdi("main"), *GO))
    broken = replace(made.sequences[0], name="broken", steps=(StartTask(0), AwaitTask(0)))
    resumed = replace(made.sequences[0], name="resumed", steps=GO)
    elf = simulator.elf(replace(made, sequences=(*made.sequences, broken, resumed)), plain())
    nothing = np.zeros(16, np.int8)
    assert elf.run(nothing, nothing).tolist() == [3] * 16
    assert elf.run(nothing, nothing, sequence="resumed").tolist() == [3] * 16
    with pytest.raises(SimulationFailed, match=r"main_broken step 1 .*deadlock"):
        elf.run(nothing, nothing, sequence="broken")
    with pytest.raises(SimulationFailed, match="load_pdi comes first"):
        elf.run(nothing, nothing, sequence="resumed")
    assert elf.run(nothing, nothing).tolist() == [3] * 16


# What no ELF can be made of.


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (replace(BASE, sequences=()), ["no runtime sequence"]),
        (replace(BASE, name="a-b"), ["device 'a-b'", "name that C can have"]),
        (with_sequence(BASE, name="main seq"), ["sequence 'main seq'"]),
        (replace(BASE, kernels=(replace(BASE.kernels[0], name="zero\nx"),)), ["kernel"]),
        (with_sequence(BASE, arguments=(MemRef((64,), "i8"),) * 4), ["sequence seq", "at most 3 arguments"]),
        (with_steps(BASE, AwaitTask(99)), ["sequence seq", "no task 99"]),
        (replace(BASE, fifos=(*BASE.fifos, BASE.fifos[0])), ["two of FIFO A_0"]),
        (replace(BASE, cores=(*BASE.cores, BASE.cores[0])), ["two of core core(0,2)"]),
        (with_fifo(BASE, "A_0", object_type=MemRef((1 << 15, 1 << 16), "i8")), ["bytes"]),
        (replace(BASE, kernels=(Kernel("zero_i32", ("f32",), "mm.o"),)), ["kernel zero_i32", "f32"]),
        (replace(BASE, kernels=(Kernel("memset", ("i32",), "mm.o"),)), ["kernel memset", "rename it"]),
        (replace(BASE, kernels=(Kernel("sim_run", (), "mm.o"),)), ["kernel sim_run", "rename it"]),
        (replace(BASE, locks=(Lock("go", CORE, -1),)), ["lock go", "-1 is not in"]),
        (with_fifo(BASE, "A_0", object_type=MemRef((16, 64), "f64")), ["FIFO A_0", "memref<16x64xf64>"]),
        (replace(BASE, kernels=(Kernel("zero_i32", ("i32",) * 9, "mm.o"),)), ["kernel zero_i32", "at most 8"]),
        (replace(BASE, kernels=(replace(BASE.kernels[0], link_with="other.o"),)), ["link_with", "mm.o", "other.o"]),
    ],
)  # fmt: skip
def test_designs_that_are_refused(simulator, made, words):
    with pytest.raises(Refused) as caught:
        simulator.path(made, mm_i8(16))
    check(str(caught.value), *words)


def test_loops_nested_too_deep_are_refused(simulator):
    body = (Acquire(0, "C_0_0", "produce", 1),)
    for number in range(12):
        body = (Loop(number, Const(0), Const(1), Const(1), body),)
    with pytest.raises(Refused, match=r"core\(0,2\): loops are nested deeper than 8"):
        simulator.path(with_core(BASE, CORE, body=body), mm_i8(16))


def test_a_kernel_that_no_object_defines(simulator):
    made = replace(BASE, kernels=(*BASE.kernels, Kernel("nowhere", (), "mm.o")))
    made = at_core(lambda s: [Call("nowhere", ()), s] if isinstance(s, Loop) and s.number == 1 else [s], base=made)
    with pytest.raises(ElfkilnError, match=r"link: zig ld\.lld: .*undefined (hidden )?symbol: nowhere"):
        simulator.path(made, mm_i8(16))


def test_names_may_hold_anything_that_mlir_can(simulator):
    """FIFO names come into C as texts: quotes, backslashes and percent signs stay what they are."""
    odd = 'A"\\%s\t0'
    made = replace(
        BASE,
        fifos=tuple(replace(one, name=odd) if one.name == "A_0" else one for one in BASE.fifos),
        cores=tuple(
            replace(
                core,
                body=edited(core.body, lambda s: [replace(s, fifo=odd) if getattr(s, "fifo", "") == "A_0" else s]),
            )
            for core in BASE.cores
        ),
    )
    for number in (0, 6):
        made = with_task(made, number, fifo=odd)
    short = with_task(made, 6, sizes=(1, 16, 16, 8), length=2048)
    check(failure(simulator, short), 'A"\\%s', "no task is queued to fill it")


def test_tiles_are_spelled_by_kind_column_and_row():
    assert [str(tile) for tile in (SHIM, MEM, CORE, Tile(3, 5))] == ["shim(0,0)", "mem(0,1)", "core(0,2)", "core(3,5)"]

"""What the array may do earlier or later than the simulator does: no lucky order passes, no right one fails."""

from __future__ import annotations

import random
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
    Fifo,
    FreeTask,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Tile,
    UseLock,
)
from elfkiln.errors import SimulationFailed
from sealed_designs import (
    all_counts_then_all_locks,
    data_before_counts,
    first_lock_then_counts,
    one_count_late,
    sealed,
)
from sim_designs import CORE, NEXT, SHIM, copying, design, fifo, forever, scalar_design, task
from simulating import coordinates, mm_pb16i, packed_ternary, plain, product
from simulating import relay as relay_kernel

NOTHING = np.zeros(16, np.int8)
LOAD = LoadPdi("main")
COUNTS = Buffer("counts", CORE, MemRef((4,), "i32"))
GO = Lock("go", CORE, 0)

GRANT = (RtpWrite("counts", 0, 3), SetLock("go", 1))
WAIT = UseLock("go", "acquire_ge", Const(1))
READ = Load(0, "counts", Const(0))
MAKE = (
    Acquire(0, "out", "produce", 1),
    Call("fill_i32", (ObjectRef(0, 0), Loaded(0))),
    Release("out", "produce", 1),
)


def filling(*body, steps, tasks=1, elements=16, locks=(GO,)):
    """One core that fills objects of 16 elements with the number it reads from counts."""
    return scalar_design(
        "fill_i32", (MemRef((16,), "i32"), "i32"), forever(*body), buffers=(COUNTS,), locks=locks, steps=steps,
        tasks=tasks, elements=elements,
    )  # fmt: skip


def result_of(simulator, made):
    return simulator.elf(made, plain()).run(NOTHING, NOTHING).reshape(-1, 16)[:, 0].tolist()


def failure_of(simulator, made, kernel=None):
    elf = simulator.elf(made, kernel or plain())
    sequence = elf.info.entries[0]
    arrays = [np.ones(one.elements, np.int8) for one in sequence.arguments[:2]]
    with pytest.raises(SimulationFailed) as caught:
        elf.run(*arrays)
    return str(caught.value)


# The sealed program: two columns whose cores read their counts behind a lock.

KERNEL = mm_pb16i(16, "mm_pb16i_16x64x128.o")


def call(elf, K, N, seed):
    rng = np.random.default_rng(seed)
    a, b = coordinates(16, K, seed), rng.integers(-1, 2, (K, N), dtype=np.int8)
    found = elf.run(a, packed_ternary(b), sequence=f"seq_K{K}_N{N}")
    assert np.array_equal(found, product(a, b))


def test_locks_opened_before_the_counts_are_written(simulator):
    """A core that waits would go on with the counts of the run before."""
    elf = simulator.elf(sealed(first_lock_then_counts), KERNEL)
    elf.call("init")
    with pytest.raises(SimulationFailed) as caught:
        call(elf, 128, 256, 1)
    line = str(caught.value)
    assert "core(0,2) step 2 (load from counts_0), turn 0: element 0 of counts_0 at core(0,2) may be written" in line
    assert "main_seq_K128_N256 step 2 (write element 0 of counts_0 at core(0,2))" in line
    assert "go_0 at core(0,2) let the core on, set in main_seq_K128_N256 step 0 (set go_0 at core(0,2))" in line


def test_one_count_of_one_column_is_written_late(simulator):
    elf = simulator.elf(sealed(one_count_late), KERNEL)
    elf.call("init")
    with pytest.raises(SimulationFailed, match=r"core\(1,2\) step 3 .*element 1 of counts_1 at core\(1,2\) may be"):
        call(elf, 128, 256, 1)


@pytest.mark.parametrize("reorder", [list, data_before_counts, all_counts_then_all_locks])
def test_right_orders_stay_right_call_after_call(simulator, reorder):
    elf = simulator.elf(sealed(reorder), KERNEL)
    elf.call("init")
    dice = random.Random(7)
    for seed in range(20):
        call(elf, *dice.choice([(128, 256), (256, 512)]), seed)
        if seed == 11:
            elf.call("init")


# Parameters.


def test_a_parameter_written_after_the_lock_was_set(simulator):
    steps = (LOAD, SetLock("go", 1), RtpWrite("counts", 0, 3), StartTask(0), AwaitTask(0))
    line = failure_of(simulator, filling(WAIT, READ, *MAKE, steps=steps))
    assert line.startswith("core(0,2) step 2 (load from counts), turn 0: element 0 of counts at core(0,2) may be")
    assert "main_seq step 2 (write element 0 of counts at core(0,2)); go at core(0,2) let" in line
    assert "set in main_seq step 1 (set go at core(0,2))" in line


def test_a_table_that_a_kernel_gets_is_written_after_the_lock_was_set(simulator):
    writes = tuple(RtpWrite("table", i, i) for i in range(16))
    body = forever(
        WAIT, Acquire(0, "out", "produce", 1), Call("add_table", (BufferRef("table"), ObjectRef(0, 0))),
        Release("out", "produce", 1),
    )  # fmt: skip

    def made(*steps):
        return scalar_design(
            "add_table", (MemRef((16,), "i32"), MemRef((16,), "i32")), body, locks=(GO,),
            buffers=(Buffer("table", CORE, MemRef((16,), "i32")),),
            steps=(LOAD, *steps, StartTask(0), AwaitTask(0)),
        )  # fmt: skip

    line = failure_of(simulator, made(*writes[:15], SetLock("go", 1), writes[15]))
    assert (
        "(call add_table), turn 0: element 15 of table at core(0,2) may be written later, in main_seq step 17" in line
    )
    assert simulator.elf(made(*writes, SetLock("go", 1)), plain()).run(NOTHING, NOTHING)[15] == 16


def test_a_lock_that_load_pdi_leaves_open(simulator):
    steps = (LOAD, RtpWrite("counts", 0, 3), StartTask(0), AwaitTask(0))
    made = filling(WAIT, READ, *MAKE, steps=steps, locks=(Lock("go", CORE, 1),))
    line = failure_of(simulator, made)
    assert "element 0 of counts at core(0,2) may be written later, in main_seq step 1" in line
    assert line.endswith("go at core(0,2) let the core on")


def test_a_parameter_without_a_lock(simulator):
    """The start of the task does not hold the core up: it reads as soon as the array is loaded."""
    steps = (LOAD, RtpWrite("counts", 0, 3), StartTask(0), AwaitTask(0))
    line = failure_of(simulator, filling(READ, *MAKE, steps=steps))
    assert "(load from counts), turn 0: element 0 of counts" in line
    assert line.endswith("no lock holds the core up")


def behind_data(*steps):
    """The core reads its parameter after it took an object: what the sequence wrote before that fill is there."""
    body = (
        Acquire(1, "in", "consume", 1),
        Load(0, "counts", Const(0)),
        *MAKE,
        Release("in", "consume", 1),
    )
    made = filling(*body, steps=(LOAD, *steps, StartTask(1), AwaitTask(1)))
    drain = replace(made.sequences[0].tasks[0], number=1)
    fill = replace(drain, number=0, fifo="in", argument=0, issue_token=False)
    sequence = replace(made.sequences[0], tasks=(fill, drain))
    return replace(
        made, fifos=(Fifo("in", SHIM, (CORE,), (2, 2), MemRef((16,), "i8")), *made.fifos), sequences=(sequence,)
    )


def test_a_parameter_that_data_orders(simulator):
    assert result_of(simulator, behind_data(RtpWrite("counts", 0, 5), StartTask(0))) == [5]
    line = failure_of(simulator, behind_data(StartTask(0), RtpWrite("counts", 0, 5)))
    assert "element 0 of counts at core(0,2) may be written later, in main_seq step 2" in line


TWICE = (
    LOAD, RtpWrite("counts", 0, 3), SetLock("go", 1), StartTask(0), AwaitTask(0),
    RtpWrite("counts", 0, 4), SetLock("go", 1), StartTask(1), AwaitTask(1),
)  # fmt: skip


def test_two_turns_in_one_sequence(simulator):
    made = filling(WAIT, READ, *MAKE, steps=TWICE, tasks=2, elements=32)
    assert result_of(simulator, made) == [3, 4]


def test_a_parameter_that_is_read_after_what_the_sequence_awaits(simulator):
    """The core reads once more when its object is gone: the second write may meet that read."""
    late = Load(1, "counts", Const(0))
    line = failure_of(simulator, filling(WAIT, READ, *MAKE, late, steps=TWICE, tasks=2, elements=32))
    assert line.startswith("main_seq step 5 (write element 0 of counts at core(0,2)): nothing that was awaited says")
    assert "the core is past core(0,2) step 6 (load from counts); go at core(0,2) let the core on, set in" in line


def test_the_same_from_call_to_call(simulator):
    once = (RtpWrite("counts", 0, 3), SetLock("go", 1), StartTask(0), AwaitTask(0))
    for body, fails in (((WAIT, READ, *MAKE), False), ((WAIT, READ, *MAKE, Load(1, "counts", Const(0))), True)):
        made = filling(*body, steps=once)
        init = Sequence("init", made.sequences[0].arguments, (), (LOAD,))
        elf = simulator.elf(replace(made, sequences=(init, *made.sequences)), plain())
        elf.call("init")
        assert int(elf.run(NOTHING, NOTHING, sequence="seq")[0]) == 3
        if fails:
            with pytest.raises(
                SimulationFailed, match=r"main_seq step 0 \(write element 0 .*step 6 \(load from counts"
            ):
                elf.run(NOTHING, NOTHING, sequence="seq")
        else:
            assert int(elf.run(NOTHING, NOTHING, sequence="seq")[0]) == 3


def test_an_element_that_no_core_reads_is_nobodys_race(simulator):
    steps = (LOAD, RtpWrite("counts", 0, 3), SetLock("go", 1), RtpWrite("counts", 1, 9), StartTask(0), AwaitTask(0))
    assert result_of(simulator, filling(WAIT, READ, *MAKE, steps=steps)) == [3]


# Locks.


def two_columns(*steps):
    """Core 0 waits for its lock and makes; core 1 copies in to out_1 by itself, which takes the simulator long."""
    made = filling(WAIT, READ, *MAKE, steps=(LOAD, *steps))
    other = Tile(1, 2)
    size = MemRef((16,), "i8")
    fifos = (
        *made.fifos,
        Fifo("in_1", Tile(1, 0), (other,), (2, 2), size),
        Fifo("out_1", other, (Tile(1, 0),), (2, 2), MemRef((16,), "i32")),
    )
    body = forever(
        Acquire(0, "in_1", "consume", 1), Acquire(1, "out_1", "produce", 1),
        Call("fill_i32", (ObjectRef(1, 0), Const(8))), Release("out_1", "produce", 1), Release("in_1", "consume", 1),
    )  # fmt: skip
    drain = made.sequences[0].tasks[0]
    tasks = (
        drain,
        replace(drain, number=1, fifo="in_1", argument=0, length=16, issue_token=False),
        replace(drain, number=2, fifo="out_1", offset=16),
    )
    sequence = replace(made.sequences[0], tasks=tasks, arguments=(size, size, MemRef((32,), "i32")))
    core = Core(other, 1024, body)
    return replace(made, fifos=fifos, cores=(*made.cores, core), sequences=(sequence,))


OTHER = (StartTask(1), StartTask(2), AwaitTask(2), FreeTask(1))


def test_an_await_of_another_column_says_nothing_of_this_one(simulator):
    right = two_columns(*GRANT, StartTask(0), *OTHER, AwaitTask(0))
    assert result_of(simulator, right) == [3, 8]
    line = failure_of(simulator, two_columns(*GRANT, StartTask(0), *OTHER, RtpWrite("counts", 0, 4), AwaitTask(0)))
    assert "write element 0 of counts at core(0,2)): nothing that was awaited says that the core is past" in line
    line = failure_of(simulator, two_columns(*GRANT, StartTask(0), *OTHER, SetLock("go", 1), AwaitTask(0)))
    assert "main_seq step 8 (set go at core(0,2)): nothing that was awaited says that the core is past" in line
    assert "core(0,2) step 1 (acquire go)" in line


def test_a_lock_that_is_closed_before_a_core_took_it(simulator):
    steps = (LOAD, RtpWrite("counts", 0, 3), SetLock("go", 1), SetLock("go", 0), StartTask(0), AwaitTask(0))
    line = failure_of(simulator, filling(WAIT, READ, *MAKE, steps=steps))
    assert line == "main_seq step 3 (set go at core(0,2)): it still holds 1, which no core has taken"


def test_a_lock_that_a_core_gives_may_be_cleared_once_that_is_known(simulator):
    give = UseLock("done", "release", Const(1))

    clear, open_ = SetLock("done", 0), SetLock("later", 1)
    later = UseLock("later", "acquire_ge", Const(1))

    def made(*body, end=()):
        steps = (LOAD, *GRANT, StartTask(0), AwaitTask(0), *(end or (clear,)))
        return filling(*body, steps=steps, locks=(GO, Lock("done", CORE, 0), Lock("later", CORE, 0)))

    assert result_of(simulator, made(WAIT, READ, give, *MAKE)) == [3]
    line = failure_of(simulator, made(WAIT, READ, *MAKE, give))
    assert line.startswith(
        "main_seq step 5 (set done at core(0,2)): nothing that was awaited says that the core is past"
    )
    assert "core(0,2) step 6 (release done)" in line
    assert result_of(simulator, made(WAIT, READ, *MAKE, later, give, end=(clear, open_))) == [3]
    line = failure_of(simulator, made(WAIT, READ, *MAKE, later, give, end=(open_, clear)))
    assert line == (
        "core(0,2) step 7 (release done), turn 0: done at core(0,2) may be set later, in main_seq step 6 "
        "(set done at core(0,2))"
    )


# Tasks and load_pdi.


def sunk(awaited, *more):
    """in goes to a core that keeps nothing and makes nothing; out comes from another one."""
    fifos = [fifo("in", SHIM, CORE), fifo("there", SHIM, NEXT), fifo("out", NEXT, SHIM)]
    take = (Acquire(0, "in", "consume", 1), Release("in", "consume", 1))
    cores = [Core(CORE, 1024, forever(*take)), Core(NEXT, 1024, forever(*copying("there", "out")))]
    tasks = [
        task(0, "in", 0, 2048, token=awaited), task(1, "there", 1, 4096), task(2, "out", 2, 4096, token=True)
    ]  # fmt: skip
    steps = [LOAD, StartTask(0), StartTask(1), StartTask(2), AwaitTask(2), FreeTask(1)]
    return design(fifos, cores, tasks, steps=(*steps, *([AwaitTask(0)] if awaited else []), *more))


def test_a_fill_that_nothing_awaited_depends_on(simulator):
    line = failure_of(simulator, sunk(awaited=False), relay_kernel())
    assert line.startswith("main_seq ends: task 0, which fills in, may still run: nothing that was awaited depends on")
    source = np.arange(4096).astype(np.int8)
    assert np.array_equal(simulator.elf(sunk(awaited=True), relay_kernel()).run(source, source.copy()), source)


def test_a_free_that_only_luck_makes_safe(simulator):
    """The fill is done here when the drain is, and nothing says so on the array."""
    line = failure_of(simulator, sunk(False, FreeTask(0)), relay_kernel())
    assert line.startswith("main_seq step 6 (free task 0, which fills in): it may still run: nothing the sequence")
    steps = (*GRANT, StartTask(1), StartTask(2), StartTask(0), AwaitTask(0), AwaitTask(2), FreeTask(1))
    assert result_of(simulator, two_columns(*steps)) == [3, 8]


def test_a_task_configured_before_load_pdi(simulator):
    made = filling(WAIT, READ, *MAKE, steps=(LOAD, *GRANT, StartTask(0), AwaitTask(0)))
    sequence = made.sequences[0]

    def configured(at):
        return replace(made, sequences=(replace(sequence, tasks=(replace(sequence.tasks[0], configured_at=at),)),))

    line = failure_of(simulator, configured(0))
    assert line == (
        "main_seq step 3 (start task 0, which drains out): it was configured before load_pdi in step 0, "
        "which resets its descriptor"
    )
    assert result_of(simulator, configured(1)) == [3]


def test_load_pdi_in_the_middle(simulator):
    """It begins anew; what the array has in it then would be lost."""
    again = (LOAD, RtpWrite("counts", 0, 4), SetLock("go", 1), StartTask(1), AwaitTask(1))
    made = filling(WAIT, READ, *MAKE, steps=(LOAD, *GRANT, StartTask(0), AwaitTask(0), *again), tasks=2, elements=32)
    assert result_of(simulator, made) == [3, 4]
    twice = (
        *MAKE,
        Acquire(1, "out", "produce", 1),
        Call("fill_i32", (ObjectRef(1, 0), Loaded(0))),
        Release("out", "produce", 1),
    )
    steps = (LOAD, *GRANT, StartTask(0), AwaitTask(0), *again)
    line = failure_of(simulator, filling(WAIT, READ, *twice, steps=steps, tasks=2, elements=32))
    assert line.startswith("main_seq ends: out at core(0,2) still has 1 object")

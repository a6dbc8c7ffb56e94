"""The discipline of run-time parameters: guarded by a lock, all written before it is set, none while it is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    BufferRef,
    Call,
    Const,
    Fifo,
    FreeTask,
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
    SetLock,
    StartTask,
    Store,
    Tile,
    UseLock,
)
from elfkiln.design.reader import read_design
from elfkiln.lint import lint
from sealed_designs import (
    all_counts_then_all_locks,
    data_before_counts,
    first_lock_then_counts,
    one_count_late,
    sealed,
)
from simulating import example
from small_designs import (
    CORE,
    MEM,
    beside_short_runs,
    endless,
    fan_in,
    gated,
    relay,
    with_core,
    with_fifo,
    with_sequence,
    with_steps,
    with_task,
)

RULES = {"lock-set", "parameter-guard", "parameter-late", "parameter-unwritten"}
START = (StartTask(0), StartTask(1))
END = (AwaitTask(1), FreeTask(0))
WRITE, SET, LOAD = RtpWrite("count", 0, 2), SetLock("go", 1), LoadPdi("main")


def found(design):
    return [(f.rule, f.where, f.value) for f in lint(design) if f.rule in RULES]


# The sealed program.


@pytest.mark.parametrize("generation", ["2026-04", "2026-08"])
def test_the_example_keeps_the_discipline(generation):
    assert beside_short_runs(lint(read_design(example("sequences_rtp", generation)))) == ()


@pytest.mark.parametrize("reorder", [data_before_counts, all_counts_then_all_locks])
def test_other_right_orders(reorder):
    assert found(sealed(reorder)) == []


def test_locks_before_counts():
    lines = [f for f in lint(sealed(first_lock_then_counts)) if f.rule == "parameter-late"]
    assert [(f.where, f.value) for f in lines] == [
        ("seq_K128_N256 core(0,2)", "it is open since step 0"),
        ("seq_K128_N256 core(1,2)", "it is open since step 1"),
        ("seq_K256_N512 core(0,2)", "it is open since step 0"),
        ("seq_K256_N512 core(1,2)", "it is open since step 1"),
    ]
    assert "write of @counts_0[0] in step 2: expected before lock @go_0 is set" in lines[0].message
    assert lines[0].severity == "error"


def test_one_count_of_one_column_late():
    lines = [f for f in lint(sealed(one_count_late)) if f.rule in RULES]
    assert {(f.rule, f.where) for f in lines} == {
        ("parameter-late", "seq_K128_N256 core(1,2)"), ("parameter-unwritten", "seq_K128_N256 core(1,2)"),
        ("parameter-late", "seq_K256_N512 core(1,2)"), ("parameter-unwritten", "seq_K256_N512 core(1,2)"),
    }  # fmt: skip
    assert "@counts_1[1]" in lines[0].message


def in_one_sequence(keep):
    """The sealed example whose last sequence keeps only some of its steps."""
    design = read_design(example("sequences_rtp"))
    last = design.sequences[-1]
    kept = replace(last, steps=tuple(step for step in last.steps if keep(step)))
    return replace(design, sequences=(*design.sequences[:-1], kept))


def test_a_sequence_that_relies_on_stale_counts():
    assert found(in_one_sequence(lambda step: not isinstance(step, RtpWrite))) == [
        ("parameter-unwritten", "seq_K256_N512 core(0,2)", "not @counts_0[0], @counts_0[1]"),
        ("parameter-unwritten", "seq_K256_N512 core(1,2)", "not @counts_1[0], @counts_1[1]"),
    ]


def test_counts_written_for_one_column_only():
    assert found(in_one_sequence(lambda step: not (isinstance(step, RtpWrite) and step.buffer == "counts_1"))) == [
        ("parameter-unwritten", "seq_K256_N512 core(1,2)", "not @counts_1[0], @counts_1[1]")
    ]


def test_a_lock_of_one_column_never_set():
    assert found(in_one_sequence(lambda step: step != SetLock("go_1", 1))) == [
        ("lock-set", "seq_K256_N512 core(1,2)", 0)
    ]


def test_cores_without_use_lock():
    design = read_design(example("sequences_rtp"))
    cores = tuple(
        replace(
            core,
            body=tuple(
                replace(loop, body=tuple(s for s in loop.body if not isinstance(s, UseLock))) for loop in core.body
            ),
        )
        for core in design.cores
    )
    assert found(replace(design, cores=cores)) == [
        ("parameter-guard", f"core({c},2) buffer @counts_{c}", "none") for c in (0, 0, 1, 1)
    ]


# Locks.


def test_a_set_after_what_the_core_makes_was_awaited():
    assert found(with_steps(gated(1), LOAD, WRITE, *START, AwaitTask(1), SET, FreeTask(0))) == [
        ("lock-set", "seq core(0,2)", 0)
    ]


def test_two_turns_in_one_sequence():
    """The second counts are written when the first turn's data has come."""
    design = with_task(
        with_task(gated(1), 0, length=1024, sizes=(1, 1, 1, 1024)), 1, length=1024, sizes=(1, 1, 1, 1024)
    )
    fill, drain = design.sequences[0].tasks
    tasks = (fill, drain, replace(fill, number=2, offset=1024), replace(drain, number=3, offset=1024))
    design = with_sequence(design, tasks=tasks)
    one, again = RtpWrite("count", 0, 1), (StartTask(2), StartTask(3), AwaitTask(3), FreeTask(2))
    assert found(with_steps(design, LOAD, one, SET, *START, *END, one, SET, *again)) == []
    assert found(with_steps(design, LOAD, one, SET, *START, *END, SET, *again)) == []
    assert found(with_steps(design, LOAD, one, SET, *START, one, *END, SET, *again)) == [
        ("parameter-late", "seq core(0,2)", "it is open since step 2")
    ]
    assert found(with_steps(design, LOAD, one, SET, *START, SET, *END, *again)) == [("lock-set", "seq core(0,2)", 2)]


def test_a_write_that_no_set_follows():
    assert found(with_steps(gated(1), LOAD, WRITE, SET, *START, *END, WRITE)) == [
        ("parameter-late", "seq core(0,2)", "after that")
    ]


def test_a_lock_that_load_pdi_leaves_open():
    design = replace(gated(1), locks=(Lock("go", CORE, 1),))
    assert found(with_steps(design, LOAD, WRITE, *START, *END)) == [
        ("parameter-late", "seq core(0,2)", "it is open since step 0")
    ]


def test_an_earlier_sequence_does_not_open_the_lock_of_the_next():
    design = gated(1)
    sequence = design.sequences[0]
    init = replace(sequence, name="init", tasks=(), steps=(LOAD, SET))
    run = replace(sequence, steps=sequence.steps[1:])
    assert found(replace(design, sequences=(init, run))) == [("parameter-unwritten", "init core(0,2)", "not @count[0]")]


# Guards.


GO = Lock("go", CORE, 0)


def guarded(*body, locks=(GO,), prologue=()):
    return replace(with_core(gated(1), CORE, body=(*prologue, *endless(*body))), locks=locks)


TURN = gated(1).cores[0].body[0].body
WAIT, READ, MOVE = TURN


def test_a_guard_before_the_endless_loop_holds_for_no_later_turn():
    assert found(guarded(READ, MOVE, prologue=(WAIT,)))[0][:2] == ("parameter-guard", "core(0,2) buffer @count")


def test_a_guard_in_a_loop_that_may_not_turn():
    for bound, holds in ((Const(0), False), (Const(1), True)):
        loop = Loop(5, Const(0), bound, Const(1), (WAIT,))
        assert bool(found(guarded(loop, READ, MOVE))) != holds


@pytest.mark.parametrize(
    "wait",
    [UseLock("go", "release", Const(1)), UseLock("go", "acquire", Const(0)), UseLock("far", "acquire", Const(1))],
)
def test_what_is_no_guard(wait):
    design = guarded(wait, READ, MOVE, locks=(Lock("go", CORE, 0), Lock("far", Tile(1, 2), 0)))
    assert ("parameter-guard", "core(0,2) buffer @count", "none") in found(design)


def test_a_lock_between_cores_is_no_guard_and_takes_none_away():
    give = UseLock("mine", "release", Const(1))
    take = UseLock("mine", "acquire_ge", Const(1))
    locks = (Lock("go", CORE, 0), Lock("mine", CORE, 0))
    assert found(guarded(WAIT, give, take, READ, MOVE, locks=locks)) == []
    assert found(guarded(give, take, READ, MOVE, locks=locks))[0][0] == "parameter-guard"


# Behind data: an object that the core acquires first holds it up until its fill is started.

FILLED = (Acquire(0, "in", "consume", 1), READ, Acquire(1, "out", "produce", 1), Call("relay", (ObjectRef(0, 0),
          ObjectRef(1, 0))), Release("in", "consume", 1), Release("out", "produce", 1))  # fmt: skip
FILL, DRAIN, DRAINED = StartTask(0), StartTask(1), AwaitTask(1)


def behind_data(*steps, body=FILLED):
    """A relay of 4 objects that reads a parameter once it has one of them."""
    design = relay()
    design = replace(with_core(design, CORE, body=endless(*body)), buffers=gated(1).buffers)
    return with_steps(design, LOAD, *steps)


@pytest.mark.parametrize(
    "steps",
    [(WRITE, FILL, DRAIN, DRAINED), (WRITE, DRAIN, FILL, DRAINED), (DRAIN, WRITE, FILL, DRAINED),
     (WRITE, WRITE, FILL, DRAIN, DRAINED), (WRITE, FILL, DRAIN, DRAINED, WRITE)],
)  # fmt: skip
def test_data_filled_after_the_write_is_a_guard(steps):
    assert lint(behind_data(*steps, FreeTask(0))) == ()


def test_a_write_after_the_data_it_should_come_before():
    lines = [f for f in lint(behind_data(FILL, WRITE, DRAIN, DRAINED, FreeTask(0))) if f.rule in RULES]
    assert [(f.rule, f.where, f.limit, f.value) for f in lines] == [
        ("parameter-late", "seq core(0,2)", "before the data that the core waits for (@in) is started",
         "it is since step 1"),
    ]  # fmt: skip
    assert found(behind_data(FILL, DRAIN, DRAINED, FreeTask(0))) == [
        ("parameter-unwritten", "seq core(0,2)", "not @count[0]")
    ]
    between = behind_data(WRITE, FILL, DRAIN, WRITE, DRAINED, FreeTask(0))
    assert [rule for rule, _, _ in found(between)] == ["parameter-late"]


def test_two_turns_behind_data():
    """Each half is filled after its own write; the second write waits for what the first half made."""
    halves = [
        replace(task, number=number, offset=2048 * (number // 2), length=2048, sizes=(1, 1, 1, 2048))
        for number, task in enumerate(behind_data().sequences[0].tasks * 2)
    ]
    halves = [replace(task, argument=task.number % 2, issue_token=bool(task.number % 2)) for task in halves]

    def made(*steps):
        return found(
            with_steps(with_sequence(behind_data(), tasks=tuple(halves)), LOAD, *steps, *map(FreeTask, (0, 2)))
        )

    first, second = (StartTask(0), StartTask(1)), (StartTask(2), StartTask(3))
    again = RtpWrite("count", 0, 3)
    assert made(WRITE, *first, AwaitTask(1), again, *second, AwaitTask(3)) == []
    # The fill of the second half waits for the write, so its drain may stand before.
    assert made(WRITE, *first, StartTask(3), AwaitTask(1), again, StartTask(2), AwaitTask(3)) == []
    assert [line[0] for line in made(WRITE, *first, again, AwaitTask(1), *second, AwaitTask(3))] == ["parameter-late"]
    early = made(WRITE, *first, StartTask(2), AwaitTask(1), again, StartTask(3), AwaitTask(3))
    assert [line[0] for line in early] == ["parameter-late"]


def test_what_data_is_no_guard():
    """Room to produce into, an object taken after the read, one kept from turn to turn, one that was there at first."""
    steps = (WRITE, FILL, DRAIN, DRAINED, FreeTask(0))
    take, read, make, call, free, give = FILLED
    for body in ((make, read, take, call, free, give), (read, take, make, call, free, give)):
        assert ("parameter-guard", "core(0,2) buffer @count", "none") in found(behind_data(*steps, body=body))
    kept = (replace(take, count=2), read, make, call, free, give)
    assert ("parameter-guard", "core(0,2) buffer @count", "none") in found(behind_data(*steps, body=kept))
    initial = with_fifo(behind_data(*steps), "in", initial=(bytes(1024),) * 2)
    assert ("parameter-guard", "core(0,2) buffer @count", "none") in found(initial)


def joined_in():
    """Two fills, joined by a mem tile into what the core takes; one object of each, and one out."""
    design = fan_in(2)
    half, whole = MemRef((1024,), "i8"), MemRef((2048,), "i8")
    ins = [replace(fifo, consumers=(MEM,), object_type=half) for fifo in design.fifos[:2]]
    fifos = (*ins, Fifo("whole", MEM, (CORE,), (1, 1), whole), design.fifos[2])
    return replace(design, fifos=fifos, links=(Link(("in_0", "in_1"), ("whole",), (0, 1024)),))


def test_data_through_a_link_is_a_guard():
    """Of a join's output every piece is filled first: the last fill to start is what holds the core up."""
    design = joined_in()
    body = (Acquire(0, "whole", "consume", 1), READ, Acquire(1, "out", "produce", 1), Release("whole", "consume", 1),
            Release("out", "produce", 1))  # fmt: skip
    design = replace(with_core(design, CORE, body=endless(*body)), buffers=gated(1).buffers)
    one, other, drain = (StartTask(number) for number in range(3))
    end = (drain, AwaitTask(2), FreeTask(0), FreeTask(1))
    assert lint(with_steps(design, LOAD, WRITE, one, other, *end)) == ()
    assert lint(with_steps(design, LOAD, one, WRITE, other, *end)) == ()
    late = found(with_steps(design, LOAD, one, other, WRITE, *end))
    assert [rule for rule, _, _ in late] == ["parameter-late"]


# Elements smaller than the word that a write is; buffers that cores or the module fill.


def small_elements(element, *steps):
    design = guarded(WAIT, READ, Load(7, "count", Const(1)), MOVE)
    return with_steps(
        replace(design, buffers=(Buffer("count", CORE, MemRef((8,), element)),)), LOAD, *steps, SET, *START, *END
    )


def test_a_write_is_a_word_whatever_the_elements():
    """Word 0 is elements 0 to 3 of bytes, 0 and 1 of shorts; the count of 2 objects is the lowest byte."""
    for element in ("i8", "ui8", "i16", "i32"):
        missing = [("parameter-unwritten", "seq core(0,2)", "not @count[1]")] if element == "i32" else []
        assert found(small_elements(element, RtpWrite("count", 0, 2))) == missing
    assert lint(small_elements("i8", RtpWrite("count", 0, 2))) == ()
    # A count of 2 in byte 1 leaves byte 0 at 0: nothing of what is filled is taken.
    assert "flow-total" in {f.rule for f in lint(small_elements("i8", RtpWrite("count", 0, 0x0200)))}
    words = [f for f in lint(small_elements("i8", RtpWrite("count", 2, 0))) if f.rule == "symbol"]
    assert [(f.limit, f.value) for f in words] == [("word 0 to 1", "@count[2]")]


def test_what_a_core_stores_or_the_module_fills_is_no_parameter():
    store = Store("count", Const(0), Const(2))
    assert found(with_steps(guarded(store, READ, MOVE), LOAD, *START, *END)) == []
    initial = replace(guarded(READ, MOVE), buffers=(replace(gated(1).buffers[0], initial=(2).to_bytes(4, "little")),))
    assert lint(with_steps(initial, LOAD, *START, *END)) == ()
    # What it starts with is the count: 2 objects a turn do not divide the 3 that are drained.
    short = with_task(with_steps(initial, LOAD, *START, *END), 1, length=3072, sizes=(1, 1, 1, 3072))
    short = with_task(short, 0, length=3072, sizes=(1, 1, 1, 3072))
    assert "flow-total" in {f.rule for f in lint(short)}


# Which elements.


def reading(index, *more, size=4):
    loads = (Loop(6, Const(1), Const(4), Const(2), (Load(7, "count", index),)),)
    design = guarded(WAIT, READ, *loads, *more, MOVE)
    return replace(design, buffers=(Buffer("count", CORE, MemRef((size,), "i32")),))


def test_elements_that_a_loop_reads_are_all_written():
    design = reading(LoopIndex(6))
    assert found(design) == [("parameter-unwritten", "seq core(0,2)", "not @count[1], @count[3]")]
    rest = RtpWrite("count", 1, 0), RtpWrite("count", 3, 0)
    assert found(with_steps(design, LOAD, WRITE, *rest, SET, *START, *END)) == []


def test_an_index_that_is_not_known_stands_for_all_that_are_written():
    design = reading(Loaded(0))
    two = with_steps(design, LOAD, WRITE, RtpWrite("count", 2, 5), SET, *START, *END)
    assert found(two) == []
    late = with_steps(design, LOAD, WRITE, SET, RtpWrite("count", 2, 5), *START, *END)
    assert {rule for rule, _, _ in found(late)} == {"parameter-late", "parameter-unwritten"}


def test_a_table_for_a_kernel_may_stay_but_not_come_late():
    table = Buffer("table", CORE, MemRef((4,), "i32"))
    call = Call("look", (BufferRef("table"),))
    design = guarded(WAIT, READ, call, MOVE)
    design = replace(
        design,
        buffers=(*design.buffers, table),
        kernels=(*design.kernels, Kernel("look", (table.type,), "relay.o")),
    )
    fill = RtpWrite("table", 0, 7)
    assert found(with_steps(design, LOAD, fill, WRITE, SET, *START, *END)) == []
    assert found(with_steps(design, LOAD, WRITE, SET, *START, *END)) == []
    assert found(with_steps(design, LOAD, WRITE, SET, fill, *START, *END))[0][0] == "parameter-late"
    before = replace(design, cores=(replace(design.cores[0], body=endless(call, *TURN)),))
    lines = found(with_steps(before, LOAD, fill, WRITE, SET, *START, *END))
    assert lines == [("parameter-guard", "core(0,2) buffer @table", "none")]


def test_a_buffer_that_kernels_fill_is_no_parameter():
    kernel = Kernel("think", (MemRef((1,), "i32"),), "relay.o")
    design = guarded(Call("think", (BufferRef("count"),)), READ, MOVE)
    design = replace(design, kernels=(*design.kernels, kernel))
    assert found(with_steps(design, LOAD, *START, *END)) == []


def test_a_task_configured_before_load_pdi():
    design = with_task(gated(1), 1, configured_at=0)
    lines = [f for f in lint(design) if f.rule == "load-pdi"]
    assert [(f.where, f.value) for f in lines] == [("sequence seq", "before it, which resets its descriptor")]
    assert "configuration of task 1" in lines[0].message
    assert [f for f in lint(with_task(gated(1), 1, configured_at=1)) if f.rule == "load-pdi"] == []

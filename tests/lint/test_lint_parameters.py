"""The discipline of run-time parameters: guarded by a lock, all written before it is set, none while it is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elfkiln.design.model import (
    AwaitTask,
    Buffer,
    BufferRef,
    Call,
    Const,
    FreeTask,
    Kernel,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    Loop,
    LoopIndex,
    MemRef,
    RtpWrite,
    SetLock,
    StartTask,
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
from small_designs import CORE, beside_short_runs, endless, gated, with_core, with_sequence, with_steps, with_task

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

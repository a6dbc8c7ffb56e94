"""The order of awaits, repeated FIFOs, weights taken once, and where buffers begin."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elfkiln.design.fifo_lowering import place
from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Const,
    Fifo,
    FreeTask,
    Link,
    LoadPdi,
    Loop,
    LoopIndex,
    MemRef,
    Release,
    RtpWrite,
    SetLock,
    StartTask,
    Tile,
)
from elfkiln.design.reader import read_design
from elfkiln.errors import SimulationFailed
from elfkiln.lint import budgets, lint
from elfkiln.lint import network as network_module
from elfkiln.lint.values import Values
from gemm_designs import Shape, panel_b8, panel_rm
from simulating import mm_i8
from simulating import relay as relay_kernel
from small_designs import (
    CORE,
    MEM,
    SHIM,
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

IRON = Path(__file__).resolve().parents[1] / "examples" / "iron"


def rules(design) -> list[str]:
    return [finding.rule for finding in lint(design)]


def drains_first(design):
    """The same design with its drains started and awaited before anything else is started."""
    sequence = design.sequences[0]
    out = {task.number for task in sequence.tasks if design.fifo(task.fifo).producer.kind != "shim"}
    rest = [step for step in sequence.steps[1:] if step.task not in out]
    numbers = sorted(out)
    first = [*map(StartTask, numbers), *map(AwaitTask, numbers)]
    return with_steps(design, sequence.steps[0], *first, *rest)


@pytest.mark.parametrize("generation", ["2026-04", "2026-08"])
def test_a_gemm_that_awaits_c_before_it_fills_a_and_b_hangs(generation):
    design = read_design((IRON / f"gemm_2x2.{generation}.generic.mlir").read_text())
    assert beside_short_runs(lint(design)) == ()
    findings = [f for f in lint(drains_first(design)) if f.rule == "await-early"]
    (finding,) = findings
    drain, fill = finding.where.rsplit("@", 1)[1], finding.limit.split("@")[1].split()[0]
    assert drain.startswith("C")
    assert fill[0] in "AB"
    assert finding.limit == f"a fill of @{fill} beyond the 0 bytes filled into it so far"
    assert finding.value.endswith(", which starts only after it")


def test_a_drain_awaited_before_its_fill_is_told_even_when_the_fill_has_no_token():
    design = with_steps(relay(), LoadPdi("main"), StartTask(1), AwaitTask(1), StartTask(0), FreeTask(0))
    findings = {f.rule: f for f in lint(design)}
    assert set(findings) == {"await-early", "free-early"}
    assert findings["await-early"].where == "seq task 1 on @out"
    assert "a fill of @in beyond the 0 bytes" in findings["await-early"].message
    assert "found task 0, which starts only after it" in findings["await-early"].message


@pytest.mark.parametrize(("objects", "hangs"), [(3, False), (4, False), (5, True), (64, True)])
def test_a_fill_may_be_awaited_first_if_the_buffers_take_it(objects, hangs):
    # Depth 1 and acquire 1 leave one object at each end: 1 in the core before, 1 after it; depth 2 leaves 2 and 2.
    design = with_task(relay(length=1024 * objects), 0, issue_token=True)
    design = with_steps(design, LoadPdi("main"), StartTask(0), AwaitTask(0), StartTask(1), AwaitTask(1))
    assert rules(design) == (["await-early"] if hangs else [])


def test_fills_of_waves_wait_for_what_was_started_only():
    # Two waves of four objects; the first drain asks for five.
    design = relay(length=4096, shape=(8192,), out_shape=(8192,))
    one, two = design.sequences[0].tasks
    tasks = (one, replace(one, number=1, offset=4096), replace(two, number=2, sizes=(1, 1, 1, 5120), length=5120))
    last = replace(two, number=3, offset=5120, sizes=(1, 1, 1, 3072), length=3072)
    early = (StartTask(0), StartTask(2), AwaitTask(2), StartTask(1), StartTask(3), AwaitTask(3))
    late = (StartTask(0), StartTask(2), StartTask(1), AwaitTask(2), StartTask(3), AwaitTask(3))
    frees = (FreeTask(0), FreeTask(1))
    bad = with_sequence(design, tasks=(*tasks, last), steps=(LoadPdi("main"), *early, *frees))
    good = with_sequence(design, tasks=(*tasks, last), steps=(LoadPdi("main"), *late, *frees))
    assert rules(good) == []
    (finding,) = lint(bad)
    assert (finding.rule, finding.where) == ("await-early", "seq task 2 on @out")
    assert finding.limit == "a fill of @in beyond the 4,096 bytes filled into it so far"
    assert finding.value == "task 1, which starts only after it"


def test_a_core_behind_a_lock_is_let_through_before_its_drain_is_awaited():
    design = gated(1)
    load, write, setting, *rest = design.sequences[0].steps
    assert rules(design) == []
    late = with_steps(design, load, *rest[:3], write, setting, *rest[3:])
    assert "lock-set" in rules(late) or "await-early" in rules(late)


def test_the_large_shapes_are_followed_to_their_end(monkeypatch):
    seen = []

    class Counted(network_module.NotFollowed):
        def __init__(self):
            seen.append(True)
            super().__init__()

    monkeypatch.setattr("elfkiln.lint.network.NotFollowed", Counted)
    for build, shape in ((panel_b8, Shape(128, 17408, 5120, 4, 8)), (panel_rm, Shape(16, 17408, 5120, 1, 8, m=16))):
        assert beside_short_runs(lint(build(shape))) == ()
    assert seen == []


def run_to_its_end(design):
    """Run a design's first sequence; return all that its network has come to, and how many moves that took."""
    sequence = design.sequences[0]
    network = network_module.Network(design, sequence, place(design), Values(design))
    for step in sequence.steps:
        if isinstance(step, StartTask):
            task = sequence.tasks[step.task]
            network.start(task, sequence.bytes_of(task))
        elif isinstance(step, RtpWrite):
            network.write(step)
        elif isinstance(step, SetLock):
            network.run()
            network.set_lock(step.lock, step.value)
    network.run()
    rings = [ring.full for ring in network.watch.rings]
    ends = [(end.at, end.left, end.moved, end.passes) for end in network.watch.ends]
    cores = [(run.at, dict(run.turns), run.lock) for run in network.cores]
    senders = [mover.sent for mover in network.movers.values()]
    return (rings, ends, cores, senders, dict(network.locks)), network_module.MOST_MOVES - network.left


def long_runs():
    """Designs of many turns that are alike: panels, repeats, windows, inner loops, sizes that do not divide."""
    yield panel_b8(Shape(32, 2048, 1024, 2, 2, m=16))
    yield panel_rm(Shape(32, 2048, 1024, 2, 2, m=16))
    yield gated(1, turns=60)
    yield relay(length=1024 * 60)
    # Each object of a mem tile goes out three times; the core takes them by twos, in a loop of five in each turn.
    inner = Loop(1, Const(0), Const(5), Const(1), (Acquire(0, "on", "consume", 2), Release("on", "consume", 2)))
    give = (Acquire(1, "out", "produce", 1), Release("out", "produce", 1))
    base = relay(length=1024 * 300)
    through = (
        replace(base.fifos[0], consumers=(MEM,)),
        Fifo("on", MEM, (CORE,), (3, 3), MemRef((1024,), "i8"), repeat_count=3),
        base.fifos[1],
    )
    made = replace(base, fifos=through, links=(Link(("in",), ("on",)),))
    yield with_task(with_core(made, CORE, body=endless(inner, *give)), 1, length=1024 * 90, sizes=(1, 1, 1, 1024 * 90))
    # A link cuts objects of 1,024 bytes anew, to 96 words.
    cut = (*through[:1], Fifo("on", MEM, (CORE,), (2, 2), MemRef((384,), "i8")), *through[2:])
    one = (Acquire(0, "on", "consume", 1), *give, Release("on", "consume", 1))
    made = replace(base, fifos=cut, links=(Link(("in",), ("on",)),))
    yield with_task(with_core(made, CORE, body=endless(*one)), 1, length=1024 * 800, sizes=(1, 1, 1, 1024 * 800))
    # The turns of the inner loop go by the index of the outer one, so no two outer turns are alike.
    stairs = Loop(2, Const(0), LoopIndex(1), Const(1), (Acquire(0, "in", "consume", 1), Release("in", "consume", 1)))
    outer = Loop(1, Const(1), Const(9), Const(1), (stairs,))
    base = relay(length=1024 * 36 * 8)
    yield with_task(with_core(base, CORE, body=endless(outer, *give)), 1, length=8192, sizes=(1, 1, 1, 8192))


@pytest.mark.parametrize("number", range(7))
def test_stretches_that_repeat_change_nothing_but_the_work(monkeypatch, number):
    design = list(long_runs())[number]
    found, moves = run_to_its_end(design)
    monkeypatch.setattr(network_module._Watch, "again", lambda *_: False)
    plain, plain_moves = run_to_its_end(design)
    assert found == plain
    assert moves < plain_moves


def test_what_a_network_costs_does_not_go_by_how_much_it_moves():
    """A hundred times the data takes as many moves, but for one stretch more or less."""
    few, many = (run_to_its_end(relay(length=1024 * objects))[1] for objects in (200, 20000))
    assert abs(many - few) < 50


def test_a_sequence_too_long_to_follow_is_not_judged(monkeypatch):
    design = with_steps(relay(), LoadPdi("main"), StartTask(1), AwaitTask(1), StartTask(0), FreeTask(0))
    monkeypatch.setattr(network_module, "MOST_MOVES", 1)
    assert rules(design) == ["free-early"]


# --- FIFOs that a core makes and their DMA repeats ---------------------------------------------------------------


@pytest.mark.parametrize("base", [relay, lambda length: gated(1, turns=length // 1024)], ids=["free", "gated"])
def test_each_object_of_a_repeated_fifo_of_a_core_leaves_twice(base):
    design = with_fifo(base(length=4096), "out", repeat_count=2)
    twice = with_task(design, 1, length=8192, sizes=(1, 1, 1, 8192))
    assert rules(twice) == []
    # As much out as in is right without the repeat only.
    assert "flow-total" in rules(design)


# --- what a core takes once, before its endless loop -----------------------------------------------------------------


def weights(via_mem: bool):
    """`in_0` brings weights that the core acquires before its loop; `in_1` to `out` is copied."""
    design = fan_in(2)
    name = "weights" if via_mem else "in_0"
    body = (
        Acquire(0, name, "consume", 1),
        *endless(
            Acquire(1, "in_1", "consume", 1),
            Acquire(2, "out", "produce", 1),
            Release("in_1", "consume", 1),
            Release("out", "produce", 1),
        ),
    )
    design = with_core(design, CORE, body=body)
    if not via_mem:
        return design
    design = with_fifo(design, "in_0", consumers=(MEM,))
    forward = Fifo("weights", MEM, (CORE,), (1, 1), MemRef((1024,), "i8"))
    return replace(
        design,
        tiles=(SHIM, Tile(1, 0), MEM, CORE),
        fifos=(*design.fifos, forward),
        links=(Link(("in_0",), ("weights",)),),
    )


@pytest.mark.parametrize("via_mem", [False, True])
def test_weights_that_a_core_takes_before_its_loop_are_in_when_a_drain_is_done(via_mem):
    assert rules(weights(via_mem)) == []


def test_weights_freed_before_any_drain_are_freed_early():
    design = weights(via_mem=False)
    load, first, second, out, wait, free, other = design.sequences[0].steps
    early = with_steps(design, load, first, free, second, out, wait, other)
    assert rules(early) == ["free-early"]


def test_weights_are_in_after_the_first_of_two_drains():
    # One object each; a fraction of the whole would say only half of the weights are in.
    design = weights(via_mem=False)
    sequence = design.sequences[0]
    more = (replace(sequence.tasks[1], number=3), replace(sequence.tasks[2], number=4))
    steps = (
        LoadPdi("main"), StartTask(0), StartTask(1), StartTask(2), AwaitTask(2), FreeTask(0), FreeTask(1),
        StartTask(3), StartTask(4), AwaitTask(4), FreeTask(3),
    )  # fmt: skip
    assert rules(with_sequence(design, tasks=(*sequence.tasks, *more), steps=steps)) == []


# --- what a core holds ------------------------------------------------------------------------------------------------


def test_a_core_that_never_gives_its_output_is_told():
    body = endless(Acquire(0, "in", "consume", 1), Acquire(1, "out", "produce", 1), Release("in", "consume", 1))
    (finding,) = [f for f in lint(with_core(relay(), CORE, body=body)) if f.rule == "release-missing"]
    assert finding.where == "core(0,2) FIFO @out"
    assert "seq needs 4 drained from it" in finding.message


# --- where buffers begin ------------------------------------------------------------------------------------------


def core_with(depth: int, size: int, stack: int):
    """A sink of `depth` objects of `size` bytes above a stack."""
    from small_designs import sink

    return with_fifo(sink(MemRef((size,), "i8"), stack), "in", depths=(2, depth), depth_per_end=True)


def test_buffers_of_a_core_begin_at_multiples_of_32_bytes():
    # 4,032 + 15 x 4,100 is 65,532 bytes, but 14 of the 15 are followed by 28 bytes of nothing: 65,924.
    (core,) = [b for b in budgets(core_with(15, 4100, 4032)) if b.tile == CORE]
    assert (core.used, core.free) == (4032 + 14 * 4128 + 4100, -388)
    (finding,) = [f for f in lint(core_with(15, 4100, 4032)) if f.rule == "l1-memory"]
    assert (finding.limit, finding.value) == (65536, 65924)
    assert "stack 4,032 + @in 15 x 4,100 + 392 between them" in finding.message
    assert [f.rule for f in lint(core_with(14, 4100, 4032)) if f.severity == "error"] == []


def test_a_stack_of_odd_size_moves_the_first_buffer_up():
    (core,) = [b for b in budgets(core_with(1, 64, 1028)) if b.tile == CORE]
    assert core.used == 1056 + 64


def test_buffers_of_a_mem_tile_begin_at_words():
    design = weights(via_mem=True)
    design = replace(design, fifos=tuple(replace(f, object_type=MemRef((1020,), "i8")) for f in design.fifos))
    (mem,) = [b for b in budgets(design) if b.tile == MEM]
    assert mem.used == 1020


# --- the simulator's word ---------------------------------------------------------------------------------------------


def reordered(sequence, seed: int):
    """The same tasks with their starts and awaits mixed, those of one FIFO in their order, frees last."""
    dice = random.Random(seed)
    fifo_of = {task.number: task.fifo for task in sequence.tasks}
    lanes: dict[str, list] = {}
    frees = []
    for step in sequence.steps:
        if isinstance(step, FreeTask):
            frees.append(step)
        elif isinstance(step, StartTask | AwaitTask):
            lanes.setdefault(fifo_of[step.task], []).append(step)
    steps = []
    # Lanes that go first more often put an await before what it needs now and then.
    weights = {name: dice.choice([1, 2, 8, 32]) for name in lanes}
    while lanes:
        name = dice.choices(list(lanes), [weights[lane] for lane in lanes])[0]
        steps.append(lanes[name].pop(0))
        if not lanes[name]:
            del lanes[name]
    return replace(sequence, name=f"seq_{seed}", steps=(sequence.steps[0], *steps, *frees))


@pytest.mark.parametrize("build", [panel_b8, panel_rm])
def test_the_simulator_hangs_where_lint_says_so_and_nowhere_else(simulator, build):
    design = build(Shape(32, 256, 512, 2, 2, m=16))
    (sequence,) = design.sequences
    mixed = replace(design, sequences=tuple(reordered(sequence, seed) for seed in range(60)))
    told = {f.where.split()[0]: f.rule for f in lint(mixed) if f.rule in ("await-early", "task-stuck")}
    elf = simulator.elf(mixed, mm_i8(16))
    types = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32}
    arrays = [np.ones(one.elements, types[one.element]) for one in sequence.arguments]
    hung = set()
    for one in mixed.sequences:
        try:
            elf.run(*arrays, sequence=one.name)
        except SimulationFailed as error:
            if "deadlock" in str(error):
                hung.add(one.name)
    queued = {f.where.split()[0] for f in lint(mixed) if f.rule == "task-queue"}
    assert set(told) - queued == hung - queued
    assert 5 <= len(told) < len(mixed.sequences)


def test_the_simulator_takes_as_much_before_a_drain_as_lint_says(simulator):
    design = with_task(relay(length=4096), 0, issue_token=True)
    (sequence,) = design.sequences
    fill, drain = sequence.tasks
    steps = (LoadPdi("main"), StartTask(0), AwaitTask(0), StartTask(1), AwaitTask(1))

    def of(objects: int):
        size = 1024 * objects
        tasks = (
            replace(fill, length=size, sizes=(1, 1, 1, size)),
            replace(drain, length=size, sizes=(1, 1, 1, size), argument=2),
        )
        # The simulator's entries take A, B and C, and write all of C.
        arguments = (MemRef((size,), "i8"),) * 3
        return replace(sequence, name=f"seq_{objects}", arguments=arguments, tasks=tasks, steps=steps)

    many = replace(design, sequences=tuple(of(objects) for objects in range(1, 9)))
    told = {f.where.split()[0] for f in lint(many) if f.rule == "await-early"}
    elf = simulator.elf(many, relay_kernel())
    hung = set()
    for one in many.sequences:
        try:
            elf.run(*(np.ones(a.elements, np.int8) for a in one.arguments), sequence=one.name)
        except SimulationFailed as error:
            assert "deadlock" in str(error), error
            hung.add(one.name)
    assert told == hung == {f"seq_{objects}" for objects in range(5, 9)}

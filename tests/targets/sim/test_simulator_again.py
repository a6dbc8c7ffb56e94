"""A run without load_pdi: what the second launch of a design meets on the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elfkiln.design.model import Acquire, Call, Const, Core, Kernel, Lock, Loop, MemRef, ObjectRef, Release, UseLock
from elfkiln.errors import Refused, SimulationFailed
from gemm_designs import Shape, panel_b8, panel_rm
from sim_designs import CORE, SHIM, copying, design, fifo, forever, task
from simulating import blocked, coordinates, mm_i8, plain, product, relay

SHAPE = Shape(32, 256, 512, 2, 2, m=16)


def bytes_of(first: int) -> np.ndarray:
    return (np.arange(4096) % 97 + first).astype(np.int8)


@pytest.mark.parametrize("layout", ["b8", "rm"])
def test_a_design_that_gives_back_what_it_takes_runs_again_and_again(simulator, layout):
    elf = simulator.elf(panel_b8(SHAPE) if layout == "b8" else panel_rm(SHAPE), mm_i8(16))
    for seed in range(2, 5):
        a, b = coordinates(32, 256, seed), coordinates(256, 512, seed + 3)
        packed = blocked(b) if layout == "b8" else b
        assert np.array_equal(elf.run(a, packed, again=True), product(a, b))
    # In whatever order fresh and used arrays follow each other.
    assert np.array_equal(elf.run(a, packed), product(a, b))
    assert np.array_equal(elf.run(a, packed, again=True), product(a, b))


def serving(*body, **changes):
    """A core between two FIFOs, with this program: 4 objects in, 4 out."""
    return design(
        [fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, body)],
        [task(0, "in", 0, 4096), task(1, "out", 2, 4096, token=True)],
        **changes,
    )


FOUR_TURNS = Loop(1, Const(0), Const(4), Const(1), copying("in", "out"))


def runs(elf):
    """The first run's array and the line of the second, which leaves load_pdi out."""
    source = bytes_of(0)
    first = elf.run(source, source)
    with pytest.raises(SimulationFailed) as caught:
        elf.run(bytes_of(1), source, again=True)
    line = str(caught.value)
    assert "\n" not in line
    return np.array_equal(first, source), line


def test_a_program_that_ends_serves_one_run(simulator):
    """Four turns and no more: the fresh array is served, the used one waits for ever."""
    right, line = runs(simulator.elf(serving(FOUR_TURNS), relay()))
    assert right
    assert "deadlock, 0 of 4096 bytes moved" in line
    assert "it begins with the program of core(0,2) has ended" in line


def test_a_lock_that_only_load_pdi_opens_opens_once(simulator):
    body = (UseLock("go", "acquire_ge", Const(1)), FOUR_TURNS)
    right, line = runs(simulator.elf(serving(*forever(*body), locks=(Lock("go", CORE, 1),)), relay()))
    assert right
    assert "(acquire go), turn 1: go holds 0" in line


def test_what_a_core_takes_before_its_endless_loop_it_takes_once(simulator):
    """The core takes one object of `first` and never again; every run sends one."""
    take = (Acquire(9, "first", "consume", 1), Release("first", "consume", 1))
    made = design(
        [fifo("first", SHIM, CORE), fifo("in", SHIM, CORE), fifo("out", CORE, SHIM)],
        [Core(CORE, 1024, (*take, *forever(*copying("in", "out"))))],
        [task(0, "first", 1, 1024), task(1, "in", 0, 4096), task(2, "out", 2, 4096, token=True)],
    )
    right, line = runs(simulator.elf(made, relay()))
    assert right
    assert line.startswith("main_seq ends: first at core(0,2) still has 1 object")


def test_what_differs_is_the_numbers_where_nothing_waits(simulator):
    """The first object of all is passed on, every later one tripled: no wait and no fault tells of it."""
    whole = MemRef((1024,), "i8")
    kernels = Kernel("relay_i8", (whole,) * 2, "relay.o"), Kernel("sum_of_three", (whole,) * 4, "relay.o")
    pass_on = copying("in", "out", "relay_i8")
    triple = (*pass_on[:3], Call("sum_of_three", (*(ObjectRef(0, 0),) * 3, ObjectRef(1, 0))), *pass_on[3:])
    elf = simulator.elf(serving(*pass_on, *forever(*triple), kernels=kernels), plain())
    source = bytes_of(0)
    tripled = source.reshape(4, 1024).copy()
    tripled[:, :64] *= 3  # the kernel sums 64 elements; the rest stays as passed on
    fresh = np.concatenate([source[:1024], tripled[1:].reshape(-1)])
    assert not np.array_equal(fresh, tripled.reshape(-1))
    assert np.array_equal(elf.run(source, source), fresh)
    assert np.array_equal(elf.run(source, source, again=True), tripled.reshape(-1))
    assert np.array_equal(elf.run(source, source), fresh)


def test_a_failed_run_leaves_an_array_that_is_loaded_anew(simulator):
    elf = simulator.elf(serving(FOUR_TURNS), relay())
    source = bytes_of(0)
    elf.run(source, source)
    with pytest.raises(SimulationFailed):
        elf.run(source, source, again=True)
    # Nothing is loaded after a failure, so `again` has nothing to go on from.
    assert np.array_equal(elf.run(source, source, again=True), source)


def test_the_first_run_loads(simulator):
    elf = simulator.elf(serving(*forever(*copying("in", "out"))), relay())
    source = bytes_of(3)
    assert np.array_equal(elf.run(source, source, again=True), source)


def test_two_sequences_of_one_entry_are_refused(simulator):
    made = serving(*forever(*copying("in", "out")))
    other = replace(made.sequences[0], name="seq_again")
    with pytest.raises(Refused, match=r"design main: entry main_seq_again: expected one sequence for it, found two"):
        simulator.path(replace(made, sequences=(*made.sequences, other)), relay())

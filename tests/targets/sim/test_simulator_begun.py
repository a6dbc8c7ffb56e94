"""What an array begins with and keeps: initial values, bounded FIFOs, stores, parameters in bytes, objects kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    Call,
    Const,
    Core,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Loop,
    LoopIndex,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    StartTask,
    Store,
    Tile,
)
from elfkiln.errors import Refused, SimulationFailed
from elfkiln.lint import lint
from sim_designs import CORE, FOREVER, MEM, NEXT, SHIM, copying, design, fifo, forever, scalar_design, task
from simulating import plain
from simulating import relay as relay_kernel

LOAD = LoadPdi("main")
ONE, TWO = bytes([1]) * 1024, bytes([2]) * 1024
DATA = np.arange(4096, dtype=np.int64).astype(np.int8)
NOTHING = np.zeros(16, np.int8)


def passed(simulator, made, elements=4096):
    """C of a design that passes A on, and that lint takes as well."""
    assert [f.line for f in lint(made, "sim") if f.severity == "error"] == []
    return simulator.elf(made, relay_kernel()).run(DATA[:elements], DATA[:elements])


def begun(where):
    """A relay of 4 objects in which two that were there from the start come first."""
    initial = {"initial": (ONE, TWO)}
    cores = [Core(CORE, 1024, forever(*copying("in", "out")))]
    links = ()
    if where == "core":
        fifos = (fifo("in", SHIM, CORE), fifo("out", CORE, SHIM, **initial))
    elif where == "neighbour":
        fifos = (fifo("in", SHIM, CORE), fifo("mid", CORE, NEXT, **initial), fifo("out", NEXT, SHIM))
        cores = [
            Core(CORE, 1024, forever(*copying("in", "mid"))),
            Core(NEXT, 1024, forever(*copying("mid", "out"))),
        ]
    else:
        fifos = (fifo("in", SHIM, CORE), fifo("out", CORE, MEM), fifo("on", MEM, SHIM, **initial))
        links = (Link(("out",), ("on",)),)
    last = fifos[-1].name
    # The fill is awaited by its own token: what is drained does not say that it is done.
    tasks = (task(0, "in", 0, 4096, token=True), task(1, last, 2, 4096, token=True))
    return design(fifos, cores, tasks, links=links)


@pytest.mark.parametrize("where", ["core", "neighbour", "link"])
def test_initial_objects_come_first(simulator, where):
    found = passed(simulator, begun(where))
    assert found.tolist() == [1] * 1024 + [2] * 1024 + DATA[:2048].tolist()


def test_initial_objects_of_a_join_are_cut_like_all_others(simulator):
    """The whole objects begin as halves of 1 and 2, and of 3 and 4; then comes the first of the two cores' three."""
    whole = tuple(bytes([first]) * 1024 + bytes([first + 1]) * 1024 for first in (1, 3))
    fifos = (
        fifo("in", SHIM, CORE),
        fifo("other", Tile(1, 0), NEXT),
        fifo("low", CORE, MEM),
        fifo("high", NEXT, MEM),
        fifo("out", MEM, SHIM, size=2048, initial=whole),
    )
    cores = (
        Core(CORE, 1024, forever(*copying("in", "low"))),
        Core(NEXT, 1024, forever(*copying("other", "high"))),
    )
    tasks = (
        task(0, "in", 0, 3072, token=True),
        task(1, "other", 1, 3072, token=True),
        task(2, "out", 2, 6144, token=True),
    )
    made = design(fifos, cores, tasks, links=(Link(("low", "high"), ("out",), (0, 1024)),), elements=6144)
    a = np.full(6144, 5, np.int8)
    assert [f.line for f in lint(made, "sim") if f.severity == "error"] == []
    found = simulator.elf(made, relay_kernel()).run(a, a + 1)
    assert found.reshape(-1, 1024)[:, 0].tolist() == [1, 2, 3, 4, 5, 6]


def test_initial_values_that_no_object_has_are_a_fault(simulator):
    """Of a link of unequal objects the larger are there; a distribute's pieces are those of its input."""
    made = begun("core")
    small = replace(made, fifos=(made.fifos[0], replace(made.fifos[1], initial=(ONE[:-1], TWO))))
    with pytest.raises(Refused, match="FIFO out: its initial values are not whole objects, at most 2"):
        simulator.elf(small, relay_kernel())
    fifos = (
        fifo("in", SHIM, MEM, size=2048),
        fifo("low", MEM, CORE, initial=(ONE, TWO)),
        fifo("high", MEM, NEXT),
        fifo("out", CORE, SHIM),
        fifo("too", NEXT, Tile(1, 0)),
    )
    cores = (
        Core(CORE, 1024, forever(*copying("low", "out"))),
        Core(NEXT, 1024, forever(*copying("high", "too"))),
    )
    tasks = (
        task(0, "in", 0, 2048),
        task(1, "out", 2, 1024, token=True),
        task(2, "too", 2, 1024, offset=1024, token=True),
    )
    dealt = design(fifos, cores, tasks, links=(Link(("in",), ("low", "high"), (), (0, 1024)),), elements=2048)
    with pytest.raises(SimulationFailed, match=r"FIFO low at mem.0,1. has initial values, and its objects are another"):
        simulator.elf(dealt, relay_kernel()).run(DATA[:2048], DATA[:2048])
    assert "fifo-initial" in {f.rule for f in lint(dealt, "sim")}


def bounded(objects, **fifos):
    """shim -> mem -> core -> shim, with an iter_count at one side of the mem tile."""
    made = (
        fifo("in", SHIM, MEM, **fifos.get("into", {})),
        fifo("on", MEM, CORE, **fifos.get("out_of", {})),
        fifo("out", CORE, SHIM),
    )
    size = 1024 * objects
    tasks = (task(0, "in", 0, size), task(1, "out", 2, size, token=True))
    core = Core(CORE, 1024, forever(*copying("on", "out")))
    return design(made, (core,), tasks, links=(Link(("in",), ("on",)),), elements=size)


@pytest.mark.parametrize("side", ["into", "out_of"])
def test_a_bounded_fifo_moves_its_depth_so_often(simulator, side):
    """2 objects, gone over twice: 4 pass, the fifth does not."""
    found = passed(simulator, bounded(4, **{side: {"iter_count": 2}}))
    assert found.tolist() == DATA.tolist()
    made = bounded(5, **{side: {"iter_count": 2}})
    a = np.zeros(5120, np.int8)
    with pytest.raises(SimulationFailed, match=r"iter_count.* is spent, after 4 objects"):
        simulator.elf(made, relay_kernel()).run(a, a)
    assert {f.rule for f in lint(made, "sim") if f.severity == "error"} == {"await-early"}


MAKE = (
    Acquire(0, "out", "produce", 1),
    Call("fill_i32", (ObjectRef(0, 0), Loaded(0))),
    Release("out", "produce", 1),
)


def made_of(*body, buffer, steps=(), turns=1):
    """A core that fills `turns` objects with what it loads from a buffer."""
    return scalar_design(
        "fill_i32", (MemRef((16,), "i32"), "i32"), body, buffers=(buffer,),
        steps=(LOAD, *steps, StartTask(0), AwaitTask(0)), elements=16 * turns,
    )  # fmt: skip


def numbers(simulator, made):
    return simulator.elf(made, plain()).run(NOTHING, NOTHING).reshape(-1, 16)[:, 0].tolist()


def test_a_core_stores_and_loads_what_it_stored(simulator):
    """What each turn stores is its index."""
    turn = (Store("table", Const(1), LoopIndex(0)), Load(0, "table", Const(1)), *MAKE)
    body = (Loop(0, Const(5), Const(8), Const(1), turn),)
    made = made_of(*body, buffer=Buffer("table", CORE, MemRef((2,), "i16")), turns=3)
    assert numbers(simulator, made) == [5, 6, 7]
    assert [f for f in lint(made, "sim") if f.severity == "error"] == []


def test_a_store_keeps_the_bits_that_its_element_has(simulator):
    body = (Store("table", Const(0), Const(0x1FE)), Load(0, "table", Const(0)), *MAKE)
    for element, value in (("i8", -2), ("ui8", 254), ("i16", 510)):
        assert numbers(simulator, made_of(*body, buffer=Buffer("table", CORE, MemRef((1,), element)))) == [value]


def test_a_store_outside_its_buffer_ends_the_run(simulator):
    made = made_of(*forever(Store("table", Const(2), Const(1)), Load(0, "table", Const(0)), *MAKE),
                   buffer=Buffer("table", CORE, MemRef((2,), "i32")))  # fmt: skip
    with pytest.raises(SimulationFailed, match=r"core\(0,2\) step 1 \(store to table\), turn 0: element 2 of 2"):
        numbers(simulator, made)


def test_a_buffer_begins_with_its_initial_value(simulator):
    initial = np.array([7, -9], np.int16).tobytes()
    buffer = Buffer("table", CORE, MemRef((2,), "i16"), initial=initial)
    assert numbers(simulator, made_of(Load(0, "table", Const(1)), *MAKE, buffer=buffer)) == [-9]


@pytest.mark.parametrize(
    ("element", "index", "value"),
    [("i8", 1, -2), ("ui8", 1, 254), ("i8", 3, 4), ("i16", 0, -511), ("ui16", 1, 0x0403), ("i32", 0, 0x0403FE01)],
)
def test_a_write_of_a_word_covers_smaller_elements(simulator, element, index, value):
    elements = 4 // {"i8": 1, "ui8": 1, "i16": 2, "ui16": 2, "i32": 4}[element]
    body = forever(Acquire(1, "in", "consume", 1), Load(0, "word", Const(index)), *MAKE, Release("in", "consume", 1))
    made = made_of(*body, buffer=Buffer("word", CORE, MemRef((elements,), element)))
    drain = replace(made.sequences[0].tasks[0], number=1)
    fill = replace(drain, number=0, fifo="in", argument=0, issue_token=False)
    steps = (LOAD, RtpWrite("word", 0, 0x0403FE01), StartTask(0), StartTask(1), AwaitTask(1))
    sequence = replace(made.sequences[0], tasks=(fill, drain), steps=steps)
    made = replace(made, fifos=(fifo("in", SHIM, CORE, size=16), *made.fifos), sequences=(sequence,))
    assert numbers(simulator, made) == [value]


def with_factor(filled):
    """A core that takes a factor before its endless loop and keeps it; `filled` of them come."""
    body = (
        Acquire(2, "factor", "consume", 1),
        Loop(0, Const(0), Const(FOREVER), Const(1), (
            Acquire(0, "in", "consume", 1), Acquire(1, "out", "produce", 1),
            Call("relay", (ObjectRef(0, 0), ObjectRef(1, 0))), Call("relay", (ObjectRef(2, 0), ObjectRef(1, 0))),
            Release("in", "consume", 1), Release("out", "produce", 1),
        )),
    )  # fmt: skip
    fifos = (fifo("in", SHIM, CORE), fifo("factor", Tile(1, 0), CORE), fifo("out", CORE, SHIM))
    tasks = (
        task(0, "factor", 1, 1024 * filled), task(1, "in", 0, 2048), task(2, "out", 2, 2048, token=True)
    )  # fmt: skip
    kernels = (Kernel("relay", (MemRef((1024,), "i8"),) * 2, "relay.o"),)
    return design(fifos, (Core(CORE, 1024, body),), tasks, kernels=kernels, elements=2048)


def test_an_object_kept_for_ever_may_stay_in_its_fifo(simulator):
    made = with_factor(1)
    assert [f.line for f in lint(made) if f.severity == "error"] == []
    a, b = np.full(2048, 1, np.int8), np.full(2048, 9, np.int8)
    assert simulator.elf(made, relay_kernel()).run(a, b).tolist() == [9] * 2048
    with pytest.raises(SimulationFailed, match=r"factor at core\(0,2\) still has 2 objects, 1 of them taken"):
        simulator.elf(with_factor(2), relay_kernel()).run(a, b)

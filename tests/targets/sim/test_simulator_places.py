"""Where objects are is nobody's business: cores that share bytes, with each other or with the host, never see it."""

from __future__ import annotations

import numpy as np
import pytest

from elfkiln.design.model import Core, Kernel, Link, MemRef
from elfkiln.errors import SimulationFailed
from elfkiln.families.family import KernelObject
from gemm_designs import Shape, panel_b8
from sim_designs import CORE, MEM, NEXT, SHIM, copying, design, fifo, forever, task
from simulating import blocked, coordinates, mm_i8, product, relay

WRITTEN_INPUT = KernelObject("relay.o", "written_input.cc", {})
TYPES = (MemRef((1024,), "i8"),) * 2


def spread(kernel: str, last: str):
    """Four objects of A, by way of the mem tile, to two cores at once: each drains half of C."""
    kernels = tuple(Kernel(name, TYPES, "relay.o") for name in sorted({kernel, last}))
    cores = (
        Core(CORE, 1024, forever(*copying("A", "C_0", kernel))),
        Core(NEXT, 1024, forever(*copying("A", "C_1", last))),
    )
    fifos = (
        fifo("A_mem", SHIM, MEM),
        fifo("A", MEM, CORE, NEXT),
        fifo("C_0", CORE, SHIM),
        fifo("C_1", NEXT, SHIM),
    )
    tasks = (
        task(0, "A_mem", 0, 4096),
        task(1, "C_0", 2, 4096, token=True),
        task(2, "C_1", 2, 4096, offset=4096, token=True),
    )
    links = (Link(("A_mem",), ("A",), (), ()),)
    return design(fifos, cores, tasks, links=links, kernels=kernels, elements=8192)


def at(offset: int, array: np.ndarray) -> np.ndarray:
    """A copy of an array that begins `offset` bytes after a multiple of 64."""
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.fixture(scope="module")
def counting(simulator):
    return simulator.elf(spread("count_up", "count_up"), WRITTEN_INPUT)


@pytest.mark.parametrize("offset", [0, 1, 16])
def test_a_core_that_changes_what_it_consumed_changes_its_own_alone(counting, offset):
    a = at(offset, np.arange(8192, dtype=np.int64).astype(np.int8))
    before = a.copy()
    result = counting.run(a, np.zeros(8192, np.int8))
    # Each core adds 1 to its own object: had they one, the second would find what the first had made of it.
    expected = (before[:4096].astype(np.int64) + 1).astype(np.int8)
    assert np.array_equal(result, np.concatenate([expected, expected]))
    assert np.array_equal(a, before)


@pytest.mark.parametrize("offset", [0, 16])
def test_a_kernel_that_writes_what_it_only_reads_by_its_declaration_is_refused(simulator, offset):
    elf = simulator.elf(spread("scribble", "scribble"), WRITTEN_INPUT)
    a = at(offset, np.ones(8192, np.int8))
    with pytest.raises(SimulationFailed) as caught:
        elf.run(a, np.zeros(8192, np.int8))
    assert str(caught.value) == (
        "core(0,2) step 3 (call scribble), turn 0: argument 0, an object of A, is written, and the microkernel "
        "declares that it only reads it"
    )
    assert a.tolist() == [1] * 8192


def test_the_same_c_whatever_the_hosts_arrays_begin_at(simulator):
    elf = simulator.elf(panel_b8(Shape(32, 256, 512, 2, 2, m=16)), mm_i8(16))
    a, b = coordinates(32, 256), coordinates(256, 512, 5)
    for offset in (0, 8, 32, 63):
        here, weights = at(offset, a), at(offset, blocked(b))
        for again in (False, True):
            assert np.array_equal(elf.run(here, weights, again=again), product(a, b)), offset
        assert np.array_equal(here, a)
        assert np.array_equal(weights, blocked(b))


def test_arrays_may_go_away_between_runs(simulator):
    kernels = (Kernel("relay", TYPES, "relay.o"),)
    made = design(
        (fifo("A", SHIM, CORE), fifo("C", CORE, SHIM)),
        (Core(CORE, 1024, forever(*copying("A", "C"))),),
        (task(0, "A", 0, 4096), task(1, "C", 2, 4096, token=True)),
        kernels=kernels,
    )
    elf = simulator.elf(made, relay())
    for value in range(1, 5):
        # Each array is freed, and the next has other bytes, there or elsewhere.
        a = at(0, np.full(4096, value, np.int8))
        assert elf.run(a, np.zeros(4096, np.int8), again=value > 1).tolist() == [value] * 4096
        a[...] = -1
        del a

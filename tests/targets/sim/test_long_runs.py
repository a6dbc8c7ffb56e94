"""Designs with long runs: what the real package printed, clean to lint, and the product when they are simulated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from elfkiln.design.reader import design_of_module, parse_design_module
from elfkiln.errors import SimulationFailed
from elfkiln.families.family import KernelObject
from elfkiln.lint import budgets, lint
from rendered import design_of, printed_by, rendered_design
from simulating import blocked, coordinates, mm_i8, packed_ternary, product
from small_designs import with_task

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "long-runs"
NAMES = ("b8_128_a_from_stream", "b8_128_a_in_mem_tile", "pb16i_16_four_rows", "rm_128_panel")
QUARTER = KernelObject("mm_pb16i_16x64x128.o", "mm_pb16i.cc", {"DIM_M": "16", "DIM_K": "64", "DIM_N": "32"})


def program(name: str, K: int = 5120, N: int = 14336) -> str:
    """A recorded program, made for other K and N where these are given."""
    text = (EXAMPLES / f"{name}.py").read_text()
    recorded = f"K, N = {16 if name.startswith('pb16i') else 128}, 5120, 14336"
    assert text.count(recorded) == 1
    return text.replace(recorded, recorded.replace("5120", str(K)).replace("14336", str(N)))


@pytest.mark.parametrize("name", NAMES)
def test_the_stand_in_prints_what_the_real_package_printed(name):
    printed, _ = printed_by(program(name))
    assert parse_design_module(printed).is_structurally_equivalent(recorded_module(name))
    assert lint(recorded(name)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_it_multiplies(simulator, name):
    packed = name.startswith("pb16i")
    M, K, N = 16 if packed else 128, 1024, 2048
    elf = simulator.elf(design_of(program(name, K, N)), QUARTER if packed else mm_i8(32, "mm_32x64x128.o"))
    a, b = coordinates(M, K), coordinates(K, N, 5)
    if packed:
        b = (b % 3 - 1).astype(np.int8)
    host = packed_ternary(b) if packed else b if name.startswith("rm") else blocked(b)
    assert np.array_equal(elf.run(a, host, np.full((M, N), -1, np.int32)), product(a, b))


GOLDEN = Path(__file__).resolve().parents[2] / "golden"
A, B, C = range(3)


@cache
def recorded_module(name):
    return parse_design_module((EXAMPLES / f"{name}.2026-08.generic.mlir").read_text())


@cache
def recorded(name):
    return design_of_module(recorded_module(name))


def rendered(layout):
    """What the families render for 5120 x 14336 in a layout."""
    name = {"b8": "n1_blocked_128", "rm": "row_major_128", "pb16i": "pb16i_16"}[layout]
    return design_of((GOLDEN / f"{name}x5120x14336.py").read_text())


def tiles(design, column=None):
    """Of every tile, or of a column's, what it uses: memory, channels, descriptors, locks."""
    return {
        (one.tile.col, one.tile.row): (
            one.stack, sorted((stored.count, stored.bytes_each) for stored in one.stored),
            one.s2mm, one.mm2s, one.descriptors, one.locks,
        )
        for one in budgets(design) if column is None or one.tile.col == column
    }  # fmt: skip


def walks(design, argument):
    """Of every task on an argument, in order, the start of each of its runs and their length, in elements."""
    found = []
    for task in design.sequences[0].tasks:
        if task.argument != argument:
            continue
        starts = np.array([task.offset])
        run = 1
        for size, stride in zip(task.sizes, task.strides, strict=True):
            if stride == run == 1:
                run = size
            elif size > 1:
                starts = (starts[:, None] + stride * np.arange(size)).ravel()
        found.append((run, starts.tolist()))
    return found


def test_b8_is_the_design_that_the_real_compiler_took():
    ours, real = rendered("b8"), recorded("b8_128_a_in_mem_tile")
    assert tiles(ours) == tiles(real)
    assert len(ours.links) == len(real.links) == 20
    assert [walks(ours, argument) for argument in (A, B, C)] == [walks(real, argument) for argument in (A, B, C)]
    assert len(ours.sequences[0].steps) == len(real.sequences[0].steps) == 561


def test_rm_moves_b_and_c_as_the_real_compiler_took_them_and_a_as_b8():
    ours, real = rendered("rm"), recorded("rm_128_panel")
    assert tiles(ours) == tiles(recorded("b8_128_a_in_mem_tile"))
    # Columns without a stream of A are as recorded, which takes A straight to the cores.
    assert all(tiles(ours, column) == tiles(real, column) for column in range(4, 8))
    assert walks(ours, A) == walks(rendered("b8"), A)
    assert [walks(ours, argument) for argument in (B, C)] == [walks(real, argument) for argument in (B, C)]
    assert {run for run, _ in walks(ours, B)} == {128}
    assert len(ours.sequences[0].tasks) == len(real.sequences[0].tasks) == 280


def test_pb16i_shares_its_tiles_as_the_real_compiler_took_it():
    ours, real = rendered("pb16i"), recorded("pb16i_16_four_rows")
    assert all(tiles(ours, column) == tiles(real, column) for column in range(1, 8))
    # A goes through the first mem tile, which has one channel more each way for it, 2 objects of 16 x 512 and 4
    # descriptors; the cores' tiles are as recorded.
    mine, theirs = tiles(ours, 0), tiles(real, 0)
    stack, stored, s2mm, mm2s, descriptors, locks = theirs.pop((0, 1))
    more = sorted([*stored, (2, 16 * 512)])
    assert mine.pop((0, 1)) == (stack, more, s2mm + 1, mm2s + 1, descriptors + 4, locks + 2)
    assert mine == theirs
    assert [walks(ours, argument) for argument in (B, C)] == [walks(real, argument) for argument in (B, C)]
    assert {run for run, _ in walks(ours, A)} == {512}
    assert len(ours.sequences[0].tasks) == len(real.sequences[0].tasks) == 238


# Of each matrix a tap that stays inside it and moves as much as the right one: tag, M, N, the task, its offset.
WRONG_TAPS = {
    "a panel of A twice": ("_b8", 128, 1, 0),
    "B half a tile on": ("", 16, 2, 192),
    "C over another column's": ("_pb16i", 16, 5, 128),
}


@pytest.mark.parametrize("what", WRONG_TAPS)
def test_a_wrong_tap_of_what_the_families_render_is_seen_by_simulation(simulator, what):
    tag, M, number, offset = WRONG_TAPS[what]
    K, N = 512, 512
    right = rendered_design(tag, M, K, N, 4)
    a, b = coordinates(M, K), coordinates(K, N, 5)
    if tag == "_pb16i":
        b = (b % 3 - 1).astype(np.int8)
    host = packed_ternary(b) if tag == "_pb16i" else blocked(b) if tag else b
    name = right.kernels[0].link_with
    kernel = replace(QUARTER, object_name=name) if tag == "_pb16i" else mm_i8(32 if M == 128 else 16, name)

    def product_of(design):
        return simulator.elf(design, kernel).run(a, host, np.full((M, N), -1, np.int32))

    assert np.array_equal(product_of(right), product(a, b))
    try:
        found = product_of(with_task(right, number, offset=offset))
    except SimulationFailed as fault:
        # What reaches beyond a matrix, or writes an element twice, ends the run.
        assert "task" in str(fault)
    else:
        assert not np.array_equal(found, product(a, b))

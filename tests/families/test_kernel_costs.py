"""The table of the microkernels' costs, against counts of the sources and of the pages it is shown on."""

from __future__ import annotations

import re

import pytest

from elfkiln.families.kernel_costs import (
    KERNEL_COSTS,
    Step,
    cost,
    matmul_cycles,
)
from projects import CHECKOUT

# Of an AIE2P core: vector registers of 512 bits (x0 to x11), accumulators of 2048 bits (dm0 to dm4).
REGISTERS, ACCUMULATORS = 12, 5


def ideal_cycles(entry, m, k, n):
    """The cycles of one call's steps when every slot overlaps; C's loads and stores come besides."""
    row = cost(entry, m, n)
    return m // row.rows * (n // row.columns) * (k // 8) * sum(step.cycles for step in row.steps)


@pytest.mark.parametrize(
    ("entry", "tile", "ideal"),
    [
        # VMAC of a call: one a pair of blocks, m/8 * k/8 * n/8.
        ("matmul_i8_i32", (16, 64, 128), 2 * 8 * 16),
        ("matmul_i8_i32", (32, 64, 128), 4 * 8 * 16),
        ("matmul_pb16i_i32", (32, 64, 128), 4 * 8 * 16),
        ("matmul_pb16i_i32", (32, 256, 128), 4 * 32 * 16),
        # At m = 16 the move slot decides: 2 + 4 + 4 + 4 operations for the four blocks of a group, 32 groups a tile.
        ("matmul_pb16i_i32", (16, 64, 128), 14 * 32),
        ("matmul_pb16i_i32", (16, 64, 32), 14 * 8),
    ],
)
def test_ideal_cycles_of_a_call(entry, tile, ideal):
    m, k, n = tile
    assert ideal_cycles(entry, m, k, n) == ideal


def test_predicted_cycles_are_the_traced_kernels():
    """Peano's int8 -> int32 2 x 2 kernel, from two published traces: 202.5 MAC/cycle at 64x64x48, 252.3 at 64x96x48."""
    for m, k, n, traced in ((64, 64, 48, 202.5), (64, 96, 48, 252.3)):
        predicted = m * k * n / matmul_cycles("matmul_i8_i32", m, k, n)[0]
        assert abs(predicted / traced - 1) < 0.02


def test_a_deeper_tile_pays_for_c_less_often():
    one, four = (matmul_cycles("matmul_pb16i_i32", 32, k, 128)[0] for k in (64, 256))
    assert four < 4 * one
    assert four - one == pytest.approx(3 * 16 * 8 * 4.1)  # 16 passes, 8 more steps a K of 64


def test_registers_fit_the_core():
    assert all(row.registers <= REGISTERS and row.accumulators <= ACCUMULATORS for row in KERNEL_COSTS)
    assert {row.accumulators for row in KERNEL_COSTS} == {4}


def body(source, start):
    """The loop over k of a pass, as text."""
    text = (CHECKOUT / "kernels" / source).read_text()
    text = text[text.index(start) :]
    loop = text[text.index("for (unsigned") :]
    return loop[: loop.index("\n    }\n")]


def test_the_slots_are_those_of_the_sources():
    """Products and loads as they stand in the loops; operations of `weights`: 2 for q = 0, 4 else."""
    loops = {
        ("matmul_i8_i32", "2 x 2"): (body("mm_i8.cc", "inline void square"), 2),
        ("matmul_pb16i_i32", "4 x 1"): (body("mm_pb16i.cc", "inline void column"), 1),
        ("matmul_pb16i_i32", "2 x 2"): (body("mm_pb16i.cc", "inline void square"), 2),
    }
    for row in KERNEL_COSTS:
        loop, _ = loops[row.entry, row.blocking]
        for step in row.steps:
            assert loop.count(".mac(") == step.products == 4
            assert loop.count("aie::load_v<64>(") == step.loads
    packed = {row.blocking: row.steps for row in KERNEL_COSTS if row.entry == "matmul_pb16i_i32"}
    assert [step.moves for step in packed["4 x 1"]] == [2, 4, 4, 4]
    assert [step.moves for step in packed["2 x 2"]] == [2 + 4, 4 + 4]


def test_a_step_takes_what_its_fullest_slot_takes():
    assert Step(4, 0, 4).cycles == 4
    assert Step(4, 6, 3).cycles == 6
    assert Step(1, 0, 5).cycles == 3


@pytest.mark.parametrize(("entry", "m", "n"), [("matmul_i8_i32", 8, 128), ("matmul_t2s_i32", 16, 128), ("", 0, 0)])
def test_what_the_table_has_not(entry, m, n):
    with pytest.raises(
        KeyError, match=rf"no cycles are known of {entry} at {m} x {n}; the table has matmul_i8_i32 in 16"
    ):
        matmul_cycles(entry, m, 64, n)


def test_the_page_shows_the_table():
    page = (CHECKOUT / "docs" / "families.md").read_text()
    rows = re.findall(r"^\| `(matmul_\w+)`, (\d) x (\d) \| (.*) \|$", page, re.MULTILINE)
    shown = {
        (entry, f"{down} x {across}"): [cell.strip() for cell in rest.split("|")] for entry, down, across, rest in rows
    }
    assert set(shown) == {(row.entry, row.blocking) for row in KERNEL_COSTS}
    for row in KERNEL_COSTS:
        products, moves, loads, registers, accumulators, slot, *_ = shown[row.entry, row.blocking]
        assert products == "4"
        assert moves == ", ".join(str(step.moves) for step in row.steps)
        assert loads == str(row.steps[0].loads)
        assert (registers, accumulators, slot) == (str(row.registers), str(row.accumulators), row.deciding)
    tiles = re.findall(r"^\| `(matmul_\w+)` \| (\d+) x (\d+) x (\d+) \| ([\d,]+) \| ([\d,]+) \|", page, re.MULTILINE)
    assert len(tiles) >= 7
    for entry, *sizes, ideal, predicted in tiles:
        m, k, n = map(int, sizes)
        kernel = cost(entry, m, n)
        assert int(ideal.replace(",", "")) == ideal_cycles(entry, m, k, n)
        assert int(predicted.replace(",", "")) == round(kernel.cycles(m, k, n)[0])

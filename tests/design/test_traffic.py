"""What a design moves, counted by hand from the shapes that the real compiler took."""

from __future__ import annotations

from collections import Counter

import pytest

from elfkiln.design.reader import read_design
from elfkiln.design.traffic import traffic_of
from gemm_designs import Shape, panel_b8, panel_rm
from projects import CHECKOUT
from simulating import example

# The panel designs of docs: 17 groups of 80 K tiles on 8 columns.
TWIN = Shape(16, 5120, 17408, 1, 8, m=16, depths=(2, 4, 2, 1, 1))
PREFILL = Shape(128, 5120, 17408, 4, 8)


def by_argument(traffic):
    found: Counter[int] = Counter()
    for transfer in traffic.transfers:
        found[transfer.argument] += transfer.bytes
    return dict(found)


@pytest.mark.parametrize(("shape", "rows"), [(TWIN, 16), (PREFILL, 128)])
def test_bytes_of_each_argument(shape, rows):
    design = panel_b8(shape)
    assert by_argument(traffic_of(design, design.sequences[0])) == {
        # A comes anew with each of the 17 column groups, B and C move once.
        0: 17 * rows * 5120,
        1: 5120 * 17408,
        2: rows * 17408 * 4,
    }


def test_runs_are_those_of_the_taps():
    design = panel_b8(TWIN)
    runs: Counter[tuple[int, int]] = Counter()
    for transfer in traffic_of(design, design.sequences[0]).transfers:
        for length, count in transfer.runs:
            runs[transfer.argument, length] += count
    assert runs == {
        (0, 8): 17 * 16 * 5120 // 8,
        # A whole K panel is one run.
        (1, 128 * 5120): 17 * 8,
        (2, 32): 16 * 17408 * 4 // 32,
    }


def test_row_major_weights_come_in_runs_of_8_bytes():
    design = panel_rm(TWIN)
    weights = [one for one in traffic_of(design, design.sequences[0]).transfers if one.argument == 1]
    assert {length for one in weights for length, _ in one.runs} == {8}
    assert sum(one.short_runs(512) for one in weights) == 5120 * 17408 // 8


def test_tasks_and_calls():
    design = panel_b8(PREFILL)
    traffic = traffic_of(design, design.sequences[0])
    # 17 groups of 4 fills of A, 8 of B and 8 drains.
    assert traffic.tasks == 17 * 20
    calls = {one.kernel: (one.calls, one.cores) for one in traffic.calls}
    # Every one of 32 cores makes 17 tiles of C out of 80 pairs of tiles.
    assert sorted(calls.values()) == [(17, 32), (17 * 80, 32)]


def test_links_pass_bytes_on():
    design = panel_b8(PREFILL)
    carried = dict(traffic_of(design, design.sequences[0]).fifo_bytes)
    assert carried["B_3"] == carried["B_mem_3"] == 17 * 5120 * 128
    assert carried["C_3_2"] * 4 == carried["C_3"] == 17 * 128 * 128 * 4


def test_a_distribute_shares_out():
    text = (CHECKOUT / "tests/examples/long-runs/pb16i_16_four_rows.2026-08.generic.mlir").read_text()
    design = read_design(text)
    traffic = traffic_of(design, design.sequences[0])
    carried = dict(traffic.fifo_bytes)
    whole = {one.fifo: one.bytes for one in traffic.transfers if one.argument == 1}
    for link in design.links:
        if link.ins[0] in whole and len(link.outs) == 4:
            assert [carried[name] * 4 for name in link.outs] == [whole[link.ins[0]]] * 4


def test_a_design_that_copies_moves_what_it_copies():
    design = read_design(example("copy_one_core"))
    traffic = traffic_of(design, design.sequences[0])
    fills, drains = ([one for one in traffic.transfers if one.into_array is into] for into in (True, False))
    assert sum(one.bytes for one in fills) == sum(one.bytes for one in drains) > 0

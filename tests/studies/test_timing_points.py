"""The published points: that the model meets them as well as docs/performance.md says, and the counts by hand."""

from __future__ import annotations

import json

import pytest

from elfkiln.cli import main
from elfkiln.studies.timing_points import PAPER_GEMMS, contiguous_rate, points, root_mean_square, tile_tasks
from projects import CHECKOUT


def held_out(group):
    return [point for point in points() if point.group == group and not point.fitted]


def test_the_papers_eight_rows_are_met():
    rows = held_out("GEMM")
    assert len(rows) == 8
    assert all(abs(point.error) < 0.08 for point in rows)
    assert root_mean_square(rows) < 0.05


def test_measured_figures_are_the_papers():
    assert [gemm.tops for gemm in PAPER_GEMMS] == [37.35, 36.13, 30.77, 29.59, 24.74, 21.67, 14.52, 13.67, 17.86]


def test_tasks_of_the_published_decode_design():
    # 80 x 136 tiles of B, an eighth as many of A, one of C for each of 136 columns of tiles.
    assert tile_tasks(5120, 17408) == 80 * 136 + 80 * 17 + 136 == 12376
    assert 5120 * 17408 / contiguous_rate(5120, 17408) == pytest.approx(10.95e-3, rel=1e-3)


@pytest.mark.parametrize(("group", "most"), [("tasks", 0.03), ("runs", 0.07), ("streaming", 0.18)])
def test_other_published_groups(group, most):
    rows = held_out(group)
    assert len(rows) >= 4
    assert all(abs(point.error) < most for point in rows)


def test_the_verb_prints_every_residual(capsys):
    assert main(["predict", "--validate", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert len(table["points"]) == len(list(points()))
    assert table["rms"]["GEMM"] < 0.05
    assert main(["predict", "--validate"]) == 0
    out = capsys.readouterr().out
    assert out.count("held out") >= 20


def test_the_page_quotes_the_residuals():
    page = (CHECKOUT / "docs" / "performance.md").read_text()
    for point in points():
        assert (
            f"| {point.what} | {point.published:g} {point.unit} | {point.modelled:.2f} | {point.error:+.1%} |" in page
        )

"""What benchmarks/run.py makes of its figures: medians, spread, and README's table. Nothing is measured here."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from projects import CHECKOUT


@pytest.fixture
def run(monkeypatch, tmp_path):
    """The script as a module that writes below a folder."""
    spec = importlib.util.spec_from_file_location("benchmarks_run", CHECKOUT / "benchmarks" / "run.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmarks_run", module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(module, "README", tmp_path / "README.md")
    monkeypatch.setattr(module, "_names", lambda: ["first", "second"])
    return module


def test_ratios_are_of_pairs_and_the_spread_is_the_middle_half(run):
    # The first pair is thrown away; the ratios that stay are 1, 2, 3, 4 and 5.
    ours, theirs = iter([99.0, 1, 2, 3, 8, 5]), iter([1.0, 1, 1, 1, 2, 1])
    row = run.paired("first", "a", "b", lambda: next(ours), lambda: next(theirs), 5)
    assert (row.ratio, row.low, row.high, row.runs) == (3, 2, 4, 5)
    assert (row.subject_seconds, row.baseline_seconds) == (3, 1)


def test_readmes_table_is_written_from_the_rows_that_were_measured(run, monkeypatch):
    run.README.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n")
    monkeypatch.setattr(run, "machine", lambda: "2 x Chip, 8 GiB, load 1.0")
    run.write_readme([run.Row("second", "s", "t", 2.5, 1.25, 2.0, 1.9, 2.1, 5)])
    run.write_readme([run.Row("first", "a", "b", 0.03, 0.02, 1.5, 1.4, 1.6, 5)])
    # Measured anew.
    monkeypatch.setattr(run, "machine", lambda: "2 x Chip, 8 GiB, load 3.0")
    run.write_readme([run.Row("second", "s", "t", 5.0, 1.25, 4.0, 3.9, 4.1, 5)])
    assert run.README.read_text().splitlines() == [
        "before",
        run.BEGIN,
        "| subject | baseline | ratio (middle half) | seen |",
        "|-|-|-|-|",
        "| a | b | 1.50 (1.40 to 1.60) | 30 ms / 20 ms |",
        "| s | t | 4.00 (3.90 to 4.10) | 5.0 s / 1.2 s |",
        "",
        "Measured on 2 x Chip, 8 GiB, load 1.0 to 3.0.",
        run.END,
        "after",
    ]
    assert [row["machine"][-3:] for row in json.loads(run.RESULTS.read_text())] == ["1.0", "3.0"]


def test_readme_has_the_places_of_the_table(run):
    text = (CHECKOUT / "README.md").read_text()
    assert text.count(run.BEGIN) == text.count(run.END) == 1
    assert text.index(run.BEGIN) < text.index("| subject |") < text.index(run.END)


def test_the_machine_is_described(run):
    assert "Python 3." in run.machine()
    assert " GiB, Linux " in run.machine()

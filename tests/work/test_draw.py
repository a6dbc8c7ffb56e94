"""The picture of a design: well-formed, the same each time, and what it says counted from the design by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from elfkiln.cli import main
from elfkiln.design.reader import read_design
from elfkiln.errors import Refused
from elfkiln.work.draw import draw_design
from projects import CHECKOUT

EXAMPLE = CHECKOUT / "tests" / "examples" / "long-runs" / "b8_128_a_in_mem_tile.2026-08.generic.mlir"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture():
    return draw_design(read_design(EXAMPLE.read_text()), "example")


def test_it_is_svg_and_the_same_each_time(picture):
    root = ET.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert draw_design(read_design(EXAMPLE.read_text()), "example") == picture


def test_tiles_channels_and_memory(picture):
    root = ET.fromstring(picture)
    boxes = Counter(box.get("class") for box in root.iter(f"{SVG}rect"))
    # 8 columns of a shim, a mem tile and 4 cores, all used.
    assert boxes["tile"] == 48
    assert boxes["unused"] == 0
    texts = Counter(text.text for text in root.iter(f"{SVG}text"))
    # Stack 8 KiB, A 2 x 2, B 2 x 8, C 16 KiB.
    assert texts["44.0 of 64 KiB"] == 32
    # A, B and four parts of C come into the mem tiles of columns 0 to 3; A, B and C leave.
    assert texts["in 6/6, out 3/6, BD 28/48"] == 4
    assert texts["in 1/2, out 2/2"] == 4


def test_wires_are_the_fifos_ends(picture):
    root = ET.fromstring(picture)
    wires = Counter(path.get("class") for path in root.iter(f"{SVG}path"))
    # A: 4 into mem tiles, 32 to cores; B: 8 and 32; C: 32 from cores, 8 to shims.
    assert wires == {"wire l0": 36, "wire l1": 40, "wire l2": 40}


def test_taps_in_words(picture):
    texts = [text.text for text in ET.fromstring(picture).iter(f"{SVG}text")]
    assert "sizes [1, 10, 32, 512] strides [0, 512, 5120, 1]; runs of 512 B" in texts
    assert any(text.startswith("B: ") and "112 tasks" in text for text in texts if text)


def test_a_design_without_tasks_is_refused():
    design = read_design(EXAMPLE.read_text())
    with pytest.raises(Refused, match="expected a sequence with tasks"):
        draw_design(replace(design, sequences=()), "x")


def test_a_title_is_text_not_markup():
    text = draw_design(read_design(EXAMPLE.read_text()), "<script>&")
    assert "<script>" not in text
    ET.fromstring(text)


def test_the_verb(tmp_path, capsys):
    out = tmp_path / "d.svg"
    assert main(["draw", str(EXAMPLE), f"out={out}"]) == 0
    assert out.read_text().startswith("<svg")
    assert str(out) in capsys.readouterr().out
    assert main(["draw", "full_i8_QKV_K5120_N128_b8.elf"]) == 2
    assert "not registered for target" in capsys.readouterr().err

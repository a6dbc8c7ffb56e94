"""The GEMM a sequence computes is read from its taps and extents, never from a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elfkiln.design.gemm import Geometry, geometry_of
from elfkiln.design.model import MemRef
from elfkiln.design.reader import read_design
from elfkiln.families.family import render_sealed
from elfkiln.lint import lint
from gemm_designs import Shape, panel_b8, panel_rm, v27
from projects import CHECKOUT
from rendered import design_of, rendered_design
from simulating import example
from small_designs import with_sequence, with_task


def geometries(design):
    return [geometry_of(sequence, design) for sequence in design.sequences]


@pytest.mark.parametrize("generation", ["2026-04", "2026-08"])
def test_the_recorded_designs(generation):
    expected = {
        "copy_one_core": [None],
        "gemm_2x2": [Geometry(64, 128, 256, 8, True, 2, 2)],
        "panel_gemm": [Geometry(32, 256, 512, 8, True, 2, 2)],
        "sequences_rtp": [None, Geometry(16, 128, 256, 2, True, 2, 1), Geometry(16, 256, 512, 2, True, 2, 1)],
    }
    for name, found in expected.items():
        assert geometries(read_design(example(name, generation))) == found, name


@pytest.mark.parametrize(("tag", "lies"), [("", (8, False)), ("_b8", (8, True)), ("_pb16i", (2, True))])
@pytest.mark.parametrize(
    ("M", "K", "N", "columns", "rows"),
    [(128, 5120, 14336, 8, 4), (16, 17408, 5120, 8, 1), (128, 64, 640, 5, 4), (128, 256, 256, 2, 2)],
)
def test_rendered_designs(tag, lies, M, K, N, columns, rows):
    if M == 16 and tag == "_pb16i":
        rows = 4  # which share each tile of packed weights
    assert geometries(rendered_design(tag, M, K, N, columns)) == [Geometry(M, K, N, *lies, columns, rows)]


def test_a_rendered_sealed_design():
    generator = render_sealed(CHECKOUT, "_pb16i", [(5120, 14336), (6144, 5120)], 8)
    design = design_of(generator.text)
    assert geometries(design) == [
        None,
        Geometry(16, 5120, 14336, 2, True, 8, 4),
        Geometry(16, 6144, 5120, 2, True, 8, 4),
    ]


def test_one_task_per_tile():
    assert geometries(v27(Shape(64, 640, 256, 2, 2))) == [Geometry(64, 640, 256, 8, False, 2, 2)]


BASE = panel_b8(Shape(32, 256, 512, 2, 2, m=16))
ROW_MAJOR = panel_rm(Shape(32, 256, 512, 2, 2, m=16))


def arguments(*pairs):
    return tuple(MemRef((elements,), element) for elements, element in pairs)


@pytest.mark.parametrize(
    "design",
    [
        # The tiles of a column come in the order of another column, or one twice, or half of one, or misplaced.
        with_task(BASE, 2, offset=4 * 8192 - 8192),
        with_task(BASE, 2, sizes=(1, 1, 1, 28672), length=28672),
        with_task(BASE, 2, offset=64),
        with_task(
            BASE, 2, sizes=(1, 1, 4, 8192), strides=(0, 0, 16384, 1)
        ),  # ki-major tiles of a matrix of 256 columns
        with_task(ROW_MAJOR, 4, offset=64),
        with_task(ROW_MAJOR, 4, strides=(8 * 256, 8, 256, 1)),
        # Extents that are not M*K, K*N, M*N.
        with_sequence(BASE, arguments=arguments((8192, "i8"), (131072, "i8"), (16385, "i32"))),
        with_sequence(BASE, arguments=arguments((8192, "i8"), (131072, "i8"), (8192, "i32"))),
        with_sequence(BASE, arguments=arguments((8192, "i8"), (0, "i8"), (16384, "i32"))),
        # Types of no GEMM.
        with_sequence(BASE, arguments=arguments((8192, "i8"), (131072, "i8"), (16384, "i8"))),
        with_sequence(BASE, arguments=arguments((8192, "i16"), (131072, "i8"), (16384, "i32"))),
        with_sequence(BASE, arguments=arguments((8192, "i8"), (131072, "i8"))),
        # Rows of A or C that are not K or N apart, or no rows at all.
        with_task(BASE, 0, strides=(0, 8, 512, 1)),
        with_task(BASE, 4, strides=(8 * 256, 8, 256, 1)),
        with_task(BASE, 4, sizes=(), strides=()),
        # Weights of 4 bits, which no layout has.
        with_sequence(BASE, arguments=arguments((8192, "i8"), (65536, "i8"), (16384, "i32"))),
        # No weights at all.
        replace(BASE, sequences=(replace(BASE.sequences[0], steps=BASE.sequences[0].steps[:3]),)),
    ],
)
def test_what_is_no_gemm(design):
    assert geometries(design) == [None]


# Small designs of each kind of tap that families render, and the GEMM that each is.
RENDERED = {
    "b8": (("_b8", 128, 1024, 512, 4), Geometry(128, 1024, 512, 8, True, 4, 4)),
    "whole rows": (("_b8", 128, 512, 512, 4), Geometry(128, 512, 512, 8, True, 4, 4)),
    "rm": (("", 16, 512, 512, 4), Geometry(16, 512, 512, 8, False, 4, 1)),
    "shared": (("_pb16i", 16, 1024, 512, 4), Geometry(16, 1024, 512, 2, True, 4, 4)),
}
# One task of them moved to where it reads or writes something else. A group's tasks: A's panels, B's, C's.
WRONG = {
    "rows of A too far apart": ("b8", 1, {"strides": (0, 512, 2048, 1)}),
    "runs of A that overlap": ("b8", 1, {"strides": (0, 256, 1024, 1)}),
    "half the runs of A": ("b8", 1, {"sizes": (1, 1, 32, 512), "length": 16384}),
    "A from the second run on": ("b8", 1, {"offset": 32 * 1024 + 512}),
    "a panel of A twice": ("b8", 1, {"offset": 0}),
    "rows of C too far apart": ("b8", 9, {"strides": (0, 0, 1024, 1)}),
    "half a row of C": ("b8", 9, {"sizes": (1, 1, 256, 64)}),
    "C half a tile on": ("b8", 9, {"offset": 192}),
    "rows of A from the middle of one": ("whole rows", 1, {"offset": 32 * 512 - 256}),
    "rows of B too far apart": ("rm", 2, {"strides": (0, 8192, 1024, 1)}),
    "steps of B that overlap": ("rm", 2, {"strides": (0, 2048, 512, 1)}),
    "half the rows of B": ("rm", 2, {"sizes": (1, 32, 8, 128), "length": 32768}),
    "B half a tile on": ("rm", 2, {"offset": 192}),
    "half a tile's columns of B": ("rm", 2, {"sizes": (1, 128, 8, 64), "strides": (0, 4096, 512, 1)}),
    "parts of C that overlap": ("shared", 5, {"strides": (0, 16, 512, 1)}),
    "parts of C with gaps": ("shared", 5, {"strides": (0, 64, 512, 1)}),
    "parts of C over another column's": ("shared", 5, {"offset": 128}),
}


@pytest.mark.parametrize("kind", RENDERED)
def test_the_taps_that_are_rendered(kind):
    request, geometry = RENDERED[kind]
    assert geometries(rendered_design(*request)) == [geometry]


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_one_of_the_taps_that_are_rendered(what):
    kind, number, changes = WRONG[what]
    design = with_task(rendered_design(*RENDERED[kind][0]), number, **changes)
    assert geometries(design) == [None]
    # Lint tells of each, and of none where the taps are right (tests/families/test_every_model.py).
    assert {finding.rule for finding in lint(design)} & {"gemm-walk", "tap-range", "flow-total"}


def test_mixed_layouts_are_none():
    """A row-major tap of one column in a b8 design."""
    made = with_task(BASE, 2, sizes=(32, 16, 8, 8), strides=(8 * 512, 8, 512, 1), length=1024, repeat_count=31)
    assert geometries(made) == [None]
    assert geometries(BASE) == [Geometry(32, 256, 512, 8, True, 2, 2)]

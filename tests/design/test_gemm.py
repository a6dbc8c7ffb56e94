"""The GEMM a sequence computes is read from its taps and extents, never from a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elfkiln.design.gemm import Geometry, geometry_of
from elfkiln.design.model import MemRef
from elfkiln.design.reader import read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.families.family import DesignRequest, render, render_sealed
from gemm_designs import Shape, panel_b8, panel_rm, v27
from projects import CHECKOUT
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
def test_rendered_designs(tmp_path, tag, lies, M, K, N, columns, rows):
    generator = render(CHECKOUT, DesignRequest(K, N, M, tag, columns, rows))
    design = read_design(run_generator(generator.text, workdir=tmp_path))
    assert geometries(design) == [Geometry(M, K, N, *lies, columns, rows)]


def test_a_rendered_sealed_design(tmp_path):
    generator = render_sealed(CHECKOUT, "_pb16i", [(5120, 14336), (6144, 5120)], 8)
    design = read_design(run_generator(generator.text, workdir=tmp_path))
    assert geometries(design) == [
        None,
        Geometry(16, 5120, 14336, 2, True, 8, 1),
        Geometry(16, 6144, 5120, 2, True, 8, 1),
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
        # Extents that are no M*K, K*N, M*N.
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
        with_task(BASE, 0, sizes=(), strides=()),
        # Weights of 4 bits, which no layout has.
        with_sequence(BASE, arguments=arguments((8192, "i8"), (65536, "i8"), (16384, "i32"))),
        # No weights at all.
        replace(BASE, sequences=(replace(BASE.sequences[0], steps=BASE.sequences[0].steps[:3]),)),
    ],
)
def test_what_is_no_gemm(design):
    assert geometries(design) == [None]


def test_mixed_layouts_are_none():
    """A row-major tap of one column in a b8 design."""
    made = with_task(BASE, 2, sizes=(32, 16, 8, 8), strides=(8 * 512, 8, 512, 1), length=1024, repeat_count=31)
    assert geometries(made) == [None]
    assert geometries(BASE) == [Geometry(32, 256, 512, 8, True, 2, 2)]

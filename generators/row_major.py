"""Family row_major, no tag: int8 weights row by row, as the host has them; a mem tile blocks the tiles."""

from __future__ import annotations

from elfkiln.engine.contract import TILE_K, TILE_N

from .panel_gemm import INT8_MOST, MMUL, Dims, PanelFamily, Shape, Tap


def _b_tap(shape: Shape, tile_bytes: int) -> Tap:
    """Return the tap of a column panel: rows in runs of n bytes, 8 to a step: N up to 524,288 fits its field."""
    del tile_bytes
    sizes = (1, shape.K // MMUL, MMUL, shape.n)
    return Tap("B", 1, sizes, (0, MMUL * shape.N, shape.N, 1), last_offset=shape.N - shape.n)


def _b_blocks(shape: Shape, tile_bytes: int) -> Dims:
    del tile_bytes
    return (shape.k // MMUL, MMUL * shape.n), (shape.n // MMUL, MMUL), (MMUL, shape.n), (MMUL, 1)


FAMILY = PanelFamily(
    name="row_major",
    tag="",
    template="row_major.py.j2",
    stem="mm",
    source="mm_i8.cc",
    entry="matmul_i8_i32",
    tile_bytes=TILE_K * TILE_N,
    most_weight=INT8_MOST,
    b_tap=_b_tap,
    b_blocks=_b_blocks,
)

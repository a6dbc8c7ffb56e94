"""Family n1_blocked, tag _b8: int8 weights in 64 x 128 tiles of 8 KiB, a whole column panel in one linear task."""

from __future__ import annotations

from elfkiln.engine.contract import TILE_K, TILE_N

from .panel_gemm import INT8_MOST, PanelFamily

FAMILY = PanelFamily(
    name="n1_blocked",
    tag="_b8",
    template="n1_blocked.py.j2",
    stem="mm",
    source="mm_i8.cc",
    entry="matmul_i8_i32",
    tile_bytes=TILE_K * TILE_N,
    most_weight=INT8_MOST,
)

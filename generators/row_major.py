"""Family row_major, no tag: int8 weights row by row, as the host has them; the taps cut the tiles out."""

from __future__ import annotations

from elfkiln.engine.contract import TILE_K, TILE_N
from elfkiln.hardware.limits import SHIM

from .panel_gemm import INT8_MOST, MMUL, PanelFamily, Shape, Tap

TILES_A_TASK = SHIM.iterations * MMUL // TILE_K
"""K tiles one task can cut out of B: its iteration steps over blocks of 8 rows and counts to 64."""

TASKS_QUEUED = 3
"""Tasks of B that wait or run on one channel at once."""


def _b_tap(shape: Shape, tile_bytes: int) -> Tap:
    del tile_bytes
    blocks = min(TILES_A_TASK, shape.k_tiles) * (shape.k // MMUL)
    last_task = (shape.k_tiles - 1) // TILES_A_TASK * TILES_A_TASK * shape.k
    return Tap(
        "B",
        1,
        (blocks, shape.n // MMUL, MMUL, MMUL),
        (MMUL * shape.N, MMUL, shape.N, 1),
        last_offset=last_task * shape.N + shape.N - shape.n,
        queued=TASKS_QUEUED,
    )


FAMILY = PanelFamily(
    name="row_major",
    tag="",
    template="row_major.py.j2",
    stem="mm",
    source="mm_i8.cc",
    tile_bytes=TILE_K * TILE_N,
    most_weight=INT8_MOST,
    b_tap=_b_tap,
    values={"tiles_a_task": TILES_A_TASK, "tasks_queued": TASKS_QUEUED},
)

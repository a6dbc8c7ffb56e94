"""Family pb16i, tag _pb16i: ternary weights in 64 x 128 tiles of 2 KiB, which the cores expand as they multiply."""

from __future__ import annotations

from elfkiln.engine.contract import SHARED_COLUMNS, TILE_K, TILE_N

from .panel_gemm import Dims, PanelFamily, Shape

CODES_A_BYTE = 4
TERNARY_MOST = 1
GROUP_BYTES = TILE_K * SHARED_COLUMNS // CODES_A_BYTE


def _b_blocks(shape: Shape, tile_bytes: int) -> Dims:
    """Return how the tiles of an object are sent: what belongs to 32 columns together, over all of the object's K."""
    if shape.k == TILE_K:
        return ()
    return (shape.n // SHARED_COLUMNS, GROUP_BYTES), (shape.k // TILE_K, tile_bytes), (GROUP_BYTES, 1)


FAMILY = PanelFamily(
    name="pb16i",
    tag="_pb16i",
    template="pb16i.py.j2",
    sealed_template="pb16i_sealed.py.j2",
    stem="mm_pb16i",
    source="mm_pb16i.cc",
    entry="matmul_pb16i_i32",
    tile_bytes=TILE_K * TILE_N // CODES_A_BYTE,
    most_weight=TERNARY_MOST,
    b_blocks=_b_blocks,
    splits=True,
)

"""Family pb16i, tag _pb16i: ternary weights in 64 x 128 tiles of 2 KiB, which the cores expand as they multiply."""

from __future__ import annotations

from elfkiln.engine.contract import TILE_K, TILE_N

from .panel_gemm import PanelFamily

CODES_A_BYTE = 4
TERNARY_MOST = 1

FAMILY = PanelFamily(
    name="pb16i",
    tag="_pb16i",
    template="pb16i.py.j2",
    sealed_template="pb16i_sealed.py.j2",
    stem="mm_pb16i",
    source="mm_pb16i.cc",
    tile_bytes=TILE_K * TILE_N // CODES_A_BYTE,
    most_weight=TERNARY_MOST,
)

"""Constants of the model of time: how fast an XDNA2 array moves and multiplies, each with its kind and source.

Nobody measured these on the designs of this project. `docs/performance.md` says how the model uses them and how well
it meets the published points; what it yields is a prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["known", "measured", "fitted", "assumed"]


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: its value in `unit`, the range that sources leave open, what it is, and who says so.

    `kind` is `known` (stated by the maker or equal in every trace), `measured` (published, on this generation),
    `fitted` (the one free number of a published point) or `assumed` (nobody says so).
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    kind: Kind
    meaning: str
    source: str


def _row(name: str, value: float, spread: tuple[float, float] | None, unit: str, kind: Kind, rest: tuple[str, str]) -> Constant:
    low, high = spread or (value, value)
    return Constant(name, value, low, high, unit, kind, *rest)


_PAPER = "arXiv 2512.13282"
_HALO = "hipfire, 'Astra V9' (Strix Halo, 1.8 GHz)"
_B8 = "the engine's b8 pull request (Bonsai-2-27B, M=16)"

CONSTANTS: tuple[Constant, ...] = (
    _row("clock", 1.80e9, None, "Hz", "known", ("clock of the array in turbo mode", f"{_PAPER}; XRT's platform report")),
    _row("macs", 512, None, "MAC/cycle", "known", ("int8 products a core can add in a cycle", _PAPER)),
    _row("stream", 8, None, "B/cycle", "measured", ("what one stream inside the array carries", "KU Leuven, AIE2P; hipfire")),
    _row("channel", 11.8e9, None, "B/s", "measured", ("one shim DMA channel", _HALO)),
    _row("fabric-read", 53.7e9, None, "B/s", "measured", ("all columns reading, one channel each", _HALO)),
    _row("fabric-write", 54.2e9, None, "B/s", "measured", ("all columns writing", _HALO)),
    _row("fabric-both", 56.5e9, None, "B/s", "fitted", ("reads and writes of a running GEMM together", f"{_PAPER}, i8-i16 64x216x64")),
    _row("full-run", 512, None, "B", "known", ("a run of this length costs no extra time", f"{_PAPER}; shim burst of npu2")),
    _row("run", 1.5e-9, (1.0e-9, 4.0e-9), "s", "fitted",
         ("extra time of a shorter run, the whole array taken together", f"{_PAPER}, row-major B; {_B8}, stock")),
    _row("run-channel", 14e-9, (10.4e-9, 18.4e-9), "s", "fitted",
         ("extra time of a shorter run if one channel is the limit", f"{_B8}, stock")),
    _row("task", 0.885e-6, (0.7e-6, 1.7e-6), "s", "fitted",
         ("the controller's time for one task with token and await", f"{_B8}, G and U contiguous")),
    _row("launch", 0.55e-3, (0.49e-3, 0.90e-3), "s", "fitted", ("a launch outside its phases", f"{_B8}, totals")),
    _row("reload", 2.47e-3, None, "s", "measured", ("load_pdi of a PDI that is not the last one loaded", "1bit-MONSTER/engine docs/npu.md")),
    _row("lock", 80, None, "cycles", "assumed", ("acquire and release of one K tile's objects", "none")),
    _row("c-group", 0.3e-6, None, "s", "assumed", ("zeroing and handing over one tile of C", "none")),
    _row("c-shown", 0.5, (0.0, 1.0), "", "assumed", ("the part of C's fabric time that nothing hides", "none")),
)  # fmt: skip

_ROWS = {row.name: row for row in CONSTANTS}


def constant(name: str) -> Constant:
    """Return the row of a constant (`KeyError` if the table has none).

    >>> constant("fabric-read").value, constant("run").kind
    (53700000000.0, 'fitted')
    """
    return _ROWS[name]

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


_PAPER = "arXiv 2512.13282"
_HALO = "hipfire, 'Astra V9' (Strix Halo, 1.8 GHz)"
_B8 = "the engine's b8 pull request (Bonsai-2-27B, M=16)"

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        "clock",
        1.80e9,
        1.80e9,
        1.80e9,
        "Hz",
        "known",
        "clock of the array in turbo mode",
        f"{_PAPER}; XRT's platform report",
    ),
    Constant(
        "stream",
        8,
        8,
        8,
        "B/cycle",
        "measured",
        "what one stream inside the array carries",
        "KU Leuven on AIE2P; hipfire",
    ),
    Constant("channel", 11.8e9, 11.8e9, 11.8e9, "B/s", "measured", "one shim DMA channel", _HALO),
    Constant("fabric-read", 53.7e9, 53.7e9, 53.7e9, "B/s", "measured", "all columns reading, one channel each", _HALO),
    Constant("fabric-write", 54.2e9, 54.2e9, 54.2e9, "B/s", "measured", "all columns writing", _HALO),
    Constant(
        "fabric-both",
        56.5e9,
        56.5e9,
        56.5e9,
        "B/s",
        "fitted",
        "reads and writes of a running GEMM together",
        f"{_PAPER}, i8-i16 64x216x64",
    ),
    Constant(
        "full-run",
        512,
        512,
        512,
        "B",
        "known",
        "a run of this length costs no extra time",
        f"{_PAPER}; burst length of npu2's shim",
    ),
    Constant(
        "run",
        1.5e-9,
        1.0e-9,
        4.0e-9,
        "s",
        "fitted",
        "extra time of a shorter run, the whole array together",
        f"{_PAPER}, row-major B; {_B8}, stock",
    ),
    Constant(
        "run-channel",
        14e-9,
        10.4e-9,
        18.4e-9,
        "s",
        "fitted",
        "extra time of a shorter run if one channel is the limit",
        f"{_B8}, stock",
    ),
    Constant(
        "task",
        0.885e-6,
        0.7e-6,
        1.7e-6,
        "s",
        "fitted",
        "the controller's time for a task with token and await",
        f"{_B8}, G and U contiguous",
    ),
    Constant(
        "launch", 0.55e-3, 0.49e-3, 0.90e-3, "s", "fitted", "a launch, outside what its design takes", f"{_B8}, totals"
    ),
    Constant(
        "reload",
        2.47e-3,
        2.47e-3,
        2.47e-3,
        "s",
        "measured",
        "load_pdi of a PDI that is not the one loaded last",
        "1bit-MONSTER/engine docs/npu.md",
    ),
    Constant("lock", 80, 80, 80, "cycles", "assumed", "acquire and release of one K tile's objects", "no source"),
    Constant("c-group", 0.3e-6, 0.3e-6, 0.3e-6, "s", "assumed", "zeroing and handing over one tile of C", "no source"),
    Constant("c-shown", 0.5, 0.0, 1.0, "", "assumed", "the part of C's fabric time that nothing hides", "no source"),
)

_ROWS = {row.name: row for row in CONSTANTS}


def constant(name: str) -> Constant:
    """Return the row of a constant (`KeyError` if the table has none).

    >>> constant("fabric-read").value, constant("run").kind
    (53700000000.0, 'fitted')
    """
    return _ROWS[name]

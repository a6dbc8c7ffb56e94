"""Published points of XDNA2's time, held against the model: residuals, and which points were used to fit it.

The points are figures that others measured and published; the model is `work.predict`'s formula over them, with the
constants of `hardware.timing`. A point marked `fitted` gave a constant its value, so its residual says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from elfkiln.families.kernel_costs import block_cycles
from elfkiln.hardware.timing import constant

_PAPER = "arXiv 2512.13282, table 3 (Krackan, 1.8 GHz)"
_B8 = "the engine's b8 pull request (Bonsai-2-27B, M=16)"


@dataclass(frozen=True, slots=True)
class PaperGemm:
    """A GEMM of the paper on 4 x 8 cores: element types, tile, MAC/cycle of the array's cores, size, measured TOPS.

    `in_bytes` and `out_bytes` are bytes of an element of A and B, and of C.
    """

    types: str
    in_bytes: int
    out_bytes: int
    tile: tuple[int, int, int]
    macs: float
    size: tuple[int, int, int]
    tops: float
    fitted: bool = False


PAPER_GEMMS: tuple[PaperGemm, ...] = (
    PaperGemm("i8-i8", 1, 1, (144, 72, 144), 343.0, (4032, 4320, 4608), 37.35),
    PaperGemm("i8-i8", 1, 1, (160, 64, 144), 322.6, (4480, 4224, 4608), 36.13),
    PaperGemm("i8-i16", 1, 2, (128, 72, 112), 307.2, (4096, 4320, 4480), 30.77),
    PaperGemm("i8-i16", 1, 2, (160, 64, 96), 271.4, (4480, 4224, 4608), 29.59),
    PaperGemm("i8-i32", 1, 4, (96, 64, 96), 256.0, (4224, 4224, 4608), 24.74),
    PaperGemm("i8-i32", 1, 4, (128, 56, 80), 209.9, (4096, 4032, 4480), 21.67),
    PaperGemm("bf16", 2, 2, (112, 48, 96), 137.2, (4032, 4224, 4608), 14.52),
    PaperGemm("bf16", 2, 2, (160, 40, 80), 124.1, (4480, 4160, 4480), 13.67),
    PaperGemm("i8-i16", 1, 2, (64, 216, 64), 419.8, (4096, 4320, 4096), 17.86, fitted=True),
)
_ROWS, _COLUMNS = 4, 8


@dataclass(frozen=True, slots=True)
class Point:
    """One published figure beside what the model says, and whether the figure gave the model a constant."""

    group: str
    what: str
    unit: str
    published: float
    modelled: float
    fitted: bool
    source: str

    @property
    def error(self) -> float:
        """Modelled over published, minus 1."""
        return self.modelled / self.published - 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "group": self.group,
            "point": self.what,
            "unit": self.unit,
            "published": self.published,
            "modelled": self.modelled,
            "error": self.error,
            "fitted": self.fitted,
            "source": self.source,
        }


def paper_tops(gemm: PaperGemm) -> float:
    """Return the model's TOPS of one of the paper's GEMMs: the formula of `work.predict` with the paper's tiles.

    A is broadcast along rows and B down columns, C leaves in long runs, and no task's cost shows.
    """
    m, k, n = gemm.tile
    M, K, N = gemm.size
    clock = constant("clock").value
    stream = constant("stream").value * clock
    groups, steps = M / (_ROWS * m) * (N / (_COLUMNS * n)), K / k
    inputs = M * K * N * gemm.in_bytes * (1 / (n * _COLUMNS) + 1 / (m * _ROWS))
    outputs = M * N * gemm.out_bytes
    step = max(
        (m * k * n / gemm.macs + constant("lock").value) / clock,
        max(m, n) * k * gemm.in_bytes / stream,
        inputs / constant("fabric-read").value / (groups * steps),
    )
    stall = m * n * gemm.out_bytes / stream + constant("c-group").value
    shown = constant("c-shown").value * outputs / constant("fabric-write").value / groups
    seconds = max(groups * (steps * step + stall + shown), (inputs + outputs) / constant("fabric-both").value)
    return 2 * M * K * N / seconds / 1e12


# Phases of the published decode run at M = 16: name, K, N, contiguous and stock (row-major) GB/s of weights. The first
# phase gave `task` its value, and is one of the two that `run` rests on.
_PHASES = (
    ("G, U", 5120, 17408, 8.13, 3.32),
    ("D", 17408, 5120, 8.25, 3.19),
    ("QKV", 5120, 14336, 8.15, 3.35),
    ("O", 6144, 5120, 8.15, 3.19),
    ("Z", 5120, 6144, 8.36, 3.44),
)
_TILE_K, _TILE_N = 64, 128
_STOCK_RUN = 8
# Weights streamed, contiguous: GB/s. The 8 columns' fabric is all the model has to say of them.
_STREAMING = (
    ("int8 GEMV 4096x14336, Krackan", 52.1, "TileFuse, arXiv 2606.11357, table 1"),
    ("int8 GEMV 4096x14336, HX 370", 48.5, "TileFuse, arXiv 2606.11357, table 1"),
    ("int4 GEMV 4096x14336, Krackan", 53.9, "TileFuse, arXiv 2606.11357, table 1"),
    ("int4 GEMV 4096x14336, HX 370", 47.4, "TileFuse, arXiv 2606.11357, table 1"),
    ("llama3.1 8B, decode", 51.5, "FastFlowLM PR 602, 5 bits a weight counted"),
    ("Qwen3 8B, decode", 49.2, "FastFlowLM #713, 5 bits a weight counted"),
    ("llama3.2 1B, decode", 45.8, "FastFlowLM PR 602, 5 bits a weight counted"),
)
# GEMMs whose cores only pass data on: MB in, MB out, microseconds.
_MOVED = (
    ("4096x1280x2560, no compute", 35.4, 6.3, 860.0, "hipfire, 'Astra V9' (Strix Halo)"),
    ("down, no compute", 14.8, 10.5, 533.0, "hipfire, 'Astra V9' (Strix Halo)"),
)
# One core's int8 kernel: tile m x k x n, MAC/cycle. The first two gave `kernel_costs` its figures; the others were
# compiled by another compiler, which saves some 16 cycles a block.
_KERNELS = (
    ("Peano 64x64x48", (64, 64, 48), 202.5, True, "kernel traces, HX 370"),
    ("Peano 64x96x48", (64, 96, 48), 252.3, True, "kernel traces, HX 370"),
    ("xchesscc 48x280x48", (48, 280, 48), 384.0, False, "arXiv 2512.13282 (trace)"),
    ("xchesscc 128x56x80", (128, 56, 80), 209.9, False, _PAPER),
    ("xchesscc 96x64x96", (96, 64, 96), 256.0, False, _PAPER),
)


def tile_tasks(K: int, N: int) -> int:
    """Return the tasks of one launch of the published b8 design at M = 16: one for each 8 KiB tile of B.

    A tile of A serves the 8 columns, and C leaves once for each tile of columns.

    >>> tile_tasks(5120, 17408)
    12376
    """
    tiles = (K // _TILE_K) * (N // _TILE_N)
    return tiles + tiles // _COLUMNS + N // _TILE_N


def contiguous_rate(K: int, N: int) -> float:
    """Return the weight bytes a second of the published contiguous design: the controller's tasks decide."""
    return K * N / (tile_tasks(K, N) * constant("task").value)


def stock_rate(K: int, N: int) -> float:
    """Return the weight bytes a second of the stock row-major design: its tasks, and its 8-byte runs behind them."""
    runs = K * N // _STOCK_RUN
    return K * N / (tile_tasks(K, N) * constant("task").value + runs * constant("run").value)


def points() -> Iterator[Point]:
    """Yield every published point with what the model says of it."""
    for gemm in PAPER_GEMMS:
        tile, size = ("x".join(map(str, extents)) for extents in (gemm.tile, gemm.size))
        what = f"{gemm.types} {tile}, {size}"
        yield Point("GEMM", what, "TOPS", gemm.tops, paper_tops(gemm), gemm.fitted, _PAPER)
    for name, K, N, contiguous, stock in _PHASES:
        fitted = name == "G, U"
        yield Point("tasks", f"{name}, contiguous", "GB/s", contiguous, contiguous_rate(K, N) / 1e9, fitted, _B8)
        yield Point("runs", f"{name}, stock", "GB/s", stock, stock_rate(K, N) / 1e9, fitted, _B8)
    for name, rate, source in _STREAMING:
        yield Point("streaming", name, "GB/s", rate, constant("fabric-read").value / 1e9, False, source)
    for name, fills, drains, published, source in _MOVED:
        modelled = (fills + drains) * 1e6 / constant("fabric-both").value * 1e6
        yield Point("streaming", name, "us", published, modelled, False, source)
    for name, (m, k, n), published, fitted, source in _KERNELS:
        yield Point(
            "kernel", name, "MAC/cycle", published, m * k * n / block_cycles("matmul_i8_i32", m, k, n), fitted, source
        )


def root_mean_square(found: Iterable[Point]) -> float:
    """Return the root of the mean square of the errors of the points that fitted nothing; 0 when there are none."""
    errors = [point.error for point in found if not point.fitted]
    return (sum(error**2 for error in errors) / len(errors)) ** 0.5 if errors else 0.0

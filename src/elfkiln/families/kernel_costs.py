"""What the microkernels cost a core, in cycles a tile: the one table, by entry and rows, with kind and source.

Cycles of a tile are blocks * (base + step * K/8): a block is what one pass over K accumulates. No kernel of this
project was timed on a device; `fitted` rows rest on traces of upstream's kernel of the same shape, `assumed` ones on
counts of instruction slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class KernelCost:
    """A microkernel's cycles: a block is `block` (rows, columns) of C; (central, low, high) of base and of a K step."""

    entry: str
    rows: tuple[int, ...]
    block: tuple[int, int]
    base: tuple[float, float, float]
    step: tuple[float, float, float]
    kind: Literal["fitted", "assumed"]
    source: str


KERNEL_COSTS: tuple[KernelCost, ...] = (
    KernelCost(
        "matmul_i8_i32",
        (16, 32),
        (16, 16),
        (48, 32, 48),
        (4.1, 4.0, 6.9),
        "fitted",
        "traces of upstream's 2x2 kernel with Peano, 153 to 252 MAC/cycle (performance reports of 2026)",
    ),
    KernelCost(
        "matmul_pb16i_i32",
        (16,),
        (16, 16),
        (48, 32, 48),
        (12.0, 9.1, 17.2),
        "assumed",
        "mv slots of the expansion: 14 for 8 products in 2x2 blocks; 840 to 1,490 cycles a tile of 16 x 64 x 128",
    ),
    KernelCost(
        "matmul_pb16i_i32",
        (32,),
        (16, 16),
        (48, 32, 48),
        (11.0, 9.1, 15.6),
        "assumed",
        "mv slots of the expansion: 14 for 8 products in 2x2 blocks; 1,540 to 2,800 cycles a tile of 32 x 64 x 128",
    ),
)


def matmul_cycles(entry: str, m: int, k: int, n: int) -> tuple[float, float, float]:
    """Return (central, low, high) cycles of one call of a microkernel over an m x k x n tile.

    Raises `KeyError` with what the table has when the entry, or the entry at that many rows, is not in it.

    >>> [round(cycles) for cycles in matmul_cycles("matmul_i8_i32", 16, 64, 128)]
    [646, 512, 826]
    """
    for row in KERNEL_COSTS:
        if row.entry == entry and m in row.rows:
            return _cycles(row, m, k, n)
    known = ", ".join(f"{row.entry} at {'/'.join(map(str, row.rows))} rows" for row in KERNEL_COSTS)
    raise KeyError(f"no cycles are known of {entry} at {m} rows; the table has {known}")


def block_cycles(entry: str, m: int, k: int, n: int) -> float:
    """Return the central cycles of an entry's first row over a tile of any m, as published tiles have; `KeyError`."""
    return _cycles(next(row for row in KERNEL_COSTS if row.entry == entry), m, k, n)[0]


def _cycles(row: KernelCost, m: int, k: int, n: int) -> tuple[float, float, float]:
    blocks = (m / row.block[0]) * (n / row.block[1])
    central, low, high = (blocks * (base + step * k / 8) for base, step in zip(row.base, row.step, strict=True))
    return central, low, high

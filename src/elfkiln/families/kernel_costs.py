"""What the microkernels cost a core: slots of a step, live registers, cycles of a tile (docs/families.md shows them).

A core of AIE2P issues in one cycle at most one product of two 8 x 8 blocks (VMAC, vector slot), one operation of the
move slot (mask, difference, clamp), two loads and one store of 512 bits. A microkernel computes C pass by pass: a pass
keeps 4 blocks of C in the accumulators and goes down K in steps of 8. The slots are counted in the sources below
kernels/. Nothing was measured here: how far real code stays behind its slots is taken from published traces of
upstream's 2 x 2 int8 kernel with Peano, which has the slots of `mm_i8.cc`, and assumed to be alike for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

Cycles = tuple[float, float, float]
"""Central, low and high."""

PASS_CYCLES: Cycles = (48, 32, 48)
"""What a pass costs besides its steps: C's loads and stores, and the loop's beginning and end.

Fitted on two traces, 64x64x48 at 202.5 MAC/cycle and 64x96x48 at 252.3; low: what a slot count leaves.
"""

STEP_CYCLES: Cycles = (4.1 / 4, 4.0 / 4, 6.9 / 4)
"""Cycles for each cycle of a step's fullest slot: the same traces; high: the worst published tile, 153 MAC/cycle."""

MMUL = 8
"""Rows, columns and depth of a block (aie::mmul 8x8x8)."""

LOADS_A_CYCLE = 2


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of 8 along K takes of the slots, in a pass over 4 blocks of C."""

    products: int
    moves: int
    loads: int

    @property
    def cycles(self) -> int:
        """Cycles when everything overlaps: those of the fullest slot."""
        return max(self.products, self.moves, -(-self.loads // LOADS_A_CYCLE))


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One way an entry blocks its tile.

    `blocking` is rows x columns of blocks of C in a pass. The passes of `steps` together cover `rows` x `columns` of C;
    tiles are whole multiples of that. `registers` are the vector registers that a step keeps live with its constants,
    `accumulators` those of C. `deciding` is the slot that bounds it.
    """

    entry: str
    blocking: str
    rows: int
    columns: int
    steps: tuple[Step, ...]
    registers: int
    accumulators: int
    deciding: str
    source: str

    def cycles(self, m: int, k: int, n: int) -> Cycles:
        """Return the predicted cycles of one call."""
        # How often the passes of `steps` go over a tile.
        turns, passes = (m / self.rows) * (n / self.columns), len(self.steps)
        ideal = sum(step.cycles for step in self.steps) * k / MMUL
        central, low, high = (
            turns * (passes * base + factor * ideal) for base, factor in zip(PASS_CYCLES, STEP_CYCLES, strict=True)
        )
        return central, low, high


KERNEL_COSTS: tuple[KernelCost, ...] = (
    KernelCost("matmul_i8_i32", "2 x 2", 16, 16, (Step(4, 0, 4),), 8, 4, "vector", "kernels/mm_i8.cc"),
    KernelCost(
        "matmul_pb16i_i32",
        "4 x 1",
        32,
        32,
        (Step(4, 2, 5), Step(4, 4, 5), Step(4, 4, 5), Step(4, 4, 5)),
        11,
        4,
        "vector",
        "kernels/mm_pb16i.cc, m a multiple of 32",
    ),
    KernelCost(
        "matmul_pb16i_i32",
        "2 x 2",
        16,
        32,
        (Step(4, 6, 3), Step(4, 8, 3)),
        12,
        4,
        "move",
        "kernels/mm_pb16i.cc, any other m",
    ),
)
"""The first row of an entry whose rows and columns a tile is made of is the one that the entry takes."""


def cost(entry: str, m: int, n: int) -> KernelCost:
    """Return how an entry blocks a tile of m x n; raises `KeyError` for an entry or a tile that the table has not.

    >>> cost("matmul_pb16i_i32", 32, 128).blocking, cost("matmul_pb16i_i32", 16, 32).blocking
    ('4 x 1', '2 x 2')
    """
    for row in KERNEL_COSTS:
        if row.entry == entry and m > 0 and n > 0 and m % row.rows == 0 and n % row.columns == 0:
            return row
    known = ", ".join(f"{row.entry} in {row.rows} x {row.columns}" for row in KERNEL_COSTS)
    raise KeyError(f"no cycles are known of {entry} at {m} x {n}; the table has {known}")


def has_cost(entry: str, m: int, n: int) -> bool:
    """Return whether the table knows how an entry blocks a tile of m x n.

    >>> has_cost("matmul_i8_i32", 32, 128), has_cost("matmul_t2s_i32", 32, 128)
    (True, False)
    """
    return any(row.entry == entry and m % row.rows == 0 and n % row.columns == 0 for row in KERNEL_COSTS)


def matmul_cycles(entry: str, m: int, k: int, n: int) -> Cycles:
    """Return (central, low, high) cycles of one call of a microkernel over an m x k x n tile; `KeyError` as `cost`.

    >>> [round(cycles) for cycles in matmul_cycles("matmul_i8_i32", 16, 64, 128)]
    [646, 512, 826]
    """
    return cost(entry, m, n).cycles(m, k, n)


def block_cycles(entry: str, m: int, k: int, n: int) -> float:
    """Return the central cycles of an entry's first row over a tile of any size, as published ones have; `KeyError`."""
    row = next((row for row in KERNEL_COSTS if row.entry == entry), None)
    if row is None:
        raise KeyError(f"no cycles are known of {entry}")
    return row.cycles(m, k, n)[0]

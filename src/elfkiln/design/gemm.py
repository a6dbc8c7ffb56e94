"""The GEMM a sequence computes, read from the design alone: M, K, N, how the weights lie, columns and rows.

Nothing here trusts a name. K is the step between rows of A and N that between rows of C, extents come from the
arguments (A has M*K elements, C M*N), and how many bits a weight takes from the bytes of B. Whether weights are
contiguous is told by the tasks that bring them in. What their bits mean no design tells: of two layouts that lie alike
it cannot say which one it is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elfkiln.design.model import Design, Dim, Sequence, StartTask, Task
from elfkiln.design.patterns import TAP_DIMS, Pattern, pattern_of, task_dims
from elfkiln.engine.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, TILE_K, TILE_N, WEIGHT_LAYOUTS, weights_text
from elfkiln.engine.layouts import BLOCK

_ROWS_AT = TAP_DIMS - 2
"""Which dimension of a task of A or C steps from row to row; the last one walks along a row."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A GEMM: A is M x K int8, B is K x N weights, C is M x N int32, on `columns` x `rows` cores.

    A weight takes `weight_bits`; `contiguous` says that K panels come as linear runs, else row by row.
    """

    M: int
    K: int
    N: int
    weight_bits: int
    contiguous: bool
    columns: int
    rows: int

    @property
    def text(self) -> str:
        """M, K, N and the weights in words."""
        return f"M={self.M} K={self.K} N={self.N}, {weights_text(self.weight_bits, self.contiguous)}"


def geometry_of(sequence: Sequence, design: Design) -> Geometry | None:
    """Return the GEMM that a sequence of a design computes, or None when it is none that an artifact name can say.

    It is one when A is int8, C int32, B bytes, the extents agree, a weight takes the bits of a known layout, and every
    column gets whole K panels of B, tile by tile along K, all contiguous or all row by row.
    """
    if [argument.element for argument in sequence.arguments] not in (["i8", "i8", "i32"], ["i8", "ui8", "i32"]):
        return None
    K, N = _row_step(sequence, ARGUMENT_A), _row_step(sequence, ARGUMENT_C)
    if K < 1 or N < 1 or K % TILE_K or N % TILE_N:
        return None
    A, B, C = (argument.elements for argument in sequence.arguments)
    M, bits = A // K, B * 8 // (K * N)
    if M < 1 or A != M * K or C != M * N or bits * K * N != B * 8:
        return None
    if bits not in {layout.weight_bits for layout in WEIGHT_LAYOUTS}:
        return None
    panels = _panels(sequence, bits, K, N)
    kinds = {kind for found, _ in panels.values() for kind in found}
    if kinds not in ({True}, {False}) or not all(_in_order(tiles, K, N) for _, tiles in panels.values()):
        return None
    return Geometry(M, K, N, bits, True in kinds, len(panels), _rows(design, next(iter(panels))))


def _row_step(sequence: Sequence, argument: int) -> int:
    """Return the elements between rows of A or C that all tasks of it agree on, 0 when they do not."""
    taps = {
        task.strides[_ROWS_AT] if len(task.strides) == TAP_DIMS else 0
        for task in _started(sequence)
        if task.argument == argument
    }
    return taps.pop() if len(taps) == 1 else 0


def _started(sequence: Sequence) -> Iterator[Task]:
    return (sequence.tasks[step.task] for step in sequence.steps if isinstance(step, StartTask))


def _panels(sequence: Sequence, bits: int, K: int, N: int) -> dict[str, tuple[set[bool | None], list[tuple[int, int]]]]:
    """Return, for each FIFO that brings B in, how its tasks lie and the tiles (nt, ki) in the order they come.

    A task is contiguous (True), row by row (False), or no whole tiles of either (None).
    """
    panels: dict[str, tuple[set[bool | None], list[tuple[int, int]]]] = {}
    for task in _started(sequence):
        if task.argument != ARGUMENT_B:
            continue
        kinds, tiles = panels.setdefault(task.fifo, (set(), []))
        kind, found = _tiles(task, bits, K, N)
        kinds.add(kind)
        tiles.extend(found)
    return panels


def _tiles(task: Task, bits: int, K: int, N: int) -> tuple[bool | None, Iterator[tuple[int, int]]]:
    """Return how one task lies and the tiles it brings."""
    dims = task_dims(task)
    if isinstance(dims, str):
        return None, iter(())
    pattern = pattern_of(dims, task.offset, 1)
    tile_bytes = TILE_K * TILE_N * bits // 8
    count, rest = divmod(pattern.bytes, tile_bytes)
    if rest or not count:
        return None, iter(())
    k_tiles = K // TILE_K
    if not pattern.dims and pattern.offset % tile_bytes == 0:
        first = pattern.offset // tile_bytes
        return True, (divmod(first + n, k_tiles) for n in range(count))
    ki, at = divmod(pattern.offset, TILE_K * N)
    # Rows of weights that are no whole bytes are in no known layout.
    if bits == 8 and pattern == _row_major(pattern.offset, count, N) and at < N and at % TILE_N == 0:
        return False, ((at // TILE_N, ki + n) for n in range(count))
    return None, iter(())


def _row_major(offset: int, count: int, N: int) -> Pattern:
    """Return the pattern of `count` tiles along K of a row-major B, each as 8 x 8 blocks row by row."""
    blocks = Dim(count * TILE_K // BLOCK, BLOCK * N), Dim(TILE_N // BLOCK, BLOCK)
    return pattern_of((*blocks, Dim(BLOCK, N), Dim(BLOCK, 1)), offset, 1)


def _in_order(tiles: list[tuple[int, int]], K: int, N: int) -> bool:
    """Return whether tiles come as whole K panels: all K tiles of one column of tiles, then those of the next."""
    k_tiles = K // TILE_K
    return len(tiles) % k_tiles == 0 and all(
        ki == position % k_tiles and nt == tiles[position - ki][0] and nt < N // TILE_N
        for position, (nt, ki) in enumerate(tiles)
    )


def _rows(design: Design, fifo: str) -> int:
    """Return how many cores get what a FIFO brings in, through its link if it has one."""
    names = {fifo}
    for link in design.links:
        if fifo in link.ins:
            names.update(link.outs)
    return sum(tile.kind == "core" for one in design.fifos if one.name in names for tile in one.consumers)

"""The GEMM a sequence computes, read from the design alone: M, K, N, the weights' layout, columns and rows.

Nothing here trusts a name. Extents come from the arguments (A has M*K elements, B K*N, C M*N, so M*M = A*C/B), the
layout from the access patterns of the tasks that bring B in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from elfkiln.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, TILE_K, TILE_N
from elfkiln.design import Design, Dim, Sequence, StartTask, Task
from elfkiln.layouts import BLOCK, CODES_A_BYTE
from elfkiln.simulator.pattern import Pattern, pattern_of, task_dims


@dataclass(frozen=True, slots=True)
class Geometry:
    """A GEMM: A is M x K int8, B is K x N in `layout`, C is M x N int32, on `columns` x `rows` cores."""

    M: int
    K: int
    N: int
    layout: str
    columns: int
    rows: int


def geometry_of(sequence: Sequence, design: Design) -> Geometry | None:
    """Return the GEMM that a sequence of a design computes, or None when it is none that an artifact name can say.

    It is one when A is int8, C int32, B int8 (rm, b8) or packed bytes (pb16i), the extents agree, and every column
    gets whole K panels of B, tile by tile along K, in the order that the layout has.
    """
    if [argument.element for argument in sequence.arguments] not in (["i8", "i8", "i32"], ["i8", "ui8", "i32"]):
        return None
    packed = sequence.arguments[ARGUMENT_B].element == "ui8"
    extents = [argument.elements for argument in sequence.arguments]
    weights = extents[ARGUMENT_B] * (CODES_A_BYTE if packed else 1)
    M = isqrt(extents[ARGUMENT_A] * extents[ARGUMENT_C] // weights) if weights else 0
    if M < 1 or extents[ARGUMENT_A] % M or extents[ARGUMENT_C] % M:
        return None
    K, N = extents[ARGUMENT_A] // M, extents[ARGUMENT_C] // M
    if weights != K * N or K % TILE_K or N % TILE_N:
        return None
    panels = _panels(sequence, packed, K, N)
    layout = _layout(panels)
    if layout is None or not all(_in_order(tiles, K, N) for _, tiles in panels.values()):
        return None
    return Geometry(M, K, N, layout, len(panels), _rows(design, next(iter(panels))))


def _panels(sequence: Sequence, packed: bool, K: int, N: int) -> dict[str, tuple[set[str], list[tuple[int, int]]]]:
    """Return, for each FIFO that brings B in, the layouts of its tasks and the tiles (nt, ki) in the order they come.

    A task that is no whole tiles of a known layout gives the layout `""`.
    """
    panels: dict[str, tuple[set[str], list[tuple[int, int]]]] = {}
    for step in sequence.steps:
        if not isinstance(step, StartTask):
            continue
        task = sequence.tasks[step.task]
        if task.argument != ARGUMENT_B:
            continue
        layouts, tiles = panels.setdefault(task.fifo, (set(), []))
        layout, found = _tiles(task, packed, K, N)
        layouts.add(layout)
        tiles.extend(found)
    return panels


def _tiles(task: Task, packed: bool, K: int, N: int) -> tuple[str, Iterator[tuple[int, int]]]:
    """Return the layout of one task and the tiles it brings."""
    dims = task_dims(task)
    if isinstance(dims, str):
        return "", iter(())
    pattern = pattern_of(dims, task.offset, 1)
    tile_bytes = TILE_K * TILE_N // (CODES_A_BYTE if packed else 1)
    count, rest = divmod(pattern.bytes, tile_bytes)
    if rest or not count:
        return "", iter(())
    k_tiles = K // TILE_K
    if not pattern.dims and pattern.offset % tile_bytes == 0:
        first = pattern.offset // tile_bytes
        return "pb16i" if packed else "b8", (divmod(first + n, k_tiles) for n in range(count))
    ki, at = divmod(pattern.offset, TILE_K * N)
    if not packed and pattern == _row_major(pattern.offset, count, N) and at < N and at % TILE_N == 0:
        return "rm", ((at // TILE_N, ki + n) for n in range(count))
    return "", iter(())


def _row_major(offset: int, count: int, N: int) -> Pattern:
    """Return the pattern of `count` tiles along K of a row-major B, each as 8 x 8 blocks row by row."""
    blocks = Dim(count * TILE_K // BLOCK, BLOCK * N), Dim(TILE_N // BLOCK, BLOCK)
    return pattern_of((*blocks, Dim(BLOCK, N), Dim(BLOCK, 1)), offset, 1)


def _layout(panels: dict[str, tuple[set[str], list[tuple[int, int]]]]) -> str | None:
    """Return the one layout all tasks have, or None."""
    found = {layout for layouts, _ in panels.values() for layout in layouts}
    return found.pop() if len(found) == 1 and "" not in found else None


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

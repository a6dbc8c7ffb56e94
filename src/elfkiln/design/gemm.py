"""The GEMM that moves of data compute, read from them alone: M, K, N, how the weights lie, columns, groups.

Nothing here trusts a name, and a design's tasks and a full ELF's instruction stream are read by the same rules. K is
the step between rows of A (where whole rows come as one run, what the extents leave) and N that between rows of C;
extents say M and how many bits a weight takes; the tasks that bring the weights say whether they are contiguous
in. In which order a task walks what it covers of A and C is between it, the FIFOs' dims and the microkernel. What the
bits of weights mean no design tells: of two layouts that lie alike it cannot say which one it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from elfkiln.design.model import Design, Dim, Sequence, StartTask, Task
from elfkiln.design.patterns import Pattern, pattern_of, task_dims
from elfkiln.design.rectangles import Rectangle, follow_each_other, rectangle_of, row_panels
from elfkiln.engine.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, TILE_K, TILE_N, WEIGHT_LAYOUTS, weights_text
from elfkiln.engine.layouts import BLOCK
from elfkiln.errors import Differs, mismatch_line

_WORD = 4
"""Bytes of an element of C."""

_T = TypeVar("_T")


class Computes(Protocol):
    """What an artifact name can say of a GEMM: C[M, N] = A[M, K] @ B[K, N], with weights of `weight_bits` bits."""

    @property
    def M(self) -> int:
        """Rows of A and C."""

    @property
    def K(self) -> int:
        """Columns of A, rows of B."""

    @property
    def N(self) -> int:
        """Columns of B and C."""

    @property
    def weight_bits(self) -> int:
        """Bits a weight takes in B."""

    @property
    def contiguous(self) -> bool:
        """Whether K panels of B come as linear runs, else row by row."""


def gemm_text(gemm: Computes) -> str:
    """Return M, K, N and the weights in words."""
    return f"M={gemm.M} K={gemm.K} N={gemm.N}, {weights_text(gemm.weight_bits, gemm.contiguous)}"


@dataclass(frozen=True, slots=True)
class Geometry:
    """The GEMM of a design's sequence: int8 A, packed B, int32 C, on `columns` x `rows` cores."""

    M: int
    K: int
    N: int
    weight_bits: int
    contiguous: bool
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """The GEMM that moves compute; `columns` bring B in, and the array goes over C in row and column groups."""

    M: int
    K: int
    N: int
    weight_bits: int
    contiguous: bool
    columns: int
    column_groups: int
    row_groups: int


@dataclass(frozen=True, slots=True)
class Move:
    """One shim DMA task in bytes: the host argument it walks, by which lane (FIFO, or column and channel) and how."""

    argument: int
    lane: Hashable
    inward: bool
    pattern: Pattern


class NotAGemm(Differs):
    """Moves that are not a GEMM an artifact name can say; the text says what of them is not as it must be."""


def gemm_of(moves: Collection[Move], extents: tuple[int, int, int]) -> Gemm:
    """Return the GEMM that moves over A, B and C of these extents (bytes) compute.

    It is one when every task moves the right way, rows of A and of C lie K bytes and N words apart, extents agree, a
    weight takes the bits of a known layout, every lane brings whole row panels of A, all equally often, and whole K
    panels of B tile by tile along K, all contiguous or all row by row, and every element of C is written once. Raises
    `NotAGemm` naming the first that does not hold.
    """
    a, b, c = (_tasks(moves, argument) for argument in (ARGUMENT_A, ARGUMENT_B, ARGUMENT_C))
    N, rest = divmod(_one("bytes between rows of C", {_row_step(move.pattern) for move in c}), _WORD)
    A, B, C = extents
    steps = {_row_step(move.pattern) for move in a if move.pattern.dims}
    # Rows that are one run each leave no step when they follow each other.
    K = _one("bytes between rows of A", steps) if steps else A // max(C // max(N * _WORD, 1), 1)
    if K < 1 or N < 1 or rest or K % TILE_K or N % TILE_N:
        raise _not("K and N, by the rows of A and C", f"multiples of {TILE_K} and {TILE_N}", f"{K} and {N}")
    M = _whole("bytes of A over K", A, K)
    if C != M * N * _WORD:
        raise _not("bytes of C", f"{M} x {N} x {_WORD}", C)
    bits = B * 8 // (K * N)
    known = sorted({layout.weight_bits for layout in WEIGHT_LAYOUTS}, reverse=True)
    if bits not in known or bits * K * N != B * 8:
        raise _not("bytes of B", " or ".join(f"{K * N * width // 8:,}" for width in known), B)
    contiguous, columns = _panels(b, bits, K, N)
    if _moved(c) != C:
        raise _not("bytes drained to C", C, _moved(c))
    row_groups, column_groups = _whole("bytes of B moved", _moved(b), B), _whole("bytes of A moved", _moved(a), A)
    _check_rows(a, M, K)
    _check_cover(c, M, N)
    return Gemm(M, K, N, bits, contiguous, columns, column_groups, row_groups)


def geometry_of(sequence: Sequence, design: Design) -> Geometry | None:
    """Return the GEMM that a sequence of a design computes, or None when it is none that an artifact name can say."""
    if not are_operands([argument.element for argument in sequence.arguments]):
        return None
    try:
        gemm = _gemm_of_design(sequence, design)
    except NotAGemm:
        return None
    first = next(task for task in _started(sequence) if task.argument == ARGUMENT_B)
    rows = _rows(design, first.fifo)
    return Geometry(gemm.M, gemm.K, gemm.N, gemm.weight_bits, gemm.contiguous, gemm.columns, rows)


def are_operands(elements: Collection[str]) -> bool:
    """Return whether elements are those of int8 A, packed or int8 B, and int32 C."""
    return tuple(elements) in (("i8", "i8", "i32"), ("i8", "ui8", "i32"))


def why_no_gemm(sequence: Sequence, design: Design) -> str | None:
    """Return why the tasks of a sequence over A, B and C are not a GEMM's, None when they are."""
    try:
        _gemm_of_design(sequence, design)
    except NotAGemm as error:
        return str(error)
    return None


def _gemm_of_design(sequence: Sequence, design: Design) -> Gemm:
    A, B, C = (argument.bytes for argument in sequence.arguments)
    return gemm_of(list(_moves(sequence, design)), (A, B, C))


def _moves(sequence: Sequence, design: Design) -> Iterator[Move]:
    """Yield what the started tasks of a sequence move, in their order."""
    filled = {fifo.name for fifo in design.fifos if fifo.producer.kind == "shim"}
    for task in _started(sequence):
        dims = task_dims(task)
        if isinstance(dims, str):
            raise NotAGemm(f"task {task.number}: {dims}")
        if not 0 <= task.argument < len(sequence.arguments):
            raise NotAGemm(f"task {task.number}: it moves argument {task.argument} of {len(sequence.arguments)}")
        width = sequence.arguments[task.argument].element_bytes
        yield Move(task.argument, task.fifo, task.fifo in filled, pattern_of(dims, task.offset, width))


def _started(sequence: Sequence) -> Iterator[Task]:
    return (sequence.tasks[step.task] for step in sequence.steps if isinstance(step, StartTask))


def _tasks(moves: Iterable[Move], argument: int) -> list[Move]:
    tasks = [move for move in moves if move.argument == argument]
    inward = argument != ARGUMENT_C
    if not tasks or any(move.inward != inward for move in tasks):
        way = "fill the array from" if inward else "drain it to"
        found = f"{len(tasks)}, one of the other direction" if tasks else "none"
        raise _not("tasks", f"tasks that {way} argument {argument}", found)
    return tasks


def _row_step(pattern: Pattern) -> int:
    """Return the bytes between rows: runs lie side by side in a row, so the innermost loop steps from row to row."""
    return pattern.dims[-1][1] if pattern.dims else 0


def _moved(moves: Iterable[Move]) -> int:
    return sum(move.pattern.bytes for move in moves)


def _panels(moves: Iterable[Move], bits: int, K: int, N: int) -> tuple[bool, int]:
    """Return whether B comes contiguous, and by how many lanes; each must bring whole K panels."""
    kinds: set[bool | None] = set()
    lanes: dict[Hashable, list[tuple[int, int]]] = {}
    for move in moves:
        kind, tiles = _tiles(move.pattern, bits, K, N)
        kinds.add(kind)
        lanes.setdefault(move.lane, []).extend(tiles)
    words: Mapping[bool | None, str] = {True: "linear runs", False: "rows of 128 weights", None: "no whole tiles"}
    if kinds not in ({True}, {False}):
        found = " and ".join(sorted(words[kind] for kind in kinds))
        raise _not("tasks of B", f"{words[True]} of whole tiles, or {words[False]} in rows {N} bytes apart", found)
    for lane, brought in lanes.items():
        if not _in_order(brought, K, N):
            raise _not(f"tiles of B by {lane}", "whole K panels, tile by tile along K", "another order")
    return kinds.pop() is True, len(lanes)


def _tiles(pattern: Pattern, bits: int, K: int, N: int) -> tuple[bool | None, Iterator[tuple[int, int]]]:
    """Return how a task of B lies (True: contiguous, False: row by row) and the tiles (nt, ki) it brings."""
    tile_bytes = TILE_K * TILE_N * bits // 8
    count, rest = divmod(pattern.bytes, tile_bytes)
    if rest or not count:
        return None, iter(())
    k_tiles = K // TILE_K
    if not pattern.dims and pattern.offset % tile_bytes == 0:
        first = pattern.offset // tile_bytes
        return True, (divmod(first + n, k_tiles) for n in range(count))
    ki, at = divmod(pattern.offset, TILE_K * N)
    # Rows of weights that are not whole bytes are in no known layout.
    if bits == 8 and pattern in _row_major(pattern.offset, count, N) and at < N and at % TILE_N == 0:
        return False, ((at // TILE_N, ki + n) for n in range(count))
    return None, iter(())


def _row_major(offset: int, count: int, N: int) -> tuple[Pattern, Pattern]:
    """Return how `count` tiles along K of a row-major B may come: row by row, or each as 8 x 8 blocks row by row."""
    rows = Dim(count * TILE_K, N), Dim(TILE_N, 1)
    blocks = Dim(count * TILE_K // BLOCK, BLOCK * N), Dim(TILE_N // BLOCK, BLOCK), Dim(BLOCK, N), Dim(BLOCK, 1)
    return pattern_of(rows, offset, 1), pattern_of(blocks, offset, 1)


def _in_order(tiles: list[tuple[int, int]], K: int, N: int) -> bool:
    """Return whether tiles come as whole K panels: all K tiles of one column of tiles, then those of the next."""
    k_tiles = K // TILE_K
    return len(tiles) % k_tiles == 0 and all(
        ki == position % k_tiles and nt == tiles[position - ki][0] and nt < N // TILE_N
        for position, (nt, ki) in enumerate(tiles)
    )


def _check_rows(moves: Iterable[Move], M: int, K: int) -> None:
    """Check that each lane brings A in whole row panels, and that all of A comes equally often."""
    lanes: dict[Hashable, list[Rectangle]] = {}
    for move in moves:
        lanes.setdefault(move.lane, []).append(_rectangle(move, K))
    panels: Counter[tuple[int, int]] = Counter()
    for lane, parts in lanes.items():
        found = row_panels(parts, K)
        if found is None:
            raise _not(f"tasks of A by {lane}", f"whole row panels, {K} bytes of each row in turn", "another order")
        panels.update(found)
    if not follow_each_other(panels, M) or len(set(panels.values())) != 1:
        raise _not("row panels of A", f"each of {M} rows equally often", dict(sorted(panels.items())))


def _check_cover(moves: Iterable[Move], M: int, N: int) -> None:
    """Check that the tasks of C are rectangles that cover it once: bands of rows, each cut into columns."""
    bands: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for move in moves:
        part = _rectangle(move, N * _WORD)
        bands.setdefault((part.row, part.rows), []).append((part.at // _WORD, part.width // _WORD))
    if not follow_each_other(bands, M):
        raise _not("rows of C's tasks", f"each of {M} rows once", sorted(bands))
    for (row, _), parts in bands.items():
        if not follow_each_other(parts, N):
            raise _not(f"columns of C from row {row}", f"each of {N} once", sorted(parts))


def _rectangle(move: Move, pitch: int) -> Rectangle:
    """Return what a task covers of a matrix whose rows are `pitch` bytes long; raises `NotAGemm` when no rectangle."""
    part = rectangle_of(move.pattern, pitch)
    if part is None:
        loops = " ".join(f"{size} x {stride}" for size, stride in move.pattern.dims)
        letter = {ARGUMENT_A: "A", ARGUMENT_C: "C"}[move.argument]
        raise _not(
            f"task of {letter}", f"a rectangle of rows {pitch} bytes apart", f"runs of {move.pattern.run}, {loops}"
        )
    return part


def _rows(design: Design, fifo: str) -> int:
    """Return how many cores get what a FIFO brings in, through its link if it has one."""
    names = {fifo}
    for link in design.links:
        if fifo in link.ins:
            names.update(link.outs)
    return sum(tile.kind == "core" for one in design.fifos if one.name in names for tile in one.consumers)


def _one(what: str, values: set[_T]) -> _T:
    if len(values) != 1:
        raise _not(what, "one value", sorted(map(str, values)))
    return values.pop()


def _whole(what: str, number: int, part: int) -> int:
    if part < 1 or number % part or not number:
        raise _not(what, f"a multiple of {part}", number)
    return number // part


def _not(what: str, expected: object, found: object) -> NotAGemm:
    return NotAGemm(mismatch_line(what, expected=expected, found=found))

"""What the families share: an int8 GEMM on rows x columns of cores that moves whole K panels, one shim task each.

A family says how its weights come in; sizes, access patterns and rules are worked out here, so that every family
refuses an illegal geometry in the same words, before anything is rendered. docs/families.md has the rules as a table;
where lint has a rule for the same thing, the refusal bears its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd, prod

from elfkiln.engine.contract import (
    DECODE_M,
    MAX_ROWS,
    SHARED_COLUMNS,
    TILE_K,
    TILE_M,
    TILE_N,
    layout_of_tag,
)
from elfkiln.engine.legality import check_geometry
from elfkiln.errors import Refused, refusal
from elfkiln.families.family import DesignRequest, KernelObject, Program
from elfkiln.families.kernel_costs import has_cost, matmul_cycles
from elfkiln.hardware.limits import CORE, I32_LIMIT, MEM, SHIM, WORD_BYTES, TileLimits, limit
from elfkiln.hardware.timing import constant

A_MEM_DEPTH, A_DEPTH, B_MEM_DEPTH, B_DEPTH, C_PART_DEPTH, C_DEPTH = 2, 2, 4, 2, 1, 2
"""FIFO depths: A, then B, into the mem tile and to cores, C core to mem tile, C mem tile to shim.

The objects of a link lie in its mem tile once. A join of several rows keeps C_DEPTH whole columns there; with one row
the link is one to one, and what it keeps is what the core's FIFO says: C_PART_DEPTH. C_DEPTH has no effect then.
"""

SPLIT_B_MEM_DEPTH = 2
"""B_MEM_DEPTH where rows share a tile of weights: each part of each object takes a descriptor in and one out, and with
three the even channels' 24 are exceeded."""

STACK = 0x2000
"""Bytes of a core's stack: a multiple of 64, so that the buffers above it stay fit for 64-byte vector loads."""

SPARE = 1024
"""Bytes of a core that a deeper tile leaves free: for the microkernel's constants and what aiecc keeps of FIFOs."""

K_CHOICES = (TILE_K, 2 * TILE_K, 4 * TILE_K)
"""Depths of a K tile to choose from, the layout's own first."""

WORTH = 0.01
"""By how much the predicted time must fall for a deeper K tile: it takes memory, and the prediction is no better."""

MAX_M = 4096
"""The most rows that are known to have passed the real compiler; the instruction stream grows with them."""

GROUPS_QUEUED = 2
"""Groups whose tasks are queued at once: one runs, the next waits behind it."""

MMUL = 8
"""Rows and columns of the microkernel's blocks (aie::mmul 8x8x8)."""

LONG_RUN = int(constant("full-run").value)
"""Bytes from which a run of memory costs nothing of its own."""

LEAST_RUN = limit("short-run", "shim").value
"""Bytes below which no run of a design may be."""

C_BYTES = 4
INT8_MOST = 128

Dims = tuple[tuple[int, int], ...]
"""Sizes and strides of a FIFO's end in elements, outermost first, as the dialect writes them."""


@dataclass(frozen=True, slots=True)
class Tap:
    """The access pattern of one kind of shim task, in elements of its buffer, outermost dimension first.

    The outermost dimension is the iteration: it repeats the other three. `last_offset` is where the furthest of these
    tasks begins, `queued` how many of them wait or run on one channel at once.
    """

    buffer: str
    element_bytes: int
    sizes: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    last_offset: int
    queued: int = GROUPS_QUEUED

    @property
    def linear(self) -> bool:
        """Whether it is one run of memory; the size fields of the descriptor do not bound that."""
        return self.sizes[:3] == (1, 1, 1)

    @property
    def run(self) -> int:
        """Bytes of the runs of memory that the innermost dimension makes."""
        return self.sizes[3] * self.element_bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a design: the GEMM, its tiles, and the rows and columns of cores.

    `split` says that the rows share a tile of weights and of C by columns, and A; else each row has its own m rows of
    A and C. `a_run` are the bytes of a row of A that come together: through a mem tile where they are more than a K
    tile of 64, else straight to the cores.
    """

    K: int
    N: int
    M: int
    m: int
    rows: int
    columns: int
    k: int = TILE_K
    n: int = TILE_N
    split: bool = False
    a_run: int = TILE_K

    @property
    def k_tiles(self) -> int:
        """Tiles along K."""
        return self.K // self.k

    @property
    def n_tiles(self) -> int:
        """Tiles along N."""
        return self.N // self.n

    @property
    def part(self) -> int:
        """Columns of a tile of C that one core makes."""
        return self.n // self.rows if self.split else self.n

    @property
    def panels(self) -> int:
        """Row panels of A, m x K, that a group takes."""
        return 1 if self.split else self.rows

    @property
    def groups(self) -> int:
        """Groups: tiles of C on every core, one behind the other."""
        return self.M // (self.panels * self.m) * (self.n_tiles // self.columns)

    @property
    def a_mem(self) -> bool:
        """Whether A goes through a mem tile."""
        return self.a_run > TILE_K

    def a_tap(self) -> Tap:
        """Return the tap of a row panel of A, m x K: `a_run` columns of its rows, then the next ones."""
        sizes = (1, self.K // self.a_run, self.m, self.a_run)
        return Tap("A", 1, sizes, (0, self.a_run, self.K, 1), last_offset=(self.M - self.m) * self.K)

    def c_tap(self) -> Tap:
        """Return the tap of a column's block of C: the rows of its cores in runs of what a core makes of one."""
        down = self.panels * self.m
        sizes = (1, self.rows, self.m, self.part) if self.split else (1, 1, down, self.n)
        strides = (0, self.part, self.N, 1) if self.split else (0, 0, self.N, 1)
        return Tap("C", C_BYTES, sizes, strides, last_offset=(self.M - down) * self.N + self.N - self.n)

    def a_blocks(self) -> Dims:
        """Return the dims that block A: of the mem tile's stream, or of the cores' where it does not pass one."""
        if self.a_mem:
            return ((self.a_run // MMUL, MMUL), (self.m, self.a_run), (MMUL, 1))
        return ((self.m, MMUL), (self.k // MMUL, MMUL * self.m), (MMUL, 1))

    def c_rows(self) -> Dims:
        """Return the dims of the mem tile's stream that bring a core's blocks of C, m x `part`, back into rows."""
        return (
            (self.m // MMUL, MMUL * self.part),
            (MMUL, MMUL),
            (self.part // MMUL, MMUL * MMUL),
            (MMUL, 1),
        )


def linear_panel_tap(shape: Shape, tile_bytes: int) -> Tap:
    """Return the tap of a column panel of B that is one run of memory: its K tiles, one behind the other."""
    panel = shape.K // TILE_K * tile_bytes
    return Tap("B", 1, (1, 1, 1, panel), (0, 0, 0, 1), last_offset=(shape.n_tiles - 1) * panel)


def as_it_lies(shape: Shape, tile_bytes: int) -> Dims:
    """Return no dims: the tiles of B come in the order of the microkernel already."""
    del shape, tile_bytes
    return ()


@dataclass(frozen=True, slots=True)
class PanelFamily:
    """A family of panel-task GEMMs.

    `stem` and `source` name the microkernel's object and its file below kernels/, `entry` is what its cores call;
    `tile_bytes` are those of a 64 x 128 tile of weights, `most_weight` is the largest magnitude of a weight, `b_tap`
    the tap that brings weights in and `b_blocks` the dims by which a mem tile puts an object of them in the
    microkernel's order. `splits` says that at M = 16 the rows of cores share each tile of weights. `values` are
    further values of the template. `sealed_template` is empty for a family without a sealed form.
    """

    name: str
    tag: str
    template: str
    stem: str
    source: str
    entry: str
    tile_bytes: int
    most_weight: int
    b_tap: Callable[[Shape, int], Tap] = linear_panel_tap
    b_blocks: Callable[[Shape, int], Dims] = as_it_lies
    splits: bool = False
    values: Mapping[str, object] = field(default_factory=dict)
    sealed_template: str = ""

    def program(self, request: DesignRequest) -> Program:
        """Return the program of one design; raises `Refused` naming the rule an illegal request breaks."""
        shape = self.shape(request)
        return self._program(self.template, shape, {"M": shape.M, "K": shape.K, "N": shape.N})

    def sealed(self, geometries: Sequence[tuple[int, int]], columns: int) -> Program:
        """Return the program that carries every geometry (K, N), each once and sorted, at M = 16.

        All share the rows that the columns allow, K tiles of 64, and the longest runs of A that divide every K. Raises
        `Refused` when the family has no such form, when there is no geometry, and for one that is not legal.
        """
        if not self.sealed_template:
            raise Refused(f"{self.name}: no sealed program is defined for tag {self.tag!r}; build its twins one by one")
        shapes = {}
        for geometry in geometries:
            if not isinstance(geometry, tuple) or len(geometry) != 2:
                raise refusal(f"{self.name} sealed: geometry", expected="a pair (K, N)", found=geometry)
            shapes[geometry] = self.shape(DesignRequest(*geometry, DECODE_M, self.tag, columns))
        if not shapes:
            raise refusal(f"{self.name} sealed: geometries", expected="at least one pair (K, N)", found="none")
        a_run = longest_run(reduce(gcd, (K for K, _ in shapes)), TILE_K)
        for shape in shapes.values():
            _check_numbers(f"{self.name} sealed {shape.K}x{shape.N}", replace(shape, k=TILE_K, a_run=a_run), self)
        first = replace(next(iter(shapes.values())), k=TILE_K, a_run=a_run)
        return self._program(self.sealed_template, first, {"geometries": sorted(shapes)})

    def _program(self, template: str, shape: Shape, own: Mapping[str, object]) -> Program:
        object_name = f"{self.stem}_{shape.m}x{shape.k}x{shape.part}.o"
        defines = {"DIM_M": str(shape.m), "DIM_K": str(shape.k), "DIM_N": str(shape.part)}
        notes = self.notes(shape)
        blocked = bool(self.b_blocks(shape, self.tile_bytes))
        values = {
            "family": self.name,
            "layout": layout_of_tag(self.tag),
            "notes": notes,
            "rows": shape.rows,
            "columns": shape.columns,
            "m": shape.m,
            "k": shape.k,
            "n": shape.n,
            "split": shape.split,
            "a_run": shape.a_run,
            "a_mem": shape.a_mem,
            "a_fill": "a_mem" if shape.a_mem else "a_in",
            "a_depths": (A_MEM_DEPTH, A_DEPTH),
            "b_depths": (self.b_mem_depth(shape), B_DEPTH),
            "c_depths": (C_PART_DEPTH, C_DEPTH),
            "b_dims": ", dimensionsToStream=B_BLOCKS" if blocked else "",
            "b_way": " (blocked there)" if blocked else "",
            "entry": self.entry,
            "tile_bytes": self.tile_bytes,
            "object_name": object_name,
            "stack": STACK,
            **self.values,
            **own,
        }
        return Program(template, values, (KernelObject(object_name, self.source, defines),), notes)

    def notes(self, shape: Shape) -> tuple[str, ...]:
        """Return what the design does not do as its family would wish, and the rule that forbids it."""
        notes = []
        if self.splits and shape.M == DECODE_M and shape.rows < MAX_ROWS:
            most = max(rows for rows in _sharing_rows() if rows <= shape.columns)
            why = "as asked for" if shape.rows < most else f"rule rows <= columns, of which there are {shape.columns}"
            notes.append(f"It runs on {shape.rows} of {MAX_ROWS} rows of cores: {why}.")
        if not shape.a_mem:
            notes.append(
                f"A comes in runs of {shape.a_run} bytes: none of up to {LONG_RUN} in whole K tiles divides K."
            )
        return tuple(notes)

    def shape(self, request: DesignRequest) -> Shape:
        """Return the sizes of a design after checking every rule; raises `Refused` naming the rule and the numbers.

        The K tile is the least of 64, 128 and 256 whose predicted time is within 1 % of the best of those that divide K
        and fit; 64 where rows share a tile, and for a microkernel that the table of cycles does not have.
        """
        for name in ("M", "K", "N", "columns"):
            _check_whole(f"{self.name}: {name}", getattr(request, name))
        K, N, M = request.K, request.N, request.M
        where = f"{self.name} {M}x{K}x{N}"
        check_geometry(where, K, N, request.columns)
        m = DECODE_M if M == DECODE_M else TILE_M
        rows, split = self._rows(where, request, m)
        shallow = Shape(K, N, M, m, rows, request.columns, split=split, a_run=longest_run(K, TILE_K))
        _check_numbers(where, shallow, self)
        # A part of a tile of weights is one run of memory only where the tile is the layout's own, and of a microkernel
        # whose cycles nobody has counted the model has nothing to say.
        if split or not has_cost(self.entry, m, TILE_N):
            return shallow
        shapes = [replace(shallow, k=k, a_run=longest_run(K, k)) for k in K_CHOICES if K % k == 0]
        fitting = [shape for shape in shapes if shape.k == TILE_K or self._fits(shape)]
        best = min(map(self.seconds, fitting))
        return next(shape for shape in fitting if self.seconds(shape) <= best * (1 + WORTH))

    def _fits(self, shape: Shape) -> bool:
        if self.memory(shape)[0] > CORE.memory - SPARE:
            return False
        try:
            _check_numbers("", shape, self)
        except Refused:
            return False
        return True

    def _rows(self, where: str, request: DesignRequest, m: int) -> tuple[int, bool]:
        """Return the rows of cores, and whether they share each tile of weights."""
        shares = self.splits and request.M == DECODE_M
        if shares:
            found = _sharing_rows()
            rule = f"n % (rows*{SHARED_COLUMNS}) == 0 with n = {TILE_N}"
        else:
            found = [rows for rows in range(1, MAX_ROWS + 1) if request.M % (rows * m) == 0]
            rule = f"M % (rows*m) == 0 with M = {request.M}, m = {m}"
        rows = _legal_rows(where, request, found, rule)
        return rows, shares and rows > 1

    def taps(self, shape: Shape) -> tuple[Tap, Tap, Tap]:
        """Return the taps of A, B and C."""
        return shape.a_tap(), self.b_tap(shape, self.tile_bytes), shape.c_tap()

    def b_mem_depth(self, shape: Shape) -> int:
        """Return the tiles of B that wait in a mem tile."""
        return SPLIT_B_MEM_DEPTH if shape.split else B_MEM_DEPTH

    def b_object(self, shape: Shape) -> int:
        """Return the bytes of a k x n tile of weights."""
        return shape.k // TILE_K * self.tile_bytes

    def memory(self, shape: Shape) -> tuple[int, int]:
        """Return the bytes of stack and FIFO objects in a core, and those of FIFO objects in the fullest mem tile.

        A sealed program's cores have its counts besides, 64 bytes.
        """
        c_tile = shape.m * shape.part * C_BYTES
        b_tile = self.b_object(shape)
        b_part = b_tile // shape.rows if shape.split else b_tile
        core = STACK + A_DEPTH * shape.m * shape.k + B_DEPTH * b_part + C_PART_DEPTH * c_tile
        a_in_mem = A_MEM_DEPTH * shape.m * shape.a_run if shape.a_mem else 0
        c_in_mem = C_DEPTH * shape.rows if shape.rows > 1 else C_PART_DEPTH
        return core, a_in_mem + self.b_mem_depth(shape) * b_tile + c_in_mem * c_tile

    def seconds(self, shape: Shape) -> float:
        """Return the predicted time of a launch without what starting it takes (docs/performance.md).

        For each K tile the slowest of core, streams, channels and fabric, for each group what C costs besides; but no
        less than the controller's time for all tasks, or the fabric's for all bytes.
        """
        clock, stream = constant("clock").value, constant("stream").value
        a_tile, b_tile = shape.m * shape.k, self.b_object(shape)
        b_part = b_tile // shape.rows if shape.split else b_tile
        core = (matmul_cycles(self.entry, shape.m, shape.k, shape.part)[0] + constant("lock").value) / clock
        streams = max(a_tile, b_part) / stream / clock
        channel = max(a_tile, b_tile) / constant("channel").value
        a, b, c = self.taps(shape)
        a_bytes, b_bytes = shape.panels * a_tile, shape.columns * b_tile
        fabric = (a_bytes + b_bytes) / constant("fabric-read").value + _short_runs(a, a_bytes) + _short_runs(b, b_bytes)
        c_tile = shape.m * shape.part * C_BYTES
        c_bytes = shape.columns * shape.rows * c_tile
        stall = c_tile / stream / clock + constant("c-group").value
        written = c_bytes / constant("fabric-write").value + _short_runs(c, c_bytes)
        group = shape.k_tiles * max(core, streams, channel, fabric) + stall + constant("c-shown").value * written
        tasks = shape.groups * (shape.panels + 2 * shape.columns)
        moved = shape.groups * (shape.k_tiles * (a_bytes + b_bytes) + c_bytes)
        least = max(tasks * constant("task").value, moved / constant("fabric-both").value)
        return max(least, shape.groups * group)


def longest_run(K: int, k: int) -> int:
    """Return the bytes of a row of A to bring together: the most up to 512 that are whole K tiles and divide K.

    >>> [longest_run(K, 64) for K in (5120, 768, 704, 64)], longest_run(640, 128)
    ([512, 384, 64, 64], 128)
    """
    return max(run for run in range(k, LONG_RUN + 1, k) if K % run == 0)


def _short_runs(tap: Tap, moved: int) -> float:
    """Return what the runs of a tap cost beside their bytes, of which it moves `moved`: nothing when they are long."""
    if tap.linear or tap.run >= LONG_RUN:
        return 0.0
    return moved / tap.run * constant("run").value


def _sharing_rows() -> list[int]:
    """Return the rows of cores that can share a tile of weights by whole groups of columns."""
    return [rows for rows in range(1, MAX_ROWS + 1) if TILE_N % (rows * SHARED_COLUMNS) == 0]


def _check_whole(what: str, value: object) -> None:
    # bool is an int, and a number of thousands of digits cannot be printed.
    if type(value) is not int:
        raise refusal(what, expected="a whole number", found=f"{value!r} ({type(value).__name__})")
    if not 0 < value <= I32_LIMIT:
        found = value if value.bit_length() < 64 else f"a number of {value.bit_length()} bits"
        raise refusal(what, expected=f"a whole number in 1..{I32_LIMIT}", found=found)


def _legal_rows(where: str, request: DesignRequest, found: list[int], rule: str) -> int:
    """Return the rows asked for, or the most of `found` that fit, by the rules every family shares."""
    M, columns = request.M, request.columns
    if M > MAX_M:
        raise refusal(f"{where}: M", expected=f"at most {MAX_M} (rule M <= {MAX_M})", found=M)
    legal = [rows for rows in found if rows <= columns]
    if not legal:
        expected = f"{DECODE_M}, or a multiple of {TILE_M} (rule M % (rows*m) == 0)"
        raise refusal(f"{where}: M", expected=expected, found=M)
    rows = request.rows
    if rows is None:
        return legal[-1]
    _check_whole(f"{where}: rows", rows)
    if rows > MAX_ROWS:
        raise refusal(f"{where}: rows", expected=f"at most {MAX_ROWS} (rule rows <= {MAX_ROWS})", found=rows)
    if rows > columns:
        expected = f"at most the {columns} columns (rule rows <= columns: row r of A comes from shim column r)"
        raise refusal(f"{where}: rows", expected=expected, found=rows)
    if rows not in legal:
        raise refusal(f"{where}: rows", expected=f"one of {', '.join(map(str, legal))} (rule {rule})", found=rows)
    return rows


@dataclass(frozen=True, slots=True)
class _Check:
    """Refuses what is over a limit, in the same words everywhere: place, what, at most how much, by which rule."""

    where: str

    def at_most(self, what: str, found: int, most: int, rule: str) -> None:
        if found > most:
            raise refusal(f"{self.where}: {what}", expected=f"at most {most} (rule {rule})", found=found)

    def holds(self, fact: bool, what: str, expected: str, found: object, rule: str) -> None:
        if not fact:
            raise refusal(f"{self.where}: {what}", expected=f"{expected} (rule {rule})", found=found)


def _check_numbers(where: str, shape: Shape, family: PanelFamily) -> None:
    """Check everything that is a number against its limit."""
    check = _Check(where)
    worst = shape.K * INT8_MOST * family.most_weight
    check.at_most("largest sum of products", worst, I32_LIMIT, f"K * {INT8_MOST} * {family.most_weight} < 2^31")
    bytes_of_b = shape.K // TILE_K * shape.n_tiles * family.tile_bytes
    for buffer, size in (("A", shape.M * shape.K), ("B", bytes_of_b), ("C", shape.M * shape.N * C_BYTES)):
        check.at_most(f"bytes of {buffer}", size, I32_LIMIT, "tap-long")
    taps = family.taps(shape)
    for tap in taps:
        _check_tap(_Check(f"{where}: tap of {tap.buffer}"), tap)
    live = sum(tap.queued for tap in taps)
    check.at_most("buffer descriptors of a shim", live, SHIM.descriptors, "live-descriptors")
    core, mem = family.memory(shape)
    check.at_most("bytes in a core", core, CORE.memory, "l1-memory")
    check.at_most("bytes in a mem tile", mem, MEM.memory, "mem-tile-memory")
    for ends in mem_tiles(family, shape):
        _check_ends(check, ends)
    _check_dims(_Check(f"{where}: blocks of A"), shape.a_blocks(), 1, MEM if shape.a_mem else CORE)
    _check_dims(_Check(f"{where}: blocks of B"), family.b_blocks(shape, family.tile_bytes), 1, MEM)
    _check_dims(_Check(f"{where}: rows of C"), shape.c_rows(), C_BYTES, MEM)


@dataclass(frozen=True, slots=True)
class MemEnds:
    """The buffer descriptors of each DMA channel of a mem tile, channel 0 first, and the tile's locks."""

    into: tuple[int, ...]
    out: tuple[int, ...]
    locks: int


def mem_tiles(family: PanelFamily, shape: Shape) -> tuple[MemEnds, ...]:
    """Return the ends on each kind of mem tile there is: one with a row panel of A, and one without.

    FIFOs take channels in the program's order: A, B, C. A link has a pair of locks for each object's every part.
    """
    b_parts, c_parts = (shape.rows if shape.split else 1), shape.rows
    b, c = family.b_mem_depth(shape), C_DEPTH if c_parts > 1 else C_PART_DEPTH
    without = MemEnds((b * b_parts, *(c,) * c_parts), ((b,) * b_parts + (c * c_parts,)), 2 * b_parts + 2 * c_parts)
    if not shape.a_mem:
        return (without,)
    a = A_MEM_DEPTH
    return MemEnds((a, *without.into), (a, *without.out), without.locks + 2), without


def _check_ends(check: _Check, ends: MemEnds) -> None:
    check.at_most("streams into a mem tile", len(ends.into), MEM.into_tile, "dma-channels")
    check.at_most("streams out of a mem tile", len(ends.out), MEM.out_of_tile, "dma-channels")
    for parity, word in enumerate(("even", "odd")):
        used = sum(ends.into[parity::2]) + sum(ends.out[parity::2])
        pool = limit("descriptors-of-parity", "mem").value
        check.at_most(f"buffer descriptors of {word} channels of a mem tile", used, pool, "descriptors")
    check.at_most("locks of a mem tile", ends.locks, MEM.locks, "locks")


def _check_dims(check: _Check, dims: Dims, element_bytes: int, tile: TileLimits) -> None:
    """Check the dims of a FIFO's end against the fields of the tile's descriptors."""
    check.at_most("dimensions", len(dims), tile.dims, "dim-count")
    for position, (size, stride) in enumerate(dims):
        inner = position == len(dims) - 1
        words = size * element_bytes // WORD_BYTES if inner else size
        check.at_most("size of a dimension", size, limit("verified-size").value, "dim-size")
        check.at_most("words of a dimension", words, tile.wrap, "dim-wrap")
        check.at_most("stride in words", stride * element_bytes // WORD_BYTES, tile.stride, "dim-stride")
        moved = (size if inner else stride) * element_bytes
        check.holds(moved % WORD_BYTES == 0, "bytes of a step", f"a multiple of {WORD_BYTES}", moved, "dim-words")


def _check_tap(check: _Check, tap: Tap) -> None:
    """Check one access pattern against the fields of a shim buffer descriptor."""
    iterations, _, rows, run = tap.sizes
    check.at_most("iterations", iterations, SHIM.iterations, "tap-iterations")
    if not tap.linear:
        words = run * tap.element_bytes // WORD_BYTES
        check.at_most("words of the innermost run", words, SHIM.wrap, "tap-wrap")
        check.at_most("size of the second dimension", rows, SHIM.wrap, "tap-wrap")
        check.holds(tap.run >= LEAST_RUN, "bytes of a run", f"at least {LEAST_RUN}", tap.run, "tap-short-runs")
    check.holds(tap.strides[3] == 1, "innermost stride", "1", tap.strides[3], "tap-inner-stride")
    for size, stride in zip(tap.sizes[:3], tap.strides[:3], strict=True):
        if size > 1:
            step = stride * tap.element_bytes
            words = step // WORD_BYTES
            rule = "tap-stride" if words else "tap-zero-stride"
            check.holds(0 < words <= SHIM.stride, "stride in words", f"1..{SHIM.stride}", words, rule)
            check.holds(step % WORD_BYTES == 0, "stride in bytes", f"a multiple of {WORD_BYTES}", step, "tap-words")
    for what, elements in (("run", run), ("length", prod(tap.sizes[1:])), ("offset", tap.last_offset)):
        size = elements * tap.element_bytes
        check.holds(size % WORD_BYTES == 0, f"{what} in bytes", f"a multiple of {WORD_BYTES}", size, "tap-words")
        check.at_most(f"{what} in bytes", size, I32_LIMIT, "tap-long")

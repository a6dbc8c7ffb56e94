"""What the families share: an int8 GEMM on rows x columns of cores that moves whole K panels, one shim task each.

A family says how its weights come in; sizes, access patterns and rules are worked out here, so that every family
refuses an illegal geometry in the same words, before anything is rendered. docs/families.md has the rules as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from elfkiln.engine.contract import DECODE_M, MAX_ROWS, TILE_K, TILE_M, TILE_N, layout_of_tag
from elfkiln.engine.legality import check_geometry
from elfkiln.errors import Refused, refusal
from elfkiln.families.family import DesignRequest, KernelObject, Program
from elfkiln.hardware.limits import CORE, I32_LIMIT, MEM, SHIM, WORD_BYTES

A_DEPTH, B_MEM_DEPTH, B_DEPTH, C_PART_DEPTH, C_DEPTH = 2, 4, 2, 1, 2
"""FIFO depths: A, B shim to mem tile, B mem tile to cores, C core to mem tile, C mem tile to shim.

The objects of a link lie in its mem tile once. A join of several rows keeps C_DEPTH whole columns there; with one row
the link is one to one, and what it keeps is what the core's FIFO says: C_PART_DEPTH. C_DEPTH has no effect then.
"""

STACK = 0x2000
"""Bytes of a core's stack: a multiple of 64, so that the buffers above it stay fit for 64-byte vector loads."""

MAX_M = 4096
"""The most rows that are known to have passed the real compiler; the instruction stream grows with them."""

GROUPS_QUEUED = 2
"""Groups whose tasks are queued at once: one runs, the next waits behind it."""

MMUL = 8
"""Rows and columns of the microkernel's blocks (aie::mmul 8x8x8); every tap ends in runs or blocks of that size."""

C_BYTES = 4
INT8_MOST = 128


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


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a design: the GEMM, its tiles, and the rows and columns of cores."""

    K: int
    N: int
    M: int
    m: int
    rows: int
    columns: int
    k: int = TILE_K
    n: int = TILE_N

    @property
    def k_tiles(self) -> int:
        """Tiles along K."""
        return self.K // self.k

    @property
    def n_tiles(self) -> int:
        """Tiles along N."""
        return self.N // self.n

    def a_tap(self) -> Tap:
        """Return the tap of a row panel of A, m x K, in runs of 8 along K: it arrives as [K/8][m][8]."""
        sizes = (1, self.K // MMUL, self.m, MMUL)
        return Tap("A", 1, sizes, (0, MMUL, self.K, 1), last_offset=(self.M - self.m) * self.K)

    def c_tap(self) -> Tap:
        """Return the tap of a column's block of C, rows*m x n: it leaves the cores in blocks of 8 x 8."""
        sizes = (self.rows * self.m // MMUL, self.n // MMUL, MMUL, MMUL)
        strides = (MMUL * self.N, MMUL, self.N, 1)
        return Tap("C", C_BYTES, sizes, strides, last_offset=(self.M - self.rows * self.m) * self.N + self.N - self.n)


def linear_panel_tap(shape: Shape, tile_bytes: int) -> Tap:
    """Return the tap of a column panel of B that is one run of memory: its K tiles, one behind the other."""
    panel = shape.k_tiles * tile_bytes
    return Tap("B", 1, (1, 1, 1, panel), (0, 0, 0, 1), last_offset=(shape.n_tiles - 1) * panel)


@dataclass(frozen=True, slots=True)
class PanelFamily:
    """A family of panel-task GEMMs.

    `stem` and `source` name the microkernel's object and its file below kernels/; `tile_bytes` are those of a k x n
    tile of weights, `most_weight` is the largest magnitude of a weight, `b_tap` the tap that brings weights in.
    `values` are further values of the template. `sealed_template` is empty for a family without a sealed form.
    """

    name: str
    tag: str
    template: str
    stem: str
    source: str
    tile_bytes: int
    most_weight: int
    b_tap: Callable[[Shape, int], Tap] = linear_panel_tap
    values: Mapping[str, object] = field(default_factory=dict)
    sealed_template: str = ""

    def program(self, request: DesignRequest) -> Program:
        """Return the program of one design; raises `Refused` naming the rule an illegal request breaks."""
        shape = self.shape(request)
        sizes = {"M": shape.M, "K": shape.K, "N": shape.N, "rows": shape.rows}
        return self._program(self.template, shape, sizes)

    def sealed(self, geometries: Sequence[tuple[int, int]], columns: int) -> Program:
        """Return the program that carries every geometry (K, N), each once and sorted: M = 16, one row of cores.

        Raises `Refused` when the family has no such form, when there is no geometry, and for one that is not legal.
        """
        if not self.sealed_template:
            raise Refused(f"{self.name}: no sealed program is defined for tag {self.tag!r}; build its twins one by one")
        shapes = {}
        for geometry in geometries:
            if not isinstance(geometry, tuple) or len(geometry) != 2:
                raise refusal(f"{self.name} sealed: geometry", expected="a pair (K, N)", found=geometry)
            shapes[geometry] = self.shape(DesignRequest(*geometry, DECODE_M, self.tag, columns, rows=1))
        if not shapes:
            raise refusal(f"{self.name} sealed: geometries", expected="at least one pair (K, N)", found="none")
        return self._program(self.sealed_template, next(iter(shapes.values())), {"geometries": sorted(shapes)})

    def _program(self, template: str, shape: Shape, own: Mapping[str, object]) -> Program:
        object_name = f"{self.stem}_{shape.m}x{shape.k}x{shape.n}.o"
        defines = {"DIM_M": str(shape.m), "DIM_K": str(shape.k), "DIM_N": str(shape.n)}
        values = {
            "family": self.name,
            "layout": layout_of_tag(self.tag),
            "columns": shape.columns,
            "m": shape.m,
            "k": shape.k,
            "n": shape.n,
            "tile_bytes": self.tile_bytes,
            "object_name": object_name,
            "depths": (A_DEPTH, B_MEM_DEPTH, B_DEPTH, C_PART_DEPTH, C_DEPTH),
            "stack": STACK,
            **self.values,
            **own,
        }
        return Program(template, values, (KernelObject(object_name, self.source, defines),))

    def shape(self, request: DesignRequest) -> Shape:
        """Return the sizes of a design after checking every rule; raises `Refused` naming the rule and the numbers."""
        for name in ("M", "K", "N", "columns"):
            _check_whole(f"{self.name}: {name}", getattr(request, name))
        K, N, M = request.K, request.N, request.M
        where = f"{self.name} {M}x{K}x{N}"
        check_geometry(where, K, N, request.columns)
        m = DECODE_M if M == DECODE_M else TILE_M
        shape = Shape(K, N, M, m, _rows(where, request, m), request.columns)
        _check_numbers(where, shape, self)
        return shape

    def taps(self, shape: Shape) -> tuple[Tap, Tap, Tap]:
        """Return the taps of A, B and C."""
        return shape.a_tap(), self.b_tap(shape, self.tile_bytes), shape.c_tap()

    def memory(self, shape: Shape) -> tuple[int, int]:
        """Return the bytes of stack and FIFO objects in a core, and those of FIFO objects in a mem tile.

        A sealed program's cores have its counts besides, 64 bytes.
        """
        c_tile = shape.m * shape.n * C_BYTES
        core = STACK + A_DEPTH * shape.m * shape.k + B_DEPTH * self.tile_bytes + C_PART_DEPTH * c_tile
        c_in_mem = C_DEPTH * shape.rows if shape.rows > 1 else C_PART_DEPTH
        return core, B_MEM_DEPTH * self.tile_bytes + c_in_mem * c_tile


def _check_whole(what: str, value: object) -> None:
    # bool is an int, and a number of thousands of digits cannot be printed.
    if type(value) is not int:
        raise refusal(what, expected="a whole number", found=f"{value!r} ({type(value).__name__})")
    if not 0 < value <= I32_LIMIT:
        found = value if value.bit_length() < 64 else f"a number of {value.bit_length()} bits"
        raise refusal(what, expected=f"a whole number in 1..{I32_LIMIT}", found=found)


def _rows(where: str, request: DesignRequest, m: int) -> int:
    M, columns = request.M, request.columns
    if M > MAX_M:
        raise refusal(f"{where}: M", expected=f"at most {MAX_M} (rule M <= {MAX_M})", found=M)
    legal = [rows for rows in range(1, min(MAX_ROWS, columns) + 1) if M % (rows * m) == 0]
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
        expected = f"one of {', '.join(map(str, legal))} (rule M % (rows*m) == 0 with M = {M}, m = {m})"
        raise refusal(f"{where}: rows", expected=expected, found=rows)
    return rows


def _check_numbers(where: str, shape: Shape, family: PanelFamily) -> None:
    """Check everything that is a number against its limit."""

    def at_most(what: str, found: int, limit: int, rule: str) -> None:
        if found > limit:
            raise refusal(f"{where}: {what}", expected=f"at most {limit} (rule {rule})", found=found)

    worst = shape.K * INT8_MOST * family.most_weight
    at_most("largest sum of products", worst, I32_LIMIT, f"K * {INT8_MOST} * {family.most_weight} < 2^31")
    bytes_of_b = shape.k_tiles * shape.n_tiles * family.tile_bytes
    for buffer, size in (("A", shape.M * shape.K), ("B", bytes_of_b), ("C", shape.M * shape.N * C_BYTES)):
        at_most(f"bytes of {buffer}", size, I32_LIMIT, "offsets and lengths are 32-bit")
    taps = family.taps(shape)
    for tap in taps:
        _check_tap(f"{where}: tap of {tap.buffer}", tap)
    at_most("buffer descriptors of a shim", sum(tap.queued for tap in taps), SHIM.descriptors, "16 a shim tile")
    core, mem = family.memory(shape)
    at_most("bytes in a core", core, CORE.memory, "stack and FIFO buffers fit the core's memory")
    at_most("bytes in a mem tile", mem, MEM.memory, "FIFO buffers fit the mem tile")
    at_most("streams into a mem tile", 1 + shape.rows, MEM.into_tile, "B and one C a row")


def _check_tap(where: str, tap: Tap) -> None:
    """Check one access pattern against the fields of a shim buffer descriptor."""

    def rule(holds: bool, what: str, expected: str, found: object) -> None:
        if not holds:
            raise refusal(f"{where}: {what}", expected=expected, found=found)

    iterations, _, rows, run = tap.sizes
    rule(iterations <= SHIM.iterations, "iterations", f"at most {SHIM.iterations}", iterations)
    if not tap.linear:
        words = run * tap.element_bytes // WORD_BYTES
        rule(words <= SHIM.wrap, "words of the innermost run", f"at most {SHIM.wrap}", words)
        rule(rows <= SHIM.wrap, "size of the second dimension", f"at most {SHIM.wrap}", rows)
    rule(tap.strides[3] == 1, "innermost stride", "1", tap.strides[3])
    for size, stride in zip(tap.sizes[:3], tap.strides[:3], strict=True):
        if size > 1:
            step = stride * tap.element_bytes
            rule(0 < step // WORD_BYTES <= SHIM.stride, "stride in words", f"1..{SHIM.stride}", step // WORD_BYTES)
            rule(step % WORD_BYTES == 0, "stride in bytes", f"a multiple of {WORD_BYTES}", step)
    for what, elements in (("run", run), ("length", prod(tap.sizes[1:])), ("offset", tap.last_offset)):
        size = elements * tap.element_bytes
        rule(size % WORD_BYTES == 0, f"{what} in bytes", f"a multiple of {WORD_BYTES}", size)
        rule(size <= I32_LIMIT, f"{what} in bytes", f"at most {I32_LIMIT}", size)

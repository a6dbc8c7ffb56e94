"""A design as data: what a generator's module says, free of any MLIR library.

`elfkiln.design.reader` makes these from the generic MLIR of either dialect generation; lint, the simulator and the
geometry check read them. Offsets, sizes and strides of taps count elements of the buffer's type, innermost last.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

WORD = 4
"""Bytes of what a sequence writes at once into a tile's memory."""

ELEMENT_BYTES = {"i8": 1, "ui8": 1, "i16": 2, "ui16": 2, "i32": 4, "ui32": 4, "bf16": 2, "f32": 4, "i64": 8}

INTEGERS = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64")
"""Elements that programs load and store as numbers."""


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """A place on the array: row 0 is the shim, row 1 the mem tiles, rows 2 to 5 the cores."""

    col: int
    row: int

    @property
    def kind(self) -> str:
        """`shim`, `mem` or `core`."""
        return ("shim", "mem")[self.row] if self.row < 2 else "core"

    def __str__(self) -> str:
        """Return e.g. `core(3,2)`: kind, column, row."""
        return f"{self.kind}({self.col},{self.row})"


@dataclass(frozen=True, slots=True)
class MemRef:
    """A memref type: shape in elements and the element's MLIR name (`i8`, `ui8`, `i32`, ...)."""

    shape: tuple[int, ...]
    element: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.element]

    @property
    def bytes(self) -> int:
        """Bytes of the whole."""
        return self.elements * self.element_bytes

    def __str__(self) -> str:
        """Return MLIR's spelling, e.g. `memref<16x64xi8>`."""
        return f"memref<{'x'.join(map(str, self.shape))}x{self.element}>"


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of an access pattern, in elements."""

    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class Fifo:
    """An object FIFO. `depths[0]` is the producer's, then one per consumer (one number in the module is repeated).

    `depth_per_end` says that the module names a depth for each end: the lowering then takes consumers at their word,
    while one number lets it give a consumer core only what the core's program needs. `iter_count` is how often the
    DMA of a mem tile end runs through its buffers before it stops (0: for ever). `initial` are the bytes of the objects
    that the FIFO starts with, as its producer would have made them.
    """

    name: str
    producer: Tile
    consumers: tuple[Tile, ...]
    depths: tuple[int, ...]
    object_type: MemRef
    to_stream: tuple[Dim, ...] = ()
    from_stream: tuple[tuple[Dim, ...], ...] = ()
    repeat_count: int = 0
    via_dma: bool = False
    depth_per_end: bool = False
    iter_count: int = 0
    initial: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A FIFO link at a mem tile: forward (1 to 1), join (n to 1, `src_offsets`), distribute (1 to n, `dst_offsets`)."""

    ins: tuple[str, ...]
    outs: tuple[str, ...]
    src_offsets: tuple[int, ...] = ()
    dst_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named buffer of a tile (run-time parameters live in one).

    `address` is the place in the tile's memory that the module asks for, `initial` are the bytes it starts with.
    """

    name: str
    tile: Tile
    type: MemRef
    address: int | None = None
    initial: bytes | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A named lock of a tile with its initial value; `number` is the lock of the tile that the module asks for."""

    name: str
    tile: Tile
    init: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A microkernel entry a core may call: parameter types in order (`MemRef` or a scalar's name), its object file."""

    name: str
    parameters: tuple[MemRef | str, ...]
    link_with: str | None


@dataclass(frozen=True, slots=True)
class Const:
    """A constant index or integer."""

    value: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The value a `Load` statement of the same core produced (`number` is the statement's)."""

    number: int


@dataclass(frozen=True, slots=True)
class LoopIndex:
    """The induction variable of the `Loop` with this number."""

    number: int


Value: TypeAlias = Const | Loaded | LoopIndex


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Object `index` of what `Acquire` number `acquire` handed out."""

    acquire: int
    index: int


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A whole named buffer as a kernel argument."""

    name: str


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take `count` objects of a FIFO; `port` is `produce` or `consume`. `number` is unique within the core."""

    number: int
    fifo: str
    port: str
    count: int


@dataclass(frozen=True, slots=True)
class Release:
    """Give back `count` objects of a FIFO."""

    fifo: str
    port: str
    count: int


@dataclass(frozen=True, slots=True)
class Call:
    """Call a kernel."""

    kernel: str
    arguments: tuple[ObjectRef | BufferRef | Value, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Read element `index` of a named buffer."""

    number: int
    buffer: str
    index: Value


@dataclass(frozen=True, slots=True)
class Store:
    """Write element `index` of a named buffer."""

    buffer: str
    index: Value
    value: Value


@dataclass(frozen=True, slots=True)
class UseLock:
    """Acquire or release a lock; `action` is `acquire` (==), `acquire_ge` or `release`."""

    lock: str
    action: str
    value: Value


@dataclass(frozen=True, slots=True)
class Loop:
    """`scf.for` from `lower` below `upper` by `step`; `number` is unique within the core."""

    number: int
    lower: Value
    upper: Value
    step: Value
    body: tuple[Statement, ...]


Statement: TypeAlias = Acquire | Release | Call | Load | Store | UseLock | Loop


@dataclass(frozen=True, slots=True)
class Core:
    """A core's program.

    `dynamic` says that the module wants the FIFOs of this core counted at run time, not unrolled (or that it does not;
    None: as the compiler likes).
    """

    tile: Tile
    stack_size: int
    body: tuple[Statement, ...]
    link_with: str | None = None
    dynamic: bool | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A shim DMA task: one buffer descriptor run `repeat_count` + 1 times on the channel of `fifo`.

    `sizes`/`strides` have 4 entries (outermost first, the outermost is the repeat) or none for a linear transfer;
    `length` is the number of elements of one run. `number` is its position among the sequence's tasks.
    `configured_at` is the number of the sequence's steps that stand before the task's configuration: from there on it
    holds a buffer descriptor (None: from its start on).
    """

    number: int
    fifo: str
    argument: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    length: int
    repeat_count: int
    issue_token: bool
    burst_length: int = 0
    configured_at: int | None = None


@dataclass(frozen=True, slots=True)
class LoadPdi:
    """Configure the array from a device's image; resets cores, FIFOs, locks and buffers."""

    device: str


@dataclass(frozen=True, slots=True)
class StartTask:
    """Queue a task on its channel."""

    task: int


@dataclass(frozen=True, slots=True)
class AwaitTask:
    """Wait for a task's token; gives back its buffer descriptor ids."""

    task: int


@dataclass(frozen=True, slots=True)
class FreeTask:
    """Give back a task's buffer descriptor ids without waiting."""

    task: int


@dataclass(frozen=True, slots=True)
class RtpWrite:
    """Write a 32-bit run-time parameter: word `index` of a named buffer."""

    buffer: str
    index: int
    value: int

    def elements(self, type_: MemRef) -> tuple[tuple[int, int], ...]:
        """Return the elements that the word covers in a buffer of a type, with the value each gets.

        >>> RtpWrite("counts", 1, 7).elements(MemRef((2,), "i32"))
        ((1, 7),)
        >>> RtpWrite("bytes", 0, 0xFF04).elements(MemRef((4,), "i8"))
        ((0, 4), (1, -1), (2, 0), (3, 0))
        """
        width = type_.element_bytes
        if width >= WORD:
            return ((self.index, self.value),)
        data = (self.value % 2**32).to_bytes(WORD, "little")
        signed = not type_.element.startswith("u")
        first = self.index * WORD // width
        return tuple(
            (first + at // width, int.from_bytes(data[at : at + width], "little", signed=signed))
            for at in range(0, WORD, width)
        )


@dataclass(frozen=True, slots=True)
class SetLock:
    """Set a lock's value from the sequence."""

    lock: str
    value: int


Step: TypeAlias = LoadPdi | StartTask | AwaitTask | FreeTask | RtpWrite | SetLock


@dataclass(frozen=True, slots=True)
class Sequence:
    """A runtime sequence: its arguments' types, its tasks and what it does, in order."""

    name: str
    arguments: tuple[MemRef, ...]
    tasks: tuple[Task, ...]
    steps: tuple[Step, ...]

    def bytes_of(self, task: Task) -> int:
        """Return the bytes that a task moves, its repeats included (0 if it moves no argument of the sequence)."""
        if not 0 <= task.argument < len(self.arguments):
            return 0
        return task.length * self.arguments[task.argument].element_bytes * (task.repeat_count + 1)


@dataclass(frozen=True, slots=True)
class Design:
    """One `aie.device`: everything on the array and the sequences that drive it, in the module's order.

    `schemes` are the tiles that name how their buffers are placed (`bank-aware` or `basic-sequential`).
    """

    device: str
    name: str
    tiles: tuple[Tile, ...]
    kernels: tuple[Kernel, ...]
    fifos: tuple[Fifo, ...]
    links: tuple[Link, ...]
    buffers: tuple[Buffer, ...]
    locks: tuple[Lock, ...]
    cores: tuple[Core, ...]
    sequences: tuple[Sequence, ...]
    schemes: tuple[tuple[Tile, str], ...] = ()

    def fifo(self, name: str) -> Fifo:
        """Return the FIFO of that name (`KeyError` if there is none)."""
        for fifo in self.fifos:
            if fifo.name == name:
                return fifo
        raise KeyError(name)

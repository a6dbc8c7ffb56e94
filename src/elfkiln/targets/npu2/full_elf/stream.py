"""The instruction stream of an instance (.ctrltext): its operations, and the shim DMA tasks they amount to.

The stream is a transaction of aie-rt in version 0.1 (xaie_txn.h; Xilinx/aiebu aie2_blob_preprocessor_input.cpp walks
it the same way): a header of 4 words, then operations, each with its size. Register addresses are column << 25 |
row << 20 | register (aie-rt, AIE-ML NOC module); buffer descriptors are laid out as mlir-aie writes them
(AIEDmaToNpu.cpp).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

from elfkiln.design.model import Dim
from elfkiln.design.patterns import Pattern, pattern_of
from elfkiln.hardware.limits import WORD_BYTES, limit
from elfkiln.targets.kinds import MALFORMED, TRUNCATED, BadElf, bad

VERSION = 0x06040100
"""Rows 6, device generation 4, version 0.1."""
HEADER_WORDS = 4

WRITE, BLOCK_WRITE, MASK_WRITE, MASK_POLL, LOAD_PDI, SYNC, PATCH = 0x00, 0x01, 0x03, 0x04, 0x08, 0x80, 0x81


@dataclass(frozen=True, slots=True)
class OpForm:
    """Where an operation keeps its size in bytes (None: it is always `words` long) and how many words it has."""

    name: str
    size_at: int | None
    words: int
    longer: bool = False


OPS: dict[int, OpForm] = {
    WRITE: OpForm("write", 5, 6),
    BLOCK_WRITE: OpForm("block write", 3, 5, longer=True),
    MASK_WRITE: OpForm("mask write", 6, 7),
    MASK_POLL: OpForm("mask poll", 6, 7),
    LOAD_PDI: OpForm("load_pdi", None, 4),
    SYNC: OpForm("sync", 1, 4),
    PATCH: OpForm("address patch", 1, 12),
}

# Shim registers: a channel has a control register and, one word on, its task queue.
_BD_FIRST, _BD_STEP, _BD_WORDS = 0x1D000, 0x20, 8
_QUEUES = {0x1D204: ("s2mm", 0), 0x1D20C: ("s2mm", 1), 0x1D214: ("mm2s", 0), 0x1D21C: ("mm2s", 1)}
_CONTROLS = {register - 4: channel for register, channel in _QUEUES.items()}
_CONTROLLER_MASK = 0x1F00
"""Field Controller_ID of a channel's control register: who gets the tokens (aie-rt, AIE-ML NOC module)."""
_DIRECTIONS = ("s2mm", "mm2s")

# What a buffer descriptor for a host buffer holds besides its pattern: cacheable, valid, no lock, no chain, no packet
# (mlir-aie AIEDmaToNpu.cpp). Masks are of the bits that must be as given.
_CACHE = 2 << 24
_VALID = 1 << 25
_FIXED = {2: (0xFFFFFFFF, 0), 3: (0xC0000000, 0), 5: (0xFFF00000, _CACHE), 6: (0xFC000000, 0), 7: (0xFFFFFFFF, _VALID)}
_PUSH_BITS = 1 << 31 | 0xFF << 16 | 0xF
BURST_BYTES = (64, 128, 256, 512)
"""Bursts of a shim DMA by the value of their field (AIETargetModel, AIE2p)."""

LOAD_PDI_RELOCATION = 8
PATCH_RELOCATION = 5
"""Relocation types: a 64-bit address (the PDI's), a shim DMA's 48-bit address (XRT elf_patcher)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A shim DMA task of a stream: one buffer descriptor put into a channel's queue.

    `argument` and `offset` (in bytes) say where in which host buffer it starts; `sizes` and `strides`, outermost
    first, count 32-bit words: iteration, then three dimensions. `length` is the words of one run, of `runs`; `burst`
    is in bytes. `descriptor` is the id of the descriptor, written after `written` of the stream's events.
    """

    column: int
    direction: str
    channel: int
    argument: int
    offset: int
    sizes: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    length: int
    runs: int
    token: bool
    burst: int
    descriptor: int
    written: int

    @property
    def pattern(self) -> Pattern:
        """What it walks, in bytes."""
        around, *inner = (Dim(size, stride) for size, stride in zip(self.sizes, self.strides, strict=True))
        return pattern_of([Dim(self.runs // around.size, 0), around, *inner], self.offset // WORD_BYTES, WORD_BYTES)

    @property
    def end(self) -> int:
        """Offset of the first byte of the buffer behind everything it touches."""
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.offset + (last + 1) * WORD_BYTES

    @property
    def moved(self) -> int:
        """Bytes it moves in all its runs."""
        return self.length * self.runs * WORD_BYTES

    @property
    def linear(self) -> bool:
        """Whether one run is one linear burst."""
        return self.sizes[1:3] == (1, 1) and self.strides[3] == 1


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place in the stream that the loader patches: with a PDI's address, or with argument + addend.

    `size` is the length in bytes of the buffer descriptor patched (0 for a PDI), `name` the symbol's.
    """

    offset: int
    type: int
    name: str
    size: int
    addend: int


@dataclass(frozen=True, slots=True)
class Load:
    """Configure the array from the PDI of that number."""

    number: int


@dataclass(frozen=True, slots=True)
class Controller:
    """Name the controller that gets the tokens of a shim's channel."""

    column: int
    direction: str
    channel: int
    number: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Wait for a token of a channel, in `columns` x `rows` tiles from (column, row) on."""

    column: int
    row: int
    direction: str
    channel: int
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write one word to a register or into the memory of a tile."""

    column: int
    row: int
    register: int
    value: int


@dataclass(frozen=True, slots=True)
class Other:
    """An operation that none of elfkiln's designs has a word for, by its name and the register it goes to."""

    name: str
    address: int


Event: TypeAlias = Load | Transfer | Controller | Sync | Write | Other
"""What a stream does that the array can tell; descriptors count by the task that uses them."""


@dataclass(slots=True)
class Stream:
    """A walked stream: what it does, in order. `descriptors` are (column, id, events before it) of each one written."""

    name: str
    columns: int
    operations: int = 0
    events: list[Event] = field(default_factory=list)
    descriptors: list[tuple[int, int, int]] = field(default_factory=list)
    relocations: list[Relocation] = field(default_factory=list)
    loads_first: bool = False


@dataclass(slots=True)
class _Descriptor:
    """A shim buffer descriptor as last written: its words, where they lie in the stream, and what it points to."""

    words: tuple[int, ...]
    offset: int
    written: int
    argument: int | None = None
    plus: int = 0


def read_stream(name: str, data: bytes) -> Stream:
    """Walk a stream to its end; `BadElf` naming the operation when it is not well-formed."""
    if len(data) % WORD_BYTES or len(data) < HEADER_WORDS * WORD_BYTES:
        raise bad(TRUNCATED, f"{name} size", expected="4 words or more, whole", found=f"{len(data)} bytes")
    words = struct.unpack(f"<{len(data) // WORD_BYTES}I", data)
    version, shape, operations, size = words[:HEADER_WORDS]
    if version != VERSION:
        raise bad(MALFORMED, f"{name} word 0", expected=f"{VERSION:#010x}", found=f"{version:#010x}")
    columns = shape & 0xFF
    if not 1 <= columns <= limit("columns").value or shape >> 8 != 1:
        raise bad(MALFORMED, f"{name} word 1", expected="1 to 8 columns, 1 row of mem tiles", found=f"{shape:#x}")
    if size != len(data):
        kind = TRUNCATED if size > len(data) else MALFORMED
        raise bad(kind, f"{name} word 3, its size", expected=len(data), found=size)
    walker = _Walker(Stream(name, columns), words)
    walker.walk()
    if walker.stream.operations != operations:
        raise bad(MALFORMED, f"{name} word 2, operations", expected=walker.stream.operations, found=operations)
    return walker.stream


class _Walker:
    """Goes through the operations of one stream and keeps the state of the shims."""

    def __init__(self, stream: Stream, words: tuple[int, ...]) -> None:
        self.stream = stream
        self.words = words
        self.descriptors: dict[tuple[int, int], _Descriptor] = {}
        self.at = HEADER_WORDS

    def walk(self) -> None:
        while self.at < len(self.words):
            code = self.words[self.at] & 0xFF
            form = OPS.get(code)
            if form is None:
                raise self.bad(
                    "operation", expected="one of " + ", ".join(f"{op:#04x}" for op in OPS), found=f"{code:#x}"
                )
            length = self.length(form)
            op = self.words[self.at : self.at + length]
            if code != LOAD_PDI and op[0] != code:
                raise self.bad(form.name, expected=f"{code:#010x}", found=f"{op[0]:#010x}")
            self.take(code, op)
            self.stream.operations += 1
            self.at += length

    def bad(self, what: str, *, expected: object, found: object) -> BadElf:
        return bad(
            MALFORMED, f"{self.stream.name} byte {self.at * WORD_BYTES:#x}: {what}", expected=expected, found=found
        )

    def length(self, form: OpForm) -> int:
        left = len(self.words) - self.at
        if form.words > left:
            raise self.bad(form.name, expected=f"{form.words} words", found=f"{left} before the end")
        if form.size_at is None:
            return form.words
        size = self.words[self.at + form.size_at]
        fits = size >= form.words * WORD_BYTES if form.longer else size == form.words * WORD_BYTES
        if not fits or size % WORD_BYTES or size > left * WORD_BYTES:
            bound = f"{form.words * WORD_BYTES} bytes" + (" or more, up to the end" if form.longer else "")
            raise self.bad(f"size of a {form.name}", expected=bound, found=size)
        return size // WORD_BYTES

    def take(self, code: int, op: tuple[int, ...]) -> None:
        zeros = {WRITE: op[1:2] + op[3:4], BLOCK_WRITE: op[1:2], MASK_WRITE: op[1:2] + op[3:4]}
        if any(zeros.get(code, ())):
            raise self.bad(f"{OPS[code].name}: unused words", expected="zeros", found=" ".join(f"{w:#x}" for w in op))
        handlers = {
            LOAD_PDI: self.load_pdi,
            BLOCK_WRITE: self.block_write,
            PATCH: self.patch,
            WRITE: self.write,
            MASK_WRITE: self.mask_write,
            SYNC: self.sync,
        }
        if code in handlers:
            handlers[code](op)
        else:
            self.stream.events.append(Other(OPS[code].name, op[2]))

    def load_pdi(self, op: tuple[int, ...]) -> None:
        # Word 0 is pdi id << 16 | opcode; size and address are the loader's to fill in.
        number = op[0] >> 16
        if number == 0 or any(op[1:]) or op[0] & 0xFF00:
            raise self.bad(
                "load_pdi", expected="id << 16 | 8, then 3 zero words", found=" ".join(f"{w:#x}" for w in op)
            )
        self.stream.loads_first = self.stream.loads_first or self.stream.operations == 0
        self.stream.events.append(Load(number))
        # A fresh configuration has no descriptors: a task that used an old one would move nothing.
        self.descriptors.clear()
        offset = (self.at + 2) * WORD_BYTES
        self.stream.relocations.append(Relocation(offset, LOAD_PDI_RELOCATION, f".pdi.{number}", 0, 0))

    def sync(self, op: tuple[int, ...]) -> None:
        # column << 16 | row << 8 | direction, then channel << 24 | columns << 16 | rows << 8 (aie-rt, XAie_TxnTct).
        place, extent = op[2], op[3]
        direction = place & 0xFF
        column, row, channel = place >> 16, place >> 8 & 0xFF, extent >> 24
        columns, rows = extent >> 16 & 0xFF, extent >> 8 & 0xFF
        if direction >= len(_DIRECTIONS) or extent & 0xFF:
            raise self.bad(
                "sync", expected="a direction of 0 or 1, and a last byte of 0", found=f"{place:#x} {extent:#x}"
            )
        self.stream.events.append(Sync(column, row, _DIRECTIONS[direction], channel, columns, rows))

    def mask_write(self, op: tuple[int, ...]) -> None:
        column, row, register = self.place(op[2])
        value, mask = op[4], op[5]
        if row or register not in _CONTROLS or mask != _CONTROLLER_MASK or value & ~mask:
            self.stream.events.append(Other(OPS[MASK_WRITE].name, op[2]))
            return
        self.stream.events.append(Controller(column, *_CONTROLS[register], value >> 8))

    def place(self, address: int) -> tuple[int, int, int]:
        """Split a register's address into column, row and register; tiles beyond the partition are refused."""
        column, row, register = address >> 25, address >> 20 & 0x1F, address & 0xFFFFF
        if column >= self.stream.columns or row >= limit("rows").value:
            shape = f"column < {self.stream.columns}, row < {limit('rows').value}"
            raise self.bad("tile of a register", expected=shape, found=f"column {column}, row {row}")
        return column, row, register

    def block_write(self, op: tuple[int, ...]) -> None:
        column, row, register = self.place(op[2])
        index, rest = divmod(register - _BD_FIRST, _BD_STEP)
        if row or rest or not 0 <= index < limit("descriptors", "shim").value:
            self.stream.events.append(Other(OPS[BLOCK_WRITE].name, op[2]))
            return
        words = op[4:]
        if len(words) != _BD_WORDS:
            raise self.bad("words of a shim buffer descriptor", expected=_BD_WORDS, found=len(words))
        for place, (bits, value) in _FIXED.items():
            if words[place] & bits != value:
                what = f"word {place} of a shim buffer descriptor"
                raise self.bad(what, expected=f"{value:#x} in the bits {bits:#x}", found=f"{words[place]:#x}")
        written = len(self.stream.events)
        self.descriptors[column, index] = _Descriptor(words, (self.at + 4) * WORD_BYTES, written)
        self.stream.descriptors.append((column, index, written))

    def patch(self, op: tuple[int, ...]) -> None:
        column, row, register = self.place(op[6])
        index, rest = divmod(register - _BD_FIRST, _BD_STEP)
        descriptor = None if row or rest != WORD_BYTES else self.descriptors.get((column, index))
        if descriptor is None:
            raise self.bad(
                "address patch", expected="word 1 of a shim descriptor written before it", found=f"{op[6]:#x}"
            )
        if any(op[2:6]) or op[7] or op[9] or op[11] or op[10] >> 31:
            raise self.bad("address patch", expected="register, argument, offset, else zero", found=op[2:])
        if descriptor.words[1]:
            raise self.bad("address of a patched descriptor", expected=0, found=f"{descriptor.words[1]:#x}")
        if descriptor.argument is not None:
            raise self.bad("address patch", expected="one for each descriptor", found="a second one")
        if op[10] % WORD_BYTES:
            raise self.bad("offset of an address patch", expected="whole words", found=op[10])
        descriptor.argument, descriptor.plus = op[8], op[10]
        length = descriptor.words[0] * WORD_BYTES
        if length >> 32:
            raise self.bad("bytes of a patched descriptor", expected="32 bits", found=length)
        self.stream.relocations.append(Relocation(descriptor.offset, PATCH_RELOCATION, str(op[8]), length, op[10]))

    def write(self, op: tuple[int, ...]) -> None:
        column, row, register = self.place(op[2])
        if row or register not in _QUEUES:
            self.stream.events.append(Write(column, row, register, op[4]))
            return
        direction, channel = _QUEUES[register]
        index, repeat, token = op[4] & 0xF, op[4] >> 16 & 0xFF, bool(op[4] >> 31)
        if op[4] & ~_PUSH_BITS:
            raise self.bad("task", expected="token, repeats, descriptor, else zero", found=f"{op[4]:#x}")
        descriptor = self.descriptors.get((column, index))
        if descriptor is None or descriptor.argument is None:
            raise self.bad("task", expected="a descriptor written and patched before it", found=f"descriptor {index}")
        sizes, strides = self.pattern(descriptor.words, repeat + 1)
        self.stream.events.append(
            Transfer(
                column,
                direction,
                channel,
                descriptor.argument,
                descriptor.plus,
                sizes,
                strides,
                descriptor.words[0],
                repeat + 1,
                token,
                BURST_BYTES[descriptor.words[4] >> 30],
                index,
                descriptor.written,
            )
        )

    def pattern(self, words: tuple[int, ...], runs: int) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
        """Return sizes and strides of a descriptor; a stride field holds the stride less one."""
        length = words[0]
        if not length:
            raise self.bad("buffer descriptor", expected="one with a length", found="0 words")
        inner, rows = words[3] >> 20, words[4] >> 20 & 0x3FF
        steps = tuple((words[i] & 0xFFFFF) + 1 for i in (5, 4, 3))
        if not inner:
            # A size of 0 is one without end, so that no further dimension is ever reached.
            if rows or words[4] & 0xFFFFF or words[5] & 0xFFFFF:
                raise self.bad("linear buffer descriptor", expected="no further dimension", found=f"{rows} rows")
            sizes: tuple[int, int, int] = (1, 1, length)
            steps = (0, 0, steps[2])
        elif not rows:
            # The same words as a linear one's, in a form that no tool writes.
            raise self.bad("buffer descriptor", expected="both inner sizes, or neither", found=f"{inner} and 0")
        else:
            sizes = (length // (inner * rows), rows, inner)
        if sizes[0] * sizes[1] * sizes[2] != length:
            raise self.bad("length of a descriptor", expected=f"a multiple of {inner} x {rows}", found=length)
        around = (words[6] >> 20) + 1
        step = (words[6] & 0xFFFFF) + 1 if around > 1 else 0
        if runs % around:
            raise self.bad("runs of a task", expected=f"a multiple of its {around} iterations", found=runs)
        return (around, *sizes), (step, steps[0], steps[1], steps[2])

"""Lowers a design to what the runtime executes: pools of objects, streams between them, core programs, tasks.

What cannot work whatever happens becomes a `fault`: the text with which a run ends when it comes to that place. So a
wrong design still makes an ELF, and running it says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from elfkiln.contract import ARGUMENT_C
from elfkiln.design import (
    ELEMENT_BYTES,
    Acquire,
    AwaitTask,
    Buffer,
    BufferRef,
    Call,
    Const,
    Core,
    Design,
    Dim,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Loop,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Statement,
    Step,
    Task,
    Tile,
    UseLock,
    Value,
)
from elfkiln.errors import Refused
from elfkiln.limits import limit
from elfkiln.lint.placement import depth_at, link_tile, max_acquires, shared_tile, statements
from elfkiln.simulator.pattern import MOST_DIMS, Pattern, pattern_of, task_dims

MOST_ARGUMENTS = 3
"""Arguments of an entry: A, B and C (ABI of a full ELF's kernel: at least three)."""

MOST_KERNEL_ARGUMENTS = 8
MOST_NESTED_LOOPS = 8
MOST_COUNT = 1 << 16
MOST_PARTS = 1 << 14
"""FIFOs, cores, buffers, locks and kernels of a design; the runtime numbers them in 16 bits."""

MOST_TASK_BYTES = 1 << 36
OWN_SYMBOLS = ("sim_", "elfkiln_", "memcpy", "memset")
"""Beginnings of names that the runtime defines itself."""

MOST_BYTES = 1 << 30
"""Memory of all pools of a design; far above what the array has, it keeps a hostile design from the linker."""

SCALARS = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "index": "int32_t"}
"""C types of scalar kernel parameters; an index is 32 bits wide on the array."""

LOCK_ACTIONS = ("acquire", "acquire_ge", "release")
INTEGERS = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64")


@dataclass(slots=True)
class Pool:
    """A ring of objects at a tile. `writer` and `reader` are agents: a core's or a stream's number, -1 for none."""

    number: int
    name: str
    tile: Tile
    depth: int
    object_bytes: int
    writer: int = -1
    reader: int = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """One stop of a stream: a pool and the pattern over its objects."""

    pool: Pool
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class End:
    """One end of a stream; without segments it is a shim's channel."""

    tile: Tile
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Stream:
    """A FIFO's stream: from one end to all the others."""

    fifo: str
    source: End
    sinks: tuple[End, ...]
    repeat: int


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a FIFO that a core uses; without a pool it has no such end, and using it is a fault."""

    fifo: str
    consume: bool
    pool: Pool | None


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: its kind, and what that kind needs."""

    kind: str
    number: int = 0
    index: int = 0
    port: int = 0
    value: Value = field(default_factory=lambda: Const(0))


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement of a core's program. `index` is a port, buffer, lock or kernel; `loops` are those around it."""

    kind: str
    index: int = 0
    number: int = 0
    count: int = 0
    action: str = ""
    value: Value = field(default_factory=lambda: Const(0))
    arguments: tuple[Argument, ...] = ()
    loops: tuple[int, ...] = ()
    fault: str | None = None
    bounds: tuple[Value, Value, Value] | None = None
    body: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A program as cores share it: ports, buffers and locks go by their number within the core."""

    instructions: tuple[Instruction, ...]
    body: tuple[int, ...]
    acquires: int
    loads: int
    loops: int


@dataclass(frozen=True, slots=True)
class MachineCore:
    """A core: its program, and what the program's numbers mean for it."""

    tile: Tile
    program: int
    ports: tuple[Port, ...]
    buffers: tuple[int, ...]
    locks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MachineTask:
    """A task of a sequence, in bytes."""

    stream: int
    shim: int
    argument: int
    drains: bool
    token: bool
    configured_at: int
    fifo: str
    pattern: Pattern
    fault: str | None


@dataclass(frozen=True, slots=True)
class MachineStep:
    """A step of a sequence: `index` is a task, a buffer or a lock."""

    kind: str
    index: int = 0
    element: int = 0
    value: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class HostArgument:
    """An argument of a sequence, and whether its tasks read or write it."""

    bytes: int
    element_bytes: int
    read: bool
    written: bool


@dataclass(frozen=True, slots=True)
class MachineSequence:
    """A sequence and the C name of its entry."""

    name: str
    symbol: str
    tasks: tuple[MachineTask, ...]
    steps: tuple[MachineStep, ...]
    arguments: tuple[HostArgument, ...]


@dataclass(slots=True)
class Machine:
    """A lowered design. `fault` is what keeps it from being loaded at all; then it has no cores and streams."""

    design: Design
    fault: str | None = None
    initializer: str | None = None
    pools: list[Pool] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    cores: list[MachineCore] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    sequences: list[MachineSequence] = field(default_factory=list)
    shims: list[Tile] = field(default_factory=list)

    @property
    def most_tasks(self) -> int:
        """Tasks of the longest sequence."""
        return max((len(sequence.tasks) for sequence in self.sequences), default=0)


def lower(design: Design) -> Machine:
    """Lower a design; raises `Refused` for one that no C can be made of (names, argument counts, sheer size)."""
    _check_names(design)
    _check_numbers(design)
    machine = Machine(design, initializer=_initializer(design))
    machine.shims = sorted({tile for fifo in design.fifos for tile in _ends(fifo) if tile.kind == "shim"})
    lowering = _Lowering(design, machine)
    try:
        lowering.array()
    except _Fault as fault:
        machine.fault = str(fault)
        machine.pools, machine.streams, machine.cores, machine.programs = [], [], [], []
    for sequence in design.sequences:
        machine.sequences.append(lowering.sequence(sequence))
    total = sum(pool.depth * pool.object_bytes for pool in machine.pools)
    if total > MOST_BYTES:
        raise Refused(f"design {design.name}: its objects take {total} bytes; the array has less than {MOST_BYTES}")
    return machine


def entry_symbol(design: Design, sequence: Sequence) -> str:
    """Return the C name of a sequence's entry, e.g. `main_seq`."""
    return f"{design.name}_{sequence.name}"


def _initializer(design: Design) -> str | None:
    """Return the entry that only loads the array, for the message to whoever forgot it."""
    for sequence in design.sequences:
        if sequence.steps and all(isinstance(step, LoadPdi) for step in sequence.steps):
            return entry_symbol(design, sequence)
    return None


def _ends(fifo: Fifo) -> tuple[Tile, ...]:
    return (fifo.producer, *fifo.consumers)


def _check_names(design: Design) -> None:
    if not design.sequences:
        raise Refused(f"design {design.name}: it has no runtime sequence, so there is nothing to run")
    names = [("device", design.name), *(("sequence", sequence.name) for sequence in design.sequences)]
    names += [("kernel", kernel.name) for kernel in design.kernels]
    for what, name in names:
        if not name.isascii() or not name.isidentifier():
            raise Refused(f"{what} {name!r}: expected a name that C can have; rename it in the generator")
        if what == "kernel" and name.startswith(OWN_SYMBOLS):
            raise Refused(f"kernel {name}: the simulator has a function of that name; rename it in the generator")
    for sequence in design.sequences:
        if len(sequence.arguments) > MOST_ARGUMENTS:
            raise Refused(
                f"sequence {sequence.name}: expected at most {MOST_ARGUMENTS} arguments (A, B, C), "
                f"found {len(sequence.arguments)}"
            )
    for kind, found in (
        ("FIFO", [fifo.name for fifo in design.fifos]),
        ("core", [str(core.tile) for core in design.cores]),
        ("kernel", [kernel.name for kernel in design.kernels]),
        ("sequence", [sequence.name for sequence in design.sequences]),
        ("buffer", [buffer.name for buffer in design.buffers]),
        ("lock", [lock.name for lock in design.locks]),
    ):
        twice = sorted({name for name in found if found.count(name) > 1})
        if twice:
            raise Refused(f"design {design.name}: two of {kind} {twice[0]}")
    for kernel in design.kernels:
        if len(kernel.parameters) > MOST_KERNEL_ARGUMENTS:
            raise Refused(
                f"kernel {kernel.name}: expected at most {MOST_KERNEL_ARGUMENTS} parameters, "
                f"found {len(kernel.parameters)}"
            )
        for parameter in kernel.parameters:
            if isinstance(parameter, str) and parameter not in SCALARS:
                raise Refused(f"kernel {kernel.name}: a parameter of type {parameter} is not simulated")


def _check_numbers(design: Design) -> None:
    """Refuse numbers that C's fields cannot hold; a design that was read from MLIR has none."""
    sizes = [("FIFO " + fifo.name, fifo.object_type) for fifo in design.fifos]
    sizes += [("buffer " + buffer.name, buffer.type) for buffer in design.buffers]
    sizes += [(f"sequence {sequence.name}", one) for sequence in design.sequences for one in sequence.arguments]
    for kernel in design.kernels:
        sizes += [(f"kernel {kernel.name}", one) for one in kernel.parameters if isinstance(one, MemRef)]
    for what, memref in sizes:
        if memref.element not in ELEMENT_BYTES or min(memref.shape, default=1) < 0 or memref.bytes >= MOST_BYTES:
            raise Refused(f"{what}: {memref} is no type of at most {MOST_BYTES} bytes that is simulated")
    for what, parts in (
        ("FIFOs", design.fifos),
        ("cores", design.cores),
        ("buffers", design.buffers),
        ("locks", design.locks),
        ("kernels", design.kernels),
    ):
        if len(parts) > MOST_PARTS:
            raise Refused(f"design {design.name}: {len(parts)} {what}, more than {MOST_PARTS}")
    counts = [("a depth", depth) for fifo in design.fifos for depth in fifo.depths]
    counts += [("repeat_count", fifo.repeat_count) for fifo in design.fifos]
    counts += [(f"lock {lock.name}", lock.init) for lock in design.locks]
    for core in design.cores:
        for statement in statements(core.body):
            if isinstance(statement, Acquire | Load | Loop):
                counts.append((f"{core.tile}", statement.number))
            if isinstance(statement, Acquire | Release):
                counts.append((f"{core.tile}", statement.count))
    for what, number in counts:
        if not 0 <= number < MOST_COUNT:
            raise Refused(f"design {design.name}: {what}: {number} is not in 0..{MOST_COUNT - 1}")


class _Fault(Exception):
    """The design cannot be loaded; the text says why."""


class _Lowering:
    """Lowers one design."""

    def __init__(self, design: Design, machine: Machine) -> None:
        self.design = design
        self.machine = machine
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.kernels = {kernel.name: number for number, kernel in enumerate(design.kernels)}
        self.buffers = {buffer.name: number for number, buffer in enumerate(design.buffers)}
        self.locks = {lock.name: number for number, lock in enumerate(design.locks)}
        self.acquires = max_acquires(design)
        self.cores = [core for core in design.cores if core.body]
        self.core_at = {core.tile: number for number, core in enumerate(self.cores)}
        self.stream_of: dict[str, int] = {}
        self.core_pools: dict[tuple[str, Tile, bool], Pool] = {}
        self.streaming: list[Fifo] = []

    # The array.

    def array(self) -> None:
        links = self.links()
        linked = {name for link in links for name in (*link.ins, *link.outs)}
        for fifo in self.design.fifos:
            self.check_fifo(fifo)
        shared = {fifo.name: shared_tile(fifo, fifo.name in linked) for fifo in self.design.fifos}
        self.streaming = [fifo for fifo in self.design.fifos if shared[fifo.name] is None]
        self.stream_of = {fifo.name: len(self.cores) + n for n, fifo in enumerate(self.streaming)}
        leaving: dict[str, list[tuple[Pool, int]]] = {}
        arriving: dict[str, list[tuple[Pool, int]]] = {}
        for link in links:
            self.link(link, leaving, arriving)
        for fifo in self.design.fifos:
            tile = shared[fifo.name]
            if tile is not None:
                self.shared(fifo, tile)
            else:
                self.stream(fifo, leaving, arriving)
        self.programs()

    def check_fifo(self, fifo: Fifo) -> None:
        if not fifo.consumers:
            raise _Fault(f"FIFO {fifo.name} at {fifo.producer} has no consumer")
        if fifo.producer.kind == "shim" and "shim" in {tile.kind for tile in fifo.consumers}:
            raise _Fault(f"FIFO {fifo.name} goes from {fifo.producer} to a shim tile, past the array")
        if len([tile for tile in fifo.consumers if tile.kind == "shim"]) > 1:
            raise _Fault(f"FIFO {fifo.name} has two consumers on shim tiles")
        if fifo.object_type.bytes < 1 or min(fifo.depths, default=0) < 1:
            raise _Fault(f"FIFO {fifo.name} at {fifo.producer} has objects of no bytes, or a depth below 1")

    def links(self) -> list[Link]:
        used: set[str] = set()
        for link in self.design.links:
            what = _link_words(link)
            for name in (*link.ins, *link.outs):
                if name not in self.fifos:
                    raise _Fault(f"{what}: there is no FIFO {name}")
                if name in used:
                    raise _Fault(f"{what}: FIFO {name} is in two links")
                used.add(name)
            if not link.ins or not link.outs or (len(link.ins) > 1 and len(link.outs) > 1):
                raise _Fault(f"{what}: expected one FIFO on one side at least")
            tile = link_tile(link, self.fifos)
            if tile is None:
                raise _Fault(f"{what}: its FIFOs do not meet on one tile")
            if tile.kind != "mem":
                raise _Fault(f"{what} at {tile}: only mem tiles link FIFOs")
        return list(self.design.links)

    def depth(self, fifo: Fifo, end: int) -> int:
        """Return the objects that the lowering gives an end of a FIFO: 0 the producer, 1 the first consumer, ...

        With one depth for the whole FIFO a core gets one object more than its largest acquire (one, if depth and
        acquire are 1); a FIFO that names a depth per end is taken at its word.
        """
        declared = depth_at(fifo, end)
        if fifo.depth_per_end:
            return declared
        most = self.acquires.get((fifo.name, _ends(fifo)[end]), 0)
        if not most:
            return declared
        return 1 if most == declared == 1 else most + 1

    def pool(self, name: str, tile: Tile, depth: int, size: int) -> Pool:
        pool = Pool(len(self.machine.pools), name, tile, depth, size)
        self.machine.pools.append(pool)
        return pool

    def shared(self, fifo: Fifo, tile: Tile) -> None:
        """Both ends use the memory of one tile: no stream, one pool."""
        pool = self.pool(fifo.name, tile, depth_at(fifo, 0), fifo.object_type.bytes)
        pool.writer = self.core_at.get(fifo.producer, -1)
        pool.reader = self.core_at.get(fifo.consumers[0], -1)
        self.core_pools[fifo.name, fifo.producer, False] = pool
        self.core_pools[fifo.name, fifo.consumers[0], True] = pool

    def link(
        self, link: Link, leaving: dict[str, list[tuple[Pool, int]]], arriving: dict[str, list[tuple[Pool, int]]]
    ) -> None:
        """Make the pools of a link: one, or one for each piece of a join or distribute (each has its own locks)."""
        tile = link_tile(link, self.fifos)
        assert tile is not None
        what = f"{_link_words(link)} at {tile}"
        first, last = self.fifos[link.ins[0]], self.fifos[link.outs[0]]
        joins, distributes = len(link.ins) > 1, len(link.outs) > 1
        if joins or distributes:
            whole = last if joins else first
            pieces = [self.fifos[name] for name in (link.ins if joins else link.outs)]
            offsets = link.src_offsets if joins else link.dst_offsets
            depth = self.depth(whole, 0) if joins else self.depth(whole, 1 + whole.consumers.index(tile))
            for piece, size in zip(pieces, _pieces(what, whole, pieces, offsets), strict=True):
                pool = self.pool(f"{piece.name} in {whole.name}", tile, depth, size)
                one, other = (piece, whole) if joins else (whole, piece)
                pool.writer, pool.reader = self.stream_of[one.name], self.stream_of[other.name]
                arriving.setdefault(one.name, []).append((pool, size))
                leaving.setdefault(other.name, []).append((pool, size))
            return
        small, large = sorted((first.object_type.bytes, last.object_type.bytes))
        if large % small:
            raise _Fault(
                f"{what}: objects of {first.name} have {first.object_type.bytes} bytes, those of {last.name} "
                f"{last.object_type.bytes}; neither is a multiple of the other"
            )
        owner = first if first.object_type.bytes == large else last
        depth = self.depth(first, 1 + first.consumers.index(tile)) if owner is first else self.depth(last, 0)
        pool = self.pool(f"{first.name} to {last.name}", tile, depth, large)
        pool.writer, pool.reader = self.stream_of[first.name], self.stream_of[last.name]
        arriving[first.name] = [(pool, large)]
        leaving[last.name] = [(pool, large)]

    def stream(
        self, fifo: Fifo, leaving: Mapping[str, list[tuple[Pool, int]]], arriving: Mapping[str, list[tuple[Pool, int]]]
    ) -> None:
        number = self.stream_of[fifo.name]
        sinks = []
        if fifo.name in leaving:
            source = self.end(fifo, fifo.producer, leaving[fifo.name], fifo.to_stream, "to the stream")
        else:
            source = self.plain_end(fifo, 0, fifo.to_stream)
            for segment in source.segments:
                segment.pool.reader = number
                segment.pool.writer = self.core_at.get(fifo.producer, -1)
        for index, tile in enumerate(fifo.consumers):
            dims = fifo.from_stream[index] if index < len(fifo.from_stream) else ()
            pools = arriving.get(fifo.name, [])
            if pools and pools[0][0].tile == tile:
                sinks.append(self.end(fifo, tile, pools, dims, "from the stream"))
                continue
            end = self.plain_end(fifo, 1 + index, dims)
            sinks.append(end)
            for segment in end.segments:
                segment.pool.writer = number
                segment.pool.reader = self.core_at.get(tile, -1)
        self.machine.streams.append(Stream(fifo.name, source, tuple(sinks), max(1, fifo.repeat_count)))

    def plain_end(self, fifo: Fifo, index: int, dims: tuple[Dim, ...]) -> End:
        """Return an end without a link: a shim's channel, or a pool that a core (or nobody) uses."""
        tile = _ends(fifo)[index]
        if tile.kind == "shim":
            if dims:
                raise _Fault(f"FIFO {fifo.name}: dimensions at {tile}; a shim's tasks bring their own")
            return End(tile, ())
        pool = self.pool(fifo.name, tile, self.depth(fifo, index), fifo.object_type.bytes)
        self.core_pools[fifo.name, tile, index > 0] = pool
        way = "from the stream" if index else "to the stream"
        return self.end(fifo, tile, [(pool, fifo.object_type.bytes)], dims, way)

    def end(self, fifo: Fifo, tile: Tile, pools: list[tuple[Pool, int]], dims: tuple[Dim, ...], way: str) -> End:
        width = fifo.object_type.element_bytes
        segments = []
        for pool, size in pools:
            pattern = Pattern(0, size, ())
            if dims:
                pattern = pattern_of(dims, 0, width)
                _check_dims(f"FIFO {fifo.name} at {tile}: its dimensions {way}", dims, pattern, size, width, way)
            segments.append(Segment(pool, pattern))
        return End(tile, tuple(segments))

    # Programs.

    def programs(self) -> None:
        known: dict[Program, int] = {}
        for core in self.cores:
            if core.tile.kind != "core":
                raise _Fault(f"a core's program on {core.tile}")
            program, ports, buffers, locks = _CoreLowering(self, core).lower()
            number = known.setdefault(program, len(known))
            if number == len(self.machine.programs):
                self.machine.programs.append(program)
            self.machine.cores.append(MachineCore(core.tile, number, ports, buffers, locks))

    # Sequences.

    def sequence(self, sequence: Sequence) -> MachineSequence:
        tasks = tuple(self.task(sequence, task) for task in sequence.tasks)
        steps = tuple(self.step(sequence, step) for step in sequence.steps)
        arguments = []
        for number, argument in enumerate(sequence.arguments):
            sound = [task for task in tasks if task.argument == number and task.fault is None]
            reads, writes = any(not task.drains for task in sound), any(task.drains for task in sound)
            arguments.append(HostArgument(argument.bytes, argument.element_bytes, reads, writes))
        symbol = entry_symbol(self.design, sequence)
        return MachineSequence(symbol, symbol, tasks, steps, tuple(arguments))

    def task(self, sequence: Sequence, task: Task) -> MachineTask:
        fifo = self.fifos.get(task.fifo)
        started = next(
            (n for n, step in enumerate(sequence.steps) if isinstance(step, StartTask) and step.task == task.number), 0
        )
        configured = started if task.configured_at is None else task.configured_at
        shim, drains = None, False
        if fifo is not None:
            drains = fifo.producer.kind != "shim"
            shim = next((tile for tile in _ends(fifo) if tile.kind == "shim"), None)
        pattern, fault = self.task_pattern(sequence, task, drains)
        if fifo is None:
            fault = f"there is no FIFO {task.fifo}"
        elif shim is None:
            fault = f"FIFO {task.fifo} has no end on a shim tile"
        stream = self.stream_of.get(task.fifo, 0) - len(self.cores)
        if fault is None and not self.machine.streams:
            stream = 0
        return MachineTask(
            stream=max(0, stream),
            shim=-1 if shim is None else self.machine.shims.index(shim),
            argument=min(task.argument, MOST_ARGUMENTS - 1),
            drains=drains,
            token=task.issue_token,
            configured_at=max(0, configured),
            fifo=task.fifo,
            pattern=pattern,
            fault=fault,
        )

    def task_pattern(self, sequence: Sequence, task: Task, drains: bool) -> tuple[Pattern, str | None]:
        nothing = Pattern(0, 1, ())
        if not 0 <= task.argument < len(sequence.arguments):
            return nothing, f"argument {task.argument} of {len(sequence.arguments)}"
        argument = sequence.arguments[task.argument]
        dims = task_dims(task)
        if isinstance(dims, str):
            return nothing, dims
        pattern = pattern_of(dims, task.offset, argument.element_bytes)
        width = argument.element_bytes
        name = "ABC"[task.argument]
        if not 0 < pattern.bytes <= MOST_TASK_BYTES:
            return nothing, f"it moves {pattern.bytes} bytes"
        if len(pattern.dims) > MOST_DIMS:
            return nothing, f"its tap has more than {MOST_DIMS} dimensions"
        if pattern.first < 0 or pattern.last > argument.bytes:
            return nothing, (
                f"its tap touches elements {pattern.first // width} to {pattern.last // width - 1} of {name}, "
                f"which has {argument.elements}"
            )
        if drains and task.argument != ARGUMENT_C:
            return nothing, f"it writes argument {name}; an entry writes only C, its third argument"
        return pattern, None

    def step(self, sequence: Sequence, step: Step) -> MachineStep:
        if isinstance(step, StartTask | AwaitTask | FreeTask) and not 0 <= step.task < len(sequence.tasks):
            raise Refused(f"sequence {sequence.name}: there is no task {step.task}")
        match step:
            case LoadPdi(device):
                fault = None
                if device != self.design.name:
                    fault = f"it loads device {device}, and this ELF holds {self.design.name}"
                return MachineStep("load_pdi", fault=fault)
            case StartTask(task):
                return MachineStep("start", task)
            case AwaitTask(task):
                return MachineStep("await", task)
            case FreeTask(task):
                return MachineStep("free", task)
            case SetLock(lock, value):
                return self.set_lock(lock, value)
            case RtpWrite(name, index, value):
                return self.rtp_write(name, index, value)
        raise AssertionError(f"{sequence.name}: {step}")

    def set_lock(self, lock: str, value: int) -> MachineStep:
        most = limit("lock-value").value
        if lock not in self.locks:
            return MachineStep("set_lock", fault=f"there is no lock {lock}")
        if not 0 <= value <= most:
            return MachineStep("set_lock", fault=f"{lock} is set to {value}, and a lock counts from 0 to {most}")
        return MachineStep("set_lock", self.locks[lock], value=value)

    def rtp_write(self, name: str, index: int, value: int) -> MachineStep:
        if name not in self.buffers:
            return MachineStep("rtp_write", element=index, fault=f"there is no buffer {name}")
        buffer = self.design.buffers[self.buffers[name]]
        if buffer.type.element_bytes != 4:
            return MachineStep("rtp_write", element=index, fault=f"{name} does not hold 32-bit values: {buffer.type}")
        if not 0 <= index < buffer.type.elements:
            return MachineStep(
                "rtp_write", element=max(0, index), fault=f"{name} at {buffer.tile} has {buffer.type.elements} elements"
            )
        return MachineStep("rtp_write", self.buffers[name], index, value)


class _CoreLowering:
    """Lowers one core's program; numbers of ports, buffers and locks are given in the order of their first use."""

    def __init__(self, lowering: _Lowering, core: Core) -> None:
        self.lowering = lowering
        self.core = core
        self.ports: dict[tuple[str, bool], int] = {}
        self.buffers: dict[int, int] = {}
        self.locks: dict[int, int] = {}
        self.instructions: list[Instruction | None] = []
        self.acquired: dict[int, Acquire] = {}
        self.loaded: set[int] = set()
        self.looped: set[int] = set()

    def lower(self) -> tuple[Program, tuple[Port, ...], tuple[int, ...], tuple[int, ...]]:
        body = self.block(self.core.body, ())
        done = tuple(instruction for instruction in self.instructions if instruction is not None)
        acquires = max(self.acquired, default=-1) + 1
        loads, loops = max(self.loaded, default=-1) + 1, max(self.looped, default=-1) + 1
        program = Program(done, body, acquires, loads, loops)
        pools = self.lowering.core_pools
        ports = tuple(Port(fifo, consume, pools.get((fifo, self.core.tile, consume))) for fifo, consume in self.ports)
        return program, ports, tuple(self.buffers), tuple(self.locks)

    def block(self, body: tuple[Statement, ...], loops: tuple[int, ...]) -> tuple[int, ...]:
        if len(loops) > MOST_NESTED_LOOPS:
            raise Refused(f"{self.core.tile}: loops are nested deeper than {MOST_NESTED_LOOPS}")
        numbers = []
        for statement in body:
            number = len(self.instructions)
            numbers.append(number)
            self.instructions.append(None)
            self.instructions[number] = self.instruction(statement, loops)
        return tuple(numbers)

    def instruction(self, statement: Statement, loops: tuple[int, ...]) -> Instruction:
        match statement:
            case Acquire(number, fifo, port, count):
                self.acquired[number] = statement
                fault = self.port_fault(fifo, port, count)
                return Instruction("acquire", self.port(fifo, port), number, count, loops=loops, fault=fault)
            case Release(fifo, port, count):
                fault = self.port_fault(fifo, port, count)
                return Instruction("release", self.port(fifo, port), count=count, loops=loops, fault=fault)
            case Call(kernel, arguments):
                return self.call(kernel, arguments, loops)
            case Load(number, buffer, index):
                loaded = self.load(number, buffer, self.value(index), loops)
                self.loaded.add(number)
                return loaded
            case UseLock(lock, action, value):
                if lock not in self.lowering.locks or action not in LOCK_ACTIONS:
                    raise _Fault(f"{self.core.tile}: there is no lock {lock}, or it cannot {action}")
                local = self.locks.setdefault(self.lowering.locks[lock], len(self.locks))
                return Instruction("lock", local, action=action, value=self.value(value), loops=loops)
            case Loop(number, lower, upper, step, body):
                bounds = self.value(lower), self.value(upper), self.value(step)
                self.looped.add(number)
                inner = self.block(body, (*loops, number))
                return Instruction("loop", number=number, loops=loops, bounds=bounds, body=inner)
        raise AssertionError(statement)

    def port(self, fifo: str, port: str) -> int:
        return self.ports.setdefault((fifo, port == "consume"), len(self.ports))

    def port_fault(self, name: str, port: str, count: int) -> str | None:
        fifo = self.lowering.fifos.get(name)
        if fifo is None:
            return f"there is no FIFO {name}"
        tile = self.core.tile
        if port not in ("produce", "consume"):
            return f"there is no port {port}"
        if port == "produce" and fifo.producer != tile:
            return f"{tile} does not produce {name}; its producer is {fifo.producer}"
        if port == "consume" and tile not in fifo.consumers:
            return f"{tile} does not consume {name}; its consumers are {_tiles(fifo.consumers)}"
        if count < 1:
            return "it takes at least 1 object"
        end = 0 if port == "produce" else 1 + fifo.consumers.index(tile)
        if count > depth_at(fifo, end):
            return f"the depth of {name} there is {depth_at(fifo, end)}"
        return None

    def call(
        self, name: str, arguments: tuple[ObjectRef | BufferRef | Value, ...], loops: tuple[int, ...]
    ) -> Instruction:
        number = self.lowering.kernels.get(name)
        if number is None:
            raise _Fault(f"{self.core.tile} calls {name}, which the design does not declare")
        kernel = self.lowering.design.kernels[number]
        fault = self.call_fault(kernel, arguments)
        lowered = () if fault else tuple(self.argument(argument) for argument in arguments)
        return Instruction("call", number, arguments=lowered, loops=loops, fault=fault)

    def call_fault(self, kernel: Kernel, arguments: tuple[ObjectRef | BufferRef | Value, ...]) -> str | None:
        if len(arguments) != len(kernel.parameters):
            return f"{kernel.name} takes {len(kernel.parameters)} arguments, found {len(arguments)}"
        for position, (argument, parameter) in enumerate(zip(arguments, kernel.parameters, strict=True)):
            what = f"argument {position} of {kernel.name}"
            found: MemRef | None = None
            if isinstance(argument, ObjectRef):
                acquire = self.acquired.get(argument.acquire)
                if acquire is None or acquire.fifo not in self.lowering.fifos:
                    return f"{what} is an object that was never acquired"
                if not 0 <= argument.index < acquire.count:
                    return f"{what} is object {argument.index} of {acquire.count} acquired of {acquire.fifo}"
                found = self.lowering.fifos[acquire.fifo].object_type
            elif isinstance(argument, BufferRef):
                if argument.name not in self.lowering.buffers:
                    return f"{what}: there is no buffer {argument.name}"
                found = self.lowering.design.buffers[self.lowering.buffers[argument.name]].type
            if (found is None) != isinstance(parameter, str):
                return f"{what}: expected {parameter}, found {found or 'a value'}"
            if found is not None and isinstance(parameter, MemRef) and found.bytes != parameter.bytes:
                return f"{what}: expected {parameter}, found {found}"
        return None

    def argument(self, argument: ObjectRef | BufferRef | Value) -> Argument:
        if isinstance(argument, ObjectRef):
            acquire = self.acquired[argument.acquire]
            return Argument("object", argument.acquire, argument.index, self.port(acquire.fifo, acquire.port))
        if isinstance(argument, BufferRef):
            return Argument("buffer", self.buffer(argument.name))
        return Argument("scalar", value=self.value(argument))

    def value(self, value: Value) -> Value:
        known = isinstance(value, Const) or value.number in (self.loaded if isinstance(value, Loaded) else self.looped)
        if not known or (isinstance(value, Const) and not -(1 << 63) <= value.value < 1 << 63):
            raise _Fault(f"{self.core.tile}: its program uses a value before it makes it, or one of more than 64 bits")
        return value

    def buffer(self, name: str) -> int:
        if name not in self.lowering.buffers:
            raise _Fault(f"{self.core.tile}: there is no buffer {name}")
        return self.buffers.setdefault(self.lowering.buffers[name], len(self.buffers))

    def load(self, number: int, name: str, index: Value, loops: tuple[int, ...]) -> Instruction:
        at = self.buffer(name)
        found: Buffer = self.lowering.design.buffers[self.lowering.buffers[name]]
        fault = None if found.type.element in INTEGERS else f"{name} holds {found.type}; only integers are loaded"
        return Instruction("load", at, number, value=index, loops=loops, fault=fault)


def _link_words(link: Link) -> str:
    return f"link of {', '.join(link.ins) or 'nothing'} to {', '.join(link.outs) or 'nothing'}"


def _tiles(tiles: tuple[Tile, ...]) -> str:
    return ", ".join(map(str, tiles))


def _pieces(what: str, whole: Fifo, pieces: list[Fifo], offsets: tuple[int, ...]) -> Iterator[int]:
    """Yield the bytes of each piece. As in the lowering they follow from the offsets, and must be the pieces' own."""
    total, width = whole.object_type.elements, whole.object_type.element_bytes
    if len(offsets) != len(pieces):
        raise _Fault(f"{what}: {len(pieces)} FIFOs and {len(offsets)} offsets")
    if offsets[0] != 0:
        raise _Fault(f"{what}: the first offset is {offsets[0]}, and elements 0 to {offsets[0] - 1} are nobody's")
    ends = (*offsets[1:], total)
    for piece, start, end in zip(pieces, offsets, ends, strict=True):
        if (end - start) * width != piece.object_type.bytes or start < 0:
            raise _Fault(
                f"{what}: offsets {', '.join(map(str, offsets))} give {piece.name} elements {start} to {end - 1} of "
                f"the {total} in {whole.name}, and its objects have {piece.object_type.bytes // width}"
            )
        yield (end - start) * width


def _check_dims(what: str, dims: tuple[Dim, ...], pattern: Pattern, size: int, width: int, way: str) -> None:
    words = ", ".join(f"<size = {dim.size}, stride = {dim.stride}>" for dim in dims)
    if any(dim.size < 1 for dim in dims) or pattern.bytes != size:
        moved = prod(dim.size for dim in dims)
        raise _Fault(f"{what}, {words}, move {moved} elements of an object of {size // width}")
    if pattern.first < 0 or pattern.last > size:
        raise _Fault(
            f"{what}, {words}, touch elements {pattern.first // width} to {pattern.last // width - 1} of an object "
            f"of {size // width}"
        )
    if len(pattern.dims) > MOST_DIMS:
        raise _Fault(f"{what}, {words}, are more than {MOST_DIMS}")
    if way == "from the stream":
        offsets = np.zeros(1, dtype=np.int64)
        for count, stride in pattern.dims:
            offsets = np.add.outer(offsets, np.arange(count, dtype=np.int64) * stride).ravel()
        if len(np.unique(offsets)) != len(offsets) or _overlap(offsets, pattern.run):
            raise _Fault(f"{what}, {words}, write elements of an object twice and leave others unwritten")


def _overlap(offsets: np.ndarray, run: int) -> bool:
    return bool(np.any(np.diff(np.sort(offsets)) < run))

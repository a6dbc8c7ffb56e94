"""A design as the runtime executes it: pools of objects, streams between them, core programs, tasks.

What cannot work whatever happens is a `fault`: the text with which a run ends when it comes to that place. So a wrong
design still makes an ELF, and running it says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elfkiln.design.model import WORD, Const, Design, LoadPdi, Sequence, Tile, Value
from elfkiln.design.patterns import Pattern

SCALARS = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "index": "int32_t"}
"""C types of scalar kernel parameters; an index is 32 bits wide on the array."""


class Fault(Exception):
    """The design cannot be loaded; the text says why."""


MORE = "#define SIM_MORE"
"""First line of the C of a design that has what few have: the runtime then carries it (sim.h)."""


@dataclass(slots=True)
class Pool:
    """A ring of objects at a tile. `writer` and `reader` are agents: a core's or a stream's number, -1 for none.

    `initial` are the objects that it starts with, `kept` is how many its reader takes once and never gives back.
    """

    number: int
    name: str
    tile: Tile
    depth: int
    object_bytes: int
    writer: int = -1
    reader: int = -1
    initial: tuple[bytes, ...] = ()
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """One stop of a stream: a pool and the pattern over its objects."""

    pool: Pool
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class End:
    """One end of a stream; without segments it is a shim's channel. It moves at most `most` objects (0: no end)."""

    tile: Tile
    segments: tuple[Segment, ...]
    most: int = 0


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
    stored: Value = field(default_factory=lambda: Const(0))


@dataclass(frozen=True, slots=True)
class Program:
    """A program as cores share it: ports, buffers and locks go by their number within the core."""

    instructions: tuple[Instruction, ...]
    body: tuple[int, ...]
    acquires: int
    loads: int
    loops: int

    @property
    def uses_shared(self) -> bool:
        """Whether it uses locks or buffers, which the sequence (or another core) may use too."""
        return any(
            one.kind in ("load", "store", "lock") or any(argument.kind == "buffer" for argument in one.arguments)
            for one in self.instructions
        )


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
    """A sequence; `symbol` is the C name of its entry, and what messages call it.

    `again` is the name of the entry that leaves its load_pdi out, None where it has none to leave out.
    """

    symbol: str
    again: str | None
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
    def parts(self) -> int:
        """Parts of a clock: the sequence, the cores that use locks or buffers, the streams that run tasks."""
        return 1 + sum(map(self.core_has_part, self.cores)) + sum(map(stream_has_part, self.streams))

    def core_has_part(self, core: MachineCore) -> bool:
        """Return whether clocks count what a core does."""
        return self.programs[core.program].uses_shared

    @property
    def slots(self) -> int:
        """Objects of all pools."""
        return sum(pool.depth for pool in self.pools)

    @property
    def clocks(self) -> int:
        """Clocks of the array: of the sequence, agents and locks, and two for every slot."""
        return 1 + len(self.cores) + len(self.streams) + len(self.design.locks) + 2 * self.slots

    def acquires(self, lock: int) -> bool:
        """Return whether a core's program acquires the design's lock of that number."""
        return any(
            one.kind == "lock" and one.action != "release" and one.fault is None and core.locks[one.index] == lock
            for core in self.cores
            for one in self.programs[core.program].instructions
        )

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """The elements that sequences write: buffer and element, sorted."""
        writes = [step for sequence in self.sequences for step in sequence.steps if step.kind == "rtp_write"]
        found: set[tuple[int, int]] = set()
        for step in writes:
            if step.fault is None:
                covered = max(1, WORD // self.design.buffers[step.index].type.element_bytes)
                found.update((step.index, step.element + at) for at in range(covered))
        return tuple(sorted(found))

    @property
    def more(self) -> bool:
        """Whether the design has what the runtime is made without for all others (SIM_MORE of runtime/sim.h)."""
        return (
            any(pool.initial or pool.kept for pool in self.pools)
            or any(end.most for stream in self.streams for end in (stream.source, *stream.sinks))
            or any(buffer.initial is not None for buffer in self.design.buffers)
            or any(one.kind == "store" for program in self.programs for one in program.instructions)
            or any(self.design.buffers[buffer].type.element_bytes < WORD for buffer, _ in self.parameters)
        )

    @property
    def most_tasks(self) -> int:
        """Tasks of the longest sequence."""
        return max((len(sequence.tasks) for sequence in self.sequences), default=0)


def stream_has_part(stream: Stream) -> bool:
    """Return whether a stream ends at a shim, so that it runs tasks."""
    return any(not end.segments for end in (stream.source, *stream.sinks))


def entry_symbol(design: Design, sequence: Sequence) -> str:
    """Return the C name of a sequence's entry, e.g. `main_seq`."""
    return f"{design.name}_{sequence.name}"


def loads(sequence: Sequence) -> bool:
    """Return whether a sequence loads the array itself: its first step is load_pdi."""
    return bool(sequence.steps) and isinstance(sequence.steps[0], LoadPdi)


def again_symbol(design: Design, sequence: Sequence) -> str | None:
    """Return the C name of the entry that runs a sequence on the array as it is, None for one that loads nothing.

    Such an entry leaves load_pdi out as the firmware does when the array holds that very PDI already.
    """
    return f"{entry_symbol(design, sequence)}_again" if loads(sequence) else None

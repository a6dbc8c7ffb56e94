"""Run-time parameters: what holds a core back until they are written, and a sequence until they were read.

A core runs from load_pdi on, beside the sequence. What holds it back from reading a parameter too early is the lock it
acquires first, or the data: an object that it acquires first, and whose task starts after the write. What holds the
sequence back from writing one too early is an await of what the core made before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from elfkiln.design.fifo_lowering import CONSUME, sound_links, statements
from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    BufferRef,
    Call,
    Const,
    Core,
    Design,
    Fifo,
    Load,
    LoadPdi,
    Lock,
    Loop,
    LoopIndex,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Statement,
    UseLock,
    Value,
)
from elfkiln.design.patterns import fills
from elfkiln.lint.finding import Findings
from elfkiln.lint.flow import Flow, Program, Turns, kept_over, turns_of
from elfkiln.lint.values import Parameter, Values

_MOST_INDICES = 4096


@dataclass(frozen=True, slots=True)
class Guard:
    """What a core waited for in a turn before it reads: the lock last acquired, and the shim's FIFOs whose data came.

    `data` are the FIFOs that tasks fill, which the acquired objects came from (through links, it may be).
    """

    lock: Lock | None = None
    data: frozenset[str] = frozenset()


@dataclass(slots=True)
class Guarded:
    """What one core reads behind one guard: parameters it loads, and those of buffers that it hands to kernels."""

    core: Core
    guard: Guard
    loads: set[Parameter] = field(default_factory=set)
    tables: set[Parameter] = field(default_factory=set)


def lint_guards(
    design: Design, programs: tuple[Program, ...], buffers: Values, findings: Findings
) -> tuple[Guarded, ...]:
    """Check that cores read parameters behind a lock or behind data; return what they read behind which."""
    written: dict[str, set[int]] = defaultdict(set)
    for sequence in design.sequences:
        for step in sequence.steps:
            if isinstance(step, RtpWrite):
                for (name, index), _ in buffers.written(step):
                    written[name].add(index)
    reads = (_Reads(design, program, written, buffers, findings) for program in programs)
    return tuple(guarded for one in reads for guarded in one.check().values())


def _origins(design: Design) -> dict[str, frozenset[str]]:
    """Return the FIFOs that a task must fill before a core gets an object of each FIFO.

    Of a join's output it is those of every piece. Objects that are there from the start, and what other cores make,
    come without a task.
    """
    origins = {
        fifo.name: frozenset({fifo.name}) if fills(fifo) and not fifo.initial else frozenset() for fifo in design.fifos
    }
    links = [link for link, _ in sound_links(design)]
    for _ in links:
        before = dict(origins)
        for link in links:
            for out in link.outs:
                if not design.fifo(out).initial:
                    origins[out] = frozenset().union(*(origins[name] for name in link.ins))
        if origins == before:
            break
    return origins


class _Reads:
    """Walks one program with what the core waited for in the turn."""

    def __init__(
        self,
        design: Design,
        program: Program,
        written: Mapping[str, set[int]],
        buffers: Values,
        findings: Findings,
    ) -> None:
        self.program = program
        self.written = written
        self.findings = findings
        self.origins = _origins(design)
        # An acquire of what the core has from an earlier turn does not wait.
        self.kept = kept_over(program.body)
        set_by_sequences = {s.lock for one in design.sequences for s in one.steps if isinstance(s, SetLock)}
        given_by_cores = {
            s.lock
            for core in design.cores
            for s in statements(core.body)
            if isinstance(s, UseLock) and s.action == "release"
        }
        # A lock that only cores give says nothing of what the sequence wrote.
        between_cores = given_by_cores - set_by_sequences
        self.locks = {lock.name: lock for lock in design.locks if lock.name not in between_cores}
        self.sizes = {buffer.name: buffer.type.elements for buffer in design.buffers}
        self.handed = {
            argument.name
            for statement in statements(program.core.body)
            if isinstance(statement, Call)
            for argument in statement.arguments
            if isinstance(argument, BufferRef)
        }
        # What a buffer starts with, or a core puts there, no sequence has to write.
        self.own = self.handed | buffers.stored | buffers.filled
        self.loops: dict[int, Loop] = {}
        self.reported: set[Parameter] = set()
        self.found: dict[str, Guarded] = {}

    def check(self) -> dict[str, Guarded]:
        # A turn of the endless loop is one run: what an earlier turn or the prologue acquired does not guard it.
        self.walk(self.program.prologue, Guard())
        self.walk(self.program.body, Guard())
        return self.found

    def walk(self, body: tuple[Statement, ...], guard: Guard) -> Guard:
        for statement in body:
            if isinstance(statement, UseLock):
                guard = replace(guard, lock=self.acquired(statement) or guard.lock)
            elif isinstance(statement, Acquire):
                if statement.port == CONSUME and (statement.fifo, statement.port) not in self.kept:
                    guard = replace(guard, data=guard.data | self.origins.get(statement.fifo, frozenset()))
            elif isinstance(statement, Load):
                if statement.buffer in self.written or statement.buffer not in self.own:
                    self.read(statement.buffer, self.indices(statement.buffer, statement.index), guard, table=False)
            elif isinstance(statement, Call):
                for argument in statement.arguments:
                    if isinstance(argument, BufferRef) and argument.name in self.written:
                        self.read(argument.name, self.written[argument.name], guard, table=True)
            elif isinstance(statement, Loop):
                self.loops[statement.number] = statement
                inner = self.walk(statement.body, guard)
                guard = inner if turns_of(statement, Turns({})) else guard
        return guard

    def acquired(self, use: UseLock) -> Lock | None:
        """Return the lock on the core's tile that a statement waits for."""
        lock = self.locks.get(use.lock)
        waits = use.action != "release" and not (isinstance(use.value, Const) and use.value.value < 1)
        return lock if lock is not None and waits and lock.tile == self.program.core.tile else None

    def indices(self, buffer: str, index: Value) -> set[int]:
        """Return which elements a load may read; of an index that is not known, all that are ever written."""
        if isinstance(index, Const):
            return {index.value}
        if isinstance(index, LoopIndex):
            loop = self.loops.get(index.number)
            turns = None if loop is None else turns_of(loop, Turns({}))
            if loop is not None and turns is not None and turns <= _MOST_INDICES:
                assert isinstance(loop.lower, Const)
                assert isinstance(loop.step, Const)
                return {loop.lower.value + turn * loop.step.value for turn in range(turns)}
        return set(self.written.get(buffer, ()))

    def read(self, buffer: str, indices: set[int], guard: Guard, *, table: bool) -> None:
        parameters = {(buffer, index) for index in indices if 0 <= index < self.sizes.get(buffer, 0)}
        # With a lock the lock is what orders the two, whatever data came before it.
        used = Guard(guard.lock) if guard.lock is not None else guard
        if used.lock is not None or used.data:
            name = ", ".join(sorted(used.data)) if used.lock is None else f"lock {used.lock.name}"
            guarded = self.found.setdefault(name, Guarded(self.program.core, used))
            (guarded.tables if table else guarded.loads).update(parameters)
            return
        for parameter in sorted(parameters - self.reported):
            self.reported.add(parameter)
            tile = self.program.core.tile
            self.findings.add(
                "parameter-guard",
                f"{tile} buffer @{buffer}",
                f"before the read of element {parameter[1]}, in the same turn",
                limit=f"an acquire of a lock on {tile}",
                value="none",
                note="an acquire of data that is filled after the write does as well",
            )


def lint_parameters(
    design: Design,
    sequence: Sequence,
    guards: tuple[Guarded, ...],
    flow: Flow,
    buffers: Values,
    findings: Findings,
) -> None:
    """Check in which order a sequence writes the parameters of cores, lets them on, and awaits what they make."""
    fifos = {fifo.name: fifo for fifo in design.fifos}
    for guarded in guards:
        lock = guarded.guard.lock
        if lock is None:
            _ByData(sequence, guarded, fifos, flow, buffers, findings).walk()
            continue
        served = _served(guarded.core, flow)
        if served or any(isinstance(step, SetLock) and step.lock == lock.name for step in sequence.steps):
            _ByLock(sequence, guarded, lock, served, fifos, flow, buffers, findings).walk()


def _served(core: Core, flow: Flow) -> bool:
    """Return whether a sequence's tasks move data that hangs together with what a core takes or gives."""
    used = {s.fifo for s in statements(core.body) if isinstance(s, Acquire)}
    return any(flow.together(one, other) for one in used for other in flow.moved)


class _Order:
    """Walks one sequence for what one core reads behind one guard, which is `opened` in a step and shut by an await."""

    def __init__(
        self,
        sequence: Sequence,
        guarded: Guarded,
        fifos: Mapping[str, Fifo],
        flow: Flow,
        buffers: Values,
        findings: Findings,
    ) -> None:
        self.sequence = sequence
        self.guarded = guarded
        self.flow = flow
        self.buffers = buffers
        self.findings = findings
        core_fifos = {s.fifo for s in statements(guarded.core.body) if isinstance(s, Acquire)}
        self.tasks = {task.number: task for task in sequence.tasks}
        self.drains = {
            task.number
            for task in sequence.tasks
            if task.fifo in fifos
            and fills(fifos[task.fifo]) is False
            and any(flow.together(task.fifo, name) for name in core_fifos)
        }
        self.written: set[Parameter] = set()
        self.opened: int | None = None
        self.reported: set[str] = set()

    def writes(self, step: RtpWrite) -> list[Parameter]:
        """Return what of the core's parameters a step writes."""
        of_core = self.guarded.loads | self.guarded.tables
        return [parameter for parameter, _ in self.buffers.written(step) if parameter in of_core]

    def unwritten(self, missing: set[Parameter], before: str) -> None:
        """Report parameters that a sequence does not write before it lets the core on."""
        names = ", ".join(f"@{buffer}[{index}]" for buffer, index in sorted(missing)[:4])
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        self.tell(
            "parameter-unwritten",
            f"parameters written before {before}",
            limit=f"all {len(self.guarded.loads)} that the core reads",
            value=f"not {names}{more}",
        )

    def tell(self, rule: str, what: str, *, limit: int | str, value: int | str) -> None:
        """Report a fault of this core, once per rule."""
        if rule not in self.reported:
            self.reported.add(rule)
            where = f"{self.sequence.name} {self.guarded.core.tile}"
            self.findings.add(rule, where, what, limit=limit, value=value)


class _ByLock(_Order):
    """The guard is a lock that the sequence sets."""

    def __init__(
        self,
        sequence: Sequence,
        guarded: Guarded,
        lock: Lock,
        served: bool,
        fifos: Mapping[str, Fifo],
        flow: Flow,
        buffers: Values,
        findings: Findings,
    ) -> None:
        super().__init__(sequence, guarded, fifos, flow, buffers, findings)
        self.lock = lock
        self.served = served
        self.after_set: dict[Parameter, int] = {}
        self.sets = 0

    def walk(self) -> None:
        for position, step in enumerate(self.sequence.steps):
            if isinstance(step, LoadPdi):
                self.written.clear()
                self.after_set.clear()
                self.opened = position if self.lock.init > 0 else None
                self.sets = 1 if self.lock.init > 0 else 0
            elif isinstance(step, RtpWrite):
                for parameter in self.writes(step):
                    self.write(parameter, position)
            elif isinstance(step, SetLock) and step.lock == self.lock.name and step.value > 0:
                self.set(position)
            elif isinstance(step, AwaitTask) and step.task in self.drains:
                self.awaited()
        self.end()

    def write(self, parameter: Parameter, position: int) -> None:
        if self.opened is not None:
            self.late(parameter, position)
        elif self.sets:
            self.after_set.setdefault(parameter, position)
        self.written.add(parameter)

    def late(self, parameter: Parameter, position: int) -> None:
        self.tell(
            "parameter-late",
            f"write of @{parameter[0]}[{parameter[1]}] in step {position}",
            limit=f"before lock @{self.lock.name} is set",
            value="after that" if self.opened is None else f"it is open since step {self.opened}",
        )

    def set(self, position: int) -> None:
        missing = self.guarded.loads - self.written
        if missing:
            self.unwritten(missing, f"lock @{self.lock.name} is set in step {position}")
        if self.opened is not None:
            self.count(2)
        self.opened = position
        self.sets += 1
        self.after_set.clear()

    def awaited(self) -> None:
        if not self.sets and self.served:
            self.count(0)
        self.opened = None

    def end(self) -> None:
        if not self.sets and self.served:
            self.count(0)
        for parameter, position in self.after_set.items():
            self.late(parameter, position)

    def count(self, found: int) -> None:
        what = f"sets of lock @{self.lock.name} before what the core makes is awaited"
        self.tell("lock-set", what, limit=1, value=found)


class _ByData(_Order):
    """The guard is data: it is open from the step that starts the last task which the core's next objects come from.

    How much of what was started the core has taken is known from awaits: what a drain has brought, its share of all
    that the sequence drains there, was made from as large a share of each fill.
    """

    def walk(self) -> None:
        missing: dict[Parameter, int] = {}
        started: dict[str, int] = defaultdict(int)
        ends: dict[int, Fraction] = {}
        come = Fraction(0)
        for position, step in enumerate(self.sequence.steps):
            task = self.tasks.get(step.task) if isinstance(step, StartTask | AwaitTask) else None
            if isinstance(step, LoadPdi):
                self.written.clear()
            elif isinstance(step, RtpWrite):
                for parameter in self.writes(step):
                    if self.opened is not None:
                        self.late(parameter, position)
                    missing.pop(parameter, None)
                    self.written.add(parameter)
            elif task is not None and isinstance(step, StartTask):
                started[task.fifo] += self.sequence.bytes_of(task)
                ends[task.number] = self.share(started, task.fifo)
                if self.opened is None and self.ahead(started, come):
                    self.opened = position
                    missing.update(dict.fromkeys(self.guarded.loads - self.written, position))
            elif task is not None and task.number in self.drains:
                come = max(come, ends.get(task.number, come))
                if not self.ahead(started, come):
                    self.opened = None
        if missing:
            self.unwritten(set(missing), f"data that the core waits for is started in step {min(missing.values())}")

    def share(self, started: Mapping[str, int], fifo: str) -> Fraction:
        """Return which part of what the sequence moves through a FIFO it has started."""
        return Fraction(started.get(fifo, 0), self.flow.total(fifo) or 1)

    def ahead(self, started: Mapping[str, int], come: Fraction) -> bool:
        """Return whether there may be data for another turn of the core."""
        return all(self.share(started, fifo) > come for fifo in self.guarded.guard.data)

    def late(self, parameter: Parameter, position: int) -> None:
        fills_ = ", ".join(f"@{name}" for name in sorted(self.guarded.guard.data))
        self.tell(
            "parameter-late",
            f"write of @{parameter[0]}[{parameter[1]}] in step {position}",
            limit=f"before the data that the core waits for ({fills_}) is started",
            value=f"it is since step {self.opened}",
        )

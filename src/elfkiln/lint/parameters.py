"""Run-time parameters: cores read them behind a lock, sequences write them all before they set it, and only then.

A core runs from load_pdi on, beside the sequence. What holds it back from reading a parameter too early is the lock it
acquires first; what holds the sequence back from writing one too early is an await of what the core made before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from elfkiln.design.fifo_lowering import statements
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
    Statement,
    UseLock,
    Value,
)
from elfkiln.design.patterns import fills
from elfkiln.lint.finding import Findings
from elfkiln.lint.flow import Flow, Program, Turns, turns_of

Parameter: TypeAlias = "tuple[str, int]"

_MOST_INDICES = 4096


@dataclass(slots=True)
class Guarded:
    """What one core reads behind one lock: parameters it loads, and those of buffers that it hands to kernels."""

    core: Core
    lock: Lock
    loads: set[Parameter] = field(default_factory=set)
    tables: set[Parameter] = field(default_factory=set)


def lint_guards(design: Design, programs: tuple[Program, ...], findings: Findings) -> tuple[Guarded, ...]:
    """Check that cores read parameters behind a lock; return what they read behind which."""
    written: dict[str, set[int]] = defaultdict(set)
    for sequence in design.sequences:
        for step in sequence.steps:
            if isinstance(step, RtpWrite):
                written[step.buffer].add(step.index)
    return tuple(
        guarded for program in programs for guarded in _Reads(design, program, written, findings).check().values()
    )


class _Reads:
    """Walks one program with the lock that the core acquired last."""

    def __init__(self, design: Design, program: Program, written: Mapping[str, set[int]], findings: Findings) -> None:
        self.program = program
        self.written = written
        self.findings = findings
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
        self.loops: dict[int, Loop] = {}
        self.told: set[Parameter] = set()
        self.found: dict[str, Guarded] = {}

    def check(self) -> dict[str, Guarded]:
        # A turn of the endless loop is one run: what an earlier turn or the prologue acquired does not guard it.
        self.walk(self.program.prologue, None)
        self.walk(self.program.body, None)
        return self.found

    def walk(self, body: tuple[Statement, ...], guard: Lock | None) -> Lock | None:
        for statement in body:
            if isinstance(statement, UseLock):
                guard = self.acquired(statement) or guard
            elif isinstance(statement, Load):
                if statement.buffer in self.written or statement.buffer not in self.handed:
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

    def read(self, buffer: str, indices: set[int], guard: Lock | None, *, table: bool) -> None:
        parameters = {(buffer, index) for index in indices if 0 <= index < self.sizes.get(buffer, 0)}
        if guard is not None:
            guarded = self.found.setdefault(guard.name, Guarded(self.program.core, guard))
            (guarded.tables if table else guarded.loads).update(parameters)
            return
        for parameter in sorted(parameters - self.told):
            self.told.add(parameter)
            tile = self.program.core.tile
            self.findings.add(
                "parameter-guard",
                f"{tile} buffer @{buffer}",
                f"before the read of element {parameter[1]}, in the same turn",
                limit=f"an acquire of a lock on {tile}",
                value="none",
            )


def lint_parameters(
    design: Design, sequence: Sequence, guards: tuple[Guarded, ...], flow: Flow, findings: Findings
) -> None:
    """Check in which order a sequence writes the parameters of cores, sets their locks and awaits what they make."""
    fifos = {fifo.name: fifo for fifo in design.fifos}
    for guarded in guards:
        served = _served(guarded.core, flow)
        if served or any(isinstance(step, SetLock) and step.lock == guarded.lock.name for step in sequence.steps):
            _Order(sequence, guarded, served, fifos, flow, findings).walk()


def _served(core: Core, flow: Flow) -> bool:
    """Return whether a sequence's tasks move data that hangs together with what a core takes or gives."""
    used = {s.fifo for s in statements(core.body) if isinstance(s, Acquire)}
    return any(flow.together(one, other) for one in used for other in flow.moved)


class _Order:
    """Walks one sequence for what one core reads behind one lock."""

    def __init__(
        self,
        sequence: Sequence,
        guarded: Guarded,
        served: bool,
        fifos: Mapping[str, Fifo],
        flow: Flow,
        findings: Findings,
    ) -> None:
        self.sequence = sequence
        self.guarded = guarded
        self.served = served
        self.findings = findings
        core_fifos = {s.fifo for s in statements(guarded.core.body) if isinstance(s, Acquire)}
        self.drains = {
            task.number
            for task in sequence.tasks
            if task.fifo in fifos
            and fills(fifos[task.fifo]) is False
            and any(flow.together(task.fifo, name) for name in core_fifos)
        }
        self.written: set[Parameter] = set()
        self.after_set: dict[Parameter, int] = {}
        self.opened: int | None = None
        self.sets = 0
        self.told: set[str] = set()

    def walk(self) -> None:
        for position, step in enumerate(self.sequence.steps):
            if isinstance(step, LoadPdi):
                self.written.clear()
                self.after_set.clear()
                self.opened = position if self.guarded.lock.init > 0 else None
                self.sets = 1 if self.guarded.lock.init > 0 else 0
            elif isinstance(step, RtpWrite):
                self.write((step.buffer, step.index), position)
            elif isinstance(step, SetLock) and step.lock == self.guarded.lock.name and step.value > 0:
                self.set(position)
            elif isinstance(step, AwaitTask) and step.task in self.drains:
                self.awaited()
        self.end()

    def write(self, parameter: Parameter, position: int) -> None:
        if parameter not in self.guarded.loads | self.guarded.tables:
            return
        if self.opened is not None:
            self.late(parameter, position)
        elif self.sets:
            self.after_set.setdefault(parameter, position)
        self.written.add(parameter)

    def late(self, parameter: Parameter, position: int) -> None:
        self.tell(
            "parameter-late",
            f"write of @{parameter[0]}[{parameter[1]}] in step {position}",
            limit=f"before lock @{self.guarded.lock.name} is set",
            value="after that" if self.opened is None else f"it is open since step {self.opened}",
        )

    def set(self, position: int) -> None:
        missing = sorted(self.guarded.loads - self.written)
        if missing:
            names = ", ".join(f"@{buffer}[{index}]" for buffer, index in missing[:4])
            more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
            self.tell(
                "parameter-unwritten",
                f"parameters written before lock @{self.guarded.lock.name} is set in step {position}",
                limit=f"all {len(self.guarded.loads)} that the core reads",
                value=f"not {names}{more}",
            )
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
        what = f"sets of lock @{self.guarded.lock.name} before what the core makes is awaited"
        self.tell("lock-set", what, limit=1, value=found)

    def tell(self, rule: str, what: str, *, limit: int | str, value: int | str) -> None:
        """Report a fault of this core, once per rule."""
        if rule not in self.told:
            self.told.add(rule)
            where = f"{self.sequence.name} {self.guarded.core.tile}"
            self.findings.add(rule, where, what, limit=limit, value=value)

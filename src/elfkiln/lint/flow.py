"""Flow: whether what a sequence fills and drains is what the cores take and give (undiagnosed by every tool).

Every FIFO carries a number of objects in one run of a sequence, every core turns its endless loop a number of times.
Fills and drains fix the first; links and programs tie all of them together in fixed ratios. A design whose numbers
disagree, or are not whole, hangs on the hardware.

These are the balance equations of a synchronous data-flow graph (Lee and Messerschmitt 1987), with some of the numbers
given: nodes are FIFOs and cores, a tie says that one is a fixed multiple of the other. They say nothing of the order;
`elfkiln.lint.order` runs the design for that. Where a number cannot be known there is no tie, and nothing is said.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from elfkiln.design.fifo_lowering import CONSUME, PRODUCE, sound_links, statements
from elfkiln.design.model import (
    Acquire,
    Const,
    Core,
    Design,
    Fifo,
    Load,
    Loaded,
    LoadPdi,
    Loop,
    LoopIndex,
    Release,
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
from elfkiln.lint.values import Parameter, Values

ENDLESS = 2**31 - 1
"""Turns from which on a loop is the endless one of a core's program (generators write 2**32 - 1)."""

_MOST_TURNS = 4096
"""Turns of loops gone through one by one, in one count of a program; what is beyond is not known."""

End: TypeAlias = "tuple[str, str]"
Rates: TypeAlias = "dict[End, int | None]"
Node: TypeAlias = "tuple[str, str]"


@dataclass(frozen=True, slots=True)
class Program:
    """A core's program as flow sees it: what stands before the endless loop, its body, and the lock it waits for."""

    core: Core
    prologue: tuple[Statement, ...]
    body: tuple[Statement, ...]
    endless: bool
    gate: UseLock | None


@dataclass(slots=True)
class Turns:
    """What is known while a program is counted: run-time parameters, loaded values and loop indices."""

    parameters: Mapping[Parameter, int]
    loaded: dict[int, int | None] = field(default_factory=dict)
    indices: dict[int, int] = field(default_factory=dict)
    left: int = _MOST_TURNS

    def value(self, value: Value) -> int | None:
        """Return a value of the program if it is known."""
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Loaded):
            return self.loaded.get(value.number)
        return self.indices.get(value.number)


def program_of(core: Core) -> Program:
    """Split a core's program at its endless loop, and find the one lock at which each turn waits."""
    for position, statement in enumerate(core.body):
        if isinstance(statement, Loop) and (turns_of(statement, Turns({})) or 0) >= ENDLESS:
            # Only a lock that each turn waits for exactly once, and that the core does nothing else with, says how many
            # turns there are: as many as the sequence sets it for.
            waits = [s for s in statement.body if isinstance(s, UseLock) and s.action != "release"]
            others = [s for s in statements(core.body) if isinstance(s, UseLock)]
            gate = waits[0] if len(waits) == len(others) == 1 else None
            return Program(core, core.body[:position], statement.body, endless=True, gate=gate)
    return Program(core, (), core.body, endless=False, gate=None)


def turns_of(loop: Loop, known: Turns) -> int | None:
    """Return how often a loop turns, or None when a bound is not known."""
    lower, upper, step = (known.value(bound) for bound in (loop.lower, loop.upper, loop.step))
    if lower is None or upper is None or step is None or step < 1:
        return None
    return max(0, -(-(upper - lower) // step))


def releases(body: tuple[Statement, ...], known: Turns) -> Rates:
    """Return how many objects of each FIFO end a program releases in one pass (None: not known)."""
    total: Rates = {}
    for statement in body:
        if isinstance(statement, Release):
            _add(total, {(statement.fifo, statement.port): statement.count}, 1)
        elif isinstance(statement, Load):
            index = known.value(statement.index)
            known.loaded[statement.number] = None if index is None else known.parameters.get((statement.buffer, index))
        elif isinstance(statement, Loop):
            turns = turns_of(statement, known)
            # Turns are alike unless bounds or loads in the body go by the index: then each is counted by itself. The
            # last turn's loads are what is known after the loop either way.
            if turns is not None and turns <= known.left and uses_index(statement.body, statement.number):
                known.left -= turns
                lower, step = known.value(statement.lower) or 0, known.value(statement.step) or 1
                for turn in range(turns):
                    known.indices[statement.number] = lower + turn * step
                    _add(total, releases(statement.body, known), 1)
            else:
                _add(total, releases(statement.body, known), turns)
    return total


def _add(total: Rates, part: Rates, times: int | None) -> None:
    for end, count in part.items():
        so_far = total.get(end, 0)
        total[end] = None if so_far is None or count is None or times is None else so_far + count * times


def uses_index(body: tuple[Statement, ...], number: int) -> bool:
    """Return whether bounds or loads of a loop's body depend on its index (`number` is the loop's)."""
    for statement in statements(body):
        bounds: tuple[Value, ...] = ()
        if isinstance(statement, Loop):
            bounds = (statement.lower, statement.upper, statement.step)
        elif isinstance(statement, Load):
            bounds = (statement.index,)
        if LoopIndex(number) in bounds:
            return True
    return False


@dataclass(slots=True)
class Flow:
    """The numbers of one sequence: objects per FIFO and turns per core, and which of them are tied."""

    design: Design
    sequence: Sequence
    buffers: Values
    findings: Findings
    values: dict[Node, Fraction] = field(default_factory=dict)
    reasons: dict[Node, str] = field(default_factory=dict)
    ties: dict[Node, list[tuple[Node, Fraction]]] = field(default_factory=lambda: defaultdict(list))
    near: dict[Node, list[Node]] = field(default_factory=lambda: defaultdict(list))
    group: dict[Node, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    reported: set[Node] = field(default_factory=set)
    shown: set[tuple[str, Fraction, Fraction]] = field(default_factory=set)
    first: set[str] = field(default_factory=set)

    def once(self, fifo: str) -> bool:
        """Return whether cores take all of a FIFO before their endless loops, so before they give anything."""
        return fifo in self.first

    def total(self, fifo: str) -> int:
        """Return the bytes that the tasks of the sequence move through a FIFO."""
        return self.moved.get(fifo, 0)

    def objects(self, fifo: str) -> Fraction | None:
        """Return the objects that pass a FIFO in one run, where that is known."""
        return self.values.get(("FIFO", fifo))

    def together(self, one: str, other: str) -> bool:
        """Return whether two FIFOs are in one group, so that progress on one is progress on the other."""
        return self.group.get(("FIFO", one), -1) == self.group.get(("FIFO", other), -2)

    def fix(self, node: Node, value: Fraction, reason: str) -> None:
        """Give a node its number; a second, different one is a finding."""
        known = self.values.get(node)
        if known is None:
            self.values[node], self.reasons[node] = value, reason
        elif known != value:
            self.tell(node, known, self.reasons[node], value, reason)

    def tell(self, node: Node, one: Fraction, why: str, other: Fraction, because: str) -> None:
        """Report two numbers for one FIFO or core; the same fault on many of them is reported once."""
        kind, name = node
        self.reported.add(node)
        if (kind, one, other) in self.shown:
            return
        self.shown.add((kind, one, other))
        where = f"{self.sequence.name} {'FIFO @' if kind == 'FIFO' else ''}{name}"
        what = "objects" if kind == "FIFO" else "turns of the core"
        self.findings.add(
            "flow-total",
            where,
            f"{what} in one run",
            limit=f"{_number(one)} ({why})",
            value=f"{_number(other)} ({because})",
            note=self._hint(kind, name, one, other),
        )

    def _hint(self, kind: str, name: str, one: Fraction, other: Fraction) -> str:
        """Name the trap that a link is, where the numbers are such as it makes."""
        near = {name}
        if kind == "core":
            near.update(f.name for f in self.design.fifos if name in map(str, (f.producer, *f.consumers)))
        for link in self.design.links:
            sides = max(link.ins, link.outs, key=len)
            if len(sides) < 2 or not near.intersection((*link.ins, *link.outs)):
                continue
            repeats = {side: max(1, self.design.fifo(side).repeat_count) for side in sides if self.knows(side)}
            if len(set(repeats.values())) > 1:
                times = ", ".join(f"@{side} {count}" for side, count in repeats.items())
                return f"a link moves as many pieces of each, and their repeat counts differ ({times})"
            # As many times too much as there are cores: each was given a piece where it waits for the whole.
            if len(link.outs) > 1 and 0 not in (one, other) and max(one / other, other / one) == len(link.outs):
                return f"the link from @{link.ins[0]} hands pieces out round robin, no broadcast (1bit-MONSTER #1207)"
        return ""

    def knows(self, fifo: str) -> bool:
        """Return whether the design has a FIFO of that name."""
        return any(one.name == fifo for one in self.design.fifos)


def _number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{value.numerator:,}/{value.denominator:,}"


def follow(
    design: Design, sequence: Sequence, programs: tuple[Program, ...], buffers: Values, findings: Findings
) -> Flow:
    """Solve a sequence's flow and report what does not fit."""
    flow = Flow(design, sequence, buffers, findings)
    fifos = {fifo.name: fifo for fifo in design.fifos}
    _tasks(flow, fifos)
    if not flow.moved:
        return flow
    _links(flow, fifos)
    for program in programs:
        _program(flow, program, fifos)
    _before_the_loops(flow)
    _spread(flow)
    # Half an object is never sent: the DMA waits for the rest of it. What has been reported is one fault, not two.
    for node, value in flow.values.items():
        if value.denominator != 1 and node not in flow.reported:
            flow.tell(node, Fraction(round(value)), "a whole number", value, flow.reasons[node])
    return flow


def _tasks(flow: Flow, fifos: Mapping[str, Fifo]) -> None:
    """Fix what tasks fill and drain: a shim end without a task moves nothing."""
    started: dict[int, int] = defaultdict(int)
    for step in flow.sequence.steps:
        if isinstance(step, StartTask):
            started[step.task] += 1
    counts: dict[str, int] = defaultdict(int)
    for task in flow.sequence.tasks:
        if task.number in started and 0 <= task.argument < len(flow.sequence.arguments):
            moved = flow.sequence.bytes_of(task) * started[task.number]
            flow.moved[task.fifo] = flow.moved.get(task.fifo, 0) + moved
            counts[task.fifo] += started[task.number]
    for name, fifo in fifos.items():
        inward = fills(fifo)
        if inward is not None and fifo.object_type.bytes:
            verb = "filled" if inward else "drained"
            moved = flow.total(name)
            reason = f"{moved:,} bytes {verb} by {counts[name]} tasks" if moved else f"never {verb}"
            flow.fix(("FIFO", name), Fraction(moved, fifo.object_type.bytes), reason)


def _links(flow: Flow, fifos: Mapping[str, Fifo]) -> None:
    for link, _ in sound_links(flow.design):
        for inner in link.ins:
            for outer in link.outs:
                # A join and a distribute move one object of every FIFO for each whole one, whatever the sizes: pieces
                # come from the offsets. Of one FIFO to one other the bytes are what stays: the stream is cut anew.
                repeat = max(1, fifos[outer].repeat_count)
                ratio = Fraction(repeat)
                sizes = fifos[inner].object_type.bytes, fifos[outer].object_type.bytes
                if not all(sizes):
                    continue
                if len(link.ins) == len(link.outs):
                    ratio *= Fraction(*sizes)
                _tie(flow, ("FIFO", inner), ("FIFO", outer), ratio)


def _tie(flow: Flow, one: Node, other: Node, ratio: Fraction) -> None:
    """Say that `other` is `ratio` times `one`."""
    flow.ties[one].append((other, ratio))
    flow.ties[other].append((one, 1 / ratio))
    _join(flow, one, other)


def _join(flow: Flow, one: Node, other: Node) -> None:
    flow.near[one].append(other)
    flow.near[other].append(one)


def _program(flow: Flow, program: Program, fifos: Mapping[str, Fifo]) -> None:
    """Tie or fix what a core takes and gives. What it keeps from turn to turn, and what is not known, is left out."""
    core: Node = ("core", str(program.core.tile))
    acquired = {(s.fifo, s.port) for s in statements(program.body) if isinstance(s, Acquire)}
    at_first = {(s.fifo, s.port) for s in statements(program.prologue) if isinstance(s, Acquire)}
    # What was taken before the loop makes the loop's count of that FIFO begin elsewhere, and a window that slides takes
    # more in the first turn than in the others. Neither has one rate, so their FIFOs are in the core's group (`near`)
    # but are not tied to it.
    kept = at_first | kept_over(program.body)
    ends = [end for end in sorted(acquired | at_first) if _on_end(fifos, end, program.core)]
    flow.first.update(name for name, port in at_first - acquired if port == CONSUME)
    for end in ends:
        _join(flow, core, ("FIFO", end[0]))
    ends = [end for end in ends if end not in kept]
    if program.gate is not None:
        _gated(flow, program, core, ends, fifos)
        return
    rates = releases(program.body, Turns(_parameters(flow)))
    if not program.endless:
        # It runs once after load_pdi. A sequence that moves nothing may be one that loads the array and no more.
        runs = 1 if any(flow.total(name) for name in fifos) else 0
        flow.fix(core, Fraction(runs), "the program has no endless loop")
    for end in ends:
        rate = rates.get(end)
        if rate:
            _tie(flow, core, ("FIFO", end[0]), Fraction(rate * _times_sent(fifos[end[0]], end[1])))
        elif rate == 0:
            # Its loop has no turns: what comes is never taken, what is awaited never given.
            flow.fix(("FIFO", end[0]), Fraction(0), f"{core[1]} {_verb(end)} none")


def _verb(end: End) -> str:
    return "takes" if end[1] == CONSUME else "gives"


def _times_sent(fifo: Fifo, port: str) -> int:
    """Return how many objects pass a FIFO for each that a core gives or takes: its DMA may send each several times."""
    return max(1, fifo.repeat_count) if port == PRODUCE else 1


def kept_over(body: tuple[Statement, ...]) -> set[End]:
    """Return the FIFO ends of which a turn keeps objects for the next (a sliding window): they have no plain rate."""
    held: dict[End, int] = {}
    for statement in statements(body):
        if isinstance(statement, Acquire):
            end = statement.fifo, statement.port
            held[end] = max(held.get(end, 0), statement.count)
        elif isinstance(statement, Release):
            end = statement.fifo, statement.port
            held[end] = max(0, held.get(end, 0) - statement.count)
    return {end for end, count in held.items() if count}


def _before_the_loops(flow: Flow) -> None:
    """Carry over links which FIFOs bring only what cores take once, before their endless loops.

    As often as there are links: each pass goes one link further towards the shim.
    """
    links = [link for link, _ in sound_links(flow.design)]
    for _ in links:
        known = len(flow.first)
        for link in links:
            if flow.first.issuperset(link.outs):
                flow.first.update(link.ins)
        if len(flow.first) == known:
            return


def _on_end(fifos: Mapping[str, Fifo], end: End, core: Core) -> bool:
    fifo = fifos.get(end[0])
    if fifo is None:
        return False
    return core.tile == fifo.producer if end[1] == PRODUCE else end[1] == CONSUME and core.tile in fifo.consumers


def _parameters(flow: Flow) -> dict[Parameter, int]:
    """Return the parameters that have one value in all of a sequence."""
    held = dict(flow.buffers.initial)
    first: dict[Parameter, int] = {}
    changed: set[Parameter] = set()
    for step in flow.sequence.steps:
        if isinstance(step, RtpWrite):
            changed.update(one for one, value in flow.buffers.written(step) if first.setdefault(one, value) != value)
            flow.buffers.write(held, step)
    return {parameter: value for parameter, value in held.items() if parameter not in changed}


def _grants(program: Program, flow: Flow) -> Iterator[tuple[int, dict[Parameter, int]]]:
    """Yield how many turns each release of the core's lock allows, with the parameters written by then."""
    gate = program.gate
    assert gate is not None
    amount = gate.value.value if isinstance(gate.value, Const) else 0
    if amount < 1:
        return
    written = dict(flow.buffers.initial)
    for step in flow.sequence.steps:
        if isinstance(step, LoadPdi):
            first = next((lock.init for lock in flow.design.locks if lock.name == gate.lock), 0)
            if first >= amount:
                yield first // amount, dict(written)
        elif isinstance(step, RtpWrite):
            flow.buffers.write(written, step)
        elif isinstance(step, SetLock) and step.lock == gate.lock:
            yield step.value // amount, dict(written)


def _gated(flow: Flow, program: Program, core: Node, ends: list[End], fifos: Mapping[str, Fifo]) -> None:
    # Each grant is counted with the parameters written by then, so a core may turn for other counts each time. The core
    # then has no one rate: turns and objects are fixed as sums, and not tied to each other.
    turns = 0
    total: Rates = dict.fromkeys(ends, 0)
    times = {end: _times_sent(fifos[end[0]], end[1]) for end in ends}
    for granted, written in _grants(program, flow):
        turns += granted
        rates = releases(program.body, Turns(written))
        _add(total, {end: rates.get(end, 0) for end in ends}, granted)
    if turns == 0 and any(flow.total(fifo.name) for fifo in flow.design.fifos):
        moving = [end[0] for end in ends if flow.values.get(("FIFO", end[0]))]
        if moving:
            assert program.gate is not None
            where = f"{flow.sequence.name} {core[1]}"
            what = f"turns granted by lock @{program.gate.lock}"
            flow.findings.add("lock-grants", where, what, limit="1 or more", value=0)
            return
    flow.fix(core, Fraction(turns), f"turns granted by lock @{program.gate.lock if program.gate else ''}")
    for end, count in total.items():
        if count is not None:
            flow.fix(("FIFO", end[0]), Fraction(count * times[end]), f"{core[1]} {_verb(end)} them")


def _spread(flow: Flow) -> None:
    """Carry known numbers along the ties, and number the groups of what moves together.

    A group is more than what ties reach: a core that keeps objects goes on with all its FIFOs, in whatever ratio.
    """
    groups: dict[Node, int] = {}
    for number, start in enumerate([*flow.values, *flow.near]):
        if start in groups:
            continue
        groups[start] = number
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for other in flow.near.get(node, ()):
                if other not in groups:
                    groups[other] = number
                    queue.append(other)
    flow.group = groups
    queue = deque(flow.values)
    while queue:
        node = queue.popleft()
        for other, ratio in flow.ties.get(node, ()):
            value = flow.values[node] * ratio
            known = flow.values.get(other)
            # Of two numbers for one node the first stays, and goes on: so one fault is reported at the place where
            # the numbers meet, and not again at every node behind it (`reported`).
            if known is None:
                flow.values[other] = value
                flow.reasons[other] = f"as {_title(node)} has {_number(flow.values[node])}"
                queue.append(other)
            elif known != value and node not in flow.reported:
                flow.tell(
                    other, known, flow.reasons[other], value, f"as {_title(node)} has {_number(flow.values[node])}"
                )


def _title(node: Node) -> str:
    return f"@{node[1]}" if node[0] == "FIFO" else node[1]

"""Runtime sequences: load_pdi, the life of every task, tokens, and what is in flight at each step."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from fractions import Fraction

from elfkiln.design.fifo_lowering import Placement
from elfkiln.design.model import (
    WORD,
    AwaitTask,
    Design,
    Fifo,
    FreeTask,
    LoadPdi,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Task,
    Tile,
)
from elfkiln.design.patterns import fills
from elfkiln.engine.contract import INSTANCE, KERNEL, MOST_ARGUMENTS, is_sealed
from elfkiln.hardware.limits import limit
from elfkiln.lint.finding import Findings
from elfkiln.lint.flow import Flow, follow, program_of
from elfkiln.lint.order import lint_order, lint_releases
from elfkiln.lint.parameters import lint_guards, lint_parameters
from elfkiln.lint.taps import lint_runs, lint_tasks, task_name
from elfkiln.lint.values import Values


def lint_sequences(design: Design, placement: Placement, findings: Findings) -> None:
    """Check every sequence of a design."""
    fifos = {fifo.name: fifo for fifo in design.fifos}
    programs = tuple(program_of(core) for core in design.cores)
    buffers = Values(design)
    guards = lint_guards(design, programs, buffers, findings)
    of_design = tuple(findings.found)
    moves: int | None = None
    if not design.sequences:
        findings.add("no-sequence", f"device {design.name}", "runtime sequences", limit="1 or more", value=0)
    loaders = [s for s in design.sequences if any(isinstance(step, LoadPdi) for step in s.steps)]
    for sequence in design.sequences:
        earlier = len(findings.found)
        _load_pdi(design, sequence, bool(loaders), findings)
        _names(design, sequence, findings)
        lint_tasks(sequence, fifos, findings)
        lint_runs(sequence, findings)
        flow = follow(design, sequence, programs, buffers, findings)
        lint_parameters(design, sequence, guards, flow, buffers, findings)
        _Run(sequence, fifos, placement, flow, findings).walk()
        lint_releases(sequence, programs, placement, flow, findings)
        before = (*of_design, *findings.found[earlier:])
        moves = lint_order(design, sequence, placement, buffers, before, findings, moves)


def _load_pdi(design: Design, sequence: Sequence, elsewhere: bool, findings: Findings) -> None:
    places = [i for i, step in enumerate(sequence.steps) if isinstance(step, LoadPdi)]
    where = f"sequence {sequence.name}"
    if not places and not elsewhere:
        found = type(sequence.steps[0]).__name__ if sequence.steps else "nothing"
        findings.add("load-pdi", where, "first step", limit=f"load_pdi of @{design.name}", value=found)
    for place in places:
        step = sequence.steps[place]
        assert isinstance(step, LoadPdi)
        if step.device != design.name:
            findings.add("load-pdi", where, "device of load_pdi", limit=f"@{design.name}", value=f"@{step.device}")
        if place:
            findings.add("load-pdi", where, "place of load_pdi", limit="the first step", value=f"step {place}")
        early = [t.number for t in sequence.tasks if t.configured_at is not None and t.configured_at <= place]
        if early:
            what = f"configuration of task {early[0]}"
            findings.add(
                "load-pdi", where, what, limit="after load_pdi", value="before it, which resets its descriptor"
            )


def _names(design: Design, sequence: Sequence, findings: Findings) -> None:
    buffers = {buffer.name: buffer for buffer in design.buffers}
    locks = {lock.name for lock in design.locks}
    where = f"sequence {sequence.name}"
    top = limit("lock-value")
    for step in sequence.steps:
        if isinstance(step, RtpWrite):
            buffer = buffers.get(step.buffer)
            words = 0 if buffer is None else buffer.type.bytes // WORD
            if not 0 <= step.index < words:
                what = "element" if buffer is None or buffer.type.element_bytes == WORD else "word"
                bound = "a buffer of the design" if buffer is None else f"{what} 0 to {words - 1}"
                findings.add("symbol", where, "rtp_write", limit=bound, value=f"@{step.buffer}[{step.index}]")
            elif buffer is not None and buffer.type.element_bytes > WORD:
                what, element = f"elements of @{step.buffer}", buffer.type.element
                findings.add("parameter-width", where, what, limit="32 bits or less", value=element)
        elif isinstance(step, SetLock):
            if step.lock not in locks:
                findings.add("symbol", where, "set_lock", limit="a lock of the design", value=f"@{step.lock}")
            if not 0 <= step.value <= top.value:
                findings.add("lock-value", f"{where} lock @{step.lock}", "value set", limit=top, value=step.value)


@dataclass(slots=True)
class _Channel:
    """One shim channel as a sequence goes: tasks queued and not known done, tokens not taken, how far it has come.

    The first `absorbed` tasks of the queue fit the FIFO's buffers, which then have `room` bytes left.
    """

    queue: deque[Task] = field(default_factory=deque)
    tokens: deque[Task] = field(default_factory=deque)
    bytes: int = 0
    absorbed: int = 0
    room: int = 0


class _Run:
    """Walks one sequence step by step."""

    def __init__(
        self, sequence: Sequence, fifos: dict[str, Fifo], placement: Placement, flow: Flow, findings: Findings
    ) -> None:
        self.sequence = sequence
        self.fifos = fifos
        self.begun = [name for name, fifo in fifos.items() if fifo.initial]
        self.placement = placement
        self.flow = flow
        self.findings = findings
        self.tasks = {task.number: task for task in sequence.tasks}
        self.channels: dict[str, _Channel] = defaultdict(_Channel)
        self.started: dict[int, int] = {}
        self.ends_at: dict[int, int] = {}
        self.done: set[int] = set()
        self.ended: dict[int, str] = {}
        self.awaited: set[int] = set()
        self.live: dict[Tile, set[int]] = defaultdict(set)
        self.peaks: dict[Tile, tuple[int, int]] = {}
        self.queued: dict[str, tuple[str, int, int]] = {}
        self.configured: dict[int, list[Task]] = defaultdict(list)
        self.last_configured: dict[Tile, int] = {}
        self.rooms: dict[str, int] = {}

    def walk(self) -> None:
        """Take the steps in order, then say what is left over."""
        starts: dict[int, int] = {}
        for position, step in enumerate(self.sequence.steps):
            if isinstance(step, StartTask):
                starts.setdefault(step.task, position)
        for configured in self.sequence.tasks:
            at = starts.get(configured.number, 0) if configured.configured_at is None else configured.configured_at
            self.configured[min(at, len(self.sequence.steps))].append(configured)
            tile = self._shim(configured)
            if tile is not None:
                self.last_configured[tile] = max(self.last_configured.get(tile, 0), at)
        for position, step in enumerate(self.sequence.steps):
            self._configure(position)
            if isinstance(step, StartTask | AwaitTask | FreeTask):
                task = self.tasks.get(step.task)
                if task is None:
                    where = f"sequence {self.sequence.name}"
                    self.findings.add("symbol", where, "task", limit="one of the sequence", value=step.task)
                elif isinstance(step, StartTask):
                    self._start(task, position)
                elif isinstance(step, AwaitTask):
                    self._await(task)
                else:
                    self._free(task, position)
        self._configure(len(self.sequence.steps))
        self._left_over()

    def _where(self, task: Task) -> str:
        return task_name(self.sequence, task)

    def _shim(self, task: Task) -> Tile | None:
        fifo = self.fifos.get(task.fifo)
        inward = None if fifo is None else fills(fifo)
        if fifo is None or inward is None:
            return None
        return fifo.producer if inward else next(c for c in fifo.consumers if c.kind == "shim")

    def _configure(self, position: int) -> None:
        for task in self.configured.get(position, ()):
            tile = self._shim(task)
            if tile is None:
                continue
            self.live[tile].add(task.number)
            if len(self.live[tile]) > self.peaks.get(tile, (0, 0))[0]:
                self.peaks[tile] = len(self.live[tile]), task.number

    def _start(self, task: Task, position: int) -> None:
        if task.number in self.ended:
            found = f"started after it was {self.ended[task.number]}"
            self.findings.add("task-ended", self._where(task), "a task's descriptor", limit="a live task", value=found)
        elif task.number in self.started:
            self.findings.add("task-restarted", self._where(task), "starts", limit=1, value=2)
        self.started.setdefault(task.number, position)
        channel = self.channels[task.fifo]
        channel.queue.append(task)
        channel.bytes += self.sequence.bytes_of(task)
        self.ends_at[task.number] = channel.bytes
        if task.issue_token:
            channel.tokens.append(task)
        self._queue(task, channel)

    def _queue(self, task: Task, channel: _Channel) -> None:
        """Note the fullest a channel gets: of the tasks in it, those that fit the FIFO's buffers end by themselves."""
        fifo = self.fifos.get(task.fifo)
        if fifo is None:
            return
        if channel.absorbed == 0:
            channel.room = self.rooms.setdefault(task.fifo, self.placement.absorbs(fifo) if fills(fifo) else 0)
        while channel.absorbed < len(channel.queue):
            size = self.sequence.bytes_of(channel.queue[channel.absorbed])
            if size > channel.room:
                break
            channel.room -= size
            channel.absorbed += 1
        bound = limit("task-queue", "shim").value
        if len(channel.queue) <= bound:
            return
        stuck = len(channel.queue) - channel.absorbed
        rule = "task-queue" if stuck > bound else "task-queue-full"
        worst = self.queued.get(task.fifo, ("", 0, 0))
        value = stuck if rule == "task-queue" else len(channel.queue)
        if (rule == "task-queue", value) > (worst[0] == "task-queue", worst[1]):
            self.queued[task.fifo] = rule, value, task.number

    def _await(self, task: Task) -> None:
        where = self._where(task)
        if not task.issue_token:
            self.findings.add("await-token", where, "issue_token", limit="true", value="false")
        if task.number in self.ended:
            found = f"awaited after it was {self.ended[task.number]}"
            self.findings.add("task-ended", where, "a task's token", limit="one await", value=found)
        elif task.number not in self.started:
            self.findings.add("await-unstarted", where, "step before the await", limit="its start", value="none")
        elif task.issue_token:
            self._take_token(task, where)
        self.awaited.add(task.number)
        self._end(task, "awaited")
        self._retire(task)
        self._imply(task)

    def _take_token(self, task: Task, where: str) -> None:
        first = self.channels[task.fifo].tokens.popleft()
        if first is not task:
            found = f"that of task {first.number}, started before it and not awaited"
            self.findings.add("token-order", where, "the token it takes", limit="its own", value=found)

    def _retire(self, task: Task) -> None:
        """A channel runs its tasks in order: one done, all before it are."""
        channel = self.channels[task.fifo]
        if task.number in self.started and task.number not in self.done:
            while channel.queue:
                first = self._done(channel)
                if first is task:
                    break

    def _done(self, channel: _Channel) -> Task:
        """Take the first task out of a channel's queue."""
        first = channel.queue.popleft()
        self.done.add(first.number)
        channel.absorbed = 0
        return first

    def _imply(self, task: Task) -> None:
        """A drain that is done had its data, so the fills that data came from are done as well.

        Not so where FIFOs begin with objects: then the data may be made from those.
        """
        fifo = self.fifos.get(task.fifo)
        total = self.flow.total(task.fifo)
        if fifo is None or fills(fifo) is not False or not total:
            return
        if any(self.flow.together(name, task.fifo) for name in self.begun):
            return
        come = Fraction(self.ends_at.get(task.number, 0), total)
        for name, channel in self.channels.items():
            if name == task.fifo or not self.flow.together(name, task.fifo):
                continue
            whole = self.flow.total(name)
            once = self.flow.once(name) and come > 0
            while channel.queue and whole and (once or Fraction(self.ends_at[channel.queue[0].number], whole) <= come):
                self._done(channel)

    def _free(self, task: Task, position: int) -> None:
        where = self._where(task)
        how = self.ended.get(task.number)
        if how == "freed":
            self.findings.add("task-ended", where, "a task's descriptor", limit="one free", value="freed twice")
        elif how is None and task.number in self.started and task.number not in self.done:
            tile = self._shim(task)
            again = tile is not None and self.last_configured.get(tile, 0) > position
            note = "a later task of the shim may take its descriptor" if again else "no later task of the shim is hurt"
            awaited = "an await of it, or of what is made from its data"
            self.findings.add("free-early", where, "step before its free", limit=awaited, value="none", note=note)
        self._end(task, "freed")

    def _end(self, task: Task, how: str) -> None:
        self.ended.setdefault(task.number, how)
        tile = self._shim(task)
        if tile is not None:
            self.live[tile].discard(task.number)

    def _left_over(self) -> None:
        bound = limit("descriptors", "shim")
        for tile, (peak, number) in sorted(self.peaks.items()):
            if peak > bound.value:
                self.findings.add(
                    "live-descriptors",
                    f"{self.sequence.name} {tile}",
                    f"tasks that hold a descriptor at task {number}",
                    limit=bound,
                    value=peak,
                )
        for name, (rule, value, number) in self.queued.items():
            what = "tasks the FIFO's buffers do not take" if rule == "task-queue" else "un-awaited tasks"
            self.findings.add(
                rule,
                f"{self.sequence.name} FIFO @{name}",
                f"{what} at task {number}",
                limit=limit("task-queue", "shim"),
                value=value,
            )
        tokens = {task.number for channel in self.channels.values() for task in channel.tokens}
        for task in self.sequence.tasks:
            self._left_task(task, tokens)

    def _left_task(self, task: Task, tokens: set[int]) -> None:
        where = self._where(task)
        if task.number not in self.started:
            self.findings.add("task-unstarted", where, "starts", limit=1, value=0)
            return
        fifo = self.fifos.get(task.fifo)
        if fifo is not None and fills(fifo) is False and task.number not in self.done:
            self.findings.add("drain-wait", where, "an await of it or of a later drain", limit="1", value="none")
        elif task.number not in self.ended:
            self.findings.add("task-leak", where, "await or free", limit=1, value=0)
        if task.number in tokens and task.number not in self.awaited:
            self.findings.add("token-left", where, "awaits of its token", limit=1, value=0)


def lint_entry(design: Design, findings: Findings) -> None:
    """Check that the engine finds what it opens: `main:seq`, or `init` and `seq_...` of a sealed design."""
    names = [sequence.name for sequence in design.sequences]
    if design.name != KERNEL:
        findings.add("engine-entry", f"device {design.name}", "name of the device", limit=KERNEL, value=design.name)
    if INSTANCE not in names and not is_sealed(names):
        found = ", ".join(names) or "none"
        findings.add("engine-entry", f"device {design.name}", "sequences", limit=f"one named {INSTANCE}", value=found)
    for sequence in design.sequences:
        given = len(sequence.arguments)
        if given > MOST_ARGUMENTS:
            where = f"sequence {sequence.name}"
            findings.add("engine-entry", where, "arguments", limit=f"{MOST_ARGUMENTS}, A, B and C", value=given)

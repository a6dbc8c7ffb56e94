"""The order of a sequence: by each await, what the awaited task needs is started; in the end every task ends."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from elfkiln.design.fifo_lowering import CONSUME, Placement, statements
from elfkiln.design.model import Acquire, AwaitTask, Design, Release, RtpWrite, Sequence, SetLock, StartTask, Task
from elfkiln.lint.finding import Finding, Findings
from elfkiln.lint.flow import Flow, Program
from elfkiln.lint.network import Lack, Network, NotFollowed
from elfkiln.lint.taps import task_name
from elfkiln.lint.values import Values

# After one of these nothing can be said of how far data comes, or it is said already.
_FIRST = frozenset(
    {
        "device",
        "tile-range",
        "core-per-tile",
        "symbol",
        "fifo-consumer",
        "fifo-depth",
        "fifo-object",
        "fifo-linked",
        "fifo-idle",
        "fifo-iterations",
        "link-shape",
        "link-tile",
        "link-mem-tile",
        "link-once",
        "link-offsets",
        "link-access",
        "broadcast-through-link",
        "core-fifo",
        "acquire-depth",
        "release-held",
        "release-missing",
        "task-fifo",
        "task-argument",
        "tap-rank",
        "tap-length",
        "tap-element",
        "load-pdi",
        "task-queue",
        "task-unstarted",
        "task-restarted",
        "task-ended",
        "await-token",
        "await-unstarted",
        "token-order",
        "flow-total",
        "lock-grants",
        "lock-set",
        "parameter-guard",
        "parameter-unwritten",
        "parameter-late",
    }
)


def lint_releases(
    sequence: Sequence, programs: Iterable[Program], placement: Placement, flow: Flow, findings: Findings
) -> None:
    """Check that a core gives back what it acquires in every turn, unless one object is all it ever needs."""
    rooms = {(name, pool.tile): pool.count for pool in placement.pools for name in pool.users}
    for program in programs:
        if not program.endless:
            continue
        tile = program.core.tile
        body = list(statements(program.body))
        released = {(s.fifo, s.port) for s in body if isinstance(s, Release)}
        for end in sorted({(s.fifo, s.port) for s in body if isinstance(s, Acquire)} - released):
            name, port = end
            objects = flow.objects(name)
            if objects is None or objects.denominator != 1:
                continue
            room = rooms.get((name, tile), 0) if port == CONSUME else 0
            if objects > room:
                taken = "filled into" if port == CONSUME else "drained from"
                findings.add(
                    "release-missing",
                    f"{tile} FIFO @{name}",
                    f"objects its loop releases ({sequence.name} needs {objects.numerator:,} {taken} it)",
                    limit="1 or more",
                    value=0,
                )


def lint_order(
    design: Design,
    sequence: Sequence,
    placement: Placement,
    buffers: Values,
    before: Iterable[Finding],
    findings: Findings,
    moves: int | None = None,
) -> int | None:
    """Run a sequence's data as far as it comes by each await; `before` are the findings that may make that void.

    Returns how many of `moves` (None: as many as a design may take) are left for the next sequence.
    """
    if any(finding.rule in _FIRST for finding in before):
        return moves
    try:
        network = Network(design, sequence, placement, buffers, moves)
    except NotFollowed:
        return moves
    with suppress(NotFollowed):
        _Order(network, sequence, findings).walk()
    return max(0, network.left)


class _Order:
    def __init__(self, network: Network, sequence: Sequence, findings: Findings) -> None:
        self.network = network
        self.sequence = sequence
        self.findings = findings
        self.tasks = {task.number: task for task in sequence.tasks}
        self.ends: dict[int, int] = {}
        self.total: dict[str, int] = {}

    def walk(self) -> None:
        for position, step in enumerate(self.sequence.steps):
            if isinstance(step, StartTask):
                self.start(self.tasks[step.task])
            elif isinstance(step, RtpWrite):
                self.network.run()
                self.network.write(step)
            elif isinstance(step, SetLock):
                self.network.run()
                self.network.set_lock(step.lock, step.value)
            elif isinstance(step, AwaitTask):
                self.network.run()
                task = self.tasks[step.task]
                if not self.ended(task):
                    self.stuck("await-early", task, position)
                    return
        self.network.run()
        for number in self.ends:
            if not self.ended(self.tasks[number]):
                self.stuck("task-stuck", self.tasks[number], len(self.sequence.steps))
                return

    def start(self, task: Task) -> None:
        size = self.sequence.bytes_of(task)
        self.network.start(task, size)
        self.total[task.fifo] = self.total.get(task.fifo, 0) + size
        self.ends[task.number] = self.total[task.fifo]

    def ended(self, task: Task) -> bool:
        return self.network.moved(task.fifo) >= self.ends[task.number]

    def stuck(self, rule: str, task: Task, position: int) -> None:
        lack = self.network.lacks(task.fifo)
        what = "what must be started by its await" if rule == "await-early" else "what it needs to end"
        expected, found = self.missing(lack, position)
        self.findings.add(rule, task_name(self.sequence, task), what, limit=expected, value=found)

    def missing(self, lack: Lack, position: int) -> tuple[str, str]:
        """Return what is expected and what is found in its place."""
        if lack.fifo is None:
            return "data and room for it", f"everything waits for {lack.other}"
        verb, past = ("fill", "filled into") if lack.filled else ("drain", "drained from")
        bytes_ = self.total.get(lack.fifo, 0)
        later = [
            step.task
            for step in self.sequence.steps[position:]
            if isinstance(step, StartTask) and self.tasks[step.task].fifo == lack.fifo
        ]
        expected = f"a {verb} of @{lack.fifo} beyond the {bytes_:,} bytes {past} it so far"
        return expected, f"task {later[0]}, which starts only after it" if later else "none"

"""What a sequence of a design moves and computes, counted from its taps and links: bytes, runs, tasks, calls.

Only the design is read. Bytes of a shim FIFO are those of its tasks; a link passes them on (whole, or a piece each);
what a core takes in tells how often it calls its kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from elfkiln.design.model import (
    Acquire,
    Call,
    Core,
    Design,
    Fifo,
    Link,
    Loop,
    ObjectRef,
    Sequence,
    StartTask,
    Statement,
)
from elfkiln.design.patterns import pattern_of, task_dims


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one shim FIFO carries in a sequence: bytes, tasks, and its runs by length in bytes.

    `column` is the shim's; `into_array` says that it is a fill (MM2S), else a drain (S2MM).
    """

    fifo: str
    argument: int
    column: int
    into_array: bool
    bytes: int
    tasks: int
    runs: tuple[tuple[int, int], ...]

    def short_runs(self, full: int) -> int:
        """Return the number of runs below `full` bytes."""
        return sum(count for length, count in self.runs if length < full)


@dataclass(frozen=True, slots=True)
class KernelCalls:
    """How often each core of a design calls a kernel in a sequence, and with objects of which types."""

    kernel: str
    calls: int
    cores: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Everything a sequence moves: the shim's transfers, bytes by FIFO, calls by kernel."""

    transfers: tuple[Transfer, ...]
    fifo_bytes: tuple[tuple[str, int], ...]
    calls: tuple[KernelCalls, ...]

    @property
    def tasks(self) -> int:
        """Shim DMA tasks of the sequence."""
        return sum(transfer.tasks for transfer in self.transfers)


def traffic_of(design: Design, sequence: Sequence) -> Traffic:
    """Return what a sequence moves; raises `ValueError` with the reason when a task's tap cannot be followed."""
    transfers = tuple(_transfers(design, sequence))
    fifo_bytes = _fifo_bytes(design, {transfer.fifo: transfer.bytes for transfer in transfers})
    return Traffic(transfers, tuple(sorted(fifo_bytes.items())), tuple(_calls(design, fifo_bytes)))


def _transfers(design: Design, sequence: Sequence) -> Iterator[Transfer]:
    by_fifo: dict[str, list[tuple[int, int]]] = {}
    arguments: dict[str, int] = {}
    for step in sequence.steps:
        if not isinstance(step, StartTask):
            continue
        task = sequence.tasks[step.task]
        dims = task_dims(task)
        if isinstance(dims, str):
            raise ValueError(f"task {task.number} of {task.fifo}: {dims}")
        element = sequence.arguments[task.argument].element_bytes
        pattern = pattern_of(dims, task.offset, element)
        by_fifo.setdefault(task.fifo, []).append((pattern.run, pattern.bytes // pattern.run))
        arguments[task.fifo] = task.argument
    for name, found in by_fifo.items():
        fifo = design.fifo(name)
        into = fifo.producer.kind == "shim"
        runs: Counter[int] = Counter()
        for length, count in found:
            runs[length] += count
        total = sum(length * count for length, count in runs.items())
        column = fifo.producer.col if into else fifo.consumers[0].col
        yield Transfer(name, arguments[name], column, into, total, len(found), tuple(sorted(runs.items())))


def _fifo_bytes(design: Design, shim: dict[str, int]) -> dict[str, int]:
    """Return the bytes of every FIFO that the shim's tasks feed or empty, through links both ways."""
    known = dict(shim)
    fifos = {fifo.name: fifo for fifo in design.fifos}
    # A link tells the other side's bytes; chains of links take as many turns as they are long.
    for _ in range(len(design.links) + 1):
        for link in design.links:
            _pass_on(link, fifos, known)
    return known


def _pass_on(link: Link, fifos: dict[str, Fifo], known: dict[str, int]) -> None:
    if len(link.ins) > 1:
        outer, parts, offsets = link.outs[0], link.ins, link.src_offsets
    else:
        outer, parts, offsets = link.ins[0], link.outs, link.dst_offsets
    if len(parts) == 1:
        source, sink = (outer, parts[0]) if len(link.ins) == 1 else (parts[0], outer)
        # A mem tile that repeats its objects sends more than it got.
        turns = max(fifos[sink].repeat_count, 1)
        if source in known:
            known.setdefault(sink, known[source] * turns)
        elif sink in known:
            known[source] = known[sink] // turns
        return
    whole = fifos[outer].object_type
    bounds = [*(offset * whole.element_bytes for offset in offsets), whole.bytes]
    for part, low, high in zip(parts, bounds, bounds[1:], strict=False):
        if outer in known and part not in known:
            known[part] = known[outer] * (high - low) // whole.bytes
    if outer not in known and all(part in known for part in parts):
        known[outer] = sum(known[part] for part in parts)


def _calls(design: Design, fifo_bytes: dict[str, int]) -> Iterator[KernelCalls]:
    counts: dict[tuple[str, int], int] = {}
    for core in design.cores:
        for kernel, calls in _calls_of(core, design, fifo_bytes):
            counts[kernel, calls] = counts.get((kernel, calls), 0) + 1
    for (kernel, calls), cores in sorted(counts.items()):
        yield KernelCalls(kernel, calls, cores)


def _calls_of(core: Core, design: Design, fifo_bytes: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Return (kernel, calls): a kernel is called once for every object of the FIFO it uses up fastest."""
    acquires = {s.number: s for s in _flat(core.body) if isinstance(s, Acquire)}
    turns: dict[str, int] = {}
    for statement in _flat(core.body):
        if not isinstance(statement, Call):
            continue
        most = 0
        for argument in statement.arguments:
            if isinstance(argument, ObjectRef):
                taken = acquires[argument.acquire]
                size = design.fifo(taken.fifo).object_type.bytes
                most = max(most, fifo_bytes.get(taken.fifo, 0) // size)
        turns[statement.kernel] = max(turns.get(statement.kernel, 0), most)
    yield from turns.items()


def _flat(body: tuple[Statement, ...]) -> Iterator[Statement]:
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from _flat(statement.body)

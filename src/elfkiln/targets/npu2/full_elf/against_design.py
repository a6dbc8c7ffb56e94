"""An ELF's instruction streams held against the design they were made of: everything they do, in its order.

A stream left over from another build runs the right array with the wrong data, and one wrong operand of a wait or of a
token's way ends in a hang or in results that are read too early. So a stream is compared with what the design's steps
become (mlir-aie AIEDmaToNpu.cpp, AIEDMATasksToNPU.cpp), event by event.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from elfkiln.design.fifo_lowering import DmaEnd, place
from elfkiln.design.model import (
    AwaitTask,
    Design,
    FreeTask,
    LoadPdi,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Task,
    Tile,
)
from elfkiln.design.patterns import pattern_of, task_dims
from elfkiln.hardware.limits import WORD_BYTES, limit
from elfkiln.targets.kinds import WRONG_DESIGN, bad
from elfkiln.targets.npu2.full_elf.contents import FullElf, Instance
from elfkiln.targets.npu2.full_elf.stream import BURST_BYTES, Controller, Event, Load, Other, Sync, Transfer, Write

SHIM_CONTROLLER = 15
"""The controller that gets the tokens of a shim's channels (aie-assign-tile-controller-ids, both generations)."""

# First lock of a tile by its kind; a lock takes 16 bytes (AIETargetModel, getLocalLockAddress).
_LOCKS = {"core": 0x1F000, "mem": 0xC0000}
_LOCK_BYTES = 16
_WORD = 0xFFFFFFFF


def check_design(full: FullElf, design: Design) -> None:
    """Check that an ELF's instruction streams are those of a (linted) design, one operation after the other.

    Compared are loads, tasks (channel, buffer, walk, runs, token, burst), the controller that each token goes to, the
    operands of waits, run-time parameters and lock values, that no buffer descriptor is written over while a task still
    has it, and that the PDI configures every core and mem tile of the design. Raises `BadElf` (kind `wrong-design`)
    naming the first that differs.
    """
    placed = place(design).ends
    ends = {end.fifo: end for end in placed if end.tile.kind == "shim"}
    _check_image(full, {*(core.tile for core in design.cores), *(end.tile for end in placed if end.tile.kind == "mem")})
    exported = {instance.name: instance for kernel in full.kernels for instance in kernel.instances}
    if set(exported) != {sequence.name for sequence in design.sequences}:
        names = ", ".join(sequence.name for sequence in design.sequences)
        raise bad(WRONG_DESIGN, "instances", expected=names, found=", ".join(exported))
    # Where buffers and locks lie is the compiler's choice, but one for all sequences.
    places = _Places({buffer.name: buffer.type.bytes for buffer in design.buffers})
    for sequence in design.sequences:
        _check_counts(sequence, exported[sequence.name])
        _check_sequence(sequence, exported[sequence.name], design, ends, places)


def _check_image(full: FullElf, tiles: set[Tile]) -> None:
    """Check that the PDI writes to every tile the design uses; routes may lead over others."""
    configured = set(full.pdis[0].tiles)
    for tile in sorted(tiles):
        if (tile.col, tile.row) not in configured:
            raise bad(WRONG_DESIGN, ".pdi.1", expected=f"a configuration of {tile}", found=f"{len(configured)} others")


def _check_counts(sequence: Sequence, instance: Instance) -> None:
    """Say first how many of each there are: a missing task says more than a shifted order."""
    counts = {
        "load_pdi operations": (sum(isinstance(s, LoadPdi) for s in sequence.steps), len(instance.loads)),
        "tasks": (sum(isinstance(s, StartTask) for s in sequence.steps), len(instance.transfers)),
        "syncs": (sum(isinstance(s, AwaitTask) for s in sequence.steps), instance.syncs),
    }
    for what, (wanted, got) in counts.items():
        if wanted != got:
            raise bad(WRONG_DESIGN, f"{sequence.name}: {what}", expected=wanted, found=got)


@dataclass(slots=True)
class _Places:
    """Where named buffers and locks lie, as far as the streams have shown it."""

    buffer_bytes: dict[str, int]
    buffers: dict[str, tuple[Tile, int]] = field(default_factory=dict)
    locks: dict[str, tuple[Tile, int]] = field(default_factory=dict)

    def buffer_at(self, name: str, tile: Tile, base: int) -> bool:
        """Take note of a buffer's first byte; False when it cannot lie there."""
        size = self.buffer_bytes[name]
        inside = base >= 0 and base + size <= limit("memory", tile.kind).value and base % WORD_BYTES == 0
        free = all(
            name == other or tile != where or base + size <= start or start + self.buffer_bytes[other] <= base
            for other, (where, start) in self.buffers.items()
        )
        return inside and free and self.buffers.setdefault(name, (tile, base)) == (tile, base)

    def lock_at(self, name: str, tile: Tile, register: int) -> bool:
        """Take note of a lock's register; False when it is none of the tile's locks, or another one's."""
        number, rest = divmod(register - _LOCKS.get(tile.kind, register + 1), _LOCK_BYTES)
        known = rest == 0 and 0 <= number < limit("locks", tile.kind).value
        free = all(name == other or (tile, number) != place for other, place in self.locks.items())
        return known and free and self.locks.setdefault(name, (tile, number)) == (tile, number)


def _check_sequence(
    sequence: Sequence, instance: Instance, design: Design, ends: dict[str, DmaEnd], places: _Places
) -> None:
    """Hold each event against the step it comes from, and see that descriptors live as long as their tasks."""
    events = iter(instance.events)
    after: list[int] = []
    """Events that the steps up to and including each one make."""
    started: dict[int, list[Transfer]] = {}
    count = 0
    for step in sequence.steps:
        for what, expected in _expected(step, sequence, design, ends):
            found = next(events, None)
            count += 1
            if not _agrees(expected, found, places):
                raise bad(WRONG_DESIGN, f"{sequence.name} {what}", expected=_shown(expected), found=_shown(found))
            if isinstance(step, StartTask) and isinstance(found, Transfer):
                started.setdefault(step.task, []).append(found)
        after.append(count)
    extra = next(events, None)
    if extra is not None:
        raise bad(WRONG_DESIGN, f"{sequence.name}: after its last step", expected="nothing", found=_shown(extra))
    _check_descriptors(sequence, instance, started, after)


def _check_descriptors(
    sequence: Sequence, instance: Instance, started: dict[int, list[Transfer]], after: list[int]
) -> None:
    """Check that no task's descriptor is written over before the design gives it back."""
    given_back = {
        step.task: count
        for step, count in zip(sequence.steps, after, strict=True)
        if isinstance(step, AwaitTask | FreeTask)
    }
    writes: dict[tuple[int, int], list[int]] = {}
    for column, index, written in instance.descriptors:
        writes.setdefault((column, index), []).append(written)
    for number, pushes in started.items():
        key = pushes[-1].column, pushes[-1].descriptor
        following = bisect_right(writes[key], pushes[0].written)
        until = given_back.get(number)
        if following < len(writes[key]) and (until is None or writes[key][following] < until):
            what = f"{sequence.name} task {number}: descriptor {key[1]} of column {key[0]}"
            kept = "kept to the end" if until is None else f"kept for {until} events"
            raise bad(WRONG_DESIGN, what, expected=kept, found=f"written over after {writes[key][following]}")


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A word to write into a named buffer."""

    tile: Tile
    buffer: str
    index: int
    value: int


@dataclass(frozen=True, slots=True)
class _LockValue:
    """A value to give a named lock."""

    tile: Tile
    lock: str
    value: int


def _expected(
    step: object, sequence: Sequence, design: Design, ends: dict[str, DmaEnd]
) -> Iterator[tuple[str, Load | Controller | Sync | _Parameter | _LockValue | tuple[object, ...]]]:
    """Yield what a step becomes: what messages call it, and the event (a task as `_task` has it)."""
    match step:
        case LoadPdi():
            yield "load_pdi", Load(1)
        case StartTask():
            task = sequence.tasks[step.task]
            end = _end(task, sequence, ends)
            what = f"task {task.number} on @{task.fifo}"
            if task.issue_token:
                yield f"{what}: token", Controller(end.tile.col, end.direction, end.channel, SHIM_CONTROLLER)
            yield what, _of_task(task, sequence, end)
        case AwaitTask():
            task = sequence.tasks[step.task]
            end = _end(task, sequence, ends)
            yield (
                f"wait for task {task.number} on @{task.fifo}",
                Sync(end.tile.col, 0, end.direction, end.channel, 1, 1),
            )
        case RtpWrite():
            tile = next(buffer.tile for buffer in design.buffers if buffer.name == step.buffer)
            what = f"run-time parameter @{step.buffer}[{step.index}]"
            yield what, _Parameter(tile, step.buffer, step.index, step.value & _WORD)
        case SetLock():
            tile = next(lock.tile for lock in design.locks if lock.name == step.lock)
            yield f"value of lock @{step.lock}", _LockValue(tile, step.lock, step.value & _WORD)


def _end(task: Task, sequence: Sequence, ends: dict[str, DmaEnd]) -> DmaEnd:
    if task.fifo not in ends:
        raise bad(
            WRONG_DESIGN, f"{sequence.name} task {task.number}", expected="a FIFO with a shim end", found=task.fifo
        )
    return ends[task.fifo]


def _of_task(task: Task, sequence: Sequence, end: DmaEnd) -> tuple[object, ...]:
    """Return what a design's task says, in the terms of a stream: bytes, column, direction."""
    width = sequence.arguments[task.argument].element_bytes
    dims = task_dims(task)
    return (
        end.tile.col,
        end.direction,
        end.channel,
        task.argument,
        dims if isinstance(dims, str) else pattern_of(dims, task.offset, width),
        task.length * width,
        task.repeat_count + 1,
        task.issue_token,
        # 0 asks for the longest.
        task.burst_length or BURST_BYTES[-1],
    )


def _in_terms_of_a_task(transfer: Transfer) -> tuple[object, ...]:
    return (
        transfer.column,
        transfer.direction,
        transfer.channel,
        transfer.argument,
        transfer.pattern,
        transfer.length * WORD_BYTES,
        transfer.runs,
        transfer.token,
        transfer.burst,
    )


def _agrees(expected: Any, found: Event | None, places: _Places) -> bool:
    match expected, found:
        case tuple(), Transfer():
            return bool(expected == _in_terms_of_a_task(found))
        case _Parameter(), Write():
            place = (found.column, found.row) == (expected.tile.col, expected.tile.row)
            base = found.register - expected.index * WORD_BYTES
            return place and found.value == expected.value and places.buffer_at(expected.buffer, expected.tile, base)
        case _LockValue(), Write():
            place = (found.column, found.row) == (expected.tile.col, expected.tile.row)
            return (
                place and found.value == expected.value and places.lock_at(expected.lock, expected.tile, found.register)
            )
    return bool(expected == found)


def _shown(event: Any) -> str:
    """Return an expected or found event in words."""
    match event:
        case Transfer():
            return str(_in_terms_of_a_task(event))
        case Load():
            return f"load_pdi of PDI {event.number}"
        case Controller():
            return f"controller {event.number} for {event.direction} {event.channel} of column {event.column}"
        case Sync():
            place = f"{event.direction} {event.channel} of column {event.column}, row {event.row}"
            return f"a wait for {place}, {event.columns} x {event.rows} tiles"
        case Write():
            return f"{event.value:#x} to {event.register:#x} of column {event.column}, row {event.row}"
        case _Parameter():
            return f"{event.value:#x} to @{event.buffer} of {event.tile}, word {event.index}"
        case _LockValue():
            return f"{event.value} to a lock of {event.tile}"
        case Other():
            return f"a {event.name} to {event.address:#x}"
        case None:
            return "the end"
    return str(event)

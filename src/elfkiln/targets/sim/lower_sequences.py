"""Lowers a runtime sequence: its tasks' taps in bytes, its steps, with what is wrong with them whatever happens."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several

from elfkiln.design.model import (
    WORD,
    AwaitTask,
    Design,
    FreeTask,
    LoadPdi,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Step,
    Task,
    Tile,
)
from elfkiln.design.patterns import MOST_DIMS, Pattern, pattern_of, task_dims
from elfkiln.engine.contract import ARGUMENT_C, MOST_ARGUMENTS
from elfkiln.errors import Refused
from elfkiln.hardware.limits import limit
from elfkiln.targets.sim.machine import (
    HostArgument,
    MachineSequence,
    MachineStep,
    MachineTask,
    again_symbol,
    entry_symbol,
)

MOST_TASK_BYTES = 1 << 36
"""What one task may move; a larger one would keep the simulator busy for minutes, and the array too."""

_NOTHING = Pattern(0, 1, ())
_MOST_ELEMENT = (1 << 32) - 1


def lower_sequence(
    design: Design, sequence: Sequence, streams: Mapping[str, int], shims: Several[Tile]
) -> MachineSequence:
    """Return a sequence as the runtime executes it.

    `streams` numbers the streams of the FIFOs (empty when the array cannot be loaded), `shims` lists the shim tiles.
    Raises `Refused` for a step that names a task there is not.
    """
    lowering = _SequenceLowering(design, sequence, streams, shims)
    tasks = tuple(lowering.task(task) for task in sequence.tasks)
    steps = tuple(lowering.step(step) for step in sequence.steps)
    arguments = []
    for number, argument in enumerate(sequence.arguments):
        sound = [task for task in tasks if task.argument == number and task.fault is None]
        reads, writes = any(not task.drains for task in sound), any(task.drains for task in sound)
        arguments.append(HostArgument(argument.bytes, argument.element_bytes, reads, writes))
    return MachineSequence(
        entry_symbol(design, sequence), again_symbol(design, sequence), tasks, steps, tuple(arguments)
    )


class _SequenceLowering:
    """Lowers one sequence."""

    def __init__(self, design: Design, sequence: Sequence, streams: Mapping[str, int], shims: Several[Tile]) -> None:
        self.design = design
        self.sequence = sequence
        self.streams = streams
        self.shims = shims
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.buffers = {buffer.name: number for number, buffer in enumerate(design.buffers)}
        self.locks = {lock.name: number for number, lock in enumerate(design.locks)}

    def task(self, task: Task) -> MachineTask:
        fifo = self.fifos.get(task.fifo)
        drains = fifo is not None and fifo.producer.kind != "shim"
        pattern, fault = self.tap(task, drains)
        shim = None
        if fifo is None:
            fault = f"there is no FIFO {task.fifo}"
        else:
            shim = next((tile for tile in (fifo.producer, *fifo.consumers) if tile.kind == "shim"), None)
            if shim is None:
                fault = f"FIFO {task.fifo} has no end on a shim tile"
        return MachineTask(
            stream=self.streams.get(task.fifo, 0),
            shim=-1 if shim is None else self.shims.index(shim),
            argument=max(0, min(task.argument, MOST_ARGUMENTS - 1)),
            drains=drains,
            token=task.issue_token,
            configured_at=self.configured_at(task),
            fifo=task.fifo,
            pattern=pattern,
            fault=fault,
        )

    def configured_at(self, task: Task) -> int:
        """Return the step before which a task takes its descriptor: that of its start, if the design does not say."""
        if task.configured_at is not None:
            return max(0, task.configured_at)
        starts = (n for n, step in enumerate(self.sequence.steps) if step == StartTask(task.number))
        return next(starts, 0)

    def tap(self, task: Task, drains: bool) -> tuple[Pattern, str | None]:
        """Return a task's pattern over its argument, and what is wrong with it."""
        arguments = self.sequence.arguments
        if not 0 <= task.argument < len(arguments):
            return _NOTHING, f"argument {task.argument} of {len(arguments)}"
        dims = task_dims(task)
        if isinstance(dims, str):
            return _NOTHING, dims
        argument = arguments[task.argument]
        width = argument.element_bytes
        name = "ABC"[task.argument]
        pattern = pattern_of(dims, task.offset, width)
        if not 0 < pattern.bytes <= MOST_TASK_BYTES:
            return _NOTHING, f"it moves {pattern.bytes} bytes"
        if len(pattern.dims) > MOST_DIMS:
            return _NOTHING, f"its tap has more than {MOST_DIMS} dimensions"
        if pattern.first < 0 or pattern.last > argument.bytes:
            first, last = pattern.first // width, pattern.last // width - 1
            return _NOTHING, f"its tap touches elements {first} to {last} of {name}, which has {argument.elements}"
        if drains and task.argument != ARGUMENT_C:
            return _NOTHING, f"it writes argument {name}; an entry writes only C, its third argument"
        return pattern, None

    def step(self, step: Step) -> MachineStep:
        match step:
            case LoadPdi(device):
                wrong = f"it loads device {device}, and this ELF holds {self.design.name}"
                return MachineStep("load_pdi", fault=None if device == self.design.name else wrong)
            case StartTask(task):
                return MachineStep("start", self.known(task))
            case AwaitTask(task):
                return MachineStep("await", self.known(task))
            case FreeTask(task):
                return MachineStep("free", self.known(task))
            case SetLock(lock, value):
                return self.set_lock(lock, value)
            case RtpWrite(name, index, value):
                return self.rtp_write(name, index, value)
        raise AssertionError(step)

    def known(self, task: int) -> int:
        if not 0 <= task < len(self.sequence.tasks):
            raise Refused(f"sequence {self.sequence.name}: there is no task {task}")
        return task

    def set_lock(self, lock: str, value: int) -> MachineStep:
        most = limit("lock-value").value
        if lock not in self.locks:
            return MachineStep("set_lock", fault=f"there is no lock {lock}")
        if not 0 <= value <= most:
            return MachineStep("set_lock", fault=f"{lock} is set to {value}, and a lock counts from 0 to {most}")
        return MachineStep("set_lock", self.locks[lock], value=value)

    def rtp_write(self, name: str, index: int, value: int) -> MachineStep:
        element = max(0, min(index, _MOST_ELEMENT))
        if name not in self.buffers:
            return MachineStep("rtp_write", element=element, fault=f"there is no buffer {name}")
        buffer = self.design.buffers[self.buffers[name]]
        width = buffer.type.element_bytes
        fault = None
        if width > WORD:
            fault = f"{name} at {buffer.tile} does not hold 32-bit values: {buffer.type}"
        elif index != element or (index + 1) * WORD > buffer.type.bytes:
            fault = f"{name} at {buffer.tile} has {buffer.type.elements} elements"
        # The sequence writes whole words, whatever the elements are: of smaller ones it covers several.
        return MachineStep("rtp_write", self.buffers[name], element * WORD // width, value, fault)

"""Geometry read back from a full ELF, compared with a name or a sealed set; its streams against their design."""

from __future__ import annotations

from collections.abc import Sequence

from elfkiln.design.fifo_lowering import place
from elfkiln.design.gemm import Gemm, Move, NotAGemm
from elfkiln.design.gemm import gemm_of as gemm_of_moves
from elfkiln.design.model import AwaitTask, Design, LoadPdi, StartTask, Task
from elfkiln.design.named_gemm import Entry, name_fault
from elfkiln.design.patterns import pattern_of, task_dims
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, SEALED_INIT
from elfkiln.hardware.limits import WORD_BYTES
from elfkiln.targets.kinds import WRONG_DESIGN, WRONG_GEOMETRY, BadElf, bad
from elfkiln.targets.npu2.full_elf.contents import FullElf, Instance
from elfkiln.targets.npu2.full_elf.stream import Transfer


def gemm_of(instance: Instance) -> Gemm:
    """Return the GEMM of an instance; `NotAGemm` when its tasks are none, or disagree among themselves."""
    moves = []
    for transfer in instance.transfers:
        task = _task_of(transfer)
        dims = task_dims(task)
        if isinstance(dims, str):
            raise NotAGemm(f"task of {task.fifo}: {dims}")
        pattern = pattern_of(dims, task.offset, WORD_BYTES)
        moves.append(Move(task.argument, task.fifo, transfer.direction == "mm2s", pattern))
    A, B, C = (instance.extent(argument) for argument in (ARGUMENT_A, ARGUMENT_B, ARGUMENT_C))
    return gemm_of_moves(moves, (A, B, C))


def check_full_elf(full: FullElf, name: ArtifactName | None, sealed: Sequence[tuple[int, int]]) -> None:
    """Raise `BadElf` (kind `wrong-geometry`) unless a full ELF is what the name, or the sealed geometries, say."""
    kernel = full.kernels[0]
    entries = [Entry(one.name, bool(one.loads), _gemm_or_why(one)) for one in kernel.instances]
    fault = name_fault(kernel.name, entries, name, tuple(sealed))
    if fault is not None:
        raise BadElf(WRONG_GEOMETRY, f"{WRONG_GEOMETRY}: {fault}")
    init = full.instance(SEALED_INIT)
    if name is None and init is not None and init.transfers:
        raise bad(WRONG_GEOMETRY, f"instance {SEALED_INIT}", expected="no tasks", found=len(init.transfers))


def _gemm_or_why(instance: Instance) -> Gemm | str:
    try:
        return gemm_of(instance)
    except NotAGemm as error:
        return str(error)


def check_design(full: FullElf, design: Design) -> None:
    """Check that an ELF's instruction streams are those of a (linted) design: every sequence's tasks, one for one.

    Raises `BadElf` (kind `wrong-design`) naming the first that differs: a stream left over from another build runs
    the right array with the wrong data.
    """
    ends = {end.fifo: end for end in place(design).ends if end.tile.kind == "shim"}
    exported = {instance.name: instance for kernel in full.kernels for instance in kernel.instances}
    if set(exported) != {sequence.name for sequence in design.sequences}:
        names = ", ".join(sequence.name for sequence in design.sequences)
        raise bad(WRONG_DESIGN, "instances", expected=names, found=", ".join(exported))
    for sequence in design.sequences:
        instance = exported[sequence.name]
        counts = {
            "load_pdi operations": (sum(isinstance(s, LoadPdi) for s in sequence.steps), len(instance.loads)),
            "tasks": (sum(isinstance(s, StartTask) for s in sequence.steps), len(instance.transfers)),
            "syncs": (sum(isinstance(s, AwaitTask) for s in sequence.steps), instance.syncs),
        }
        for what, (wanted, got) in counts.items():
            if wanted != got:
                raise bad(WRONG_DESIGN, f"{sequence.name}: {what}", expected=wanted, found=got)
        order = [step.task for step in sequence.steps if isinstance(step, StartTask)]
        for number, transfer in zip(order, instance.transfers, strict=True):
            task = sequence.tasks[number]
            end = ends.get(task.fifo)
            expected = None
            if end is not None:
                width = sequence.arguments[task.argument].element_bytes
                expected = (end.tile.col, end.direction, *_walk(task, width))
            found = (transfer.column, transfer.direction, *_walk(_task_of(transfer), WORD_BYTES))
            if expected != found:
                raise bad(
                    WRONG_DESIGN, f"{sequence.name} task {number} on @{task.fifo}", expected=expected, found=found
                )


def _walk(task: Task, width: int) -> tuple[object, ...]:
    """Return what a task does in the terms a design and a stream share: argument, bytes it walks, runs, token."""
    dims = task_dims(task)
    pattern = dims if isinstance(dims, str) else pattern_of(dims, task.offset, width)
    return task.argument, pattern, task.length * width, task.repeat_count + 1, task.issue_token


def _task_of(transfer: Transfer) -> Task:
    """Return a stream's task as a design has it, over 32-bit words."""
    return Task(
        0,
        f"column {transfer.column} channel {transfer.channel}",
        transfer.argument,
        transfer.offset // WORD_BYTES,
        transfer.sizes,
        transfer.strides,
        transfer.length,
        transfer.runs - 1,
        transfer.token,
    )

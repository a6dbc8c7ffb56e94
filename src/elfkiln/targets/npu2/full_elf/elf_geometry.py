"""Geometry read back from a full ELF, and compared with a name, a sealed set, or the design it was made of.

A GEMM's tasks say everything: how far A, B and C reach (M*K bytes, packed weights, M*N words), the step between rows
of A (K bytes) and of C (N words), and whether B comes in linear runs (contiguous layouts) or in rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import (
    ARGUMENT_A,
    ARGUMENT_B,
    ARGUMENT_C,
    DECODE_M,
    INSTANCE,
    SEALED_INIT,
    SEALED_TAG,
    WEIGHT_LAYOUTS,
    layout_of_tag,
    sealed_instance,
    weight_layout,
    weights_text,
)
from elfkiln.hardware.limits import WORD_BYTES
from elfkiln.targets.kinds import WRONG_DESIGN, WRONG_GEOMETRY, BadElf, bad
from elfkiln.targets.npu2.full_elf.contents import FullElf, Instance
from elfkiln.targets.npu2.full_elf.stream import Transfer

if TYPE_CHECKING:
    from elfkiln.design.fifo_lowering import DmaEnd
    from elfkiln.design.model import Design, Task
    from elfkiln.design.model import Sequence as DesignSequence

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Gemm:
    """The GEMM an instance computes: C[M, N] = A[M, K] @ B[K, N], with weights of `weight_bits`.

    `contiguous` says that B comes in linear runs; `columns` are those that drain C, `row_groups` and `column_groups`
    how often the array goes over the rows and columns of C.
    """

    M: int
    K: int
    N: int
    weight_bits: int
    contiguous: bool
    columns: int
    column_groups: int
    row_groups: int

    @property
    def text(self) -> str:
        """The geometry in words."""
        weights = weights_text(self.weight_bits, self.contiguous)
        return f"M={self.M} K={self.K} N={self.N}, {weights}, {self.columns} columns"


def gemm_of(instance: Instance) -> Gemm:
    """Return the GEMM of an instance; `BadElf` when its tasks are none, or disagree among themselves."""
    a, b, c = (_tasks(instance, argument) for argument in (ARGUMENT_A, ARGUMENT_B, ARGUMENT_C))
    N = _one(instance, "words between rows of C", {t.strides[2] for t in c})
    K = _one(instance, "bytes between rows of A", {t.strides[2] * WORD_BYTES for t in a})
    if N < 1 or K < 1:
        raise _bad(instance, "tasks of A and C", expected="rows of K bytes and N words", found="linear runs")
    A, B, C = (instance.extent(argument) for argument in (ARGUMENT_A, ARGUMENT_B, ARGUMENT_C))
    M = _whole(instance, "bytes of A over K", A, K)
    if C != M * N * WORD_BYTES:
        raise _bad(instance, "bytes of C", expected=f"{M} x {N} x {WORD_BYTES}", found=C)
    bits = B * 8 // (K * N)
    known = sorted({layout.weight_bits for layout in WEIGHT_LAYOUTS}, reverse=True)
    if bits not in known or bits * K * N != B * 8:
        expected = " or ".join(f"{K * N * width // 8:,}" for width in known)
        raise _bad(instance, "bytes of B", expected=expected, found=B)
    contiguous = _one(instance, "shape of B's tasks", {t.linear for t in b})
    if not contiguous:
        step = _one(instance, "bytes between rows of B", {t.strides[2] * WORD_BYTES for t in b})
        if step != N:
            raise _bad(instance, "bytes between rows of B", expected=N, found=step)
    if instance.moved(ARGUMENT_C) != C:
        raise _bad(instance, "bytes drained to C", expected=C, found=instance.moved(ARGUMENT_C))
    row_groups = _whole(instance, "bytes of B moved", instance.moved(ARGUMENT_B), B)
    column_groups = _whole(instance, "bytes of A moved", instance.moved(ARGUMENT_A), A)
    _tiled(instance, c, M, N)
    columns = len({t.column for t in c})
    return Gemm(M, K, N, bits, contiguous, columns, column_groups, row_groups)


def check_geometry(full: FullElf, name: ArtifactName) -> Gemm:
    """Check that an ELF computes what its name says: M, K, N, and weights of its layout; return the GEMM.

    Raises `BadElf` (kind `wrong-geometry`) naming the first number that differs.
    """
    instance = full.instance(INSTANCE)
    if instance is None:
        found = ", ".join(i.name for i in full.kernels[0].instances)
        raise bad(WRONG_GEOMETRY, f"{name}: instance", expected=INSTANCE, found=found)
    gemm = gemm_of(instance)
    _compare(str(name), gemm, name.M, name.K, name.N, name.layout)
    return gemm


def check_sealed(full: FullElf, geometries: Sequence[tuple[int, int]]) -> tuple[Gemm, ...]:
    """Check that a sealed ELF has exactly `init` and one 16-row instance per geometry (K, N), each computing it."""
    exported = [instance.name for instance in full.kernels[0].instances]
    wanted = [SEALED_INIT, *(sealed_instance(K, N) for K, N in geometries)]
    missing = [name for name in wanted if name not in exported]
    extra = [name for name in exported if name not in wanted]
    if missing or extra:
        found = f"missing {', '.join(missing) or 'none'}; not asked for {', '.join(extra) or 'none'}"
        raise bad(WRONG_GEOMETRY, "sealed ELF: instances", expected=f"{len(wanted)}", found=found)
    init = full.instance(SEALED_INIT)
    assert init is not None
    if init.transfers:
        raise bad(WRONG_GEOMETRY, f"instance {SEALED_INIT}", expected="no tasks", found=len(init.transfers))
    gemms = []
    for K, N in geometries:
        instance = full.instance(sealed_instance(K, N))
        assert instance is not None
        gemm = gemm_of(instance)
        _compare(instance.name, gemm, DECODE_M, K, N, layout_of_tag(SEALED_TAG))
        gemms.append(gemm)
    return tuple(gemms)


def _compare(what: str, gemm: Gemm, M: int, K: int, N: int, layout: str) -> None:
    lies = weight_layout(layout)
    bits = lies.weight_bits, gemm.weight_bits
    numbers = {"M": (M, gemm.M), "K": (K, gemm.K), "N": (N, gemm.N), "bits a weight": bits}
    for letter, (expected, found) in numbers.items():
        if expected != found:
            raise bad(WRONG_GEOMETRY, f"{what}: {letter}", expected=expected, found=f"{found} ({gemm.text})")
    if gemm.contiguous != lies.contiguous:
        words = {True: "linear runs", False: "rows"}
        raise bad(WRONG_GEOMETRY, f"{what}: weights", expected=words[lies.contiguous], found=words[gemm.contiguous])


def _tasks(instance: Instance, argument: int) -> list[Transfer]:
    tasks = [t for t in instance.transfers if t.argument == argument]
    inward = argument != ARGUMENT_C
    if not tasks or any((t.direction == "mm2s") != inward for t in tasks):
        expected = f"tasks that {'fill the array from' if inward else 'drain it to'} argument {argument}"
        raise _bad(
            instance, "tasks", expected=expected, found=f"{len(tasks)} of another direction" if tasks else "none"
        )
    return tasks


def _bad(instance: Instance, what: str, *, expected: object, found: object) -> BadElf:
    return bad(WRONG_GEOMETRY, f"instance {instance.name}: {what}", expected=expected, found=found)


def _one(instance: Instance, what: str, values: set[_T]) -> _T:
    if len(values) != 1:
        raise _bad(instance, what, expected="one value", found=sorted(map(str, values)))
    return values.pop()


def _whole(instance: Instance, what: str, number: int, part: int) -> int:
    if part < 1 or number % part or not number:
        raise _bad(instance, what, expected=f"a multiple of {part}", found=number)
    return number // part


def _tiled(instance: Instance, tasks: list[Transfer], M: int, N: int) -> None:
    """Check that the tasks of C are rectangles that cover it once: bands of rows, each cut into columns.

    A task writes blocks of some rows and columns side by side (8 x 8 in every design seen), then the next band below.
    """
    bands: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for task in tasks:
        down, across, rows, columns = task.sizes
        steps = (
            (down, task.strides[0], rows * N),
            (across, task.strides[1], columns),
            (2, task.strides[2], N),
            (2, task.strides[3], 1),
        )
        if task.runs != down or any(size > 1 and stride != wanted for size, stride, wanted in steps):
            found = f"sizes {list(task.sizes)}, strides {list(task.strides)}, {task.runs} runs"
            raise _bad(instance, "task of C", expected=f"a rectangle of blocks, rows of {N} words", found=found)
        row, column = divmod(task.offset // WORD_BYTES, N)
        bands.setdefault((row, down * rows), []).append((column, across * columns))
    if not _cuts(list(bands), M):
        raise _bad(instance, "rows of C's tasks", expected=f"each of {M} rows once", found=sorted(bands))
    for (row, _), parts in bands.items():
        if not _cuts(parts, N):
            raise _bad(instance, f"columns of C from row {row}", expected=f"each of {N} once", found=sorted(parts))


def _cuts(parts: list[tuple[int, int]], whole: int) -> bool:
    """Return whether (start, length) parts follow each other from 0 to `whole`."""
    end = 0
    for start, length in sorted(parts):
        if start != end:
            return False
        end += length
    return end == whole


def check_design(full: FullElf, design: Design) -> None:
    """Check that an ELF's instruction streams are those of a (linted) design: every sequence's tasks, one for one.

    Raises `BadElf` (kind `wrong-design`) naming the first that differs: a stream left over from another build runs
    the right array with the wrong data.
    """
    from elfkiln.design.fifo_lowering import place
    from elfkiln.design.model import AwaitTask, LoadPdi, StartTask

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
            expected = None if end is None else _of_task(task, sequence, end)
            found = (
                transfer.column,
                transfer.direction,
                transfer.argument,
                transfer.offset,
                _bursts(transfer.sizes, transfer.strides, WORD_BYTES),
                transfer.length * WORD_BYTES,
                transfer.runs,
                transfer.token,
            )
            if expected != found:
                raise bad(
                    WRONG_DESIGN, f"{sequence.name} task {number} on @{task.fifo}", expected=expected, found=found
                )


def _of_task(task: Task, sequence: DesignSequence, end: DmaEnd) -> tuple[object, ...]:
    """Return what a design's task says, in the terms of a stream: bytes, column, direction."""
    from elfkiln.lint.taps import full_tap

    width = sequence.arguments[task.argument].element_bytes
    sizes, strides = full_tap(task)
    return (
        end.tile.col,
        end.direction,
        task.argument,
        task.offset * width,
        _bursts(sizes, strides, width),
        task.length * width,
        task.repeat_count + 1,
        task.issue_token,
    )


def _bursts(sizes: Sequence[int], strides: Sequence[int], width: int) -> tuple[tuple[int, int], ...]:
    """Return an access pattern in bytes with neighbouring dimensions that are one run folded, outermost first."""
    folded: list[tuple[int, int]] = [(width, 1)]
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        # A stride of 0 is a plain repeat: the number of runs says it.
        if size == 1 or stride == 0:
            continue
        run, step = folded[-1]
        if stride * width == run * step:
            folded[-1] = (run * size, step)
        else:
            folded.append((size, stride * width))
    return tuple(reversed(folded))

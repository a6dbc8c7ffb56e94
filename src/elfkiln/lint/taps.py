"""Taps: what each task of a sequence asks of a shim's buffer descriptor."""

from __future__ import annotations

from math import prod

from elfkiln.design.model import Fifo, MemRef, Sequence, Task
from elfkiln.design.patterns import TAP_DIMS, contiguous, fills, full_tap, pattern_of, task_dims
from elfkiln.hardware.limits import WORD_BYTES, limit
from elfkiln.hardware.timing import constant
from elfkiln.lint.finding import Findings

BURSTS = (0, 64, 128, 256, 512)
"""Bytes of a burst that a shim's descriptor can ask for; 0 stands for the longest."""


def task_name(sequence: Sequence, task: Task) -> str:
    """Return how messages name a task: `seq task 7 on @B_mem_1`."""
    return f"{sequence.name} task {task.number} on @{task.fifo}"


def lint_tasks(sequence: Sequence, fifos: dict[str, Fifo], findings: Findings) -> None:
    """Check every task of a sequence by itself."""
    for task in sequence.tasks:
        where = task_name(sequence, task)
        fifo = fifos.get(task.fifo)
        if fifo is None or fills(fifo) is None:
            found = f"@{task.fifo}" if fifo is None else "none" if fills(fifo) is None else ""
            findings.add("task-fifo", where, "FIFO with one shim end", limit="one of the design", value=found)
        if not 0 <= task.argument < len(sequence.arguments):
            count = len(sequence.arguments)
            findings.add("task-argument", where, "argument", limit=f"one of {count}", value=task.argument)
            continue
        _tap(task, sequence.arguments[task.argument], where, findings)


def lint_runs(sequence: Sequence, findings: Findings) -> None:
    """Warn, once for each FIFO, of tasks that move memory in runs shorter than a burst, with what that may cost."""
    least = limit("short-run", "shim").value
    shortest: dict[str, int] = {}
    count: dict[str, int] = {}
    for task in sequence.tasks:
        dims = task_dims(task)
        if isinstance(dims, str) or not 0 <= task.argument < len(sequence.arguments):
            continue
        pattern = pattern_of(dims, task.offset, sequence.arguments[task.argument].element_bytes)
        if pattern.run < min(least, pattern.bytes):
            shortest[task.fifo] = min(shortest.get(task.fifo, least), pattern.run)
            count[task.fifo] = count.get(task.fifo, 0) + pattern.bytes // pattern.run
    one = constant("run")
    for fifo, run in shortest.items():
        cost = count[fifo] * one.value * 1e3
        findings.add(
            "tap-short-runs",
            f"{sequence.name} FIFO @{fifo}",
            "bytes of a run of its tasks",
            limit=f"at least {least}",
            value=run,
            note=f"{count[fifo]:,} such runs, predicted to cost {cost:.3g} ms at {one.value * 1e9:g} ns each",
        )


def _tap(task: Task, buffer: MemRef, where: str, findings: Findings) -> None:
    if not 0 <= task.repeat_count <= limit("repeat", "shim").value:
        findings.add("tap-repeat", where, "repeat_count", limit=limit("repeat", "shim"), value=task.repeat_count)
    if len(task.sizes) != len(task.strides) or len(task.sizes) > TAP_DIMS or any(size < 1 for size in task.sizes):
        found = f"{list(task.sizes)} and {list(task.strides)}"
        findings.add(
            "tap-rank", where, "sizes and strides", limit="up to 4 positive sizes, as many strides", value=found
        )
        return
    if task.burst_length not in BURSTS:
        bound = ", ".join(map(str, BURSTS))
        findings.add("tap-burst", where, "burst_length", limit=f"one of {bound}", value=task.burst_length)
    width = buffer.element_bytes
    if width > limit("element", "shim").value:
        findings.add("tap-element", where, f"bytes of {buffer.element}", limit=limit("element", "shim"), value=width)
        return
    sizes, strides = full_tap(task)
    _range(task, buffer, sizes, strides, where, findings)
    moved = prod(sizes[1:])
    if moved != task.length:
        findings.add("tap-length", where, "elements of one run", limit=moved, value=task.length)
    for what, value in (("offset", task.offset), ("length", task.length)):
        if value > limit("i32").value:
            findings.add("tap-long", where, what, limit=limit("i32"), value=value)
    _repeats(task, sizes, strides, where, findings)
    _words(task, width, sizes, strides, where, findings)
    _fields(width, sizes, strides, where, findings)


def _range(
    task: Task, buffer: MemRef, sizes: tuple[int, ...], strides: tuple[int, ...], where: str, findings: Findings
) -> None:
    span = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    first, last = task.offset, task.offset + span
    if min(strides) >= 0 <= first and last < buffer.elements:
        return
    bound = f"0 to {buffer.elements - 1:,} of argument {task.argument}, {buffer}"
    findings.add("tap-range", where, "elements", limit=bound, value=f"{first:,} to {last:,}")


def _repeats(task: Task, sizes: tuple[int, ...], strides: tuple[int, ...], where: str, findings: Findings) -> None:
    """Check the outermost size against repeat_count, and the two ways to lose or double data with them."""
    given = next((size for size in sizes if size > 1), 1)
    if sizes[0] == 1 and task.sizes and task.repeat_count and given == task.repeat_count + 1:
        findings.add(
            "tap-short",
            where,
            "tap",
            limit="4 sizes, the first one the repeat",
            value=f"{list(sizes[sizes.index(given) :])} and repeat_count {task.repeat_count}",
            note=f"the data is sent {given} times",
        )
    elif task.sizes and sizes[0] != task.repeat_count + 1:
        findings.add("tap-iteration-repeat", where, "repeat_count", limit=sizes[0] - 1, value=task.repeat_count)
    linear = contiguous(sizes, strides)
    if sizes[0] > 1 and linear and strides[0] == prod(sizes[1:]):
        whole = prod(sizes)
        findings.add("tap-contiguous", where, "tap", limit=f"[1, 1, 1, {whole}]", value=str(list(sizes)))


def _words(
    task: Task, width: int, sizes: tuple[int, ...], strides: tuple[int, ...], where: str, findings: Findings
) -> None:
    def whole(what: str, elements: int) -> None:
        if elements * width % WORD_BYTES:
            bound = f"a multiple of {WORD_BYTES}"
            findings.add("tap-words", where, f"bytes of the {what}", limit=bound, value=elements * width)

    whole("offset", task.offset)
    linear = contiguous(sizes, strides)
    if linear:
        whole("length", prod(sizes[1:]))
    else:
        whole("innermost size", sizes[3])
    for position, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        if size == 1 and (linear or position == 3):
            continue
        if position == 3:
            if width < WORD_BYTES and stride != 1 and not linear:
                findings.add("tap-inner-stride", where, "innermost stride", limit=1, value=stride)
        elif position == 0 or not linear:
            # The tools want whole words even of a stride that is never taken.
            whole(f"stride of dimension {position}", stride)
        if size > 1 and stride < (0 if position == 0 else 1):
            findings.add("tap-zero-stride", where, f"stride of dimension {position}", limit="1 or more", value=stride)


def _fields(width: int, sizes: tuple[int, ...], strides: tuple[int, ...], where: str, findings: Findings) -> None:
    # With stride 0 too: the field of the iterations is written whatever the step between them is.
    if sizes[0] > limit("iterations").value:
        findings.add("tap-iterations", where, "outermost size", limit=limit("iterations"), value=sizes[0])
    linear = contiguous(sizes, strides)
    step = limit("stride", "shim")
    for position, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        words = -(-stride * width // WORD_BYTES)
        if size > 1 and words > step.value and (position == 0 or not linear):
            findings.add("tap-stride", where, f"words of the stride of dimension {position}", limit=step, value=words)
    if linear:
        return
    wrap = limit("wrap", "shim")
    inner = sizes[3] * width // WORD_BYTES
    if inner > wrap.value:
        findings.add("tap-wrap", where, "words of the innermost size", limit=wrap, value=inner)
    if sizes[2] > wrap.value:
        findings.add("tap-wrap", where, "second innermost size", limit=wrap, value=sizes[2])

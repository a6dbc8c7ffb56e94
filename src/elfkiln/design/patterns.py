"""Access patterns: what a DMA walks, which way, and with adjacent elements folded into runs of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from elfkiln.design.model import Dim, Fifo, Task

MOST_DIMS = 5
"""Loops the runtime keeps around a run (SIM_DIMS of runtime/sim.h)."""

TAP_DIMS = 4
"""Sizes and strides of a task's tap, unless it is linear and has none."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Loops (size, stride in bytes), outermost first, around contiguous runs of `run` bytes, from `offset` on."""

    offset: int
    run: int
    dims: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        """Bytes the whole pattern moves."""
        return self.run * prod(size for size, _ in self.dims)

    @property
    def first(self) -> int:
        """The lowest byte it touches."""
        return self.offset + sum((size - 1) * stride for size, stride in self.dims if stride < 0)

    @property
    def last(self) -> int:
        """The byte behind the highest it touches."""
        return self.offset + self.run + sum((size - 1) * stride for size, stride in self.dims if stride > 0)


def pattern_of(dims: Iterable[Dim], offset: int, element_bytes: int) -> Pattern:
    """Fold dimensions (in elements, outermost first) into a pattern in bytes.

    >>> pattern_of([Dim(4, 64), Dim(8, 8), Dim(8, 1)], 0, 1)
    Pattern(offset=0, run=256, dims=())
    >>> pattern_of([Dim(16, 64), Dim(8, 1)], 16, 4)
    Pattern(offset=64, run=32, dims=((16, 256),))
    """
    run = element_bytes
    folded: list[tuple[int, int]] = []
    for dim in reversed([dim for dim in dims if dim.size != 1]):
        stride = dim.stride * element_bytes
        if not folded and stride == run:
            run *= dim.size
        elif folded and stride == folded[-1][0] * folded[-1][1]:
            folded[-1] = (folded[-1][0] * dim.size, folded[-1][1])
        else:
            folded.append((dim.size, stride))
    return Pattern(offset * element_bytes, run, tuple(reversed(folded)))


def fills(fifo: Fifo) -> bool | None:
    """Return whether tasks on a FIFO move data into the array, out of it (False), or cannot (None)."""
    at_consumers = any(consumer.kind == "shim" for consumer in fifo.consumers)
    if fifo.producer.kind == "shim":
        return None if at_consumers else True
    return False if at_consumers else None


def full_tap(task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return sizes and strides in 4 dimensions, outermost first (a linear transfer is one inner dimension)."""
    sizes = task.sizes or (task.length,)
    strides = task.strides or (1,)
    missing = max(0, TAP_DIMS - len(sizes))
    return (1,) * missing + sizes, (0,) * missing + strides


def contiguous(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the three inner dimensions of a tap are one linear run, which has no size limit on a shim."""
    run = 1
    for size, stride in zip(reversed(sizes[1:]), reversed(strides[1:]), strict=True):
        if size > 1 and stride != run:
            return False
        run *= size
    return True


def task_dims(task: Task) -> tuple[Dim, ...] | str:
    """Return the dimensions a task walks, its repeats first, or what is wrong with them.

    The outermost size of a tap counts the repeats: run r starts at stride[0] * (r modulo size[0]).
    """
    runs = task.repeat_count + 1
    if runs < 1:
        return f"its repeat_count is {task.repeat_count}"
    if not task.sizes and not task.strides:
        return (Dim(runs, 0), Dim(task.length, 1))
    if len(task.sizes) != TAP_DIMS or len(task.strides) != TAP_DIMS:
        return f"its tap has {len(task.sizes)} sizes and {len(task.strides)} strides, not {TAP_DIMS} of each"
    inner = tuple(Dim(size, stride) for size, stride in zip(task.sizes[1:], task.strides[1:], strict=True))
    moved = prod(task.sizes[1:])
    if min(task.sizes) < 1 or not moved:
        return f"its sizes {_words(task.sizes)} move nothing"
    if moved != task.length:
        return f"its length is {task.length} elements, its sizes {_words(task.sizes)} move {moved} a run"
    around, step = task.sizes[0], task.strides[0]
    if around == 1:
        return (Dim(runs, 0), *inner)
    if runs <= around:
        return (Dim(runs, step), *inner)
    if runs % around:
        return f"it runs {runs} times, which is not a multiple of its outermost size {around}"
    return (Dim(runs // around, 0), Dim(around, step), *inner)


def _words(numbers: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, numbers)) + "]"

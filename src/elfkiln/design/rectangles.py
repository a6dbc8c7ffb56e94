"""What tasks cover of a matrix: rectangles of it, panels of whole rows, or all of it once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elfkiln.design.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The part of a matrix that a task walks, each byte once: `rows` from `row` on, `width` bytes of each from `at`."""

    row: int
    rows: int
    at: int
    width: int


def rectangle_of(pattern: Pattern, pitch: int) -> Rectangle | None:
    """Return the rectangle of a matrix, rows `pitch` bytes long, that a pattern walks in whatever order, or None.

    >>> rectangle_of(Pattern(32 * 5120, 512, ((10, 512), (32, 5120))), 5120)
    Rectangle(row=32, rows=32, at=0, width=5120)
    >>> rectangle_of(Pattern(128, 8, ((4, 8 * 640), (16, 8), (8, 640))), 640)
    Rectangle(row=0, rows=32, at=128, width=128)
    >>> rectangle_of(Pattern(0, 8, ((16, 64),)), 128) is None
    True
    """
    steps = sorted(pattern.dims, key=lambda pair: pair[1])
    run, rows = pattern.run, 1
    while steps and steps[0][1] == run:
        run *= steps.pop(0)[0]
    row, at = divmod(pattern.offset, pitch)
    if run > pitch:
        rows, rest = divmod(run, pitch)
        if rest or at:
            return None
        run = pitch
    for size, stride in steps:
        if stride != rows * pitch:
            return None
        rows *= size
    return Rectangle(row, rows, at, run) if at + run <= pitch else None


def follow_each_other(parts: Iterable[tuple[int, int]], whole: int) -> bool:
    """Return whether (start, length) parts, in whatever order, make up 0 to `whole` without gap or overlap.

    >>> follow_each_other([(64, 64), (0, 64)], 128), follow_each_other([(0, 64), (0, 64)], 128)
    (True, False)
    """
    end = 0
    for start, length in sorted(parts):
        if start != end:
            return False
        end += length
    return end == whole


def row_panels(parts: Iterable[Rectangle], pitch: int) -> list[tuple[int, int]] | None:
    """Return the row panels (first row, rows) that rectangles make up one after the other, or None.

    Each panel comes whole, from its first byte to its last, before the next begins.

    >>> row_panels([Rectangle(0, 32, 0, 64), Rectangle(0, 32, 64, 64), Rectangle(32, 32, 0, 128)], 128)
    [(0, 32), (32, 32)]
    """
    panels: list[tuple[int, int]] = []
    end = pitch
    for part in parts:
        if end == pitch:
            panels.append((part.row, part.rows))
            end = 0
        if panels[-1] != (part.row, part.rows) or part.at != end:
            return None
        end += part.width
    return panels if end == pitch else None

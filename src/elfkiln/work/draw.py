"""Draws a design as SVG: the array with what each tile has taken, the taps of A, B and C, and one step's time.

Everything in the picture is read from the design; times are the model's (`work.predict`). The text is deterministic:
equal designs give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from xml.etree import ElementTree as ET

from elfkiln.design.gemm import Geometry, gemm_text, geometry_of
from elfkiln.design.model import Design, Fifo, Sequence, StartTask, Task, Tile
from elfkiln.design.patterns import Pattern, pattern_of, task_dims
from elfkiln.engine.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, TILE_K, TILE_N
from elfkiln.errors import Refused
from elfkiln.hardware.limits import limit
from elfkiln.lint import TileBudget, budgets
from elfkiln.work.predict import Prediction, predict_sequence

_STYLE = """
svg { font: 11px system-ui, sans-serif; background: #fff; color: #222 }
text { fill: currentColor } .small { font-size: 9px } .head { font-size: 14px; font-weight: 600 }
.tile { fill: #f4f4f2; stroke: #999 } .unused { fill: none; stroke: #ccc; stroke-dasharray: 3 3 }
.bar { fill: #fff; stroke: #999 } .stack { fill: #9a9a9a }
.m0 { fill: #3b7dd8 } .m1 { fill: #2f9e5b } .m2 { fill: #e08a1e } .m3 { fill: #8e63c7 }
.l0 { stroke: #3b7dd8 } .l1 { stroke: #2f9e5b } .l2 { stroke: #e08a1e } .l3 { stroke: #8e63c7 }
.wire { fill: none; stroke-width: 1.5; opacity: .75 }
.walk { fill: none; stroke: currentColor; stroke-width: .8; opacity: .7 }
.matrix { fill: none; stroke: #999 } .busy { fill: #7aa6c2 } .binds { fill: #c0392b }
@media (prefers-color-scheme: dark) { svg { background: #1b1b1d; color: #ddd } .tile { fill: #29292c }
.bar { fill: #1b1b1d } }
"""
_MATRIX = {ARGUMENT_A: "A", ARGUMENT_B: "B", ARGUMENT_C: "C"}
_OTHER = 3
_WIDTH, _TILE_W, _TILE_H, _GAP_X, _GAP_Y, _LEFT, _TOP = 1240, 124, 74, 24, 34, 28, 64
_MOST_RUNS = 48
"""Runs of a tap that are drawn one by one: enough to see how it goes on."""


def draw_design(design: Design, title: str) -> str:
    """Return the SVG of a design's array and of its first GEMM sequence; `title` is its heading.

    Raises `Refused` when the design has no sequence with tasks, as lint and the model of time do.
    """
    sequence = next((one for one in design.sequences if one.tasks), None)
    if sequence is None:
        raise Refused(f"{title}: expected a sequence with tasks to draw, found none")
    picture = _Picture(design, sequence)
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
    ET.SubElement(root, "title").text = f"{title}: array, taps and one step"
    ET.SubElement(root, "style").text = _STYLE
    geometry = geometry_of(sequence, design)
    heading = f"{title} {sequence.name}" + (f": {gemm_text(geometry)}" if geometry else "")
    _text(root, _LEFT, 26, heading, "head")
    _text(
        root,
        _LEFT,
        44,
        "blue A and green B go up, orange C comes down; bars: memory taken; in/out: DMA channels; BD: descriptors",
    )
    bottom = picture.array(root)
    bottom = picture.taps(root, bottom + 40, geometry)
    bottom = picture.timeline(root, bottom + 40)
    root.set("viewBox", f"0 0 {_WIDTH} {bottom + 20}")
    root.set("width", str(_WIDTH))
    root.set("height", str(bottom + 20))
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"


@dataclass(frozen=True, slots=True)
class _Picture:
    design: Design
    sequence: Sequence

    def array(self, root: ET.Element) -> int:
        """Draw the tiles, their budgets and the FIFOs; return the y below them."""
        columns = max((tile.col for tile in self.design.tiles), default=0) + 1
        taken = {budget.tile: budget for budget in budgets(self.design)}
        used = set(self.design.tiles)
        matrices = _matrices(self.design, self.sequence)
        wires = ET.SubElement(root, "g", {"class": "wires"})
        for row in range(limit("rows").value):
            for col in range(columns):
                self._tile(root, Tile(col, row), used, taken, matrices)
        for fifo in self.design.fifos:
            _wire(wires, fifo, matrices.get(fifo.name, _OTHER))
        return _TOP + limit("rows").value * (_TILE_H + _GAP_Y) - _GAP_Y

    def _tile(
        self, root: ET.Element, tile: Tile, used: set[Tile], taken: dict[Tile, TileBudget], matrices: dict[str, int]
    ) -> None:
        x, y = _corner(tile)
        group = ET.SubElement(root, "g")
        kind = "tile" if tile in used else "unused"
        _rect(group, x, y, _TILE_W, _TILE_H, kind)
        _text(group, x + 5, y + 13, str(tile), "small")
        if tile not in used:
            return
        into, out = _ends(self.design, tile)
        lines = f"in {into}/{limit('s2mm', tile.kind).value}, out {out}/{limit('mm2s', tile.kind).value}"
        if tile.kind == "shim":
            # A shim's channels into the array are its MM2S; tasks bring their descriptors as they come.
            _text(group, x + 5, y + 30, lines, "small")
            return
        budget = taken[tile]
        count = f"BD {budget.descriptors}/{limit('descriptors', tile.kind).value}"
        _text(group, x + 5, y + 66, f"{lines}, {count}", "small")
        _memory(group, x + 5, y + 20, budget, matrices)

    def taps(self, root: ET.Element, top: int, geometry: Geometry | None) -> int:
        """Draw A, B and C with the panels of the first groups and the first runs of a tap; return the y below."""
        wide = (_WIDTH - 2 * _LEFT - 2 * 30) // 3
        bottom = top
        for argument in (ARGUMENT_A, ARGUMENT_B, ARGUMENT_C):
            x = _LEFT + argument * (wide + 30)
            tasks = [task for task in _started(self.sequence) if task.argument == argument]
            if tasks:
                bottom = max(bottom, self._tap(root, x, top, wide, tasks, geometry))
        return bottom

    def _tap(self, root: ET.Element, x: int, top: int, wide: int, tasks: list[Task], geometry: Geometry | None) -> int:
        argument = tasks[0].argument
        element = self.sequence.arguments[argument]
        sheet = _sheet(argument, element.bytes, geometry)
        first = tasks[0]
        group = ET.SubElement(root, "g")
        pattern = _pattern(first, element.element_bytes)
        if pattern is None:
            return top
        text = f"{_MATRIX[argument]}: {element}, {len(tasks)} tasks; the first task of each FIFO"
        _text(group, x, top, text)
        tap = f"sizes {list(first.sizes)} strides {list(first.strides)}" if first.sizes else f"linear, {first.length}"
        _text(group, x, top + 14, f"{tap}; runs of {min(pattern.run, pattern.bytes)} B", "small")
        high = 130
        _rect(group, x, top + 24, wide, high, "matrix")
        for number, task in enumerate(_first_of_each(tasks)):
            found = _pattern(task, element.element_bytes)
            if found is not None:
                left, upper, width, height = sheet.box(found, x, top + 24, wide, high)
                box = _rect(group, left, upper, max(width, 1.0), max(height, 1.0), f"m{argument}")
                box.set("opacity", f"{0.35 + 0.4 * (number % 2):.2f}")
        y = top + 24 + high + 16
        runs = list(islice(_offsets(pattern), _MOST_RUNS))
        _text(group, x, y, f"its first {len(runs)} runs, in order" if len(runs) > 1 else "one run", "small")
        return _walk(group, x, y + 6, wide, runs, pattern.run, sheet, f"l{argument}")

    def timeline(self, root: ET.Element, top: int) -> int:
        """Draw how long each resource is busy in one step; return the y below. Nothing when it cannot be predicted."""
        try:
            one = predict_sequence(self.design, self.sequence)
        except Refused as refused:
            _text(root, _LEFT, top, str(refused), "small")
            return top
        return _timeline(root, top, one)


def _timeline(root: ET.Element, top: int, one: Prediction) -> int:
    turns = one.groups * one.steps
    _text(
        root,
        _LEFT,
        top,
        f"one of {turns} steps (a K tile), predicted: {one.seconds / turns * 1e6:.2f} us, the whole "
        f"{one.seconds * 1e3:.2f} ms [{one.low * 1e3:.2f} to {one.high * 1e3:.2f}], bound by the {one.binds}",
    )
    longest = max(max(one.resources.values()), one.seconds)
    y = top + 10
    for name, seconds in one.resources.items():
        width = (_WIDTH - 2 * _LEFT - 220) * seconds / longest
        _text(root, _LEFT, y + 12, name, "small")
        _rect(root, _LEFT + 70, y + 3, width, 12, "binds" if name == one.binds else "busy")
        label = f"{seconds / turns * 1e6:.2f} us, {seconds / one.seconds:.0%}"
        _text(root, round(_LEFT + 76 + width), y + 13, label, "small")
        y += 20
    return y


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Where a byte of a matrix lies on paper: rows of `width` bytes, or contiguous tiles, column of tiles by column."""

    bytes: int
    width: int
    tile_bytes: int = 0
    tiles_high: int = 0

    def place(self, offset: int) -> tuple[float, float]:
        """Return (across, down) of a byte, each from 0 to 1."""
        if not self.tile_bytes:
            rows = self.bytes / self.width
            return (offset % self.width) / self.width, (offset // self.width) / rows
        column, inside = divmod(offset, self.tile_bytes * self.tiles_high)
        columns = self.bytes / (self.tile_bytes * self.tiles_high)
        return column / columns, inside / (self.tile_bytes * self.tiles_high)

    def box(self, pattern: Pattern, x: float, y: float, w: float, h: float) -> tuple[float, float, float, float]:
        """Return the rectangle around a pattern's bytes."""
        if self.tile_bytes:
            column = self.tile_bytes * self.tiles_high
            left, upper = self.place(pattern.offset)
            width = max(pattern.bytes / column, 1) / (self.bytes / column)
            return x + left * w, y + upper * h, width * w, min(pattern.bytes / column, 1.0) * h
        rows = (pattern.first // self.width, (pattern.last - 1) // self.width)
        across = [offset % self.width for offset in _offsets(pattern)] if _count(pattern) <= 4096 else [0]
        left, right = min(across), max(across) + pattern.run
        if _count(pattern) > 4096:
            left, right = pattern.offset % self.width, pattern.offset % self.width + _extent(pattern, self.width)
        total = self.bytes / self.width
        return (
            x + left / self.width * w,
            y + rows[0] / total * h,
            (min(right, self.width) - left) / self.width * w,
            (rows[1] - rows[0] + 1) / total * h,
        )


def _extent(pattern: Pattern, width: int) -> int:
    """Return how many bytes of a row a pattern reaches over: its steps that stay within a row."""
    return pattern.run + sum((size - 1) * stride for size, stride in pattern.dims if 0 < stride < width)


def _count(pattern: Pattern) -> int:
    return pattern.bytes // pattern.run


def _sheet(argument: int, size: int, geometry: Geometry | None) -> _Sheet:
    if geometry is None:
        return _Sheet(size, size)
    if argument == ARGUMENT_A:
        return _Sheet(size, geometry.K)
    if argument == ARGUMENT_C:
        return _Sheet(size, geometry.N * 4)
    if geometry.contiguous:
        return _Sheet(size, 0, TILE_K * TILE_N * geometry.weight_bits // 8, geometry.K // TILE_K)
    return _Sheet(size, geometry.N)


def _walk(group: ET.Element, x: int, y: int, wide: int, runs: list[int], run: int, sheet: _Sheet, style: str) -> int:
    """Draw runs as bars where they lie, scaled to the smallest box around them, joined in their order."""
    width = sheet.width or sheet.bytes
    points = [(offset % width, offset // width) for offset in runs]
    low, most = min(across for across, _ in points), max(across for across, _ in points) + min(run, width)
    up, down = min(row for _, row in points), max(row for _, row in points) + 1
    high = min(90, 10 * (down - up))
    scale_x, scale_y = wide / max(most - low, 1), high / (down - up)
    spots = []
    for across, row in points:
        left, upper = x + (across - low) * scale_x, y + (row - up) * scale_y
        _rect(
            group, left, upper, max(min(run, width) * scale_x - 1, 1.0), max(scale_y - 2, 1.0), style.replace("l", "m")
        )
        spots.append(f"{left + min(run * scale_x, wide) / 2:.1f},{upper + scale_y / 2:.1f}")
    if len(spots) > 1:
        ET.SubElement(group, "polyline", {"class": "walk", "points": " ".join(spots)})
    return y + high


def _pattern(task: Task, element_bytes: int) -> Pattern | None:
    dims = task_dims(task)
    return None if isinstance(dims, str) else pattern_of(dims, task.offset, element_bytes)


def _offsets(pattern: Pattern) -> Iterator[int]:
    """Yield the offset of each run of a pattern, in order."""

    def walk(dims: tuple[tuple[int, int], ...], at: int) -> Iterator[int]:
        if not dims:
            yield at
            return
        size, stride = dims[0]
        for number in range(size):
            yield from walk(dims[1:], at + number * stride)

    return walk(pattern.dims, pattern.offset)


def _started(sequence: Sequence) -> Iterator[Task]:
    return (sequence.tasks[step.task] for step in sequence.steps if isinstance(step, StartTask))


def _first_of_each(tasks: list[Task]) -> Iterator[Task]:
    seen: set[str] = set()
    for task in tasks:
        if task.fifo not in seen:
            seen.add(task.fifo)
            yield task


def _matrices(design: Design, sequence: Sequence) -> dict[str, int]:
    """Return which argument each FIFO carries, through links both ways."""
    found = {task.fifo: task.argument for task in _started(sequence)}
    for _ in design.links:
        for link in design.links:
            names = (*link.ins, *link.outs)
            known = [found[name] for name in names if name in found]
            if known:
                found.update({name: known[0] for name in names if name not in found})
    return found


def _ends(design: Design, tile: Tile) -> tuple[int, int]:
    """Return how many FIFOs come into a tile and leave it."""
    into = sum(tile in fifo.consumers for fifo in design.fifos)
    return into, sum(fifo.producer == tile for fifo in design.fifos)


def _memory(group: ET.Element, x: int, y: int, budget: TileBudget, matrices: dict[str, int]) -> None:
    wide = _TILE_W - 10
    _rect(group, x, y, wide, 14, "bar")
    at = x + wide * budget.stack / budget.memory
    if budget.stack:
        _rect(group, x, y, at - x, 14, "stack")
    for pool in sorted(budget.stored, key=lambda one: matrices.get(one.owner, _OTHER)):
        width = wide * pool.count * pool.bytes_each / budget.memory
        _rect(group, at, y, width, 14, f"m{matrices.get(pool.owner, _OTHER)}")
        at += width
    _text(group, x, y + 28, f"{budget.used / 1024:.1f} of {budget.memory // 1024} KiB", "small")


def _wire(root: ET.Element, fifo: Fifo, matrix: int) -> None:
    """Draw a FIFO as a line from its producer to the farthest consumers, a little apart from other matrices' lines."""
    shift = (matrix - 1) * 14
    x, y = _corner(fifo.producer)
    start = (x + _TILE_W / 2 + shift, y + (0 if fifo.consumers[0].row > fifo.producer.row else _TILE_H))
    for consumer in fifo.consumers:
        cx, cy = _corner(consumer)
        up = consumer.row > fifo.producer.row
        end = (cx + _TILE_W / 2 + shift, cy + (_TILE_H if up else 0))
        middle = end[1] + (6 if up else -6) + matrix * (3 if up else -3)
        path = f"M{start[0]:.1f},{start[1]:.1f} V{middle:.1f} H{end[0]:.1f} V{end[1]:.1f}"
        ET.SubElement(root, "path", {"class": f"wire l{matrix}", "d": path})


def _corner(tile: Tile) -> tuple[int, int]:
    rows = limit("rows").value
    return _LEFT + tile.col * (_TILE_W + _GAP_X), _TOP + (rows - 1 - tile.row) * (_TILE_H + _GAP_Y)


def _rect(parent: ET.Element, x: float, y: float, w: float, h: float, style: str) -> ET.Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{max(w, 0):.1f}", "height": f"{max(h, 0):.1f}"}
    return ET.SubElement(parent, "rect", {**place, "class": style})


def _text(parent: ET.Element, x: float, y: float, text: str, style: str = "") -> None:
    attributes = {"x": f"{x:.0f}", "y": f"{y:.0f}"}
    ET.SubElement(parent, "text", {**attributes, **({"class": style} if style else {})}).text = text

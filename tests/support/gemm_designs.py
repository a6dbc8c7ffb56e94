"""Builds GEMM designs as data, by hand: the shapes real aiecc took, and the published v27 family."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Call,
    Const,
    Core,
    Design,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    LoadPdi,
    Loop,
    MemRef,
    ObjectRef,
    Release,
    Sequence,
    StartTask,
    Task,
    Tile,
)

FOREVER = 0xFFFFFFFF
OBJECT = "mm.o"


@dataclass(frozen=True)
class Shape:
    """A GEMM on the array; tiles are m x k x n, `depths` those of A, B into and out of mem, C into and out of mem."""

    M: int
    K: int
    N: int
    rows: int
    columns: int
    m: int = 32
    k: int = 64
    n: int = 128
    depths: tuple[int, ...] = (2, 4, 2, 1, 2)
    stack: int = 0x2000


class Steps:
    """Collects tasks and steps of a sequence."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.steps = [LoadPdi("main")]

    def task(self, fifo, argument, offset, sizes, strides, token=False) -> Task:
        length = sizes[1] * sizes[2] * sizes[3]
        made = Task(
            len(self.tasks),
            fifo,
            argument,
            offset,
            tuple(sizes),
            tuple(strides),
            length,
            sizes[0] - 1,
            issue_token=token,
            configured_at=len(self.steps),
        )
        self.tasks.append(made)
        return made

    def start(self, tasks) -> None:
        self.steps += [StartTask(task.number) for task in tasks]

    def wait(self, tasks) -> None:
        self.steps += [AwaitTask(task.number) for task in tasks]

    def free(self, tasks) -> None:
        self.steps += [FreeTask(task.number) for task in tasks]


def array(shape: Shape) -> Design:
    """The FIFOs and programs: A multicast from the shims, B and C by the mem tiles."""
    m, k, n, rows, columns = shape.m, shape.k, shape.n, shape.rows, shape.columns
    a_depth, b_mem, b_depth, c_part, c_depth = shape.depths
    a_tile, b_tile, c_tile = MemRef((m, k), "i8"), MemRef((k, n), "i8"), MemRef((m, n), "i32")
    c_column = MemRef((rows * m, n), "i32")
    shim, mem = [Tile(c, 0) for c in range(columns)], [Tile(c, 1) for c in range(columns)]
    core = [[Tile(c, 2 + r) for c in range(columns)] for r in range(rows)]

    def fifo(name, producer, consumers, depth, memref):
        return Fifo(name, producer, tuple(consumers), (depth,) * (1 + len(consumers)), memref)

    fifos = [fifo(f"A_{r}", shim[r], core[r], a_depth, a_tile) for r in range(rows)]
    links = []
    for c in range(columns):
        fifos.append(fifo(f"B_mem_{c}", shim[c], [mem[c]], b_mem, b_tile))
        fifos.append(fifo(f"B_{c}", mem[c], [core[r][c] for r in range(rows)], b_depth, b_tile))
        links.append(Link((f"B_mem_{c}",), (f"B_{c}",)))
        parts = [f"C_{c}_{r}" for r in range(rows)]
        fifos += [fifo(parts[r], core[r][c], [mem[c]], c_part, c_tile) for r in range(rows)]
        fifos.append(fifo(f"C_{c}", mem[c], [shim[c]], c_depth, c_column))
        offsets = tuple(r * m * n for r in range(rows)) if rows > 1 else ()
        links.append(Link(tuple(parts), (f"C_{c}",), src_offsets=offsets))
    cores = [
        Core(core[r][c], shape.stack, program(f"A_{r}", f"B_{c}", f"C_{c}_{r}", shape.K // k))
        for r in range(rows)
        for c in range(columns)
    ]
    kernels = (
        Kernel("zero_i32", (c_tile,), OBJECT),
        Kernel("matmul_i8_i32", (a_tile, b_tile, c_tile), OBJECT),
    )
    tiles = (*shim, *mem, *(tile for row in core for tile in row))
    return Design("npu2", "main", tiles, kernels, tuple(fifos), tuple(links), (), (), tuple(cores), ())


def program(a: str, b: str, c: str, k_tiles: int):
    inner = (
        Acquire(1, a, "consume", 1),
        Acquire(2, b, "consume", 1),
        Call("matmul_i8_i32", (ObjectRef(1, 0), ObjectRef(2, 0), ObjectRef(0, 0))),
        Release(a, "consume", 1),
        Release(b, "consume", 1),
    )
    body = (
        Acquire(0, c, "produce", 1),
        Call("zero_i32", (ObjectRef(0, 0),)),
        Loop(1, Const(0), Const(k_tiles), Const(1), inner),
        Release(c, "produce", 1),
    )
    return (Loop(0, Const(0), Const(FOREVER), Const(1), body),)


def arguments(shape: Shape) -> tuple[MemRef, ...]:
    M, K, N = shape.M, shape.K, shape.N
    return MemRef((M * K,), "i8"), MemRef((K * N,), "i8"), MemRef((M * N,), "i32")


def groups(shape: Shape):
    for g in range(shape.M // (shape.rows * shape.m)):
        for h in range(shape.N // (shape.columns * shape.n)):
            yield g, h


def a_panel(steps: Steps, shape: Shape, g: int, r: int) -> Task:
    offset = (g * shape.rows + r) * shape.m * shape.K
    return steps.task(f"A_{r}", 0, offset, (1, shape.K // 8, shape.m, 8), (0, 8, shape.K, 1))


def c_column(steps: Steps, shape: Shape, g: int, h: int, c: int) -> Task:
    rows, m, n, N = shape.rows, shape.m, shape.n, shape.N
    offset = g * rows * m * N + (h * shape.columns + c) * n
    return steps.task(f"C_{c}", 2, offset, (rows * m // 8, n // 8, 8, 8), (8 * N, 8, N, 1), token=True)


def panel_b8(shape: Shape) -> Design:
    """One task per K panel, two groups overlapped (contiguous weights)."""
    steps, previous = Steps(), None
    for g, h in groups(shape):
        fills = [a_panel(steps, shape, g, r) for r in range(shape.rows)]
        for c in range(shape.columns):
            size = shape.K * shape.n
            fills.append(steps.task(f"B_mem_{c}", 1, (h * shape.columns + c) * size, (1, 1, 1, size), (0, 0, 0, 1)))
        drains = [c_column(steps, shape, g, h, c) for c in range(shape.columns)]
        steps.start(fills)
        steps.start(drains)
        if previous:
            steps.wait(previous[1])
            steps.free(previous[0])
        previous = fills, drains
    steps.wait(previous[1])
    steps.free(previous[0])
    return with_sequence(shape, steps)


def panel_rm(shape: Shape, tiles_a_task: int = 8) -> Design:
    """Row-major weights: up to 8 K tiles a task, with tokens, at most 3 in flight on a channel."""
    steps = Steps()
    k_tiles = shape.K // shape.k
    for g, h in groups(shape):
        panels = [a_panel(steps, shape, g, r) for r in range(shape.rows)]
        drains = [c_column(steps, shape, g, h, c) for c in range(shape.columns)]
        steps.start(panels)
        steps.start(drains)
        waiting = []
        for first in range(0, k_tiles, tiles_a_task):
            width = min(tiles_a_task, k_tiles - first)
            chunk = [
                steps.task(
                    f"B_mem_{c}",
                    1,
                    first * shape.k * shape.N + (h * shape.columns + c) * shape.n,
                    (8 * width, 16, 8, 8),
                    (8 * shape.N, 8, shape.N, 1),
                    token=True,
                )
                for c in range(shape.columns)
            ]
            steps.start(chunk)
            waiting.append(chunk)
            if len(waiting) == 3:
                steps.wait(waiting.pop(0))
        for chunk in waiting:
            steps.wait(chunk)
        steps.wait(drains)
        steps.free(panels)
    return with_sequence(shape, steps)


def v27(shape: Shape, batch: int = 5) -> Design:
    """The published v27: one task per tile, tokens on all, `batch` K tiles at a time."""
    shape = replace(shape, depths=(batch + 1, batch + 1, batch + 1, 1, 1))
    steps = Steps()
    k_tiles = shape.K // shape.k
    for g, h in groups(shape):
        for first in range(0, k_tiles, batch):
            fills = []
            for kt in range(first, min(first + batch, k_tiles)):
                for r in range(shape.rows):
                    offset = (g * shape.rows + r) * shape.m * shape.K + kt * shape.k
                    sizes = (shape.m // 8, shape.k // 8, 8, 8)
                    fills.append(steps.task(f"A_{r}", 0, offset, sizes, (8 * shape.K, 8, shape.K, 1), token=True))
                for c in range(shape.columns):
                    offset = kt * shape.k * shape.N + (h * shape.columns + c) * shape.n
                    strides = (8 * shape.N, 8, shape.N, 1)
                    fills.append(steps.task(f"B_mem_{c}", 1, offset, (8, 16, 8, 8), strides, token=True))
            steps.start(fills)
            steps.wait(fills)
        drains = [c_column(steps, shape, g, h, c) for c in range(shape.columns)]
        steps.start(drains)
        steps.wait(drains)
    return with_sequence(shape, steps)


def with_sequence(shape: Shape, steps: Steps) -> Design:
    sequence = Sequence("seq", arguments(shape), tuple(steps.tasks), tuple(steps.steps))
    return replace(array(shape), sequences=(sequence,))

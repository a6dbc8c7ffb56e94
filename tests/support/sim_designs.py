"""Designs as data for the simulator's tests: copies through FIFOs, scalars behind locks."""

from __future__ import annotations

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

SHIM = Tile(0, 0)


MEM = Tile(0, 1)


CORE = Tile(0, 2)


NEXT = Tile(0, 3)


FOREVER = 0xFFFFFFFF


def forever(*body):
    return (Loop(0, Const(0), Const(FOREVER), Const(1), body),)


def copying(source: str, target: str, kernel: str = "relay"):
    return (
        Acquire(0, source, "consume", 1),
        Acquire(1, target, "produce", 1),
        Call(kernel, (ObjectRef(0, 0), ObjectRef(1, 0))),
        Release(source, "consume", 1),
        Release(target, "produce", 1),
    )


def task(number, fifo, argument, length, *, offset=0, sizes=(), strides=(), repeat=0, token=False):
    return Task(number, fifo, argument, offset, sizes, strides, length, repeat, token, configured_at=1)


def design(fifos, cores, tasks, *, links=(), kernels=None, elements=4096, buffers=(), locks=(), steps=None):
    """A design with one sequence over three int8 arrays: starts all tasks, awaits what has a token, frees the rest."""
    plan = [LoadPdi("main"), *(StartTask(one.number) for one in tasks)]
    plan += [AwaitTask(one.number) for one in tasks if one.issue_token]
    plan += [FreeTask(one.number) for one in tasks if not one.issue_token]
    arguments = (MemRef((elements,), "i8"),) * 3
    sequence = Sequence("seq", arguments, tuple(tasks), tuple(steps or plan))
    tiles = tuple(sorted({tile for fifo in fifos for tile in (fifo.producer, *fifo.consumers)}))
    kernels = kernels or (Kernel("relay", (MemRef((1024,), "i8"),) * 2, "relay.o"),)
    return Design(
        "npu2",
        "main",
        tiles,
        kernels,
        tuple(fifos),
        tuple(links),
        tuple(buffers),
        tuple(locks),
        tuple(cores),
        (sequence,),
    )


def fifo(name, producer, *consumers, size=1024, depth=2, **more):
    depths = depth if isinstance(depth, tuple) else (depth,) * (1 + len(consumers))
    return Fifo(name, producer, consumers, depths, MemRef((size,), "i8"), **more)


def scalar_design(kernel, arguments, body, *, buffers=(), locks=(), steps, tasks=1, elements=16):
    """One core that makes int32 objects of 16 elements; the sequence drains them into C."""
    out = Fifo("out", CORE, (SHIM,), (2, 2), MemRef((16,), "i32"))
    c = MemRef((elements,), "i32")
    drains = tuple(Task(n, "out", 2, n * elements // tasks, (), (), elements // tasks, 0, True) for n in range(tasks))
    sequence = Sequence("seq", (MemRef((16,), "i8"), MemRef((16,), "i8"), c), drains, steps)
    return Design(
        "npu2", "main", (SHIM, CORE), (Kernel(kernel, arguments, "relay.o"),), (out,), (), buffers, locks,
        (Core(CORE, 1024, body),), (sequence,),
    )  # fmt: skip

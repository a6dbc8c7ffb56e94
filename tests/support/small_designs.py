"""Small designs as data, one per thing that lint looks at, with helpers that change one part of a design."""

from __future__ import annotations

from dataclasses import replace

from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    Call,
    Const,
    Core,
    Design,
    Dim,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    Loop,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Task,
    Tile,
    UseLock,
)
from gemm_designs import Shape, panel_b8

SMALL = Shape(32, 256, 512, 2, 2, m=16)
BASE = panel_b8(SMALL)
ONE = Shape(16, 128, 256, 1, 2, m=16)

SHIM, MEM, CORE = Tile(0, 0), Tile(0, 1), Tile(0, 2)
BYTES = MemRef((1024,), "i8")
FOREVER = 0xFFFFFFFF


def beside_short_runs(findings) -> tuple:
    """The findings but those on short runs: A in 8 bytes and C in 32, as the shapes move them that aiecc took."""
    return tuple(finding for finding in findings if finding.rule != "tap-short-runs")


def with_fifo(design: Design, name: str, **changes) -> Design:
    return replace(design, fifos=tuple(replace(f, **changes) if f.name == name else f for f in design.fifos))


def with_core(design: Design, tile: Tile, **changes) -> Design:
    return replace(design, cores=tuple(replace(c, **changes) if c.tile == tile else c for c in design.cores))


def with_link(design: Design, out: str, **changes) -> Design:
    return replace(design, links=tuple(replace(x, **changes) if out in x.outs else x for x in design.links))


def with_task(design: Design, number: int, **changes) -> Design:
    sequence = design.sequences[0]
    tasks = tuple(replace(t, **changes) if t.number == number else t for t in sequence.tasks)
    return with_sequence(design, tasks=tasks)


def with_sequence(design: Design, **changes) -> Design:
    return replace(design, sequences=(replace(design.sequences[0], **changes), *design.sequences[1:]))


def with_steps(design: Design, *steps) -> Design:
    return with_sequence(design, steps=steps)


def endless(*body):
    return (Loop(0, Const(0), Const(FOREVER), Const(1), body),)


def relay(
    object_type=BYTES, depth=2, stack=1024, length=4096, shape=(65536,), out_shape=(65536,), steps=None, **fill
) -> Design:
    """One core that copies objects: shim -> core -> shim, each with one task over `length` elements."""
    fifos = (
        Fifo("in", SHIM, (CORE,), (depth, depth), object_type),
        Fifo("out", CORE, (SHIM,), (depth, depth), object_type),
    )
    body = endless(
        Acquire(0, "in", "consume", 1),
        Acquire(1, "out", "produce", 1),
        Call("relay", (ObjectRef(0, 0), ObjectRef(1, 0))),
        Release("in", "consume", 1),
        Release("out", "produce", 1),
    )
    element = object_type.element
    fill_task = {
        "offset": 0,
        "sizes": (1, 1, 1, length),
        "strides": (0, 0, 0, 1),
        "length": length,
        "repeat_count": 0,
    } | fill
    tasks = (
        Task(0, "in", 0, issue_token=False, configured_at=1, **fill_task),
        Task(1, "out", 1, 0, (1, 1, 1, length), (0, 0, 0, 1), length, 0, issue_token=True, configured_at=1),
    )
    plan = steps or (LoadPdi("main"), StartTask(0), StartTask(1), AwaitTask(1), FreeTask(0))
    sequence = Sequence("seq", (MemRef(shape, element), MemRef(out_shape, element)), tasks, plan)
    return Design(
        "npu2",
        "main",
        (SHIM, CORE),
        (Kernel("relay", (object_type, object_type), "relay.o"),),
        fifos,
        (),
        (),
        (),
        (Core(CORE, stack, body),),
        (sequence,),
    )


def tapped(sizes, strides, *, offset=0, element="i8", shape=(65536,), repeat=None) -> Design:
    """A relay whose fill has this tap; the drain moves as much in one line."""
    length = sizes[-1] * (sizes[-2] if len(sizes) > 1 else 1) * (sizes[-3] if len(sizes) > 2 else 1)
    repeat = (sizes[0] - 1 if len(sizes) == 4 else 0) if repeat is None else repeat
    total = length * (repeat + 1)
    width = {"i8": 1, "i16": 2, "i32": 4}[element]
    design = relay(MemRef((total,) if total * width <= 8192 else (1024 // width,), element))
    design = with_sequence(design, arguments=(MemRef(shape, element), MemRef((2**26,), element)))
    design = with_task(
        design, 0, sizes=tuple(sizes), strides=tuple(strides), offset=offset, length=length, repeat_count=repeat
    )
    return with_task(design, 1, sizes=(1, 1, 1, total), strides=(0, 0, 0, 1), length=total)


def mem_relay(object_type=BYTES, dims=(), depth=2, **changes) -> Design:
    """shim -> mem tile -> core -> shim, with dims where the data leaves the mem tile."""
    design = relay(object_type)
    fifos = (
        Fifo("in", SHIM, (MEM,), (depth, depth), object_type),
        Fifo("forward", MEM, (CORE,), (depth, depth), object_type, to_stream=tuple(Dim(*d) for d in dims)),
        design.fifos[1],
    )
    body = endless(
        Acquire(0, "forward", "consume", 1),
        Acquire(1, "out", "produce", 1),
        Call("relay", (ObjectRef(0, 0), ObjectRef(1, 0))),
        Release("forward", "consume", 1),
        Release("out", "produce", 1),
    )
    design = replace(design, tiles=(SHIM, MEM, CORE), fifos=fifos, links=(Link(("in",), ("forward",)),), **changes)
    return with_core(design, CORE, body=body)


def core_dims(object_type, dims, length=4096) -> Design:
    return with_fifo(relay(object_type, length=length), "in", from_stream=(tuple(Dim(*d) for d in dims),))


def fan_in(count: int) -> Design:
    """`count` FIFOs from shims into one core, each in its own column, and one out."""
    fifos = [Fifo(f"in_{i}", Tile(i, 0), (CORE,), (1, 1), BYTES) for i in range(count)]
    fifos.append(Fifo("out", CORE, (SHIM,), (1, 1), BYTES))
    body = [Acquire(i, f"in_{i}", "consume", 1) for i in range(count)]
    body += [Acquire(count, "out", "produce", 1)]
    body += [Release(f"in_{i}", "consume", 1) for i in range(count)] + [Release("out", "produce", 1)]
    tasks = [Task(i, f"in_{i}", 0, 0, (1, 1, 1, 1024), (0, 0, 0, 1), 1024, 0, issue_token=False) for i in range(count)]
    tasks.append(Task(count, "out", 1, 0, (1, 1, 1, 1024), (0, 0, 0, 1), 1024, 0, issue_token=True))
    starts = tuple(StartTask(i) for i in range(count + 1))
    steps = (LoadPdi("main"), *starts, AwaitTask(count), *(FreeTask(i) for i in range(count)))
    return Design(
        "npu2",
        "main",
        (*(Tile(i, 0) for i in range(count)), CORE),
        (),
        tuple(fifos),
        (),
        (),
        (),
        (Core(CORE, 1024, endless(*body)),),
        (Sequence("seq", (BYTES, BYTES), tuple(tasks), steps),),
    )


def in_one_column(design: Design) -> Design:
    fifos = tuple(replace(f, producer=SHIM) if f.producer.kind == "shim" else f for f in design.fifos)
    return replace(design, tiles=(SHIM, CORE), fifos=fifos)


def forwarded(object_type, depth: int) -> Design:
    """One core -> mem tile -> shim; the core keeps one object, the mem tile `depth`."""
    fifos = (
        Fifo("made", CORE, (MEM,), (1, depth), object_type, depth_per_end=True),
        Fifo("out", MEM, (SHIM,), (2, 2), object_type),
    )
    size = object_type.elements
    task = Task(0, "out", 0, 0, (1, 1, 1, size), (0, 0, 0, 1), size, 0, issue_token=True)
    sequence = Sequence("seq", (object_type,), (task,), (LoadPdi("main"), StartTask(0), AwaitTask(0)))
    core = Core(CORE, 1024, endless(Acquire(0, "made", "produce", 1), Release("made", "produce", 1)))
    links = (Link(("made",), ("out",)),)
    return Design("npu2", "main", (SHIM, MEM, CORE), (), fifos, links, (), (), (core,), (sequence,))


def sink(object_type, stack: int, dims=()) -> Design:
    """shim -> core, one object kept and nothing given back."""
    from_stream = (tuple(Dim(*d) for d in dims),) if dims else ()
    fifos = (Fifo("in", SHIM, (CORE,), (1, 1), object_type, from_stream=from_stream),)
    size = object_type.elements
    task = Task(0, "in", 0, 0, (1, 1, 1, size), (0, 0, 0, 1), size, 0, issue_token=True)
    sequence = Sequence("seq", (object_type,), (task,), (LoadPdi("main"), StartTask(0), AwaitTask(0)))
    core = Core(CORE, stack, endless(Acquire(0, "in", "consume", 1), Release("in", "consume", 1)))
    return Design("npu2", "main", (SHIM, CORE), (), fifos, (), (), (), (core,), (sequence,))


def moving(acquire: int, release: int) -> Design:
    """A relay whose core takes `acquire` objects at a time and gives back `release`; four come in one run."""
    body = endless(
        Acquire(0, "in", "consume", acquire),
        Release("in", "consume", release),
        Acquire(1, "out", "produce", release),
        Release("out", "produce", release),
    )
    return with_core(relay(), CORE, body=body)


def shared_out(offsets, shapes, whole=(2048,)) -> Design:
    """A distribute: one FIFO into a mem tile, pieces to two cores, each drained to its own shim."""
    tiles = (Tile(0, 2), Tile(1, 2))
    fifos = [Fifo("in", SHIM, (MEM,), (2, 2), MemRef(whole, "i8"))]
    for i, tile in enumerate(tiles):
        fifos.append(Fifo(f"piece_{i}", MEM, (tile,), (2, 2), MemRef(shapes[i], "i8")))
        fifos.append(Fifo(f"out_{i}", tile, (Tile(i, 0),), (2, 2), MemRef(shapes[i], "i8")))
    cores = [
        Core(
            tile,
            1024,
            endless(
                Acquire(0, f"piece_{i}", "consume", 1),
                Acquire(1, f"out_{i}", "produce", 1),
                Release(f"piece_{i}", "consume", 1),
                Release(f"out_{i}", "produce", 1),
            ),
        )
        for i, tile in enumerate(tiles)
    ]
    sizes = [whole[0], shapes[0][0], shapes[1][0]]
    names = ["in", "out_0", "out_1"]
    tasks = tuple(
        Task(i, name, i, 0, (1, 1, 1, size), (0, 0, 0, 1), size, 0, issue_token=i > 0)
        for i, (name, size) in enumerate(zip(names, sizes, strict=True))
    )
    steps = (LoadPdi("main"), StartTask(0), StartTask(1), StartTask(2), AwaitTask(1), AwaitTask(2), FreeTask(0))
    sequence = Sequence("seq", tuple(MemRef((size,), "i8") for size in sizes), tasks, steps)
    return Design(
        "npu2",
        "main",
        (SHIM, Tile(1, 0), MEM, *tiles),
        (),
        tuple(fifos),
        (Link(("in",), ("piece_0", "piece_1"), dst_offsets=tuple(offsets)),),
        (),
        (),
        tuple(cores),
        (sequence,),
    )


def waves(tasks: int, size: int, *, depth: int = 2, at: int = 1, awaits: tuple[int, ...] = ()) -> Design:
    """A relay fed by `tasks` fills of `size` bytes, started one after another; one drain takes all."""
    design = relay(depth=depth, shape=(tasks * size,), out_shape=(tasks * size,))
    fills = [
        Task(i, "in", 0, i * size, (1, 1, 1, size), (0, 0, 0, 1), size, 0, issue_token=i in awaits, configured_at=at)
        for i in range(tasks)
    ]
    total = tasks * size
    drain = Task(tasks, "out", 1, 0, (1, 1, 1, total), (0, 0, 0, 1), total, 0, issue_token=True, configured_at=at)
    starts = []
    for i in range(tasks):
        starts.append(StartTask(i))
        if i in awaits:
            starts.append(AwaitTask(i))
    frees = [FreeTask(i) for i in range(tasks) if i not in awaits]
    steps = (LoadPdi("main"), StartTask(tasks), *starts, AwaitTask(tasks), *frees)
    return with_sequence(design, tasks=(*fills, drain), steps=steps)


def gated(grants: int, *, turns: int = 2) -> Design:
    """A core that waits for a lock at each turn and takes as many objects as a run-time parameter says."""
    design = relay(length=1024 * turns)
    buffer, lock = Buffer("count", CORE, MemRef((1,), "i32")), Lock("go", CORE, 0)
    inner = (
        Acquire(0, "in", "consume", 1),
        Acquire(1, "out", "produce", 1),
        Call("relay", (ObjectRef(0, 0), ObjectRef(1, 0))),
        Release("in", "consume", 1),
        Release("out", "produce", 1),
    )
    body = endless(
        UseLock("go", "acquire_ge", Const(1)),
        Load(0, "count", Const(0)),
        Loop(1, Const(0), Loaded(0), Const(1), inner),
    )
    steps = [LoadPdi("main")]
    if grants:
        steps += [RtpWrite("count", 0, turns), SetLock("go", grants)]
    steps += [StartTask(0), StartTask(1), AwaitTask(1), FreeTask(0)]
    design = replace(with_core(design, CORE, body=body), buffers=(buffer,), locks=(lock,))
    return with_steps(design, *steps)


def bank_case(bytes_each: int) -> Design:
    return replace(relay(), buffers=(Buffer("table", CORE, MemRef((bytes_each,), "i8")),))

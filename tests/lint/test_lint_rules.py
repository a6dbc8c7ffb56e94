"""Every rule of lint: a design just inside the limit has no such finding, one just outside has exactly that one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    Call,
    Core,
    Design,
    Dim,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    LoadPdi,
    Lock,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Task,
    Tile,
)
from elfkiln.lint import RULES, lint
from gemm_designs import Shape, array, panel_b8
from small_designs import (
    BASE,
    BYTES,
    CORE,
    bank_case,
    core_dims,
    endless,
    fan_in,
    forwarded,
    gated,
    in_one_column,
    mem_relay,
    moving,
    relay,
    shared_out,
    sink,
    tapped,
    waves,
    with_core,
    with_fifo,
    with_link,
    with_sequence,
    with_steps,
    with_task,
)

SQUARE = ((8, 8), (16, 64), (8, 1))
I32_OUT = MemRef((64 * 128,), "i8")

WRITE, SET = RtpWrite("count", 0, 2), SetLock("go", 1)


PRODUCT = panel_b8(Shape(32, 256, 512, 2, 2, m=16))


def gated_steps(*steps) -> Design:
    """`gated` with these steps between load_pdi and its tasks."""
    return with_steps(gated(1), LoadPdi("main"), *steps, *gated(0).sequences[0].steps[1:])


def pairs(*made: ObjectRef) -> Design:
    """A core that takes and gives two objects in a turn; its kernel is called for each of `made`."""
    body = endless(
        Acquire(0, "in", "consume", 2),
        Acquire(1, "out", "produce", 2),
        *(Call("relay", (ObjectRef(0, 0), one)) for one in made),
        Release("in", "consume", 2),
        Release("out", "produce", 2),
    )
    return with_core(relay(), CORE, body=body)


def keeping(objects: int) -> Design:
    """A core that acquires an input in every turn and never gives it back; four objects go out."""
    body = endless(Acquire(0, "in", "consume", 1), Acquire(1, "out", "produce", 1), Release("out", "produce", 1))
    return with_task(with_core(relay(), CORE, body=body), 0, length=1024 * objects, sizes=(1, 1, 1, 1024 * objects))


def awaited_first(objects: int) -> Design:
    """A relay whose fill is awaited before its drain starts."""
    design = with_task(relay(length=1024 * objects), 0, issue_token=True)
    return with_steps(design, LoadPdi("main"), StartTask(0), AwaitTask(0), StartTask(1), AwaitTask(1))


def taking_once(objects: int) -> Design:
    """A core that acquires weights before its endless loop, and a fill that brings `objects` of them."""
    design = fan_in(2)
    body = (
        Acquire(0, "in_0", "consume", 1),
        *endless(
            Acquire(1, "in_1", "consume", 1),
            Acquire(2, "out", "produce", 1),
            Release("in_1", "consume", 1),
            Release("out", "produce", 1),
        ),
    )
    design = with_sequence(with_core(design, CORE, body=body), arguments=(MemRef((65536,), "i8"), BYTES))
    return with_task(design, 0, length=1024 * objects, sizes=(1, 1, 1, 1024 * objects))


def loaded(design: Design) -> Design:
    """A design with a sequence that only loads the array."""
    return replace(design, sequences=(Sequence("seq", (), (), (LoadPdi("main"),)),))


def both_in_one(depth: int) -> Design:
    """A core that hands objects to its neighbour, and one of them that holds two at a time: they share memory."""
    ends = Tile(0, 2), Tile(0, 3)
    fifos = (
        Fifo("mid", ends[0], (ends[1],), (depth, depth), BYTES),
        Fifo("out", ends[1], (Tile(0, 0),), (2, 2), BYTES),
    )
    makes = Core(ends[0], 1024, endless(Acquire(0, "mid", "produce", 1), Release("mid", "produce", 1)))
    takes = endless(
        Acquire(0, "mid", "consume", 2),
        Acquire(1, "out", "produce", 1),
        Release("mid", "consume", 2),
        Release("out", "produce", 1),
    )
    task = Task(0, "out", 0, 0, (1, 1, 1, 1024), (0, 0, 0, 1), 1024, 0, issue_token=True)
    sequence = Sequence("seq", (BYTES,), (task,), (LoadPdi("main"), StartTask(0), AwaitTask(0)))
    cores = makes, Core(ends[1], 1024, takes)
    return Design("npu2", "main", (Tile(0, 0), *ends), (), fifos, (), (), (), cores, (sequence,))


def joined(**changes) -> Design:
    """Two cores whose objects a mem tile joins and sends to the shim."""
    tiles = Tile(0, 2), Tile(1, 2)
    parts = [Fifo(f"part_{i}", tile, (Tile(0, 1),), (2, 2), BYTES) for i, tile in enumerate(tiles)]
    whole = replace(Fifo("out", Tile(0, 1), (Tile(0, 0),), (2, 2), MemRef((2048,), "i8")), **changes)
    cores = tuple(
        Core(tile, 1024, endless(Acquire(0, part.name, "produce", 1), Release(part.name, "produce", 1)))
        for tile, part in zip(tiles, parts, strict=True)
    )
    size = 2048 * max(1, whole.repeat_count)
    task = Task(0, "out", 0, 0, (1, 1, 1, size), (0, 0, 0, 1), size, 0, issue_token=True)
    sequence = Sequence("seq", (MemRef((4096,), "i8"),), (task,), (LoadPdi("main"), StartTask(0), AwaitTask(0)))
    links = (Link(("part_0", "part_1"), ("out",), src_offsets=(0, 1024)),)
    return Design(
        "npu2", "main", (Tile(0, 0), Tile(0, 1), *tiles), (), (*parts, whole), links, (), (), cores, (sequence,)
    )


def gathered(depth: int) -> Design:
    """One core whose objects of 48 KiB a mem tile sends on two at a time; it keeps `depth` of 96 KiB."""
    two = MemRef((98304,), "i8")
    design = forwarded(MemRef((49152,), "i8"), 1)
    design = with_fifo(design, "out", object_type=two, depths=(depth, depth))
    design = with_sequence(design, arguments=(two,))
    return with_task(design, 0, length=98304, sizes=(1, 1, 1, 98304))


def numbered(first: int, second: int) -> Design:
    """A relay with two locks of these numbers."""
    return replace(relay(), locks=(Lock("one", CORE, 0, first), Lock("two", CORE, 0, second)))


def with_buffer(address: int) -> Design:
    """A relay with a stack of 1,024 bytes and a buffer at this address."""
    return replace(relay(), buffers=(Buffer("table", CORE, MemRef((64,), "i8"), address),))


# rule: (inside, outside, what the finding's `where` names, limit, value)
CASES = {
    "device": (BASE, replace(BASE, device="npu1"), "device main", "npu2 or npu2_1col to npu2_7col", "npu1"),
    "tile-range": (
        replace(BASE, tiles=(*BASE.tiles, Tile(7, 5))),
        replace(BASE, tiles=(*BASE.tiles, Tile(8, 5))),
        "tile(8,5)",
        "0 to 7",
        8,
    ),
    "core-per-tile": (BASE, replace(BASE, cores=(*BASE.cores, BASE.cores[0])), "core(0,2)", 1, 2),
    "symbol": (
        with_steps(gated(1), *gated(1).sequences[0].steps),
        with_steps(gated(1), RtpWrite("count", 1, 2), *gated(1).sequences[0].steps[2:]),
        "sequence seq",
        "element 0 to 0",
        "@count[1]",
    ),
    # Stack 1,024 + 2 x 1,024 in + 2 x 1,024 out leave 60,416 of 65,536 bytes.
    "l1-memory": (bank_case(60416), bank_case(60480), "core(0,2)", 65536, 65600),
    # 5 objects of 96 KiB fit the 512 KiB of a mem tile, five more its only neighbour (column 0 has one), and none else.
    "mem-tile-memory": (
        gathered(10),
        gathered(11),
        "mem(0,1)",
        524288,
        589824,
    ),
    "mem-tile-spill": (
        gathered(5),
        gathered(6),
        "FIFO @out",
        "mem(0,1)",
        "1 of 6 objects in mem(1,1)",
    ),
    # The four objects of 1 KiB fit any bank; of a longer stack the bank above begins inside it.
    "stack-bank": (relay(stack=16384), relay(stack=16448), "core(0,2)", 16384, 16448),
    # Stack 1,024 + 4 x 1,024 and a table leave 32 bytes for the two counters of 4 bytes, or none.
    "dynamic-counters": (bank_case(60384), bank_case(60416), "core(0,2)", "8 at a multiple of 32", 0),
    "buffer-address": (
        with_buffer(1024),
        with_buffer(992),
        "core(0,2) buffer @table",
        ("1,024 to 65,472, what is free of 65,536 bytes"),
        992,
    ),
    "lock-id": (numbered(14, 15), numbered(15, 16), "lock @two of core(0,2)", "0 to 15", 16),
    "memory-bank": (bank_case(16384), bank_case(16448), "core(0,2)", 16384, 16448),
    "alignment": (relay(stack=1088), relay(stack=1056), "core(0,2)", "a multiple of 64", 1056),
    "stack-size": (relay(stack=64), relay(stack=0), "core(0,2)", "1 to 65,536 bytes", 0),
    "dma-channels": (fan_in(2), fan_in(3), "core(0,2)", 2, 3),
    # A depth per end: the core has 8 + 8 descriptors, then 9 + 8.
    "descriptors": (
        with_fifo(relay(), "in", depths=(2, 14), depth_per_end=True),
        with_fifo(relay(), "in", depths=(2, 15), depth_per_end=True),
        "core(0,2)",
        16,
        17,
    ),
    # Two pools with a pair each leave 12 of 16 locks.
    "locks": (
        replace(relay(), locks=tuple(Lock(f"l{i}", CORE, 0) for i in range(12))),
        replace(relay(), locks=tuple(Lock(f"l{i}", CORE, 0) for i in range(13))),
        "core(0,2)",
        16,
        17,
    ),
    "lock-value": (
        replace(relay(), locks=(Lock("l", CORE, 63),)),
        replace(relay(), locks=(Lock("l", CORE, 64),)),
        "lock @l",
        63,
        64,
    ),
    "one-column": (fan_in(2), in_one_column(fan_in(2)), "column 0", "2 or more", 1),
    "fifo-consumer": (BASE, with_fifo(BASE, "A_0", consumers=(), depths=(2,)), "FIFO @A_0", "1 or more", 0),
    "fifo-depth": (BASE, with_fifo(BASE, "B_0", depths=(0, 0, 0)), "FIFO @B_0", "1 or more", 0),
    "fifo-object": (
        relay(MemRef((1024,), "i8")),
        relay(MemRef((1022,), "i8")),
        "FIFO @in",
        "a multiple of 4",
        1022,
    ),
    "fifo-linked": (BASE, replace(BASE, links=BASE.links[1:]), "FIFO @B_mem_0", "a link", "nothing"),
    "fifo-idle": (
        relay(),
        replace(relay(), cores=()),
        "FIFO @in",
        "a core that uses it",
        "no core",
    ),
    "fifo-repeat": (
        with_task(with_fifo(mem_relay(), "forward", repeat_count=2), 1, length=8192, sizes=(1, 1, 1, 8192)),
        with_fifo(mem_relay(), "in", repeat_count=2),
        "FIFO @in",
        "none on a shim",
        2,
    ),
    "fifo-iterations": (
        with_fifo(mem_relay(), "forward", iter_count=256),
        with_fifo(mem_relay(), "forward", iter_count=257),
        "FIFO @forward",
        256,
        257,
    ),
    "shim-dims": (
        mem_relay(dims=SQUARE),
        with_fifo(mem_relay(), "in", to_stream=tuple(Dim(*d) for d in SQUARE)),
        "FIFO @in to_stream at shim(0,0)",
        "none",
        "[8:8, 16:64, 8:1]",
    ),
    "dim-count": (
        core_dims(BYTES, ((8, 128), (16, 8), (8, 1))),
        core_dims(BYTES, ((2, 512), (4, 128), (16, 8), (8, 1))),
        "FIFO @in from_stream at core(0,2)",
        3,
        4,
    ),
    "dim-size": (
        mem_relay(MemRef((2048,), "i8"), ((4, 512), (512, 1))),
        mem_relay(MemRef((4104,), "i8"), ((8, 4), (513, 1))),
        "FIFO @forward to_stream at mem(0,1)",
        512,
        513,
    ),
    # 8 bits on a core: 255 rows pass, 256 do not, whatever MLIR says.
    "dim-wrap": (
        core_dims(MemRef((2040,), "i8"), ((255, 8), (8, 1)), length=4080),
        core_dims(MemRef((2048,), "i8"), ((256, 8), (8, 1))),
        "FIFO @in from_stream at core(0,2)",
        255,
        256,
    ),
    # 13 bits on a core: a stride of 8,192 words is 32,768 bytes; no tap that wide fits
    # a core, so the dims miss most of the object.
    "dim-stride": (
        sink(MemRef((32772,), "i8"), 1024, ((2, 32768), (4, 1))),
        sink(MemRef((32776,), "i8"), 1024, ((2, 32772), (4, 1))),
        "FIFO @in from_stream at core(0,2)",
        8192,
        8193,
    ),
    "dim-zero-stride": (
        mem_relay(dims=SQUARE),
        mem_relay(dims=((8, 0), (16, 64), (8, 1))),
        "FIFO @forward to_stream at mem(0,1)",
        "1 or more",
        0,
    ),
    "dim-inner-stride": (
        mem_relay(dims=SQUARE),
        mem_relay(dims=((8, 8), (16, 64), (8, 2))),
        "FIFO @forward to_stream at mem(0,1)",
        1,
        2,
    ),
    "dim-words": (
        mem_relay(dims=((16, 8), (8, 128), (8, 1))),
        mem_relay(dims=((128, 8), (4, 2), (2, 1))),
        "FIFO @forward to_stream at mem(0,1)",
        "a multiple of 4",
        2,
    ),
    "dim-bounds": (
        mem_relay(dims=SQUARE),
        mem_relay(dims=((8, 9), (16, 64), (8, 1))),
        "FIFO @forward to_stream at mem(0,1)",
        "at most 1,023",
        1030,
    ),
    "dim-product": (
        mem_relay(dims=SQUARE),
        mem_relay(dims=((7, 8), (16, 64), (8, 1))),
        "FIFO @forward to_stream at mem(0,1)",
        1024,
        896,
    ),
    # 14 bits on a core: 16,383 words.
    "transfer-length": (
        sink(MemRef((65532,), "i8"), 4),
        sink(MemRef((65536,), "i8"), 4),
        "FIFO @in from_stream at core(0,2)",
        16383,
        16384,
    ),
    "link-shape": (
        BASE,
        with_link(BASE, "C_0", outs=("C_0", "B_0")),
        "link [@C_0_0, @C_0_1] -> [@C_0, @B_0]",
        "1 to 1, n to 1 or 1 to n",
        "2 to 2",
    ),
    "link-tile": (
        BASE,
        with_fifo(BASE, "B_mem_0", consumers=(Tile(1, 1),)),
        "link [@B_mem_0] -> [@B_0]",
        "one",
        "none",
    ),
    "link-mem-tile": (
        shared_out((0, 1024), ((1024,), (1024,))),
        replace(
            shared_out((0, 1024), ((1024,), (1024,))),
            fifos=tuple(
                replace(f, consumers=(Tile(0, 3),))
                if f.name == "in"
                else replace(f, producer=Tile(0, 3))
                if f.name.startswith("piece")
                else f
                for f in shared_out((0, 1024), ((1024,), (1024,))).fifos
            ),
        ),
        "link [@in] -> [@piece_0, @piece_1]",
        "a mem tile",
        "core(0,3)",
    ),
    "link-once": (
        BASE,
        replace(BASE, links=(*BASE.links, BASE.links[0])),
        "link [@B_mem_0] -> [@B_0]",
        1,
        "another one with @B_mem_0",
    ),
    "link-offsets": (
        shared_out((0, 1024), ((1024,), (1024,))),
        shared_out((0, 1536), ((1024,), (1024,))),
        "link [@in] -> [@piece_0, @piece_1]",
        "[0, 1024] in 2,048",
        "[0, 1536] in 2,048",
    ),
    "broadcast-through-link": (
        shared_out((0, 1024), ((1024,), (1024,))),
        shared_out((0, 0), ((2048,), (2048,))),
        "link [@in] -> [@piece_0, @piece_1]",
        "a piece of memref<2048xi8>",
        "memref<2048xi8>",
    ),
    "link-access": (
        BASE,
        replace(
            BASE,
            fifos=(
                *BASE.fifos,
                Fifo("hop_in", Tile(0, 3), (CORE,), (2, 2), BYTES),
                Fifo("hop_out", CORE, (Tile(0, 4),), (2, 2), BYTES),
            ),
            links=(*BASE.links, Link(("hop_in",), ("hop_out",))),
            cores=(*with_core(BASE, CORE, body=endless(Acquire(0, "hop_in", "consume", 1))).cores,),
        ),
        "core(0,2) FIFO @hop_in",
        "the DMA",
        "the core",
    ),
    "core-fifo": (
        BASE,
        with_core(BASE, CORE, body=endless(Acquire(0, "B_1", "consume", 1), Release("B_1", "consume", 1))),
        "core(0,2) FIFO @B_1",
        "core(1,2), core(1,3)",
        "core(0,2)",
    ),
    "acquire-depth": (both_in_one(2), both_in_one(1), "core(0,3) FIFO @mid", "1 to the 1 there are", 2),
    "link-repeat": (
        joined(),
        joined(repeat_count=2),
        "link [@part_0, @part_1] -> [@out]",
        "none on what a join sends",
        2,
    ),
    "fifo-initial": (
        with_fifo(relay(), "out", initial=(bytes(1024),) * 2),
        with_fifo(relay(), "out", initial=(bytes(1024),)),
        "FIFO @out",
        "all 2",
        1,
    ),
    "initial-values": (
        relay(),
        with_fifo(relay(), "out", initial=(bytes(1024),) * 2),
        "FIFO @out",
        "none",
        2,
    ),
    "no-sequence": (loaded(relay()), replace(relay(), sequences=()), "device main", "1 or more", 0),
    "tap-burst": (
        with_task(relay(), 0, burst_length=512),
        with_task(relay(), 0, burst_length=32),
        "seq task 0 on @in",
        "one of 0, 64, 128, 256, 512",
        32,
    ),
    # Four come in; a core that keeps one of two to the next turn has made three when it waits for the fifth.
    "release-held": (
        with_task(moving(2, 1), 1, length=3072, sizes=(1, 1, 1, 3072)),
        moving(1, 2),
        "core(0,2) FIFO @in",
        "1 to the 1 it holds",
        2,
    ),
    "release-missing": (
        # One object is all that ever comes: it may stay.
        keeping(1),
        keeping(3),
        "core(0,2) FIFO @in",
        "1 or more",
        0,
    ),
    "object-released": (
        relay(),
        with_core(
            relay(),
            CORE,
            body=endless(
                Acquire(0, "in", "consume", 1),
                Release("in", "consume", 1),
                Acquire(1, "out", "produce", 1),
                Call("relay", (ObjectRef(0, 0), ObjectRef(1, 0))),
                Release("out", "produce", 1),
            ),
        ),
        "core(0,2) call of @relay",
        "one that it holds",
        "released before the call",
    ),
    "object-index": (
        relay(),
        with_core(relay(), CORE, body=endless(Acquire(0, "in", "consume", 1), Call("relay", (ObjectRef(0, 1),) * 2))),
        "core(0,2) call of @relay",
        "0 to 0",
        1,
    ),
    # Two objects go out, the kernel is given the first of them.
    "object-unwritten": (
        pairs(ObjectRef(1, 0), ObjectRef(1, 1)),
        pairs(ObjectRef(1, 0)),
        "core(0,2) FIFO @out",
        "2",
        1,
    ),
    "kernel-unknown": (relay(), replace(relay(), kernels=()), "core(0,2) call of @relay", "a func.func", "none"),
    "kernel-object": (
        replace(with_core(relay(), CORE, link_with="relay.o"), kernels=(Kernel("relay", (BYTES, BYTES), None),)),
        replace(relay(), kernels=(Kernel("relay", (BYTES, BYTES), None),)),
        "core(0,2) call of @relay",
        "an object file",
        "none",
    ),
    "kernel-arguments": (
        relay(),
        replace(relay(), kernels=(Kernel("relay", (BYTES,), "relay.o"),)),
        "core(0,2) call of @relay",
        "1",
        2,
    ),
    "kernel-type": (
        relay(),
        replace(relay(), kernels=(Kernel("relay", (BYTES, MemRef((1024,), "ui8")), "relay.o"),)),
        "core(0,2) call of @relay",
        "memref<1024xui8>",
        "memref<1024xi8>",
    ),
    "c-tile": (
        loaded(array(Shape(16, 128, 256, 1, 2, m=16))),
        loaded(array(Shape(12, 128, 256, 1, 2, m=12))),
        "core(0,2) call of @matmul_i8_i32",
        "A m x k, B k x n, C m x n, multiples of 8",
        "memref<12x64xi8> x memref<64x128xi8> x memref<12x128xi32>",
    ),
    "task-fifo": (BASE, with_task(BASE, 0, fifo="C_0_0"), "seq task 0 on @C_0_0", "one of the design", "none"),
    "task-argument": (BASE, with_task(BASE, 0, argument=3), "seq task 0 on @A_0", "one of 3", 3),
    "tap-rank": (
        BASE,
        with_task(BASE, 0, sizes=(1, 1, 32, 16, 8), strides=(0, 0, 8, 256, 1)),
        "seq task 0 on @A_0",
        "up to 4 positive sizes, as many strides",
        "[1, 1, 32, 16, 8] and [0, 0, 8, 256, 1]",
    ),
    "tap-short": (
        tapped((4, 8, 32), (256, 32, 1)),
        tapped((4, 8, 32), (256, 32, 1), repeat=3),
        "seq task 0 on @in",
        "4 sizes, the first one the repeat",
        "[4, 8, 32] and repeat_count 3",
    ),
    # Start in range, end out of it: 63,488 + 3 x 512 + 512 = 65,536 fits, 4 more elements do not.
    "tap-range": (
        tapped((1, 1, 4, 512), (0, 0, 512, 1), offset=63488),
        tapped((1, 1, 4, 512), (0, 0, 512, 1), offset=63492),
        "seq task 0 on @in",
        "0 to 65,535 of argument 0, memref<65536xi8>",
        "63,492 to 65,539",
    ),
    "tap-length": (BASE, with_task(BASE, 2, length=32764), "seq task 2 on @B_mem_0", 32768, 32764),
    "tap-long": (
        tapped((1, 1, 1, 1024), (0, 0, 0, 1), offset=2**31 - 1024, shape=(2**32 - 4,)),
        tapped((1, 1, 1, 1024), (0, 0, 0, 1), offset=2**31, shape=(2**32 - 4,)),
        "seq task 0 on @in",
        2**31 - 1,
        2**31,
    ),
    "tap-words": (
        tapped((1, 1, 4, 512), (0, 0, 1024, 1), offset=4),
        tapped((1, 1, 4, 512), (0, 0, 1024, 1), offset=2),
        "seq task 0 on @in",
        "a multiple of 4",
        2,
    ),
    "tap-inner-stride": (
        tapped((1, 1, 4, 256), (0, 0, 1024, 1)),
        tapped((1, 1, 4, 256), (0, 0, 1024, 4)),
        "seq task 0 on @in",
        1,
        4,
    ),
    "tap-zero-stride": (
        tapped((4, 1, 1, 1024), (0, 0, 0, 1)),
        tapped((1, 1, 4, 256), (0, 0, 0, 1)),
        "seq task 0 on @in",
        "1 or more",
        0,
    ),
    # 10 bits: 1,023 words; a row of 4,092 bytes fits, one of 4,096 does not unless the tap is linear.
    "tap-wrap": (
        tapped((1, 1, 2, 4092), (0, 0, 8192, 1)),
        tapped((1, 1, 2, 4096), (0, 0, 8192, 1)),
        "seq task 0 on @in",
        1023,
        1024,
    ),
    # 20 bits: a stride of 1,048,576 words is 4 MiB.
    "tap-stride": (
        tapped((1, 1, 2, 512), (0, 0, 2**22, 1), shape=(2**24,)),
        tapped((1, 1, 2, 512), (0, 0, 2**22 + 4, 1), shape=(2**24,)),
        "seq task 0 on @in",
        2**20,
        2**20 + 1,
    ),
    "tap-iterations": (
        tapped((64, 1, 1, 512), (1024, 0, 0, 1)),
        tapped((65, 1, 1, 512), (1000, 0, 0, 1)),
        "seq task 0 on @in",
        64,
        65,
    ),
    "tap-repeat": (
        tapped((1, 1, 1, 64), (0, 0, 0, 1), repeat=255),
        tapped((1, 1, 1, 64), (0, 0, 0, 1), repeat=256),
        "seq task 0 on @in",
        255,
        256,
    ),
    "tap-element": (
        relay(MemRef((64,), "i32"), length=64),
        relay(MemRef((64,), "i64"), length=64),
        "seq task 0 on @in",
        4,
        8,
    ),
    "tap-iteration-repeat": (
        tapped((4, 1, 1, 1024), (4096, 0, 0, 1)),
        tapped((4, 1, 1, 1024), (4096, 0, 0, 1), repeat=2),
        "seq task 0 on @in",
        3,
        2,
    ),
    "tap-short-runs": (
        with_task(relay(), 0, sizes=(1, 4, 16, 64), strides=(0, 1024, 64, 1)),
        with_task(relay(), 0, sizes=(1, 4, 8, 32), strides=(0, 4096, 64, 1), length=1024),
        "seq FIFO @in",
        "at least 64",
        32,
    ),
    "tap-contiguous": (
        tapped((4, 1, 1, 1024), (1028, 0, 0, 1)),
        tapped((4, 1, 1, 1024), (1024, 0, 0, 1)),
        "seq task 0 on @in",
        "[1, 1, 1, 4096]",
        "[4, 1, 1, 1024]",
    ),
    "load-pdi": (
        relay(),
        with_steps(relay(), *relay().sequences[0].steps[1:]),
        "sequence seq",
        "load_pdi of @main",
        "StartTask",
    ),
    # Configured up front, 15 fills and the drain hold all 16 descriptors of the shim; a 16th fill finds none.
    "live-descriptors": (
        waves(15, 1024, awaits=tuple(range(15))),
        waves(16, 1024, awaits=tuple(range(16))),
        "seq shim(0,0)",
        16,
        17,
    ),
    # The core takes 2 objects of 1,024 bytes: of 6 tasks 4 wait, of 7 five do (as mlir-air #1822 measured).
    "task-queue": (waves(6, 1024), waves(7, 1024), "seq FIFO @in", 4, 5),
    "task-queue-full": (waves(4, 1024), waves(5, 1024), "seq FIFO @in", 4, 5),
    "task-unstarted": (
        relay(),
        with_steps(relay(), LoadPdi("main"), StartTask(1), AwaitTask(1)),
        "seq task 0 on @in",
        1,
        0,
    ),
    "task-restarted": (
        relay(),
        with_steps(relay(), LoadPdi("main"), StartTask(0), StartTask(0), StartTask(1), AwaitTask(1), FreeTask(0)),
        "seq task 0 on @in",
        1,
        2,
    ),
    "task-ended": (
        relay(),
        with_steps(relay(), *relay().sequences[0].steps, FreeTask(0)),
        "seq task 0 on @in",
        "one free",
        "freed twice",
    ),
    "await-token": (relay(), with_task(relay(), 1, issue_token=False), "seq task 1 on @out", "true", "false"),
    "await-unstarted": (
        relay(),
        with_steps(relay(), LoadPdi("main"), StartTask(0), AwaitTask(1), StartTask(1), FreeTask(0)),
        "seq task 1 on @out",
        "its start",
        "none",
    ),
    # Of four objects a depth of 2 at each end of both FIFOs takes all before anything is drained, of nine it cannot.
    "await-early": (
        awaited_first(4),
        awaited_first(9),
        "seq task 0 on @in",
        "a drain of @out beyond the 0 bytes drained from it so far",
        "task 1, which starts only after it",
    ),
    # One object is taken for good; the core's one buffer is that object's.
    "task-stuck": (
        taking_once(1),
        taking_once(2),
        "seq task 0 on @in_0",
        "data and room for it",
        "everything waits for core(0,2), which takes no more of @in_0",
    ),
    "token-order": (
        waves(3, 1024, awaits=(0, 1, 2)),
        with_steps(
            waves(3, 1024, awaits=(0, 1, 2)),
            LoadPdi("main"),
            *map(StartTask, (3, 0, 1, 2)),
            *map(AwaitTask, (1, 0, 2, 3)),
        ),
        "seq task 1 on @in",
        "its own",
        "that of task 0, started before it and not awaited",
    ),
    "token-left": (relay(), with_task(relay(), 0, issue_token=True), "seq task 0 on @in", 1, 0),
    "free-early": (
        relay(),
        with_steps(relay(), LoadPdi("main"), StartTask(0), FreeTask(0), StartTask(1), AwaitTask(1)),
        "seq task 0 on @in",
        "an await of it, or of what is made from its data",
        "none",
    ),
    "drain-wait": (
        relay(),
        with_steps(relay(), LoadPdi("main"), StartTask(0), StartTask(1), FreeTask(1)),
        "seq task 1 on @out",
        "1",
        "none",
    ),
    "task-leak": (
        relay(),
        with_steps(relay(), LoadPdi("main"), StartTask(0), StartTask(1), AwaitTask(1)),
        "seq task 0 on @in",
        1,
        0,
    ),
    # 4 objects in, 4 out; then 4 in, and 3 drained.
    "flow-total": (
        relay(),
        with_task(relay(), 1, length=3072, sizes=(1, 1, 1, 3072)),
        "seq core(0,2)",
        None,
        None,
    ),
    "lock-grants": (gated(1), gated(0), "seq core(0,2)", "1 or more", 0),
    "lock-set": (gated(1), gated_steps(WRITE, SET, SET), "seq core(0,2)", 1, 2),
    "parameter-guard": (
        gated(1),
        with_core(
            gated(1),
            CORE,
            body=endless(*reversed(gated(1).cores[0].body[0].body[:2]), *gated(1).cores[0].body[0].body[2:]),
        ),
        "core(0,2) buffer @count",
        "an acquire of a lock on core(0,2)",
        "none",
    ),
    "parameter-unwritten": (
        gated_steps(WRITE, SET),
        gated_steps(SET),
        "seq core(0,2)",
        "all 1 that the core reads",
        "not @count[0]",
    ),
    "parameter-width": (
        gated(1),
        replace(gated(1), buffers=(Buffer("count", CORE, MemRef((1,), "i64")),)),
        "sequence seq",
        "32 bits or less",
        "i64",
    ),
    "parameter-late": (
        gated_steps(WRITE, WRITE, SET),
        gated_steps(WRITE, SET, WRITE),
        "seq core(0,2)",
        "before lock @go is set",
        "it is open since step 2",
    ),
    "engine-entry": (
        relay(),
        with_sequence(relay(), name="sequence"),
        "device main",
        "one named seq",
        "sequence",
    ),
    # The second column's B begins with the last tile of the first one's.
    "gemm-walk": (
        PRODUCT,
        with_task(PRODUCT, 2, offset=3 * 8192),
        "sequence seq",
        "those of a GEMM",
        "tiles of B by B_mem_0: expected whole K panels, tile by tile along K, found another order",
    ),
}

WITH_EXPORTS = {"kernel-entry"}


def found(design: Design, rule: str):
    return [finding for finding in lint(design) if finding.rule == rule]


def test_every_rule_has_a_design_on_both_sides():
    assert {rule.name for rule in RULES} == set(CASES) | WITH_EXPORTS


# What a design cannot reach on a real tile without breaking another rule first.
# The longest transfer and the smallest stack leave no room for the buffer to begin at a multiple of 32 bytes.
UNREACHABLE = {
    "dim-stride": {"dim-product"},
    "fifo-initial": {"initial-values", "free-early"},
    "transfer-length": {"l1-memory"},
}


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_design_just_inside_has_no_such_finding_and_no_error(rule):
    findings = lint(CASES[rule][0])
    assert [f.line for f in findings if f.rule == rule] == []
    assert {f.rule for f in findings if f.severity == "error"} <= UNREACHABLE.get(rule, set())


@pytest.mark.parametrize("rule", sorted(CASES))
def test_a_design_just_outside_is_told_with_place_limit_value_and_source(rule):
    _, outside, where, bound, value = CASES[rule]
    findings = found(outside, rule)
    assert findings, rule
    first = findings[0]
    assert first.where == where
    if bound is not None:
        assert (first.limit, first.value) == (bound, value)
    assert first.source
    assert first.message.startswith(f"{where}: ")
    assert "\n" not in first.line


def test_a_kernel_entry_is_looked_up_in_the_objects_that_are_known():
    design = relay()
    assert [f.rule for f in lint(design, exports={"relay.o": {"relay"}})] == []
    wrong = lint(design, exports={"relay.o": {"relay_i8", "zero"}})
    assert [(f.rule, f.where, f.limit, f.value) for f in wrong] == [
        ("kernel-entry", "core(0,2) call of @relay", "@relay", "relay_i8, zero")
    ]
    assert lint(design, exports={"other.o": set()}) == ()

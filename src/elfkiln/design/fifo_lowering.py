"""What the object-FIFO lowering will put on each tile: buffers, DMA channels, buffer descriptors and locks.

The rules are those of mlir-aie (AIEObjectFifoStatefulTransform up to August 2026, AIEObjectFifoSplit after it).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from elfkiln.design.model import Acquire, Design, Fifo, Link, Loop, Statement, Tile

PRODUCE = "produce"
CONSUME = "consume"
INTO = "s2mm"
OUT = "mm2s"


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal buffers on one tile: the objects of a FIFO's end (or of a link), or one named buffer.

    `segments` are the pieces of an object that a link's FIFOs fill or drain one by one; each has its pair of locks
    (none for a named buffer). `users` are the FIFOs whose objects lie here.
    """

    owner: str
    tile: Tile
    count: int
    bytes_each: int
    segments: int = 1
    lock_value: int = 0
    users: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of all buffers."""
        return self.count * self.bytes_each


@dataclass(frozen=True, slots=True)
class DmaEnd:
    """One end of a FIFO on a DMA channel. A shim end holds no descriptors of its own: tasks bring them."""

    fifo: str
    tile: Tile
    direction: str
    channel: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Everything that FIFOs, buffers and locks of a design take of its tiles."""

    pools: tuple[Pool, ...]
    ends: tuple[DmaEnd, ...]

    def pools_on(self, tile: Tile) -> tuple[Pool, ...]:
        """Return the pools whose buffers are in a tile's memory, in the module's order."""
        return tuple(pool for pool in self.pools if pool.tile == tile)

    def absorbs(self, fifo: Fifo) -> int:
        """Return how many bytes a FIFO takes from its producer before a consumer's program has to move."""
        rooms = [
            sum(pool.bytes for pool in self.pools if fifo.name in pool.users and pool.tile == consumer)
            for consumer in fifo.consumers
        ]
        return min(rooms, default=0)


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield every statement of a program, loops before what is in them."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body)


def reaches(core: Tile, memory: Tile) -> bool:
    """Return whether a tile can address another's memory (AIE2TargetModel::isLegalMemAffinity).

    A core reaches its own memory and that of its west, north and south neighbours; a mem tile its row's neighbours.

    >>> reaches(Tile(1, 3), Tile(0, 3)), reaches(Tile(0, 3), Tile(1, 3)), reaches(Tile(0, 2), Tile(0, 1))
    (True, False, False)
    """
    if "shim" in (core.kind, memory.kind) or core.kind != memory.kind:
        return False
    across, up = memory.col - core.col, memory.row - core.row
    if core.kind == "mem":
        return abs(across) <= 1
    return (across, up) in ((0, 0), (-1, 0), (0, 1), (0, -1))


def shared_tile(fifo: Fifo, linked: bool) -> Tile | None:
    """Return the tile whose memory both ends of a FIFO use without a DMA, or None if it needs one."""
    if fifo.via_dma or fifo.repeat_count or linked or len(fifo.consumers) != 1 or fifo.to_stream:
        return None
    if any(fifo.from_stream):
        return None
    consumer = fifo.consumers[0]
    if reaches(consumer, fifo.producer):
        return fifo.producer
    return consumer if reaches(fifo.producer, consumer) else None


def sound_links(design: Design) -> list[tuple[Link, Tile]]:
    """Return the links that hold together, with the tile they stand on; the others are lint's findings."""
    fifos = {fifo.name: fifo for fifo in design.fifos}
    used: set[str] = set()
    sound = []
    for link in design.links:
        names = (*link.ins, *link.outs)
        if not link.ins or not link.outs or any(name not in fifos or name in used for name in names):
            continue
        if len(link.ins) > 1 and len(link.outs) > 1:
            continue
        tile = link_tile(link, fifos)
        if tile is not None:
            used.update(names)
            sound.append((link, tile))
    return sound


def link_tile(link: Link, fifos: Mapping[str, Fifo]) -> Tile | None:
    """Return the tile on which a link's FIFOs meet, or None if they do not."""
    tile = fifos[link.outs[0]].producer
    outs_meet = all(fifos[name].producer == tile for name in link.outs)
    ins_meet = all(tile in fifos[name].consumers for name in link.ins)
    return tile if outs_meet and ins_meet else None


def transfer_elements(
    ins: Sequence[int], outs: Sequence[int], src_offsets: Sequence[int] = (), dst_offsets: Sequence[int] = ()
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Return how many elements each descriptor of a link's FIFOs moves on the link's tile, given their objects' sizes.

    For each FIFO that comes in and each that goes out: one number a descriptor takes, or one a piece. A join sends the
    whole piece by piece, and a distribute takes it in piece by piece, so there dims go over a piece; its length is the
    distance to the next offset, as getJoinTransferLengths and getDistributeTransferLengths count it. Of one FIFO to
    one other both move the larger object, whatever their own.

    >>> transfer_elements([128], [64])
    (((128,),), ((128,),))
    >>> transfer_elements([64, 64], [128], src_offsets=[0, 64])
    (((64,), (64,)), ((64, 64),))
    """
    if len(ins) == len(outs) == 1:
        larger = (max(*ins, *outs),)
        return (larger,), (larger,)
    joins = len(ins) > 1
    pieces, whole, offsets = (ins, outs[0], src_offsets) if joins else (outs, ins[0], dst_offsets)
    ends = (*offsets[1:], whole)
    lengths = tuple(end - start for start, end in zip(offsets, ends, strict=True)) if offsets else tuple(pieces)
    own = tuple((length,) for length in lengths)
    return (own, (lengths,)) if joins else ((lengths,), own)


def end_transfers(design: Design) -> dict[tuple[str, int], tuple[int, ...]]:
    """Return how many elements each descriptor moves at the FIFO ends that stand in a link on the link's tile.

    The key is the FIFO and its end: 0 the producer, 1 the first consumer, and so on. An end without a link moves its
    own objects.
    """
    fifos = {fifo.name: fifo for fifo in design.fifos}
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for link, tile in sound_links(design):
        ins, outs = ([fifos[name].object_type.elements for name in names] for names in (link.ins, link.outs))
        offsets = link.src_offsets if len(link.ins) > 1 else link.dst_offsets
        if len(link.ins) != len(link.outs) and len(offsets) != max(len(link.ins), len(link.outs)):
            offsets = ()
        entering, leaving = transfer_elements(ins, outs, offsets, offsets)
        for name, elements in zip(link.ins, entering, strict=True):
            found[name, 1 + fifos[name].consumers.index(tile)] = elements
        for name, elements in zip(link.outs, leaving, strict=True):
            found[name, 0] = elements
    return found


def max_acquires(design: Design) -> dict[tuple[str, Tile], int]:
    """Return the largest acquire of each FIFO in each core's program."""
    most: dict[tuple[str, Tile], int] = defaultdict(int)
    for core in design.cores:
        for statement in statements(core.body):
            if isinstance(statement, Acquire):
                key = statement.fifo, core.tile
                most[key] = max(most[key], statement.count)
    return dict(most)


def depth_at(fifo: Fifo, end: int) -> int:
    """Return the depth a module names for an end of a FIFO: 0 the producer, 1 the first consumer, and so on."""
    return fifo.depths[end] if end < len(fifo.depths) else fifo.depths[0] if fifo.depths else 0


def place(design: Design) -> Placement:
    """Return the pools and DMA ends the object-FIFO lowering makes of a design.

    A consumer core gets one object more than its largest acquire (one if depth and acquire are 1), whatever the depth
    says; a FIFO that names a depth per end is taken at its word. A link's FIFOs share one pool on its tile. Ends take
    channels in the module's order, the lowest free one each.
    """
    fifos = {fifo.name: fifo for fifo in design.fifos}
    acquires = max_acquires(design)
    pools: list[Pool] = []
    ends: list[DmaEnd] = []
    channels: dict[tuple[Tile, str], int] = defaultdict(int)
    leaves: dict[str, tuple[Pool, int]] = {}
    enters: dict[str, tuple[Pool, int]] = {}
    for link, tile in sound_links(design):
        pool = _link_pool(link, tile, fifos)
        pools.append(pool)
        for name in link.ins:
            enters[name] = pool, 1 if len(link.ins) > 1 else pool.segments
        for name in link.outs:
            leaves[name] = pool, 1 if len(link.outs) > 1 else pool.segments

    def objects(fifo: Fifo, tile: Tile) -> int:
        most = acquires.get((fifo.name, tile), 0)
        depth = depth_at(fifo, 0)
        if most == 0 or depth == 0:
            return depth
        return 1 if most == depth == 1 else most + 1

    def end(fifo: Fifo, tile: Tile, direction: str, descriptors: int) -> None:
        key = tile, direction
        ends.append(DmaEnd(fifo.name, tile, direction, channels[key], descriptors))
        channels[key] += 1

    for fifo in design.fifos:
        repeat = max(1, fifo.repeat_count)
        linked = fifo.name in leaves or fifo.name in enters
        common = shared_tile(fifo, linked)
        if common is not None:
            depth = depth_at(fifo, 0)
            pools.append(Pool(fifo.name, common, depth, fifo.object_type.bytes, 1, depth * repeat, (fifo.name,)))
            continue
        if fifo.name in leaves:
            pool, segments = leaves[fifo.name]
            end(fifo, fifo.producer, OUT, pool.count * segments * repeat)
        elif fifo.producer.kind == "shim":
            end(fifo, fifo.producer, OUT, 0)
        else:
            depth = objects(fifo, fifo.producer)
            pools.append(Pool(fifo.name, fifo.producer, depth, fifo.object_type.bytes, 1, depth * repeat, (fifo.name,)))
            end(fifo, fifo.producer, OUT, depth * repeat)
        for index, consumer in enumerate(fifo.consumers):
            if fifo.name in enters and enters[fifo.name][0].tile == consumer:
                pool, segments = enters[fifo.name]
                end(fifo, consumer, INTO, pool.count * segments)
            elif consumer.kind == "shim":
                end(fifo, consumer, INTO, 0)
            else:
                depth = depth_at(fifo, index + 1) if fifo.depth_per_end else objects(fifo, consumer)
                pools.append(Pool(fifo.name, consumer, depth, fifo.object_type.bytes, 1, depth, (fifo.name,)))
                end(fifo, consumer, INTO, depth)
    pools.extend(Pool(buffer.name, buffer.tile, 1, buffer.type.bytes, segments=0) for buffer in design.buffers)
    return Placement(tuple(pools), tuple(ends))


def _link_pool(link: Link, tile: Tile, fifos: Mapping[str, Fifo]) -> Pool:
    """Return the pool of a link: that of the FIFO with whole objects (of two, the one with the larger object)."""
    first, last = fifos[link.ins[0]], fifos[link.outs[0]]
    if len(link.ins) > 1:
        owner = last
    elif len(link.outs) > 1 or last.object_type.elements <= first.object_type.elements:
        owner = first
    else:
        owner = last
    depth = depth_at(owner, 0)
    if owner is first and owner.depth_per_end:
        depth = depth_at(owner, 1 + owner.consumers.index(tile))
    segments = max(len(link.ins), len(link.outs))
    repeat = max(1, *(fifos[name].repeat_count for name in link.outs))
    return Pool(owner.name, tile, depth, owner.object_type.bytes, segments, depth * repeat, (*link.ins, *link.outs))

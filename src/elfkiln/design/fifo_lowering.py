"""What the object-FIFO lowering puts on each tile: buffers, locks, DMA channels and buffer descriptors.

The one model of it: lint counts with it, the simulator moves data by it, the reader of full ELFs compares with it. The
rules are those of mlir-aie's AIEObjectFifoStatefulTransform of August 2026; where the tools of April differ the text
says so.

The lowering takes a FIFO that needs a DMA apart: a producer's end, and for each consumer an end of its own. Every end
has objects of its own on its tile (a shim's has none, its tasks bring the data), but the ends that a link brings
together share one set on the link's tile: that of the FIFO with whole objects, or of two the one with more elements. A
join or distribute cuts each of these objects into pieces with a pair of locks each. Two neighbouring cores need no DMA:
both use the objects in one memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from elfkiln.design.model import Acquire, Const, Core, Design, Dim, Fifo, Link, Loop, MemRef, Release, Statement, Tile
from elfkiln.hardware.limits import limit

PRODUCE = "produce"
CONSUME = "consume"
INTO = "s2mm"
OUT = "mm2s"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of each of a pool's objects, which descriptors move at once: elements of the pool's type."""

    offset: int
    elements: int


@dataclass(frozen=True, slots=True)
class Pool:
    """The objects of a FIFO's end, or of a link: equal buffers, of which each segment has a pair of locks.

    `tile` is the end's, `places` says in which tile how many of the objects lie: a full mem tile puts them into a
    neighbour. A shim's end has no objects and its locks all the same. `users` are the FIFOs whose objects lie here,
    `initial` is how many objects are full from the start, `repeat` how often each is sent.
    """

    owner: str
    tile: Tile
    places: tuple[tuple[Tile, int], ...]
    type: MemRef
    segments: tuple[Segment, ...]
    users: tuple[str, ...]
    initial: int = 0
    repeat: int = 1

    @property
    def count(self) -> int:
        """How many objects there are."""
        return sum(count for _, count in self.places)

    @property
    def bytes_each(self) -> int:
        """Bytes of one object."""
        return self.type.bytes

    @property
    def locks(self) -> tuple[int, ...]:
        """The initial values of the locks: for each segment how many objects are free, and how many are full."""
        full = min(self.initial, self.count)
        return ((self.count - full) * self.repeat, full * self.repeat) * len(self.segments)

    @property
    def crosses(self) -> bool:
        """Whether an object lies in a neighbour's memory, so that only some channels reach it."""
        return any(place != self.tile for place, _ in self.places)


@dataclass(frozen=True, slots=True)
class DmaEnd:
    """One end of a FIFO on a DMA channel.

    `end` is 0 for the producer, 1 for the first consumer, and so on. `segments` are those of the pool's objects that it
    moves one by one. `descriptors` are the buffer descriptors of its chain: one for each object, segment and repeat,
    but a chain of one lets the channel repeat it. At a shim there are none: tasks bring them.
    """

    fifo: str
    end: int
    tile: Tile
    direction: str
    channel: int
    descriptors: int
    pool: Pool
    segments: tuple[Segment, ...]
    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """Equal buffers in one tile's memory: objects of a FIFO, a named buffer, or what the compiler adds to a core.

    `address` is where the module wants it.
    """

    owner: str
    count: int
    bytes_each: int
    address: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return self.count * self.bytes_each


@dataclass(frozen=True, slots=True)
class Placement:
    """Everything that FIFOs, buffers and locks of a design take of its tiles."""

    pools: tuple[Pool, ...]
    ends: tuple[DmaEnd, ...]
    stored: tuple[tuple[Tile, Stored], ...]
    locks: tuple[tuple[Tile, int], ...]

    def stored_on(self, tile: Tile) -> tuple[Stored, ...]:
        """Return what is in a tile's memory."""
        return tuple(stored for place, stored in self.stored if place == tile)

    def ends_on(self, tile: Tile) -> tuple[DmaEnd, ...]:
        """Return the DMA ends on a tile, in the order in which they took their channels."""
        return tuple(end for end in self.ends if end.tile == tile)

    def pool_of(self, fifo: str, tile: Tile) -> Pool | None:
        """Return the pool that a FIFO's end on a tile uses, or None."""
        return next((pool for pool in self.pools if fifo in pool.users and pool.tile == tile), None)

    def begins(self, fifo: str) -> bool:
        """Return whether a FIFO's objects are there from the start; those of a link may be another FIFO's."""
        return any(pool.owner == fifo and pool.initial for pool in self.pools)

    def absorbs(self, fifo: Fifo) -> int:
        """Return how many bytes a FIFO takes from its producer before a consumer's program has to move."""
        pools = [self.pool_of(fifo.name, consumer) for consumer in fifo.consumers]
        return min((pool.count * pool.bytes_each if pool else 0 for pool in pools), default=0)


def statements(body: tuple[Statement, ...], *, turning: bool = False) -> Iterator[Statement]:
    """Yield every statement of a program, loops before what is in them.

    With `turning`, loops that never turn are left out with what is in them: the compiler drops them before anything
    else looks at the program.
    """
    for statement in body:
        if turning and isinstance(statement, Loop) and _never_turns(statement):
            continue
        yield statement
        if isinstance(statement, Loop):
            yield from statements(statement.body, turning=turning)


def _never_turns(loop: Loop) -> bool:
    lower, upper = loop.lower, loop.upper
    return isinstance(lower, Const) and isinstance(upper, Const) and upper.value <= lower.value


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


def link_segments(
    ins: Sequence[int], outs: Sequence[int], src_offsets: Sequence[int] = (), dst_offsets: Sequence[int] = ()
) -> tuple[Segment, ...]:
    """Return the pieces into which a link cuts its objects, given the elements of its FIFOs' objects.

    A piece is as long as the distance to the next offset, whatever its FIFO's objects are (getJoinTransferLengths,
    getDistributeTransferLengths). Of one FIFO to one other the whole of the larger object is one piece, and the
    descriptors of both FIFOs move it: dims on either side go over it.

    >>> link_segments([128], [64])
    (Segment(offset=0, elements=128),)
    >>> link_segments([64, 64], [128], src_offsets=[0, 64])
    (Segment(offset=0, elements=64), Segment(offset=64, elements=64))
    """
    if len(ins) == len(outs) == 1:
        return (Segment(0, max(*ins, *outs)),)
    whole, offsets = (outs[0], src_offsets) if len(ins) > 1 else (ins[0], dst_offsets)
    ends = (*offsets[1:], whole)
    return tuple(Segment(start, end - start) for start, end in zip(offsets, ends, strict=True)) if offsets else ()


def max_acquires(design: Design) -> dict[tuple[str, Tile], int]:
    """Return the largest acquire of each FIFO in each core's program."""
    most: dict[tuple[str, Tile], int] = defaultdict(int)
    for core in design.cores:
        for statement in statements(core.body, turning=True):
            if isinstance(statement, Acquire):
                key = statement.fifo, core.tile
                most[key] = max(most[key], statement.count)
    return dict(most)


def depth_at(fifo: Fifo, end: int) -> int:
    """Return the depth a module names for an end of a FIFO: 0 the producer, 1 the first consumer, and so on."""
    return fifo.depths[end] if end < len(fifo.depths) else fifo.depths[0] if fifo.depths else 0


def end_depth(fifo: Fifo, end: int, acquires: Mapping[tuple[str, Tile], int], shared: bool = False) -> int:
    """Return how many objects the lowering gives an end of a FIFO (what the program takes: `max_acquires`).

    With one depth for all ends a core gets one object more than the most its program acquires at once, one if depth and
    acquire are 1, and the depth only if it never acquires: so it can hold an object while the next comes. A FIFO that
    names a depth for each end is taken at its word, but not at a consumer with dims: the lowering looks at that end
    again when its list is gone. Memory that two cores share has the producer's depth.
    """
    if shared:
        return depth_at(fifo, 0)
    tile = (fifo.producer, *fifo.consumers)[end]
    depth = depth_at(fifo, end)
    if tile.kind != "core" or (end == 0 and fifo.initial):
        return depth
    if fifo.depth_per_end and (end == 0 or not dims_at(fifo, end)):
        return depth
    most = acquires.get((fifo.name, tile), 0)
    if most == 0 or depth == 0:
        return depth
    return 1 if most == depth == 1 else most + 1


def dims_at(fifo: Fifo, end: int) -> tuple[Dim, ...]:
    """Return the dims of a FIFO's end: to the stream at the producer, from it at a consumer."""
    if end == 0:
        return fifo.to_stream
    return fifo.from_stream[end - 1] if end <= len(fifo.from_stream) else ()


def place(design: Design) -> Placement:
    """Return what the object-FIFO lowering makes of a design."""
    return _Lowering(design).placement()


def kept_for_ever(core: Core, fifo: str) -> int:
    """Return how many objects of a FIFO a core takes once, before a loop without end, and never gives back.

    Weights or a factor that stay: nothing of the FIFO is taken or given in a loop.
    """
    own = [s for s in core.body if isinstance(s, Acquire | Release) and s.fifo == fifo]
    every = [s for s in statements(core.body) if isinstance(s, Acquire | Release) and s.fifo == fifo]
    if len(own) != len(every) or any(s.port != CONSUME for s in own):
        return 0
    held = 0
    for statement in own:
        held = max(held, statement.count) if isinstance(statement, Acquire) else max(0, held - statement.count)
    return held


def counted_ports(core: Core) -> int:
    """Return how many counters the dynamic lowering keeps in a core's memory: an i32 for each FIFO and port."""
    used = (s for s in statements(core.body) if isinstance(s, Acquire))
    return len({(statement.fifo, statement.port) for statement in used})


class _Lowering:
    """Lowers one design: first the pools, which need to know each other where a mem tile is full, then the channels."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.acquires = max_acquires(design)
        self.used: dict[Tile, int] = defaultdict(int)
        self.links = {name: (link, tile) for link, tile in sound_links(design) for name in (*link.ins, *link.outs)}
        self.shared = {fifo.name: shared_tile(fifo, fifo.name in self.links) for fifo in design.fifos}
        self.own: dict[tuple[str, int], Pool] = {}
        self.of_link: dict[int, Pool] = {}

    def placement(self) -> Placement:
        for fifo, end in self.order():
            self.pool(fifo, end)
        ends = self.dma_ends()
        pools = [self.of_link[id(link)] for link in self.design.links if id(link) in self.of_link]
        for fifo in self.design.fifos:
            pools += [
                self.own[fifo.name, end] for end in range(1 + len(fifo.consumers)) if (fifo.name, end) in self.own
            ]
        stored = [(tile, one) for pool in pools for tile, one in _stored(pool)]
        buffers = self.design.buffers
        stored += [(buffer.tile, Stored(buffer.name, 1, buffer.type.bytes, buffer.address)) for buffer in buffers]
        for core in self.design.cores:
            counters = counted_ports(core) if core.dynamic else 0
            if counters:
                stored.append((core.tile, Stored("the counters of its FIFOs", 1, 4 * counters)))
        locks = [(lock.tile, lock.init) for lock in self.design.locks]
        locks += [(pool.tile, value) for pool in pools for value in pool.locks]
        return Placement(tuple(pools), tuple(ends), tuple(stored), tuple(locks))

    def order(self) -> list[tuple[Fifo, int]]:
        """Return the ends in the order in which their objects are made.

        The lowering puts the consumers' ends behind their FIFO, each next one in front, and then lets those on mem
        tiles change places among themselves, largest objects first, so that these find room in their own tile.
        """
        ends = [
            (fifo, end)
            for fifo in self.design.fifos
            for end in ((0,) if self.shared[fifo.name] else (0, *reversed(range(1, 1 + len(fifo.consumers)))))
        ]
        places = [position for position, (fifo, end) in enumerate(ends) if _tile(fifo, end).kind == "mem"]
        largest = sorted((ends[position] for position in places), key=lambda one: -one[0].object_type.bytes)
        for position, one in zip(places, largest, strict=True):
            ends[position] = one
        return ends

    def pool(self, fifo: Fifo, end: int) -> None:
        """Make the objects of a FIFO's end, unless another end of its link has them."""
        common = self.shared[fifo.name]
        tile = _tile(fifo, end) if common is None else common
        depth = end_depth(fifo, end, self.acquires, shared=common is not None)
        repeat = max(1, fifo.repeat_count) if end == 0 else 1
        initial = len(fifo.initial) if end == 0 else 0
        link = self.link_at(fifo, end)
        if link is None:
            if tile.kind == "shim":
                depth = 0
            whole = (Segment(0, fifo.object_type.elements),)
            owned = self.make(fifo.name, tile, depth, fifo.object_type, whole, (fifo.name,), initial, repeat)
            self.own[fifo.name, end] = owned
            return
        if self.owner(link) is not fifo:
            return
        repeat = next((self.fifos[n].repeat_count for n in link.outs if self.fifos[n].repeat_count), 1)
        segments = self.segments(link)
        users = (*link.ins, *link.outs)
        self.of_link[id(link)] = self.make(
            fifo.name, tile, depth, fifo.object_type, segments, users, initial, max(1, repeat)
        )

    def make(
        self,
        owner: str,
        tile: Tile,
        depth: int,
        type_: MemRef,
        segments: tuple[Segment, ...],
        users: tuple[str, ...],
        initial: int,
        repeat: int,
    ) -> Pool:
        places = self.places(tile, type_.bytes, max(0, depth))
        return Pool(owner, tile, places, type_, segments, users, initial, repeat)

    def places(self, tile: Tile, size: int, count: int) -> tuple[tuple[Tile, int], ...]:
        """Return in which tiles the objects of a pool find room; what finds none stays at home, and is too much."""
        free = limit("memory", tile.kind).value - self.used[tile]
        at_home = count if tile.kind != "mem" or size < 1 else min(count, max(0, free // size))
        found = {tile: at_home}
        self.used[tile] += at_home * size
        while sum(found.values()) < count:
            place = self.home(tile, size)
            more = 1 if place != tile else count - sum(found.values())
            found[place] = found.get(place, 0) + more
            self.used[place] += more * size
        return tuple((place, objects) for place, objects in found.items() if objects)

    def home(self, tile: Tile, size: int) -> Tile:
        """Return the neighbour of a full mem tile that takes one more object, the emptier one first, or the tile."""
        most = limit("memory", tile.kind).value
        columns = limit("columns").value
        near = [Tile(tile.col + step, tile.row) for step in (-1, 1) if 0 <= tile.col + step < columns]
        near.sort(key=lambda one: self.used[one])
        return next((one for one in near if self.used[one] + size <= most), tile)

    def link_at(self, fifo: Fifo, end: int) -> Link | None:
        """Return the link that a FIFO's end stands in, or None."""
        link, tile = self.links.get(fifo.name, (None, None))
        if link is None or tile != _tile(fifo, end):
            return None
        return link if (fifo.name in link.outs) == (end == 0) else None

    def owner(self, link: Link) -> Fifo:
        """Return the FIFO whose objects a link's ends share: the whole ones, or of two those with more elements."""
        first, last = self.fifos[link.ins[0]], self.fifos[link.outs[0]]
        if len(link.ins) > 1:
            return last
        if len(link.outs) > 1:
            return first
        return last if last.initial or last.object_type.elements > first.object_type.elements else first

    def segments(self, link: Link) -> tuple[Segment, ...]:
        ins, outs = ([self.fifos[name].object_type.elements for name in names] for names in (link.ins, link.outs))
        pieces = max(len(ins), len(outs))
        if pieces == 1:
            return (Segment(0, self.owner(link).object_type.elements),)
        offsets = link.src_offsets if len(ins) > 1 else link.dst_offsets
        if len(offsets) == pieces:
            return link_segments(ins, outs, offsets, offsets)
        # Lint has a finding on them; the pieces in a row stand for what was meant.
        sizes = ins if len(ins) > 1 else outs
        return tuple(Segment(sum(sizes[:number]), size) for number, size in enumerate(sizes))

    def dma_ends(self) -> list[DmaEnd]:
        """Give each end that needs one a channel: the lowest free one, first to those that reach into a neighbour."""
        found = []
        for fifo in self.design.fifos:
            if self.shared[fifo.name] is None:
                found += [self.dma_end(fifo, end) for end in range(1 + len(fifo.consumers))]
        taken: dict[tuple[Tile, str], int] = defaultdict(int)
        channels = {}
        for crosses in (True, False):
            for one in found:
                if one.pool.crosses == crosses:
                    key = one.tile, one.direction
                    channels[one.fifo, one.end] = taken[key]
                    taken[key] += 1
        return [
            DmaEnd(
                one.fifo,
                one.end,
                one.tile,
                one.direction,
                channels[one.fifo, one.end],
                one.descriptors,
                one.pool,
                one.segments,
                one.dims,
            )
            for one in found
        ]

    def dma_end(self, fifo: Fifo, end: int) -> DmaEnd:
        link = self.link_at(fifo, end)
        pool = self.own[fifo.name, end] if link is None else self.of_link[id(link)]
        segments: tuple[Segment, ...] = pool.segments
        if link is not None:
            pieces = link.ins if end else link.outs
            if len(pieces) > 1:
                segments = (segments[pieces.index(fifo.name)],)
        repeat = max(1, fifo.repeat_count) if end == 0 else 1
        chain = pool.count * len(segments)
        # A chain of one descriptor: since May 2026 its channel repeats it. A bounded chain counts its own turns.
        if chain > 1 or (fifo.iter_count and _tile(fifo, end).kind == "mem"):
            chain *= repeat
        direction = INTO if end else OUT
        return DmaEnd(fifo.name, end, _tile(fifo, end), direction, -1, chain, pool, segments, dims_at(fifo, end))


def _tile(fifo: Fifo, end: int) -> Tile:
    return fifo.consumers[end - 1] if end else fifo.producer


def _stored(pool: Pool) -> Iterator[tuple[Tile, Stored]]:
    for tile, count in pool.places:
        yield tile, Stored(pool.owner, count, pool.bytes_each)

"""Lowers a design to a machine: what is on the array, then the sequences that drive it."""

from __future__ import annotations

from math import prod

import numpy as np

from elfkiln.design.fifo_lowering import Pool as Placed
from elfkiln.design.fifo_lowering import kept_for_ever, link_tile, place, shared_tile
from elfkiln.design.model import Design, Dim, Fifo, Link, LoadPdi, Tile
from elfkiln.design.patterns import MOST_DIMS, Pattern, pattern_of
from elfkiln.errors import Refused
from elfkiln.targets.sim.admission import MOST_BYTES, admit
from elfkiln.targets.sim.lower_programs import lower_program
from elfkiln.targets.sim.lower_sequences import lower_sequence
from elfkiln.targets.sim.machine import (
    End,
    Fault,
    Machine,
    MachineCore,
    Pool,
    Program,
    Segment,
    Stream,
    entry_symbol,
)

CLOCK_BYTES = 16
"""What the runtime keeps for one part at one place where agents meet: at most sim_use of runtime/sim.h."""


def lower(design: Design) -> Machine:
    """Lower a design; raises `Refused` for one that no C can be made of (names, argument counts, sheer size)."""
    admit(design)
    machine = Machine(design, initializer=_initializer(design))
    machine.shims = sorted({tile for fifo in design.fifos for tile in _ends(fifo) if tile.kind == "shim"})
    try:
        _ArrayLowering(design, machine).lower()
    except Fault as fault:
        machine.fault = str(fault)
        machine.pools, machine.streams, machine.cores, machine.programs = [], [], [], []
    total = sum(pool.depth * pool.object_bytes for pool in machine.pools)
    if total > MOST_BYTES:
        raise Refused(f"design {design.name}: its objects take {total} bytes; the array has less than {MOST_BYTES}")
    streams = {stream.fifo: number for number, stream in enumerate(machine.streams)}
    machine.sequences = [lower_sequence(design, one, streams, machine.shims) for one in design.sequences]
    clocks = machine.clocks + machine.most_tasks + len(machine.parameters)
    if clocks * machine.parts * CLOCK_BYTES > MOST_BYTES:
        raise Refused(f"design {design.name}: {clocks} places where {machine.parts} parts meet are too many to follow")
    return machine


def _initializer(design: Design) -> str | None:
    """Return the entry that only loads the array, for the message to whoever forgot it."""
    for sequence in design.sequences:
        if sequence.steps and all(isinstance(step, LoadPdi) for step in sequence.steps):
            return entry_symbol(design, sequence)
    return None


def _ends(fifo: Fifo) -> tuple[Tile, ...]:
    return (fifo.producer, *fifo.consumers)


class _ArrayLowering:
    """Lowers what is on the array: FIFOs to pools and streams, links to shared pools, cores to programs.

    Where objects are and how many is the lowering model's word (`place`), so the simulator has the room
    that the array has: with more, a deadlock would hide. Here its pools become rings, one for each segment, for each
    has locks of its own and so goes at its own pace.
    """

    def __init__(self, design: Design, machine: Machine) -> None:
        self.design = design
        self.machine = machine
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.placement = place(design)
        self.ends = {(end.fifo, end.end): end for end in self.placement.ends}
        self.cores = [core for core in design.cores if core.body]
        self.core_at = {core.tile: number for number, core in enumerate(self.cores)}
        self.agent_of: dict[str, int] = {}
        self.rings: dict[int, list[Pool]] = {}
        self.core_pools: dict[tuple[str, Tile, bool], Pool] = {}

    def lower(self) -> None:
        links = self.links()
        linked = {name for link in links for name in (*link.ins, *link.outs)}
        for fifo in self.design.fifos:
            self.check_fifo(fifo)
        shared = {fifo.name: shared_tile(fifo, fifo.name in linked) for fifo in self.design.fifos}
        streaming = [fifo for fifo in self.design.fifos if shared[fifo.name] is None]
        # Agents are the cores, then the streams: the runtime numbers them so.
        self.agent_of = {fifo.name: len(self.cores) + number for number, fifo in enumerate(streaming)}
        for link in links:
            self.link(link)
        for fifo in self.design.fifos:
            tile = shared[fifo.name]
            if tile is not None:
                self.shared(fifo, tile)
            else:
                self.stream(fifo)
        self.programs()

    def check_fifo(self, fifo: Fifo) -> None:
        if not fifo.consumers:
            raise Fault(f"FIFO {fifo.name} at {fifo.producer} has no consumer")
        if fifo.producer.kind == "shim" and "shim" in {tile.kind for tile in fifo.consumers}:
            raise Fault(f"FIFO {fifo.name} goes from {fifo.producer} to a shim tile, past the array")
        if len([tile for tile in fifo.consumers if tile.kind == "shim"]) > 1:
            raise Fault(f"FIFO {fifo.name} has two consumers on shim tiles")
        if fifo.object_type.bytes < 1 or min(fifo.depths, default=0) < 1:
            raise Fault(f"FIFO {fifo.name} at {fifo.producer} has objects of no bytes, or a depth below 1")
        if fifo.initial and not self.placement.begins(fifo.name):
            raise Fault(f"FIFO {fifo.name} at {fifo.producer} has initial values, and its objects are another FIFO's")

    def links(self) -> list[Link]:
        used: set[str] = set()
        for link in self.design.links:
            what = _link_words(link)
            for name in (*link.ins, *link.outs):
                if name not in self.fifos:
                    raise Fault(f"{what}: there is no FIFO {name}")
                if name in used:
                    raise Fault(f"{what}: FIFO {name} is in two links")
                used.add(name)
            if not link.ins or not link.outs or (len(link.ins) > 1 and len(link.outs) > 1):
                raise Fault(f"{what}: expected one FIFO on one side at least")
            tile = link_tile(link, self.fifos)
            if tile is None:
                raise Fault(f"{what}: its FIFOs do not meet on one tile")
            if tile.kind == "shim":
                raise Fault(f"{what} at {tile}: only mem tiles and cores link FIFOs")
            if tile.kind != "mem" and len(link.ins) != len(link.outs):
                raise Fault(f"{what} at {tile}: only mem tiles join and distribute")
        return list(self.design.links)

    def ring(self, name: str, tile: Tile, depth: int, size: int) -> Pool:
        ring = Pool(len(self.machine.pools), name, tile, depth, size)
        self.machine.pools.append(ring)
        return ring

    def shared(self, fifo: Fifo, tile: Tile) -> None:
        """Both ends use the memory of one tile: no stream, one ring."""
        pool = self.placement.pool_of(fifo.name, tile)
        assert pool is not None
        ring = self.ring(fifo.name, tile, pool.count, pool.bytes_each)
        self.begin(pool, [ring])
        ring.kept = self.kept(fifo, fifo.consumers[0])
        ring.writer = self.core_at.get(fifo.producer, -1)
        ring.reader = self.core_at.get(fifo.consumers[0], -1)
        self.core_pools[fifo.name, fifo.producer, False] = ring
        self.core_pools[fifo.name, fifo.consumers[0], True] = ring

    def link(self, link: Link) -> None:
        """Make the rings of a link: one, or one for each piece of a join or distribute."""
        first, last = self.fifos[link.ins[0]], self.fifos[link.outs[0]]
        pool = self.ends[last.name, 0].pool
        what = f"{_link_words(link)} at {pool.tile}"
        joins = len(link.ins) > 1
        width = pool.type.element_bytes
        rings = self.rings[id(pool)] = []
        if len(link.ins) == len(link.outs):
            # Both DMAs move the larger object, so objects of any two sizes go through: the stream is cut anew.
            rings.append(self.ring(f"{first.name} to {last.name}", pool.tile, pool.count, pool.bytes_each))
            rings[0].writer, rings[0].reader = self.agent_of[first.name], self.agent_of[last.name]
            self.begin(pool, rings)
            return
        whole = last if joins else first
        pieces = [self.fifos[name] for name in (link.ins if joins else link.outs)]
        _check_pieces(what, whole, pieces, link.src_offsets if joins else link.dst_offsets)
        for piece, segment in zip(pieces, pool.segments, strict=True):
            ring = self.ring(f"{piece.name} in {whole.name}", pool.tile, pool.count, segment.elements * width)
            one, other = (piece, whole) if joins else (whole, piece)
            ring.writer, ring.reader = self.agent_of[one.name], self.agent_of[other.name]
            rings.append(ring)
        self.begin(pool, rings)

    def begin(self, pool: Placed, rings: list[Pool]) -> None:
        """Put the objects with which a pool begins into its rings, of each ring its piece."""
        width = pool.type.element_bytes
        objects = self.fifos[pool.owner].initial[: min(pool.initial, pool.count)]
        for ring, segment in zip(rings, pool.segments, strict=True):
            start = segment.offset * width
            ring.initial = tuple(one[start : start + ring.object_bytes] for one in objects)

    def stream(self, fifo: Fifo) -> None:
        number = self.agent_of[fifo.name]
        source, *sinks = (self.end(fifo, index) for index in range(1 + len(fifo.consumers)))
        # Who fills a ring and who empties it: the runtime asks them what they wait for when nothing moves.
        # A ring has the link's FIFOs at both sides, or this one at one side and a core (or nobody) at the other.
        for segment in source.segments:
            if segment.pool.reader < 0:
                segment.pool.reader = number
                segment.pool.writer = self.core_at.get(fifo.producer, -1)
        for tile, sink in zip(fifo.consumers, sinks, strict=True):
            for segment in sink.segments:
                if segment.pool.writer < 0:
                    segment.pool.writer = number
                    segment.pool.reader = self.core_at.get(tile, -1)
        self.machine.streams.append(Stream(fifo.name, source, tuple(sinks), max(1, fifo.repeat_count)))

    def end(self, fifo: Fifo, index: int) -> End:
        """Return an end of a stream: a shim's channel, or the rings that its descriptors visit in turn."""
        end = self.ends[fifo.name, index]
        tile, dims = end.tile, end.dims
        if tile.kind == "shim":
            if dims:
                raise Fault(f"FIFO {fifo.name}: dimensions at {tile}; a shim's tasks bring their own")
            return End(tile, ())
        if id(end.pool) not in self.rings:
            ring = self.ring(fifo.name, tile, end.pool.count, end.pool.bytes_each)
            self.rings[id(end.pool)] = [ring]
            self.core_pools[fifo.name, tile, index > 0] = ring
            self.begin(end.pool, [ring])
            if index:
                ring.kept = self.kept(fifo, tile)
        width = end.pool.type.element_bytes
        way = "from the stream" if index else "to the stream"
        segments = []
        for ring, segment in zip(self.rings[id(end.pool)], end.pool.segments, strict=True):
            # Of a join's or distribute's rings a piece's end visits its own, the whole FIFO's end all in turn.
            if segment not in end.segments:
                continue
            size = ring.object_bytes
            # Each descriptor moves one piece, and each has the same dims, from the piece's start.
            pattern = Pattern(0, size, ())
            if dims:
                pattern = pattern_of(dims, 0, width)
                _check_dims(f"FIFO {fifo.name} at {tile}: its dimensions {way}", dims, pattern, size, width, way)
            segments.append(Segment(ring, pattern))
        # A bounded chain goes over its descriptors so often: one for each object and segment (and repeat).
        most = fifo.iter_count * end.pool.count * len(segments) if tile.kind == "mem" else 0
        return End(tile, tuple(segments), most)

    def kept(self, fifo: Fifo, tile: Tile) -> int:
        """Return how many objects of a FIFO the core on a tile takes before its endless loop and never gives back."""
        core = next((core for core in self.cores if core.tile == tile), None)
        return 0 if core is None else kept_for_ever(core, fifo.name)

    def programs(self) -> None:
        # Cores whose programs differ in what the numbers stand for alone share one function in C: a design of 32 cores
        # compiles in the time of one.
        known: dict[Program, int] = {}
        for core in self.cores:
            if core.tile.kind != "core":
                raise Fault(f"a core's program on {core.tile}")
            program, ports, buffers, locks = lower_program(self.design, core, self.core_pools)
            number = known.setdefault(program, len(known))
            if number == len(self.machine.programs):
                self.machine.programs.append(program)
            self.machine.cores.append(MachineCore(core.tile, number, ports, buffers, locks))


def _link_words(link: Link) -> str:
    return f"link of {', '.join(link.ins) or 'nothing'} to {', '.join(link.outs) or 'nothing'}"


def _check_pieces(what: str, whole: Fifo, pieces: list[Fifo], offsets: tuple[int, ...]) -> None:
    """Check that the pieces a link cuts are its FIFOs' objects: the lowering goes by the offsets alone."""
    total, width = whole.object_type.elements, whole.object_type.element_bytes
    if len(offsets) != len(pieces):
        raise Fault(f"{what}: {len(pieces)} FIFOs and {len(offsets)} offsets")
    if offsets[0] != 0:
        raise Fault(f"{what}: the first offset is {offsets[0]}, and elements 0 to {offsets[0] - 1} are nobody's")
    ends = (*offsets[1:], total)
    for piece, start, end in zip(pieces, offsets, ends, strict=True):
        if (end - start) * width != piece.object_type.bytes or start < 0:
            raise Fault(
                f"{what}: offsets {', '.join(map(str, offsets))} give {piece.name} elements {start} to {end - 1} of "
                f"the {total} in {whole.name}, and its objects have {piece.object_type.bytes // width}"
            )


def _check_dims(what: str, dims: tuple[Dim, ...], pattern: Pattern, size: int, width: int, way: str) -> None:
    words = ", ".join(f"<size = {dim.size}, stride = {dim.stride}>" for dim in dims)
    if any(dim.size < 1 for dim in dims) or pattern.bytes != size:
        moved = prod(dim.size for dim in dims)
        raise Fault(f"{what}, {words}, move {moved} elements of an object of {size // width}")
    if pattern.first < 0 or pattern.last > size:
        raise Fault(
            f"{what}, {words}, touch elements {pattern.first // width} to {pattern.last // width - 1} of an object "
            f"of {size // width}"
        )
    if len(pattern.dims) > MOST_DIMS:
        raise Fault(f"{what}, {words}, are more than {MOST_DIMS}")
    if way == "from the stream":
        offsets = np.zeros(1, dtype=np.int64)
        for count, stride in pattern.dims:
            offsets = np.add.outer(offsets, np.arange(count, dtype=np.int64) * stride).ravel()
        if len(np.unique(offsets)) != len(offsets) or _overlap(offsets, pattern.run):
            raise Fault(f"{what}, {words}, write elements of an object twice and leave others unwritten")


def _overlap(offsets: np.ndarray, run: int) -> bool:
    return bool(np.any(np.diff(np.sort(offsets)) < run))

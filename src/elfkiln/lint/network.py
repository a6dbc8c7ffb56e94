"""How far data can come: a design as a network of rings and streams, run as far as the tasks started so far allow.

Cores and DMAs only wait for objects, room and locks, and never look whether there are any, so what the network has
done when nothing moves any more does not depend on who went first (a Kahn network). Data that it cannot move, the
array cannot either. It moves bytes as the simulator does: a DMA holds one object at each end, and a link whose FIFOs
have objects of different sizes cuts the stream anew.

A panel of K tiles is hundreds of turns that are all alike. When the network comes back to a state it was in, with less
data to come and fewer turns to go, it does that stretch again as often as both last, in one step. So a sequence costs
what its tasks do to the state, not what they move.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from elfkiln.design.fifo_lowering import CONSUME, PRODUCE, DmaEnd, Placement, Pool, shared_tile, sound_links, statements
from elfkiln.design.model import (
    Acquire,
    Core,
    Design,
    Load,
    Loop,
    Release,
    RtpWrite,
    Sequence,
    Statement,
    Task,
    Tile,
    UseLock,
)
from elfkiln.design.patterns import fills
from elfkiln.lint.flow import ENDLESS, Turns, program_of, turns_of, uses_index
from elfkiln.lint.values import Parameter, Values

MOST_MOVES = 4_000_000
"""Moves of data and steps of cores followed in one design; what is left of longer ones is not judged."""

_NEVER_COUNTED = 99
"""Depth of a loop whose turns are never a count: deeper than any."""

_MOST_SEEN = 256
"""States of one run that are remembered; a stretch that repeats is far shorter."""


class NotFollowed(Exception):
    """The network cannot say: a loop's bound is not known, or the sequence is too long."""


@dataclass(slots=True, eq=False)
class Ring:
    """The objects of a pool's segment: `full` of `depth` hold data. `of` is the FIFO, or the link's, that fills it."""

    of: str
    depth: int
    bytes: int
    full: int = 0
    tile: Tile | None = None
    filler: Node | None = None
    takers: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _End:
    """One end of a stream: the rings it visits in turn, or a shim's bytes.

    `left` are the bytes still to move of the object that is open (0: none is). Of a shim's end `left` is what its tasks
    have still to move. `passes` is how many objects a bounded chain has still to open (None: no end).
    """

    rings: tuple[Ring, ...]
    at: int = 0
    left: int = 0
    moved: int = 0
    passes: int | None = None
    shim: bool = field(init=False)

    def __post_init__(self) -> None:
        self.shim = not self.rings


@dataclass(slots=True, eq=False)
class Mover:
    """The stream of one FIFO: what its source's DMA reads goes to every consumer's, each object `repeat` times over."""

    fifo: str
    source: _End
    sinks: list[_End]
    repeat: int = 1
    sent: int = 0
    queued: bool = False
    number: int = 0

    def blocked(self) -> tuple[Ring | None, bool] | None:
        """Return the ring that holds it up (None: a shim's tasks), and whether it lacks data (or room), or None."""
        source = self.source
        if source.left == 0:
            if source.shim or source.passes == 0:
                return (None if source.shim else source.rings[source.at]), True
            if source.rings[source.at].full < 1:
                return source.rings[source.at], True
        for sink in self.sinks:
            if sink.left == 0:
                if sink.shim or sink.passes == 0:
                    return (None if sink.shim else sink.rings[sink.at]), False
                ring = sink.rings[sink.at]
                if ring.full >= ring.depth:
                    return ring, False
        return None


@dataclass(frozen=True, slots=True)
class _Op:
    """One instruction of a core: what it does to a ring or lock, or where a loop begins and ends."""

    kind: Literal["take", "make", "free", "give", "lock", "load", "loop", "next", "park"]
    ring: Ring | None = None
    count: int = 0
    statement: Statement | None = None
    to: int = 0


@dataclass(slots=True, eq=False)
class CoreRun:
    """One core's program as it runs: `at` is its next instruction, `turns` what its open loops have still to go.

    `entered` counts how often each loop was begun, so that a turn of one run of a loop is not taken for one of another.
    `loops` are the numbers of its loops with how deep they stand (very deep where the body uses the index).
    """

    core: Core
    ops: tuple[_Op, ...]
    known: Turns
    at: int = 0
    turns: dict[int, int] = field(default_factory=dict)
    entered: dict[int, int] = field(default_factory=dict)
    lock: str | None = None
    queued: bool = False
    number: int = 0
    loops: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether nothing of the program is left to do."""
        return self.at >= len(self.ops)

    def blocked(self) -> tuple[Ring | None, bool] | None:
        """Return the ring at which the core waits, and whether it lacks objects (or room), or None."""
        if self.ended:
            return None
        op = self.ops[self.at]
        if op.ring is None or op.kind not in ("take", "make"):
            return None
        lacks = op.ring.full < op.count if op.kind == "take" else op.ring.depth - op.ring.full < op.count
        return (op.ring, op.kind == "take") if lacks else None


Node: TypeAlias = "Mover | CoreRun"


@dataclass(frozen=True, slots=True)
class Lack:
    """What holds a task up: more data `filled` into a FIFO (or drained from it), or the lock or core of `other`."""

    fifo: str | None
    filled: bool
    other: str = ""


class Network:
    """The rings of a design in one sequence. Tasks are started, then everything runs as far as it can."""

    def __init__(
        self, design: Design, sequence: Sequence, placement: Placement, buffers: Values, moves: int | None = None
    ) -> None:
        """Lay the rings out as load_pdi leaves them, with the locks; follow at most `moves`."""
        self.sequence = sequence
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.locks = {lock.name: lock.init for lock in design.locks}
        self.waiting: dict[str, list[CoreRun]] = {}
        self.buffers = buffers
        self.parameters: dict[Parameter, int] = dict(buffers.initial)
        self.ready: deque[Node] = deque()
        self.movers: dict[str, Mover] = {}
        self.at_core: dict[tuple[str, str, Tile], Ring] = {}
        self.left = MOST_MOVES if moves is None else moves
        self.starved = 0
        if any(fifo.object_type.bytes < 1 for fifo in design.fifos):
            raise NotFollowed
        self._streams(design, placement)
        self.cores = [CoreRun(core, self._ops(core), Turns(self.parameters)) for core in design.cores]
        for run in self.cores:
            run.loops = _loops(run.ops)
        self.nodes: list[Node] = [*self.movers.values(), *self.cores]
        for number, node in enumerate(self.nodes):
            node.number = number
        for run in self.cores:
            for op in run.ops:
                if op.ring is not None and op.kind in ("make", "give"):
                    op.ring.filler = run
                elif op.ring is not None and run not in op.ring.takers:
                    op.ring.takers.append(run)
            run.queued = True
            self.ready.append(run)
        self.watch = _Watch(self)

    # The network of a design.

    def _streams(self, design: Design, placement: Placement) -> None:
        rings: dict[int, tuple[Ring, ...]] = {}
        linked = {name for link, _ in sound_links(design) for name in (*link.ins, *link.outs)}
        for pool in placement.pools:
            rings[id(pool)] = self._rings(pool)
        for fifo in design.fifos:
            common = shared_tile(fifo, fifo.name in linked)
            if common is not None:
                shared = placement.pool_of(fifo.name, common)
                ring = Ring(fifo.name, 0, 1) if shared is None else rings[id(shared)][0]
                self.at_core[fifo.name, PRODUCE, fifo.producer] = ring
                self.at_core[fifo.name, CONSUME, fifo.consumers[0]] = ring
        for end in placement.ends:
            fifo = self.fifos[end.fifo]
            own = self._end(end, rings[id(end.pool)], design)
            if end.end == 0:
                self.movers[fifo.name] = Mover(fifo.name, own, [], max(1, fifo.repeat_count))
            else:
                self.movers[fifo.name].sinks.append(own)
            if own.rings and len(end.pool.users) == 1:
                self.at_core[fifo.name, PRODUCE if end.end == 0 else CONSUME, end.tile] = own.rings[0]
        for mover in self.movers.values():
            for ring in mover.source.rings:
                ring.takers.append(mover)
            for sink in mover.sinks:
                for ring in sink.rings:
                    ring.filler = mover

    def _rings(self, pool: Pool) -> tuple[Ring, ...]:
        """Return a pool's rings; each is named for the FIFO that moves it alone, where there is one."""
        ins = [name for name in pool.users if pool.tile in self.fifos[name].consumers]
        outs = [name for name in pool.users if self.fifos[name].producer == pool.tile]
        width = pool.type.element_bytes
        names = ins if len(ins) > 1 else outs if len(outs) > 1 else [pool.owner]
        return tuple(
            Ring(
                names[number] if len(names) == len(pool.segments) else pool.owner,
                pool.count,
                segment.elements * width,
                min(pool.initial, pool.count),
                pool.tile,
            )
            for number, segment in enumerate(pool.segments)
        )

    def _end(self, end: DmaEnd, rings: tuple[Ring, ...], design: Design) -> _End:
        if end.tile.kind == "shim":
            return _End(())
        own = tuple(ring for ring, segment in zip(rings, end.pool.segments, strict=True) if segment in end.segments)
        if any(ring.bytes < 1 for ring in own):
            raise NotFollowed
        fifo = design.fifo(end.fifo)
        passes = fifo.iter_count * end.pool.count * len(own) if fifo.iter_count and end.tile.kind == "mem" else None
        return _End(own, passes=passes)

    def _ops(self, core: Core) -> tuple[_Op, ...]:
        ops: list[_Op] = []
        self._compile(core, core.body, ops)
        return tuple(ops)

    def _compile(self, core: Core, body: tuple[Statement, ...], ops: list[_Op]) -> None:
        """Flatten a program to what moves objects and locks; what only computes is left out."""
        for statement in body:
            if isinstance(statement, Acquire | Release):
                ring = self.at_core.get((statement.fifo, statement.port, core.tile))
                if ring is None:
                    raise NotFollowed
                takes = isinstance(statement, Acquire)
                makes = statement.port == PRODUCE
                kind: Literal["take", "make", "free", "give"]
                kind = ("make" if makes else "take") if takes else ("give" if makes else "free")
                ops.append(_Op(kind, ring, statement.count))
            elif isinstance(statement, UseLock):
                if statement.lock not in self.locks:
                    raise NotFollowed
                ops.append(_Op("lock", statement=statement))
            elif isinstance(statement, Load):
                ops.append(_Op("load", statement=statement))
            elif isinstance(statement, Loop):
                self._compile_loop(core, statement, ops)

    def _compile_loop(self, core: Core, loop: Loop, ops: list[_Op]) -> None:
        moves = [s for s in statements(loop.body) if isinstance(s, Acquire | Release | UseLock)]
        if not moves:
            return
        gives = any(isinstance(s, Release | UseLock) for s in moves)
        start = len(ops)
        ops.append(_Op("loop", statement=loop))
        self._compile(core, loop.body, ops)
        if gives:
            ops.append(_Op("next", statement=loop, to=start + 1))
        elif (turns_of(loop, Turns({})) or 0) >= ENDLESS:
            # A turn that gives nothing back and takes no lock is like the one before it: the core holds what it has.
            ops.append(_Op("park"))
        ops[start] = _Op("loop", statement=loop, to=len(ops))

    # Running it.

    def start(self, task: Task, size: int) -> None:
        """Start a task that moves `size` bytes."""
        if size < 1:
            raise NotFollowed
        mover = self.movers[task.fifo]
        self._shim(mover).left += size
        self._wake(mover)

    def _shim(self, mover: Mover) -> _End:
        return mover.source if mover.source.shim else next(sink for sink in mover.sinks if sink.shim)

    def moved(self, name: str) -> int:
        """Return the bytes that have come through the shim end of a FIFO, at most."""
        return self._shim(self.movers[name]).moved

    def write(self, step: RtpWrite) -> None:
        """Write a run-time parameter from the sequence."""
        self.buffers.write(self.parameters, step)

    def set_lock(self, name: str, value: int) -> None:
        """Set a lock from the sequence."""
        self.locks[name] = value
        self._wake_lock(name)

    def _wake_lock(self, name: str) -> None:
        for run in self.waiting.pop(name, ()):
            self._wake(run)

    def _wake(self, node: Node | None) -> None:
        if node is not None and not node.queued:
            node.queued = True
            self.ready.append(node)

    def run(self) -> None:
        """Run until nothing moves; raises `NotFollowed` when that cannot be known."""
        looks = -2 * len(self.nodes)
        while self.ready:
            node = self.ready.popleft()
            looks += 1
            # A state is dear to write down: only a run that goes on is looked at.
            if looks == 0:
                self.watch.begin()
            if looks > 0:
                self.watch.look(node)
            if isinstance(node, Mover):
                self._move(node)
            else:
                self._step(node)
            # Only now: what a node changes itself is not a reason to look again.
            node.queued = False

    def _move(self, mover: Mover) -> None:
        source = mover.source
        while True:
            held = mover.blocked()
            if held is not None:
                self.starved += held[0] is None
                return
            self.left -= 1
            if self.left < 0:
                raise NotFollowed
            if source.left == 0:
                source.left = source.rings[source.at].bytes
                if source.passes is not None and mover.sent == 0:
                    source.passes -= 1
            for sink in mover.sinks:
                if sink.left == 0:
                    sink.left = sink.rings[sink.at].bytes
                    if sink.passes is not None:
                        sink.passes -= 1
            count = min(source.left, *(sink.left for sink in mover.sinks))
            source.left -= count
            source.moved += count
            if source.left == 0 and not source.shim:
                mover.sent += 1
                if mover.sent == mover.repeat:
                    mover.sent = 0
                    ring = source.rings[source.at]
                    ring.full -= 1
                    source.at = (source.at + 1) % len(source.rings)
                    self._wake(ring.filler)
            for sink in mover.sinks:
                sink.left -= count
                sink.moved += count
                if sink.left == 0 and not sink.shim:
                    ring = sink.rings[sink.at]
                    ring.full += 1
                    sink.at = (sink.at + 1) % len(sink.rings)
                    for taker in ring.takers:
                        self._wake(taker)

    def _step(self, run: CoreRun) -> None:
        """Run a core until it waits or ends."""
        ops = run.ops
        while run.at < len(ops):
            self.left -= 1
            if self.left < 0:
                raise NotFollowed
            op = ops[run.at]
            kind, ring = op.kind, op.ring
            if ring is None:
                if kind == "park" or not self._control(run, op):
                    return
            elif kind == "take":
                if ring.full < op.count:
                    return
            elif kind == "make":
                if ring.depth - ring.full < op.count:
                    return
            else:
                ring.full += op.count if kind == "give" else -op.count
                if not 0 <= ring.full <= ring.depth:
                    raise NotFollowed
                if kind == "give":
                    for taker in ring.takers:
                        self._wake(taker)
                else:
                    self._wake(ring.filler)
            run.at += 1

    def _control(self, run: CoreRun, op: _Op) -> bool:
        """Do what moves no object: locks, loads and loops. Returns whether the core goes on."""
        statement, known = op.statement, run.known
        if isinstance(statement, UseLock):
            return self._lock(run, statement)
        if isinstance(statement, Load):
            index = known.value(statement.index)
            known.loaded[statement.number] = None if index is None else self.parameters.get((statement.buffer, index))
            return True
        assert isinstance(statement, Loop)
        number = statement.number
        if op.kind == "loop":
            turns = turns_of(statement, known)
            if turns is None:
                raise NotFollowed
            if turns == 0:
                run.at = op.to - 1
                return True
            run.turns[number] = turns
            run.entered[number] = run.entered.get(number, 0) + 1
            known.indices[number] = known.value(statement.lower) or 0
            return True
        run.turns[number] -= 1
        if run.turns[number]:
            known.indices[number] += known.value(statement.step) or 1
            run.at = op.to - 1
        else:
            del run.turns[number]
        return True

    def _lock(self, run: CoreRun, use: UseLock) -> bool:
        value = run.known.value(use.value)
        if value is None:
            raise NotFollowed
        if use.action == "release":
            self.locks[use.lock] += value
            self._wake_lock(use.lock)
            return True
        if self.locks[use.lock] < value if use.action == "acquire_ge" else self.locks[use.lock] != value:
            run.lock = use.lock
            self.waiting.setdefault(use.lock, []).append(run)
            return False
        run.lock = None
        self.locks[use.lock] -= value
        return True

    # What it says when nothing moves.

    def lacks(self, name: str) -> Lack:
        """Say what holds up the tasks of a FIFO, when nothing moves: what its data or room waits for in the end."""
        node: Node = self.movers[name]
        seen = set()
        while id(node) not in seen:
            seen.add(id(node))
            held = node.blocked()
            if held is None:
                assert isinstance(node, CoreRun)
                tile = node.core.tile
                return Lack(None, False, f"lock @{node.lock}" if node.lock else f"{tile}, whose program has ended")
            ring, short = held
            if ring is None:
                assert isinstance(node, Mover)
                return Lack(node.fifo, bool(fills(self.fifos[node.fifo])))
            if short and ring.filler is None:
                return Lack(ring.of, True)
            if not short and not ring.takers:
                return Lack(ring.of, False)
            if isinstance(node, Mover) and (node.source.passes == 0 or any(sink.passes == 0 for sink in node.sinks)):
                return Lack(None, False, f"@{node.fifo}, whose iter_count is spent")
            if short:
                assert ring.filler is not None
                node = ring.filler
            else:
                # Of several that take from one memory the last to go holds the room.
                node = next((taker for taker in ring.takers if taker.blocked() is not None), ring.takers[0])
                if isinstance(node, CoreRun) and not _gives_back(node.core, ring.of):
                    return Lack(None, False, f"{node.core.tile}, which takes no more of @{ring.of}")
        return Lack(None, False, "a circle of full and empty FIFOs")


State: TypeAlias = "tuple[object, ...]"


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The counts that go with a state: bytes still to come at each shim, passes and turns still to go."""

    counts: tuple[int, ...]
    moved: tuple[int, ...]
    starved: int


class _Watch:
    """Watches one run for a state that comes back, and takes the stretch since then as often as it will go.

    The state is all that decides what the network does next but for how much: what is in the rings, what each stream
    and core is at, and who is ready. How much is counts that only go down: bytes of tasks, passes of bounded chains,
    turns of loops whose index their body does not use. As long as none of them runs out, and no stream stands at a shim
    without data, the same stretch follows.

    Turns are a count within one run of a loop alone: of a loop that was left and begun anew what is still to go is part
    of the state. So each state is looked for at every depth: with the turns of the loops down to there as counts.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.anchor: Node | None = None
        self.seen: dict[State, _Snapshot] = {}
        self.quiet = 0
        self.ends = [end for mover in network.movers.values() for end in (mover.source, *mover.sinks)]
        rings = [ring for end in self.ends for ring in end.rings]
        self.rings = list({id(ring): ring for ring in (*rings, *network.at_core.values())}.values())
        self.loops = [(run, loop, depth) for run in network.cores for loop, depth in run.loops]
        deepest = max((depth for _, _, depth in self.loops if depth != _NEVER_COUNTED), default=0)
        self.depths = range(deepest + 1)

    def begin(self) -> None:
        """Forget what was seen: between two runs the sequence does something."""
        self.anchor = None
        self.seen.clear()
        self.quiet = 0

    def look(self, node: Node) -> None:
        """Look at the network before a node goes on: at one node's turns only, for they are in every stretch."""
        if self.anchor is None or self.quiet > _MOST_SEEN:
            self.anchor, self.quiet = node, 0
        if node is not self.anchor:
            self.quiet += 1
            return
        self.quiet = 0
        state = self.state()
        if len(self.seen) > _MOST_SEEN:
            self.seen.clear()
        for depth in self.depths:
            key, now = (depth, *state, *self.turns(depth)), self.snapshot(depth)
            before = self.seen.get(key)
            self.seen[key] = now
            if before is not None and before.starved == now.starved and self.again(before, now, depth):
                self.seen.clear()
                return

    def state(self) -> State:
        """Return what decides how the network goes on, but for loops."""
        network = self.network
        waiting = tuple(tuple(run.number for run in runs) for runs in network.waiting.values())
        parts: list[object] = [tuple(node.number for node in network.ready), tuple(network.locks.values()), waiting]
        parts += [ring.full for ring in self.rings]
        parts += [(end.at, 0 if end.shim else end.left) for end in self.ends]
        parts += [mover.sent for mover in network.movers.values()]
        parts += [(run.at, run.lock, *run.known.loaded.values()) for run in network.cores]
        return tuple(parts)

    def turns(self, depth: int) -> State:
        """Return of each loop which run of it this is, where its turns are a count, else how many are to go."""
        return tuple(
            run.entered.get(loop, 0) if at <= depth else run.turns.get(loop, 0) for run, loop, at in self.loops
        )

    def snapshot(self, depth: int) -> _Snapshot:
        counts = [end.left for end in self.ends if end.shim]
        counts += [end.passes for end in self.ends if end.passes is not None]
        counts += [run.turns.get(loop, 0) for run, loop, at in self.loops if at <= depth]
        return _Snapshot(tuple(counts), tuple(end.moved for end in self.ends), self.network.starved)

    def again(self, before: _Snapshot, now: _Snapshot, depth: int) -> bool:
        """Take the stretch from `before` to `now` again, as often as every count allows with one left over."""
        steps = [one - other for one, other in zip(before.counts, now.counts, strict=True)]
        times = min(((left - 1) // step for step, left in zip(steps, now.counts, strict=True) if step > 0), default=0)
        if times < 1:
            return False
        down = iter(steps)
        for end in self.ends:
            if end.shim:
                end.left -= next(down) * times
        for end in self.ends:
            if end.passes is not None:
                end.passes -= next(down) * times
        for run, loop, at in self.loops:
            if at <= depth and (step := next(down)):
                run.turns[loop] -= step * times
        for end, one, other in zip(self.ends, now.moved, before.moved, strict=True):
            end.moved += (one - other) * times
        return True


def _loops(ops: tuple[_Op, ...]) -> list[tuple[int, int]]:
    found = []
    depth = 0
    for op in ops:
        if op.kind == "loop" and isinstance(op.statement, Loop):
            indexed = uses_index(op.statement.body, op.statement.number)
            found.append((op.statement.number, _NEVER_COUNTED if indexed else depth))
            depth += 1
        depth -= op.kind in ("next", "park")
    return found


def _gives_back(core: Core, fifo: str) -> bool:
    """Return whether a core releases a FIFO's objects again and again, not only before its endless loop."""
    program = program_of(core)
    return any(isinstance(s, Release) and s.fifo == fifo for s in statements(program.body))

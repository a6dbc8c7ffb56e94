"""How far data can come: a design as a network of bounded queues, run as far as the tasks started so far allow.

Cores and DMAs only wait for objects, room and locks, and never look whether there are any, so what the network has
done when nothing moves any more does not depend on who went first (a Kahn network). Data that it cannot move, the
array cannot either. Where the hardware has less room than is known here (no half objects, no room in the streams) the
network takes the larger figure.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator
from dataclasses import dataclass, field

from elfkiln.design.fifo_lowering import CONSUME, PRODUCE, Placement, shared_tile, sound_links, statements
from elfkiln.design.model import (
    Acquire,
    Core,
    Design,
    Fifo,
    Load,
    Loop,
    Release,
    Sequence,
    Statement,
    Task,
    Tile,
    UseLock,
)
from elfkiln.lint.flow import ENDLESS, Turns, program_of, turns_of
from elfkiln.lint.taps import fills

MOST_MOVES = 4_000_000
"""Moves of objects and steps of cores followed in one design; what is left of longer ones is not judged."""

_ENDLESS_ROOM = 2**62


class NotFollowed(Exception):
    """The network cannot say: a loop's bound is not known, or the sequence is too long."""


@dataclass(slots=True, eq=False)
class Queue:
    """Objects (or bytes of a link's buffers) in one memory, between what fills it and what takes from it.

    `of` is the FIFO; `filler` and `taker` are None where tasks of a sequence stand.
    """

    of: str
    room: int
    have: int = 0
    filler: _Mover | _CoreRun | None = None
    takers: list[_Mover | _CoreRun] = field(default_factory=list)
    tile: Tile | None = None

    def wake(self, ready: deque[_Mover | _CoreRun]) -> None:
        """Let both sides look again."""
        for node in (self.filler, *self.takers):
            if node is not None and not node.queued:
                node.queued = True
                ready.append(node)


@dataclass(slots=True, eq=False)
class _Mover:
    """The DMA of one FIFO: takes an object and puts it to every consumer, `repeat` times over."""

    fifo: str
    takes: list[tuple[Queue, int]]
    puts: list[tuple[Queue, int]]
    repeat: int = 1
    sent: int = 0
    queued: bool = False

    def blocked(self) -> tuple[Queue, bool] | None:
        """Return the queue that holds it up, and whether it lacks objects (or room), or None."""
        for queue, size in self.takes:
            if queue.have < size:
                return queue, True
        for queue, size in self.puts:
            if queue.room - queue.have < size:
                return queue, False
        return None


@dataclass(slots=True, eq=False)
class _CoreRun:
    """One core's program as it runs; `waits` is the queue it waits at, or the lock."""

    core: Core
    steps: Generator[None, None, None] | None = None
    waits: tuple[Queue, bool] | None = None
    lock: str | None = None
    ended: bool = False
    queued: bool = False

    def blocked(self) -> tuple[Queue, bool] | None:
        """Return the queue at which the core waits, and whether it lacks objects (or room), or None."""
        return self.waits


@dataclass(frozen=True, slots=True)
class Lack:
    """What holds a task up: more data `filled` into a FIFO (or drained from it), or the lock or core of `other`."""

    fifo: str | None
    filled: bool
    other: str = ""


class Network:
    """The queues of a design in one sequence. Tasks are started, then everything runs as far as it can."""

    def __init__(self, design: Design, sequence: Sequence, placement: Placement, moves: int | None = None) -> None:
        """Lay the queues out empty, with locks as load_pdi leaves them; follow at most `moves`."""
        self.sequence = sequence
        self.fifos = {fifo.name: fifo for fifo in design.fifos}
        self.locks = {lock.name: lock.init for lock in design.locks}
        self.waiting: dict[str, list[_CoreRun]] = {}
        self.parameters: dict[tuple[str, int], int] = {}
        self.ready: deque[_Mover | _CoreRun] = deque()
        self.shims: dict[str, Queue] = {}
        self.movers: dict[str, _Mover] = {}
        self.at_core: dict[tuple[str, str, Tile], Queue] = {}
        self.started: dict[str, int] = {}
        self.left = MOST_MOVES if moves is None else moves
        if any(fifo.object_type.bytes < 1 or fifo.iter_count for fifo in design.fifos):
            raise NotFollowed
        self._queues(design, placement)
        self.cores = [_CoreRun(core) for core in design.cores]
        for run in self.cores:
            run.steps = self._walk(run, run.core.body, Turns(self.parameters))
            run.queued = True
            self.ready.append(run)
            for statement in statements(run.core.body):
                if isinstance(statement, Acquire | Release):
                    queue = self.at_core.get((statement.fifo, statement.port, run.core.tile))
                    if queue is not None and statement.port == PRODUCE:
                        queue.filler = run
                    elif queue is not None and run not in queue.takers:
                        queue.takers.append(run)

    def _queues(self, design: Design, placement: Placement) -> None:
        rooms = {(name, pool.tile): pool for pool in placement.pools for name in pool.users}
        entering: dict[str, tuple[Tile, list[tuple[Queue, int]]]] = {}
        leaving: dict[str, list[tuple[Queue, int]]] = {}
        for link, tile in sound_links(design):
            sizes = {name: self.fifos[name].object_type.bytes for name in (*link.ins, *link.outs)}
            pieces = link.outs if len(link.outs) > 1 else link.ins
            count = rooms[link.ins[0], tile].count
            whole = max(sizes[link.ins[0]], sizes[link.outs[0]])
            one = len(link.ins) == len(link.outs)
            lanes = {name: Queue(name, count * (whole if one else sizes[name]), tile=tile) for name in pieces}
            for name in link.ins:
                own = list(lanes) if len(link.outs) > 1 else [name]
                entering[name] = tile, [(lanes[lane], sizes[name] if one else sizes[lane]) for lane in own]
            for name in link.outs:
                own = [name] if len(link.outs) > 1 else list(lanes)
                leaving[name] = [(lanes[lane], sizes[name] if one else sizes[lane]) for lane in own]
        counts: dict[str, dict[Tile, int]] = defaultdict(dict)
        for (name, tile), pool in rooms.items():
            counts[name][tile] = pool.count
        for fifo in design.fifos:
            self._fifo(fifo, counts[fifo.name], entering, leaving)

    def _fifo(
        self,
        fifo: Fifo,
        rooms_of: dict[Tile, int],
        entering: dict[str, tuple[Tile, list[tuple[Queue, int]]]],
        leaving: dict[str, list[tuple[Queue, int]]],
    ) -> None:
        common = shared_tile(fifo, fifo.name in entering or fifo.name in leaving)
        if common is not None:
            queue = Queue(fifo.name, rooms_of.get(common, 0), tile=common)
            self.at_core[fifo.name, PRODUCE, fifo.producer] = queue
            self.at_core[fifo.name, CONSUME, fifo.consumers[0]] = queue
            return
        mover = _Mover(fifo.name, [], [], max(1, fifo.repeat_count))
        self.movers[fifo.name] = mover
        if fifo.name in leaving:
            mover.takes = leaving[fifo.name]
        elif fifo.producer.kind == "shim":
            self.shims[fifo.name] = Queue(fifo.name, _ENDLESS_ROOM)
            mover.takes = [(self.shims[fifo.name], 1)]
        else:
            queue = Queue(fifo.name, rooms_of.get(fifo.producer, 0), tile=fifo.producer)
            self.at_core[fifo.name, PRODUCE, fifo.producer] = queue
            mover.takes = [(queue, 1)]
        for consumer in fifo.consumers:
            if fifo.name in entering and entering[fifo.name][0] == consumer:
                mover.puts += entering[fifo.name][1]
            elif consumer.kind == "shim":
                self.shims[fifo.name] = Queue(fifo.name, 0)
                mover.puts.append((self.shims[fifo.name], 1))
            else:
                queue = Queue(fifo.name, rooms_of.get(consumer, 0), tile=consumer)
                self.at_core[fifo.name, CONSUME, consumer] = queue
                mover.puts.append((queue, 1))
        for queue, _ in mover.takes:
            queue.takers.append(mover)
        for queue, _ in mover.puts:
            queue.filler = mover

    def start(self, task: Task, size: int) -> None:
        """Start a task that moves `size` bytes."""
        if size < 1:
            raise NotFollowed
        fifo = self.fifos[task.fifo]
        total = self.started[task.fifo] = self.started.get(task.fifo, 0) + size
        queue, each = self.shims[task.fifo], fifo.object_type.bytes
        if fills(fifo):
            queue.have += total // each - (total - size) // each
        else:
            queue.room = -(-total // each)
        queue.wake(self.ready)

    def moved(self, name: str) -> int:
        """Return the bytes that have come through the shim end of a FIFO, at most."""
        fifo, queue = self.fifos[name], self.shims[name]
        size = fifo.object_type.bytes
        if not fills(fifo):
            return queue.have * size
        total = self.started.get(name, 0)
        # What is less than an object waits for the task that brings the rest, or stands in a free buffer.
        return total if queue.have == 0 else (total // size - queue.have) * size

    def set_lock(self, name: str, value: int) -> None:
        """Set a lock from the sequence."""
        self.locks[name] = value
        self._wake_lock(name)

    def _wake_lock(self, name: str) -> None:
        for run in self.waiting.pop(name, ()):
            if not run.queued:
                run.queued = True
                self.ready.append(run)

    def run(self) -> None:
        """Run until nothing moves; raises `NotFollowed` when that cannot be known."""
        while self.ready:
            node = self.ready.popleft()
            if isinstance(node, _Mover):
                self._move(node)
            elif not node.ended:
                assert node.steps is not None
                node.ended = next(node.steps, self) is self
            # Only now: what a node changes itself is no reason to look again.
            node.queued = False

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotFollowed

    def _move(self, mover: _Mover) -> None:
        while mover.blocked() is None:
            self._spend()
            mover.sent += 1
            if mover.sent == mover.repeat:
                mover.sent = 0
                for queue, size in mover.takes:
                    queue.have -= size
                    queue.wake(self.ready)
            for queue, size in mover.puts:
                queue.have += size
                queue.wake(self.ready)

    def _walk(self, run: _CoreRun, body: tuple[Statement, ...], known: Turns) -> Generator[None, None, None]:
        for statement in body:
            self._spend()
            if isinstance(statement, Acquire):
                queue = self.at_core.get((statement.fifo, statement.port, run.core.tile))
                if queue is None:
                    raise NotFollowed
                gives = statement.port == PRODUCE
                while (queue.room - queue.have if gives else queue.have) < statement.count:
                    run.waits = queue, not gives
                    yield
                run.waits = None
            elif isinstance(statement, Release):
                queue = self.at_core.get((statement.fifo, statement.port, run.core.tile))
                if queue is None:
                    raise NotFollowed
                queue.have += statement.count if statement.port == PRODUCE else -statement.count
                queue.wake(self.ready)
            elif isinstance(statement, UseLock):
                yield from self._lock(run, statement, known)
            elif isinstance(statement, Load):
                index = known.value(statement.index)
                key = None if index is None else (statement.buffer, index)
                known.loaded[statement.number] = None if key is None else self.parameters.get(key)
            elif isinstance(statement, Loop):
                yield from self._loop(run, statement, known)

    def _loop(self, run: _CoreRun, loop: Loop, known: Turns) -> Generator[None, None, None]:
        moves = [s for s in statements(loop.body) if isinstance(s, Acquire | Release | UseLock)]
        if not moves:
            return
        turns = turns_of(loop, known)
        if turns is None:
            raise NotFollowed
        gives = any(isinstance(s, Release) or (isinstance(s, UseLock) and s.action == "release") for s in moves)
        takes = any(isinstance(s, UseLock) and s.action != "release" for s in moves)
        lower, step = known.value(loop.lower) or 0, known.value(loop.step) or 1
        # A turn that gives nothing back and takes no lock is like the one before it.
        for turn in range(turns if gives or takes else min(turns, 1)):
            known.indices[loop.number] = lower + turn * step
            yield from self._walk(run, loop.body, known)
        if turns >= ENDLESS and not (gives or takes):
            while True:
                yield

    def _lock(self, run: _CoreRun, use: UseLock, known: Turns) -> Generator[None, None, None]:
        value = known.value(use.value)
        if value is None or use.lock not in self.locks:
            raise NotFollowed
        if use.action == "release":
            self.locks[use.lock] += value
            self._wake_lock(use.lock)
            return
        while self.locks[use.lock] < value if use.action == "acquire_ge" else self.locks[use.lock] != value:
            run.lock = use.lock
            self.waiting.setdefault(use.lock, []).append(run)
            yield
        run.lock = None
        self.locks[use.lock] -= value

    def lacks(self, name: str) -> Lack:
        """Say what holds up the tasks of a FIFO, when nothing moves: what its data or room waits for in the end."""
        node: _Mover | _CoreRun = self.movers[name]
        seen = set()
        while id(node) not in seen:
            seen.add(id(node))
            held = node.blocked()
            if held is None:
                if isinstance(node, _CoreRun):
                    tile = node.core.tile
                    return Lack(None, False, f"lock @{node.lock}" if node.lock else f"{tile}, whose program has ended")
                return Lack(name, bool(fills(self.fifos[name])))
            queue, short = held
            if short and queue.filler is None:
                return Lack(queue.of, True)
            if not short and not queue.takers:
                return Lack(queue.of, False)
            if short:
                assert queue.filler is not None
                node = queue.filler
            else:
                # Of several that take from one memory the last to go holds the room.
                node = next((taker for taker in queue.takers if taker.blocked() is not None), queue.takers[0])
                if isinstance(node, _CoreRun) and not _gives_back(node.core, queue.of):
                    return Lack(None, False, f"{node.core.tile}, which takes no more of @{queue.of}")
        return Lack(None, False, "a circle of full and empty FIFOs")


def _gives_back(core: Core, fifo: str) -> bool:
    """Return whether a core releases a FIFO's objects again and again, not only before its endless loop."""
    program = program_of(core)
    return any(isinstance(s, Release) and s.fifo == fifo for s in statements(program.body))

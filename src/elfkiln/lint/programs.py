"""Core programs: the FIFOs, kernels, buffers and locks they name, and what they hold when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from elfkiln.design.fifo_lowering import CONSUME, PRODUCE, Placement, shared_tile, sound_links, statements
from elfkiln.design.model import (
    Acquire,
    Buffer,
    BufferRef,
    Call,
    Core,
    Design,
    Fifo,
    Kernel,
    Load,
    Lock,
    Loop,
    MemRef,
    ObjectRef,
    Release,
    Statement,
    Tile,
    UseLock,
)
from elfkiln.lint.finding import Findings

MMUL = 8
"""Rows, depth and columns of the int8 matrix multiply of AIE2P (aie_api detail/aie2p/mmul_8_8.hpp)."""

Exports = Mapping[str, Collection[str]]

# Walking every loop twice doubles the work with each level; no design nests deeper than four.
_DEEPEST_SECOND_WALK = 6


def lint_programs(design: Design, placement: Placement, findings: Findings, exports: Exports | None) -> None:
    """Check every core's program; `exports` maps object files to the entries they define, where that is known."""
    names = _Names(design, placement)
    for core in design.cores:
        _Program(core, names, findings, exports).check()
    _idle(design, findings)
    _link_access(design, findings)


class _Names:
    """What a program may name, by name."""

    def __init__(self, design: Design, placement: Placement) -> None:
        self.placement = placement
        self.linked = {name for link, _ in sound_links(design) for name in (*link.ins, *link.outs)}
        self.fifos: dict[str, Fifo] = {fifo.name: fifo for fifo in design.fifos}
        self.kernels: dict[str, Kernel] = {kernel.name: kernel for kernel in design.kernels}
        self.buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in design.buffers}
        self.locks: dict[str, Lock] = {lock.name: lock for lock in design.locks}


class _Program:
    """Walks one program, in order, with what it holds of each FIFO."""

    def __init__(self, core: Core, names: _Names, findings: Findings, exports: Exports | None) -> None:
        self.core = core
        self.names = names
        self.findings = findings
        self.exports = exports
        self.acquired: dict[int, Acquire] = {}
        self.held: dict[tuple[str, str], int] = {}
        self.released: Counter[tuple[str, str]] = Counter()
        self.released_before: dict[int, int] = {}
        self.given: dict[str, list[bool]] = {}
        self.used: set[str] = set()
        self.reported: set[tuple[str, str]] = set()

    def check(self) -> None:
        for statement in statements(self.core.body):
            if isinstance(statement, Acquire):
                self.acquired[statement.number] = statement
                self._acquire(statement)
            elif isinstance(statement, Release):
                self._at_end(statement.fifo, statement.port)
            elif isinstance(statement, Call):
                self._call(statement)
            elif isinstance(statement, Load):
                self._local(statement.buffer, self.names.buffers.get(statement.buffer), "buffer")
            elif isinstance(statement, UseLock):
                self._local(statement.lock, self.names.locks.get(statement.lock), "lock")
        self._holds(self.core.body, 0)

    def _add(self, rule: str, what: str, *, limit: object = None, value: object = None, where: str = "") -> None:
        key = (rule, f"{where}{what}{value}")
        if key not in self.reported:
            self.reported.add(key)
            place = f"{self.core.tile} {where}".rstrip()
            self.findings.add(rule, place, what, limit=None if limit is None else str(limit), value=_plain(value))

    def _at_end(self, name: str, port: str) -> Fifo | None:
        """Return the FIFO if the core sits at that end of it."""
        fifo = self.names.fifos.get(name)
        if fifo is None:
            self._add("symbol", "the FIFO", limit="a FIFO of the design", value=f"@{name}")
            return None
        ends: tuple[Tile, ...] = (fifo.producer,) if port == PRODUCE else fifo.consumers
        if self.core.tile not in ends:
            here = ", ".join(map(str, ends)) or "no tile"
            self._add("core-fifo", f"tile of the {port} end", limit=here, value=self.core.tile, where=f"FIFO @{name}")
            return None
        return fifo

    def _acquire(self, acquire: Acquire) -> None:
        fifo = self._at_end(acquire.fifo, acquire.port)
        if fifo is None:
            return
        # The lowering makes as many objects as the largest acquire needs, unless the module's word stands: a depth for
        # each end, or memory that both ends share.
        tile = shared_tile(fifo, fifo.name in self.names.linked) or self.core.tile
        pool = self.names.placement.pool_of(fifo.name, tile)
        objects = 0 if pool is None else pool.count
        if not 1 <= acquire.count <= objects:
            self._add(
                "acquire-depth",
                "objects acquired",
                limit=f"1 to the {objects} there are",
                value=acquire.count,
                where=f"FIFO @{fifo.name}",
            )

    def _local(self, name: str, thing: Buffer | Lock | None, kind: str) -> None:
        if thing is None:
            self._add("symbol", f"the {kind}", limit=f"a {kind} of the design", value=f"@{name}")
        elif thing.tile != self.core.tile:
            self._add("symbol", f"tile of {kind} @{name}", limit=self.core.tile, value=thing.tile)

    def _call(self, call: Call) -> None:
        where = f"call of @{call.kernel}"
        kernel = self.names.kernels.get(call.kernel)
        if kernel is None:
            self._add("kernel-unknown", "declaration", limit="a func.func", value="none", where=where)
            return
        objects = kernel.link_with or self.core.link_with
        if not objects:
            self._add("kernel-object", "link_with", limit="an object file", value="none", where=where)
        elif self.exports is not None and objects in self.exports and kernel.name not in self.exports[objects]:
            known = ", ".join(sorted(self.exports[objects])) or "none"
            self._add("kernel-entry", f"entries of {objects}", limit=f"@{kernel.name}", value=known, where=where)
        if len(call.arguments) != len(kernel.parameters):
            self._add(
                "kernel-arguments", "arguments", limit=len(kernel.parameters), value=len(call.arguments), where=where
            )
            return
        for position, (argument, parameter) in enumerate(zip(call.arguments, kernel.parameters, strict=True)):
            found = self._type_of(argument, where)
            if found is None:
                continue
            if isinstance(parameter, MemRef) != isinstance(found, MemRef) or (
                isinstance(parameter, MemRef) and parameter != found
            ):
                self._add("kernel-type", f"type of argument {position}", limit=parameter, value=str(found), where=where)
        self._c_tile(kernel, where)

    def _type_of(self, argument: object, where: str) -> MemRef | str | None:
        """Return an argument's type, `a number` for scalars, or None when another finding names the fault."""
        if isinstance(argument, ObjectRef):
            acquire = self.acquired.get(argument.acquire)
            if acquire is None or not 0 <= argument.index < acquire.count:
                bound = "an acquired one" if acquire is None else f"0 to {acquire.count - 1}"
                self._add("object-index", "object", limit=bound, value=argument.index, where=where)
                return None
            self.used.add(acquire.fifo)
            fifo = self.names.fifos.get(acquire.fifo)
            return None if fifo is None else fifo.object_type
        if isinstance(argument, BufferRef):
            buffer = self.names.buffers.get(argument.name)
            self._local(argument.name, buffer, "buffer")
            return None if buffer is None else buffer.type
        return "a number"

    def _c_tile(self, kernel: Kernel, where: str) -> None:
        """Check the shapes of a matmul's 2-D tiles: A is m x k, B is k x n (or packed), C is m x n, in blocks of 8."""
        shapes = [p.shape if isinstance(p, MemRef) else () for p in kernel.parameters]
        if not kernel.name.startswith("matmul") or len(shapes) < 3 or len(shapes[0]) != 2 or len(shapes[2]) != 2:
            return
        (m, k), (rows, n) = shapes[0], shapes[2]
        fits = rows == m and (len(shapes[1]) != 2 or shapes[1] == (k, n))
        if not fits or any(side % MMUL for side in (m, k, n)):
            found = " x ".join(str(p) for p in kernel.parameters[:3])
            self._add("c-tile", "tiles", limit="A m x k, B k x n, C m x n, multiples of 8", value=found, where=where)

    def _holds(self, body: tuple[Statement, ...], depth: int) -> None:
        """Follow what the core holds; a loop that changes it is walked twice, so that one turn meets the next."""
        for statement in body:
            if isinstance(statement, Acquire):
                key = statement.fifo, statement.port
                self.held[key] = max(self.held.get(key, 0), statement.count)
                self.released_before[statement.number] = self.released[key]
                if statement.port == PRODUCE:
                    given = self.given.setdefault(statement.fifo, [])
                    given += [False] * (statement.count - len(given))
            elif isinstance(statement, Call):
                self._use(statement)
            elif isinstance(statement, Release):
                key = statement.fifo, statement.port
                self.released[key] += max(0, statement.count)
                held = self.held.get(key, 0)
                if statement.count < 1 or statement.count > held:
                    self._add(
                        "release-held",
                        "objects released",
                        limit=f"1 to the {held} it holds",
                        value=statement.count,
                        where=f"FIFO @{statement.fifo}",
                    )
                self.held[key] = max(0, held - statement.count)
                if statement.port == PRODUCE and held >= statement.count:
                    self._unwritten(statement)
            elif isinstance(statement, Loop):
                before = dict(self.held), dict(self.released)
                self._holds(statement.body, depth + 1)
                if (self.held, dict(self.released)) != before and depth < _DEEPEST_SECOND_WALK:
                    self._holds(statement.body, depth + 1)

    def _use(self, call: Call) -> None:
        """Check that a call's objects are still held: each release gives back the oldest."""
        for argument in call.arguments:
            if not isinstance(argument, ObjectRef) or argument.acquire not in self.released_before:
                continue
            acquire = self.acquired[argument.acquire]
            since = self.released[acquire.fifo, acquire.port] - self.released_before[argument.acquire]
            given = self.given.get(acquire.fifo, []) if acquire.port == PRODUCE else []
            if 0 <= argument.index - since < len(given):
                given[argument.index - since] = True
            if argument.index < since:
                self._add(
                    "object-released",
                    f"object {argument.index} of @{acquire.fifo}",
                    limit="one that it holds",
                    value="released before the call",
                    where=f"call of @{call.kernel}",
                )

    def _unwritten(self, release: Release) -> None:
        """Check that a kernel was given each object which a core releases, of a FIFO of which one is given any.

        A core that calls no kernel for a FIFO only keeps it going: nothing is meant to be in its objects.
        """
        if release.fifo not in self.used:
            return
        given = self.given.get(release.fifo, [])
        blank = given[: release.count].count(False)
        del given[: release.count]
        if blank:
            self._add(
                "object-unwritten",
                "objects released that a kernel was given",
                limit=release.count,
                value=release.count - blank,
                where=f"FIFO @{release.fifo}",
            )


def _plain(value: object) -> int | str | None:
    return value if isinstance(value, int) or value is None else str(value)


def _idle(design: Design, findings: Findings) -> None:
    """Report FIFO ends on compute tiles that no program moves."""
    acquired: dict[Tile, set[tuple[str, str]]] = {}
    for core in design.cores:
        keys = acquired.setdefault(core.tile, set())
        keys.update((s.fifo, s.port) for s in statements(core.body) if isinstance(s, Acquire))
    on_link = {(name, tile) for link, tile in sound_links(design) for name in (*link.ins, *link.outs)}
    for fifo in design.fifos:
        for port, tiles in ((PRODUCE, (fifo.producer,)), (CONSUME, fifo.consumers)):
            for tile in tiles:
                if tile.kind != "core" or (fifo.name, tile) in on_link:
                    continue
                if (fifo.name, port) not in acquired.get(tile, set()):
                    found = "no acquire" if tile in acquired else "no core"
                    where = f"FIFO @{fifo.name}"
                    findings.add("fifo-idle", where, f"its {port}r {tile}", limit="a core that uses it", value=found)


def _link_access(design: Design, findings: Findings) -> None:
    for link, tile in sound_links(design):
        for core in design.cores:
            used = {s.fifo for s in statements(core.body) if isinstance(s, Acquire | Release) and core.tile == tile}
            for name in sorted(used.intersection((*link.ins, *link.outs))):
                what = "who moves a linked FIFO's objects"
                findings.add("link-access", f"{tile} FIFO @{name}", what, limit="the DMA", value="the core")

"""What a design takes of the array: tiles, memory, DMA channels, buffer descriptors and locks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from elfkiln.design.fifo_lowering import INTO, OUT, Placement, Stored, counted_ports, place
from elfkiln.design.model import Design, Tile
from elfkiln.hardware.limits import Limit, limit
from elfkiln.lint.finding import Findings

_DEVICE = re.compile(r"npu2(?:_([1-8])col)?")


@dataclass(frozen=True, slots=True)
class TileBudget:
    """What one tile with memory has taken: bytes of the stack and of buffers, channels, descriptors and locks."""

    tile: Tile
    stack: int
    stored: tuple[Stored, ...]
    memory: int
    s2mm: int
    mm2s: int
    descriptors: int
    locks: int

    @property
    def used(self) -> int:
        """Bytes up to the end of the last buffer: stack, then buffers, each at a multiple of the tile's alignment."""
        line = limit("buffer", self.tile.kind).value
        top = self.stack
        for stored in sorted(self.stored, key=lambda one: -one.bytes_each):
            if stored.count > 0 and stored.bytes_each > 0:
                top = _up(top, line) + (stored.count - 1) * _up(stored.bytes_each, line) + stored.bytes_each
        return top

    @property
    def free(self) -> int:
        """Bytes left for the kernel's own data (negative: over)."""
        return self.memory - self.used


def columns_of(device: str) -> int | None:
    """Return the columns of a device of the npu2 family, or None for any other.

    >>> columns_of("npu2"), columns_of("npu2_4col"), columns_of("npu1")
    (8, 4, None)
    """
    match = _DEVICE.fullmatch(device)
    if match is None:
        return None
    return int(match[1]) if match[1] else limit("columns").value


def budgets(design: Design, placement: Placement | None = None) -> tuple[TileBudget, ...]:
    """Return the budget of every core and mem tile a design uses, by column and row (none if a tile does not exist)."""
    if any(not 0 <= tile.row < limit("rows").value for tile in used_tiles(design)):
        return ()
    placed = place(design) if placement is None else placement
    stacks = {core.tile: core.stack_size for core in design.cores}
    locks = Counter(tile for tile, _ in placed.locks)
    rows = []
    for tile in sorted(used_tiles(design) | {tile for tile, _ in placed.stored}):
        if tile.kind == "shim":
            continue
        ends = placed.ends_on(tile)
        rows.append(
            TileBudget(
                tile,
                stacks.get(tile, 0),
                placed.stored_on(tile),
                limit("memory", tile.kind).value,
                sum(end.direction == INTO for end in ends),
                sum(end.direction == OUT for end in ends),
                sum(end.descriptors for end in ends),
                locks[tile],
            )
        )
    return tuple(rows)


def used_tiles(design: Design) -> set[Tile]:
    """Return every tile a design declares or names."""
    tiles = set(design.tiles)
    for fifo in design.fifos:
        tiles.update((fifo.producer, *fifo.consumers))
    tiles.update(core.tile for core in design.cores)
    tiles.update(buffer.tile for buffer in design.buffers)
    tiles.update(lock.tile for lock in design.locks)
    return tiles


def lint_array(design: Design, placement: Placement, findings: Findings) -> None:
    """Check what is placed on the tiles."""
    _cores(design, findings)
    schemes = dict(design.schemes)
    for budget in budgets(design, placement):
        _memory(budget, schemes.get(budget.tile, ""), findings)
        _addresses(budget, findings)
        if budget.tile.kind == "core":
            _alignment(budget, findings)
    _spills(placement, findings)
    _counters(design, placement, findings)
    _stacks(design, findings)
    _channels(placement, findings)
    _locks(design, placement, findings)
    _one_column(design, findings)


def lint_tiles(design: Design, findings: Findings) -> bool:
    """Check that device and tiles exist; return whether the tiles do, for no other rule means anything before."""
    columns = columns_of(design.device)
    if columns is None:
        found = design.device
        findings.add("device", f"device {design.name}", "device", limit="npu2 or npu2_1col to npu2_7col", value=found)
        columns = limit("columns").value
    before = len(findings.found)
    for tile in sorted(used_tiles(design)):
        where = f"tile({tile.col},{tile.row})"
        if not 0 <= tile.col < columns:
            findings.add("tile-range", where, "column", limit=f"0 to {columns - 1}", value=tile.col)
        if not 0 <= tile.row < limit("rows").value:
            findings.add("tile-range", where, "row", limit=f"0 to {limit('rows').value - 1}", value=tile.row)
    return len(findings.found) == before


def _cores(design: Design, findings: Findings) -> None:
    for tile, count in Counter(core.tile for core in design.cores).items():
        if count > 1:
            findings.add("core-per-tile", str(tile), "cores", limit=1, value=count)
        if tile.kind != "core":
            findings.add(
                "core-per-tile", str(tile), "tile of a core", limit="a compute tile", value=f"a {tile.kind} tile"
            )


def _memory(budget: TileBudget, scheme: str, findings: Findings) -> None:
    tile = budget.tile
    name = "l1-memory" if tile.kind == "core" else "mem-tile-memory"
    if budget.used > budget.memory:
        findings.add(
            name,
            str(tile),
            "bytes of stack and buffers" if tile.kind == "core" else "bytes of buffers",
            limit=limit("memory", tile.kind),
            value=budget.used,
            note=_parts(budget),
        )
        return
    if scheme == "basic-sequential":
        return
    bank = limit("bank", tile.kind)
    misfit = _bank_misfit(budget, bank)
    if misfit is not None:
        findings.add(
            "memory-bank", str(tile), f"bytes left in a bank for @{misfit.owner}", limit=bank, value=misfit.bytes_each
        )
    elif budget.stack > bank.value and any(stored.bytes for stored in budget.stored):
        findings.add("stack-bank", str(tile), "stack_size", limit=bank, value=budget.stack)


def _parts(budget: TileBudget) -> str:
    lost = budget.used - budget.stack - sum(stored.bytes for stored in budget.stored)
    parts = [f"stack {budget.stack:,}"] if budget.tile.kind == "core" else []
    parts += [f"@{stored.owner} {stored.count} x {stored.bytes_each:,}" for stored in budget.stored]
    line = limit("buffer", budget.tile.kind)
    parts += [f"{lost:,} between them, as each begins at a multiple of {line.value} ({line.source})"] if lost else []
    return " + ".join(parts)


def _up(value: int, line: int) -> int:
    return -(-value // line) * line


def _bank_misfit(budget: TileBudget, bank: Limit) -> Stored | None:
    """Return the first buffer that does not fit as the bank-aware allocator places them, or None.

    It takes the largest first and goes round the banks. Of the stack it knows only that bank 0 is shorter by it: of a
    longer one the banks above begin inside it.
    """
    line = limit("buffer", budget.tile.kind).value
    tops = [0] * (budget.memory // bank.value)
    tops[0] = budget.stack
    turn = 0
    for stored in sorted(budget.stored, key=lambda one: -one.bytes_each):
        for _ in range(stored.count if stored.bytes_each else 0):
            order = ((turn + i) % len(tops) for i in range(len(tops)))
            choice = next((b for b in order if _up(tops[b], line) + stored.bytes_each <= bank.value), None)
            if choice is None:
                return stored
            tops[choice] = _up(tops[choice], line) + stored.bytes_each
            turn = (choice + 1) % len(tops)
    return None


def _addresses(budget: TileBudget, findings: Findings) -> None:
    """Check the addresses that the module asks for: whole lines between the stack and the memory's end, apart."""
    line = limit("buffer", budget.tile.kind)
    fixed = [stored for stored in budget.stored if stored.address is not None]
    fixed.sort(key=lambda one: one.address or 0)
    end = budget.stack
    for stored in fixed:
        assert stored.address is not None
        where = f"{budget.tile} buffer @{stored.owner}"
        if stored.address % line.value:
            bound = f"a multiple of {line.value}"
            findings.add("buffer-address", where, "address", limit=bound, value=stored.address)
        if not end <= stored.address <= budget.memory - stored.bytes:
            bound = f"{end:,} to {budget.memory - stored.bytes:,}, what is free of {budget.memory:,} bytes"
            findings.add("buffer-address", where, "address", limit=bound, value=stored.address)
        end = max(end, stored.address + stored.bytes)


def _spills(placement: Placement, findings: Findings) -> None:
    """Say which objects lie in a neighbour's memory, and count the ends that have to reach them there."""
    few = limit("adjacent-channels", "mem")
    for pool in placement.pools:
        away = {str(place): count for place, count in pool.places if place != pool.tile}
        if away:
            found = f"{sum(away.values())} of {pool.count} objects in {', '.join(away)}"
            findings.add("mem-tile-spill", f"FIFO @{pool.owner}", "memory", limit=str(pool.tile), value=found)
    crossing = Counter((end.tile, end.direction) for end in placement.ends if end.pool.crosses)
    for (tile, direction), count in sorted(crossing.items()):
        if count > few.value:
            what = f"{direction.upper()} ends with objects in a neighbour's memory"
            findings.add("dma-channels", str(tile), what, limit=few, value=count)


def _counters(design: Design, placement: Placement, findings: Findings) -> None:
    """Warn where the counters of the dynamic lowering do not fit any more: it adds them unless a core says no."""
    rows = {budget.tile: budget for budget in budgets(design, placement)}
    line = limit("buffer", "core").value
    for core in design.cores:
        budget = rows.get(core.tile)
        ports = counted_ports(core)
        if core.dynamic is None and ports and budget is not None and 0 <= budget.free < _up(4 * ports, line):
            findings.add(
                "dynamic-counters",
                str(core.tile),
                "bytes left for the counters of its FIFOs",
                limit=f"{4 * ports} at a multiple of {line}",
                value=budget.free,
            )


def _alignment(budget: TileBudget, findings: Findings) -> None:
    """Warn of sizes that push a later buffer of vectors off its 64-byte line (small buffers stand last and may)."""
    line = limit("alignment")
    largest_first = sorted(budget.stored, key=lambda one: -one.bytes_each)
    below: list[tuple[str, int]] = [("the stack", budget.stack)]
    below += [(f"@{one.owner}", one.bytes_each) for one in largest_first for _ in range(min(one.count, 2))]
    last = max((i for i, (_, size) in enumerate(below) if i and size >= line.value), default=0)
    seen = set()
    for owner, size in below[:last]:
        if size % line.value and owner not in seen:
            seen.add(owner)
            findings.add(
                "alignment", str(budget.tile), f"bytes of {owner}", limit=f"a multiple of {line.value}", value=size
            )


def _stacks(design: Design, findings: Findings) -> None:
    memory = limit("memory", "core")
    for core in design.cores:
        if not 0 < core.stack_size <= memory.value:
            findings.add(
                "stack-size", str(core.tile), "stack_size", limit=f"1 to {memory.value:,} bytes", value=core.stack_size
            )


def _channels(placement: Placement, findings: Findings) -> None:
    for tile in sorted({end.tile for end in placement.ends}):
        ends = placement.ends_on(tile)
        for direction in (INTO, OUT):
            names = [end.fifo for end in ends if end.direction == direction]
            bound = limit(direction, tile.kind)
            if len(names) > bound.value:
                findings.add(
                    "dma-channels",
                    str(tile),
                    f"{direction.upper()} channels",
                    limit=bound,
                    value=len(names),
                    note=_names(names),
                )
        total = sum(end.descriptors for end in ends)
        bound = limit("descriptors", tile.kind)
        if total > bound.value:
            findings.add("descriptors", str(tile), "buffer descriptors", limit=bound, value=total)
        elif tile.kind == "mem":
            half = limit("descriptors-of-parity", "mem")
            for parity, word in enumerate(("even", "odd")):
                share = [end for end in ends if end.channel % 2 == parity]
                count = sum(end.descriptors for end in share)
                if count > half.value:
                    findings.add(
                        "descriptors",
                        str(tile),
                        f"buffer descriptors of {word} channels",
                        limit=half,
                        value=count,
                        note=_names(end.fifo for end in share),
                    )


def _names(fifos: Iterable[str]) -> str:
    return "they are " + ", ".join(f"@{name}" for name in fifos)


def _locks(design: Design, placement: Placement, findings: Findings) -> None:
    top = limit("lock-value")
    for lock in design.locks:
        if not 0 <= lock.init <= top.value:
            findings.add("lock-value", f"lock @{lock.name}", "initial value", limit=top, value=lock.init)
    for pool in placement.pools:
        most = max(pool.locks, default=0)
        if most > top.value:
            what = f"objects to count on {pool.tile}"
            findings.add("lock-value", f"FIFO @{pool.owner}", what, limit=top, value=most)
    for tile, count in sorted(Counter(tile for tile, _ in placement.locks).items()):
        bound = limit("locks", tile.kind)
        if count > bound.value:
            findings.add("locks", str(tile), "locks", limit=bound, value=count)
    _lock_ids(design, findings)


def _lock_ids(design: Design, findings: Findings) -> None:
    """Check the locks that the module numbers itself: each its own, and one that the tile has."""
    numbered = [lock for lock in design.locks if lock.number is not None]
    counts = Counter((lock.tile, lock.number) for lock in numbered)
    for lock in numbered:
        assert lock.number is not None
        most = limit("locks", lock.tile.kind).value - 1
        where = f"lock @{lock.name} of {lock.tile}"
        if not 0 <= lock.number <= most:
            findings.add("lock-id", where, "lock_id", limit=f"0 to {most}", value=lock.number)
        elif counts[lock.tile, lock.number] > 1:
            findings.add(
                "lock-id", where, f"locks of lock_id {lock.number}", limit=1, value=counts[lock.tile, lock.number]
            )


def _one_column(design: Design, findings: Findings) -> None:
    columns = {tile.col for tile in used_tiles(design)}
    at_shim = sum("shim" in (fifo.producer.kind, *(c.kind for c in fifo.consumers)) for fifo in design.fifos)
    if len(columns) == 1 and at_shim > 2:
        findings.add("one-column", f"column {columns.pop()}", "columns", limit="2 or more", value=1)

"""What differs between two ELFs that should be equal: by section, and by the symbol whose bytes they are.

For any ELF that pyelftools reads; what a target knows better (the streams of a full ELF) it says itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from elfkiln.errors import brief

_MOST_SYMBOLS = 4


@dataclass(frozen=True, slots=True)
class VolatileField:
    """Bytes of an ELF that may differ between two builds of one recipe, and why: one row of a target's table.

    `section` is a section's name, `start` and `size` the bytes' place in it.
    """

    section: str
    start: int
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class SectionDifference:
    """One section that differs: how many bytes (a change of size counts whole), the first, and whose they are."""

    section: str
    count: int
    first: int
    symbols: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The difference on one line."""
        of = f" of {', '.join(self.symbols[:_MOST_SYMBOLS])}" if self.symbols else ""
        more = f" and {len(self.symbols) - _MOST_SYMBOLS} more" if len(self.symbols) > _MOST_SYMBOLS else ""
        return f"section {self.section}: {self.count:,} bytes differ, the first at {self.first:#x}{of}{more}"


def differing_sections(was: bytes, now: bytes) -> tuple[SectionDifference, ...] | None:
    """Return the sections that differ between two ELFs, None where one of them is not an ELF that can be read.

    Bytes of no section (headers, padding) stand under `(headers)`; equal files give nothing.
    """
    ours, theirs = _read(was), _read(now)
    if ours is None or theirs is None:
        return None
    found = []
    for name in dict.fromkeys((*ours.sections, *theirs.sections)):
        one, other = ours.sections.get(name), theirs.sections.get(name)
        places = tuple(differing_places(one or b"", other or b""))
        if places:
            symbols = dict.fromkeys((*ours.owners(name, places), *theirs.owners(name, places)))
            found.append(SectionDifference(name, len(places), places[0], tuple(symbols)))
    if not found and was != now:
        places = tuple(differing_places(was, now))
        found.append(SectionDifference("(headers)", len(places), places[0]))
    return tuple(found)


def describe(was: bytes, now: bytes) -> tuple[str, ...]:
    """Return the difference of two files line by line: by section where both are ELFs, else by byte."""
    sections = differing_sections(was, now)
    if sections is not None:
        return tuple(one.line for one in sections)
    places = list(differing_places(was, now))
    if not places:
        return ()
    at = places[0]
    around = slice(max(0, at - 8), at + 24)
    return (f"{len(places):,} bytes differ, the first at {at:#x}: was {brief(was[around])}, is {brief(now[around])}",)


def only_volatile(was: bytes, now: bytes, table: tuple[VolatileField, ...]) -> tuple[VolatileField, ...] | None:
    """Return the rows of a table that two ELFs differ in, None where they differ in anything else too."""
    if was == now:
        return ()
    ours, theirs = _read(was), _read(now)
    if not table or ours is None or theirs is None or ours.sections.keys() != theirs.sections.keys():
        return None
    used = []
    masked = [bytearray(was), bytearray(now)]
    for row in table:
        for data, elf in zip(masked, (ours, theirs), strict=True):
            offset = elf.offsets.get(row.section)
            if offset is None or row.start + row.size > len(elf.sections[row.section]):
                return None
            data[offset + row.start : offset + row.start + row.size] = bytes(row.size)
        place = slice(row.start, row.start + row.size)
        if ours.sections[row.section][place] != theirs.sections[row.section][place]:
            used.append(row)
    return tuple(used) if masked[0] == masked[1] else None


def differing_places(was: bytes, now: bytes) -> Iterator[int]:
    """Yield the offsets of all bytes that differ; what one of two has more of differs whole."""
    if was == now:
        return
    common = min(len(was), len(now))
    yield from (at for at in range(common) if was[at] != now[at])
    yield from range(common, max(len(was), len(now)))


@dataclass(frozen=True, slots=True)
class _Elf:
    sections: Mapping[str, bytes]
    offsets: Mapping[str, int]
    symbols: tuple[tuple[str, int, int, str], ...]
    """(section, start in it, size, name)."""

    def owners(self, section: str, places: tuple[int, ...]) -> Iterator[str]:
        for name, start, size, symbol in self.symbols:
            if name == section and any(start <= place < start + size for place in places):
                yield symbol


def _read(data: bytes) -> _Elf | None:
    try:
        elf = ELFFile(BytesIO(data))
        rows = [section for section in elf.iter_sections() if section.name and section["sh_type"] != "SHT_NOBITS"]
        sections = {row.name: data[row["sh_offset"] : row["sh_offset"] + row["sh_size"]] for row in rows}
        return _Elf(sections, {row.name: row["sh_offset"] for row in rows}, tuple(_symbols(elf)))
    except Exception:
        # pyelftools tells broken files by many classes.
        return None


def _symbols(elf: Any) -> Iterator[tuple[str, int, int, str]]:
    seen = set()
    for table in elf.iter_sections():
        if isinstance(table, SymbolTableSection):
            for symbol in table.iter_symbols():
                index, size = symbol["st_shndx"], symbol["st_size"]
                if symbol.name and size and isinstance(index, int) and index < elf.num_sections():
                    section = elf.get_section(index)
                    row = (section.name, symbol["st_value"] - section["sh_addr"], size, symbol.name)
                    if row not in seen:
                        seen.add(row)
                        yield row

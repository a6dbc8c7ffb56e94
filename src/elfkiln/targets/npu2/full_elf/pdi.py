"""The PDI inside a full ELF: that it is a whole device image, and which tiles it configures.

The format is bootgen's for Versal (image header table, image header, partition header, each closed by a checksum, then
the configuration data object); the id codes are those of aiecc's BIF file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elfkiln.hardware.limits import WORD_BYTES
from elfkiln.targets.kinds import MALFORMED, TRUNCATED, bad

_BUS_WORDS = (0xDD, 0x11223344, 0x55667788, 0x99AABBCC)
_TABLE_AT, _TABLE_WORDS, _TABLE_VERSION = 4, 32, 0x00040000
_ID_CODE = 0x14CA8093
_IMAGE_WORDS, _PARTITION_WORDS = 16, 32
_MOST_HEADERS = 32
_PDI_MARK = 0x50504449
_CDO_MARK = 0x004F4443
_CDO_HEADER_WORDS = 5
_DMA_WRITE, _WRITE, _MASK_WRITE = 0x105, 0x103, 0x102
_LONG = 255
"""A command word is length << 16 | id; this length says that the next word has it (xilplmi, XPlmi_CmdSize)."""
_SMALLEST_WORDS = _TABLE_AT + 3 * _TABLE_WORDS


@dataclass(frozen=True, slots=True)
class Pdi:
    """One device image: its number, size, commands of its configuration, and the tiles those write to."""

    number: int
    size: int
    commands: int
    tiles: tuple[tuple[int, int], ...]

    @property
    def cores(self) -> tuple[tuple[int, int], ...]:
        """Columns and rows of the compute tiles it configures."""
        return tuple((column, row) for column, row in self.tiles if row > 1)


def read_pdi(number: int, data: bytes) -> Pdi:
    """Read a PDI to its end; `BadElf` naming the place when it is cut off, empty or has a wrong checksum."""
    name = f".pdi.{number}"
    if len(data) % WORD_BYTES or len(data) < _SMALLEST_WORDS * WORD_BYTES:
        raise bad(TRUNCATED, f"{name} size", expected=f"{_SMALLEST_WORDS * WORD_BYTES} bytes or more", found=len(data))
    words = struct.unpack(f"<{len(data) // WORD_BYTES}I", data)
    if words[:_TABLE_AT] != _BUS_WORDS:
        found = " ".join(f"{word:#x}" for word in words[:_TABLE_AT])
        raise bad(MALFORMED, f"{name} first words", expected=" ".join(f"{w:#x}" for w in _BUS_WORDS), found=found)
    table = words[_TABLE_AT : _TABLE_AT + _TABLE_WORDS]
    _checksum(name, "image header table", table)
    expected = {0: _TABLE_VERSION, 6: _ID_CODE, 10: _PDI_MARK}
    for index, value in expected.items():
        if table[index] != value:
            raise bad(MALFORMED, f"{name} table word {index}", expected=f"{value:#x}", found=f"{table[index]:#x}")
    for index in range(min(table[1], _MOST_HEADERS)):
        at = table[2] + index * _IMAGE_WORDS
        _checksum(name, f"image header {index}", words[at : at + _IMAGE_WORDS])
    commands, tiles = 0, set()
    end = 0
    for index in range(min(table[3], _MOST_HEADERS)):
        at = table[4] + index * _PARTITION_WORDS
        partition = words[at : at + _PARTITION_WORDS]
        _checksum(name, f"partition header {index}", partition)
        size, start = partition[2], partition[8]
        if start < at + _PARTITION_WORDS or start + size > len(words):
            raise bad(TRUNCATED, f"{name} partition {index}", expected=f"words up to {len(words)}", found=start + size)
        count, touched = _configuration(f"{name} partition {index}", words[start : start + size])
        commands += count
        tiles |= touched
        end = max(end, start + size)
    if not commands or not tiles:
        raise bad(MALFORMED, f"{name} configuration", expected="commands for tiles", found=f"{commands} commands")
    if end != len(words):
        raise bad(MALFORMED, f"{name} size", expected=end * WORD_BYTES, found=len(data))
    return Pdi(number, len(data), commands, tuple(sorted(tiles)))


def _checksum(name: str, what: str, words: tuple[int, ...]) -> None:
    """Check that the last word is the complement of the sum of those before it."""
    wanted = ~sum(words[:-1]) & 0xFFFFFFFF if words else 0
    if not words or words[-1] != wanted:
        found = f"{words[-1]:#x}" if words else "nothing"
        raise bad(MALFORMED, f"{name} checksum of the {what}", expected=f"{wanted:#x}", found=found)


def _configuration(name: str, words: tuple[int, ...]) -> tuple[int, set[tuple[int, int]]]:
    """Walk a configuration data object; return its commands and the tiles (column, row) they write to."""
    header = words[:_CDO_HEADER_WORDS]
    if len(header) < _CDO_HEADER_WORDS or header[1] != _CDO_MARK:
        raise bad(MALFORMED, name, expected="a CDO", found=f"{header[1]:#x}" if len(header) > 1 else "nothing")
    _checksum(name, "CDO header", header)
    end = _CDO_HEADER_WORDS + header[3]
    if end > len(words):
        raise bad(TRUNCATED, f"{name} CDO", expected=f"at most {len(words)} words", found=end)
    if any(words[end:]):
        raise bad(MALFORMED, f"{name} padding", expected="zeros", found="other words")
    commands, tiles = 0, set()
    for _, code, body in _commands(name, words, end):
        address = address_of(code, body)
        if address is not None:
            tiles.add((address >> 25, address >> 20 & 0x1F))
        commands += 1
    return commands, tiles


def _commands(name: str, words: tuple[int, ...], end: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (its first word's place, code, words) of every command of a configuration up to word `end`."""
    at = _CDO_HEADER_WORDS
    while at < end:
        code, count, body = words[at] & 0xFFFF, words[at] >> 16 & 0xFF, at + 1
        if count == _LONG and body < end:
            count, body = words[body], body + 1
        if body + count > end:
            raise bad(TRUNCATED, f"{name} command at word {at}", expected=f"up to word {end}", found=body + count)
        yield at, code, words[body : body + count]
        at = body + count


def address_of(code: int, body: tuple[int, ...]) -> int | None:
    """Return the address a command of a configuration writes to, None for one that writes to none."""
    if code in (_WRITE, _MASK_WRITE) and body:
        return body[0]
    return body[1] if code == _DMA_WRITE and len(body) > 1 else None


def configuration_commands(data: bytes) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return (code, words) of every command of a PDI, in order; `BadElf` where `read_pdi` raises it."""
    read_pdi(0, data)
    words = struct.unpack(f"<{len(data) // WORD_BYTES}I", data)
    table = words[_TABLE_AT : _TABLE_AT + _TABLE_WORDS]
    found = []
    for index in range(min(table[3], _MOST_HEADERS)):
        partition = words[table[4] + index * _PARTITION_WORDS :][:_PARTITION_WORDS]
        body = words[partition[8] : partition[8] + partition[2]]
        found += [(code, text) for _, code, text in _commands("PDI", body, _CDO_HEADER_WORDS + body[3])]
    return tuple(found)

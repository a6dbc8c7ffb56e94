"""Reads the array configuration out of a full ELF's PDI: which buffer descriptors real aiecc wrote on which tile."""

from __future__ import annotations

import struct
from collections import defaultdict

DMA_WRITE, WRITE = 0x0105, 0x0103
CORE_BD, MEM_BD, BD_STEP = 0x1D000, 0xA0000, 0x20


def buffer_descriptors(elf: bytes) -> dict[tuple[int, int], list[list[int]]]:
    """Return the words of every buffer descriptor of cores and mem tiles, by (column, row)."""
    found = defaultdict(list)
    for command, data in commands(elf):
        if command != DMA_WRITE:
            continue
        address = data[1]
        col, row, register = address >> 25, (address >> 20) & 0x1F, address & 0xFFFFF
        base = MEM_BD if row == 1 else CORE_BD
        count = 48 if row == 1 else 16
        if row and base <= register < base + count * BD_STEP:
            found[col, row].append(list(data[2:]))
    return found


def commands(elf: bytes):
    """Yield (command, words) of the first CDO in the file: a word of length << 16 | id, 255 for a longer one."""
    start = elf.index(b"CDO\0") - 4
    words_before_commands, _, _, length, _ = struct.unpack_from("<5I", elf, start)
    at, end = start + 20, start + 20 + length * 4
    assert words_before_commands == 4
    while at < end:
        (word,) = struct.unpack_from("<I", elf, at)
        count, at = word >> 16 & 0xFF, at + 4
        if count == 255:
            (count,) = struct.unpack_from("<I", elf, at)
            at += 4
        yield word & 0xFFFF, struct.unpack_from(f"<{count}I", elf, at)
        at += 4 * count


def image(commands) -> bytes:
    """Return a PDI of one partition with these (command, words), as bootgen writes aiecc's."""
    body = []
    for command, words in commands:
        body += [len(words) << 16 | command] if len(words) < 255 else [255 << 16 | command, len(words)]
        body += words
    cdo = checked([4, 0x004F4443, 0x200, len(body)]) + body
    size = len(cdo)
    cdo += [0] * (-size % 4)
    table = [0] * 31
    for at, word in {0: 0x40000, 1: 1, 2: 0x24, 3: 1, 4: 0x34, 6: 0x14CA8093, 10: 0x50504449}.items():
        table[at] = word
    table[11], table[12], table[17] = 0x201020, 0x30, 1
    header = [0x34, 1, 0, 0, *struct.unpack("<4I", b"aie_image".ljust(16, b"\0")), 0x1C000000, *[0] * 6]
    partition = [len(cdo), size, len(cdo), 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0x54, 0x2000006, 1, *[0] * 20]
    words = [0xDD, 0x11223344, 0x55667788, 0x99AABBCC, *checked(table), *checked(header), *checked(partition), *cdo]
    return struct.pack(f"<{len(words)}I", *words)


def image_for(pdi: bytes, design) -> bytes:
    """Return a PDI that also writes a word to every tile of a design: no core programs, but the right tiles."""
    writes = [(WRITE, [tile.col << 25 | tile.row << 20, 0]) for tile in design.tiles]
    return image([*commands(pdi), *writes])


def checked(words):
    """Close words with the complement of their sum."""
    return [*words, ~sum(words) & 0xFFFFFFFF]

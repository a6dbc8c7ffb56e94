"""Reads the array configuration out of a full ELF's PDI: which buffer descriptors real aiecc wrote on which tile."""

from __future__ import annotations

import struct
from collections import defaultdict

DMA_WRITE = 0x0105
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
    """Yield (command, words) of the first CDO in the file: command word is length << 16 | id."""
    start = elf.index(b"CDO\0") - 4
    words_before_commands, _, _, length, _ = struct.unpack_from("<5I", elf, start)
    at, end = start + 20, start + 20 + length * 4
    assert words_before_commands == 4
    while at < end:
        (word,) = struct.unpack_from("<I", elf, at)
        count = word >> 16
        yield word & 0xFFFF, struct.unpack_from(f"<{count}I", elf, at + 4)
        at += 4 * (1 + count)

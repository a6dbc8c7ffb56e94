"""Puts relocatable ELF32 objects together, as Peano's would look, for tests of the object lint."""

from __future__ import annotations

import struct

EM_AIE, AIE2P = 264, 3
PROGBITS, NOBITS = 1, 8
WRITE, ALLOC, EXECUTE, THREAD = 1, 2, 4, 0x400
LOCAL, GLOBAL, WEAK = 0, 1, 2
OBJECT, FUNCTION = 1, 2
COMMON = 0xFFF2


def kernel_object(
    sections=((".text", PROGBITS, ALLOC | EXECUTE, 256),),
    symbols=(("zero_i32", GLOBAL, FUNCTION, 1, 64), ("matmul_i8_i32", GLOBAL, FUNCTION, 1, 128)),
    *,
    machine: int = EM_AIE,
    flags: int = AIE2P,
    kind: int = 1,
) -> bytes:
    """Return an object of `sections` (name, type, flags, size), numbered from 1, and `symbols`.

    A symbol is (name, binding, type, section or 0 for undefined, size).
    """
    names = ["", *(s[0] for s in sections), ".symtab", ".strtab", ".shstrtab"]
    shstrtab = b"".join(name.encode() + b"\0" for name in names)
    strtab, table = b"\0", [struct.pack("<IIIBBH", 0, 0, 0, 0, 0, 0)]
    for name, binding, symbol_type, section, size in sorted(symbols, key=lambda s: s[1] != LOCAL):
        table.append(struct.pack("<IIIBBH", len(strtab), 0, size, binding << 4 | symbol_type, 0, section))
        strtab += name.encode() + b"\0"
    file = bytearray(52)
    rows = [(0,) * 10]
    starts = {name: shstrtab.index(name.encode() + b"\0") if name else 0 for name in names}
    for name, section_type, section_flags, size in sections:
        rows.append((starts[name], section_type, section_flags, 0, len(file), size, 0, 0, 16, 0))
        file += bytes(size if section_type != NOBITS else 0)
    symtab = b"".join(table)
    local = sum(s[1] == LOCAL for s in symbols) + 1
    link = len(sections) + 2
    for name, table_type, content, extra in (
        (".symtab", 2, symtab, (link, local, 4, 16)),
        (".strtab", 3, strtab, (0, 0, 1, 0)),
        (".shstrtab", 3, shstrtab, (0, 0, 1, 0)),
    ):
        rows.append((starts[name], table_type, 0, 0, len(file), len(content), *extra))
        file += content
    at = len(file)
    for row in rows:
        file += struct.pack("<10I", *row)
    ident = b"\x7fELF" + bytes((1, 1, 1)) + bytes(9)
    file[:52] = ident + struct.pack(
        "<HHIIIIIHHHHHH", kind, machine, 1, 0, 0, at, flags, 52, 0, 0, 40, len(rows), len(rows) - 1
    )
    return bytes(file)

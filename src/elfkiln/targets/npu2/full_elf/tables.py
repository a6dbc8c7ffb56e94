"""The tables of a full ELF (names, symbols, relocations, groups, notes), rebuilt from what they must say.

aiebu derives every byte of them from the PDIs, the instruction streams and two kinds of names, so a table that differs
from its rebuilt form was changed or comes from another tool.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

from elfkiln.errors import brief
from elfkiln.targets.kinds import MALFORMED, TAMPERED, bad
from elfkiln.targets.npu2.full_elf.sections import Container, Section
from elfkiln.targets.npu2.full_elf.stream import Relocation, Stream

WEAK_FUNCTION, WEAK_OBJECT, GLOBAL_OBJECT = 0x22, 0x21, 0x11
COMDAT = 1
DT_RELA, DT_RELASZ = 7, 8
NOTE_OWNER = b"XRT\0"
PARTITION_NOTE, UID_NOTE = 6, 4

UID_ALL = "MD5(.pdi + .ctrltext)"
UID_STREAMS = "MD5(.ctrltext)"
"""Schemes of the UID note: aiebu's, over every loaded section, and that of the engine's own assembler."""

_KERNEL = re.compile(rb"_Z([1-9][0-9]*)([A-Za-z_][A-Za-z0-9_]*)\Z")
_ARGUMENT = b"Pc"


@dataclass(frozen=True, slots=True)
class Names:
    """The names a file exports: kernels with their number of arguments, and each kernel's instances."""

    kernels: tuple[tuple[str, int], ...]
    instances: tuple[tuple[str, ...], ...]


def read_names(container: Container) -> Names:
    """Read kernels and instances from .strtab, and check .shstrtab, .strtab and .symtab byte for byte."""
    sections = container.sections
    shstrtab = b"".join(section.name.encode() + b"\0" for section in sections)
    _same(container.section(".shstrtab"), shstrtab)
    _name_offsets(container)
    strtab = container.section(".strtab").data
    if not strtab.startswith(b"\0") or not strtab.endswith(b"\0"):
        raise bad(MALFORMED, ".strtab", expected="strings between zero bytes", found=brief(strtab[:16].hex()))
    strings = strtab[1:-1].split(b"\0")
    wanted = sum(1 + len(block.streams) for block in container.blocks)
    if len(strings) != wanted:
        raise bad(MALFORMED, ".strtab names", expected=f"{wanted}, kernels and instances", found=len(strings))
    rest = iter(strings)
    kernels, instances = [], []
    symbols = [struct.pack("<IIIBBH", 0, 0, 0, 0, 0, 0)]
    at = 1
    for block in container.blocks:
        mangled = next(rest)
        kernels.append(demangle(mangled))
        kernel_index = len(symbols)
        symbols.append(struct.pack("<IIIBBH", at, 0, 0, WEAK_FUNCTION, 0, 0))
        at += len(mangled) + 1
        names = []
        for group in block.groups:
            name = next(rest)
            names.append(_printable(name))
            _group(group, len(symbols), _stream_of(container, group))
            symbols.append(struct.pack("<IIIBBH", at, 0, 0, WEAK_OBJECT, 0, kernel_index))
            at += len(name) + 1
        instances.append(tuple(names))
    _same(container.section(".symtab"), b"".join(symbols))
    return Names(tuple(kernels), tuple(instances))


def demangle(symbol: bytes) -> tuple[str, int]:
    """Return a kernel's name and number of arguments from its symbol: `_Z`, length, name, one `Pc` per argument.

    >>> demangle(b"_Z4mainPcPcPc")
    ('main', 3)
    """
    arguments = 0
    head = symbol
    while head.endswith(_ARGUMENT):
        head, arguments = head[: -len(_ARGUMENT)], arguments + 1
    # A name may itself end in Pc: then it needs what was taken for arguments.
    while (match := _KERNEL.fullmatch(head)) is None or int(match[1]) != len(match[2]):
        if arguments == 0:
            raise bad(MALFORMED, "kernel symbol", expected="_Z<length><name>Pc...", found=_printable(symbol))
        head, arguments = head + _ARGUMENT, arguments - 1
    return match[2].decode("ascii"), arguments


def check_relocations(container: Container, streams: tuple[tuple[Stream, ...], ...]) -> None:
    """Check .dynstr, .dynsym, .rela.dyn and .dynamic byte for byte against what the streams need patched."""
    dynstr, dynsym, rela = b"\0", [struct.pack("<IIIBBH", 0, 0, 0, 0, 0, 0)], []
    for block, group in zip(container.blocks, streams, strict=True):
        for section, stream in zip(block.streams, group, strict=True):
            known: dict[tuple[str, int], int] = {}
            for relocation in stream.relocations:
                key = relocation.name, relocation.size
                if key not in known:
                    known[key] = len(dynsym)
                    dynsym.append(
                        struct.pack("<IIIBBH", len(dynstr), 0, relocation.size, GLOBAL_OBJECT, 0, section.index)
                    )
                    dynstr += relocation.name.encode() + b"\0"
                rela.append(_rela(relocation, known[key]))
    table = b"".join(rela)
    _same(container.section(".dynstr"), dynstr)
    _same(container.section(".dynsym"), b"".join(dynsym))
    _same(container.section(".rela.dyn"), table)
    dynamic = struct.pack("<IIII", DT_RELA, container.section(".rela.dyn").index, DT_RELASZ, len(table))
    _same(container.section(".dynamic"), dynamic)


def check_partition(container: Container, columns: int) -> None:
    """Check the note that says how many columns the ELF takes."""
    _same(container.section(".note.xrt.configuration"), _note(PARTITION_NOTE, struct.pack("<I", columns)))


def check_uid(container: Container) -> tuple[str, str]:
    """Check the UID note against the bytes it stands for; return it in hex with the scheme it was made by."""
    note = container.section(".note.xrt.UID")
    found = note.data[-16:]
    _same(note, _note(UID_NOTE, found))
    streams = [section for block in container.blocks for section in block.streams]
    schemes = {UID_ALL: _md5(container.loaded), UID_STREAMS: _md5(tuple(streams))}
    for scheme, digest in schemes.items():
        if digest == found:
            return found.hex(), scheme
    known = " or ".join(f"{digest.hex()} = {scheme}" for scheme, digest in schemes.items())
    raise bad(TAMPERED, ".note.xrt.UID", expected=known, found=found.hex())


def _md5(sections: tuple[Section, ...]) -> bytes:
    digest = hashlib.md5(usedforsecurity=False)
    for section in sections:
        digest.update(section.data)
    return digest.digest()


def _note(kind: int, content: bytes) -> bytes:
    return struct.pack("<III", len(NOTE_OWNER), len(content), kind) + NOTE_OWNER + content


def _rela(relocation: Relocation, symbol: int) -> bytes:
    return struct.pack("<III", relocation.offset, symbol << 8 | relocation.type, relocation.addend)


def _stream_of(container: Container, group: Section) -> Section:
    return container.section(group.name.replace(".group.", ".ctrltext."))


def _group(group: Section, symbol: int, stream: Section) -> None:
    if group.info != symbol:
        raise bad(MALFORMED, f"section {group.name} info", expected=f"symbol {symbol}", found=group.info)
    _same(group, struct.pack("<II", COMDAT, stream.index))


def _name_offsets(container: Container) -> None:
    """Check that each section header points at its own name, not into another one."""
    table = int.from_bytes(container.data[32:36], "little")
    at = 0
    for section in container.sections:
        (found,) = struct.unpack_from("<I", container.data, table + 40 * section.index)
        if found != at:
            raise bad(MALFORMED, f"section {section.name or 0} name", expected=f"offset {at}", found=found)
        at += len(section.name) + 1


def _same(section: Section, rebuilt: bytes) -> None:
    """Compare a section with its rebuilt bytes; name the first that differs."""
    if section.data == rebuilt:
        return
    if len(section.data) != len(rebuilt):
        raise bad(TAMPERED, f"section {section.name} size", expected=len(rebuilt), found=len(section.data))
    at = next(i for i, (a, b) in enumerate(zip(section.data, rebuilt, strict=True)) if a != b)
    raise bad(
        TAMPERED,
        f"section {section.name} byte {at:#x}",
        expected=f"{rebuilt[at]:#04x}",
        found=f"{section.data[at]:#04x}",
    )


def _printable(name: bytes) -> str:
    return brief(name.decode("ascii", "backslashreplace"))

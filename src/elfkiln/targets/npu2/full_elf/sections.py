"""The outside of a full ELF: header, sections and segments, and that every byte of the file belongs to one of them.

The layout is that of aiebu's ELF writer (Xilinx/aiebu src/cpp/elf/elfwriter.cpp); reading is pyelftools'.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from io import BytesIO

from elftools.elf.elffile import ELFFile

from elfkiln.errors import brief
from elfkiln.targets.kinds import (
    INSTRUCTIONS,
    MALFORMED,
    OTHER_MACHINE,
    TAMPERED,
    TRUNCATED,
    BadElf,
    bad,
    other_kind,
    wrong_kind,
)

OSABI = 69
MACHINE = "EM_M32"
INSTRUCTION_ABI = 2
ABI_VERSIONS: dict[int, str] = {
    16: "aiebu up to 2025, and the engine's own assembler",
    32: "aiebu between the two",
    33: "aiebu of 2026",
}
"""EI_ABIVERSION of config ELFs: 1.0, 2.0 and 2.1, a nibble each (aiebu src/cpp/elf/aie_elf_constants.h)."""

SEGMENT_ALIGN = 16
_HEAD = (".shstrtab", ".strtab", ".symtab")
_DYNAMIC = (".dynstr", ".dynsym", ".rela.dyn", ".dynamic")
_TAIL = (".note.xrt.configuration", ".note.xrt.UID")
_PDI = re.compile(r"\.pdi\.([1-9][0-9]*)")
_READ, _EXECUTE = 4, 1


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its header's fields and its bytes."""

    index: int
    name: str
    type: str
    flags: int
    address: int
    offset: int
    link: int
    info: int
    align: int
    entry_size: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header."""

    type: str
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    flags: int
    align: int


@dataclass(frozen=True, slots=True)
class Block:
    """What one kernel has in the file: its PDIs, then each instance's instruction stream and group."""

    pdis: tuple[Section, ...]
    streams: tuple[Section, ...]
    groups: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Container:
    """The sections of a file whose outside is sound, by role."""

    data: bytes
    abi_version: int
    sections: tuple[Section, ...]
    blocks: tuple[Block, ...]

    def section(self, name: str) -> Section:
        """Return the section of that name (the first of several)."""
        return next(section for section in self.sections if section.name == name)

    @property
    def loaded(self) -> tuple[Section, ...]:
        """The PDIs and instruction streams, in the file's order."""
        return tuple(section for section in self.sections if section.type == "SHT_PROGBITS")


def read_container(data: bytes) -> Container:
    """Read the outside of a full ELF; anything else is a `BadElf` that says what the file is instead."""
    wrong = other_kind(data)
    if wrong is not None:
        raise wrong
    header, sections, segments = _parse(data)
    _check_header(data, header)
    blocks = _blocks(sections)
    _check_sections(sections)
    table = int(header["e_shoff"])
    if any(data[table : table + 40]):
        raise bad(MALFORMED, "section 0", expected="an empty header", found=data[table : table + 40].hex())
    _check_segments(segments, sections)
    _check_cover(data, header, sections)
    return Container(data, data[8], sections, blocks)


def read_sections(data: bytes) -> tuple[Section, ...]:
    """Return the sections of any ELF that pyelftools can read; `BadElf` otherwise."""
    return _parse(data)[1]


def _parse(data: bytes) -> tuple[dict[str, int | str], tuple[Section, ...], tuple[Segment, ...]]:
    try:
        elf = ELFFile(BytesIO(data))
        header = {key: elf.header[key] for key in elf.header if key != "e_ident"}
        rows = [(section.name, section.header) for section in elf.iter_sections()]
        segments = [segment.header for segment in elf.iter_segments()]
    except Exception as error:
        # pyelftools tells broken headers by many classes (ELFParseError, ConstructError, IndexError, ...).
        raise _unreadable(data, error) from None
    sections = []
    for index, (name, fields) in enumerate(rows):
        size = 0 if fields["sh_type"] in ("SHT_NULL", "SHT_NOBITS") else fields["sh_size"]
        end = fields["sh_offset"] + size
        if end > len(data):
            raise bad(
                TRUNCATED, f"section {index} {brief(name)}", expected=f"to end by byte {len(data)}", found=f"byte {end}"
            )
        sections.append(
            Section(
                index,
                name,
                str(fields["sh_type"]),
                fields["sh_flags"],
                fields["sh_addr"],
                fields["sh_offset"],
                fields["sh_link"],
                fields["sh_info"],
                fields["sh_addralign"],
                fields["sh_entsize"],
                data[fields["sh_offset"] : end],
            )
        )
    loads = tuple(
        Segment(
            str(fields["p_type"]),
            fields["p_offset"],
            fields["p_vaddr"],
            fields["p_paddr"],
            fields["p_filesz"],
            fields["p_memsz"],
            fields["p_flags"],
            fields["p_align"],
        )
        for fields in segments
    )
    return header, tuple(sections), loads


def _unreadable(data: bytes, error: Exception) -> BadElf:
    """Tell a file that is cut off from one whose headers are nonsense."""
    at, size, count = (int.from_bytes(data[a:b], "little") for a, b in ((32, 36), (46, 48), (48, 50)))
    end = at + size * count
    if end > len(data):
        return bad(TRUNCATED, "section header table", expected=f"to end by byte {len(data)}", found=f"byte {end}")
    return bad(MALFORMED, "ELF headers", expected="ones that can be read", found=type(error).__name__)


def _check_header(data: bytes, header: dict[str, int | str]) -> None:
    if data[7] != OSABI or header["e_machine"] != MACHINE:
        raise wrong_kind(OTHER_MACHINE, f"OSABI {data[7]}, machine {header['e_machine']}")
    if data[8] == INSTRUCTION_ABI:
        raise wrong_kind(INSTRUCTIONS, "ABI version 2")
    if data[8] not in ABI_VERSIONS:
        raise bad(MALFORMED, "ABI version", expected=" or ".join(map(str, ABI_VERSIONS)), found=data[8])
    expected = {
        "e_type": "ET_EXEC",
        "e_version": "EV_CURRENT",
        "e_entry": 0,
        "e_phoff": 52,
        "e_flags": 0,
        "e_ehsize": 52,
        "e_phentsize": 32,
        "e_shentsize": 40,
        "e_shstrndx": 1,
    }
    for field, value in expected.items():
        if header[field] != value:
            raise bad(MALFORMED, f"header {field}", expected=value, found=header[field])
    if data[6] != 1 or any(data[9:16]):
        raise bad(MALFORMED, "header e_ident", expected="version 1 and 7 zero bytes", found=data[6:16].hex(" "))


def _blocks(sections: tuple[Section, ...]) -> tuple[Block, ...]:
    """Check the section set and order, and return what belongs to each kernel."""
    names = [section.name for section in sections]
    if not any(_PDI.fullmatch(name) for name in names) and any(name.startswith(".ctrltext") for name in names):
        raise wrong_kind(INSTRUCTIONS, "no .pdi section: " + " ".join(filter(None, names)))
    rest = iter(sections[1 + len(_HEAD) :])
    blocks: list[Block] = []
    expected: list[str] = ["", *_HEAD]
    stream = 0
    current = next(rest, None)
    while current is not None and _PDI.fullmatch(current.name):
        pdis, streams, groups = [], [], []
        while current is not None and _PDI.fullmatch(current.name):
            pdis.append(current)
            expected.append(f".pdi.{len(pdis)}")
            current = next(rest, None)
        while current is not None and current.name == f".ctrltext.{stream}":
            streams.append(current)
            expected.append(current.name)
            current = next(rest, None)
            if ".dynsym" not in expected:
                expected += _DYNAMIC
                for _ in _DYNAMIC:
                    current = next(rest, None) if current is not None else None
            if current is not None:
                groups.append(current)
            expected.append(f".group.{stream}")
            current = next(rest, None)
            stream += 1
        blocks.append(Block(tuple(pdis), tuple(streams), tuple(groups)))
    expected += _TAIL
    if names != expected or any(not block.streams for block in blocks) or not blocks:
        wanted = expected if blocks and blocks[-1].streams else [*_HEAD, ".pdi.1", ".ctrltext.0", "..."]
        raise bad(
            MALFORMED,
            "sections",
            expected=" ".join(filter(None, wanted)),
            found=" ".join(filter(None, names)) or "none",
        )
    return tuple(blocks)


@dataclass(frozen=True, slots=True)
class _Form:
    """What the header of a section must say; `link` names the section it points to."""

    type: str
    align: int
    flags: int = 0
    entry_size: int = 0
    link: str = ""
    info: int = 0


_LOADED = _Form("SHT_PROGBITS", SEGMENT_ALIGN, flags=6)
_FORMS: dict[str, _Form] = {
    "": _Form("SHT_NULL", 0),
    ".shstrtab": _Form("SHT_STRTAB", 1),
    ".strtab": _Form("SHT_STRTAB", 0),
    ".symtab": _Form("SHT_SYMTAB", 4, entry_size=16, link=".strtab", info=1),
    ".dynstr": _Form("SHT_STRTAB", 0),
    ".dynsym": _Form("SHT_DYNSYM", 8, entry_size=16, link=".dynstr", info=1),
    ".rela.dyn": _Form("SHT_RELA", 8, entry_size=12, link=".dynsym"),
    ".dynamic": _Form("SHT_DYNAMIC", 8, entry_size=8, link=".dynstr"),
    ".note.xrt.configuration": _Form("SHT_NOTE", 1),
    ".note.xrt.UID": _Form("SHT_NOTE", 1),
}


def _check_sections(sections: tuple[Section, ...]) -> None:
    """Check every field of every section header but `info` of groups, which names an instance's symbol."""
    by_name = {section.name: section.index for section in sections}
    address = 0
    for section in sections:
        group = section.name.startswith(".group.")
        form = _FORMS.get(section.name, _LOADED)
        if group:
            form = _Form("SHT_GROUP", 16, entry_size=4, link=".symtab", info=section.info)
        here = 0
        if form is _LOADED:
            here = address
            address = -(-(address + len(section.data)) // SEGMENT_ALIGN) * SEGMENT_ALIGN
        fields = {
            "type": (form.type, section.type),
            "flags": (form.flags, section.flags),
            "address": (here, section.address),
            "link": (by_name[form.link] if form.link else 0, section.link),
            "info": (form.info, section.info),
            "alignment": (form.align, section.align),
            "entry size": (form.entry_size, section.entry_size),
        }
        for field, (expected, found) in fields.items():
            if expected != found:
                raise bad(MALFORMED, f"section {section.name or 0} {field}", expected=expected, found=found)
        if section.offset % max(1, form.align):
            raise bad(
                MALFORMED,
                f"section {section.name} offset",
                expected=f"a multiple of {form.align}",
                found=section.offset,
            )
        if section.name and not section.data:
            raise bad(MALFORMED, f"section {section.name}", expected="bytes", found="none")


def _check_segments(segments: tuple[Segment, ...], sections: tuple[Section, ...]) -> None:
    loaded = [section for section in sections if section.type == "SHT_PROGBITS"]
    size = 32 * (1 + len(loaded))
    expected = [Segment("PT_PHDR", 52, 0, 0, size, size, _READ, 0)]
    expected += [
        Segment("PT_LOAD", s.offset, s.address, 0, len(s.data), len(s.data), _READ | _EXECUTE, SEGMENT_ALIGN)
        for s in loaded
    ]
    if len(segments) != len(expected):
        raise bad(MALFORMED, "program headers", expected=len(expected), found=len(segments))
    for index, (want, found) in enumerate(zip(expected, segments, strict=True)):
        if want != found:
            raise bad(MALFORMED, f"program header {index}", expected=want, found=found)


def _check_cover(data: bytes, header: dict[str, int | str], sections: tuple[Section, ...]) -> None:
    """Check that header tables and sections cover the file with nothing but short runs of zeros between them."""
    table = int(header["e_shoff"])
    parts = [(0, 52, "the header"), (52, 52 + 32 * int(header["e_phnum"]), "the program headers")]
    parts += [(section.offset, section.end, f"section {section.name}") for section in sections if section.name]
    parts.append((table, table + 40 * len(sections), "the section header table"))
    parts.sort()
    end, before = 0, "the start"
    for start, stop, name in parts:
        if start < end:
            raise bad(MALFORMED, f"place of {name}", expected=f"byte {end} or later, behind {before}", found=start)
        if start - end >= SEGMENT_ALIGN or any(data[end:start]):
            raise bad(
                TAMPERED,
                f"bytes {end} to {start} before {name}",
                expected="up to 15 zeros",
                found=data[end:start].hex(),
            )
        end, before = stop, name
    if end != len(data):
        raise bad(TAMPERED, "bytes behind the last table", expected=0, found=len(data) - end)

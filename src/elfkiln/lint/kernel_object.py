"""Kernel object lint: whether a microkernel's object file can be linked into a core and be called.

The rules are those of the per-core linker script (mlir-aie lib/Targets/AIETargetLdScript.cpp) and of the linker's
command line (aiecc links with --orphan-handling=error: a section the script does not name stops the link).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from elftools.elf.elffile import ELFFile

from elfkiln.design.fifo_lowering import statements
from elfkiln.design.model import Call, Core, Design, Tile
from elfkiln.errors import BuildFailed, brief, refusal
from elfkiln.hardware.limits import Limit, limit
from elfkiln.lint.array import budgets
from elfkiln.lint.finding import Finding
from elfkiln.lint.rules import ERROR, WARNING

LD_SCRIPT = "mlir-aie AIETargetLdScript.cpp"
ORPHANS = "mlir-aie aiecc.cpp, --orphan-handling=error"


@dataclass(frozen=True, slots=True)
class Machine:
    """What objects of a target look like: header fields, sections the link takes, symbols it can supply."""

    name: str
    bits: int
    number: int
    flags: int | None
    sections: re.Pattern[str]
    supplied: re.Pattern[str]
    exported: re.Pattern[str]
    limited: bool
    source: str


_LINKED = r"\.(text|data|rodata)(\..*)?|\.comment|\.symtab|\.strtab|\.shstrtab|\.stack_sizes"
# What a linker takes for itself, whatever its script says: relocations, groups, address-significance tables.
_OWN = r"|\.rela?\..*|\.group|\.llvm_addrsig|\.note\.GNU-stack"

_LIBRARY = "memcpy|memmove|memset"

MACHINES: tuple[Machine, ...] = (
    Machine(
        "aie2p",
        32,
        264,
        3,
        re.compile(_LINKED + _OWN),
        re.compile(_LIBRARY),
        re.compile(r"(?!)"),
        limited=True,
        source="llvm-aie BinaryFormat/ELF.h (EM_AIE, EF_AIE_AIE2P)",
    ),
    Machine(
        "x86-64",
        64,
        62,
        None,
        re.compile(_LINKED + _OWN + r"|\.note(\..*)?|\.data\.rel\.ro(\..*)?"),
        # The simulator has elfkiln_... functions, and wants a declaration of what each entry does.
        re.compile(_LIBRARY + r"|_GLOBAL_OFFSET_TABLE_|elfkiln_.*"),
        re.compile(r"elfkiln_.*"),
        limited=False,
        source="System V ABI",
    ),
)
"""The flags of AIE2P objects and the C library's part are read from sources; no Peano object was at hand."""

_GENERATIONS = {1: "AIE1", 2: "AIE2 (npu1)", 3: "AIE2P (npu2)"}
_WRITE, _ALLOC, _EXECUTE, _THREAD = 1, 2, 4, 0x400


def machine_named(name: str) -> Machine:
    """Return a machine by name; `Refused` naming the known ones otherwise.

    >>> machine_named("aie2p").number
    264
    """
    for machine in MACHINES:
        if machine.name == name:
            return machine
    raise refusal("machine", expected=" or ".join(machine.name for machine in MACHINES), found=name)


def check_object(
    data: bytes, *, entries: Collection[str], machine: str, room: int | None = None, name: str = "object"
) -> tuple[Finding, ...]:
    """Lint an object; raise `BuildFailed` with its first error, return the warnings."""
    findings = lint_object(data, entries=entries, machine=machine, room=room, name=name)
    errors = [finding for finding in findings if finding.severity == ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise BuildFailed(f"{errors[0].message}{more}")
    return findings


def lint_object(
    data: bytes, *, entries: Collection[str], machine: str, room: int | None = None, name: str = "object"
) -> tuple[Finding, ...]:
    """Return what keeps an object file from being linked into a core and called by its `entries`.

    `machine` is aie2p or x86-64; `room` is what a core's data memory has left for the object's own data, in bytes
    (`elfkiln.lint.budgets`), where that is known. Never raises for bad bytes: what cannot be read is a finding.
    """
    wanted = machine_named(machine)
    found = _Findings(name)
    try:
        elf = _read(data)
    except Exception as error:
        # pyelftools tells broken input by many classes, and none of them means anything else here.
        what = "empty" if not data else f"{len(data):,} bytes that are not a whole ELF"
        found.add("object-unreadable", "object file", "a relocatable ELF", f"{what} ({type(error).__name__})", "ELF")
        return tuple(found.rows)
    if _header(elf, wanted, found):
        _sections(elf, wanted, found)
        _symbols(elf, wanted, frozenset(entries), found)
        _sizes(elf, wanted, room, found)
    return tuple(found.rows)


def check_cores(design: Design, objects: Mapping[str, bytes], *, machine: str = "aie2p") -> tuple[Finding, ...]:
    """Lint what each core links; raise `BuildFailed` with the first error, return the warnings.

    `objects` are the bytes of the object files by the name that `link_with` says. Call it when all of a design's
    objects are there; `check_object` looks at each by itself.
    """
    findings = lint_cores(design, objects, machine=machine)
    errors = [finding for finding in findings if finding.severity == ERROR]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise BuildFailed(f"{errors[0].message}{more}")
    return findings


def lint_cores(design: Design, objects: Mapping[str, bytes], *, machine: str = "aie2p") -> tuple[Finding, ...]:
    """Return what keeps all the objects of a core from being linked into it together.

    A core links the object of each kernel it calls: their code shares its program memory, their constants and data
    what its stack and buffers leave of its data memory, and a symbol that two of them define stops the link. Cores
    with equal objects and equal room are reported once. Objects that are not there, or cannot be read, are left out:
    they are findings of `lint_object`.
    """
    wanted = machine_named(machine)
    read = {name: elf for name, data in sorted(objects.items()) if (elf := _readable(data)) is not None}
    room = {budget.tile: budget.free for budget in budgets(design)}
    alike: dict[tuple[tuple[str, ...], int | None], list[Tile]] = {}
    for core in design.cores:
        names = tuple(sorted(linked_objects(design, core).intersection(read)))
        alike.setdefault((names, room.get(core.tile)), []).append(core.tile)
    rows: list[Finding] = []
    for (names, left), tiles in alike.items():
        more = f" and {len(tiles) - 1} alike" if len(tiles) > 1 else ""
        found = _Findings(f"{min(tiles)}{more}")
        _together({name: read[name] for name in names}, wanted, left, found)
        rows += found.rows
    return tuple(rows)


def linked_objects(design: Design, core: Core) -> set[str]:
    """Return the object files a core links: its own `link_with` and those of the kernels it calls."""
    of_kernel = {kernel.name: kernel.link_with for kernel in design.kernels}
    called = {of_kernel.get(s.kernel) for s in statements(core.body) if isinstance(s, Call)}
    return {name for name in (core.link_with, *called) if name}


def _readable(data: bytes) -> _Object | None:
    try:
        return _read(data)
    except Exception:
        # As in lint_object, which tells of it.
        return None


def _together(objects: Mapping[str, _Object], wanted: Machine, room: int | None, found: _Findings) -> None:
    code = {name: _code_bytes(elf) for name, elf in objects.items()}
    own = {name: _data_bytes(elf) for name, elf in objects.items()}
    program = limit("program", "core")
    if wanted.limited and sum(code.values()) > program.value:
        found.add("object-program", "bytes of code", program, sum(code.values()), program.source, note=_shares(code))
    if wanted.limited and room is not None and sum(own.values()) > room:
        expected = f"at most {room:,}, what the core has left"
        found.add(
            "object-data", "bytes of constants and data", expected, sum(own.values()), LD_SCRIPT, note=_shares(own)
        )
    owners: dict[str, list[str]] = {}
    for name, elf in objects.items():
        for symbol in {s.name for s in elf.symbols if s.bind == "STB_GLOBAL" and s.section != "SHN_UNDEF" and s.name}:
            owners.setdefault(symbol, []).append(name)
    for symbol, names in sorted(owners.items()):
        if len(names) > 1:
            note = "the link stops at a symbol defined twice; make it static"
            found.add("object-export", f"objects that define {symbol}", 1, ", ".join(names), "ld.lld", note=note)


def _shares(sizes: Mapping[str, int]) -> str:
    return " + ".join(f"{name} {size:,}" for name, size in sizes.items() if size)


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: str
    flags: int
    size: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    bind: str
    type: str
    section: int | str
    size: int


@dataclass(frozen=True, slots=True)
class _Object:
    bits: int
    little: bool
    type: str
    machine: int | str
    flags: int
    sections: tuple[_Section, ...]
    symbols: tuple[_Symbol, ...]


class _Findings:
    """Collects findings about one object."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Finding] = []

    def add(
        self,
        rule: str,
        what: str,
        expected: object,
        found: object,
        source: str,
        *,
        severity: str = ERROR,
        note: str = "",
    ) -> None:
        bound = expected.value if isinstance(expected, Limit) else expected
        value = found if isinstance(found, int) else str(found)
        most = "at most " if isinstance(expected, Limit) else ""
        text = f"{self.name}: {what}: expected {most}{_text(bound)}, found {_text(found)}"
        text += f"; {note}" if note else ""
        row = Finding(
            rule, severity, self.name, bound if isinstance(bound, int) else str(bound), value, source, brief(text, 600)
        )
        self.rows.append(row)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _read(data: bytes) -> _Object:
    elf = ELFFile(BytesIO(data))
    sections = []
    symbols: list[_Symbol] = []
    for section in elf.iter_sections():
        head = section.header
        if head["sh_type"] != "SHT_NOBITS" and head["sh_offset"] + head["sh_size"] > len(data):
            raise EOFError(section.name)
        sections.append(_Section(section.name, str(head["sh_type"]), head["sh_flags"], head["sh_size"]))
        if head["sh_type"] == "SHT_SYMTAB":
            table: Any = section
            symbols += [
                _Symbol(s.name, s["st_info"]["bind"], s["st_info"]["type"], s["st_shndx"], s["st_size"])
                for s in table.iter_symbols()
            ]
    machine = int.from_bytes(data[18:20], "little" if elf.little_endian else "big")
    return _Object(
        elf.elfclass, elf.little_endian, str(elf["e_type"]), machine, elf["e_flags"], tuple(sections), tuple(symbols)
    )


def _header(elf: _Object, wanted: Machine, found: _Findings) -> bool:
    """Check what the file is; return whether looking further makes sense."""
    if (elf.bits, elf.machine, elf.little) != (wanted.bits, wanted.number, True):
        seen = f"{elf.bits}-bit, machine {elf.machine}"
        expected = f"{wanted.name}: {wanted.bits}-bit, machine {wanted.number}"
        found.add("object-machine", "target machine", expected, seen, wanted.source)
        return False
    if elf.type != "ET_REL":
        found.add("object-type", "ELF type", "ET_REL, a relocatable object", elf.type, "ELF")
        return False
    if wanted.flags is not None and elf.flags != wanted.flags:
        seen = _GENERATIONS.get(elf.flags, f"flags {elf.flags:#x}")
        severity = ERROR if elf.flags in _GENERATIONS else WARNING
        found.add(
            "object-machine", "core generation", _GENERATIONS[wanted.flags], seen, wanted.source, severity=severity
        )
    return True


def _sections(elf: _Object, wanted: Machine, found: _Findings) -> None:
    for section in elf.sections:
        name = section.name
        if section.type == "SHT_NULL" or (not section.size and not section.flags & _THREAD):
            continue
        if section.flags & _THREAD:
            found.add("object-thread-local", "section", "no thread_local data", name, ORPHANS)
        elif section.type == "SHT_NOBITS":
            note = "a microkernel keeps nothing between calls"
            found.add("object-bss", f"bytes of {name}", "none", section.size, LD_SCRIPT, note=note)
        elif re.fullmatch(r"\.(init_array|fini_array|preinit_array|ctors|dtors)(\..*)?", name):
            note = "a microkernel has nothing to construct; make its tables constexpr"
            found.add("object-constructors", "section", "no static constructors", name, LD_SCRIPT, note=note)
        elif re.fullmatch(r"\.(eh_frame|gcc_except_table)(\..*)?", name):
            note = "compile with -fno-exceptions and -fno-asynchronous-unwind-tables"
            found.add("object-section", "section", "no unwind tables", name, ORPHANS, note=note)
        elif not wanted.sections.fullmatch(name):
            allowed = ".text .data .rodata .comment .stack_sizes and tables"
            found.add("object-section", "section", allowed, name, ORPHANS, note="the link stops at an orphan section")


def _symbols(elf: _Object, wanted: Machine, entries: frozenset[str], found: _Findings) -> None:
    executable = {i for i, section in enumerate(elf.sections) if section.flags & _EXECUTE}
    by_name: dict[str, _Symbol] = {}
    for symbol in elf.symbols:
        if symbol.bind in ("STB_GLOBAL", "STB_WEAK") and symbol.name:
            by_name[symbol.name] = symbol
    defined = {name for name, symbol in by_name.items() if symbol.section != "SHN_UNDEF"}
    for entry in sorted(entries):
        if entry not in defined:
            close = (
                ", ".join(sorted(name for name in defined if entry in name)) or ", ".join(sorted(defined)) or "nothing"
            )
            note = 'declare it extern "C"' if any(entry in name for name in defined) else ""
            found.add("object-entry", f"entry {entry}", "a global function", f"only {close}", "ld.lld", note=note)
            continue
        symbol = by_name[entry]
        function = symbol.bind == "STB_GLOBAL" and symbol.type == "STT_FUNC" and symbol.section in executable
        if not function or not symbol.size:
            seen = f"{symbol.bind[4:].lower()} {symbol.type[4:].lower()} of {symbol.size} bytes"
            found.add("object-entry", f"entry {entry}", "a global function with code", seen, "ld.lld")
    for name, symbol in sorted(by_name.items()):
        if symbol.bind == "STB_WEAK":
            # Two weak definitions link, and so does a weak one that nothing defines.
            continue
        if symbol.section == "SHN_UNDEF":
            if not wanted.supplied.fullmatch(name):
                expected = f"none but {_LIBRARY.replace('|', ', ')}"
                found.add("object-undefined", "undefined symbol", expected, name, "ld.lld")
        elif symbol.section == "SHN_COMMON":
            found.add("object-bss", f"bytes of common symbol {name}", "none", symbol.size, LD_SCRIPT)
        elif name not in entries and not wanted.exported.fullmatch(name):
            note = "two objects that export it do not link; make it static"
            found.add("object-export", "exported symbol", "entries only", name, "ld.lld", severity=WARNING, note=note)


def _sizes(elf: _Object, wanted: Machine, room: int | None, found: _Findings) -> None:
    code = _code_bytes(elf)
    if not code:
        found.add("object-empty", "bytes of code", "1 or more", 0, "ELF")
    if wanted.limited and code > limit("program", "core").value:
        found.add("object-program", "bytes of code", limit("program", "core"), code, limit("program", "core").source)
    own = _data_bytes(elf)
    if room is not None and own > room:
        found.add(
            "object-data", "bytes of constants and data", f"at most {room:,}, what the core has left", own, LD_SCRIPT
        )


def _code_bytes(elf: _Object) -> int:
    return sum(section.size for section in elf.sections if section.flags & _EXECUTE)


def _data_bytes(elf: _Object) -> int:
    return sum(s.size for s in elf.sections if s.flags & _ALLOC and not s.flags & _EXECUTE)

"""Sim ELFs: reads and checks one, compares it with an artifact name, and runs it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection
from numpy.typing import NDArray

from elfkiln.design.gemm import Geometry
from elfkiln.design.model import ELEMENT_BYTES, MemRef
from elfkiln.design.named_gemm import Entry, name_fault
from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import MOST_ARGUMENTS
from elfkiln.errors import Differs, ElfkilnError, SimulationFailed, brief, refusal
from elfkiln.io.reading import read_bytes, reason_of
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.targets.kinds import MAX_ELF_BYTES
from elfkiln.targets.sim.note import OWNER, SCHEMA, SECTION
from elfkiln.targets.sim.private_library import PrivateLibrary
from elfkiln.targets.sim.zig_toolchain import check_host

Array: TypeAlias = NDArray[Any]

MESSAGE_BYTES = 2048
"""Room for an entry's message, which is one line."""

_HEADER_BYTES = 64
_NO_GEMM = "its note names none"
_NPU_OSABI = 0x45
_DTYPES: dict[str, type[np.generic]] = {
    "i8": np.int8,
    "ui8": np.uint8,
    "i16": np.int16,
    "ui16": np.uint16,
    "i32": np.int32,
    "ui32": np.uint32,
    "i64": np.int64,
    "f32": np.float32,
    "bf16": np.uint16,  # numpy has no such type; the bytes pass as they are
}


@dataclass(frozen=True, slots=True)
class SimEntry:
    """One sequence: the symbol of its function, its arguments' types and the GEMM it computes.

    `loads` says whether the sequence loads the array itself; one that does not needs a run of one that does before.
    `again` is the function that leaves the load out, None where there is none to leave out.
    """

    symbol: str
    sequence: str
    loads: bool
    arguments: tuple[MemRef, ...]
    geometry: Geometry | None
    again: str | None = None


@dataclass(frozen=True, slots=True)
class SimElfInfo:
    """What a sim ELF says of itself: `design` is the sha256 of the design's text, `cpu` the -mcpu it was made for."""

    design: str
    device: str
    cpu: str
    entries: tuple[SimEntry, ...]

    def entry(self, sequence: str) -> SimEntry:
        """Return the entry of a sequence; raises `Refused` naming those there are."""
        for entry in self.entries:
            if entry.sequence == sequence:
                return entry
        known = ", ".join(entry.sequence for entry in self.entries)
        raise refusal("sequence", expected=f"one of {known}", found=sequence)

    def check(self, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Raise `Differs` unless it is what the name, or the sealed geometries, say."""
        entries = [Entry(one.sequence, one.loads, one.geometry or _NO_GEMM) for one in self.entries]
        fault = name_fault(self.device, entries, name, sealed)
        if fault is not None:
            raise Differs(fault)


def read_sim_elf(source: Path | str | bytes) -> SimElfInfo:
    """Read and check a sim ELF, given as its path or its bytes.

    Raises `Differs` with one line when it is none: a stub, cut off or added to, another machine's or target's ELF, one
    that needs another library, one whose note is absent or does not name exactly the functions it exports.
    """
    if isinstance(source, bytes):
        return _Reader("sim ELF", source).info()
    path = Path(source)
    try:
        data = read_bytes(path, MAX_ELF_BYTES)
    except OSError as error:
        raise Differs(f"{path}: {reason_of(error)}") from error
    return _Reader(str(path), data).info()


class _Reader:
    """Checks one file."""

    def __init__(self, what: str, data: bytes) -> None:
        self.what = what
        self.data = data

    def differs(self, text: str) -> Differs:
        return Differs(f"{self.what}: {text}")

    def info(self) -> SimElfInfo:
        self.header()
        try:
            elf = ELFFile(BytesIO(self.data))
            self.extents(elf)
            note = self.note(elf)
            exported = self.exported(elf)
        except ElfkilnError:
            raise
        except Exception as error:
            # pyelftools tells broken input by many classes, from ELFError to struct's and its parser's own.
            raise self.differs(f"not a readable ELF ({type(error).__name__}: {brief(error)})") from error
        info = self.parse(note)
        symbols = {name for entry in info.entries for name in (entry.symbol, entry.again) if name is not None}
        if exported != symbols:
            raise self.differs(
                f"it exports {_words(exported)}, its note names {_words(symbols)}; it was not built by elfkiln"
            )
        return info

    def header(self) -> None:
        data = self.data
        if len(data) < _HEADER_BYTES:
            raise self.differs(f"{len(data)} bytes are not an ELF; it is a stub or was cut off")
        if data[:4] != b"\x7fELF":
            raise self.differs("it does not begin as an ELF does")
        machine = int.from_bytes(data[18:20], "little")
        if data[7] == _NPU_OSABI:
            raise self.differs("it is a full ELF of target npu2 (OSABI 0x45), and a sim ELF was expected")
        if data[4] != 2 or data[5] != 1 or machine != 62:
            bits = {1: "32-bit", 2: "64-bit"}.get(data[4], "odd")
            raise self.differs(f"it is a {bits} ELF of machine {machine}; a sim ELF is 64-bit x86-64 (machine 62)")
        kind = int.from_bytes(data[16:18], "little")
        if kind != 3:
            raise self.differs(f"it is an ELF of type {kind}; a sim ELF is a shared object (type 3)")

    def extents(self, elf: ELFFile) -> None:
        """Check that the file is exactly as long as its tables say."""
        table = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
        end = max(table, elf["e_phoff"] + elf["e_phnum"] * elf["e_phentsize"])
        if table > len(self.data) or not elf["e_shnum"] or not elf["e_phnum"]:
            raise self.differs(f"it was cut off: {len(self.data)} bytes, and its section table ends at {table}")
        for section in elf.iter_sections():
            if section["sh_type"] not in ("SHT_NOBITS", "SHT_NULL"):
                end = max(end, section["sh_offset"] + section["sh_size"])
        for segment in elf.iter_segments():
            end = max(end, segment["p_offset"] + segment["p_filesz"])
        if end != len(self.data):
            cut = "it was cut off" if end > len(self.data) else "something was added"
            raise self.differs(f"{cut}: {len(self.data)} bytes, and its tables say {end}")

    def note(self, elf: ELFFile) -> bytes:
        section = elf.get_section_by_name(SECTION)
        if not isinstance(section, NoteSection):
            raise self.differs(f"it has no note {SECTION}; it was not built by elfkiln")
        notes = [note for note in section.iter_notes() if note["n_name"] == OWNER]
        if len(notes) != 1:
            raise self.differs(f"its note {SECTION} is not elfkiln's")
        descriptor = notes[0]["n_descdata"]
        assert isinstance(descriptor, bytes)
        return descriptor

    def exported(self, elf: ELFFile) -> set[str]:
        """Return the functions it exports; refuse an ELF that exports data, or needs anything of another library."""
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection) and any(section.iter_tags("DT_NEEDED")):
                raise self.differs("it needs another library; a sim ELF needs none")
        table = elf.get_section_by_name(".dynsym")
        if not isinstance(table, SymbolTableSection):
            raise self.differs("it exports nothing")
        names = set()
        for symbol in list(table.iter_symbols())[1:]:
            name = symbol.name
            if symbol["st_shndx"] == "SHN_UNDEF":
                raise self.differs(f"it needs {brief(name)} of another library; a sim ELF needs none")
            if symbol["st_info"]["type"] != "STT_FUNC" or not self.executable(elf, symbol["st_value"]):
                raise self.differs(f"its symbol {brief(name)} is not a function")
            names.add(name)
        return names

    @staticmethod
    def executable(elf: ELFFile, address: int) -> bool:
        return any(
            segment["p_type"] == "PT_LOAD"
            and segment["p_flags"] & 1
            and segment["p_vaddr"] <= address < segment["p_vaddr"] + segment["p_filesz"]
            for segment in elf.iter_segments()
        )

    def parse(self, note: bytes) -> SimElfInfo:
        try:
            table = parse_strict_json(note, "note")
            if table["schema"] != SCHEMA:
                raise self.differs(f"its note has schema {brief(table['schema'])}, and {SCHEMA} was expected")
            entries = tuple(_entry(entry) for entry in table["entries"])
            info = SimElfInfo(_text(table["design"]), _text(table["device"]), _text(table["cpu"]), entries)
        except (ElfkilnError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, Differs):
                raise
            raise self.differs(f"its note cannot be read ({type(error).__name__}: {brief(error)})") from error
        if not entries:
            raise self.differs("its note names no entry")
        return info


def _words(names: set[str]) -> str:
    return brief(", ".join(sorted(names))) or "nothing"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {value!r}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, found {value!r}")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"expected a count, found {value!r}")
    return value


def _entry(table: Any) -> SimEntry:
    arguments = tuple(MemRef((_count(one["elements"]),), _element(one["element"])) for one in table["arguments"])
    found = table["geometry"]
    geometry = None
    if found is not None:
        numbers = {key: _count(found[key]) for key in ("M", "K", "N", "weight_bits", "columns", "rows")}
        geometry = Geometry(contiguous=_flag(found["contiguous"]), **numbers)
    if len(arguments) > MOST_ARGUMENTS:
        raise TypeError("an entry's fields")
    again = None if table["again"] is None else _text(table["again"])
    loads = _flag(table["loads"])
    if loads != (again is not None):
        raise TypeError("an entry that loads and one that leaves it out")
    return SimEntry(_text(table["symbol"]), _text(table["sequence"]), loads, arguments, geometry, again)


def _element(value: object) -> str:
    if value not in ELEMENT_BYTES:
        raise TypeError(f"unknown element {value!r}")
    return str(value)


class SimElf:
    """A sim ELF loaded into this process, from a private copy: its own array, which nothing else shares.

    Loading another version of the same path gives another array. Use it as a context manager, or `close` it, to give
    the memory back; what is not closed goes with the object.
    """

    def __init__(self, path: Path | str) -> None:
        """Read, check and load the ELF; raises `Differs` when it is none, `Refused` when this machine cannot run it."""
        self.path = Path(path)
        try:
            data = read_bytes(self.path, MAX_ELF_BYTES)
        except OSError as error:
            raise Differs(f"{self.path}: {reason_of(error)}") from error
        self.info = _Reader(str(self.path), data).info()
        check_host(self.info.cpu)
        self._library = PrivateLibrary(str(self.path), data)

    def __enter__(self) -> SimElf:
        """Return the ELF itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Unload the ELF; it cannot be run after that."""
        self._library.close()

    def run(
        self,
        a: Array,
        b: Array,
        c: Array | None = None,
        sequence: str = contract.INSTANCE,
        *,
        again: bool = False,
    ) -> Array:
        """Run a sequence over A, B and C and return C.

        With `again` it runs without load_pdi on an array that is loaded, as every launch but the first does on the
        device, whose firmware leaves out the load of the PDI that it loaded last: it meets the locks, buffers and
        programs as the run before left them. The first run, and one after a failure, loads all the same.

        Arrays must be C-contiguous, of the entry's element types and numbers of elements; A and C may be flat or
        M x K and M x N, B any shape. Without `c` the result is a new array, M x N for a GEMM. Raises `Refused` for an
        array that does not fit and `SimulationFailed` with the simulator's line when the run fails.
        """
        entry = self.info.entry(sequence)
        geometry = entry.geometry
        if len(entry.arguments) < MOST_ARGUMENTS:
            raise refusal(f"sequence {sequence}", expected="arguments A, B and C", found=f"{len(entry.arguments)}")
        if c is None:
            shape = (entry.arguments[2].elements,) if geometry is None else (geometry.M, geometry.N)
            c = np.empty(shape, dtype=_DTYPES[entry.arguments[2].element])
        symbol = entry.again if again and entry.again is not None else entry.symbol
        shapes = [None, None, None] if geometry is None else [(geometry.M, geometry.K), None, (geometry.M, geometry.N)]
        for name, array, argument, matrix in zip("ABC", (a, b, c), entry.arguments, shapes, strict=True):
            _check_array(f"sequence {sequence}: {name}", array, argument, matrix)
        if not c.flags.writeable:
            raise refusal(f"sequence {sequence}: C", expected="a writable array", found="a read-only one")
        self._call(symbol, a, b, c)
        return c

    def call(self, sequence: str) -> None:
        """Run a sequence that touches no argument, such as the one that only loads the array."""
        self._call(self.info.entry(sequence).symbol, None, None, None)

    def _call(self, symbol: str, a: Array | None, b: Array | None, c: Array | None) -> None:
        pointer = ctypes.c_void_p
        types = pointer, pointer, pointer, ctypes.c_char_p, ctypes.c_size_t
        function = self._library.function(symbol, ctypes.c_int, *types)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        pointers = [None if array is None else array.ctypes.data for array in (a, b, c)]
        code = function(*pointers, message, MESSAGE_BYTES)
        if code:
            text = message.value.decode("utf-8", "replace")
            raise SimulationFailed(text or f"{symbol}: failed with code {code} and no message")


def _check_array(what: str, array: Array, argument: MemRef, matrix: tuple[int, int] | None) -> None:
    dtype = np.dtype(_DTYPES[argument.element])
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        found = f"{array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise refusal(what, expected=f"an array of {dtype}", found=found)
    if array.size != argument.elements or (matrix is not None and array.ndim > 1 and array.shape != matrix):
        wanted = f"{argument.elements} elements" if matrix is None else f"{matrix[0]} x {matrix[1]} elements"
        raise refusal(what, expected=wanted, found=" x ".join(map(str, array.shape)) or "a scalar")
    if not array.flags.c_contiguous:
        raise refusal(what, expected="a C-contiguous array", found="one with other strides", remedy="copy it first")

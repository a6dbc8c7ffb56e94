"""What differs between two ELFs of one recipe: a rebuild check says which parts, not only that digests differ.

`classify_difference` says it in a word and by section. `describe_difference` goes on: to the operation of an
instruction stream and the register it writes, and to the command of the array's configuration and its tile.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from zlib import crc32

from elfkiln.hardware.limits import WORD_BYTES
from elfkiln.targets.elf_bytes import describe
from elfkiln.targets.kinds import BadElf
from elfkiln.targets.npu2.full_elf.pdi import address_of, configuration_commands
from elfkiln.targets.npu2.full_elf.sections import Section, read_sections
from elfkiln.targets.npu2.full_elf.stream import (
    HEADER_WORDS,
    LOAD_PDI,
    MASK_POLL,
    MASK_WRITE,
    OPS,
    PATCH,
    SYNC,
    WRITE,
)

IDENTICAL = "identical"
UID_ONLY = "uid-only"
INSTRUCTIONS = "instructions"
PDI = "pdi"
PDI_AND_INSTRUCTIONS = "pdi-and-instructions"
TABLES = "tables"
NOT_COMPARABLE = "not-comparable"

_UID = ".note.xrt.UID"
_MOST_SHOWN = 3
_COMMANDS = {0x102: "mask write", 0x103: "write", 0x105: "block write"}
# These follow from the instruction streams, so a change there shows here too.
_FOLLOWING = frozenset({_UID, ".dynstr", ".dynsym", ".rela.dyn", ".dynamic"})


@dataclass(frozen=True, slots=True)
class Difference:
    """How two ELFs differ: `kind` in one word, then per section the bytes that differ (size changes count whole)."""

    kind: str
    sections: tuple[tuple[str, int], ...] = ()

    @property
    def line(self) -> str:
        """The difference on one line."""
        parts = ", ".join(f"{name} {count:,} bytes" for name, count in self.sections)
        return f"{self.kind}: {parts}" if parts else self.kind


def classify_difference(a: bytes, b: bytes) -> Difference:
    """Return which sections of two ELFs differ and what that means.

    `uid-only` is the same program under another UID note, `instructions` another stream on the same array
    configuration, `pdi` another configuration (core programs, routes) under the same stream. Files that are not ELFs
    are `not-comparable`.
    """
    if a == b:
        return Difference(IDENTICAL)
    try:
        ours, theirs = (_by_name(read_sections(data)) for data in (a, b))
    except BadElf:
        return Difference(NOT_COMPARABLE)
    changed = {}
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        count = _changed(ours.get(name), theirs.get(name))
        if count:
            changed[name] = count
    return Difference(_kind(set(changed)), tuple(changed.items()))


def _by_name(sections: tuple[Section, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for section in sections:
        if section.name:
            found[section.name] = found.get(section.name, b"") + section.data
    return found


def _changed(one: bytes | None, other: bytes | None) -> int:
    one, other = one or b"", other or b""
    common = sum(x != y for x, y in zip(one, other, strict=False)) if one != other else 0
    return common + abs(len(one) - len(other))


def _kind(changed: set[str]) -> str:
    pdi = any(name.startswith(".pdi") for name in changed)
    stream = any(name.startswith(".ctrltext") for name in changed)
    rest = {name for name in changed if not name.startswith((".pdi", ".ctrltext"))}
    if pdi or stream:
        kind = PDI_AND_INSTRUCTIONS if pdi and stream else PDI if pdi else INSTRUCTIONS
        return kind if rest <= _FOLLOWING else TABLES
    return UID_ONLY if rest == {_UID} else TABLES


def describe_difference(was: bytes, now: bytes) -> tuple[str, ...]:
    """Return what differs between two full ELFs, a line each: the kind, then operations, commands, other sections.

    Of each stream and configuration the first operations that differ are shown, and how many there are. Files that are
    not full ELFs are compared byte by byte.
    """
    found = classify_difference(was, now)
    if found.kind in (IDENTICAL, NOT_COMPARABLE):
        return describe(was, now)
    ours, theirs = (_by_name(read_sections(data)) for data in (was, now))
    lines = [found.line]
    for name, _ in found.sections:
        one, other = ours.get(name, b""), theirs.get(name, b"")
        if name.startswith(".ctrltext"):
            lines += _compared(name, "operation", _operations(one), _operations(other))
        elif name.startswith(".pdi"):
            lines += _compared(name, "command", _configuration(one), _configuration(other))
    return tuple(lines)


def _compared(name: str, what: str, was: Sequence[str] | None, now: Sequence[str] | None) -> Iterator[str]:
    if was is None or now is None:
        yield f"{name}: cannot be walked in {'both' if was is now else 'one of the two'}"
        return
    pairs = zip_longest(was, now, fillvalue="none")
    differing = [(number, a, b) for number, (a, b) in enumerate(pairs) if a != b]
    for number, a, b in differing[:_MOST_SHOWN]:
        yield f"{name} {what} {number}: was {a}, is {b}"
    if len(differing) > _MOST_SHOWN:
        yield f"{name}: {len(differing) - _MOST_SHOWN} more {what}s differ, of {max(len(was), len(now))}"


def _operations(data: bytes) -> list[str] | None:
    """Return the operations of a stream in words, None where it cannot be walked."""
    words = struct.unpack(f"<{len(data) // WORD_BYTES}I", data[: len(data) // WORD_BYTES * WORD_BYTES])
    found, at = [], HEADER_WORDS
    while at < len(words):
        form = OPS.get(words[at] & 0xFF)
        if form is None or at + form.words > len(words):
            return None
        length = form.words if form.size_at is None else words[at + form.size_at] // WORD_BYTES
        if not form.words <= length <= len(words) - at:
            return None
        found.append(_operation(form.name, words[at : at + length]))
        at += length
    return found


def _operation(name: str, op: tuple[int, ...]) -> str:
    code = op[0] & 0xFF
    if code in (LOAD_PDI, SYNC):
        return f"{name} {_hex(op[:1] if code == LOAD_PDI else op[2:])}"
    if code == PATCH:
        return f"{name} of {_register(op[6])} to argument {op[8]} + {op[10]}"
    # Behind value (and mask) stands the operation's size; a block's own words go to its end.
    words = {WRITE: op[4:5], MASK_WRITE: op[4:6], MASK_POLL: op[4:6]}.get(code, op[4:])
    return f"{name} to {_register(op[2])}: {_hex(words)}"


def _configuration(data: bytes) -> list[str] | None:
    """Return the commands of a PDI in words, None where it cannot be walked."""
    try:
        commands = configuration_commands(data)
    except BadElf:
        return None
    found = []
    for code, words in commands:
        address = address_of(code, words)
        if address is None:
            found.append(f"command {code:#x} {_hex(words)}")
        else:
            rest = words[2:] if code not in (0x102, 0x103) else words[1:]
            found.append(f"{_COMMANDS[code]} to {_register(address)}: {_hex(rest)}")
    return found


def _register(address: int) -> str:
    return f"column {address >> 25} row {address >> 20 & 0x1F} register {address & 0xFFFFF:#x}"


def _hex(words: Sequence[int]) -> str:
    """Return words in hex; of many the first, how many, and a sum that tells two such rows apart."""
    if len(words) <= 8:
        return " ".join(f"{word:#x}" for word in words)
    data = struct.pack(f"<{len(words)}I", *words)
    return f"{' '.join(f'{word:#x}' for word in words[:4])} ... ({len(words)} words, crc {crc32(data):#010x})"

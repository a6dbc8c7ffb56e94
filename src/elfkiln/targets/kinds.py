"""What kind of file stands where a full ELF should: each wrong kind by its name."""

from __future__ import annotations

from elfkiln.errors import Differs, brief, mismatch_line

MAX_ELF_BYTES = 1 << 28
"""More than any ELF that could be meant: the largest seen has 0.3 MB."""

EMPTY = "empty"
STUB = "stub"
XCLBIN = "xclbin"
NOT_ELF = "not-elf"
SIM = "sim"
OTHER_MACHINE = "other-machine"
INSTRUCTIONS = "instruction-only"
TRUNCATED = "truncated"
MALFORMED = "malformed"
TAMPERED = "tampered"
WRONG_KERNEL = "wrong-kernel"
INNER_SEQUENCE = "inner-sequence"
WRONG_GEOMETRY = "wrong-geometry"
WRONG_DESIGN = "wrong-design"
FULL = "full"

MEANINGS: dict[str, str] = {
    EMPTY: "an empty file",
    STUB: "a stub: too small to hold any kernel",
    XCLBIN: "an xclbin, the container of the old flow; build a full ELF",
    NOT_ELF: "not an ELF",
    SIM: "a sim ELF of elfkiln: it runs on the host and is never loaded on an NPU",
    OTHER_MACHINE: "an ELF of another machine",
    INSTRUCTIONS: "an instruction-only ELF (aiebu-asm -t aie2txn): it has no PDI to configure the array",
    TRUNCATED: "cut off",
    MALFORMED: "not put together as aiebu puts a full ELF together",
    TAMPERED: "changed after it was made",
    WRONG_KERNEL: "exports other names than the engine opens",
    INNER_SEQUENCE: "exports a sequence that does not load the PDI; the outer one was meant (mlir-air #1978)",
    WRONG_GEOMETRY: "made for another geometry than its name says",
    WRONG_DESIGN: "made of another design",
    FULL: "a full ELF",
}

# Headers of 52, 3 x 32 and 13 x 40 bytes: no full ELF has fewer.
SMALLEST = 52 + 3 * 32 + 13 * 40

XCLBIN_MAGIC = b"xclbin2\0"
ELF_MAGIC = b"\x7fELF"
X86_64 = 62
SHARED_OBJECT = 3
SIM_MARK = b"elfkiln"
"""Every sim ELF of elfkiln has this word in its exported names or metadata."""


class BadElf(Differs):
    """A file is not the full ELF it should be; `kind` is one of this module's words (exit code 1)."""

    def __init__(self, kind: str, message: str) -> None:
        """Take the kind and the whole line."""
        super().__init__(message)
        self.kind = kind


def bad(kind: str, what: str, *, expected: object, found: object) -> BadElf:
    """Return the error for one fact about the bytes: kind first, then place, expected and found."""
    return BadElf(kind, f"{kind}: {mismatch_line(what, expected=expected, found=found)} ({MEANINGS[kind]})")


def wrong_kind(kind: str, detail: str) -> BadElf:
    """Return the error for a file of another kind."""
    return BadElf(kind, f"{kind}: expected a full ELF, found {MEANINGS[kind]} ({brief(detail)})")


def other_kind(data: bytes) -> BadElf | None:
    """Return what a file is when its first bytes say that it is not an ELF for the NPU at all, else None.

    >>> other_kind(b"").kind, other_kind(b"placeholder for full_i8_QKV_K5120_N14336, build it yourself").kind
    ('empty', 'stub')
    """
    if not data:
        return wrong_kind(EMPTY, "0 bytes")
    if data.startswith(XCLBIN_MAGIC):
        return wrong_kind(XCLBIN, f"{len(data):,} bytes")
    if not data.startswith(ELF_MAGIC):
        kind = STUB if len(data) < SMALLEST else NOT_ELF
        return wrong_kind(kind, f"{len(data):,} bytes, the first ones {data[:8].hex(' ')}")
    if len(data) < SMALLEST:
        return wrong_kind(STUB, f"{len(data):,} bytes, headers alone take {SMALLEST}")
    machine = int.from_bytes(data[18:20], "little")
    if data[4] == 2 and machine == X86_64:
        shared = int.from_bytes(data[16:18], "little") == SHARED_OBJECT
        if shared and SIM_MARK in data:
            return wrong_kind(SIM, f"x86-64 shared object, {len(data):,} bytes")
        return wrong_kind(OTHER_MACHINE, "x86-64")
    if data[4] != 1 or data[5] != 1:
        return wrong_kind(OTHER_MACHINE, f"class {data[4]}, data {data[5]}, machine {machine}")
    return None

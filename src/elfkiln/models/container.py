"""Reads the tensor table of a Q4NX container (model.q4nx): safetensors framing, the header alone, never the payload."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.file_kinds import HEAD_BYTES, disguise
from elfkiln.io.reading import open_regular, reason_of
from elfkiln.io.strict_json import parse_strict_json, shown

LENGTH_BYTES = 8
"""The file begins with the header's length, 8 bytes little-endian; then the JSON header; then the data."""
MAX_HEADER_BYTES = 8 * 1024 * 1024
"""A model of 64 layers and 256 experts under names of their own has a header of some 6 MiB; published ones have 0.2."""
METADATA_KEY = "__metadata__"
MAX_RANK = 8

# The dtypes of the safetensors format that take whole bytes.
_ELEMENT_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "F64": 8,
    "C64": 8,
}
_CHUNK_WEIGHTS = contract.CHUNK_ROWS * contract.CHUNK_COLUMNS


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of the table: offsets `begin` and `end` count bytes from the start of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return self.end - self.begin

    @property
    def chunk_kind(self) -> contract.ChunkKind | None:
        """The kind of chunk its last dimension tells, or None: plain numbers, or chunks of a size not known.

        >>> Tensor("w", "I8", (128, 5120), 0, 655360).chunk_kind.name
        'q4_1'
        """
        if self.dtype not in ("I8", "U8") or len(self.shape) < 2:
            return None
        return next((kind for kind in contract.CHUNK_KINDS if kind.chunk_bytes == self.shape[-1]), None)

    @property
    def weights(self) -> int | None:
        """How many weights it holds: 8,192 a chunk, or its elements for plain numbers; None if its chunks are unknown.

        Chunks of q4_1 may be stored in rows of a part of their 5,120 bytes, so whole chunks are counted in bytes.

        >>> Tensor("w", "I8", (576, 1280), 0, 737280).weights, Tensor("n", "BF16", (4, 3), 0, 24).weights
        (1179648, 12)
        """
        kind = self.chunk_kind
        if kind is not None and kind.chunk_bytes:
            return self.size // kind.chunk_bytes * _CHUNK_WEIGHTS
        if self.dtype not in ("I8", "U8"):
            return math.prod(self.shape)
        whole = contract.CHUNK_KINDS[0].chunk_bytes or 0
        if len(self.shape) == 2 and self.shape[-1] and whole % self.shape[-1] == 0 and self.size % whole == 0:
            return self.size // whole * _CHUNK_WEIGHTS
        return None


@dataclass(frozen=True, slots=True)
class Container:
    """A container's table, by tensor name in the header's order; `metadata` is its free text table."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    data_bytes: int


def read_container(path: Path) -> Container:
    """Read the header of a container; the payload is not touched.

    Raises `Refused` naming what does not fit: a file that is absent, no regular file or shorter than its header says,
    another kind of file in its place (a git-lfs pointer, a web page, an archive), a header over 8 MiB, bad JSON or a
    name twice, an entry of the wrong form, offsets outside the data or out of order, a size that is not shape times
    element, and tensors that overlap.
    """
    try:
        with open(open_regular(path), "rb") as stream:
            head = stream.read(HEAD_BYTES)
            length = int.from_bytes(head[:LENGTH_BYTES], "little")
            rest = os.fstat(stream.fileno()).st_size - LENGTH_BYTES
            _check_length(path.name, head, length, rest)
            stream.seek(LENGTH_BYTES)
            header = stream.read(length)
    except FileNotFoundError:
        raise Refused(f"{brief(path, 4096)}: missing") from None
    except OSError as error:
        raise Refused(f"{brief(path, 4096)}: {reason_of(error)}") from error
    if len(header) < length:
        raise refusal(path.name, expected=f"a header of {length} bytes", found=f"{len(header)} bytes")
    return parse_header(header, rest - length, path.name)


def _check_length(where: str, head: bytes, length: int, rest: int) -> None:
    """Refuse a header's length that cannot be; where the first bytes are those of another kind of file, by its name."""
    if len(head) < LENGTH_BYTES:
        refused = refusal(where, expected=f"at least {LENGTH_BYTES} bytes", found=f"{len(head)} bytes")
    elif length > rest:
        refused = refusal(f"{where}: header length", expected=f"at most the {rest} bytes left", found=length)
    elif length > MAX_HEADER_BYTES:
        refused = refusal(f"{where}: header length", expected=f"at most {MAX_HEADER_BYTES} bytes", found=length)
    else:
        return
    other = disguise(head)
    raise refused if other is None else refusal(where, expected="a container", found=other[0], remedy=other[1])


def parse_header(header: bytes, data_bytes: int, where: str) -> Container:
    """Check a header against the bytes of data that follow it; `where` stands for the file in messages."""
    table = parse_strict_json(header, f"{where}: header")
    if not isinstance(table, dict):
        raise refusal(f"{where}: header", expected="an object", found=shown(table))
    metadata = table.pop(METADATA_KEY, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise refusal(f"{where}: {METADATA_KEY}", expected="an object of strings", found="something else")
    tensors = {name: _tensor(name, entry, data_bytes, where) for name, entry in table.items()}
    if not tensors:
        raise refusal(f"{where}: header", expected="at least one tensor", found="none")
    _refuse_overlap(tensors, where)
    return Container(tensors, metadata, data_bytes)


def _tensor(name: str, entry: Any, data_bytes: int, where: str) -> Tensor:
    def refuse(what: str, *, expected: object, found: object) -> ElfkilnError:
        said = brief(found, 80) if isinstance(found, list) else shown(found)
        return refusal(f"{where}: tensor {brief(name, 80)}{what}", expected=expected, found=said)

    if not isinstance(entry, dict):
        raise refuse("", expected="an object", found=entry)
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not dtype:
        raise refuse(": dtype", expected="a string", found=dtype)
    if not _whole_numbers(shape) or len(shape) > MAX_RANK:
        raise refuse(": shape", expected=f"at most {MAX_RANK} whole numbers", found=shape)
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise refuse(": data_offsets", expected="two whole numbers, the first not larger", found=offsets)
    begin, end = offsets
    if end > data_bytes:
        raise refuse(": data_offsets", expected=f"an end within the {data_bytes} bytes of data", found=end)
    if dtype not in _ELEMENT_BYTES:
        raise refuse(": dtype", expected="one of " + ", ".join(_ELEMENT_BYTES), found=dtype)
    size = _ELEMENT_BYTES[dtype]
    if math.prod(shape) * size != end - begin:
        expected = f"{math.prod(shape) * size} bytes, as {dtype} {shape} takes"
        raise refuse(": data_offsets", expected=expected, found=end - begin)
    return Tensor(name, dtype, tuple(shape), begin, end)


def _whole_numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63 for item in value
    )


def _refuse_overlap(tensors: Mapping[str, Tensor], where: str) -> None:
    ordered = sorted((tensor for tensor in tensors.values() if tensor.size), key=lambda tensor: tensor.begin)
    for before, after in itertools.pairwise(ordered):
        if after.begin < before.end:
            raise refusal(
                f"{where}: tensor {brief(after.name, 80)}: data_offsets",
                expected=f"a begin of at least {before.end}, where {brief(before.name, 80)} ends",
                found=after.begin,
            )

"""Weight layouts byte by byte: packs, unpacks and maps offsets for rm, b8 and pb16i.

A weight matrix B is K x N int8, B[k, n]. `rm` is its rows one after another. `b8` and `pb16i` cut it into tiles of
64 (k) x 128 (n), numbered tile-n-major: tile (nt, ki) holds rows 64*ki + 0..63 of columns 128*nt + 0..127 and is
number nt*(K/64) + ki. The K tiles of one column of tiles are then one run of memory, which one linear DMA task moves.

b8, 8192 bytes a tile (engine's b8 layout pull request, `I8Ctx::bpos`): the 8 x 8 blocks of a tile row by row, each
row by row, byte = kb*1024 + nb*64 + kr*8 + nc for the element at row 8*kb + kr, column 8*nb + nc of the tile.

pb16i, 2048 bytes a tile. No public source states its bytes: what follows is this project's definition, and this
module is the one place that has it. A weight w in {-1, 0, +1} is the 2-bit code w + 1; code 3 is invalid. A tile is
32 groups of 64 bytes, in the order [n32 0..3][kb 0..7]. A group holds the four 8 x 8 blocks of columns
32*n32 + 8*q + 0..7, q = 0..3, of rows 8*kb + 0..7: bits 2q and 2q+1 of byte r*8 + c are the code of the element at
row 8*kb + r, column 32*n32 + 8*q + c. Why so:

- The core multiplies 8 x 8 blocks, and its vector register holds 64 bytes. One aligned load brings four blocks that
  lie in one block row, so all four meet the same block of A.
- The four codes of a byte belong to the same place of four blocks, so a block comes out in order, with no shuffle:
  masked with 3 << 2q, less 1 << 2q and clamped to -1..1 it is the int8 block. That is 2 vector operations for q = 0
  and 4 for the others, 3.5 on average, without the shifts that AIE2P emulates on bytes and without a table.
  The same bytes serve a cheaper expansion that this project's microkernel does not use: masked alone, as uint8, block
  q is 4^q * (w + 1), 1 operation, and the sums are scaled back once per tile of C, less the sums of the rows of A.
  That is headroom for prefill; decode is bound by the DMA, not by the expansion (docs/families.md has the counts).
- k blocks lie side by side within 32 columns, so the loop over k steps by 64 bytes.
- A tile is a quarter of a b8 tile and the order of tiles is that of b8, so the same tasks move it.

Per-column scales stay with the host, as in b8.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elfkiln.engine import contract
from elfkiln.engine.contract import TILE_K, TILE_N
from elfkiln.errors import Refused, refusal
from elfkiln.hardware.limits import I32_LIMIT

Int8Array: TypeAlias = NDArray[np.int8]
ByteArray: TypeAlias = NDArray[np.int8] | NDArray[np.uint8]
Index: TypeAlias = "int | NDArray[np.int64]"

BLOCK = 8
CODES_A_BYTE = 4
CODE_BITS = 2
BYTE_BITS = 8
INVALID_CODE = 3
K_BLOCKS = TILE_K // BLOCK
N_BLOCKS = TILE_N // BLOCK
N_GROUPS = N_BLOCKS // CODES_A_BYTE
ALIGNMENT = 64
"""Bytes that every object on a core is aligned to."""

_BLOCK_STEPS = {
    "b8": (N_BLOCKS * BLOCK**2, BLOCK**2),
    "pb16i": (BLOCK**2, K_BLOCKS * BLOCK**2),
}
"""By tiled layout: bytes from a block (pb16i: a group of four) of a tile to the next along K and along N."""

DEFINED = ("rm", *_BLOCK_STEPS)
"""The layouts whose bytes are defined; the others have a name and a row in contract.WEIGHT_LAYOUTS, no more."""

# Eight codes side by side in a 64-bit word: a row of a block.
_ALL_CODES = np.uint64(0x0303030303030303)
_LOW_BITS = np.uint8(0x55)


class TileOrder(enum.Enum):
    """The order of the tiles: the engine's containers are nt-major; ki-major shipped once, by mistake."""

    NT_MAJOR = "nt-major"
    KI_MAJOR = "ki-major"


class Offset(NamedTuple):
    """Where an element lies: its byte, and the lowest bit of its code within that byte (0 but for pb16i)."""

    byte: Index
    bit: Index


def packed_bytes(K: int, N: int, layout: str) -> int:
    """Return the bytes of a packed K x N weight matrix; raises `Refused` as `pack` does.

    >>> packed_bytes(17408, 5120, "b8"), packed_bytes(17408, 5120, "pb16i")
    (89128960, 22282240)
    """
    _check_sizes(K, N, layout)
    return K * N * contract.weight_layout(layout).weight_bits // BYTE_BITS


def pack(matrix: Int8Array, layout: str, order: TileOrder = TileOrder.NT_MAJOR) -> ByteArray:
    """Return the bytes of a K x N int8 weight matrix in a layout: one dimension, int8 for rm and b8, uint8 for pb16i.

    They begin at a multiple of 64 bytes, as a buffer of the device's driver does, so that a simulated core may read
    them where they are. Raises `Refused` for a layout without defined bytes, an order that is not a `TileOrder`,
    another dtype or number of dimensions, K or N that are not in whole tiles (64, 128), and, for pb16i, a weight
    outside {-1, 0, +1}, with its position.

    >>> pack(np.full((64, 128), -1, np.int8), "pb16i")[:3]
    array([0, 0, 0], dtype=uint8)
    """
    if not isinstance(matrix, np.ndarray) or matrix.dtype != np.int8 or matrix.ndim != 2:
        raise refusal("weight matrix", expected="a K x N array of int8", found=_kind(matrix))
    K, N = matrix.shape
    _check_sizes(K, N, layout)
    _check_order(order)
    matrix = np.ascontiguousarray(matrix)
    if layout == "rm":
        return _aligned_copy(matrix).reshape(-1)
    if layout == "pb16i":
        return _pack_pb16i(matrix, order)
    # Rows of blocks are 8 bytes, so the blocks are moved as 64-bit words.
    rows = matrix.view(np.uint64).reshape(K // TILE_K, K_BLOCKS, BLOCK, N // TILE_N, N_BLOCKS)
    return _ordered(rows.transpose(3, 0, 1, 4, 2), order).view(np.int8)


def unpack(
    buffer: bytes | bytearray | memoryview | ByteArray,
    K: int,
    N: int,
    layout: str,
    order: TileOrder = TileOrder.NT_MAJOR,
) -> Int8Array:
    """Return the K x N int8 weight matrix that a packed buffer holds: the inverse of `pack`.

    Raises `Refused` for sizes, layouts and orders as `pack` does, a buffer of another length or kind, and, for pb16i,
    a code 3, with its position.
    """
    size = packed_bytes(K, N, layout)
    _check_order(order)
    data = _as_bytes(buffer)
    if data.size != size:
        raise refusal(f"{layout} weights of {K}x{N}", expected=f"{size} bytes", found=f"{data.size} bytes")
    if layout == "rm":
        return data.view(np.int8).reshape(K, N).copy()
    if layout == "pb16i":
        return _unpack_pb16i(data, K, N, order)
    words = _tiles(data.view(np.uint64), (K_BLOCKS, N_BLOCKS, BLOCK), K, N, order)
    return np.ascontiguousarray(words.transpose(1, 2, 4, 0, 3)).view(np.int8).reshape(K, N)


def offset(k: Index, n: Index, K: int, N: int, layout: str, order: TileOrder = TileOrder.NT_MAJOR) -> Offset:
    """Return where element B[k, n] of a packed K x N matrix lies; `k` and `n` may be arrays that broadcast.

    The whole map of a K x N matrix is `offset(np.arange(K)[:, None], np.arange(N), K, N, layout)`, which takes no more
    memory than its result. Raises `Refused` as `packed_bytes` does, for an order that is not a `TileOrder`, for indices
    that do not broadcast, and for an index that is not a whole number or outside the matrix.

    >>> offset(65, 129, 128, 256, "b8"), offset(65, 137, 128, 256, "pb16i")
    (Offset(byte=24585, bit=0), Offset(byte=6153, bit=2))
    """
    _check_sizes(K, N, layout)
    _check_order(order)
    row, column = _indices("k", k, K), _indices("n", n, N)
    try:
        shape = np.broadcast_shapes(row.shape, column.shape)
    except ValueError:
        found = f"{row.shape} and {column.shape}"
        raise refusal("indices k and n", expected="shapes that broadcast", found=found) from None
    # In every layout the byte is a sum of one term in k and one in n, and the bit depends on n alone.
    byte = np.asarray(_each(row, K, lambda k: _byte_of_k(k, N, layout, order)))
    of_n = _each(column, N, lambda n: _byte_of_n(n, K, layout, order))
    if byte.shape == shape:
        byte += of_n
    else:
        byte = np.asarray(byte + of_n)
    if not shape:
        return Offset(int(byte), int(_bit_of_n(column, layout)))
    if layout == "pb16i":
        bit = np.broadcast_to(_each(column, N, lambda n: _bit_of_n(n, layout)), shape).copy()
    else:
        bit = np.zeros(shape, np.int64)
    return Offset(byte, bit)


def _each(
    index: NDArray[np.int64], end: int, of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return a function of indices below `end`: by a table of it where there are more indices than that."""
    return of(np.arange(end))[index] if index.size > end else of(index)


def _byte_of_k(k: NDArray[np.int64], N: int, layout: str, order: TileOrder) -> NDArray[np.int64]:
    """Return the part of an element's byte that its row gives."""
    if layout == "rm":
        return k * N
    tiles = 1 if order is TileOrder.NT_MAJOR else N // TILE_N
    tile = packed_bytes(TILE_K, TILE_N, layout) * tiles
    return k // TILE_K * tile + k % TILE_K // BLOCK * _BLOCK_STEPS[layout][0] + k % BLOCK * BLOCK


def _byte_of_n(n: NDArray[np.int64], K: int, layout: str, order: TileOrder) -> NDArray[np.int64]:
    """Return the part of an element's byte that its column gives."""
    if layout == "rm":
        return n
    tiles = K // TILE_K if order is TileOrder.NT_MAJOR else 1
    tile = packed_bytes(TILE_K, TILE_N, layout) * tiles
    together = BYTE_BITS // contract.weight_layout(layout).weight_bits
    return n // TILE_N * tile + n % TILE_N // BLOCK // together * _BLOCK_STEPS[layout][1] + n % BLOCK


def _bit_of_n(n: NDArray[np.int64], layout: str) -> NDArray[np.int64]:
    """Return the lowest bit of an element's code within its byte, which its column gives."""
    bits = contract.weight_layout(layout).weight_bits
    return n // BLOCK % (BYTE_BITS // bits) * bits


def _indices(name: str, index: Index, end: int) -> NDArray[np.int64]:
    what = f"index {name} of an element"
    try:
        numbers = np.asarray(index)
    except ValueError:
        # Lists of unequal lengths.
        raise refusal(what, expected="whole numbers", found=_kind(index)) from None
    if numbers.dtype.kind not in "iu" and numbers.size:
        raise refusal(what, expected="whole numbers", found=_kind(numbers))
    if numbers.size and (numbers.min() < 0 or numbers.max() >= end):
        raise refusal(what, expected=f"0..{end - 1}", found=index)
    return numbers.astype(np.int64, copy=False)


def _pack_pb16i(matrix: Int8Array, order: TileOrder) -> NDArray[np.uint8]:
    K, N = matrix.shape
    codes = matrix.view(np.uint8) + np.uint8(1)  # wraps: -1 becomes 0
    if int(codes.max()) >= INVALID_CODE:
        k, n = np.unravel_index(int(np.argmax(codes >= INVALID_CODE)), codes.shape)
        raise refusal(f"pb16i weight at k={k}, n={n}", expected="-1, 0 or 1", found=int(matrix[k, n]))
    rows = codes.view(np.uint64).reshape(K, N // TILE_N, N_GROUPS, CODES_A_BYTE)
    # No code reaches beyond its byte: 2 << 6 is 128.
    words = rows[..., 0].copy()
    for q in range(1, CODES_A_BYTE):
        words |= rows[..., q] << np.uint64(CODE_BITS * q)
    groups = words.reshape(K // TILE_K, K_BLOCKS, BLOCK, N // TILE_N, N_GROUPS)
    return _ordered(groups.transpose(3, 0, 4, 1, 2), order).view(np.uint8)


def _unpack_pb16i(data: NDArray[np.uint8], K: int, N: int, order: TileOrder) -> Int8Array:
    threes = data & (data >> np.uint8(1)) & _LOW_BITS
    if threes.any():
        byte = int(np.argmax(threes != 0))
        bit = (int(threes[byte]) & -int(threes[byte])).bit_length() - 1
        k, n = _element_of(byte, bit, K, N, order)
        raise refusal(f"pb16i code at byte {byte}, bit {bit} (k={k}, n={n})", expected="0, 1 or 2", found=INVALID_CODE)
    words = _tiles(data.view(np.uint64), (N_GROUPS, K_BLOCKS, BLOCK), K, N, order).transpose(1, 3, 4, 0, 2)
    rows = np.empty((*words.shape, CODES_A_BYTE), np.uint64)
    for q in range(CODES_A_BYTE):
        rows[..., q] = words >> np.uint64(CODE_BITS * q) & _ALL_CODES
    codes = rows.view(np.uint8).reshape(K, N)
    codes -= np.uint8(1)  # wraps: 0 becomes -1
    return codes.view(np.int8)


def _element_of(byte: int, bit: int, K: int, N: int, order: TileOrder) -> tuple[int, int]:
    """Return the element (k, n) whose pb16i code begins at a bit of a byte."""
    tile, inside = divmod(byte, TILE_K * TILE_N // CODES_A_BYTE)
    nt, ki = divmod(tile, K // TILE_K) if order is TileOrder.NT_MAJOR else divmod(tile, N // TILE_N)[::-1]
    group, place = divmod(inside, BLOCK**2)
    n32, kb = divmod(group, K_BLOCKS)
    r, c = divmod(place, BLOCK)
    return ki * TILE_K + kb * BLOCK + r, nt * TILE_N + (n32 * CODES_A_BYTE + bit // CODE_BITS) * BLOCK + c


def _ordered(tiles: NDArray[np.uint64], order: TileOrder) -> NDArray[np.uint64]:
    """Return tiles, given as [nt][ki][...], as one run of memory in an order of tiles."""
    if order is TileOrder.KI_MAJOR:
        tiles = tiles.swapaxes(0, 1)
    return _aligned_copy(tiles).reshape(-1)


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return a C-contiguous copy that begins at a multiple of `ALIGNMENT` bytes."""
    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _tiles(
    words: NDArray[np.uint64], inside: tuple[int, int, int], K: int, N: int, order: TileOrder
) -> NDArray[np.uint64]:
    """Return a packed run of memory as [nt][ki][...]."""
    n_tiles, k_tiles = N // TILE_N, K // TILE_K
    if order is TileOrder.NT_MAJOR:
        return words.reshape(n_tiles, k_tiles, *inside)
    return words.reshape(k_tiles, n_tiles, *inside).swapaxes(0, 1)


def _as_bytes(buffer: object) -> NDArray[np.uint8]:
    """Return a buffer as one dimension of bytes, in place where that is possible."""
    if isinstance(buffer, np.ndarray) and buffer.dtype in (np.int8, np.uint8) and buffer.ndim == 1:
        return np.ascontiguousarray(buffer).view(np.uint8)
    if isinstance(buffer, bytes | bytearray) or (isinstance(buffer, memoryview) and buffer.c_contiguous):
        return np.frombuffer(buffer, np.uint8)
    raise refusal("packed weights", expected="bytes, or one dimension of int8 or uint8", found=_kind(buffer))


def _check_sizes(K: int, N: int, layout: str) -> None:
    if not isinstance(layout, str) or layout not in contract.LAYOUTS:
        raise refusal("layout", expected="one of " + ", ".join(contract.LAYOUTS), found=layout)
    if layout not in DEFINED:
        raise Refused(
            f"layout {layout}: its bytes are not defined; only {', '.join(DEFINED)} can be packed and unpacked"
        )
    for name, size, tile in (("K", K, TILE_K), ("N", N, TILE_N)):
        unit = 1 if layout == "rm" else tile
        if type(size) is not int or not 0 < size <= I32_LIMIT or size % unit:
            whole = "a positive whole number" if unit == 1 else f"a positive multiple of {unit}"
            raise refusal(f"{layout} weights: {name}", expected=f"{whole} below 2^31", found=_kind(size))


def _check_order(order: object) -> None:
    if not isinstance(order, TileOrder):
        expected = " or ".join(map(str, TileOrder))
        raise refusal("order of tiles", expected=expected, found=_kind(order))


def _kind(value: Any) -> str:
    """Return a short description of a value for a refusal; numbers of thousands of digits cannot be printed."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if type(value) is int:
        return str(value) if value.bit_length() < 64 else f"a number of {value.bit_length()} bits"
    return f"{type(value).__name__} {value!r}" if isinstance(value, float | bool | str) else type(value).__name__

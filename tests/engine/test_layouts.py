"""Layouts: bytes worked out by hand and by plain loops, bijections, round trips, and what is refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.engine.layouts import Offset, TileOrder, offset, pack, packed_bytes, unpack
from elfkiln.errors import Refused

LAYOUTS = ("rm", "b8", "pb16i")
ORDERS = (TileOrder.NT_MAJOR, TileOrder.KI_MAJOR)


def weights(K, N, layout, seed=0):
    """Return a random weight matrix that the layout can hold."""
    low, high = (-1, 2) if layout == "pb16i" else (-128, 128)
    return np.random.default_rng(seed).integers(low, high, (K, N), dtype=np.int8)


def grid(K, N):
    """Return every (k, n) of a matrix."""
    k, n = np.meshgrid(np.arange(K), np.arange(N), indexing="ij")
    return k.reshape(-1), n.reshape(-1)


def bpos(i, j, KD):
    """The engine's formula for a b8 byte, as its pull request has it, in plain Python integers."""
    return (
        ((j // 128) * (KD // 64) + i // 64) * 8192
        + ((i % 64) // 8) * 1024
        + ((j % 128) // 8) * 64
        + (i % 8) * 8
        + (j % 8)
    )


@pytest.mark.parametrize(
    ("layout", "order", "k", "n", "byte", "bit"),
    [
        # A matrix of 128 x 256: 2 x 2 tiles.
        ("rm", TileOrder.NT_MAJOR, 3, 5, 3 * 256 + 5, 0),
        ("b8", TileOrder.NT_MAJOR, 0, 0, 0, 0),
        ("b8", TileOrder.NT_MAJOR, 0, 7, 7, 0),
        ("b8", TileOrder.NT_MAJOR, 1, 0, 8, 0),
        ("b8", TileOrder.NT_MAJOR, 0, 8, 64, 0),
        ("b8", TileOrder.NT_MAJOR, 8, 0, 1024, 0),
        ("b8", TileOrder.NT_MAJOR, 63, 127, 8191, 0),
        ("b8", TileOrder.NT_MAJOR, 64, 0, 8192, 0),  # the next K tile comes next,
        ("b8", TileOrder.NT_MAJOR, 0, 128, 16384, 0),  # the next column of tiles after them
        ("b8", TileOrder.KI_MAJOR, 64, 0, 16384, 0),
        ("b8", TileOrder.KI_MAJOR, 0, 128, 8192, 0),
        ("b8", TileOrder.NT_MAJOR, 77, 200, 3 * 8192 + 1 * 1024 + 9 * 64 + 5 * 8 + 0, 0),
        ("pb16i", TileOrder.NT_MAJOR, 0, 0, 0, 0),
        ("pb16i", TileOrder.NT_MAJOR, 0, 7, 7, 0),
        ("pb16i", TileOrder.NT_MAJOR, 1, 0, 8, 0),
        ("pb16i", TileOrder.NT_MAJOR, 0, 8, 0, 2),  # the four neighbours along N share their bytes
        ("pb16i", TileOrder.NT_MAJOR, 0, 16, 0, 4),
        ("pb16i", TileOrder.NT_MAJOR, 0, 31, 7, 6),
        ("pb16i", TileOrder.NT_MAJOR, 8, 0, 64, 0),  # the next k block is the next group
        ("pb16i", TileOrder.NT_MAJOR, 0, 32, 512, 0),  # 8 groups further: the next 32 columns
        ("pb16i", TileOrder.NT_MAJOR, 63, 127, 2047, 6),
        ("pb16i", TileOrder.NT_MAJOR, 64, 0, 2048, 0),
        ("pb16i", TileOrder.NT_MAJOR, 0, 128, 4096, 0),
        ("pb16i", TileOrder.KI_MAJOR, 64, 0, 4096, 0),
        ("pb16i", TileOrder.KI_MAJOR, 0, 128, 2048, 0),
        ("pb16i", TileOrder.NT_MAJOR, 77, 200, 3 * 2048 + (2 * 8 + 1) * 64 + 5 * 8 + 0, 2),
    ],
)
def test_offsets_worked_out_by_hand(layout, order, k, n, byte, bit):
    assert offset(k, n, 128, 256, layout, order) == Offset(byte, bit)


def test_b8_is_the_formula_of_the_engine():
    K, N = 128, 256
    k, n = grid(K, N)
    ours = offset(k, n, K, N, "b8")
    assert ours.byte.tolist() == [bpos(int(i), int(j), K) for i, j in zip(k, n, strict=True)]
    assert not np.any(ours.bit)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_position_of_an_image_is_used_once(layout, order):
    """32,768 elements of 128 x 256 (2 x 2 tiles) go to 32,768 different places, and no place stays empty."""
    where = offset(*grid(128, 256), 128, 256, layout, order)
    codes_a_byte = 4 if layout == "pb16i" else 1
    assert set(np.unique(where.bit)) == ({0, 2, 4, 6} if layout == "pb16i" else {0})
    places = where.byte * codes_a_byte + where.bit // 2
    assert np.array_equal(np.sort(places), np.arange(32768))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pack_puts_every_element_where_offset_says(layout, order):
    K, N = 192, 384  # 3 x 3 tiles: a transposed order of tiles cannot pass
    matrix = weights(K, N, layout)
    packed = pack(matrix, layout, order)
    assert packed.shape == (packed_bytes(K, N, layout),)
    assert packed.dtype == (np.uint8 if layout == "pb16i" else np.int8)
    where = offset(*grid(K, N), K, N, layout, order)
    found = packed[where.byte]
    if layout == "pb16i":
        found = ((found >> where.bit.astype(np.uint8)) & 3).astype(np.int8) - 1
    assert np.array_equal(found, matrix.reshape(-1))


def test_pb16i_bytes_of_one_group_by_plain_loops():
    matrix = weights(64, 128, "pb16i", seed=3)
    want = bytearray()
    for n32 in range(4):
        for kb in range(8):
            for r in range(8):
                for c in range(8):
                    codes = [int(matrix[kb * 8 + r, n32 * 32 + q * 8 + c]) + 1 for q in range(4)]
                    want.append(codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6)
    assert pack(matrix, "pb16i").tobytes() == bytes(want)


def test_the_core_expands_a_group_with_mask_subtract_and_clamp():
    """The reason for the layout: these int8 operations, which wrap as on the core, give four blocks in order."""
    matrix = weights(64, 128, "pb16i", seed=4)
    groups = pack(matrix, "pb16i").reshape(4, 8, 64)
    for n32, kb, q in np.ndindex(4, 8, 4):
        masked = groups[n32, kb] & np.uint8(3 << 2 * q)
        block = np.clip((masked - np.uint8(1 << 2 * q)).view(np.int8), -1, 1).reshape(8, 8)
        column = n32 * 32 + q * 8
        assert np.array_equal(block, matrix[kb * 8 : kb * 8 + 8, column : column + 8])


@pytest.mark.parametrize("layout", ["b8", "pb16i"])
def test_a_tile_is_one_run_and_its_column_panel_too(layout):
    K, N = 192, 256
    tile_bytes = 8192 if layout == "b8" else 2048
    for nt, ki in np.ndindex(2, 3):
        k, n = grid(64, 128)
        byte = offset(k + 64 * ki, n + 128 * nt, K, N, layout).byte
        start = (nt * 3 + ki) * tile_bytes
        assert np.array_equal(np.unique(byte), np.arange(start, start + tile_bytes))


@pytest.mark.parametrize("layout", ["b8", "pb16i"])
def test_the_orders_of_tiles_are_told_apart_on_two_by_two_tiles(layout):
    matrix = weights(128, 256, layout)
    nt_major, ki_major = (pack(matrix, layout, order) for order in ORDERS)
    tile = nt_major.size // 4
    swapped = nt_major.reshape(2, 2, tile).swapaxes(0, 1).reshape(-1)
    assert np.array_equal(ki_major, swapped)
    assert not np.array_equal(ki_major, nt_major)
    assert not np.array_equal(unpack(ki_major, 128, 256, layout), matrix)
    assert np.array_equal(unpack(ki_major, 128, 256, layout, TileOrder.KI_MAJOR), matrix)


@settings(max_examples=40, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    order=st.sampled_from(ORDERS),
    k_tiles=st.integers(1, 5),
    n_tiles=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip(layout, order, k_tiles, n_tiles, seed):
    K, N = 64 * k_tiles, 128 * n_tiles
    matrix = weights(K, N, layout, seed)
    kept = matrix.copy()
    packed = pack(matrix, layout, order)
    assert np.array_equal(unpack(packed, K, N, layout, order), matrix)
    again = pack(unpack(packed, K, N, layout, order), layout, order)
    assert np.array_equal(again, packed)
    packed[:] = 0
    assert np.array_equal(matrix, kept)  # the caller's matrix is not what was packed into


@settings(max_examples=40, deadline=None)
@given(k=st.integers(0, 17407), n=st.integers(0, 5119), layout=st.sampled_from(["b8", "pb16i"]))
def test_offsets_at_full_size(k, n, layout):
    byte = bpos(k, n, 17408)
    if layout == "pb16i":
        tile, inside = divmod(byte, 8192)
        kb, rest = divmod(inside, 1024)
        nb, place = divmod(rest, 64)
        want = Offset(tile * 2048 + (nb // 4 * 8 + kb) * 64 + place, 2 * (nb % 4))
    else:
        want = Offset(byte, 0)
    assert offset(k, n, 17408, 5120, layout) == want


@pytest.mark.full_size
@pytest.mark.parametrize("layout", LAYOUTS)
def test_round_trip_at_full_size(layout):
    matrix = weights(17408, 5120, layout)
    packed = pack(matrix, layout)
    assert packed.nbytes == (22_282_240 if layout == "pb16i" else 89_128_960)
    assert np.array_equal(unpack(packed, 17408, 5120, layout), matrix)


def test_what_a_buffer_may_be():
    matrix = weights(64, 128, "pb16i")
    packed = pack(matrix, "pb16i")
    data = packed.tobytes()
    for buffer in (
        data,
        bytearray(data),
        memoryview(data),
        packed,
        packed.view(np.int8),
        np.stack([packed, packed], 1)[:, 0],
    ):
        assert np.array_equal(unpack(buffer, 64, 128, "pb16i"), matrix)
    odd = memoryview(b"x" + data)[1:]  # not aligned to a word
    assert np.array_equal(unpack(odd, 64, 128, "pb16i"), matrix)


def test_a_matrix_may_be_a_view():
    wide = weights(128, 512, "b8")
    for view in (wide[::2, ::4][:, :128], wide[:64, 100:228], wide.T[:128, :128].T[:64]):
        assert np.array_equal(unpack(pack(view, "b8"), 64, 128, "b8"), view)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_weights_begin_where_a_core_may_read_them(layout, order):
    made = [pack(np.zeros((64 * k, 128), np.int8), layout, order) for k in range(1, 9)]
    assert {packed.ctypes.data % 64 for packed in made} == {0}
    assert all(packed.flags.c_contiguous and packed.flags.writeable for packed in made)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpacked_weights_can_be_changed(layout):
    data = pack(np.zeros((64, 128), np.int8), layout).tobytes()
    unpack(data, 64, 128, layout)[0, 0] = 1


@pytest.mark.parametrize(("k", "n", "weight"), [(0, 0, 2), (63, 127, -2), (70, 200, 127), (127, 255, -128)])
def test_a_weight_that_is_not_ternary_is_refused_with_its_position(k, n, weight):
    matrix = weights(128, 256, "pb16i")
    matrix[k, n] = weight
    with pytest.raises(Refused) as caught:
        pack(matrix, "pb16i")
    assert str(caught.value) == f"pb16i weight at k={k}, n={n}: expected -1, 0 or 1, found {weight}"


def test_the_first_weight_that_is_not_ternary_is_named():
    matrix = weights(128, 256, "pb16i")
    matrix[90, 7] = matrix[90, 6] = matrix[100, 0] = 3
    with pytest.raises(Refused, match="k=90, n=6:"):
        pack(matrix, "pb16i")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("k", "n"), [(0, 0), (9, 31), (63, 127), (64, 8), (5, 140), (127, 255)])
def test_a_code_3_is_refused_with_its_position(k, n, order):
    packed = pack(np.zeros((128, 256), np.int8), "pb16i", order)
    byte, bit = offset(k, n, 128, 256, "pb16i", order)
    packed[byte] |= 3 << bit
    with pytest.raises(Refused) as caught:
        unpack(packed, 128, 256, "pb16i", order)
    assert str(caught.value) == (f"pb16i code at byte {byte}, bit {bit} (k={k}, n={n}): expected 0, 1 or 2, found 3")


def test_a_pair_of_codes_that_only_looks_like_3_passes():
    """Bits 1 and 2 of a byte are both set by the codes 2, 1: two valid codes side by side."""
    matrix = np.full((64, 128), -1, np.int8)
    matrix[:, :8], matrix[:, 8:16] = 1, 0
    assert np.array_equal(unpack(pack(matrix, "pb16i"), 64, 128, "pb16i"), matrix)


@pytest.mark.parametrize(
    ("matrix", "found"),
    [
        (np.zeros((64, 128), np.uint8), "uint8 of shape (64, 128)"),
        (np.zeros((64, 128)), "float64 of shape (64, 128)"),
        (np.zeros(8192, np.int8), "int8 of shape (8192,)"),
        (np.zeros((1, 64, 128), np.int8), "int8 of shape (1, 64, 128)"),
        ([[0]], "list"),
        (None, "NoneType"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_no_weight_matrix_is_refused(matrix, found, layout):
    with pytest.raises(Refused) as caught:
        pack(matrix, layout)
    assert str(caught.value) == f"weight matrix: expected a K x N array of int8, found {found}"


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ((63, 128), "b8 weights: K: expected a positive multiple of 64 below 2^31, found 63"),
        ((64, 100), "b8 weights: N: expected a positive multiple of 128 below 2^31, found 100"),
        ((0, 128), "b8 weights: K: expected a positive multiple of 64 below 2^31, found 0"),
    ],
)
def test_a_matrix_of_part_tiles_is_refused(shape, line):
    with pytest.raises(Refused) as caught:
        pack(np.zeros(shape, np.int8), "b8")
    assert str(caught.value) == line


@pytest.mark.parametrize(
    "size", [0, -64, 64.0, "64", True, None, 2**31, 64 * 10**5000], ids=lambda size: type(size).__name__
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_size_that_is_none_is_refused(size, layout):
    for ask in (lambda: packed_bytes(size, 128, layout), lambda: unpack(b"", size, 128, layout)):
        with pytest.raises(Refused, match="weights: K: expected a positive"):
            ask()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_buffer_of_another_length_is_refused(layout):
    packed = pack(weights(64, 128, layout), layout).tobytes()
    for data in (packed[:-1], packed + b"\0", b""):
        with pytest.raises(Refused) as caught:
            unpack(data, 64, 128, layout)
        assert str(caught.value) == f"{layout} weights of 64x128: expected {len(packed)} bytes, found {len(data)} bytes"


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros(2048, np.int16),
        np.zeros((64, 32), np.uint8),
        [0] * 2048,
        "0" * 2048,
        None,
        memoryview(bytes(4096))[::2],
    ],
    ids=lambda buffer: type(buffer).__name__,
)
def test_what_is_no_buffer_is_refused(buffer):
    with pytest.raises(Refused, match="packed weights: expected bytes, or one dimension of int8 or uint8, found"):
        unpack(buffer, 64, 128, "pb16i")


@pytest.mark.parametrize("layout", ["t2s", "b9", "", "B8"])
def test_a_layout_without_bytes_is_refused(layout):
    matrix = np.zeros((64, 128), np.int8)
    for ask in (
        lambda: pack(matrix, layout),
        lambda: unpack(b"", 64, 128, layout),
        lambda: offset(0, 0, 64, 128, layout),
        lambda: packed_bytes(64, 128, layout),
    ):
        with pytest.raises(Refused, match="layout"):
            ask()


@pytest.mark.parametrize(
    ("k", "n", "line"),
    [
        (64, 0, "index k of an element: expected 0..63, found 64"),
        (-1, 0, "index k of an element: expected 0..63, found -1"),
        (0, 128, "index n of an element: expected 0..127, found 128"),
        (0, 1.0, "index n of an element: expected whole numbers, found float64 of shape ()"),
        (0, 10**30, "index n of an element: expected whole numbers, found object of shape ()"),
        (np.array([0, 64]), 0, "index k of an element: expected 0..63, found [ 0 64]"),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_index_outside_the_matrix_is_refused(k, n, line, layout):
    with pytest.raises(Refused) as caught:
        offset(k, n, 64, 128, layout)
    assert str(caught.value) == line


def test_small_index_types_do_not_wrap():
    k = np.array([100], np.int8)
    n = np.array([200], np.uint8)
    assert offset(k, n, 128, 256, "b8").byte.tolist() == [bpos(100, 200, 128)]
    assert offset(k, n, 128, 256, "rm").byte.tolist() == [100 * 256 + 200]


@pytest.mark.parametrize("order", ["nt-major", "ki-major", None, 0, True, TileOrder], ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_no_order_of_tiles_is_refused(order, layout):
    matrix = weights(128, 256, layout)
    for ask in (
        lambda: pack(matrix, layout, order),
        lambda: unpack(pack(matrix, layout), 128, 256, layout, order),
        lambda: offset(0, 0, 128, 256, layout, order),
    ):
        with pytest.raises(Refused) as caught:
            ask()
        assert str(caught.value).startswith("order of tiles: expected TileOrder.NT_MAJOR or TileOrder.KI_MAJOR, found ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("k", "n", "line"),
    [
        (np.zeros(3, int), np.zeros(4, int), "indices k and n: expected shapes that broadcast, found (3,) and (4,)"),
        ([[0], [1, 2]], 0, "index k of an element: expected whole numbers, found list"),
        (0, [[0], [1, 2]], "index n of an element: expected whole numbers, found list"),
        (True, 0, "index k of an element: expected whole numbers, found bool of shape ()"),
        ("0", 0, "index k of an element: expected whole numbers, found <U1 of shape ()"),
    ],
)
def test_indices_that_do_not_go_together_are_refused(k, n, line):
    with pytest.raises(Refused) as caught:
        offset(k, n, 64, 128, "b8")
    assert str(caught.value) == line


@pytest.mark.parametrize("layout", [None, 8, ["b8"], np.array(["rm", "b8"])], ids=lambda one: type(one).__name__)
def test_a_layout_that_is_no_word_is_refused(layout):
    with pytest.raises(Refused, match="layout: expected one of rm, b8, pb16i, t2s, found"):
        packed_bytes(64, 128, layout)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_indices_of_any_shape_give_the_same_map(layout, order):
    """Whole matrices, an axis each, lists, single numbers, nothing: one map."""
    K, N = 128, 384
    k, n = np.indices((K, N))
    whole = offset(k, n, K, N, layout, order)
    axes = offset(np.arange(K)[:, None], np.arange(N), K, N, layout, order)
    assert np.array_equal(whole.byte, axes.byte)
    assert np.array_equal(whole.bit, axes.bit)
    assert whole.byte.shape == whole.bit.shape == axes.bit.shape == (K, N)
    assert offset(70, 200, K, N, layout, order) == (whole.byte[70, 200], whole.bit[70, 200])
    some = offset([70, 3], [200, 11], K, N, layout, order)
    assert some.byte.tolist() == [whole.byte[70, 200], whole.byte[3, 11]]
    assert offset(k[:0], n[:0], K, N, layout, order).byte.shape == (0, N)
    axes.bit[0, 0] = 1  # the caller's own
    assert np.array_equal(k, np.indices((K, N))[0])


def test_an_element_of_a_huge_matrix_is_found_without_a_table_of_it():
    K, N = 2**31 - 64, 2**31 - 128
    assert offset(K - 1, N - 1, K, N, "b8") == (K * N - 1, 0)
    assert offset(K - 1, N - 1, K, N, "pb16i") == (K * N // 4 - 1, 6)


@pytest.mark.full_size
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_map_of_a_full_size_matrix_takes_little_more_than_itself(layout):
    K, N = 17408, 5120
    tracemalloc.start()
    try:
        byte, bit = offset(np.arange(K)[:, None], np.arange(N), K, N, layout)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < byte.nbytes + bit.nbytes + 2**20
    # Sums over all of a bijection's values: 0 + 1 + .. + (bytes - 1), each as often as a byte holds weights.
    size = packed_bytes(K, N, layout)
    assert int(byte.sum()) == (size * (size - 1) // 2) * (K * N // size)
    assert int(bit.sum()) == (0 if size == K * N else size * (0 + 2 + 4 + 6))

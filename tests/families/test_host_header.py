"""The host header against numpy and exact arithmetic: what AIE2P does, and what it must not be asked."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from elfkiln.errors import BuildFailed, SimulationFailed
from elfkiln.families.family import KernelObject
from elfkiln.targets.sim.compiler import Compiler
from kernel_library import aligned_copy, object_of

# Parameters of the probes: p pointer, i int32.
PROBES = {
    "set_modes": "ii", "get_modes": "p", "narrow_i8": "ppi", "narrow_u8": "ppi", "narrow_i16": "ppi",
    "through_acc64": "ppii", "through_acc32": "ppii", "copy_i32": "ppii", "operate_i8": "pppi", "operate_u8": "pppi",
    "operate_wide_i8": "pppi", "operate_i16": "pppi", "operate_u16": "pppi", "operate_i32": "pppi", "down_i8": "ppi",
    "down_u8": "ppi", "down_i16": "ppi", "down_i32": "ppi", "up_i8": "ppi", "up_u8": "ppi", "multiply_ii": "ppp",
    "multiply_iu": "ppp", "multiply_ui": "ppp", "multiply_uu": "ppp", "multiply_anew": "ppp", "multiply_to_i8": "pppi",
    "multiply_lanes": "ppp", "never_set": "p", "transposed": "ppii", "zipped": "pppi", "unzipped": "pppi",
    "filled": "pi", "parts": "ppi", "unpacked": "pppp", "packed": "ppp", "masks": "p", "load_16": "pp",
    "load_32": "pp", "load_64": "pp", "load_128": "pp", "load_words": "pp", "lane": "ppi", "part_of": "ppi",
    "traced": "",
}  # fmt: skip

# The numbers AIE2P gives the modes (Peano's aie2p headers).
ROUNDING = {
    "floor": 0, "ceil": 1, "symmetric_floor": 2, "symmetric_ceil": 3, "negative_inf": 8, "positive_inf": 9,
    "symmetric_zero": 10, "symmetric_inf": 11, "conv_even": 12, "conv_odd": 13,
}  # fmt: skip
SATURATION = {"none": 0, "saturate": 1, "symmetric": 3}


@pytest.fixture(scope="module")
def library(simulator):
    kinds = {"p": "pointer", "i": "i32"}
    entries = {name: [kinds[letter] for letter in letters] for name, letters in PROBES.items()}
    return simulator.library([KernelObject("probe.o", "header_probe.cc", {})], entries)


@pytest.fixture
def probe(library):
    """The library, its registers as after a reset."""
    library.reset()
    return library


@pytest.fixture
def rng():
    return np.random.default_rng(42)


def out(count, dtype):
    return aligned_copy(np.zeros(count, dtype))


def full_range(rng, count, dtype):
    """Random values with the extremes and their neighbours in front."""
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    values[:6] = [info.min, info.min + 1, info.max, info.max - 1, 0, 1]
    return aligned_copy(values)


def rounded(value: int, shift: int, mode: str) -> int:
    """value / 2**shift as an integer, worked out with exact fractions."""
    exact = Fraction(value, 1 << shift)
    size, sign = abs(exact), -1 if exact < 0 else 1
    half = Fraction(1, 2)
    match mode:
        case "floor":
            return math.floor(exact)
        case "ceil":
            return math.ceil(exact)
        case "symmetric_floor":
            return sign * math.floor(size)
        case "symmetric_ceil":
            return sign * math.ceil(size)
        case "negative_inf":
            return math.ceil(exact - half)
        case "positive_inf":
            return math.floor(exact + half)
        case "symmetric_zero":
            return sign * math.ceil(size - half)
        case "symmetric_inf":
            return sign * math.floor(size + half)
        case "conv_even":
            return round(exact)
        case "conv_odd":
            below = math.floor(exact)
            if exact - below == half:
                return below if below % 2 else below + 1
            return round(exact)
    raise AssertionError(mode)


def fitted(value: int, dtype, mode: str) -> int:
    info = np.iinfo(dtype)
    if mode == "none":
        return (value - info.min) % (1 << info.bits) + info.min
    least = 0 if info.min == 0 else -info.max if mode == "symmetric" else info.min
    return min(max(value, least), info.max)


def near_ties(shift: int) -> np.ndarray:
    """Values whose quotients by 2**shift are whole, half and beside a half, of both signs, small and large."""
    half = (1 << shift) >> 1
    found = [
        sign * (whole * (1 << shift) + rest)
        for whole in (0, 1, 2, 3, 126, 127, 128, 255, 300)
        for rest in (0, max(half - 1, 0), half, half + 1)
        for sign in (1, -1)
    ]
    return np.array(found[:64], dtype=np.int32)


@pytest.mark.parametrize("saturation", SATURATION)
@pytest.mark.parametrize("rounding", ROUNDING)
def test_shift_round_saturate(probe, rng, rounding, saturation):
    probe.call("set_modes", ROUNDING[rounding], SATURATION[saturation])
    for name, dtype in (("narrow_i8", np.int8), ("narrow_u8", np.uint8), ("narrow_i16", np.int16)):
        for shift in (0, 1, 2, 7, 16):
            for values in (near_ties(shift), full_range(rng, 64, np.int32)):
                source, result = aligned_copy(values), out(64, dtype)
                probe.call(name, source, result, shift)
                expected = [fitted(rounded(int(x), shift, rounding), dtype, saturation) for x in values]
                assert result.tolist() == expected, (name, shift)


@pytest.mark.parametrize("rounding", ROUNDING)
def test_32_bits_shift_through_the_wide_accumulator(probe, rng, rounding):
    probe.call("set_modes", ROUNDING[rounding], SATURATION["saturate"])
    for up, down in ((0, 0), (0, 3), (5, 2), (20, 1), (31, 31)):
        values = full_range(rng, 16, np.int32)
        result = out(16, np.int32)
        probe.call("through_acc64", values, result, up, down)
        expected = [fitted(rounded(int(x) << up, down, rounding), np.int32, "saturate") for x in values]
        assert result.tolist() == expected


def test_bytes_go_up_and_down_through_acc32(probe, rng):
    values = full_range(rng, 64, np.int8)
    result = out(64, np.int8)
    probe.call("through_acc32", values, result, 6, 2)
    assert result.tolist() == [fitted(int(x) << 6 >> 2, np.int8, "none") for x in values]
    probe.call("through_acc32", values, result, 6, 6)
    assert np.array_equal(result, values)


def test_acc32_to_32_bits_is_a_copy_and_takes_no_shift(probe, rng):
    values, result = full_range(rng, 64, np.int32), out(64, np.int32)
    probe.call("set_modes", ROUNDING["ceil"], SATURATION["symmetric"])
    probe.call("copy_i32", values, result, 0, 0)
    assert np.array_equal(result, values)
    with pytest.raises(SimulationFailed, match=r"copy_i32: aie::accum::to_vector: AIE2P ignores a shift"):
        probe.call("copy_i32", values, result, 0, 1)
    with pytest.raises(SimulationFailed, match=r"aie::accum::from_vector: AIE2P ignores a shift"):
        probe.call("copy_i32", values, result, 1, 0)


def test_the_registers_keep_what_was_set(probe):
    found = out(4, np.int32)
    probe.call("get_modes", found)
    assert found.tolist() == [0, 0, 0, 0]
    probe.call("get_modes", found)
    assert found.tolist() == [ROUNDING["conv_even"], SATURATION["symmetric"]] * 2
    probe.call("set_modes", ROUNDING["symmetric_inf"], SATURATION["saturate"])
    probe.call("get_modes", found)
    assert found[:2].tolist() == [ROUNDING["symmetric_inf"], SATURATION["saturate"]]


def test_a_register_with_a_number_that_is_no_mode(probe, rng):
    probe.call("set_modes", 5, 0)
    with pytest.raises(SimulationFailed, match="no rounding mode"):
        probe.call("narrow_i8", aligned_copy(np.full(64, 6, np.int32)), out(64, np.int8), 2)
    probe.call("set_modes", 0, 2)
    with pytest.raises(SimulationFailed, match="no saturation mode"):
        probe.call("narrow_i8", full_range(rng, 64, np.int32), out(64, np.int8), 2)


@pytest.mark.parametrize(
    ("name", "dtype", "lanes"),
    [
        ("operate_i8", np.int8, 64), ("operate_u8", np.uint8, 64), ("operate_wide_i8", np.int8, 128),
        ("operate_i16", np.int16, 32), ("operate_u16", np.uint16, 8), ("operate_i32", np.int32, 16),
    ],
)  # fmt: skip
def test_lane_by_lane(probe, rng, name, dtype, lanes):
    a, b = full_range(rng, lanes, dtype), full_range(rng, lanes, dtype)
    b[6:8] = a[6:8]
    expected = [
        a + b,  # numpy's integers wrap, as the vector unit's do
        a - b,
        np.maximum(a, b),
        np.minimum(a, b),
        a & b,
        a | b,
        np.where(a < b, b, a),
        np.where(a >= b, b, a),
        np.where(a == b, b, a),
        np.where(a >= b, b, a),
    ]
    for op, want in enumerate(expected):
        result = out(lanes, dtype)
        probe.call(name, a, b, result, op)
        assert np.array_equal(result, want), op


@pytest.mark.parametrize(
    ("name", "dtype", "lanes"),
    [("down_i8", np.int8, 64), ("down_u8", np.uint8, 64), ("down_i16", np.int16, 32), ("down_i32", np.int32, 16)],
)
def test_downshift(probe, rng, name, dtype, lanes):
    values = full_range(rng, lanes, dtype)
    for by in (0, 1, 3, 7):
        result = out(lanes, dtype)
        probe.call(name, values, result, by)
        assert np.array_equal(result, values >> by)  # arithmetic for signed types, logical for unsigned ones
    probe.call("set_modes", ROUNDING["positive_inf"], SATURATION["none"])
    probe.call(name, values, result, 3)
    assert result.tolist() == [fitted(rounded(int(x), 3, "positive_inf"), dtype, "none") for x in values]


@pytest.mark.parametrize(("name", "dtype"), [("up_i8", np.int8), ("up_u8", np.uint8)])
def test_upshift(probe, rng, name, dtype):
    values, result = full_range(rng, 64, dtype), out(64, dtype)
    for mode in SATURATION:
        probe.call("set_modes", ROUNDING["floor"], SATURATION[mode])
        probe.call(name, values, result, 3)
        assert result.tolist() == [fitted(int(x) << 3, dtype, mode) for x in values]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("multiply_ii", np.int8, np.int8), ("multiply_iu", np.int8, np.uint8),
        ("multiply_ui", np.uint8, np.int8), ("multiply_uu", np.uint8, np.uint8),
    ],
)  # fmt: skip
def test_mmul(probe, rng, name, left, right):
    for a, b in (
        (full_range(rng, 64, left), full_range(rng, 64, right)),
        (aligned_copy(np.full(64, np.iinfo(left).min, left)), aligned_copy(np.full(64, np.iinfo(right).min, right))),
        (aligned_copy(np.full(64, np.iinfo(left).max, left)), aligned_copy(np.full(64, np.iinfo(right).min, right))),
    ):
        c = full_range(rng, 64, np.int32)
        wide = c.astype(np.int64).reshape(8, 8) + a.astype(np.int64).reshape(8, 8) @ b.astype(np.int64).reshape(8, 8)
        probe.call(name, a, b, c)
        assert np.array_equal(c.reshape(8, 8), wide.astype(np.int32))  # sums wrap at 32 bits


def test_mmul_starts_from_what_it_was_given(probe, rng):
    a, b = full_range(rng, 64, np.int8), full_range(rng, 64, np.int8)
    c = aligned_copy(np.full(192, 7, np.int32))
    probe.call("multiply_anew", a, b, c)
    product = a.astype(np.int32).reshape(8, 8) @ b.astype(np.int32).reshape(8, 8)
    assert np.array_equal(c.reshape(3, 8, 8), np.stack([product] * 3))


def test_mmul_gives_bytes_through_the_shift(probe, rng):
    a, b = full_range(rng, 64, np.int8), full_range(rng, 64, np.int8)
    c = out(64, np.int8)
    probe.call("set_modes", ROUNDING["conv_even"], SATURATION["saturate"])
    probe.call("multiply_to_i8", a, b, c, 9)
    product = (a.astype(np.int64).reshape(8, 8) @ b.astype(np.int64).reshape(8, 8)).reshape(-1)
    assert c.tolist() == [fitted(rounded(int(x), 9, "conv_even"), np.int8, "saturate") for x in product]


def test_mmul_that_was_never_set(probe):
    with pytest.raises(SimulationFailed, match="never_set: aie::mmul: read before any mul, mac or value"):
        probe.call("never_set", out(64, np.int32))


def test_elementwise_products(probe, rng):
    a, b, result = full_range(rng, 64, np.int8), full_range(rng, 64, np.uint8), out(64, np.int16)
    probe.call("multiply_lanes", a, b, result)
    assert np.array_equal(result, (a.astype(np.int32) * b).astype(np.int16))


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (4, 16), (16, 4), (2, 32), (64, 1)])
def test_transpose(probe, rng, rows, columns):
    values, result = full_range(rng, 64, np.int8), out(64, np.int8)
    probe.call("transposed", values, result, rows, columns)
    assert np.array_equal(result.reshape(columns, rows), values.reshape(rows, columns).T)


@pytest.mark.parametrize("chunk", [1, 2, 8, 32, 64])
def test_interleave(probe, rng, chunk):
    a, b, zipped, back = (full_range(rng, 64, np.int8) for _ in range(4))
    zipped, back = out(128, np.int8), out(128, np.int8)
    probe.call("zipped", a, b, zipped, chunk)
    expected = np.stack([a.reshape(-1, chunk), b.reshape(-1, chunk)], axis=1).reshape(-1)
    assert np.array_equal(zipped, expected)
    probe.call("unzipped", aligned_copy(zipped[:64]), aligned_copy(zipped[64:]), back, chunk)
    assert np.array_equal(back, np.concatenate([a, b]))


def test_fills_and_parts(probe, rng):
    result = out(128, np.int8)
    probe.call("filled", result, -5)
    assert result.tolist() == [-5] * 64 + [0] * 64
    values, result = full_range(rng, 64, np.int8), out(320, np.int8)
    for part in range(4):
        probe.call("parts", values, result, part)
        quarter = values[16 * part : 16 * part + 16]
        assert np.array_equal(result[:64], np.concatenate([values[:48], quarter]))
        assert np.array_equal(result[64:128], np.tile(quarter, 4))
        assert np.array_equal(result[128:192], np.concatenate([quarter, values[:32], quarter]))
        assert np.array_equal(result[192:256], values)
        assert np.array_equal(result[256:272], quarter)


def test_nibbles(probe, rng):
    values = full_range(rng, 32, np.int8)
    low, high, wide = out(64, np.int8), out(64, np.uint8), out(32, np.int16)
    probe.call("unpacked", values, low, high, wide)
    halves = np.stack([values.view(np.uint8) & 15, values.view(np.uint8) >> 4], axis=1).reshape(-1)
    assert np.array_equal(high, halves)
    assert np.array_equal(low, np.where(halves > 7, halves.astype(np.int16) - 16, halves))
    assert np.array_equal(wide, values)


@pytest.mark.parametrize("mode", SATURATION)
def test_pack(probe, rng, mode):
    probe.call("set_modes", ROUNDING["floor"], SATURATION[mode])
    values, result, nibbles = full_range(rng, 64, np.int16), out(64, np.int8), out(32, np.int8)
    probe.call("packed", values, result, nibbles)
    bytes_ = [fitted(int(x), np.int8, mode) for x in values]
    assert result.tolist() == bytes_
    least = -7 if mode == "symmetric" else -8
    small = [x & 15 if mode == "none" else min(max(x, least), 7) & 15 for x in bytes_]
    assert nibbles.view(np.uint8).tolist() == [small[2 * i] | small[2 * i + 1] << 4 for i in range(32)]


def test_masks(probe):
    found = out(64, np.int32)
    probe.call("masks", found)
    for lane, value in enumerate(found.tolist()):
        even, low = lane % 2 == 0, lane < 8
        assert value == even | (even and low) << 1 | (even or low) << 2 | (not even) << 3


def test_event_markers_do_nothing(probe):
    probe.call("traced")


@pytest.mark.parametrize(
    ("name", "dtype", "alignment"),
    [
        ("load_16", np.int8, 16), ("load_32", np.int8, 32), ("load_64", np.int8, 64), ("load_128", np.int8, 64),
        ("load_words", np.int32, 64),
    ],
)  # fmt: skip
def test_alignment(probe, name, dtype, alignment):
    width = np.dtype(dtype).itemsize
    room, target = out(256, dtype), out(256, dtype)
    room[:] = np.arange(256)
    probe.call(name, room[alignment // width :], target)
    assert target[0] == np.array(alignment // width).astype(dtype)
    for off in (alignment // 2, alignment + width):
        with pytest.raises(SimulationFailed, match=rf"{name}: aie::load_v: the address is not aligned"):
            probe.call(name, room[off // width :], target)
        with pytest.raises(SimulationFailed, match=rf"{name}: aie::store_v: the address is not aligned"):
            probe.call(name, room, target[off // width :])


def test_places_that_are_not_there(probe, rng):
    values = full_range(rng, 64, np.int8)
    for call, words in (
        (("lane", values, out(1, np.int32), 64), "no such lane"),
        (("part_of", values, out(16, np.int8), 4), "no such part"),
        (("transposed", values, out(64, np.int8), 8, 4), "rows times columns"),
        (("zipped", values, values, out(128, np.int8), 3), "the chunk is no power of two"),
        (("unzipped", values, values, out(128, np.int8), 128), "the chunk is no power of two"),
        (("down_i8", values, out(64, np.int8), 32), "not in 0..31"),
        (("up_i8", values, out(64, np.int8), -1), "not in 0..31"),
        (("narrow_i8", out(64, np.int32), out(64, np.int8), -1), "not in 0..31"),
    ):
        with pytest.raises(SimulationFailed, match=words):
            probe.call(*call)


REFUSED = [
    ("aie::vector<int8, 8> v;", "no register of so many lanes"),
    ("aie::vector<int8, 48> v;", "no register of so many lanes"),
    ("aie::vector<int8, 256> v;", "no register of so many lanes"),
    ("aie::vector<int16, 4> v;", "no register of so many lanes"),
    ("aie::vector<int32, 2> v;", "no register of so many lanes"),
    ("aie::vector<double, 8> v;", "no register of so many lanes"),
    ("aie::vector<int8, 0> v;", "no register of so many lanes"),
    ("aie::vector<int8, 1> v;", "no register of so many lanes"),
    ("aie::vector<uint8, 8> v;", "no register of so many lanes"),
    ("aie::vector<int16, 128> v;", "no register of so many lanes"),
    ("aie::vector<int32, 128> v;", "no register of so many lanes"),
    ("aie::vector<int4, 16> v;", "no register of so many lanes"),
    ("aie::vector<uint4, 512> v;", "no register of so many lanes"),
    *((f"aie::accum<acc32, {n}> a;", "no accumulator of so many lanes") for n in (0, 1, 2, 4, 24, 256)),
    *((f"aie::accum<acc64, {n}> a;", "no accumulator of so many lanes") for n in (0, 1, 2, 12, 128)),
    ("aie::accum<int32, 16> a;", "acc32 or acc64"),
    ("aie::accum<accauto, 16> a;", "acc32 or acc64"),
    ("(void)aie::zeros<acc32, 4>();", "no accumulator of so many lanes"),
    ("(void)aie::zeros<int8, 8>();", "no register of so many lanes"),
    ("(void)aie::broadcast<int8, 8>(1);", "no register of so many lanes"),
    ("int8 *p = nullptr; (void)aie::load_v<8>(p);", "no register of so many lanes"),
    ("aie::vector<int8, 64> v; (void)v.extract<8>(0);", "no register of so many lanes"),
    ("aie::vector<int8, 64> v; (void)v.grow<256>();", "no register of so many lanes"),
    ("aie::vector<int8, 128> v; (void)aie::concat(v, v);", "no register of so many lanes"),
    ("aie::vector<int16, 8> v; (void)v.pack();", "no register of so many lanes"),
    ("aie::mask<1> m;", "a power of two from 4 to 128"),
    ("aie::mask<2> m;", "a power of two from 4 to 128"),
    ("aie::mask<48> m;", "a power of two from 4 to 128"),
    ("aie::vector<int8, 64> v; v.data[0] = 1;", "no member named 'data'"),
    ("aie::vector<int8, 64> v; v.lanes_[0] = 1;", "private member"),
    ("aie::accum<acc32, 64> a; a.data[0] = 1;", "no member named 'data'"),
    ("aie::accum<acc32, 64> a; a.lanes_[0] = 1;", "private member"),
    ("aie::vector<int8, 64> v; v[0] = 1;", "not assignable"),
    ("aie::vector<int4, 64> v; (void)aie::max(v, v);", "at least 8 bits"),
    ("aie::vector<int4, 64> v; (void)aie::min(v, v);", "at least 8 bits"),
    ("aie::vector<int4, 64> v; (void)aie::lt(v, v);", "invalid operands"),
    ("aie::vector<uint4, 64> v; aie::mask<64> m; (void)aie::select(v, v, m);", "at least 8 bits"),
    ("aie::vector<int4, 64> v; (void)aie::transpose(v, 8, 8);", "at least 8 bits"),
    ("aie::vector<int4, 64> v; (void)aie::interleave_zip(v, v, 1);", "at least 8 bits"),
    ("aie::vector<int4, 64> v; (void)aie::interleave_unzip(v, v, 1);", "at least 8 bits"),
    ("aie::mmul<4, 8, 8, int8> m;", "8x8x8"),
    ("aie::mmul<8, 8, 4, int8> m;", "8x8x8"),
    ("aie::mmul<8, 8, 8, int16> m;", "A is int8 or uint8"),
    ("aie::mmul<8, 8, 8, int8, int16> m;", "B is int8 or uint8"),
    ("aie::vector<int16, 32> v; (void)aie::mul(v, v);", "8-bit lanes"),
    ("aie::vector<int8, 64> a; aie::vector<int8, 32> b; (void)aie::concat(a, b);", "vectors of one type"),
    ("aie::vector<int8, 64> a; aie::vector<uint8, 64> b; (void)aie::add(a, b);", "no matching function"),
    ("aie::vector<int8, 64> a; (void)(a + a);", "invalid operands"),
    ("int4 *p = nullptr; (void)aie::load_v<64>(p);", "steps by whole bytes"),
]


@pytest.fixture(scope="module")
def refusals(simulator):
    """What the compiler says of each of REFUSED, by its number: all in one file, a line each.

    It stops after so many errors, and says only once what is wrong with a type; so whatever it said nothing of is tried
    again without the others, for as long as it says what is expected of a further one.
    """
    name, found, left = "refused.cc", {}, list(range(len(REFUSED)))
    while left:
        lines = [f"void probe{number}(); void probe{number}() {{ {REFUSED[number][0]} }}" for number in left]
        (simulator.root / "kernels" / name).write_text("\n".join(["#include <aie_api/aie.hpp>", *lines, ""]))
        compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
        try:
            object_of(compiler, simulator.root / "kernels", KernelObject("refused.o", name, {}))
            break
        except BuildFailed as failed:
            assert str(failed).startswith("kernels/refused.cc: zig c++: ")
        said = {}
        for error in re.split(r"^(?=\S+:\d+:\d+: error: )", compiler.log, flags=re.MULTILINE)[1:]:
            # The file's own line is where the error is, or where the chain of its instantiations begins; 1 includes.
            for line in {int(line) for line in re.findall(r"refused\.cc:(\d+):", error)} - {1}:
                said[left[line - 2]] = said.get(left[line - 2], "") + error
        found |= said
        done = {number for number, text in said.items() if REFUSED[number][1] in text}
        if not done:
            break
        left = [number for number in left if number not in done]
    return found


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[body for body, _ in REFUSED])
def test_what_the_part_does_not_have_does_not_compile(refusals, number):
    assert REFUSED[number][1] in refusals.get(number, "compiles")


def test_every_size_the_part_has_compiles(simulator):
    """Sizes of aie_api's tables for AIE2P; int32 beyond 32 lanes is an array of registers."""
    sizes = {
        "int4": (32, 64, 128, 256), "uint4": (32, 64, 128, 256), "int8": (16, 32, 64, 128), "uint8": (16, 32, 64, 128),
        "int16": (8, 16, 32, 64), "uint16": (8, 16, 32, 64), "int32": (4, 8, 16, 32, 64), "uint32": (4, 8, 16, 32, 64),
    }  # fmt: skip
    body = [f"static_assert(sizeof(aie::vector<{t}, {n}>) > 0);" for t, lanes in sizes.items() for n in lanes]
    body += [f"static_assert(sizeof(aie::accum<acc32, {n}>) == {4 * n});" for n in (8, 16, 32, 64, 128)]
    body += [f"static_assert(sizeof(aie::accum<acc64, {n}>) == {8 * n});" for n in (4, 8, 16, 32, 64)]
    body += [f"static_assert(aie::mask<{n}>::size() == {n});" for n in (4, 8, 16, 32, 64, 128)]
    (simulator.root / "kernels" / "sizes.cc").write_text("#include <aie_api/aie.hpp>\n" + "\n".join(body) + "\n")
    compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
    assert object_of(compiler, simulator.root / "kernels", KernelObject("sizes.o", "sizes.cc", {}))

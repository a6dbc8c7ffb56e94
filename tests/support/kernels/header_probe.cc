// Calls the host header's operations on whole arrays, so that tests can compare them with numpy.

#include <aie_api/aie.hpp>

namespace {

template <typename T, unsigned N, typename Op>
void binary(const T *a, const T *b, T *to, Op op) {
    aie::store_v(to, op(aie::load_v<N>(a), aie::load_v<N>(b)));
}

// op: 0 add, 1 sub, 2 max, 3 min, 4 and, 5 or, 6 b where a < b, 7 b where a >= b, 8 b where a == b, 9 b where not a < b
template <typename T, unsigned N>
void operate(const T *a, const T *b, T *to, int32_t op) {
    using V = aie::vector<T, N>;
    binary<T, N>(a, b, to, [op](const V &x, const V &y) {
        switch (op) {
        case 0:
            return aie::add(x, y);
        case 1:
            return aie::sub(x, y);
        case 2:
            return aie::max(x, y);
        case 3:
            return aie::min(x, y);
        case 4:
            return aie::bit_and(x, y);
        case 5:
            return aie::bit_or(x, y);
        case 6:
            return aie::select(x, y, aie::lt(x, y));
        case 7:
            return aie::select(x, y, aie::ge(x, y));
        case 8:
            return aie::select(x, y, aie::eq(x, y));
        default:
            return aie::select(x, y, ~aie::lt(x, y) & (aie::ge(x, y) | aie::eq(x, y)));
        }
    });
}

template <typename T>
void narrow(const int32_t *from, T *to, int32_t shift) {
    aie::accum<acc32, 64> sums(aie::load_v<64>(from));
    aie::store_v(to, sums.to_vector<T>(shift));
}

template <typename TA, typename TB>
void multiply(const TA *a, const TB *b, int32_t *c) {
    aie::mmul<8, 8, 8, TA, TB> block(aie::load_v<64>(c));
    block.mac(aie::load_v<64>(a), aie::load_v<64>(b));
    aie::store_v(c, block.template to_vector<int32>());
}

} // namespace

extern "C" {

void set_modes(int32_t rounding, int32_t saturation) {
    aie::set_rounding(aie::rounding_mode(rounding));
    aie::set_saturation(aie::saturation_mode(saturation));
}

void get_modes(int32_t *to) {
    to[0] = int32_t(aie::get_rounding());
    to[1] = int32_t(aie::get_saturation());
    to[2] = int32_t(aie::swap_rounding(aie::rounding_mode::conv_even));
    to[3] = int32_t(aie::swap_saturation(aie::saturation_mode::symmetric));
}

void narrow_i8(int32_t *from, int8_t *to, int32_t shift) { narrow(from, to, shift); }
void narrow_u8(int32_t *from, uint8_t *to, int32_t shift) { narrow(from, to, shift); }
void narrow_i16(int32_t *from, int16_t *to, int32_t shift) { narrow(from, to, shift); }

// 32 bits by way of the 64-bit accumulator: up first, then down.
void through_acc64(int32_t *from, int32_t *to, int32_t up, int32_t down) {
    aie::accum<acc64, 16> wide;
    wide.from_vector(aie::load_v<16>(from), up);
    aie::store_v(to, wide.to_vector<int32>(down));
}

void through_acc32(int8_t *from, int8_t *to, int32_t up, int32_t down) {
    aie::accum<acc32, 64> sums(aie::load_v<64>(from), up);
    aie::store_v(to, sums.to_vector<int8>(down));
}

void copy_i32(int32_t *from, int32_t *to, int32_t up, int32_t down) {
    aie::accum<acc32, 64> sums(aie::load_v<64>(from), up);
    aie::store_v(to, sums.to_vector<int32>(down));
}

void operate_i8(int8_t *a, int8_t *b, int8_t *to, int32_t op) { operate<int8, 64>(a, b, to, op); }
void operate_u8(uint8_t *a, uint8_t *b, uint8_t *to, int32_t op) { operate<uint8, 64>(a, b, to, op); }
void operate_wide_i8(int8_t *a, int8_t *b, int8_t *to, int32_t op) { operate<int8, 128>(a, b, to, op); }
void operate_i16(int16_t *a, int16_t *b, int16_t *to, int32_t op) { operate<int16, 32>(a, b, to, op); }
void operate_u16(uint16_t *a, uint16_t *b, uint16_t *to, int32_t op) { operate<uint16, 8>(a, b, to, op); }
void operate_i32(int32_t *a, int32_t *b, int32_t *to, int32_t op) { operate<int32, 16>(a, b, to, op); }

void down_i8(int8_t *v, int8_t *to, int32_t by) { aie::store_v(to, aie::downshift(aie::load_v<64>(v), by)); }
void down_u8(uint8_t *v, uint8_t *to, int32_t by) { aie::store_v(to, aie::downshift(aie::load_v<64>(v), by)); }
void down_i16(int16_t *v, int16_t *to, int32_t by) { aie::store_v(to, aie::downshift(aie::load_v<32>(v), by)); }
void down_i32(int32_t *v, int32_t *to, int32_t by) { aie::store_v(to, aie::downshift(aie::load_v<16>(v), by)); }
void up_i8(int8_t *v, int8_t *to, int32_t by) { aie::store_v(to, aie::upshift(aie::load_v<64>(v), by)); }
void up_u8(uint8_t *v, uint8_t *to, int32_t by) { aie::store_v(to, aie::upshift(aie::load_v<64>(v), by)); }

void multiply_ii(int8_t *a, int8_t *b, int32_t *c) { multiply(a, b, c); }
void multiply_iu(int8_t *a, uint8_t *b, int32_t *c) { multiply(a, b, c); }
void multiply_ui(uint8_t *a, int8_t *b, int32_t *c) { multiply(a, b, c); }
void multiply_uu(uint8_t *a, uint8_t *b, int32_t *c) { multiply(a, b, c); }

// mul forgets what was there; the first mac of an empty one is a mul; an accumulator may start one.
void multiply_anew(int8_t *a, int8_t *b, int32_t *c) {
    const auto x = aie::load_v<64>(a), y = aie::load_v<64>(b);
    aie::mmul<8, 8, 8, int8, int8> given(aie::load_v<64>(c)), empty, zeroed = aie::zeros<acc32, 64>();
    given.mul(x, y);
    empty.mac(x, y);
    zeroed.mac(x, y);
    aie::store_v(c, given.to_vector<int32>());
    aie::store_v(c + 64, empty.to_vector<int32>());
    aie::store_v(c + 128, zeroed.to_vector<int32>());
}

void multiply_to_i8(int8_t *a, int8_t *b, int8_t *c, int32_t shift) {
    aie::mmul<8, 8, 8, int8> block;
    block.mul(aie::load_v<64>(a), aie::load_v<64>(b));
    aie::store_v(c, block.to_vector<int8>(shift));
}

void multiply_lanes(int8_t *a, uint8_t *b, int16_t *to) {
    aie::store_v(to, aie::mul(aie::load_v<64>(a), aie::load_v<64>(b)).to_vector<int16>());
}

void never_set(int32_t *c) {
    aie::mmul<8, 8, 8, int8> block;
    aie::store_v(c, block.to_vector<int32>());
}

void transposed(int8_t *v, int8_t *to, int32_t rows, int32_t columns) {
    aie::store_v(to, aie::transpose(aie::load_v<64>(v), rows, columns));
}

void zipped(int8_t *a, int8_t *b, int8_t *to, int32_t chunk) {
    const auto [low, high] = aie::interleave_zip(aie::load_v<64>(a), aie::load_v<64>(b), chunk);
    aie::store_v(to, low);
    aie::store_v(to + 64, high);
}

void unzipped(int8_t *a, int8_t *b, int8_t *to, int32_t chunk) {
    const auto [even, odd] = aie::interleave_unzip(aie::load_v<64>(a), aie::load_v<64>(b), chunk);
    aie::store_v(to, even);
    aie::store_v(to + 64, odd);
}

void filled(int8_t *to, int32_t value) {
    aie::store_v(to, aie::broadcast<int8, 64>(int8_t(value)));
    aie::store_v(to + 64, aie::zeros<int8, 64>());
}

// Parts: out and in again, side by side, repeated, in another type.
void parts(int8_t *from, int8_t *to, int32_t part) {
    const auto whole = aie::load_v<64>(from);
    const auto quarter = whole.extract<16>(part);
    auto changed = whole;
    changed.insert(3, quarter);
    aie::store_v(to, changed);
    aie::store_v(to + 64, quarter.grow_replicate<64>());
    aie::store_v(to + 128, aie::concat(quarter, whole.extract<16>(0), whole.extract<16>(1), quarter));
    aie::store_v(to + 192, whole.cast_to<int32>().cast_to<int8>());
    aie::store_v(to + 256, quarter.grow<64>().extract<16>(0));
}

void unpacked(int8_t *from, int8_t *low, uint8_t *high, int16_t *wide) {
    const auto bytes = aie::load_v<32>(from);
    aie::store_v(low, bytes.cast_to<int4>().unpack());
    aie::store_v(high, bytes.cast_to<uint4>().unpack());
    aie::store_v(wide, bytes.unpack());
}

void packed(int16_t *from, int8_t *to, int8_t *nibbles) {
    const auto bytes = aie::load_v<64>(from).pack();
    aie::store_v(to, bytes);
    aie::store_v(nibbles, bytes.pack().cast_to<int8>());
}

void masks(int32_t *to) {
    const auto even = aie::mask<64>::from_uint64(0x5555555555555555u);
    const auto low = aie::mask<64>::from_uint64(0xFFu);
    for (unsigned i = 0; i < 64; ++i)
        to[i] = even.test(i) | (even & low).test(i) << 1 | (even | low).test(i) << 2 | (~even).test(i) << 3;
}

void load_16(int8_t *from, int8_t *to) { aie::store_v(to, aie::load_v<16>(from)); }
void load_32(int8_t *from, int8_t *to) { aie::store_v(to, aie::load_v<32>(from)); }
void load_64(int8_t *from, int8_t *to) { aie::store_v(to, aie::load_v<64>(from)); }
void load_128(int8_t *from, int8_t *to) { aie::store_v(to, aie::load_v<128>(from)); }
void load_words(int32_t *from, int32_t *to) { aie::store_v(to, aie::load_v<16>(from)); }

void lane(int8_t *from, int32_t *to, int32_t at) { to[0] = aie::load_v<64>(from)[at]; }
void part_of(int8_t *from, int8_t *to, int32_t at) { aie::store_v(to, aie::load_v<64>(from).extract<16>(at)); }

void traced(void) {
    event0();
    event1();
}
}

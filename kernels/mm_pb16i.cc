// Ternary GEMM tile: entries zero_i32 and matmul_pb16i_i32. B is packed at 2 bits a weight (layout pb16i, defined in
// src/elfkiln/engine/layouts.py): groups of 64 bytes in the order [n32][kb], each the four 8 x 8 blocks q = 0..3 of
// columns 32 * n32 + 8 * q.., rows 8 * kb..; bits 2q and 2q + 1 of byte r * 8 + c are weight + 1 of element (r, c) of
// block q. A tile deeper than 64 arrives in the same order: the mem tile sends all its groups of equal n32 together.
//
// A block comes out of its group by mask, difference and clamp: no shift, which AIE2P emulates on bytes, and no table.
// Those are operations of the one move slot, beside which the vector slot takes a product of two blocks a cycle. So a
// block that has been expanded should meet as many blocks of A as there are accumulators: four rows of blocks where the
// tile has them (m = 32), two rows by two columns where it has two (m = 16).

#include "gemm_tile.h"

namespace {

using tile::Bytes;
using Block = aie::mmul<8, 8, 8, int8, int8>;

constexpr unsigned CODES = 4;
constexpr unsigned GROUPS = tile::n / 32;
constexpr unsigned PACKED_BYTES = tile::B_BYTES / CODES;

inline const int8_t *groups(const int8_t *b, unsigned n32) { return b + n32 * tile::K_BLOCKS * tile::BLOCK; }

// Block q of a group as int8. With the code's place value s = 4^q, (x & 3s) - s is s * weight, modulo 256 for q = 3
// where +64 and -64 still tell the sign; clamped to -1..1 it is the weight. For q = 0 it is the weight already.
template <unsigned q>
inline Bytes weights(const Bytes &x) {
    const Bytes masked = aie::bit_and(x, aie::broadcast<int8, 64>(static_cast<int8>(3u << 2 * q)));
    const Bytes scaled = aie::sub(masked, aie::broadcast<int8, 64>(static_cast<int8>(1u << 2 * q)));
    if constexpr (q == 0)
        return scaled;
    else
        return aie::min(aie::max(scaled, aie::broadcast<int8, 64>(-1)), aie::broadcast<int8, 64>(1));
}

// Four rows of blocks of C by block q of a group: 4 products for 2 or 4 operations of the move slot.
template <unsigned q>
inline void column(const int8_t *__restrict a, const int8_t *__restrict b, int32_t *__restrict c, unsigned z,
                   unsigned n32) {
    int32_t *__restrict top = tile::c_block(c, z, n32 * CODES + q);
    Block c0(aie::load_v<64>(top)), c1(aie::load_v<64>(top + tile::C_STEP));
    Block c2(aie::load_v<64>(top + 2 * tile::C_STEP)), c3(aie::load_v<64>(top + 3 * tile::C_STEP));
    const int8_t *__restrict pa = tile::a_block(a, z, 0);
    const int8_t *__restrict pb = groups(b, n32);
    for (unsigned kb = 0; kb < tile::K_BLOCKS; ++kb) {
        const Bytes a0 = aie::load_v<64>(pa), a1 = aie::load_v<64>(pa + tile::BLOCK);
        const Bytes a2 = aie::load_v<64>(pa + 2 * tile::BLOCK), a3 = aie::load_v<64>(pa + 3 * tile::BLOCK);
        const Bytes w = weights<q>(aie::load_v<64>(pb));
        pa += tile::A_STEP;
        pb += tile::BLOCK;
        c0.mac(a0, w);
        c1.mac(a1, w);
        c2.mac(a2, w);
        c3.mac(a3, w);
    }
    aie::store_v(top, c0.to_vector<int32>());
    aie::store_v(top + tile::C_STEP, c1.to_vector<int32>());
    aie::store_v(top + 2 * tile::C_STEP, c2.to_vector<int32>());
    aie::store_v(top + 3 * tile::C_STEP, c3.to_vector<int32>());
}

// Two rows of blocks of C by the blocks q and q + 1 of a group.
template <unsigned q>
inline void square(const int8_t *__restrict a, const int8_t *__restrict b, int32_t *__restrict c, unsigned z,
                   unsigned n32) {
    int32_t *__restrict upper = tile::c_block(c, z, n32 * CODES + q);
    int32_t *__restrict lower = upper + tile::C_STEP;
    Block c00(aie::load_v<64>(upper)), c01(aie::load_v<64>(upper + tile::BLOCK));
    Block c10(aie::load_v<64>(lower)), c11(aie::load_v<64>(lower + tile::BLOCK));
    const int8_t *__restrict pa = tile::a_block(a, z, 0);
    const int8_t *__restrict pb = groups(b, n32);
    for (unsigned kb = 0; kb < tile::K_BLOCKS; ++kb) {
        const Bytes a0 = aie::load_v<64>(pa), a1 = aie::load_v<64>(pa + tile::BLOCK);
        const Bytes x = aie::load_v<64>(pb);
        pa += tile::A_STEP;
        pb += tile::BLOCK;
        const Bytes w0 = weights<q>(x), w1 = weights<q + 1>(x);
        c00.mac(a0, w0);
        c01.mac(a0, w1);
        c10.mac(a1, w0);
        c11.mac(a1, w1);
    }
    aie::store_v(upper, c00.to_vector<int32>());
    aie::store_v(upper + tile::BLOCK, c01.to_vector<int32>());
    aie::store_v(lower, c10.to_vector<int32>());
    aie::store_v(lower + tile::BLOCK, c11.to_vector<int32>());
}

// All of C by one group of columns.
inline void columns_of(const int8_t *__restrict a, const int8_t *__restrict b, int32_t *__restrict c, unsigned n32) {
    if constexpr (tile::m % 32 == 0)
        for (unsigned z = 0; z < tile::M_BLOCKS; z += 4) {
            column<0>(a, b, c, z, n32);
            column<1>(a, b, c, z, n32);
            column<2>(a, b, c, z, n32);
            column<3>(a, b, c, z, n32);
        }
    else
        for (unsigned z = 0; z < tile::M_BLOCKS; z += 2) {
            square<0>(a, b, c, z, n32);
            square<2>(a, b, c, z, n32);
        }
}

} // namespace

ELFKILN_ENTRY(zero_i32, ELFKILN_WRITES(tile::C_BYTES))
ELFKILN_ENTRY(matmul_pb16i_i32, ELFKILN_READS(tile::A_BYTES), ELFKILN_READS(PACKED_BYTES),
              ELFKILN_UPDATES(tile::C_BYTES))

extern "C" {

void zero_i32(int32_t *__restrict c) { tile::zero(c); }

void matmul_pb16i_i32(int8_t *__restrict a, uint8_t *__restrict b, int32_t *__restrict c) {
    event0();
    const int8_t *__restrict packed = reinterpret_cast<const int8_t *>(b);
    for (unsigned n32 = 0; n32 < GROUPS; ++n32)
        columns_of(a, packed, c, n32);
    event1();
}
}

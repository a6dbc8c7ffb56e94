// Ternary GEMM tile: entries zero_i32 and matmul_pb16i_i32. B is packed at 2 bits a weight (layout pb16i, defined in
// src/elfkiln/layouts.py): groups of 64 bytes in the order [n32][kb], each the four 8 x 8 blocks q = 0..3 of columns
// 32 * n32 + 8 * q.., rows 8 * kb..; bits 2q and 2q + 1 of byte r * 8 + c are weight + 1 of element (r, c) of block q.
//
// A block comes out of its group by mask, difference and clamp: no shift, which AIE2P emulates on bytes, and no table.

#include "gemm_tile.h"

namespace {

using Block = aie::mmul<8, 8, 8, int8, int8>;
using Bytes = aie::vector<int8, 64>;

constexpr unsigned CODES = 4;
constexpr unsigned GROUPS = tile::n / 32;
constexpr unsigned PACKED_BYTES = tile::B_BYTES / CODES;

inline const int8_t *group(const int8_t *b, unsigned n32, unsigned kb) {
    return b + (n32 * tile::K_BLOCKS + kb) * tile::BLOCK;
}

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

// Two rows of blocks of C by the blocks q and q + 1 of a group: four accumulators, the two expanded blocks serve both
// rows. The next step's operands are loaded before this step's products.
template <unsigned q>
inline void square(const int8_t *__restrict a, const int8_t *__restrict b, int32_t *__restrict c, unsigned z,
                   unsigned n32) {
    int32_t *__restrict upper = tile::c_block(c, z, n32 * CODES + q);
    int32_t *__restrict lower = tile::c_block(c, z + 1, n32 * CODES + q);
    Block c00(aie::load_v<64>(upper)), c01(aie::load_v<64>(upper + tile::BLOCK));
    Block c10(aie::load_v<64>(lower)), c11(aie::load_v<64>(lower + tile::BLOCK));
    const int8_t *__restrict pa = tile::a_block(a, z, 0);
    const int8_t *__restrict pb = group(b, n32, 0);
    Bytes a0 = aie::load_v<64>(pa), a1 = aie::load_v<64>(pa + tile::BLOCK);
    Bytes x = aie::load_v<64>(pb);
    ELFKILN_TURNS_AT_LEAST(1)
    for (unsigned kb = 1; kb < tile::K_BLOCKS; ++kb) {
        pa += tile::M_BLOCKS * tile::BLOCK;
        pb += tile::BLOCK;
        const Bytes next_a0 = aie::load_v<64>(pa), next_a1 = aie::load_v<64>(pa + tile::BLOCK);
        const Bytes next_x = aie::load_v<64>(pb);
        const Bytes b0 = weights<q>(x), b1 = weights<q + 1>(x);
        c00.mac(a0, b0);
        c01.mac(a0, b1);
        c10.mac(a1, b0);
        c11.mac(a1, b1);
        a0 = next_a0;
        a1 = next_a1;
        x = next_x;
    }
    const Bytes b0 = weights<q>(x), b1 = weights<q + 1>(x);
    c00.mac(a0, b0);
    c01.mac(a0, b1);
    c10.mac(a1, b0);
    c11.mac(a1, b1);
    aie::store_v(upper, c00.to_vector<int32>());
    aie::store_v(upper + tile::BLOCK, c01.to_vector<int32>());
    aie::store_v(lower, c10.to_vector<int32>());
    aie::store_v(lower + tile::BLOCK, c11.to_vector<int32>());
}

} // namespace

ELFKILN_ENTRY(zero_i32, ELFKILN_WRITES(tile::C_BYTES))
ELFKILN_ENTRY(matmul_pb16i_i32, ELFKILN_READS(tile::A_BYTES), ELFKILN_READS(PACKED_BYTES),
              ELFKILN_UPDATES(tile::C_BYTES))

extern "C" {

void zero_i32(int32_t *c) { tile::zero(c); }

void matmul_pb16i_i32(int8_t *a, uint8_t *b, int32_t *c) {
    event0();
    const int8_t *packed = reinterpret_cast<const int8_t *>(b);
    for (unsigned z = 0; z < tile::M_BLOCKS; z += 2)
        for (unsigned n32 = 0; n32 < GROUPS; ++n32) {
            square<0>(a, packed, c, z, n32);
            square<2>(a, packed, c, z, n32);
        }
    event1();
}
}

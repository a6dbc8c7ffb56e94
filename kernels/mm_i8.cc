// int8 GEMM tile: entries zero_i32 and matmul_i8_i32. B is int8 in 8 x 8 blocks, row by row: block (i, j) is number
// i * (n / 8) + j. The tile (nt, ki) of the b8 layout lies so in memory, and the tiles that follow it along K continue
// it; a row-major B is brought so by the mem tile's DMA.
//
// C is computed in squares of 2 x 2 blocks: four accumulators, which is what AIE2P has room for beside the operands.

#include "gemm_tile.h"

namespace {

using tile::Bytes;
using Block = aie::mmul<8, 8, 8, int8, int8>;

constexpr unsigned B_STEP = tile::N_BLOCKS * tile::BLOCK; // from a block of B to the next along k

// One 2 x 2 square of blocks of C.
inline void square(const int8_t *__restrict a, const int8_t *__restrict b, int32_t *__restrict c, unsigned z,
                   unsigned j) {
    int32_t *__restrict upper = tile::c_block(c, z, j);
    int32_t *__restrict lower = tile::c_block(c, z + 1, j);
    Block c00(aie::load_v<64>(upper)), c01(aie::load_v<64>(upper + tile::BLOCK));
    Block c10(aie::load_v<64>(lower)), c11(aie::load_v<64>(lower + tile::BLOCK));
    const int8_t *__restrict pa = tile::a_block(a, z, 0);
    const int8_t *__restrict pb = b + j * tile::BLOCK;
    for (unsigned i = 0; i < tile::K_BLOCKS; ++i) {
        const Bytes a0 = aie::load_v<64>(pa), a1 = aie::load_v<64>(pa + tile::BLOCK);
        const Bytes b0 = aie::load_v<64>(pb), b1 = aie::load_v<64>(pb + tile::BLOCK);
        pa += tile::A_STEP;
        pb += B_STEP;
        c00.mac(a0, b0);
        c01.mac(a0, b1);
        c10.mac(a1, b0);
        c11.mac(a1, b1);
    }
    aie::store_v(upper, c00.to_vector<int32>());
    aie::store_v(upper + tile::BLOCK, c01.to_vector<int32>());
    aie::store_v(lower, c10.to_vector<int32>());
    aie::store_v(lower + tile::BLOCK, c11.to_vector<int32>());
}

} // namespace

ELFKILN_ENTRY(zero_i32, ELFKILN_WRITES(tile::C_BYTES))
ELFKILN_ENTRY(matmul_i8_i32, ELFKILN_READS(tile::A_BYTES), ELFKILN_READS(tile::B_BYTES),
              ELFKILN_UPDATES(tile::C_BYTES))

extern "C" {

void zero_i32(int32_t *__restrict c) { tile::zero(c); }

void matmul_i8_i32(int8_t *__restrict a, int8_t *__restrict b, int32_t *__restrict c) {
    event0();
    for (unsigned z = 0; z < tile::M_BLOCKS; z += 2)
        for (unsigned j = 0; j < tile::N_BLOCKS; j += 2)
            square(a, b, c, z, j);
    event1();
}
}

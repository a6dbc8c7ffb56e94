// int8 GEMM tile: entries zero_i32 and matmul_i8_i32. B is int8 in 8 x 8 blocks, row by row: block (i, j) is number
// i * (n / 8) + j. The tile (nt, ki) of the b8 layout lies so in memory; a row-major B is brought so by its DMA task.
//
// C is computed in squares of 2 x 2 blocks: four accumulators, which is what AIE2P has room for beside the operands.

#include "gemm_tile.h"

namespace {

using Block = aie::mmul<8, 8, 8, int8, int8>;

inline const int8_t *b_block(const int8_t *b, unsigned i, unsigned j) {
    return b + (i * tile::N_BLOCKS + j) * tile::BLOCK;
}

// One 2 x 2 square of blocks of C. The operands of the next step are loaded before this step's products: Peano does
// not pipeline them in software by itself.
inline void square(const int8_t *__restrict a, const int8_t *__restrict b, int32_t *__restrict c, unsigned z,
                   unsigned j) {
    int32_t *__restrict upper = tile::c_block(c, z, j);
    int32_t *__restrict lower = tile::c_block(c, z + 1, j);
    Block c00(aie::load_v<64>(upper)), c01(aie::load_v<64>(upper + tile::BLOCK));
    Block c10(aie::load_v<64>(lower)), c11(aie::load_v<64>(lower + tile::BLOCK));
    const int8_t *__restrict pa = tile::a_block(a, z, 0);
    const int8_t *__restrict pb = b_block(b, 0, j);
    aie::vector<int8, 64> a0 = aie::load_v<64>(pa), a1 = aie::load_v<64>(pa + tile::BLOCK);
    aie::vector<int8, 64> b0 = aie::load_v<64>(pb), b1 = aie::load_v<64>(pb + tile::BLOCK);
    ELFKILN_TURNS_AT_LEAST(1)
    for (unsigned i = 1; i < tile::K_BLOCKS; ++i) {
        pa += tile::M_BLOCKS * tile::BLOCK;
        pb += tile::N_BLOCKS * tile::BLOCK;
        const aie::vector<int8, 64> next_a0 = aie::load_v<64>(pa), next_a1 = aie::load_v<64>(pa + tile::BLOCK);
        const aie::vector<int8, 64> next_b0 = aie::load_v<64>(pb), next_b1 = aie::load_v<64>(pb + tile::BLOCK);
        c00.mac(a0, b0);
        c01.mac(a0, b1);
        c10.mac(a1, b0);
        c11.mac(a1, b1);
        a0 = next_a0;
        a1 = next_a1;
        b0 = next_b0;
        b1 = next_b1;
    }
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
ELFKILN_ENTRY(matmul_i8_i32, ELFKILN_READS(tile::A_BYTES), ELFKILN_READS(tile::B_BYTES),
              ELFKILN_UPDATES(tile::C_BYTES))

extern "C" {

void zero_i32(int32_t *c) { tile::zero(c); }

void matmul_i8_i32(int8_t *a, int8_t *b, int32_t *c) {
    event0();
    for (unsigned z = 0; z < tile::M_BLOCKS; z += 2)
        for (unsigned j = 0; j < tile::N_BLOCKS; j += 2)
            square(a, b, c, z, j);
    event1();
}
}

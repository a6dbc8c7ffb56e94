// The tile of a GEMM that one core computes: C (m x n) += A (m x k) * B (k x n), in 8 x 8 blocks of 64 elements.
//
// Blocks are row by row inside. Those of A lie k-block-major, as the DMA brings them: block (z, i) of rows 8z..,
// columns 8i.. is number i * (m / 8) + z. Those of C lie row by row: block (z, j) is number z * (n / 8) + j.
//
// How loops are written here, because of what Peano makes of them: bounds are constants and stand in the loop alone. A
// pragma with a least number of turns would override the number that is known, and a least number of 1 forbids the
// hardware loop. Operands are loaded in the turn that uses them, and pointers step at its end: Peano pipelines such a
// loop itself, while operands carried from turn to turn by hand are moves between registers and a longer prologue.

#ifndef ELFKILN_GEMM_TILE_H
#define ELFKILN_GEMM_TILE_H

#include <stdint.h>
#include <type_traits>

#include <aie_api/aie.hpp>

#include "kernel_entry.h"

#if !defined(DIM_M) || !defined(DIM_K) || !defined(DIM_N)
#error "compile with -DDIM_M=, -DDIM_K= and -DDIM_N=: the rows, depth and columns of a tile"
#endif

namespace tile {

constexpr unsigned m = DIM_M, k = DIM_K, n = DIM_N;
static_assert(m % 16 == 0 && m >= 16, "rows are blocked by two 8 x 8 blocks");
static_assert(k % 8 == 0 && k >= 8, "depth is blocked by 8");
static_assert(n % 32 == 0 && n >= 32, "columns are blocked by 8, and packed weights by 32");

constexpr unsigned BLOCK = 64;
constexpr unsigned M_BLOCKS = m / 8, K_BLOCKS = k / 8, N_BLOCKS = n / 8;
constexpr unsigned A_BYTES = m * k, B_BYTES = k * n, C_BYTES = m * n * 4;

// From a block of A to the next along k, and from a block of C to the one below it.
constexpr unsigned A_STEP = M_BLOCKS * BLOCK, C_STEP = N_BLOCKS * BLOCK;

using Bytes = aie::vector<int8, BLOCK>;

inline const int8_t *a_block(const int8_t *a, unsigned z, unsigned i) { return a + i * A_STEP + z * BLOCK; }
inline int32_t *c_block(int32_t *c, unsigned z, unsigned j) { return c + z * C_STEP + j * BLOCK; }

// Clears C in stores of 64 bytes.
inline void zero(int32_t *__restrict c) {
    const aie::vector<int32, 16> none = aie::zeros<int32, 16>();
    ELFKILN_UNROLL(8)
    for (unsigned i = 0; i < m * n / 16; ++i) {
        aie::store_v(c, none);
        c += 16;
    }
}

} // namespace tile

#endif

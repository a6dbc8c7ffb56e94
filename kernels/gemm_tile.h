// The tile of a GEMM that one core computes: C (m x n) += A (m x k) * B (k x n), in 8 x 8 blocks of 64 elements.
//
// Blocks are row by row inside. Those of A lie k-block-major, as a panel task streams them: block (z, i) of rows 8z..,
// columns 8i.. is number i * (m / 8) + z. Those of C lie row by row: block (z, j) is number z * (n / 8) + j.

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
static_assert(k % 8 == 0 && k >= 16, "depth is blocked by 8, and the loop over it is primed with one block");
static_assert(n % 32 == 0 && n >= 32, "columns are blocked by 8, and packed weights by 32");

constexpr unsigned BLOCK = 64;
constexpr unsigned M_BLOCKS = m / 8, K_BLOCKS = k / 8, N_BLOCKS = n / 8;
constexpr unsigned A_BYTES = m * k, B_BYTES = k * n, C_BYTES = m * n * 4;

inline const int8_t *a_block(const int8_t *a, unsigned z, unsigned i) { return a + (i * M_BLOCKS + z) * BLOCK; }
inline int32_t *c_block(int32_t *c, unsigned z, unsigned j) { return c + (z * N_BLOCKS + j) * BLOCK; }

// Clears C in stores of 64 bytes.
inline void zero(int32_t *__restrict c) {
    const aie::vector<int32, 16> none = aie::zeros<int32, 16>();
    ELFKILN_TURNS_AT_LEAST(16)
    for (unsigned i = 0; i < m * n; i += 16)
        aie::store_v(c + i, none);
}

} // namespace tile

#endif

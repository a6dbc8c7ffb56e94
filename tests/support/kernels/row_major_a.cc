// matmul_i8_i32 and zero_i32 for tiles of A whose 8 x 8 blocks lie row by row, as one task per tile brings them.

#include <stdint.h>

#include "kernel_entry.h"

constexpr unsigned m = DIM_M, k = DIM_K, n = DIM_N;

ELFKILN_ENTRY(zero_i32, ELFKILN_WRITES(m *n * 4))
ELFKILN_ENTRY(matmul_i8_i32, ELFKILN_READS(m *k), ELFKILN_READS(k *n), ELFKILN_UPDATES(m *n * 4))

extern "C" {

void zero_i32(int32_t *c) {
    for (unsigned i = 0; i < m * n; ++i)
        c[i] = 0;
}

void matmul_i8_i32(int8_t *a, int8_t *b, int32_t *c) {
    for (unsigned row = 0; row < m; ++row)
        for (unsigned column = 0; column < n; ++column)
            for (unsigned i = 0; i < k; ++i)
                c[(row / 8 * (n / 8) + column / 8) * 64 + row % 8 * 8 + column % 8] +=
                    a[(row / 8 * (k / 8) + i / 8) * 64 + row % 8 * 8 + i % 8] *
                    b[(i / 8 * (n / 8) + column / 8) * 64 + i % 8 * 8 + column % 8];
}
}

"""int8 GEMM 16x5120x14336 (M x K x N) on npu2, 1 x 8 cores; family n1_blocked, weights in layout b8.

C[M, N] = A[M, K] @ B[K, N]. A is int8, C is int32, both row-major.
B is int8 in tiles of 64 x 128, 8192 bytes each, tile-n-major; inside a tile 8 x 8 blocks lie row by row. So the K panel
of one column of tiles is one run of memory.

Each core owns one m x n tile of C at a time. It walks K tile by tile: A comes along its row, B down its column.
A group is one such tile on every core; the groups follow each other until C is complete.

    A  shim r -> mem tile r (blocked there) -> every core of row r, in runs of 512 bytes
    B  shim c -> mem tile c -> every core of column c
    C  core of column c -> mem tile c (in rows again) -> shim c
"""

import numpy as np
from aie.dialects.aie import (
    AIEDevice,
    ObjectFifoPort,
    core,
    device,
    external_func,
    object_fifo,
    object_fifo_link,
    tile,
)
from aie.dialects.aiex import (
    dma_await_task,
    dma_free_task,
    dma_start_task,
    npu_load_pdi,
    runtime_sequence,
    shim_dma_single_bd_task,
)
from aie.extras.context import mlir_mod_ctx
from aie.helpers.dialects.scf import _for as range_

M, K, N = 16, 5120, 14336
m, k, n = 16, 64, 128
ROWS, COLS = 1, 8
A_RUN = 512  # bytes of a row of A that come together

K_TILES = K // k
ROW_GROUPS = M // (ROWS * m)
COL_GROUPS = N // (COLS * n)

# Objects in flight: A and B into the mem tile and on to the cores, C into the mem tile and out of it.
A_MEM_DEPTH, A_DEPTH = 2, 2
B_MEM_DEPTH, B_DEPTH = 4, 2
C_PART_DEPTH, C_DEPTH = 1, 2
STACK = 0x2000
FOREVER = 0xFFFFFFFF
KERNEL = "mm_16x64x128.o"

A_TILE = np.ndarray[(m, k), np.dtype[np.int8]]
A_ROWS = np.ndarray[(m, A_RUN), np.dtype[np.int8]]
C_TILE = np.ndarray[(m, n), np.dtype[np.int32]]
C_COLUMN = np.ndarray[(ROWS * m, n), np.dtype[np.int32]]
A_HOST = np.ndarray[(M * K,), np.dtype[np.int8]]
C_HOST = np.ndarray[(M * N,), np.dtype[np.int32]]
B_TILE = np.ndarray[(k, n), np.dtype[np.int8]]
B_HOST = np.ndarray[(K * N,), np.dtype[np.int8]]

# Sizes and strides by which DMAs turn rows into the 8 x 8 blocks that cores want, and blocks of C into rows again.
A_BLOCKS = [(A_RUN // 8, 8), (m, A_RUN), (8, 1)]  # out of rows of A_RUN; blocks of equal k side by side
C_ROWS = [(m // 8, 8 * n), (8, 8), (n // 8, 64), (8, 1)]


def fill_a(fifo, A, panel):
    """Send a row panel of A, m x K: A_RUN columns of its m rows, then the next A_RUN."""
    return shim_dma_single_bd_task(
        fifo, A, offset=panel * m * K, sizes=[1, K // A_RUN, m, A_RUN], strides=[0, A_RUN, K, 1]
    )


def fill_b(fifo, B, panel):
    """Send a column panel of B, K x n, as it lies: one linear task, which the FIFO cuts into tiles."""
    return shim_dma_single_bd_task(fifo, B, offset=panel * K * n, sizes=[1, 1, 1, K * n], strides=[0, 0, 0, 1])


def drain_c(fifo, C, row_group, panel):
    """Receive the ROWS * m x n of C that a column of cores made, row by row; the token says that it is in memory."""
    return shim_dma_single_bd_task(
        fifo,
        C,
        offset=row_group * ROWS * m * N + panel * n,
        sizes=[1, 1, ROWS * m, n],
        strides=[0, 0, N, 1],
        issue_token=True,
    )


with mlir_mod_ctx() as ctx:

    @device(AIEDevice.npu2, sym_name="main")
    def main():
        """Lay FIFOs and programs out on the array, and say how their data moves."""
        zero = external_func("zero_i32", inputs=[C_TILE], link_with=KERNEL)
        matmul = external_func("matmul_i8_i32", inputs=[A_TILE, B_TILE, C_TILE], link_with=KERNEL)

        shim = [tile(c, 0) for c in range(COLS)]
        mem = [tile(c, 1) for c in range(COLS)]
        cores = [[tile(c, 2 + r) for c in range(COLS)] for r in range(ROWS)]

        readers = cores  # of A, by row panel
        a_mem, a_in = [], []
        for r, places in enumerate(readers):
            a_mem.append(object_fifo(f"A_mem_{r}", shim[r], mem[r], A_MEM_DEPTH, A_ROWS))
            a_in.append(object_fifo(f"A_{r}", mem[r], places, A_DEPTH, A_TILE, dimensionsToStream=A_BLOCKS))
            object_fifo_link(a_mem[r], a_in[r])
        b_mem, b_in, c_part, c_out = [], [], [], []
        for c in range(COLS):
            column = [cores[r][c] for r in range(ROWS)]
            b_mem.append(object_fifo(f"B_mem_{c}", shim[c], mem[c], B_MEM_DEPTH, B_TILE))
            b_in.append(object_fifo(f"B_{c}", mem[c], column, B_DEPTH, B_TILE))
            object_fifo_link(b_mem[c], b_in[c])
            c_part.append([object_fifo(f"C_{c}_{r}", column[r], mem[c], C_PART_DEPTH, C_TILE) for r in range(ROWS)])
            c_out.append(object_fifo(f"C_{c}", mem[c], shim[c], C_DEPTH, C_COLUMN, dimensionsToStream=C_ROWS))
            object_fifo_link(c_part[c], c_out[c])

        def program(place, a_tiles, b_tiles, c_tiles):
            """Give a core its program: for every tile of C, sum the products of K_TILES pairs of tiles."""

            @core(place, stack_size=STACK)
            def body():
                for _ in range_(FOREVER):
                    acc = c_tiles.acquire(ObjectFifoPort.Produce, 1)
                    zero(acc)
                    for _ in range_(K_TILES):
                        a = a_tiles.acquire(ObjectFifoPort.Consume, 1)
                        b = b_tiles.acquire(ObjectFifoPort.Consume, 1)
                        matmul(a, b, acc)
                        a_tiles.release(ObjectFifoPort.Consume, 1)
                        b_tiles.release(ObjectFifoPort.Consume, 1)
                    c_tiles.release(ObjectFifoPort.Produce, 1)

        for r in range(ROWS):
            for c in range(COLS):
                program(cores[r][c], a_in[r], b_in[c], c_part[c][r])

        @runtime_sequence(A_HOST, B_HOST, C_HOST)
        def seq(A, B, C):
            npu_load_pdi(device_ref="main")

            # Two groups at a time: the tasks of a group are queued behind those of the group before it, which ends
            # with its drains; only then are its fills, long done, given back.
            previous = None
            for row_group in range(ROW_GROUPS):
                for col_group in range(COL_GROUPS):
                    panels = [col_group * COLS + c for c in range(COLS)]
                    fills = [fill_a(a_mem[r], A, row_group * ROWS + r) for r in range(ROWS)]
                    fills += [fill_b(b_mem[c], B, panels[c]) for c in range(COLS)]
                    drains = [drain_c(c_out[c], C, row_group, panels[c]) for c in range(COLS)]
                    dma_start_task(*fills)
                    dma_start_task(*drains)
                    if previous:
                        dma_await_task(*previous[1])
                        dma_free_task(*previous[0])
                    previous = fills, drains
            dma_await_task(*previous[1])
            dma_free_task(*previous[0])

    print(ctx.module)

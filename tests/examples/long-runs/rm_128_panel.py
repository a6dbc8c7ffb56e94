"""int8 GEMM 128x5120x14336 (M x K x N) on npu2, 4 x 8 cores; family row_major, weights in layout rm.

C[M, N] = A[M, K] @ B[K, N]. A is int8, C is int32, both row-major.
B is int8, row-major too: a task cuts up to TILES_A_TASK tiles out of a column panel, in blocks of 8 x 8.

Each core owns one m x n tile of C at a time. It walks K tile by tile: A comes along its row, B down its column.
A group is one such tile on every core; the groups follow each other until C is complete.

    A  in long runs, as fill_a says; blocked on its way to the cores
    B  shim c -> mem tile c -> every core of column c
    C  cores of column c -> mem tile c (joined) -> shim c
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

M, K, N = 128, 5120, 14336
m, k, n = 32, 64, 128
ROWS, COLS = 4, 8

K_TILES = K // k
ROW_GROUPS = M // (ROWS * m)
COL_GROUPS = N // (COLS * n)

# Objects in flight: A, B into and out of the mem tile, C into and out of the mem tile.
A_DEPTH, B_MEM_DEPTH, B_DEPTH, C_PART_DEPTH, C_DEPTH = 2, 4, 2, 1, 2
STACK = 0x2000
FOREVER = 0xFFFFFFFF
KERNEL = "mm_32x64x128.o"

A_TILE = np.ndarray[(m, k), np.dtype[np.int8]]
C_TILE = np.ndarray[(m, n), np.dtype[np.int32]]
C_COLUMN = np.ndarray[(ROWS * m, n), np.dtype[np.int32]]
A_HOST = np.ndarray[(M * K,), np.dtype[np.int8]]
C_HOST = np.ndarray[(M * N,), np.dtype[np.int32]]
B_TILE = np.ndarray[(k, n), np.dtype[np.int8]]
B_HOST = np.ndarray[(K * N,), np.dtype[np.int8]]

# The iteration of a task counts up to 64 blocks of 8 rows, which are 8 tiles of k = 64.
TILES_A_TASK = 8
TASKS_QUEUED = 3


def fill_a(fifo, A, panel):
    """Send a row panel of A, m x K, as [K / 8][m][8]: a tile arrives as 8 x 8 blocks, those of equal k side by side."""
    return shim_dma_single_bd_task(fifo, A, offset=panel * m * K, sizes=[1, K // k, m, k], strides=[0, k, K, 1])


def fill_b(fifo, B, panel):
    return shim_dma_single_bd_task(fifo, B, offset=panel * n, sizes=[1, K // k, k, n], strides=[0, k * N, N, 1])


def drain_c(fifo, C, row_group, panel):
    """Receive what a column of cores made of C, ROWS * m x n, in 8 x 8 blocks; the token says that it is in memory."""
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
        zero = external_func("zero_i32", inputs=[C_TILE], link_with=KERNEL)
        matmul = external_func("matmul_i8_i32", inputs=[A_TILE, B_TILE, C_TILE], link_with=KERNEL)

        shim = [tile(c, 0) for c in range(COLS)]
        mem = [tile(c, 1) for c in range(COLS)]
        cores = [[tile(c, 2 + r) for c in range(COLS)] for r in range(ROWS)]

        a_in = [object_fifo(f"A_{r}", shim[r], cores[r], A_DEPTH, A_TILE, dimensionsFromStreamPerConsumer=[[(m, 8), (k // 8, 8 * m), (8, 1)] for _ in cores[r]]) for r in range(ROWS)]
        b_mem, b_in, c_part, c_out = [], [], [], []
        for c in range(COLS):
            column = [cores[r][c] for r in range(ROWS)]
            b_mem.append(object_fifo(f"B_mem_{c}", shim[c], mem[c], B_MEM_DEPTH, B_TILE))
            b_in.append(object_fifo(f"B_{c}", mem[c], column, B_DEPTH, B_TILE, dimensionsToStream=[(k // 8, 8 * n), (n // 8, 8), (8, n), (8, 1)]))
            object_fifo_link(b_mem[c], b_in[c])
            c_part.append([object_fifo(f"C_{c}_{r}", column[r], mem[c], C_PART_DEPTH, C_TILE) for r in range(ROWS)])
            c_out.append(object_fifo(f"C_{c}", mem[c], shim[c], C_DEPTH, C_COLUMN, dimensionsToStream=[(m // 8, 8 * n), (8, 8), (n // 8, 64), (8, 1)]))
            object_fifo_link(c_part[c], c_out[c], [r * m * n for r in range(ROWS)])

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
                    fills = [fill_a(a_in[r], A, row_group * ROWS + r) for r in range(ROWS)]
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

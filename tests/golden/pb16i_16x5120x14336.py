"""int8 GEMM 16x5120x14336 (M x K x N) on npu2, 4 x 8 cores; family pb16i, weights in layout pb16i.

C[M, N] = A[M, K] @ B[K, N]. A is int8, C is int32, both row-major.
B is ternary, four weights a byte, in tiles of 64 x 128, 2048 bytes each, tile-n-major. So the K panel of one column of
tiles is one run of memory; the cores expand the weights as they multiply.

The cores of a column share an m x n tile of C: each makes PART columns of it, one tile at a time. It walks K tile by
tile: A comes to every core, B down its column, to each core its own part.
A group is one such tile on every column; the groups follow each other until C is complete.

    A  shim 0 -> mem tile 0 (blocked there) -> every core, in runs of 512 bytes
    B  shim c -> mem tile c -> the cores of column c, a part each
    C  cores of column c -> mem tile c (joined, in rows again) -> shim c
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
ROWS, COLS = 4, 8
PART = n // ROWS  # columns of a tile of C that one core makes
A_RUN = 512  # bytes of a row of A that come together

K_TILES = K // k
ROW_GROUPS = M // m
COL_GROUPS = N // (COLS * n)

# Objects in flight: A and B into the mem tile and on to the cores, C into the mem tile and out of it.
A_MEM_DEPTH, A_DEPTH = 2, 2
B_MEM_DEPTH, B_DEPTH = 2, 2
C_PART_DEPTH, C_DEPTH = 1, 2
STACK = 0x2000
FOREVER = 0xFFFFFFFF
KERNEL = "mm_pb16i_16x64x32.o"

A_TILE = np.ndarray[(m, k), np.dtype[np.int8]]
A_ROWS = np.ndarray[(m, A_RUN), np.dtype[np.int8]]
C_TILE = np.ndarray[(m, PART), np.dtype[np.int32]]
C_COLUMN = np.ndarray[(ROWS * m, PART), np.dtype[np.int32]]
A_HOST = np.ndarray[(M * K,), np.dtype[np.int8]]
C_HOST = np.ndarray[(M * N,), np.dtype[np.int32]]
B_BYTES = K * n // 4  # of a column panel
B_TILE = np.ndarray[(k * n // 4,), np.dtype[np.uint8]]
PART_BYTES = k * PART // 4  # of a tile: its weights of PART columns lie together
B_PART = np.ndarray[(PART_BYTES,), np.dtype[np.uint8]]
B_HOST = np.ndarray[(K * N // 4,), np.dtype[np.uint8]]

# Sizes and strides by which DMAs turn rows into the 8 x 8 blocks that cores want, and blocks of C into rows again.
A_BLOCKS = [(A_RUN // 8, 8), (m, A_RUN), (8, 1)]  # out of rows of A_RUN; blocks of equal k side by side
C_ROWS = [(m // 8, 8 * PART), (8, 8), (PART // 8, 64), (8, 1)]


def fill_a(fifo, A, panel):
    """Send a row panel of A, m x K: A_RUN columns of its m rows, then the next A_RUN."""
    return shim_dma_single_bd_task(
        fifo, A, offset=panel * m * K, sizes=[1, K // A_RUN, m, A_RUN], strides=[0, A_RUN, K, 1]
    )


def fill_b(fifo, B, panel):
    """Send a packed column panel of B, K x n, as it lies: one linear task, which the FIFO cuts into tiles."""
    return shim_dma_single_bd_task(fifo, B, offset=panel * B_BYTES, sizes=[1, 1, 1, B_BYTES], strides=[0, 0, 0, 1])


def drain_c(fifo, C, row_group, panel):
    """Receive the m x n tile of C that a column of cores made, PART columns a core; the token says that it is there."""
    return shim_dma_single_bd_task(
        fifo,
        C,
        offset=row_group * m * N + panel * n,
        sizes=[1, ROWS, m, PART],
        strides=[0, PART, N, 1],
        issue_token=True,
    )


with mlir_mod_ctx() as ctx:

    @device(AIEDevice.npu2, sym_name="main")
    def main():
        """Lay FIFOs and programs out on the array, and say how their data moves."""
        zero = external_func("zero_i32", inputs=[C_TILE], link_with=KERNEL)
        matmul = external_func("matmul_pb16i_i32", inputs=[A_TILE, B_PART, C_TILE], link_with=KERNEL)

        shim = [tile(c, 0) for c in range(COLS)]
        mem = [tile(c, 1) for c in range(COLS)]
        cores = [[tile(c, 2 + r) for c in range(COLS)] for r in range(ROWS)]

        readers = [[place for row in cores for place in row]]  # of A, by row panel
        a_mem, a_in = [], []
        for r, places in enumerate(readers):
            a_mem.append(object_fifo(f"A_mem_{r}", shim[r], mem[r], A_MEM_DEPTH, A_ROWS))
            a_in.append(object_fifo(f"A_{r}", mem[r], places, A_DEPTH, A_TILE, dimensionsToStream=A_BLOCKS))
            object_fifo_link(a_mem[r], a_in[r])
        b_mem, b_in, c_part, c_out = [], [], [], []
        for c in range(COLS):
            column = [cores[r][c] for r in range(ROWS)]
            b_mem.append(object_fifo(f"B_mem_{c}", shim[c], mem[c], B_MEM_DEPTH, B_TILE))
            b_in.append([object_fifo(f"B_{c}_{r}", mem[c], column[r], B_DEPTH, B_PART) for r in range(ROWS)])
            object_fifo_link(b_mem[c], b_in[c], [], [r * PART_BYTES for r in range(ROWS)])
            c_part.append([object_fifo(f"C_{c}_{r}", column[r], mem[c], C_PART_DEPTH, C_TILE) for r in range(ROWS)])
            c_out.append(object_fifo(f"C_{c}", mem[c], shim[c], C_DEPTH, C_COLUMN, dimensionsToStream=C_ROWS))
            object_fifo_link(c_part[c], c_out[c], [r * m * PART for r in range(ROWS)])

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
                program(cores[r][c], a_in[0], b_in[c][r], c_part[c][r])

        @runtime_sequence(A_HOST, B_HOST, C_HOST)
        def seq(A, B, C):
            npu_load_pdi(device_ref="main")

            # Two groups at a time: the tasks of a group are queued behind those of the group before it, which ends
            # with its drains; only then are its fills, long done, given back.
            previous = None
            for row_group in range(ROW_GROUPS):
                for col_group in range(COL_GROUPS):
                    panels = [col_group * COLS + c for c in range(COLS)]
                    fills = [fill_a(a_mem[0], A, row_group)]
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

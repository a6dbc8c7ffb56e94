"""Sealed decode GEMMs on npu2: 6 geometries on one configuration of 4 x 8 cores; family pb16i, layout pb16i.

C[m, N] = A[m, K] @ B[K, N] with m = 16 rows. A is int8, C is int32, both row-major.
B is ternary, four weights a byte, in tiles of k x n, 2048 bytes each, tile-n-major. So the K panel of one column of
tiles is one run of memory; the cores expand the weights as they multiply.

Sequence `init` configures the array, once. `seq_K<K>_N<N>` then runs one geometry: it writes the counts of that
geometry into every core, opens the core's lock and moves the data. The cores of a column share an m x n tile of C: each
makes PART columns of it, one tile at a time.

    A  shim 0 -> mem tile 0 (blocked there) -> every core, in runs of 512 bytes
    B  shim c -> mem tile c -> the cores of column c, a part each
    C  cores of column c -> mem tile c (joined, in rows again) -> shim c
"""

import numpy as np
from aie.dialects.aie import (
    AIEDevice,
    LockAction,
    ObjectFifoPort,
    buffer,
    core,
    device,
    external_func,
    lock,
    object_fifo,
    object_fifo_link,
    tile,
    use_lock,
)
from aie.dialects.aiex import (
    dma_await_task,
    dma_free_task,
    dma_start_task,
    npu_load_pdi,
    npu_rtp_write,
    runtime_sequence,
    set_lock_value,
    shim_dma_single_bd_task,
)
from aie.dialects.arith import IndexCastOp
from aie.extras.context import mlir_mod_ctx
from aie.helpers.dialects.scf import _for as range_
from aie.ir import IndexType

GEOMETRIES = [  # K, N
    (5120, 6144),
    (5120, 10240),
    (5120, 14336),
    (5120, 17408),
    (6144, 5120),
    (17408, 5120),
]
m, k, n = 16, 64, 128
ROWS, COLS = 4, 8
PART = n // ROWS  # columns of a tile of C that one core makes
A_RUN = 512  # bytes of a row of A that come together

# Objects in flight: A and B into the mem tile and on to the cores, C into the mem tile and out of it.
A_MEM_DEPTH, A_DEPTH = 2, 2
B_MEM_DEPTH, B_DEPTH = 2, 2
C_PART_DEPTH, C_DEPTH = 1, 2
STACK = 0x2000
FOREVER = 0xFFFFFFFF
KERNEL = "mm_pb16i_16x64x32.o"

# A core's counts: tiles of C it makes, and K tiles of each. Padded to 64 bytes: buffers behind it stay aligned.
GROUPS_AT, K_TILES_AT = 0, 1
COUNTS = np.ndarray[(16,), np.dtype[np.int32]]

PART_BYTES = k * PART // 4  # of a tile: its weights of PART columns lie together
A_TILE = np.ndarray[(m, k), np.dtype[np.int8]]
A_ROWS = np.ndarray[(m, A_RUN), np.dtype[np.int8]]
B_TILE = np.ndarray[(k * n // 4,), np.dtype[np.uint8]]
B_PART = np.ndarray[(PART_BYTES,), np.dtype[np.uint8]]
C_TILE = np.ndarray[(m, PART), np.dtype[np.int32]]
C_COLUMN = np.ndarray[(ROWS * m, PART), np.dtype[np.int32]]

# Sizes and strides by which DMAs turn rows into the 8 x 8 blocks that cores want, and blocks of C into rows again.
A_BLOCKS = [(A_RUN // 8, 8), (m, A_RUN), (8, 1)]  # out of rows of A_RUN; blocks of equal k side by side
C_ROWS = [(m // 8, 8 * PART), (8, 8), (PART // 8, 64), (8, 1)]


def host_types(a_elements, b_bytes, c_elements):
    """Return the types of the arguments of a sequence: A, packed B, C."""
    return (
        np.ndarray[(a_elements,), np.dtype[np.int8]],
        np.ndarray[(b_bytes,), np.dtype[np.uint8]],
        np.ndarray[(c_elements,), np.dtype[np.int32]],
    )


def fill_a(fifo, A, K):
    """Send A, m x K: A_RUN columns of its m rows, then the next A_RUN."""
    return shim_dma_single_bd_task(fifo, A, offset=0, sizes=[1, K // A_RUN, m, A_RUN], strides=[0, A_RUN, K, 1])


def fill_b(fifo, B, K, panel):
    """Send a packed column panel of B, K x n, as it lies: one linear task, which the FIFO cuts into tiles."""
    size = K * n // 4
    return shim_dma_single_bd_task(fifo, B, offset=panel * size, sizes=[1, 1, 1, size], strides=[0, 0, 0, 1])


def drain_c(fifo, C, N, panel):
    """Receive the m x n tile of C that a column of cores made, PART columns a core; the token says that it is there."""
    return shim_dma_single_bd_task(
        fifo, C, offset=panel * n, sizes=[1, ROWS, m, PART], strides=[0, PART, N, 1], issue_token=True
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

        everyone = [place for row in cores for place in row]
        a_mem = object_fifo("A_mem_0", shim[0], mem[0], A_MEM_DEPTH, A_ROWS)
        a_in = object_fifo("A_0", mem[0], everyone, A_DEPTH, A_TILE, dimensionsToStream=A_BLOCKS)
        object_fifo_link(a_mem, a_in)
        b_mem, b_in, c_part, c_out = [], [], [], []
        for c in range(COLS):
            column = [cores[r][c] for r in range(ROWS)]
            b_mem.append(object_fifo(f"B_mem_{c}", shim[c], mem[c], B_MEM_DEPTH, B_TILE))
            b_in.append([object_fifo(f"B_{c}_{r}", mem[c], column[r], B_DEPTH, B_PART) for r in range(ROWS)])
            object_fifo_link(b_mem[c], b_in[c], [], [r * PART_BYTES for r in range(ROWS)])
            c_part.append([object_fifo(f"C_{c}_{r}", column[r], mem[c], C_PART_DEPTH, C_TILE) for r in range(ROWS)])
            c_out.append(object_fifo(f"C_{c}", mem[c], shim[c], C_DEPTH, C_COLUMN, dimensionsToStream=C_ROWS))
            object_fifo_link(c_part[c], c_out[c], [r * m * PART for r in range(ROWS)])

        def program(r, c):
            """Give a core its program and return its lock: each time that opens, it runs the geometry in its counts."""
            counts = buffer(cores[r][c], COUNTS, f"counts_{c}_{r}", use_write_rtp=True)
            go = lock(cores[r][c], init=0, sym_name=f"go_{c}_{r}")

            @core(cores[r][c], stack_size=STACK)
            def body():
                for _ in range_(FOREVER):
                    use_lock(go, LockAction.AcquireGreaterEqual, value=1)
                    groups = IndexCastOp(IndexType.get(), counts[GROUPS_AT]).result
                    k_tiles = IndexCastOp(IndexType.get(), counts[K_TILES_AT]).result
                    for _ in range_(groups):
                        acc = c_part[c][r].acquire(ObjectFifoPort.Produce, 1)
                        zero(acc)
                        for _ in range_(k_tiles):
                            a = a_in.acquire(ObjectFifoPort.Consume, 1)
                            b = b_in[c][r].acquire(ObjectFifoPort.Consume, 1)
                            matmul(a, b, acc)
                            a_in.release(ObjectFifoPort.Consume, 1)
                            b_in[c][r].release(ObjectFifoPort.Consume, 1)
                        c_part[c][r].release(ObjectFifoPort.Produce, 1)

            return go

        doors = {(r, c): program(r, c) for r in range(ROWS) for c in range(COLS)}

        @runtime_sequence(*host_types(64, 64, 64), sym_name="init")
        def init(_A, _B, _C):
            npu_load_pdi(device_ref="main")

        def geometry(K, N):
            """Add the sequence that runs one geometry on the array as `init` left it."""

            @runtime_sequence(*host_types(m * K, K * N // 4, m * N), sym_name=f"seq_K{K}_N{N}")
            def seq(A, B, C):
                groups = N // (COLS * n)
                for (r, c), go in doors.items():
                    npu_rtp_write(f"counts_{c}_{r}", GROUPS_AT, groups)
                    npu_rtp_write(f"counts_{c}_{r}", K_TILES_AT, K // k)
                    set_lock_value(go, 1)

                # Two groups at a time: the tasks of a group are queued behind those of the group before it, which
                # ends with its drains; only then are its fills, long done, given back.
                previous = None
                for group in range(groups):
                    panels = [group * COLS + c for c in range(COLS)]
                    fills = [fill_a(a_mem, A, K)]
                    fills += [fill_b(b_mem[c], B, K, panels[c]) for c in range(COLS)]
                    drains = [drain_c(c_out[c], C, N, panels[c]) for c in range(COLS)]
                    dma_start_task(*fills)
                    dma_start_task(*drains)
                    if previous:
                        dma_await_task(*previous[1])
                        dma_free_task(*previous[0])
                    previous = fills, drains
                dma_await_task(*previous[1])
                dma_free_task(*previous[0])

        for K, N in GEOMETRIES:
            geometry(K, N)

    print(ctx.module)

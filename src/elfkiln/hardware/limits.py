"""Hardware and tool limits of the npu2 array (AIE2P): the one table of them, each row with its source.

The generators, the IRON stand-in and lint read the same rows: `limit("wrap", "core")` for a row with its source, or
the fields of `SHIM`, `MEM` and `CORE` for plain numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "mlir-aie AIETargetModel"
DIALECT = "mlir-aie AIEDialect.cpp"
SEQUENCE = "mlir-aie AIEXDialect.cpp"


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: what it bounds, on which kind of tile (`array` for the whole), its value, and who says so.

    `guess` marks a figure that no source we read states outright.
    """

    name: str
    where: str
    value: int
    unit: str
    meaning: str
    source: str
    guess: bool = False


LIMITS: tuple[Limit, ...] = (
    Limit("columns", "array", 8, "columns", "columns of the whole device", MODEL),
    Limit("rows", "array", 6, "rows", "rows: shim 0, mem tiles 1, cores 2 to 5", MODEL),
    Limit("word", "array", 4, "bytes", "offsets, lengths and strides of every DMA are whole words", MODEL),
    Limit("i32", "array", 2**31 - 1, "elements", "largest offset and length a dma_bd op can say", DIALECT),
    Limit("alignment", "array", 64, "bytes", "512-bit loads and stores", "aie_api detail/ld_st.hpp, mlir-aie #2579"),
    Limit("memory", "shim", 0, "bytes", "data memory", MODEL),
    Limit("memory", "mem", 0x80000, "bytes", "data memory", MODEL),
    Limit("memory", "core", 0x10000, "bytes", "data memory with the stack", MODEL),
    Limit("buffer", "core", 32, "bytes", "buffers begin at a multiple of it", "mlir-aie AIEAssignBuffers fe9db5312"),
    Limit("buffer", "mem", 4, "bytes", "buffers begin at a multiple of it", "mlir-aie AIEAssignBuffers fe9db5312"),
    Limit("bank", "mem", 0x10000, "bytes", "one of 8 memory banks", MODEL),
    Limit("bank", "core", 0x4000, "bytes", "one of 4 memory banks", MODEL),
    Limit("program", "core", 0x4000, "bytes", "program memory", "aie-rt (the core linker script says 0x20000)"),
    Limit("stack", "core", 0x400, "bytes", "stack of a core that names none", MODEL),
    Limit("s2mm", "shim", 2, "channels", "DMA channels into the tile", MODEL),
    Limit("s2mm", "mem", 6, "channels", "DMA channels into the tile", MODEL),
    Limit("s2mm", "core", 2, "channels", "DMA channels into the tile", MODEL),
    Limit("mm2s", "shim", 2, "channels", "DMA channels out of the tile", MODEL),
    Limit("mm2s", "mem", 6, "channels", "DMA channels out of the tile", MODEL),
    Limit("mm2s", "core", 2, "channels", "DMA channels out of the tile", MODEL),
    Limit("adjacent-channels", "mem", 4, "channels", "channels of a direction that reach a neighbour's memory", MODEL),
    Limit("descriptors", "shim", 16, "BDs", "buffer descriptors, shared by both directions", MODEL),
    Limit("descriptors", "mem", 48, "BDs", "buffer descriptors", MODEL),
    Limit("descriptors-of-parity", "mem", 24, "BDs", "ids 0-23 serve even channels, 24-47 odd ones", MODEL),
    Limit("descriptors", "core", 16, "BDs", "buffer descriptors", MODEL),
    Limit("locks", "shim", 16, "locks", "locks", MODEL),
    Limit("locks", "mem", 64, "locks", "locks", MODEL),
    Limit("locks", "core", 16, "locks", "locks", MODEL),
    Limit("lock-value", "array", 63, "", "largest value of a lock", MODEL),
    Limit("dims", "shim", 3, "dimensions", "dimensions of a descriptor without its iteration", MODEL),
    Limit("dims", "mem", 4, "dimensions", "dimensions of a descriptor", MODEL),
    Limit("dims", "core", 3, "dimensions", "dimensions of a descriptor", MODEL),
    Limit("wrap", "shim", 1023, "words", "size of a stepped dimension (10 bits)", SEQUENCE),
    Limit("wrap", "mem", 1023, "words", "size of a stepped dimension (10 bits)", SEQUENCE),
    Limit(
        "wrap",
        "core",
        255,
        "words",
        "size of a stepped dimension (8 bits); MLIR does not check it, aie-rt refuses it when it writes the CDO",
        "aie-rt _XAieMl_DmaSetMultiDim",
    ),
    # A stride field holds the stride less one, so b bits reach 2**b words.
    Limit("stride", "shim", 2**20, "words", "stride (20 bits)", SEQUENCE),
    Limit("stride", "mem", 2**17, "words", "stride (17 bits)", SEQUENCE),
    Limit("stride", "core", 2**13, "words", "stride (13 bits)", SEQUENCE),
    Limit("length", "shim", 2**32 - 1, "words", "length of a transfer (32 bits)", MODEL),
    Limit("length", "mem", 2**17 - 1, "words", "length of a transfer (17 bits)", MODEL),
    Limit("length", "core", 2**14 - 1, "words", "length of a transfer (14 bits)", MODEL),
    Limit("iterations", "array", 64, "runs", "outermost size of a task's tap (6 bits)", SEQUENCE),
    Limit("fifo-iterations", "array", 256, "runs", "iter_count of a FIFO", "mlir-aie ObjectFifoCreateOp::verify"),
    Limit("repeat", "shim", 255, "repeats", "repeat_count of a task in the start queue", "mlir-aie NpuPushQueueOp"),
    Limit(
        "task-queue",
        "shim",
        4,
        "tasks",
        "tasks a channel holds; a further push is dropped without a word",
        "mlir-aie PR 3734, mlir-air #1822",
    ),
    Limit(
        "verified-size",
        "array",
        512,
        "elements",
        "size the verifier takes in a FIFO's dims; it refuses 513 with the text 'Size may not exceed 1023'",
        f"{DIALECT} DMABDOp::verify up to 2026",
    ),
    Limit("verified-stride", "array", 2**19 - 1, "elements", "stride the verifier takes", f"{DIALECT} DMABDOp::verify"),
    Limit(
        "short-run",
        "shim",
        64,
        "bytes",
        "shortest run of memory that a task should move: the shortest burst of the shim's port",
        "mlir-aie AIETargetModel, burst lengths",
    ),
    Limit("element", "shim", 4, "bytes", "element of a task's buffer", SEQUENCE),
)

_ROWS = {(row.name, row.where): row for row in LIMITS}


def limit(name: str, where: str = "array") -> Limit:
    """Return the row of a limit on a kind of tile (`KeyError` if the table has none).

    >>> limit("wrap", "core").value, limit("task-queue", "shim").source
    (255, 'mlir-aie PR 3734, mlir-air #1822')
    """
    return _ROWS[name, where]


WORD_BYTES = limit("word").value
I32_LIMIT = limit("i32").value


@dataclass(frozen=True, slots=True)
class TileLimits:
    """What one kind of tile has. Sizes and strides of buffer descriptors count 32-bit words.

    `memory` is the data memory in bytes (0: none), `into_tile` and `out_of_tile` the S2MM and MM2S DMA channels,
    `descriptors` the buffer descriptors, `dims` the dimensions of a descriptor without its iteration, `wrap` the
    largest size of a dimension, `stride` the largest stride, `length` the longest transfer, `iterations` the most
    repeats of one descriptor, `max_lock` the largest value of a lock.
    """

    memory: int
    into_tile: int
    out_of_tile: int
    descriptors: int
    locks: int
    dims: int
    wrap: int
    stride: int
    length: int
    iterations: int = limit("iterations").value
    max_lock: int = limit("lock-value").value


def _tile_limits(where: str) -> TileLimits:
    names = ("memory", "s2mm", "mm2s", "descriptors", "locks", "dims", "wrap", "stride", "length")
    return TileLimits(*(limit(name, where).value for name in names))


SHIM = _tile_limits("shim")
MEM = _tile_limits("mem")
CORE = _tile_limits("core")

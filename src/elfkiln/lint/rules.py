"""The rules of lint: one row each, with the source of what it says and what the tools do in its place."""

from __future__ import annotations

from dataclasses import dataclass

from elfkiln.hardware import limits

ERROR = "error"
WARNING = "warning"

SILENT = "nothing downstream reports it"
TRANSFORM = "mlir-aie AIEObjectFifoStatefulTransform"
VERIFY = "mlir-aie DMABDOp::verify"
STRIDES = "mlir-aie AIEXDialect verifyStridesWraps"
TASKS = "mlir-aie AIEDMATasksToNPU"
BD_IDS = "mlir-aie AIEAssignRuntimeSequenceBDIDs"
FIFO_VERIFY = "mlir-aie ObjectFifoCreateOp::verify"
BARRIER = "mlir-aie IRON WorkerRuntimeBarrier"
LINK_VERIFY = "mlir-aie ObjectFifoLinkOp::verify"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: an `error` fails or hangs, a `warning` is a known trap that may be meant.

    `downstream` says what the later tools do about it: their text, or that they say nothing. `targets` are the
    targets whose designs it concerns.
    """

    name: str
    severity: str
    meaning: str
    source: str
    downstream: str = ""
    targets: tuple[str, ...] = ("npu2", "sim")


RULES: tuple[Rule, ...] = (
    # The array.
    Rule("device", ERROR, "the device is one of the npu2 family", limits.MODEL),
    Rule("tile-range", ERROR, "every tile lies on the device", limits.MODEL),
    Rule("core-per-tile", ERROR, "a tile has at most one core, and only compute tiles have one", limits.DIALECT),
    Rule("symbol", ERROR, "names are used once, and what is named exists", limits.DIALECT),
    Rule("l1-memory", ERROR, "stack and buffers of a core fit its data memory", limits.MODEL),
    Rule("mem-tile-memory", ERROR, "buffers of a mem tile fit it", limits.MODEL),
    Rule(
        "memory-bank",
        WARNING,
        "buffers fit the banks",
        "mlir-aie AIEAssignBuffers",
        "the allocator falls back to basic-sequential with warnings; --alloc-scheme=bank-aware refuses",
        ("npu2",),
    ),
    Rule(
        "alignment",
        WARNING,
        "what stands below a buffer in memory is a multiple of 64 bytes",
        "aie_api detail/ld_st.hpp, mlir-aie #2579",
        "a misaligned 512-bit access hits the truncated address; " + SILENT,
    ),
    Rule(
        "stack-bank",
        ERROR,
        "a stack fits one bank where the buffers fit the banks (or the tile's allocation_scheme is basic-sequential)",
        "mlir-aie AIEAssignBuffers simpleBankAwareAllocation",
        "'overlaps with stack' since May 2026; before, a buffer silently lies inside the stack",
    ),
    Rule(
        "mem-tile-spill",
        WARNING,
        "objects of a mem tile lie in its own memory",
        TRANSFORM,
        "the compiler puts them into a neighbour, where its own objects may not find room any more",
    ),
    Rule(
        "dynamic-counters",
        WARNING,
        "a core has room for the counters with which its FIFOs are lowered dynamically",
        "mlir-aie 0ca8da134 --dynamic-objFifos, default since June 2026",
        "'allocated buffers exceeded available memory' where the lowering is dynamic; the static one needs none",
    ),
    Rule(
        "buffer-address",
        ERROR,
        "a buffer's address is aligned, and free between the stack and the memory's end",
        "mlir-aie AIEAssignBuffers",
        "'address must be aligned' or 'would override allocated address'; older tools move the buffer with a warning",
    ),
    Rule("stack-size", ERROR, "a stack has bytes and fits the data memory", limits.MODEL),
    Rule(
        "dma-channels",
        ERROR,
        "the FIFO ends of a tile fit its DMA channels",
        limits.MODEL,
        "the tools say only that the number of input or output DMA channels is exceeded",
    ),
    Rule(
        "descriptors",
        ERROR,
        "the buffer descriptors of a tile's FIFO ends fit",
        limits.MODEL,
        "Allocator exhausted available BD IDs",
    ),
    Rule("locks", ERROR, "the locks of a tile's FIFO ends and its named locks fit", limits.MODEL),
    Rule(
        "lock-id",
        ERROR,
        "locks that a design numbers itself are of their tile and different",
        "mlir-aie AIEAssignLockIDs",
        "'is assigned to the same lock' or 'lock assigned invalid id'",
    ),
    Rule("lock-value", ERROR, "no lock has to hold more than its field", limits.MODEL),
    Rule(
        "one-column",
        WARNING,
        "a design of three or more shim FIFOs uses two columns or more",
        "1bit-MONSTER #1208",
        "one column compiles and returns zeros; " + SILENT,
    ),
    # FIFOs.
    Rule("fifo-consumer", ERROR, "a FIFO has a consumer", "mlir-aie IRON"),
    Rule("fifo-depth", ERROR, "a FIFO has one depth of at least 1 per end", FIFO_VERIFY),
    Rule("fifo-object", ERROR, "what a descriptor moves is made of whole 32-bit words", VERIFY),
    Rule("fifo-initial", ERROR, "initial values are one whole object for each of a FIFO's depth", FIFO_VERIFY),
    Rule(
        "initial-values",
        ERROR,
        "no FIFO has initial values: aiecc stops at an assertion over their type",
        "aiecc of April and August 2026, cast<TensorType> in Casting.h",
        "a build of aiecc without assertions goes on, to what is not known",
        ("npu2",),
    ),
    Rule(
        "fifo-linked",
        ERROR,
        "what enters a mem tile leaves it by a link, and what leaves it entered by one",
        "mlir-aie AIEObjectFifoVerify",
    ),
    Rule(
        "fifo-idle",
        ERROR,
        "every core at a FIFO's end has a program that uses it",
        TRANSFORM,
        "the stream stops when the buffers are full; " + SILENT,
    ),
    Rule("fifo-repeat", ERROR, "repeat_count does not stand on a FIFO the shim produces", FIFO_VERIFY),
    Rule("fifo-iterations", ERROR, "iter_count is 1 to 256 and stands on a FIFO with a mem tile end", FIFO_VERIFY),
    Rule("shim-dims", ERROR, "a shim end has no dims: the task's tap orders the data", FIFO_VERIFY),
    Rule("dim-count", ERROR, "a FIFO end has no more dims than the tile's descriptors", VERIFY),
    Rule(
        "dim-size",
        ERROR,
        "no size of a FIFO's dims is over 512 elements",
        VERIFY,
        "the verifier refuses 513 and more with the misleading text 'Size may not exceed 1023'",
    ),
    Rule(
        "dim-wrap",
        ERROR,
        "no size of a FIFO's dims is over the tile's wrap field",
        "aie-rt _XAieMl_DmaSetMultiDim",
        "on cores MLIR does not check it: aie-rt fails when the CDO is written, 'Invalid stepsize or wrap'",
    ),
    Rule(
        "dim-stride",
        ERROR,
        "no stride of a FIFO's dims is over the tile's step field, or longer than the buffer",
        STRIDES,
        "'Step size exceeds memref size', of a size of 1 too",
    ),
    Rule("dim-zero-stride", ERROR, "strides of a FIFO's dims are positive", VERIFY, "Invalid step size"),
    Rule("dim-inner-stride", ERROR, "the innermost stride of elements below 32 bits is 1", VERIFY),
    Rule("dim-words", ERROR, "inner size and outer strides are whole 32-bit words", VERIFY),
    Rule("dim-bounds", ERROR, "dims stay inside what their descriptor moves", VERIFY, "out of bounds access in buffer"),
    Rule(
        "dim-product",
        ERROR,
        "dims move exactly what their descriptor moves",
        VERIFY,
        "the last dimension runs on; " + SILENT,
    ),
    Rule("transfer-length", ERROR, "an object is not longer than the tile's length field", VERIFY),
    # Links.
    Rule("link-shape", ERROR, "a link is 1 to 1, n to 1 or 1 to n", LINK_VERIFY),
    Rule("link-tile", ERROR, "the FIFOs of a link meet on one tile", LINK_VERIFY),
    Rule("link-mem-tile", ERROR, "join and distribute stand on a mem tile", LINK_VERIFY),
    Rule("link-once", ERROR, "a FIFO is in one link only", LINK_VERIFY),
    Rule(
        "link-offsets",
        ERROR,
        "offsets of a join or distribute are those of its pieces",
        "mlir-aie getJoinTransferLengths",
        "lengths come from the differences of the offsets, not from the pieces: hang or wrong data; " + SILENT,
    ),
    Rule(
        "broadcast-through-link",
        ERROR,
        "a distribute hands out pieces, it does not broadcast",
        "1bit-MONSTER #1207",
        "objects go round robin and each core sees 1/n of them; " + SILENT,
    ),
    Rule("link-access", ERROR, "no core on the link's tile uses a linked FIFO", "mlir-aie AIEObjectFifoSplit"),
    Rule(
        "link-repeat",
        ERROR,
        "what a join sends has no repeat_count",
        TRANSFORM,
        "aiecc reads offsets past their end: it stops at an assertion, or does anything where there are none",
    ),
    # Core programs.
    Rule("core-fifo", ERROR, "a core uses a FIFO at the end that is on its tile", limits.DIALECT),
    Rule("acquire-depth", ERROR, "a core acquires no more objects than there are at its end", TRANSFORM, SILENT),
    Rule(
        "release-held",
        ERROR,
        "a core releases no more objects than it holds",
        "mlir-aie AIEObjectFifoVerify",
        "cannot release more elements than are already acquired",
    ),
    Rule(
        "release-missing",
        ERROR,
        "a core gives back what it acquires in every turn of its endless loop",
        TRANSFORM,
        "the FIFO stops when its buffers are full (or nothing ever leaves it): it hangs on the hardware; " + SILENT,
    ),
    Rule(
        "object-released",
        ERROR,
        "a core uses no object that it has released",
        "mlir-aie AIEObjectFifoSplit",
        "the DMA may be writing the next object there: wrong data; " + SILENT,
    ),
    Rule(
        "object-unwritten",
        WARNING,
        "a kernel was given each object that a core releases, where it is given any of the FIFO",
        "elfkiln",
        "what lay in memory goes out; " + SILENT,
    ),
    Rule("object-index", ERROR, "a core uses an object it has acquired", limits.DIALECT),
    Rule("kernel-unknown", ERROR, "a called kernel is declared", "mlir func.call"),
    Rule(
        "kernel-object",
        ERROR,
        "a called kernel has an object file to link",
        "mlir-aie AIEAssignCoreLinkFiles",
        "the linker stops at an undefined symbol",
    ),
    Rule("kernel-entry", ERROR, "the object file defines the kernel's entry", "ld.lld"),
    Rule("kernel-arguments", ERROR, "a call has as many arguments as the kernel", "mlir-aie IRON Kernel"),
    Rule("kernel-type", ERROR, "a call's arguments have the kernel's types", "mlir func.call"),
    Rule(
        "c-tile",
        WARNING,
        "A, B and C tiles of a matmul fit each other and the 8x8x8 blocks",
        "mlir-aie aie_kernels/aie2p/mm.cc",
        "the kernel reads beside its tiles; " + SILENT,
    ),
    # Taps of tasks.
    Rule("task-fifo", ERROR, "a task drives a FIFO with one end on a shim tile", TASKS),
    Rule("task-argument", ERROR, "a task moves an argument of its sequence", TASKS),
    Rule("tap-rank", ERROR, "a tap has as many strides as sizes, at most 4", TASKS),
    Rule(
        "tap-short",
        ERROR,
        "a tap of fewer than 4 sizes starts with 1",
        "mlir-aie aiex.py shim_dma_bd",
        "silent case: the first size is taken as data and as repeat_count, the data is sent that many times over",
    ),
    Rule("tap-range", ERROR, "a tap stays inside its buffer", TASKS, "silent case: only the start is checked"),
    Rule(
        "tap-length",
        ERROR,
        "a task's length is the product of the three inner sizes",
        TASKS,
        "Buffer descriptor length does not match",
    ),
    Rule("tap-long", ERROR, "offset and length fit the 32 bits of the op", limits.DIALECT),
    Rule("tap-words", ERROR, "offset, inner size and strides are whole 32-bit words", STRIDES),
    Rule("tap-inner-stride", ERROR, "the innermost stride of elements below 32 bits is 1", STRIDES),
    Rule("tap-zero-stride", ERROR, "strides are positive but for the outermost of 4", STRIDES),
    Rule("tap-wrap", ERROR, "the two inner sizes fit their fields unless the tap is linear", STRIDES),
    Rule("tap-stride", ERROR, "strides fit their field", STRIDES),
    Rule(
        "tap-iterations",
        ERROR,
        "the outermost size fits the iteration field, whatever its stride",
        STRIDES,
        "'Size 3 exceeds the [1:64] range' from 66 on; 65 with stride 0 slips through",
    ),
    Rule("tap-burst", ERROR, "burst_length is 0, 64, 128, 256 or 512 bytes", "mlir-aie AIEX NpuWriteBdOp::verify"),
    Rule("tap-repeat", ERROR, "repeat_count fits the start queue", "mlir-aie NpuPushQueueOp"),
    Rule("tap-element", ERROR, "elements have at most 32 bits", STRIDES),
    Rule(
        "tap-iteration-repeat",
        WARNING,
        "repeat_count + 1 is the outermost of 4 sizes",
        "mlir-aie aiex.py shim_dma_bd",
        "a part of the tap is left out, or moved twice; " + SILENT,
    ),
    Rule(
        "tap-contiguous",
        WARNING,
        "a repeated tap is not one linear run in 4 dims",
        "mlir-aie a5850617d to 8125c3317",
        "silent case: aiecc of 2026-04-07 to 05-11 loses the iteration stride, every repeat moves the same block",
        ("npu2",),
    ),
    Rule(
        "tap-short-runs",
        WARNING,
        "a task's runs of memory are not shorter than a burst of the shim's port",
        "docs/performance.md",
        SILENT,
    ),
    # What a sequence does.
    Rule(
        "no-sequence",
        ERROR,
        "a design has a runtime sequence",
        "mlir-aie aiecc",
        "silent case: aiecc ends with exit code 0 and writes no ELF",
    ),
    Rule(
        "load-pdi",
        ERROR,
        "a sequence begins with load_pdi of its own device, or another one of the design does",
        "mlir-aie test/npu-xrt/loadpdi",
        "silent case: nothing configures the array, the run times out",
    ),
    Rule(
        "live-descriptors",
        ERROR,
        "no more tasks hold descriptors of one shim than it has",
        BD_IDS,
        "'Allocator exhausted available buffer descriptor IDs' or 'Too many simultaneously active buffer descriptors'",
    ),
    Rule(
        "task-queue",
        ERROR,
        "no more tasks wait in a channel than its queue and the FIFO behind it take",
        "mlir-aie PR 3734, mlir-air #1822",
        "the push is dropped and the run hangs; " + SILENT,
    ),
    Rule(
        "task-queue-full",
        WARNING,
        "no more tasks are un-awaited in a channel than its queue holds",
        "mlir-aie PR 3734, mlir-air #1822",
        "5 to 8 un-awaited tasks of one channel are reported to hang",
    ),
    Rule("task-unstarted", ERROR, "a configured task is started", TASKS, SILENT),
    Rule("task-restarted", ERROR, "a task is started once", BD_IDS, SILENT),
    Rule("task-ended", ERROR, "an awaited or freed task is not started, awaited or freed again", BD_IDS),
    Rule(
        "await-token",
        ERROR,
        "an awaited task issues a token",
        TASKS,
        "Cannot wait on a BD that is not configured to issue a token",
    ),
    Rule("await-unstarted", ERROR, "a task is awaited after its start", BD_IDS, "the sequence blocks for ever"),
    Rule(
        "await-early",
        ERROR,
        "by the await of a task all that brings its data, or makes room for it, is started or fits the FIFOs",
        "elfkiln",
        "it hangs on the hardware; " + SILENT,
    ),
    Rule(
        "task-stuck",
        ERROR,
        "every started task ends when all of the sequence is done",
        "elfkiln",
        "its data stays in the stream, the next run hangs; " + SILENT,
    ),
    Rule(
        "token-order",
        ERROR,
        "tokens of a channel are awaited in the order of their tasks",
        BD_IDS + " d71539a74",
        "the await takes the token of an earlier task and ends too soon; older aiecc says nothing",
    ),
    Rule("token-left", WARNING, "every token is awaited", BD_IDS, SILENT),
    Rule(
        "free-early",
        ERROR,
        "a task is freed after something has shown that it is done",
        "mlir-aie PR 1919",
        "the next task overwrites its descriptor while it is queued; " + SILENT,
    ),
    Rule(
        "drain-wait",
        ERROR,
        "a drain is awaited",
        TASKS,
        "silent case: the run ends before the data is there and the host reads early",
    ),
    Rule("task-leak", WARNING, "a started task is awaited or freed", BD_IDS, "its descriptor is never given back"),
    Rule(
        "flow-total",
        ERROR,
        "fills and drains are what the cores take and give",
        "elfkiln",
        "silent case: it hangs on the hardware, and on nothing else",
    ),
    Rule(
        "lock-grants",
        ERROR,
        "a core that waits for a lock is let through as often as its data needs",
        "elfkiln",
        "it hangs on the hardware; " + SILENT,
    ),
    Rule(
        "lock-set",
        ERROR,
        "the lock of a core that a sequence serves is set once before what the core makes is awaited",
        BARRIER,
        "without a set it hangs, a second one is lost if the core has not taken the first; " + SILENT,
    ),
    # Run-time parameters.
    Rule(
        "parameter-guard",
        ERROR,
        "a core reads its run-time parameters after it acquired a lock on its tile, in every turn",
        BARRIER,
        "the core may read before the sequence writes; " + SILENT,
    ),
    Rule(
        "parameter-unwritten",
        ERROR,
        "a sequence writes every parameter that a core reads before it sets the core's lock",
        BARRIER,
        "the core goes by what an earlier run left there; " + SILENT,
    ),
    Rule(
        "parameter-width",
        ERROR,
        "run-time parameters have at most 32 bits",
        "mlir-aie AIEXDialect NpuWriteRTPOp",
        "each write is one word of the element: the core may read one half new and one old; " + SILENT,
    ),
    Rule(
        "parameter-late",
        ERROR,
        "no parameter of a core is written while its lock is open, nor after the last set of it",
        BARRIER,
        "the core may have read the old value already; " + SILENT,
    ),
    Rule(
        "engine-entry",
        WARNING,
        "the engine finds the device and sequence it opens",
        "1bit-MONSTER init_elf, mlir-air #1978",
        "the engine opens main:seq; an inner sequence hangs instead of failing",
        ("npu2",),
    ),
    Rule(
        "gemm-walk",
        WARNING,
        "where cores multiply tiles, the tasks on A, B and C walk them as a GEMM does",
        "docs/families.md",
        "it computes another product; " + SILENT,
    ),
)

_BY_NAME = {rule.name: rule for rule in RULES}


def rule(name: str) -> Rule:
    """Return a rule by its name (`KeyError` if there is none).

    >>> rule("dim-size").downstream
    "the verifier refuses 513 and more with the misleading text 'Size may not exceed 1023'"
    """
    return _BY_NAME[name]

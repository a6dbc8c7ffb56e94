"""Operations of the aie dialect that designs use: the array's tiles, FIFOs, buffers, locks and core programs."""

from __future__ import annotations

from enum import IntEnum

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FlatSymbolRefAttrConstr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    SymbolNameConstraint,
    i32,
    i64,
)
from xdsl.ir import Dialect, Region
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import IsTerminator, NoTerminator, OptionalSymbolOpInterface, SymbolOpInterface, SymbolTable

from elfkiln.design.mlir.attributes import (
    BDDimLayoutArrayArrayAttr,
    BDDimLayoutArrayAttr,
    ObjectFifoSubviewType,
    ObjectFifoType,
)

_I32 = IntegerAttr.constr(i32)
_SYMBOLS = ArrayAttr.constr(FlatSymbolRefAttrConstr)


class Port(IntEnum):
    """The end of an object FIFO that a core uses."""

    Produce = 0
    Consume = 1


class LockAction(IntEnum):
    """What `aie.use_lock` does."""

    Acquire = 0
    Release = 1
    AcquireGreaterEqual = 2


@irdl_op_definition
class EndOp(IRDLOperation):
    """Ends a device, a core or a task."""

    name = "aie.end"

    traits = traits_def(IsTerminator())


@irdl_op_definition
class DeviceOp(IRDLOperation):
    """One configuration of the array. The rules between its operations are in `elfkiln.design.mlir.verifiers`."""

    name = "aie.device"

    device = prop_def(_I32)
    sym_name = prop_def(SymbolNameConstraint())
    body: Region = region_def("single_block")

    traits = traits_def(SymbolTable(), SymbolOpInterface())

    def verify_(self) -> None:
        """Check every rule between the operations of the device."""
        from elfkiln.design.mlir.verifiers import check_device

        check_device(self)


@irdl_op_definition
class TileOp(IRDLOperation):
    """A tile by its place."""

    name = "aie.tile"

    col = prop_def(_I32)
    row = prop_def(_I32)
    allocation_scheme = opt_prop_def(StringAttr)
    result = result_def(IndexType)


@irdl_op_definition
class ObjectFifoCreateOp(IRDLOperation):
    """An object FIFO from the first tile to the others; `elemNumber` is one depth, or one per end."""

    name = "aie.objectfifo"

    producer = operand_def(IndexType)
    consumers = var_operand_def(IndexType)
    sym_name = prop_def(SymbolNameConstraint())
    elem_number = prop_def(_I32 | ArrayAttr.constr(_I32), prop_name="elemNumber")
    elem_type = prop_def(ObjectFifoType, prop_name="elemType")
    to_stream = prop_def(BDDimLayoutArrayAttr, prop_name="dimensionsToStream")
    from_stream = prop_def(BDDimLayoutArrayArrayAttr, prop_name="dimensionsFromStreamPerConsumer")
    via_dma = prop_def(BoolAttr, prop_name="via_DMA")
    plio = prop_def(BoolAttr)
    disable_synchronization = prop_def(BoolAttr)
    repeat_count = opt_prop_def(_I32)
    iter_count = opt_prop_def(_I32)
    init_values = opt_prop_def(ArrayAttr, prop_name="initValues")

    traits = traits_def(SymbolOpInterface())


@irdl_op_definition
class ObjectFifoLinkOp(IRDLOperation):
    """Moves the objects of FIFOs on to others at the tile they share; offsets count elements."""

    name = "aie.objectfifo.link"

    ins = prop_def(_SYMBOLS, prop_name="fifoIns")
    outs = prop_def(_SYMBOLS, prop_name="fifoOuts")
    src_offsets = prop_def(ArrayAttr[IntegerAttr])
    dst_offsets = prop_def(ArrayAttr[IntegerAttr])


@irdl_op_definition
class ObjectFifoAcquireOp(IRDLOperation):
    """A core takes `size` objects of a FIFO."""

    name = "aie.objectfifo.acquire"

    fifo = prop_def(FlatSymbolRefAttrConstr, prop_name="objFifo_name")
    port = prop_def(_I32)
    size = prop_def(_I32)
    subview = result_def(ObjectFifoSubviewType)


@irdl_op_definition
class ObjectFifoReleaseOp(IRDLOperation):
    """A core gives `size` objects of a FIFO back."""

    name = "aie.objectfifo.release"

    fifo = prop_def(FlatSymbolRefAttrConstr, prop_name="objFifo_name")
    port = prop_def(_I32)
    size = prop_def(_I32)


@irdl_op_definition
class ObjectFifoSubviewAccessOp(IRDLOperation):
    """One object of those an acquire handed out."""

    name = "aie.objectfifo.subview.access"

    subview = operand_def(ObjectFifoSubviewType)
    index = prop_def(_I32)
    output = result_def(MemRefType)


@irdl_op_definition
class CoreOp(IRDLOperation):
    """The program of a core tile."""

    name = "aie.core"

    tile = operand_def(IndexType)
    stack_size = opt_prop_def(_I32)
    link_with = opt_prop_def(StringAttr)
    dynamic = opt_prop_def(BoolAttr, prop_name="dynamic_objfifo_lowering")
    result = result_def(IndexType)
    body: Region = region_def("single_block")


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A buffer in a tile's memory."""

    name = "aie.buffer"

    tile = operand_def(IndexType)
    sym_name = opt_prop_def(SymbolNameConstraint())
    aligned = opt_prop_def(BoolAttr)
    address = opt_prop_def(_I32)
    initial_value = opt_prop_def(DenseIntOrFPElementsAttr)
    result = result_def(MemRefType)

    traits = traits_def(OptionalSymbolOpInterface())


@irdl_op_definition
class LockOp(IRDLOperation):
    """A lock of a tile and its initial value."""

    name = "aie.lock"

    tile = operand_def(IndexType)
    lock_id = opt_prop_def(_I32, prop_name="lockID")
    init = opt_prop_def(_I32)
    sym_name = opt_prop_def(SymbolNameConstraint())
    result = result_def(IndexType)

    traits = traits_def(OptionalSymbolOpInterface())


@irdl_op_definition
class UseLockOp(IRDLOperation):
    """Acquires or releases a lock; the value is an operand (since July 2026) or a property (before)."""

    name = "aie.use_lock"

    lock = operand_def(IndexType)
    value_operand = var_operand_def(IntegerType(32))
    action = prop_def(_I32)
    value = opt_prop_def(_I32)


@irdl_op_definition
class DMABDOp(IRDLOperation):
    """A buffer descriptor: since July 2026 with `static_*` properties, before with `offset`, `len`, `dimensions`."""

    name = "aie.dma_bd"

    buffer = operand_def(MemRefType)
    runtime = var_operand_def(AnyAttr())
    burst_length = opt_prop_def(_I32)
    segments = opt_prop_def(DenseArrayBase.constr(i32), prop_name="operandSegmentSizes")
    static_len = opt_prop_def(_I32)
    static_offset = opt_prop_def(_I32)
    static_sizes = opt_prop_def(DenseArrayBase.constr(i64))
    static_strides = opt_prop_def(DenseArrayBase.constr(i64))
    offset = opt_prop_def(_I32)
    length = opt_prop_def(_I32, prop_name="len")
    dimensions = opt_prop_def(BDDimLayoutArrayAttr)


@irdl_op_definition
class RuntimeSequenceOp(IRDLOperation):
    """What the host's command processor does, with the host's buffers as arguments of the block."""

    name = "aie.runtime_sequence"

    sym_name = prop_def(SymbolNameConstraint())
    body: Region = region_def("single_block")

    traits = traits_def(NoTerminator(), SymbolOpInterface())


AIE = Dialect(
    "aie",
    [
        EndOp,
        DeviceOp,
        TileOp,
        ObjectFifoCreateOp,
        ObjectFifoLinkOp,
        ObjectFifoAcquireOp,
        ObjectFifoReleaseOp,
        ObjectFifoSubviewAccessOp,
        CoreOp,
        BufferOp,
        LockOp,
        UseLockOp,
        DMABDOp,
        RuntimeSequenceOp,
    ],
    [BDDimLayoutArrayAttr, BDDimLayoutArrayArrayAttr, ObjectFifoType, ObjectFifoSubviewType],
)

"""Operations of the aiex dialect that runtime sequences use."""

from __future__ import annotations

from xdsl.dialects.builtin import BoolAttr, FlatSymbolRefAttrConstr, IndexType, IntegerAttr, IntegerType, i32
from xdsl.ir import Dialect, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    var_operand_def,
)

_I32 = IntegerAttr.constr(i32)


@irdl_op_definition
class LoadPdiOp(IRDLOperation):
    """Configures the array from a device's image."""

    name = "aiex.npu.load_pdi"

    device_ref = prop_def(FlatSymbolRefAttrConstr)


@irdl_op_definition
class ConfigureTaskForOp(IRDLOperation):
    """A shim DMA task on the channel of the FIFO that `alloc` names; its region holds the buffer descriptor."""

    name = "aiex.dma_configure_task_for"

    alloc = prop_def(FlatSymbolRefAttrConstr)
    issue_token = opt_prop_def(BoolAttr)
    repeat_count = opt_prop_def(_I32)
    result = result_def(IndexType)
    body: Region = region_def("single_block")


class _TaskStep(IRDLOperation):
    task = operand_def(IndexType)


@irdl_op_definition
class StartTaskOp(_TaskStep):
    """Queues a task."""

    name = "aiex.dma_start_task"


@irdl_op_definition
class AwaitTaskOp(_TaskStep):
    """Waits for a task's token and gives its buffer descriptors back."""

    name = "aiex.dma_await_task"


@irdl_op_definition
class FreeTaskOp(_TaskStep):
    """Gives a task's buffer descriptors back without waiting."""

    name = "aiex.dma_free_task"


@irdl_op_definition
class RtpWriteOp(IRDLOperation):
    """Writes a run-time parameter; the value is an operand (since July 2026) or a property (before)."""

    name = "aiex.npu.rtp_write"

    value_operand = var_operand_def(IntegerType(32))
    buffer = prop_def(FlatSymbolRefAttrConstr)
    index = prop_def(IntegerAttr)
    value = opt_prop_def(_I32)


@irdl_op_definition
class SetLockOp(IRDLOperation):
    """Sets a lock's value."""

    name = "aiex.set_lock"

    lock = operand_def(IndexType)
    value = prop_def(_I32)


AIEX = Dialect(
    "aiex",
    [LoadPdiOp, ConfigureTaskForOp, StartTaskOp, AwaitTaskOp, FreeTaskOp, RtpWriteOp, SetLockOp],
)

"""The aiex dialect for generators (`from aie.dialects.aiex import *`): runtime sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    Signedness,
    StringAttr,
    i32,
)
from xdsl.ir import Attribute, Block, Region

from elfkiln.design.iron_sim.building import (
    INDEX,
    MLIRError,
    Value,
    array_type_of,
    boolean,
    constant,
    emit,
    inserting,
    int32,
    int64_array,
    name_of,
    names_of_absent,
    reference,
    ssa_of,
    unsupported,
    whole_number,
)
from elfkiln.design.iron_sim.dialects.aie import EndOp, Lock, bds, buffer, object_fifo
from elfkiln.design.iron_sim.helpers.taplib import TensorAccessPattern
from elfkiln.design.mlir import aie_ops as aie
from elfkiln.design.mlir import aiex_ops as aiex
from elfkiln.design.patterns import TAP_DIMS

__all__ = [
    "EndOp",
    "bds",
    "dma_await_task",
    "dma_configure_task_for",
    "dma_free_task",
    "dma_start_task",
    "npu_load_pdi",
    "npu_rtp_write",
    "npu_write_rtp",
    "runtime_sequence",
    "set_lock",
    "set_lock_value",
    "shim_dma_bd",
    "shim_dma_single_bd_task",
]

_UI32 = IntegerType(32, Signedness.UNSIGNED)
_ONE_BUFFER = DenseArrayBase.from_list(i32, (1, 0, 0, 0, 0))
"""Segments of `aie.dma_bd`: the buffer, and no run-time offset, length, sizes or strides."""


def runtime_sequence(*inputs: Any, sym_name: str | None = None) -> Callable[[Callable[..., object]], None]:
    """Decorate the function that builds a sequence; it runs at once with one value per input type.

    The sequence's name is `sym_name`, or the function's.
    """

    def build(body: Callable[..., object]) -> None:
        name = body.__name__ if sym_name is None else name_of(sym_name, "runtime_sequence: sym_name")
        types = [array_type_of(given, f"sequence {name}: input {position}") for position, given in enumerate(inputs)]
        block = Block(arg_types=types)
        emit(aie.RuntimeSequenceOp.create(properties={"sym_name": StringAttr(name)}, regions=[Region(block)]))
        with inserting(block):
            body(*map(Value, block.args))

    return build


def npu_load_pdi(
    *,
    device_ref: str | None = None,
    id: int | None = None,  # noqa: A002
    size: int | None = None,
    address: int | None = None,
) -> None:
    """Configure the array from the image of a device, by the device's name."""
    unsupported("npu_load_pdi", id=id, size=size, address=address)
    if device_ref is None:
        raise NotImplementedError("npu_load_pdi: name the device: npu_load_pdi(device_ref=...)")
    emit(aiex.LoadPdiOp.create(properties={"device_ref": reference(name_of(device_ref, "npu_load_pdi: device_ref"))}))


class Task:
    """A shim DMA task, for `dma_start_task`, `dma_await_task` and `dma_free_task`."""

    def __init__(self, op: aiex.ConfigureTaskForOp) -> None:
        """Wrap the operation."""
        self.op = op
        self.result = Value(op.result)


def dma_configure_task_for(
    alloc: object_fifo | str, *, issue_token: bool | None = None, repeat_count: int | None = None
) -> Task:
    """Make a task on the shim channel of a FIFO; its buffer descriptor goes into `bds(task)[0]`."""
    name = alloc.sym_name.value if isinstance(alloc, object_fifo) else name_of(alloc, "dma_configure_task_for: alloc")
    repeats = 0 if repeat_count is None else repeat_count
    properties: dict[str, Attribute] = {
        "alloc": reference(name),
        "issue_token": boolean(issue_token),
        "repeat_count": int32(repeats, f"task on {name}: repeat_count"),
    }
    return Task(
        emit(aiex.ConfigureTaskForOp.create(properties=properties, result_types=[INDEX], regions=[Region(Block())]))
    )


def shim_dma_bd(
    mem: Value,
    tap: TensorAccessPattern | None = None,
    offset: int | None = None,
    sizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    transfer_len: int | None = None,
    burst_length: int = 0,
    packet: tuple[int, int] | None = None,
    offset_parameter: str | None = None,
) -> None:
    """Make the buffer descriptor of a task: elements of a sequence's argument.

    Sizes and strides are outermost first; the transfer is the product of the last three sizes long unless
    `transfer_len` says otherwise.
    """
    what = "shim_dma_bd"
    unsupported(what, packet=packet, offset_parameter=offset_parameter)
    if tap is not None:
        offset, sizes, strides = _of_tap(what, tap, offset, sizes, strides)
    sizes = [0, 0, 0, 0] if sizes is None else list(sizes)
    strides = [0, 0, 0, 1] if strides is None else list(strides)
    if len(sizes) != len(strides):
        raise MLIRError(f"aie.dma_bd: expected the same number of sizes ({len(sizes)}) and strides ({len(strides)})")
    if len(sizes) > 4:
        raise MLIRError(f"aie.dma_bd: Cannot give more than 4 dimensions for step sizes and wraps (got {len(sizes)})")
    lowest = prod(whole_number(size, f"{what}: sizes") for size in sizes[-3:])
    length = lowest if transfer_len is None else whole_number(transfer_len, f"{what}: transfer_len")
    if length != lowest:
        raise MLIRError(
            "aie.dma_bd: Buffer descriptor length does not match length of transfer expressed by lowest three "
            f"dimensions of data layout transformation strides/wraps ({length} and {lowest} elements)"
        )
    buffer = ssa_of(mem, f"{what}: mem")
    numbers = [*sizes, *strides, 0 if offset is None else offset]
    if min(whole_number(number, f"{what}: offset, sizes and strides") for number in numbers) < 0:
        raise MLIRError(f"aie.dma_bd: offset, sizes and strides are not negative, found {numbers}")
    emit(
        aie.DMABDOp.create(
            operands=[buffer],
            properties={
                "burst_length": int32(burst_length, f"{what}: burst_length"),
                "operandSegmentSizes": _ONE_BUFFER,
                "static_len": int32(length, f"{what}: length"),
                "static_offset": int32(0 if offset is None else offset, f"{what}: offset"),
                "static_sizes": int64_array(sizes, f"{what}: sizes"),
                "static_strides": int64_array(strides, f"{what}: strides"),
            },
        )
    )


def shim_dma_single_bd_task(
    alloc: object_fifo | str,
    mem: Value,
    tap: TensorAccessPattern | None = None,
    offset: int | None = None,
    sizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    transfer_len: int | None = None,
    issue_token: bool = False,
    burst_length: int = 0,
    packet: tuple[int, int] | None = None,
    offset_parameter: str | None = None,
) -> Task:
    """Make a task of one buffer descriptor: it moves elements of `mem` through the FIFO's shim channel.

    Taps of fewer than four dimensions get outer ones of size 1 and stride 0. The outermost size of four, when above 1,
    is the task's repeat. A task needs `issue_token` to be awaited.
    """
    if tap is not None:
        offset, sizes, strides = _of_tap("shim_dma_single_bd_task", tap, offset, sizes, strides)
    if sizes is not None:
        if len(sizes) > TAP_DIMS:
            raise ValueError(f"shim_dma_single_bd_task: expected at most {TAP_DIMS} sizes, found {len(sizes)}")
        missing = TAP_DIMS - len(sizes)
        sizes = [1] * missing + list(sizes)
        strides = None if strides is None else [0] * missing + list(strides)
    outermost = whole_number(sizes[0], "shim_dma_single_bd_task: sizes") if sizes else 0
    task = dma_configure_task_for(alloc, issue_token=issue_token, repeat_count=max(outermost - 1, 0))
    with inserting(task.op.body.block):
        shim_dma_bd(
            mem,
            offset=offset,
            sizes=sizes,
            strides=strides,
            transfer_len=transfer_len,
            burst_length=burst_length,
            packet=packet,
            offset_parameter=offset_parameter,
        )
        EndOp()
    return task


def _of_tap(
    what: str, tap: TensorAccessPattern, offset: object, sizes: object, strides: object
) -> tuple[int, list[int], list[int]]:
    if offset is not None or sizes is not None or strides is not None:
        raise ValueError(
            f"{what} can take either a TensorAccessPattern OR (sizes and/or strides and/or offsets), but not both."
        )
    return tap.offset, list(tap.sizes), list(tap.strides)


def _steps(
    verb: str, made: type[aiex.StartTaskOp | aiex.AwaitTaskOp | aiex.FreeTaskOp], tasks: tuple[Task, ...]
) -> None:
    if not tasks:
        raise ValueError(f"{verb} must receive at least one task")
    for task in tasks:
        emit(made.create(operands=[ssa_of(task, verb)]))


def dma_start_task(*args: Task) -> None:
    """Queue tasks, each on its channel."""
    _steps("dma_start_task", aiex.StartTaskOp, args)


def dma_await_task(*args: Task) -> None:
    """Wait for the tokens of tasks; `MLIRError` for a task without `issue_token`."""
    _steps("dma_await_task", aiex.AwaitTaskOp, args)


def dma_free_task(*args: Task) -> None:
    """Give back the buffer descriptors of tasks without waiting."""
    _steps("dma_free_task", aiex.FreeTaskOp, args)


def npu_rtp_write(buffer: str, index: int, value: int | Value) -> None:
    """Write element `index` of the buffer of that name; the real package takes no buffer here, `npu_write_rtp` does."""
    if not isinstance(buffer, str):
        raise TypeError(
            "npu_rtp_write: get(): incompatible function arguments: expected the buffer's name, found "
            f"{type(buffer).__name__}; npu_write_rtp takes a buffer"
        )
    number = whole_number(index, "npu_rtp_write: index")
    if not 0 <= number < 2**32:
        raise ValueError(f"npu_rtp_write: index {number} does not fit 32 bits")
    operand = value.ssa if isinstance(value, Value) else constant(_signed(value), i32)
    emit(
        aiex.RtpWriteOp.create(
            operands=[operand],
            properties={"buffer": reference(buffer), "index": IntegerAttr(number, _UI32)},
        )
    )


def _signed(value: object) -> int:
    """Return a 32-bit number as i32 holds it: from 2**31 on it is negative."""
    number = whole_number(value, "npu_rtp_write: value")
    if not -(2**31) <= number < 2**32:
        raise ValueError(f"npu_rtp_write: value: {number} does not fit 32 bits")
    return number - 2**32 if number >= 2**31 else number


def npu_write_rtp(buffer: buffer | str, index: int, value: int | Value) -> None:
    """Write element `index` of a named buffer."""
    name = buffer if isinstance(buffer, str) else getattr(getattr(buffer, "sym_name", None), "value", None)
    if not isinstance(name, str):
        raise TypeError("npu_write_rtp: expected a buffer with a name, or its name")
    npu_rtp_write(name, index, value)


def set_lock(lock: Lock, value: int) -> None:
    """Set a lock's value."""
    emit(
        aiex.SetLockOp.create(
            operands=[ssa_of(lock, "set_lock")], properties={"value": int32(value, "set_lock: value")}
        )
    )


def set_lock_value(lock: Lock, value: int) -> None:
    """Set a lock's value."""
    set_lock(lock, value)


_ABSENT = (
    "arg_slice", "configure", "control_packet", "dma_channel_reset", "dma_configure_task", "dma_start_bd_chain",
    "dma_start_bd_chain_for", "dma_wait", "npu_address_patch", "npu_blockwrite", "npu_dma_memcpy_nd",
    "npu_dma_wait", "npu_maskwrite32", "npu_maskwrite32_dynamic", "npu_preempt", "npu_push_queue", "npu_sync",
    "npu_sync_dynamic", "npu_write32", "npu_write32_dynamic", "npu_writebd", "read_scratchpad_parameter", "run",
    "scratchpad_parameter",
    "tile_dma_single_bd_task",
)  # fmt: skip
"""What else the star import brings: a design of elfkiln has no use for it, and says so when it is used."""

globals().update(names_of_absent(_ABSENT))
__all__ += _ABSENT

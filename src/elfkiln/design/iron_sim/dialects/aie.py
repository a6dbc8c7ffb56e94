"""The aie dialect for generators (`from aie.dialects.aie import *`): the device and what is on it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import EnumType, IntEnum
from functools import cache
from typing import Any, NoReturn

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    StringAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Region, SSAValue

from elfkiln.design.iron_sim.building import (
    INDEX,
    MLIRError,
    Value,
    array_type_of,
    boolean,
    constant,
    dense,
    emit,
    in_device,
    inserting,
    int32,
    name_of,
    names_of_absent,
    reference,
    ssa_of,
    type_of,
    unsupported,
    whole_number,
)
from elfkiln.design.iron_sim.dialects.arith import IndexCastOp
from elfkiln.design.mlir import aie_ops as aie
from elfkiln.design.mlir.aie_ops import LockAction
from elfkiln.design.mlir.aie_ops import Port as ObjectFifoPort
from elfkiln.design.mlir.attributes import (
    BDDimLayoutArrayArrayAttr,
    BDDimLayoutArrayAttr,
    ObjectFifoSubviewType,
    ObjectFifoType,
)
from elfkiln.design.mlir.verifiers import integer, tile_of

__all__ = [
    "AIEDevice",
    "EndOp",
    "LockAction",
    "ObjectFifoPort",
    "bds",
    "buffer",
    "core",
    "device",
    "external_func",
    "lock",
    "logical_tile",
    "object_fifo",
    "object_fifo_link",
    "tile",
    "use_lock",
]


class _Devices(EnumType):
    """Says of the real package's other devices why they are not here."""

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith(("npu1", "xcv")):
            raise NotImplementedError(f"AIEDevice.{name}: elfkiln builds for npu2, or so many of its columns")
        raise AttributeError(name)


class AIEDevice(IntEnum, metaclass=_Devices):
    """The devices of the family that elfkiln builds for: npu2 whole, or so many of its columns."""

    npu2 = 8
    npu2_1col = 9
    npu2_2col = 10
    npu2_3col = 11
    npu2_4col = 12
    npu2_5col = 13
    npu2_6col = 14
    npu2_7col = 15


class Symbol:
    """The name of an operation; `.value` is the text, as in the real bindings."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        """Wrap a name."""
        self.value = value

    def __str__(self) -> str:
        """Return the name in quotes, as a string attribute prints."""
        return f'"{self.value}"'


class EndOp:
    """`aie.end`."""

    def __init__(self) -> None:
        """Append the terminator of a device, core or task."""
        emit(aie.EndOp.create())


class Tile:
    """What `tile` returns: equal to another of the same place."""

    def __init__(self, op: aie.TileOp) -> None:
        """Wrap the operation."""
        self.op = op
        self.result = Value(op.result)
        self.col = integer(op.col)
        self.row = integer(op.row)

    def __eq__(self, other: object) -> bool:
        """Compare places."""
        return isinstance(other, Tile) and (self.col, self.row) == (other.col, other.row)

    def __lt__(self, other: Tile) -> bool:
        """Order by column, then row."""
        return (self.col, self.row) < (other.col, other.row)

    def __hash__(self) -> int:
        """Hash the place."""
        return hash((self.col, self.row))

    def __str__(self) -> str:
        """Return e.g. `tile(col=0, row=2)`."""
        return f"tile(col={self.col}, row={self.row})"

    def is_core_tile(self) -> bool:
        """Say whether this is a core tile."""
        return self.row > 1

    def is_mem_tile(self) -> bool:
        """Say whether this is a mem tile."""
        return self.row == 1

    def is_shim_tile(self) -> bool:
        """Say whether this is a shim tile."""
        return self.row == 0


def tile(col: int, row: int, *, loc: object = None, allocation_scheme: str | None = None) -> Tile:
    """Declare the tile at a column and row of the device."""
    del loc
    properties: dict[str, Attribute] = {"col": int32(col, "tile: col"), "row": int32(row, "tile: row")}
    if allocation_scheme is not None:
        properties = {"allocation_scheme": StringAttr(allocation_scheme)} | properties
    return Tile(emit(aie.TileOp.create(properties=properties, result_types=[INDEX])))


def _tile(given: object, what: str) -> Any:
    if not isinstance(given, Tile):
        raise TypeError(f"{what}: expected a tile, found {type(given).__name__}")
    return given.op.result


def _region_body(body: Callable[[], object]) -> None:
    """Refuse a body with parameters: they would be arguments of the block, which these operations have none of."""
    if inspect.signature(body).parameters:
        raise ValueError(
            f"for body_builder={body.__name__} either missing a type annotation or type annotation isn't a mlir type: "
            f"{inspect.signature(body)}; the body takes no parameters"
        )


def device(
    device: AIEDevice | int, *, sym_name: str = "main", loc: object = None
) -> Callable[[Callable[[], object]], Any]:
    """Decorate the function that builds a device; it runs at once."""
    del loc
    number = AIEDevice(device)

    def build(body: Callable[[], object]) -> aie.DeviceOp:
        _region_body(body)
        op = emit(
            aie.DeviceOp.create(
                properties={
                    "device": int32(number, "device"),
                    "sym_name": StringAttr(name_of(sym_name, "device: sym_name")),
                },
                regions=[Region(Block())],
            )
        )
        with in_device(op):
            body()
            EndOp()
        return op

    return build


class external_func:  # noqa: N801
    """A kernel that cores call: its name, parameter types and the object file that holds it."""

    def __init__(
        self,
        name: str,
        inputs: list[Any],
        outputs: list[Any] | None = None,
        visibility: str = "private",
        link_with: str | None = None,
    ) -> None:
        """Declare the kernel. `inputs` are numpy array types, numpy scalar types or types of the module."""
        what = f"external_func {name}"
        if not isinstance(inputs, list):
            raise TypeError(f"{what}: inputs: expected a list, found {type(inputs).__name__}")
        if outputs:
            raise NotImplementedError(f"{what}: outputs= is not supported by elfkiln's aie")
        self.types = [type_of(given, f"{what}: input {position}") for position, given in enumerate(inputs)]
        self.sym_name = Symbol(name_of(name, "external_func: name"))
        emit(
            func.FuncOp.create(
                properties={
                    "function_type": FunctionType.from_lists(self.types, []),
                    "sym_name": StringAttr(name),
                    "sym_visibility": StringAttr(name_of(visibility, f"{what}: visibility")),
                },
                attributes={}
                if link_with is None
                else {"link_with": StringAttr(name_of(link_with, f"{what}: link_with"))},
                regions=[Region()],
            )
        )

    def __call__(self, *arguments: object) -> None:
        """Call the kernel; integers become constants of the parameter's type, indexes are cast to its integer type."""
        if len(arguments) != len(self.types):
            raise ValueError(
                f"Expected {len(self.types)} arguments, but got {len(arguments)} arguments in the call of "
                f"{self.sym_name.value}"
            )
        operands = []
        for position, (given, type_) in enumerate(zip(arguments, self.types, strict=True)):
            what = f"{self.sym_name.value}: argument {position}"
            if isinstance(given, int):
                if not isinstance(type_, IntegerType | IndexType):
                    raise ValueError(f"{what}: expected {type_}, found {given}")
                operands.append(constant(whole_number(given, what), type_))
                continue
            value = given if isinstance(given, Value) else getattr(given, "result", None)
            if not isinstance(value, Value):
                raise ValueError(f"{what}: expected a value of the module, found {type(given).__name__}")
            if isinstance(value.type, IndexType) and isinstance(type_, IntegerType):
                value = IndexCastOp(type_, value).result
            operands.append(value.ssa)
        emit(func.CallOp.create(operands=operands, properties={"callee": reference(self.sym_name.value)}))


def _dims(given: object, what: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(given, list | tuple):
        raise TypeError(f"{what}: expected a list of (size, stride), found {type(given).__name__}")
    pairs = []
    for pair in given:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{what}: expected (size, stride), found {pair}")
        pairs.append((whole_number(pair[0], what), whole_number(pair[1], what)))
    return tuple(pairs)


@cache
def _subview(datatype: MemRefType) -> ObjectFifoSubviewType:
    """Return the type of what an acquire hands out, one object for all FIFOs of equal objects."""
    return ObjectFifoSubviewType(datatype)


class object_fifo:  # noqa: N801
    """A FIFO of objects from one tile to others."""

    def __init__(
        self,
        name: str,
        producerTile: Tile,
        consumerTiles: Tile | list[Tile],
        depth: int | list[int],
        datatype: Any,
        dimensionsToStream: Sequence[tuple[int, int]] | None = None,
        dimensionsFromStreamPerConsumer: Sequence[Sequence[tuple[int, int]]] | None = None,
        initValues: object = None,
        via_DMA: bool | None = None,
        plio: bool | None = None,
        padDimensions: object = None,
        disable_synchronization: bool | None = None,
        iter_count: int | None = None,
    ) -> None:
        """Declare the FIFO. `depth` counts objects: one number, or a list of the producer's and each consumer's.

        Dimensions are (size, stride) pairs in elements, outermost first. `initValues` are arrays (or lists of int32)
        for the objects that the FIFO starts with.
        """
        what = f"object_fifo {name_of(name, 'object_fifo: name')}"
        unsupported(
            what,
            plio=plio,
            padDimensions=padDimensions,
            disable_synchronization=disable_synchronization,
        )
        consumers = consumerTiles if isinstance(consumerTiles, list) else [consumerTiles]
        self.datatype = array_type_of(datatype, what)
        if dimensionsFromStreamPerConsumer is None:
            dimensionsFromStreamPerConsumer = [[] for _ in consumers]
        elif not isinstance(dimensionsFromStreamPerConsumer, list | tuple):
            raise TypeError(f"{what}: dimensionsFromStreamPerConsumer: expected a list per consumer")
        self.sym_name = Symbol(name)
        properties: dict[str, Attribute] = {}
        if initValues is not None:
            if not isinstance(initValues, list | tuple):
                raise TypeError(f"{what}: initValues: expected a list of arrays, found {type(initValues).__name__}")
            values = [dense(one, self.datatype, f"{what}: initValues", tensor=False) for one in initValues]
            properties["initValues"] = ArrayAttr(values)
        if iter_count is not None:
            properties["iter_count"] = int32(iter_count, f"{what}: iter_count")
        self.op = emit(
            aie.ObjectFifoCreateOp.create(
                operands=[
                    _tile(producerTile, f"{what}: producerTile"),
                    *(_tile(consumer, f"{what}: consumerTiles") for consumer in consumers),
                ],
                properties=properties
                | {
                    "dimensionsFromStreamPerConsumer": BDDimLayoutArrayArrayAttr(
                        tuple(_dims(dims, f"{what}: dimensionsFromStream") for dims in dimensionsFromStreamPerConsumer)
                    ),
                    "dimensionsToStream": BDDimLayoutArrayAttr(
                        _dims(dimensionsToStream or [], f"{what}: dimensionsToStream")
                    ),
                    "disable_synchronization": boolean(False),
                    "elemNumber": ArrayAttr([int32(each, f"{what}: depth") for each in depth])
                    if isinstance(depth, list)
                    else int32(depth, f"{what}: depth"),
                    "elemType": ObjectFifoType(self.datatype),
                    "plio": boolean(False),
                    "sym_name": StringAttr(name),
                    "via_DMA": boolean(via_DMA),
                },
            )
        )

    def acquire(self, port: ObjectFifoPort, num_elem: int) -> Any:
        """Take objects in a core's program: one value for one object, a list for more."""
        count = whole_number(num_elem, f"{self.sym_name.value}.acquire")
        handed_out = _subview(self.datatype)
        acquired = emit(aie.ObjectFifoAcquireOp.create(properties=self._access(port, count), result_types=[handed_out]))
        objects = [
            Value(
                emit(
                    aie.ObjectFifoSubviewAccessOp.create(
                        operands=[acquired.subview],
                        properties={"index": int32(index, "index")},
                        result_types=[handed_out.element_type],
                    )
                ).output
            )
            for index in range(count)
        ]
        return objects[0] if count == 1 else objects

    def release(self, port: ObjectFifoPort, num_elem: int) -> None:
        """Give objects back in a core's program."""
        count = whole_number(num_elem, f"{self.sym_name.value}.release")
        emit(aie.ObjectFifoReleaseOp.create(properties=self._access(port, count)))

    def _access(self, port: ObjectFifoPort, count: int) -> dict[str, Attribute]:
        return {
            "objFifo_name": reference(self.sym_name.value),
            "port": int32(ObjectFifoPort(port), "port"),
            "size": int32(count, "size"),
        }

    def set_repeat_count(self, num: int) -> None:
        """Send every object this many times."""
        properties = self.op.properties | {"repeat_count": int32(num, f"{self.sym_name.value}.set_repeat_count")}
        self.op.properties = dict(sorted(properties.items()))
        if tile_of(self.op.producer, "set_repeat_count").kind == "shim":
            raise MLIRError(f"aie.objectfifo {self.sym_name.value}: `repeat_count` unavailable for shim tiles")

    def allocate(self, tile: Tile) -> NoReturn:
        """Refuse: a design of elfkiln leaves the place of a FIFO's memory to the compiler."""
        raise NotImplementedError(f"{self.sym_name.value}.allocate is not supported by elfkiln's aie (on {tile})")


def object_fifo_link(
    fifoIns: Any, fifoOuts: Any, srcOffsets: Sequence[int] = (), dstOffsets: Sequence[int] = ()
) -> None:
    """Link FIFOs at the tile they share: forward, join (`srcOffsets`) or distribute (`dstOffsets`), in elements."""

    def references(given: Any) -> ArrayAttr[Attribute]:
        fifos = given if isinstance(given, list) else [given]
        if not all(isinstance(fifo, object_fifo | str) for fifo in fifos):
            raise TypeError("object_fifo_link: expected FIFOs or their names")
        return ArrayAttr([reference(fifo.sym_name.value if isinstance(fifo, object_fifo) else fifo) for fifo in fifos])

    def offsets(given: Sequence[int], what: str) -> ArrayAttr[Attribute]:
        return ArrayAttr([IntegerAttr(whole_number(offset, what), i64) for offset in given])

    emit(
        aie.ObjectFifoLinkOp.create(
            properties={
                "dst_offsets": offsets(dstOffsets, "object_fifo_link: dstOffsets"),
                "fifoIns": references(fifoIns),
                "fifoOuts": references(fifoOuts),
                "src_offsets": offsets(srcOffsets, "object_fifo_link: srcOffsets"),
            }
        )
    )


def core(
    tile: Tile,
    link_with: str | None = None,
    dynamic_objfifo_lowering: bool | None = None,
    stack_size: int | None = None,
) -> Callable[[Callable[[], object]], aie.CoreOp]:
    """Decorate the function that builds a core tile's program; it runs at once and takes no parameters."""
    if link_with is not None:
        raise TypeError("Core() no longer accepts link_with; set link_with= on each external_func() instead")
    properties: dict[str, Attribute] = {}
    if dynamic_objfifo_lowering is not None:
        properties["dynamic_objfifo_lowering"] = boolean(dynamic_objfifo_lowering)
    if stack_size is not None:
        properties["stack_size"] = int32(stack_size, "core: stack_size")

    def build(body: Callable[[], object]) -> aie.CoreOp:
        _region_body(body)
        block = Block()
        op = emit(
            aie.CoreOp.create(
                operands=[_tile(tile, "core")],
                properties=properties,
                result_types=[INDEX],
                regions=[Region(block)],
            )
        )
        with inserting(block):
            body()
            EndOp()
        return op

    return build


class buffer:  # noqa: N801
    """A buffer in a tile's memory; in a core's program `buffer[i]` loads an element and `buffer[i] = n` stores one."""

    def __init__(
        self,
        tile: Tile,
        datatype: Any,
        name: str | None = None,
        address: int | None = None,
        initial_value: object = None,
        use_write_rtp: bool = False,
    ) -> None:
        """Declare the buffer; `use_write_rtp` makes `buffer[i] = n` in a sequence write a run-time parameter.

        `address` is where it lies in the tile's memory, `initial_value` the array that it starts with.
        """
        what = f"buffer {name or ''}".rstrip()
        type_ = array_type_of(datatype, what)
        self.use_write_rtp = use_write_rtp
        self.sym_name = None if name is None else Symbol(name_of(name, "buffer: name"))
        properties: dict[str, Attribute] = {}
        if address is not None:
            properties["address"] = int32(address, f"{what}: address")
        properties["aligned"] = boolean(True)
        if initial_value is not None:
            properties["initial_value"] = dense(initial_value, type_, f"{what}: initial_value", tensor=True)
        if name is not None:
            properties["sym_name"] = StringAttr(name)
        op = emit(aie.BufferOp.create(operands=[_tile(tile, what)], properties=properties, result_types=[type_]))
        self.result = Value(op.result)
        self.shape = type_.get_shape()
        self._element = type_.element_type

    def __getitem__(self, index: Any) -> Value:
        """Load an element in a core's program."""
        operands = self._indices(index)
        load = memref.LoadOp.create(operands=[self.result.ssa, *operands], result_types=[self._element])
        return Value(emit(load).res)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Store an element in a core's program, or write a run-time parameter in a sequence."""
        if self.use_write_rtp:
            if not isinstance(index, int) or len(self.shape) != 1:
                raise ValueError("Buffer slicing not supported, only indexing supported")
            # Late: aiex builds on this module.
            from elfkiln.design.iron_sim.dialects.aiex import npu_write_rtp

            npu_write_rtp(self, index, value)
            return
        operands = self._indices(index)
        if isinstance(value, float):
            raise NotImplementedError("buffer: stores of floats are not supported by elfkiln's aie; use a kernel")
        source = constant(value, self._element) if isinstance(value, int) else ssa_of(value, "buffer: stored value")
        emit(memref.StoreOp.create(operands=[source, self.result.ssa, *operands]))

    def _indices(self, index: Any) -> list[SSAValue]:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) != len(self.shape) or any(isinstance(each, slice) or each is None for each in indices):
            raise ValueError("Buffer slicing not supported, only indexing supported")
        return [constant(each, INDEX) if isinstance(each, int) else ssa_of(each, "buffer index") for each in indices]


class Lock:
    """What `lock` returns."""

    def __init__(self, op: aie.LockOp) -> None:
        """Wrap the operation."""
        self.result = Value(op.result)


def lock(
    tile: Tile,
    *,
    lock_id: int | None = None,
    init: int | None = None,
    sym_name: str | None = None,
    annot: object = None,
    loc: object = None,
) -> Lock:
    """Declare a lock of a tile."""
    del loc
    unsupported("lock", annot=annot)
    properties: dict[str, Attribute] = {}
    if init is not None:
        properties["init"] = int32(init, "lock: init")
    if lock_id is not None:
        properties["lockID"] = int32(lock_id, "lock: lock_id")
    if sym_name is not None:
        properties["sym_name"] = StringAttr(name_of(sym_name, "lock: sym_name"))
    return Lock(emit(aie.LockOp.create(operands=[_tile(tile, "lock")], properties=properties, result_types=[INDEX])))


def use_lock(lock: Lock, action: LockAction, *, value: int | Value = 1) -> None:
    """Acquire or release a lock in a core's program."""
    operand = ssa_of(lock, "use_lock")
    amount = value.ssa if isinstance(value, Value) else constant(whole_number(value, "use_lock: value"), i32)
    emit(
        aie.UseLockOp.create(
            operands=[operand, amount],
            properties={"action": int32(LockAction(action), "use_lock: action")},
        )
    )


class _Blocks:
    """The blocks of a task, by index; elfkiln's tasks have one buffer descriptor and so one block."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def __getitem__(self, index: int) -> AbstractContextManager[None]:
        if index != 0:
            raise NotImplementedError(f"bds: chains of buffer descriptors are not supported by elfkiln's aie ({index})")
        return inserting(self._block)


@contextmanager
def bds(parent: Any) -> Iterator[_Blocks]:
    """Hand out the blocks of a task: `with bds(task) as bd:` and `with bd[0]:`."""
    yield _Blocks(parent.op.body.block)


_ABSENT = (
    "AIETileType",
    "DMAChannelDir",
    "WireBundle",
    "another_bd",
    "cascade_flow",
    "configure_cascade",
    "dma",
    "dma_bd",
    "dma_start",
    "external_buffer",
    "find_matching_buffers",
    "find_matching_flows",
    "find_matching_locks",
    "flow",
    "get_cascade",
    "get_target_model",
    "mem",
    "memtile_dma",
    "next_bd",
    "packetflow",
    "put_cascade",
    "shim_dma",
    "shim_dma_allocation",
    "shim_mem",
    "shim_mux",
    "switchbox",
    "trace",
    "trace_event",
    "trace_host_config",
    "trace_mode",
    "trace_packet",
    "trace_port",
    "trace_start",
    "trace_start_config",
    "trace_stop",
)
"""What else the star import brings: a design of elfkiln has no use for it, and says so when it is used."""

globals().update(names_of_absent(_ABSENT))
__all__ += _ABSENT


def logical_tile(*_: object, **__: object) -> NoReturn:
    """Refuse: designs of elfkiln name the place of every tile."""
    raise NotImplementedError("logical_tile is not supported by elfkiln's aie: name the place with tile(col, row)")

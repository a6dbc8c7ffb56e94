"""The rules between the operations of a device: what the real package's verifiers refuse.

`check_device` applies all of them to a whole device; `Scope` applies those of one operation, which lets the `aie`
stand-in report the generator's own line. The rules are those that the real package's Python layer, dialect verifiers
and buffer-descriptor verifier apply. What they leave undiagnosed (a tap past the host's buffer, join offsets that do
not match the pieces, a missing load_pdi) is lint's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, MemRefType, StringAttr, SymbolRefAttr
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.dialects.memref import LoadOp, StoreOp
from xdsl.dialects.scf import ForOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from elfkiln.design.fifo_lowering import link_segments, reaches
from elfkiln.design.mlir import aie_ops as aie
from elfkiln.design.mlir import aiex_ops as aiex
from elfkiln.design.mlir.attributes import DimPair, element_name
from elfkiln.design.model import ELEMENT_BYTES, Tile
from elfkiln.hardware.limits import CORE, MEM, WORD_BYTES, limit

_COLUMNS, _ROW_COUNT = limit("columns").value, limit("rows").value
_DEFAULT_STACK = limit("stack", "core").value
_MOST_ITERATIONS = limit("fifo-iterations").value
_DIMS = {"mem": MEM.dims, "core": CORE.dims}
_LARGEST_SIZE, _LARGEST_STRIDE = limit("verified-size").value, limit("verified-stride").value


class UnknownSymbolError(VerifyException):
    """An operation names a symbol that the device does not have (or not yet)."""


def integer(attribute: Attribute | None, default: int = 0) -> int:
    """Return the value of an integer attribute, or `default` when it is absent."""
    return attribute.value.data if isinstance(attribute, IntegerAttr) else default


def symbol(attribute: Attribute) -> str:
    """Return the name in a symbol or string attribute."""
    if isinstance(attribute, SymbolRefAttr):
        return attribute.root_reference.data
    if isinstance(attribute, StringAttr):
        return attribute.data
    raise VerifyException(f"expected a symbol, found {attribute}")


def tile_of(value: SSAValue, what: str) -> Tile:
    """Return the place of the `aie.tile` that made a value; `what` names the value's user."""
    owner = value.owner
    if not isinstance(owner, aie.TileOp):
        raise VerifyException(f"{what}: expected an aie.tile, found {_origin(value)}")
    return Tile(integer(owner.col), integer(owner.row))


def _origin(value: SSAValue) -> str:
    return value.owner.name if isinstance(value.owner, Operation) else f"a block argument of type {value.type}"


def depths_of(fifo: aie.ObjectFifoCreateOp) -> tuple[int, ...]:
    """Return the depth at each end of a FIFO, the producer's first."""
    number = fifo.elem_number
    if isinstance(number, ArrayAttr):
        return tuple(integer(depth) for depth in number.data)
    return (integer(number),) * (1 + len(fifo.consumers))


@dataclass(slots=True)
class Scope:
    """What the operations of one device declare, and the rules that each operation keeps.

    `descriptors` adds the rules for the buffer descriptors that the real compiler makes of FIFOs; reading a design
    leaves those to lint. `outside` keeps, by FIFO and end, what is wrong with dimensions over the FIFO's own objects: a
    link that comes later may give that end a descriptor of another length.
    """

    device: str
    columns: int = _COLUMNS
    descriptors: bool = False
    symbols: dict[str, Operation] = field(default_factory=dict)
    cores: dict[Tile, aie.CoreOp] = field(default_factory=dict)
    linked: dict[str, aie.ObjectFifoLinkOp] = field(default_factory=dict)
    outside: dict[tuple[str, int], str] = field(default_factory=dict)

    def declare(self, op: Operation) -> None:
        """Enter an operation of the device's body; raises `VerifyException` for a second symbol, core or link."""
        name = op.properties.get("sym_name")
        if name is not None:
            known = self.symbols.setdefault(symbol(name), op)
            if known is not op:
                raise VerifyException(f"{op.name}: redefinition of symbol {symbol(name)}, which is an {known.name}")
        if isinstance(op, aie.CoreOp):
            tile = tile_of(op.tile, "aie.core")
            if self.cores.setdefault(tile, op) is not op:
                raise VerifyException(f"aie.core: {tile} already has a core; a tile runs one")
        elif isinstance(op, aie.ObjectFifoLinkOp):
            for name in (*op.ins.data, *op.outs.data):
                if self.linked.setdefault(symbol(name), op) is not op:
                    raise VerifyException(f"aie.objectfifo.link: {symbol(name)} is in another link already")

    def check(self, op: Operation) -> None:
        """Apply the rules of one operation; raises `VerifyException` with one line."""
        if type(op) in _TOP and not isinstance(op.parent_op(), aie.DeviceOp):
            raise VerifyException(f"{op.name}: expects parent op aie.device")
        rule = _RULES.get(type(op))
        if rule is not None:
            rule(self, op)

    def fifo(self, name: Attribute, user: str) -> aie.ObjectFifoCreateOp:
        """Return the FIFO a symbol names."""
        found = self._lookup(name, user)
        if not isinstance(found, aie.ObjectFifoCreateOp):
            raise VerifyException(f"{user}: {symbol(name)} is an {found.name}, no object FIFO")
        return found

    def _lookup(self, name: Attribute, user: str) -> Operation:
        found = self.symbols.get(symbol(name))
        if found is None:
            raise UnknownSymbolError(f"{user}: the device has no {symbol(name)}")
        return found

    def _tile(self, op: aie.TileOp) -> None:
        column, row = integer(op.col), integer(op.row)
        if not 0 <= column < self.columns:
            raise VerifyException(
                f"aie.tile: column index ({column}) must be less than the number of columns in the device "
                f"({self.columns})"
            )
        if not 0 <= row < _ROW_COUNT:
            raise VerifyException(
                f"aie.tile: row index ({row}) must be less than the number of rows in the device ({_ROW_COUNT})"
            )
        if op.allocation_scheme is not None and row == 0:
            raise VerifyException("aie.tile: shim tiles cannot have an allocation scheme")

    def _create(self, op: aie.ObjectFifoCreateOp) -> None:
        what = f"aie.objectfifo {op.sym_name.data}"
        producer = tile_of(op.producer, f"{what}: producer")
        consumers = [tile_of(consumer, f"{what}: consumer") for consumer in op.consumers]
        if not consumers:
            raise VerifyException(f"{what}: has no consumer")
        depths = depths_of(op)
        if len(depths) != len(consumers) + 1:
            raise VerifyException(
                f"{what}: does not have enough depths specified for producer and for each consumer "
                f"({len(consumers) + 1} ends, {len(depths)} depths)"
            )
        if min(depths) < 1:
            raise VerifyException(f"{what}: a depth is at least 1, found {min(depths)}")
        from_stream = op.from_stream.data
        if len(from_stream) != len(consumers):
            raise VerifyException(
                f"{what}: dimensionsFromStreamPerConsumer has {len(from_stream)} entries for {len(consumers)} consumers"
            )
        if producer.kind == "shim" and op.to_stream.data:
            raise VerifyException(
                f"{what}: `dimensionsToStream` data layout transformations are not supported on shim tile producers"
            )
        if op.repeat_count is not None and producer.kind == "shim":
            raise VerifyException(f"{what}: `repeat_count` unavailable for shim tiles")
        if op.repeat_count is not None and integer(op.repeat_count) < 1:
            raise VerifyException(f"{what}: repeat_count is at least 1, found {integer(op.repeat_count)}")
        if op.iter_count is not None:
            iterations = integer(op.iter_count)
            if not 1 <= iterations <= _MOST_ITERATIONS:
                raise VerifyException(f"{what}: `iter_count` is 1 to {_MOST_ITERATIONS}, found {iterations}")
            if "mem" not in (producer.kind, *(consumer.kind for consumer in consumers)):
                raise VerifyException(f"{what}: `iter_count` needs an end on a mem tile")
        for consumer, dims in zip(consumers, from_stream, strict=True):
            if consumer.kind == "shim" and dims:
                raise VerifyException(
                    f"{what}: `dimensionsFromStreamPerConsumer` data layout transformations are not supported on "
                    "shim tile consumers"
                )
        element = element_of(op.elem_type.element_type, what)
        if not self.descriptors:
            return
        elements = elements_of(op.elem_type.element_type)
        for end, (tile, dims) in enumerate(zip((producer, *consumers), (op.to_stream.data, *from_stream), strict=True)):
            where = f"{what}: {f'dimensionsFromStream at {tile}' if end else 'dimensionsToStream'}"
            check_dims(where, dims, tile, element)
            error = beyond_buffer(dims, elements)
            if error is not None:
                self.outside[op.sym_name.data, end] = f"{where}: {error}"

    def finish(self) -> None:
        """Apply what only a whole device can say; raises `VerifyException` with one line."""
        for error in self.outside.values():
            raise VerifyException(error)

    def _linked_dims(
        self,
        ins: list[aie.ObjectFifoCreateOp],
        outs: list[aie.ObjectFifoCreateOp],
        tile: Tile,
        op: aie.ObjectFifoLinkOp,
    ) -> None:
        """Check the dimensions of a link's FIFOs on its tile.

        Where each piece has a descriptor with the same dimensions, the link's own verifier wants them inside the
        piece. Anywhere else only the descriptor's looks, and that knows no more than the buffer: the whole object.
        """
        into, out = ([elements_of(fifo.elem_type.element_type) for fifo in fifos] for fifos in (ins, outs))
        sources, targets = ([integer(o) for o in offsets.data] for offsets in (op.src_offsets, op.dst_offsets))
        pieces = [segment.elements for segment in link_segments(into, out, sources, targets)]
        ends = [(fifo, 1 + [tile_of(c, "consumer") for c in fifo.consumers].index(tile)) for fifo in ins]
        ends += [(fifo, 0) for fifo in outs]
        for fifo, end in ends:
            name = fifo.sym_name.data
            self.outside.pop((name, end), None)
            dims = fifo.from_stream.data[end - 1] if end else fifo.to_stream.data
            if len(ins) > 1 and not end:
                errors = [beyond(dims, piece, "join input", "transfer", "output ") for piece in pieces]
            elif len(outs) > 1 and end:
                errors = [beyond(dims, piece, "distribute output", "transfer", "input ") for piece in pieces]
            else:
                errors = []
            for error in (*errors, beyond_buffer(dims, max(*into, *out))):
                if error is not None:
                    raise VerifyException(f"aie.objectfifo.link at {tile}: {name}: {error}")

    def _create_structure(self, op: aie.ObjectFifoCreateOp) -> None:
        what = f"aie.objectfifo {op.sym_name.data}"
        ends = [tile_of(end, what) for end in (op.producer, *op.consumers)]
        if len(op.from_stream.data) != len(ends) - 1:
            raise VerifyException(
                f"{what}: dimensionsFromStreamPerConsumer has {len(op.from_stream.data)} entries for "
                f"{len(ends) - 1} consumers"
            )
        for word, count in (("repeat_count", op.repeat_count), ("iter_count", op.iter_count)):
            if count is not None and integer(count) < 1:
                raise VerifyException(f"{what}: {word} is at least 1, found {integer(count)}")

    def _acquire_structure(self, op: aie.ObjectFifoAcquireOp) -> None:
        self._port_structure(op)
        fifo = self.symbols.get(symbol(op.fifo))
        if isinstance(fifo, aie.ObjectFifoCreateOp) and op.subview.type.element_type != fifo.elem_type.element_type:
            raise VerifyException(
                f"{op.name}: expected objects of {fifo.elem_type.element_type}, found {op.subview.type.element_type}"
            )

    def _port_structure(self, op: aie.ObjectFifoAcquireOp | aie.ObjectFifoReleaseOp) -> None:
        core_of(op)
        if integer(op.port) not in set(aie.Port):
            raise VerifyException(f"{op.name}: port is 0 (Produce) or 1 (Consume), found {integer(op.port)}")

    def _access_structure(self, op: aie.ObjectFifoSubviewAccessOp) -> None:
        acquire = op.subview.owner
        if not isinstance(acquire, aie.ObjectFifoAcquireOp):
            raise VerifyException(f"{op.name}: expected what an acquire handed out, found {_origin(op.subview)}")
        if op.output.type != acquire.subview.type.element_type:
            raise VerifyException(f"{op.name}: expected {acquire.subview.type.element_type}, found {op.output.type}")
        # Lint sees objects where a call uses them.
        if not any(True for _ in op.output.uses):
            self._access(op)

    def _call_structure(self, op: CallOp) -> None:
        core_of(op)
        if op.results:
            raise VerifyException(f"{op.name}: {symbol(op.callee)}: a kernel returns nothing")
        callee = self.symbols.get(symbol(op.callee))
        wanted = callee.function_type.inputs.data if isinstance(callee, FuncOp) else ()
        for position, (want, have) in enumerate(zip(wanted, op.operand_types, strict=False)):
            scalars = not isinstance(want, MemRefType) and not isinstance(have, MemRefType)
            if scalars and want != have and len(wanted) == len(op.operand_types):
                raise VerifyException(f"{op.name}: argument {position}: expected {want}, found {have}")

    def _use_lock_structure(self, op: aie.UseLockOp) -> None:
        core_of(op)
        lock_of(op.lock, op.name)
        if integer(op.action) not in set(aie.LockAction):
            raise VerifyException(f"{op.name}: action is 0, 1 or 2, found {integer(op.action)}")
        _one_value(op, op.value, len(op.value_operand))

    def _rtp_write_structure(self, op: aiex.RtpWriteOp) -> None:
        sequence_of(op)
        _one_value(op, op.value, len(op.value_operand))

    def _link(self, op: aie.ObjectFifoLinkOp) -> None:
        what = "aie.objectfifo.link"
        ins = [self.fifo(name, what) for name in op.ins.data]
        outs = [self.fifo(name, what) for name in op.outs.data]
        what = f"{what} {[f.sym_name.data for f in ins]} -> {[f.sym_name.data for f in outs]}"
        if not ins or not outs:
            raise VerifyException(f"{what}: needs FIFOs on both sides")
        if len(ins) > 1 and len(outs) > 1:
            raise VerifyException(f"{what}: does not support 'join' and 'distribute' at the same time")
        producers = {tile_of(fifo.producer, what) for fifo in outs}
        tile = producers.pop()
        if producers or any(tile not in [tile_of(end, what) for end in fifo.consumers] for fifo in ins):
            raise VerifyException(f"{what}: must have a link point, i.e., a shared tile between objectFifos")
        join, distribute = len(ins) > 1, len(outs) > 1
        if (join or distribute) and tile.kind != "mem":
            raise VerifyException(f"{what}: join and distribute are available on mem tiles only, found {tile}")
        if tile.kind == "shim":
            raise VerifyException(f"{what}: a link needs a mem or core tile, found {tile}")
        sources, targets = len(op.src_offsets.data), len(op.dst_offsets.data)
        if join:
            if sources != len(ins):
                raise VerifyException(
                    f"{what}: number of provided src offsets must be equal to the number of input objectFifos "
                    f"({len(ins)}), found {sources}"
                )
            if targets:
                raise VerifyException(f"{what}: dst offsets should be empty for join")
        elif distribute:
            if targets != len(outs):
                raise VerifyException(
                    f"{what}: number of provided dst offsets must be equal to the number of output objectFifos "
                    f"({len(outs)}), found {targets}"
                )
            if sources:
                raise VerifyException(f"{what}: src offsets should be empty for distribute")
            if len({integer(fifo.repeat_count) for fifo in outs}) > 1:
                raise VerifyException(f"{what}: repeat counts of output object FIFOs must be equal")
        elif sources and targets:
            raise VerifyException(f"{what}: all offsets should be empty if there is no join or distribute")
        if self.descriptors:
            self._linked_dims(ins, outs, tile, op)

    def _loop(self, op: ForOp) -> None:
        core_of(op)
        step = op.step.owner
        if isinstance(step, ConstantOp) and integer(step.value) < 1:
            raise VerifyException(f"{op.name}: constant step operand must be positive, found {integer(step.value)}")

    def _core(self, op: aie.CoreOp) -> None:
        tile = tile_of(op.tile, "aie.core")
        if tile.kind != "core":
            raise VerifyException(f"aie.core: CoreOp cannot be created on a {tile.kind} tile, found {tile}")
        stack = integer(op.stack_size, _DEFAULT_STACK)
        if not 0 <= stack < CORE.memory:
            raise VerifyException(
                f"aie.core: stack_size {stack} leaves no local memory for this tile's buffers "
                f"({CORE.memory} bytes total)"
            )

    def _port(self, op: aie.ObjectFifoAcquireOp | aie.ObjectFifoReleaseOp) -> aie.ObjectFifoCreateOp:
        fifo = self.fifo(op.fifo, op.name)
        name = fifo.sym_name.data
        tile = tile_of(core_of(op).tile, op.name)
        if integer(op.port) == aie.Port.Produce:
            if tile != tile_of(fifo.producer, op.name):
                raise VerifyException(
                    f"{op.name}: producer port of objectFifo {name} accessed by core running on non-producer tile "
                    f"{tile}"
                )
        elif integer(op.port) == aie.Port.Consume:
            consumers = [tile_of(consumer, op.name) for consumer in fifo.consumers]
            if tile not in consumers:
                raise VerifyException(
                    f"{op.name}: consumer port of objectFifo {name} accessed by core running on non-consumer tile "
                    f"{tile}"
                )
        else:
            raise VerifyException(f"{op.name}: {name}: port is 0 (Produce) or 1 (Consume), found {integer(op.port)}")
        link = self.linked.get(name)
        if link is not None:
            through = {tile_of(self.fifo(out, op.name).producer, op.name) for out in link.outs.data}
            if tile in through:
                raise VerifyException(f"{op.name}: {name} is linked at {tile}; a core there cannot access it")
        if integer(op.size) < 1:
            raise VerifyException(f"{op.name}: {name}: must be at least one object, found {integer(op.size)}")
        return fifo

    def _acquire(self, op: aie.ObjectFifoAcquireOp) -> None:
        fifo = self._port(op)
        if op.subview.type.element_type != fifo.elem_type.element_type:
            raise VerifyException(
                f"{op.name}: ObjectFifo element and ObjectFifoSubview element must match ({fifo.sym_name.data})"
            )

    def _release(self, op: aie.ObjectFifoReleaseOp) -> None:
        self._port(op)

    def _access(self, op: aie.ObjectFifoSubviewAccessOp) -> None:
        core_of(op)
        acquire = op.subview.owner
        if not isinstance(acquire, aie.ObjectFifoAcquireOp):
            raise VerifyException(f"{op.name}: expected what an acquire handed out, found {_origin(op.subview)}")
        if not 0 <= integer(op.index) < integer(acquire.size):
            raise VerifyException(f"{op.name}: accessed farther than number of acquired elements (index out of bounds)")
        if op.output.type != acquire.subview.type.element_type:
            raise VerifyException(f"{op.name}: expected {acquire.subview.type.element_type}, found {op.output.type}")

    def _call(self, op: CallOp) -> None:
        core = tile_of(core_of(op).tile, op.name)
        name = symbol(op.callee)
        callee = self._lookup(op.callee, op.name)
        if not isinstance(callee, FuncOp):
            raise VerifyException(f"{op.name}: {name} is an {callee.name}, no func.func")
        wanted, given = callee.function_type.inputs.data, op.operand_types
        if len(wanted) != len(given):
            raise VerifyException(f"{op.name}: {name} takes {len(wanted)} arguments, found {len(given)}")
        for value in op.arguments:
            self._reach(op, core, value)
        for position, (want, have) in enumerate(zip(wanted, given, strict=True)):
            if want != have:
                raise VerifyException(
                    f"{op.name}: operand type mismatch: expected operand type {want}, but provided {have} for operand "
                    f"number {position} of {name}"
                )
        if callee.function_type.outputs.data or op.results:
            raise VerifyException(f"{op.name}: {name}: a kernel returns nothing")

    def _buffer(self, op: aie.BufferOp) -> None:
        what = f"aie.buffer {op.sym_name.data if op.sym_name else ''}"
        if tile_of(op.tile, what).kind == "shim":
            raise VerifyException(f"{what}: a shim tile has no memory")
        element_of(op.result.type, what)

    def _lock(self, op: aie.LockOp) -> None:
        tile_of(op.tile, "aie.lock")
        if not 0 <= integer(op.init) <= CORE.max_lock:
            raise VerifyException(f"aie.lock: init is 0 to {CORE.max_lock}, found {integer(op.init)}")

    def _use_lock(self, op: aie.UseLockOp) -> None:
        core = tile_of(core_of(op).tile, op.name)
        owner = tile_of(lock_of(op.lock, op.name).tile, op.name)
        if not (core.kind == "core" and reaches(core, owner)):
            raise VerifyException(f"{op.name}: the core on {core} cannot reach a lock of {owner}")
        if integer(op.action) not in set(aie.LockAction):
            raise VerifyException(f"{op.name}: action is 0, 1 or 2, found {integer(op.action)}")
        _one_value(op, op.value, len(op.value_operand))

    def _load(self, op: LoadOp | StoreOp) -> None:
        self._reach(op, tile_of(core_of(op).tile, op.name), op.memref)

    def _reach(self, op: Operation, core: Tile, value: SSAValue) -> None:
        if isinstance(value.owner, aie.BufferOp):
            owner = tile_of(value.owner.tile, op.name)
            if not (core.kind == "core" and reaches(core, owner)):
                raise VerifyException(f"{op.name}: the core on {core} cannot reach a buffer of {owner}")

    def _load_pdi(self, op: aiex.LoadPdiOp) -> None:
        sequence_of(op)
        if symbol(op.device_ref) != self.device:
            raise VerifyException(f"{op.name}: device_ref names {symbol(op.device_ref)}, the device is {self.device}")

    def _configure(self, op: aiex.ConfigureTaskForOp) -> None:
        sequence_of(op)
        fifo = self.fifo(op.alloc, op.name)
        ends = [tile_of(value, op.name) for value in (fifo.producer, *fifo.consumers)]
        if all(end.kind != "shim" for end in ends):
            raise VerifyException(f"{op.name}: objectFifo {fifo.sym_name.data} has no end on a shim tile")

    def _descriptor(self, op: aie.DMABDOp) -> None:
        task = op.parent_op()
        if not isinstance(task, aiex.ConfigureTaskForOp):
            raise VerifyException(f"{op.name}: belongs in an aiex.dma_configure_task_for")
        buffer = op.buffer
        if not isinstance(buffer, BlockArgument) or buffer.owner is not sequence_of(task).body.block:
            raise VerifyException(f"{op.name}: expected an argument of the sequence, found {_origin(buffer)}")
        if len(op.runtime):
            raise VerifyException(f"{op.name}: offset, length, sizes and strides must be constants")

    def _await(self, op: aiex.AwaitTaskOp) -> None:
        if not integer(task_of(op).issue_token):
            raise VerifyException(
                f"{op.name}: Cannot wait on a BD that is not configured to issue a token: the task on "
                f"{symbol(task_of(op).alloc)} needs issue_token=True"
            )

    def _step(self, op: Operation) -> None:
        task_of(op)

    def _rtp_write(self, op: aiex.RtpWriteOp) -> None:
        sequence_of(op)
        buffer = self._lookup(op.buffer, op.name)
        if not isinstance(buffer, aie.BufferOp):
            raise VerifyException(f"{op.name}: {symbol(op.buffer)} is an {buffer.name}, no aie.buffer")
        _one_value(op, op.value, len(op.value_operand))

    def _set_lock(self, op: aiex.SetLockOp) -> None:
        sequence_of(op)
        lock_of(op.lock, op.name)


def columns_of(op: aie.DeviceOp) -> int:
    """Return how many columns a device has: npu2 is 8, npu2_1col to npu2_7col are 9 to 15; 8 for any other."""
    number = integer(op.device) - 8
    return number if 1 <= number < _COLUMNS else _COLUMNS


def check_device(op: aie.DeviceOp) -> None:
    """Apply every rule to a device and what is in it; raises `VerifyException` with one line for the first broken one.

    Symbols may be used before they are declared, as in MLIR.
    """
    scope = Scope(op.sym_name.data, columns_of(op))
    for inner in op.body.block.ops:
        scope.declare(inner)
    for inner in (op, *op.body.walk()):
        _check_closed(inner)
        scope.check(inner)


def _check_closed(op: Operation) -> None:
    if type(op) in _CLOSED:
        arguments = op.regions[0].block.args
        if arguments:
            raise VerifyException(f"{op.name}: its body takes no arguments, found {len(arguments)}")


def check_structure(op: aie.DeviceOp) -> None:
    """Apply only those rules to a device without which its text is not a design; raises `VerifyException` as above.

    Lint has the others as findings with place and source, so a design that breaks them can be read for lint.
    """
    scope = Scope(op.sym_name.data)
    for inner in op.body.block.ops:
        name = inner.properties.get("sym_name")
        if name is not None:
            scope.symbols.setdefault(symbol(name), inner)
    for inner in (op, *op.body.walk()):
        try:
            _check_closed(inner)
            if type(inner) in _TOP and not isinstance(inner.parent_op(), aie.DeviceOp):
                raise VerifyException(f"{inner.name}: expects parent op aie.device")
            rule = _STRUCTURE.get(type(inner))
            if rule is not None:
                rule(scope, inner)
        except VerifyException as error:
            raise VerifyException(placed(inner, str(error))) from None


def placed(op: Operation, message: str) -> str:
    """Return a message about an operation that begins with its place: core, sequence and task, or symbol."""
    place = _place(op)
    return message if not place or message.startswith(place) else f"{place}: {message}"


def _place(op: Operation) -> str:
    parts: list[str] = []
    at: Operation | None = op
    while at is not None and not isinstance(at, aie.DeviceOp):
        if isinstance(at, aie.CoreOp) and isinstance(at.tile.owner, aie.TileOp):
            parts.append(str(tile_of(at.tile, at.name)))
        elif isinstance(at, aiex.ConfigureTaskForOp) and "alloc" in at.properties:
            parts.append(f"task on @{_name(at.properties['alloc'])}")
        elif "objFifo_name" in at.properties:
            parts.append(f"FIFO @{_name(at.properties['objFifo_name'])}")
        elif isinstance(at, CallOp) and "callee" in at.properties:
            parts.append(f"call of @{_name(at.properties['callee'])}")
        elif "sym_name" in at.properties:
            parts.append(f"@{_name(at.properties['sym_name'])}")
        elif isinstance(at, aie.TileOp):
            parts.append(f"tile({integer(at.properties.get('col'))},{integer(at.properties.get('row'))})")
        elif isinstance(at, aie.ObjectFifoLinkOp):
            parts.append("link")
        at = at.parent_op()
    return " ".join(reversed(parts))


def _name(attribute: Attribute) -> str:
    try:
        return symbol(attribute)
    except VerifyException:
        return str(attribute)


def core_of(op: Operation) -> aie.CoreOp:
    """Return the core whose program an operation is in."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, aie.CoreOp):
        parent = parent.parent_op()
    if parent is None:
        raise VerifyException(f"{op.name}: must be called from inside a core")
    return parent


def sequence_of(op: Operation) -> aie.RuntimeSequenceOp:
    """Return the runtime sequence an operation stands in."""
    parent = op.parent_op()
    if not isinstance(parent, aie.RuntimeSequenceOp):
        raise VerifyException(f"{op.name}: belongs in a runtime sequence")
    return parent


def task_of(op: Operation) -> aiex.ConfigureTaskForOp:
    """Return the task a start, await or free operation is about."""
    sequence = sequence_of(op)
    task = op.operands[0].owner
    if not isinstance(task, aiex.ConfigureTaskForOp):
        raise VerifyException(f"{op.name}: expected a task, found {_origin(op.operands[0])}")
    if task.parent_op() is not sequence:
        raise VerifyException(f"{op.name}: the task on {symbol(task.alloc)} belongs to another sequence")
    return task


def lock_of(value: SSAValue, user: str) -> aie.LockOp:
    """Return the lock behind a value."""
    if not isinstance(value.owner, aie.LockOp):
        raise VerifyException(f"{user}: expected an aie.lock, found {_origin(value)}")
    return value.owner


def elements_of(type_: MemRefType) -> int:
    """Return the number of elements of a memref."""
    return prod(type_.get_shape())


def element_of(type_: Attribute, what: str) -> int:
    """Return the bytes of a memref's element; refuses what no design may hold: other elements, dynamic shapes."""
    if not isinstance(type_, MemRefType):
        raise VerifyException(f"{what}: expected a memref, found {type_}")
    name = element_name(type_.element_type)
    if name is None:
        raise VerifyException(f"{what}: expected elements of {', '.join(ELEMENT_BYTES)}, found {type_.element_type}")
    if any(size < 1 for size in type_.get_shape()):
        raise VerifyException(f"{what}: expected a memref of fixed sizes of at least 1, found {type_}")
    return ELEMENT_BYTES[name]


def check_dims(what: str, dims: tuple[DimPair, ...], tile: Tile, element: int) -> None:
    """Apply the buffer-descriptor verifier to the dimensions of a FIFO's end on a tile, whatever they go over.

    `element` is the bytes of one element. Source: AIEDialect.cpp DMABDOp::verify (2026), which counts sizes in
    elements.
    """
    if not dims:
        return
    if len(dims) > _DIMS[tile.kind]:
        raise VerifyException(
            f"{what}: Cannot give more than {_DIMS[tile.kind]} dimensions for step sizes and wraps in this tile "
            f"(got {len(dims)} dimensions)"
        )
    for size, stride in dims:
        if stride < 1:
            raise VerifyException(f"{what}: Invalid step size; must be a positive integer, found {stride}")
        if size < 1:
            raise VerifyException(f"{what}: a size is at least 1, found {size}")
        if size > _LARGEST_SIZE:
            raise VerifyException(f"{what}: size {size} may not exceed {_LARGEST_SIZE} elements")
        if stride > _LARGEST_STRIDE:
            raise VerifyException(f"{what}: stride {stride} may not exceed {_LARGEST_STRIDE}")
    if element < WORD_BYTES and dims[-1][1] != 1:
        raise VerifyException(f"{what}: For <32b width datatypes, inner-most dim stride must be 1")


def beyond(dims: tuple[DimPair, ...], elements: int, what: str, kind: str, way: str = "") -> str | None:
    """Return what the verifiers say of dimensions that leave the `elements` a descriptor moves, or None.

    `what` is where they lie and `kind` how the text calls it, `way` whether they are an input's or an output's.
    """
    last = sum(stride * (size - 1) for size, stride in dims)
    if not dims or last < elements:
        return None
    return (
        f"{'s' if way else 'S'}pecified {way}stride(s) and size(s) result in out of bounds access in {what}, for "
        f"index {last} in {kind} of length {elements}"
    )


def beyond_buffer(dims: tuple[DimPair, ...], elements: int) -> str | None:
    """Return what the descriptor's verifier says of dimensions over a buffer of so many elements, or None."""
    for _, stride in dims:
        if stride > elements:
            return f"Step size {stride} exceeds memref size {elements}"
    return beyond(dims, elements, "buffer", "memref")


def _one_value(op: Operation, constant: Attribute | None, operands: int) -> None:
    if (constant is not None) + operands != 1:
        raise VerifyException(f"{op.name}: expected one value, as an operand or as a property")


# By type: no operation has kinds of its own, and asking abstract classes takes long.
_TOP = frozenset(
    {
        aie.TileOp,
        aie.ObjectFifoCreateOp,
        aie.ObjectFifoLinkOp,
        aie.CoreOp,
        aie.BufferOp,
        aie.LockOp,
        aie.RuntimeSequenceOp,
        FuncOp,
    }
)
_CLOSED = frozenset({aie.DeviceOp, aie.CoreOp, aiex.ConfigureTaskForOp})
_RULES: dict[type[Operation], Callable[[Scope, Any], None]] = {
    aie.TileOp: Scope._tile,
    aie.ObjectFifoCreateOp: Scope._create,
    aie.ObjectFifoLinkOp: Scope._link,
    aie.CoreOp: Scope._core,
    aie.ObjectFifoAcquireOp: Scope._acquire,
    aie.ObjectFifoReleaseOp: Scope._release,
    aie.ObjectFifoSubviewAccessOp: Scope._access,
    aie.BufferOp: Scope._buffer,
    aie.LockOp: Scope._lock,
    aie.UseLockOp: Scope._use_lock,
    aie.DMABDOp: Scope._descriptor,
    aiex.LoadPdiOp: Scope._load_pdi,
    aiex.ConfigureTaskForOp: Scope._configure,
    aiex.StartTaskOp: Scope._step,
    aiex.AwaitTaskOp: Scope._await,
    aiex.FreeTaskOp: Scope._step,
    aiex.RtpWriteOp: Scope._rtp_write,
    aiex.SetLockOp: Scope._set_lock,
    CallOp: Scope._call,
    ForOp: Scope._loop,
    LoadOp: Scope._load,
    StoreOp: Scope._load,
}
# Of the rules above those that lint has no finding for.
_STRUCTURE: dict[type[Operation], Callable[[Scope, Any], None]] = {
    aie.ObjectFifoCreateOp: Scope._create_structure,
    aie.ObjectFifoAcquireOp: Scope._acquire_structure,
    aie.ObjectFifoReleaseOp: Scope._port_structure,
    aie.ObjectFifoSubviewAccessOp: Scope._access_structure,
    aie.BufferOp: Scope._buffer,
    aie.UseLockOp: Scope._use_lock_structure,
    aie.DMABDOp: Scope._descriptor,
    aiex.StartTaskOp: Scope._step,
    aiex.AwaitTaskOp: Scope._step,
    aiex.FreeTaskOp: Scope._step,
    aiex.RtpWriteOp: Scope._rtp_write_structure,
    aiex.SetLockOp: Scope._set_lock,
    CallOp: Scope._call_structure,
    ForOp: Scope._loop,
}

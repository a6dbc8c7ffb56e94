"""Reads a design: from the generic MLIR that a generator prints, of either dialect generation, to `Design`.

The text comes from programs of others, so everything about it is checked: what is not a whole, verified module of the
operations in `elfkiln.design.mlir` is refused with one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import StringIO
from math import prod

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from elfkiln.design.mlir import aie_ops as aie
from elfkiln.design.mlir import aiex_ops as aiex
from elfkiln.design.mlir import design_context
from elfkiln.design.mlir.attributes import DimPair, element_name
from elfkiln.design.mlir.design_parser import DesignParser
from elfkiln.design.mlir.verification import verify_module
from elfkiln.design.mlir.verifiers import check_structure, depths_of, integer, lock_of, placed, symbol, tile_of
from elfkiln.design.model import (
    ELEMENT_BYTES,
    Acquire,
    AwaitTask,
    Buffer,
    BufferRef,
    Call,
    Const,
    Core,
    Design,
    Dim,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    Loop,
    LoopIndex,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Statement,
    Step,
    Store,
    Task,
    Tile,
    UseLock,
    Value,
)
from elfkiln.errors import Refused, brief
from elfkiln.hardware.limits import SHIM, WORD_BYTES, limit
from elfkiln.io.canonical import sha256_hex

MAX_CHARACTERS = 16 * 2**20
"""Longest text read: twenty times the largest design of reference size (1,405 tasks, 0.8 MB)."""

_LARGEST_MEMREF = SHIM.length * WORD_BYTES
_DEFAULT_STACK = limit("stack", "core").value
_DEVICES = {8: "npu2"} | {8 + columns: f"npu2_{columns}col" for columns in range(1, 8)}
_OTHER_DEVICES = {4: "npu1"}
_GENERIC = 'generic MLIR ("builtin.module"() ({...}) : () -> ())'
_HOW_GENERIC = (
    "print it with print(ctx.module.operation.get_asm(print_generic_op_form=True)) or aie-opt --mlir-print-op-generic"
)
_C_NAME = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.$-]{0,127}", re.ASCII)
_PRETTY = re.compile(r"(?:\s|//[^\n]*\n)*(?:#\w+\s*=[^\n]*\n\s*)*(?:module\b|aie\.device\b)")
# xDSL's own pattern for strings takes exponential time on one that is not closed, so those are found before it runs.
_STRINGS = re.compile(r'//[^\n]*|"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"|"')
_EMPTY = re.compile(r"(?:\s|//[^\n]*(?:\n|\Z))*\Z")


def read_design(text: str, *, name: str = "design") -> Design:
    """Return the design that a generic MLIR module holds; `name` is what a refusal calls the text.

    Reads both generations of `aie.dma_bd`, `aie.use_lock` and `aiex.npu.rtp_write` (April and August 2026) to equal
    values. Taps of fewer than four dimensions are filled up with outer dimensions of size 1 and stride 0. Raises
    `Refused` with one line for anything else than one whole module with one npu2 device.
    """
    with _refusals_of(name):
        return _read(text)


def read_for_lint(text: str, *, name: str = "design") -> Design:
    """Return the design that a text holds even when it breaks rules that lint has findings for.

    The real package refuses such a module with one line that seldom says where; lint tells each with place and source.
    Raises `Refused` with one line, which names the core, FIFO or task, for what no `Design` can say.
    """
    with _refusals_of(name):
        module = _module(text)
        device = _only_device(module)
        _check_structure(module, device)
        try:
            return _Reader(lenient=True).device(device)
        except VerifyException as error:
            raise Refused(_one_line(error)) from None


def parse_design_module(text: str, *, name: str = "design") -> ModuleOp:
    """Return the verified xDSL module of a design's generic text; raises `Refused` with one line for any other text."""
    with _refusals_of(name):
        return _parse(text)


@contextmanager
def _refusals_of(name: str) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise Refused(f"{name}: nested too deep to be a design") from None
    except Refused as refused:
        raise Refused(f"{name}: {refused}") from None


# Whoever runs a generator, lints its design and compiles it reads the same text.
@lru_cache(maxsize=4)
def _read(text: str) -> Design:
    return design_of_module(_parse(text))


def design_of_module(module: ModuleOp) -> Design:
    """Return the design that a verified module holds; raises `Refused` for one that no `Design` can say."""
    return _Reader().device(_only_device(module))


def _parse(text: str) -> ModuleOp:
    module = _module(text)
    _only_device(module)
    try:
        verify_module(module)
    except RecursionError:
        raise
    except Exception as error:
        # VerifyException for most, but a missing property may end in any other.
        raise Refused(_verify_line(module, error)) from None
    return module


def _check_structure(module: ModuleOp, device: aie.DeviceOp) -> None:
    """Check each operation by itself, and between them only what lint does not."""
    op: Operation = device
    try:
        for op in module.walk():
            if isinstance(op, aie.DeviceOp | func.CallOp):
                # Their traits look at other operations: names declared twice, kernels that are not there.
                replace(op.get_irdl_definition(), traits=traits_def()).verify(op)
            else:
                op.verify(verify_nested_ops=False)
    except RecursionError:
        raise
    except Exception as error:
        raise Refused(placed(op, _with_name(op, error))) from None
    try:
        check_structure(device)
    except VerifyException as error:
        raise Refused(_one_line(error)) from None


def _with_name(op: Operation, error: Exception) -> str:
    message = _one_line(error)
    return message if op.name in message else f"{op.name}: {message}"


def _module(text: str) -> ModuleOp:
    _refuse_other_text(text)
    try:
        return DesignParser(design_context(), text, "design").parse_module()
    except ParseError as error:
        raise _parse_refusal(error, text) from None
    except RecursionError:
        raise
    except Exception as error:
        # Attributes are verified as they are parsed, and xDSL tells broken ones by many classes of exception.
        raise Refused(f"not MLIR that elfkiln reads: {_one_line(error)}") from None


def canonical_text(module: ModuleOp) -> str:
    """Return the one spelling of a module: generic form, values numbered, properties and attributes by name.

    Takes the names that the module's author gave to values away.
    """
    for op in module.walk():
        op.properties = dict(sorted(op.properties.items()))
        op.attributes = dict(sorted(op.attributes.items()))
        for result in op.results:
            result.name_hint = None
        for region in op.regions:
            for argument in (argument for block in region.blocks for argument in block.args):
                argument.name_hint = None
    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    return f"{stream.getvalue()}\n"


def design_digest(text: str, *, name: str = "design") -> str:
    """Return the sha256 of a design's canonical text as 64 hex digits: names of values and white space do not enter it.

    Raises `Refused` as `read_design` does.
    """
    with _refusals_of(name):
        return sha256_hex(canonical_text(_parse(text)).encode())


def _refuse_other_text(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise Refused(f"expected at most {MAX_CHARACTERS} characters, found {len(text)}")
    if _EMPTY.match(text):
        raise Refused(f"expected {_GENERIC}, found nothing")
    if _PRETTY.match(text):
        raise Refused(f"expected {_GENERIC}, found the pretty form; {_HOW_GENERIC}")
    for match in _STRINGS.finditer(text):
        if match[0] == '"':
            line = text.count("\n", 0, match.start()) + 1
            cut = "" if "\n" in text[match.start() :] else "; the text was cut off"
            raise Refused(f"line {line}: a string is not closed or has an unknown escape{cut}")


def _parse_refusal(error: ParseError, text: str) -> Refused:
    start = error.span.start
    message = _one_line(error.msg)
    unknown = re.fullmatch(r"Operation (\S+) is not registered", message)
    if unknown:
        # xDSL points at what follows the name.
        start = max(text.rfind(unknown[1], 0, start), 0)
    line = text.count("\n", 0, start) + 1
    if unknown:
        return Refused(f"line {line}: {brief(unknown[1])} is not an operation that elfkiln reads")
    if message.startswith("values used but not defined"):
        return Refused(message)
    if text.lstrip().startswith('"') and "\n" not in text[start:].strip():
        return Refused(f"line {line}: the text ends in the middle of the module; it was cut off ({message})")
    return Refused(f"line {line}: not MLIR that elfkiln reads: {message}")


def _verify_line(module: ModuleOp, error: Exception) -> str:
    """Return the verifier's message with the operation it is about, which xDSL does not always name."""
    for op in reversed(list(module.walk())):
        try:
            op.verify(verify_nested_ops=False)
        except Exception as found:
            message = _one_line(found)
            return message if isinstance(op, aie.DeviceOp) or op.name in message else f"{op.name}: {message}"
    return _one_line(error)


def _one_line(error: object) -> str:
    text = " ".join(str(error).split())
    return brief(text, 300) if text else type(error).__name__


def _only_device(module: ModuleOp) -> aie.DeviceOp:
    devices = []
    for op in (op for block in module.body.blocks for op in block.ops):
        if not isinstance(op, aie.DeviceOp):
            raise Refused(f"expected nothing but an aie.device in the module, found {op.name}")
        devices.append(op)
    if len(devices) != 1:
        raise Refused(f"expected one aie.device, found {len(devices) or 'none'}; write one design per device")
    return devices[0]


@dataclass(slots=True)
class _Reader:
    """Turns the operations of one device into design values; `lenient` leaves to lint what lint has rules for."""

    lenient: bool = False
    taken: set[str] = field(default_factory=set)
    buffers: dict[aie.BufferOp, Buffer] = field(default_factory=dict)

    def refuse(self, what: str) -> Refused:
        return Refused(what)

    def symbols(self, op: aie.DeviceOp) -> None:
        """Refuse names that no tool downstream could write: kernels are C functions, the rest plain MLIR names."""
        for named in (op, *op.body.block.ops):
            if "sym_name" not in named.properties:
                continue
            name = symbol(named.properties["sym_name"])
            pattern = _C_NAME if isinstance(named, func.FuncOp) else _PLAIN_NAME
            if not pattern.fullmatch(name):
                raise self.refuse(
                    f"{named.name}: expected a plain name of at most 128 characters, found {brief(name)!r}"
                )

    def device(self, op: aie.DeviceOp) -> Design:
        self.symbols(op)
        device = _DEVICES.get(integer(op.device))
        if device is None and self.lenient:
            device = _OTHER_DEVICES.get(integer(op.device), f"device {integer(op.device)}")
        if device is None:
            raise self.refuse(
                f"aie.device: expected npu2 (8) or some of its columns (9 to 15), found device {integer(op.device)}"
            )
        tiles: dict[Tile, None] = {}
        kernels, fifos, links, buffers, cores, sequences = [], [], [], [], [], []
        locks: dict[aie.LockOp, Lock] = {}
        ops = list(op.body.block.ops)
        self.taken = {symbol(inner.properties["sym_name"]) for inner in ops if "sym_name" in inner.properties}
        for inner in ops:
            if isinstance(inner, aie.LockOp):
                locks[inner] = self.lock(inner, len(locks))
        schemes: dict[Tile, str] = {}
        for inner in ops:
            match inner:
                case aie.TileOp():
                    tile = Tile(integer(inner.col), integer(inner.row))
                    tiles[tile] = None
                    if inner.allocation_scheme is not None:
                        schemes[tile] = inner.allocation_scheme.data
                case func.FuncOp():
                    kernels.append(self.kernel(inner))
                case aie.ObjectFifoCreateOp():
                    fifos.append(self.fifo(inner))
                case aie.ObjectFifoLinkOp():
                    links.append(self.link(inner))
                case aie.BufferOp():
                    buffers.append(self.buffer(inner))
                case aie.CoreOp():
                    cores.append(_CoreReader(self, locks).core(inner))
                case aie.RuntimeSequenceOp():
                    sequences.append(_SequenceReader(self, locks).sequence(inner))
                case aie.LockOp() | aie.EndOp():
                    pass
                case _:
                    raise self.refuse(f"{inner.name} does not belong at the top of a device")
        return Design(
            device=device,
            name=op.sym_name.data,
            tiles=tuple(tiles),
            kernels=tuple(kernels),
            fifos=tuple(fifos),
            links=tuple(links),
            buffers=tuple(buffers),
            locks=tuple(locks.values()),
            cores=tuple(cores),
            sequences=tuple(sequences),
            schemes=tuple(schemes.items()),
        )

    def memref(self, type_: Attribute, what: str) -> MemRef:
        """Return a memref type; dynamic shapes, layouts, other elements and absurd sizes are refused."""
        if not isinstance(type_, MemRefType):
            raise self.refuse(f"{what}: expected a memref, found {brief(type_)}")
        element = element_name(type_.element_type)
        plain = MemRefType(type_.element_type, type_.shape)
        if element is None or type_ != plain or any(size < 1 for size in type_.get_shape()):
            known = ", ".join(ELEMENT_BYTES)
            raise self.refuse(f"{what}: expected a memref of fixed sizes and one of {known}, found {brief(type_)}")
        found = MemRef(type_.get_shape(), element)
        if found.bytes > _LARGEST_MEMREF:
            raise self.refuse(f"{what}: expected at most {_LARGEST_MEMREF} bytes, found {brief(type_)}")
        return found

    def count(self, value: int, what: str) -> int:
        """Return a number that may not be negative (to lint it may: it is out of a range)."""
        if value < 0 and not self.lenient:
            raise self.refuse(f"{what}: expected no negative number, found {value}")
        return value

    def lock(self, op: aie.LockOp, number: int) -> Lock:
        name = op.sym_name.data if op.sym_name is not None else self.free_name(f"lock_{number}")
        lock_id = integer(op.lock_id) if op.lock_id is not None else None
        return Lock(name, tile_of(op.tile, op.name), integer(op.init), lock_id)

    def free_name(self, name: str) -> str:
        """Return a name that nothing in the device has; the real package names such things when it places them."""
        while name in self.taken:
            name = f"_{name}"
        self.taken.add(name)
        return name

    def buffer(self, op: aie.BufferOp) -> Buffer:
        found = self.buffers.get(op)
        if found is None:
            name = op.sym_name.data if op.sym_name is not None else self.free_name(f"buffer_{len(self.buffers)}")
            type_ = self.memref(op.result.type, f"aie.buffer {name}")
            initial = None
            if op.initial_value is not None:
                initial = self.values(op.initial_value, type_, f"aie.buffer {name}: initial_value")
            address = integer(op.address) if op.address is not None else None
            found = self.buffers[op] = Buffer(name, tile_of(op.tile, op.name), type_, address, initial)
        return found

    def values(self, dense: Attribute, type_: MemRef, what: str) -> bytes:
        """Return the bytes of a dense constant of a memref's shape and element."""
        if not isinstance(dense, DenseIntOrFPElementsAttr):
            raise self.refuse(f"{what}: expected a dense constant, found {brief(dense)}")
        element = element_name(dense.get_element_type())
        if element != type_.element or prod(dense.get_shape()) != type_.elements:
            raise self.refuse(f"{what}: expected values of {type_}, found those of {brief(dense.type)}")
        return dense.data.data

    def kernel(self, op: func.FuncOp) -> Kernel:
        name = op.sym_name.data
        if op.body.blocks:
            raise self.refuse(f"func.func {name}: expected a declaration, found a body")
        if op.function_type.outputs.data:
            raise self.refuse(f"func.func {name}: a kernel returns nothing")
        link_with = op.attributes.get("link_with")
        if link_with is not None and not isinstance(link_with, StringAttr):
            raise self.refuse(f"func.func {name}: link_with: expected a string, found {brief(link_with)}")
        parameters = tuple(
            self.parameter(type_, f"func.func {name}: parameter {number}")
            for number, type_ in enumerate(op.function_type.inputs.data)
        )
        return Kernel(name, parameters, link_with.data if link_with is not None else None)

    def parameter(self, type_: Attribute, what: str) -> MemRef | str:
        if isinstance(type_, MemRefType):
            return self.memref(type_, what)
        scalar = "index" if isinstance(type_, IndexType) else element_name(type_)
        if scalar is None:
            raise self.refuse(
                f"{what}: expected a memref, index or an integer of 8, 16 or 32 bits, found {brief(type_)}"
            )
        return scalar

    def fifo(self, op: aie.ObjectFifoCreateOp) -> Fifo:
        what = f"aie.objectfifo {op.sym_name.data}"
        if integer(op.plio) or integer(op.disable_synchronization):
            raise self.refuse(f"{what}: plio and disable_synchronization are not supported")
        from_stream = tuple(_dims(dims) for dims in op.from_stream.data)
        return Fifo(
            name=op.sym_name.data,
            producer=tile_of(op.producer, what),
            consumers=tuple(tile_of(consumer, what) for consumer in op.consumers),
            depths=depths_of(op),
            object_type=self.memref(op.elem_type.element_type, what),
            to_stream=_dims(op.to_stream.data),
            from_stream=from_stream if any(from_stream) else (),
            repeat_count=integer(op.repeat_count),
            via_dma=bool(integer(op.via_dma)),
            depth_per_end=isinstance(op.elem_number, ArrayAttr),
            iter_count=integer(op.iter_count),
            initial=self.initial(op, what),
        )

    def initial(self, op: aie.ObjectFifoCreateOp, what: str) -> tuple[bytes, ...]:
        if op.init_values is None:
            return ()
        type_ = self.memref(op.elem_type.element_type, what)
        return tuple(self.values(one, type_, f"{what}: initValues") for one in op.init_values.data)

    def link(self, op: aie.ObjectFifoLinkOp) -> Link:
        return Link(
            ins=tuple(map(symbol, op.ins.data)),
            outs=tuple(map(symbol, op.outs.data)),
            src_offsets=tuple(self.count(integer(offset), "src_offsets") for offset in op.src_offsets.data),
            dst_offsets=tuple(self.count(integer(offset), "dst_offsets") for offset in op.dst_offsets.data),
        )


def _dims(dims: Iterable[DimPair]) -> tuple[Dim, ...]:
    return tuple(Dim(size, stride) for size, stride in dims)


@dataclass(slots=True)
class _Values:
    """The values of one core or sequence by the operation that made them."""

    reader: _Reader
    locks: dict[aie.LockOp, Lock]
    known: dict[SSAValue, Value | ObjectRef] = field(default_factory=dict)

    def value(self, operand: SSAValue, user: str) -> Value:
        found = self.known.get(operand)
        if found is None or isinstance(found, ObjectRef):
            raise self.reader.refuse(f"{user}: expected an integer made before it in the same program")
        return found

    def constant(self, op: arith.ConstantOp) -> None:
        if not isinstance(op.value, IntegerAttr):
            raise self.reader.refuse(f"arith.constant: expected an integer, found {brief(op.value)}")
        self.known[op.result] = Const(integer(op.value))

    def given(self, constant: Attribute | None, operands: Iterable[SSAValue], user: str) -> Value:
        """Return a value that one dialect generation has as a property and the other as an operand."""
        if constant is not None:
            return Const(integer(constant))
        return self.value(next(iter(operands)), user)

    def lock(self, operand: SSAValue, user: str) -> str:
        return self.locks[lock_of(operand, user)].name


class _CoreReader(_Values):
    """Reads one core's program; `number`s count each kind of statement from 0 in the program's order."""

    acquires = 0
    loads = 0
    loops = 0

    def core(self, op: aie.CoreOp) -> Core:
        return Core(
            tile=tile_of(op.tile, op.name),
            stack_size=integer(op.stack_size, _DEFAULT_STACK),
            body=tuple(self.statements(op.body.block)),
            link_with=op.link_with.data if op.link_with is not None else None,
            dynamic=None if op.dynamic is None else bool(integer(op.dynamic)),
        )

    def statements(self, block: Block) -> Iterator[Statement]:
        for op in block.ops:
            match op:
                case arith.ConstantOp():
                    self.constant(op)
                case arith.IndexCastOp():
                    self.known[op.result] = self.value(op.input, op.name)
                case aie.ObjectFifoAcquireOp():
                    yield Acquire(self.acquires, symbol(op.fifo), _port(op.port), integer(op.size))
                    self.known[op.subview] = ObjectRef(self.acquires, 0)
                    self.acquires += 1
                case aie.ObjectFifoSubviewAccessOp():
                    acquired = self.known.get(op.subview)
                    if not isinstance(acquired, ObjectRef):
                        raise self.reader.refuse(f"{op.name}: expected objects acquired before it in the same program")
                    self.known[op.output] = ObjectRef(acquired.acquire, integer(op.index))
                case aie.ObjectFifoReleaseOp():
                    yield Release(symbol(op.fifo), _port(op.port), integer(op.size))
                case func.CallOp():
                    name = symbol(op.callee)
                    yield Call(name, tuple(self.argument(value, f"call of {name}") for value in op.arguments))
                case memref.LoadOp():
                    yield self.load(op)
                case memref.StoreOp():
                    yield self.store(op)
                case aie.UseLockOp():
                    lock = self.lock(op.lock, op.name)
                    action = _ACTIONS[aie.LockAction(integer(op.action))]
                    yield UseLock(lock, action, self.given(op.value, op.value_operand, op.name))
                case scf.ForOp():
                    yield self.loop(op)
                case scf.YieldOp() | aie.EndOp():
                    pass
                case _:
                    raise self.reader.refuse(f"{op.name} does not belong in a core's program")

    def argument(self, value: SSAValue, user: str) -> ObjectRef | BufferRef | Value:
        if isinstance(value.owner, aie.BufferOp):
            return BufferRef(self.reader.buffer(value.owner).name)
        found = self.known.get(value)
        if found is None:
            raise self.reader.refuse(f"{user}: expected a value made before it in the same program")
        return found

    def load(self, op: memref.LoadOp) -> Load:
        found = Load(self.loads, *self.element(op))
        self.known[op.res] = Loaded(self.loads)
        self.loads += 1
        return found

    def store(self, op: memref.StoreOp) -> Store:
        return Store(*self.element(op), self.value(op.value, op.name))

    def element(self, op: memref.LoadOp | memref.StoreOp) -> tuple[str, Value]:
        """Return the buffer and the element that a load or store is about, counted through all dimensions."""
        buffer = op.memref.owner
        if not isinstance(buffer, aie.BufferOp):
            raise self.reader.refuse(f"{op.name}: expected an element of an aie.buffer")
        found = self.reader.buffer(buffer)
        indices = [self.value(index, op.name) for index in op.indices]
        if len(indices) != len(found.type.shape):
            raise self.reader.refuse(f"{op.name}: expected {len(found.type.shape)} indices, found {len(indices)}")
        if len(indices) == 1:
            return found.name, indices[0]
        place = 0
        for index, size in zip(indices, found.type.shape, strict=True):
            if not isinstance(index, Const):
                raise self.reader.refuse(f"{op.name}: expected constants as the indices of {found.type}")
            place = place * size + index.value
        return found.name, Const(place)

    def loop(self, op: scf.ForOp) -> Loop:
        if op.iter_args:
            raise self.reader.refuse("scf.for: expected no values carried from turn to turn")
        number = self.loops
        self.loops += 1
        lower, upper, step = (self.value(bound, op.name) for bound in (op.lb, op.ub, op.step))
        if isinstance(step, Const) and step.value < 1:
            raise self.reader.refuse(f"scf.for: expected a step of at least 1, found {step.value}")
        self.known[op.body.block.args[0]] = LoopIndex(number)
        return Loop(number, lower, upper, step, tuple(self.statements(op.body.block)))


_ACTIONS = {
    aie.LockAction.Acquire: "acquire",
    aie.LockAction.Release: "release",
    aie.LockAction.AcquireGreaterEqual: "acquire_ge",
}


def _port(attribute: Attribute) -> str:
    return aie.Port(integer(attribute)).name.lower()


class _SequenceReader(_Values):
    """Reads one runtime sequence."""

    def sequence(self, op: aie.RuntimeSequenceOp) -> Sequence:
        name = op.sym_name.data
        tasks: list[Task] = []
        numbers: dict[SSAValue, int] = {}
        steps: list[Step] = []
        arguments = tuple(
            self.reader.memref(argument.type, f"sequence {name}: argument {argument.index}")
            for argument in op.body.block.args
        )

        def number(task: SSAValue) -> int:
            if task not in numbers:
                raise self.reader.refuse(f"sequence {name}: a task is used before it is configured")
            return numbers[task]

        for inner in op.body.block.ops:
            match inner:
                case arith.ConstantOp():
                    self.constant(inner)
                case aiex.ConfigureTaskForOp():
                    numbers[inner.result] = len(tasks)
                    tasks.append(self.task(inner, len(tasks), len(steps), arguments))
                case aiex.StartTaskOp():
                    steps.append(StartTask(number(inner.task)))
                case aiex.AwaitTaskOp():
                    steps.append(AwaitTask(number(inner.task)))
                case aiex.FreeTaskOp():
                    steps.append(FreeTask(number(inner.task)))
                case aiex.LoadPdiOp():
                    steps.append(LoadPdi(symbol(inner.device_ref)))
                case aiex.RtpWriteOp():
                    value = self.fixed(self.given(inner.value, inner.value_operand, inner.name), inner.name)
                    index = self.reader.count(integer(inner.index), f"{inner.name}: index")
                    steps.append(RtpWrite(symbol(inner.buffer), index, value))
                case aiex.SetLockOp():
                    steps.append(SetLock(self.lock(inner.lock, inner.name), integer(inner.value)))
                case _:
                    raise self.reader.refuse(f"sequence {name}: {inner.name} does not belong in a sequence")
        return Sequence(name, arguments, tuple(tasks), tuple(steps))

    def fixed(self, value: Value, user: str) -> int:
        if not isinstance(value, Const):
            raise self.reader.refuse(f"{user}: expected a constant value")
        return value.value

    def task(self, op: aiex.ConfigureTaskForOp, number: int, steps_before: int, arguments: tuple[MemRef, ...]) -> Task:
        fifo = symbol(op.alloc)
        what = f"task {number} on {fifo}"
        descriptors = [inner for inner in op.body.block.ops if isinstance(inner, aie.DMABDOp)]
        if len(descriptors) != 1 or len(op.body.block.ops) != 2:
            raise self.reader.refuse(f"{what}: expected one aie.dma_bd and aie.end, found {len(op.body.block.ops)} ops")
        bd = descriptors[0]
        buffer = bd.buffer
        assert isinstance(buffer, BlockArgument)
        sizes, strides = self.tap(bd, what)
        offset = bd.static_offset if bd.static_offset is not None else bd.offset
        length = bd.static_len if bd.static_len is not None else bd.length
        return Task(
            number=number,
            fifo=fifo,
            argument=buffer.index,
            offset=self.reader.count(integer(offset), f"{what}: offset"),
            sizes=sizes,
            strides=strides,
            length=self.reader.count(integer(length, arguments[buffer.index].elements), f"{what}: length"),
            repeat_count=self.reader.count(integer(op.repeat_count), f"{what}: repeat_count"),
            issue_token=bool(integer(op.issue_token)),
            burst_length=self.burst(integer(bd.burst_length), what),
            configured_at=steps_before,
        )

    def burst(self, length: int, what: str) -> int:
        if length < 0:
            raise self.reader.refuse(f"{what}: burst_length: expected no negative number, found {length}")
        return length

    def tap(self, bd: aie.DMABDOp, what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return sizes and strides, four of each, or none for a linear transfer."""
        if bd.dimensions is not None:
            sizes = tuple(size for size, _ in bd.dimensions.data)
            strides = tuple(stride for _, stride in bd.dimensions.data)
        else:
            sizes, strides = _numbers(bd.static_sizes), _numbers(bd.static_strides)
        if self.reader.lenient and (len(sizes) != len(strides) or len(sizes) > 4):
            return sizes, strides
        if len(sizes) != len(strides) or len(sizes) > 4:
            raise self.reader.refuse(
                f"{what}: expected up to 4 sizes and as many strides, found {len(sizes)} and {len(strides)}"
            )
        for value in (*sizes, *strides):
            self.reader.count(value, f"{what}: sizes and strides")
        missing = 4 - len(sizes) if sizes else 0
        return (1,) * missing + sizes, (0,) * missing + strides


def _numbers(array: DenseArrayBase[IntegerType] | None) -> tuple[int, ...]:
    return tuple(array.get_values()) if array is not None else ()

"""The module under construction: where operations go, and the check of each one as it is made.

No part of the real `aie`; its other modules use it. The state is a stack, so that a generator's `with` blocks and
decorators nest, and it is empty outside `mlir_mod_ctx`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn, TypeVar

import numpy as np
from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    BFloat16Type,
    BoolAttr,
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    Float32Type,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
    Signedness,
    SymbolRefAttr,
    TensorType,
    i32,
    i64,
)
from xdsl.dialects.scf import ForOp, YieldOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from elfkiln.design.mlir.aie_ops import DeviceOp
from elfkiln.design.mlir.verification import verify_module
from elfkiln.design.mlir.verifiers import Scope, UnknownSymbolError, columns_of

AnyOperation = TypeVar("AnyOperation", bound=Operation)

NOT_SUPPORTED = "is not supported by elfkiln's aie: write generators at the dialect level"


class MLIRError(Exception):
    """A verifier refused an operation (the real package's `aie.ir.MLIRError`)."""


class Value:
    """A value of the module: a sequence's argument, an acquired object, a loop's index or a loaded number."""

    __slots__ = ("ssa",)

    def __init__(self, ssa: SSAValue) -> None:
        """Wrap an xDSL value."""
        self.ssa = ssa

    @property
    def type(self) -> Attribute:
        """The value's type."""
        return self.ssa.type

    def __str__(self) -> str:
        """Name the value by its type; values have no names before the module is printed."""
        return f"Value(<{self.type}>)"

    __repr__ = __str__


def _refuse_arithmetic(self: Value, *_: object) -> NoReturn:
    raise NotImplementedError(
        f"{self}: a design's core programs load, loop and call, they do not compute; use Python integers or the kernel"
    )


_OPERATORS = ("add", "sub", "mul", "floordiv", "truediv", "mod")
_DUNDERS = (
    *_OPERATORS,
    *(f"r{name}" for name in _OPERATORS),
    *("lt", "le", "gt", "ge", "neg", "getitem", "setitem", "bool", "index", "int"),
)
for _name in _DUNDERS:
    setattr(Value, f"__{_name}__", _refuse_arithmetic)


@dataclass(slots=True)
class Construction:
    """One module under construction."""

    module: ModuleOp
    blocks: list[Block]
    scopes: list[tuple[Block, Scope]] = field(default_factory=list)


_stack: list[Construction] = []


def current() -> Construction:
    """Return the module under construction; `RuntimeError` outside of `mlir_mod_ctx`."""
    if not _stack:
        raise RuntimeError("no module is under construction; build it in `with mlir_mod_ctx() as ctx:`")
    return _stack[-1]


@contextmanager
def constructing(module: ModuleOp) -> Iterator[Construction]:
    """Make a module the one under construction."""
    state = Construction(module, [module.body.block])
    _stack.append(state)
    try:
        yield state
    finally:
        _stack.remove(state)


@contextmanager
def inserting(block: Block) -> Iterator[None]:
    """Send the operations made meanwhile to the end of a block."""
    blocks = current().blocks
    depth = len(blocks)
    blocks.append(block)
    try:
        yield
    finally:
        del blocks[depth:]


@contextmanager
def in_device(op: DeviceOp) -> Iterator[None]:
    """Send operations to a device's body, checked against what the device declares."""
    state = current()
    block = op.body.block
    state.scopes.append((block, Scope(op.sym_name.data, columns_of(op), descriptors=True)))
    try:
        with inserting(block):
            yield
        try:
            state.scopes[-1][1].finish()
        except VerifyException as error:
            raise MLIRError(str(error)) from None
    finally:
        state.scopes.pop()


def emit(op: AnyOperation) -> AnyOperation:
    """Append an operation where operations go now, and check it; `MLIRError` when a verifier would refuse it."""
    state = current()
    block = state.blocks[-1]
    block.add_op(op)
    if isinstance(op, DeviceOp) == bool(state.scopes):
        parent = "builtin.module" if state.scopes else "aie.device"
        raise MLIRError(f"{op.name}: expects parent op {parent}")
    if not state.scopes:
        return op
    device, scope = state.scopes[-1]
    try:
        if block is device:
            scope.declare(op)
        scope.check(op)
    except UnknownSymbolError:
        # The symbol may come later, as in MLIR; the whole module is verified when it is printed.
        pass
    except VerifyException as error:
        raise MLIRError(str(error)) from None
    return op


def verify(module: ModuleOp) -> None:
    """Check a whole module; `MLIRError` with one line when it is unfinished or breaks a rule."""
    if any(state.module is module and len(state.blocks) > 1 for state in _stack):
        raise MLIRError("the module is unfinished: print it after the device's function has ended")
    for op in module.walk():
        if isinstance(op, ForOp) and not isinstance(op.body.block.last_op, YieldOp):
            raise MLIRError("scf.for: a loop was left in the middle; a range_ loop runs to its end, once")
    try:
        verify_module(module)
    except VerifyException as error:
        raise MLIRError(" ".join(str(error).split())) from None


def ssa_of(value: object, what: str) -> SSAValue:
    """Return the xDSL value behind what a generator passes: a `Value`, or an object with a `result`."""
    found = value if isinstance(value, Value) else getattr(value, "result", None)
    if not isinstance(found, Value):
        raise TypeError(f"{what}: expected a value of the module, found {type(value).__name__}")
    return found.ssa


def whole_number(value: object, what: str) -> int:
    """Return an integer argument (Python's or numpy's); `TypeError` for anything else."""
    if isinstance(value, bool):
        raise TypeError(f"{what}: expected an integer, found {value}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        raise TypeError(f"{what}: expected an integer, found {type(value).__name__}") from None


@cache
def _i32(value: int) -> IntegerAttr[IntegerType]:
    return IntegerAttr(value, i32)


def int32(value: object, what: str) -> IntegerAttr[IntegerType]:
    """Return an i32 attribute; `ValueError` when the number does not fit."""
    number = whole_number(value, what)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{what}: {number} does not fit 32 bits")
    return _i32(number)


def int64_array(values: Sequence[object], what: str) -> DenseArrayBase[IntegerType]:
    """Return `array<i64: ...>`."""
    return _i64_array(tuple(whole_number(value, what) for value in values))


@cache
def _i64_array(values: tuple[int, ...]) -> DenseArrayBase[IntegerType]:
    return DenseArrayBase.from_list(i64, values)


# One object for all: what is the same object need not be compared, verified and printed anew.
INDEX = IndexType()
_TRUTH = (BoolAttr.from_bool(False), BoolAttr.from_bool(True))


def boolean(value: object) -> BoolAttr:
    """Return an i1 attribute."""
    return _TRUTH[bool(value)]


@cache
def reference(name: str) -> SymbolRefAttr:
    """Return `@name`."""
    return SymbolRefAttr(name)


def constant(value: int, type_: Attribute) -> SSAValue:
    """Append an `arith.constant`; `ValueError` when the value does not fit, `MLIRError` for an unsigned type."""
    if isinstance(type_, IntegerType):
        if type_.signedness.data is not Signedness.SIGNLESS:
            raise MLIRError(f"arith.constant: integer return type must be signless, found {type_}")
        bits = type_.width.data
        if not -(2 ** (bits - 1)) <= value < 2**bits:
            raise ValueError(f"the constant {value} does not fit {type_}")
    elif not isinstance(type_, IndexType):
        raise TypeError(f"expected an integer type for the constant {value}, found {type_}")
    return emit(ConstantOp.create(properties={"value": IntegerAttr(value, type_)}, result_types=[type_])).result


_ELEMENTS: dict[Any, IntegerType | Float32Type | BFloat16Type] = {
    np.int8: IntegerType(8),
    np.int16: IntegerType(16),
    np.int32: IntegerType(32),
    np.int64: IntegerType(64),
    np.uint8: IntegerType(8, Signedness.UNSIGNED),
    np.uint16: IntegerType(16, Signedness.UNSIGNED),
    np.uint32: IntegerType(32, Signedness.UNSIGNED),
    np.float32: Float32Type(),
}


def type_of(given: object, what: str) -> Attribute:
    """Return the type for `np.ndarray[(m, k), np.dtype[np.int8]]`, a numpy scalar type or a type of the module.

    `TypeError` for other elements than int8, uint8, int16, uint16, int32, uint32, int64, float32 and ml_dtypes'
    bfloat16, and for a shape that is not a tuple of positive integers.
    """
    if isinstance(given, Attribute):
        return given
    try:
        return _type_of(given)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None


def array_type_of(given: object, what: str) -> MemRefType:
    """Return the type for an array type; `TypeError` as `type_of`, and for a scalar's."""
    found = type_of(given, what)
    if not isinstance(found, MemRefType):
        raise TypeError(f"{what}: expected an array type, found {found}")
    return found


@cache
def _type_of(given: Any) -> Attribute:
    if getattr(given, "__origin__", None) is not np.ndarray:
        return _element(given)
    arguments = given.__args__
    if len(arguments) != 2 or getattr(arguments[1], "__origin__", None) is not np.dtype:
        raise TypeError(f"expected np.ndarray[(sizes), np.dtype[element]], found {given}")
    shape, element = arguments[0], arguments[1].__args__[0]
    if not isinstance(shape, tuple) or not all(type(size) is int and size > 0 for size in shape):
        raise TypeError(f"np.ndarray shape must be a tuple of positive integers, found {shape}")
    return MemRefType(_element(element), shape)


def _element(scalar: Any) -> IntegerType | Float32Type | BFloat16Type:
    # ml_dtypes is not numpy's and may be absent: its bfloat16 is known by its name.
    if isinstance(scalar, type) and (scalar.__module__, scalar.__name__) == ("ml_dtypes", "bfloat16"):
        return BFloat16Type()
    if not isinstance(scalar, type) or scalar not in _ELEMENTS:
        known = ", ".join(kind.__name__ for kind in _ELEMENTS)
        raise TypeError(f"expected one of {known}, bfloat16, found {getattr(scalar, '__name__', scalar)}")
    return _ELEMENTS[scalar]


def dense(values: Any, type_: MemRefType, what: str, *, tensor: bool) -> DenseIntOrFPElementsAttr:
    """Return an array as `dense<...>` of a memref's shape and element (of a tensor's type, or of the memref's own).

    `TypeError` for what is not an array or list of numbers, `ValueError` when shape or element is another.
    """
    array = np.asarray(values, dtype=np.int32) if isinstance(values, list) else values
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what}: expected a numpy array, found {type(values).__name__}")
    element = _element(array.dtype.type)
    if array.shape != type_.get_shape() or element != type_.element_type:
        raise ValueError(f"{what}: expected values of {type_}, found an array of {element} and shape {array.shape}")
    of: Any = TensorType(type_.element_type, type_.shape) if tensor else type_
    return DenseIntOrFPElementsAttr(of, BytesAttr(np.ascontiguousarray(array).tobytes()))


def name_of(given: object, what: str) -> str:
    """Return a name argument; `TypeError` for anything but text."""
    if not isinstance(given, str):
        raise TypeError(f"{what}: expected a name, found {type(given).__name__}")
    return given


class Absent:
    """Stands for a function or class of the real package that no design of elfkiln can use: using it says so."""

    def __init__(self, name: str) -> None:
        """Stand for what has this name."""
        self._name = name

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"{self._name} is not supported by elfkiln's aie; designs use object FIFOs and tasks")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to be called."""
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse to be asked for a member; Python's own questions get its own answer."""
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()


def names_of_absent(names: Sequence[str]) -> dict[str, Absent]:
    """Return what stands for functions and classes of the real package, by their names."""
    return {name: Absent(name) for name in names}


def absent_from(module: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module that has a part of what the real one has: the rest is refused by name."""

    def refuse(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"{module}.{name} {NOT_SUPPORTED}")

    return refuse


def unsupported(what: str, **given: object) -> None:
    """Refuse the arguments of the real package that a design of elfkiln cannot hold, if one is given."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{what}: {name}= is not supported by elfkiln's aie")

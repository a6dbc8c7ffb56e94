"""Verifies modules: xDSL's verification, to the word, in a fraction of the time.

A sequence is hundreds of operations that differ in nothing but their place: same operation, same types, same
properties. What the operation's definition says of those is looked up once for all of them.
"""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, SymbolRefAttr
from xdsl.ir import Attribute, Operation, Region
from xdsl.ir.core import ErasedSSAValue
from xdsl.traits import IsTerminator, NoTerminator, OpTrait

from elfkiln.design.mlir import aie_ops as aie
from elfkiln.design.mlir import aiex_ops as aiex


def verify_module(module: ModuleOp) -> None:
    """Verify a module with all its operations; raises as `module.verify` does.

    What is not found sound at once is left to xDSL, whose error says what is wrong.
    """
    try:
        _Verification().check(module)
    except Exception:
        module.verify()


class _Doubtful(Exception):
    """A module is not plainly sound."""


# Operations of which only the definition says what they must be: no code of their own looks at them. Of an integer
# it asks for the type alone, of a reference whether it is nested.
_DEFINED = frozenset({*aie.AIE.operations, *aiex.AIEX.operations} - {aie.DeviceOp})


def _looked_at(attribute: Attribute) -> int:
    """Return what stands for an attribute in a key: the same for two that no definition tells apart."""
    if type(attribute) is IntegerAttr:
        return id(attribute.type)
    if type(attribute) is SymbolRefAttr:
        return -len(attribute.nested_references.data) - 1
    return id(attribute)


class _Verification:
    """One run over a module, whose attributes stay where they are meanwhile: identity stands for equality."""

    def __init__(self) -> None:
        self._sound: set[tuple[object, ...]] = set()
        # Of the traits of an operation those that look at more than is in the key.
        self._traits: dict[type[Operation], tuple[OpTrait, ...]] = {}
        self._open_ended: dict[type[Operation], bool] = {}

    def check(self, op: Operation) -> None:
        """Check an operation and all in it, as `Operation.verify` does."""
        operands = op.operands
        for operand in operands:
            if type(operand) is ErasedSSAValue:
                raise _Doubtful
        if op.successors:
            raise _Doubtful
        for region in op.regions:
            self._region(op, region)
        kind = type(op)
        if kind not in _DEFINED:
            op.verify_()
            return
        key = (
            kind,
            *map(_looked_at, op.properties.values()),
            *op.properties,
            None,
            *[id(operand.type) for operand in operands],
            None,
            *[id(result.type) for result in op.results],
            None,
            *op.attributes,
            *map(id, op.attributes.values()),
            None,
            *[(len(r.blocks), *map(id, r.first_block.arg_types if r.first_block else ())) for r in op.regions],
        )
        if key not in self._sound:
            op.verify_()
            self._sound.add(key)
            return
        traits = self._traits.get(kind)
        if traits is None:
            traits = tuple(one for one in op.traits if type(one).verify is not OpTrait.verify)
            self._traits[kind] = traits
        for trait in traits:
            trait.verify(op)

    def _region(self, parent: Operation, region: Region) -> None:
        """Check a region: where it is the only one of its region, a block ends with a terminator."""
        kind = type(parent)
        open_ended = self._open_ended.get(kind)
        if open_ended is None:
            open_ended = self._open_ended[kind] = parent.has_trait(NoTerminator)
        blocks = list(region.blocks)
        if len(blocks) > 1:
            raise _Doubtful
        for block in blocks:
            if block.parent is not region:
                raise _Doubtful
            for op in block.ops:
                if op.parent is not block:
                    raise _Doubtful
                self.check(op)
            last = block.last_op
            if not open_ended and (last is None or not last.has_trait(IsTerminator)):
                raise _Doubtful

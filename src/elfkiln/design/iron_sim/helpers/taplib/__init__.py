"""`TensorAccessPattern`: an access pattern as one value."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from elfkiln.design.iron_sim.building import absent_from

__all__ = ["TensorAccessPattern"]

__getattr__ = absent_from("aie.helpers.taplib")


class TensorAccessPattern:
    """An offset, sizes and strides over a tensor, in elements, outermost first."""

    def __init__(self, tensor_dims: Sequence[int], offset: int, sizes: Sequence[int], strides: Sequence[int]) -> None:
        """Check the pattern: sizes of at least 1, no negative stride, an offset inside the tensor.

        Leading dimensions of size 1 get stride 0. That the pattern ends inside the tensor is not checked, as in the
        real package.
        """
        if len(sizes) != len(strides):
            raise ValueError(f"expected as many sizes as strides, found {list(sizes)} and {list(strides)}")
        if not sizes or any(size < 1 for size in sizes):
            raise ValueError(f"every size must be at least 1, found {list(sizes)}")
        if any(stride < 0 for stride in strides):
            raise ValueError(f"no stride may be negative, found {list(strides)}")
        if not 0 <= offset < prod(tensor_dims):
            raise ValueError(f"the offset must be inside the tensor of {prod(tensor_dims)} elements, found {offset}")
        self.tensor_dims = tuple(tensor_dims)
        self.offset = offset
        self.sizes = list(sizes)
        self.strides = list(strides)
        for position, size in enumerate(self.sizes):
            if size != 1:
                break
            self.strides[position] = 0

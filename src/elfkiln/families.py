"""What a kernel family hands to a build: the rendered generator and the microkernel objects it links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelObject:
    """A microkernel object: its name in the design's `link_with`, its source below kernels/, and its -D defines."""

    object_name: str
    source: str
    defines: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RenderedGenerator:
    """A rendered IRON program and the microkernel objects its design links."""

    text: str
    kernels: tuple[KernelObject, ...]

"""Microkernels without a design: builds a library of them and calls them, once or in a plain loop over tiles.

Tests check a microkernel alone with it; a benchmark takes its plain loop as the yardstick of the simulator's speed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elfkiln.errors import SimulationFailed, refusal
from elfkiln.families.family import KernelObject
from elfkiln.targets.sim.c_source import version_script
from elfkiln.targets.sim.compiler import Compiler, Unit, sim_sources
from elfkiln.targets.sim.machine import SCALARS
from elfkiln.targets.sim.private_library import PrivateLibrary
from elfkiln.targets.sim.zig_toolchain import SimToolchain

Array: TypeAlias = NDArray[Any]

POINTER = "pointer"
ALIGNMENT = 64
_EXPORTS = ("alone_reset", "alone_call", "alone_loop")


@dataclass(frozen=True, slots=True)
class Tiles:
    """A pointer of a plain loop: in turn t it stands at byte t // every % count * step of `array`."""

    array: Array
    every: int
    count: int
    step: int


class _CTiles(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("every", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("step", ctypes.c_uint64),
    )


class KernelLibrary:
    """Loaded microkernels. Their control registers keep what a kernel sets until `reset`, as a core's do."""

    def __init__(self, library: PrivateLibrary, entries: Mapping[str, Sequence[str]]) -> None:
        """Take a loaded library and its entries with the kinds of their parameters, in the library's order."""
        self._library = library
        self._numbers = {name: number for number, name in enumerate(entries)}
        self._kinds = {name: tuple(kinds) for name, kinds in entries.items()}

    def reset(self) -> None:
        """Put the control registers in the state after a reset: floor, no saturation."""
        self._library.function("alone_reset", None)()

    def call(self, entry: str, *arguments: Array | int) -> None:
        """Call a microkernel with arrays and integers; raises `SimulationFailed` with the rule it broke."""
        kinds = self._kinds[entry]
        if len(arguments) != len(kinds):
            raise refusal(entry, expected=f"{len(kinds)} arguments", found=len(arguments))
        pointers = (ctypes.c_void_p * len(kinds))()
        scalars = (ctypes.c_int64 * len(kinds))()
        for position, argument in enumerate(arguments):
            if isinstance(argument, int):
                scalars[position] = argument
            else:
                pointers[position] = argument.ctypes.data
        types = ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p
        function = self._library.function("alone_call", ctypes.c_char_p, *types)
        _raise(entry, function(self._numbers[entry], pointers, scalars))

    def loop(self, entry: str, turns: int, *tiles: Tiles) -> None:
        """Call a microkernel `turns` times in a plain loop; raises as `call`, and `Refused` for tiles past an array."""
        if len(tiles) != len(self._kinds[entry]) or any(kind != POINTER for kind in self._kinds[entry]):
            raise refusal(entry, expected="tiles for each of its pointers", found=len(tiles))
        for position, one in enumerate(tiles):
            if one.every < 1 or one.count < 1 or one.step * one.count > one.array.nbytes:
                raise refusal(f"{entry}: tiles {position}", expected=f"within {one.array.nbytes} bytes", found=one.step)
        rows = (_CTiles * len(tiles))(*(_CTiles(t.array.ctypes.data, t.every, t.count, t.step) for t in tiles))
        types = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
        function = self._library.function("alone_loop", ctypes.c_char_p, *types)
        _raise(entry, function(self._numbers[entry], turns, len(tiles), rows))

    def close(self) -> None:
        """Unload the library."""
        self._library.close()


def build_kernel_library(
    kernels: Sequence[KernelObject],
    entries: Mapping[str, Sequence[str]],
    *,
    kernel_root: Path,
    toolchain: SimToolchain,
    cache: Path,
    workdir: Path,
) -> KernelLibrary:
    """Build a library of microkernel objects and load it.

    `entries` maps each entry to the kinds of its parameters: `pointer`, or a scalar's MLIR type. Raises `Refused` and
    `BuildFailed` as `build_sim_elf` does.
    """
    compiler = Compiler(toolchain, cache, workdir)
    alone = Path(__file__).parent / "kernels" / "alone.c"
    read = sim_sources(kernel_root, kernels)
    sources = {**read, "alone.c": alone.read_bytes(), "table.c": _table(entries).encode()}
    units = [
        Unit("cc", "alone.c", (*toolchain.runtime_flags, "-Iruntime"), sources, {}, shared=False),
        Unit("cc", "table.c", (*toolchain.design_flags, "-Iruntime"), sources, {}, shared=False),
        *(compiler.kernel(kernel, read) for kernel in kernels),
    ]
    path = compiler.link(compiler.compile_all(units), version_script(_EXPORTS), "kernels.elf")
    return KernelLibrary(PrivateLibrary("microkernels", path.read_bytes()), entries)


def aligned_copy(array: Array) -> Array:
    """Return a C-contiguous copy of an array that begins at a multiple of 64 bytes, as every object on a core does."""
    flat = np.empty(array.nbytes + ALIGNMENT, dtype=np.uint8)
    start = -flat.ctypes.data % ALIGNMENT
    copy = flat[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _table(entries: Mapping[str, Sequence[str]]) -> str:
    lines = ["#include <stdint.h>", "typedef void alone_kernel(void *const *pointers, const int64_t *scalars);"]
    for number, (name, kinds) in enumerate(entries.items()):
        if not name.isascii() or not name.isidentifier():
            raise refusal("microkernel entry", expected="a C name", found=name)
        types = ["void *" if kind == POINTER else SCALARS[kind] for kind in kinds]
        passed = [
            f"pointers[{i}]" if kind == POINTER else f"({SCALARS[kind]})scalars[{i}]" for i, kind in enumerate(kinds)
        ]
        lines += [
            f'extern void entry_{number}({", ".join(types) or "void"}) __asm__("{name}");',
            f"static void call_{number}(void *const *pointers, const int64_t *scalars) {{",
            "    (void)pointers, (void)scalars;",
            f"    entry_{number}({', '.join(passed)});",
            "}",
        ]
    table = ", ".join(f"call_{number}" for number in range(len(entries)))
    return "\n".join([*lines, f"alone_kernel *const alone_kernels[] = {{{table}}};", ""])


def _raise(entry: str, said: bytes | None) -> None:
    if said is not None:
        raise SimulationFailed(f"{entry}: {said.decode('utf-8', 'replace')}")


def object_of(compiler: Compiler, kernel_root: Path, kernel: KernelObject) -> bytes:
    """Compile one microkernel of a folder and return its object."""
    return compiler.compile_all([compiler.kernel(kernel, sim_sources(kernel_root, [kernel]))])[0]

"""Builds and runs sim ELFs in the tests: designs as data or as MLIR, the project's microkernels and the tests' own."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

from elfkiln.design.model import Design
from elfkiln.families.family import KernelObject
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim.make_elf import build_design, build_sim_elf
from elfkiln.targets.sim.sim_elf import SimElf
from elfkiln.targets.sim.zig_toolchain import SimToolchain
from kernel_library import build_kernel_library
from once import once
from projects import CHECKOUT, OBJECTS, SUPPORT

IRON = CHECKOUT / "tests" / "examples" / "iron"
DIGEST = "0" * 64


def mm_i8(m: int, name: str = "mm.o", k: int = 64, n: int = 128) -> KernelObject:
    return KernelObject(name, "mm_i8.cc", {"DIM_M": str(m), "DIM_K": str(k), "DIM_N": str(n)})


def mm_pb16i(m: int, name: str = "mm.o", k: int = 64, n: int = 128) -> KernelObject:
    return KernelObject(name, "mm_pb16i.cc", {"DIM_M": str(m), "DIM_K": str(k), "DIM_N": str(n)})


def row_major_a(m: int, name: str) -> KernelObject:
    return KernelObject(name, "row_major_a.cc", {"DIM_M": str(m), "DIM_K": "64", "DIM_N": "128"})


def relay(size: int = 1024, name: str = "relay.o") -> KernelObject:
    return KernelObject(name, "relay.cc", {"RELAY_BYTES": str(size)})


def plain(name: str = "relay.o") -> KernelObject:
    return KernelObject(name, "plain.cc", {})


@dataclass
class Simulator:
    """Builds in folders of its own below `root`; the microkernels are the project's and tests/support/kernels.

    Workers may share a root: an object that one has compiled is there for all.
    """

    root: Path
    toolchain: SimToolchain
    numbers: count = field(default_factory=count)

    @classmethod
    def below(cls, root: Path) -> Simulator:
        def make() -> None:
            copied = root / "copied"
            shutil.copytree(CHECKOUT / "kernels", copied)
            for path in (SUPPORT / "kernels").glob("*.cc"):
                shutil.copy(path, copied)
            OBJECTS.mkdir(parents=True, exist_ok=True)
            (root / "cache").mkdir()
            (root / "cache" / "objects").symlink_to(OBJECTS)
            copied.rename(root / "kernels")

        root.mkdir(exist_ok=True)
        once(root / "kernels", make)
        return cls(root, SimToolchain.from_pin(read_lock(CHECKOUT / "toolchain.lock").target("sim")))

    def folder(self) -> Path:
        folder = self.root / f"build-{os.getpid()}-{next(self.numbers)}"
        folder.mkdir()
        return folder

    def options(self) -> dict:
        return {
            "kernel_root": self.root / "kernels",
            "toolchain": self.toolchain,
            "cache": self.root / "cache",
            "workdir": self.folder(),
        }

    def path(self, design: Design | str, *kernels: KernelObject) -> Path:
        if isinstance(design, str):
            return build_sim_elf(design, kernels, **self.options()).path
        return build_design(design, DIGEST, kernels, **self.options()).path

    def elf(self, design: Design | str, *kernels: KernelObject) -> SimElf:
        return SimElf(self.path(design, *kernels))

    def library(self, kernels, entries):
        return build_kernel_library(kernels, entries, **self.options())


def example(name: str, generation: str = "2026-08") -> str:
    return (IRON / f"{name}.{generation}.generic.mlir").read_text()


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A times B, which are int8, in 64-bit integers."""
    # float64 holds every sum below 2^53 exactly, of K up to 2^39 then, and numpy multiplies it 50 times as fast.
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)


def coordinates(rows: int, columns: int, seed: int = 3) -> np.ndarray:
    """int8 values that follow from their place and repeat only after a long way."""
    i, j = np.indices((rows, columns), dtype=np.int64)
    return ((i * 37 + j * 101 + i * j * seed) % 251 - 125).astype(np.int8)


def blocked(b: np.ndarray) -> np.ndarray:
    """B in the b8 layout, worked out from its definition: tiles of 64 x 128, nt-major, each in 8 x 8 blocks."""
    K, N = b.shape
    tiles = b.reshape(K // 64, 8, 8, N // 128, 16, 8)
    return np.ascontiguousarray(tiles.transpose(3, 0, 1, 4, 2, 5)).reshape(-1)


def packed_ternary(b: np.ndarray) -> np.ndarray:
    """B in the pb16i layout, from its definition: groups [n32][kb] of bytes r * 8 + c, code of block q at bit 2q."""
    K, N = b.shape
    codes = (b + 1).astype(np.uint8).reshape(K // 64, 8, 8, N // 128, 4, 4, 8)  # ki kb r nt n32 q c
    bytes_ = sum(codes[:, :, :, :, :, q, :] << (2 * q) for q in range(4))  # ki kb r nt n32 c
    return np.ascontiguousarray(bytes_.transpose(3, 0, 4, 1, 2, 5)).reshape(-1).astype(np.uint8)

"""Designs with long runs: what the real package printed, clean to lint, and the product when they are simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elfkiln.design.reader import parse_design_module, read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.families.family import KernelObject
from elfkiln.lint import lint
from simulating import blocked, coordinates, mm_i8, packed_ternary, product

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "long-runs"
NAMES = ("b8_128_a_from_stream", "b8_128_a_in_mem_tile", "pb16i_16_four_rows", "rm_128_panel")
QUARTER = KernelObject("mm_pb16i_16x64x128.o", "mm_pb16i.cc", {"DIM_M": "16", "DIM_K": "64", "DIM_N": "32"})


def program(name: str, K: int = 5120, N: int = 14336) -> str:
    """A recorded program, made for other K and N where these are given."""
    text = (EXAMPLES / f"{name}.py").read_text()
    recorded = f"K, N = {16 if name.startswith('pb16i') else 128}, 5120, 14336"
    assert text.count(recorded) == 1
    return text.replace(recorded, recorded.replace("5120", str(K)).replace("14336", str(N)))


@pytest.mark.parametrize("name", NAMES)
def test_the_stand_in_prints_what_the_real_package_printed(name, tmp_path):
    printed = run_generator(program(name), workdir=tmp_path)
    recorded = (EXAMPLES / f"{name}.2026-08.generic.mlir").read_text()
    assert parse_design_module(printed).is_structurally_equivalent(parse_design_module(recorded))
    assert lint(read_design(recorded)) == ()


@pytest.mark.parametrize("name", NAMES)
def test_it_multiplies(simulator, name, tmp_path):
    packed = name.startswith("pb16i")
    M, K, N = 16 if packed else 128, 1024, 2048
    printed = run_generator(program(name, K, N), workdir=tmp_path)
    elf = simulator.elf(printed, QUARTER if packed else mm_i8(32, "mm_32x64x128.o"))
    a, b = coordinates(M, K), coordinates(K, N, 5)
    if packed:
        b = (b % 3 - 1).astype(np.int8)
    host = packed_ternary(b) if packed else b if name.startswith("rm") else blocked(b)
    assert np.array_equal(elf.run(a, host, np.full((M, N), -1, np.int32)), product(a, b))

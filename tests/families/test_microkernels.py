"""The microkernels alone, against numpy: every tile size, extreme values, layouts, and what they touch."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from elfkiln.errors import BuildFailed, SimulationFailed
from elfkiln.targets.sim.compiler import Compiler
from kernel_library import Tiles, aligned_copy
from simulating import blocked, coordinates, mm_i8, mm_pb16i, packed_ternary

POINTERS = ["pointer"] * 3
ENTRIES = {
    "int8": (mm_i8, {"zero_i32": ["pointer"], "matmul_i8_i32": POINTERS}, "matmul_i8_i32"),
    "ternary": (mm_pb16i, {"zero_i32": ["pointer"], "matmul_pb16i_i32": POINTERS}, "matmul_pb16i_i32"),
}
CASES = [(family, m) for family in ENTRIES for m in (16, 32)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-m{case[1]}")
def tile(request, simulator):
    """A library of one microkernel object: (library, entry, rows, whether its weights are packed)."""
    family, m = request.param
    kernel, entries, entry = ENTRIES[family]
    return simulator.library([kernel(m)], entries), entry, m, family == "ternary"


def a_tile(a):
    """A tile of A as a panel task streams it: 8 x 8 blocks, those of equal k side by side."""
    m, k = a.shape
    return aligned_copy(a.reshape(m // 8, 8, k // 8, 8).transpose(2, 0, 1, 3).reshape(-1))


def c_tile(c):
    m, n = c.shape
    return aligned_copy(c.reshape(m // 8, 8, n // 8, 8).transpose(0, 2, 1, 3).reshape(-1))


def from_c_tile(c, m, n=128):
    return c.reshape(m // 8, n // 8, 8, 8).transpose(0, 2, 1, 3).reshape(m, n)


def weights(rng, packed):
    low, high = (-1, 1) if packed else (-128, 127)
    return rng.integers(low, high, (64, 128), dtype=np.int8, endpoint=True)


def as_tile(b, packed):
    return aligned_copy(packed_ternary(b) if packed else blocked(b))


def test_products_add_up_on_what_was_there(tile):
    library, entry, m, packed = tile
    rng = np.random.default_rng(m)
    for a, b in (
        (rng.integers(-128, 127, (m, 64), dtype=np.int8, endpoint=True), weights(rng, packed)),
        (coordinates(m, 64), (coordinates(64, 128, 9) % 3 - 1 if packed else coordinates(64, 128, 9)).astype(np.int8)),
        (np.full((m, 64), -128, np.int8), np.full((64, 128), -1 if packed else -128, np.int8)),
        (np.eye(m, 64, dtype=np.int8), weights(rng, packed)),
    ):
        before = rng.integers(-(2**30), 2**30, (m, 128), dtype=np.int32)
        c = c_tile(before)
        library.call(entry, a_tile(a), as_tile(b, packed), c)
        expected = before + a.astype(np.int64) @ b.astype(np.int64)
        assert np.array_equal(from_c_tile(c, m), expected)


def test_one_hot_operands_find_every_place(tile):
    """One 1 in A and one in B of the same k: a single 1 in C, at their row and column."""
    library, entry, m, packed = tile
    for row, k, column in ((0, 0, 0), (m - 1, 63, 127), (9, 17, 42), (7, 8, 127), (8, 7, 8), (15, 56, 33)):
        a, b = np.zeros((m, 64), np.int8), np.zeros((64, 128), np.int8)
        a[row, k] = b[k, column] = 1
        c = c_tile(np.zeros((m, 128), np.int32))
        library.call(entry, a_tile(a), as_tile(b, packed), c)
        expected = np.zeros((m, 128))
        expected[row, column] = 1
        assert np.array_equal(from_c_tile(c, m), expected), (row, k, column)


def test_zero_clears_its_tile_and_no_more(tile):
    library, _, m, _ = tile
    room = aligned_copy(np.full(m * 128 + 32, -1, np.int32))
    library.call("zero_i32", room[16:])
    assert np.array_equal(room[16 : 16 + m * 128], np.zeros(m * 128))
    assert np.array_equal(np.concatenate([room[:16], room[16 + m * 128 :]]), np.full(32, -1))


def test_a_product_touches_its_tile_and_no_more(tile):
    library, entry, m, packed = tile
    rng = np.random.default_rng(1)
    a, b = a_tile(rng.integers(-9, 9, (m, 64), dtype=np.int8)), as_tile(weights(rng, packed), packed)
    kept = a.copy(), b.copy()
    room = aligned_copy(np.full(m * 128 + 32, -7, np.int32))
    library.call(entry, a, b, room[16:])
    assert np.array_equal(np.concatenate([room[:16], room[16 + m * 128 :]]), np.full(32, -7))
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])


def test_operands_must_be_aligned(tile):
    library, entry, m, packed = tile
    b_bytes = 2048 if packed else 8192
    arrays = [
        aligned_copy(np.zeros(size + 64, np.uint8)).view(dtype)
        for size, dtype in ((m * 64, np.int8), (b_bytes, np.uint8), (m * 512, np.int32))
    ]
    library.call(entry, *arrays)
    for number in range(3):
        shifted = list(arrays)
        shifted[number] = arrays[number].view(np.uint8)[32:]
        with pytest.raises(SimulationFailed, match=rf"{entry}: aie::load_v: the address is not aligned"):
            library.call(entry, *shifted)


def test_both_families_agree_on_ternary_weights(simulator):
    rng = np.random.default_rng(8)
    a, b = rng.integers(-128, 127, (32, 64), dtype=np.int8), rng.integers(-1, 2, (64, 128), dtype=np.int8)
    results = []
    for family, packed in (("int8", False), ("ternary", True)):
        kernel, entries, entry = ENTRIES[family]
        c = c_tile(np.zeros((32, 128), np.int32))
        simulator.library([kernel(32)], entries).call(entry, a_tile(a), as_tile(b, packed), c)
        results.append(c)
    assert np.array_equal(*results)


def test_every_code_expands(simulator):
    """All 81 bytes of four valid codes, at every place of a group that a byte can be."""
    kernel, entries, entry = ENTRIES["ternary"]
    library = simulator.library([kernel(16)], entries)
    codes = np.stack(np.meshgrid(*[[-1, 0, 1]] * 4, indexing="ij"), axis=-1).reshape(81, 4).astype(np.int8)
    b = np.zeros((64, 128), np.int8)
    for place in range(64 * 32):  # byte `place` of the tile: k row, then column of a 32-wide group
        k, rest = divmod(place, 32)
        n32, c = divmod(rest, 8)
        for q in range(4):
            b[k, n32 * 32 + q * 8 + c] = codes[place % 81, q]
    a = np.zeros((16, 64), np.int8)
    for first in range(0, 64, 16):
        a[:] = 0
        a[np.arange(16), first + np.arange(16)] = 1
        c = c_tile(np.zeros((16, 128), np.int32))
        library.call(entry, a_tile(a), as_tile(b, packed=True), c)
        assert np.array_equal(from_c_tile(c, 16), b[first : first + 16])


def test_a_plain_loop_over_tiles(simulator):
    kernel, entries, entry = ENTRIES["int8"]
    library = simulator.library([kernel(16)], entries)
    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 9, (16, 256), dtype=np.int8), rng.integers(-9, 9, (256, 256), dtype=np.int8)
    tiles_a = aligned_copy(np.concatenate([a_tile(a[:, 64 * i : 64 * i + 64]) for i in range(4)]))
    c = aligned_copy(np.zeros(2 * 16 * 128, np.int32))
    library.loop(
        entry, 8, Tiles(tiles_a, 1, 4, 1024), Tiles(aligned_copy(blocked(b)), 1, 8, 8192), Tiles(c, 4, 2, 8192)
    )
    halves = [from_c_tile(half, 16) for half in c.reshape(2, -1)]
    assert np.array_equal(np.hstack(halves), a.astype(np.int64) @ b.astype(np.int64))


# What the array's linker and memory allow.


@pytest.mark.parametrize(("family", "m"), CASES)
def test_an_object_holds_code_and_constants_only(simulator, family, m):
    kernel, entries, _ = ENTRIES[family]
    compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
    elf = ELFFile(BytesIO(compiler.kernel(simulator.root / "kernels", kernel(m))))
    sizes = {section.name: section["sh_size"] for section in elf.iter_sections()}
    assert sum(size for name, size in sizes.items() if name.startswith((".data", ".bss", ".tbss", ".eh_frame"))) == 0
    assert not any(name.startswith((".init_array", ".ctors", ".gcc_except")) for name in sizes)
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    functions = {
        one.name for one in symbols if one["st_info"]["bind"] == "STB_GLOBAL" and one["st_shndx"] != "SHN_UNDEF"
    }
    assert functions == {*entries, *(f"elfkiln_declaration_{name}" for name in entries)}
    needed = {one.name for one in symbols if one["st_shndx"] == "SHN_UNDEF"} - {""}
    assert needed <= {"elfkiln_violation", "memset", "memcpy"}


def test_declarations_vanish_on_the_array(simulator):
    """Without ELFKILN_SIM, which only target sim sets, the entry macro leaves nothing behind."""
    flags = tuple(flag for flag in simulator.toolchain.microkernel_flags if not flag.startswith("-DELFKILN_SIM"))
    toolchain = replace(simulator.toolchain, microkernel_flags=flags)
    assert len(flags) == len(simulator.toolchain.microkernel_flags) - 1
    compiler = Compiler(toolchain, simulator.root / "cache", simulator.folder())
    for kernel in (mm_i8(32), mm_pb16i(16)):
        elf = ELFFile(BytesIO(compiler.kernel(simulator.root / "kernels", kernel)))
        names = {symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
        assert "zero_i32" in names
        assert not any(name.startswith("elfkiln_declaration") for name in names)


@pytest.mark.parametrize(
    ("defines", "words"),
    [
        ({"DIM_M": "8"}, "rows are blocked by two 8 x 8 blocks"),
        ({"DIM_M": "24"}, "rows are blocked by two 8 x 8 blocks"),
        ({"DIM_K": "8"}, "depth is blocked by 8"),
        ({"DIM_K": "60"}, "depth is blocked by 8"),
        ({"DIM_N": "48"}, "columns are blocked by 8, and packed weights by 32"),
    ],
)
@pytest.mark.parametrize("source", ["mm_i8.cc", "mm_pb16i.cc"])
def test_tiles_that_the_blocking_does_not_fit(simulator, source, defines, words):
    kernel = replace(mm_i8(32), source=source)
    kernel = replace(kernel, defines={**kernel.defines, **defines})
    compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
    with pytest.raises(BuildFailed) as caught:
        compiler.kernel(simulator.root / "kernels", kernel)
    assert words in compiler.log
    assert "\n" not in str(caught.value)


def test_tile_sizes_are_required(simulator):
    compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
    with pytest.raises(BuildFailed, match="compile with -DDIM_M=, -DDIM_K= and -DDIM_N="):
        compiler.kernel(simulator.root / "kernels", replace(mm_i8(32), defines={}))

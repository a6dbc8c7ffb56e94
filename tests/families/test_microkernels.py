"""The microkernels alone, against numpy: every tile size, extreme values, layouts, and what they touch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from elfkiln.errors import BuildFailed, SimulationFailed
from elfkiln.targets.sim.compiler import Compiler
from kernel_library import KernelLibrary, Tiles, aligned_copy, object_of
from projects import CHECKOUT
from simulating import blocked, coordinates, mm_i8, mm_pb16i

POINTERS = ["pointer"] * 3
ENTRIES = {
    "int8": (mm_i8, {"zero_i32": ["pointer"], "matmul_i8_i32": POINTERS}, "matmul_i8_i32"),
    "ternary": (mm_pb16i, {"zero_i32": ["pointer"], "matmul_pb16i_i32": POINTERS}, "matmul_pb16i_i32"),
}
# The tiles m x k x n that designs use, split and deep ones among them, and two that none uses.
SIZES = {
    "int8": [(16, 64, 128), (32, 64, 128), (32, 128, 128), (16, 8, 32)],
    "ternary": [(16, 64, 128), (16, 64, 64), (16, 64, 32), (32, 64, 128), (32, 128, 128), (32, 256, 128), (48, 64, 32)],
}
CASES = [(family, *size) for family, sizes in SIZES.items() for size in sizes]


@dataclass(frozen=True)
class Tile:
    """A library of one microkernel object with its entry, the sizes of its tile, and whether its weights are packed."""

    library: KernelLibrary
    entry: str
    m: int
    k: int
    n: int
    packed: bool

    def matmul(self, a, b, c):
        self.library.call(self.entry, a_tile(a), as_tile(b, self.packed), c)

    def a(self, rng):
        return rng.integers(-128, 127, (self.m, self.k), dtype=np.int8, endpoint=True)

    def weights(self, rng):
        low, high = (-1, 1) if self.packed else (-128, 127)
        return rng.integers(low, high, (self.k, self.n), dtype=np.int8, endpoint=True)

    @property
    def b_bytes(self):
        return self.k * self.n // (4 if self.packed else 1)


def tile_of(simulator, family, m, k, n):
    kernel, entries, entry = ENTRIES[family]
    return Tile(simulator.library([kernel(m, k=k, n=n)], entries), entry, m, k, n, family == "ternary")


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def tile(request, simulator):
    return tile_of(simulator, *request.param)


def a_tile(a):
    """A tile of A as the DMA brings it: 8 x 8 blocks, those of equal k side by side."""
    m, k = a.shape
    return aligned_copy(a.reshape(m // 8, 8, k // 8, 8).transpose(2, 0, 1, 3).reshape(-1))


def c_tile(c):
    m, n = c.shape
    return aligned_copy(c.reshape(m // 8, 8, n // 8, 8).transpose(0, 2, 1, 3).reshape(-1))


def from_c_tile(c, m, n):
    return c.reshape(m // 8, n // 8, 8, 8).transpose(0, 2, 1, 3).reshape(m, n)


def as_tile(b, packed):
    """A tile of B: int8 in 8 x 8 blocks row by row; ternary in groups [n32][kb] of bytes [r][c], block q at bit 2q."""
    k, n = b.shape
    if not packed:
        return aligned_copy(b.reshape(k // 8, 8, n // 8, 8).transpose(0, 2, 1, 3).reshape(-1))
    codes = (b + 1).astype(np.uint8).reshape(k // 8, 8, n // 32, 4, 8)  # kb r n32 q c
    bytes_ = sum(codes[:, :, :, q, :] << (2 * q) for q in range(4))  # kb r n32 c
    return aligned_copy(bytes_.transpose(2, 0, 1, 3).reshape(-1).astype(np.uint8))


def test_products_add_up_on_what_was_there(tile):
    m, k, n = tile.m, tile.k, tile.n
    rng = np.random.default_rng(m + k + n)
    coded = coordinates(k, n, 9)
    for a, b in (
        (tile.a(rng), tile.weights(rng)),
        (coordinates(m, k), (coded % 3 - 1 if tile.packed else coded).astype(np.int8)),
        (np.full((m, k), -128, np.int8), np.full((k, n), -1 if tile.packed else -128, np.int8)),
        (np.eye(m, k, dtype=np.int8), tile.weights(rng)),
    ):
        before = rng.integers(-(2**30), 2**30, (m, n), dtype=np.int32)
        c = c_tile(before)
        tile.matmul(a, b, c)
        expected = before + a.astype(np.int64) @ b.astype(np.int64)
        assert np.array_equal(from_c_tile(c, m, n), expected)


def test_one_hot_operands_find_every_place(tile):
    """One 1 in A and one in B of the same k: a single 1 in C, at their row and column."""
    m, k, n = tile.m, tile.k, tile.n
    for row, depth, column in (
        (0, 0, 0),
        (m - 1, k - 1, n - 1),
        (9, 17 % k, 42 % n),
        (7, 8 % k, n - 1),
        (8, 7, 8),
        (15, k - 8, 33 % n),
        (m // 2, k // 2, n // 2),
    ):
        a, b = np.zeros((m, k), np.int8), np.zeros((k, n), np.int8)
        a[row, depth] = b[depth, column] = 1
        c = c_tile(np.zeros((m, n), np.int32))
        tile.matmul(a, b, c)
        expected = np.zeros((m, n))
        expected[row, column] = 1
        assert np.array_equal(from_c_tile(c, m, n), expected), (row, depth, column)


def test_zero_clears_its_tile_and_no_more(tile):
    size = tile.m * tile.n
    room = aligned_copy(np.full(size + 32, -1, np.int32))
    tile.library.call("zero_i32", room[16:])
    assert np.array_equal(room[16 : 16 + size], np.zeros(size))
    assert np.array_equal(np.concatenate([room[:16], room[16 + size :]]), np.full(32, -1))


def test_a_product_touches_its_tile_and_no_more(tile):
    rng = np.random.default_rng(1)
    a, b = a_tile(tile.a(rng)), as_tile(tile.weights(rng), tile.packed)
    kept = a.copy(), b.copy()
    size = tile.m * tile.n
    room = aligned_copy(np.full(size + 32, -7, np.int32))
    tile.library.call(tile.entry, a, b, room[16:])
    assert np.array_equal(np.concatenate([room[:16], room[16 + size :]]), np.full(32, -7))
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])


def test_operands_must_be_aligned(tile):
    arrays = [
        aligned_copy(np.zeros(size + 64, np.uint8)).view(dtype)
        for size, dtype in ((tile.m * tile.k, np.int8), (tile.b_bytes, np.uint8), (tile.m * tile.n * 4, np.int32))
    ]
    tile.library.call(tile.entry, *arrays)
    for number in range(3):
        shifted = list(arrays)
        shifted[number] = arrays[number].view(np.uint8)[32:]
        with pytest.raises(SimulationFailed, match=rf"{tile.entry}: aie::load_v: the address is not aligned"):
            tile.library.call(tile.entry, *shifted)


def test_both_families_agree_on_ternary_weights(simulator):
    rng = np.random.default_rng(8)
    a, b = rng.integers(-128, 127, (32, 64), dtype=np.int8), rng.integers(-1, 2, (64, 128), dtype=np.int8)
    results = []
    for family in ENTRIES:
        c = c_tile(np.zeros((32, 128), np.int32))
        tile_of(simulator, family, 32, 64, 128).matmul(a, b, c)
        results.append(c)
    assert np.array_equal(*results)


@pytest.mark.parametrize("m", [16, 32])
def test_every_code_expands(simulator, m):
    """All 81 bytes of four valid codes, at every place of a group that a byte can be, in both blockings."""
    tile = tile_of(simulator, "ternary", m, 64, 128)
    codes = np.stack(np.meshgrid(*[[-1, 0, 1]] * 4, indexing="ij"), axis=-1).reshape(81, 4).astype(np.int8)
    b = np.zeros((64, 128), np.int8)
    for place in range(64 * 32):  # byte `place` of the tile: k row, then column of a 32-wide group
        k, rest = divmod(place, 32)
        n32, c = divmod(rest, 8)
        for q in range(4):
            b[k, n32 * 32 + q * 8 + c] = codes[place % 81, q]
    a = np.zeros((m, 64), np.int8)
    for first in range(0, 64, m):
        a[:] = 0
        a[np.arange(m), first + np.arange(m)] = 1
        c = c_tile(np.zeros((m, 128), np.int32))
        tile.matmul(a, b, c)
        assert np.array_equal(from_c_tile(c, m, 128), b[first : first + m])


def test_a_plain_loop_over_tiles(simulator):
    tile = tile_of(simulator, "int8", 16, 64, 128)
    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 9, (16, 256), dtype=np.int8), rng.integers(-9, 9, (256, 256), dtype=np.int8)
    tiles_a = aligned_copy(np.concatenate([a_tile(a[:, 64 * i : 64 * i + 64]) for i in range(4)]))
    c = aligned_copy(np.zeros(2 * 16 * 128, np.int32))
    tile.library.loop(
        tile.entry, 8, Tiles(tiles_a, 1, 4, 1024), Tiles(aligned_copy(blocked(b)), 1, 8, 8192), Tiles(c, 4, 2, 8192)
    )
    halves = [from_c_tile(half, 16, 128) for half in c.reshape(2, -1)]
    assert np.array_equal(np.hstack(halves), a.astype(np.int64) @ b.astype(np.int64))


def without_comments(text):
    return re.sub(r"//.*", "", text)


def test_loops_have_constant_bounds_and_no_hint_on_them():
    """What Peano pipelines: a pragma's least number of turns would override the constant it knows."""
    folder = CHECKOUT / "kernels"
    texts = {path.name: without_comments(path.read_text()) for path in folder.glob("*.*")}
    assert set(texts) == {"gemm_tile.h", "kernel_entry.h", "mm_i8.cc", "mm_pb16i.cc"}
    for name, text in texts.items():
        assert not re.search(r"iteration_count|initiation_interval|chess_|for \(unsigned \w+ = 1", text), name
        for bound in re.findall(r"for \(unsigned \w+ = [^;]*; \w+ < ([^;]+);", text):
            assert re.fullmatch(r"m \* n / 16|tile::[MKN]_BLOCKS|GROUPS|N", bound), (name, bound)
        for entry in re.findall(r"^void \w+\(([^)]*)\)", text, re.MULTILINE):
            assert all("*__restrict " in parameter for parameter in entry.split(",")), (name, entry)
    # One word to the compiler, on the loop that Peano would unroll less by itself.
    assert [name for name, text in texts.items() if "ELFKILN_UNROLL(8)" in text] == ["gemm_tile.h"]


# What the array's linker and memory allow.


@pytest.mark.parametrize(("family", "m", "k", "n"), CASES)
def test_an_object_holds_code_and_constants_only(simulator, family, m, k, n):
    kernel, entries, _ = ENTRIES[family]
    compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
    elf = ELFFile(BytesIO(object_of(compiler, simulator.root / "kernels", kernel(m, k=k, n=n))))
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
        elf = ELFFile(BytesIO(object_of(compiler, simulator.root / "kernels", kernel)))
        names = {symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()}
        assert "zero_i32" in names
        assert not any(name.startswith("elfkiln_declaration") for name in names)


@pytest.mark.parametrize(
    ("defines", "words"),
    [
        ({"DIM_M": "8"}, "rows are blocked by two 8 x 8 blocks"),
        ({"DIM_M": "24"}, "rows are blocked by two 8 x 8 blocks"),
        ({"DIM_K": "4"}, "depth is blocked by 8"),
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
        object_of(compiler, simulator.root / "kernels", kernel)
    assert words in compiler.log
    assert "\n" not in str(caught.value)


def test_tile_sizes_are_required(simulator):
    compiler = Compiler(simulator.toolchain, simulator.root / "cache", simulator.folder())
    with pytest.raises(BuildFailed, match="compile with -DDIM_M=, -DDIM_K= and -DDIM_N="):
        object_of(compiler, simulator.root / "kernels", replace(mm_i8(32), defines={}))

"""Sim ELFs are read, checked, compared with names, loaded and run; everything else is told in one line."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import struct
import threading
from dataclasses import replace

import numpy as np
import pytest

from elfkiln.design.gemm import Geometry
from elfkiln.design.model import MemRef
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import Differs, Refused, SimulationFailed
from elfkiln.families.family import KernelObject
from elfkiln.targets.sim.sim_elf import SimElf, SimElfInfo, SimEntry, read_sim_elf
from gemm_designs import Shape, panel_b8, panel_rm
from projects import CHECKOUT
from simulating import DIGEST, blocked, example, mm_i8, mm_pb16i, packed_ternary, plain, product
from small_designs import relay, with_sequence, with_task

FULL_ELFS = sorted((CHECKOUT / "tests" / "examples" / "full-elf").glob("*.elf"))
SMALL = Shape(16, 128, 256, 1, 2, m=16)


@pytest.fixture(scope="module")
def panel(simulator):
    """The path of a small GEMM: M=16 K=128 N=256 b8 on two columns."""
    return simulator.path(panel_b8(SMALL), mm_i8(16))


@pytest.fixture(scope="module")
def sealed(simulator):
    return simulator.path(example("sequences_rtp"), mm_pb16i(16, "mm_pb16i_16x64x128.o"))


def refused(data: bytes) -> str:
    with pytest.raises(Differs) as caught:
        read_sim_elf(data)
    line = str(caught.value)
    assert "\n" not in line
    return line


# Reading.


def test_what_an_elf_says_of_itself(panel):
    info = read_sim_elf(panel)
    assert info == SimElfInfo(
        design=DIGEST,
        device="main",
        cpu="x86_64_v3",
        entries=(
            SimEntry(
                symbol="main_seq",
                sequence="seq",
                loads=True,
                arguments=(MemRef((16 * 128,), "i8"), MemRef((128 * 256,), "i8"), MemRef((16 * 256,), "i32")),
                geometry=Geometry(M=16, K=128, N=256, weight_bits=8, contiguous=True, columns=2, rows=1),
                again="main_seq_again",
            ),
        ),
    )
    assert read_sim_elf(panel.read_bytes()) == info == read_sim_elf(str(panel))


def test_what_a_sealed_elf_says_of_itself(sealed):
    info = read_sim_elf(sealed)
    assert [(entry.symbol, entry.loads, entry.again) for entry in info.entries] == [
        ("main_init", True, "main_init_again"),
        ("main_seq_K128_N256", False, None),
        ("main_seq_K256_N512", False, None),
    ]
    assert [entry.geometry for entry in info.entries] == [
        None,
        Geometry(16, 128, 256, 2, True, 2, 1),
        Geometry(16, 256, 512, 2, True, 2, 1),
    ]


def test_the_design_digest_is_that_of_the_text(simulator):
    text = example("copy_one_core")
    import hashlib

    info = read_sim_elf(simulator.path(text, plain()))
    assert info.design == hashlib.sha256(text.encode()).hexdigest()
    assert info.entries[0].geometry is None


def test_no_name_and_no_path_is_in_an_elf(simulator, panel):
    data = panel.read_bytes()
    for word in (str(simulator.root), "full_i8", "runtime.c", "design.c", "mm_i8.cc", os.environ.get("USER", "root")):
        assert word.encode() not in data, word


def test_every_symbol_is_an_entry(panel, sealed):
    """readelf's view: the dynamic symbol table holds the entries, there is no other, nothing is needed."""
    from elftools.elf.elffile import ELFFile

    loading = {"main_init", "main_init_again"}
    for path, names in (
        (panel, {"main_seq", "main_seq_again"}),
        (sealed, {*loading, "main_seq_K128_N256", "main_seq_K256_N512"}),
    ):
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            assert {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()} - {""} == names
            assert elf.get_section_by_name(".symtab") is None
            assert elf.get_section_by_name(".note.elfkiln")["sh_type"] == "SHT_NOTE"
            assert not any(True for _ in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED"))


@pytest.mark.parametrize("size", [0, 1, 59, 63])
def test_a_stub(panel, size):
    assert f"{size} bytes are not an ELF; it is a stub or was cut off" in refused(panel.read_bytes()[:size])


def test_another_file():
    assert "does not begin as an ELF does" in refused(b"#!/bin/sh\n" + b"\n" * 100)


def test_every_truncation_is_seen(panel):
    data = panel.read_bytes()
    for size in [64, 100, 1000, len(data) // 2, len(data) - 4096, len(data) - 64, len(data) - 1]:
        assert "cut off" in refused(data[:size]), size


def test_an_added_byte(panel):
    assert "something was added" in refused(panel.read_bytes() + b"\0")


@pytest.mark.parametrize("path", FULL_ELFS, ids=lambda path: path.name)
def test_a_full_elf_of_the_npu(path):
    assert "full ELF of target npu2 (OSABI 0x45)" in refused(path.read_bytes())


def test_the_python_that_runs_this():
    """A real ELF of somebody else: Python's own extension module or program."""
    with open(np._core._multiarray_umath.__file__, "rb") as stream:
        line = refused(stream.read())
    assert "no note .note.elfkiln" in line or "something was added" in line


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


def test_fields_of_the_header(panel):
    data = panel.read_bytes()
    assert "32-bit ELF" in refused(patched(data, 4, b"\1"))
    assert "machine 183" in refused(patched(data, 18, struct.pack("<H", 183)))
    assert "type 2" in refused(patched(data, 16, struct.pack("<H", 2)))
    assert "section table" in refused(patched(data, 40, struct.pack("<Q", 1 << 40)))
    assert "section table" in refused(patched(data, 60, struct.pack("<H", 0)))


def with_note(data: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    assert data.count(old) == 1
    return data.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b'"elfkiln-sim/3"', b'"elfkiln-sim/2"', "schema elfkiln-sim/2, and elfkiln-sim/3 was expected"),
        (
            b'"symbol":"main_seq"',
            b'"symbol":"main_qes"',
            "exports main_seq, main_seq_again, its note names main_qes, main_seq_again",
        ),
        (b'"again":"main_seq_again"', b'"again":"main_seq_niaga"', "its note names main_seq, main_seq_niaga"),
        (b'"again":"main_seq_again"', b'"again":null            ', "note cannot be read"),
        (b'"loads":true', b'"loads":null', "note cannot be read"),
        (b'"loads":true', b'"loads":"ja"', "note cannot be read"),
        (b'"element":"i32"', b'"element":"i33"', "note cannot be read"),
        (b'"K":128', b'"K":-12', "note cannot be read"),
        (b'"contiguous":true', b'"contiguous":1   ', "note cannot be read"),
        (b'"weight_bits":8', b'"weight_bits":-', "note cannot be read"),
        (b'"entries":[{', b'"entries":[[', "note cannot be read"),
        (b'"device":"main"', b'"devise":"main"', "note cannot be read"),
        (b"elfkiln\0{", b"elfkilm\0{", "not elfkiln's"),
    ],
)
def test_a_damaged_note(panel, old, new, words):
    assert words in refused(with_note(panel.read_bytes(), old, new))


def test_random_damage_is_told_in_one_line_or_is_harmless(panel):
    """Bytes of the tables, not of code: whatever they say, reading ends in a line or in the same facts."""
    data = panel.read_bytes()
    dice = np.random.default_rng(7)
    tables = [*range(64, 1024), *range(len(data) - 1500, len(data))]
    for _ in range(150):
        damaged = bytearray(data)
        for at in dice.choice(tables, 3):
            damaged[at] = dice.integers(256)
        try:
            assert read_sim_elf(bytes(damaged)).device == "main"
        except Differs as error:
            assert "\n" not in str(error)


def test_a_missing_file(tmp_path):
    with pytest.raises(Differs, match=r"nothing\.elf: No such file"):
        read_sim_elf(tmp_path / "nothing.elf")
    with pytest.raises(Differs, match="No such file"):
        SimElf(tmp_path / "nothing.elf")
    with pytest.raises(Differs, match="a folder"):
        read_sim_elf(tmp_path)


# Names.


def info_of(M=128, K=5120, N=14336, lies=(8, True), sequence="seq", device="main", loads=True):
    geometry = None if lies is None else Geometry(M, K, N, *lies, 8, 4)
    return SimElfInfo(DIGEST, device, "x86_64_v3", (SimEntry(f"{device}_{sequence}", sequence, loads, (), geometry),))


def test_the_right_name():
    info_of().check(ArtifactName("QKV", 5120, 14336, "_b8"), ())
    info_of(M=16, lies=(8, False)).check(ArtifactName("QKV", 5120, 14336, "", m16=True), ())
    for tag in ("_pb16i", "_t2s", "_t2s2"):
        info_of(lies=(2, True)).check(ArtifactName("O", 5120, 14336, tag), ())


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (info_of(M=16), "found M=16 K=5120 N=14336, 8-bit contiguous weights"),
        (info_of(K=14336, N=5120), "found M=128 K=14336 N=5120, 8-bit contiguous weights"),
        (info_of(lies=(8, False)), "found M=128 K=5120 N=14336, 8-bit row-major weights"),
        (info_of(lies=None), "found no GEMM"),
        (info_of(sequence="sequence"), "found device main with sequence"),
        (info_of(device="other"), "found device other with seq"),
        (replace(info_of(), entries=info_of().entries * 2), "found device main with seq, seq"),
        (info_of(loads=False), "does not begin with load_pdi"),
    ],
)
def test_the_wrong_name(info, found):
    name = ArtifactName("QKV", 5120, 14336, "_b8")
    with pytest.raises(Differs) as caught:
        info.check(name, ())
    assert found in str(caught.value)
    assert str(caught.value).startswith(str(name))


def sealed_info(*geometries, init=True, loads=False, device="main"):
    entries = [SimEntry("main_init", "init", True, (), None)] if init else []
    for K, N in geometries:
        sequence = f"seq_K{K}_N{N}"
        entries.append(SimEntry(f"main_{sequence}", sequence, loads, (), Geometry(16, K, N, 2, True, 8, 1)))
    return SimElfInfo(DIGEST, device, "x86_64_v3", tuple(entries))


def test_the_right_sealed_elf(sealed):
    sealed_info((128, 256), (256, 512)).check(None, ((256, 512), (128, 256)))
    read_sim_elf(sealed).check(None, ((128, 256), (256, 512)))


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (sealed_info((128, 256)), "no sequence seq_K256_N512"),
        (sealed_info((128, 256), (256, 512), (512, 512)), "seq_K512_N512 that is not asked for"),
        (sealed_info((128, 256), (256, 512), init=False), "no sequence init"),
        (sealed_info((128, 256), (256, 512), loads=True), "loads the array again"),
        (sealed_info((128, 256), (256, 512), device="x"), "device x"),
        (
            replace(
                sealed_info((128, 256), (256, 512)),
                entries=(
                    *sealed_info((128, 256)).entries,
                    replace(sealed_info((256, 512)).entries[1], geometry=Geometry(16, 512, 256, 2, True, 8, 1)),
                ),
            ),
            "seq_K256_N512: expected M=16 K=256 N=512, 2-bit contiguous weights, found M=16 K=512 N=256, 2-bit",
        ),
    ],
)
def test_the_wrong_sealed_elf(info, words):
    with pytest.raises(Differs) as caught:
        info.check(None, ((128, 256), (256, 512)))
    assert words in str(caught.value)


# Running.


@pytest.fixture
def operands():
    rng = np.random.default_rng(11)
    return rng.integers(-127, 128, (16, 128), dtype=np.int8), rng.integers(-127, 128, (128, 256), dtype=np.int8)


def test_results_go_where_they_are_wanted(panel, operands):
    a, b = operands
    with SimElf(panel) as elf:
        fresh = elf.run(a, blocked(b))
        assert fresh.shape == (16, 256)
        assert fresh.dtype == np.int32
        mine = np.empty((16, 256), np.int32)
        assert elf.run(a.reshape(-1), blocked(b).reshape(256, 128), mine) is mine
        flat = elf.run(a, blocked(b), np.empty(16 * 256, np.int32))
    assert np.array_equal(fresh, product(a, b))
    assert np.array_equal(mine, fresh)
    assert np.array_equal(flat.reshape(16, 256), fresh)


def test_unaligned_arrays(panel, operands):
    """The host's buffers may lie anywhere; only objects on the array are aligned."""
    a, b = operands
    room = np.empty(a.size + b.size + 16 * 256 * 4 + 64, np.uint8)
    lie = room[3 : 3 + a.size].view(np.int8)
    lie[:] = a.reshape(-1)
    weights = room[3 + a.size + 2 :][: b.size].view(np.int8)
    weights[:] = blocked(b)
    start = 3 + a.size + 2 + b.size + 1
    out = np.frombuffer(memoryview(room)[start : start + 16 * 256 * 4], np.int32)
    assert out.ctypes.data % 4
    with SimElf(panel) as elf:
        assert np.array_equal(elf.run(lie, weights, out).reshape(16, 256), product(a, b))


def test_arrays_that_do_not_fit(panel, operands):
    a, b = operands[0], blocked(operands[1])
    c = np.empty((16, 256), np.int32)
    fixed = c.copy()
    fixed.flags.writeable = False
    with SimElf(panel) as elf:
        for arrays, words in (
            ((a.astype(np.int16), b, c), "A: expected an array of int8, found int16"),
            ((a.tolist(), b, c), "A: expected an array of int8, found list"),
            ((a, b.view(np.uint8), c), "B: expected an array of int8, found uint8"),
            ((a[:8], b, c), "A: expected 16 x 128 elements, found 8 x 128"),
            ((np.ascontiguousarray(a.T), b, c), "A: expected 16 x 128 elements, found 128 x 16"),
            ((np.asfortranarray(a), b, c), "A: expected a C-contiguous array"),
            ((a, b[:-1], c), "B: expected 32768 elements, found 32767"),
            ((a, b, c.astype(np.int64)), "C: expected an array of int32, found int64"),
            ((a, b, c.reshape(256, 16)), "C: expected 16 x 256 elements, found 256 x 16"),
            ((a, b, fixed), "C: expected a writable array"),
        ):
            with pytest.raises(Refused) as caught:
                elf.run(*arrays)
            assert words in str(caught.value)
        with pytest.raises(Refused, match="sequence: expected one of seq, found other"):
            elf.run(a, b, sequence="other")


def test_a_closed_elf(panel, operands):
    elf = SimElf(panel)
    elf.close()
    elf.close()
    with pytest.raises(Refused, match="one that was closed"):
        elf.run(operands[0], blocked(operands[1]))


def test_arguments_that_share_memory(panel, operands):
    """C is written while A is read: the entry refuses what would change under it."""
    a, b = operands
    room = np.zeros(16 * 256 * 4, np.int8)
    room[: a.size] = a.reshape(-1)
    with SimElf(panel) as elf, pytest.raises(SimulationFailed, match="main_seq: C and A share memory"):
        elf.run(room[: a.size], blocked(b), room.view(np.int32))


def test_null_arguments(panel):
    with SimElf(panel) as elf, pytest.raises(SimulationFailed, match=r"main_seq step 1 .*argument A is NULL"):
        elf.call("seq")


def test_a_message_is_cut_to_its_room(panel):
    """The C ABI: nothing is written past `capacity`, and what is written is ended."""
    library = ctypes.CDLL(str(panel))
    room = ctypes.create_string_buffer(b"x" * 64, 64)
    for capacity in (0, 1, 2, 20, 64):
        room.raw = b"x" * 64
        assert library.main_seq(None, None, None, room, ctypes.c_size_t(capacity)) == 1
        text = room.raw[:capacity].split(b"\0")[0]
        assert b"main_seq step 1 (start task 0, which fills A_0): argument A is NULL".startswith(text)
        assert len(text) == max(0, capacity - 1)
        assert room.raw[capacity:] == b"x" * (64 - capacity)
    assert library.main_seq(None, None, None, None, ctypes.c_size_t(100)) == 1


def test_two_versions_of_one_path(simulator, tmp_path, operands):
    a, b = operands
    path = tmp_path / "current.elf"
    path.write_bytes(simulator.path(panel_b8(SMALL), mm_i8(16)).read_bytes())
    blocked_elf = SimElf(path)
    path.write_bytes(simulator.path(panel_rm(SMALL), mm_i8(16)).read_bytes())
    row_major_elf = SimElf(path)
    for _ in range(2):
        assert np.array_equal(blocked_elf.run(a, blocked(b)), product(a, b))
        assert np.array_equal(row_major_elf.run(a, b), product(a, b))
    path.unlink()
    blocked_elf.close()
    assert np.array_equal(row_major_elf.run(a, b), product(a, b))


def test_loading_again_and_again_leaves_nothing_open(panel):
    def mapped():
        with open("/proc/self/maps") as lines:
            return sum("elfkiln-sim" in line for line in lines)

    before = mapped(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        SimElf(panel).close()
    kept = SimElf(panel)
    assert mapped() > before[0]
    del kept
    assert (mapped(), len(os.listdir("/proc/self/fd"))) == before


def test_a_second_run_at_the_same_time_is_refused(simulator):
    """While a kernel of the first run waits on a pipe, a second run of the same loaded ELF is told so."""
    made = relay(MemRef((16,), "i32"), length=16, shape=(16,), out_shape=(16,))
    made = with_task(made, 1, argument=2)
    made = with_sequence(made, arguments=(MemRef((16,), "i32"),) * 3)
    elf = simulator.elf(made, KernelObject("relay.o", "wait.cc", {}))
    (says, said), (waits, leave) = os.pipe(), os.pipe()
    source = np.zeros(16, np.int32)
    source[:2] = said, waits
    results = []
    runner = threading.Thread(target=lambda: results.append(elf.run(source, source.copy())))
    runner.start()
    assert os.read(says, 1) == b"\1"
    with pytest.raises(SimulationFailed, match="a run of this ELF is under way; one at a time"):
        elf.run(source, source.copy())
    os.write(leave, b"x")
    runner.join()
    assert np.array_equal(results[0], source)
    os.write(leave, b"x")
    assert np.array_equal(elf.run(source, source.copy()), source)
    for descriptor in (says, said, waits, leave):
        os.close(descriptor)


def run_in_child(path, seed, queue):
    rng = np.random.default_rng(seed)
    a = rng.integers(-127, 128, (16, 128), dtype=np.int8)
    b = rng.integers(-127, 128, (128, 256), dtype=np.int8)
    queue.put(bool(np.array_equal(SimElf(path).run(a, blocked(b)), product(a, b))))


def test_several_processes(panel):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=run_in_child, args=(panel, seed, queue)) for seed in range(2)]
    for child in children:
        child.start()
    assert [queue.get(timeout=60) for _ in children] == [True, True]
    for child in children:
        child.join()


def test_a_processor_that_lacks_the_instructions(panel, monkeypatch):
    from elfkiln.targets.sim import zig_toolchain as toolchain

    old = toolchain.Host("Linux", "x86_64", frozenset({"ssse3", "sse4_1"}))
    monkeypatch.setattr(toolchain, "this_host", lambda: old)
    with pytest.raises(Refused, match="expected a processor with x86_64_v3"):
        SimElf(panel)


def test_a_sealed_elf_runs_by_sequence(sealed):
    rng = np.random.default_rng(5)
    a, b = rng.integers(-127, 128, (16, 256), dtype=np.int8), rng.integers(-1, 2, (256, 512), dtype=np.int8)
    with SimElf(sealed) as elf:
        elf.call("init")
        assert np.array_equal(elf.run(a, packed_ternary(b), sequence="seq_K256_N512"), product(a, b))
        with pytest.raises(Refused, match="sequence: expected one of init, seq_K128_N256, seq_K256_N512, found seq"):
            elf.run(a, packed_ternary(b))

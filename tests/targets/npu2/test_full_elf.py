"""The full-ELF validator: what real aiecc made passes, and nothing that was done to it does."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
from elftools.elf.structs import ELFStructs
from hypothesis import given, settings
from hypothesis import strategies as st

import cdo
from elf_assembler import LOAD_PDI, assemble, gemm_stream, parts, stream_of, task_operations
from elfkiln.cli import main
from elfkiln.design.gemm import NotAGemm, geometry_of
from elfkiln.design.model import MemRef, RtpWrite, SetLock
from elfkiln.design.reader import read_design
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import TAGS
from elfkiln.errors import Differs, Refused
from elfkiln.targets.npu2.full_elf import (
    MEANINGS,
    BadElf,
    check_design,
    check_full_elf,
    classify_difference,
    gemm_of,
    parse_full_elf,
    read_full_elf,
)
from elfkiln.targets.npu2.full_elf.pdi import read_pdi
from elfkiln.targets.npu2.full_elf.stream import Other, Write, read_stream
from elfkiln.targets.sim.sim_elf import SimElfInfo, SimEntry
from elfkiln.work.inspect import inspect
from gemm_designs import Shape, panel_b8, panel_rm, v27
from rendered import rendered_design
from simulating import mm_i8
from small_designs import with_task

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = sorted((EXAMPLES / "full-elf").glob("*.elf"))
SMALLEST = EXAMPLES / "full-elf" / "copy_one_core.2026-08.elf"
PANEL = EXAMPLES / "full-elf" / "panel_gemm.2026-08.elf"
PDI, STREAM = parts(PANEL)


@pytest.fixture(scope="module", autouse=True)
def tables_made_once():
    """Some 20,000 files are read here: pyelftools makes its tables of fields anew for each, most of its time."""

    class Tables(ELFStructs):
        made: ClassVar = {}
        basic = False

        def create_basic_structs(self):
            if not self.basic:
                super().create_basic_structs()
                self.basic = True

        def create_advanced_structs(self, e_type=None, e_machine=None, e_ident_osabi=None):
            wanted = e_type, e_machine, e_ident_osabi
            if (self.e_type, self.e_machine, self.e_ident_osabi) != wanted or not hasattr(self, "Elf_Shdr"):
                super().create_advanced_structs(*wanted)

    def tables(little_endian, elfclass):
        return Tables.made.setdefault((little_endian, elfclass), Tables(little_endian, elfclass))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elftools.elf.elffile.ELFStructs", tables)
        yield


def kind_of(data: bytes) -> str:
    with pytest.raises(BadElf) as caught:
        read_full_elf(data)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(caught.value.kind)
    assert MEANINGS[caught.value.kind] in line
    return caught.value.kind


def fault_of(data: bytes) -> str:
    with pytest.raises(BadElf) as caught:
        read_full_elf(data)
    return str(caught.value)


# --- what passes --------------------------------------------------------------------------------------------------


def test_there_are_six_examples():
    assert len(FILES) == 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_examples_pass_in_every_abi_version(path):
    data = path.read_bytes()
    full = read_full_elf(data)
    assert (full.abi_version, full.columns, full.size) == (33, 8, len(data))
    assert full.uid_scheme == "MD5(.pdi + .ctrltext)"
    assert [(k.name, k.arguments, [i.name for i in k.instances]) for k in full.kernels] == [("main", 3, ["seq"])]
    older = bytearray(data)
    for version in (16, 32):
        older[8] = version
        assert read_full_elf(bytes(older)) == replace(full, abi_version=version)
    older[8] = 17
    assert "ABI version: expected 16 or 32 or 33, found 17" in fault_of(bytes(older))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_tests_own_assembler_makes_the_examples_byte_for_byte(path):
    pdi, stream = parts(path)
    assert assemble(pdi, [("seq", stream)]) == path.read_bytes()


# Operations as the readelf texts and the sequences count them: load_pdi, per task write + patch + push (+ a mask write
# for each token of a drain or fill), one sync per await.
@pytest.mark.parametrize(
    ("name", "operations", "tasks", "syncs", "uid", "cores"),
    [
        ("copy_one_core.2026-04", 9, 2, 1, "dc9a4d392cffeca35fcc37b14bf6dc11", [(0, 2)]),
        ("gemm_2x2.2026-04", 51, 10, 10, "1fb2c1aaad60029dd028ae179cd45fe2", [(0, 2), (0, 3), (1, 2), (1, 3)]),
        ("panel_gemm.2026-08", 45, 12, 4, "2bc66033ab86f9510b221b18af1c80ff", [(0, 2), (0, 3), (1, 2), (1, 3)]),
    ],
)
def test_what_is_read_out_of_the_examples(name, operations, tasks, syncs, uid, cores):
    full = read_full_elf((EXAMPLES / "full-elf" / f"{name}.elf").read_bytes())
    (instance,) = full.kernels[0].instances
    assert (instance.operations, len(instance.transfers), instance.syncs) == (operations, tasks, syncs)
    assert (instance.loads, instance.loads_first) == ((1,), True)
    assert not [event for event in instance.events if isinstance(event, Write | Other)]
    assert full.uid == uid
    assert list(full.pdis[0].cores) == cores


def test_the_scheme_of_the_engines_own_assembler_passes_and_is_named():
    data = assemble(PDI, [("seq", STREAM)], abi=16, scheme="streams")
    full = read_full_elf(data)
    assert (full.abi_version, full.uid_scheme) == (16, "MD5(.ctrltext)")
    assert data != PANEL.read_bytes()


def test_a_task_is_read_as_the_hardware_runs_it():
    # C of panel_gemm, second group, column 1: 8 x 8 blocks of int32, rows of N = 512 words, 4 runs of 1,024 words.
    last = read_full_elf(PANEL.read_bytes()).kernels[0].instances[0].transfers[-1]
    assert (last.column, last.direction, last.channel, last.argument, last.offset) == (1, "s2mm", 0, 2, 0x600)
    assert (last.sizes, last.strides) == ((4, 16, 8, 8), (4096, 8, 512, 1))
    assert (last.length, last.runs, last.token, last.moved) == (1024, 4, True, 16384)
    # Its last word is row 31, column 511.
    assert last.end == (31 * 512 + 511 + 1) * 4


# --- every byte counts --------------------------------------------------------------------------------------------


def test_every_flipped_byte_of_an_example_is_rejected():
    data = SMALLEST.read_bytes()
    assert len(data) == 3544
    survivors = []
    for at in range(len(data)):
        mask = 0xFF if at % 2 else 1 << at % 8
        changed = bytearray(data)
        changed[at] ^= mask
        try:
            read_full_elf(bytes(changed))
        except BadElf:
            continue
        survivors.append((at, mask))
    # Byte 8 is the ABI version: 33 became 32, which is one too.
    assert survivors == [(8, 1)]


def test_every_truncation_is_rejected():
    data = SMALLEST.read_bytes()
    kinds = {kind_of(data[:end]) for end in range(0, len(data), 7)} | {kind_of(data[:-1]), kind_of(data[:667])}
    assert kinds == {"empty", "stub", "truncated"}


@pytest.mark.parametrize("extra", [b"\0", b"TAMPER", bytes(16), bytes(4096)])
def test_appended_bytes_are_rejected(extra):
    assert "bytes behind the last table: expected 0, found " + str(len(extra)) in fault_of(
        SMALLEST.read_bytes() + extra
    )


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_corruption_passes_or_raises_anything_else(data):
    whole = data.draw(st.sampled_from([path.read_bytes() for path in FILES]))
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        match data.draw(st.sampled_from(["flip", "insert", "delete", "cut", "word", "swap"])):
            case "flip" if at < len(changed):
                changed[at] ^= data.draw(st.integers(1, 255))
            case "insert":
                changed[at:at] = data.draw(st.binary(min_size=1, max_size=32))
            case "delete":
                del changed[at : at + data.draw(st.integers(1, 64))]
            case "cut":
                del changed[at:]
            case "word" if at + 4 <= len(changed):
                struct.pack_into("<I", changed, at & ~3, data.draw(st.sampled_from([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 52])))
            case "swap" if at + 8 <= len(changed):
                changed[at : at + 4], changed[at + 4 : at + 8] = changed[at + 4 : at + 8], changed[at : at + 4]
            case _:
                pass
    known = {path.read_bytes() for path in FILES}
    known |= {bytes(b[:8]) + bytes([version]) + bytes(b[9:]) for b in known for version in (16, 32)}
    try:
        read_full_elf(bytes(changed))
    except BadElf as error:
        assert error.kind in MEANINGS
        assert "\n" not in str(error)
    else:
        assert bytes(changed) in known


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_tail_behind_an_elf_header_raises_anything_else(tail):
    with pytest.raises(BadElf):
        read_full_elf(SMALLEST.read_bytes()[:52] + tail + bytes(700))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=160), st.integers(0, 2000), st.sampled_from(["stream", "pdi"]))
def test_no_stream_or_pdi_makes_its_reader_fail(noise, at, part):
    data = bytearray(STREAM if part == "stream" else PDI)
    at = min(at, len(data))
    data[at : at + len(noise)] = noise
    if part == "stream":
        data = data[: len(data) // 4 * 4]
        data[12:16] = struct.pack("<I", len(data))
    try:
        read_stream(".ctrltext.0", bytes(data)) if part == "stream" else read_pdi(1, bytes(data))
    except BadElf as error:
        assert "\n" not in str(error)


# --- the classes of reject ----------------------------------------------------------------------------------------


def elf64(machine: int, mark: bytes = b"") -> bytes:
    head = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8) + struct.pack("<HH", 3, machine)
    return head + mark + bytes(2000)


def test_each_wrong_kind_of_file_is_named():
    kinds = {
        b"": "empty",
        b"full_i8_QKV_K5120_N14336_b8.elf is not in this repository!!": "stub",
        SMALLEST.read_bytes()[:59]: "stub",
        bytes(5000): "not-elf",
        b"xclbin2\0" + bytes(5000): "xclbin",
        elf64(62): "other-machine",
        elf64(183): "other-machine",
        elf64(62, b".note.elfkiln"): "sim",
        SMALLEST.read_bytes().replace(
            b"\x7fELF\x01\x01\x01\x45\x21", b"\x7fELF\x01\x01\x01\x45\x02", 1
        ): "instruction-only",
        SMALLEST.read_bytes().replace(b"\x7fELF\x01\x01\x01\x45", b"\x7fELF\x01\x01\x01\x46", 1): "other-machine",
        SMALLEST.read_bytes()[:3000]: "truncated",
    }
    assert len(b"full_i8_QKV_K5120_N14336_b8.elf is not in this repository!!") == 59
    assert {data: kind_of(data) for data in kinds} == kinds


def test_an_elf_without_a_pdi_is_instruction_only():
    # The same file with .pdi.1 under another name: nothing that configures the array.
    data = SMALLEST.read_bytes().replace(b".pdi.1\0.ctrl", b".pad.1\0.ctrl")
    assert kind_of(data) == "instruction-only"


def test_a_renamed_section_is_told_with_both_lists():
    line = fault_of(SMALLEST.read_bytes().replace(b".group.0", b".group.1"))
    assert "expected .shstrtab .strtab .symtab .pdi.1 .ctrltext.0 .dynstr .dynsym .rela.dyn .dynamic .group.0" in line


def test_wrong_kernel_and_instance_names():
    assert kind_of(assemble(PDI, [("seq", STREAM)], kernel="gemm")) == "wrong-kernel"
    assert kind_of(assemble(PDI, [("sequence", STREAM)])) == "wrong-kernel"
    assert "kernels: expected main, found gemm" in fault_of(assemble(PDI, [("seq", STREAM)], kernel="gemm"))


def test_a_kernel_whose_name_ends_like_an_argument():
    full = parse_full_elf(assemble(PDI, [("seq", STREAM)], kernel="mainPc"))
    assert (full.kernels[0].name, full.kernels[0].arguments) == ("mainPc", 3)


@pytest.mark.parametrize("symbol", ["main", "_Z4main", "_Z3mainPcPcPc", "_Z4mainPcPc", "_Z4mainPcPcPi", "_ZmainPcPcPc"])
def test_a_symbol_that_is_no_kernel_of_three_arguments(symbol):
    assert kind_of(assemble(PDI, [("seq", STREAM)], symbol=symbol)) == "malformed"


def test_a_kernel_has_as_many_arguments_as_its_tasks_need():
    tasks = task_operations(
        column=0,
        direction="mm2s",
        channel=0,
        bd=0,
        argument=3,
        offset=0,
        sizes=(1, 1, 1, 64),
        strides=(0, 0, 0, 1),
        width=4,
    )
    stream = stream_of([LOAD_PDI, *tasks])
    assert "argument of a task of seq: expected below 3, found 3" in fault_of(assemble(PDI, [("seq", stream)]))
    assert read_full_elf(assemble(PDI, [("seq", stream)], arguments=4)).kernels[0].arguments == 4


def test_an_inner_sequence_is_told_from_the_outer_one():
    body = [STREAM[:8] + struct.pack("<II", 44, len(STREAM) - 16) + STREAM[32:]]
    line = fault_of(assemble(PDI, [("seq", body[0])]))
    assert line.startswith("inner-sequence: instance seq: expected load_pdi as its first operation, found none")
    assert "#1978" in line
    operations = task_operations(
        column=0,
        direction="mm2s",
        channel=0,
        bd=0,
        argument=0,
        offset=0,
        sizes=(1, 1, 1, 64),
        strides=(0, 0, 0, 1),
        width=4,
    )
    late = stream_of([*operations, LOAD_PDI])
    assert "expected load_pdi as its first operation, found later" in fault_of(assemble(PDI, [("seq", late)]))


def test_a_pdi_that_the_file_does_not_have():
    stream = stream_of([(0x00020008, 0, 0, 0)])
    assert "load_pdi of seq: expected PDI 1 to 1, found 2" in fault_of(assemble(PDI, [("seq", stream)]))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda p: p[:256], "size: expected 400 bytes or more, found 256"),
        (lambda p: bytes(len(p)), "first words"),
        (lambda p: p[:0x20] + b"\x35" + p[0x21:], "checksum of the image header table"),
        (lambda p: p[:0xA0] + b"A" + p[0xA1:], "checksum of the image header 0"),
        (lambda p: p[:0xD0] + b"\xff" + p[0xD1:], "checksum of the partition header 0"),
        (lambda p: p[:-16], "partition 0"),
        (lambda p: p + bytes(16), "size: expected"),
        (lambda p: p[:0x15C] + b"\x01\x00" + p[0x15E:], "checksum of the CDO header"),
        (lambda p: p[:-4] + b"\x01\0\0\0", "padding"),
        (lambda p: p[:0x166] + b"\xff" + p[0x167:], "command at word"),
    ],
)
def test_a_pdi_that_is_no_whole_image_is_malformed_under_a_right_uid(change, text):
    line = fault_of(assemble(change(PDI), [("seq", STREAM)], scheme="streams"))
    assert line.split(":")[0] in ("malformed", "truncated")
    assert ".pdi.1" in line
    assert text in line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_tests_own_images_are_those_of_bootgen(path):
    pdi, _ = parts(path)
    assert cdo.image(list(cdo.commands(pdi))) == pdi


def test_a_core_program_of_more_than_254_words_is_one_long_command():
    # 3 KiB of program for core (0,4): the short form of a command ends at 254 words.
    program = (cdo.DMA_WRITE, [0, 0x420000, *range(768)])
    pdi = cdo.image([*cdo.commands(PDI), program])
    found = read_full_elf(assemble(pdi, [("seq", STREAM)])).pdis[0]
    assert found.commands == len(list(cdo.commands(PDI))) + 1
    assert (0, 4) in found.cores


def test_a_changed_pdi_under_the_wider_uid_is_tampered():
    changed = bytearray(PDI)
    changed[0x600] ^= 1
    data = PANEL.read_bytes().replace(PDI, bytes(changed))
    line = fault_of(data)
    assert line.startswith("tampered: .note.xrt.UID: expected ")
    assert "= MD5(.pdi + .ctrltext) or " in line
    assert "2bc66033ab86f9510b221b18af1c80ff" in line


def change_words(stream: bytes, **words: int) -> bytes:
    out = bytearray(stream)
    for place, value in words.items():
        struct.pack_into("<I", out, 4 * int(place[1:]), value)
    return bytes(out)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"w0": 0x06040101}, "word 0: expected 0x06040100, found 0x06040101"),
        ({"w1": 0x109}, "word 1: expected 1 to 8 columns, 1 row of mem tiles, found 0x109"),
        ({"w2": 44}, "word 2, operations: expected 45, found 44"),
        ({"w3": 0x66C}, "word 3, its size: expected 1648, found 1644"),
        ({"w3": 0x674}, "word 3, its size: expected 1648, found 1652"),
        ({"w4": 0x00010009}, "operation: expected one of 0x00, 0x01, 0x03, 0x04, 0x08, 0x80, 0x81, found 0x9"),
        ({"w5": 1}, "load_pdi: expected id << 16 | 8, then 3 zero words"),
        ({"w11": 0x2C}, "words of a shim buffer descriptor: expected 8, found 7"),
        ({"w11": 0x10}, "size of a block write: expected 20 bytes or more, up to the end, found 16"),
        ({"w11": 0x10000}, "size of a block write"),
        ({"w10": 0x1001D000}, "tile of a register: expected column < 8, row < 6, found column 8, row 0"),
        ({"w19": 0}, "word 7 of a shim buffer descriptor: expected 0x2000000 in the bits 0xffffffff, found 0x0"),
        ({"w12": 0}, "buffer descriptor: expected one with a length, found 0 words"),
        ({"w15": 0x00300000}, "length of a descriptor"),
        # Reserved bits, a packet, no cache, a running iteration, a lock to acquire.
        ({"w15": 0x40200000}, "word 3 of a shim buffer descriptor"),
        ({"w14": 0x40000000}, "word 2 of a shim buffer descriptor"),
        ({"w17": 0x00000001}, "word 5 of a shim buffer descriptor"),
        ({"w18": 0x04000000}, "word 6 of a shim buffer descriptor"),
        ({"w19": 0x02001000}, "word 7 of a shim buffer descriptor"),
        ({"w9": 1}, "block write: unused words: expected zeros"),
        ({"w30": 0x2}, "offset of an address patch: expected whole words, found 2"),
        ({"w26": 0x1D044}, "address patch: expected word 1 of a shim descriptor written before it"),
        ({"w30": 0x80000000}, "address patch: expected register, argument, offset, else zero"),
        ({"w12": 0x40000000}, "bytes of a patched descriptor"),
        ({"w13": 0x1000}, "address of a patched descriptor"),
        # The pushes begin behind 6 descriptors of 12 + 12 words: word 152; the first mask write is word 176.
        ({"w156": 0x10}, "task: expected token, repeats, descriptor, else zero, found 0x10"),
        ({"w155": 1}, "write: unused words: expected zeros"),
        ({"w177": 1}, "mask write: unused words: expected zeros"),
        ({"w410": 2}, "sync: expected a direction of 0 or 1, and a last byte of 0, found 0x2 0x10100"),
        ({"w411": 0x10101}, "sync: expected a direction of 0 or 1, and a last byte of 0, found 0x10000 0x10101"),
    ],
)
def test_a_stream_that_does_not_walk_is_told_with_its_place(words, text):
    changed = change_words(STREAM, **words)
    data = assemble(PDI, [("seq", STREAM)]).replace(STREAM, changed)
    line = fault_of(with_uid(data, changed))
    assert text in line
    assert ".ctrltext.0" in line


def with_uid(data: bytes, stream: bytes) -> bytes:
    """Put the UID of the narrower scheme into a file, so that only the stream's own faults are left."""
    import hashlib

    at = data.rindex(b"XRT\0") + 4
    return data[:at] + hashlib.md5(stream).digest() + data[at + 16 :]


def test_a_queue_push_of_an_unwritten_descriptor():
    operations = task_operations(
        column=0,
        direction="mm2s",
        channel=0,
        bd=0,
        argument=0,
        offset=0,
        sizes=(1, 1, 1, 64),
        strides=(0, 0, 0, 1),
        width=4,
    )
    stream = stream_of([LOAD_PDI, operations[2]])
    assert "a descriptor written and patched before it, found descriptor 0" in fault_of(
        assemble(PDI, [("seq", stream)])
    )


def test_the_columns_of_the_note_are_those_of_the_stream():
    line = fault_of(assemble(PDI, [("seq", STREAM)], columns=4))
    assert "section .note.xrt.configuration byte 0x10: expected 0x08, found 0x04" in line


def test_bad_elf_is_an_elfkiln_error_of_exit_code_1():
    with pytest.raises(Differs) as caught:
        read_full_elf(b"")
    assert caught.value.exit_code == 1


# --- geometry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "M", "K", "N", "groups"),
    [("gemm_2x2", 64, 128, 256, (1, 1)), ("panel_gemm", 32, 256, 512, (1, 2))],
)
@pytest.mark.parametrize("generation", ["2026-04", "2026-08"])
def test_geometry_is_read_back_from_what_real_aiecc_made(name, generation, M, K, N, groups):
    full = read_full_elf((EXAMPLES / "full-elf" / f"{name}.{generation}.elf").read_bytes())
    gemm = gemm_of(full.kernels[0].instances[0])
    assert (gemm.M, gemm.K, gemm.N, gemm.weight_bits, gemm.contiguous) == (M, K, N, 8, True)
    assert (gemm.columns, gemm.row_groups, gemm.column_groups) == (2, *groups)


def test_a_design_that_is_no_gemm_has_no_geometry():
    full = read_full_elf(SMALLEST.read_bytes())
    with pytest.raises(BadElf, match="no GEMM: tasks: expected tasks that fill the array from argument 1, found none"):
        check_full_elf(full, ArtifactName.parse("full_i8_D_K256_N512_b8.elf"), ())


def gemm_elf(design) -> bytes:
    return assemble(PDI, [("seq", gemm_stream(design))])


BIG = Shape(128, 5120, 14336, 4, 8)
BIG_TWIN = Shape(16, 5120, 14336, 1, 8, m=16)


@pytest.mark.parametrize(
    ("build", "shape", "name"),
    [
        (panel_b8, BIG, "full_i8_QKV_K5120_N14336_b8.elf"),
        (panel_b8, BIG_TWIN, "full_i8_QKV_K5120_N14336_b8_m16.elf"),
        (panel_rm, BIG, "full_i8_QKV_K5120_N14336.elf"),
        (panel_rm, Shape(16, 17408, 5120, 1, 8, m=16), "full_i8_D_K17408_N5120_m16.elf"),
        (v27, Shape(128, 4096, 2048, 4, 8), "full_i8_O_K4096_N2048.elf"),
    ],
)
def test_geometry_at_real_sizes_agrees_with_the_right_name_only(build, shape, name):
    full = read_full_elf(gemm_elf(build(shape)))
    right = ArtifactName.parse(name)
    check_full_elf(full, right, ())
    gemm = gemm_of(full.kernels[0].instances[0])
    assert (gemm.M, gemm.K, gemm.N, gemm.columns) == (shape.M, shape.K, shape.N, shape.columns)
    wrong = [
        replace(right, m16=not right.m16),
        replace(right, K=right.K * 2),
        replace(right, N=right.N // 2),
        replace(right, K=right.N, N=right.K),
        replace(right, tag="" if right.tag else "_b8"),
        replace(right, tag="_pb16i"),
    ]
    for other in wrong:
        with pytest.raises(BadElf) as caught:
            check_full_elf(full, other, ())
        assert caught.value.kind == "wrong-geometry"
        assert str(other) in str(caught.value)


@pytest.mark.parametrize(
    ("design", "text"),
    [
        # One column's panel begins a tile late: whole tiles and the right bytes in all, but no whole K panel.
        (with_task(panel_b8(BIG_TWIN), 8, offset=8192), "whole K panels, tile by tile along K"),
        # Half a block late.
        (with_task(panel_b8(BIG_TWIN), 8, offset=32), "no whole tiles"),
    ],
)
def test_tiles_of_b_out_of_order_are_no_gemm_of_any_name_for_either_target(design, text):
    first = design.sequences[0].tasks[8]
    assert first.argument == 1
    assert geometry_of(design.sequences[0], design) is None
    with pytest.raises(NotAGemm, match=text):
        gemm_of(read_full_elf(gemm_elf(design)).kernels[0].instances[0])


def packed(design):
    """The same design with weights of 2 bits: a quarter of the bytes in each linear run."""
    sequence = design.sequences[0]
    tasks = tuple(
        replace(t, offset=t.offset // 4, length=t.length // 4, sizes=(1, 1, 1, t.sizes[3] // 4))
        if t.argument == 1
        else t
        for t in sequence.tasks
    )
    return replace(design, sequences=(replace(sequence, tasks=tasks),))


def test_two_bit_weights_are_told_from_int8():
    full = read_full_elf(gemm_elf(packed(panel_b8(BIG_TWIN))))
    assert gemm_of(full.kernels[0].instances[0]).weight_bits == 2
    check_full_elf(full, ArtifactName.parse("full_i8_QKV_K5120_N14336_pb16i_m16.elf"), ())
    with pytest.raises(BadElf, match="8-bit contiguous weights, found M=16 K=5120 N=14336, 2-bit contiguous weights"):
        check_full_elf(full, ArtifactName.parse("full_i8_QKV_K5120_N14336_b8_m16.elf"), ())


@pytest.mark.parametrize(
    ("design", "tags"),
    [
        (panel_rm(BIG_TWIN), [""]),
        (panel_b8(BIG_TWIN), ["_b8"]),
        # A design shows where weights lie, not what their bits mean: layouts of 2 bits look alike.
        (packed(panel_b8(BIG_TWIN)), ["_pb16i", "_t2s", "_t2s2"]),
    ],
    ids=["rm", "b8", "2-bit"],
)
def test_both_targets_take_the_same_tags_for_a_design(design, tags):
    a, b, c = design.sequences[0].arguments
    moved = sum(t.length for t in design.sequences[0].tasks if t.argument == 1) == b.elements // 4
    argument = MemRef((b.elements // 4,), "ui8") if moved else b
    sequence = replace(design.sequences[0], arguments=(a, argument, c))
    entry = SimEntry("main_seq", "seq", True, (), geometry_of(sequence, design))
    info, full = SimElfInfo("0" * 64, "main", "x86_64_v3", (entry,)), read_full_elf(gemm_elf(design))
    for check in (info.check, partial(check_full_elf, full)):
        taken = []
        for tag in TAGS:
            try:
                check(ArtifactName("QKV", 5120, 14336, tag, m16=True), ())
                taken.append(tag)
            except Differs:
                pass
        assert taken == tags


@pytest.mark.parametrize(
    ("place", "change", "text"),
    [
        # Column 6 drains over column 5: 128 columns of C twice, 128 never.
        (-2, lambda tasks: {"offset": tasks[-3].offset}, "columns of C from row 0: expected each of 14336 once"),
        (
            -2,
            lambda _: {"sizes": (1, 16, 8, 8), "repeat_count": 0},
            "bytes drained to C: expected 917504, found 913408",
        ),
        (-1, lambda _: {"sizes": (1, 16, 8, 8), "repeat_count": 0}, "bytes of C: expected 16 x 14336 x 4"),
        # Its second run begins half a block too early.
        (
            -2,
            lambda _: {"strides": (4 * 14336, 8, 14336, 1)},
            "task of C: expected a rectangle of rows 57344 bytes apart",
        ),
    ],
)
def test_c_is_written_exactly_once(place, change, text):
    design = panel_b8(BIG_TWIN)
    sequence = design.sequences[0]
    tasks = list(sequence.tasks)
    tasks[place] = replace(tasks[place], **change(tasks))
    broken = replace(design, sequences=(replace(sequence, tasks=tuple(tasks)),))
    elf = read_full_elf(gemm_elf(broken))
    with pytest.raises(BadElf, match=r"wrong-geometry: full_i8_O_K5120_N14336_b8_m16\.elf: expected M=16") as caught:
        check_full_elf(elf, ArtifactName.parse("full_i8_O_K5120_N14336_b8_m16.elf"), ())
    assert f"no GEMM: {text}" in str(caught.value)
    # A design whose tasks are these is not a GEMM either: both are read by one rule.
    assert geometry_of(broken.sequences[0], broken) is None


# The taps that families render: small designs of each kind, and one task of them moved elsewhere.
RENDERED = {
    "b8": ("_b8", 128, 1024, 512, 4),
    "whole rows": ("_b8", 128, 512, 512, 4),
    "rm": ("", 16, 512, 512, 4),
    "shared": ("_pb16i", 16, 1024, 512, 4),
}
WRONG_TAPS = {
    "rows of A too far apart": ("b8", 1, {"strides": (0, 512, 2048, 1)}, "bytes between rows of A: expected one value"),
    "runs of A that overlap": ("b8", 1, {"strides": (0, 256, 1024, 1)}, "task of A: expected a rectangle of rows 1024"),
    "a panel of A twice": ("b8", 1, {"offset": 0}, "row panels of A: expected each of 128 rows equally often"),
    "C over another column's": ("b8", 9, {"offset": 256}, "columns of C from row 0: expected each of 512 once"),
    "A from the middle of a row": ("whole rows", 1, {"offset": 32 * 512 - 256}, "task of A: expected a rectangle of"),
    "steps of B that overlap": ("rm", 2, {"strides": (0, 2048, 512, 1)}, "tasks of B: expected linear runs of whole"),
    "B half a tile on": ("rm", 2, {"offset": 192}, "tasks of B: expected linear runs of whole tiles, or rows of 128"),
    "parts of C with gaps": ("shared", 5, {"strides": (0, 64, 512, 1)}, "task of C: expected a rectangle of rows 2048"),
    "parts of C that overlap": ("shared", 5, {"strides": (0, 16, 512, 1)}, "task of C: expected a rectangle of rows"),
}


@pytest.mark.parametrize("kind", RENDERED)
def test_rendered_taps_are_read_back(kind):
    tag, M, K, N, columns = RENDERED[kind]
    gemm = gemm_of(read_full_elf(gemm_elf(rendered_design(*RENDERED[kind]))).kernels[0].instances[0])
    lies = (2 if tag == "_pb16i" else 8, tag != "")
    assert (gemm.M, gemm.K, gemm.N, gemm.weight_bits, gemm.contiguous, gemm.columns) == (M, K, N, *lies, columns)
    check_full_elf(
        read_full_elf(gemm_elf(rendered_design(*RENDERED[kind]))), ArtifactName("O", K, N, tag, m16=M == 16), ()
    )


@pytest.mark.parametrize("what", WRONG_TAPS)
def test_a_wrong_one_of_the_rendered_taps_is_refused(what):
    kind, number, changes, text = WRONG_TAPS[what]
    tag, M, K, N, _ = RENDERED[kind]
    elf = read_full_elf(gemm_elf(with_task(rendered_design(*RENDERED[kind]), number, **changes)))
    with pytest.raises(BadElf, match="wrong-geometry") as caught:
        check_full_elf(elf, ArtifactName("O", K, N, tag, m16=M == 16), ())
    assert f"no GEMM: {text}" in str(caught.value)


GEOMETRIES = ((5120, 14336), (6144, 5120), (17408, 5120))


def sealed_elf(geometries=GEOMETRIES, *, load_again: bool = False) -> bytes:
    streams = [("init", stream_of([LOAD_PDI]))]
    for K, N in geometries:
        design = packed(panel_b8(Shape(16, K, N, 1, 8, m=16)))
        streams.append((f"seq_K{K}_N{N}", gemm_stream(design, load=load_again)))
    return assemble(PDI, streams)


def test_a_sealed_elf_holds_its_geometries_and_no_other():
    full = read_full_elf(sealed_elf())
    assert [i.name for i in full.kernels[0].instances] == ["init", *(f"seq_K{K}_N{N}" for K, N in GEOMETRIES)]
    check_full_elf(full, None, GEOMETRIES)
    gemms = [gemm_of(instance) for instance in full.kernels[0].instances[1:]]
    assert [(g.M, g.K, g.N, g.weight_bits) for g in gemms] == [(16, K, N, 2) for K, N in GEOMETRIES]
    with pytest.raises(BadElf, match="wrong-geometry: sealed ELF: it has no sequence seq_K5120_N6144"):
        check_full_elf(full, None, (*GEOMETRIES[:2], (5120, 6144)))
    with pytest.raises(BadElf, match="it has a sequence seq_K17408_N5120 that is not asked for"):
        check_full_elf(full, None, GEOMETRIES[:2])
    with pytest.raises(BadElf, match="expected device main with sequence seq, found device main with init, "):
        check_full_elf(full, ArtifactName.parse("full_i8_QKV_K5120_N14336_pb16i_m16.elf"), ())


def test_a_sealed_elf_whose_name_lies_about_its_geometry():
    design = packed(panel_b8(Shape(16, 5120, 14336, 1, 8, m=16)))
    data = assemble(PDI, [("init", stream_of([LOAD_PDI])), ("seq_K5120_N6144", gemm_stream(design, load=False))])
    with pytest.raises(BadElf, match=r"seq_K5120_N6144: expected M=16 K=5120 N=6144, .*, found M=16 K=5120 N=14336, "):
        check_full_elf(read_full_elf(data), None, ((5120, 6144),))


def test_a_sealed_elf_loads_its_pdi_once():
    assert "no load_pdi: init loads it once" in fault_of(sealed_elf(GEOMETRIES[:1], load_again=True))
    alone = assemble(PDI, [("init", stream_of([LOAD_PDI]))])
    assert kind_of(alone) == "wrong-kernel"


# --- the stream against the design --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_streams_real_aiecc_made_are_their_designs(path):
    design = read_design((EXAMPLES / "iron" / f"{path.stem}.generic.mlir").read_text())
    check_design(read_full_elf(path.read_bytes()), design)


def test_a_stream_of_another_build_is_told():
    design = read_design((EXAMPLES / "iron" / "panel_gemm.2026-08.generic.mlir").read_text())
    other = read_full_elf((EXAMPLES / "full-elf" / "gemm_2x2.2026-08.elf").read_bytes())
    with pytest.raises(BadElf, match="seq: tasks: expected 12, found 10"):
        check_design(other, design)
    sequence = design.sequences[0]
    moved = replace(sequence.tasks[3], offset=0)
    changed = replace(design, sequences=(replace(sequence, tasks=(*sequence.tasks[:3], moved, *sequence.tasks[4:])),))
    with pytest.raises(BadElf) as caught:
        check_design(read_full_elf(PANEL.read_bytes()), changed)
    assert caught.value.kind == "wrong-design"
    assert "seq task 3 on @B_mem_1" in str(caught.value)


def designs_of(name: str):
    return read_design((EXAMPLES / "iron" / f"{name}.generic.mlir").read_text())


def verdict(pdi: bytes, stream: bytes, design) -> str:
    """What the validator says of a file put together anew around a stream, UID and tables and all."""
    try:
        data = assemble(pdi, [("seq", stream)])
    except (KeyError, IndexError, struct.error):
        # Not even the tests' own assembler can follow the stream: nothing could be loaded from it.
        return "no file"
    try:
        check_design(read_full_elf(data), design)
    except BadElf as error:
        assert "\n" not in str(error)
        return error.kind
    return "passes"


def operations_of(stream: bytes) -> list[tuple[int, ...]]:
    words = struct.unpack(f"<{len(stream) // 4}I", stream)
    found, at = [], 4
    while at < len(words):
        length = {0: 6, 1: words[at + 3] // 4, 3: 7, 8: 4, 0x80: 4, 0x81: 12}[words[at] & 0xFF]
        found.append(words[at : at + length])
        at += length
    return found


# The streams of both generations are the same bytes, so one of each is enough.
STREAMS = ["copy_one_core.2026-08", "gemm_2x2.2026-04", "panel_gemm.2026-08"]


def harmless(words, at: int) -> int:
    """The bits of a word that no hardware looks at: the step of an iteration that is never taken."""
    for start in range(4, len(words) - 11):
        block = words[start] == 1 and words[start + 3] == 0x30
        if block and at == start + 10 and not words[at] >> 20:
            return 0xFFFFF
    return 0


@pytest.mark.parametrize("name", STREAMS)
def test_no_flipped_bit_of_a_stream_passes_under_a_recomputed_uid(name):
    pdi, stream = parts(EXAMPLES / "full-elf" / f"{name}.elf")
    design = designs_of(name)
    words = struct.unpack(f"<{len(stream) // 4}I", stream)
    survivors, tried = [], 0
    for at in range(len(words)):
        # Half the bits of each word of the small stream, three of the others': over the words every bit is met.
        for bit in range(at % 2, 32, 2) if len(words) < 100 else (at % 32, at * 7 % 32, (at * 11 + 5) % 32):
            changed = [*words]
            changed[at] ^= 1 << bit
            tried += 1
            if verdict(pdi, struct.pack(f"<{len(words)}I", *changed), design) == "passes":
                survivors.append((at, bit))
    assert tried > 1200
    assert [(at, bit) for at, bit in survivors if not harmless(words, at) >> bit & 1] == []


@pytest.mark.parametrize("name", STREAMS)
def test_no_operation_can_be_dropped_doubled_or_moved(name):
    pdi, stream = parts(EXAMPLES / "full-elf" / f"{name}.elf")
    design = designs_of(name)
    operations = operations_of(stream)
    assert stream_of(operations) == stream
    passing = []
    for at in range(len(operations)):
        mutants = {
            "dropped": [*operations[:at], *operations[at + 1 :]],
            "doubled": [*operations[: at + 1], *operations[at:]],
            "swapped": [*operations[:at], *operations[at : at + 2][::-1], *operations[at + 2 :]],
            "last": [*operations[:at], *operations[at + 1 :], operations[at]],
        }
        for how, mutant in mutants.items():
            same = mutant == operations
            if not same and verdict(pdi, stream_of(mutant), design) == "passes":
                passing.append((how, at))
    # Writing a descriptor twice, or a step earlier or later than needed, tells the array nothing else.
    kinds = {(how, operations[at][0]) for how, at in passing}
    assert kinds <= {
        ("doubled", 1),
        ("swapped", 0x81),
        ("swapped", 0),
        ("swapped", 3),
        ("swapped", 1),
        ("swapped", 0x80),
    }
    for how, at in passing:
        if how == "swapped":
            pair = {operations[at][0], operations[at + 1][0]}
            assert 1 in pair or 0x81 in pair


@pytest.mark.parametrize(
    ("operation", "word", "value", "text"),
    [
        # The last operations: controller, push, controller, push, then four waits.
        (-5, 2, 0x0201D20C, "seq task 11 on @C_1: expected (1, 's2mm', 0, 2, "),
        (-6, 2, 0x0201D208, "controller 15 for s2mm 0 of column 1, found controller 15 for s2mm 1 of column 1"),
        (-6, 4, 0xE00, "controller 15 for s2mm 0 of column 1, found controller 14 for s2mm 0 of column 1"),
        (-6, 5, 0x0F00, "found a mask write to 0x201d200"),
        (-5, 4, 0x00030005, "seq task 11 on @C_1"),
        (
            -1,
            2,
            0x00000,
            "wait for task 11 on @C_1: expected a wait for s2mm 0 of column 1, row 0, 1 x 1 tiles, found ",
        ),
        (-1, 2, 0x10001, "found a wait for mm2s 0 of column 1"),
        (-1, 2, 0x10100, "found a wait for s2mm 0 of column 1, row 1"),
        (-1, 3, 0x1010100, "found a wait for s2mm 1 of column 1"),
        (-1, 3, 0x20100, "row 0, 2 x 1 tiles"),
    ],
)
def test_an_operand_that_is_not_the_designs_is_told(operation, word, value, text):
    operations = operations_of(STREAM)
    changed = [*operations[operation]]
    changed[word] = value
    operations[operation] = tuple(changed)
    with pytest.raises(BadElf) as caught:
        check_design(read_full_elf(assemble(PDI, [("seq", stream_of(operations))])), designs_of("panel_gemm.2026-08"))
    assert caught.value.kind == "wrong-design"
    assert text in str(caught.value)


@pytest.mark.parametrize("tile", [(1, 3), (0, 1)])
def test_a_pdi_that_leaves_out_a_tile_of_the_design_is_another_designs(tile):
    design = designs_of("panel_gemm.2026-08")
    there = [command for command in cdo.commands(PDI) if tile_of(command) != tile]
    full = read_full_elf(assemble(cdo.image(there), [("seq", STREAM)]))
    kind = "mem" if tile[1] == 1 else "core"
    with pytest.raises(
        BadElf, match=rf"wrong-design: \.pdi\.1: expected a configuration of {kind}\({tile[0]},{tile[1]}\)"
    ):
        check_design(full, design)


def tile_of(command):
    """The tile that a CDO's command writes to, None for one without an address."""
    code, words = command
    if not words:
        return None
    address = words[1] if code == cdo.DMA_WRITE else words[0]
    return address >> 25, address >> 20 & 0x1F


def with_descriptor(operations, at: int, index: int):
    """The operations with another descriptor id for the task whose descriptor operation `at` writes."""
    block, patch, *rest = operations[at:]
    register = 0x1D000 + 0x20 * index | block[2] & ~0xFFFFF
    old = (block[2] & 0xFFFFF) - 0x1D000 >> 5
    queue = next(n for n, o in enumerate(rest) if o[0] == 0 and (o[2] ^ block[2]) >> 20 == 0 and o[4] & 0xF == old)
    rest[queue] = (*rest[queue][:4], rest[queue][4] & ~0xF | index, 0x18)
    return [
        *operations[:at],
        (*block[:2], register, *block[3:]),
        (*patch[:6], register + 4, *patch[7:]),
        *rest,
    ]


def test_a_descriptor_is_not_written_over_while_its_task_runs():
    design = designs_of("panel_gemm.2026-08")
    # Behind load_pdi: 6 descriptors and patches, 4 fills, 2 drains with their mask writes. Then the second group, whose
    # third descriptor is B's on shim 0. Of the first group, shim 0 still has 0 (A), 1 (B) and 2 (C).
    at = 1 + 12 + 4 + 4 + 4
    operations = operations_of(STREAM)
    assert operations[at][2] == 0x1D080
    for index, task, until in ((0, 0, 20), (1, 2, 20), (2, 4, 19)):
        with pytest.raises(BadElf) as caught:
            check_design(
                read_full_elf(assemble(PDI, [("seq", stream_of(with_descriptor(operations, at, index)))])), design
            )
        # A load, 4 fills, 2 drains of two operations make 9 events. The waits for the first two drains are events 18
        # and 19; the fills are given back behind both.
        expected = f"seq task {task}: descriptor {index} of column 0: expected kept for {until - (task == 4)} events"
        assert expected.replace("20", "19") in str(caught.value)
        assert "found written over after 9" in str(caught.value)
    # A free one does as well as the one that was chosen.
    assert verdict(PDI, stream_of(with_descriptor(operations, at, 15)), design) == "passes"


# Run-time parameters and locks: no full ELF of such a design was at hand, so the streams are the tests' own.

PARAMETERS = read_design((EXAMPLES / "iron" / "sequences_rtp.2026-08.generic.mlir").read_text())
PLACES = {"counts_0": 0x00208400, "go_0": 0x0021F040, "counts_1": 0x02208400, "go_1": 0x0221F040}


def with_parameters(**places: int) -> bytes:
    streams = [
        (sequence.name, gemm_stream(replace(PARAMETERS, sequences=(sequence,)), places=PLACES | places))
        for sequence in PARAMETERS.sequences
    ]
    return assemble(PDI, streams)


def test_run_time_parameters_and_locks_are_the_designs():
    check_design(read_full_elf(with_parameters()), PARAMETERS)
    sequence = PARAMETERS.sequences[1]
    assert list(sequence.steps[:3]) == [
        RtpWrite("counts_0", 0, 1),
        RtpWrite("counts_0", 1, 2),
        SetLock("go_0", 1),
    ]


@pytest.mark.parametrize(
    ("place", "address"),
    [
        # Another tile, no whole word, outside the data memory, over the other buffer's words in one tile.
        ("counts_0", 0x02208500),
        ("counts_0", 0x00208402),
        ("counts_0", 0x0020FFFC),
        # The lock of another tile, none of the tile's 16, half a lock on.
        ("go_1", 0x0021F040),
        ("go_1", 0x0221F100),
        ("go_1", 0x0221F048),
    ],
)
def test_parameters_and_locks_lie_where_they_can(place, address):
    with pytest.raises(BadElf, match="wrong-design") as caught:
        check_design(read_full_elf(with_parameters(**{place: address})), PARAMETERS)
    assert f"@{place}" in str(caught.value)


@pytest.mark.parametrize(
    ("at", "change", "text"),
    [
        (0, {"value": 3}, "run-time parameter @counts_0[0]: expected 0x1 to @counts_0 of core(0,2), word 0, found 0x3"),
        (1, {"index": 0}, "run-time parameter @counts_0[1]"),
        (
            2,
            {"value": 2},
            "value of lock @go_0: expected 1 to a lock of core(0,2), found 0x2 to 0x1f040 of column 0, row 2",
        ),
        (2, {"lock": "go_1"}, "value of lock @go_0"),
        (0, None, "run-time parameter @counts_0[0]"),
    ],
)
def test_a_parameter_or_lock_value_of_another_design_is_told(at, change, text):
    init, first, second = PARAMETERS.sequences
    steps = [*first.steps]
    if change is None:
        steps[0], steps[1] = steps[1], steps[0]
    else:
        steps[at] = replace(steps[at], **change)
    other = replace(PARAMETERS, sequences=(init, replace(first, steps=tuple(steps)), second))
    streams = [
        (sequence.name, gemm_stream(replace(other, sequences=(sequence,)), places=PLACES))
        for sequence in other.sequences
    ]
    with pytest.raises(BadElf) as caught:
        check_design(read_full_elf(assemble(PDI, streams)), PARAMETERS)
    assert f"seq_K128_N256 {text}" in str(caught.value)


def test_a_buffer_lies_in_one_place_for_all_sequences():
    streams = [
        (sequence.name, gemm_stream(replace(PARAMETERS, sequences=(sequence,)), places=PLACES | {"counts_0": address}))
        for sequence, address in zip(PARAMETERS.sequences, (0x00208400, 0x00208400, 0x00208800), strict=True)
    ]
    with pytest.raises(BadElf) as caught:
        check_design(read_full_elf(assemble(PDI, streams)), PARAMETERS)
    assert "seq_K256_N512 run-time parameter @counts_0[0]" in str(caught.value)


# --- differences --------------------------------------------------------------------------------------------------


def test_differences_are_classified_by_section():
    april, august = (EXAMPLES / "full-elf" / f"panel_gemm.{date}.elf" for date in ("2026-04", "2026-08"))
    rebuilt = classify_difference(april.read_bytes(), august.read_bytes())
    assert (rebuilt.kind, [name for name, _ in rebuilt.sections]) == ("pdi", [".pdi.1", ".note.xrt.UID"])
    copies = [(EXAMPLES / "full-elf" / f"copy_one_core.{date}.elf").read_bytes() for date in ("2026-04", "2026-08")]
    assert classify_difference(*copies).line == "identical"
    data = PANEL.read_bytes()
    uid = assemble(PDI, [("seq", STREAM)], uid=bytes(16))
    assert classify_difference(data, uid).line == "uid-only: .note.xrt.UID 16 bytes"
    other = change_words(STREAM, w30=0x40)
    assert classify_difference(data, assemble(PDI, [("seq", other)])).kind == "instructions"
    longer = assemble(PDI, [("seq", stream_of([LOAD_PDI]))])
    assert classify_difference(data, longer).kind == "instructions"
    both = assemble(parts(SMALLEST)[0], [("seq", other)])
    assert classify_difference(data, both).kind == "pdi-and-instructions"
    assert classify_difference(data, assemble(PDI, [("seq", STREAM)], kernel="gemm")).kind == "tables"
    assert classify_difference(data, b"nothing").kind == "not-comparable"


# --- inspect ------------------------------------------------------------------------------------------------------


def test_inspect_prints_what_it_is(capsys):
    assert main(["inspect", str(PANEL)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("panel_gemm.2026-08.elf: full, 11,720 bytes, sha256:474ebf3fa30df4f5")
    assert "  uid: value 2bc66033ab86f9510b221b18af1c80ff, scheme MD5(.pdi + .ctrltext)" in lines
    assert "  kernels: name main, arguments 3" in lines
    assert lines[-1].endswith("geometry M 32, K 256, N 512, weight bits 8, contiguous yes, columns 2, groups [1, 2]")


def test_inspect_compares_with_a_name_and_with_the_files_own(tmp_path, capsys):
    path = tmp_path / "full_i8_QKV_K5120_N14336_b8_m16.elf"
    path.write_bytes(gemm_elf(panel_b8(BIG_TWIN)))
    assert main(["inspect", str(path)]) == 0
    assert "  name: full_i8_QKV_K5120_N14336_b8_m16.elf agrees" in capsys.readouterr().out
    assert main(["inspect", str(path), "name=full_i8_QKV_K5120_N14336_b8.elf"]) == 1
    wrong = "fault: wrong-geometry: full_i8_QKV_K5120_N14336_b8.elf: expected M=128 K=5120 N=14336, "
    assert wrong in capsys.readouterr().out
    path.rename(tmp_path / "full_i8_G_K5120_N17408_b8_m16.elf")
    assert main(["inspect", str(tmp_path / "full_i8_G_K5120_N17408_b8_m16.elf")]) == 1
    assert (
        "expected M=16 K=5120 N=17408, 8-bit contiguous weights, found M=16 K=5120 N=14336" in capsys.readouterr().out
    )


def test_inspect_compares_the_sealed_elf_with_its_name(tmp_path, capsys):
    path = tmp_path / "pb16i_sealed.elf"
    path.write_bytes(sealed_elf())
    assert main(["inspect", str(path)]) == 0
    assert "  name: pb16i_sealed.elf agrees" in capsys.readouterr().out
    other = tmp_path / "other.elf"
    other.write_bytes(sealed_elf(GEOMETRIES[:1]))
    assert main(["inspect", str(other), "name=pb16i_sealed.elf"]) == 0


def test_a_plain_gemm_under_the_sealed_name_is_told(tmp_path, capsys):
    path = tmp_path / "pb16i_sealed.elf"
    path.write_bytes(PANEL.read_bytes())
    assert main(["inspect", str(path)]) == 1
    expected = (
        "fault: wrong-geometry: pb16i_sealed.elf: sequences: expected init and at least one seq_K<K>_N<N>, found seq"
    )
    assert expected in capsys.readouterr().out
    assert main(["inspect", str(PANEL), "name=pb16i_sealed.elf"]) == 1


def test_sealed_sequences_compute_what_their_names_say(tmp_path):
    design = packed(panel_b8(Shape(16, 5120, 14336, 1, 8, m=16)))
    lies = assemble(PDI, [("init", stream_of([LOAD_PDI])), ("seq_K5120_N6144", gemm_stream(design, load=False))])
    bytes_of_weights = panel_b8(Shape(16, 5120, 6144, 1, 8, m=16))
    wide = assemble(
        PDI, [("init", stream_of([LOAD_PDI])), ("seq_K5120_N6144", gemm_stream(bytes_of_weights, load=False))]
    )
    path = tmp_path / "pb16i_sealed.elf"
    path.write_bytes(lies)
    assert "found M=16 K=5120 N=14336, 2-bit contiguous weights" in inspect(path).fault
    path.write_bytes(wide)
    assert "found M=16 K=5120 N=6144, 8-bit contiguous weights" in inspect(path).fault


def test_inspect_says_that_a_design_is_no_gemm_without_speaking_of_a_name(capsys):
    copy = PANEL.with_name("copy_one_core.2026-08.elf")
    assert main(["inspect", str(copy)]) == 0
    out = capsys.readouterr().out
    assert "geometry no GEMM: tasks: expected tasks that fill the array from argument 1" in out
    assert "its name" not in out


def test_inspects_json_twin(tmp_path, capsys):
    path = tmp_path / "full_i8_D_K3072_N1024.elf"
    path.write_bytes(b"placeholder")
    assert main(["inspect", str(path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["reject"], answer["sound"], answer["size"]) == ("stub", "stub", False, 11)
    assert main(["inspect", str(PANEL), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["instances"][0]["geometry"] == {
        "M": 32,
        "K": 256,
        "N": 512,
        "weight bits": 8,
        "contiguous": True,
        "columns": 2,
        "groups": [1, 2],
    }
    assert answer["sections"][".pdi.1"] == 8848
    assert (answer["sound"], answer["reject"], answer["fault"]) == (True, None, None)


def test_inspect_knows_the_other_target(tmp_path, capsys):
    assert main(["inspect", str(PANEL), "target=sim"]) == 1
    assert "fault: full: expected an ELF of target sim" in capsys.readouterr().out
    assert main(["inspect", str(PANEL), "target=npu2"]) == 0
    path = tmp_path / "looks.elf"
    path.write_bytes(elf64(62, b".note.elfkiln"))
    found = inspect(path)
    assert (found.kind, found.reject) == ("sim", "malformed")
    with pytest.raises(Refused, match="target: expected one of npu2, sim \\(did you mean npu2\\?\\), found npu3"):
        inspect(path, target="npu3")


def test_inspect_reads_a_sim_elf_and_the_npu_refuses_it(simulator, tmp_path):
    built = simulator.path(panel_b8(Shape(16, 128, 256, 1, 2, m=16)), mm_i8(16))
    path = tmp_path / "full_i8_D_K128_N256_b8_m16.elf"
    path.write_bytes(Path(built).read_bytes())
    found = inspect(path)
    assert (found.kind, found.sound, found.facts["name"]) == ("sim", True, "full_i8_D_K128_N256_b8_m16.elf agrees")
    assert found.facts["instances"][0]["geometry"] == {
        "M": 16,
        "K": 128,
        "N": 256,
        "weight bits": 8,
        "contiguous": True,
        "columns": 2,
        "rows": 1,
    }
    assert inspect(path, target="npu2").reject == "sim"
    assert inspect(path, ArtifactName.parse("full_i8_D_K256_N128_b8_m16.elf")).reject == "wrong-geometry"
    assert inspect(path, "pb16i_sealed.elf").fault.startswith(
        "wrong-geometry: pb16i_sealed.elf: sequences: expected init"
    )
    assert kind_of(path.read_bytes()) == "sim"


def test_inspect_refuses_what_it_cannot_read(tmp_path, capsys):
    assert main(["inspect", str(tmp_path / "none.elf")]) == 2
    assert "none.elf: missing; give an ELF" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path)]) == 2
    assert main(["inspect", str(PANEL), "name=full_i8_XX_K1_N1.elf"]) == 2
    assert main(["inspect"]) == 2

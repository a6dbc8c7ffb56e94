"""What differs between two ELFs: sections, symbols, operations, and the fields that may differ."""

from __future__ import annotations

import struct

import pytest

import cdo
from elf_assembler import LOAD_PDI, assemble, parts, stream_of
from elfkiln.targets.elf_bytes import VolatileField, describe, differing_sections, only_volatile
from elfkiln.targets.npu2.full_elf.difference import describe_difference
from elfkiln.targets.table import TARGETS
from object_assembler import kernel_object
from projects import CHECKOUT

PDI, STREAM = parts(CHECKOUT / "tests" / "examples" / "full-elf" / "panel_gemm.2026-04.elf")
# The object's one section begins behind its 52 bytes of header; both symbols begin at 0 of it.
OBJECT = kernel_object()


def with_byte(data, at, value=0xFF):
    return data[:at] + bytes([value]) + data[at + 1 :]


def test_a_section_and_the_symbols_whose_bytes_differ_are_named():
    (found,) = differing_sections(OBJECT, with_byte(with_byte(OBJECT, 52 + 100), 52 + 70))
    assert found.line == "section .text: 2 bytes differ, the first at 0x46 of matmul_i8_i32"
    (found,) = differing_sections(OBJECT, with_byte(OBJECT, 52 + 10))
    assert found.symbols == ("zero_i32", "matmul_i8_i32")
    # Bytes 128 to 256 of the section are nobody's.
    assert differing_sections(OBJECT, with_byte(OBJECT, 52 + 200))[0].symbols == ()


def test_a_difference_outside_all_sections_is_not_lost():
    # e_flags of an ELF32 header.
    assert describe(OBJECT, with_byte(OBJECT, 36)) == ("section (headers): 1 bytes differ, the first at 0x24",)
    assert describe(OBJECT, OBJECT) == ()


@pytest.mark.parametrize(
    ("was", "now", "line"),
    [
        (b"abcdef", b"abCdefg", "2 bytes differ, the first at 0x2: was b'abcdef', is b'abCdefg'"),
        (b"", b"x", "1 bytes differ, the first at 0x0: was b'', is b'x'"),
        (OBJECT, OBJECT[:40], f"{len(OBJECT) - 40} bytes differ, the first at 0x28"),
    ],
)
def test_what_is_not_an_elf_is_compared_byte_by_byte(was, now, line):
    assert describe(was, now)[0].startswith(line)


def test_only_fields_of_the_table_may_differ_and_each_is_named():
    stamp = VolatileField(".text", 64, 4, "a stamp of the time")
    other = VolatileField(".text", 0, 4, "another one")
    stamped = with_byte(OBJECT, 52 + 65)
    assert only_volatile(OBJECT, stamped, (stamp, other)) == (stamp,)
    assert only_volatile(OBJECT, stamped, (other,)) is None
    assert only_volatile(OBJECT, stamped, ()) is None
    assert only_volatile(OBJECT, with_byte(stamped, 52 + 68), (stamp, other)) is None
    assert only_volatile(OBJECT, OBJECT + b"\0", (stamp,)) is None
    assert only_volatile(OBJECT, stamped, (VolatileField(".text", 254, 4, "beyond its end"),)) is None
    assert only_volatile(OBJECT, stamped, (VolatileField(".absent", 0, 4, "of no section"),)) is None
    assert only_volatile(OBJECT, b"no ELF", (stamp,)) is None


def test_no_target_has_volatile_fields():
    assert {name: target.volatile for name, target in TARGETS.items()} == {"npu2": (), "sim": ()}


def test_a_register_write_of_a_stream_is_named():
    # write: opcode, 0, address, 0, value, 24 bytes. Column 2, row 0, the task queue of mm2s 0 at 0x1d214.
    def write(value):
        return (0x00, 0, 2 << 25 | 0x1D214, 0, value, 24)

    one, other = (assemble(PDI, [("seq", stream_of([LOAD_PDI, write(value)]))]) for value in (0x80000001, 0x80000002))
    lines = describe_difference(one, other)
    assert lines[0].startswith("instructions: .ctrltext.0 1 bytes, .note.xrt.UID ")
    where = "write to column 2 row 0 register 0x1d214"
    assert lines[1:] == (f".ctrltext.0 operation 1: was {where}: 0x80000001, is {where}: 0x80000002",)


def test_operations_that_come_on_top_are_named():
    sync = (0x80, 16, 3 << 16 | 1, 1 << 24 | 1 << 16 | 1 << 8)
    one, other = (assemble(PDI, [("seq", stream_of(ops))]) for ops in ([LOAD_PDI], [LOAD_PDI, sync]))
    assert any("operation 1: was none, is sync 0x30001 0x1010100" in line for line in describe_difference(one, other))


def test_a_command_of_the_configuration_is_named_with_its_tile():
    def pdi(value):
        # A write of one word to column 1, row 2 of the array.
        return cdo.image([*cdo.commands(PDI), (cdo.WRITE, [1 << 25 | 2 << 20 | 0x32000, value])])

    count = len(list(cdo.commands(PDI)))
    one, other = (assemble(pdi(value), [("seq", STREAM)]) for value in (1, 2))
    assert (
        f".pdi.1 command {count}: was write to column 1 row 2 register 0x32000: 0x1, "
        "is write to column 1 row 2 register 0x32000: 0x2"
    ) in describe_difference(one, other)


def test_of_many_operations_the_first_are_shown_and_the_rest_counted():
    def write(value):
        return (0x00, 0, 0x1D214, 0, value, 24)

    one, other = (
        assemble(PDI, [("seq", stream_of([LOAD_PDI, *(write(value + add) for value in range(9))]))]) for add in (0, 100)
    )
    lines = describe_difference(one, other)
    assert sum(" operation " in line for line in lines) == 3
    assert ".ctrltext.0: 6 more operations differ, of 10" in lines


def test_a_uid_alone_and_a_stream_that_cannot_be_walked():
    lines = describe_difference(assemble(PDI, [("seq", STREAM)]), assemble(PDI, [("seq", STREAM)], uid=bytes(16)))
    assert lines == ("uid-only: .note.xrt.UID 16 bytes",)
    whole = assemble(PDI, [("seq", STREAM)])
    # The code of the second operation, behind the header's 4 words and the 4 of load_pdi.
    at = whole.index(STREAM) + 32
    lines = describe_difference(whole, whole[:at] + struct.pack("<I", 0x77) + whole[at + 4 :])
    assert ".ctrltext.0: cannot be walked in one of the two" in lines

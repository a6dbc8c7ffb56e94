"""Kernel object lint: on objects shaped like Peano's, and on what a real compiler makes of C++ for the host."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.design.model import Call, Kernel, ObjectRef
from elfkiln.errors import BuildFailed, Refused
from elfkiln.lint.kernel_object import check_cores, check_object, lint_cores, lint_object
from gemm_designs import Shape, panel_b8
from object_assembler import (
    ALLOC,
    COMMON,
    EXECUTE,
    FUNCTION,
    GLOBAL,
    LOCAL,
    NOBITS,
    OBJECT,
    PROGBITS,
    THREAD,
    WEAK,
    WRITE,
    kernel_object,
)
from small_designs import endless, relay, with_core

CHECKOUT = Path(__file__).resolve().parents[2]
ENTRIES = ("zero_i32", "matmul_i8_i32")
TEXT = (".text", PROGBITS, ALLOC | EXECUTE, 256)
FUNCTIONS = (("zero_i32", GLOBAL, FUNCTION, 1, 64), ("matmul_i8_i32", GLOBAL, FUNCTION, 1, 128))


def rules(data: bytes, machine: str = "aie2p", entries=ENTRIES, **more) -> list[tuple[str, str]]:
    return [(f.severity, f.rule) for f in lint_object(data, entries=entries, machine=machine, **more)]


def message(data: bytes, rule: str, machine: str = "aie2p", entries=ENTRIES, **more) -> str:
    found = next(f.message for f in lint_object(data, entries=entries, machine=machine, **more) if f.rule == rule)
    assert found.startswith("object: ")
    return found.removeprefix("object: ")


# --- objects shaped like Peano's ----------------------------------------------------------------------------------


def test_a_plain_object_is_clean():
    assert rules(kernel_object()) == []
    assert check_object(kernel_object(), entries=ENTRIES, machine="aie2p") == ()


@pytest.mark.parametrize(
    "name", [".rodata", ".rodata.cst16", ".data", ".comment", ".stack_sizes", ".text.zero_i32", ".llvm_addrsig"]
)
def test_sections_of_the_linker_script_are_taken(name):
    flags = ALLOC | EXECUTE if name.startswith(".text") else ALLOC
    assert rules(kernel_object((TEXT, (name, PROGBITS, flags, 64)), FUNCTIONS)) == []


@pytest.mark.parametrize(
    ("section", "rule"),
    [
        ((".bss", NOBITS, ALLOC | WRITE, 4), "object-bss"),
        ((".tbss", NOBITS, ALLOC | WRITE | THREAD, 4), "object-thread-local"),
        ((".tdata", PROGBITS, ALLOC | WRITE | THREAD, 4), "object-thread-local"),
        ((".init_array", PROGBITS, ALLOC | WRITE, 4), "object-constructors"),
        ((".ctors.65535", PROGBITS, ALLOC | WRITE, 4), "object-constructors"),
        ((".eh_frame", PROGBITS, ALLOC, 4), "object-section"),
        ((".gcc_except_table", PROGBITS, ALLOC, 4), "object-section"),
        ((".debug_info", PROGBITS, 0, 4), "object-section"),
        ((".mydata", PROGBITS, ALLOC | WRITE, 4), "object-section"),
    ],
)
def test_a_section_the_link_does_not_take(section, rule):
    data = kernel_object((TEXT, section), FUNCTIONS)
    assert rules(data) == [("error", rule)]
    assert section[0] in message(data, rule)
    empty = (*section[:3], 0)
    if not section[2] & THREAD:
        assert rules(kernel_object((TEXT, empty), FUNCTIONS)) == []


def test_entries_are_global_functions_with_code():
    missing = kernel_object(symbols=FUNCTIONS[:1])
    assert rules(missing) == [("error", "object-entry")]
    assert message(missing, "object-entry") == "entry matmul_i8_i32: expected a global function, found only zero_i32"
    for symbol, seen in (
        (("matmul_i8_i32", LOCAL, FUNCTION, 1, 128), "only zero_i32"),
        (("matmul_i8_i32", WEAK, FUNCTION, 1, 128), "weak func of 128 bytes"),
        (("matmul_i8_i32", GLOBAL, OBJECT, 1, 128), "global object of 128 bytes"),
        (("matmul_i8_i32", GLOBAL, FUNCTION, 1, 0), "global func of 0 bytes"),
    ):
        assert message(kernel_object(symbols=(FUNCTIONS[0], symbol)), "object-entry").endswith(f"found {seen}")


def test_a_mangled_entry_says_extern_c():
    data = kernel_object(symbols=(FUNCTIONS[0], ("_Z13matmul_i8_i32PaS_Pi", GLOBAL, FUNCTION, 1, 128)))
    assert 'found only _Z13matmul_i8_i32PaS_Pi; declare it extern "C"' in message(data, "object-entry")


def test_undefined_symbols_but_the_librarys():
    supplied = tuple((name, GLOBAL, 0, 0, 0) for name in ("memcpy", "memset", "memmove"))
    assert rules(kernel_object(symbols=(*FUNCTIONS, *supplied))) == []
    wanted = kernel_object(symbols=(*FUNCTIONS, ("_Znwj", GLOBAL, 0, 0, 0)))
    assert (
        message(wanted, "object-undefined")
        == "undefined symbol: expected none but memcpy, memmove, memset, found _Znwj"
    )


def test_common_symbols_are_bss():
    assert rules(kernel_object(symbols=(*FUNCTIONS, ("scratch", GLOBAL, OBJECT, COMMON, 64)))) == [
        ("error", "object-bss")
    ]


def test_more_exports_are_a_warning():
    data = kernel_object(symbols=(*FUNCTIONS, ("helper", GLOBAL, FUNCTION, 1, 8)))
    assert rules(data) == [("warning", "object-export")]
    (warning,) = check_object(data, entries=ENTRIES, machine="aie2p")
    assert warning.rule == "object-export"


@pytest.mark.parametrize(("size", "fits"), [(16384, True), (16400, False)])
def test_code_fits_the_program_memory(size, fits):
    data = kernel_object(((".text", PROGBITS, ALLOC | EXECUTE, size),), FUNCTIONS)
    assert (rules(data) == []) is fits
    if not fits:
        assert message(data, "object-program").startswith("bytes of code: expected at most 16,384, found 16,400")


def test_code_of_all_sections_counts():
    halves = ((".text", PROGBITS, ALLOC | EXECUTE, 8192), (".text.f", PROGBITS, ALLOC | EXECUTE, 8208))
    assert rules(kernel_object(halves, FUNCTIONS)) == [("error", "object-program")]


@pytest.mark.parametrize(("room", "fits"), [(None, True), (128, True), (127, False)])
def test_constants_fit_what_a_core_has_left(room, fits):
    data = kernel_object((TEXT, (".rodata", PROGBITS, ALLOC, 100), (".data", PROGBITS, ALLOC | WRITE, 28)), FUNCTIONS)
    assert (rules(data, room=room) == []) is fits


@pytest.mark.parametrize(
    ("changes", "rule", "text"),
    [
        ({"machine": 62}, "object-machine", "expected aie2p: 32-bit, machine 264, found 32-bit, machine 62"),
        ({"flags": 2}, "object-machine", "core generation: expected AIE2P (npu2), found AIE2 (npu1)"),
        ({"kind": 2}, "object-type", "expected ET_REL, a relocatable object, found ET_EXEC"),
    ],
)
def test_another_machines_object(changes, rule, text):
    data = kernel_object(**changes)
    assert rules(data) == [("error", rule)]
    assert text in message(data, rule)


def test_unknown_flags_are_a_warning():
    assert rules(kernel_object(flags=0x13)) == [("warning", "object-machine")]


def test_an_object_without_code():
    assert ("error", "object-empty") in rules(kernel_object(((".rodata", PROGBITS, ALLOC, 4),), ()))


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(200), b"!<arch>\n", b"BC\xc0\xde", kernel_object()[:300]])
def test_what_is_no_object_is_one_finding(data):
    assert rules(data) == [("error", "object-unreadable")]
    with pytest.raises(BuildFailed, match=r"mm\.o: object file: expected a relocatable ELF, found"):
        check_object(data, entries=ENTRIES, machine="aie2p", name="mm.o")


def test_check_object_names_the_file_and_counts_the_rest():
    data = kernel_object((TEXT, (".bss", NOBITS, ALLOC | WRITE, 4)), FUNCTIONS[:1])
    with pytest.raises(BuildFailed) as caught:
        check_object(data, entries=ENTRIES, machine="aie2p", name="mm_16x64x128.o")
    assert str(caught.value).startswith("mm_16x64x128.o: bytes of .bss: expected none, found 4")
    assert str(caught.value).endswith("(and 1 more)")


def test_an_unknown_machine_is_refused():
    with pytest.raises(Refused, match="machine: expected aie2p or x86-64, found arm"):
        lint_object(kernel_object(), entries=(), machine="arm")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bytes_make_it_fail(data):
    changed = bytearray(kernel_object())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        if not changed:
            break
    for finding in lint_object(bytes(changed), entries=ENTRIES, machine="aie2p"):
        assert "\n" not in finding.line


# --- all objects of a core ---------------------------------------------------------------------------------------


def two_objects(stack: int = 1024):
    """A relay whose core calls `zero` of a.o and `relay` of b.o; its stack and 4 KiB of buffers take data memory."""
    design = relay(stack=stack)
    bytes_ = design.fifos[0].object_type
    body = design.cores[0].body[0].body
    calls = (*body[:2], Call("zero", (ObjectRef(1, 0),)), *body[2:])
    kernels = (Kernel("zero", (bytes_,), "a.o"), Kernel("relay", (bytes_, bytes_), "b.o"))
    return replace(with_core(design, design.cores[0].tile, body=endless(*calls)), kernels=kernels)


def part(entry: str, code: int, data: int = 0) -> bytes:
    sections = [(".text", PROGBITS, ALLOC | EXECUTE, code)]
    if data:
        sections.append((".rodata", PROGBITS, ALLOC, data))
    return kernel_object(tuple(sections), ((entry, GLOBAL, FUNCTION, 1, 64),))


def test_the_code_of_all_objects_of_a_core_shares_its_program_memory():
    fits = {"a.o": part("zero", 8000), "b.o": part("relay", 8384)}
    assert lint_cores(two_objects(), fits) == ()
    over = {"a.o": part("zero", 8000), "b.o": part("relay", 8400)}
    for name, data in over.items():
        assert check_object(data, entries=("zero" if name == "a.o" else "relay",), machine="aie2p") == ()
    (finding,) = lint_cores(two_objects(), over)
    assert (finding.rule, finding.where, finding.limit, finding.value) == ("object-program", "core(0,2)", 16384, 16400)
    assert finding.message.endswith("found 16,400; a.o 8,000 + b.o 8,400")
    with pytest.raises(BuildFailed, match=r"core\(0,2\): bytes of code: expected at most 16,384, found 16,400"):
        check_cores(two_objects(), over)


def test_the_constants_of_all_objects_of_a_core_share_what_it_has_left():
    # 65,536 - 61,376 of stack - 2 x 2 x 1,024 of buffers leaves 64 bytes.
    objects = {"a.o": part("zero", 64, 32), "b.o": part("relay", 64, 32)}
    assert lint_cores(two_objects(stack=61376), objects) == ()
    objects["b.o"] = part("relay", 64, 36)
    (finding,) = lint_cores(two_objects(stack=61376), objects)
    assert (finding.rule, finding.value) == ("object-data", 68)
    assert "at most 64, what the core has left" in finding.message


def test_two_objects_of_a_core_that_define_one_symbol_do_not_link():
    both = kernel_object(
        ((".text", PROGBITS, ALLOC | EXECUTE, 256),),
        (("relay", GLOBAL, FUNCTION, 1, 64), ("zero", GLOBAL, FUNCTION, 1, 64)),
    )
    (finding,) = lint_cores(two_objects(), {"a.o": part("zero", 64), "b.o": both})
    assert (finding.severity, finding.rule) == ("error", "object-export")
    assert "objects that define zero: expected 1, found a.o, b.o" in finding.message


def test_weak_symbols_link_however_many_define_them():
    # Inline functions and templates of a header come out as weak ones in every object that uses them.
    shared = ("_ZN3aie4loadEv", WEAK, FUNCTION, 1, 16)
    objects = {
        name: kernel_object(((".text", PROGBITS, ALLOC | EXECUTE, 256),), ((entry, GLOBAL, FUNCTION, 1, 64), shared))
        for name, entry in (("a.o", "zero"), ("b.o", "relay"))
    }
    assert lint_cores(two_objects(), objects) == ()
    assert check_object(objects["a.o"], entries=("zero",), machine="aie2p") == ()
    # A weak one that nothing defines is not an undefined symbol for the linker either.
    asks = kernel_object(symbols=(*FUNCTIONS, ("maybe", WEAK, 0, 0, 0)))
    assert rules(asks) == []


def test_cores_alike_are_told_once_and_objects_of_no_core_are_left_out():
    design = panel_b8(Shape(32, 256, 512, 2, 2, m=16))
    name = design.kernels[0].link_with
    big = part("matmul", 16400)
    (finding,) = lint_cores(design, {name: big, "other.o": big})
    assert finding.where == "core(0,2) and 3 alike"
    assert lint_cores(design, {"other.o": big, name: b"no object"}) == ()


# --- objects of a real compiler -----------------------------------------------------------------------------------

FLAGS = (
    *("-target", "x86_64-linux-gnu.2.17", "-mcpu=x86_64_v3", "-fPIC", "-O2", "-g0", "-std=c++20"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-stack-protector", "-fno-sanitize=all"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
)

ENTRY = 'extern "C" void zero_i32(int *c) { for (int i = 0; i < 64; ++i) c[i] = i; }\n'

SOURCES = {
    "good": ENTRY,
    "helper": "int helper(int x) { return x + 1; }\n" + ENTRY,
    "static_helper": "static int helper(int x) { return x + 1; }\n" + ENTRY,
    "mangled": ENTRY.replace('extern "C" ', ""),
    "bss": ENTRY.replace("{ for", "{ static int calls; c[63] = ++calls; for"),
    "thread": "thread_local int calls = 1;\n" + ENTRY.replace("{ for", "{ c[63] = ++calls; for"),
    "constructor": "struct S { S(); int x; };\nextern S s;\nS::S() : x(zero()) {}\n".replace(
        "zero()", "__builtin_ia32_rdtsc()"
    )
    + "S s;\n"
    + ENTRY.replace("c[i] = i", "c[i] = s.x"),
    "outside": "extern int lookup(int);\n" + ENTRY.replace("c[i] = i", "c[i] = lookup(i)"),
    "table": "static const int squares[4] = {0, 1, 4, 9};\n" + ENTRY.replace("c[i] = i", "c[i] = squares[c[i] & 3]"),
}


def compile_host(source: Path, target: Path, *more: str) -> bytes:
    command = [sys.executable, "-m", "ziglang", "c++", "-c", str(source), "-o", str(target), *FLAGS, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target.read_bytes()


@pytest.fixture(scope="module")
def objects(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("objects")
    made = {}
    for name, text in SOURCES.items():
        source = folder / f"{name}.cc"
        source.write_text(text)
        made[name] = compile_host(source, folder / f"{name}.o")
    unwinding = folder / "good.cc"
    made["unwind"] = compile_host(unwinding, folder / "unwind.o", "-fasynchronous-unwind-tables")
    return made


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("good", set()),
        ("static_helper", set()),
        ("table", set()),
        ("helper", {("warning", "object-export")}),
        ("mangled", {("error", "object-entry"), ("warning", "object-export")}),
        ("bss", {("error", "object-bss")}),
        ("outside", {("error", "object-undefined")}),
        ("unwind", {("error", "object-section")}),
    ],
)
def test_host_objects(objects, name, expected):
    assert set(rules(objects[name], "x86-64", ["zero_i32"])) == expected


def test_thread_local_data_of_the_host(objects):
    assert ("error", "object-thread-local") in rules(objects["thread"], "x86-64", ["zero_i32"])


def test_a_static_constructor_of_the_host(objects):
    found = rules(objects["constructor"], "x86-64", ["zero_i32"])
    assert ("error", "object-constructors") in found
    assert ("error", "object-bss") in found


def test_a_host_object_is_no_npu_object(objects):
    assert rules(objects["good"]) == [("error", "object-machine")]
    assert rules(kernel_object(), "x86-64") == [("error", "object-machine")]


@pytest.mark.parametrize(
    ("source", "entries"),
    [("mm_i8.cc", ("zero_i32", "matmul_i8_i32")), ("mm_pb16i.cc", ("zero_i32", "matmul_pb16i_i32"))],
)
@pytest.mark.parametrize("m", [16, 32])
def test_the_microkernels_of_the_project_compiled_for_the_host(tmp_path, source, entries, m):
    runtime = CHECKOUT / "src" / "elfkiln" / "targets" / "sim" / "runtime"
    folders = (f"-I{CHECKOUT / 'kernels'}", f"-I{CHECKOUT / 'kernels' / 'host'}", f"-I{runtime}")
    defines = (f"-DDIM_M={m}", "-DDIM_K=64", "-DDIM_N=128", "-DELFKILN_SIM=1")
    data = compile_host(CHECKOUT / "kernels" / source, tmp_path / "mm.o", *folders, *defines)
    assert rules(data, "x86-64", entries) == []
    assert check_object(data, entries=entries, machine="x86-64") == ()

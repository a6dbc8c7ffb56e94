"""Reading designs: what the real package printed in April and August 2026, and what is not a design."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.parser import Parser

from design_texts import COPY, EXAMPLES, REFUSED, RTP, edited, recorded
from elfkiln.design.mlir import design_context
from elfkiln.design.mlir.design_parser import DesignParser
from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    BufferRef,
    Call,
    Const,
    Core,
    Design,
    Dim,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    Load,
    Loaded,
    LoadPdi,
    Lock,
    Loop,
    LoopIndex,
    MemRef,
    ObjectRef,
    Release,
    RtpWrite,
    Sequence,
    SetLock,
    StartTask,
    Task,
    Tile,
    UseLock,
)
from elfkiln.design.reader import canonical_text, design_digest, parse_design_module, read_design
from elfkiln.errors import Refused

NAMES = ("copy_one_core", "gemm_2x2", "panel_gemm", "sequences_rtp")
RECORDED = sorted(path.name for path in EXAMPLES.glob("*.generic.mlir"))


def test_all_recorded_modules_are_here():
    assert sorted(f"{name}.{date}.generic.mlir" for name in NAMES for date in ("2026-04", "2026-08")) == RECORDED


@pytest.mark.parametrize("name", NAMES)
def test_both_generations_read_into_equal_designs(name):
    april, august = recorded(name, "2026-04"), recorded(name, "2026-08")
    assert april != august
    assert read_design(april) == read_design(august)


def test_copy_one_core_is_what_its_generator_says():
    # Every value by hand from copy_one_core.py.
    block, whole = MemRef((1024,), "i8"), MemRef((4096,), "i8")
    shim, mem, compute = Tile(0, 0), Tile(0, 1), Tile(0, 2)
    assert read_design(COPY) == Design(
        device="npu2",
        name="main",
        tiles=(shim, mem, compute),
        kernels=(Kernel("relay_i8", (block, block), "relay.o"),),
        fifos=(
            Fifo("into_mem", shim, (mem,), (2, 2), block),
            Fifo("into_core", mem, (compute,), (2, 2), block, (Dim(8, 8), Dim(16, 64), Dim(8, 1))),
            Fifo("out", compute, (shim,), (2, 2), block),
        ),
        links=(Link(("into_mem",), ("into_core",)),),
        buffers=(),
        locks=(),
        cores=(
            Core(
                compute,
                0x800,
                (
                    Loop(
                        0,
                        Const(0),
                        Const(0xFFFFFFFF),
                        Const(1),
                        (
                            Acquire(0, "into_core", "consume", 1),
                            Acquire(1, "out", "produce", 1),
                            Call("relay_i8", (ObjectRef(0, 0), ObjectRef(1, 0))),
                            Release("into_core", "consume", 1),
                            Release("out", "produce", 1),
                        ),
                    ),
                ),
            ),
        ),
        sequences=(
            Sequence(
                "seq",
                (whole, whole, whole),
                (
                    Task(0, "into_mem", 0, 0, (1, 1, 4, 1024), (0, 0, 1024, 1), 4096, 0, False, 0, 1),
                    Task(1, "out", 2, 0, (1, 1, 1, 4096), (0, 0, 0, 1), 4096, 0, True, 0, 1),
                ),
                (LoadPdi("main"), StartTask(0), StartTask(1), AwaitTask(1), FreeTask(0)),
            ),
        ),
    )


def test_gemm_2x2_has_the_taps_joins_and_broadcasts_of_its_generator():
    M, K, N, m, k, n = 64, 128, 256, 32, 64, 128
    design = read_design(recorded("gemm_2x2"))
    assert design.fifo("A_1").consumers == (Tile(0, 3), Tile(1, 3))
    assert design.fifo("A_1").depths == (3, 3, 3)
    assert design.fifo("C_0").object_type == MemRef((2 * m, n), "i32")
    assert design.links[1] == Link(("C_0_0", "C_0_1"), ("C_0",), src_offsets=(0, m * n))
    (sequence,) = design.sequences
    assert sequence.arguments == (MemRef((M * K,), "i8"), MemRef((K * N,), "i8"), MemRef((M * N,), "i32"))
    # Tiles in the generator's order: per K tile, A of each row, then B of each column; then C of each column.
    a = [r * m * K + kt * k for kt in range(2) for r in range(2)]
    b = [(c * 2 + kt) * k * n for kt in range(2) for c in range(2)]
    assert [task.offset for task in sequence.tasks] == [*a[:2], *b[:2], *a[2:], *b[2:], 0, n]
    first = sequence.tasks[0]
    assert (first.sizes, first.strides) == ((m // 8, k // 8, 8, 8), (8 * K, 8, K, 1))
    assert (first.length, first.repeat_count) == (k // 8 * 8 * 8, m // 8 - 1)
    assert sequence.steps[:3] == (LoadPdi("main"), StartTask(0), StartTask(1))
    assert sequence.steps[-2:] == (AwaitTask(8), AwaitTask(9))
    # The drains are configured after load_pdi, 8 starts and 8 awaits.
    assert sequence.tasks[8].configured_at == 17


def test_sequences_rtp_has_its_parameters_locks_and_sequences():
    design = read_design(RTP)
    assert design.buffers == (
        Buffer("counts_0", Tile(0, 2), MemRef((2,), "i32")),
        Buffer("counts_1", Tile(1, 2), MemRef((2,), "i32")),
    )
    assert design.locks == (Lock("go_0", Tile(0, 2), 0), Lock("go_1", Tile(1, 2), 0))
    assert design.kernels[1].parameters == (MemRef((16, 64), "i8"), MemRef((2048,), "ui8"), MemRef((16, 128), "i32"))
    (forever,) = design.cores[1].body
    assert forever.body == (
        UseLock("go_1", "acquire_ge", Const(1)),
        Load(0, "counts_1", Const(0)),
        Load(1, "counts_1", Const(1)),
        Loop(
            1,
            Const(0),
            Loaded(0),
            Const(1),
            (
                Acquire(0, "C_1", "produce", 1),
                Call("zero_i32", (ObjectRef(0, 0),)),
                Loop(
                    2,
                    Const(0),
                    Loaded(1),
                    Const(1),
                    (
                        Acquire(1, "A_0", "consume", 1),
                        Acquire(2, "B_1", "consume", 1),
                        Call("matmul_pb16i_i32", (ObjectRef(1, 0), ObjectRef(2, 0), ObjectRef(0, 0))),
                        Release("A_0", "consume", 1),
                        Release("B_1", "consume", 1),
                    ),
                ),
                Release("C_1", "produce", 1),
            ),
        ),
    )
    assert [sequence.name for sequence in design.sequences] == ["init", "seq_K128_N256", "seq_K256_N512"]
    assert design.sequences[0].steps == (LoadPdi("main"),)
    # K=256, N=512: 2 groups of 2 columns, 4 K tiles.
    assert design.sequences[2].steps[:6] == (
        RtpWrite("counts_0", 0, 2),
        RtpWrite("counts_0", 1, 4),
        SetLock("go_0", 1),
        RtpWrite("counts_1", 0, 2),
        RtpWrite("counts_1", 1, 4),
        SetLock("go_1", 1),
    )


def test_a_kernel_takes_constants_loop_counters_buffers_and_loaded_values():
    function = 'function_type = (memref<16x128xi32>) -> (), sym_name = "zero_i32"'
    text = edited(function, function.replace("memref<16x128xi32>", "index, i32, memref<2xi32>, i32"), RTP)
    call = re.search(r'"func.call"\(%68\) <\{callee = @zero_i32\}> : \(memref<16x128xi32>\) -> \(\)', text)[0]
    new = '"func.call"(%arg13, %60, %6, %58) <{callee = @zero_i32}> : (index, i32, memref<2xi32>, i32) -> ()'
    text = edited(call, new, text)
    # The other core's call keeps the old types: leave it out.
    text = re.sub(r'"func.call"\(%48\)[^\n]*\n', "", text)
    design = read_design(text)
    assert design.kernels[0].parameters == ("index", "i32", MemRef((2,), "i32"), "i32")
    group_loop = design.cores[0].body[0].body[3]
    assert group_loop.body[1] == Call("zero_i32", (LoopIndex(1), Loaded(0), BufferRef("counts_0"), Const(1)))


@pytest.mark.parametrize(
    ("sizes", "strides", "length", "expected"),
    [
        ("4, 1024", "1024, 1", 4096, ((1, 1, 4, 1024), (0, 0, 1024, 1))),
        ("3, 8, 16", "512, 32, 1", 384, ((1, 3, 8, 16), (0, 512, 32, 1))),
        ("64, 2, 2, 4", "64, 8, 4, 1", 16, ((64, 2, 2, 4), (64, 8, 4, 1))),
    ],
)
def test_short_taps_get_outer_dimensions(sizes, strides, length, expected):
    text = edited("static_sizes = array<i64: 1, 1, 4, 1024>", f"static_sizes = array<i64: {sizes}>")
    text = edited("static_strides = array<i64: 0, 0, 1024, 1>", f"static_strides = array<i64: {strides}>", text)
    text = edited("static_len = 4096", f"static_len = {length}", text)
    task = read_design(text).sequences[0].tasks[0]
    assert (task.sizes, task.strides) == expected
    # The repeat count is the task's own property, whatever the tap says.
    assert (task.length, task.repeat_count) == (length, 0)


def test_a_descriptor_without_a_tap_is_linear():
    august = edited(", static_sizes = array<i64: 1, 1, 4, 1024>, static_strides = array<i64: 0, 0, 1024, 1>", "")
    april = recorded("copy_one_core", "2026-04")
    april = re.sub(r"dimensions = #aie<bd_dim_layout_array\[<size = 1, [^\n]*1024[^\n]*?\]>, ", "", april, count=1)
    for text in (august, april):
        task = read_design(text).sequences[0].tasks[0]
        assert (task.sizes, task.strides, task.length, task.offset) == ((), (), 4096, 0)


def test_depths_per_end_dims_per_consumer_and_repeats():
    fifo = re.search(r'"aie.objectfifo"\(%0, %4, %5\)[^\n]*', recorded("panel_gemm"))[0]
    new = (
        fifo.replace("elemNumber = 2 : i32", "elemNumber = [2 : i32, 3 : i32, 4 : i32]")
        .replace("array_array[[], []]", "array_array[[<size = 2, stride = 512>, <size = 512, stride = 1>], []]")
        .replace("via_DMA = false", "via_DMA = true")
    )
    design = read_design(edited(fifo, new, recorded("panel_gemm")))
    found = design.fifo("A_0")
    assert (found.depths, found.depth_per_end, found.via_dma) == ((2, 3, 4), True, True)
    assert found.from_stream == ((Dim(2, 512), Dim(512, 1)), ())
    assert not design.fifo("A_1").depth_per_end
    assert design.fifo("A_1").from_stream == ()
    repeated = edited('sym_name = "into_core"', 'repeat_count = 5 : i32, sym_name = "into_core"')
    assert read_design(repeated).fifo("into_core").repeat_count == 5


def test_distribute_links_another_device_name_and_unnamed_locks():
    text = recorded("panel_gemm").replace('"main"', '"array_7"').replace("@main", "@array_7")
    b_in = re.search(r'    "aie.objectfifo"\(%2, %4, %6\)[^\n]*\n', text)[0]
    halves = [
        b_in.replace("(%2, %4, %6)", f"(%2, %{core})")
        .replace("array_array[[], []]", "array_array[[]]")
        .replace("64x128", "32x128")
        .replace('"B_0"', f'"B_0_{row}"')
        .replace("(index, index, index)", "(index, index)")
        for row, core in enumerate((4, 6))
    ]
    text = edited(b_in, "".join(halves), text)
    text = edited(
        "dst_offsets = [], fifoIns = [@B_mem_0], fifoOuts = [@B_0]",
        "dst_offsets = [0, 4096], fifoIns = [@B_mem_0], fifoOuts = [@B_0_0, @B_0_1]",
        text,
    )
    cores = re.findall(r'    %\d+ = "aie.core".*?\n    \}\) : \(index\) -> index\n', text, re.DOTALL)
    for core in cores:
        text = text.replace(core, "")
    lock = '    %900 = "aie.lock"(%4) <{init = 3 : i32}> : (index) -> index\n'
    text = edited('    "aie.runtime_sequence"', f'{lock}{lock.replace("900", "901")}    "aie.runtime_sequence"', text)
    design = read_design(text)
    assert design.name == "array_7"
    assert design.links[0] == Link(("B_mem_0",), ("B_0_0", "B_0_1"), dst_offsets=(0, 4096))
    assert design.locks == (Lock("lock_0", Tile(0, 2), 3), Lock("lock_1", Tile(0, 2), 3))


# Digest


@pytest.mark.parametrize("name", NAMES)
def test_the_digest_is_that_of_the_canonical_text(name):
    text = recorded(name)
    canonical = canonical_text(parse_design_module(text))
    assert design_digest(text) == hashlib.sha256(canonical.encode()).hexdigest()
    assert canonical_text(parse_design_module(canonical)) == canonical
    assert canonical.startswith('"builtin.module"() ({\n  "aie.device"() <{device = 8 : i32, sym_name = "main"}> ({\n')
    assert canonical.endswith("}) : () -> ()\n")


def test_names_of_values_order_of_properties_and_blanks_do_not_enter_the_digest():
    other = COPY.replace("%arg0", "%source").replace("%4", "%task").replace("    ", "\t")
    other = edited("col = 0 : i32, row = 0 : i32", "row = 0 : i32, col = 0 : i32", other)
    other = edited('"aie.core"', '// a comment "with quotes\n"aie.core"', other)
    assert design_digest(other) == design_digest(COPY)


def test_the_digest_changes_with_anything_of_the_design():
    changes = [
        edited("static_offset = 0", "static_offset = 4"),
        edited("size = 8, stride = 8", "size = 8, stride = 16"),
        edited("stack_size = 2048", "stack_size = 2049"),
        edited("issue_token = false", "issue_token = true"),
        edited('link_with = "relay.o"', 'link_with = "relay2.o"'),
        edited("(%0, %1)", "(%0, %1)").replace('"seq"', '"seq2"'),
        recorded("copy_one_core", "2026-04"),
    ]
    digests = {design_digest(text) for text in (COPY, *changes)}
    assert len(digests) == len(changes) + 1


@pytest.mark.parametrize("name", RECORDED)
def test_the_memo_parses_what_the_plain_parser_parses(name):
    text = (EXAMPLES / name).read_text()
    plain = Parser(design_context(), text).parse_module()
    plain.verify()
    memo = DesignParser(design_context(), text, "memo").parse_module()
    assert memo.is_structurally_equivalent(plain)
    other = DesignParser(design_context(), text.replace("stack_size = ", "stack_size = 1"), "memo").parse_module()
    assert not other.is_structurally_equivalent(plain)


def test_the_same_text_twice_gives_equal_designs_and_equal_refusals():
    assert read_design(COPY) == read_design(COPY, name="again")
    for _ in range(2):
        with pytest.raises(Refused, match=r"^here: expected generic MLIR"):
            read_design("", name="here")


# Refusals


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_design_is_refused_with_one_line(case):
    text, expected = REFUSED[case]
    with pytest.raises(Refused) as refusal:
        read_design(text, name="seq.mlir")
    message = str(refusal.value)
    assert message.startswith("seq.mlir: ")
    assert expected in message
    assert "\n" not in message
    assert len(message) < 500


def test_a_module_cut_at_any_line_is_refused():
    lines = COPY.splitlines(keepends=True)
    whole = len("".join(lines).rstrip())
    for count in range(len(lines)):
        text = "".join(lines[:count])
        if len(text) < whole:
            with pytest.raises(Refused):
                read_design(text)


def test_an_unclosed_string_takes_no_time():
    # xDSL's lexer alone needs 2**n steps here.
    with pytest.raises(Refused, match="line 1: a string is not closed"):
        read_design('"builtin.module"() ({ "' + "a" * 2000 + "\n")
    with pytest.raises(Refused, match="a string is not closed or has an unknown escape"):
        read_design(f'"builtin.module"() ({{ "{"a" * 2000}\\q" }}) : () -> ()\n')


WORDS = re.compile(r"%\w+|-?\d+|[A-Za-z_.]{3,}|[^\w\s]")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.data())
def test_a_changed_module_reads_or_is_refused_and_nothing_else(data):
    text = data.draw(st.sampled_from([COPY, recorded("copy_one_core", "2026-04")]))
    spans = [match.span() for match in WORDS.finditer(text)]
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = data.draw(st.sampled_from(spans))
        other = data.draw(
            st.one_of(
                st.sampled_from(["", "0", "-1", "4294967296", "true", "array<i64: 1>", "%3", '"', "}", "memref<2xi8>"]),
                st.sampled_from(spans).map(lambda span: COPY[slice(*span)]),
            )
        )
        text = text[:start] + other + text[end:]
    try:
        design = read_design(text)
    except Refused as refusal:
        assert "\n" not in str(refusal)
    else:
        assert isinstance(design, Design)
        assert len(design_digest(text)) == 64

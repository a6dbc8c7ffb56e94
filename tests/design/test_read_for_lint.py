"""Reading for lint: what the real package refuses in one blind line is a finding with place and source."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from design_texts import COPY, REFUSED, RTP, edited
from elfkiln.cli import main
from elfkiln.design.reader import read_design, read_for_lint
from elfkiln.errors import Refused
from elfkiln.lint import lint

# rule: (text, where, limit, value)
FOUND = {
    "device": (edited("device = 8", "device = 4"), "device main", "npu2 or npu2_1col to npu2_7col", "npu1"),
    "tile-range": (edited("row = 2 : i32", "row = 6 : i32"), "tile(0,6)", "0 to 5", 6),
    "core-per-tile": (
        edited('"aie.core"(%2)', '"aie.core"(%1)'),
        "mem(0,1)",
        "a compute tile",
        "a mem tile",
    ),
    "stack-size": (edited("stack_size = 2048", "stack_size = 65537"), "core(0,2)", "1 to 65,536 bytes", 65537),
    "symbol": (edited("buffer = @counts_0", "buffer = @nowhere", RTP), "sequence seq_K128_N256", None, None),
    "fifo-depth": (edited("elemNumber = 2", "elemNumber = 0"), "FIFO @into_mem", "1 or more", 0),
    "fifo-repeat": (
        edited("plio = false, sym_name", "plio = false, repeat_count = 2 : i32, sym_name"),
        "FIFO @into_mem",
        "none on a shim",
        2,
    ),
    "fifo-iterations": (
        edited("plio = false", "iter_count = 257 : i32, plio = false"),
        "FIFO @into_mem",
        256,
        257,
    ),
    "shim-dims": (
        edited("bd_dim_layout_array[]", "bd_dim_layout_array[<size = 1024, stride = 1>]"),
        "FIFO @into_mem to_stream at shim(0,0)",
        "none",
        "[1024:1]",
    ),
    "link-once": (
        re.sub(r'(    "aie.objectfifo.link"[^\n]*\n)', r"\1\1", COPY, count=1),
        "link [@into_mem] -> [@into_core]",
        1,
        "another one with @into_mem",
    ),
    "link-tile": (
        edited("fifoOuts = [@into_core]", "fifoOuts = [@out]"),
        "link [@into_mem] -> [@out]",
        "one",
        "none",
    ),
    "link-shape": (
        edited("fifoOuts = [@into_core]", "fifoOuts = []"),
        "link [@into_mem] -> []",
        "1 to 1, n to 1 or 1 to n",
        "1 to 0",
    ),
    # The mem tile becomes the core's: the core takes from a FIFO that begins and ends on its tile.
    "link-access": (edited("row = 1 : i32", "row = 2 : i32"), "core(0,2) FIFO @into_core", "the DMA", "the core"),
    "core-fifo": (edited("@out, port = 0", "@out, port = 1"), "core(0,2) FIFO @out", "shim(0,0)", "core(0,2)"),
    "object-index": (edited("<{index = 0 : i32}>", "<{index = 1 : i32}>"), "core(0,2) call of @relay_i8", "0 to 0", 1),
    "kernel-unknown": (
        edited("callee = @relay_i8", "callee = @nope"),
        "core(0,2) call of @nope",
        "a func.func",
        "none",
    ),
    "kernel-arguments": (
        edited("function_type = (memref<1024xi8>, ", "function_type = (memref<1024xi8>, memref<1024xi8>, "),
        "core(0,2) call of @relay_i8",
        "3",
        2,
    ),
    "kernel-type": (
        edited("function_type = (memref<1024xi8>", "function_type = (memref<256xi32>"),
        "core(0,2) call of @relay_i8",
        "memref<256xi32>",
        "memref<1024xi8>",
    ),
    "load-pdi": (edited("device_ref = @main", "device_ref = @other"), "sequence seq", "@main", "@other"),
    "task-fifo": (
        edited("alloc = @into_mem", "alloc = @into_core"),
        "seq task 0 on @into_core",
        "one of the design",
        "none",
    ),
    "await-token": (edited("issue_token = true", "issue_token = false"), "seq task 1 on @out", "true", "false"),
    "tap-element": (
        COPY.replace("memref<4096xi8>", "memref<4096xi64>"),
        "seq task 0 on @into_mem",
        4,
        8,
    ),
    "tap-range": (
        edited("static_offset = 0", "static_offset = -4"),
        "seq task 0 on @into_mem",
        "0 to 4,095 of argument 0, memref<4096xi8>",
        "-4 to 4,091",
    ),
    "tap-rank": (edited("i64: 1, 1, 4, 1024", "i64: 1, 1, 1, 4, 1024"), "seq task 0 on @into_mem", None, None),
}


@pytest.mark.parametrize("rule", sorted(FOUND))
def test_what_the_package_refuses_is_a_finding_with_place_limit_value_and_source(rule):
    text, where, bound, value = FOUND[rule]
    findings = [f for f in lint(read_for_lint(text)) if f.rule == rule]
    assert findings, [f.line for f in lint(read_for_lint(text))]
    first = findings[0]
    assert first.where == where
    if bound is not None:
        assert (first.limit, first.value) == (bound, value)
    assert first.source


# A build goes on to lint, which has the last word on elements of 64 bits: memory and cores may hold them.
STRICT = sorted(set(FOUND) - {"tap-element"})


@pytest.mark.parametrize("rule", STRICT)
def test_builds_still_refuse_what_lint_can_read(rule):
    with pytest.raises(Refused):
        read_design(FOUND[rule][0])


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_is_refused_elsewhere_is_refused_or_an_error_here(case):
    text = REFUSED[case][0]
    try:
        design = read_for_lint(text, name="seq.mlir")
    except Refused as refused:
        assert str(refused).startswith("seq.mlir: ")
        assert "\n" not in str(refused)
        return
    assert [f.rule for f in lint(design) if f.severity == "error"] != []


CHANGES = [
    (name, start, end)
    for name, source in (("copy", COPY), ("rtp", RTP))
    for start, end in (m.span() for m in re.finditer(r"(?<== )-?\d+(?= : i32)|@\w+", source))
]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(CHANGES), st.integers(0, 99))
def test_a_changed_module_never_passes_lint_when_the_package_refuses_it(change, pick):
    name, start, end = change
    source = {"copy": COPY, "rtp": RTP}[name]
    names = sorted(set(re.findall(r"@\w+", source)))
    words = names if source[start] == "@" else ["-1", "0", "1", "2", "3", "64", "65536"]
    text = source[:start] + words[pick % len(words)] + source[end:]
    try:
        strict = read_design(text)
    except Refused:
        strict = None
    try:
        lenient = read_for_lint(text)
    except Refused as refused:
        assert strict is None
        assert "\n" not in str(refused)
        return
    if strict is None:
        assert [f.rule for f in lint(lenient) if f.severity == "error"] != []
    else:
        assert lenient == strict


def test_the_reader_reads_the_same_design_either_way():
    for text in (COPY, RTP):
        assert read_for_lint(text) == read_design(text)


def test_a_fifo_with_iterations_is_read():
    text = edited("plio = false, sym_name", "iter_count = 4 : i32, plio = false, sym_name")
    assert read_design(text).fifos[0].iter_count == 4
    assert [f.rule for f in lint(read_design(text))] == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (edited("@out, port = 0", "@out, port = 7"), "core(0,2) FIFO @out: "),
        (edited("col = 0 : i32, ", ""), "tile(0,0): "),
        (edited('start_task"(%4)', 'start_task"(%3)'), "@seq: "),
        (edited("sizes = array<i64", "sizes = array<i32"), "@seq task on @into_mem: "),
        (edited("{value = 1 : index}", "{value = 0 : index}"), "core(0,2): "),
        (edited('"aie.dma_bd"(%arg0)', '"aie.dma_bd"(%arg0, %arg0)').replace(
            "0, 0, 1024, 1>}> : (memref<4096xi8>)", "0, 0, 1024, 1>}> : (memref<4096xi8>, memref<4096xi8>)", 1
        ), "@seq task on @into_mem: "),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place(text, place):
    with pytest.raises(Refused) as refused:
        read_for_lint(text, name="seq.mlir")
    assert str(refused.value).startswith(f"seq.mlir: {place}")


def test_the_verb_finds_what_the_package_refuses(tmp_path, capsys):
    path = tmp_path / "ka.mlir"
    path.write_text(FOUND["kernel-arguments"][0])
    assert main(["lint", str(path)]) == 1
    out = capsys.readouterr().out
    assert "error kernel-arguments core(0,2) call of @relay_i8: arguments: expected 3, found 2 [mlir-aie IRON" in out


def test_the_verb_says_in_json_that_a_file_is_refused(tmp_path, capsys):
    path = tmp_path / "port.mlir"
    path.write_text(edited("@out, port = 0", "@out, port = 7"))
    assert main(["lint", str(path), "--json"]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    expected = "port.mlir: core(0,2) FIFO @out: aie.objectfifo.acquire: port is 0 (Produce) or 1 (Consume), found 7"
    assert json.loads(printed.out) == {"refused": expected}
    assert expected in line

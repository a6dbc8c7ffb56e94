"""Rendered programs on the IRON stand-in: the design that is read back says what the recorder saw the program do."""

from __future__ import annotations

import re
import sys
from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import pytest

from aie_recorder import record
from elfkiln.design.fifo_lowering import place as lowered
from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Call,
    Const,
    FreeTask,
    Load,
    Loaded,
    LoadPdi,
    Loop,
    Release,
    RtpWrite,
    SetLock,
    StartTask,
    UseLock,
)
from elfkiln.families.family import DesignRequest, family_of, render, render_sealed
from elfkiln.lint import budgets, lint
from rendered import design_of

ROOT = Path(__file__).resolve().parents[2]

ELEMENTS = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32}
REQUESTS = [
    DesignRequest(K=1088, N=768, M=128, tag="", columns=3),
    DesignRequest(K=576, N=1024, M=16, tag="", columns=8),
    DesignRequest(K=5120, N=14336, M=128, tag="_b8", columns=8),
    DesignRequest(K=17408, N=5120, M=16, tag="_b8", columns=8),
    DesignRequest(K=320, N=256, M=128, tag="_b8", columns=2),
    DesignRequest(K=5120, N=6144, M=128, tag="_pb16i", columns=8),
    DesignRequest(K=704, N=1024, M=128, tag="_b8", columns=8),
    DesignRequest(K=640, N=17408, M=128, tag="_pb16i", columns=8),
    DesignRequest(K=6144, N=5120, M=16, tag="_pb16i", columns=8),
    DesignRequest(K=704, N=384, M=16, tag="_pb16i", columns=3),
]


def events(body, acquired, loaded):
    """Return a core's statements as the recorder's events."""
    for s in body:
        match s:
            case Acquire():
                acquired[s.number] = (s.fifo, s.port)
                yield ("acquire", s.fifo, s.port, s.count)
            case Release():
                yield ("release", s.fifo, s.port, s.count)
            case Call():
                yield ("call", s.kernel, *(acquired[a.acquire] for a in s.arguments))
            case Load():
                loaded[s.number] = ("index", s.buffer, s.index.value)
                yield ("load", s.buffer, s.index.value)
            case UseLock():
                yield ("use_lock", s.lock, s.action, s.value.value)
            case Loop():
                assert (s.lower, s.step) == (Const(0), Const(1))
                yield ("for", loaded[s.upper.number] if isinstance(s.upper, Loaded) else s.upper.value)
                yield from events(s.body, acquired, loaded)
                yield ("end",)


def step_of(step):
    """Return a sequence's step as the recorder's, tasks by number."""
    match step:
        case LoadPdi():
            return ("load_pdi", step.device)
        case StartTask():
            return ("start", step.task)
        case AwaitTask():
            return ("await", step.task)
        case FreeTask():
            return ("free", step.task)
        case RtpWrite():
            return ("rtp", step.buffer, step.index, step.value)
        case SetLock():
            return ("lock", step.lock, step.value)


def place(tile):
    return (tile.col, tile.row)


def compare(design, recording):
    """Assert that a design says what the recorder saw."""

    def kind(memref):
        return memref.shape, ELEMENTS[memref.element]

    assert (design.device, design.name) == recording.device
    assert [(k.name, [kind(p) for p in k.parameters], k.link_with) for k in design.kernels] == recording.kernels

    def steps(dims):
        return tuple((dim.size, dim.stride) for dim in dims)

    assert [
        (f.name, place(f.producer), [place(c) for c in f.consumers], set(f.depths), kind(f.object_type))
        for f in design.fifos
    ] == [(f.name, f.producer, f.consumers, {f.depth}, (f.shape, f.dtype)) for f in recording.fifos.values()]
    for ours, theirs in zip(design.fifos, recording.fifos.values(), strict=True):
        assert steps(ours.to_stream) == theirs.to_stream
        assert [dims for dims in map(steps, ours.from_stream) if dims] == list(theirs.from_stream)
    assert [
        (list(x.ins), list(x.outs), list(x.src_offsets), list(x.dst_offsets)) for x in design.links
    ] == recording.links
    assert {b.name: (place(b.tile), *kind(b.type)) for b in design.buffers} == recording.buffers
    assert {x.name: (place(x.tile), x.init) for x in design.locks} == recording.locks
    assert {place(c.tile): list(events(c.body, {}, {})) for c in design.cores} == recording.cores
    assert {core.stack_size for core in design.cores} == recording.stacks
    assert [s.name for s in design.sequences] == list(recording.sequences)
    for ours, theirs in zip(design.sequences, recording.sequences.values(), strict=True):
        assert [kind(argument) for argument in ours.arguments] == theirs.arguments
        assert [
            (t.fifo, t.argument, t.offset, t.sizes, t.strides, t.length, t.repeat_count, t.issue_token)
            for t in ours.tasks
        ] == [
            (t.fifo.name, t.argument, t.offset, t.sizes, t.strides, prod(t.sizes[1:]), t.sizes[0] - 1, t.token)
            for t in theirs.tasks
        ]
        number = {task: index for index, task in enumerate(theirs.tasks)}
        assert [step_of(step) for step in ours.steps] == [
            (verb, *(number.get(thing, thing) for thing in rest)) for verb, *rest in theirs.steps if verb != "configure"
        ]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: f"{r.tag or 'rm'}-{r.M}x{r.K}x{r.N}")
def test_a_design_is_what_its_program_does(request_):
    text = render(ROOT, request_).text
    design = design_of(text)
    compare(design, record(text))
    assert lint(design) == ()


def test_the_sealed_design_is_what_its_program_does():
    text = render_sealed(ROOT, "_pb16i", [(5120, 6144), (6144, 5120), (1024, 2048)], 8).text
    design = design_of(text)
    compare(design, record(text))
    assert lint(design) == ()


# What stands in the tiles' memories: lint's budget of the design is the measure of the page and of the rules.


def budget_of(generator):
    """Return what a core holds, by what it is for, and the fullest mem tile; every core holds the same."""
    found = {"core": set(), "mem": set()}
    for budget in budgets(design_of(generator.text)):
        parts = Counter({"stack": budget.stack})
        for pool in budget.stored:
            parts[pool.owner.split("_")[0]] += pool.bytes
        assert sum(parts.values()) == budget.used
        found[budget.tile.kind].add(tuple(sorted(parts.items())))
    assert len(found["core"]) == 1
    mem = max((dict(parts) for parts in found["mem"]), key=lambda parts: sum(parts.values()))
    return dict(found["core"].pop()), mem


def page_rows():
    page = (ROOT / "docs" / "families.md").read_text()
    rows = re.findall(r"^\| (int8|pb16i), M = (\d+) \| (.*) \|$", page, re.MULTILINE)
    return {
        (kind, int(M)): [int(n.replace(",", "")) for n in re.findall(r"[\d,]{2,}", cells)] for kind, M, cells in rows
    }


@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i"])
@pytest.mark.parametrize("M", [128, 16])
def test_the_page_says_what_lint_counts(tag, M):
    request = DesignRequest(5120, 14336, M, tag, 8)
    core, mem = budget_of(render(ROOT, request))
    k = family_of(tag, ROOT).shape(request).k
    parts = [core[name] for name in ("stack", "A", "B", "C")]
    assert page_rows()["pb16i" if tag == "_pb16i" else "int8", M] == [
        k, *parts, sum(parts), mem["A"], mem["B"], mem["C"],
    ]  # fmt: skip
    assert sum(core.values()) == sum(parts)


def test_the_page_says_what_lint_counts_in_a_sealed_program():
    core, mem = budget_of(render_sealed(ROOT, "_pb16i", [(5120, 14336), (17408, 5120)], 8))
    twin = page_rows()["pb16i", 16]
    assert core["counts"] == 64
    assert f"its counts besides, 64 bytes: {sum(core.values()):,}." in (ROOT / "docs" / "families.md").read_text()
    assert [core["stack"], core["A"], core["B"], core["C"], mem["A"], mem["B"], mem["C"]] == [*twin[1:5], *twin[6:]]


@pytest.mark.parametrize(
    ("tag", "M", "K", "columns", "rows"),
    [
        *((tag, 128, 5120, 8, rows) for tag in ("", "_b8", "_pb16i") for rows in (4, 2, 1)),
        ("", 16, 5120, 8, 1),
        ("_b8", 16, 704, 8, 1),
        *(("_pb16i", 16, K, columns, rows) for K in (5120, 704) for columns, rows in ((8, 4), (7, 2), (2, 2), (8, 1))),
    ],
)
def test_the_rules_count_what_lint_counts(tag, M, K, columns, rows):
    """Bytes, and for each kind of mem tile the descriptors of its channels, in the order of the channels, and locks."""
    # Two panels of N a column: how many there are changes nothing in a tile.
    request = DesignRequest(K, 256 * columns, M, tag, columns, rows)
    text = render(ROOT, request).text
    design = design_of(text)
    found = budgets(design)
    family = family_of(tag, ROOT)
    shape = family.shape(request)
    most = {kind: max(one.used for one in found if one.tile.kind == kind) for kind in ("core", "mem")}
    assert family.memory(shape) == (most["core"], most["mem"])
    panel_gemm = sys.modules[type(family).__module__]
    expected = panel_gemm.mem_tiles(family, shape)
    ends = {}
    for end in lowered(design).ends:
        if end.tile.kind == "mem":
            ends.setdefault(end.tile, {"s2mm": [], "mm2s": []})[end.direction].append((end.channel, end.descriptors))
    counted = {}
    for tile, both in ends.items():
        into, out = ([count for _, count in sorted(both[way])] for way in ("s2mm", "mm2s"))
        locks = next(one.locks for one in found if one.tile == tile)
        counted[tile.col] = panel_gemm.MemEnds(tuple(into), tuple(out), locks)
    panels = (1 if shape.split else rows) if shape.a_mem else 0
    assert [counted[c] for c in range(panels)] == [expected[0]] * panels
    assert [counted[c] for c in range(panels, columns)] == [expected[-1]] * (columns - panels)

"""Rendered programs on the IRON stand-in: the design that is read back says what the recorder saw the program do."""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import pytest

from aie_recorder import record
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
from elfkiln.design.reader import read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.engine.contract import PHASE_RATES
from elfkiln.families.family import DesignRequest, family_of, render, render_sealed
from elfkiln.lint import budgets, lint

ROOT = Path(__file__).resolve().parents[2]

ELEMENTS = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32}
REQUESTS = [
    DesignRequest(K=1088, N=768, M=128, tag="", columns=3),
    DesignRequest(K=576, N=1024, M=16, tag="", columns=8),
    DesignRequest(K=5120, N=14336, M=128, tag="_b8", columns=8),
    DesignRequest(K=17408, N=5120, M=16, tag="_b8", columns=8),
    DesignRequest(K=320, N=256, M=128, tag="_b8", columns=2),
    DesignRequest(K=5120, N=6144, M=128, tag="_pb16i", columns=8),
    DesignRequest(K=6144, N=5120, M=16, tag="_pb16i", columns=8),
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
    assert [
        (f.name, place(f.producer), [place(c) for c in f.consumers], set(f.depths), kind(f.object_type))
        for f in design.fifos
    ] == [(f.name, f.producer, f.consumers, {f.depth}, (f.shape, f.dtype)) for f in recording.fifos.values()]
    assert [(list(x.ins), list(x.outs), list(x.src_offsets)) for x in design.links] == recording.links
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
def test_a_design_is_what_its_program_does(request_, tmp_path):
    text = render(ROOT, request_).text
    design = read_design(run_generator(text, workdir=tmp_path))
    compare(design, record(text))
    assert lint(design) == ()


def test_the_sealed_design_is_what_its_program_does(tmp_path):
    text = render_sealed(ROOT, "_pb16i", [(5120, 6144), (6144, 5120), (1024, 2048)], 8).text
    design = read_design(run_generator(text, workdir=tmp_path))
    compare(design, record(text))
    assert lint(design) == ()


# What stands in the tiles' memories: lint's budget of the design is the measure of the page and of the rules.


def budget_of(generator, workdir):
    """Return what a core and a mem tile of a program hold, by what it is for; every column and row holds the same."""
    found = {"core": set(), "mem": set()}
    for budget in budgets(read_design(run_generator(generator.text, workdir=workdir))):
        parts = Counter({"stack": budget.stack})
        for pool in budget.pools:
            parts[pool.owner.split("_")[0]] += pool.bytes
        assert sum(parts.values()) == budget.used
        found[budget.tile.kind].add(tuple(sorted(parts.items())))
    assert all(len(one) == 1 for one in found.values())
    return dict(found["core"].pop()), dict(found["mem"].pop())


def page_rows():
    page = (ROOT / "docs" / "families.md").read_text()
    rows = re.findall(r"^\| (int8|pb16i), M = (\d+) \| (.*) \|$", page, re.MULTILINE)
    return {
        (kind, int(M)): [int(n.replace(",", "")) for n in re.findall(r"[\d,]{4,}", cells)] for kind, M, cells in rows
    }


@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i"])
@pytest.mark.parametrize("M", [128, 16])
def test_the_page_says_what_lint_counts(tag, M, tmp_path):
    core, mem = budget_of(render(ROOT, DesignRequest(5120, 14336, M, tag, 8)), tmp_path)
    parts = [core[name] for name in ("stack", "A", "B", "C")]
    assert page_rows()["pb16i" if tag == "_pb16i" else "int8", M] == [*parts, sum(parts), mem["B"], mem["C"]]
    assert sum(core.values()) == sum(parts)


def test_the_page_says_what_lint_counts_in_a_sealed_program(tmp_path):
    core, mem = budget_of(render_sealed(ROOT, "_pb16i", [(5120, 14336), (17408, 5120)], 8), tmp_path)
    twin = page_rows()["pb16i", 16]
    assert core["counts"] == 64
    assert f"its counts besides, 64 bytes: {sum(core.values()):,}." in (ROOT / "docs" / "families.md").read_text()
    assert [core["stack"], core["A"], core["B"], core["C"], mem["B"], mem["C"]] == [*twin[:4], *twin[5:]]


@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i"])
@pytest.mark.parametrize(("M", "rows"), [(128, 4), (128, 2), (128, 1), (16, 1)])
def test_the_rules_count_what_lint_counts(tag, M, rows, tmp_path):
    request = DesignRequest(5120, 14336, M, tag, 8, rows)
    core, mem = budget_of(render(ROOT, request), tmp_path)
    family = family_of(tag, ROOT)
    assert family.memory(family.shape(request)) == (sum(core.values()), sum(mem.values()))


def test_the_pages_bound_on_decode_follows_from_the_published_rates():
    """A packed tile against 16 rows: 3.5 operations a block, and the time in which the fastest phase brings one."""
    page = " ".join((ROOT / "docs" / "families.md").read_text().split())
    blocks, rows_of_blocks = 64 * 128 // 64, 2
    cycles, rate = blocks * 14 // 4, max(phase.b8 for phase in PHASE_RATES)
    seconds = 2048 / (rate * 1e9 / 8)
    assert f"{blocks} blocks: {cycles} mv and {blocks * rows_of_blocks} VMAC" in page
    assert f"{rate} GB/s over 8 columns, such a tile comes every {seconds * 1e6:.2f} us" in page
    assert f"at any clock above {cycles / seconds / 1e9:.2f} GHz" in page

"""Lint as a whole: designs that real tools took, budgets against what real aiecc allocated, flow, and the verb."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdo import buffer_descriptors
from elfkiln.cli import main
from elfkiln.cli.lint import finding_lines
from elfkiln.design.fifo_lowering import place
from elfkiln.design.model import (
    Acquire,
    AwaitTask,
    Buffer,
    Const,
    Core,
    Design,
    Fifo,
    FreeTask,
    Kernel,
    Link,
    Loop,
    LoopIndex,
    MemRef,
    Release,
    RtpWrite,
    SetLock,
    Tile,
)
from elfkiln.design.reader import read_design
from elfkiln.errors import Refused
from elfkiln.hardware.limits import LIMITS, limit
from elfkiln.lint import RULES, budgets, lint
from gemm_designs import Shape, panel_b8, panel_rm, v27
from rendered import design_of
from small_designs import (
    BASE,
    beside_short_runs,
    gated,
    relay,
    shared_out,
    tapped,
    waves,
    with_core,
    with_sequence,
    with_steps,
    with_task,
)

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
DESIGNS = sorted((EXAMPLES / "iron").glob("*.generic.mlir"))


def example(name: str) -> Design:
    return read_design((EXAMPLES / "iron" / f"{name}.generic.mlir").read_text())


def messages(design: Design, rule: str, target: str = "npu2") -> list[str]:
    return [finding.message for finding in lint(design, target) if finding.rule == rule]


# --- designs that the real tools took ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", DESIGNS, ids=lambda path: path.name.removesuffix(".generic.mlir"))
@pytest.mark.parametrize("target", ["npu2", "sim"])
def test_the_example_designs_are_clean(path, target):
    assert beside_short_runs(lint(read_design(path.read_text()), target)) == ()


def test_there_are_four_examples_of_two_generations():
    assert len(DESIGNS) == 8


# The published list of shapes real aiecc took to a full ELF, with the tasks of their sequences.
ACCEPTED = {
    "b8 M=128 5120x14336": (panel_b8, Shape(128, 5120, 14336, 4, 8), 280),
    "b8 M=16 5120x14336": (panel_b8, Shape(16, 5120, 14336, 1, 8, m=16), 238),
    "b8 M=128 17408x5120": (panel_b8, Shape(128, 17408, 5120, 4, 8), 100),
    "b8 M=16 17408x5120": (panel_b8, Shape(16, 17408, 5120, 1, 8, m=16), 85),
    "rm M=128 5120x14336": (panel_rm, Shape(128, 5120, 14336, 4, 8), 1288),
    "rm M=16 17408x5120": (panel_rm, Shape(16, 17408, 5120, 1, 8, m=16), 1405),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_shapes_real_aiecc_took_are_clean(name):
    build, shape, tasks = ACCEPTED[name]
    design = build(shape)
    assert len(design.sequences[0].tasks) == tasks
    assert beside_short_runs(lint(design)) == ()


def test_short_runs_are_told_once_a_fifo_with_what_they_may_cost():
    """M = 128: a group reads 32 x 5120 bytes of A a row in runs of 8, and writes 128 x 128 words of C in runs of 32."""
    findings = [f for f in lint(panel_b8(Shape(128, 5120, 14336, 4, 8))) if f.rule == "tap-short-runs"]
    assert [f.where for f in findings] == [f"seq FIFO @A_{r}" for r in range(4)] + [
        f"seq FIFO @C_{c}" for c in range(8)
    ]
    assert {(f.limit, f.value) for f in findings} == {("at least 64", 8), ("at least 64", 32)}
    groups = 14336 // 1024
    for finding, runs in ((findings[0], groups * 32 * 5120 // 8), (findings[-1], groups * 128 * 128 * 4 // 32)):
        cost = runs * 1.5e-6
        assert finding.message.startswith(
            f"{finding.where}: bytes of a run of its tasks: expected at least 64, found {finding.value}; "
            f"{runs:,} such runs, predicted to cost {cost:.3g} ms at 1.5 ns each"
        )
    # Row-major weights in 8 x 8 blocks: every column's.
    rm = [f.where for f in lint(panel_rm(Shape(16, 1024, 512, 1, 4, m=16))) if f.rule == "tap-short-runs"]
    assert [where for where in rm if "B" in where] == [f"seq FIFO @B_mem_{c}" for c in range(4)]


def test_one_task_per_tile_is_clean_of_errors_at_its_13552_tasks():
    # The published count of the older way at 5120x14336, M = 128; 5 un-awaited tasks a channel are worth a warning.
    design = v27(Shape(128, 5120, 14336, 4, 8))
    assert len(design.sequences[0].tasks) == 13552
    assert {finding.rule for finding in beside_short_runs(lint(design))} == {"task-queue-full"}


# --- what the lowering allocates ----------------------------------------------------------------------------------


def test_the_published_l1_figure_of_v27():
    # 2 x 2 KiB A + 2 x 8 KiB B + 16 KiB C + 8 KiB stack = 44 KiB, whatever the depth of 6.
    (core,) = {budget.used for budget in budgets(v27(Shape(128, 4096, 2048, 4, 8))) if budget.tile.kind == "core"}
    assert core == 44 * 1024
    (twin,) = {budget.used for budget in budgets(v27(Shape(16, 2048, 4096, 1, 8, m=16))) if budget.tile.kind == "core"}
    assert twin == (2 * 1 + 2 * 8 + 8 + 8) * 1024


def test_doubling_k_pins_l1_at_64_kib():
    budget = next(b for b in budgets(v27(Shape(128, 4096, 2048, 4, 8, k=128))) if b.tile == Tile(0, 2))
    assert (budget.used, budget.free) == (65536, 0)


def test_a_wider_c_tile_overflows_l1():
    # C of 32 x 256 int32 is 32 KiB, B of 64 x 256 twice 16 KiB: 2 x 2 + 2 x 16 + 32 + 8 = 76 KiB.
    findings = [f for f in lint(panel_b8(Shape(128, 512, 4096, 4, 8, n=256))) if f.rule == "l1-memory"]
    assert len(findings) == 32
    assert (findings[0].limit, findings[0].value) == (65536, 76 * 1024)
    assert "stack 8,192 + @A_0 2 x 2,048 + @B_0 2 x 16,384 + @C_0_0 1 x 32,768" in findings[0].message


def test_a_depth_per_end_is_taken_at_its_word():
    fifos = tuple(replace(f, depths=(2, 6), depth_per_end=True) if f.name == "in" else f for f in relay().fifos)
    (core,) = [b for b in budgets(replace(relay(), fifos=fifos)) if b.tile.kind == "core"]
    assert [(p.owner, p.count) for p in core.stored] == [("in", 6), ("out", 2)]


@pytest.mark.parametrize("generation", ["2026-04", "2026-08"])
@pytest.mark.parametrize("name", ["copy_one_core", "gemm_2x2", "panel_gemm"])
def test_descriptors_and_buffers_are_those_real_aiecc_wrote(name, generation):
    written = buffer_descriptors((EXAMPLES / "full-elf" / f"{name}.{generation}.elf").read_bytes())
    design = example(f"{name}.{generation}")
    placed = place(design)
    ours = Counter()
    for end in placed.ends:
        ours[end.tile.col, end.tile.row] += end.descriptors
    assert {tile: len(words) for tile, words in written.items()} == {tile: n for tile, n in ours.items() if n}
    for (col, row), descriptors in written.items():
        if row == 1:
            continue
        # A core's descriptor: base address in words << 14 | length in words. No FIFO of a core is read in pieces.
        buffers = Counter((word[0] & 0x3FFF) * 4 for word in descriptors)
        assert buffers == Counter(p.bytes_each for p in placed.stored_on(Tile(col, row)) for _ in range(p.count))
        assert len({word[0] >> 14 for word in descriptors}) == len(descriptors)


def test_the_channel_budget_of_the_4x8_gemm():
    # A through mem tiles 0, 2, 4, 6: even mem tiles are full, S2MM 6 of 6; even shims MM2S 2 of 2, S2MM 1.
    design = panel_b8(Shape(128, 512, 1024, 4, 8))
    fifos, links = [], list(design.links)
    for fifo in design.fifos:
        if not fifo.name.startswith("A_"):
            fifos.append(fifo)
            continue
        col = 2 * int(fifo.name[2:])
        entry = replace(fifo, producer=Tile(col, 0), consumers=(Tile(col, 1),), depths=(2, 2))
        fifos += [entry, replace(fifo, name=f"{fifo.name}_out", producer=Tile(col, 1))]
        links.append(Link((fifo.name,), (f"{fifo.name}_out",)))
    cores = tuple(replace(c, body=_through(c.body)) for c in design.cores)
    design = replace(design, fifos=tuple(fifos), links=tuple(links), cores=cores)
    assert beside_short_runs(lint(design)) == ()
    by_tile = {budget.tile: (budget.s2mm, budget.mm2s) for budget in budgets(design)}
    assert [by_tile[Tile(c, 1)] for c in range(8)] == [(6, 3), (5, 2)] * 4
    assert {by_tile[Tile(c, 2 + r)] for c in range(8) for r in range(4)} == {(2, 1)}
    shim = Counter((end.tile.col, end.direction) for end in place(design).ends if end.tile.row == 0)
    assert [(shim[c, "mm2s"], shim[c, "s2mm"]) for c in range(8)] == [(2, 1), (1, 1)] * 4


def _through(body):
    """The same program, its A taken from the mem tile's FIFO."""
    out = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = replace(statement, body=_through(statement.body))
        elif isinstance(statement, Acquire | Release) and statement.fifo.startswith("A_"):
            statement = replace(statement, fifo=f"{statement.fifo}_out")
        out.append(statement)
    return tuple(out)


def test_one_more_fifo_on_a_full_mem_tile_is_too_many():
    design = panel_b8(Shape(128, 512, 1024, 4, 8))
    extra = [Fifo(f"X_{i}", Tile(5 + i, 0), (Tile(0, 1),), (1, 1), MemRef((64,), "i8")) for i in range(2)]
    full = replace(design, fifos=(*design.fifos, extra[0]))
    assert messages(full, "dma-channels") == []
    over = replace(design, fifos=(*design.fifos, *extra))
    (mem,) = [f for f in lint(over) if f.rule == "dma-channels" and f.where == "mem(0,1)"]
    assert (mem.limit, mem.value) == (6, 7)
    assert "they are @B_mem_0, @C_0_0, @C_0_1, @C_0_2, @C_0_3, @X_0, @X_1" in mem.message


def test_neighbours_share_memory_and_take_no_channel():
    # Core (1,3) reads the memory of its west neighbour; core (3,3) is two columns away and needs the DMA.
    def two(consumer: Tile) -> Design:
        fifo = Fifo("hop", Tile(0, 3), (consumer,), (3, 3), MemRef((64,), "i8"))
        cores = (Core(Tile(0, 3), 1024, ()), Core(consumer, 1024, ()))
        return Design("npu2", "main", (Tile(0, 3), consumer), (), (fifo,), (), (), (), cores, ())

    near, far = place(two(Tile(1, 3))), place(two(Tile(2, 3)))
    assert (len(near.ends), [(p.tile, p.count) for p in near.pools]) == (0, [(Tile(0, 3), 3)])
    assert [(end.tile, end.direction) for end in far.ends] == [(Tile(0, 3), "mm2s"), (Tile(2, 3), "s2mm")]
    south, east = place(two(Tile(0, 2))), place(two(Tile(0, 4)))
    assert [p.tile for p in south.pools] == [p.tile for p in east.pools] == [Tile(0, 3)]


def test_descriptors_of_even_and_odd_channels_are_counted_apart():
    # Two forwards through one mem tile: the first pair of channels is even, the second odd; 12 + 12 fill a half.
    def forwards(depth: int) -> Design:
        fifos, links = [], []
        for i in range(2):
            fifos.append(Fifo(f"in_{i}", Tile(i, 0), (Tile(0, 1),), (depth, depth), MemRef((64,), "i8")))
            fifos.append(Fifo(f"out_{i}", Tile(0, 1), (Tile(i, 0),), (2, 2), MemRef((64,), "i8")))
            links.append(Link((f"in_{i}",), (f"out_{i}",)))
        return Design("npu2", "main", (), (), tuple(fifos), tuple(links), (), (), (), ())

    assert messages(forwards(12), "descriptors") == []
    assert len(messages(forwards(13), "descriptors")) == 1
    single = replace(forwards(13), fifos=forwards(13).fifos[:2], links=forwards(13).links[:1])
    assert "buffer descriptors of even channels: expected at most 24, found 26" in messages(single, "descriptors")[0]


# --- the silent cases and the misleading texts, by name -----------------------------------------------------------


def test_silent_cases_say_that_nothing_else_reports_them():
    silent = {
        "tap-range": tapped((1, 1, 4, 512), (0, 0, 512, 1), offset=63492),
        "tap-short": tapped((4, 8, 32), (256, 32, 1), repeat=3),
        "drain-wait": with_steps(relay(), *relay().sequences[0].steps[:3], FreeTask(0)),
        "flow-total": with_task(relay(), 1, length=3072, sizes=(1, 1, 1, 3072)),
        "tap-contiguous": tapped((4, 1, 1, 1024), (1024, 0, 0, 1)),
        "load-pdi": with_steps(relay(), *relay().sequences[0].steps[1:]),
    }
    for rule, design in silent.items():
        assert "silent case" in messages(design, rule)[0], rule
    offsets = shared_out((0, 1536), ((1024,), (1024,)))
    assert "nothing downstream reports it" in messages(offsets, "link-offsets")[0]


def test_the_misleading_text_of_the_verifier_is_named():
    texts = {rule.name: rule.downstream for rule in RULES}
    assert "'Size may not exceed 1023'" in texts["dim-size"]
    assert "Invalid stepsize or wrap" in texts["dim-wrap"]
    assert "Allocator exhausted" in texts["live-descriptors"]


def test_a_short_tap_is_named_however_many_sizes_it_has():
    # What shim_dma_single_bd_task makes of sizes [16, 256]: length 16 * 256, and repeat_count 15.
    two = tapped((16, 256), (512, 1), repeat=15)
    three = tapped((4, 4, 256), (4096, 512, 1), repeat=3)
    filled_up = with_task(three, 0, sizes=(1, 4, 4, 256), strides=(0, 4096, 512, 1))
    for design, times in ((two, 16), (three, 4), (filled_up, 4)):
        assert f"the data is sent {times} times" in messages(design, "tap-short")[0]


def test_findings_of_npu2_tools_alone_are_not_told_for_sim():
    window = tapped((4, 1, 1, 1024), (1024, 0, 0, 1))
    assert messages(window, "tap-contiguous", "npu2")
    assert messages(window, "tap-contiguous", "sim") == []
    with pytest.raises(Refused, match="lint: target: expected npu2 or sim, found npu1"):
        lint(window, "npu1")


# --- flow ---------------------------------------------------------------------------------------------------------


def test_flow_names_both_numbers():
    # The drain takes 3 objects of 1,024, the fill brings 4.
    (finding,) = [f for f in lint(with_task(relay(), 1, length=3072, sizes=(1, 1, 1, 3072))) if f.rule == "flow-total"]
    assert finding.where == "seq core(0,2)"
    assert {finding.limit, finding.value} == {"4 (as @in has 4)", "3 (as @out has 3)"}


def test_flow_wants_whole_objects():
    (finding,) = [
        f
        for f in lint(
            with_task(with_task(relay(), 0, length=4100, sizes=(1, 1, 1, 4100)), 1, length=4100, sizes=(1, 1, 1, 4100))
        )
        if f.rule == "flow-total" and "FIFO" in f.where
    ]
    assert finding.value == "1,025/256 (4,100 bytes filled by 1 tasks)"


def test_flow_through_joins_and_panels_at_real_size():
    design = panel_b8(Shape(128, 5120, 14336, 4, 8))
    last = design.sequences[0].tasks[-1]
    short = with_task(design, last.number, sizes=(8, *last.sizes[1:]), repeat_count=7)
    findings = [f for f in lint(short) if f.rule == "flow-total"]
    # Column 7 gives 14 groups; half of the last one is not drained.
    assert {f.where for f in findings} == {"seq FIFO @C_7", "seq FIFO @C_7_0"}
    assert all("27/2" in f.value + f.limit for f in findings)


def test_round_robin_is_named_where_a_link_hands_out_pieces():
    # Each core turns once per piece, but the drains expect a whole object each: 1bit-MONSTER #1207.
    design = shared_out((0, 1024), ((1024,), (1024,)))
    tasks = tuple(replace(t, length=2048, sizes=(1, 1, 1, 2048)) if t.number else t for t in design.sequences[0].tasks)
    arguments = tuple(MemRef((2048,), "i8") for _ in range(3))
    findings = [f for f in lint(with_sequence(design, tasks=tasks, arguments=arguments)) if f.rule == "flow-total"]
    assert findings
    assert any("hands pieces out round robin" in f.message and "#1207" in f.message for f in findings)


def test_flow_reads_run_time_parameters():
    good = example("sequences_rtp.2026-08")
    assert beside_short_runs(lint(good)) == ()
    sequence = good.sequences[1]
    steps = tuple(
        replace(s, value=3) if isinstance(s, RtpWrite) and (s.buffer, s.index) == ("counts_0", 1) else s
        for s in sequence.steps
    )
    bad = replace(good, sequences=(good.sequences[0], replace(sequence, steps=steps), good.sequences[2]))
    findings = [f for f in lint(bad) if f.rule == "flow-total"]
    # Three K tiles asked for, two of A and of B sent.
    assert {f.where for f in findings} == {"seq_K128_N256 FIFO @A_0", "seq_K128_N256 FIFO @B_0"}
    assert "core(0,2) takes them" in findings[0].value + findings[0].limit


def test_a_lock_that_lets_the_core_through_too_often_is_told():
    assert lint(gated(1)) == ()
    twice = [f for f in lint(gated(2)) if f.rule == "flow-total"]
    assert twice
    assert "4 (core(0,2)" in twice[0].limit + twice[0].value


def test_a_loop_over_another_loops_index_is_counted():
    # 1 + 2 + 3 objects in a turn: three turns of an outer loop whose inner loop runs to its index.
    inner = Loop(2, Const(0), LoopIndex(1), Const(1), (Acquire(0, "in", "consume", 1), Release("in", "consume", 1)))
    outer = Loop(1, Const(1), Const(4), Const(1), (inner,))
    give = (Acquire(1, "out", "produce", 1), Release("out", "produce", 1))
    body = (Loop(0, Const(0), Const(0xFFFFFFFF), Const(1), (outer, *give)),)
    design = with_core(relay(), Tile(0, 2), body=body)
    fit = with_task(with_task(design, 0, length=6144, sizes=(1, 1, 1, 6144)), 1, length=1024, sizes=(1, 1, 1, 1024))
    assert lint(fit) == ()
    assert messages(with_task(fit, 0, length=5120, sizes=(1, 1, 1, 5120)), "flow-total")


def test_what_a_core_keeps_from_turn_to_turn_is_left_out():
    window = (Acquire(0, "in", "consume", 2), Release("in", "consume", 1))
    give = (Acquire(1, "out", "produce", 1), Release("out", "produce", 1))
    body = (Loop(0, Const(0), Const(0xFFFFFFFF), Const(1), (*window, *give)),)
    design = with_task(with_core(relay(), Tile(0, 2), body=body), 1, length=3072, sizes=(1, 1, 1, 3072))
    assert messages(design, "flow-total") == []


# --- sequences ----------------------------------------------------------------------------------------------------


def test_descriptors_are_held_from_the_configuration_on():
    design = waves(16, 1024, awaits=tuple(range(16)))
    assert [f.value for f in lint(design) if f.rule == "live-descriptors"] == [17]
    # The same steps, with each task configured just before its start: at most two hold a descriptor.
    late = with_sequence(design, tasks=tuple(replace(t, configured_at=None) for t in design.sequences[0].tasks))
    assert messages(late, "live-descriptors") == []


def test_a_published_sweep_of_tasks_in_flight():
    # mlir-air #1822: with a ping-pong behind a 4-deep queue, up to 6 un-awaited tasks complete, 7 hang.
    verdicts = {count: bool(messages(waves(count, 1024), "task-queue")) for count in range(1, 10)}
    assert verdicts == {count: count > 6 for count in range(1, 10)}


def test_a_fill_freed_before_its_drain_is_awaited_is_told_and_after_it_is_not():
    panel = panel_b8(Shape(32, 256, 512, 2, 2, m=16))
    steps = panel.sequences[0].steps
    frees = [s for s in steps if isinstance(s, FreeTask)]
    early = with_steps(
        panel,
        *[s for s in steps if s not in frees[:4]][:13],
        *frees[:4],
        *[s for s in steps if s not in frees[:4]][13:],
    )
    assert messages(panel, "free-early") == []
    findings = [f for f in lint(early) if f.rule == "free-early"]
    assert [f.where for f in findings] == [
        f"seq task {n} on @{name}" for n, name in enumerate(("A_0", "A_1", "B_mem_0", "B_mem_1"))
    ]


def test_a_later_drain_of_the_channel_stands_for_an_earlier_one():
    design = waves(2, 1024)
    drains = tuple(
        replace(
            design.sequences[0].tasks[2],
            number=2 + i,
            offset=1024 * i,
            length=1024,
            sizes=(1, 1, 1, 1024),
            issue_token=i == 1,
        )
        for i in range(2)
    )
    steps = design.sequences[0].steps
    start, wait = steps[1], next(s for s in steps if type(s).__name__ == "AwaitTask")
    plan = (steps[0], start, replace(start, task=3), *steps[2:4], replace(wait, task=3), FreeTask(2), *steps[5:])
    both = with_sequence(design, tasks=(*design.sequences[0].tasks[:2], *drains), steps=plan)
    assert [f.line for f in lint(both)] == []


@pytest.mark.parametrize(
    ("extra", "where", "found"),
    [
        (lambda s: (s[3],), "seq task 1 on @out", "awaited after it was awaited"),
        (lambda s: (s[2],), "seq task 1 on @out", "started after it was awaited"),
        (lambda s: (s[1],), "seq task 0 on @in", "started after it was freed"),
        (lambda s: (replace(s[3], task=0),), "seq task 0 on @in", "awaited after it was freed"),
    ],
)
def test_a_task_that_has_ended_is_over(extra, where, found):
    steps = relay().sequences[0].steps
    findings = [f for f in lint(with_steps(relay(), *steps, *extra(steps))) if f.rule == "task-ended"]
    assert [(f.where, f.value) for f in findings] == [(where, found)]


def test_an_awaited_task_may_be_freed():
    steps = relay().sequences[0].steps
    assert lint(with_steps(relay(), *steps, FreeTask(1))) == ()


def test_an_await_before_its_start_blocks_for_ever():
    design = waves(2, 1024, awaits=(0, 1))
    steps = design.sequences[0].steps
    assert lint(design) == ()
    swapped = with_steps(design, *steps[:4], steps[5], steps[4], *steps[6:])
    findings = [f for f in lint(swapped) if f.rule == "await-unstarted"]
    assert [(f.where, f.value) for f in findings] == [("seq task 1 on @in", "none")]
    assert "the sequence blocks for ever" in findings[0].message


def test_a_lock_set_beyond_its_field_is_told():
    assert messages(gated(1), "lock-value") == []
    steps = tuple(replace(s, value=64) if isinstance(s, SetLock) else s for s in gated(1).sequences[0].steps)
    assert "value set: expected at most 63, found 64" in messages(with_steps(gated(1), *steps), "lock-value")[0]


def test_several_sequences_need_one_that_loads_the_pdi():
    sealed = example("sequences_rtp.2026-08")
    assert messages(sealed, "load-pdi") == []
    without = replace(sealed, sequences=sealed.sequences[1:])
    assert [f.where for f in lint(without) if f.rule == "load-pdi"] == [
        "sequence seq_K128_N256",
        "sequence seq_K256_N512",
    ]


def test_load_pdi_of_another_device_or_late_is_told():
    steps = relay().sequences[0].steps
    assert (
        "expected @main, found @inner"
        in messages(with_steps(relay(), replace(steps[0], device="inner"), *steps[1:]), "load-pdi")[0]
    )
    assert (
        "expected the first step, found step 1"
        in messages(with_steps(relay(), steps[1], steps[0], *steps[2:]), "load-pdi")[0]
    )


# --- robustness ---------------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from([-(2**40), -1, 0, 1, 2, 3, 7, 16, 63, 64, 255, 256, 1023, 1024, 2**20, 2**31, 2**40])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_design_makes_lint_fail(data):
    design = data.draw(st.sampled_from([BASE, relay(), gated(1), shared_out((0, 1024), ((1024,), (1024,)))]))
    for _ in range(data.draw(st.integers(1, 4))):
        design = _spoil(design, data)
    for finding in lint(design):
        assert "\n" not in finding.line
    budgets(design)


def _spoil(design: Design, data) -> Design:
    what = data.draw(st.sampled_from(["fifo", "task", "step", "core", "link", "tile", "lock", "kernel"]))
    number, place = data.draw(NUMBERS), data.draw(st.integers(0, 20))
    if what == "fifo":
        change = data.draw(
            st.sampled_from(
                [
                    {"depths": (number,)},
                    {"depths": ()},
                    {"repeat_count": number},
                    {"producer": Tile(place, place)},
                    {"consumers": ()},
                    {"consumers": (Tile(number, place),)},
                    {"name": "A_0"},
                    {"object_type": MemRef((max(1, number),), "i32")},
                    {"object_type": MemRef((0,), "i8")},
                ]
            )
        )
        return replace(design, fifos=_change(design.fifos, place, **change))
    if what == "task":
        field = data.draw(st.sampled_from(["offset", "length", "repeat_count", "argument", "configured_at"]))
        tasks = _change(design.sequences[0].tasks, place, **{field: number})
        if data.draw(st.booleans()):
            tasks = _change(tasks, place, sizes=(number, 1, place, 8), strides=(place, number, 1, number))
        return with_sequence(design, tasks=tasks)
    if what == "step":
        steps = list(design.sequences[0].steps)
        steps.insert(
            place, data.draw(st.sampled_from([FreeTask(number), SetLock("go", number), RtpWrite("count", number, 0)]))
        )
        del steps[data.draw(st.integers(0, len(steps) - 1))]
        return with_steps(design, *steps)
    if what == "core":
        loop = Loop(9, Const(number), Const(place), Const(number), (Release("in", "consume", number),))
        return replace(design, cores=_change(design.cores, place, body=(Acquire(5, "in", "consume", number), loop)))
    if what == "link":
        return replace(
            design, links=(*design.links, Link(("in", "nowhere"), ("out",) * (place % 3), (number,), (number,)))
        )
    if what == "tile":
        return replace(design, tiles=(*design.tiles, Tile(number, place)))
    if what == "lock":
        return replace(design, buffers=(Buffer("count", Tile(0, 2), MemRef((max(1, number),), "i32")),))
    return replace(design, kernels=(Kernel("relay", (MemRef((max(1, number),), "i8"),), None),))


def _change(items, place, **changes):
    return (
        tuple(replace(x, **changes) if i == place % len(items) else x for i, x in enumerate(items)) if items else items
    )


def test_deep_loops_are_walked_in_reasonable_time():
    body = (Acquire(0, "in", "consume", 1), Release("in", "consume", 1))
    for number in range(1, 60):
        body = (Loop(number, Const(0), Const(2), Const(1), body),)
    lint(with_core(relay(), Tile(0, 2), body=(Loop(0, Const(0), Const(2**32 - 1), Const(1), body),)))


# --- the table ----------------------------------------------------------------------------------------------------


def test_every_limit_has_one_row_a_value_and_a_source():
    assert len({(row.name, row.where) for row in LIMITS}) == len(LIMITS)
    for row in LIMITS:
        assert row.source
        assert row.meaning
        assert row.where in ("array", "shim", "mem", "core")
    assert {(n, w): limit(n, w).value for n, w in (("memory", "core"), ("s2mm", "mem"), ("descriptors", "mem"))} == {
        ("memory", "core"): 64 * 1024,
        ("s2mm", "mem"): 6,
        ("descriptors", "mem"): 48,
    }


def test_rules_are_named_once_and_say_where_they_come_from():
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.severity in ("error", "warning")
        assert rule.source
        assert rule.meaning


# --- the verb -----------------------------------------------------------------------------------------------------


def test_the_verb_prints_the_budget_and_exits_0(capsys):
    assert main(["lint", str(EXAMPLES / "iron" / "gemm_2x2.2026-08.generic.mlir")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "tap-short-runs" not in line]
    assert [line.split(": ", 1) for line in lines] == [
        [
            "mem(0,1) and 1 alike",
            (
                "57,344 of 524,288 bytes (@B_mem_0 3 x 8,192, @C_0 1 x 32,768), 466,944 free; channels in 3, out 2; "
                "10 BDs; 6 locks"
            ),
        ],
        [
            "core(0,2) and 3 alike",
            (
                "45,056 of 65,536 bytes (stack 8,192, @A_0 2 x 2,048, @B_0 2 x 8,192, @C_0_0 1 x 16,384), 20,480 free; "
                "channels in 2, out 1; 5 BDs; 6 locks"
            ),
        ],
        # A in runs of 8 bytes on two shims, C in runs of 32.
        ["gemm_2x2.2026-08.generic.mlir", "0 errors, 4 warnings"],
    ]


@pytest.fixture
def broken(tmp_path) -> Path:
    """The smallest example with its load_pdi taken out and its drain moved past the end of its buffer."""
    text = (EXAMPLES / "iron" / "copy_one_core.2026-08.generic.mlir").read_text()
    lines = [line for line in text.splitlines() if "npu.load_pdi" not in line]
    text = "\n".join(lines).replace("static_offset = 0 : i32", "static_offset = 8 : i32")
    assert text.count("static_offset = 8") == 2
    path = tmp_path / "broken.mlir"
    path.write_text(text)
    return path


def test_the_verb_prints_one_line_per_finding_and_exits_1(broken, capsys):
    assert main(["lint", str(broken)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == [
        "error load-pdi sequence seq",
        "error tap-range seq task 0 on @into_mem",
        "error tap-range seq task 1 on @out",
    ]
    assert "expected 0 to 4,095 of argument 0, memref<4096xi8>, found 8 to 4,103" in lines[1]
    assert lines[-1] == "broken.mlir: 3 errors, 0 warnings"


def test_the_verbs_json_twin(broken, capsys):
    assert main(["lint", str(broken), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["errors"], answer["warnings"]) == (3, 0)
    assert answer["findings"][1] | {"message": ""} == {
        "rule": "tap-range",
        "severity": "error",
        "where": "seq task 0 on @into_mem",
        "limit": "0 to 4,095 of argument 0, memref<4096xi8>",
        "value": "8 to 4,103",
        "source": "mlir-aie AIEDMATasksToNPU",
        "message": "",
    }
    core = answer["tiles"][1]
    assert (core["tile"], core["stack"], core["used"], core["free"]) == ("core(0,2)", 2048, 6144, 59392)
    assert core["buffers"] == [
        {"name": "into_core", "count": 2, "bytes_each": 1024},
        {"name": "out", "count": 2, "bytes_each": 1024},
    ]


def test_a_rule_broken_everywhere_is_not_printed_thousands_of_times():
    design = v27(Shape(128, 5120, 14336, 4, 8))
    steps = tuple(s for s in design.sequences[0].steps if not isinstance(s, AwaitTask))
    found = lint(with_steps(design, *steps))
    lines = finding_lines(found)
    assert len(found) > 20_000
    assert len(lines) < 250
    assert "token-left: 13,512 more like these; --json lists them all" in lines


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "no such.mlir: missing"),
        (b"", "design.mlir: expected generic MLIR"),
        (b"\x7fELF\xff\xfe", "expected UTF-8 text, found byte 4 is not UTF-8"),
        (b"module {\n}\n", "design.mlir: expected generic MLIR"),
    ],
)
def test_what_cannot_be_read_is_refused_with_one_line_and_2(tmp_path, capsys, content, line):
    path = tmp_path / ("no such.mlir" if content is None else "design.mlir")
    if content is not None:
        path.write_bytes(content)
    assert main(["lint", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert line in told.err
    assert told.err.count("\n") == 1


def test_a_folder_is_refused(tmp_path, capsys):
    assert main(["lint", str(tmp_path)]) == 2
    assert "not a regular file (a folder)" in capsys.readouterr().err


# --- rendered programs and the page -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n1_blocked_16x5120x14336", "row_major_16x5120x14336", "pb16i_sealed"])
def test_what_the_families_render_is_clean(name):
    text = (Path(__file__).resolve().parents[1] / "golden" / f"{name}.py").read_text()
    design = design_of(text)
    assert lint(design, "npu2") == ()
    assert lint(design, "sim") == ()


def test_the_page_lists_every_rule_and_limit():
    page = (Path(__file__).resolve().parents[2] / "docs" / "lint.md").read_text()
    for row in RULES:
        assert f"| `{row.name}` | {row.severity} | {row.meaning} | {row.downstream} |" in page
    for row in LIMITS:
        assert f"| {row.name} | {row.where} | {row.value:,} {row.unit} | {row.meaning} | {row.source} |" in page

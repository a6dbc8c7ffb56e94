"""What rendered generators do: their programs are run against a recorder and their data movement is followed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from aie_recorder import record, replay
from elfkiln.engine.layouts import offset, pack
from elfkiln.engine.legality import rows_for
from elfkiln.families.family import DesignRequest, family_of, render, render_sealed

ROOT = Path(__file__).resolve().parents[2]
TAGS = ("", "_b8", "_pb16i")
LAYOUT = {"": "rm", "_b8": "b8", "_pb16i": "pb16i"}

# Geometries of published build tables (op K N columns), of the engine's repository and of the b8 pull request.
TABLES = {
    "qwen3.6-35b-a3b": "2048 8192 8, 4096 2048 8, 2048 512 4, 512 2048 4, 2048 5120 8, 512 2048 8",
    "qwen3.5-4b": "2560 6144 8, 4096 2560 4, 2560 9216 8, 9216 2560 4",
    "gemma4-e4b": "2560 12288 8, 12288 2560 4",
    "phi4-mini": "3072 5120 8, 3072 3072 4, 3072 8192 8, 8192 3072 4",
    "nanbeige4.1-3b": "2560 3840 6, 2560 2560 4, 2560 8192 8, 8192 2560 4",
    "qwen3-0.6b": "1024 4096 8, 2048 1024 8, 1024 6144 8, 3072 1024 8",
    "qwen3-8b": "4096 6144 8, 4096 4096 8, 4096 12288 8, 12288 4096 8",
    "llama-3.1-8b": "4096 14336 8, 14336 4096 8",
    "qwen3-4b": "2560 9728 4, 9728 2560 4",
    "gemma4-e2b": "1536 2560 4, 2048 1536 4, 1536 12288 8, 6144 1536 6, 1536 256 2, 256 1536 6, 1536 24576 8",
    "olmoe": "2048 4096 8, 2048 2048 8",
    "zamba2": "2560 7680 6, 2560 10240 8, 5120 2560 5",
    "falcon-7b": "4608 4608 6, 4608 18176 2, 18304 4608 6",
    "moe": "2048 9216 8, 4608 4096 8, 8192 2048 8, 2048 1024 4",
    "glm-4.7-flash": "2048 768 6, 768 5120 8, 2048 640 5, 5120 2048 8, 2048 1536 6, 1536 2048 8",
    "bonsai2-27b": "5120 14336 8, 5120 10240 8, 6144 5120 8, 5120 17408 8, 17408 5120 8, 5120 6144 8",
}
GEOMETRIES = sorted({tuple(map(int, row.split())) for table in TABLES.values() for row in table.split(",")})

# Tasks of a design that the real compiler took to a full ELF: tag, M, K, N -> tasks.
PUBLISHED_TASKS = {
    ("_b8", 128, 5120, 14336): 280,
    ("_b8", 16, 5120, 14336): 238,
    ("_b8", 128, 17408, 5120): 100,
    ("_b8", 16, 17408, 5120): 85,
    ("", 128, 5120, 14336): 1288,
    ("", 16, 17408, 5120): 1405,
}


@cache
def recorded(tag, M, K, N, columns, rows=None):
    """Return the recording of a rendered design; it is shared, so nobody may change it."""
    return record(render(ROOT, DesignRequest(K, N, M, tag, columns, rows)).text)


def tasks_of(recording, fifo, sequence="seq"):
    """Return the tasks of a FIFO in the order they are started."""
    steps = recording.sequences[sequence].steps
    return [task for verb, task, *_ in steps if verb == "start" and task.fifo.name == fifo]


@pytest.mark.parametrize(("key", "count"), PUBLISHED_TASKS.items(), ids=str)
def test_task_counts_are_the_published_ones(key, count):
    tag, M, K, N = key
    assert len(recorded(tag, M, K, N, 8).sequences["seq"].tasks) == count


@pytest.mark.parametrize("M", [128, 16])
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(("K", "N", "columns"), GEOMETRIES)
def test_every_published_geometry_keeps_the_limits_of_the_array(tag, M, K, N, columns):
    recording = recorded(tag, M, K, N, columns)
    sequence = recording.sequences["seq"]
    assert sequence.steps[0] == ("load_pdi", "main")
    most_queued, most_live = replay(sequence)
    m = 16 if M == 16 else 32
    rows = 1 if M == 16 else max(r for r in (1, 2, 4) if r <= columns)
    row_groups, col_groups = M // (rows * m), N // 128 // columns
    b_tasks = 1 if tag else -(-K // 512)  # one per panel, or per 8 tiles of 64
    assert len(sequence.tasks) == row_groups * col_groups * (rows + columns * b_tasks + columns)
    # A group and the one behind it; in rm up to three tasks of B, whatever their groups.
    groups = row_groups * col_groups
    behind = min(2, groups)
    want = {"A": behind, "B": behind if tag else min(3, b_tasks * groups), "C": behind}
    assert all(most == want[fifo[0]] for fifo, most in most_queued.items())
    assert max(most_live.values()) <= 16
    sizes = [np.prod(shape) for shape, _ in sequence.arguments]
    assert sizes == [M * K, K * N // (4 if tag == "_pb16i" else 1), M * N]
    moved = Counter()
    for task in sequence.tasks:
        check_descriptor(task, sequence.arguments[task.argument][1].itemsize)
        assert task.last < sizes[task.argument]
        moved[task.argument] += np.prod(task.sizes)
    assert moved == {0: M * K * col_groups, 1: sizes[1] * row_groups, 2: M * N}


def check_descriptor(task, item):
    """Check a task against the fields of a shim buffer descriptor, in 32-bit words."""
    iterations, _, rows, run = task.sizes
    assert iterations <= 64
    if task.sizes[:3] != (1, 1, 1):
        assert run * item // 4 <= 1023
        assert rows <= 1023
    assert task.strides[3] == 1
    for size, stride in zip(task.sizes[:3], task.strides[:3], strict=True):
        assert size == 1 or 0 < stride * item // 4 <= 2**20
        assert stride * item % 4 == 0
    assert run * item % 4 == 0
    assert task.offset * item % 4 == 0


@pytest.mark.parametrize("M", [128, 16])
@pytest.mark.parametrize("tag", TAGS)
def test_the_tap_that_was_checked_is_the_tap_that_is_rendered(tag, M):
    K, N, columns = 1088, 1536, 6  # 17 K tiles: the last task of B in rm is a short one
    family = family_of(tag, ROOT)
    shape = family.shape(DesignRequest(K, N, M, tag, columns))
    tasks = recorded(tag, M, K, N, columns).sequences["seq"].tasks
    for argument, tap in enumerate(family.taps(shape)):
        mine = [task for task in tasks if task.argument == argument]
        assert max(task.offset for task in mine) == tap.last_offset
        assert (tap.sizes, tap.strides) in {(task.sizes, task.strides) for task in mine}
        assert max(mine, key=lambda task: np.prod(task.sizes)).sizes == tap.sizes


@pytest.mark.parametrize(
    ("tag", "M", "K", "N"), [("", 128, 5120, 6144), ("_b8", 128, 17408, 5120), ("_pb16i", 16, 5120, 6144)]
)
def test_every_element_is_moved_the_right_number_of_times(tag, M, K, N):
    recording = recorded(tag, M, K, N, 8)
    sequence = recording.sequences["seq"]
    col_groups = N // 1024
    counts = [np.zeros(np.prod(shape), np.uint8) for shape, _ in sequence.arguments]
    for task in sequence.tasks:
        count = counts[task.argument]
        # No tap meets an element twice (its walk is a set), so adding in place through the view is safe.
        view = np.lib.stride_tricks.as_strided(count[task.offset :], task.sizes, task.strides)
        view += 1
    assert (counts[0] == col_groups).all()
    assert (counts[1] == 1).all()
    assert (counts[2] == 1).all()


def expected_b_stream(K, panel):
    """Return k and n of a column panel in the order a core wants: K tiles, each as 8 x 8 blocks, [kb][nb][kr][nc]."""
    kt, kb, nb, kr, nc = np.ix_(*map(np.arange, (K // 64, 8, 16, 8, 8)))
    shape = (K // 64, 8, 16, 8, 8)
    k = np.broadcast_to(kt * 64 + kb * 8 + kr, shape).reshape(-1)
    n = np.broadcast_to(panel * 128 + nb * 8 + nc, shape).reshape(-1)
    return k, n


@pytest.mark.parametrize("tag", ["", "_b8"])
def test_b_arrives_in_the_order_of_the_microkernel(tag):
    K, N, columns = 1088, 768, 3
    recording = recorded(tag, 128, K, N, columns)
    for c in range(columns):
        stream = np.concatenate([task.indices for task in tasks_of(recording, f"B_mem_{c}")])
        want = []
        for _row_group in range(2):
            for group in range(N // 128 // columns):
                k, n = expected_b_stream(K, group * columns + c)
                want.append(offset(k, n, K, N, LAYOUT[tag]).byte)
        assert np.array_equal(stream, np.concatenate(want))


def test_packed_b_arrives_by_tile_and_group():
    K, N, columns = 320, 512, 2
    recording = recorded("_pb16i", 16, K, N, columns)
    for c in range(columns):
        stream = np.concatenate([task.indices for task in tasks_of(recording, f"B_mem_{c}")])
        want = []
        for group in range(2):
            kt, n32, kb, r, col = np.ix_(*map(np.arange, (K // 64, 4, 8, 8, 8)))
            n = (group * columns + c) * 128 + n32 * 32 + col
            want.append(
                np.broadcast_to(offset(kt * 64 + kb * 8 + r, n, K, N, "pb16i").byte, (K // 64, 4, 8, 8, 8)).reshape(-1)
            )
        assert np.array_equal(stream, np.concatenate(want))


def test_a_arrives_k_block_major():
    """A tile of 32 x 64 has its 8 x 8 block (z, i) at (i*4 + z)*64: all rows of one k block come before the next."""
    K = 192
    recording = recorded("_b8", 128, K, 512, 4)
    for r in range(4):
        (task,) = tasks_of(recording, f"A_{r}")
        for tile in range(K // 64):
            seen = task.indices[tile * 2048 : (tile + 1) * 2048].reshape(8, 4, 8, 8)
            for i, z in np.ndindex(8, 4):
                want = (r * 32 + z * 8 + np.arange(8)[:, None]) * K + tile * 64 + i * 8 + np.arange(8)
                assert np.array_equal(seen[i, z], want)


def run(recording, sequence, A, B, layout):
    """Compute what a design makes of A (M x K) and a packed B by following its streams; returns C, flat.

    Every core takes its tiles from the streams of its row and column; C leaves in 8 x 8 blocks, the rows of a column
    joined. Asserts that every element of C is written exactly once and that no stream has anything left over.
    """
    m, k = next(f.shape for f in recording.fifos.values() if f.name == "A_0")
    tile_bytes = recording.fifos["B_0"].elements
    columns = sum(name.startswith("B_mem") for name in recording.fifos)
    rows = sum(name.startswith("A_") for name in recording.fifos)
    data = [A.reshape(-1), B]

    def stream(fifo):
        tasks = tasks_of(recording, fifo, sequence)
        return np.concatenate([data[task.argument][task.indices] for task in tasks])

    a = [stream(f"A_{r}").reshape(-1, k // 8, m // 8, 8, 8) for r in range(rows)]
    k_tiles = A.shape[1] // k
    C = np.zeros(np.prod(recording.sequences[sequence].arguments[2][0]), np.int64)
    written = np.zeros(C.size, np.uint8)
    for c in range(columns):
        b = stream(f"B_mem_{c}").reshape(-1, tile_bytes)
        groups = len(b) // k_tiles
        assert all(len(panel) == groups * k_tiles for panel in a)
        out = []
        for g in range(groups):
            for r in range(rows):
                acc = np.zeros((m, 128), np.int64)
                for t in range(g * k_tiles, (g + 1) * k_tiles):
                    left = a[r][t].transpose(1, 2, 0, 3).reshape(m, k)
                    acc += left.astype(np.int64) @ tile_of(b[t], layout)
                out.append(acc.reshape(m // 8, 8, 16, 8).transpose(0, 2, 1, 3).reshape(-1))
        where = np.concatenate([task.indices for task in tasks_of(recording, f"C_{c}", sequence)])
        C[where] = np.concatenate(out)
        np.add.at(written, where, 1)
    assert (written == 1).all()
    return C


def tile_of(data, layout):
    """Return the 64 x 128 int64 tile that the bytes of one FIFO object hold, as a core reads them."""
    if layout != "pb16i":
        return data.reshape(8, 16, 8, 8).transpose(0, 2, 1, 3).reshape(64, 128).astype(np.int64)
    groups = data.reshape(4, 8, 8, 8)  # n32, kb, r, c
    blocks = [(groups.astype(np.int64) >> 2 * q & 3) - 1 for q in range(4)]
    return np.stack(blocks, axis=1).transpose(2, 3, 0, 1, 4).reshape(64, 128)


@pytest.mark.parametrize(
    ("M", "K", "N", "columns", "rows"),
    [
        (128, 128, 512, 4, None),
        (128, 576, 512, 2, None),  # two row groups, 9 K tiles: rm takes two tasks a panel
        (128, 64, 768, 3, 1),
        (16, 320, 768, 3, None),
        (16, 64, 256, 2, None),
        (96, 64, 384, 3, 3),
    ],
)
@pytest.mark.parametrize("tag", TAGS)
def test_a_design_computes_the_product(tag, M, K, N, columns, rows):
    rng = np.random.default_rng(M + K + N)
    A = rng.integers(-128, 128, (M, K), dtype=np.int8)
    weights = (
        rng.integers(-1, 2, (K, N), dtype=np.int8)
        if tag == "_pb16i"
        else rng.integers(-128, 128, (K, N), dtype=np.int8)
    )
    C = run(recorded(tag, M, K, N, columns, rows), "seq", A, pack(weights, LAYOUT[tag]), LAYOUT[tag])
    assert np.array_equal(C.reshape(M, N), A.astype(np.int64) @ weights.astype(np.int64))


def test_the_sealed_program_computes_every_geometry():
    geometries = [(320, 512), (64, 1024), (128, 512)]
    recording = record(render_sealed(ROOT, "_pb16i", geometries, 4).text)
    rng = np.random.default_rng(5)
    for K, N in geometries:
        A = rng.integers(-128, 128, (16, K), dtype=np.int8)
        weights = rng.integers(-1, 2, (K, N), dtype=np.int8)
        C = run(recording, f"seq_K{K}_N{N}", A, pack(weights, "pb16i"), "pb16i")
        assert np.array_equal(C.reshape(16, N), A.astype(np.int64) @ weights.astype(np.int64))


@pytest.mark.parametrize(("M", "rows"), [(128, 4), (16, 1)])
@pytest.mark.parametrize("tag", TAGS)
def test_what_stands_on_the_array(tag, M, rows):
    columns, m = 8, 128 // 4 if M == 128 else 16
    recording = recorded(tag, M, 5120, 14336, columns)
    packed = tag == "_pb16i"
    b_tile = ((2048,), np.uint8) if packed else ((64, 128), np.int8)
    assert recording.device == ("npu2", "main")
    entry, name = ("matmul_pb16i_i32", f"mm_pb16i_{m}x64x128.o") if packed else ("matmul_i8_i32", f"mm_{m}x64x128.o")
    c_tile = ((m, 128), np.int32)
    assert recording.kernels == [("zero_i32", [c_tile], name), (entry, [((m, 64), np.int8), b_tile, c_tile], name)]
    fifos = {f.name: (f.producer, f.consumers, f.depth, (f.shape, f.dtype)) for f in recording.fifos.values()}
    want = {f"A_{r}": ((r, 0), [(c, 2 + r) for c in range(columns)], 2, ((m, 64), np.int8)) for r in range(rows)}
    for c in range(columns):
        want[f"B_mem_{c}"] = ((c, 0), [(c, 1)], 4, b_tile)
        want[f"B_{c}"] = ((c, 1), [(c, 2 + r) for r in range(rows)], 2, b_tile)
        want[f"C_{c}"] = ((c, 1), [(c, 0)], 2, ((rows * m, 128), np.int32))
        want |= {f"C_{c}_{r}": ((c, 2 + r), [(c, 1)], 1, c_tile) for r in range(rows)}
    assert fifos == want
    joined = [r * m * 128 for r in range(rows)] if rows > 1 else []
    assert recording.links == [
        link
        for c in range(columns)
        for link in (([f"B_mem_{c}"], [f"B_{c}"], []), ([f"C_{c}_{r}" for r in range(rows)], [f"C_{c}"], joined))
    ]
    assert recording.stacks == {0x2000}
    assert set(recording.cores) == {(c, 2 + r) for c in range(columns) for r in range(rows)}
    for (c, row), body in recording.cores.items():
        a, b, out = f"A_{row - 2}", f"B_{c}", f"C_{c}_{row - 2}"
        assert body == [
            ("for", 0xFFFFFFFF),
            ("acquire", out, "produce", 1),
            ("call", "zero_i32", (out, "produce")),
            ("for", 80),
            ("acquire", a, "consume", 1),
            ("acquire", b, "consume", 1),
            ("call", entry, (a, "consume"), (b, "consume"), (out, "produce")),
            ("release", a, "consume", 1),
            ("release", b, "consume", 1),
            ("end",),
            ("release", out, "produce", 1),
            ("end",),
        ]
    assert channels_fit(recording)


def channels_fit(recording):
    """Whether every tile has its DMA channels: 2 in and 2 out on shims and cores, 6 and 6 on mem tiles."""
    out = Counter(f.producer for f in recording.fifos.values())
    into = Counter(place for f in recording.fifos.values() for place in f.consumers)
    return all(count <= (6 if place[1] == 1 else 2) for used in (out, into) for place, count in used.items())


def test_groups_overlap_by_one():
    """A group is started before the drains of the group before it are awaited, and its fills freed after that."""
    sequence = recorded("_b8", 128, 128, 1536, 4).sequences["seq"]
    steps = [
        (verb, rest[0].fifo.name, rest[0].offset)
        for verb, *rest in sequence.steps
        if verb in ("start", "await", "free")
    ]
    fills = [[f"A_{r}" for r in range(4)] + [f"B_mem_{c}" for c in range(4)] for _ in range(3)]
    drains = [f"C_{c}" for c in range(4)]
    a = [r * 32 * 128 for r in range(4)]

    def group(g):
        inputs = list(zip(fills[g], a + [(g * 4 + c) * 128 * 128 for c in range(4)], strict=True))
        return inputs, list(zip(drains, [(g * 4 + c) * 128 for c in range(4)], strict=True))

    want = []
    for g in range(3):
        inputs, outputs = group(g)
        want += [("start", *step) for step in inputs + outputs]
        if g:
            inputs, outputs = group(g - 1)
            want += [("await", *step) for step in outputs] + [("free", *step) for step in inputs]
    inputs, outputs = group(2)
    want += [("await", *step) for step in outputs] + [("free", *step) for step in inputs]
    assert steps == want


def test_row_major_b_flows_three_tasks_ahead():
    """Column 0 of rm: a fourth task waits for the first, across the border of groups."""
    sequence = recorded("", 16, 2048, 512, 2).sequences["seq"]
    tasks = [task for task in sequence.tasks if task.fifo.name == "B_mem_0"]
    assert len(tasks) == 8
    number = {task: index for index, task in enumerate(tasks)}
    steps = [f"{verb} {number[rest[0]]}" for verb, *rest in sequence.steps if rest[0] in number and verb != "configure"]
    assert steps == [
        *("start 0", "start 1", "start 2"),
        *(step for i in range(5) for step in (f"await {i}", f"start {i + 3}")),
        *("await 5", "await 6", "await 7"),
    ]


def test_the_sealed_program_configures_once_and_tells_the_cores_their_counts():
    geometries = [(17408, 5120), (5120, 14336), (5120, 10240), (5120, 14336)]
    recording = record(render_sealed(ROOT, "_pb16i", geometries, 8).text)
    assert list(recording.sequences) == ["init", "seq_K5120_N10240", "seq_K5120_N14336", "seq_K17408_N5120"]
    assert recording.sequences["init"].steps == [("load_pdi", "main")]
    assert recording.device == ("npu2", "main")
    assert set(recording.cores) == {(c, 2) for c in range(8)}
    for c in range(8):
        assert recording.buffers[f"counts_{c}"] == ((c, 2), (16,), np.int32)
        assert recording.locks[f"go_{c}"] == ((c, 2), 0)
        a, b, out = "A_0", f"B_{c}", f"C_{c}_0"
        assert recording.cores[c, 2] == [
            ("for", 0xFFFFFFFF),
            ("use_lock", f"go_{c}", "acquire_ge", 1),
            ("load", f"counts_{c}", 0),
            ("load", f"counts_{c}", 1),
            ("for", ("index", f"counts_{c}", 0)),
            ("acquire", out, "produce", 1),
            ("call", "zero_i32", (out, "produce")),
            ("for", ("index", f"counts_{c}", 1)),
            ("acquire", a, "consume", 1),
            ("acquire", b, "consume", 1),
            ("call", "matmul_pb16i_i32", (a, "consume"), (b, "consume"), (out, "produce")),
            ("release", a, "consume", 1),
            ("release", b, "consume", 1),
            ("end",),
            ("release", out, "produce", 1),
            ("end",),
            ("end",),
        ]
    for K, N, groups, tasks in ((5120, 10240, 10, 170), (5120, 14336, 14, 238), (17408, 5120, 5, 85)):
        sequence = recording.sequences[f"seq_K{K}_N{N}"]
        assert sequence.arguments == [((16 * K,), np.int8), ((K * N // 4,), np.uint8), ((16 * N,), np.int32)]
        told = [
            step
            for c in range(8)
            for step in (("rtp", f"counts_{c}", 0, groups), ("rtp", f"counts_{c}", 1, K // 64), ("lock", f"go_{c}", 1))
        ]
        assert sequence.steps[:24] == told
        assert not any(verb in ("load_pdi", "rtp", "lock") for verb, *_ in sequence.steps[24:])
        assert len(sequence.tasks) == tasks
        most_queued, most_live = replay(sequence)
        assert set(most_queued.values()) == {2}
        assert max(most_live.values()) == 6
    assert channels_fit(recording)


def test_sealed_and_twin_move_the_same_data():
    sealed = record(render_sealed(ROOT, "_pb16i", [(5120, 6144), (6144, 5120)], 8).text)
    for K, N in ((5120, 6144), (6144, 5120)):
        twin = recorded("_pb16i", 16, K, N, 8).sequences["seq"].tasks
        ours = sealed.sequences[f"seq_K{K}_N{N}"].tasks
        assert [(t.fifo.name, t.offset, t.sizes, t.strides, t.token) for t in ours] == [
            (t.fifo.name, t.offset, t.sizes, t.strides, t.token) for t in twin
        ]


def test_default_rows_are_those_of_the_artifacts():
    for columns in range(2, 9):
        for M in (128, 16):
            shape = family_of("_b8", ROOT).shape(DesignRequest(64, 128 * columns, M, "_b8", columns))
            assert shape.rows == rows_for(columns, m16=M == 16)

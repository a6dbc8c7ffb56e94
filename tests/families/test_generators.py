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
    ("", 128, 5120, 14336): 280,
    ("_pb16i", 16, 5120, 14336): 238,
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


def rows_of(tag, M, columns):
    """Rows of cores: as many row tiles of 32 as there are columns; at M = 16 one, but for packed weights."""
    if M == 16:
        return max(r for r in (1, 2, 4) if r <= columns) if tag == "_pb16i" else 1
    return max(r for r in (1, 2, 4) if r <= columns)


@pytest.mark.parametrize("M", [128, 16])
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize(("K", "N", "columns"), GEOMETRIES)
def test_every_published_geometry_keeps_the_limits_of_the_array(tag, M, K, N, columns):
    recording = recorded(tag, M, K, N, columns)
    sequence = recording.sequences["seq"]
    assert sequence.steps[0] == ("load_pdi", "main")
    most_queued, most_live = replay(sequence)
    m = 16 if M == 16 else 32
    rows = rows_of(tag, M, columns)
    panels = 1 if M == 16 else rows  # of A; packed weights are shared out by columns at M = 16, not by rows
    row_groups, col_groups = M // (panels * m), N // 128 // columns
    groups = row_groups * col_groups
    assert len(sequence.tasks) == groups * (panels + columns + columns)
    # A group and the one behind it.
    assert set(most_queued.values()) == {min(2, groups)}
    assert max(most_live.values()) <= 6
    sizes = [np.prod(shape) for shape, _ in sequence.arguments]
    assert sizes == [M * K, K * N // (4 if tag == "_pb16i" else 1), M * N]
    moved = Counter()
    for task in sequence.tasks:
        check_descriptor(task, sequence.arguments[task.argument][1].itemsize)
        assert task.last < sizes[task.argument]
        moved[task.argument] += np.prod(task.sizes)
    assert moved == {0: M * K * col_groups, 1: sizes[1] * row_groups, 2: M * N}
    runs = {task.argument: run_of(task) for task in sequence.tasks}
    # Rows of A as long as whole tiles allow, up to 512 bytes; rows of 128 weights; a row of C that one core makes.
    k = next(fifo.shape[1] for fifo in recording.fifos.values() if fifo.name == "A_0")
    longest = max(run for run in range(k, 513, k) if K % run == 0)
    assert longest in (runs[0], K)
    assert runs[1] == 128 if tag == "" else runs[1] >= 2048
    assert runs[2] == 4 * 128 // (rows if tag == "_pb16i" and M == 16 else 1)
    assert min(runs.values()) >= 64


def run_of(task):
    """Bytes that a task's innermost dimensions move as one run of memory."""
    run = 1
    for size, stride in zip(reversed(task.sizes), reversed(task.strides), strict=True):
        if size > 1 and stride != run:
            break
        run *= size
    return run * {0: 1, 1: 1, 2: 4}[task.argument]


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
    K, N, columns = 1088, 1536, 6
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


# What arrives: the streams are followed through the dims of every FIFO's ends, links and all.


def walk(dims):
    """Offsets of a FIFO end's dims, in the order of the stream."""
    at = np.array([0])
    for size, stride in dims:
        at = (at[:, None] + np.arange(size) * stride).reshape(-1)
    return at


def linked(recording, name, side):
    """The link that a FIFO is in, on a side (0: it enters the mem tile, 1: it leaves it), or None."""
    return next((link for link in recording.links if name in link[side]), None)


def sent(recording, name, host):
    """What a FIFO's producer sends, given the host's streams by FIFO: through a mem tile in its order."""
    link = linked(recording, name, 1)
    if link is None:
        return host[name]
    (source,), outs, _, offsets = link
    whole, fifo = recording.fifos[source], recording.fifos[name]
    if len(outs) == 1:
        # The buffer of a link is the larger object; the other FIFO cuts or fills it.
        size = max(whole.elements, fifo.elements)
        objects = sent(recording, source, host).reshape(-1, size)
        return (objects[:, walk(fifo.to_stream)] if fifo.to_stream else objects).reshape(-1)
    begin = offsets[outs.index(name)]
    assert not fifo.to_stream
    objects = sent(recording, source, host).reshape(-1, whole.elements)
    return objects[:, begin : begin + fifo.elements].reshape(-1)


def taken(recording, name, place, host):
    """The objects of a FIFO as they lie at one of its consumers."""
    fifo = recording.fifos[name]
    objects = sent(recording, name, host).reshape(-1, fifo.elements)
    dims = fifo.from_stream[fifo.consumers.index(place)] if fifo.from_stream else ()
    if not dims:
        return objects
    placed = np.empty_like(objects)
    placed[:, walk(dims)] = objects
    return placed


def drained(recording, name, made):
    """What leaves the mem tile of a join, given the objects that its parts hold, by FIFO."""
    ins, (out,), offsets, _ = linked(recording, name, 1)
    fifo = recording.fifos[out]
    assert offsets == (list(np.cumsum([0, *(recording.fifos[i].elements for i in ins)])[:-1]) if len(ins) > 1 else [])
    parts = [made[i].reshape(-1, recording.fifos[i].elements) for i in ins]
    # A descriptor for each part: the dims of the way out go over one part.
    ordered = [part[:, walk(fifo.to_stream)] for part in parts]
    return np.concatenate(ordered, axis=1).reshape(-1)


def streams(recording, sequence, values):
    """The host's stream into each FIFO of a shim, `values` by argument."""
    names = {task.fifo.name: task.argument for task in recording.sequences[sequence].tasks}
    return {
        name: np.concatenate([values[argument][task.indices] for task in tasks_of(recording, name, sequence)])
        for name, argument in names.items()
        if argument != 2
    }


def core_ends(recording, place):
    """The FIFOs of A, B and C that the core at a place uses."""
    names = dict.fromkeys(event[1] for event in recording.cores[place] if event[0] == "acquire")
    return {name[0]: name for name in names}


@pytest.mark.parametrize("tag", ["", "_b8"])
@pytest.mark.parametrize("K", [1088, 320, 64])
def test_b_arrives_in_the_order_of_the_microkernel(tag, K):
    """K tiles, each as 8 x 8 blocks row by row: [kb][nb][kr][nc]."""
    N, columns = 768, 3
    recording = recorded(tag, 128, K, N, columns)
    places = offset(np.arange(K)[:, None], np.arange(N), K, N, LAYOUT[tag]).byte
    host = streams(recording, "seq", {0: np.zeros(128 * K, np.int64), 1: np.arange(K * N), 2: None})
    for c in range(columns):
        tiles = taken(recording, f"B_{c}", (c, 2), host)
        want = []
        for _row_group in range(2):
            for group in range(N // 128 // columns):
                panel = places[:, (group * columns + c) * 128 :][:, :128]
                want.append(panel.reshape(K // 64, 8, 8, 16, 8).transpose(0, 1, 3, 2, 4).reshape(K // 64, -1))
        assert np.array_equal(tiles, np.concatenate(want))


@pytest.mark.parametrize(("M", "K"), [(16, 320), (16, 704), (128, 320), (128, 640), (128, 1024)])
def test_packed_b_arrives_by_group_of_columns(M, K):
    """Groups of 64 bytes in the order [n32][kb], over all of a tile's depth; a core that has a part gets its n32."""
    N, columns = 512, 2
    recording = recorded("_pb16i", M, K, N, columns)
    k = recording.fifos["A_0"].shape[1]
    assert k == (64 if M == 16 or K % 128 else 256 if K % 256 == 0 else 128)
    host = streams(recording, "seq", {0: np.zeros(M * K, np.int64), 1: np.arange(K * N // 4), 2: None})
    byte = offset(np.arange(K)[:, None], np.arange(N), K, N, "pb16i").byte
    for c, row in recording.cores:
        part = 64 if M == 16 else 128
        first = (row - 2) * part if M == 16 else 0
        want = []
        for _row_group in range(1 if M == 16 else 2):
            for group in range(2):
                left = (group * columns + c) * 128 + first
                # Byte r * 8 + c of a group is that of element (r, c) of each of its four blocks.
                panel = byte[:, left : left + part].reshape(K // k, k // 8, 8, part // 32, 4, 8)
                assert (panel == panel[:, :, :, :, :1]).all()
                want.append(panel[:, :, :, :, 0].transpose(0, 3, 1, 2, 4).reshape(K // k, -1))
        name = core_ends(recording, (c, row))["B"]
        assert np.array_equal(taken(recording, name, (c, row), host), np.concatenate(want))


@pytest.mark.parametrize("K", [192, 704, 1024, 640])
def test_a_arrives_k_block_major(K):
    """A tile of m x k has its 8 x 8 block (z, i) at (i * m/8 + z) * 64: all rows of one k block before the next."""
    for tag, M in (("_b8", 128), ("_pb16i", 128), ("_pb16i", 16)):
        recording = recorded(tag, M, K, 512, 4)
        assert any(name.startswith("A_mem") for name in recording.fifos) == (K != 704)
        m, k = recording.fifos["A_0"].shape
        host = streams(recording, "seq", {0: np.arange(M * K), 1: np.zeros(K * 512, np.int64), 2: None})
        for place in recording.cores:
            name = core_ends(recording, place)["A"]
            tiles = taken(recording, name, place, host)
            panel = 0 if M == 16 else place[1] - 2
            rows = np.arange(M * K).reshape(M, K)[panel * m : (panel + 1) * m]
            want = rows.reshape(m // 8, 8, K // k, k // 8, 8).transpose(2, 3, 0, 1, 4).reshape(K // k, -1)
            assert np.array_equal(tiles, want)


def run(recording, sequence, A, B, layout):
    """Compute what a design makes of A (M x K) and a packed B by following its streams; returns C, flat.

    Every core takes its tiles as they arrive; C leaves it in 8 x 8 blocks and goes through its column's join. Asserts
    that every element of C is written exactly once and that no stream has anything left over.
    """
    m, k = recording.fifos["A_0"].shape
    k_tiles = A.shape[1] // k
    host = streams(recording, sequence, {0: A.reshape(-1), 1: B, 2: None})
    C = np.zeros(np.prod(recording.sequences[sequence].arguments[2][0]), np.int64)
    written = np.zeros(C.size, np.uint8)
    made = {}
    for place in recording.cores:
        ends = core_ends(recording, place)
        a, b = taken(recording, ends["A"], place, host), taken(recording, ends["B"], place, host)
        n = recording.fifos[ends["C"]].shape[1]
        assert len(a) == len(b)
        assert len(a) % k_tiles == 0
        out = []
        for group in range(0, len(a), k_tiles):
            acc = np.zeros((m, n), np.int64)
            for t in range(group, group + k_tiles):
                left = a[t].reshape(k // 8, m // 8, 8, 8).transpose(1, 2, 0, 3).reshape(m, k)
                acc += left.astype(np.int64) @ tile_of(b[t], k, n, layout)
            out.append(acc.reshape(m // 8, 8, n // 8, 8).transpose(0, 2, 1, 3).reshape(-1))
        made[ends["C"]] = np.concatenate(out)
    for name in recording.fifos:
        tasks = [task for task in tasks_of(recording, name, sequence) if task.argument == 2]
        if tasks:
            where = np.concatenate([task.indices for task in tasks])
            C[where] = drained(recording, name, made)
            np.add.at(written, where, 1)
    assert (written == 1).all()
    return C


def tile_of(data, k, n, layout):
    """Return the k x n int64 tile that the bytes of one FIFO object hold, as a core reads them."""
    if layout != "pb16i":
        return data.reshape(k // 8, n // 8, 8, 8).transpose(0, 2, 1, 3).reshape(k, n).astype(np.int64)
    groups = data.reshape(n // 32, k // 8, 8, 8)  # n32, kb, r, c
    blocks = [(groups.astype(np.int64) >> 2 * q & 3) - 1 for q in range(4)]
    return np.stack(blocks, axis=1).transpose(2, 3, 0, 1, 4).reshape(k, n)


@pytest.mark.parametrize(
    ("M", "K", "N", "columns", "rows"),
    [
        (128, 128, 512, 4, None),
        (128, 576, 512, 2, None),  # two row groups, A in runs of 192
        (128, 704, 512, 4, None),  # A in runs of 64, blocked by the cores
        (128, 1024, 1024, 8, None),  # a K tile of 256 for packed weights
        (128, 64, 768, 3, 1),
        (16, 320, 768, 3, None),
        (16, 704, 512, 4, None),
        (16, 1024, 1024, 8, None),
        (16, 128, 512, 4, 2),
        (16, 128, 512, 4, 1),
        (16, 64, 256, 2, None),
        (96, 64, 384, 3, 3),
    ],
)
@pytest.mark.parametrize("tag", TAGS)
def test_a_design_computes_the_product(tag, M, K, N, columns, rows):
    if M == 16 and rows == 2 and tag != "_pb16i":
        rows = 1
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


def on_the_array(rows, m, k, part, b_types, entry, object_name, dims):
    """What a design of 8 columns places: kernels, FIFOs and links, in words of the recorder.

    `part` are the columns of C that a core makes, `b_types` the types of B in the mem tile and in a core.
    """
    columns, split = 8, part < 128
    a_tile, a_rows, c_tile = ((m, k), np.int8), ((m, 512), np.int8), ((m, part), np.int32)
    b_whole, b_part = b_types
    kernels = [("zero_i32", [c_tile], object_name), (entry, [a_tile, b_part, c_tile], object_name)]
    fifos, links = {}, []
    everyone = [(c, 2 + r) for r in range(rows) for c in range(columns)]
    for r in range(1 if split else rows):
        readers = everyone if split else [(c, 2 + r) for c in range(columns)]
        fifos[f"A_mem_{r}"] = ((r, 0), [(r, 1)], 2, a_rows, ())
        fifos[f"A_{r}"] = ((r, 1), readers, 2, a_tile, dims["A"])
        links.append(([f"A_mem_{r}"], [f"A_{r}"], [], []))
    for c in range(columns):
        fifos[f"B_mem_{c}"] = ((c, 0), [(c, 1)], 2 if split else 4, b_whole, ())
        if split:
            for r in range(rows):
                fifos[f"B_{c}_{r}"] = ((c, 1), [(c, 2 + r)], 2, b_part, ())
            size = b_part[0][0]
            links.append(([f"B_mem_{c}"], [f"B_{c}_{r}" for r in range(rows)], [], [r * size for r in range(rows)]))
        else:
            fifos[f"B_{c}"] = ((c, 1), [(c, 2 + r) for r in range(rows)], 2, b_part, dims["B"])
            links.append(([f"B_mem_{c}"], [f"B_{c}"], [], []))
        fifos |= {f"C_{c}_{r}": ((c, 2 + r), [(c, 1)], 1, c_tile, ()) for r in range(rows)}
        fifos[f"C_{c}"] = ((c, 1), [(c, 0)], 2, ((rows * m, part), np.int32), dims["C"])
        joined = [r * m * part for r in range(rows)] if rows > 1 else []
        links.append(([f"C_{c}_{r}" for r in range(rows)], [f"C_{c}"], joined, []))
    return kernels, fifos, links


A32, A16 = ((64, 8), (32, 512), (8, 1)), ((64, 8), (16, 512), (8, 1))
RM = ((8, 1024), (16, 8), (8, 128), (8, 1))
C32, C16, C16_PART = (((m // 8, 8 * n), (8, 8), (n // 8, 64), (8, 1)) for m, n in ((32, 128), (16, 128), (16, 32)))
I8, I8_TILE = "matmul_i8_i32", (((64, 128), np.int8),) * 2
PACKED = "matmul_pb16i_i32"
PLACED = {
    ("", 128): (4, 32, 64, 128, I8_TILE, I8, "mm_32x64x128.o", {"A": A32, "B": RM, "C": C32}),
    ("", 16): (1, 16, 64, 128, I8_TILE, I8, "mm_16x64x128.o", {"A": A16, "B": RM, "C": C16}),
    ("_b8", 128): (4, 32, 64, 128, I8_TILE, I8, "mm_32x64x128.o", {"A": A32, "B": (), "C": C32}),
    ("_b8", 16): (1, 16, 64, 128, I8_TILE, I8, "mm_16x64x128.o", {"A": A16, "B": (), "C": C16}),
    ("_pb16i", 128): (
        *(4, 32, 256, 128, (((8192,), np.uint8),) * 2, PACKED, "mm_pb16i_32x256x128.o"),
        {"A": A32, "B": ((4, 512), (4, 2048), (512, 1)), "C": C32},
    ),
    ("_pb16i", 16): (
        *(4, 16, 64, 32, (((2048,), np.uint8), ((512,), np.uint8)), PACKED, "mm_pb16i_16x64x32.o"),
        {"A": A16, "B": (), "C": C16_PART},
    ),
}


@pytest.mark.parametrize(("tag", "M"), PLACED)
def test_what_stands_on_the_array(tag, M):
    rows, _, k, part, _, entry, _, _ = PLACED[tag, M]
    recording = recorded(tag, M, 5120, 14336, 8)
    kernels, fifos, links = on_the_array(*PLACED[tag, M])
    assert recording.device == ("npu2", "main")
    assert recording.kernels == kernels
    assert {
        f.name: (f.producer, f.consumers, f.depth, (f.shape, f.dtype), f.to_stream) for f in recording.fifos.values()
    } == fifos
    assert not any(f.from_stream for f in recording.fifos.values())
    assert recording.links == links
    assert recording.stacks == {0x2000}
    assert set(recording.cores) == {(c, 2 + r) for c in range(8) for r in range(rows)}
    for (c, row), body in recording.cores.items():
        split = part < 128
        a, b, out = f"A_{0 if split else row - 2}", f"B_{c}_{row - 2}" if split else f"B_{c}", f"C_{c}_{row - 2}"
        assert body == [
            ("for", 0xFFFFFFFF),
            ("acquire", out, "produce", 1),
            ("call", "zero_i32", (out, "produce")),
            ("for", 5120 // k),
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


def test_a_without_longer_runs_is_blocked_by_the_cores():
    """K = 704 = 11 x 64: nothing longer than a K tile divides it, so A takes no mem tile."""
    for tag, M, consumers in (("_b8", 128, 8), ("_pb16i", 16, 32)):
        recording = recorded(tag, M, 704, 1024, 8)
        assert not any(name.startswith("A_mem") for name in recording.fifos)
        fifo = recording.fifos["A_0"]
        m = fifo.shape[0]
        assert fifo.producer == (0, 0)
        assert fifo.from_stream == (((m, 8), (8, 8 * m), (8, 1)),) * consumers
        (first, *_) = tasks_of(recording, "A_0")
        assert (first.sizes, first.strides) == ((1, 11, m, 64), (0, 64, 704, 1))


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
    fills = [[f"A_mem_{r}" for r in range(4)] + [f"B_mem_{c}" for c in range(4)] for _ in range(3)]
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


def test_the_sealed_program_configures_once_and_tells_the_cores_their_counts():
    geometries = [(17408, 5120), (5120, 14336), (5120, 10240), (5120, 14336)]
    recording = record(render_sealed(ROOT, "_pb16i", geometries, 8).text)
    assert list(recording.sequences) == ["init", "seq_K5120_N10240", "seq_K5120_N14336", "seq_K17408_N5120"]
    assert recording.sequences["init"].steps == [("load_pdi", "main")]
    assert recording.device == ("npu2", "main")
    assert set(recording.cores) == {(c, 2 + r) for c in range(8) for r in range(4)}
    for c, row in recording.cores:
        r = row - 2
        assert recording.buffers[f"counts_{c}_{r}"] == ((c, row), (16,), np.int32)
        assert recording.locks[f"go_{c}_{r}"] == ((c, row), 0)
        a, b, out = "A_0", f"B_{c}_{r}", f"C_{c}_{r}"
        assert recording.cores[c, row] == [
            ("for", 0xFFFFFFFF),
            ("use_lock", f"go_{c}_{r}", "acquire_ge", 1),
            ("load", f"counts_{c}_{r}", 0),
            ("load", f"counts_{c}_{r}", 1),
            ("for", ("index", f"counts_{c}_{r}", 0)),
            ("acquire", out, "produce", 1),
            ("call", "zero_i32", (out, "produce")),
            ("for", ("index", f"counts_{c}_{r}", 1)),
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
            for r in range(4)
            for c in range(8)
            for step in (
                ("rtp", f"counts_{c}_{r}", 0, groups),
                ("rtp", f"counts_{c}_{r}", 1, K // 64),
                ("lock", f"go_{c}_{r}", 1),
            )
        ]
        assert sequence.steps[:96] == told
        assert not any(verb in ("load_pdi", "rtp", "lock") for verb, *_ in sequence.steps[96:])
        assert len(sequence.tasks) == tasks
        most_queued, most_live = replay(sequence)
        assert set(most_queued.values()) == {2}
        assert max(most_live.values()) == 6
    assert channels_fit(recording)


def test_a_sealed_programs_runs_of_a_divide_every_k():
    """1024 divides 5120, 6144 and 17408, so runs of 512 do; with 704 beside them only 64 does."""
    for Ks, run in (((5120, 6144, 17408), 512), ((5120, 768), 256), ((5120, 704), 64)):
        recording = record(render_sealed(ROOT, "_pb16i", [(K, 1024) for K in Ks], 8).text)
        for K in Ks:
            taps = {task.sizes for task in recording.sequences[f"seq_K{K}_N1024"].tasks if task.argument == 0}
            assert taps == {(1, K // run, 16, run)}


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
            for tag, layout in LAYOUT.items():
                shape = family_of(tag, ROOT).shape(DesignRequest(64, 128 * columns, M, tag, columns))
                assert shape.rows == rows_for(columns, layout, m16=M == 16)
                assert shape.rows == rows_of(tag, M, columns)

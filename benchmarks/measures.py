"""The measures that benchmarks/run.py takes, by name. Each yields rows of a subject against a named baseline."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import answer_measures
import client_measures
import numpy as np
from numpy.typing import NDArray
from run import Row, paired

from elfkiln.design.run_generator import run_generator
from elfkiln.engine import layouts
from elfkiln.families.family import DesignRequest, RenderedGenerator, render
from elfkiln.io.child import run_child
from elfkiln.project import find_project
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim import compiler as compilers
from elfkiln.targets.sim.make_elf import build_sim_elf
from elfkiln.targets.sim.sim_builder import SimBuilder
from elfkiln.targets.sim.sim_elf import SimElf
from elfkiln.targets.sim.zig_toolchain import SimToolchain
from kernel_library import POINTER, Tiles, aligned_copy, build_kernel_library

Array = NDArray[Any]

PROJECT = find_project(Path(__file__).parent)
PYTHON = sys.executable
ELFKILN = str(Path(sys.executable).parent / "elfkiln")
MAIN_JOB = "model=bonsai2-27b"
K, N, M = 5120, 14336, 128


def _command(words: Sequence[str], cwd: Path) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        subprocess.run(words, cwd=cwd, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    return run


def noop(scratch: Path) -> Iterator[Row]:
    """A second `doit elfs` of the main job against doit on a dodo.py with one empty task."""
    subprocess.run([ELFKILN, "elfs", MAIN_JOB], cwd=PROJECT.root, stdout=subprocess.DEVNULL, check=True)
    (scratch / "dodo.py").write_text(answer_measures.EMPTY_DODO)
    yield paired(
        "noop",
        "no-op doit elfs of 14 names",
        "doit on an empty dodo.py",
        _command([PYTHON, "-m", "doit", "elfs", MAIN_JOB], PROJECT.root),
        _command([PYTHON, "-m", "doit"], scratch),
        9,
    )


def check_missing(_scratch: Path) -> Iterator[Row]:
    """A whole check-missing process over the main job's 14 names against the bare start of Python."""
    subprocess.run([ELFKILN, "elfs", MAIN_JOB], cwd=PROJECT.root, stdout=subprocess.DEVNULL, check=True)
    yield paired(
        "check-missing",
        "elfkiln check-missing of 14 names",
        "python -c pass",
        _command([ELFKILN, "check-missing", MAIN_JOB], PROJECT.root),
        _command([PYTHON, "-c", "pass"], PROJECT.root),
        21,
    )


def cold_build(scratch: Path) -> Iterator[Row]:
    """The cold main job, 14 ELFs from nothing, against its zig commands alone, one and two at once."""
    root = copy_inputs(scratch / "project")
    recorded = _record_commands(root, scratch / "commands")
    for jobs in (1, 2):
        build = _command([ELFKILN, "elfs", MAIN_JOB, f"root={root}", "-n", str(jobs)], root)

        def cold(build: Callable[[], float] = build) -> float:
            shutil.rmtree(root / "out", ignore_errors=True)
            return build()

        def bare(jobs: int = jobs) -> float:
            start = time.perf_counter()
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(_replay, recorded))
            return time.perf_counter() - start

        title = f"cold build of 14 ELFs, {jobs} job{'s' * (jobs > 1)}"
        yield paired("cold-build", title, f"its {len(recorded)} zig commands, {jobs} at once", cold, bare, 3)


def copy_inputs(root: Path) -> Path:
    """Copy what the checkout builds from to `root`, without what it has built, and return `root`."""
    for name in ("generators", "templates", "kernels", "plans"):
        shutil.copytree(PROJECT.root / name, root / name)
    for name in ("toolchain.lock", "registry.yaml"):
        shutil.copy(PROJECT.root / name, root)
    return root


def _record_commands(root: Path, folder: Path) -> list[tuple[list[str], Path, dict[str, str]]]:
    """Build once in this process and keep every zig command with a copy of the folder it ran in."""
    from elfkiln.models.catalogue import model_requirements
    from elfkiln.project import Project
    from elfkiln.targets.table import builder_for
    from elfkiln.work.build import build_elfs

    recorded: list[tuple[list[str], Path, dict[str, str]]] = []
    original = run_child

    def record(words: Sequence[str | Path], **options: Any) -> Any:
        cwd = Path(options["cwd"])
        place = folder / str(len(recorded))
        recorded.append(([], place, {}))
        mine = len(recorded) - 1
        shutil.copytree(cwd, place)
        changed = [str(word).replace(str(cwd), str(place)) for word in words]
        environment = {name: value.replace(str(cwd), str(place)) for name, value in options["environment"].items()}
        recorded[mine] = (changed, place, environment)
        return original(words, **options)

    project = Project(root)
    sets = [model_requirements(project, MAIN_JOB.partition("=")[2])]
    # In this process, where the commands can be seen.
    with mock.patch.object(compilers, "run_child", record), mock.patch.object(SimBuilder, "own_processes", False):
        build_elfs(project, builder_for(project, "sim"), sets)
    return recorded


def _replay(command: tuple[list[str], Path, dict[str, str]]) -> None:
    words, cwd, environment = command
    for cache in ("zig-global", "zig-local"):
        shutil.rmtree(cwd / cache, ignore_errors=True)
    subprocess.run(words, cwd=cwd, env=environment, check=True, capture_output=True)


def ingest(scratch: Path) -> Iterator[Row]:
    """100 blobs of 300 KiB into the store against sha256, write and fsync of the same bytes."""
    rng = np.random.default_rng(1)
    number = iter(range(10**6))

    def fresh() -> list[bytes]:
        return [rng.bytes(300 * 1024) for _ in range(100)]

    def store() -> float:
        blobs, target = fresh(), Store(scratch / f"store-{next(number)}")
        start = time.perf_counter()
        # As a build stores what it made: durable when the call returns.
        target.add_all(blobs)
        return time.perf_counter() - start

    def plain() -> float:
        blobs, folder = fresh(), scratch / f"plain-{next(number)}"
        folder.mkdir()
        start = time.perf_counter()
        for blob in blobs:
            with (folder / hashlib.sha256(blob).hexdigest()).open("wb") as stream:
                stream.write(blob)
                stream.flush()
                os.fsync(stream.fileno())
        return time.perf_counter() - start

    yield paired("ingest", "store ingest of 100 x 300 KiB", "sha256 + write + fsync", store, plain, 5)


def site(scratch: Path) -> Iterator[Row]:
    """The static site of the checkout, its designs' facts kept, against a Python that writes the same files."""
    made, copied = scratch / "site", scratch / "copied"
    words = [ELFKILN, "site", f"out={made}"]
    subprocess.run(words, cwd=PROJECT.root, stdout=subprocess.DEVNULL, check=True)
    files = {path.relative_to(made): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    (scratch / "files.pickle").write_bytes(pickle.dumps({str(name): data for name, data in files.items()}))
    program = (
        "import os, pickle, sys\n"
        "for name, data in pickle.load(open(sys.argv[1], 'rb')).items():\n"
        "    path = os.path.join(sys.argv[2], name)\n"
        "    os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "    open(path, 'wb').write(data)\n"
    )
    yield paired(
        "site",
        "elfkiln site of the checkout",
        "python writing its files",
        _command(words, PROJECT.root),
        _command([PYTHON, "-c", program, str(scratch / "files.pickle"), str(copied)], scratch),
        5,
    )


def gemm(scratch: Path) -> Iterator[Row]:
    """The simulated 128 (and 16) x 5120 x 14336 GEMM against its microkernel in a plain loop, and against numpy."""
    rng = np.random.default_rng(2)
    a = rng.integers(-128, 128, (M, K), dtype=np.int8)
    b = rng.integers(-128, 128, (K, N), dtype=np.int8)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for tag, layout in (("_b8", "b8"), ("", "rm")):
        packed = layouts.pack(b, layout)
        for rows in (128, 16):
            folder = scratch / f"gemm-{layout}-{rows}"
            folder.mkdir()
            generator = render(PROJECT.root, DesignRequest(K, N, rows, tag, 8))
            elf = _simulated(folder, generator)
            plain = _plain_loop(folder, generator, a[:rows], layouts.pack(b, "b8"))
            title = f"simulated {rows} x {K} x {N} {layout}"

            def simulate(elf: SimElf = elf, rows: int = rows, packed: Any = packed) -> float:
                start = time.perf_counter()
                elf.run(a[:rows], packed)
                return time.perf_counter() - start

            yield paired("gemm", title, "its microkernel in a plain loop", simulate, plain, 5)
            if (layout, rows) == ("b8", 128):

                def blas() -> float:
                    start = time.perf_counter()
                    _ = wide_a @ wide_b
                    return time.perf_counter() - start

                yield paired("gemm", title, "numpy float32 matmul (BLAS threads, not exact)", simulate, blas, 3)


def _toolchain() -> SimToolchain:
    return SimToolchain.from_pin(read_lock(PROJECT.lock_file).target("sim"))


def _simulated(folder: Path, generator: RenderedGenerator) -> SimElf:
    design = run_generator(generator.text, workdir=folder)
    built = build_sim_elf(
        design,
        generator.kernels,
        kernel_root=PROJECT.kernels,
        toolchain=_toolchain(),
        cache=PROJECT.cache,
        workdir=folder,
    )
    return SimElf(built.path)


def _plain_loop(folder: Path, generator: RenderedGenerator, a: Array, b: Array) -> Callable[[], float]:
    """Return a run of the microkernel over all tiles in a plain loop: B tile by B tile, each for every row tile of A.

    `a` is M x K row-major and `b` packed as b8. Both are laid out as the microkernel wants them before the clock runs.
    """
    (kernel,) = generator.kernels
    library = build_kernel_library(
        generator.kernels,
        {"zero_i32": (POINTER,), "matmul_i8_i32": (POINTER, POINTER, POINTER)},
        kernel_root=PROJECT.kernels,
        toolchain=_toolchain(),
        cache=PROJECT.cache,
        workdir=folder,
    )
    m = int(kernel.defines["DIM_M"])
    row_tiles, turns = len(a) // m, (len(a) // m) * (K // 64) * (N // 128)
    # 8 x 8 blocks k-block-major inside a tile, tiles in the order (k, row tile).
    tiles = a.reshape(row_tiles, m // 8, 8, K // 64, 8, 8).transpose(3, 0, 4, 1, 2, 5)
    a_tiles, b_tiles = aligned_copy(tiles), aligned_copy(b)
    c_tiles = aligned_copy(np.zeros((row_tiles, m * 128), np.int32))

    def run() -> float:
        start = time.perf_counter()
        library.loop(
            "matmul_i8_i32",
            turns,
            Tiles(a_tiles, 1, row_tiles * (K // 64), m * 64),
            Tiles(b_tiles, row_tiles, (K // 64) * (N // 128), 64 * 128),
            Tiles(c_tiles, 1, row_tiles, m * 128 * 4),
        )
        return time.perf_counter() - start

    return run


MEASURES: dict[str, Callable[[Path], Iterator[Row]]] = (
    {
        "noop": noop,
        "check-missing": check_missing,
        "cold-build": cold_build,
        "gemm": gemm,
        "ingest": ingest,
        "site": site,
    }
    | answer_measures.MEASURES
    | client_measures.MEASURES
)

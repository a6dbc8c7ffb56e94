"""Measures of the verbs that answer from what is kept: many names, every byte hashed, nothing to build."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from made_project import NAMES_EACH, make_project
from run import Row, paired

from elfkiln.project import Project, find_project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.table import builder_for
from elfkiln.work import build_state
from elfkiln.work.answers import look_at_all
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build import BuildReport

CHECKOUT = find_project(Path(__file__).parent).root
ELFKILN = str(Path(sys.executable).parent / "elfkiln")
EMPTY_DODO = """\
DOIT_CONFIG = {"backend": "sqlite3", "dep_file": ":memory:"}


def task_nothing():
    return {"actions": []}
"""
# Reads and hashes what check-missing has to: names on standard input, blobs below the folder named.
_PLAIN_READER = """\
import os, sys
from _hashlib import openssl_sha256 as sha256
os.chdir(sys.argv[1])
for name in sys.stdin.read().split():
    descriptor = os.open(name, os.O_RDONLY)
    data = os.read(descriptor, 1 << 20)
    os.close(descriptor)
    assert sha256(data).hexdigest() == name
"""


def _timed(words: Sequence[str], cwd: Path, given: bytes = b"") -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        subprocess.run(words, cwd=cwd, stdout=subprocess.DEVNULL, input=given, check=True)
        return time.perf_counter() - start

    return run


def noop_all(scratch: Path) -> Iterator[Row]:
    """`doit elfs model=all` with nothing to build against doit on a dodo.py with one empty task.

    11 models, 220 names of 190 KB each (the checkout's own models ask for 209): 42 MB, every byte hashed.
    """
    project = make_project(scratch / "noop-all", 11, 190_000, checkout=CHECKOUT)
    _keep(project)
    (scratch / "dodo.py").write_text(EMPTY_DODO)
    yield paired(
        "noop-all",
        f"no-op doit elfs model=all, {11 * NAMES_EACH} names, 42 MB",
        "doit on an empty dodo.py",
        _timed([sys.executable, "-m", "doit", "elfs", "model=all", f"root={project.root}"], CHECKOUT),
        _timed([sys.executable, "-m", "doit"], scratch),
        9,
    )


def _keep(project: Project) -> None:
    """Keep that nothing is to do, as a run of `elfs` that found all recipes unchanged would."""
    pin = read_lock(project.lock_file).target("sim")
    models = sorted(path.name for path in project.plans.iterdir())
    asked = [asked_by_model(project, model) for model in models]
    nothing = BuildReport(pin.name, pin.digest, 0, 0, (), (), (), ())
    with mock.patch.object(build_state, "build_elfs", return_value=nothing):
        build_state.keep_state(project, builder_for(project, "sim"), asked, None)


def check_many(scratch: Path) -> Iterator[Row]:
    """A whole check-missing process over 10,000 names (500 models) against a loop that reads and hashes the blobs."""
    project = make_project(scratch / "many", 500, 4096, checkout=CHECKOUT)
    words = [ELFKILN, "check-missing", "model=all", f"root={project.root}"]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    names = "\n".join(
        line.split("\t")[2]
        for path in sorted((project.index / "check").iterdir())
        for line in path.read_text().splitlines()
        if line.startswith("row\t")
    ).encode()
    yield paired(
        "check-many",
        f"elfkiln check-missing of {500 * NAMES_EACH:,} names",
        "python reading and hashing their blobs",
        _timed(words, CHECKOUT),
        _timed([sys.executable, "-c", _PLAIN_READER, str(project.blobs)], CHECKOUT, names),
        9,
    )


def hashing(scratch: Path) -> Iterator[Row]:
    """512 MB of blobs hashed as check-missing does, against sha256sum, as many at once as there are processors."""
    folder = scratch / "hashing"
    folder.mkdir()
    sizes = {}
    for number in range(64):
        path = folder / str(number)
        path.write_bytes(os.urandom(1 << 20) * 8)
        sizes[str(path)] = 8 << 20
    jobs = os.cpu_count() or 1

    def ours() -> float:
        start = time.perf_counter()
        look_at_all(sizes)
        return time.perf_counter() - start

    words = ["xargs", "-P", str(jobs), "-n", "4", "sha256sum"]
    theirs = _timed(words, folder, "\n".join(sizes).encode())
    yield paired("hashing", "hashing 512 MB", f"sha256sum, {jobs} at once", ours, theirs, 5)


MEASURES: dict[str, Callable[[Path], Iterator[Row]]] = {
    "noop-all": noop_all,
    "check-many": check_many,
    "hashing": hashing,
}

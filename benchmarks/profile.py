"""Names the ten largest costs of a cold build of the main job: where its processor time goes, phase by phase.

Usage: .venv/bin/python benchmarks/profile.py [MODEL] [--functions]

The build runs in one process with one job, as a worker does it: what it forks and starts is timed from outside, the
rest by its parts. Seconds are wall time; on a busy machine look at the shares. `--functions` adds cProfile's first
twenty functions of the worker's own time.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from cProfile import Profile

HERE = Path(__file__).resolve().parent
# Last: this file bears the name of one of Python's own modules, which others import.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != HERE]
sys.path += [str(HERE), str(HERE.parent / "tests" / "support")]
MOST = 10
# As workers are started, so that generators run in forks: their sets have one order, and BLAS brings no threads.
WORKERS = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
# What is timed: the place of a function, and what its time is called. Time inside of another one counts there alone.
PARTS = (
    ("elfkiln.work.build.plan_jobs", "render the generators"),
    ("elfkiln.design.run_generator.run_forked", "run the generators, print and read their designs"),
    ("elfkiln.design.run_generator._handed_over", "take over the designs"),
    ("elfkiln.targets.sim.make_elf.lower", "lower the designs"),
    ("elfkiln.targets.sim.make_elf.c_source", "print C"),
    ("elfkiln.targets.sim.make_elf.note_of", "make the notes of ELFs"),
    ("elfkiln.lint.sequences.lint_order", "lint: the order walk"),
    ("elfkiln.lint.gate.lint", "lint: everything else"),
    ("elfkiln.work.obtain.check_names", "check the ELFs"),
    ("elfkiln.work.obtain.put_artifact", "store the artifacts"),
    ("elfkiln.work.build.register", "write registry.yaml"),
    ("elfkiln.work.recipes.package_digest", "hash this package"),
    ("elfkiln.work.jobs.package_digest", "hash this package"),
    ("elfkiln.work.obtain.origin_of", "hash what led to the recipes"),
    ("elfkiln.targets.sim.sim_builder.SimBuilder.prepare", "hash zig"),
)


class Clock:
    """Adds up the time of parts; a part inside of another stops the outer one's."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._open: list[list[Any]] = []

    def timed(self, call: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """Return a call whose time counts under what `name` makes of its arguments."""

        def run(*given: Any, **named: Any) -> Any:
            now = time.perf_counter()
            if self._open:
                self.seconds[self._open[-1][0]] += now - self._open[-1][1]
            part = name(*given, **named)
            self._open.append([part, now])
            try:
                return call(*given, **named)
            finally:
                now = time.perf_counter()
                self.seconds[part] += now - self._open.pop()[1]
                self.calls[part] += 1
                if self._open:
                    self._open[-1][1] = now

        return run


def profile(model: str, root: Path, functions: Profile | None = None) -> tuple[Clock, float]:
    """Build a model's ELFs from nothing below `root`; return the time of its parts, and that of all."""
    from elfkiln.io.child import run_child
    from elfkiln.models.catalogue import model_requirements
    from elfkiln.project import Project
    from elfkiln.targets.sim import compiler
    from elfkiln.targets.sim.sim_builder import SimBuilder
    from elfkiln.targets.table import builder_for
    from elfkiln.work import worker
    from elfkiln.work.build import build_elfs

    clock = Clock()
    worker.import_once()
    project = Project(root)
    sets = [model_requirements(project, model)]

    def command(words: Sequence[Any], **_: Any) -> str:
        return f"zig {words[1]}{' -E' if '-E' in words else ''}"

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(SimBuilder, "own_processes", False))
        stack.enter_context(mock.patch.object(compiler, "run_child", clock.timed(run_child, command)))
        for place, title in PARTS:
            stack.enter_context(mock.patch(place, clock.timed(_at(place), lambda *_, title=title, **__: title)))
        if functions is not None:
            functions.enable()
        start = time.perf_counter()
        report = build_elfs(project, builder_for(project, "sim"), sets)
        total = time.perf_counter() - start
        if functions is not None:
            functions.disable()
    assert report.exit_code == 0, report.failures
    assert clock.calls["run the generators, print and read their designs"] == report.recipes, "not run in forks"
    return clock, total


def _at(place: str) -> Any:
    """Return what stands at a dotted place."""
    parts = place.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = __import__(".".join(parts[:cut]), fromlist=["_"])
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ImportError(place)


def main(words: Sequence[str]) -> int:
    """Print the first ten costs."""
    if WORKERS.items() - os.environ.items():
        os.execve(sys.executable, [sys.executable, __file__, *words], os.environ | WORKERS)
    import cProfile
    import pstats

    from measures import copy_inputs

    model = next((word for word in words if not word.startswith("--")), "bonsai2-27b")
    functions = cProfile.Profile() if "--functions" in words else None
    scratch = Path(tempfile.mkdtemp(prefix="elfkiln-profile-"))
    try:
        clock, total = profile(model, copy_inputs(scratch / "project"), functions)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"cold build of {model}, one job, {total:.2f} s without starting Python")
    rest = ("everything else", total - sum(clock.seconds.values()))
    for title, seconds in sorted((*clock.seconds.items(), rest), key=lambda row: -row[1])[:MOST]:
        print(f"{seconds / total:6.1%} {seconds:7.3f} s {clock.calls.get(title, 0):5} x  {title}")
    if functions is not None:
        pstats.Stats(functions).sort_stats("tottime").print_stats(20)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

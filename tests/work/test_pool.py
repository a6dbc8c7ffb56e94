"""Builds in processes of their own: the same as in one, and whatever ends one of them ends no other's work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe

import pytest
from filelock import FileLock

from elfkiln.io import locking
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.registry import load_registry
from elfkiln.work import worker
from elfkiln.work.build import build_elfs
from elfkiln.work.jobs import plan_jobs
from elfkiln.work.pool import Pool
from elfkiln.work.worker import STORES, Failed, Means, Note, Obtained, Phase, Task, do
from processes import gone, wait_for
from projects import SUPPORT, TINY_NAMES, TINY_RECIPES

KILLED = "the process that built it has ended (killed, by hand or for want of memory); run again"


@pytest.fixture
def apart(stand_in):
    """A builder whose builds are worth processes of their own."""
    stand_in.own_processes = True
    return stand_in


def elfs(project, builder, **options):
    return build_elfs(project, builder, [model_requirements(project, "tiny")], **options)


def test_builds_apart_register_what_a_build_in_one_process_does(project, apart):
    report = elfs(project, apart, jobs=2)
    assert (report.exit_code, report.names, report.recipes, len(report.built)) == (
        0,
        TINY_NAMES,
        TINY_RECIPES,
        TINY_NAMES,
    )
    # Nothing was built in this process.
    assert apart.built == []
    there = load_registry(project.registry_file).entries("sim")
    apart.own_processes = False
    again = elfs(project, apart, rebuild=True)
    assert (again.exit_code, len(apart.built)) == (0, TINY_RECIPES)
    assert load_registry(project.registry_file).entries("sim") == there


def test_a_process_that_dies_fails_its_own_recipe_alone_and_the_rest_is_built(project, apart):
    """With one process, so that another has to be started for what is left."""
    apart.killed_for = "M, K, N = 128, 256, 768"
    report = elfs(project, apart, jobs=1)
    assert report.exit_code == 1
    assert {failure.reason for failure in report.failures} == {KILLED}
    assert all("N768" in failure.key for failure in report.failures)
    assert len(report.built) + len(report.failures) == TINY_NAMES


def test_fail_fast_ends_what_runs_and_tells_every_name(project, apart):
    apart.fail_for = "M, K, N = 128, 256, 768"
    report = elfs(project, apart, jobs=1, fail_fast=True)
    reasons = [failure.reason for failure in report.failures]
    assert "the stand-in was told to fail" in reasons
    assert "not built: stopped at the first failure; run again" in reasons
    assert len(report.built) + len(reasons) == TINY_NAMES
    # Without it nobody is stopped.
    report = elfs(project, apart, jobs=1)
    assert {failure.reason for failure in report.failures} == {"the stand-in was told to fail"}


def test_shared_parts_are_made_before_the_first_recipe_and_only_for_a_first_build(project, apart, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    apart.parts_in = str(parts)
    # One at a time gains nothing by it.
    assert elfs(project, apart, jobs=1).exit_code == 0
    assert list(parts.iterdir()) == []
    # A build of what is registered and stored, with every memo gone, finds that it has nothing to compile.
    shutil.rmtree(project.cache)
    assert elfs(project, apart, jobs=2, rebuild=True).exit_code == 0
    assert list(parts.iterdir()) == []
    shutil.rmtree(project.out)
    report = elfs(project, apart, jobs=2)
    # The part that cannot be made fails no recipe: whoever needs it would say so.
    assert (report.exit_code, len(report.built)) == (0, TINY_NAMES)
    assert [(part.name, part.read_text()) for part in parts.iterdir()] == [(str(TINY_RECIPES), "0 True")]


def test_while_one_stores_another_begins_and_no_more_build_than_were_asked_for(monkeypatch):
    """With lines whose other ends are held here: what a worker gets, and when."""
    ends = []

    def fork(pool, count):
        for _ in range(count):
            ours, theirs = Pipe()
            pool._lines.append(ours)
            ends.append(theirs)

    monkeypatch.setattr(Pool, "_start", lambda _: None)
    monkeypatch.setattr(Pool, "_fork", fork)

    def got():
        return [end.recv() if end.poll() else None for end in ends]

    with Pool() as pool:
        pool.take(None, 2)
        messages = pool.run(["a", "b", "c", "d"])
        assert next(messages) is None
        assert got() == ["a", "b", None]
        ends[0].send(Phase("check"))
        assert (next(messages), next(messages)) == ((0, Phase("check")), None)
        assert got() == [None, None, None]
        ends[0].send(STORES)
        assert (next(messages), next(messages)) == ((0, STORES), None)
        assert got() == [None, None, "c"]
        # The one that has stored is free, but two build.
        ends[0].send(Failed("a", 1))
        assert (next(messages), next(messages)) == ((0, Failed("a", 1)), None)
        assert got() == [None, None, None]
        ends[2].send(Failed("c", 1))
        assert (next(messages), next(messages)) == ((2, Failed("c", 1)), None)
        # The line that was busy last, though another has waited for longer.
        assert got() == [None, None, "d"]
        ends[1].send(Failed("b", 1))
        ends[2].send(Failed("d", 1))
        assert sorted(number for number, _ in messages) == [1, 3]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_of_a_build_outlives_it(how, project, tmp_path):
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from pathlib import Path\n"
        "from projects import build_in_process\n"
        "build_in_process(Path(sys.argv[1]), b'', own_processes=True, hangs_in=sys.argv[2])\n"
    )
    marks = tmp_path / "marks"
    marks.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(project.root), str(marks)],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(lambda: len(list(marks.iterdir())) == min(os.cpu_count() or 1, TINY_RECIPES))
    parent.send_signal(how)
    assert parent.wait(30) != 0
    assert all(gone(int(mark.stem)) for mark in marks.iterdir())


def test_phases_come_before_the_outcome_and_who_waits_says_for_whom(project, stand_in, monkeypatch):
    (job, *_), _ = plan_jobs(project, stand_in, [model_requirements(project, "tiny")])
    sent = []
    means = Means(project, stand_in)
    assert isinstance(do(means, None, Task(job, {}), sent.append), Obtained)
    assert sent == [Phase("check"), Phase("store")]
    # Another process has the recipe's lock for a while.
    monkeypatch.setitem(locking.locked.__wrapped__.__kwdefaults__, "said_after", 0.05)
    (lock,) = project.locks.glob("*.lock")
    sent.clear()
    holder = FileLock(lock, thread_local=False)
    holder.acquire()
    threading.Timer(0.3, holder.release).start()
    reader, writer = Pipe(duplex=False)
    monkeypatch.setattr(sys, "stderr", worker._Said(writer))
    do(means, None, Task(job, {}), sent.append)
    assert sent == []
    said = reader.recv()
    assert said == Note(f"elfkiln: waiting for the build of {job.title}, which this process itself has")


def test_a_pool_that_is_left_ends_its_processes_at_once(project, apart, tmp_path):
    apart.hangs_in = str(tmp_path)
    (job, *_), _ = plan_jobs(project, apart, [model_requirements(project, "tiny")])
    with Pool() as pool:
        pool.take(Means(project, apart), 1)
        messages = pool.run([Task(job, {})])
        while not list(tmp_path.glob("*.pid")):
            assert not isinstance(next(messages), tuple) or time.sleep(0.01) is None
        started = time.monotonic()
    assert time.monotonic() - started < 20
    assert all(gone(int(mark.stem)) for mark in tmp_path.glob("*.pid"))


def test_a_fault_of_our_own_is_an_outcome(project, stand_in, monkeypatch):
    (job, *_), _ = plan_jobs(project, stand_in, [model_requirements(project, "tiny")])
    monkeypatch.setattr("elfkiln.work.worker.obtain", lambda *_, **__: 1 / 0)
    found = do(Means(project, stand_in), None, Task(job, {}), lambda _: None)
    assert isinstance(found, Failed)
    assert (found.reason, found.exit_code) == ("internal error: ZeroDivisionError: division by zero", 1)
    assert found.log.startswith("Traceback")

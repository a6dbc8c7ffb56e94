"""Functions of ours in forks: the guard that programs have, a clean process, and nothing that outlives its parent."""

# ruff: noqa: T201 the work prints

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import pytest

from elfkiln.io.child import GIB, MIB, ChildStopped, Limits, run_forked
from processes import gone, number_in, wait_for

ENVIRONMENT = {"ONLY": "this", "TZ": "UTC"}
# Of memory a fork has what its parent had.
LIMITS = Limits(seconds=60, cpu_seconds=60, memory_bytes=64 * GIB, file_bytes=64 * MIB)


def run(work, folder, **limits):
    return run_forked(work, name="work", cwd=folder, environment=ENVIRONMENT, limits=replace(LIMITS, **limits))


def test_the_work_has_streams_folder_and_environment_of_its_own(tmp_path):
    with tempfile.TemporaryFile() as inherited:

        def work():
            found = sorted(map(int, os.listdir("/proc/self/fd")))
            assert inherited.fileno() not in found
            print(json.dumps([dict(os.environ), os.getcwd(), sys.stdin.read(), found[:3], len(found)]))
            print("error", file=sys.stderr)
            return 3

        done = run(work, tmp_path)
        assert inherited.closed is False
    assert (done.exit_code, done.err) == (3, "error\n")
    # The fourth descriptor is the listing itself.
    assert json.loads(done.out) == [ENVIRONMENT, os.path.realpath(tmp_path), "", [0, 1, 2], 4]


def test_what_the_work_raises_is_its_end_and_not_ours(tmp_path):
    def work():
        print("before")
        raise KeyError("x")

    done = run(work, tmp_path)
    assert (done.exit_code, done.out) == (1, "before\n")
    assert done.err.rstrip().endswith("KeyError: 'x'")
    done = run(lambda: os.kill(os.getpid(), signal.SIGSEGV), tmp_path)
    assert done.ending == "killed by signal 11 (SIGSEGV)"


def test_output_is_whole_and_limits_hold(tmp_path):
    assert run(lambda: print("b" * 3_000_000) or 0, tmp_path).stdout == b"b" * 3_000_000 + b"\n"
    with pytest.raises(ChildStopped, match=r"^work printed more than 1000000 bytes and was killed"):
        run(lambda: print("b" * 3_000_000) or 0, tmp_path, printed_bytes=1_000_000)

    def write():
        with open("file", "wb") as stream:
            while True:
                stream.write(bytes(65536))

    assert "File too large" in run(write, tmp_path, file_bytes=MIB).err


SLEEPER = "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session={})"


@pytest.mark.parametrize("session", [False, True])
def test_work_that_hangs_is_killed_with_what_it_started(session, tmp_path):
    def work():
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        other = subprocess.Popen(words, start_new_session=session)
        (tmp_path / "pid").write_text(f"{other.pid}\n")
        time.sleep(600)
        return 0

    with pytest.raises(ChildStopped, match=r"^work did not end in 1\.5 s and was killed with all it had started$"):
        run(work, tmp_path, seconds=1.5)
    assert gone(number_in(tmp_path / "pid"))


PARENT = f"""\
import os, signal, subprocess, sys, time
from pathlib import Path
from elfkiln.io.child import GIB, Limits, run_forked
os.setsid()
def work():
    {SLEEPER.format(True)}
    Path('other').write_text(f'{{other.pid}}\\n')
    Path('pid').write_text(f'{{os.getpid()}}\\n')
    time.sleep(600)
    return 0
run_forked(work, name='work', cwd=Path(sys.argv[1]), environment={{}}, limits=Limits(600, 600, 64 * GIB, GIB))
"""


@pytest.mark.parametrize("group", [False, True])
def test_nothing_outlives_a_parent_that_is_killed_alone_or_with_its_group(group, tmp_path):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)])
    own = wait_for(lambda: number_in(tmp_path / "pid"))
    other = number_in(tmp_path / "other")
    (os.killpg if group else os.kill)(parent.pid, signal.SIGKILL)
    parent.wait(30)
    assert gone(own)
    assert gone(other)


def test_a_killed_guardian_is_told_and_its_child_ends(tmp_path):
    def work():
        (tmp_path / "pid").write_text(f"{os.getpid()}\n")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
        return 0

    with pytest.raises(ChildStopped, match=r"^work: the process that watches over child processes was killed; run ag"):
        run(work, tmp_path)
    assert gone(number_in(tmp_path / "pid"))

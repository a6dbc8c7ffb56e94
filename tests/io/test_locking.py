"""Locks between processes: a killed holder holds nothing, and whoever waits says for what and whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.io.locking import free_lock, holder_of, locked

HOLD = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from elfkiln.io.locking import locked\n"
    "with locked(Path(sys.argv[1]), 'the thing'):\n"
    "    print('held', flush=True)\n"
    "    time.sleep(float(sys.argv[2]))\n"
)


@pytest.fixture
def hold(tmp_path):
    """Start a process that holds a lock of `tmp_path` for some seconds; it is ended with the test."""
    started = []

    def start(seconds):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "lock"), str(seconds)], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_who_waits_is_told_once_and_by_whom_it_is_held(tmp_path, hold):
    holder = hold(1.0)
    said = []
    with locked(tmp_path / "lock", "registry.yaml", said_after=0.2, note=said.append):
        pass
    (line,) = said
    assert line.startswith(f"waiting for registry.yaml, which process {holder.pid} (python")
    assert line.endswith("has")


def test_a_free_lock_is_taken_without_a_word(tmp_path):
    said = []
    for _ in range(2):
        with locked(tmp_path / "new" / "lock", "a thing", note=said.append):
            assert holder_of(tmp_path / "new" / "lock") == "this process itself"
    assert said == []


def test_the_line_goes_to_standard_error_unless_told_otherwise(tmp_path, hold, capsys):
    hold(1.0)
    with locked(tmp_path / "lock", "the store", said_after=0.2):
        pass
    assert capsys.readouterr().err.startswith("elfkiln: waiting for the store, which process ")


def test_a_killed_holder_holds_nothing(tmp_path, hold):
    holder = hold(600)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    began = time.monotonic()
    with locked(tmp_path / "lock", "a thing", patience=30):
        assert time.monotonic() - began < 10


def test_patience_ends_in_one_line_with_the_holder(tmp_path, hold):
    holder = hold(600)
    said = []
    with (
        pytest.raises(Differs, match=rf"^the thing: process {holder.pid} .* has had it for 0.4 s; wait for"),
        locked(tmp_path / "lock", "the thing", said_after=0.1, patience=0.4, note=said.append),
    ):
        pytest.fail("the lock was held")
    assert len(said) == 1
    with free_lock(tmp_path / "lock") as free:
        assert not free


def test_two_threads_take_turns(tmp_path):
    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(5):
            with locked(tmp_path / "lock", "a thing"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_place_where_no_lock_can_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="file"), locked(tmp_path / "file" / "lock", "a thing"):
        pytest.fail("no lock could be made")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to("victim")
    with pytest.raises(Refused, match="lock"), locked(tmp_path / "lock", "a thing"):
        pytest.fail("the link was followed")
    assert (tmp_path / "victim").read_text() == "precious"
    assert os.path.islink(tmp_path / "lock")

"""Looking at processes from outside: whether one is alive, and which are below another."""

from __future__ import annotations

import time
from pathlib import Path


def alive(pid):
    """Whether a process runs; one that has ended and waits to be looked at (a zombie) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid, seconds=20.0):
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_for(what, seconds=60.0):
    """Return what a call returns as soon as that is true; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
    return found


def number_in(path):
    """Return the number a program wrote into a file, None while it is not there whole (it ends with a line end)."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    return int(text) if text.endswith("\n") else None

"""Faults at the calls a process makes to the system: a kill, half a write, or an error, at the N-th call of a run.

The functions of `os` and `open` that touch files below one folder are replaced by ones that count. No root, no
preloaded library: what is replaced is what Python calls, so a fault comes at each rename, link, fsync, write, open,
read, unlink and mkdir that elfkiln makes, wherever it makes it.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import signal
import threading
from collections import Counter

_CHANGES = ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "symlink", "fsync", "write", "create")
KILL, TEAR = "kill", "tear"
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EMFILE": errno.EMFILE, "EDQUOT": errno.EDQUOT}
# Which calls the system gives which error for; a disk that is full stays full, the others pass.
OF = {
    KILL: _CHANGES,
    TEAR: ("write",),
    "ENOSPC": ("write", "create", "mkdir", "rename", "replace", "link", "symlink", "fsync"),
    "EDQUOT": ("write", "create", "mkdir", "link", "symlink"),
    "EIO": ("write", "fsync", "read", "open", "create", "rename", "replace", "link", "unlink"),
    "EMFILE": ("open", "create"),
}
LASTS = {"ENOSPC", "EDQUOT"}


class Faults:
    """Lets a fault come at the `at`-th call that it can hit of those on files below `root`; counts all calls by name.

    Without a fault nothing comes.
    """

    def __init__(self, root, fault="", at=0):
        self.root = os.path.realpath(root)
        self.fault, self.at, self.met, self.calls = fault, at, 0, Counter()
        self._guard = threading.Lock()
        self._inside = threading.local()

    def meet(self, call, path):
        """Count a call; return True where half of a write is to be done, raise or die where it is its turn."""
        if not self._below(path):
            return False
        with self._guard:
            self.calls[call] += 1
            if call not in OF.get(self.fault, ()):
                return False
            self.met += 1
            turn = self.met == self.at or (self.fault in LASTS and 0 < self.at < self.met)
        if not turn:
            return False
        if self.fault == TEAR:
            return True
        if self.fault == KILL:
            self.die()
        number = ERRORS[self.fault]
        raise OSError(number, os.strerror(number), os.fspath(path) if not isinstance(path, int) else None)

    def that_meet(self, fault):
        """Return how many of the calls that were counted a fault can hit."""
        return sum(self.calls[call] for call in OF[fault])

    @staticmethod
    def die():
        """End this process as `kill -9` does."""
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()

    def _below(self, path):
        if getattr(self._inside, "busy", False):
            return False
        self._inside.busy = True
        try:
            if isinstance(path, int):
                path = _readlink(f"/proc/self/fd/{path}")
            place = os.path.abspath(os.fsdecode(path))
            return place == self.root or place.startswith(self.root + os.sep)
        except (OSError, TypeError, ValueError):
            return False
        finally:
            self._inside.busy = False


_readlink = os.readlink
_PLAIN = ("rename", "replace", "link", "symlink", "mkdir", "rmdir", "unlink", "remove", "fsync")


@contextlib.contextmanager
def injected(faults):
    """Let the faults come for a block; undone afterwards, where there is an afterwards."""
    saved = {name: getattr(os, name) for name in (*_PLAIN, "open", "write", "read")}
    opened = io.open
    for name in _PLAIN:
        setattr(os, name, _counting(faults, "unlink" if name == "remove" else name, saved[name]))
    os.open = _opening(faults, saved["open"])
    os.write = _writing(faults, saved["write"])
    os.read = _reading(faults, saved["read"])
    io.open = builtins.open = _streams(faults, opened)
    try:
        yield faults
    finally:
        for name, function in saved.items():
            setattr(os, name, function)
        io.open = builtins.open = opened


def _place(path, words):
    folder = words.get("dir_fd", words.get("dst_dir_fd"))
    return path if folder is None else os.path.join(_readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))


def _counting(faults, call, function):
    two = call in ("rename", "replace", "link", "symlink")

    def counted(*given, **words):
        # Of two paths the second is the one that appears.
        faults.meet(call, _place(given[1] if two and len(given) > 1 else given[0], words))
        return function(*given, **words)

    return counted


def _opening(faults, function):
    def counted(path, flags, *given, **words):
        faults.meet("create" if flags & os.O_CREAT else "open", _place(path, words))
        return function(path, flags, *given, **words)

    return counted


def _writing(faults, function):
    def counted(descriptor, data):
        if faults.meet("write", descriptor):
            function(descriptor, bytes(data)[: len(data) // 2])
            faults.die()
        return function(descriptor, data)

    return counted


def _reading(faults, function):
    def counted(descriptor, size):
        faults.meet("read", descriptor)
        return function(descriptor, size)

    return counted


def _streams(faults, opened):
    class Raw(io.FileIO):
        def write(self, data):
            if faults.meet("write", self.fileno()):
                super().write(bytes(data)[: len(data) // 2])
                faults.die()
            return super().write(data)

        def readinto(self, buffer):
            faults.meet("read", self.fileno())
            return super().readinto(buffer)

        def read(self, size=-1):
            faults.meet("read", self.fileno())
            return super().read(size)

        def readall(self):
            faults.meet("read", self.fileno())
            return super().readall()

    def counted(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        if opener is None and not isinstance(file, int):
            faults.meet("open" if "r" in mode else "create", file)
        if "b" not in mode:
            return opened(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = Raw(file, mode.replace("b", ""), closefd, opener)
        if buffering == 0:
            return raw
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        return kind(raw)

    return counted

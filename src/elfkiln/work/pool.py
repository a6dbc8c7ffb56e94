"""A pool of the processes that build: tasks in, phases and outcomes out, in the order in which they come.

The processes import once and are forked (`elfkiln.work.worker`), so that a build costs what its tools cost. Whatever
ends this process ends them, and a worker that dies fails its own task alone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path

import elfkiln
from elfkiln.errors import EXIT_DIFFERS
from elfkiln.io.complaint import complaint
from elfkiln.io.variation import reproducing
from elfkiln.work.obtain import Obtained
from elfkiln.work.worker import Failed, Means, Message, Task

# The first words are what a list of processes shows of it.
_START = (
    "'builds ELFs for elfkiln'; import sys; sys.path.insert(0, sys.argv[1]); from elfkiln.work.worker import serve; "
    "serve(int(sys.argv[2]), [int(word) for word in sys.argv[3:]])"
)
_TICK_SECONDS = 0.2
# Generators run in forks of a worker: their sets must have one order, and BLAS must not bring threads.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1"}


class Pool:
    """`size` workers. Use it as a context manager: leaving it ends them."""

    def __init__(self, size: int) -> None:
        """Start the processes; they import while this one goes on."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the pool
        self._started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._lines: list[Connection] = []
        self._setup: tuple[object, bytes] | None = None
        self._start(size)

    def _start(self, size: int) -> None:
        life, their_life = socket.socketpair()
        pairs = [socket.socketpair() for _ in range(size)]
        theirs = [their_life.fileno(), *(there.fileno() for _, there in pairs)]
        root = str(Path(elfkiln.__file__).resolve().parents[1])
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-B", "-c", _START, root, *map(str, theirs)],
            env=dict(os.environ) if reproducing() else _environment(os.environ) | _ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=theirs,
            start_new_session=True,
        )
        their_life.close()
        for _, there in pairs:
            there.close()
        self._started.append((process, life))
        fresh = [Connection(here.detach()) for here, _ in pairs]
        self._lines += fresh
        if self._setup is not None:
            self._greet(fresh)

    def __enter__(self) -> Pool:
        """Return the pool itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End every process of it."""
        for line in self._lines:
            line.close()
        for process, life in self._started:
            life.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._errors.close()

    def take(self, means: Means) -> None:
        """Tell the workers what they build with; before the first task."""
        self._setup = (sys.path, dict(os.environ)), pickle.dumps(means)
        self._greet(self._lines)

    def _greet(self, lines: Iterable[Connection]) -> None:
        assert self._setup is not None
        for line in lines:
            with contextlib.suppress(OSError):  # its end is seen when a task is sent
                line.send(self._setup[0])
                line.send_bytes(self._setup[1])

    def run(self, tasks: Iterable[Task]) -> Generator[tuple[int, Message] | None]:
        """Do tasks, several at once; yield (number of the task, message) as they come, None where none comes for long.

        The last message of a task is its outcome.

        Whoever wants no more closes the generator, and then the pool, which ends what runs.
        """
        waiting = deque(enumerate(tasks))
        idle = list(self._lines)
        busy: dict[Connection, int] = {}
        while waiting or busy:
            while waiting and idle:
                number, task = waiting.popleft()
                line = idle.pop(0)
                busy[line] = number
                with contextlib.suppress(OSError):  # a dead worker's line ends, which is seen below
                    line.send(task)
            if waiting and not busy:
                # All workers died; what is left is for new ones.
                self._start(1)
                idle = [self._lines[-1]]
                continue
            ready = wait(list(busy), _TICK_SECONDS)
            if not ready:
                yield None
            for line in [line for line in busy if line in ready]:
                number = busy[line]
                try:
                    message = line.recv()
                except (EOFError, OSError):
                    del busy[line]
                    self._lines.remove(line)
                    line.close()
                    yield number, Failed(self._epitaph(), EXIT_DIFFERS)
                    continue
                if isinstance(message, Obtained | Failed):
                    del busy[line]
                    idle.append(line)
                yield number, message

    def _epitaph(self) -> str:
        """Return what is known of the end of a worker."""
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        # Other lines are about what was waited for.
        end = complaint(said) if "Traceback" in said else "killed, by hand or for want of memory"
        return f"the process that built it has ended ({end}); run again"


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in own.items() if not name.startswith("PYTHON")}

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
from elfkiln.io import sandbox
from elfkiln.io.complaint import complaint
from elfkiln.io.variation import reproducing
from elfkiln.work.obtain import Obtained
from elfkiln.work.worker import STORES, Ahead, Failed, Made, Means, Message, Task

# The first words are what a list of processes shows of it.
_START = (
    "'builds ELFs for elfkiln'; import sys; sys.path.insert(0, sys.argv[1]); from elfkiln.work.worker import serve; "
    "serve(int(sys.argv[2]))"
)
_TICK_SECONDS = 0.2
_NO_TASK = -1
# Generators run in forks of a worker: their sets must have one order, and BLAS must not bring threads.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1"}


class Pool:
    """Workers, once `take` has said how many. Use it as a context manager: leaving it ends them."""

    def __init__(self) -> None:
        """Start the process that the workers are forked from; it imports while this one goes on."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the pool
        self._started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._lines: list[Connection] = []
        self._size = 1
        self._setup: tuple[object, bytes] | None = None
        self._start()

    def _start(self) -> None:
        life, their_life = socket.socketpair()
        root = str(Path(elfkiln.__file__).resolve().parents[1])
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-B", "-c", _START, root, str(their_life.fileno())],
            env=dict(os.environ) if reproducing() else _environment(os.environ) | _ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=[their_life.fileno()],
            start_new_session=True,
        )
        their_life.close()
        self._started.append((process, life))

    def _fork(self, count: int) -> None:
        """Have workers forked from the process that was started last, and tell them what they build with."""
        assert self._setup is not None
        for _ in range(count):
            here, there = socket.socketpair()
            # A process that has died forks nobody, and the end of the line is seen when a task is sent.
            with there, contextlib.suppress(OSError):
                socket.send_fds(self._started[-1][1], [b"."], [there.fileno()])
            line = Connection(here.detach())
            self._lines.append(line)
            with contextlib.suppress(OSError):
                line.send(self._setup[0])
                line.send_bytes(self._setup[1])

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

    def take(self, means: Means, size: int) -> None:
        """Get `size` workers, and tell them what they build with; before the first task."""
        self._setup = (sys.path, dict(os.environ), sandbox.way()), pickle.dumps(means)
        self._size = size
        # Storing is waiting for the disk. Where several build, one more worker begins with the next task meanwhile.
        self._fork(size + 1 if size > 1 else size)

    def run(self, tasks: Iterable[Task], ahead: Iterable[Ahead] = ()) -> Generator[tuple[int, Message] | None]:
        """Do tasks, several at once; yield (number of the task, message) as they come, None where none comes for long.

        The last message of a task is its outcome. `ahead` is done before them, where several are done at once, and
        nothing is heard of it.

        Whoever wants no more closes the generator, and then the pool, which ends what runs.
        """
        waiting: deque[tuple[int, Task | Ahead]] = deque(enumerate(tasks))
        if self._size > 1:
            waiting.extendleft((_NO_TASK, one) for one in reversed(list(ahead)))
        idle = list(reversed(self._lines))
        busy: dict[Connection, int] = {}
        storing: set[Connection] = set()
        while waiting or busy:
            while waiting and idle and len(busy) - len(storing) < self._size:
                number, task = waiting.popleft()
                # The one that was busy last: it has what a first task would have to begin with.
                line = idle.pop()
                busy[line] = number
                with contextlib.suppress(OSError):  # a dead worker's line ends, which is seen below
                    line.send(task)
            if waiting and not busy:
                # All workers died; what is left is for new ones.
                self._start()
                self._fork(1)
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
                    message = Failed(self._epitaph(), EXIT_DIFFERS)
                else:
                    if message == STORES:
                        storing.add(line)
                    elif isinstance(message, Obtained | Failed | Made):
                        del busy[line]
                        idle.append(line)
                if line not in busy:
                    storing.discard(line)
                if number != _NO_TASK:
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

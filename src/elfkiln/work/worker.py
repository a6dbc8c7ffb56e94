"""The processes that build: one that imports everything once, and a fork of it for each recipe that is built at once.

Started by `elfkiln.work.pool` with a life line, over which come the lines of the workers to fork, and whose end means
that elfkiln is gone. What goes over a line is pickled. While a worker has no threads it may run generators in
forks of itself.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from elfkiln.errors import BuildFailed, ElfkilnError, brief, log_of_error
from elfkiln.io import sandbox
from elfkiln.io.files import space_refusal, storage_refusal
from elfkiln.io.keeper import dies_with
from elfkiln.io.variation import number_from, reproducing
from elfkiln.io.workspace import build_parent, private_folder
from elfkiln.project import Project
from elfkiln.store.registry import Entry
from elfkiln.targets.target import Builder, SharedParts
from elfkiln.work.jobs import Job
from elfkiln.work.mirrors import Mirrors, OpenMirrors
from elfkiln.work.obtain import Obtained, obtain
from elfkiln.work.recipes import package_digest

_YOUNG = 50_000
"""Objects made before Python looks for cycles: a design has hundreds of thousands that all stay, in no cycle."""


@dataclass(frozen=True, slots=True)
class Means:
    """What all tasks of a build are done with; it can be handed to another process."""

    project: Project
    builder: Builder
    mirrors: Mirrors | None = None

    def opened(self) -> OpenMirrors | None:
        """Return the mirrors ready to be asked."""
        return None if self.mirrors is None else self.mirrors.opened()


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is asked for: a job's artifact. `registered` are the entries of its names, to compare it with."""

    job: Job
    registered: Mapping[str, Entry]
    rebuild: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """What several tasks need, to be made before they ask for it (`targets.target.SharedParts`)."""

    part: object


@dataclass(frozen=True, slots=True)
class Made:
    """The end of an `Ahead`, whatever came of it: who needs the part finds it, or says why it cannot be made."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a task has come to, said while it is worked on."""

    name: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for standard error, said while a task is worked on: whom it waits for, which mirror has failed."""

    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """How a task failed: one line, the exit code it asks for, and what the tools said until then."""

    reason: str
    exit_code: int
    log: str = ""


Outcome = Obtained | Failed
Message = Phase | Note | Made | Outcome
STORES = Phase("store")
"""From here on a task takes no processor to speak of."""


def do(means: Means, mirrors: OpenMirrors | None, task: Task, send: Callable[[Message], None]) -> Outcome:
    """Do one task, and send what it comes to meanwhile; whatever goes wrong is the outcome, in one line."""
    log = ""
    try:
        return obtain(
            means.project,
            means.builder,
            task.job,
            rebuild=task.rebuild,
            registered=task.registered,
            say=lambda name: send(Phase(name)),
            mirrors=mirrors,
        )
    except ElfkilnError as error:
        log = log_of_error(error)
        failure = space_refusal(means.project.out) or error
    except OSError as error:
        failure = storage_refusal(Path(error.filename or means.project.out), error)
    except Exception as error:
        # Ours to mend, but it must not pass for a build that went well.
        log = traceback.format_exc()
        failure = BuildFailed(f"internal error: {type(error).__name__}: {brief(error)}")
    return Failed(str(failure), failure.exit_code, log)


def make_ahead(means: Means, ahead: Ahead) -> Made:
    """Make what several tasks need; what goes wrong is said by the first task that needs it."""
    assert isinstance(means.builder, SharedParts)
    # A fault of ours too: it would end the build of a recipe that comes to it, and ends nothing here.
    with contextlib.suppress(Exception), private_folder(build_parent(means.project.work)) as folder:
        means.builder.make_part(ahead.part, folder)
    return Made()


def do_here(means: Means, tasks: Iterable[Task]) -> Generator[tuple[int, Message]]:
    """Do tasks one after the other in this process, and yield what `Pool.run` does."""
    mirrors = means.opened()
    for number, task in enumerate(tasks):
        sent: list[Message] = []
        outcome = do(means, mirrors, task, sent.append)
        yield from ((number, message) for message in (*sent, outcome))


def serve(life: int) -> NoReturn:
    """Fork a worker for each line that comes over the life line, and end with all of them when that one ends."""
    server = os.getpid()
    # An interrupt is for elfkiln to see; it then ends the life line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import_once()
    gc.collect()
    gc.freeze()  # what is here already is not looked at, and so not copied, in the forks
    gc.set_threshold(_YOUNG, 50, 50)
    lines = socket.socket(fileno=life)
    for number in itertools.count():
        try:
            _, descriptors, _, _ = socket.recv_fds(lines, 1, 1)
        except OSError:
            break
        if not descriptors:
            break
        if os.fork() == 0:
            dies_with(server)
            number_from((number << 32) + 1)
            lines.close()
            _work(Connection(descriptors[0]))
        os.close(descriptors[0])
    # The whole session: workers, and the programs they run.
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def import_once() -> None:
    """Import what every build needs, in a process whose forks shall run generators."""
    # First, so that a source which is edited from now on is known to be younger than what runs.
    package_digest()
    from elfkiln.design.run_generator import prepare_to_fork

    if not reproducing():
        prepare_to_fork()
    import jinja2.meta  # noqa: F401

    import elfkiln.lint.gate
    import elfkiln.store.attestations
    import elfkiln.targets.sim.make_elf
    import elfkiln.targets.sim.sim_elf  # noqa: F401


def _work(line: Connection) -> NoReturn:
    """Do the tasks that come over a line until it ends."""
    code = 1
    try:
        sys.path[:0], environment, way = line.recv()
        os.environ.clear()
        os.environ.update(environment)
        sandbox.take(way)
        means: Means = pickle.loads(line.recv_bytes())
        mirrors = means.opened()
        while True:
            task: Task | Ahead = line.recv()
            sys.stderr = _Said(line)
            line.send(make_ahead(means, task) if isinstance(task, Ahead) else do(means, mirrors, task, line.send))
    except (EOFError, BrokenPipeError, ConnectionError):
        code = 0
    finally:
        os._exit(code)


class _Said(io.StringIO):
    """Standard error while a task is worked on: each line goes to elfkiln, which shows it."""

    def __init__(self, line: Connection) -> None:
        super().__init__()
        self.line = line

    def flush(self) -> None:
        """Send what was written since the last time."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        for said in text.splitlines():
            self.line.send(Note(said))

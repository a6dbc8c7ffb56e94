"""The one runner of child processes: nothing inherited, everything bounded, and none outlives this process.

A child gets the environment that is given and no other, an empty standard input, a session of its own, and limits of
time, memory, file size and output. It ends with this process, however that ends, and so does all it started: a program
of ours stands between (`elfkiln.io.keeper`), which the kernel lets know when this process is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from elfkiln.errors import BuildFailed
from elfkiln.io import keeper, sandbox
from elfkiln.io.variation import varied

KEPT_BYTES = 256 * 1024
"""What is kept of a stream's beginning, and again of its end; a child may print any amount up to its limit."""

_CHUNK = 1 << 16
_LOOK_SECONDS = 0.25
_FAREWELL_SECONDS = 30.0
_ENDING_TRIES, _ENDING_SECONDS = 20, 0.001
_MOST_DESCRIPTORS = 1 << 16
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may use: seconds of wall clock and of processor time, bytes of memory, of a file, of output.

    Processor time, memory (its address space) and the size of a file are counted per process, as the kernel does.
    `printed_bytes` bounds each of the two streams, `folder_bytes` the files below the working folder (None: any), in
    at most `folder_files` files and folders; `open_files` are open at once. An `offline` child has no network, as far
    as the system can forbid it (`elfkiln.io.sandbox`).
    """

    seconds: float
    cpu_seconds: int
    memory_bytes: int
    file_bytes: int
    printed_bytes: int = GIB
    folder_bytes: int | None = None
    folder_files: int = 100_000
    open_files: int = 4096
    offline: bool = False


@dataclass(frozen=True, slots=True)
class ChildRun:
    """How a child ended: `exit_code` is negative for a signal; the streams are bytes, shortened if they were long."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    limits: Limits

    @property
    def out(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode(errors="replace")

    @property
    def ending(self) -> str:
        """Return `exit code 3`, `killed by signal 9 (SIGKILL)`, or which limit was reached."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        if self.exit_code == -signal.SIGXCPU:
            return f"stopped after {self.limits.cpu_seconds} s of processor time"
        if self.exit_code == -signal.SIGXFSZ:
            return f"stopped at a file of more than {self.limits.file_bytes} bytes"
        with contextlib.suppress(ValueError):
            return f"killed by signal {-self.exit_code} ({signal.Signals(-self.exit_code).name})"
        return f"killed by signal {-self.exit_code}"


class ChildStopped(BuildFailed):
    """A child that could not be started, or did not end by itself: over its time, or over what it may print."""


def run_child(
    argv: Sequence[str | os.PathLike[str]],
    *,
    name: str,
    cwd: Path,
    environment: Mapping[str, str],
    limits: Limits,
    whole: bool = False,
    given: bytes = b"",
) -> ChildRun:
    """Run a program and wait for it and all it started; a failing exit code is the caller's to judge.

    `argv[0]` is the program's path; `given` is what it reads on standard input. `whole` keeps standard output to its
    last byte (up to `limits.printed_bytes`); else, and of standard error always, the first and last 256 KiB are kept.
    Raises `ChildStopped` naming the child when it cannot be started, does not end in time, prints more than it may or
    fills its folder.
    """
    words = tuple(os.fspath(word) for word in argv)
    words = (os.path.abspath(words[0]), *words[1:])
    way = sandbox.way() if limits.offline else sandbox.Way(sandbox.NONE)
    request = _request((*way.prefix, *words), cwd, varied(environment), limits, way.kind == sandbox.NAMESPACE)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_standard_input(given))
        ends = _KEEPER.start(request, source.fileno(), stack)
        return _follow(ends, words, name=name, cwd=cwd, limits=limits, whole=whole)


def try_way(way: sandbox.Way, argv: Sequence[str], limits: Limits) -> ChildRun:
    """Run a program kept from the network in a way that may not work here; raises as `run_child` does."""
    words, folder = tuple(argv), Path(os.sep)
    request = _request((*way.prefix, *words), folder, {}, limits, way.kind == sandbox.NAMESPACE)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_standard_input(b""))
        ends = _KEEPER.start(request, source.fileno(), stack)
        return _follow(ends, words, name="a program without network", cwd=folder, limits=limits, whole=False)


def has_threads() -> bool:
    """Whether this process has more than one thread, of Python or of a library; then it must not run Python in forks.

    A fork has only the thread that forked: what another one held (gRPC's hold its locks) is held in it for ever. Where
    the system does not say, there may be some.
    """
    for _ in range(_ENDING_TRIES):
        if threading.active_count() > 1:
            return True
        try:
            if len(os.listdir("/proc/self/task")) == 1:
                return False
        except OSError:
            return True
        # A thread of ours that was waited for may still be on its way out.
        time.sleep(_ENDING_SECONDS)
    return True


def run_forked(
    work: Callable[[], int], *, name: str, cwd: Path, environment: Mapping[str, str], limits: Limits
) -> ChildRun:
    """Run a function of ours in a process forked from this one, under the same guard as `run_child`'s programs.

    For a process without threads (`has_threads`): it saves the time that starting Python and importing takes. `work`
    returns the exit code; it has the modules of this process, and nothing else of it. Standard output is kept whole.
    """
    offline = limits.offline and sandbox.way().kind == sandbox.NAMESPACE
    request = _request((), cwd, environment, limits, offline)
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as given:
            ours, theirs = socket.socketpair()
            given.callback(theirs.close)
            source = given.enter_context(open(os.devnull, "rb")).fileno()
            ends = [os.pipe() for _ in range(2)]
            for read, write in ends:
                stack.callback(os.close, read)
                given.callback(os.close, write)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            guardian = os.fork()
            if guardian == 0:
                try:
                    # Whoever ends our group leaves it time to end what the child has started.
                    os.setsid()
                    streams = (source, ends[0][1], ends[1][1])
                    _close_all_but(theirs.fileno(), *streams)
                    keeper.guard(theirs.fileno(), *streams, work=lambda: _bare(work, environment))
                finally:
                    os._exit(0)
        stack.callback(os.waitpid, guardian, 0)
        # Hung up before it is waited for.
        stack.callback(ours.close)
        with contextlib.suppress(OSError):  # a guardian that was killed is found out below
            ours.sendall(request)
        return _follow((ours, ends[0][0], ends[1][0]), (), name=name, cwd=cwd, limits=limits, whole=True)


def _bare(work: Callable[[], int], environment: Mapping[str, str]) -> int:
    """Run the work of a forked child as a Python of its own would: with its environment, streams and signals."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    _close_all_but()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except OSError:
        code = code or 1
    sys.stderr.flush()
    return code


def _close_all_but(*kept: int) -> None:
    """Close what a forked process inherited: files, locks, and lines whose other ends wait for their end.

    Its standard streams stay, so that no other file gets their numbers.
    """
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, _MOST_DESCRIPTORS)


def _follow(
    ends: tuple[socket.socket, int, int],
    words: tuple[str, ...],
    *,
    name: str,
    cwd: Path,
    limits: Limits,
    whole: bool,
) -> ChildRun:
    """Read what a child prints until it has ended, or end it when it takes more than it may."""
    line, out, err = ends
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        output, errors = _Kept(whole=whole), _Kept(whole=False)
        watch = stack.enter_context(selectors.DefaultSelector())
        for stream, kept in ((out, output), (err, errors)):
            watch.register(stream, selectors.EVENT_READ, kept)
        watch.register(line, selectors.EVENT_READ)
        answer = b""
        fault = ""
        while watch.get_map():
            for key, _ in watch.select(_LOOK_SECONDS):
                part = os.read(key.fd, _CHUNK)
                if isinstance(key.data, _Kept):
                    key.data.take(part)
                else:
                    answer += part
                if not part:
                    watch.unregister(key.fileobj)
            now = time.monotonic() - started
            if not fault:
                fault = _fault(limits, now, max(output.total, errors.total), cwd)
                if fault:
                    # Hung up: the keeper kills the child with all it started, then answers.
                    line.shutdown(socket.SHUT_WR)
                    gave_up = now
            elif now > gave_up + _FAREWELL_SECONDS:
                break
    if fault:
        raise ChildStopped(f"{name} {fault} and was killed with all it had started")
    if not answer:
        raise ChildStopped(f"{name}: the process that watches over child processes was killed; run again")
    end = json.loads(answer)
    if "failure" in end:
        raise ChildStopped(f"{name} cannot be started ({end['failure']})")
    seconds = time.monotonic() - started
    code = os.waitstatus_to_exitcode(end["status"])
    return ChildRun(words, code, output.data(), errors.data(), seconds, limits)


def _standard_input(given: bytes) -> IO[bytes]:
    """Return a file with these bytes, at its beginning; a pipe would have to be fed while the child runs."""
    if not given:
        return open(os.devnull, "rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115 the caller closes it
    file.write(given)
    file.flush()
    file.seek(0)
    return file


def _request(
    words: tuple[str, ...],
    cwd: Path,
    environment: Mapping[str, str],
    limits: Limits,
    offline: bool,
) -> bytes:
    table = {
        "offline": offline,
        "argv": [_latin(word) for word in words],
        "cwd": _latin(os.path.abspath(cwd)),
        "environment": {_latin(name): _latin(value) for name, value in environment.items()},
        "limits": {
            "RLIMIT_CPU": limits.cpu_seconds,
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_CORE": 0,
        },
    }
    data = json.dumps(table).encode()
    return len(data).to_bytes(keeper.LENGTH_BYTES, "big") + data


def _latin(text: str) -> str:
    """Return a name's bytes as Latin-1 text, so that the keeper needs no locale to have them back."""
    return os.fsencode(text).decode("latin-1")


def _fault(limits: Limits, seconds: float, printed: int, folder: Path) -> str:
    if seconds > limits.seconds:
        return f"did not end in {limits.seconds:g} s"
    if printed > limits.printed_bytes:
        return f"printed more than {limits.printed_bytes} bytes"
    if limits.folder_bytes is not None:
        size, files = _below(str(folder), limits.folder_bytes, limits.folder_files)
        if size > limits.folder_bytes:
            return f"wrote more than {limits.folder_bytes} bytes into its folder"
        if files > limits.folder_files:
            return f"made more than {limits.folder_files} files in its folder"
    return ""


def _below(folder: str, enough: int, most: int) -> tuple[int, int]:
    """Return the bytes that files below a folder take on the disk, and how many files and folders there are.

    Counted until there are more than `enough` bytes or `most` of them.
    """
    total = count = 0
    waiting = [folder]
    while waiting and total <= enough and count <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += 512 * entry.stat(follow_symlinks=False).st_blocks
        except OSError:
            continue  # gone meanwhile, or closed to us
    return total, count


class _Kept:
    """What is kept of a stream: all of it, or its beginning and its end."""

    def __init__(self, *, whole: bool) -> None:
        self.total = 0
        self._whole = whole
        self._head = bytearray()
        self._tail = bytearray()

    def take(self, part: bytes) -> None:
        """Take the next bytes."""
        self.total += len(part)
        room = len(part) if self._whole else KEPT_BYTES - len(self._head)
        self._head += part[:room]
        self._tail += part[room:]
        if len(self._tail) > 2 * KEPT_BYTES:
            del self._tail[:-KEPT_BYTES]

    def data(self) -> bytes:
        """Return what was kept, with a line that says how much was left out."""
        tail = bytes(self._tail[-KEPT_BYTES:])
        left_out = self.total - len(self._head) - len(tail)
        middle = f"\n... {left_out} bytes left out ...\n".encode() if left_out > 0 else b""
        return bytes(self._head) + middle + tail


class _Keeper:
    """The keeper of this process: started with the first child, and again if somebody killed it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        # Lines that a forked process must not hold: its life would keep our children alive after us.
        self._open: set[socket.socket] = set()

    def start(self, request: bytes, source: int, stack: contextlib.ExitStack) -> tuple[socket.socket, int, int]:
        """Have a child started that reads `source`; return the line to its guardian and the ends of its streams."""
        ours, theirs = socket.socketpair()
        self._open.add(ours)
        stack.callback(self._close, ours)
        ends: list[tuple[int, int]] = []
        try:
            for _ in range(2):
                ends.append(os.pipe())
                stack.callback(os.close, ends[-1][0])
            self._send([theirs.fileno(), source, ends[0][1], ends[1][1]])
        finally:
            theirs.close()
            for _, write in ends:
                os.close(write)
        ours.sendall(request)
        return ours, ends[0][0], ends[1][0]

    def _close(self, line: socket.socket) -> None:
        self._open.discard(line)
        line.close()

    def _send(self, descriptors: list[int]) -> None:
        with self._turn:
            if self._line is not None:
                with contextlib.suppress(BrokenPipeError, ConnectionError):
                    socket.send_fds(self._line, [b"."], descriptors)
                    return
            socket.send_fds(self._launch(), [b"."], descriptors)

    def _launch(self) -> socket.socket:
        first = self._process is None
        self.stop()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__],
                cwd=os.sep,
                env={},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._line = ours
        if first:
            atexit.register(self.stop)
            os.register_at_fork(after_in_child=self._forget)
        return ours

    def stop(self) -> None:
        """Hang up; the keeper then ends."""
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            self._process.wait()

    def _forget(self) -> None:
        """In a forked process: the keeper is the other's, and so are its children."""
        for line in (self._line, *self._open):
            if line is not None:
                line.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._begin()


_KEEPER = _Keeper()


@contextlib.contextmanager
def ends_at_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block by an exception (`SystemExit`, code 143), so that what it has half-made is removed.

    Where a program has its own handler, and outside the main thread, nothing changes.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        # A second one while the first clears up does not break that off.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

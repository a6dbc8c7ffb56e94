"""Runs one tool of the toolchain: own process group, time limit, bounded output, nothing inherited."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from elfkiln.errors import BuildFailed, Refused, brief

KEPT_BYTES = 256 * 1024
"""What is kept of a stream's beginning, and again of its end; a tool may print any amount."""

FILE_BYTES = 1 << 30
"""The most a tool may print into a file: a design of one task per 8-KiB tile is some 20 MB."""

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class ToolRun:
    """How a tool ended: `exit_code` is negative for a signal; `out` and `err` are its streams, shortened if long."""

    argv: tuple[str, ...]
    exit_code: int
    out: str
    err: str
    seconds: float

    @property
    def ending(self) -> str:
        """Return `exit code 3` or `killed by signal 9 (SIGKILL)`."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        with contextlib.suppress(ValueError):
            return f"killed by signal {-self.exit_code} ({signal.Signals(-self.exit_code).name})"
        return f"killed by signal {-self.exit_code}"


def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    *,
    name: str,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float,
    out_file: Path | None = None,
) -> ToolRun:
    """Run a tool and wait for it; a failing exit code is the caller's to judge.

    What it prints goes into the new file `out_file` if given, and nothing else does. The tool leads its own process
    group, which is killed whole when the time is over, when it prints more into `out_file` than a design can be, and
    at the end, so that no child outlives it. Raises `BuildFailed` naming the tool when it cannot be started, does not
    end in `timeout` seconds, overruns `out_file`, or when a file of that name is there before or is made by the tool.
    """
    if out_file is not None and os.path.lexists(out_file):
        raise BuildFailed(nobodys_output(name, out_file.name))
    words = tuple(os.fspath(word) for word in argv)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        # Nameless until the tool has ended: what it writes under the name itself is then not mixed with this.
        sink = stack.enter_context(tempfile.TemporaryFile(dir=out_file.parent)) if out_file else None
        try:
            process = subprocess.Popen(
                words,
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildFailed(f"{name} cannot be started ({error.strerror or error})") from error
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = _Drain(process.stdout, sink), _Drain(process.stderr, None)
        ended = False
        try:
            ended = _wait(process, started + timeout, lambda: out.overrun)
        finally:
            _kill_group(process)
            out.join()
            err.join()
        if out.overrun:
            raise BuildFailed(f"{name} printed more than {FILE_BYTES} bytes and was killed; a design is far smaller")
        if not ended:
            raise BuildFailed(f"{name} did not end in {timeout:g} s and was killed with all it had started")
        if sink is not None and out_file is not None:
            _name(sink, out_file, name)
    return ToolRun(words, process.returncode, out.text(), err.text(), time.monotonic() - started)


def _name(sink: IO[bytes], out_file: Path, tool: str) -> None:
    """Copy what a tool printed to its new file."""
    sink.flush()
    position = 0
    try:
        with out_file.open("xb") as file:
            # At a position of our own: a child that left the group may still be printing.
            while chunk := os.pread(sink.fileno(), _CHUNK, position):
                file.write(chunk)
                position += len(chunk)
    except FileExistsError as error:
        raise BuildFailed(f"{tool}: wrote {out_file.name} itself; only what it prints is taken") from error


def nobodys_output(tool: str, file: str) -> str:
    """Return the line for a file that lies where a tool that has not run yet will put its output."""
    return f"{tool}: {file} is there before {tool} ran; what lies there is nobody's output"


def probe(
    argv: Sequence[str | os.PathLike[str]], *, name: str, cwd: Path, environment: Mapping[str, str], timeout: float
) -> ToolRun:
    """Run a tool for its help or version text; a tool that hangs is killed and is `Refused` by name."""
    try:
        return run_tool(argv, name=name, cwd=cwd, environment=environment, timeout=timeout)
    except BuildFailed as error:
        raise Refused(f"{error}; a tool that does not answer is not used") from error


def last_line(text: str) -> str:
    """Return the last line that says something: where Python and shells put the reason.

    >>> last_line("Traceback ...\\nImportError: no\\n\\n")
    'ImportError: no'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return brief(lines[-1], 300) if lines else "it said nothing"


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


class _Drain:
    """Reads a stream to its end in a thread, into a file or keeping only its beginning and end."""

    def __init__(self, stream: IO[bytes], sink: IO[bytes] | None) -> None:
        self._stream = stream
        self._sink = sink
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self.overrun = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        read = getattr(self._stream, "read1", self._stream.read)
        while chunk := read(_CHUNK):
            self._total += len(chunk)
            if self._sink is None:
                self._keep(chunk)
            elif self._total > FILE_BYTES:
                self.overrun = True
            elif self._failure is None:
                try:
                    self._sink.write(chunk)
                except OSError as error:
                    self._failure = error
                except ValueError:
                    # Closed by the caller, which gave up on a child that left the group.
                    return

    def _keep(self, chunk: bytes) -> None:
        room = KEPT_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * KEPT_BYTES:
            del self._tail[:-KEPT_BYTES]

    def join(self) -> None:
        """Wait for the end of the stream: the process group is dead by then, so it comes.

        A child that left the group and still holds the stream is not waited for.
        """
        self._thread.join(5)
        if not self._thread.is_alive():
            self._stream.close()
        if self._failure is not None:
            raise self._failure

    def text(self) -> str:
        """Return what was kept, with a line that says how much was left out."""
        tail = bytes(self._tail[-KEPT_BYTES:])
        left_out = self._total - len(self._head) - len(tail)
        if self._sink is not None or left_out <= 0:
            return (bytes(self._head) + tail).decode(errors="replace")
        middle = f"\n... {left_out} bytes left out ...\n"
        return self._head.decode(errors="replace") + middle + tail.decode(errors="replace")


def _wait(process: subprocess.Popen[bytes], deadline: float, give_up: Callable[[], bool]) -> bool:
    """Wait until the process has ended, without reaping it: its number stays taken until its group is killed."""
    pause = 0.001
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if give_up() or time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""Locks between processes: who waits says so and for whom, and nobody waits for ever.

A lock is a file, locked by the kernel for the life of its holder (`flock`): a killed process holds nothing. The file
stays; what it holds is nothing, and its age says nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from elfkiln.errors import Differs, brief
from elfkiln.io.files import storage_refusal
from elfkiln.io.terminal import tell

SAID_AFTER = 2.0
"""Seconds after which somebody who waits is shown what for."""

PATIENCE = 600.0
"""Seconds after which waiting is given up."""

_PAUSE = 0.02

Note = Callable[[str], None]


@contextlib.contextmanager
def locked(
    path: Path,
    what: str,
    *,
    patience: float = PATIENCE,
    said_after: float = SAID_AFTER,
    note: Note | None = None,
    keep: bool = True,
) -> Iterator[None]:
    """Hold the lock `path` for a block; `what` is what messages call the thing it guards.

    With `keep` off the file goes when the block ends: in a folder of somebody's nothing is left. After `said_after`
    seconds of waiting `note` (default: a line on standard error) hears what is waited for and which process has it.
    Raises `Differs` after `patience` seconds and `Refused` where no lock can be made.
    """
    guard = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _acquire(guard, path, what, min(said_after, patience), patience, note or _tell)
    except OSError as error:
        raise storage_refusal(path, error) from error
    try:
        yield
    finally:
        if not keep:
            # While it is held: whoever waits for it finds out, and takes the next one.
            with contextlib.suppress(OSError):
                path.unlink()
        guard.release()


def _acquire(guard: FileLock, path: Path, what: str, said_after: float, patience: float, note: Note) -> None:
    try:
        guard.acquire(timeout=said_after)
        return
    except Timeout:
        if said_after < patience:
            note(f"waiting for {what}, which {holder_of(path)} has")
    try:
        guard.acquire(timeout=max(0.0, patience - said_after))
    except Timeout:
        raise Differs(
            f"{what}: {holder_of(path)} has had it for {patience:g} s; wait for that process to end, or end it, and "
            "run again"
        ) from None


@contextlib.contextmanager
def used(
    path: Path, what: str, *, alone: bool = False, patience: float = PATIENCE, note: Note | None = None
) -> Iterator[None]:
    """Hold the lock `path` for a block together with others who use the thing, or `alone`; waits as `locked` does.

    Raises `Differs` after `patience` seconds, `Refused` where no lock can be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _flocked(path, what, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, patience, note or _tell)
    except OSError as error:
        raise storage_refusal(path, error) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _flocked(path: Path, what: str, kind: int, patience: float, note: Note) -> int:
    begin, said = time.monotonic(), False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            # Somebody may have removed the folder meanwhile; who comes later locks another file then.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        except BlockingIOError:
            waited = time.monotonic() - begin
            if waited > patience:
                os.close(descriptor)
                raise Differs(
                    f"{what}: {holder_of(path)} has used it for {patience:g} s; wait for that process to end, or end "
                    "it, and run again"
                ) from None
            if not said and waited > SAID_AFTER:
                said = True
                note(f"waiting for {what}, which {holder_of(path)} uses")
            time.sleep(_PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def free_lock(path: Path) -> Iterator[bool]:
    """Hold the lock `path` for a block if nobody has it, and say whether that is so; never waits."""
    guard = FileLock(path)
    try:
        guard.acquire(timeout=0)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield True
    finally:
        guard.release()


def holder_of(path: Path) -> str:
    """Return who has a lock, as `process 4711 (python -m doit elfs)`; without a number where nobody can tell."""
    number = _holding_process(path)
    if number is None:
        return "another process"
    if number == os.getpid():
        return "this process itself"
    try:
        words = Path(f"/proc/{number}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return f"process {number}"
    program, *rest = (os.fsdecode(word) for word in words)
    line = " ".join([os.path.basename(program), *rest])
    return f"process {number} ({brief(line, 80)})" if line else f"process {number}"


def _holding_process(path: Path) -> int | None:
    """Return the number of the process that Linux lists as the holder of a file's lock."""
    try:
        state = path.stat()
        table = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    wanted = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    for line in table.splitlines():
        # "3: FLOCK  ADVISORY  WRITE 4711 08:01:1234 0 EOF"; one who waits has "->" after the number.
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted and int(fields[4]) > 0:
            return int(fields[4])
    return None


def _tell(line: str) -> None:
    tell(f"elfkiln: {line}")

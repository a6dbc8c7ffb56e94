"""Writing files so that a reader sees the old bytes or the new, never a part, whatever ends the process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.reading import kind_of, reason_of, sha256_of

PART = ".part-"
"""How the names of unfinished files and folders begin; `workspace.sweep` removes those whose writer is dead."""

_LEAST_FREE_BYTES = 1 << 20
_AT_ONCE = 4
"""Files that are written at once; of more the disk has no use."""
_WORTH_THREADS = 1 << 17
"""Bytes from which on that is faster: with less, starting threads takes as long as what they save."""


def sync_folder(folder: Path) -> None:
    """Make a rename within `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(
    path: Path,
    data: bytes | Iterable[bytes],
    *,
    scratch: Path | None = None,
    mode: int = 0o644,
    check: Callable[[], None] | None = None,
    sync_parent: bool = True,
) -> None:
    """Write `data`, whole or in parts, to `path`: temporary file, fsync, rename, fsync of the folder.

    `scratch` is where the temporary file lies (same file system; default: beside `path`). `check` is called last before
    the rename, and what it raises leaves the old file. Without `sync_parent` the caller makes the rename durable, once
    for several files (`sync_folder`). Raises `Refused` with one line when the disk is full or the place is not
    writable; the old file then stands untouched. So does what is not a file: a device, pipe or folder would be replaced
    by one, and a symbolic link is neither followed nor replaced.
    """
    with writing_atomic(path, scratch=scratch, mode=mode, check=check, sync_parent=sync_parent) as stream:
        stream.writelines([data] if isinstance(data, bytes) else data)


@contextlib.contextmanager
def writing_atomic(
    path: Path,
    *,
    scratch: Path | None = None,
    mode: int = 0o644,
    check: Callable[[], None] | None = None,
    sync_parent: bool = True,
) -> Iterator[IO[bytes]]:
    """Yield a stream whose bytes become `path` when the block ends well, as those of `write_atomic` do."""
    try:
        refuse_other_kinds(path)
        with unfinished(scratch or path.parent, path.name) as (stream, part):
            os.fchmod(stream.fileno(), mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if check is not None:
                check()
            part.replace(path)
        if sync_parent:
            sync_folder(path.parent)
    except OSError as error:
        raise storage_refusal(path, error) from error


def write_together(folder: Path, files: Mapping[str, bytes], *, scratch: Path, mode: int = 0o644) -> None:
    """Write files of one folder, each as `write_atomic` does, and make their names durable with one fsync at the end.

    Of many bytes some files are written at once: a file system brings what waits for it to the disk together, so that
    several fsyncs take little more time than one. Raises what the first that failed raised, after all that were begun
    have ended; files that were not begun are then not written. On return everything is durable, and no thread of ours
    is left.
    """
    rest = iter(files.items())
    failures: list[BaseException] = []

    def work() -> None:
        # One iterator for all: `next` on it is one step under the interpreter's lock.
        for name, data in rest:
            if failures:
                return
            try:
                write_atomic(folder / name, data, scratch=scratch, mode=mode, sync_parent=False)
            except BaseException as error:
                failures.append(error)

    threads: list[threading.Thread] = []
    try:
        with contextlib.suppress(RuntimeError):  # where there can be no more threads, this one does what is left
            at_once = _AT_ONCE if sum(map(len, files.values())) >= _WORTH_THREADS else 1
            for _ in range(min(at_once, len(files)) - 1):
                thread = threading.Thread(target=work)
                thread.start()
                threads.append(thread)
        work()
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    try:
        sync_folder(folder)
    except OSError as error:
        raise storage_refusal(folder, error) from error


def refuse_other_kinds(path: Path) -> None:
    """Raise `Refused` unless a path is a regular file or nothing: all that `write_atomic` writes to."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise refusal(
            brief(path, 4096),
            expected="a file, or nothing, to write",
            found=kind_of(mode),
            remedy="name the file a link leads to, or remove the link" if stat.S_ISLNK(mode) else "",
        )


@contextlib.contextmanager
def unfinished(folder: Path, name: str) -> Iterator[tuple[IO[bytes], Path]]:
    """Yield a new file of `folder` and its path; it is removed unless the block renames it.

    The file is locked while its writer lives, so that `workspace.sweep` can tell what a killed one left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        stream = tempfile.NamedTemporaryFile(dir=folder, prefix=f"{PART}{name[:64]}-", delete=False)  # noqa: SIM115
        if _still_ours(stream.fileno(), stream.name):
            break
        stream.close()
    part = Path(stream.name)
    try:
        with stream:
            yield stream.file, part
    finally:
        part.unlink(missing_ok=True)


def _still_ours(descriptor: int, path: str) -> bool:
    """Lock a new file, and say whether it still bears its name: a sweep may have taken it for a dead writer's."""
    with contextlib.suppress(OSError):  # some network file systems have no locks, and no sweep touches such a file
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def digest_or_none(path: Path, most: int) -> str | None:
    """Return a file's sha256 in hex, None when there is no file that can be read, or one of more than `most` bytes."""
    try:
        return sha256_of(path, limit=most)
    except OSError:
        return None


def space_refusal(folder: Path) -> Refused | None:
    """Return the `Refused` of a full disk when there is no room left where `folder` lies, else None.

    Tools say little of a full disk (a signal, an empty file), so a failed build asks here first.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= _LEAST_FREE_BYTES:
        return None
    return storage_refusal(folder, OSError(errno.ENOSPC, "No space left on device"))


def storage_refusal(path: Path, error: OSError) -> Refused:
    """Return the one-line `Refused` for a failed write or read of `path`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return Refused(f"{path}: no space left on the device; free some and run again, nothing was half-written")
    return Refused(f"{path}: {reason_of(error)}")

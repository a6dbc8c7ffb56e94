"""Writing files so that a reader sees the old bytes or the new, never a part, whatever ends the process."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.reading import kind_of, reason_of, sha256_of

_LEAST_FREE_BYTES = 1 << 20


def sync_folder(folder: Path) -> None:
    """Make a rename within `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, *, scratch: Path | None = None, mode: int = 0o644) -> None:
    """Write `data` to `path`: temporary file, fsync, rename, fsync of the folder.

    `scratch` is where the temporary file lies (same file system; default: beside `path`). Raises `Refused` with one
    line when the disk is full or the place is not writable; the old file then stands untouched. So does what is no
    file: a device, pipe or folder would be replaced by one, and a symbolic link is neither followed nor replaced.
    """
    try:
        _refuse_other_kinds(path)
        with _temporary(scratch or path.parent) as (stream, part):
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_refusal(path, error) from error


def _refuse_other_kinds(path: Path) -> None:
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
def _temporary(folder: Path) -> Iterator[tuple[tempfile._TemporaryFileWrapper[bytes], Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    stream = tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False)  # noqa: SIM115
    part = Path(stream.name)
    try:
        with stream:
            yield stream, part
    finally:
        part.unlink(missing_ok=True)


def digest_or_none(path: Path) -> str | None:
    """Return a file's sha256 in hex, None when there is no file that can be read."""
    try:
        return sha256_of(path)
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

"""Private folders for builds: one per build, removed when it ends, and those of killed builds removed later."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from elfkiln.io.files import storage_refusal


@contextlib.contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Yield a fresh folder below `parent` that is this process's alone, and remove it afterwards."""
    folder = parent / f"build-{secrets.token_hex(8)}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        # The lock before the folder: a sweep that sees the folder then always finds it held.
        guard = FileLock(f"{folder}.lock")
        guard.acquire()
        folder.mkdir()
    except OSError as error:
        raise storage_refusal(parent, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        guard.release()
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}.lock")


def sweep(parent: Path) -> int:
    """Remove what killed builds left below `parent`; a folder whose lock is held is somebody's and stays.

    Returns how many folders went.
    """
    gone = 0
    if not parent.is_dir():
        return gone
    for lock in sorted(parent.glob("build-*.lock")):
        guard = FileLock(lock)
        try:
            guard.acquire(timeout=0)
        except Timeout:
            continue
        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        guard.release()
        lock.unlink(missing_ok=True)
        gone += 1
    return gone

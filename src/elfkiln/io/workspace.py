"""Private folders, and the one sweep: what killed processes left goes, what somebody still works on stays.

A private folder is guarded by a lock file beside it for as long as its process lives; an unfinished file (`.part-*`,
written by `files.write_atomic`) is locked itself. The kernel drops both locks when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from elfkiln.errors import brief, refusal
from elfkiln.io.files import PART, storage_refusal
from elfkiln.io.locking import free_lock
from elfkiln.io.variation import folder_token

BUILD = "build-"
"""How the names of builds' private folders begin."""

_LOCK = ".lock"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_+./-]+")
_REMOVALS = 50
_REMOVAL_PAUSE = 0.1


def check_plain_path(folder: Path) -> None:
    """Raise `Refused` for a folder in which no build can run: tools of the builds write its path unquoted.

    aiecc puts it into a file for bootgen, which ends at a space with a syntax error, after the whole compile.
    """
    if _PLAIN_PATH.fullmatch(str(folder)) is None:
        raise refusal(
            f"build folder {brief(folder)}",
            expected="a path of letters, digits and _+./- alone",
            found="other characters",
            remedy="name a folder for temporary files with such a path in TMPDIR, or move the checkout",
        )


def build_parent(folder: Path) -> Path:
    """Return where builds that belong into `folder` can run: there, if every tool can take its path.

    Else it is a folder of this user's alone below the system's folder for temporary files, the same for every run.
    Raises `Refused` when that one's path will not do either, or when somebody else has it.
    """
    wanted = folder.resolve()
    if _PLAIN_PATH.fullmatch(str(wanted)) is not None:
        return folder
    name = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:12]
    place = Path(tempfile.gettempdir()).resolve() / f"elfkiln-{os.getuid()}-{name}"
    check_plain_path(place)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise storage_refusal(place, error) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
        what = "something that others can write to" if found.st_uid == os.getuid() else "somebody else's"
        raise refusal(
            str(place), expected="a folder of this user's alone", found=what, remedy="remove it, or set TMPDIR"
        )
    return place


@contextlib.contextmanager
def private_folder(parent: Path, prefix: str = BUILD) -> Iterator[Path]:
    """Yield a fresh folder below `parent` that is this process's alone, and remove it afterwards if it is still there.

    `prefix` begins its name: `BUILD`, or `PART` and more where the folder is renamed into place when it is done. Raises
    `Refused` when it cannot be made.
    """
    folder = parent / f"{prefix}{folder_token()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while os.path.lexists(folder) or os.path.lexists(f"{folder}{_LOCK}"):
            folder = parent / f"{prefix}{folder_token()}"
        # The lock before the folder: a sweep that sees the folder then always finds it held.
        guard = FileLock(f"{folder}{_LOCK}")
        guard.acquire()
        folder.mkdir()
    except OSError as error:
        raise storage_refusal(parent, error) from error
    try:
        yield folder
    finally:
        gone = remove_tree(folder)
        guard.release()
        if gone:
            # What could not be removed keeps its lock file, and a later sweep tries again.
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}{_LOCK}")


def sweep(*parents: Path, begins: tuple[str, ...] = (BUILD, PART)) -> int:
    """Remove what killed processes left in folders of ours: private folders, their locks, unfinished files.

    What a living process has stays, and so does everything of another name; in a folder of somebody's `begins` says
    how the names of our private folders begin there. Returns how many things went; a folder
    that is absent or cannot be read has nothing to sweep.
    """
    gone = sweep_files(*parents)
    for parent in parents:
        for entry in _entries(parent):
            if not entry.name.startswith(begins):
                continue
            if entry.is_dir(follow_symlinks=False):
                gone += _sweep_folder(Path(entry.path))
            elif entry.name.endswith(_LOCK) and entry.is_file(follow_symlinks=False):
                _sweep_lock(Path(entry.path))
    return gone


def sweep_files(*parents: Path) -> int:
    """Remove the unfinished files that killed processes left in any folder, and return how many went."""
    gone = 0
    for parent in parents:
        for entry in _entries(parent):
            unfinished = entry.name.startswith(PART) and not entry.name.endswith(_LOCK)
            if unfinished and entry.is_file(follow_symlinks=False):
                gone += _sweep_file(entry.path)
    return gone


def _entries(parent: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(parent) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _sweep_folder(folder: Path) -> bool:
    """Remove a private folder unless its lock is held; one without a lock file is nobody's."""
    lock = Path(f"{folder}{_LOCK}")
    if not lock.exists():
        return remove_tree(folder)
    with free_lock(lock) as free:
        if not free or not remove_tree(folder):
            return False
        with contextlib.suppress(OSError):
            lock.unlink()
    return True


def _sweep_lock(lock: Path) -> None:
    """Remove the lock file of a folder that is gone, unless somebody has just made it for a new one."""
    if not lock.exists():
        return  # it went with its folder
    with free_lock(lock) as free:
        if free and not lock.with_name(lock.name.removesuffix(_LOCK)).exists():
            with contextlib.suppress(OSError):
                lock.unlink()


def _sweep_file(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A writer that has not locked it yet finds it gone, and makes another.
        os.unlink(path)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_tree(folder: Path) -> bool:
    """Remove a folder with everything in it, folders without write permission too; return whether it is gone.

    Tried for a few seconds where something keeps appearing in it: a process that was just killed may still write.
    """
    for attempt in range(_REMOVALS):
        if attempt:
            _make_writable(folder)
            time.sleep(_REMOVAL_PAUSE)
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return True
        if not folder.is_dir() or folder.is_symlink():
            with contextlib.suppress(OSError):
                folder.unlink()
    return False


def _make_writable(folder: Path) -> None:
    waiting = [str(folder)]
    while waiting:
        place = waiting.pop()
        # Before it is listed: a folder without permissions says nothing.
        with contextlib.suppress(OSError):
            os.chmod(place, stat.S_IRWXU)
        waiting += [entry.path for entry in _entries(Path(place)) if entry.is_dir(follow_symlinks=False)]

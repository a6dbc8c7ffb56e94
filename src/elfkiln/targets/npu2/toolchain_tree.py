"""The files of an installed toolchain by digest: what was there after install is what a build may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from elfkiln.errors import Refused, mismatch_line
from elfkiln.io.canonical import file_sha256

Signature: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime in ns. A program can set the mtime back, not the ctime."""

_REMEDY = "the toolchain is not the one that was installed; run elfkiln toolchain install target=npu2 to redo it"
# Python's caches are not part of a toolchain: installs make none, and builds read theirs from a private folder.
_SKIPPED = frozenset({"__pycache__"})


def signature(path: Path) -> Signature:
    """Return what changes whenever a file's bytes change, short of a re-set clock; `OSError` as `stat` raises."""
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def walk(root: Path) -> Iterator[str]:
    """Yield the files and links below a folder as sorted relative names with forward slashes."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        for name in sorted([*files, *links]):
            yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def hash_tree(root: Path) -> dict[str, str]:
    """Return every file below `root` with its sha256; a symbolic link counts as `-> <where it leads>`."""
    names = sorted(walk(root))
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(lambda name: _content(root / name), names), strict=True))


def _content(path: Path) -> str:
    return f"-> {os.readlink(path)}" if path.is_symlink() else file_sha256(path)


def check_tree(root: Path, expected: Mapping[str, str]) -> None:
    """Hash every file below `root` and raise `Refused` naming the first that changed, appeared or went."""
    try:
        found = hash_tree(root)
    except OSError as error:
        raise Refused(f"{error.filename}: cannot be read ({error.strerror}); {_REMEDY}") from error
    for name in sorted(expected.keys() | found.keys()):
        before, now = expected.get(name), found.get(name)
        if before != now:
            line = mismatch_line(name, expected=before or "no such file", found=now or "no file", remedy=_REMEDY)
            raise Refused(line)


@dataclass(slots=True)
class Guard:
    """Checks a tree fully once in this process, and afterwards by signatures: the first look costs a second or two.

    Safe to use from several threads.
    """

    root: Path
    expected: Mapping[str, str]
    _seen: dict[str, Signature] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Raise `Refused` naming a file whose bytes are not those of the install."""
        with self._lock:
            before = self._signatures()
            if self._seen and before == self._seen:
                return
            check_tree(self.root, self.expected)
            if self._signatures() != before:
                raise Refused(f"{self.root}: a file changed while it was checked; {_REMEDY}")
            self._seen = before

    def _signatures(self) -> dict[str, Signature]:
        found = {}
        for name in walk(self.root):
            stat = os.lstat(self.root / name)
            found[name] = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        return found

"""Installs a model's ELFs into a model folder: hard links or copies of verified blobs, and kernels.lock.json."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Differs, refusal
from elfkiln.io.files import PART, digest_or_none, refuse_other_kinds, storage_refusal, sync_folder, write_atomic
from elfkiln.io.reading import kind_of
from elfkiln.io.workspace import sweep_files
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work.install_folders import remember_folder
from elfkiln.work.kernels_lock import (
    LOCK_NAME,
    KernelsLock,
    LockRow,
    carried_over,
    folder_lock,
    read_kernels_lock,
    require_lock_of,
)
from elfkiln.work.leftovers import sweep_project
from elfkiln.work.lookup import Found, lookup_set


@dataclass(frozen=True, slots=True)
class Installed:
    """What an install did: paths below the folder, how many were already right, and how the files were made.

    `dropped` are paths that an earlier kernels.lock.json listed and this one does not, though something lies there.
    """

    folder: str
    target: str
    paths: tuple[str, ...]
    unchanged: int
    linked: int
    copied: int
    dropped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "dir": self.folder,
            "target": self.target,
            "paths": list(self.paths),
            "unchanged": self.unchanged,
            "linked": self.linked,
            "copied": self.copied,
            "dropped": list(self.dropped),
        }


def install(project: Project, target: str, wanted: RequirementSet, folder: Path) -> Installed:
    """Put every ELF of the set below `folder` and write kernels.lock.json there, last.

    Every blob and every place is looked at before the first file is touched: a set that is not whole installs nothing
    (`Differs`, naming the first gap and their number). Each file appears by rename. A folder that holds another
    target's set is `Refused`: the artifacts of two targets never mix. One install works on a folder at a time; others
    wait, and say so.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise refusal(f"dir={folder}", expected="a model folder", found="something that is not a folder")
    store = Store(project.store)
    sweep_project(project)
    with store.in_use():
        rows = lookup_set(project, target, wanted)
        _refuse_gaps(store, rows, target)
        return _install_locked(project, target, wanted, folder, rows)


def _install_locked(
    project: Project, target: str, wanted: RequirementSet, folder: Path, rows: tuple[Found, ...]
) -> Installed:
    with folder_lock(folder):
        return _install(project, target, wanted, folder, rows)


def _install(project: Project, target: str, wanted: RequirementSet, folder: Path, rows: tuple[Found, ...]) -> Installed:
    lock = folder / LOCK_NAME
    refuse_other_kinds(lock)
    earlier = read_kernels_lock(lock)
    dropped: tuple[str, ...] = ()
    if earlier is not None:
        require_lock_of(earlier, lock, target)
        entries = load_registry(project.registry_file).entries(target)
        earlier, dropped = carried_over(earlier, project, entries, folder)
    made = {row.path: row.entry for row in rows if row.entry is not None}
    counts = _place_all(Store(project.store), folder, {path: entry.elf for path, entry in made.items()})
    new = {path: LockRow(entry.elf, entry.size, entry.recipe) for path, entry in made.items()}
    before = earlier or KernelsLock(target, frozenset(), {})
    whole = KernelsLock(target, before.sets | {(wanted.model, wanted.layout)}, {**before.rows, **new})
    write_atomic(lock, whole.to_bytes())
    remember_folder(project, folder)
    return Installed(
        str(folder),
        target,
        tuple(row.path for row in rows),
        counts["unchanged"],
        counts["linked"],
        counts["copied"],
        tuple(path for path in dropped if path not in new),
    )


def _place_all(store: Store, folder: Path, files: Mapping[str, str]) -> Counter[str]:
    """Make every path below the folder the blob of its digest; return how many were made in which way."""
    parents = sorted({(folder / path).parent for path in files})
    counts: Counter[str] = Counter()
    try:
        for path in files:
            _refuse_place(folder / path)
        for parent in parents:
            parent.mkdir(parents=True, exist_ok=True)
        sweep_files(folder, *parents)
        for path, digest in files.items():
            counts[place_file(store, digest, folder / path)] += 1
        for parent in parents:
            sync_folder(parent)
    except OSError as error:
        raise storage_refusal(Path(error.filename or folder), error) from error
    return counts


def _refuse_place(path: Path) -> None:
    """Raise `Refused` for what an install does not replace: anything but a file, a link, or nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise refusal(str(path), expected="a file or nothing", found=kind_of(mode), remedy="move it away")


def _refuse_gaps(store: Store, rows: tuple[Found, ...], target: str) -> None:
    problems = []
    for row in rows:
        problem = row.problem
        if row.entry is None:
            problem = f"not in registry.yaml for target {row.target}"
        elif problem is None:
            problem = store.problem(row.entry.elf)
        if problem:
            problems.append(f"missing full ELF {row.path} ({problem})")
    if problems:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise Differs(f"{problems[0]}{more}; build the set with doit elfs target={target} first, nothing was installed")


def place_file(store: Store, digest: str, path: Path) -> str:
    """Make `path` the blob's bytes by rename; return `unchanged`, `linked` or `copied`."""
    blob = store.path(digest)
    there = not path.is_symlink() and path.is_file()
    if there and (path.samefile(blob) or digest_or_none(path, blob.stat().st_size) == digest):
        return "unchanged"
    part = path.parent / f"{PART}{path.name}-{secrets.token_hex(4)}"
    try:
        try:
            os.link(blob, part, follow_symlinks=False)
            how = "linked"
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            # Another file system, or one without hard links: a verified copy.
            write_atomic(part, store.read(digest), mode=0o444)
            how = "copied"
        if part.is_symlink():
            raise Differs(f"blob sha256:{digest} became a symbolic link; run again")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return how

"""Installs a model's ELFs into a model folder: hard links or copies of verified blobs, and kernels.lock.json."""

from __future__ import annotations

import errno
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import file_sha256
from elfkiln.io.files import digest_or_none, storage_refusal, sync_folder, write_atomic
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.blobs import Store, parse_digest
from elfkiln.work.lookup import Found, lookup_set

LOCK_NAME = "kernels.lock.json"
SCHEMA = "elfkiln-kernels-lock/1"


@dataclass(frozen=True, slots=True)
class Installed:
    """What an install did: paths below the folder, how many were already right, and how the files were made."""

    folder: str
    target: str
    paths: tuple[str, ...]
    unchanged: int
    linked: int
    copied: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "dir": self.folder,
            "target": self.target,
            "paths": list(self.paths),
            "unchanged": self.unchanged,
            "linked": self.linked,
            "copied": self.copied,
        }


def install(project: Project, target: str, wanted: RequirementSet, folder: Path) -> Installed:
    """Put every ELF of the set below `folder` and write kernels.lock.json there, last.

    Every blob is verified before the first file is touched: a set that is not whole installs nothing (`Differs`,
    naming the first gap and their number). Each file appears by rename. A folder that holds another target's set is
    `Refused`: the artifacts of two targets never mix.
    """
    if folder.exists() and not folder.is_dir():
        raise refusal(f"dir={folder}", expected="a model folder", found="something that is no folder")
    earlier = _earlier_set(folder, target)
    store = Store(project.store)
    rows = lookup_set(project, target, wanted)
    _refuse_gaps(store, rows, target)
    unchanged = linked = copied = 0
    try:
        for row in rows:
            assert row.entry is not None
            match _place(store, row.entry.elf, folder / row.path):
                case "unchanged":
                    unchanged += 1
                case "linked":
                    linked += 1
                case _:
                    copied += 1
        for parent in {(folder / row.path).parent for row in rows}:
            sync_folder(parent)
    except OSError as error:
        raise storage_refusal(Path(error.filename or folder), error) from error
    write_atomic(folder / LOCK_NAME, lock_bytes(target, wanted, rows, earlier))
    return Installed(str(folder), target, tuple(row.path for row in rows), unchanged, linked, copied)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What an earlier kernels.lock.json of the folder says that still holds: its sets and its artifacts by path."""

    sets: tuple[tuple[str, str], ...] = ()
    artifacts: tuple[tuple[str, dict[str, Any]], ...] = ()


def lock_bytes(target: str, wanted: RequirementSet, rows: tuple[Found, ...], earlier: _Earlier | None = None) -> bytes:
    """Return kernels.lock.json: the target, the sets (model and layout) and every path with its digests.

    No time and no place stands in it. What an earlier install put into the folder and is still there stays listed.
    """
    before = earlier or _Earlier()
    artifacts = dict(before.artifacts) | {
        row.path: {"elf": f"sha256:{row.entry.elf}", "size": row.entry.size, "recipe": f"sha256:{row.entry.recipe}"}
        for row in rows
        if row.entry is not None
    }
    sets = sorted({*before.sets, (wanted.model, wanted.layout)})
    table = {
        "schema": SCHEMA,
        "target": target,
        "sets": [{"model": model, "layout": layout} for model, layout in sets],
        "artifacts": artifacts,
    }
    return (json.dumps(table, indent=2, sort_keys=True) + "\n").encode()


def _earlier_set(folder: Path, target: str) -> _Earlier:
    """Read the folder's kernels.lock.json; another target's, or one that is none, is `Refused`."""
    path = folder / LOCK_NAME
    try:
        table = json.loads(path.read_bytes())
        found = table["target"]
        sets = tuple((str(one["model"]), str(one["layout"])) for one in table["sets"])
        artifacts = [(str(name), dict(row), parse_digest(row["elf"])) for name, row in table["artifacts"].items()]
    except FileNotFoundError:
        return _Earlier()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, Refused) as error:
        raise Refused(f"{path}: not a kernels.lock.json of elfkiln ({error}); move it away and run again") from error
    if found != target:
        raise refusal(
            f"{path}: target",
            expected=target,
            found=found,
            remedy="artifacts of two targets never mix; install into another folder or remove this set first",
        )
    there = tuple((name, row) for name, row, digest in artifacts if digest_or_none(folder / name) == digest)
    return _Earlier(sets if there else (), there)


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


def _place(store: Store, digest: str, path: Path) -> str:
    """Make `path` the blob's bytes by rename; return `unchanged`, `linked` or `copied`."""
    blob = store.path(digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and not path.is_symlink() and (path.samefile(blob) or file_sha256(path) == digest):
        return "unchanged"
    if path.exists() and not path.is_symlink() and not path.is_file():
        raise refusal(str(path), expected="a file or nothing", found="something that is no file", remedy="move it away")
    part = path.parent / f".part-{secrets.token_hex(8)}"
    try:
        try:
            os.link(blob, part)
            how = "linked"
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            # Another file system, or one without hard links: a verified copy.
            write_atomic(part, store.read(digest), mode=0o444)
            how = "copied"
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return how

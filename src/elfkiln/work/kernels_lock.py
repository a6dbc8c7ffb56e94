"""kernels.lock.json: which sets lie in a model folder, and the digests of every file of theirs.

    {"schema": "elfkiln-kernels-lock/1", "target": "npu2", "sets": [{"layout": "b8", "model": "bonsai2-27b"}],
     "artifacts": {"kernels/full_i8_G_K5120_N17408_b8.elf": {"elf": "sha256:...", "recipe": "sha256:...", "size": 1}}}

The file lies in somebody's folder, and anybody may have written it: nothing in it is believed. What an install carries
over into the next one is what it can verify itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import bare_elf_name, checked_model_name
from elfkiln.errors import ElfkilnError, Refused, refusal
from elfkiln.io.checked import Value
from elfkiln.io.files import digest_or_none
from elfkiln.io.locking import locked
from elfkiln.io.strict_json import read_strict_json
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.artifacts import find_artifact
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry

LOCK_NAME = "kernels.lock.json"
SCHEMA = "elfkiln-kernels-lock/1"
MAX_BYTES = 16 * 2**20

_REMEDY = "move it away and run again"


@dataclass(frozen=True, slots=True)
class LockRow:
    """What the file says of one path: the digests (hex) of its ELF and recipe, and the ELF's size in bytes."""

    elf: str
    size: int
    recipe: str


@dataclass(frozen=True, slots=True)
class KernelsLock:
    """A folder's sets, as (model, layout), and its rows by path below the folder."""

    target: str
    sets: frozenset[tuple[str, str]]
    rows: Mapping[str, LockRow]

    def to_bytes(self) -> bytes:
        """Return the file's bytes: sorted, one field a line; no time and no place stands in it."""
        table = {
            "schema": SCHEMA,
            "target": self.target,
            "sets": [{"model": model, "layout": layout} for model, layout in sorted(self.sets)],
            "artifacts": {
                path: {"elf": f"sha256:{row.elf}", "size": row.size, "recipe": f"sha256:{row.recipe}"}
                for path, row in self.rows.items()
            },
        }
        return (json.dumps(table, indent=2, sort_keys=True) + "\n").encode()


def folder_lock(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of an install folder, which changes its files and kernels.lock.json; it leaves nothing there."""
    return locked(folder / f".{LOCK_NAME}.lock", f"the folder {folder}", keep=False)


def read_kernels_lock(path: Path) -> KernelsLock | None:
    """Read the file; None where there is none. Raises `Refused` for one that is none of elfkiln's, naming the field."""
    try:
        path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}; {_REMEDY}") from error
    try:
        return _lock_of(Value(read_strict_json(path, limit=MAX_BYTES), str(path), remedy=_REMEDY))
    except Refused as error:
        text = str(error).removeprefix(f"{path}: ").removesuffix(f"; {_REMEDY}")
        raise Refused(f"{path}: not a {LOCK_NAME} of elfkiln ({text}); {_REMEDY}") from error


def _lock_of(top: Value) -> KernelsLock:
    fields = top.table(("schema", "target", "sets", "artifacts"))
    fields["schema"].choice((SCHEMA,))
    sets = [one.table(("model", "layout")) for one in fields["sets"].items()]
    return KernelsLock(
        fields["target"].text(),
        frozenset((checked_model_name(one["model"].text()), one["layout"].choice(contract.LAYOUTS)) for one in sets),
        {path: _row_of(path, row) for path, row in fields["artifacts"].table().items()},
    )


def _row_of(path: str, value: Value) -> LockRow:
    Value(path, value.place).below("the folder")
    bare_elf_name(path.rpartition("/")[2], value.place)
    row = value.table(("elf", "size", "recipe"))
    return LockRow(row["elf"].digest("sha256:"), row["size"].whole(), row["recipe"].digest("sha256:"))


def require_lock_of(lock: KernelsLock, path: Path, target: str) -> None:
    """Raise `Refused` when the folder holds another target's set: the artifacts of two targets never mix."""
    if lock.target != target:
        raise refusal(
            f"{path}: target",
            expected=target,
            found=lock.target,
            remedy="artifacts of two targets never mix; install into another folder or remove this set first",
        )


def carried_over(
    lock: KernelsLock, project: Project, entries: Mapping[str, Entry], folder: Path
) -> tuple[KernelsLock, tuple[str, ...]]:
    """Return what of an earlier file still holds, and the paths of the rows that are not carried over.

    A row holds when the file at its path has its digest, and these are bytes of ours: registered under that file name
    (`entries` are the target's), or what the store has of that recipe. A set holds when a row of it does.
    """
    store = Store(project.store)
    known = _by_file_name(entries)
    there = {path: row for path, row in lock.rows.items() if digest_or_none(folder / path, row.size) == row.elf}
    kept = {path: row for path, row in there.items() if _is_ours(store, known.get(path.rpartition("/")[2], ()), row)}
    sets = frozenset(one for one in lock.sets if _set_holds(project, *one, kept.keys()))
    dropped = tuple(sorted(path for path in lock.rows if path not in kept and (folder / path).exists()))
    return KernelsLock(lock.target, sets, kept), dropped


def _by_file_name(entries: Mapping[str, Entry]) -> dict[str, list[Entry]]:
    known: dict[str, list[Entry]] = {}
    for key, entry in entries.items():
        known.setdefault(key.rpartition("/")[2], []).append(entry)
    return known


def _is_ours(store: Store, registered: Iterable[Entry], row: LockRow) -> bool:
    if any((entry.elf, entry.size, entry.recipe) == (row.elf, row.size, row.recipe) for entry in registered):
        return True
    # Registered once and built anew since: the store tells.
    artifact = find_artifact(store, row.recipe)
    return artifact is not None and (artifact.elf, artifact.size) == (row.elf, row.size)


def _set_holds(project: Project, model: str, layout: str, kept: Iterable[str]) -> bool:
    paths = set(kept)
    try:
        wanted = model_requirements(project, model, layout)
    except ElfkilnError:
        # A plan of somebody's folder, which this project has no name for.
        return bool(paths)
    return any(need.path in paths for need in wanted.requirements)

"""Frees what nothing reaches: artifacts that no registry, plan or running build names, and blobs of nobody.

What is kept is worked out from names, never from age alone. Age only keeps more: what was written a short while ago
may be about to get its name. A blob is removed while nobody uses the store (`Store.alone`), so a build, an install or
a pull never finds a blob gone that it was about to name.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import Differs
from elfkiln.io.checked import is_sha256
from elfkiln.io.files import storage_refusal, sync_folder
from elfkiln.io.locking import PATIENCE
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.closure import Node, manifests_among, read_nodes
from elfkiln.store.registry import load_registry
from elfkiln.work.generations import KEPT, registries_kept
from elfkiln.work.leftovers import sweep_project
from elfkiln.work.roots import kept

GRACE = 3600.0
"""Seconds for which a blob that nothing names yet is left alone."""


@dataclass(frozen=True, slots=True)
class Loose:
    """One thing that nothing reaches: its file name among the blobs, what it is, its bytes, and whether they go.

    `shared` says that another file (an install) is a link to the same bytes, so that removing it frees nothing.
    """

    name: str
    what: str
    size: int
    shared: bool

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"name": self.name, "what": self.what, "bytes": self.size, "shared": self.shared}


@dataclass(frozen=True, slots=True)
class Collected:
    """What gc found, or freed: the loose things, what it kept, what was too young, and unfinished files.

    `aside_bytes` are those of the damaged files that fsck set aside.
    """

    deleted: bool
    loose: tuple[Loose, ...]
    kept_blobs: int
    kept_bytes: int
    young: int
    generations: int
    swept: int
    aside: int
    aside_bytes: int

    @property
    def bytes(self) -> int:
        """The bytes of the loose things."""
        return sum(one.size for one in self.loose)

    @property
    def freed(self) -> int:
        """The bytes that their removal gives back."""
        return sum(one.size for one in self.loose if not one.shared)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "deleted": self.deleted,
            "blobs": len(self.loose),
            "bytes": self.bytes,
            "freed_bytes": self.freed,
            "kept_blobs": self.kept_blobs,
            "kept_bytes": self.kept_bytes,
            "young": self.young,
            "generations": self.generations,
            "swept": self.swept,
            "damaged": self.aside,
            "damaged_bytes": self.aside_bytes,
            "loose": [one.to_json() for one in self.loose],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person: artifacts one by one, other blobs counted."""
        verb = "freed" if self.deleted else "would free"
        lines = [f"{verb} {one.what}: {one.size:,} bytes" for one in self.loose if one.what != _BLOB]
        rest = [one for one in self.loose if one.what == _BLOB]
        if rest:
            lines.append(f"{verb} {len(rest)} blobs of theirs or of nobody: {sum(one.size for one in rest):,} bytes")
        if self.aside:
            went = " and removed" if self.deleted and not self.aside_bytes else "; --delete --damaged removes them"
            lines.append(f"{self.aside} damaged files that fsck set aside: {self.aside_bytes:,} bytes{went}")
        young = f", {self.young} too young to judge" if self.young else ""
        lines.append(
            f"{verb} {len(self.loose)} blobs, {self.bytes:,} bytes ({self.freed:,} given back); kept {self.kept_blobs} "
            f"blobs, {self.kept_bytes:,} bytes, for registry.yaml and {self.generations} generations{young}"
        )
        if not self.deleted and self.loose:
            lines.append("nothing was removed: this was a dry run; --delete removes")
        return lines


_BLOB = "blob"


def collect(
    project: Project,
    *,
    delete: bool = False,
    damaged: bool = False,
    generations: int = KEPT,
    grace: float = GRACE,
    patience: float = PATIENCE,
) -> Collected:
    """Find what nothing reaches, and remove it if `delete`; `damaged` removes what fsck has set aside as well.

    `generations` are kept beside registry.yaml, and so is what was written in the last `grace` seconds. Waits for
    whoever uses the store for up to `patience` seconds. Raises `Differs` when a manifest or generation is damaged, as
    what it keeps cannot be known then, and `Refused` when registry.yaml or toolchain.lock cannot be read; nothing is
    removed in either case.
    """
    store = Store(project.store)
    if not store.root.is_dir():
        guard: AbstractContextManager[None] = nullcontext()
    elif delete:
        guard = store.alone(patience)
    else:
        guard = store.in_use()
    with guard:
        collector = _Collector(project, store, generations, grace)
        found = collector.find()
        return collector.remove(found, damaged=damaged) if delete else found


class _Collector:
    def __init__(self, project: Project, store: Store, generations: int, grace: float) -> None:
        self.project, self.store, self.generations, self.grace = project, store, generations, grace
        self.nodes: dict[str, Node] = {}
        self.lost: list[str] = []
        self.unnamed = False

    def find(self) -> Collected:
        """Work out what is loose."""
        states = self._states()
        entries, _ = self.store.index()
        registry = load_registry(self.project.registry_file)
        registries = registries_kept(self.project, registry, self.generations)
        named = {entry.digest for entry in entries}
        named |= {entry.manifest for one in registries for rows in one.targets.values() for entry in rows.values()}
        self.nodes, unread = read_nodes(self.store, (digest for digest in sorted(named) if digest in states))
        if unread:
            raise Differs(f"{next(iter(unread.values()))}; run elfkiln fsck --repair first, nothing was removed")
        self.lost = [entry.digest for entry in entries if entry.digest not in states]
        parts = {part for node in self.nodes.values() for part, _ in node.parts}
        unnamed = (digest for digest in states if digest not in parts and digest not in self.nodes)
        hidden = manifests_among(self.store, (digest for digest in unnamed if is_sha256(digest)))
        self.nodes |= hidden
        since = time.time() - self.grace
        young = {name for name, state in states.items() if state.st_mtime > since}
        held = kept(self.project, self.nodes, registries, young)
        self.unnamed = not held.isdisjoint(hidden)
        loose = [self._loose(name, states[name]) for name in states if name not in held and name not in young]
        here = [state.st_size for name, state in states.items() if name in held]
        aside = _files(self.store)
        return Collected(
            False,
            tuple(sorted(loose, key=lambda one: (one.what == _BLOB, one.what, one.name))),
            len(here),
            sum(here),
            len(young - held),
            len(registries) - 1,
            0,
            len(aside),
            sum(aside.values()),
        )

    def _states(self) -> dict[str, os.stat_result]:
        """Return the state of every file among the blobs, and of nothing else that may lie there."""
        found = {}
        try:
            with os.scandir(self.store.blobs) as entries:
                for entry in entries:
                    state = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode) and not entry.name.startswith("."):
                        found[entry.name] = state
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise storage_refusal(self.store.blobs, error) from error
        return found

    def _loose(self, name: str, state: os.stat_result) -> Loose:
        node = self.nodes.get(name)
        what = _BLOB
        if node is not None and node.is_artifact:
            what = f"the artifact of recipe sha256:{node.config}"
        elif node is not None and node.is_toolchain:
            what = f"the mirror of toolchain {node.config[:12]}, which toolchain.lock does not pin"
        elif node is not None:
            what = f"what is kept about sha256:{node.subject}"
        return Loose(name, what, state.st_size, state.st_nlink > 1)

    def remove(self, found: Collected, *, damaged: bool) -> Collected:
        """Remove it: first the names, then manifests, then the rest, so that whatever is named is whole at any time."""
        gone = {one.name for one in found.loose}
        manifests = [one.name for one in found.loose if one.name in self.nodes]
        try:
            if gone or self.lost:
                self.store.reindex({*manifests, *self.lost}, unnamed=self.unnamed)
            for names in (manifests, sorted(gone.difference(manifests))):
                for name in names:
                    (self.store.blobs / name).unlink(missing_ok=True)
                if names:
                    sync_folder(self.store.blobs)
            left = found.aside_bytes
            if damaged and found.aside:
                shutil.rmtree(self.store.aside)
                left = 0
        except OSError as error:
            raise storage_refusal(self.store.root, error) from error
        return _done(found, sweep_project(self.project), left)


def _done(found: Collected, swept: int, aside_bytes: int) -> Collected:
    return Collected(
        True,
        found.loose,
        found.kept_blobs,
        found.kept_bytes,
        found.young,
        found.generations,
        swept,
        found.aside,
        aside_bytes,
    )


def _files(store: Store) -> Mapping[str, int]:
    """Return what fsck has set aside, with its bytes."""
    found = {}
    for place, _, names in os.walk(store.aside):
        for name in names:
            path = os.path.join(place, name)
            found[path] = os.lstat(path).st_size
    return found

"""Mends what fsck finds: damaged blobs are set aside, never deleted, and built or fetched anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from elfkiln.errors import Differs, ElfkilnError
from elfkiln.io.files import storage_refusal
from elfkiln.io.workspace import build_parent, private_folder
from elfkiln.models.catalogue import every_requirement
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import find_artifact
from elfkiln.store.blobs import Store
from elfkiln.store.closure import Node, read_nodes
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.target import Builder
from elfkiln.work.fsck import Checkup, Damage, fsck
from elfkiln.work.install import place_file
from elfkiln.work.jobs import Job, plan_jobs, registered_problem, registry_key
from elfkiln.work.kernels_lock import LOCK_NAME, folder_lock, read_kernels_lock
from elfkiln.work.leftovers import sweep_project
from elfkiln.work.lookup import Found
from elfkiln.work.mirrors import Mirrors, fetch_missing
from elfkiln.work.obtain import obtain
from elfkiln.work.progress import Progress
from elfkiln.work.recipes import Memo

BuilderOf: TypeAlias = Callable[[str], Builder]
"""Returns the builder of a target; raises `Refused` where its toolchain cannot be used."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did, a line each, what it could not do, and what fsck finds afterwards."""

    done: tuple[str, ...]
    left: tuple[str, ...]
    checkup: Checkup


def repair(
    project: Project,
    found: Checkup,
    builder_of: BuilderOf,
    mirrors: Mirrors | None = None,
    *,
    folders: Iterable[Path] = (),
    progress: Progress | None = None,
) -> Repaired:
    """Mend what `found` lists and check everything again.

    Damaged blobs go to `damaged/` of the store. What a registered name lacks is fetched from the first of `mirrors`
    that has its recipe, else built anew: only by the recipe that registry.yaml has, never by another one. What nobody
    can make again (an attestation, the log of a build) is unnamed, so that nothing stumbles over it; but only when all
    that is registered is whole again, since what is built for a name may be what something else lacks.
    """
    sweep_project(project)
    work = _Repair(project, Store(project.store), builder_of, mirrors)
    work.set_aside(found.damage)
    work.restore(found.damage.names)
    if not found.registry_known:
        work.left.append("registry.yaml: could not be read, so nothing was built anew; restore it and repair again")
    if not work.left:
        work.unname_incomplete()
    work.mend_folders(found.damage.folders)
    return Repaired(tuple(work.done), tuple(work.left), fsck(project, folders, progress=progress))


class _Repair:
    def __init__(self, project: Project, store: Store, builder_of: BuilderOf, mirrors: Mirrors | None) -> None:
        self.project, self.store, self.builder_of, self.mirrors = project, store, builder_of, mirrors
        self.done: list[str] = []
        self.left: list[str] = []

    def set_aside(self, damage: Damage) -> None:
        """Move away what is damaged, each looked at once more while nobody uses the store."""
        if damage.blobs or damage.index or damage.files:
            with self.store.alone():
                for digest in damage.blobs:
                    if self.store.set_aside(digest):
                        self.done.append(f"blob sha256:{digest}: moved to {self._shown(self.store.aside)}")
                for path in damage.files:
                    self.store.set_file_aside(path)
                    self.done.append(f"{self._shown(path)}: moved to {self._shown(self.store.aside)}")
                self.store.reindex()

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.project.root))

    def restore(self, names: Iterable[tuple[str, str]]) -> None:
        """Fetch or build what registered names lack."""
        by_target: dict[str, list[str]] = {}
        for target, key in names:
            by_target.setdefault(target, []).append(key)
        registered = load_registry(self.project.registry_file) if by_target else None
        for target, keys in by_target.items():
            assert registered is not None
            entries = registered.entries(target)
            wanted = {key: entries[key] for key in keys if key in entries}
            self._fetch(target, wanted)
            rest = [key for key, one in wanted.items() if find_artifact(self.store, one.recipe, one.manifest) is None]
            if rest:
                self._build(target, rest, entries)

    def _fetch(self, target: str, wanted: Mapping[str, Entry]) -> None:
        if self.mirrors is not None and self.mirrors.addresses:
            rows = [Found(target, key, key, entry) for key, entry in wanted.items()]
            with self.store.in_use():
                came = fetch_missing(self.project, target, rows, self.mirrors)
            self.done += [f"{target}/{key}: fetched" for key in came]

    def _build(self, target: str, keys: list[str], entries: Mapping[str, Entry]) -> None:
        try:
            builder = self.builder_of(target)
            builder.prepare()
        except ElfkilnError as error:
            self.left += [f"{target}/{key}: cannot be built here ({error})" for key in keys]
            return
        asked = self._asked(keys, entries)
        self.left += [
            f"{target}/{key}: no model below plans/ asks for it, so nothing builds it; pull it, or retire the name"
            for key in keys
            if key not in asked
        ]
        jobs, failures = plan_jobs(self.project, builder, asked.values())
        self.left += [f"{target}/{failure.key}: {failure.reason}" for failure in failures]
        for job in jobs:
            try:
                self._build_one(builder, job, entries)
                self.done.append(f"{target}/{job.title}: built anew, to the registered bytes")
            except ElfkilnError as error:
                self.left.append(f"{target}/{job.title}: {error}")

    def _asked(self, keys: list[str], entries: Mapping[str, Entry]) -> dict[str, RequirementSet]:
        """Return a set of one requirement for each name: that of the first model which asks as registered."""
        left, found = set(keys), dict[str, RequirementSet]()
        for wanted, need in every_requirement(self.project):
            key = registry_key(wanted, need)
            if key in left and registered_problem(need, entries[key]) is None:
                found[key] = replace(wanted, requirements=(need,))
                left.remove(key)
                if not left:
                    break
        return found

    def _build_one(self, builder: Builder, job: Job, entries: Mapping[str, Entry]) -> None:
        if job.recipe is None:
            with private_folder(build_parent(self.project.work)) as folder:
                job = replace(job, recipe=Memo(self.project, builder).tell(job.generator, folder).recipe)
        assert job.recipe is not None
        for key, _ in job.wanted:
            if entries[key].recipe != job.recipe.digest:
                raise Differs(
                    f"its recipe is another one now, so the registered bytes cannot be built from these sources; check "
                    f"out those of registry.yaml, pull it, or run doit elfs {key} target={builder.pin.name}"
                )
        obtain(self.project, builder, job, registered=entries)

    def unname_incomplete(self) -> None:
        """Take out of the index what is not whole and can be neither built nor fetched: records, attestations."""
        registered = {
            entry.manifest
            for entries in load_registry(self.project.registry_file).targets.values()
            for entry in entries.values()
        }
        with self.store.alone():
            entries, _ = self.store.index()
            nodes, unread = read_nodes(self.store, (entry.digest for entry in entries))
            broken = {digest: lost for digest, node in nodes.items() if (lost := self._lost(node, registered))}
            for digest, part in broken.items():
                self.store.drop_manifest(digest)
                self.done.append(
                    f"manifest sha256:{digest}: moved to {self._shown(self.store.aside)}, since sha256:{part} is lost"
                )
            gone = {*broken, *unread}
            if gone:
                self.store.reindex(gone)

    def _lost(self, node: Node, registered: set[str]) -> str:
        """Return a part that a manifest lacks, "" for one that is whole or that registry.yaml names."""
        if node.digest in registered:
            return ""
        # Looked at twice: a disk that fails once must not cost a signature.
        return next((part for part, _ in node.parts if not (self.store.holds(part) or self.store.holds(part))), "")

    def mend_folders(self, folders: Iterable[Path]) -> None:
        """Put the files of install folders there again, as their kernels.lock.json lists them."""
        for folder in folders:
            with self.store.in_use(), folder_lock(folder):
                lock = read_kernels_lock(folder / LOCK_NAME)
                for path, row in sorted(lock.rows.items()) if lock is not None else ():
                    self._mend_file(folder / path, row.elf)

    def _mend_file(self, path: Path, elf: str) -> None:
        if not self.store.holds(elf):
            self.left.append(f"{path}: sha256:{elf} is not in the store to put there")
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if place_file(self.store, elf, path) != "unchanged":
                self.done.append(f"{path}: put there anew")
        except OSError as error:
            raise storage_refusal(path, error) from error

"""Checks everything below out/ that has a digest, and registry.yaml against it: what is corrupt, missing, unreferenced.

Every blob is hashed, on all cores. What lies in the store, its index and registry.yaml are taken down together while
nobody uses the store, so a build that goes on meanwhile is not a finding.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Differs, ElfkilnError, Refused
from elfkiln.io.checked import is_sha256
from elfkiln.io.reading import read_bytes, reason_of, sha256_of
from elfkiln.project import REGISTRY_FILE, Project
from elfkiln.store.agreement import entry_fault
from elfkiln.store.blobs import Descriptor, Store
from elfkiln.store.closure import Node, manifests_among, reached, read_nodes
from elfkiln.store.registry import Entry, Registry, load_registry
from elfkiln.work.answers import ABSENT, look_at, sealed_body
from elfkiln.work.generations import damaged_files, registries_kept
from elfkiln.work.install_folders import known_folders
from elfkiln.work.kernels_lock import LOCK_NAME, folder_lock, read_kernels_lock
from elfkiln.work.progress import Progress
from elfkiln.work.roots import kept

State: TypeAlias = Literal["corrupt", "missing", "unreferenced"]
T = TypeVar("T")

EXIT_CORRUPT = EXIT_DIFFERS
EXIT_MISSING = 3
EXIT_UNREFERENCED = 4

REPAIR = "elfkiln fsck --repair"
_MOST_ANSWER = 64 << 20
_CACHED = re.compile(r"[0-9a-f]{64}\.([0-9a-f]{64})\.[a-z]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: its state, what it is, what was found, and what to do.

    `size` are the bytes it takes.
    """

    state: State
    what: str
    detail: str
    remedy: str = ""
    size: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "state": self.state,
            "what": self.what,
            "detail": self.detail,
            "remedy": self.remedy or None,
            "bytes": self.size,
        }

    def line(self) -> str:
        """Return the line for a person."""
        return f"{self.state:<8} {self.what}: {self.detail}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Damage:
    """What a repair works on: damaged blobs, names of registry.yaml that are not whole, and so on.

    `names` are (target, key), `incomplete` manifests that nothing of registry.yaml names and that miss a part, `files`
    damaged files below out/ that only save time, `folders` install folders with a file that is not as listed.
    """

    blobs: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    incomplete: tuple[str, ...] = ()
    index: bool = False
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was looked at, and what was found: the worst first."""

    blobs: int
    bytes: int
    manifests: int
    names: int
    folders: tuple[str, ...]
    findings: tuple[Finding, ...]
    damage: Damage

    def count(self, state: State) -> int:
        """Return how many findings are of a state."""
        return sum(one.state == state for one in self.findings)

    @property
    def registry_known(self) -> bool:
        """Whether registry.yaml could be read: without it nobody knows what should be there."""
        return all(one.what != REGISTRY_FILE for one in self.findings)

    @property
    def damaged(self) -> bool:
        """Whether there is anything that a repair could mend."""
        return self.damage != Damage()

    @property
    def exit_code(self) -> int:
        """The worst that was found: 1 corrupt, 3 missing, 4 only unreferenced, 0 nothing."""
        codes = {"corrupt": EXIT_CORRUPT, "missing": EXIT_MISSING, "unreferenced": EXIT_UNREFERENCED}
        return next((code for state, code in codes.items() if any(f.state == state for f in self.findings)), EXIT_DONE)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "blobs": self.blobs,
            "bytes": self.bytes,
            "manifests": self.manifests,
            "names": self.names,
            "folders": list(self.folders),
            "corrupt": self.count("corrupt"),
            "missing": self.count("missing"),
            "unreferenced": self.count("unreferenced"),
            "findings": [one.to_json() for one in self.findings],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person; what nothing refers to is only counted."""
        lines = [one.line() for one in self.findings if one.state != "unreferenced"]
        loose = [one for one in self.findings if one.state == "unreferenced"]
        if loose:
            total = sum(one.size for one in loose)
            lines.append(f"unreferenced: {len(loose)} artifacts and blobs, {total:,} bytes; elfkiln gc lists them")
        counts = ", ".join(f"{self.count(state)} {state}" for state in ("corrupt", "missing", "unreferenced"))
        folders = f", {len(self.folders)} install folders" if self.folders else ""
        lines.append(
            f"{self.blobs} blobs ({self.bytes:,} bytes), {self.manifests} manifests, {self.names} names{folders}: "
            + (counts if self.findings else "everything is there, and every byte verifies")
        )
        return lines


def fsck(project: Project, folders: Iterable[Path] = (), *, progress: Progress | None = None) -> Checkup:
    """Check the store, registry.yaml, what is kept below out/, and install folders: given ones and known ones.

    Nothing is changed. Raises `Refused` for a folder that is given and has no kernels.lock.json.
    """
    show = progress or Progress.silent()
    try:
        given = [*folders]
        return _Check(project, Store(project.store), show).all(given)
    finally:
        show.stop()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What lies in the store at one moment, and what names it."""

    names: tuple[str, ...]
    entries: tuple[Descriptor, ...]
    index_fault: str
    registry: Registry | None
    registry_fault: str


class _Check:
    """One run of fsck."""

    def __init__(self, project: Project, store: Store, progress: Progress) -> None:
        self.project, self.store, self.progress = project, store, progress
        self.findings: list[Finding] = []
        self.sizes: dict[str, int] = {}
        self.bad: dict[str, str] = {}
        self.users: dict[str, list[str]] = {}

    def all(self, given: list[Path]) -> Checkup:
        snapshot = self._snapshot()
        with self._held():
            self._hash_blobs(snapshot)
            registry = snapshot.registry or Registry({})
            rows = [(target, key, entry) for target, rows in registry.targets.items() for key, entry in rows.items()]
            digests = [*(entry.digest for entry in snapshot.entries), *(entry.manifest for _, _, entry in rows)]
            nodes, unread = read_nodes(self.store, (d for d in digests if d in self.sizes and d not in self.bad))
            nodes |= self._unnamed(rows, nodes)
            self._note_users(rows, nodes)
            self._tell_blobs()
            self._tell_index(snapshot, unread)
            broken = self._tell_names(rows, nodes)
            incomplete = self._tell_manifests({entry.manifest for _, _, entry in rows}, nodes)
            if snapshot.registry is not None:
                self._tell_unreferenced(nodes, snapshot)
            files = self._look_at_kept_files()
            places, damaged = self._look_at_folders(given)
        order: tuple[State, ...] = ("corrupt", "missing", "unreferenced")
        return Checkup(
            len(self.sizes),
            sum(self.sizes.values()),
            len(nodes),
            len(rows),
            tuple(map(str, places)),
            tuple(sorted(self.findings, key=lambda one: (order.index(one.state), one.what))),
            Damage(
                tuple(sorted(self.bad)),
                tuple(broken),
                tuple(incomplete),
                bool(snapshot.index_fault) or any(one.what.startswith("index.json") for one in self.findings),
                tuple(files),
                tuple(damaged),
            ),
        )

    def _snapshot(self) -> _Snapshot:
        try:
            guard: AbstractContextManager[None] = self.store.alone() if self.store.root.is_dir() else nullcontext()
        except Refused:
            # A store that can only be read: nobody changes it from here.
            guard = nullcontext()
        with guard:
            try:
                names = tuple(sorted(os.listdir(self.store.blobs)))
            except OSError:
                names = ()
            entries, fault = self.store.index()
            registry: Registry | None = None
            registry_fault = ""
            try:
                registry = load_registry(self.project.registry_file)
            except ElfkilnError as error:
                registry_fault = str(error)
        if registry_fault:
            self._found("corrupt", REGISTRY_FILE, registry_fault.removeprefix("registry.yaml: "))
        return _Snapshot(names, tuple(entries), fault, registry, registry_fault)

    def _held(self) -> AbstractContextManager[None]:
        return self.store.in_use() if self.store.root.is_dir() else nullcontext()

    def _found(self, state: State, what: str, detail: str, remedy: str = "", size: int = 0) -> None:
        self.findings.append(Finding(state, what, detail, remedy, size))

    def _hash_blobs(self, snapshot: _Snapshot) -> None:
        for name in snapshot.names:
            try:
                state = os.lstat(self.store.blobs / name)
            except OSError:
                continue
            size = state.st_size if stat.S_ISREG(state.st_mode) else 0
            if is_sha256(name):
                self.sizes[name] = size
            else:
                self._found("unreferenced", f"blobs/{name}", "not a blob: blobs are named by their sha256", "", size)
        self.progress.start(len(self.sizes))
        self.progress.begin("hashing blobs")
        digests = sorted(self.sizes, key=lambda digest: -self.sizes[digest])
        for digest, problem in zip(digests, on_all_cores(self._problem, digests), strict=True):
            if problem == _GONE:
                del self.sizes[digest]
            elif problem:
                self.bad[digest] = problem

    def _problem(self, digest: str) -> str:
        try:
            found = sha256_of(self.store.path(digest), follow=False)
            problem = "" if found == digest else f"{self.sizes[digest]} bytes of sha256:{found}"
        except FileNotFoundError:
            problem = _GONE
        except OSError as error:
            problem = f"cannot be read ({reason_of(error)})"
        self.progress.done("hashing blobs", built=False)
        return problem

    def _note_users(self, rows: list[tuple[str, str, Entry]], nodes: Mapping[str, Node]) -> None:
        """Note what each blob is for, so that a damaged one is named by more than its digest."""
        for target, key, entry in rows:
            node = nodes.get(entry.manifest)
            parts = {part for part, _ in node.parts} if node else set()
            for digest in {*entry.digests, *parts}:
                self.users.setdefault(digest, []).append(f"{target}/{key}")
        for node in nodes.values():
            what = "a toolchain mirror" if node.is_toolchain else self._about(node)
            for part, _ in node.parts:
                self.users.setdefault(part, [what])
            self.users.setdefault(node.digest, [what])

    def _about(self, node: Node) -> str:
        if node.subject is None:
            return f"manifest sha256:{node.digest}"
        return f"what is kept about {', '.join(self.users.get(node.subject, [f'sha256:{node.subject}']))}"

    def _tell_blobs(self) -> None:
        for digest, problem in self.bad.items():
            users = self.users.get(digest, [])
            of = f"; part of {', '.join(users)}" if users else "; nothing refers to it"
            self._found("corrupt", f"blob sha256:{digest}", f"{problem}{of}", REPAIR, self.sizes[digest])

    def _tell_index(self, snapshot: _Snapshot, unread: Mapping[str, str]) -> None:
        if snapshot.index_fault:
            state: State = "missing" if snapshot.index_fault == "missing" else "corrupt"
            self._found(state, "index.json", snapshot.index_fault, REPAIR)
        for entry in snapshot.entries:
            if entry.digest in self.bad:
                continue
            if entry.digest not in self.sizes:
                self._found("missing", f"index.json: {_ref(entry)}", f"sha256:{entry.digest} is not there", REPAIR)
            elif entry.digest in unread:
                self._found("corrupt", f"index.json: {_ref(entry)}", unread[entry.digest], REPAIR)
            elif entry.size != self.sizes[entry.digest]:
                says = f"says {entry.size} bytes, sha256:{entry.digest} has {self.sizes[entry.digest]}"
                self._found("corrupt", f"index.json: {_ref(entry)}", says, REPAIR)

    def _tell_names(self, rows: list[tuple[str, str, Entry]], nodes: Mapping[str, Node]) -> list[tuple[str, str]]:
        broken = []
        for target, key, entry in rows:
            node = nodes.get(entry.manifest)
            wanted = {*entry.digests, *((part for part, _ in node.parts) if node else ())}
            gone = sorted(digest for digest in wanted if digest not in self.sizes)
            if gone:
                one = gone[0] if len(gone) == 1 else f"{gone[0]} and {len(gone) - 1} more"
                self._found("missing", f"registry.yaml: {target}/{key}", f"sha256:{one} not in the store", REPAIR)
            elif node is not None and (fault := entry_fault(self.store, target, key, entry)) is not None:
                self._found("corrupt", f"registry.yaml: {target}/{key}", fault.partition(f"{key}: ")[2])
            if gone or not wanted.isdisjoint(self.bad):
                broken.append((target, key))
        return broken

    def _tell_manifests(self, registered: set[str], nodes: Mapping[str, Node]) -> list[str]:
        """Tell of manifests whose parts are not all there, those that registry.yaml names apart; return them."""
        found = []
        for digest, node in nodes.items():
            for part, size in node.parts:
                if part in self.sizes and part not in self.bad and self.sizes[part] != size:
                    says = f"says {size} bytes of sha256:{part}, which has {self.sizes[part]}"
                    self._found("corrupt", f"manifest sha256:{digest}", says)
            gone = [part for part, _ in node.parts if part not in self.sizes]
            damaged = [part for part, _ in node.parts if part in self.bad]
            if digest not in registered and (gone or damaged):
                found.append(digest)
                if gone:
                    what = "toolchain mirror" if node.is_toolchain else self._about(node)
                    remedy = "elfkiln toolchain mirror" if node.is_toolchain else REPAIR
                    self._found("missing", what, f"sha256:{gone[0]} not in the store", remedy)
        return found

    def _unnamed(self, rows: list[tuple[str, str, Entry]], nodes: Mapping[str, Node]) -> dict[str, Node]:
        """Return the manifests that nothing names: their entries in index.json are lost, or were not written yet."""
        named = {digest for _, _, entry in rows for digest in entry.digests}
        named |= {part for node in nodes.values() for part, _ in node.parts}
        loose = (d for d in self.sizes if d not in named and d not in nodes and d not in self.bad)
        return manifests_among(self.store, loose)

    def _tell_unreferenced(self, nodes: Mapping[str, Node], snapshot: _Snapshot) -> None:
        try:
            registries = registries_kept(self.project, snapshot.registry or Registry({}))
        except Differs:
            return  # what they keep is not known; the damaged file is a finding of its own
        try:
            held = kept(self.project, nodes, registries)
        except Refused as error:
            self._found("corrupt", "toolchain.lock", str(error).removeprefix("toolchain.lock: "))
            return
        named = {entry.digest for entry in snapshot.entries}
        registry = snapshot.registry or Registry({})
        needed = reached(nodes, (one.manifest for rows in registry.targets.values() for one in rows.values()))
        for digest, node in nodes.items():
            if digest in needed and digest not in named:
                self._found("missing", "index.json", f"no entry for sha256:{digest}, {_kind_of(node)}", REPAIR)
        for digest, size in self.sizes.items():
            if digest not in held and digest not in self.bad:
                unreferenced = nodes.get(digest)
                detail = "a blob that nothing refers to" if unreferenced is None else _kind_of(unreferenced)
                self._found("unreferenced", f"sha256:{digest}", detail, "elfkiln gc", size)

    def _look_at_kept_files(self) -> list[Path]:
        """Check what only saves time: answers end in their own sha256, cached files are named by theirs."""
        bad = []
        for path in _files_below(self.project.index):
            data = _bytes_or_none(path)
            if data is not None and path.suffix == ".txt" and sealed_body(data) is None:
                bad.append(path)
        cached = [path for path in _files_below(self.project.cache) if _CACHED.fullmatch(path.name)]
        for path, found in zip(cached, on_all_cores(lambda path: look_at(str(path), None), cached), strict=True):
            match = _CACHED.fullmatch(path.name)
            if match is not None and found != match[1] and not found.startswith(ABSENT):
                bad.append(path)
        for path in bad:
            where = path.relative_to(self.project.root)
            self._found("corrupt", str(where), "not the bytes that were written; it only saves time", REPAIR)
        past = damaged_files(self.project)
        for path in past:
            where = path.relative_to(self.project.root)
            self._found("corrupt", str(where), "a generation of registry.yaml is damaged or not whole", REPAIR)
        return bad + past

    def _look_at_folders(self, given: list[Path]) -> tuple[list[Path], list[Path]]:
        for folder in given:
            if not os.path.lexists(folder / LOCK_NAME):
                raise Refused(f"dir={folder}: expected a folder with a {LOCK_NAME}, found none; install into it first")
        places = sorted({*(folder.resolve() for folder in given), *known_folders(self.project)})
        return places, [folder for folder in places if self._look_at_folder(folder)]

    def _look_at_folder(self, folder: Path) -> bool:
        with contextlib.ExitStack() as stack:
            # An install that runs is not a finding; a folder that can only be read has none.
            with contextlib.suppress(Refused):
                stack.enter_context(folder_lock(folder))
            return self._compare_folder(folder)

    def _compare_folder(self, folder: Path) -> bool:
        try:
            lock = read_kernels_lock(folder / LOCK_NAME)
        except Refused as error:
            self._found("corrupt", str(folder / LOCK_NAME), str(error).removeprefix(f"{folder / LOCK_NAME}: "))
            return False
        if lock is None:
            return False
        bad = False
        paths = sorted(lock.rows)

        def look(path: str) -> str:
            return look_at(str(folder / path), lock.rows[path].size)

        for path, found in zip(paths, on_all_cores(look, paths), strict=True):
            if found != lock.rows[path].elf:
                state: State = "missing" if found.startswith(ABSENT) else "corrupt"
                detail = f"sha256:{found}" if is_sha256(found) else found
                self._found(state, str(folder / path), f"expected sha256:{lock.rows[path].elf}, found {detail}", REPAIR)
                bad = True
        return bad


_GONE = "gone"


def on_all_cores(work: Callable[[T], str], items: list[T]) -> list[str]:
    """Return what a function that hashes says of each item; hashing lets go of the interpreter's lock."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(work, items))


def _ref(entry: Descriptor) -> str:
    return dict(entry.annotations).get("org.opencontainers.image.ref.name", entry.digest)


def _kind_of(node: Node) -> str:
    if node.is_artifact:
        return f"the artifact of recipe sha256:{node.config}"
    if node.is_toolchain:
        return "the mirror of a toolchain"
    return f"about sha256:{node.subject}" if node.subject else "a manifest"


def _files_below(folder: Path) -> list[Path]:
    found = []
    for place, _, names in os.walk(folder):
        found += [Path(place, name) for name in sorted(names)]
    return found


def _bytes_or_none(path: Path) -> bytes | None:
    try:
        return read_bytes(path, _MOST_ANSWER)
    except OSError:
        return None

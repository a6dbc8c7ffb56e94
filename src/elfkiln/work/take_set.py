"""Takes a whole set from elsewhere, a registry or an archive, into the store and registry.yaml.

A name that registry.yaml has already keeps its digest: other bytes under it are refused before anything is fetched.
Names are registered last, when all of the set is in the store and was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from elfkiln.errors import Differs
from elfkiln.io.canonical import sha256_hex
from elfkiln.models.set_digest import set_digest
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact
from elfkiln.store.blobs import Store, parse_digest, referrer_ref
from elfkiln.store.model_index import ModelIndex, read_index
from elfkiln.store.registry import Entry, load_registry, register
from elfkiln.work.generations import changing
from elfkiln.work.leftovers import sweep_project
from elfkiln.work.take_artifact import Source, manifest_table, name_artifact, take_artifact, take_blob

AT_ONCE = 4


class SetSource(Source, Protocol):
    """Where a set comes from: blobs, manifests by digest, and what refers to them."""

    def manifest(self, digest: str) -> bytes:
        """Return the bytes of a manifest, which have this digest; raises `Differs` when it is not there."""
        ...

    def referring(self, digest: str) -> Iterable[str]:
        """Return the digests of the manifests that refer to one."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A set that came: itself, the names registered anew, artifacts and blobs that came, referrers, its index."""

    target: str
    model: str
    layout: str
    set_digest: str
    names: int
    registered: tuple[str, ...]
    artifacts: int
    blobs: int
    referrers: int
    index: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "target": self.target,
            "model": self.model,
            "layout": self.layout,
            "set_digest": f"sha256:{self.set_digest}",
            "index": f"sha256:{self.index}",
            "names": self.names,
            "registered": list(self.registered),
            "artifacts": self.artifacts,
            "blobs_fetched": self.blobs,
            "referrers": self.referrers,
        }

    def text(self) -> str:
        """Return the lines for a person."""
        return (
            f"{self.model} in {self.layout} for {self.target}: {self.names} names, {self.artifacts} artifacts, "
            f"{self.blobs} blobs fetched, {self.referrers} referrers; {len(self.registered)} names registered anew\n"
            f"set digest sha256:{self.set_digest}"
        )


Accept = Callable[[ModelIndex], None]
"""Whether a set that is in the store, unnamed, may be named: raises `Differs` when it may not (a policy)."""


def take_set(project: Project, source: SetSource, data: bytes, where: str, accept: Accept | None = None) -> Taken:
    """Bring the set that an index's bytes say into the store and registry.yaml; `where` names it in messages.

    Raises `Differs` when what arrives is not what the index, the manifests or registry.yaml say, and when the index'
    own set digest is not that of its names; `Refused` when it is not an index of a set; what `accept` raises. Nothing
    is named or registered then.
    """
    index = read_index(data, where)
    refuse_other_bytes(project, index)
    store = Store(project.store)
    by_manifest: dict[str, dict[str, Entry]] = {}
    for key, entry in index.entries.items():
        by_manifest.setdefault(entry.manifest, {})[key] = entry

    def take(digest: str) -> tuple[Artifact, bytes, int, int]:
        manifest = source.manifest(digest)
        artifact, came = take_artifact(store, source, index.target, manifest, by_manifest[digest])
        return artifact, manifest, came, take_referrers(store, source, digest)

    sweep_project(project)
    with store.in_use():
        with ThreadPoolExecutor(AT_ONCE) as pool:
            came = list(pool.map(take, sorted(by_manifest)))
        if accept is not None:
            accept(index)
        for artifact, manifest, _, _ in came:
            name_artifact(store, artifact, manifest)
        with changing(project, f"took {index.model} target={index.target} from {where}"):
            registered = register_entries(project, index.target, index.entries)
        store.settle()
    return Taken(
        index.target,
        index.model,
        index.layout,
        index.set_digest,
        len(index.entries),
        registered,
        len(by_manifest),
        sum(blobs for _, _, blobs, _ in came),
        sum(referrers for _, _, _, referrers in came),
        sha256_hex(data),
    )


def take_referrers(store: Store, source: SetSource, subject: str) -> int:
    """Bring what refers to a manifest (logs, attestations) into the store; return how many came."""
    known = {descriptor.digest for descriptor in store.refs().values()}
    came = 0
    for digest in source.referring(subject):
        if digest not in known:
            _take_referrer(store, source, source.manifest(digest), subject, referrer_ref(digest))
            came += 1
    return came


def _take_referrer(store: Store, source: Source, data: bytes, subject: str, ref: str) -> None:
    table = manifest_table(data)
    if (table.get("subject") or {}).get("digest") != f"sha256:{subject}":
        raise Differs(f"manifest sha256:{sha256_hex(data)}: listed as a referrer of sha256:{subject}, and is not one")
    for one in (table["config"], *table["layers"]):
        take_blob(store, source, parse_digest(one["digest"]), int(one["size"]))
    store.name_manifest(ref, store.add_bytes(data))


def refuse_other_bytes(project: Project, index: ModelIndex) -> None:
    """Raise `Differs` when registry.yaml has other bytes under a name, or the set digest is not its own."""
    found = set_digest((index.paths[key], entry.elf) for key, entry in index.entries.items())
    if found != index.set_digest:
        raise Differs(f"{index.model}: set digest: expected sha256:{index.set_digest}, found sha256:{found}")
    known = load_registry(project.registry_file).entries(index.target)
    for key, entry in sorted(index.entries.items()):
        own = known.get(key)
        if own is not None and own.elf != entry.elf:
            what = "the same recipe came to other bytes" if own.recipe == entry.recipe else "another recipe"
            raise Differs(
                f"{key}: expected sha256:{own.elf} (registry.yaml), found sha256:{entry.elf}: {what}; "
                f"pull the set that belongs to this checkout, or take the name out of registry.yaml first"
            )


def register_entries(project: Project, target: str, entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """Register names that are new, and return them; those that registry.yaml has stay as they are."""
    known = load_registry(project.registry_file).entries(target)
    new = {key: entry for key, entry in entries.items() if key not in known}
    if new:
        register(project.registry_file, target, new)
    return tuple(sorted(new))

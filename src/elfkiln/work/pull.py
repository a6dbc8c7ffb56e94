"""Pulls a set from an OCI registry into the store, and registers its names.

Every byte is verified on the way in and again before it is named; an ELF is opened and compared with its names as a
fresh build is. A name that registry.yaml has already keeps its digest: other bytes under it are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import Differs
from elfkiln.io.canonical import sha256_hex
from elfkiln.models.set_digest import set_digest
from elfkiln.project import Project
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Store
from elfkiln.store.model_index import ModelIndex, read_index, recipe_tag
from elfkiln.store.oci_registry import NotThere, OciRegistry
from elfkiln.store.registry import Entry, load_registry, register
from elfkiln.work.take_artifact import Source, manifest_table, take_artifact, take_blob

AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull came to: the set, names registered anew, artifacts and blobs that came, referrers, the index."""

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


def pull_set(project: Project, registry: OciRegistry, reference: str) -> Pulled:
    """Bring the set that a tag or digest names into the store and registry.yaml; returns what came.

    Raises `Differs` when what arrives is not what the index, the manifests or registry.yaml say, and when the index'
    own set digest is not that of its names; `Refused` when it is not an index of a set. Nothing is registered then.
    """
    data, _ = registry.get_manifest(reference, accept=(INDEX_TYPE,))
    where = f"oci://{registry.address.host}/{registry.address.repository}:{reference}"
    index = read_index(data, where)
    refuse_other_bytes(project, index)
    store = Store(project.store)
    by_manifest: dict[str, dict[str, Entry]] = {}
    for key, entry in index.entries.items():
        by_manifest.setdefault(entry.manifest, {})[key] = entry

    def take(digest: str) -> tuple[int, int]:
        manifest, _ = registry.get_manifest(f"sha256:{digest}", accept=(MANIFEST_TYPE,))
        _, came = take_artifact(store, registry, index.target, manifest, by_manifest[digest])
        return came, take_referrers(store, registry, digest)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        came = list(pool.map(take, sorted(by_manifest)))
    new = register_entries(project, index.target, index.entries)
    return Pulled(
        index.target,
        index.model,
        index.layout,
        index.set_digest,
        len(index.entries),
        new,
        len(by_manifest),
        sum(blobs for blobs, _ in came),
        sum(referrers for _, referrers in came),
        sha256_hex(data),
    )


def fetch_recipe(store: Store, registry: OciRegistry, target: str, recipe: str, names: Mapping[str, Entry]) -> bool:
    """Bring the artifact of a recipe into the store if the registry has it; return whether it did.

    `names` may be entries that leave the digests empty: those are then taken from the manifest. Raises as
    `take_artifact` does.
    """
    try:
        manifest, _ = registry.get_manifest(recipe_tag(recipe), accept=(MANIFEST_TYPE,))
    except NotThere:
        return False
    if manifest_table(manifest)["config"]["digest"] != f"sha256:{recipe}":
        raise Differs(f"{recipe_tag(recipe)}: the registry has the artifact of another recipe under this tag")
    take_artifact(store, registry, target, manifest, names)
    take_referrers(store, registry, sha256_hex(manifest))
    return True


def take_referrers(store: Store, registry: OciRegistry, subject: str) -> int:
    """Bring what refers to a manifest (logs, attestations) into the store; return how many came."""
    came = 0
    for descriptor in registry.referrers(subject):
        ref = f"referrer-{descriptor.digest}"
        if ref in store.refs():
            continue
        data, _ = registry.get_manifest(f"sha256:{descriptor.digest}", accept=(MANIFEST_TYPE,))
        _store_referrer(store, registry, data, subject, ref)
        came += 1
    return came


def _store_referrer(store: Store, source: Source, data: bytes, subject: str, ref: str) -> None:
    table = manifest_table(data)
    if (table.get("subject") or {}).get("digest") != f"sha256:{subject}":
        raise Differs(f"manifest sha256:{sha256_hex(data)}: listed as a referrer of sha256:{subject}, and is not one")
    for one in (table["config"], *table["layers"]):
        take_blob(store, source, one["digest"].removeprefix("sha256:"), int(one["size"]))
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
        register(project.registry_file, project.out / "locks", target, new)
    return tuple(sorted(new))

"""Pushes artifacts to an OCI registry: one manifest a recipe with its referrers, one index a model and target.

Blobs that are there are not sent; several go at once; manifests come after their blobs and an index after its
manifests, so that whoever pulls in between finds whole things. Every byte is verified before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import Differs, refusal
from elfkiln.io.canonical import sha256_hex
from elfkiln.project import Project
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Descriptor, Store, parse_digest
from elfkiln.store.model_index import ModelIndex, index_bytes, recipe_tag, tag_of
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.store.registry import Entry, load_registry
from elfkiln.work.asked import Asked, asked_by_model
from elfkiln.work.lookup import Found, LookedUp, lookup

AT_ONCE = 4
"""Blobs that are sent at the same time: more gained nothing against a registry on the same machine."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push came to: artifacts, blobs and bytes sent, blobs that were there, and what was tagged."""

    address: str
    artifacts: int
    sent: int
    sent_bytes: int
    there: int
    referrers: int
    tags: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; tags map to the digest of their index."""
        return {
            "address": self.address,
            "artifacts": self.artifacts,
            "blobs_sent": self.sent,
            "bytes_sent": self.sent_bytes,
            "blobs_there": self.there,
            "referrers": self.referrers,
            "tags": {tag: f"sha256:{digest}" for tag, digest in self.tags},
        }

    def text(self) -> str:
        """Return the lines for a person."""
        lines = [f"{self.address}:{tag}  sha256:{digest}" for tag, digest in self.tags]
        lines.append(
            f"{self.artifacts} artifacts: {self.sent} blobs sent ({self.sent_bytes:,} bytes), {self.there} were there, "
            f"{self.referrers} referrers"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Shipment:
    """What leaves for elsewhere: manifests with their recipes, what refers to them, blobs, and indexes."""

    recipes: Mapping[str, str]
    referrers: tuple[tuple[str, Descriptor], ...]
    blobs: Mapping[str, int]
    indexes: tuple[tuple[str, bytes], ...]

    @property
    def all_blobs(self) -> tuple[str, ...]:
        """Every blob of an image layout of it: blobs and manifests."""
        return (*self.blobs, *self.recipes, *(descriptor.digest for _, descriptor in self.referrers))


def shipment_of(project: Project, store: Store, sets: Iterable[Asked], *, tag: str = "") -> Shipment:
    """Return what models or plans ask for, ready to leave; raises `Differs` when it is not whole here."""
    # Read once: with many models the registry is large.
    registered = load_registry(project.registry_file)
    found = [lookup(project, asked, registered.entries(asked.target)) for asked in sets]
    if tag and len(found) != 1:
        raise refusal("tag", expected="one model or plan for it", found=f"{len(found)} of them")
    indexes = [_index_of(project, store, one, tag) for one in found]
    return _shipment(store, {key: entry for one in found for key, entry in _whole_entries(one).items()}, indexes)


def push_sets(project: Project, registry: OciRegistry, sets: Iterable[Asked], *, tag: str = "") -> Pushed:
    """Push everything that models or plans ask for, and an index for each; returns what was sent.

    `tag` names the index of a single set otherwise than `<model>[-<layout>]-<target>`. Raises `Differs` when a name is
    not registered as asked for, or its bytes are not in the store, before anything is sent.
    """
    store = Store(project.store)
    return _push(store, registry, shipment_of(project, store, sets, tag=tag))


def push_names(project: Project, registry: OciRegistry, rows: Iterable[Found]) -> Pushed:
    """Push the artifacts behind registered names, without an index; each is found again by its recipe."""
    entries = {}
    for row in rows:
        if row.entry is None:
            raise Differs(f"{row.key}: {row.unregistered}; build it with doit elfs")
        entries[row.key] = row.entry
    store = Store(project.store)
    return _push(store, registry, _shipment(store, entries, []))


def _whole_entries(found: LookedUp) -> Mapping[str, Entry]:
    entries = {}
    for row in found.rows:
        if row.entry is None or row.problem is not None:
            why = row.problem or f"not registered for target {row.target}"
            raise Differs(f"{row.path}: {why}; build it with doit elfs {' '.join(found.asked.words)}")
        entries[row.key] = row.entry
    return entries


def _index_of(project: Project, store: Store, found: LookedUp, tag: str) -> tuple[str, bytes]:
    asked, entries = found.asked, _whole_entries(found)
    wanted = asked.wanted
    own = wanted.layout
    if asked.folder is None:
        own = asked_by_model(project, wanted.model, target=asked.target).wanted.layout
    sizes = {entry.manifest: len(store.read(entry.manifest)) for entry in entries.values()}
    assert found.set_digest is not None
    paths = {row.key: row.path for row in found.rows}
    index = ModelIndex(asked.target, wanted.model, wanted.layout, found.set_digest, entries, paths, sizes)
    return tag or tag_of(wanted.model, asked.target, wanted.layout, own), index_bytes(index)


def _shipment(store: Store, entries: Mapping[str, Entry], indexes: list[tuple[str, bytes]]) -> Shipment:
    recipes = {entry.manifest: entry.recipe for entry in entries.values()}
    referrers = _referrers_of(store, set(recipes))
    blobs: dict[str, int] = {}
    for digest in (*recipes, *(descriptor.digest for _, descriptor in referrers)):
        blobs.update(_blobs_of(store, digest))
    # All are verified before the first leaves: what is damaged here must not look like somebody else's fault.
    for digest in blobs:
        if (problem := store.problem(digest)) is not None:
            raise Differs(problem)
    return Shipment(recipes, tuple(referrers), blobs, tuple(indexes))


def _push(store: Store, registry: OciRegistry, shipment: Shipment) -> Pushed:
    blobs, recipes = shipment.blobs, shipment.recipes

    by_subject: dict[str, list[Descriptor]] = {}
    for subject, descriptor in shipment.referrers:
        by_subject.setdefault(subject, []).append(descriptor)

    def named(pair: tuple[str, str]) -> bool:
        # A registry takes a manifest when it has what it names: where that is there, nothing of it is asked for.
        return registry.manifest_digest(recipe_tag(pair[1])) == pair[0]

    def unknown(subject: str) -> list[Descriptor]:
        known = {one.digest for one in registry.referrers(subject)}
        return [one for one in by_subject[subject] if one.digest not in known]

    def send(digest: str) -> bool:
        if registry.has_blob(digest):
            return False
        registry.push_blob(digest, store.path(digest))
        return True

    def name(pair: tuple[str, str]) -> None:
        registry.put_manifest(recipe_tag(pair[1]), store.read(pair[0]), MANIFEST_TYPE)

    def refer(subject: str) -> None:
        for descriptor in new_referrers[subject]:
            kind = str(store.manifest(descriptor).get("artifactType", ""))
            registry.put_referrer(subject, store.read(descriptor.digest), kind)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        pairs = sorted(recipes.items())
        new = [pair for pair, there in zip(pairs, pool.map(named, pairs), strict=True) if not there]
        new_referrers = dict(zip(by_subject, pool.map(unknown, by_subject), strict=True))
        manifests = [manifest for manifest, _ in new]
        manifests += [one.digest for descriptors in new_referrers.values() for one in descriptors]
        wanted = sorted({blob for manifest in manifests for blob in _blobs_of(store, manifest)})
        sent = dict(zip(wanted, pool.map(send, wanted), strict=True))
        list(pool.map(name, new))
        # Those of one subject one by one: where the registry has no API for them they share a tag.
        list(pool.map(refer, by_subject))
    tags = []
    for tag, data in shipment.indexes:
        registry.put_manifest(tag, data, INDEX_TYPE)
        tags.append((tag, sha256_hex(data)))
    went = [digest for digest, is_new in sent.items() if is_new]
    return Pushed(
        str(registry.address.tagged("x")).removesuffix(":x"),
        len(recipes),
        len(went),
        sum(blobs[digest] for digest in went),
        len(blobs) - len(went),
        len(shipment.referrers),
        tuple(tags),
    )


def _blobs_of(store: Store, manifest: str) -> dict[str, int]:
    """Return the blobs that a manifest names, with their sizes."""
    table = store.manifest(Descriptor(MANIFEST_TYPE, manifest, 0))
    return {parse_digest(one["digest"]): int(one["size"]) for one in (table["config"], *table["layers"])}


def _referrers_of(store: Store, subjects: set[str]) -> list[tuple[str, Descriptor]]:
    """Return (subject, manifest) of everything in the store that refers to one of some manifests, as logs do."""
    found = []
    for descriptor in store.refs().values():
        if descriptor.digest not in subjects:
            subject = store.manifest(descriptor).get("subject")
            if isinstance(subject, dict) and (digest := parse_digest(subject["digest"])) in subjects:
                found.append((digest, descriptor))
    return found

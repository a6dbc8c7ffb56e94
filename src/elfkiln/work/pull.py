"""Pulls sets and single artifacts from an OCI registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO

from elfkiln.errors import Differs
from elfkiln.io.canonical import sha256_hex
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact, artifact_of
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Descriptor, Store
from elfkiln.store.model_index import recipe_tag
from elfkiln.store.oci_registry import NotThere, OciRegistry
from elfkiln.store.registry import Entry
from elfkiln.work.take_artifact import manifest_table, name_artifact, take_artifact
from elfkiln.work.take_set import Accept, Taken, take_referrers, take_set


@dataclass(frozen=True, slots=True)
class RegistrySource:
    """A registry as a source of sets."""

    registry: OciRegistry

    def pull_blob(self, digest: str, size: int, sink: IO[bytes]) -> None:
        """Write a blob to `sink`, as `OciRegistry.pull_blob` does."""
        self.registry.pull_blob(digest, size, sink)

    def manifest(self, digest: str) -> bytes:
        """Return the bytes of a manifest."""
        return self.registry.get_manifest(f"sha256:{digest}", accept=(MANIFEST_TYPE,))[0]

    def referring(self, digest: str) -> Iterable[str]:
        """Return the digests of the manifests that refer to one."""
        return [descriptor.digest for descriptor in self.registry.referrers(digest)]


def pull_set(project: Project, registry: OciRegistry, reference: str, accept: Accept | None = None) -> Taken:
    """Bring the set that a tag or digest names into the store and registry.yaml; raises as `take_set` does."""
    data, _ = registry.get_manifest(reference, accept=(INDEX_TYPE,))
    where = f"oci://{registry.address.host}/{registry.address.repository}:{reference}"
    return take_set(project, RegistrySource(registry), data, where, accept)


def fetch_artifact(
    store: Store,
    registry: OciRegistry,
    target: str,
    recipe: str,
    entries: Callable[[Artifact], Mapping[str, Entry]],
    *,
    check: Callable[[Store, Artifact], None] | None = None,
    accept: Callable[[Mapping[str, Entry]], None] | None = None,
) -> Artifact | None:
    """Bring the artifact of a recipe into the store and name it; None when the registry does not have it.

    `entries` says which entry each of its names has or would have, and raises when it is not the one that is wanted;
    `check` opens its ELF (default: as the target does); `accept` has the last word before it is named. Raises as
    `take_artifact` does; nothing is named then.
    """
    try:
        manifest, _ = registry.get_manifest(recipe_tag(recipe), accept=(MANIFEST_TYPE,))
    except NotThere:
        return None
    digest = sha256_hex(manifest)
    artifact = artifact_of(manifest_table(manifest), Descriptor(MANIFEST_TYPE, digest, len(manifest)))
    if artifact.recipe != recipe:
        raise Differs(f"{recipe_tag(recipe)}: the registry has the artifact of another recipe under this tag")
    names = entries(artifact)
    with store.in_use():
        take_artifact(store, registry, target, manifest, names, check)
        take_referrers(store, RegistrySource(registry), digest)
        if accept is not None:
            accept(names)
        name_artifact(store, artifact, manifest)
    return artifact

"""Pulls sets and single artifacts from an OCI registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO

from elfkiln.errors import Differs
from elfkiln.io.canonical import sha256_hex
from elfkiln.project import Project
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Store
from elfkiln.store.model_index import recipe_tag
from elfkiln.store.oci_registry import NotThere, OciRegistry
from elfkiln.store.registry import Entry
from elfkiln.work.take_artifact import manifest_table, name_artifact, take_artifact
from elfkiln.work.take_set import Accept, Taken, take_referrers, take_set


@dataclass(frozen=True, slots=True)
class _Remote:
    """A registry as a source of sets."""

    registry: OciRegistry

    def pull_blob(self, digest: str, size: int, sink: IO[bytes]) -> None:
        self.registry.pull_blob(digest, size, sink)

    def manifest(self, digest: str) -> bytes:
        return self.registry.get_manifest(f"sha256:{digest}", accept=(MANIFEST_TYPE,))[0]

    def referring(self, digest: str) -> Iterable[str]:
        return [descriptor.digest for descriptor in self.registry.referrers(digest)]


def pull_set(project: Project, registry: OciRegistry, reference: str, accept: Accept | None = None) -> Taken:
    """Bring the set that a tag or digest names into the store and registry.yaml; raises as `take_set` does."""
    data, _ = registry.get_manifest(reference, accept=(INDEX_TYPE,))
    where = f"oci://{registry.address.host}/{registry.address.repository}:{reference}"
    return take_set(project, _Remote(registry), data, where, accept)


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
    artifact, _ = take_artifact(store, registry, target, manifest, names)
    take_referrers(store, _Remote(registry), sha256_hex(manifest))
    name_artifact(store, artifact, manifest)
    return True

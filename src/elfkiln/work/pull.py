"""Pulls sets from an OCI registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO

from elfkiln.project import Project
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.work.take_set import Accept, Taken, take_set


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

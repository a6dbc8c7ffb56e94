"""Small manifests in a store."""

from __future__ import annotations

from elfkiln.store.blobs import descriptor_of


def add_manifest(store, ref, payload):
    layer = descriptor_of(store, store.add_bytes(payload), "application/octet-stream")
    config = descriptor_of(store, store.add_bytes(b"{}"), "application/vnd.oci.empty.v1+json")
    return store.add_manifest(ref=ref, artifact_type="application/vnd.test", config=config, layers=(layer,))

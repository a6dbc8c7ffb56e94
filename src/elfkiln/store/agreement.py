"""Entries of registry.yaml against the manifests they name: a manifest is content-addressed, an entry is only a line.

An edit by hand, or a merge that took lines of two versions, gives an entry digests that do not belong together. Whoever
serves bytes by such an entry would serve other bytes than were built, so whatever reads entries compares them first.
"""

from __future__ import annotations

from elfkiln.errors import Differs, ElfkilnError, mismatch_line
from elfkiln.store.artifacts import Artifact, artifact_of
from elfkiln.store.blobs import MANIFEST_TYPE, Descriptor, Store
from elfkiln.store.registry import Entry, shape_of

MEND = "restore registry.yaml from the repository, or take the entry out of it and run doit elfs"


def disagreement(key: str, entry: Entry, artifact: Artifact) -> tuple[str, object, object] | None:
    """Return (field, what the manifest says, what the entry says) of the first difference, None when they agree."""
    shape = "" if "/" in key else shape_of(key)
    pairs = (
        ("manifest", artifact.manifest, entry.manifest),
        ("recipe", artifact.recipe, entry.recipe),
        ("elf", artifact.elf, entry.elf),
        ("size", artifact.size, entry.size),
        ("design", artifact.design, entry.design),
        ("columns", artifact.columns, entry.columns),
        ("sealed", sorted(artifact.sealed), sorted(entry.sealed)),
        ("shape", artifact.shape, shape),
    )
    return next((pair for pair in pairs if pair[1] != pair[2]), None)


def entry_fault(store: Store, target: str, key: str, entry: Entry) -> str | None:
    """Return in one line why an entry is not what the manifest it names says, and how to mend it; None when it is.

    A manifest that the store does not have says nothing: then its bytes are missing too.
    """
    where = f"registry.yaml: {target}/{key}"
    if not store.holds(entry.manifest):
        return None
    descriptor = Descriptor(MANIFEST_TYPE, entry.manifest, 0)
    try:
        artifact = artifact_of(store.manifest(descriptor), descriptor)
    except ElfkilnError as error:
        return f"{where}: manifest: {error}; {MEND}"
    found = disagreement(key, entry, artifact)
    if found is None:
        return None
    field, says, has = found
    says_line = f"{_shown(says)}, as manifest sha256:{entry.manifest[:12]} in the store says"
    return mismatch_line(f"{where}: {field}", expected=says_line, found=_shown(has), remedy=MEND)


def require_agreement(store: Store, target: str, key: str, entry: Entry) -> None:
    """Raise `Differs` with the line of `entry_fault`, if there is one."""
    fault = entry_fault(store, target, key, entry)
    if fault is not None:
        raise Differs(fault)


def _shown(value: object) -> str:
    if isinstance(value, str) and len(value) == 64:
        return f"sha256:{value}"
    if isinstance(value, list):
        return " ".join(f"{K}x{N}" for K, N in value) or "none"
    return str(value) or "none"

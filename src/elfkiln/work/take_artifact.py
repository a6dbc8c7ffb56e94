"""Takes an artifact from elsewhere into the store: its blobs, then its manifest, checked against what it shall be.

Pull, import and substitution all come through here. What is taken is hashed on the way in and once more before it is
named; the ELF is opened and compared with every name it shall bear, as a fresh build is. Until the last check has
passed nothing bears a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import storage_refusal, unfinished
from elfkiln.io.reading import sha256_of
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.agreement import disagreement
from elfkiln.store.artifacts import Artifact, artifact_of, recipe_ref
from elfkiln.store.blobs import MANIFEST_TYPE, Descriptor, Store, parse_digest
from elfkiln.store.registry import Entry
from elfkiln.targets.table import target_named

MOST_BLOB = 64 << 20
"""Bytes of one blob of an artifact: a full ELF has some hundred KB."""


class Source(Protocol):
    """Where bytes of a known digest come from: a registry, an archive."""

    def pull_blob(self, digest: str, size: int, sink: IO[bytes]) -> None:
        """Write a blob to `sink`; raises `Differs` when other bytes arrive."""
        ...


def take_blob(store: Store, source: Source, digest: str, size: int) -> bool:
    """Bring one blob into the store unless it is there; return whether it came. Raises `Differs`, nothing is kept."""
    if store.holds(digest):
        return False
    if not 0 <= size <= MOST_BLOB:
        raise refusal(f"blob sha256:{digest}: size", expected=f"at most {MOST_BLOB} bytes", found=size)
    try:
        with unfinished(store.scratch, digest) as (stream, part):
            source.pull_blob(digest, size, stream)
            stream.flush()
            # Read anew: what is on the disk counts, not what was hashed on its way there.
            found = sha256_of(part)
            if found != digest:
                raise Differs(
                    f"blob sha256:{digest}: arrived whole, and its {size} bytes on the disk have sha256 {found}; "
                    f"check the disk of {store.root} and run again"
                )
            store.add_file(part, expected=digest)
    except OSError as error:
        raise storage_refusal(store.root, error) from error
    return True


def take_artifact(
    store: Store,
    source: Source,
    target: str,
    manifest: bytes,
    names: Mapping[str, Entry],
    check: Callable[[Store, Artifact], None] | None = None,
) -> tuple[Artifact, int]:
    """Bring the blobs of a manifest's artifact into the store, not the manifest; return it and how many came.

    `names` are the registry keys it shall bear, each with the entry that says so; `check` opens the ELF (default: the
    target's reader, as `check_elf` does). Raises `Differs` when the manifest,
    a blob or the ELF is not what an entry says, and when the ELF is of another target or geometry.
    """
    digest = sha256_hex(manifest)
    table = manifest_table(manifest)
    descriptor = Descriptor(MANIFEST_TYPE, digest, len(manifest))
    artifact = artifact_of(table, descriptor)
    for key, entry in names.items():
        _compare(key, entry, artifact)
    came = 0
    for one in (table["config"], *table["layers"]):
        came += take_blob(store, source, parse_digest(one["digest"]), int(one["size"]))
    if check is None:
        check_elf(store, target, artifact, names)
    else:
        check(store, artifact)
    return artifact, came


def name_artifact(store: Store, artifact: Artifact, manifest: bytes) -> None:
    """Store the manifest of an artifact that was taken, and name it by its recipe: from here on a build finds it.

    Call it last: a manifest that is in the store has its name again whenever the index is made anew.
    """
    store.name_manifest(recipe_ref(artifact.recipe), store.add_bytes(manifest))


def manifest_table(manifest: bytes) -> dict[str, Any]:
    """Return a manifest's content; raises `Differs` when its bytes are not an image manifest."""
    try:
        table = parse_strict_json(manifest, "manifest")
    except Refused as refused:
        raise Differs(f"manifest sha256:{sha256_hex(manifest)}: {refused}") from refused
    if not isinstance(table, dict) or table.get("mediaType") != MANIFEST_TYPE:
        raise Differs(f"manifest sha256:{sha256_hex(manifest)}: expected an OCI image manifest, found something else")
    return table


def check_elf(store: Store, target: str, artifact: Artifact, names: Mapping[str, Entry]) -> None:
    """Open a stored artifact's ELF as one of a target's and compare it with every name; raises `Differs`."""
    opened = target_named(target).open(store.path(artifact.elf))
    for key, entry in names.items():
        opened.check(None if "/" in key else ArtifactName.parse(key), tuple(entry.sealed))


def _compare(key: str, entry: Entry, artifact: Artifact) -> None:
    found = disagreement(key, entry, artifact)
    if found is not None:
        field, says, has = found
        raise Differs(f"{key}: {field}: expected {has} (as the set says), found {says} in its manifest")

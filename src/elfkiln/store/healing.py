"""What a store can tell of itself when its index is lost: manifests say what they are, and are named after that."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from elfkiln.errors import Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.reading import read_bytes
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.artifacts import ARTIFACT_TYPE, RECORD_ARTIFACT_TYPE, log_ref, recipe_ref
from elfkiln.store.blobs import MANIFEST_TYPE, REF_NAME, Descriptor, Store, manifest_ref, referrer_ref
from elfkiln.store.statement_types import ATTESTATION_TYPES, attestation_ref

TOOLCHAIN_TYPE = "application/vnd.elfkiln.toolchain.v1"
"""The artifact type of a mirrored toolchain, whose config is the pin."""

_MOST_BYTES = 1 << 20


def toolchain_ref(digest: str) -> str:
    """Return the ref name of a mirrored toolchain in the store's index."""
    return f"toolchain-{digest}"


def entries_of_manifests(store: Store) -> list[Descriptor]:
    """Return an index entry for every manifest among the blobs, sorted by ref name.

    Where two manifests would have one name (a recipe that was built twice, to other bytes), the younger has it. A blob
    whose bytes are not those of its name tells nothing.
    """
    found: dict[str, tuple[int, Descriptor]] = {}
    recipes: dict[str, str] = {}
    manifests = [(path, Value(table, path.name)) for path, table in _manifests(store.blobs)]
    for path, table in manifests:
        if table["artifactType"].raw == ARTIFACT_TYPE:
            recipes[path.name] = _digest(table["config"])
    for path, table in manifests:
        ref = _ref_of(path.name, table, recipes)
        state = path.stat()
        entry = Descriptor(MANIFEST_TYPE, path.name, state.st_size, ((REF_NAME, ref),))
        found[ref] = max(found.get(ref, (0, entry)), (state.st_mtime_ns, entry), key=lambda one: one[0])
    return [entry for _, (_, entry) in sorted(found.items())]


def _manifests(blobs: Path) -> list[tuple[Path, object]]:
    """Return every blob that is a whole image manifest, with its content."""
    try:
        names = sorted(os.listdir(blobs))
    except OSError:
        return []
    found = []
    for name in names:
        path = blobs / name
        try:
            data = read_bytes(path, _MOST_BYTES, follow=False)
            if data[:1] != b"{" or MANIFEST_TYPE.encode() not in data or sha256_hex(data) != name:
                continue
            table = parse_strict_json(data, name)
            Value(table, name)["mediaType"].choice((MANIFEST_TYPE,))
            Value(table, name)["config"]["digest"].digest("sha256:")
        except (OSError, Refused):
            continue
        found.append((path, table))
    return found


def _ref_of(digest: str, table: Value, recipes: dict[str, str]) -> str:
    kind, subject = table["artifactType"].raw, table["subject"]
    if kind == ARTIFACT_TYPE:
        return recipe_ref(recipes[digest])
    if kind == TOOLCHAIN_TYPE:
        return toolchain_ref(_digest(table["config"]))
    if subject.absent:
        return manifest_ref(digest)
    if kind in ATTESTATION_TYPES and _is_table(subject):
        with contextlib.suppress(Refused):
            return attestation_ref(_digest(subject), _digest(table["layers"].items()[0]))
    about = recipes.get(str(subject.raw.get("digest", "")).removeprefix("sha256:")) if _is_table(subject) else None
    return log_ref(about) if about is not None and kind == RECORD_ARTIFACT_TYPE else referrer_ref(digest)


def _digest(value: Value) -> str:
    return value["digest"].digest("sha256:")


def _is_table(value: Value) -> bool:
    return isinstance(value.raw, dict)

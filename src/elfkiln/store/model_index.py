"""The index of one model's set on a registry: an OCI image index over its artifacts, with the names each one bears.

    {"schemaVersion": 2, "mediaType": <index>, "artifactType": <SET_TYPE>,
     "manifests": [{..., "annotations": {"dev.elfkiln.names": <canonical JSON>}}],
     "annotations": {"dev.elfkiln.target", ".model", ".layout", ".set-digest"}}

One manifest stands once, whatever number of names it has (G and U are one artifact). Sets that are equal have equal
bytes, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import ElfkilnError, Refused, brief
from elfkiln.io.canonical import canonical_json
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Descriptor
from elfkiln.store.registry import Entry, shape_of

SET_TYPE = "application/vnd.elfkiln.set.v1"
_PREFIX = "dev.elfkiln."
_NAMES = f"{_PREFIX}names"
_MOST_NAMES = 100_000


@dataclass(frozen=True, slots=True)
class ModelIndex:
    """A model's set: target, model, layout, the digest of the whole set, and its registry entries by key.

    `paths` are where the engine looks for each name below a model folder; `sizes` the bytes of each manifest by its
    digest, which a descriptor has to say.
    """

    target: str
    model: str
    layout: str
    set_digest: str
    entries: Mapping[str, Entry]
    paths: Mapping[str, str]
    sizes: Mapping[str, int]


def index_bytes(index: ModelIndex) -> bytes:
    """Return the canonical bytes of a set's index."""
    names: dict[str, list[dict[str, Any]]] = {}
    for key, entry in sorted(index.entries.items()):
        names.setdefault(entry.manifest, []).append(_named(key, index.paths[key], entry))
    manifests = []
    for digest, rows in sorted(names.items()):
        text = canonical_json(rows).decode()
        manifests.append(Descriptor(MANIFEST_TYPE, digest, index.sizes[digest], ((_NAMES, text),)).to_json())
    return canonical_json(
        {
            "schemaVersion": 2,
            "mediaType": INDEX_TYPE,
            "artifactType": SET_TYPE,
            "manifests": manifests,
            "annotations": {
                f"{_PREFIX}target": index.target,
                f"{_PREFIX}model": index.model,
                f"{_PREFIX}layout": index.layout,
                f"{_PREFIX}set-digest": f"sha256:{index.set_digest}",
            },
        }
    )


def read_index(data: bytes, where: str) -> ModelIndex:
    """Return the set that an index's bytes say; raises `Refused` naming the field for what is not one.

    The digests of an entry's own fields are compared with its manifest by whoever takes the artifact.
    """
    try:
        return _index_of(Value(parse_strict_json(data, where), where))
    except ElfkilnError as error:
        raise Refused(f"{where}: not an index of an elfkiln set ({str(error).removeprefix(f'{where}: ')})") from error


def _index_of(top: Value) -> ModelIndex:
    top["artifactType"].choice((SET_TYPE,))
    notes = top["annotations"]
    entries: dict[str, Entry] = {}
    paths: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for row in top["manifests"].items():
        digest = row["digest"].digest("sha256:")
        sizes[digest] = row["size"].whole()
        names = row["annotations"][_NAMES]
        # JSON within JSON: an annotation is a text.
        for one in Value(parse_strict_json(names.text().encode(), names.place), names.place).items():
            key = one["name"].text()
            shape_of(key)
            if key in entries or len(entries) >= _MOST_NAMES:
                raise one["name"].refuse("each name once", found=f"{brief(key)} again")
            entries[key] = _entry(one, digest)
            paths[key] = one["path"].text()
    texts = {key: notes[f"{_PREFIX}{key}"].text() for key in ("target", "model", "layout")}
    set_digest = notes[f"{_PREFIX}set-digest"].digest("sha256:")
    return ModelIndex(**texts, set_digest=set_digest, entries=entries, paths=paths, sizes=sizes)


def tag_of(model: str, target: str, layout: str, own_layout: str) -> str:
    """Return the tag of a set: `<model>-<target>`, with the layout between them where it is not the model's own.

    >>> tag_of("bonsai2-27b", "npu2", "b8", "b8"), tag_of("bonsai2-27b", "npu2", "rm", "b8")
    ('bonsai2-27b-npu2', 'bonsai2-27b-rm-npu2')
    """
    return "-".join((model, *([] if layout == own_layout else [layout]), target))


def recipe_tag(recipe: str) -> str:
    """Return the tag under which an artifact is found by its recipe digest (64 hex digits)."""
    return f"recipe-{recipe}"


def _named(key: str, path: str, entry: Entry) -> dict[str, Any]:
    table: dict[str, Any] = {
        "name": key,
        "path": path,
        "elf": f"sha256:{entry.elf}",
        "recipe": f"sha256:{entry.recipe}",
        "design": f"sha256:{entry.design}",
        "size": entry.size,
        "columns": entry.columns,
    }
    if entry.sealed:
        table["sealed"] = [list(pair) for pair in sorted(entry.sealed)]
    return table


def _entry(one: Value, manifest: str) -> Entry:
    sealed = one["sealed"]
    pairs = [] if sealed.absent else [pair.items() for pair in sealed.items()]
    if any(len(pair) != 2 for pair in pairs):
        raise sealed.refuse("pairs of K and N")
    return Entry(
        elf=one["elf"].digest("sha256:"),
        size=one["size"].whole(),
        recipe=one["recipe"].digest("sha256:"),
        manifest=manifest,
        design=one["design"].digest("sha256:"),
        columns=one["columns"].whole(),
        sealed=tuple((pair[0].whole(), pair[1].whole()) for pair in pairs),
    )

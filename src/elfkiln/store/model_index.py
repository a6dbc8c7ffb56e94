"""The index of one model's set on a registry: an OCI image index over its artifacts, with the names each one bears.

    {"schemaVersion": 2, "mediaType": <index>, "artifactType": <SET_TYPE>,
     "manifests": [{..., "annotations": {"dev.elfkiln.names": <canonical JSON>}}],
     "annotations": {"dev.elfkiln.target", ".model", ".layout", ".set-digest"}}

One manifest stands once, whatever number of names it has (G and U are one artifact). Sets that are equal have equal
bytes, on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import ElfkilnError, Refused, refusal
from elfkiln.io.canonical import canonical_json
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Descriptor, parse_digest
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
        table = json.loads(data)
        if table.get("artifactType") != SET_TYPE:
            raise refusal(f"{where}: artifactType", expected=SET_TYPE, found=table.get("artifactType"))
        notes = {key.removeprefix(_PREFIX): value for key, value in table["annotations"].items()}
        entries: dict[str, Entry] = {}
        paths: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for row in table["manifests"]:
            digest = parse_digest(row["digest"])
            sizes[digest] = _whole(f"{where}: size", row["size"])
            for one in json.loads(row["annotations"][_NAMES]):
                key = str(one["name"])
                shape_of(key)
                if key in entries or len(entries) >= _MOST_NAMES:
                    raise refusal(f"{where}: {key}", expected="each name once", found="it again")
                entries[key] = _entry(f"{where}: {key}", one, digest)
                paths[key] = str(one["path"])
        texts = {key: str(notes[key]) for key in ("target", "model", "layout")}
        return ModelIndex(
            **texts, set_digest=parse_digest(notes["set-digest"]), entries=entries, paths=paths, sizes=sizes
        )
    except ElfkilnError as error:
        raise error if str(error).startswith(where) else Refused(f"{where}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{where}: not an index of an elfkiln set ({type(error).__name__}: {error})") from error


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


def _entry(where: str, one: Mapping[str, Any], manifest: str) -> Entry:
    sealed = tuple(
        (_whole(f"{where}: sealed", K), _whole(f"{where}: sealed", N)) for K, N in _pairs(one.get("sealed", []))
    )
    return Entry(
        elf=parse_digest(one["elf"]),
        size=_whole(f"{where}: size", one["size"]),
        recipe=parse_digest(one["recipe"]),
        manifest=manifest,
        design=parse_digest(one["design"]),
        columns=_whole(f"{where}: columns", one["columns"]),
        sealed=sealed,
    )


def _pairs(value: object) -> Iterable[tuple[object, object]]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise refusal("sealed", expected="pairs of K and N", found=value)
    return [(pair[0], pair[1]) for pair in value]


def _whole(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**53:
        raise refusal(where, expected="a whole number above 0", found=repr(value))
    return value

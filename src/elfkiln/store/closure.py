"""What hangs on what in the store: manifests, the blobs they name, and what is kept when some of them are.

A manifest leads to its config and layers, an index to its manifests, and a kept manifest keeps whatever is about it
(logs, attestations, signatures), as a referrer without its subject says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import Differs, ElfkilnError, Refused
from elfkiln.io.checked import Value
from elfkiln.io.reading import open_regular
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store.artifacts import ARTIFACT_TYPE
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, Store
from elfkiln.store.healing import TOOLCHAIN_TYPE

_MOST_MANIFEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Node:
    """A stored manifest: what kind of thing it is, the (digest, size) of all it names, and what it is about.

    `config` is the digest of its config: an artifact's recipe, a mirrored toolchain's pin. Empty for an index.
    """

    digest: str
    kind: str
    parts: tuple[tuple[str, int], ...]
    subject: str | None
    config: str

    @property
    def is_artifact(self) -> bool:
        """Whether it is an artifact of elfkiln."""
        return self.kind == ARTIFACT_TYPE

    @property
    def is_toolchain(self) -> bool:
        """Whether it is a mirrored toolchain."""
        return self.kind == TOOLCHAIN_TYPE


def read_node(store: Store, digest: str) -> Node:
    """Return a stored manifest, its bytes verified; raises `Differs` when it is missing, damaged or not a manifest."""
    where = f"blob sha256:{digest}"
    try:
        return node_of(digest, parse_strict_json(store.read(digest), where))
    except Refused as error:
        raise Differs(f"{where} is not an OCI manifest ({error})") from error


def node_of(digest: str, table: Any) -> Node:
    """Return what a manifest's or index's content names; raises `Refused` when it is neither."""
    top = Value(table, f"blob sha256:{digest}")
    if top["mediaType"].choice((MANIFEST_TYPE, INDEX_TYPE)) == INDEX_TYPE:
        rows, config = top["manifests"].items(), ""
    else:
        config = top["config"]["digest"].digest("sha256:")
        rows = [top["config"], *top["layers"].items()]
    parts = tuple((row["digest"].digest("sha256:"), row["size"].whole(0)) for row in rows)
    subject = top["subject"]
    kind = top["artifactType"]
    return Node(
        digest,
        "" if kind.absent else kind.text(empty=True),
        parts,
        None if subject.absent else subject["digest"].digest("sha256:"),
        config,
    )


def read_nodes(store: Store, digests: Iterable[str]) -> tuple[dict[str, Node], dict[str, str]]:
    """Return the manifests among some digests, and why others could not be read, both by digest."""
    nodes: dict[str, Node] = {}
    unread: dict[str, str] = {}
    for digest in dict.fromkeys(digests):
        try:
            nodes[digest] = read_node(store, digest)
        except ElfkilnError as error:
            unread[digest] = str(error)
    return nodes, unread


def manifests_among(store: Store, digests: Iterable[str]) -> dict[str, Node]:
    """Return the blobs that are manifests, by digest: what an index that lost entries does not tell of."""
    found = {}
    for digest in digests:
        try:
            with open(open_regular(store.path(digest), follow=False), "rb") as stream:
                if stream.read(1) != b"{" or os.fstat(stream.fileno()).st_size > _MOST_MANIFEST:
                    continue
            found[digest] = read_node(store, digest)
        except (OSError, ElfkilnError):
            continue
    return found


def reached(nodes: Mapping[str, Node], roots: Iterable[str]) -> set[str]:
    """Return the digests of everything that some roots lead to, these included."""
    about: dict[str, list[str]] = {}
    for node in nodes.values():
        if node.subject is not None:
            about.setdefault(node.subject, []).append(node.digest)
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        digest = waiting.pop()
        if digest in found:
            continue
        found.add(digest)
        waiting += about.get(digest, ())
        if digest in nodes:
            waiting += (part for part, _ in nodes[digest].parts)
    return found


def foreign(node: Node) -> bool:
    """Whether a manifest is nobody's that elfkiln knows: an image that another tool put there is not ours to remove."""
    known = (ARTIFACT_TYPE, TOOLCHAIN_TYPE)
    return node.subject is None and node.kind not in known

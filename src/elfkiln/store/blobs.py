"""The store: content-addressed blobs in an OCI image layout, so that OCI tools can copy it as it is.

Below the root: `oci-layout`, `index.json` (the one mutable file, changed under a lock by rename) and
`blobs/sha256/<hex>`. Format: OCI image-spec 1.1, "Image Layout", "Image Manifest", "Image Index".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import canonical_json, file_sha256, sha256_hex
from elfkiln.io.files import storage_refusal, write_atomic
from elfkiln.project import BLOBS

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An OCI descriptor: media type, digest as 64 hex digits of sha256, size in bytes, annotations."""

    media_type: str
    digest: str
    size: int
    annotations: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the OCI form."""
        table: dict[str, Any] = {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": self.size}
        if self.annotations:
            table["annotations"] = dict(self.annotations)
        return table


def check_digest(digest: str, what: str = "digest") -> str:
    """Return `digest` if it is 64 lower-case hex digits, else raise `Refused`; guards every path made of one."""
    if not isinstance(digest, str) or len(digest) != 64 or not _HEX.issuperset(digest):
        raise refusal(what, expected="64 lower-case hex digits of a sha256", found=repr(digest))
    return digest


@dataclass(frozen=True, slots=True)
class Store:
    """Blobs by sha256 below `root`. Making a `Store` touches nothing; the folders appear with the first blob."""

    root: Path

    @property
    def blobs(self) -> Path:
        """Folder of the blobs."""
        return self.root / BLOBS

    def path(self, digest: str) -> Path:
        """Return where a blob of this digest lies or would lie."""
        return self.blobs / check_digest(digest)

    def add_bytes(self, data: bytes) -> str:
        """Store bytes and return their sha256; a damaged blob of the same digest is replaced.

        Raises `Refused` when the disk is full; nothing then bears the digest's name that is not those bytes.
        """
        digest = sha256_hex(data)
        if not self.holds(digest):
            self._prepare()
            write_atomic(self.path(digest), data, scratch=self.root / "tmp", mode=0o444)
        return digest

    def add_file(self, source: Path, *, expected: str | None = None) -> str:
        """Store a file's bytes and return their sha256; `expected` is a digest they must have (`Refused` if not)."""
        try:
            data = source.read_bytes()
        except OSError as error:
            raise storage_refusal(source, error) from error
        digest = sha256_hex(data)
        if expected is not None and digest != check_digest(expected):
            raise refusal(f"{source.name}: sha256", expected=expected, found=digest, remedy="get the pinned file")
        return self.add_bytes(data)

    def problem(self, digest: str) -> str | None:
        """Return what is wrong with a blob's bytes in one line, or None when they are right."""
        path = self.path(digest)
        try:
            found = file_sha256(path)
        except FileNotFoundError:
            return f"blob sha256:{digest} is not in the store"
        except OSError as error:
            return f"blob sha256:{digest} cannot be read ({error.strerror or error})"
        if found == digest:
            return None
        return f"blob sha256:{digest} is damaged: its {path.stat().st_size} bytes have sha256 {found}; rebuild it"

    def holds(self, digest: str) -> bool:
        """Whether the store has this blob and its bytes verify."""
        return self.problem(digest) is None

    def read(self, digest: str) -> bytes:
        """Return a blob's bytes after verifying them; `Differs` when it is missing or damaged."""
        try:
            data = self.path(digest).read_bytes()
        except OSError:
            data = None
        if data is None or sha256_hex(data) != digest:
            raise Differs(self.problem(digest) or f"blob sha256:{digest} changed while it was read; run again")
        return data

    def add_manifest(
        self,
        *,
        ref: str,
        artifact_type: str,
        config: Descriptor,
        layers: tuple[Descriptor, ...],
        annotations: Mapping[str, str] | None = None,
        subject: Descriptor | None = None,
    ) -> Descriptor:
        """Store an OCI image manifest over blobs already stored and name it `ref` in index.json.

        The manifest's bytes are canonical JSON, so equal content has an equal digest. An earlier entry of the same
        ref is replaced. Call it last: what index.json names is complete.
        """
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": artifact_type,
            "config": config.to_json(),
            "layers": [layer.to_json() for layer in layers],
        }
        if annotations:
            manifest["annotations"] = dict(annotations)
        if subject is not None:
            manifest["subject"] = subject.to_json()
        data = canonical_json(manifest)
        digest = self.add_bytes(data)
        return self.name_manifest(ref, digest)

    def name_manifest(self, ref: str, digest: str) -> Descriptor:
        """Name a stored manifest `ref` in index.json, again if the index was lost; an earlier entry is replaced."""
        entry = Descriptor(MANIFEST_TYPE, digest, self.path(digest).stat().st_size, ((REF_NAME, ref),))
        with self.lock():
            entries = [kept for kept in self._entries() if dict(kept.annotations).get(REF_NAME) != ref]
            self._write_index(sorted([*entries, entry], key=lambda d: dict(d.annotations).get(REF_NAME, "")))
        return entry

    def refs(self) -> dict[str, Descriptor]:
        """Return index.json's entries by ref name; empty when there is no store yet."""
        return {dict(entry.annotations).get(REF_NAME, entry.digest): entry for entry in self._entries()}

    def manifest(self, descriptor: Descriptor) -> dict[str, Any]:
        """Return a manifest's content, its bytes verified; `Differs` when they are damaged or no manifest."""
        table = json.loads(self.read(descriptor.digest))
        if not isinstance(table, dict) or table.get("mediaType") != MANIFEST_TYPE:
            raise Differs(f"blob sha256:{descriptor.digest} is no OCI image manifest")
        return table

    def lock(self) -> FileLock:
        """Return the lock under which index.json changes."""
        self._prepare()
        return FileLock(self.root / ".lock", timeout=600)

    def _prepare(self) -> None:
        try:
            self.blobs.mkdir(parents=True, exist_ok=True)
            layout = self.root / "oci-layout"
            if not layout.is_file():
                write_atomic(layout, canonical_json({"imageLayoutVersion": "1.0.0"}), scratch=self.root / "tmp")
        except OSError as error:
            raise storage_refusal(self.root, error) from error

    def _entries(self) -> list[Descriptor]:
        path = self.root / "index.json"
        try:
            table = json.loads(path.read_bytes())
            return [_descriptor(entry) for entry in table["manifests"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, Refused) as error:
            raise Refused(
                f"{path}: not an OCI image index ({error}); delete it and run again, the blobs stay and are verified"
            ) from error

    def _write_index(self, entries: list[Descriptor]) -> None:
        table = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry.to_json() for entry in entries]}
        write_atomic(self.root / "index.json", canonical_json(table), scratch=self.root / "tmp")


def descriptor_of(store: Store, digest: str, media_type: str, **annotations: str) -> Descriptor:
    """Return the descriptor of a stored blob, its size read from the file."""
    return Descriptor(media_type, digest, os.stat(store.path(digest)).st_size, tuple(sorted(annotations.items())))


def parse_digest(text: object) -> str:
    """Return the hex part of `sha256:<hex>`; `Refused` for anything else."""
    if not isinstance(text, str) or not text.startswith("sha256:"):
        raise refusal("digest", expected="sha256:<64 hex digits>", found=repr(text))
    return check_digest(text.removeprefix("sha256:"))


def _descriptor(entry: Mapping[str, Any]) -> Descriptor:
    annotations = entry.get("annotations", {})
    return Descriptor(
        str(entry["mediaType"]), parse_digest(entry["digest"]), int(entry["size"]), tuple(sorted(annotations.items()))
    )

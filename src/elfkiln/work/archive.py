"""Sets in one file, for machines without a network: an OCI archive, which is a tar of an image layout.

`export` writes one: equal sets give equal bytes (names in order, no times, no owners). `import` reads it as a stream,
from a pipe too: each blob is hashed as it passes, and nothing of an archive decides where a file lies.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.files import storage_refusal
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.project import Project
from elfkiln.store.blobs import INDEX_TYPE, MANIFEST_TYPE, REF_NAME, Descriptor, Store, parse_digest
from elfkiln.store.model_index import SET_TYPE
from elfkiln.store.oci_registry import MOST_MANIFEST
from elfkiln.work.asked import Asked
from elfkiln.work.push import Shipment, shipment_of
from elfkiln.work.take_artifact import MOST_BLOB
from elfkiln.work.take_set import Accept, Taken, take_set

_BLOB = re.compile(r"blobs/sha256/([0-9a-f]{64})", re.ASCII)
_MARKS = (MANIFEST_TYPE.encode(), INDEX_TYPE.encode())
_LAYOUT = canonical_json({"imageLayoutVersion": "1.0.0"})
_MOST_INDEX = 16 << 20
_MOST_MEMBERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote: its sets by tag, with the digest of each index, and the blobs and their bytes."""

    sets: tuple[tuple[str, str], ...]
    blobs: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"sets": {tag: f"sha256:{d}" for tag, d in self.sets}, "blobs": self.blobs, "bytes": self.bytes}

    def text(self) -> str:
        """Return the lines for a person."""
        lines = [f"{tag}  sha256:{digest}" for tag, digest in self.sets]
        return "\n".join([*lines, f"{self.blobs} blobs, {self.bytes:,} bytes"])


def export_sets(project: Project, sets: Iterable[Asked], sink: IO[bytes]) -> Exported:
    """Write an archive of everything that models or plans ask for to `sink`, which need not seek.

    Raises `Differs`, before anything is written, when a name is not registered as asked for or a blob is damaged.
    """
    store = Store(project.store)
    shipment = shipment_of(project, store, sets)
    try:
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            total = _write(archive, store, shipment)
    except OSError as error:
        raise storage_refusal(Path(getattr(sink, "name", "archive")), error) from error
    tags = tuple((tag, sha256_hex(data)) for tag, data in shipment.indexes)
    return Exported(tags, len(shipment.all_blobs), total)


def _write(archive: tarfile.TarFile, store: Store, shipment: Shipment) -> int:
    """Write the layout: what says what there is first, so that a reader need not go back."""
    entries = [
        Descriptor(INDEX_TYPE, sha256_hex(data), len(data), ((REF_NAME, tag),)).to_json() | {"artifactType": SET_TYPE}
        for tag, data in shipment.indexes
    ]
    for subject, descriptor in shipment.referrers:
        table = store.manifest(descriptor)
        entries.append(
            Descriptor(MANIFEST_TYPE, descriptor.digest, len(store.read(descriptor.digest))).to_json()
            | {"artifactType": str(table.get("artifactType", "")), "annotations": {_SUBJECT: f"sha256:{subject}"}}
        )
    index = canonical_json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries})
    _add(archive, "oci-layout", _LAYOUT)
    _add(archive, "index.json", index)
    own = {sha256_hex(data): data for _, data in shipment.indexes}
    total = 0
    for digest in sorted({*own, *shipment.all_blobs}):
        data = own.get(digest) or store.read(digest)
        total += len(data)
        _add(archive, f"blobs/sha256/{digest}", data)
    return total


_SUBJECT = "dev.elfkiln.subject"


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o444
    archive.addfile(member, io.BytesIO(data))


@dataclass(frozen=True, slots=True)
class _Imported:
    """The store, after an archive's blobs were read into it, as a source of the archive's sets.

    Manifests are kept here and not in the store: they enter it when their set is whole and was accepted.
    """

    store: Store
    manifests: dict[str, bytes]
    referrers: dict[str, list[str]]

    def pull_blob(self, digest: str, _size: int, _sink: IO[bytes]) -> None:
        raise Differs(f"blob sha256:{digest}: expected in the archive, found none; export it again")

    def manifest(self, digest: str) -> bytes:
        if digest not in self.manifests:
            raise Differs(f"manifest sha256:{digest}: expected in the archive, found none; export it again")
        return self.manifests[digest]

    def referring(self, digest: str) -> Iterable[str]:
        return self.referrers.get(digest, ())


def import_sets(project: Project, source: IO[bytes], where: str, accept: Accept | None = None) -> tuple[Taken, ...]:
    """Take every set of an archive into the store and registry.yaml; `source` is read once, from its start.

    Raises `Refused` for what is not an OCI archive with sets of elfkiln, `Differs` for a blob whose bytes are not its
    name's, a set with a part missing, and as `take_set` does. Blobs that were read stay; names come last.
    """
    with Store(project.store).in_use():
        return _import_sets(project, source, where, accept)


def _import_sets(project: Project, source: IO[bytes], where: str, accept: Accept | None) -> tuple[Taken, ...]:
    store = Store(project.store)
    index: bytes | None = None
    manifests: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=source, mode="r|*") as archive:
            for member in _members(archive, where):
                data = _content(archive, member, where)
                match = _BLOB.fullmatch(member.name.removeprefix("./"))
                if match is not None:
                    _check(match[1], data, where)
                    if _is_manifest(data):
                        manifests[match[1]] = data
                    else:
                        store.add_bytes(data)
                elif member.name.removeprefix("./") == "index.json":
                    index = data
    except tarfile.TarError as error:
        raise Refused(f"{where}: expected a tar of an OCI image layout, found something else ({error})") from error
    except (EOFError, OSError) as error:
        raise Refused(f"{where}: cannot be read to its end ({error}); copy it again") from error
    if index is None:
        raise Refused(f"{where}: expected index.json in the archive, found none; export it again")
    sets, referrers = _contents(index, where)
    if not sets:
        raise Refused(f"{where}: expected sets of elfkiln in index.json, found none; write it with elfkiln export")
    known = _Imported(store, manifests, referrers)
    return tuple(take_set(project, known, known.manifest(digest), f"{where}: {tag}", accept) for tag, digest in sets)


def _members(archive: tarfile.TarFile, where: str) -> Iterator[tarfile.TarInfo]:
    """Yield the files of an archive; folders pass, and anything else has no place in one."""
    for number, member in enumerate(archive):
        if number >= _MOST_MEMBERS:
            raise refusal(where, expected=f"at most {_MOST_MEMBERS} files", found="more")
        if member.isfile():
            yield member
        elif not member.isdir():
            raise refusal(f"{where}: {member.name}", expected="files and folders", found="a link or a device")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, where: str) -> bytes:
    most = _MOST_INDEX if member.name.endswith(".json") else MOST_BLOB
    if not 0 <= member.size <= most:
        raise refusal(f"{where}: {member.name}", expected=f"at most {most} bytes", found=member.size)
    stream = archive.extractfile(member)
    data = stream.read(member.size) if stream is not None else b""
    if len(data) != member.size:
        raise EOFError(f"{member.name} breaks off")
    return data


def _is_manifest(data: bytes) -> bool:
    """Whether a blob is a manifest or an index: canonical or not, these name their media type near their start."""
    return len(data) <= MOST_MANIFEST and data[:1] == b"{" and (_MARKS[0] in data or _MARKS[1] in data)


def _check(digest: str, data: bytes, where: str) -> None:
    found = sha256_hex(data)
    if found != digest:
        raise Differs(f"{where}: blob sha256:{digest}: found {len(data)} bytes of sha256:{found}; copy it again")


def _contents(index: bytes, where: str) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """Return an archive's sets as (tag, digest), and its referrers by subject."""
    table = parse_strict_json(index, f"{where}: index.json")
    sets, referrers = [], dict[str, list[str]]()
    try:
        for row in table["manifests"]:
            digest, notes = parse_digest(row["digest"]), row.get("annotations") or {}
            if row.get("mediaType") == INDEX_TYPE:
                sets.append((str(notes.get(REF_NAME, digest)), digest))
            elif _SUBJECT in notes:
                referrers.setdefault(parse_digest(notes[_SUBJECT]), []).append(digest)
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused(f"{where}: index.json: expected an OCI image index, found something else ({error})") from error
    return sets, referrers

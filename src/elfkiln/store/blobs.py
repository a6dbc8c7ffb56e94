"""The store: content-addressed blobs in an OCI image layout, so that OCI tools can copy it as it is.

Below the root: `oci-layout`, `index.json` (changed under a lock by rename), `index.added` (names that are not yet in
it, while many are given) and `blobs/sha256/<hex>`. Format: OCI image-spec 1.1, "Image Layout", "Image Manifest",
"Image Index".
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from elfkiln.errors import Differs, ElfkilnError, Refused, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.files import storage_refusal, sync_folder, write_atomic, write_together
from elfkiln.io.locking import PATIENCE, locked, used
from elfkiln.io.reading import read_bytes, read_parts, reason_of, sha256_of
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.io.terminal import tell
from elfkiln.project import BLOBS

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
REF_NAME = "org.opencontainers.image.ref.name"
MAX_BYTES = 4 << 30
"""The most a blob is read of into memory; ELFs, designs and logs are far smaller, wheels some hundred MB."""

_INDEX = "index.json"
_ADDED = "index.added"
INDEX_FILES = (_INDEX, _ADDED)
"""The files below a store that say which manifests have which names."""

_SMALL_INDEX = 64 << 10
"""Bytes of an index that is simply written anew for each name: some 200 names."""

_ADDED_PART = 4
"""A larger index is written anew when what was added since is this part of it: all names together cost but a multiple
of the last index."""
_LAYOUT = "oci-layout"
_LAYOUT_TABLE = {"imageLayoutVersion": "1.0.0"}
_SCRATCH = "tmp"
_DAMAGED = "damaged"
_USERS = ".users"


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
    return Value(digest, what).digest()


@dataclass(frozen=True, slots=True)
class Store:
    """Blobs by sha256 below `root`. Making a `Store` touches nothing; the folders appear with the first blob."""

    root: Path

    @property
    def scratch(self) -> Path:
        """Folder of unfinished files."""
        return self.root / _SCRATCH

    @property
    def aside(self) -> Path:
        """Folder of what was damaged: moved there, never deleted."""
        return self.root / _DAMAGED

    @property
    def blobs(self) -> Path:
        """Folder of the blobs."""
        return self.root / BLOBS

    def path(self, digest: str) -> Path:
        """Return where a blob of this digest lies or would lie."""
        return self.blobs / check_digest(digest)

    def add_bytes(self, data: bytes) -> str:
        """Store bytes and return their sha256; what is damaged, or no file, under that digest is replaced.

        Raises `Refused` when the disk is full; nothing then bears the digest's name that is not those bytes.
        """
        digest = sha256_hex(data)
        if not self.holds(digest):
            self._prepare()
            self._clear(self.path(digest))
            write_atomic(self.path(digest), data, scratch=self.scratch, mode=0o444)
        return digest

    def add_all(self, blobs: Iterable[bytes]) -> tuple[str, ...]:
        """Store several blobs, some at once, and return their digests in order; raises as `add_bytes` does.

        Whatever ends the process in between, a blob that bears its digest's name is whole.
        """
        found = [(sha256_hex(data), data) for data in blobs]
        missing = {digest: data for digest, data in found if not self.holds(digest)}
        if missing:
            self._prepare()
            for digest in missing:
                self._clear(self.path(digest))
            write_together(self.blobs, missing, scratch=self.scratch, mode=0o444)
        return tuple(digest for digest, _ in found)

    def add_file(self, source: Path, *, expected: str | None = None) -> str:
        """Store a file's bytes and return their sha256; `expected` is a digest they must have (`Refused` if not).

        The file is read in parts: wheels of some hundred MB go through here.
        """
        try:
            digest = sha256_of(source)
            if expected is not None and digest != check_digest(expected):
                raise refusal(f"{source.name}: sha256", expected=expected, found=digest, remedy="get the pinned file")
            if not self.holds(digest):
                self._prepare()
                self._clear(self.path(digest))
                self._copy(source, digest)
        except OSError as error:
            raise storage_refusal(source, error) from error
        return digest

    def _copy(self, source: Path, digest: str) -> None:
        hashed = sha256()

        def parts() -> Iterator[bytes]:
            for part in read_parts(source):
                hashed.update(part)
                yield part

        def check() -> None:
            if hashed.hexdigest() != digest:
                raise Differs(f"{source.name}: changed while it was read; run again")

        write_atomic(self.path(digest), parts(), scratch=self.scratch, mode=0o444, check=check)

    def problem(self, digest: str) -> str | None:
        """Return what is wrong with a blob in one line, or None when it is a file with the right bytes.

        A symbolic link is none, whatever it leads to: its bytes are somebody else's to change.
        """
        path = self.path(digest)
        try:
            found = sha256_of(path, follow=False, limit=MAX_BYTES)
            size = os.stat(path, follow_symlinks=False).st_size
        except FileNotFoundError:
            return f"blob sha256:{digest} is not in the store"
        except OSError as error:
            return f"blob sha256:{digest} cannot be read ({reason_of(error)})"
        if found == digest:
            return None
        return f"blob sha256:{digest} is damaged: its {size} bytes have sha256 {found}; rebuild it"

    def holds(self, digest: str) -> bool:
        """Whether the store has this blob and its bytes verify."""
        return self.problem(digest) is None

    def read(self, digest: str) -> bytes:
        """Return a blob's bytes after verifying them; `Differs` when it is missing, no file, or damaged."""
        try:
            data = read_bytes(self.path(digest), MAX_BYTES, follow=False)
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
        digest = self.add_bytes(manifest_bytes(artifact_type, config, layers, annotations, subject))
        return self.name_manifest(ref, digest)

    def name_manifest(self, ref: str, digest: str) -> Descriptor:
        """Name a stored manifest `ref` in index.json, again if the index was lost; an earlier entry is replaced."""
        return self.name_manifests({ref: digest})[0]

    def name_manifests(self, names: Mapping[str, str]) -> tuple[Descriptor, ...]:
        """Name stored manifests (digests by ref) as `name_manifest` does; index.json is written once for all."""
        fresh = tuple(
            Descriptor(MANIFEST_TYPE, digest, self.path(digest).stat().st_size, ((REF_NAME, ref),))
            for ref, digest in names.items()
        )
        with self.lock():
            if not self._add_later(fresh):
                self._write_index(_named_anew(self._entries()[0], fresh))
        return fresh

    def settle(self) -> None:
        """Bring index.json up to date with the names that were only added so far, for other tools of OCI layouts."""
        if os.path.lexists(self.root / _ADDED):
            with self.lock():
                self._write_index(self._entries()[0])

    def _add_later(self, fresh: Sequence[Descriptor]) -> bool:
        """Append names to what was added to a large index, and return whether that is enough for now.

        They are one line: all of them are given, or none.
        """
        try:
            size = (self.root / _INDEX).stat().st_size
            before = _size_of(self.root / _ADDED)
            line = canonical_json([entry.to_json() for entry in fresh]) + b"\n"
            if size < _SMALL_INDEX or before + len(line) > size // _ADDED_PART:
                return False
            self._clear(self.root / _ADDED)
            with (self.root / _ADDED).open("ab") as stream:
                # A line that a crash cut short is passed over, and ends here.
                stream.write(line if not before else b"\n" + line)
                stream.flush()
                os.fsync(stream.fileno())
            if not before:
                sync_folder(self.root)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_refusal(self.root, error) from error
        return True

    def refs(self) -> dict[str, Descriptor]:
        """Return index.json's entries by ref name; empty when there is no store yet.

        A lost or damaged index is made anew from the manifests among the blobs, and said on standard error.
        """
        entries, reason = self._entries()
        if reason:
            tell(f"elfkiln: {self.root / _INDEX}: {reason}; made anew from the {len(entries)} manifests in the store")
            # Where nothing can be written, the answer comes without it.
            with contextlib.suppress(ElfkilnError):
                self._mend()
        return {_ref_of(entry) or entry.digest: entry for entry in entries}

    def manifest(self, descriptor: Descriptor) -> dict[str, Any]:
        """Return a manifest's content, its bytes verified; `Differs` when they are damaged or no manifest."""
        where = f"blob sha256:{descriptor.digest}"
        try:
            table = parse_strict_json(self.read(descriptor.digest), where)
        except Refused as error:
            raise Differs(f"{where} is not an OCI image manifest ({error})") from error
        if not isinstance(table, dict) or table.get("mediaType") != MANIFEST_TYPE:
            raise Differs(f"{where} is not an OCI image manifest")
        return table

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock under which index.json changes."""
        self._prepare()
        return locked(self.root / ".lock", "the store's index")

    def in_use(self) -> AbstractContextManager[None]:
        """Hold off whoever removes blobs, for a block: from the first blob until what shall stay has its name.

        Many may use a store at once. Where nothing can be written (a store that is only read), nobody is held off.
        """
        try:
            self._prepare()
        except Refused:
            return contextlib.nullcontext()
        return used(self.root / _USERS, "the store")

    def alone(self, patience: float = PATIENCE) -> AbstractContextManager[None]:
        """Hold the store for a block while nobody uses it: only then is a blob removed or moved away."""
        self._prepare()
        return used(self.root / _USERS, "the store", alone=True, patience=patience)

    def index(self) -> tuple[list[Descriptor], str]:
        """Return the entries of index.json, those its manifests tell of where it is lost, and what is wrong with it.

        Nothing is mended.
        """
        return self._entries()

    def reindex(self, gone: Container[str] = (), *, unnamed: bool = True) -> None:
        """Write the index anew: without the manifests in `gone`, and with those that lie there and have no name.

        Without `unnamed` these are not looked for, which takes reading every blob.
        """
        from elfkiln.store.healing import entries_of_manifests

        with self.lock():
            entries, reason = self._entries()
            kept = [entry for entry in entries if entry.digest not in gone]
            named = {entry.digest for entry in kept}
            refs = {dict(entry.annotations).get(REF_NAME, "") for entry in kept}
            for found in entries_of_manifests(self) if unnamed else ():
                if found.digest not in named and found.digest not in gone:
                    ref = dict(found.annotations).get(REF_NAME, "")
                    kept.append(found if ref not in refs else replace(found, annotations=_own_name(found.digest)))
            if kept != entries or reason:
                self._write_index(sorted(kept, key=lambda d: dict(d.annotations).get(REF_NAME, "")))

    def set_aside(self, digest: str) -> bool:
        """Move the file under a digest's name to `damaged/`, unless its bytes verify; return whether it went.

        For whoever holds the store alone.
        """
        path = self.path(digest)
        if not os.path.lexists(path) or self.holds(digest):
            return False
        self._move_aside(path)
        return True

    def set_file_aside(self, path: Path) -> None:
        """Move a damaged file from elsewhere below out/ to `damaged/`; what is gone already is gone."""
        self._move_aside(path)

    def drop_manifest(self, digest: str) -> None:
        """Move a manifest to `damaged/`: what it names is not whole, and the index must not find it again."""
        path = self.path(digest)
        if os.path.lexists(path):
            self._move_aside(path)

    def _move_aside(self, path: Path) -> None:
        aside = self.aside
        try:
            aside.mkdir(exist_ok=True)
            path.rename(aside / f"{path.name}-{secrets.token_hex(4)}")
            sync_folder(aside)
            sync_folder(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_refusal(path, error) from error

    def _prepare(self) -> None:
        """Make the folders and `oci-layout`, and make them again where something else is in their place."""
        try:
            if not self.blobs.is_dir():
                self._clear(self.blobs, folder=True)
                self.blobs.mkdir(parents=True, exist_ok=True)
                self._begin_index()
            layout = self.root / _LAYOUT
            if not _is_layout(layout):
                self._clear(layout)
                write_atomic(layout, canonical_json(_LAYOUT_TABLE), scratch=self.scratch)
        except OSError as error:
            raise storage_refusal(self.root, error) from error

    def _begin_index(self) -> None:
        """Give a new store an index that names nothing: without one its first manifest would look like a lost index.

        Another process may have begun, and named something already: what is there is left alone.
        """
        part = self.scratch / f"{_INDEX}-{secrets.token_hex(4)}"
        self.scratch.mkdir(parents=True, exist_ok=True)
        part.write_bytes(canonical_json({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}))
        try:
            # Where there are no links, a store begins without an index, as it may.
            with contextlib.suppress(OSError):
                os.link(part, self.root / _INDEX)
        finally:
            part.unlink()

    def _clear(self, path: Path, *, folder: bool = False) -> None:
        """Move what is not a file (or no folder) out of a place that shall be one; a link is only a name, and goes."""
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                path.unlink()
            elif not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
                self._move_aside(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_refusal(path, error) from error

    def _entries(self) -> tuple[list[Descriptor], str]:
        """Return the entries of index.json, and what is wrong with it.

        Of one that is lost or damaged they are those that the manifests among the blobs tell of; a store that has
        nothing yet has lost nothing.
        """
        path = self.root / _INDEX
        try:
            # First what was added, then the index: what enters the index in between is there either way.
            added = _added_bytes(self.root / _ADDED)
            data = read_bytes(path, MAX_BYTES)
            known = _READ.get(self.root)
            if known is None or known[:2] != (data, added):
                top = Value(parse_strict_json(data, path.name), path.name)
                entries = [_descriptor(entry) for entry in top["manifests"].items()]
                known = data, added, tuple(_named_anew(entries, *_added_entries(added)) if added else entries)
                _READ[self.root] = known
            return list(known[2]), ""
        except FileNotFoundError:
            reason = "missing"
        except OSError as error:
            reason = reason_of(error)
        except Refused as error:
            reason = str(error)
        from elfkiln.store.healing import entries_of_manifests

        found = entries_of_manifests(self)
        return found, "" if reason == "missing" and not found else reason

    def _mend(self) -> None:
        """Write the index anew from what the blobs tell, unless another process has done so."""
        with self.lock():
            entries, reason = self._entries()
            if reason:
                self._write_index(entries)

    def _write_index(self, entries: list[Descriptor]) -> None:
        table = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [entry.to_json() for entry in entries]}
        self._clear(self.root / _INDEX)
        write_atomic(self.root / _INDEX, canonical_json(table), scratch=self.scratch)
        # Were it left behind by a crash, it would say the same once more.
        (self.root / _ADDED).unlink(missing_ok=True)


# What the last reading of a store's index came to, by its bytes: parsing thousands of entries takes a hundred times as
# long as comparing their bytes.
_READ: dict[Path, tuple[bytes, bytes, tuple[Descriptor, ...]]] = {}


def _ref_of(entry: Descriptor) -> str:
    return next((value for key, value in entry.annotations if key == REF_NAME), "")


def _named_anew(entries: Iterable[Descriptor], *fresh: Sequence[Descriptor]) -> list[Descriptor]:
    """Return the entries with new ones, given in turn, in the place of those of the same names; sorted by name.

    With an earlier entry go the names that were made up for a manifest where its own was lost, or not given yet.
    """
    merged = {_ref_of(entry) or entry.digest: entry for entry in entries}
    for together in fresh:
        for entry in together:
            merged.pop(manifest_ref(entry.digest), None)
            merged.pop(referrer_ref(entry.digest), None)
        merged |= {_ref_of(entry): entry for entry in together}
    return sorted(merged.values(), key=_ref_of)


def _added_bytes(path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_BYTES, follow=False)
    except FileNotFoundError:
        return b""


def _added_entries(data: bytes) -> list[list[Descriptor]]:
    """Return what was added to an index, in turn; a line that is not whole is passed over: its names were not given."""
    found = []
    for line in data.split(b"\n"):
        with contextlib.suppress(Refused):
            if line:
                found.append([_descriptor(entry) for entry in Value(parse_strict_json(line, _ADDED), _ADDED).items()])
    return found


def _size_of(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _is_layout(path: Path) -> bool:
    """Whether a file says the version of the layout, as any tool may have written it."""
    try:
        table = parse_strict_json(read_bytes(path, 4096, follow=False), path.name)
    except (OSError, Refused):
        return False
    return isinstance(table, dict) and table.get("imageLayoutVersion") == _LAYOUT_TABLE["imageLayoutVersion"]


def manifest_bytes(
    artifact_type: str,
    config: Descriptor,
    layers: tuple[Descriptor, ...],
    annotations: Mapping[str, str] | None = None,
    subject: Descriptor | None = None,
) -> bytes:
    """Return the bytes of an OCI image manifest: canonical JSON, so that equal content has an equal digest."""
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
    return canonical_json(manifest)


def manifest_ref(digest: str) -> str:
    """Return the name in index.json of a manifest of which nothing else is known."""
    return f"manifest-{digest}"


def referrer_ref(digest: str) -> str:
    """Return the name in index.json of a manifest that is about another one."""
    return f"referrer-{digest}"


def descriptor_of(store: Store, digest: str, media_type: str, **annotations: str) -> Descriptor:
    """Return the descriptor of a stored blob, its size read from the file."""
    return Descriptor(media_type, digest, os.stat(store.path(digest)).st_size, tuple(sorted(annotations.items())))


def parse_digest(text: object) -> str:
    """Return the hex part of `sha256:<hex>`; `Refused` for anything else."""
    return Value(text, "digest").digest("sha256:")


def _own_name(digest: str) -> tuple[tuple[str, str], ...]:
    return ((REF_NAME, manifest_ref(digest)),)


def _descriptor(entry: Value) -> Descriptor:
    annotations = entry["annotations"]
    notes = {} if annotations.absent else {key: text.text(empty=True) for key, text in annotations.table().items()}
    return Descriptor(
        entry["mediaType"].text(),
        entry["digest"].digest("sha256:"),
        entry["size"].whole(0),
        tuple(sorted(notes.items())),
    )

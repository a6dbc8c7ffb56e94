"""registry.yaml: target -> name -> digests. Sorted, diffable, committed; the one place that says what a name is."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from elfkiln.engine.artifact_name import ArtifactName, bare_elf_name, checked_model_name
from elfkiln.errors import Differs, ElfkilnError, Refused, brief
from elfkiln.io.checked import YAML, Value
from elfkiln.io.files import write_atomic
from elfkiln.io.locking import locked
from elfkiln.io.reading import read_regular, utf8_text
from elfkiln.io.strict_yaml import parse_strict_yaml
from elfkiln.store.reasons import CHANGED, RETIRED, Reasons, read_reasons

SCHEMA = "elfkiln-registry/1"
MAX_BYTES = 64 * 2**20
"""Some 140,000 names."""

_REMEDY = "restore it from the repository"
_TRIES = 5
_DIGESTS = ("elf", "recipe", "manifest", "design")
_FIELDS = frozenset((*_DIGESTS, "size", "columns"))
_SEALED = "sealed"
_MIRRORS = "mirrors"
_GEOMETRY = re.compile(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the registry says of one name: digests (hex), the ELF's size in bytes, and the array columns it uses.

    `sealed` are the (K, N) a sealed ELF holds, as its own metadata says; empty for a single GEMM.
    """

    elf: str
    size: int
    recipe: str
    manifest: str
    design: str
    columns: int
    sealed: tuple[tuple[int, int], ...] = ()

    @property
    def digests(self) -> tuple[str, str, str, str]:
        """The digests of the blobs that the entry names itself: ELF, recipe, design, manifest."""
        return (self.elf, self.recipe, self.design, self.manifest)


@dataclass(frozen=True, slots=True)
class Registry:
    """All entries, by target and then by key, why names were retired or changed, and the mirrors to fetch from.

    A key is an artifact name, or `<model>/<file>` for a sealed ELF, whose file name is the same in every model.
    """

    targets: Mapping[str, Mapping[str, Entry]]
    reasons: Reasons = field(default_factory=Reasons)
    mirrors: tuple[str, ...] = ()

    def entries(self, target: str) -> Mapping[str, Entry]:
        """Return a target's entries by key; empty when it has none."""
        return self.targets.get(target, {})

    def with_entries(self, target: str, entries: Mapping[str, Entry]) -> Registry:
        """Return a registry in which these keys of the target are set, checked for clashes."""
        merged = {name: dict(table) for name, table in self.targets.items()}
        merged.setdefault(target, {}).update(entries)
        registry = replace(self, targets=merged)
        check_clashes(registry)
        return registry


def check_clashes(registry: Registry) -> None:
    """Raise `Differs` when two names of different geometry, or of two targets, stand for the same bytes.

    Byte-identical kernels under names of different shapes were real faults of hand-kept sets; G and U of one
    geometry may share.
    """
    seen: dict[str, tuple[str, str, object]] = {}
    for target in sorted(registry.targets):
        for key, entry in sorted(registry.targets[target].items()):
            shape = shape_of(key)
            first = seen.setdefault(entry.elf, (target, key, shape))
            if (first[0], first[2]) != (target, shape):
                raise Differs(
                    f"registry: {first[0]}/{first[1]} and {target}/{key} differ in geometry or target but have "
                    f"the same digest sha256:{entry.elf}; one is wrong, remove it from registry.yaml and run doit elfs"
                )


def shape_of(key: str) -> str:
    """Return what two keys must share to share bytes: K, N, tag and M, or a sealed ELF's file name.

    Two models of one decode set have one sealed ELF; which geometries it holds is in its own metadata.

    Raises `Refused` for a key that is neither an artifact name nor `<model>/<file>.elf`.
    """
    if "/" in key:
        model, _, file_name = key.partition("/")
        checked_model_name(model)
        return bare_elf_name(file_name, f"registry key {key}")
    return ArtifactName.parse(key).shape


def load_registry(path: Path) -> Registry:
    """Read registry.yaml; an absent file is an empty registry. Raises `Refused` naming the field that does not fit."""
    return _registry_of(_bytes_of(path), path.name)


def parse_registry(text: str, where: str, *, clashes: bool = False) -> Registry:
    """Read the text of a registry as `load_registry` does; `where` stands for the file in messages.

    With `clashes` names of different geometry may share bytes: for looking at what a file was before it was mended.
    """
    top = Value(parse_strict_yaml(text, where, remedy=_REMEDY), where, words=YAML, remedy=_REMEDY)
    top["schema"].choice((SCHEMA,))
    targets = top["targets"].table()
    # Whoever writes the file anew would lose a section it does not know.
    top.table(("schema", "targets", RETIRED, CHANGED, _MIRRORS), (RETIRED, CHANGED, _MIRRORS))
    entries = {target: _read_target(where, target, rows) for target, rows in targets.items()}
    mirrors = top[_MIRRORS]
    named = () if mirrors.absent else tuple(item.text() for item in mirrors.items())
    registry = Registry(entries, read_reasons(top), named)
    if not clashes:
        check_clashes(registry)
    return registry


def _read_target(where: str, target: str, rows: Value) -> dict[str, Entry]:
    entries = {}
    for key, row in rows.table().items():
        # The name, not its place among names: `sim/NAME line 7: size` is what is looked for in the file.
        named = Value(row.raw, f"{where}: {target}/{brief(key)}", words=YAML, remedy=_REMEDY)
        entries[key] = _read_entry(named, key)
    return entries


def _read_entry(row: Value, key: str) -> Entry:
    fields = row.table(_FIELDS | {_SEALED} if "/" in key else _FIELDS)
    try:
        shape_of(key)
    except ElfkilnError as error:
        raise Refused(f"{row.place}: {error}") from error
    return Entry(
        size=fields["size"].whole(),
        columns=fields["columns"].whole(),
        sealed=_read_sealed(fields[_SEALED]) if _SEALED in fields else (),
        **{field: fields[field].digest("sha256:") for field in _DIGESTS},
    )


def _read_sealed(value: Value) -> tuple[tuple[int, int], ...]:
    geometries = []
    for item in value.items(least=1):
        match = _GEOMETRY.fullmatch(item.text())
        if match is None:
            raise item.refuse("<K>x<N>")
        geometries.append((int(match[1]), int(match[2])))
    return tuple(geometries)


def dump_registry(registry: Registry) -> bytes:
    """Return the file's bytes: sorted, one field a line, so that a diff shows what changed."""
    table: dict[str, Any] = {"schema": SCHEMA, "targets": {}} | registry.reasons.tables()
    if registry.mirrors:
        table[_MIRRORS] = list(registry.mirrors)
    for target, entries in sorted(registry.targets.items()):
        table["targets"][target] = {key: _entry_table(entry) for key, entry in sorted(entries.items())}
    head = "# Names to digests, by target. Written by `doit elfs`; read by check-missing, lookup and install.\n"
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return (head + yaml.dump(table, Dumper=dumper, sort_keys=True, width=200)).encode()


def _entry_table(entry: Entry) -> dict[str, object]:
    table: dict[str, object] = {field: f"sha256:{getattr(entry, field)}" for field in _DIGESTS}
    if entry.sealed:
        table[_SEALED] = [f"{K}x{N}" for K, N in sorted(entry.sealed)]
    return table | {"size": entry.size, "columns": entry.columns}


def register(path: Path, target: str, entries: Mapping[str, Entry]) -> None:
    """Set entries of a target in registry.yaml under its lock, by rename; unchanged content leaves the file alone.

    The lock lies beside the file and not below out/, which may be deleted at any time. Whoever edits the file without
    the lock (a person, git) is not overwritten: what was read is compared with what is there before the rename, and
    read again if it differs. Raises `Refused` when the file cannot be read or written, or goes on changing.
    """
    with locked(lock_file(path), path.name):
        for _ in range(_TRIES):
            before = _bytes_of(path)
            data = dump_registry(_registry_of(before, path.name).with_entries(target, entries))
            if data == before:
                return
            try:
                write_atomic(path, data, check=partial(_refuse_change, path, before))
            except _Changed:
                continue
            return
    raise Refused(f"{path.name}: changes while it is written; run again when nobody edits it")


def lock_file(path: Path) -> Path:
    """Return the lock of a registry, beside it."""
    return path.with_name(f".{path.name}.lock")


def _registry_of(data: bytes | None, where: str) -> Registry:
    return Registry({}) if data is None else parse_registry(utf8_text(data, where, remedy=_REMEDY), where)


class _Changed(Exception):
    """Somebody wrote the file between our reading and our rename."""


def _refuse_change(path: Path, before: bytes | None) -> None:
    if _bytes_of(path) != before:
        raise _Changed


def _bytes_of(path: Path) -> bytes | None:
    if not os.path.lexists(path):
        return None
    return read_regular(path, limit=MAX_BYTES, remedy=_REMEDY)

"""registry.yaml: target -> name -> digests. Sorted, diffable, committed; the one place that says what a name is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from elfkiln.engine.artifact_name import ArtifactName, bare_elf_name, checked_model_name
from elfkiln.errors import Differs, ElfkilnError, Refused, brief, refusal
from elfkiln.io.files import write_atomic
from elfkiln.store.blobs import parse_digest

SCHEMA = "elfkiln-registry/1"
_DIGESTS = ("elf", "recipe", "manifest", "design")
_FIELDS = frozenset((*_DIGESTS, "size", "columns"))
_SEALED = "sealed"
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


@dataclass(frozen=True, slots=True)
class Registry:
    """All entries, by target and then by key.

    A key is an artifact name, or `<model>/<file>` for a sealed ELF, whose file name is the same in every model.
    """

    targets: Mapping[str, Mapping[str, Entry]]

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


def shape_of(key: str) -> object:
    """Return what two keys must share to share bytes: K, N, tag and M, or a sealed ELF's file name.

    Two models of one decode set have one sealed ELF; which geometries it holds is in its own metadata.

    Raises `Refused` for a key that is neither an artifact name nor `<model>/<file>.elf`.
    """
    if "/" in key:
        model, _, file_name = key.partition("/")
        checked_model_name(model)
        return bare_elf_name(file_name, f"registry key {key}")
    name = ArtifactName.parse(key)
    return (name.K, name.N, name.tag, name.m16)


def load_registry(path: Path) -> Registry:
    """Read registry.yaml; an absent file is an empty registry. Raises `Refused` naming the field that does not fit."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Registry({})
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path.name}: not readable ({error}); restore it from the repository") from error
    try:
        table = yaml.load(text, Loader=_loader())
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first = " ".join(str(error).split())
        raise Refused(f"{path.name}: not YAML ({first}); restore it from the repository") from error
    if not isinstance(table, dict) or table.get("schema") != SCHEMA:
        found = table.get("schema") if isinstance(table, dict) else type(table).__name__
        raise refusal(f"{path.name}: schema", expected=SCHEMA, found=found)
    targets = table.get("targets")
    if not isinstance(targets, dict):
        raise refusal(f"{path.name}: targets", expected="a table by target", found=type(targets).__name__)
    registry = Registry({str(target): _read_target(path, str(target), rows) for target, rows in targets.items()})
    check_clashes(registry)
    return registry


def _loader() -> type[yaml.SafeLoader]:
    """Return a safe loader that refuses a key given twice, where YAML's own readers let the last one win."""

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            table: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            if len(table) != len(node.value):
                seen: set[str] = set()
                for key, _ in node.value:
                    if key.value in seen:
                        line = key.start_mark.line + 1
                        raise Refused(f"registry.yaml: line {line}: key {brief(key.value)} stands twice; remove one")
                    seen.add(key.value)
            return table

    return Loader


def _read_target(path: Path, target: str, rows: object) -> dict[str, Entry]:
    if not isinstance(rows, dict):
        raise refusal(f"{path.name}: targets.{target}", expected="a table by name", found=type(rows).__name__)
    return {str(key): _read_entry(f"{path.name}: {target}/{key}", str(key), row) for key, row in rows.items()}


def _read_entry(where: str, key: str, row: object) -> Entry:
    fields = _FIELDS | {_SEALED} if "/" in key else _FIELDS
    if not isinstance(row, dict) or row.keys() != fields:
        found = " ".join(sorted(map(str, row))) if isinstance(row, dict) else type(row).__name__
        raise refusal(where, expected="the fields " + " ".join(sorted(fields)), found=found)
    try:
        shape_of(key)
        digests = {field: parse_digest(row[field]) for field in _DIGESTS}
    except ElfkilnError as error:
        raise Refused(f"{where}: {error}") from error
    for field in ("size", "columns"):
        if type(row[field]) is not int or row[field] < 1:
            raise refusal(f"{where}: {field}", expected="a positive integer", found=row[field])
    sealed = _read_sealed(f"{where}: {_SEALED}", row[_SEALED]) if _SEALED in fields else ()
    return Entry(size=row["size"], columns=row["columns"], sealed=sealed, **digests)


def _read_sealed(where: str, value: object) -> tuple[tuple[int, int], ...]:
    items = value if isinstance(value, list) else []
    matches = [_GEOMETRY.fullmatch(one) if isinstance(one, str) else None for one in items]
    geometries = tuple((int(match[1]), int(match[2])) for match in matches if match is not None)
    if not geometries or len(geometries) != len(matches):
        raise refusal(where, expected="a list of <K>x<N>", found=value)
    return geometries


def dump_registry(registry: Registry) -> bytes:
    """Return the file's bytes: sorted, one field a line, so that a diff shows what changed."""
    table: dict[str, Any] = {"schema": SCHEMA, "targets": {}}
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


def register(path: Path, scratch: Path, target: str, entries: Mapping[str, Entry]) -> None:
    """Set entries of a target in registry.yaml under its lock, by rename; unchanged content leaves the file alone."""
    scratch.mkdir(parents=True, exist_ok=True)
    with FileLock(scratch / "registry.lock", timeout=600):
        registry = load_registry(path).with_entries(target, entries)
        data = dump_registry(registry)
        if not path.is_file() or path.read_bytes() != data:
            write_atomic(path, data)

"""The bill of materials of a set, as CycloneDX JSON: what its ELFs are made of and by, each thing by digest.

Components are the ELFs; the compile inputs and what led to them (templates, generators, microkernels, the lock's
section), from the recipes and provenance in the store; the toolchain; elfkiln's own files; and the Python packages it
needs, with the digests requirements.txt allows. Nothing volatile is in it: equal sets give equal bytes.
"""

from __future__ import annotations

import importlib.metadata
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import elfkiln
from elfkiln.errors import Differs, refusal
from elfkiln.io.canonical import canonical_json, file_sha256, sha256_hex
from elfkiln.io.reading import read_text
from elfkiln.project import Project
from elfkiln.store.artifacts import recipe_table
from elfkiln.store.attestations import Attestation, attestations
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import facts
from elfkiln.store.registry import Entry
from elfkiln.store.statement_types import PROVENANCE
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.work.asked import Asked
from elfkiln.work.lookup import lookup_set

REQUIREMENTS = "requirements.txt"
_MOST_BYTES = 16 << 20
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})", re.ASCII)
_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:elfkiln:sbom:1")


def sbom(project: Project, asked: Asked) -> str:
    """Return the bill of materials of a registered set as CycloneDX 1.6 JSON.

    Raises `Differs` for a name that is not registered or whose recipe is not in the store, and `Refused` when
    requirements.txt cannot be read or does not pin a package that elfkiln needs.
    """
    rows = lookup_set(project, asked.target, asked.wanted)
    store = Store(project.store)
    entries: dict[str, Entry] = {}
    for row in rows:
        if row.entry is None or row.problem is not None:
            why = row.problem or f"not registered for target {row.target}"
            raise Differs(f"{row.path}: {why}; build it with doit elfs {' '.join(asked.words)}".rstrip())
        entries[row.key] = row.entry
    pin = read_lock(project.lock_file).target(asked.target)
    said = attestations(store, {entry.manifest for entry in entries.values()})
    files: dict[tuple[str, str], Component] = {}
    tools = tuple(_toolchain(pin))
    own, packages = _own(), tuple(_packages(project, pin))
    bom = Bom()
    for key, entry in sorted(entries.items()):
        elf = _component(key, entry.elf, ComponentType.FIRMWARE, columns=str(entry.columns))
        inputs = [_file(files, *pair) for pair in _inputs(store, key, entry, said[entry.manifest])]
        bom.components.add(elf)
        bom.register_dependency(elf, [*inputs, *tools, own])
    for one in (*files.values(), *tools, own, *packages):
        bom.components.add(one)
    bom.register_dependency(own, packages)
    model = Component(
        name=asked.wanted.model,
        version=asked.wanted.layout,
        type=ComponentType.FIRMWARE,
        bom_ref=f"model/{asked.wanted.model}",
        properties=[Property(name="elfkiln:target", value=asked.target)],
    )
    bom.metadata = BomMetaData(component=model)
    # The set itself depends on its ELFs.
    bom.register_dependency(model, [one for one in bom.components if one.name in entries])
    return _text(bom)


def _text(bom: Bom) -> str:
    """Return a bill's JSON without a time, under a serial number that its content decides."""
    import json

    table: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    table["metadata"].pop("timestamp", None)
    table.pop("serialNumber", None)
    table["serialNumber"] = f"urn:uuid:{uuid.uuid5(_SPACE, sha256_hex(canonical_json(table)))}"
    return json.dumps(table, indent=2, sort_keys=True)


def _component(name: str, sha256: str, kind: ComponentType = ComponentType.FILE, **properties: str) -> Component:
    return Component(
        name=name,
        type=kind,
        bom_ref=f"{kind.value}/{name}@{sha256[:16]}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
        properties=[Property(name=f"elfkiln:{key}", value=value) for key, value in properties.items()],
    )


def _file(known: dict[tuple[str, str], Component], name: str, sha256: str) -> Component:
    """Return the component of a file, one for each name and digest."""
    return known.setdefault((name, sha256), _component(name, sha256))


def _inputs(store: Store, key: str, entry: Entry, said: Iterable[Attestation]) -> Iterator[tuple[str, str]]:
    """Yield (name, sha256) of what an ELF is compiled from and of what led there; the design, too."""
    recipe = recipe_table(store, entry.recipe)
    if recipe is None:
        raise Differs(f"{key}: recipe sha256:{entry.recipe} is not in the store; build or pull it")
    tools = set(recipe["tools"])
    yield "design.mlir", entry.design
    found = dict(_digests(facts(recipe)))
    for one in said:
        if one.predicate_type == PROVENANCE:
            found |= _resolved(one.statement)
    yield from ((name, digest) for name, digest in sorted(found.items()) if name not in tools)


def _digests(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, value in rows:
        match = _SHA256.fullmatch(value)
        if match is not None:
            yield name, match[1]


def _resolved(statement: Mapping[str, Any]) -> dict[str, str]:
    """Return the resolved dependencies of a provenance statement; what is not of its form is left out."""
    try:
        rows = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        return dict(_digests((str(row["name"]), str(row["digest"]["sha256"])) for row in rows))
    except (KeyError, TypeError):
        return {}


def _toolchain(pin: TargetPin) -> Iterator[Component]:
    """Yield what the lock's section pins: wheels by sha256, or the packages and the program of target sim."""
    wheels = pin.table.get("wheels")
    for row in wheels if isinstance(wheels, list) else []:
        yield Component(
            name=row["name"],
            version=row["version"],
            purl=PackageURL("pypi", None, canonicalize_name(row["name"]), row["version"]),
            bom_ref=f"toolchain/{row['file']}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=row["sha256"])],
            properties=[Property(name="elfkiln:wheel", value=row["file"])],
        )
    zig = pin.table.get("ziglang")
    if isinstance(zig, Mapping):
        yield Component(
            name="zig",
            version=str(zig["version"]),
            type=ComponentType.APPLICATION,
            bom_ref="toolchain/zig",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=str(zig["zig_sha256"]))],
        )


def _own() -> Component:
    """Return elfkiln itself with every file of its package."""
    root = Path(elfkiln.__file__).resolve().parent
    paths = sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = [_component(f"elfkiln/{path.relative_to(root).as_posix()}", file_sha256(path)) for path in paths]
    version = importlib.metadata.version("elfkiln")
    return Component(
        name="elfkiln",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="elfkiln",
        purl=PackageURL("pypi", None, "elfkiln", version),
        components=files,
    )


def _pinned_wheel(pin: TargetPin, name: str, version: str) -> tuple[str, str] | None:
    """Return file name and sha256 of the one wheel of a package that the lock's section pins, if it does."""
    table = pin.table.get(name)
    if not isinstance(table, Mapping) or table.get("version") != version or not {"wheel", "sha256"} <= set(table):
        return None
    return str(table["wheel"]), str(table["sha256"])


def _packages(project: Project, pin: TargetPin) -> Iterator[Component]:
    """Yield the Python packages elfkiln needs on this machine, each with the digests that requirements.txt allows.

    Where the toolchain is one of them, as zig is for target sim, the wheel that the lock pins is its own digest.
    """
    pinned = pinned_packages(read_text(project.root / REQUIREMENTS, limit=_MOST_BYTES, remedy="restore it"))
    for name in needed_packages("elfkiln"):
        if name not in pinned:
            raise refusal(REQUIREMENTS, expected=f"a pin of {name}, which elfkiln needs", found="none")
        version, digests = pinned[name]
        wheel = _pinned_wheel(pin, name, version)
        yield Component(
            name=name,
            version=version,
            bom_ref=f"python/{name}@{version}",
            purl=PackageURL("pypi", None, name, version),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel[1])] if wheel else [],
            properties=[Property(name="elfkiln:wheel", value=wheel[0])] if wheel else [],
            # pip takes one of these, by the machine; none other.
            external_references=[
                ExternalReference(
                    type=ExternalReferenceType.DISTRIBUTION,
                    url=XsUri(f"pkg:pypi/{name}@{version}?checksum=sha256:{digest}"),
                    hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
                )
                for digest in digests
            ],
        )


def pinned_packages(text: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return version and sha256 digests of each package that a requirements file pins for this machine.

    >>> pinned_packages("a==1 \\\\\\n    --hash=sha256:" + "0" * 64)
    {'a': ('1', ('0000000000000000000000000000000000000000000000000000000000000000',))}
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        spec = line.partition(" --hash=")[0].strip()
        if not spec or spec.startswith(("#", "-")):
            continue
        try:
            wanted = Requirement(spec)
        except InvalidRequirement as error:
            raise refusal(REQUIREMENTS, expected="NAME==VERSION with hashes", found=spec) from error
        exact = [one.version for one in wanted.specifier if one.operator == "=="]
        if (wanted.marker is None or wanted.marker.evaluate()) and exact:
            found[canonicalize_name(wanted.name)] = (exact[0], tuple(sorted(_HASH.findall(line))))
    return found


def needed_packages(name: str) -> tuple[str, ...]:
    """Return the packages an installed one needs on this machine, and those need in turn, without extras; sorted."""
    found: set[str] = set()
    waiting = [(name, frozenset[str]())]
    seen = set(waiting)
    while waiting:
        one, extras = waiting.pop()
        try:
            lines = importlib.metadata.requires(one) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for line in lines:
            wanted = Requirement(line)
            marker = wanted.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                continue
            found.add(canonicalize_name(wanted.name))
            more = (wanted.name, frozenset(wanted.extras))
            if more not in seen:
                seen.add(more)
                waiting.append(more)
    return tuple(sorted(found - {name}))

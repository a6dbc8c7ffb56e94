"""Artifacts in the store: what one build leaves there, and finding it again by its recipe.

An artifact is an OCI image manifest named by its recipe digest: config = the recipe, layers = the ELF, the design
(generic MLIR) and every compile input the recipe names. So a manifest is decided by what it holds, and the same recipe
gives the same manifest anywhere. What led to it may differ where the artifact may not: the build log and the rendered
generator lie in a manifest of their own whose subject is the artifact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import Differs, ElfkilnError
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.store import recipe as recipes
from elfkiln.store.blobs import MANIFEST_TYPE, Descriptor, Store, descriptor_of, manifest_bytes, parse_digest
from elfkiln.store.recipe import Recipe, Step

ARTIFACT_TYPE = "application/vnd.elfkiln.artifact.v2"
RECORD_ARTIFACT_TYPE = "application/vnd.elfkiln.build-record.v1"
ELF_TYPE = "application/vnd.elfkiln.elf"
DESIGN_TYPE = "application/vnd.elfkiln.design.mlir"
INPUT_TYPE = "application/vnd.elfkiln.compile-input"
GENERATOR_TYPE = "application/vnd.elfkiln.generator.python"
LOG_TYPE = "text/plain"
EMPTY_CONFIG_TYPE = "application/vnd.oci.empty.v1+json"
COLUMNS = "dev.elfkiln.columns"
SHAPE = "dev.elfkiln.shape"
SEALED = "dev.elfkiln.sealed"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stored artifact: digests (hex) of its ELF, recipe, design and manifest, the ELF's size, and its shape.

    `columns` are those of the array that the ELF takes, `shape` what its names say of the GEMM, `sealed` the (K, N) of
    a sealed one, whose names say nothing.
    """

    recipe: str
    elf: str
    size: int
    design: str
    manifest: str
    columns: int
    shape: str
    sealed: tuple[tuple[int, int], ...] = ()
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """What a build hands over for the store: its recipe and steps, the ELF, the design, log and generator."""

    recipe: Recipe
    steps: tuple[Step, ...]
    elf: bytes
    design: str
    generator: str
    log: str
    columns: int
    shape: str
    sealed: tuple[tuple[int, int], ...] = ()


def put_artifact(
    store: Store, made: Made, said: Callable[[Artifact], Sequence[bytes]] = lambda _artifact: ()
) -> Artifact:
    """Store what a build made, and what is said of it: statements, which `said` gives for the artifact.

    The names come last and all at once, so a killed process leaves no artifact, or one with its log and statements.
    """
    inputs = recipes.input_blobs(made.steps)
    digests = store.add_all((made.recipe.data, made.elf, made.design.encode(), *inputs.values()))
    config = descriptor_of(store, digests[0], recipes.MEDIA_TYPE)
    layers = [descriptor_of(store, digests[1], ELF_TYPE), descriptor_of(store, digests[2], DESIGN_TYPE)]
    layers += [descriptor_of(store, digest, INPUT_TYPE) for digest in sorted(inputs)]
    annotations = {COLUMNS: str(made.columns)}
    if made.shape:
        annotations[SHAPE] = made.shape
    if made.sealed:
        annotations[SEALED] = " ".join(f"{K}x{N}" for K, N in sorted(made.sealed))
    data = manifest_bytes(ARTIFACT_TYPE, config, tuple(layers), annotations)
    artifact = Descriptor(MANIFEST_TYPE, sha256_hex(data), len(data))
    found = artifact_of(parse_strict_json(data, "manifest"), artifact)
    stored, record = store.add_all((data, _record(store, made, artifact)))
    names = {recipe_ref(made.recipe.digest): stored, log_ref(made.recipe.digest): record}
    if statements := said(found):
        # Only builds need what reads and seals statements.
        from elfkiln.store.attestations import put_statements

        names |= put_statements(store, artifact, statements)
    store.name_manifests(names)
    return found


def recipe_ref(recipe_digest: str) -> str:
    """Return the name of an artifact in index.json."""
    return f"recipe-{recipe_digest}"


def log_ref(recipe_digest: str) -> str:
    """Return the name of an artifact's build record in index.json."""
    return f"log-{recipe_digest}"


def _record(store: Store, made: Made, artifact: Descriptor) -> bytes:
    """Store log and generator of a build, and return the manifest that says of which artifact they are."""
    digests = store.add_all((b"{}", made.log.encode(), made.generator.encode()))
    empty, *layers = (
        descriptor_of(store, digest, kind)
        for digest, kind in zip(digests, (EMPTY_CONFIG_TYPE, LOG_TYPE, GENERATOR_TYPE), strict=True)
    )
    return manifest_bytes(RECORD_ARTIFACT_TYPE, empty, tuple(layers), subject=artifact)


def find_artifact(store: Store, recipe_digest: str, manifest: str | None = None) -> Artifact | None:
    """Return the artifact of a recipe if the store has it and all its bytes verify, else None.

    `manifest` is the digest the registry has for it: with that an artifact is found whose entry in index.json is lost,
    and gets its entry again.
    """
    ref = recipe_ref(recipe_digest)
    descriptor = store.refs().get(ref)
    if descriptor is None and manifest is not None and store.holds(manifest):
        descriptor = store.name_manifest(ref, manifest)
    if descriptor is None:
        return None
    try:
        artifact = artifact_of(store.manifest(descriptor), descriptor)
    except ElfkilnError:
        return None
    digests = (artifact.elf, artifact.recipe, artifact.design, *artifact.inputs)
    return artifact if artifact.recipe == recipe_digest and all(map(store.holds, digests)) else None


def all_artifacts(store: Store) -> tuple[Artifact, ...]:
    """Return every artifact whose manifest is whole, in the order of their recipe digests; blobs are not re-hashed."""
    found = []
    for ref, descriptor in sorted(store.refs().items()):
        if ref.startswith("recipe-"):
            try:
                found.append(artifact_of(store.manifest(descriptor), descriptor))
            except ElfkilnError:
                continue
    return tuple(found)


def recipe_table(store: Store, recipe_digest: str) -> Mapping[str, Any] | None:
    """Return a stored recipe's JSON value, None when it is not there or was written by an older elfkiln."""
    try:
        table = json.loads(store.read(recipe_digest))
    except (ElfkilnError, ValueError):
        return None
    return table if isinstance(table, dict) and table.get("schema") == recipes.SCHEMA else None


def read_log(store: Store, recipe_digest: str) -> str | None:
    """Return the log of the build that made a recipe's artifact, None when the store has none."""
    return read_records(store, (recipe_digest,))[recipe_digest].log


def read_generator(store: Store, recipe_digest: str) -> str | None:
    """Return the rendered generator a recipe's artifact was built from, None when the store has none."""
    return read_records(store, (recipe_digest,))[recipe_digest].generator


@dataclass(frozen=True, slots=True)
class Record:
    """What led to an artifact: the build's log and the rendered generator, None where the store has none."""

    log: str | None
    generator: str | None


def read_records(store: Store, recipe_digests: Iterable[str]) -> dict[str, Record]:
    """Return the records of recipes' builds by recipe digest; the store's index is read once."""
    refs = store.refs()
    return {
        digest: Record(
            _record_layer(store, refs.get(log_ref(digest)), LOG_TYPE),
            _record_layer(store, refs.get(log_ref(digest)), GENERATOR_TYPE),
        )
        for digest in recipe_digests
    }


def designs_by_generator(store: Store) -> dict[str, str]:
    """Return the digest of a stored design for the digest of every generator that one was built from."""
    found: dict[str, str] = {}
    records = store.refs()
    for artifact in all_artifacts(store):
        record = records.get(log_ref(artifact.recipe))
        try:
            layers: Iterable[Mapping[str, Any]] = store.manifest(record)["layers"] if record else ()
            found |= {
                parse_digest(one["digest"]): artifact.design for one in layers if one["mediaType"] == GENERATOR_TYPE
            }
        except (ElfkilnError, KeyError, TypeError, ValueError):
            continue
    return found


def _record_layer(store: Store, descriptor: Descriptor | None, media_type: str) -> str | None:
    try:
        layers: Iterable[Mapping[str, Any]] = store.manifest(descriptor)["layers"] if descriptor else ()
        for layer in layers:
            if layer["mediaType"] == media_type:
                return store.read(parse_digest(layer["digest"])).decode(errors="replace")
    except (ElfkilnError, KeyError, TypeError, ValueError):
        pass
    return None


def artifact_of(manifest: dict[str, Any], descriptor: Descriptor) -> Artifact:
    """Return the artifact that a manifest's content says; `Differs` when it is not one of elfkiln's."""
    try:
        elf, design = (
            next(layer for layer in manifest["layers"] if layer["mediaType"] == kind)
            for kind in (ELF_TYPE, DESIGN_TYPE)
        )
        annotations = manifest["annotations"]
        return Artifact(
            recipe=parse_digest(manifest["config"]["digest"]),
            elf=parse_digest(elf["digest"]),
            size=int(elf["size"]),
            design=parse_digest(design["digest"]),
            manifest=descriptor.digest,
            columns=int(annotations[COLUMNS]),
            shape=str(annotations.get(SHAPE, "")),
            sealed=tuple(_pair(text) for text in annotations.get(SEALED, "").split()),
            inputs=tuple(
                parse_digest(layer["digest"]) for layer in manifest["layers"] if layer["mediaType"] == INPUT_TYPE
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration, RuntimeError) as error:
        raise Differs(f"manifest sha256:{descriptor.digest} is not an elfkiln artifact ({error!r})") from error


def _pair(text: str) -> tuple[int, int]:
    K, _, N = text.partition("x")
    return int(K), int(N)

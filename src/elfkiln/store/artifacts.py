"""Artifacts in the store: what one build leaves there, and finding it again by its recipe.

An artifact is an OCI image manifest named by its recipe digest: config = the recipe, layers = the ELF, the design
(generic MLIR) and the rendered generator. The build log lies in a manifest of its own whose subject is the artifact,
because a log may differ where the artifact may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elfkiln.errors import Differs, ElfkilnError
from elfkiln.store import recipe as recipes
from elfkiln.store.blobs import Descriptor, Store, descriptor_of, parse_digest
from elfkiln.store.recipe import Recipe

ARTIFACT_TYPE = "application/vnd.elfkiln.artifact.v1"
LOG_ARTIFACT_TYPE = "application/vnd.elfkiln.build-log.v1"
ELF_TYPE = "application/vnd.elfkiln.elf"
DESIGN_TYPE = "application/vnd.elfkiln.design.mlir"
GENERATOR_TYPE = "application/vnd.elfkiln.generator.python"
LOG_TYPE = "text/plain"
EMPTY_CONFIG_TYPE = "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One stored artifact: digests (hex) of its ELF, recipe, design, generator and manifest, and the ELF's size."""

    recipe: str
    elf: str
    size: int
    design: str
    generator: str
    manifest: str


def put_artifact(store: Store, recipe: Recipe, elf: bytes, design: str, generator: str, log: str) -> Artifact:
    """Store what a build made; the manifest comes last, so a killed process leaves no artifact, only blobs."""
    config = descriptor_of(store, store.add_bytes(recipe.data), recipes.MEDIA_TYPE)
    layers = tuple(
        descriptor_of(store, store.add_bytes(data), kind)
        for data, kind in ((elf, ELF_TYPE), (design.encode(), DESIGN_TYPE), (generator.encode(), GENERATOR_TYPE))
    )
    manifest = store.add_manifest(
        ref=recipe_ref(recipe.digest), artifact_type=ARTIFACT_TYPE, config=config, layers=layers
    )
    if log:
        _put_log(store, recipe, manifest, log)
    return Artifact(
        recipe.digest, layers[0].digest, layers[0].size, layers[1].digest, layers[2].digest, manifest.digest
    )


def recipe_ref(recipe_digest: str) -> str:
    """Return the name of an artifact in index.json."""
    return f"recipe-{recipe_digest}"


def log_ref(recipe_digest: str) -> str:
    """Return the name of a recipe's build log in index.json."""
    return f"log-{recipe_digest}"


def _put_log(store: Store, recipe: Recipe, manifest: Descriptor, log: str) -> None:
    empty = descriptor_of(store, store.add_bytes(b"{}"), EMPTY_CONFIG_TYPE)
    layer = descriptor_of(store, store.add_bytes(log.encode()), LOG_TYPE)
    subject = Descriptor(manifest.media_type, manifest.digest, manifest.size)
    store.add_manifest(
        ref=log_ref(recipe.digest), artifact_type=LOG_ARTIFACT_TYPE, config=empty, layers=(layer,), subject=subject
    )


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
    whole = artifact.recipe == recipe_digest and all(
        store.holds(digest) for digest in (artifact.elf, artifact.recipe, artifact.design, artifact.generator)
    )
    return artifact if whole else None


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


def read_log(store: Store, recipe_digest: str) -> str:
    """Return the build log of a recipe; empty when there was nothing to log."""
    descriptor = store.refs().get(log_ref(recipe_digest))
    if descriptor is None:
        return ""
    layer = store.manifest(descriptor)["layers"][0]
    return store.read(parse_digest(layer["digest"])).decode(errors="replace")


def artifact_of(manifest: dict[str, Any], descriptor: Descriptor) -> Artifact:
    """Return the artifact that a manifest's content says; `Differs` when it is not one of elfkiln's."""
    try:
        layers = {layer["mediaType"]: layer for layer in manifest["layers"]}
        elf, design, generator = (layers[kind] for kind in (ELF_TYPE, DESIGN_TYPE, GENERATOR_TYPE))
        return Artifact(
            recipe=parse_digest(manifest["config"]["digest"]),
            elf=parse_digest(elf["digest"]),
            size=int(elf["size"]),
            design=parse_digest(design["digest"]),
            generator=parse_digest(generator["digest"]),
            manifest=descriptor.digest,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Differs(f"manifest sha256:{descriptor.digest} is no elfkiln artifact ({error})") from error

"""Artifacts put into a store by hand: what a build would leave, without a build."""

from __future__ import annotations

from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.store.artifacts import Artifact, Made, put_artifact
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import Recipe
from elfkiln.store.registry import Entry


def recipe_of(text: str) -> Recipe:
    """Return a recipe that says nothing but a text."""
    data = canonical_json({"recipe": text})
    return Recipe({"recipe": text}, data, sha256_hex(data))


def stored(store: Store, text: str, elf: bytes, design: str = "module {}", log: str = "", **shape) -> Artifact:
    """Put an artifact with the recipe `text` into a store and return it."""
    made = {"columns": 2, "shape": "", "sealed": ()} | shape
    return put_artifact(store, Made(recipe_of(text), (), elf, design, "print()", log, **made))


def entry_of(artifact: Artifact) -> Entry:
    """Return the registry's entry of a stored artifact."""
    return Entry(
        artifact.elf,
        artifact.size,
        artifact.recipe,
        artifact.manifest,
        artifact.design,
        artifact.columns,
        artifact.sealed,
    )

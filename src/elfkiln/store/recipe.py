"""Recipes: canonical JSON of every input of one build. The sha256 of that JSON is the recipe digest.

No path, time, host, role name or environment enters a recipe, so G and U of one geometry are one recipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elfkiln.families.family import RenderedGenerator
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.store.toolchain_lock import TargetPin

SCHEMA = "elfkiln-recipe/1"
MEDIA_TYPE = "application/vnd.elfkiln.recipe.v1+json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe's JSON value, its canonical bytes and their sha256."""

    table: Mapping[str, Any]
    data: bytes
    digest: str


def make_recipe(pin: TargetPin, generator: RenderedGenerator, sources: Mapping[str, str]) -> Recipe:
    """Return the recipe of one build.

    `sources` maps every source file of ours that decides the bytes (microkernels, their headers, for sim also the
    runtime and what reads the design) to its sha256. The target's whole pin enters, so that a changed flag can be
    named later, and its digest beside it.
    """
    table = {
        "schema": SCHEMA,
        "target": pin.name,
        "toolchain": {"digest": pin.digest, "pin": dict(pin.table)},
        "generator": sha256_hex(generator.text.encode()),
        "kernels": [
            {"object": kernel.object_name, "source": kernel.source, "defines": dict(kernel.defines)}
            for kernel in generator.kernels
        ],
        "sources": dict(sources),
    }
    data = canonical_json(table)
    return Recipe(table, data, sha256_hex(data))


def flatten(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted path, text) of every leaf of a JSON value, for naming what differs between two recipes.

    >>> list(flatten({"a": [1, {"b": "x"}]}))
    [('a[0]', '1'), ('a[1].b', 'x')]
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from flatten(inner, f"{prefix}[{position}]")
    else:
        yield prefix, str(value)


def differing_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return (input, old text, new text) for every input that differs; an absent one reads `absent`.

    The toolchain's digest is left out when the field of the pin that changed it is listed.
    """
    before, after = dict(flatten(old)), dict(flatten(new))
    changed = [
        (key, before.get(key, "absent"), after.get(key, "absent"))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    if any(key.startswith("toolchain.pin") for key, _, _ in changed):
        changed = [row for row in changed if row[0] != "toolchain.digest"]
    return tuple(changed)

"""Recipes: canonical JSON of what decides the bytes of one build. The sha256 of that JSON is the recipe digest.

A recipe names the compile inputs themselves, each by digest: what every command of the build is given, after what it
can see of it. How they came about (templates, generators, our own code) is not part of it, so an edit that leads to
the same inputs leads to the same recipe. No path, time, host, role name or environment enters one, so G and U of one
geometry are one recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elfkiln.io.canonical import canonical_json, sha256_hex

SCHEMA = "elfkiln-recipe/2"
MEDIA_TYPE = "application/vnd.elfkiln.recipe.v2+json"


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a build: what it makes, its words (folders as `{name}`), and what it sees, by name."""

    makes: str
    command: tuple[str, ...]
    inputs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe's JSON value, its canonical bytes and their sha256."""

    table: Mapping[str, Any]
    data: bytes
    digest: str


def make_recipe(target: str, tools: Mapping[str, str], steps: Sequence[Step]) -> Recipe:
    """Return the recipe of a build for a target: its tools by sha256, and its steps in the order they are run."""
    return recipe_of(
        {
            "schema": SCHEMA,
            "target": target,
            "tools": dict(tools),
            "steps": [
                {
                    "makes": step.makes,
                    "command": list(step.command),
                    "inputs": {name: sha256_hex(data) for name, data in step.inputs.items()},
                }
                for step in steps
            ],
        }
    )


def recipe_of(table: Mapping[str, Any]) -> Recipe:
    """Return the recipe with this JSON value."""
    data = canonical_json(table)
    return Recipe(table, data, sha256_hex(data))


def input_blobs(steps: Iterable[Step]) -> dict[str, bytes]:
    """Return the bytes of every compile input by digest."""
    return {sha256_hex(data): data for step in steps for data in step.inputs.values()}


def facts(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of everything a recipe says, for naming what differs between two.

    >>> step = Step("a.o", ("cc", "-O1"), {"a.c": b"int a;"})
    >>> [name for name, _ in facts(make_recipe("sim", {"zig": "1" * 64}, [step]).table)]
    ['target', 'zig', 'a.o: command', 'a.o: a.c']
    """
    yield "target", str(table["target"])
    for name, digest in table["tools"].items():
        yield name, str(digest)
    for step in table["steps"]:
        yield f"{step['makes']}: command", " ".join(step["command"])
        for name, digest in step["inputs"].items():
            yield name if name == step["makes"] else f"{step['makes']}: {name}", str(digest)


def differing_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Return (input, old text, new text) for everything that differs; what is not there reads `absent`."""
    before, after = dict(facts(old)), dict(facts(new))
    return tuple(
        (name, before.get(name, "absent"), after.get(name, "absent"))
        for name in (*after, *(name for name in before if name not in after))
        if before.get(name) != after.get(name)
    )

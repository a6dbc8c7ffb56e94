"""Explains why a name would be rebuilt: which input changed against the nearest recipe that is known."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import ElfkilnError, brief, did_you_mean, refusal
from elfkiln.models.catalogue import every_requirement
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact, all_artifacts, find_artifact
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import Recipe, differing_inputs, make_recipe
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.target import Builder
from elfkiln.work.jobs import entry_of, generator_of, registry_key

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Explanation:
    """What stands between a name and its artifact.

    `state` is `up to date`, `stored, not registered`, `bytes damaged or gone`, `would be built` or `refused`, and
    `refusal` then says why; `changes` lists (input, was, is) against the recipe `nearest`, which is the registered one
    if the store knows it.
    """

    key: str
    target: str
    recipe: str
    state: str
    nearest: str | None
    changes: tuple[tuple[str, str, str], ...]
    generator_diff: tuple[str, ...]
    refusal: str = ""

    @property
    def line(self) -> str:
        """The state on one line, with the inputs that changed."""
        if self.refusal:
            return f"{self.state}: {self.refusal}"
        if self.state != "would be built":
            return self.state
        if self.nearest is None:
            return f"{self.state}: no recipe of target {self.target} to compare with"
        names = [name for name, _, _ in self.changes]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"{self.state}: {', '.join(names[:_MOST_NAMED])}{more} changed"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.key,
            "target": self.target,
            "recipe": f"sha256:{self.recipe}",
            "state": self.state,
            "nearest": f"sha256:{self.nearest}" if self.nearest else None,
            "changes": [{"input": name, "was": was, "is": now} for name, was, now in self.changes],
            "generator_diff": list(self.generator_diff),
        }

    def text(self) -> str:
        """Return the lines for a person."""
        lines = [f"{self.key} (target {self.target}): {self.state}", f"recipe sha256:{self.recipe}"]
        if self.state == "would be built" and self.nearest is None:
            lines.append("no recipe of this target is in the store yet, so there is nothing to compare with")
        if self.nearest:
            lines.append(f"nearest known recipe sha256:{self.nearest}: {len(self.changes)} inputs differ")
        lines += [f"  {name}: {_short(was)} -> {_short(now)}" for name, was, now in self.changes]
        lines += [f"    {line}" for line in self.generator_diff]
        return "\n".join(lines)


def _short(text: str) -> str:
    """Return a value fit for a line; a sha256 is told by its first 12 digits."""
    return text[:12] if re.fullmatch("[0-9a-f]{64}", text) else brief(text)


def find_requirement(project: Project, file_name: str, verb: str = "explain") -> tuple[RequirementSet, Requirement]:
    """Return the first requirement of any model and layout that bears this file name or registry key.

    Raises `Refused`, naming the verb, when no model asks for it.
    """
    known: dict[str, None] = {}
    for wanted, need in every_requirement(project):
        spelled = (need.file_name, registry_key(wanted, need))
        if file_name in spelled:
            return wanted, need
        known |= dict.fromkeys(spelled)
    near = did_you_mean(file_name, known)
    raise refusal(verb, expected=f"a name that a model below plans/ asks for{near}", found=file_name)


def explain(project: Project, builder: Builder, file_name: str) -> Explanation:
    """Compare the recipe a name has now with what the registry and the store know; builds nothing."""
    return _explained(project, builder, *find_requirement(project, file_name))


def explain_sets(project: Project, builder: Builder, sets: Iterable[RequirementSet]) -> tuple[Explanation, ...]:
    """Explain every name of the sets, each registry key once; one that no recipe can be made for is `refused`."""
    found: dict[str, Explanation] = {}
    for wanted in sets:
        for need in wanted.requirements:
            key = registry_key(wanted, need)
            if key not in found:
                try:
                    found[key] = _explained(project, builder, wanted, need)
                except ElfkilnError as error:
                    found[key] = Explanation(key, builder.pin.name, "", "refused", None, (), (), str(error))
    return tuple(found.values())


def _explained(project: Project, builder: Builder, wanted: RequirementSet, need: Requirement) -> Explanation:
    key = registry_key(wanted, need)
    generator = generator_of(project, wanted, need)
    recipe = make_recipe(builder.pin, generator, builder.sources(generator))
    store = Store(project.store)
    entry = entry_of(load_registry(project.registry_file).entries(builder.pin.name), wanted, need)
    state = _state(store, recipe, entry)
    near = _nearest(store, recipe, entry) if state == "would be built" else None
    if near is None:
        return Explanation(key, builder.pin.name, recipe.digest, state, None, (), ())
    artifact, changes = near
    difference: tuple[str, ...] = ()
    if any(name == "generator" for name, _, _ in changes):
        difference = _generator_diff(store, artifact, generator.text)
    return Explanation(key, builder.pin.name, recipe.digest, state, artifact.recipe, changes, difference)


def _state(store: Store, recipe: Recipe, entry: Entry | None) -> str:
    registered = entry is not None and entry.recipe == recipe.digest
    if find_artifact(store, recipe.digest, entry.manifest if registered and entry else None) is not None:
        return "up to date" if registered else "stored, not registered"
    if registered:
        return "bytes damaged or gone"
    return "would be built"


def _nearest(
    store: Store, recipe: Recipe, entry: Entry | None
) -> tuple[Artifact, tuple[tuple[str, str, str], ...]] | None:
    best: tuple[Artifact, tuple[tuple[str, str, str], ...]] | None = None
    for artifact in all_artifacts(store):
        table = _recipe_table(store, artifact)
        if table is None or table.get("target") != recipe.table["target"]:
            continue
        changes = differing_inputs(table, recipe.table)
        if entry is not None and artifact.recipe == entry.recipe:
            return artifact, changes
        if best is None or len(changes) < len(best[1]):
            best = artifact, changes
    return best


def _recipe_table(store: Store, artifact: Artifact) -> Mapping[str, Any] | None:
    try:
        table = json.loads(store.read(artifact.recipe))
    except (ElfkilnError, ValueError):
        return None
    return table if isinstance(table, dict) else None


def _generator_diff(store: Store, artifact: Artifact, text: str, most: int = 12) -> tuple[str, ...]:
    try:
        old = store.read(artifact.generator).decode()
    except ElfkilnError:
        return ()
    lines = [
        line
        for line in difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    return (*lines[:most], f"... and {len(lines) - most} more lines") if len(lines) > most else tuple(lines)

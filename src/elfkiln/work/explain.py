"""Explains why a name would be rebuilt: which input changed against the nearest recipe that is known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from elfkiln.errors import ElfkilnError, brief, did_you_mean, refusal
from elfkiln.families.family import RenderedGenerator
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.workspace import private_folder
from elfkiln.models.catalogue import every_requirement
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact, all_artifacts, find_artifact, read_generator, recipe_table
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import Recipe, differing_inputs, input_blobs
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.target import Builder, Inputs
from elfkiln.work.jobs import entry_of, generator_of, registry_key
from elfkiln.work.recipes import Memo

DESIGN = "design"
UP_TO_DATE = "up to date"
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One compile input that differs: what it was and is (a sha256 or a text), and the first line that differs.

    `line` is (number, old line, new line) of the input as a compiler sees it; None where there are no lines to compare.
    """

    input: str
    was: str
    now: str
    line: tuple[int, str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        first = None
        if self.line is not None:
            first = {"number": self.line[0], "was": self.line[1], "is": self.line[2]}
        return {"input": self.input, "was": self.was, "is": self.now, "first_line": first}

    def lines(self) -> list[str]:
        """Return the lines for a person."""
        rows = [f"  {self.input}: {_short(self.was)} -> {_short(self.now)}"]
        if self.line is not None:
            number, was, now = self.line
            rows += [f"    line {number} was {brief(was)}", f"    line {number} is  {brief(now)}"]
        return rows


@dataclass(frozen=True, slots=True)
class Explanation:
    """What stands between a name and its artifact.

    `state` is `up to date`, `stored, not registered`, `bytes damaged or gone`, `would be built` or `refused`, and
    `refusal` then says why; `changes` lists what differs against the recipe `nearest`, which is the registered one if
    the store knows it; `generator_diff` are the lines of the rendered generator that differ, if any do.
    `notes` are what the generator says of its design.
    """

    key: str
    target: str
    recipe: str
    state: str
    nearest: str | None
    changes: tuple[Change, ...]
    generator_diff: tuple[str, ...]
    refusal: str = ""
    notes: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The state on one line, with the inputs that changed."""
        if self.refusal:
            return f"{self.state}: {self.refusal}"
        if self.state != "would be built":
            return self.state
        if self.nearest is None:
            return f"{self.state}: no recipe of target {self.target} to compare with"
        names = [change.input for change in self.changes]
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
            "changes": [change.to_json() for change in self.changes],
            "generator_diff": list(self.generator_diff),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return the lines for a person."""
        lines = [f"{self.key} (target {self.target}): {self.state}", f"recipe sha256:{self.recipe}"]
        if self.state == "would be built" and self.nearest is None:
            lines.append("no recipe of this target is in the store yet, so there is nothing to compare with")
        if self.nearest:
            lines.append(f"nearest known recipe sha256:{self.nearest}: {len(self.changes)} inputs differ")
        for change in self.changes:
            lines += change.lines()
        if self.nearest and self.generator_diff:
            lines.append("lines of the rendered generator that differ:")
        elif self.nearest and any(change.input == DESIGN for change in self.changes):
            lines.append("the rendered generator is the same: elfkiln itself prints another design of it")
        lines += [f"    {line}" for line in self.generator_diff]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def _short(text: str) -> str:
    """Return a value fit for a line; a sha256 is cut to its first 12 digits."""
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


def inputs_of_name(project: Project, builder: Builder, file_name: str) -> Inputs:
    """Return the compile inputs of a name as they are now; its generator is run, nothing is compiled."""
    generator = generator_of(project, *find_requirement(project, file_name))
    return _tell(project, Memo(project, builder), generator)


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
    memo, store = Memo(project, builder), Store(project.store)
    recipe = memo.find(generator) or _tell(project, memo, generator).recipe
    entry = entry_of(load_registry(project.registry_file).entries(builder.pin.name), wanted, need)
    state = _state(store, recipe, entry)
    near = _nearest(store, recipe, entry) if state == "would be built" else None
    if near is None:
        return Explanation(key, builder.pin.name, recipe.digest, state, None, (), (), notes=generator.notes)
    inputs = _tell(project, memo, generator)
    old = read_generator(store, near.recipe)
    difference = () if old is None else _lines_that_differ(old, generator.text)
    changes = tuple(_changes(store, near, inputs))
    return Explanation(
        key, builder.pin.name, recipe.digest, state, near.recipe, changes, difference, notes=generator.notes
    )


def _tell(project: Project, memo: Memo, generator: RenderedGenerator) -> Inputs:
    with private_folder(project.work) as folder:
        return memo.tell(generator, folder)


def _changes(store: Store, near: Artifact, inputs: Inputs) -> Iterator[Change]:
    """Yield what differs, the design first: what else is printed of it follows."""
    blobs = {**input_blobs(inputs.steps), sha256_hex(inputs.design.encode()): inputs.design.encode()}
    table = recipe_table(store, near.recipe)
    differing = [(DESIGN, near.design, sha256_hex(inputs.design.encode()))]
    differing += [] if table is None else differing_inputs(table, inputs.recipe.table)
    said = set()
    for name, was, now in differing:
        if was != now and (was, now) not in said:
            said.add((was, now))
            yield Change(name, was, now, first_line(store, was, blobs.get(now)))


def first_line(store: Store, was: str, now: bytes | None) -> tuple[int, str, str] | None:
    """Return number, old and new text of the first line that differs between a stored input and a new one."""
    if now is None or not re.fullmatch("[0-9a-f]{64}", was):
        return None
    try:
        old = store.read(was)
    except ElfkilnError:
        return None
    pairs = zip_longest(*(data.decode("utf-8", "replace").splitlines() for data in (old, now)), fillvalue="(nothing)")
    found = ((number, a, b) for number, (a, b) in enumerate(pairs, start=1) if a != b)
    return next(found, None)


def _state(store: Store, recipe: Recipe, entry: Entry | None) -> str:
    registered = entry is not None and entry.recipe == recipe.digest
    if find_artifact(store, recipe.digest, entry.manifest if registered and entry else None) is not None:
        return UP_TO_DATE if registered else "stored, not registered"
    if registered:
        return "bytes damaged or gone"
    return "would be built"


def _nearest(store: Store, recipe: Recipe, entry: Entry | None) -> Artifact | None:
    """Return the stored artifact whose recipe is nearest: the registered one, else the one with the fewest changes."""
    best: tuple[int, Artifact] | None = None
    for artifact in all_artifacts(store):
        table = recipe_table(store, artifact.recipe)
        if table is None or table.get("target") != recipe.table["target"]:
            continue
        if entry is not None and artifact.recipe == entry.recipe:
            return artifact
        changes = len(differing_inputs(table, recipe.table))
        if best is None or changes < best[0]:
            best = changes, artifact
    return None if best is None else best[1]


def _lines_that_differ(old: str, new: str, most: int = 12) -> tuple[str, ...]:
    lines = [
        line
        for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    return (*lines[:most], f"... and {len(lines) - most} more lines") if len(lines) > most else tuple(lines)

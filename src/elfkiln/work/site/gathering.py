"""What the catalogue shows, put together from registry.yaml, the store and plans/; nothing is built or changed.

A name is a key of a target: registered, asked for by a model, or both. Whatever cannot be read is said in its place
(a damaged blob, a refused plan), so that one broken part does not hide the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from elfkiln.design.reader import MAX_CHARACTERS
from elfkiln.engine.artifact_name import ArtifactName, checked_model_name
from elfkiln.engine.contract import LAYOUTS
from elfkiln.errors import ElfkilnError
from elfkiln.models.catalogue import all_models
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.models.set_digest import set_digest
from elfkiln.project import Project
from elfkiln.store.agreement import entry_fault
from elfkiln.store.artifacts import read_records, recipe_table
from elfkiln.store.attestations import Attestation, attestations
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, Registry, load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.table import target_named
from elfkiln.work.asked import Asked, asked_by_model
from elfkiln.work.generations import Difference, Generation, History, difference, history, registry_of
from elfkiln.work.jobs import entry_of, registered_problem, registry_key
from elfkiln.work.predict_token import NamePrediction, Pass, passes_of
from elfkiln.work.report import token_report
from elfkiln.work.site.design_facts import DesignFacts, design_facts

HERE = "in the store, verified"
MOST_GENERATIONS = 50
"""Generations that have a page, the latest."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One model in one layout that asks for a name, and as what; `own` says that the layout is its own."""

    model: str
    layout: str
    need: Requirement
    own: bool


@dataclass(frozen=True, slots=True)
class NameRow:
    """One name of a target: what the registry has for it, who asks for it, and what is known of its bytes.

    `entry` is None for a name that is asked for and not registered. `state` says whether its bytes are there and
    verify; `fault` what is wrong with its entry or bytes, "" for nothing.
    """

    target: str
    key: str
    entry: Entry | None
    asked: tuple[Asking, ...]
    state: str
    fault: str
    facts: DesignFacts | None
    said: tuple[Attestation, ...]
    said_fault: str

    @property
    def name(self) -> ArtifactName | None:
        """The parsed name; None for a sealed ELF."""
        return None if "/" in self.key else ArtifactName.parse(self.key)

    @property
    def seconds(self) -> float | None:
        """The predicted time of one launch; None where it is not known, or where it holds several sequences."""
        return self.facts.predictions[0].seconds if self.facts and len(self.facts.predictions) == 1 else None

    @property
    def binds(self) -> str:
        """What binds the predicted time; the resources of all sequences of a sealed ELF."""
        return ", ".join(sorted({one.binds for one in self.facts.predictions})) if self.facts else ""


@dataclass(frozen=True, slots=True)
class RecipePage:
    """A recipe that registered names have: what went in, the build's log and generator (None: not in the store)."""

    digest: str
    target: str
    table: Mapping[str, Any] | None
    log: str | None
    generator: str | None
    sizes: Mapping[str, int]
    names: tuple[NameRow, ...]


@dataclass(frozen=True, slots=True)
class LayoutSet:
    """What a model asks for in one layout and target: (requirement, its name's row) each, and one digest for all.

    `problems` say, by path, why what is registered is not what is asked for.
    """

    target: str
    layout: str
    own: bool
    rows: tuple[tuple[Requirement, NameRow], ...]
    problems: Mapping[str, str]
    set_digest: str | None
    passes: tuple[Pass, ...]
    passes_refused: str

    @property
    def registered(self) -> int:
        """How many of its names are registered as they are asked for."""
        return sum(row.entry is not None and need.path not in self.problems for need, row in self.rows)


@dataclass(frozen=True, slots=True)
class ModelPage:
    """A model below plans/: what it asks for in its own layout, and in others that have registered names."""

    model: str
    source: str
    sets: tuple[LayoutSet, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class GenerationPage:
    """A generation of registry.yaml, the number of the one before it (None: the first), and how they differ.

    `difference` is None, and `fault` says why, where one of the two cannot be read.
    """

    generation: Generation
    before: int | None
    difference: Difference | None
    fault: str = ""

    @property
    def when(self) -> str:
        """When it was made, in UTC."""
        return datetime.fromtimestamp(self.generation.time, UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything the site shows beside docs/; generations the latest first."""

    default_target: str
    names: tuple[NameRow, ...]
    models: tuple[ModelPage, ...]
    recipes: tuple[RecipePage, ...]
    designs: Mapping[str, str]
    facts: Mapping[str, DesignFacts]
    generations: tuple[GenerationPage, ...]
    current: int | None
    damaged: int

    def with_elf(self, row: NameRow) -> tuple[NameRow, ...]:
        """Return the other names that stand for the same bytes."""
        return self._sharing(row, "elf")

    def with_design(self, row: NameRow) -> tuple[NameRow, ...]:
        """Return the other names whose ELFs were built from the same design."""
        return self._sharing(row, "design")

    def _sharing(self, row: NameRow, field: str) -> tuple[NameRow, ...]:
        if row.entry is None:
            return ()
        digest = getattr(row.entry, field)
        return tuple(one for one in self.names if one.entry and one is not row and getattr(one.entry, field) == digest)

    def other_layouts(self, row: NameRow) -> tuple[NameRow, ...]:
        """Return the registered names of the same role, K, N and M in other layouts of the target."""
        return tuple(
            one
            for one in self.names
            if one is not row and one.entry and one.target == row.target and _same_gemm(one.name, row.name)
        )


def _same_gemm(one: ArtifactName | None, other: ArtifactName | None) -> bool:
    if one is None or other is None:
        return False
    return (one.role, one.K, one.N, one.m16) == (other.role, other.K, other.N, other.m16)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A model's sets, in one target."""

    model: str
    source: str
    sets: tuple[tuple[Asked, bool], ...]
    refused: str


def gather(project: Project) -> Catalogue:
    """Return what the catalogue shows. Raises `Refused` for a registry or toolchain.lock that cannot be read."""
    registry = load_registry(project.registry_file)
    default = read_lock(project.lock_file).target(None).name
    store = Store(project.store)
    asked = [_asked(project, model, default, registry.entries(default)) for model in all_models(project)]
    keys: dict[tuple[str, str], list[Asking]] = {
        (target, key): [] for target, entries in registry.targets.items() for key in entries
    }
    for one in asked:
        for found, own in one.sets:
            entries = registry.entries(found.target)
            for need in found.wanted.requirements:
                key = _served_key(entries, found.wanted, need)
                keys.setdefault((found.target, key), []).append(Asking(one.model, found.wanted.layout, need, own))
    designs = _design_texts(store, registry.targets)
    facts: dict[str, DesignFacts] = {}
    for target, entries in registry.targets.items():
        texts = {entry.design: designs[entry.design] for entry in entries.values() if entry.design in designs}
        facts |= design_facts(project, dict(sorted(texts.items())), target_named(target).lint_name)
    manifests = {entry.manifest for entries in registry.targets.values() for entry in entries.values()}
    said, said_fault = _said(store, manifests)
    rows = {
        (target, key): _row(
            store, target, key, registry.entries(target).get(key), tuple(keys[target, key]), facts, said, said_fault
        )
        for target, key in sorted(keys)
    }
    models = tuple(_model(project, one, rows, {t: registry.entries(t) for t, _ in keys}) for one in asked)
    names = tuple(rows.values())
    past = history(project)
    return Catalogue(
        default,
        names,
        models,
        tuple(_recipes(store, names)),
        designs,
        facts,
        tuple(_generations(project, past)),
        past.current,
        len(past.damaged),
    )


def _generations(project: Project, past: History) -> Iterable[GenerationPage]:
    """Return the last generations, the latest first, each against the one before it."""
    registries: dict[int, Registry | str] = {-1: Registry({})}
    shown = past.generations[-MOST_GENERATIONS - 1 :]
    for one in shown:
        try:
            registries[one.number] = registry_of(project, one)
        except ElfkilnError as error:
            registries[one.number] = str(error)
    oldest = len(past.generations) <= MOST_GENERATIONS
    pairs: list[tuple[Generation | None, Generation]] = [(None, shown[0])] if oldest and shown else []
    pages: list[GenerationPage] = []
    for before, one in [*pairs, *pairwise(shown)]:
        old, new = registries[before.number if before else -1], registries[one.number]
        number = before.number if before else None
        fault = next((side for side in (old, new) if isinstance(side, str)), "")
        if isinstance(old, Registry) and isinstance(new, Registry):
            made = GenerationPage(one, number, difference(old, new))
        else:
            made = GenerationPage(one, number, None, fault)
        pages.append(made)
    return reversed(pages)


def _asked(project: Project, model: str, target: str, entries: Mapping[str, Entry]) -> _Asked:
    """Return what a model asks for: in its own layout, and in each other of which a name is registered."""
    try:
        checked_model_name(model)
        own = asked_by_model(project, model, target=target)
    except ElfkilnError as error:
        return _Asked(model, "", (), str(error))
    sets = [(own, True)]
    for layout in LAYOUTS:
        if layout == own.wanted.layout:
            continue
        try:
            other = asked_by_model(project, model, target=target, layout=layout)
        except ElfkilnError:
            continue  # a plan has one layout, and not every geometry goes in every other
        if any(entry_of(entries, other.wanted, need) for need in other.wanted.requirements):
            sets.append((other, False))
    return _Asked(model, "plan.json" if own.plan else "roles.yaml", tuple(sets), "")


def _served_key(entries: Mapping[str, Entry], wanted: RequirementSet, need: Requirement) -> str:
    """Return the key whose entry serves a requirement: its own, or another model's of one sealed ELF."""
    key = registry_key(wanted, need)
    entry = entry_of(entries, wanted, need)
    if key in entries or entry is None:
        return key
    return next(name for name, one in sorted(entries.items()) if one is entry)


def _design_texts(store: Store, targets: Mapping[str, Mapping[str, Entry]]) -> dict[str, str]:
    """Return the text of every registered design that the store has whole."""
    texts = {}
    for digest in sorted({entry.design for entries in targets.values() for entry in entries.values()}):
        try:
            text = store.read(digest).decode(errors="replace")
        except ElfkilnError:
            continue
        if len(text) <= MAX_CHARACTERS:
            texts[digest] = text
    return texts


def _said(store: Store, manifests: Iterable[str]) -> tuple[Mapping[str, tuple[Attestation, ...]], str]:
    try:
        return attestations(store, sorted(manifests)), ""
    except ElfkilnError as error:
        return {}, str(error)


def _row(
    store: Store,
    target: str,
    key: str,
    entry: Entry | None,
    asked: tuple[Asking, ...],
    facts: Mapping[str, DesignFacts],
    said: Mapping[str, tuple[Attestation, ...]],
    said_fault: str,
) -> NameRow:
    if entry is None:
        return NameRow(target, key, None, asked, "not registered", "", None, (), "")
    missing = not store.path(entry.elf).exists()
    problem = store.problem(entry.elf)
    fault = entry_fault(store, target, key, entry) or ("" if missing else problem) or ""
    state = HERE if problem is None else "not in this store" if missing else "damaged"
    return NameRow(
        target, key, entry, asked, state, fault, facts.get(entry.design), said.get(entry.manifest, ()), said_fault
    )


def _model(
    project: Project,
    asked: _Asked,
    rows: Mapping[tuple[str, str], NameRow],
    targets: Mapping[str, Mapping[str, Entry]],
) -> ModelPage:
    sets = []
    for one, own in asked.sets:
        wanted, entries = one.wanted, targets.get(one.target, {})
        pairs = tuple((need, rows[one.target, _served_key(entries, wanted, need)]) for need in wanted.requirements)
        found = ((need.path, registered_problem(need, row.entry)) for need, row in pairs)
        problems = {path: text for path, text in found if text}
        whole = all(row.entry is not None for _, row in pairs) and not problems
        digest = set_digest((need.path, row.entry.elf) for need, row in pairs if row.entry) if whole and pairs else None
        passes, refused = _passes(project, one, pairs)
        sets.append(LayoutSet(one.target, wanted.layout, own, pairs, problems, digest, passes, refused))
    return ModelPage(asked.model, asked.source, tuple(sets), asked.refused)


def _passes(
    project: Project, asked: Asked, pairs: tuple[tuple[Requirement, NameRow], ...]
) -> tuple[tuple[Pass, ...], str]:
    """Return the predicted passes of a set whose designs are all known, else why there are none."""
    unknown = sum(not row.facts or not row.facts.predictions for _, row in pairs)
    if unknown:
        return (), f"{unknown} of {len(pairs)} designs are not in this store, or cannot be followed"
    names = [NamePrediction(row.key, need, row.facts.predictions) for need, row in pairs if row.facts]
    try:
        report = token_report(project, asked)
        return tuple(passes_of(tuple(names), report.vocabulary * report.hidden, report.experts)), ""
    except ElfkilnError as error:
        return (), str(error)


def _recipes(store: Store, names: tuple[NameRow, ...]) -> Iterable[RecipePage]:
    by_recipe: dict[str, list[NameRow]] = {}
    for row in names:
        if row.entry is not None:
            by_recipe.setdefault(row.entry.recipe, []).append(row)
    records = read_records(store, by_recipe)
    for digest, rows in sorted(by_recipe.items()):
        table = recipe_table(store, digest)
        inputs = sorted({one for step in table["steps"] for one in step["inputs"].values()}) if table else []
        sizes = {one: path.stat().st_size for one in inputs if (path := store.path(one)).is_file()}
        yield RecipePage(
            digest,
            rows[0].target,
            table,
            records[digest].log,
            records[digest].generator,
            sizes,
            tuple(rows),
        )

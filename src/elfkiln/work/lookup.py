"""Looks artifacts up: which bytes stand behind a model's names, or behind every registered name that fits a pattern."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Differs, did_you_mean
from elfkiln.models.requirement import RequirementSet
from elfkiln.models.set_digest import set_digest
from elfkiln.project import Project
from elfkiln.store.agreement import entry_fault
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, load_registry, shape_of
from elfkiln.work.asked import Asked
from elfkiln.work.jobs import entry_of, registry_key, served_problem


@dataclass(frozen=True, slots=True)
class Found:
    """One name and what the registry says of it.

    `entry` is None when it is not registered; `problem` says why what is registered is not what is asked for. `near`
    proposes a registered name in place of one that is not.
    """

    target: str
    path: str
    key: str
    entry: Entry | None
    problem: str | None = None
    near: str = ""

    @property
    def unregistered(self) -> str:
        """The words for a name that is not registered."""
        return f"not registered for target {self.target}{self.near}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; digests as `sha256:<hex>`, null where there are none."""
        entry = self.entry
        return {
            "target": self.target,
            "path": self.path,
            "name": self.key,
            "elf": f"sha256:{entry.elf}" if entry else None,
            "size": entry.size if entry else None,
            "recipe": f"sha256:{entry.recipe}" if entry else None,
            "design": f"sha256:{entry.design}" if entry else None,
            "columns": entry.columns if entry else None,
            "problem": self.problem,
        }

    def line(self) -> str:
        """Return the line for a person: path, digest, size, recipe."""
        if self.entry is None:
            return f"{self.path}  {self.unregistered}"
        line = f"{self.path}  sha256:{self.entry.elf}  {self.entry.size}  recipe sha256:{self.entry.recipe}"
        return f"{line}  not what is asked for: {self.problem}" if self.problem else line


def lookup_set(
    project: Project, target: str, wanted: RequirementSet, entries: Mapping[str, Entry] | None = None
) -> tuple[Found, ...]:
    """Return one row per name of the set, in its order; `entries` is the registry's part where it is read already."""
    if entries is None:
        entries = load_registry(project.registry_file).entries(target)
    store = Store(project.store)
    found = ((need, registry_key(wanted, need), entry_of(entries, wanted, need)) for need in wanted.requirements)
    return tuple(
        Found(target, need.path, key, entry, served_problem(store, target, key, need, entry))
        for need, key, entry in found
    )


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What stands behind the names one plan or model asks for: a row per name, and one digest for the whole set.

    `set_digest` (see `elfkiln.models.set_digest`) is None while a name is not there as it is asked for.
    """

    asked: Asked
    rows: tuple[Found, ...]
    set_digest: str | None

    @property
    def layers(self) -> list[dict[str, Any]]:
        """One row per layer, role and file, in the order of the layers; a sealed ELF stands for no single layer."""
        needs = self.asked.wanted.requirements
        table: list[tuple[int, dict[str, Any]]] = []
        for need, row in zip(needs, self.rows, strict=True):
            shared = row.to_json()
            for use in need.layers:
                order = use.layer if use.layer is not None else len(needs) * 1000
                role = need.name.role if need.name else None
                table.append((order, {"use": str(use), "layer": use.layer, "role": role} | shared))
        return [entry for _, entry in sorted(table, key=lambda pair: pair[0])]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        wanted = self.asked.wanted
        names = [
            row.to_json() | {"directory": need.directory, "uses": [str(use) for use in need.layers]}
            for row, need in zip(self.rows, wanted.requirements, strict=True)
        ]
        return {
            "model": wanted.model,
            "layout": wanted.layout,
            "target": self.asked.target,
            "set_digest": f"sha256:{self.set_digest}" if self.set_digest else None,
            "names": names,
            "layers": self.layers,
        }

    def text(self) -> str:
        """Return the lines for a person: a row per layer, and the set's digest."""
        target = self.asked.target
        lines = []
        for layer in self.layers:
            digest = layer["elf"] or f"not registered for target {target}"
            size, recipe = layer["size"] or "-", layer["recipe"] or "-"
            lines.append(f"{layer['use']}  {layer['path']}  {digest}  {size}  recipe {recipe}")
        whole = self.set_digest
        none = f"set digest: none, not every name is registered for {target}"
        return "\n".join([*lines, f"set digest sha256:{whole}" if whole else none])


def lookup(project: Project, asked: Asked, entries: Mapping[str, Entry] | None = None) -> LookedUp:
    """Return what the registry has for everything a plan or model asks for; `entries` as for `lookup_set`."""
    rows = lookup_set(project, asked.target, asked.wanted, entries)
    pairs = [(row.path, row.entry.elf) for row in rows if row.entry is not None and row.problem is None]
    return LookedUp(asked, rows, set_digest(pairs) if len(pairs) == len(rows) else None)


def lookup_glob(project: Project, target: str, pattern: str) -> tuple[Found, ...]:
    """Return every registered name of a target that fits a shell pattern (`*`, `?`, `[...]`), sorted.

    A name without any of these signs is looked up as it is. Raises `Differs` when no name fits a pattern, and
    `Refused` for a name that is not an artifact name.
    """
    entries = load_registry(project.registry_file).entries(target)
    if not any(letter in pattern for letter in "*?["):
        shape_of(pattern)
        near = "" if pattern in entries else did_you_mean(pattern, entries, cutoff=0.9)
        return (replace(_found(project, target, pattern, entries.get(pattern)), near=near),)
    keys = [key for key in sorted(entries) if fnmatch.fnmatchcase(key, pattern)]
    if not keys:
        raise Differs(f"lookup {pattern}: none of {len(entries)} names registered for target {target} fits")
    return tuple(_found(project, target, key, entries[key]) for key in keys)


def _found(project: Project, target: str, key: str, entry: Entry | None) -> Found:
    fault = None if entry is None else entry_fault(Store(project.store), target, key, entry)
    return Found(target, key, key, entry, fault)


def lookup_exit_code(rows: tuple[Found, ...]) -> int:
    """Return 1 when a name is not registered, or is not what is asked for, else 0."""
    return EXIT_DONE if all(row.entry and not row.problem for row in rows) else EXIT_DIFFERS

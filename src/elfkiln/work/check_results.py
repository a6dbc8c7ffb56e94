"""Results of checks, kept as attestations on the ELFs they are about: verify, predict, runs on the device.

A result says what was tried, with which inputs (their seed) and what came of it, and no time: the same check with the
same outcome is one statement. Only registered names whose artifact is in the store have any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import recipe_ref
from elfkiln.store.attestations import attest_all, result_predicate, statement
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.statement_types import TEST_RESULT
from elfkiln.work.jobs import entry_of, registry_key

Configuration = list[Mapping[str, Any]]


@dataclass(slots=True)
class Outcome:
    """What a check says of one ELF."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether nothing was tried."""
        return not (self.passed or self.failed or self.warned)

    def add(self, what: str, *, passed: bool) -> None:
        """Count one test, each once; one that failed is not one that passed."""
        other, own = (self.failed, self.passed) if passed else (self.passed, self.failed)
        if not passed and what in other:
            other.remove(what)
        if what not in own and not (passed and what in other):
            own.append(what)


def attest_results(
    project: Project,
    target: str,
    outcomes: Mapping[str, Outcome],
    configuration: Configuration,
    entries: Iterable[Entry],
) -> int:
    """Store what a check says of ELFs, by their sha256, on every artifact among `entries` with that ELF.

    Returns how many statements there are of it now. ELFs that are in nobody's entry are passed over.
    """
    store = Store(project.store)
    made = 0
    for entry in {one.manifest: one for one in entries}.values():
        outcome = outcomes.get(entry.elf)
        if outcome is None or outcome.empty or not store.holds(entry.manifest):
            continue
        setting: Configuration = [{"name": "target", "annotations": {"target": target}}, *configuration]
        predicate = result_predicate(outcome.passed, outcome.failed, outcome.warned, setting)
        attest_all(store, entry.manifest, [statement(recipe_ref(entry.recipe), entry.elf, TEST_RESULT, predicate)])
        made += 1
    return made


def attest_by_name(
    project: Project,
    target: str,
    wanted: RequirementSet,
    results: Iterable[tuple[tuple[str, ...], str, bool]],
    configuration: Configuration,
) -> int:
    """Store results that are said of file names, as `attest_results` does: (names, what was tried, whether it passed).

    A name may have words behind it (a sealed ELF's geometry), which then belong to what was tried.
    """
    registered = load_registry(project.registry_file).entries(target)
    entries: dict[str, Entry] = {}
    for need in wanted.requirements:
        entry = entry_of(registered, wanted, need)
        if entry is not None:
            entries[need.file_name] = entries[registry_key(wanted, need)] = entry
    outcomes: dict[str, Outcome] = {}
    for names, what, passed in results:
        for name in names:
            file_name, _, rest = name.partition(" ")
            found = entries.get(file_name)
            if found is not None:
                outcomes.setdefault(found.elf, Outcome()).add(f"{rest}: {what}" if rest else what, passed=passed)
    return attest_results(project, target, outcomes, configuration, entries.values())

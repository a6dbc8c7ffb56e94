"""The gate on designs: predicted times against a committed baseline; a slower template shows without an NPU.

A baseline is JSON, `{"schema": "elfkiln-predicted/1", "designs": {NAME: {"seconds", "binds"}}}`; NAME is the artifact
name, with `#<sequence>` for a sealed ELF's. It holds predictions of this project's model, no measurement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Refused, refusal
from elfkiln.io.files import write_atomic
from elfkiln.io.strict_json import read_strict_json
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.targets.table import builder_for
from elfkiln.work.check_results import Configuration, Outcome, attest_results
from elfkiln.work.jobs import plan_jobs
from elfkiln.work.predict_token import ModelPrediction

SCHEMA = "elfkiln-predicted/1"
MAX_BYTES = 16 << 20
TOLERANCE = 0.02
"""A predicted time may rise by this part before the gate fails."""


@dataclass(frozen=True, slots=True)
class Change:
    """How one design differs from the baseline; `bad` when the gate fails on it."""

    name: str
    text: str
    bad: bool


def predicted_table(models: tuple[ModelPrediction, ...]) -> dict[str, dict[str, Any]]:
    """Return the baseline's `designs` of some models: name to predicted seconds and binding resource."""
    table = {}
    for model in models:
        for one in model.names:
            for sequence in one.sequences:
                name = one.key if len(one.sequences) == 1 else f"{one.key}#{sequence.sequence}"
                table[name] = {"seconds": float(f"{sequence.seconds:.4g}"), "binds": sequence.binds}
    return dict(sorted(table.items()))


def write_baseline(path: Path, table: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a baseline; what it held under other names stays. Raises `Refused` when it cannot be read or written."""
    kept = read_baseline(path) if path.exists() else {}
    value = {"schema": SCHEMA, "designs": dict(sorted({**kept, **table}.items()))}
    write_atomic(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def read_baseline(path: Path) -> dict[str, dict[str, Any]]:
    """Return a baseline's designs; raises `Refused` naming the file and field for one that is not a baseline."""
    value = read_strict_json(path, limit=MAX_BYTES)
    if not isinstance(value, dict) or value.get("schema") != SCHEMA or not isinstance(value.get("designs"), dict):
        raise Refused(f"{path}: expected a baseline ({SCHEMA} with designs); write one with --write-baseline")
    for name, row in value["designs"].items():
        sound = isinstance(row, dict) and isinstance(row.get("seconds"), float) and row["seconds"] > 0
        if not sound or not isinstance(row.get("binds"), str):
            raise refusal(f"{path}: designs.{name}", expected="seconds above 0 and binds", found=json.dumps(row)[:80])
    return dict(value["designs"])


def compare_baseline(
    baseline: Mapping[str, Mapping[str, Any]], table: Mapping[str, Mapping[str, Any]]
) -> tuple[Change, ...]:
    """Return what differs, in the order of names: slower by more than 2 %, bound by something else, or not in it.

    A design that got faster is named and fails nothing; names only the baseline has are not looked at.
    """
    changes = []
    for name, row in table.items():
        old = baseline.get(name)
        if old is None:
            changes.append(Change(name, "is not in the baseline; write it with --write-baseline", True))
            continue
        ratio = row["seconds"] / old["seconds"]
        times = f"predicted {old['seconds'] * 1e3:.3f} -> {row['seconds'] * 1e3:.3f} ms ({ratio - 1:+.1%})"
        if row["binds"] != old["binds"]:
            changes.append(Change(name, f"bound by {old['binds']}, now by {row['binds']}; {times}", True))
        elif abs(ratio - 1) > TOLERANCE:
            changes.append(Change(name, times, ratio > 1))
    return tuple(changes)


def attest_predictions(
    project: Project, target: str, found: Iterable[ModelPrediction], changes: Iterable[Change], baseline: str
) -> int:
    """Keep what the gate says of registered ELFs as attestations; `baseline` is the sha256 of the file.

    A prediction is of the design that is rendered now, so only names registered from that design get one. Returns how
    many have it.
    """
    bad = {change.name: change.text for change in changes if change.bad}
    builder = builder_for(project, target)
    registered = load_registry(project.registry_file).entries(target)
    made = 0
    for model in found:
        needs = RequirementSet(model.model, model.layout, tuple(one.requirement for one in model.names))
        jobs, _ = plan_jobs(project, builder, [needs])
        recipes = {key: job.recipe.digest for job in jobs if job.recipe is not None for key, _ in job.wanted}
        outcomes: dict[str, Outcome] = {}
        entries = []
        for one in model.names:
            entry = registered.get(one.key)
            if entry is None or recipes.get(one.key) != entry.recipe:
                continue
            entries.append(entry)
            outcome = outcomes.setdefault(entry.elf, Outcome())
            for sequence in one.sequences:
                name = one.key if len(one.sequences) == 1 else f"{one.key}#{sequence.sequence}"
                what = "predicted time against the baseline"
                outcome.add(f"{what}: {bad[name]}" if name in bad else what, passed=name not in bad)
        configuration: Configuration = [{"name": "elfkiln predict baseline", "digest": {"sha256": baseline}}]
        made += attest_results(project, target, outcomes, configuration, entries)
    return made

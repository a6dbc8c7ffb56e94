"""Works out what `elfkiln check-missing` looks at, and keeps it for the fast path."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import checked_model_name
from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import ElfkilnError, Refused
from elfkiln.io.files import write_atomic
from elfkiln.io.workspace import sweep_files
from elfkiln.models.plan.search import walk_candidates
from elfkiln.models.role_table import ROLES_FILE
from elfkiln.project import Project
from elfkiln.store.blobs import INDEX_FILES, Store
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.answers import answer_bytes, answer_name, inputs_of
from elfkiln.work.asked import Asked, asked_by_model
from elfkiln.work.diagnose import sealed_fault
from elfkiln.work.fast_check import NO_DIGEST, Row, Wanted
from elfkiln.work.jobs import entry_of, registry_key, served_problem

MODEL_FILES = (PLAN_FILE, ROLES_FILE, contract.DECISION_FILE)
_TRIES = 6


def wanted_by_models(
    project: Project, models: Sequence[str], target: str | None, layout: str | None, *, strict: bool = True
) -> list[Wanted]:
    """Work out what models ask for and keep it for the fast path; refusals of single models are kept too.

    Where others write the models' files or the registry meanwhile, it is worked out again; if they never stop, the
    answer is that of one state of the registry, and is not kept. Raises `Refused` for a name no model can have, an
    unknown target, and a registry that cannot be read.
    """
    for model in models:
        checked_model_name(model)
    chosen = read_lock(project.lock_file).target(target).name
    found: list[Wanted] = []
    for attempt in range(_TRIES):
        now = time.time_ns()
        before = _inputs(project, models, now)
        entries = load_registry(project.registry_file).entries(chosen)
        found = []
        for model in models:
            try:
                found.append(_model_rows(project, model, chosen, layout, entries, strict=strict))
            except ElfkilnError as error:
                found.append(Wanted(model, chosen, layout or "", [], " ".join(str(error).split())))
        if _inputs(project, models, now) == before:
            if strict:
                sweep_files(project.index / "check")
                shared, own = before
                for wanted, lines in zip(found, own, strict=True):
                    _keep(project, wanted, answer_name("check", wanted.model, target, layout), [*shared, *lines])
            break
        if any(wanted.refused for wanted in found):
            # What could not be read may have been half-written.
            time.sleep(0.02 * 2**attempt)
    return found


def wanted_by_plan(project: Project, asked: Asked, kernels: Path | None = None) -> Wanted:
    """Return the rows of a plan that was named on the command line; nothing of it is kept."""
    return _rows(project, asked, load_registry(project.registry_file).entries(asked.target), kernels)


def _inputs(project: Project, models: Sequence[str], now_ns: int) -> tuple[list[str], list[list[str]]]:
    """Return the lines of the inputs that all models share, and of each model's own."""
    root = str(project.root)

    def below(path: Path) -> str:
        return os.path.relpath(path, root)

    # The store's index changes with its manifests, against which entries are held.
    names = (project.store / name for name in INDEX_FILES)
    files = [below(path) for path in (project.registry_file, project.lock_file, *names)]
    shared = inputs_of(root, files, ["."], now_ns)
    own = [
        inputs_of(root, [below(project.plans / model / name) for name in MODEL_FILES], (), now_ns) for model in models
    ]
    return shared, own


def _keep(project: Project, wanted: Wanted, name: str | None, inputs: list[str]) -> None:
    there = any(os.path.lexists(project.plans / wanted.model / file) for file in MODEL_FILES[:2])
    if name is not None and there:
        # The file only saves time: where it cannot be written, the answer comes without it.
        with contextlib.suppress(Refused):
            write_atomic(project.index / name, answer_bytes(inputs, wanted.lines()))


def _model_rows(
    project: Project, model: str, target: str, layout: str | None, entries: Mapping[str, Entry], *, strict: bool
) -> Wanted:
    asked = asked_by_model(project, model, target=target, layout=layout, strict=strict)
    asked.require_target()
    return _rows(project, asked, entries, None)


def _rows(project: Project, asked: Asked, entries: Mapping[str, Entry], kernels: Path | None) -> Wanted:
    """Return one row per name; the places are relative to a model folder, or lie below `kernels` where it is given."""
    store = Store(project.store)
    directory = None if kernels is None else kernels.absolute()
    rows = []
    for candidates in walk_candidates(asked.plan, asked.wanted, Path(), directory):
        need = candidates.requirement
        entry = entry_of(entries, asked.wanted, need)
        key = registry_key(asked.wanted, need)
        problem = served_problem(store, asked.target, key, need, entry)
        examined = True
        if need.name is None and entry is not None and problem is None:
            examined = store.holds(entry.elf)
            problem = sealed_fault(asked.target, store.path(entry.elf), need.sealed) if examined else None
        rows.append(
            Row(
                key,
                entry.elf if entry else NO_DIGEST,
                str(entry.size if entry else 0),
                problem or "",
                ",".join(f"{K}x{N}" for K, N in need.sealed),
                "yes" if examined else "no",
                need.path,
                *map(str, candidates.paths),
            )
        )
    return Wanted(asked.wanted.model, asked.target, asked.wanted.layout, rows, None, asked.words)

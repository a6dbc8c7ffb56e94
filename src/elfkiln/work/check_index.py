"""Works out what `elfkiln check-missing` looks at, and keeps it for the fast path."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import checked_model_name
from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import ElfkilnError, Refused
from elfkiln.io.files import write_atomic
from elfkiln.models.plan.search import walk_candidates
from elfkiln.models.role_table import ROLES_FILE
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.answers import answer_bytes, answer_name, inputs_of
from elfkiln.work.asked import Asked, asked_by_model
from elfkiln.work.diagnose import sealed_fault
from elfkiln.work.fast_check import NO_DIGEST, Row, Wanted
from elfkiln.work.jobs import entry_of, registered_problem, registry_key

MODEL_FILES = (PLAN_FILE, ROLES_FILE, contract.DECISION_FILE)
_TRIES = 6


def wanted_by_model(
    project: Project, model: str, target: str | None, layout: str | None, *, strict: bool = True
) -> Wanted:
    """Work out what a model asks for and keep it for the fast path; a refusal is kept too.

    Where others write the model's files or the registry meanwhile, it is worked out again; if they never stop, the
    answer is that of one state of the registry, and is not kept.
    """
    checked_model_name(model)
    chosen = read_lock(project.lock_file).target(target).name
    root = str(project.root)
    files = [os.path.relpath(path, root) for path in _files_of(project, model)]
    for attempt in range(_TRIES):
        now = time.time_ns()
        before = inputs_of(root, files, ["."], now)
        failure = None
        try:
            wanted = _model_rows(project, model, target, layout, strict=strict)
        except ElfkilnError as error:
            failure = error
            wanted = Wanted(model, chosen, layout or "", [], " ".join(str(error).split()))
        if inputs_of(root, files, ["."], now) == before:
            name = answer_name("check", model, target, layout)
            # The file only saves time: where it cannot be written, the answer comes without it.
            there = any(os.path.lexists(project.plans / model / file) for file in MODEL_FILES[:2])
            if strict and name is not None and there:
                with contextlib.suppress(Refused):
                    write_atomic(project.index / name, answer_bytes(before, wanted.lines()))
            return wanted
        if failure is not None:
            # What could not be read may have been half-written.
            time.sleep(0.02 * 2**attempt)
    if failure is not None:
        raise failure
    return wanted


def wanted_by_plan(project: Project, asked: Asked, kernels: Path | None = None) -> Wanted:
    """Return the rows of a plan that was named on the command line; nothing of it is kept."""
    return _rows(project, asked, kernels)


def _files_of(project: Project, model: str) -> tuple[Path, ...]:
    folder = project.plans / model
    return (project.registry_file, project.lock_file, *(folder / name for name in MODEL_FILES))


def _model_rows(project: Project, model: str, target: str | None, layout: str | None, *, strict: bool) -> Wanted:
    asked = asked_by_model(project, model, target=target, layout=layout, strict=strict)
    asked.require_target()
    return _rows(project, asked, None)


def _rows(project: Project, asked: Asked, kernels: Path | None) -> Wanted:
    """Return one row per name; the places are relative to a model folder, or lie below `kernels` where it is given."""
    store = Store(project.store)
    entries = load_registry(project.registry_file).entries(asked.target)
    directory = None if kernels is None else kernels.absolute()
    rows = []
    for candidates in walk_candidates(asked.plan, asked.wanted, Path(), directory):
        need = candidates.requirement
        entry = entry_of(entries, asked.wanted, need)
        problem = registered_problem(need, entry)
        examined = True
        if need.name is None and entry is not None and problem is None:
            examined = store.holds(entry.elf)
            problem = sealed_fault(asked.target, store.path(entry.elf), need.sealed) if examined else None
        rows.append(
            Row(
                registry_key(asked.wanted, need),
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

"""Writes the flat index that `elfkiln check-missing` reads on its fast path."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError, Refused
from elfkiln.io.files import write_atomic
from elfkiln.models.catalogue import model_plan, model_requirements
from elfkiln.models.plan.load import require_target
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.models.role_table import ROLES_FILE
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.table import check_elf, target_named
from elfkiln.work import fast_check
from elfkiln.work.jobs import entry_of, registered_problem, registry_key


def current_index(project: Project, model: str) -> fast_check.Index:
    """Return the model's index, written anew if it was not current; raises what the model's tables are refused for."""
    index = fast_check.read_index(str(project.root), model)
    if index is None:
        text = index_text(project, model)
        # The file only saves time: where it cannot be written, the answer comes without it.
        with contextlib.suppress(Refused):
            write_atomic(project.out / "index" / f"{model}.txt", text.encode())
        index = fast_check.parse_index(str(project.root), text)
        if index is None:
            raise Refused(f"model={model}: its files change while they are read; run again when nobody writes them")
    return index


def index_text(project: Project, model: str) -> str:
    """Return the index of a model, from its plan or role table, registry.yaml and toolchain.lock."""
    own = model_requirements(project, model)
    lock = read_lock(project.lock_file)
    sources = (
        project.registry_file,
        project.lock_file,
        *(project.plans / model / name for name in (contract.PLAN_FILE, ROLES_FILE, contract.DECISION_FILE)),
    )
    lines = [fast_check.HEADER]
    lines += [f"source\t{os.path.relpath(p, project.root)}\t{fast_check.digest_of(str(p))}" for p in sources]
    package = Path(__file__).parents[1]
    lines += [_stamp(path) for path in sorted(package.rglob("*.py"))]
    lines.append(f"default\t{lock.default_target}\t{own.layout}")
    lines += _unserved(project, model, sorted(lock.targets))
    registry = load_registry(project.registry_file)
    for layout in contract.LAYOUTS:
        try:
            wanted = own if layout == own.layout else model_requirements(project, model, layout)
        except ElfkilnError as error:
            lines.append(f"refused\t{layout}\t{' '.join(str(error).split())}")
            continue
        for target in sorted(lock.targets):
            lines += _rows(Store(project.store), target, wanted, registry.entries(target))
    return "\n".join([*lines, "end", ""])


def _unserved(project: Project, model: str, targets: list[str]) -> list[str]:
    """Say which targets cannot serve the model's plan (an int8 cache, today), and why."""
    plan = model_plan(project, model)
    lines: list[str] = []
    if plan is None:
        return lines
    for target in targets:
        try:
            require_target(plan, target_named(target).capabilities)
        except Refused as error:
            lines.append(f"unserved\t{target}\t{error}")
    return lines


def _sealed_fault(store: Store, target: str, need: Requirement, entry: Entry | None) -> str | None:
    """Return what a stored sealed ELF's own metadata says against the geometries asked for, if it is stored."""
    if need.name is not None or entry is None or not store.holds(entry.elf):
        return None
    try:
        check_elf(target, store.path(entry.elf), None, need.sealed)
    except ElfkilnError as error:
        return " ".join(str(error).split())
    return None


def _rows(store: Store, target: str, wanted: RequirementSet, entries: Mapping[str, Entry]) -> list[str]:
    rows = []
    for need in wanted.requirements:
        key = registry_key(wanted, need)
        entry = entry_of(entries, wanted, need)
        digest, size = (entry.elf, entry.size) if entry else ("-", 0)
        problem = registered_problem(need, entry) or _sealed_fault(store, target, need, entry) or ""
        fields = (target, wanted.layout, need.directory, need.file_name, key, digest, str(size), problem)
        rows.append("\t".join(("row", *fields)))
    return rows


def _stamp(path: Path) -> str:
    state = path.stat()
    return f"stamp\t{path.relative_to(Path(__file__).parents[1])}\t{state.st_size}\t{state.st_mtime_ns}"

"""What keeps an artifact in the store: registry.yaml, now and as it was, plans, toolchain.lock, and running builds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from elfkiln.errors import ElfkilnError
from elfkiln.io.checked import is_sha256
from elfkiln.io.locking import free_lock
from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.project import Project
from elfkiln.store.closure import Node, foreign, reached
from elfkiln.store.registry import Registry
from elfkiln.store.toolchain_lock import Lock, read_lock
from elfkiln.targets.table import TARGETS, builder_for
from elfkiln.work.jobs import plan_jobs

_RECIPE_LOCK = re.compile(r"([0-9a-f]{64})\.lock", re.ASCII)


def kept(
    project: Project, nodes: Mapping[str, Node], registries: Iterable[Registry], young: Container[str] = ()
) -> set[str]:
    """Return the digests of everything that is kept, whether the store has it or not.

    That is whatever some registries name, what toolchain.lock pins and the mirrors of its targets, the artifacts
    whose recipes the plans come to or a running build is at, manifests of other tools and `young` ones, and all that
    these lead to. Raises `Refused` for a toolchain.lock that cannot be read.
    """
    lock = read_lock(project.lock_file)
    roots = {digest for pin in lock.targets.values() for digest in _pinned(pin.table)}
    for registry in registries:
        for entries in registry.targets.values():
            roots.update(digest for entry in entries.values() for digest in entry.digests)
    pins = {pin.digest for pin in lock.targets.values()}
    at_work = recipes_in_work(project)
    for node in nodes.values():
        pinned, built = node.is_toolchain and node.config in pins, node.is_artifact and node.config in at_work
        if foreign(node) or pinned or built or node.digest in young:
            roots.add(node.digest)
    found = reached(nodes, roots)
    doubtful = [node for node in nodes.values() if node.is_artifact and node.digest not in found]
    if doubtful:
        # Rendering every plan's generators takes a second for ten models: only where it may change the answer.
        planned = recipes_of_plans(project, lock)
        found |= reached(nodes, (node.digest for node in doubtful if node.config in planned))
    return found


def recipes_of_plans(project: Project, lock: Lock) -> set[str]:
    """Return the recipes that the models below plans/ come to, as far as they are remembered; nothing is run.

    What is not remembered is not there to be kept: whoever asks for it builds it. A model or target that is refused
    has no recipes.
    """
    sets = []
    for model in all_models(project):
        with contextlib.suppress(ElfkilnError):
            sets.append(model_requirements(project, model))
    found: set[str] = set()
    for target in lock.targets:
        if target in TARGETS:
            try:
                jobs, _ = plan_jobs(project, builder_for(project, target), sets)
            except ElfkilnError:
                continue
            found.update(job.recipe.digest for job in jobs if job.recipe is not None)
    return found


def recipes_in_work(project: Project) -> set[str]:
    """Return the recipes whose builds run now: their locks are held."""
    found = set()
    try:
        paths = sorted(project.locks.iterdir())
    except OSError:
        return set()
    for path in paths:
        match = _RECIPE_LOCK.fullmatch(path.name)
        if match is not None:
            with free_lock(path) as free:
                if not free:
                    found.add(match[1])
    return found


def _pinned(value: Any) -> Iterator[str]:
    """Yield every sha256 that stands in a section of the lock: wheels, tools."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _pinned(one)
    elif isinstance(value, list):
        for one in value:
            yield from _pinned(one)
    elif is_sha256(value):
        yield value

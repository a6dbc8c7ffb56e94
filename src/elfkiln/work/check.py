"""check-missing: is every ELF that a model or plan asks for there, and are its bytes the registered ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elfkiln.errors import Refused
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.answers import Proof
from elfkiln.work.asked import Asked
from elfkiln.work.check_index import wanted_by_models, wanted_by_plan
from elfkiln.work.fast_check import Wanted, find_gaps, read_wanted
from elfkiln.work.gaps import CheckReport


def check_models(
    project: Project,
    models: Iterable[str],
    *,
    target: str | None = None,
    layout: str | None = None,
    folder: Path | None = None,
    strict: bool = True,
) -> CheckReport:
    """Return what is missing of models below plans/, in the store, or in a model folder as the engine would walk it.

    A model that cannot be asked for (its plan is refused, say) has its reason in the report, and the others are
    checked all the same. Raises `Refused` for an unknown target. `strict` is that of `load_plan`.
    """
    chosen = read_lock(project.lock_file).target(target).name
    proof = Proof(str(project.root))

    names = list(models)
    kept = {name: read_wanted(proof, name, target, layout) if strict else None for name in names}
    rest = [name for name, wanted in kept.items() if wanted is None]
    if rest:
        kept |= dict(zip(rest, wanted_by_models(project, rest, target, layout, strict=strict), strict=True))
    report = _gaps(project, [wanted for name in names if (wanted := kept[name]) is not None], chosen, folder)
    if report is None:
        # A blob came that was not there when the answers were worked out.
        report = _gaps(project, wanted_by_models(project, names, target, layout, strict=strict), chosen, folder)
    if report is None:
        raise Refused("check-missing: the store changes while it is read; run again when nobody writes it")
    return report


def check_plan(project: Project, asked: Asked, folder: Path | None = None, kernels: Path | None = None) -> CheckReport:
    """Return what the engine would miss of a plan's names, walking its directories on disk as the engine does.

    The walk starts in `folder` (default: the plan's own); `kernels` is the engine's --kernels directory.
    """
    start = folder or asked.folder or project.plans / asked.wanted.model
    report = _gaps(project, [wanted_by_plan(project, asked, kernels)], asked.target, start)
    assert report is not None  # only a look into the store finds a blob that was never examined
    return report


def _gaps(project: Project, sets: list[Wanted], target: str, folder: Path | None) -> CheckReport | None:
    return find_gaps(sets, target, str(Store(project.store).blobs), None if folder is None else str(folder))

"""Where the engine looks for what is asked of it, and which of several files it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.models.plan.schema import Plan
from elfkiln.models.requirement import Requirement, RequirementSet


@dataclass(frozen=True, slots=True)
class Candidates:
    """An artifact and the files the engine would try for it, in order."""

    requirement: Requirement
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What the engine opens of some candidates: `opened` is None when none exists; `shadowed` exist but come later.

    `empty` are files of no bytes: the engine's probe (fopen, at least one byte) passes over them.
    """

    opened: Path | None
    shadowed: tuple[Path, ...]
    empty: tuple[Path, ...]


def walk_candidates(
    plan: Plan | None, wanted: RequirementSet, model_dir: Path, kernels_dir: Path | None = None
) -> list[Candidates]:
    """Return the paths the engine tries for a requirement set: by its plan, or by its probes where there is none.

    `kernels_dir` is the engine's --kernels directory (default: `kernels` in the model folder); the M=128 set is looked
    up there alone. Twins are searched through decode.dirs in order; the sealed ELF in the model folder (a guess, see
    `contract.SEALED_DIRECTORY`). Paths are composed, never looked at.
    """
    if plan is None:
        return walk_without_plan(wanted, model_dir, kernels_dir)
    kernels = kernels_dir or model_dir / contract.PREFILL_DIRECTORY
    roots = {"model": model_dir, "kernels": kernels}
    twin_dirs = [roots[entry.root] / entry.path for entry in plan.decode.dirs]
    return _candidates(wanted.requirements, model_dir, kernels, twin_dirs)


def walk_without_plan(
    requirements: RequirementSet, model_dir: Path, kernels_dir: Path | None = None
) -> list[Candidates]:
    """Return the paths the engine tries for a model without a plan.

    The M=128 set is looked up in the --kernels directory (default: `kernels` in the model folder), twins there and
    then in `kernels-m16` of the model folder (b8 layout pull request: the loader also searches both).
    """
    kernels = kernels_dir or model_dir / contract.PREFILL_DIRECTORY
    own = [model_dir / contract.PREFILL_DIRECTORY, model_dir / contract.DECODE_DIRECTORY]
    return _candidates(requirements.requirements, model_dir, kernels, [kernels, *own])


def choose(paths: Iterable[Path], size_of: Callable[[Path], int | None]) -> Choice:
    """Return what the engine opens: the first path with at least one byte; later ones are shadowed.

    `size_of` gives the bytes of a file, or None when there is none. The engine looks no further than that: a stub of
    one byte shadows a sound file in a later directory.

    >>> sizes = {Path("a/x.elf"): 0, Path("b/x.elf"): 59, Path("c/x.elf"): 4096}
    >>> choice = choose(sizes, sizes.get)
    >>> str(choice.opened), [str(path) for path in choice.shadowed], [str(path) for path in choice.empty]
    ('b/x.elf', ['c/x.elf'], ['a/x.elf'])
    """
    sizes = [(path, size_of(path)) for path in paths]
    there = [path for path, size in sizes if size]
    empty = tuple(path for path, size in sizes if size == 0)
    return Choice(there[0] if there else None, tuple(there[1:]), empty)


def _candidates(
    requirements: Iterable[Requirement], model_dir: Path, kernels: Path, twin_dirs: Iterable[Path]
) -> list[Candidates]:
    twin_dirs = tuple(twin_dirs)
    found = []
    for requirement in requirements:
        if requirement.name is None:
            folders: tuple[Path, ...] = (model_dir / contract.SEALED_DIRECTORY,)
        else:
            folders = twin_dirs if requirement.name.m16 else (kernels,)
        paths = dict.fromkeys(folder / requirement.file_name for folder in folders)
        found.append(Candidates(requirement, tuple(paths)))
    return found

"""One recipe made or found: from a job to an artifact of the store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from elfkiln.errors import BuildFailed, Differs
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.locking import locked
from elfkiln.io.workspace import build_parent, private_folder
from elfkiln.project import Project
from elfkiln.store.artifacts import Artifact, Made, find_artifact, put_artifact
from elfkiln.store.blobs import Store
from elfkiln.store.provenance import lint_result, provenance
from elfkiln.store.recipe import Recipe, differing_inputs
from elfkiln.store.registry import Entry
from elfkiln.targets.target import Builder, Inputs, RemoteCounts, Say, silent
from elfkiln.work.jobs import Job
from elfkiln.work.mirrors import OpenMirrors
from elfkiln.work.origin import origin_of
from elfkiln.work.recipes import Memo


@dataclass(frozen=True, slots=True)
class Obtained:
    """An artifact of the store, and whether it was built for the asking, or fetched from a mirror.

    `remote` is what came of a remote where one was used.
    """

    artifact: Artifact
    built: bool
    fetched: bool = False
    remote: RemoteCounts | None = None


def obtain(
    project: Project,
    builder: Builder,
    job: Job,
    *,
    rebuild: bool = False,
    registered: Mapping[str, Entry] = MappingProxyType({}),
    say: Say = silent,
    mirrors: OpenMirrors | None = None,
) -> Obtained:
    """Return the job's artifact: the stored one if its bytes verify, else a fresh one, stored but not registered.

    What a mirror has is not built.

    The ELF is made in a private folder, from sources that are read once, and checked against every name before it
    enters the store; so is its digest, where `registered` has the recipe. A lock per recipe lets one process build
    while others wait for it, and says so. Who names what is returned holds `Store.in_use` until then.
    Raises what the build raises.
    """
    store = Store(project.store)
    memo = Memo(project, builder)
    with ExitStack() as stack:
        folder: Path | None = None
        inputs: Inputs | None = None
        recipe = job.recipe
        if recipe is None:
            folder = stack.enter_context(private_folder(build_parent(project.work)))
            inputs = memo.tell(job.generator, folder, say)
            recipe = inputs.recipe
        stack.enter_context(locked(project.locks / f"{recipe.digest}.lock", f"the build of {job.title}"))
        if not rebuild:
            with store.in_use():
                known = find_artifact(store, recipe.digest)
                if known is not None:
                    refuse_drift(job, known.recipe, known.elf, registered)
                    check_names(builder, job, store.path(known.elf))
                    return Obtained(known, built=False)
                if mirrors is not None:
                    fetched = _substitute(project, builder, job, recipe.digest, registered, mirrors)
                    if fetched is not None:
                        return Obtained(fetched, built=False, fetched=True)
        if folder is None or inputs is None:
            folder = stack.enter_context(private_folder(build_parent(project.work)))
            inputs = memo.tell(job.generator, folder, say)
            _refuse_change(recipe, inputs.recipe)
        result = builder.compile(inputs, folder, say)
        if not result.elf.is_file():
            raise BuildFailed(f"{job.title}: the toolchain ended well but wrote no ELF; see the build log")
        say("check")
        data = result.elf.read_bytes()
        check_names(builder, job, result.elf)
        refuse_drift(job, recipe.digest, sha256_hex(data), registered)
        made = Made(
            recipe,
            inputs.steps,
            data,
            inputs.design,
            job.generator.text,
            result.log,
            job.columns,
            job.shape,
            job.sealed,
        )
        origin = origin_of(project, builder.pin, job.generator)

        def said(artifact: Artifact) -> list[bytes]:
            where_from = provenance(artifact, made.recipe.table, origin)
            return [where_from, lint_result(artifact, builder.pin.name, result.log)]

        say("store")
        with store.in_use():
            return Obtained(put_artifact(store, made, said), built=True, remote=result.remote)


def entries_of(job: Job, artifact: Artifact) -> dict[str, Entry]:
    """Return the registry's entry of every name of a job, which an artifact shall stand for."""
    return {
        key: Entry(
            artifact.elf,
            artifact.size,
            artifact.recipe,
            artifact.manifest,
            artifact.design,
            requirement.columns,
            tuple(sorted(requirement.sealed)),
        )
        for key, requirement in job.wanted
    }


def _substitute(
    project: Project,
    builder: Builder,
    job: Job,
    recipe: str,
    registered: Mapping[str, Entry],
    mirrors: OpenMirrors,
) -> Artifact | None:
    """Return the artifact of a recipe from a mirror, checked as a fresh build is; `Differs` where one must be had."""

    def entries(artifact: Artifact) -> dict[str, Entry]:
        refuse_drift(job, artifact.recipe, artifact.elf, registered)
        return entries_of(job, artifact)

    def check(store: Store, artifact: Artifact) -> None:
        check_names(builder, job, store.path(artifact.elf))

    found = mirrors.fetch(project, builder.pin.name, recipe, entries, check)
    if found is None and mirrors.mirrors.must_hit:
        raise Differs(mirrors.why_not(recipe))
    return found


def _refuse_change(before: Recipe, now: Recipe) -> None:
    """Raise `Differs` when a source was edited between the plan of a build and its turn."""
    if before.digest != now.digest:
        name = differing_inputs(before.table, now.table)[0][0]
        raise Differs(f"{name.rpartition(': ')[2]} changed during the build; run again")


def refuse_drift(job: Job, recipe: str, elf: str, registered: Mapping[str, Entry]) -> None:
    """Raise `Differs` when the registry has this very recipe with other bytes: the build is not reproducible."""
    for key, _ in job.wanted:
        entry = registered.get(key)
        if entry is not None and entry.recipe == recipe and entry.elf != elf:
            raise Differs(
                f"same recipe, other bytes: expected sha256:{entry.elf} (registry.yaml), found sha256:{elf}; "
                f"the toolchain or the machine is not the one that was registered"
            )


def check_names(builder: Builder, job: Job, elf: Path) -> None:
    """Read an ELF and compare it with every name it shall bear; raises `Differs` as the target's validator does."""
    opened = builder.open(elf)
    for name, sealed in dict.fromkeys((need.name, need.sealed) for _, need in job.wanted):
        opened.check(name, sealed)

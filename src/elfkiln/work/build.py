"""Builds the ELFs of models: one job per recipe, up to date iff the store has the recipe's verified bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elfkiln.errors import EXIT_DONE, EXIT_REFUSED, BuildFailed, Differs, ElfkilnError, brief
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import refuse_other_kinds, space_refusal, storage_refusal
from elfkiln.io.locking import locked
from elfkiln.io.workspace import build_parent, private_folder, sweep
from elfkiln.models.catalogue import every_requirement
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.agreement import require_agreement
from elfkiln.store.artifacts import Artifact, Made, find_artifact, put_artifact, recipe_ref
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import Recipe, differing_inputs
from elfkiln.store.registry import Entry, load_registry, register
from elfkiln.targets.target import Builder, Inputs, Say, headline_of, silent
from elfkiln.work.fast_elfs import nothing_to_do
from elfkiln.work.generations import changing
from elfkiln.work.jobs import Failure, Job, plan_jobs, registry_key
from elfkiln.work.mirrors import Mirrors, OpenMirrors
from elfkiln.work.progress import Progress
from elfkiln.work.recipes import Memo


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build came to: names and recipes asked for, and the keys by what happened to them.

    `registered` were stored already and are registered now, under a new name or again; `fetched` came from a mirror.
    """

    target: str
    toolchain: str
    names: int
    recipes: int
    built: tuple[str, ...]
    registered: tuple[str, ...]
    up_to_date: tuple[str, ...]
    failures: tuple[Failure, ...]
    fetched: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 when every name is there; else the highest code among the failures."""
        return max((failure.exit_code for failure in self.failures), default=EXIT_DONE)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON value."""
        return {
            "target": self.target,
            "toolchain": self.toolchain,
            "names": self.names,
            "recipes": self.recipes,
            "built": list(self.built),
            "fetched": list(self.fetched),
            "registered": list(self.registered),
            "up_to_date": list(self.up_to_date),
            "failed": [{"name": failure.key, "reason": failure.reason} for failure in self.failures],
        }

    def summary(self) -> str:
        """Return the closing line."""
        if not (self.failures or self.built or self.registered or self.fetched):
            return nothing_to_do(self.names, self.recipes)
        head = f"{self.names} names, {self.recipes} recipes"
        counts = [f"{len(self.built)} built and registered"]
        if self.fetched:
            counts.append(f"{len(self.fetched)} fetched from mirrors and registered")
        if self.registered:
            counts.append(f"{len(self.registered)} registered from the store")
        counts.append(f"{len(self.up_to_date)} up to date")
        if self.failures:
            counts.append(f"{len(self.failures)} failed")
        return f"{head}: {', '.join(counts)}"


def build_elfs(
    project: Project,
    builder: Builder,
    sets: Iterable[RequirementSet],
    *,
    jobs: int | None = None,
    rebuild: bool = False,
    progress: Progress | None = None,
    mirrors: Mirrors | None = None,
) -> BuildReport:
    """Build, check and register every ELF that the requirement sets ask for.

    `jobs` recipes are built at once (default: the number of processors). `rebuild` builds also what is up to date,
    so that its digest is compared with the registered one. What a mirror has is fetched and not built (but for
    `rebuild`). A failure stops nobody else. Raises nothing for a failed
    recipe: the report lists it.
    """
    show = progress or Progress.silent()
    show.headline(headline_of(builder))
    registered = load_registry(project.registry_file).entries(builder.pin.name)
    todo, refused = plan_jobs(project, builder, sets)
    names = sum(len(job.wanted) for job in todo) + len(refused)
    store = Store(project.store)
    opened = mirrors.opened() if mirrors is not None and mirrors.addresses and not rebuild else None
    run = _Run(project, builder, store, rebuild, show, registered, store.refs(), opened)
    todo, conflicts = _without_conflicts(project, todo, registered)
    for failure in (*refused, *conflicts):
        show.failed(failure.key, failure.reason)
        run.failures.append(failure)
    try:
        if todo:
            sweep(project.work)
            with changing(project, f"elfs target={builder.pin.name}"):
                run.all(todo, jobs or os.cpu_count() or 1)
    finally:
        show.stop()
    report = BuildReport(
        builder.pin.name,
        builder.pin.digest,
        names,
        len(todo),
        tuple(sorted(run.built)),
        tuple(sorted(run.admitted)),
        tuple(sorted(run.up_to_date)),
        tuple(sorted(run.failures, key=lambda failure: failure.key)),
        tuple(sorted(run.fetched)),
    )
    show.close(report.summary(), [(failure.key, failure.reason) for failure in report.failures])
    return report


def _without_conflicts(
    project: Project, todo: tuple[Job, ...], registered: Mapping[str, Entry]
) -> tuple[tuple[Job, ...], tuple[Failure, ...]]:
    """Take out names that another model asks for with other array columns: one name cannot stand for both."""
    columns: dict[str, int] = {}
    for job in todo:
        for key, need in job.wanted:
            entry = registered.get(key)
            if columns.setdefault(key, need.columns) != need.columns or (entry and entry.columns != need.columns):
                columns[key] = 0
    doubtful = {key for key, count in columns.items() if count == 0}
    if not doubtful:
        return todo, ()
    asked = _columns_asked(project, doubtful)
    failures = [
        Failure(key, f"models ask for this name with other columns ({', '.join(sorted(asked[key]))})", EXIT_REFUSED)
        for key in sorted(doubtful)
        if len({who.rpartition(" ")[2] for who in asked[key]}) > 1
    ]
    taken = {failure.key for failure in failures}
    kept = (replace(job, wanted=tuple(pair for pair in job.wanted if pair[0] not in taken)) for job in todo)
    return tuple(job for job in kept if job.wanted), tuple(failures)


def _columns_asked(project: Project, keys: set[str]) -> dict[str, set[str]]:
    """Return for each key who asks for it, as `<model>: <columns>`, over all models below plans/."""
    asked: dict[str, set[str]] = {key: set() for key in keys}
    for wanted, need in every_requirement(project):
        if (key := registry_key(wanted, need)) in asked:
            asked[key].add(f"{wanted.model}: {need.columns}")
    return asked


@dataclass(slots=True)
class _Run:
    """One call of `build_elfs` while it works; its lists are appended to from worker threads."""

    project: Project
    builder: Builder
    store: Store
    rebuild: bool
    progress: Progress
    registered: Mapping[str, Entry]
    refs: Container[str]
    mirrors: OpenMirrors | None = None
    built: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    up_to_date: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def all(self, todo: tuple[Job, ...], jobs: int) -> None:
        """Build what is not there, some recipes at once; the store and registry.yaml decide what is."""
        self.progress.start(len(todo))
        # All are looked up before the first is built: what builds nothing needs no compiler, and a compiler that is
        # not the locked one is refused once, before anything is built.
        rest = [job for job in todo if not self.known(job)]
        if not rest:
            return
        # A path that no tool can take is refused once, like a wrong compiler, and like a place for names that is none.
        refuse_other_kinds(self.project.registry_file)
        sweep(build_parent(self.project.work))
        self.builder.prepare()
        with ThreadPoolExecutor(min(jobs, len(rest))) as pool:
            try:
                list(pool.map(self.make, rest))
            except BaseException:
                # Whatever ends the wait (an interrupt) ends what has not begun; what runs is waited for.
                pool.shutdown(cancel_futures=True)
                raise
        self._tell_the_unfinished(todo)

    def _tell_the_unfinished(self, todo: tuple[Job, ...]) -> None:
        """Whatever ended the run early: a name without an outcome is a failure, never a silent success."""
        told = {
            *self.built,
            *self.fetched,
            *self.admitted,
            *self.up_to_date,
            *(failure.key for failure in self.failures),
        }
        for job in todo:
            if any(key not in told for key, _ in job.wanted):
                self._fail(job, BuildFailed("not built: the run ended before its turn; run again"))

    def known(self, job: Job) -> bool:
        """Whether the job's recipe is known and registered under every name, or at least stored, and all bytes verify.

        What is stored but not registered (a build killed in between, another model's names) is registered now.
        """
        if self.rebuild or job.recipe is None:
            return False
        try:
            entries = self._registered(job, job.recipe.digest)
            if entries:
                self.up_to_date += [key for key, _ in job.wanted]
                ref = recipe_ref(job.recipe.digest)
                if ref not in self.refs:
                    self.store.name_manifest(ref, entries[0].manifest)
            elif not self._admitted(job, job.recipe.digest):
                return False
        except ElfkilnError as error:
            self._fail(job, error)
            return True
        self.progress.done(job.title, built=False)
        return True

    def _admitted(self, job: Job, recipe: str) -> bool:
        """Register the job's names for the stored artifact of its recipe, if there is a whole one."""
        with self.store.in_use():
            artifact = find_artifact(self.store, recipe)
            if artifact is None:
                return False
            refuse_drift(job, artifact.recipe, artifact.elf, self.registered)
            check_names(self.builder, job, self.store.path(artifact.elf))
            self._admit(job, artifact)
        return True

    def _registered(self, job: Job, recipe: str) -> list[Entry]:
        """Return the entries of the job's names if all are of this recipe and every byte of theirs verifies.

        Raises `Differs` for an entry of this recipe that contradicts its manifest.
        """
        entries = []
        for key, _ in job.wanted:
            entry = self.registered.get(key)
            if entry is not None and entry.recipe == recipe:
                require_agreement(self.store, self.builder.pin.name, key, entry)
                entries.append(entry)
        digests = {digest for e in entries for digest in (e.elf, e.manifest, e.design, e.recipe)}
        return entries if len(entries) == len(job.wanted) and all(map(self.store.holds, digests)) else []

    def make(self, job: Job) -> bool:
        """Build one recipe and register its names; returns True always, failures are in the report."""
        try:
            self.progress.begin(job.title)
            found = obtain(
                self.project,
                self.builder,
                job,
                rebuild=self.rebuild,
                registered=self.registered,
                mirrors=self.mirrors,
                accept=partial(self._accept, job),
            )
            self.progress.done(job.title, built=found.built, notes=job.generator.notes if found.built else ())
        except ElfkilnError as error:
            self._fail(job, space_refusal(self.project.out) or error)
        except OSError as error:
            self._fail(job, storage_refusal(Path(error.filename or self.project.out), error))
        except Exception as error:
            # Ours to mend, but it must not pass for a build that went well: the pool would keep it to itself.
            self._fail(job, BuildFailed(f"internal error: {type(error).__name__}: {brief(error)}"))
        return True

    def _accept(self, job: Job, found: Obtained) -> None:
        """Register what was obtained, unless all its names are."""
        if found.fetched:
            self._register(job, found.artifact)
            self.fetched += [key for key, _ in job.wanted]
        elif found.built:
            self._register(job, found.artifact)
            self.built += [key for key, _ in job.wanted]
        elif self._registered(job, found.artifact.recipe):
            self.up_to_date += [key for key, _ in job.wanted]
        else:
            self._admit(job, found.artifact)

    def _admit(self, job: Job, artifact: Artifact) -> None:
        """Register an artifact that the store had already."""
        self._register(job, artifact)
        self.admitted += [key for key, _ in job.wanted]

    def _register(self, job: Job, artifact: Artifact) -> None:
        register(self.project.registry_file, self.builder.pin.name, _entries(job, artifact))

    def _fail(self, job: Job, error: ElfkilnError) -> None:
        self.failures += [Failure(key, str(error), error.exit_code) for key, _ in job.wanted]
        self.progress.failed(job.title, str(error))


def _entries(job: Job, artifact: Artifact) -> dict[str, Entry]:
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


@dataclass(frozen=True, slots=True)
class Obtained:
    """An artifact of the store, and whether it was built for the asking, or fetched from a mirror."""

    artifact: Artifact
    built: bool
    fetched: bool = False


def obtain(
    project: Project,
    builder: Builder,
    job: Job,
    *,
    rebuild: bool = False,
    registered: Mapping[str, Entry] = MappingProxyType({}),
    say: Say = silent,
    mirrors: OpenMirrors | None = None,
    accept: Callable[[Obtained], None] | None = None,
) -> Obtained:
    """Return the job's artifact: the stored one if its bytes verify, else a fresh one, stored but not registered.

    What a mirror has is not built.

    The ELF is made in a private folder, from sources that are read once, and checked against every name before it
    enters the store; so is its digest, where `registered` has the recipe. A lock per recipe lets one process build
    while others wait for it. `accept` is called with the artifact before anybody may remove it from the store again:
    who names it, names it there. Raises what the build raises.
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
                    return _accepted(Obtained(known, built=False), accept)
                if mirrors is not None:
                    fetched = _substitute(project, builder, job, recipe.digest, registered, mirrors)
                    if fetched is not None:
                        return _accepted(Obtained(fetched, built=False, fetched=True), accept)
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
        with store.in_use():
            return _accepted(Obtained(put_artifact(store, made), built=True), accept)


def _accepted(found: Obtained, accept: Callable[[Obtained], None] | None) -> Obtained:
    if accept is not None:
        accept(found)
    return found


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
        return _entries(job, artifact)

    def check(store: Store, artifact: Artifact) -> None:
        check_names(builder, job, store.path(artifact.elf))

    found = mirrors.fetch(project, builder.pin.name, recipe, entries, check)
    if found is None and mirrors.mirrors.must_hit:
        raise Differs(mirrors.why_not(recipe))
    return found


def _refuse_change(told: Recipe, now: Recipe) -> None:
    """Raise `Differs` when a source was edited between the plan of a build and its turn."""
    if told.digest != now.digest:
        name = differing_inputs(told.table, now.table)[0][0]
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

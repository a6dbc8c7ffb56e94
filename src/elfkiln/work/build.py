"""Builds the ELFs of models: one job per recipe, up to date iff the store has the recipe's verified bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Generator, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, EXIT_REFUSED, ElfkilnError
from elfkiln.io.files import refuse_other_kinds
from elfkiln.io.sandbox import say_what_is_not_forbidden
from elfkiln.io.terminal import tell
from elfkiln.io.workspace import build_parent, sweep
from elfkiln.models.catalogue import every_requirement
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.agreement import require_agreement
from elfkiln.store.artifacts import Artifact, find_artifact, recipe_ref
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, load_registry, register
from elfkiln.targets.target import Builder, RemoteCounts, SharedParts, headline_of
from elfkiln.work.build_log import forget_failed, keep_failed
from elfkiln.work.fast_elfs import nothing_to_do
from elfkiln.work.generations import changing
from elfkiln.work.jobs import Failure, Job, plan_jobs, registry_key
from elfkiln.work.leftovers import sweep_project
from elfkiln.work.mirrors import Mirrors
from elfkiln.work.obtain import Obtained, check_names, entries_of, refuse_drift
from elfkiln.work.pool import Pool
from elfkiln.work.progress import Progress
from elfkiln.work.worker import Ahead, Failed, Means, Message, Note, Phase, Task, do_here

_WRITE_SECONDS = 0.5
"""How long what is built may wait for being registered with others: registry.yaml is written as a whole."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build came to: names and recipes asked for, and the keys by what happened to them.

    `registered` were stored already and are registered now, under a new name or again; `fetched` came from a mirror.
    `remote` counts what came of the builder's remote, if it has one.
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
    remote: RemoteCounts = field(default_factory=RemoteCounts)

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


@dataclass(frozen=True, slots=True)
class Options:
    """How a build is to be run; see `build_elfs`."""

    jobs: int | None = None
    rebuild: bool = False
    fail_fast: bool = False
    mirrors: Mirrors | None = None


def build_elfs(
    project: Project,
    builder: Builder,
    sets: Iterable[RequirementSet],
    *,
    jobs: int | None = None,
    rebuild: bool = False,
    fail_fast: bool = False,
    progress: Progress | None = None,
    mirrors: Mirrors | None = None,
) -> BuildReport:
    """Build, check and register every ELF that the requirement sets ask for.

    `jobs` recipes are built at once (default: the number of processors), each in a process of its own. `rebuild` builds
    also what is up to date, so that its digest is compared with the registered one. What a mirror has is fetched and
    not built (but for `rebuild`). A failure stops nobody else, unless
    `fail_fast` says so: then what runs is ended. Raises nothing for a failed recipe: the report lists it.
    """
    show = progress or Progress.silent()
    show.headline(headline_of(builder))
    registered = load_registry(project.registry_file).entries(builder.pin.name)
    with ExitStack() as stack:
        pools: list[Pool] = []

        def start_pool() -> None:
            if builder.own_processes:
                pools.append(stack.enter_context(Pool()))

        # The processes that build import while the rest of the work is planned.
        todo, refused = plan_jobs(project, builder, sets, start_pool)
        names = sum(len(job.wanted) for job in todo) + len(refused)
        store = Store(project.store)
        if mirrors is not None and (rebuild or not mirrors.addresses):
            mirrors = None
        if mirrors is not None:
            mirrors.opened()  # an address that is none is refused before anything is built
        options = Options(jobs, rebuild=rebuild, fail_fast=fail_fast, mirrors=mirrors)
        pool = pools[0] if pools else None
        run = _Run(project, builder, store, options, show, registered, store.refs(), pool)
        todo, conflicts = _without_conflicts(project, todo, registered)
        for failure in (*refused, *conflicts):
            show.failed(failure.key, failure.reason)
            run.failures.append(failure)
        try:
            if todo:
                sweep_project(project)
                with changing(project, f"elfs target={builder.pin.name}"):
                    run.all(todo)
        finally:
            show.stop()
    report = BuildReport(
        builder.pin.name,
        builder.pin.digest,
        names,
        len({run.recipes.get(job.title, job.recipe.digest if job.recipe else job.title) for job in todo}),
        tuple(sorted(run.built)),
        tuple(sorted(run.admitted)),
        tuple(sorted(run.up_to_date)),
        tuple(sorted(run.failures, key=lambda failure: failure.key)),
        tuple(sorted(run.fetched)),
        run.remote,
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
    """One call of `build_elfs` while it works."""

    project: Project
    builder: Builder
    store: Store
    options: Options
    progress: Progress
    registered: Mapping[str, Entry]
    refs: Container[str]
    pool: Pool | None = None
    built: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    up_to_date: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    recipes: dict[str, str] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)
    remote: RemoteCounts = field(default_factory=RemoteCounts)
    _waiting: list[tuple[Job, Obtained]] = field(default_factory=list)
    _written: float = 0.0

    @property
    def means(self) -> Means:
        """What every task is done with."""
        return Means(self.project, self.builder, self.options.mirrors)

    def all(self, todo: tuple[Job, ...]) -> None:
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
        with ExitStack() as stack:
            pool = self.pool
            if pool is None and self.builder.own_processes:
                pool = stack.enter_context(Pool())
            say_what_is_not_forbidden()
            # The processes import while the bytes of the tools are hashed.
            self.builder.prepare()
            if pool is not None:
                pool.take(self.means, min(self.options.jobs or os.cpu_count() or 1, len(rest)))
            # Nobody removes what workers store before it has its name in registry.yaml.
            stack.enter_context(self.store.in_use())
            try:
                self._work(rest, pool)
            finally:
                self._write_down()
                self.store.settle()
        self._tell_the_unfinished(todo)

    def _work(self, rest: list[Job], pool: Pool | None) -> None:
        """Take what workers say of their tasks until all are done, or until one failed if that shall end it."""
        tasks = [Task(job, self._entries(job), self.options.rebuild) for job in rest]
        if pool is None:
            messages: Generator[tuple[int, Message] | None] = do_here(self.means, tasks)
        else:
            messages = pool.run(tasks, self._ahead(rest))
        with closing(messages):
            for message in messages:
                if message is None:
                    self._write_down(soon=True)
                    continue
                job = rest[message[0]]
                match message[1]:
                    case Phase(name):
                        self.progress.phase(job.title, name)
                    case Note(text):
                        # Several processes may come upon the same.
                        if text not in self.said:
                            self.said.add(text)
                            tell(text)
                    case Failed(reason, code, log):
                        self._write_down()  # lines stand in the order in which things ended
                        self._fail(job, reason, code)
                        for key, _ in job.wanted:
                            keep_failed(self.project, self.builder.pin.name, key, reason, log)
                        if self.options.fail_fast:
                            return
                    case Obtained() as found:
                        self._take(job, found)

    def _ahead(self, rest: list[Job]) -> list[Ahead]:
        """Return what can be made before the first recipe asks: for the first builds of a store and no later ones.

        A recipe whose artifact is in the store, or comes from a mirror, needs no part; it is known when its turn comes.
        """
        keys = [key for job in rest for key in self._entries(job)]
        found = self.options.mirrors is not None or any(
            self.store.path(self.registered[key].elf).exists() for key in keys
        )
        if found or not isinstance(self.builder, SharedParts):
            return []
        return [Ahead(part) for part in self.builder.shared_parts(job.generator for job in rest)]

    def _entries(self, job: Job) -> dict[str, Entry]:
        return {key: entry for key, _ in job.wanted if (entry := self.registered.get(key)) is not None}

    def _tell_the_unfinished(self, todo: tuple[Job, ...]) -> None:
        """Whatever ended the run early: a name without an outcome is a failure, never a silent success."""
        done = (self.built, self.fetched, self.admitted, self.up_to_date, [one.key for one in self.failures])
        ended = {key for keys in done for key in keys}
        reason = "stopped at the first failure" if self.options.fail_fast else "the run ended before its turn"
        for job in todo:
            if any(key not in ended for key, _ in job.wanted):
                self._fail(job, f"not built: {reason}; run again", EXIT_DIFFERS)

    def known(self, job: Job) -> bool:
        """Whether the job's recipe is known and registered under every name, or at least stored, and all bytes verify.

        What is stored but not registered (a build killed in between, another model's names) is registered now.
        """
        if self.options.rebuild or job.recipe is None:
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
            self._fail(job, str(error), error.exit_code)
            return True
        self._forget_failed(job)
        self.progress.done(job.title, built=False)
        return True

    def _forget_failed(self, job: Job) -> None:
        for key, _ in job.wanted:
            forget_failed(self.project, self.builder.pin.name, key)

    def _admitted(self, job: Job, recipe: str) -> bool:
        """Register the job's names for the stored artifact of its recipe, if there is a whole one."""
        with self.store.in_use():
            artifact = find_artifact(self.store, recipe)
            if artifact is None:
                return False
            refuse_drift(job, artifact.recipe, artifact.elf, self.registered)
            check_names(self.builder, job, self.store.path(artifact.elf))
            self._register([(job, artifact)])
            self.admitted += [key for key, _ in job.wanted]
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
        digests = {digest for entry in entries for digest in entry.digests}
        return entries if len(entries) == len(job.wanted) and all(map(self.store.holds, digests)) else []

    def _take(self, job: Job, found: Obtained) -> None:
        """Count what a worker made or found; new entries wait until several are written down at once."""
        self._forget_failed(job)
        self.recipes[job.title] = found.artifact.recipe
        self.remote += found.remote or RemoteCounts()
        try:
            if not (found.built or found.fetched) and self._registered(job, found.artifact.recipe):
                self.up_to_date += [key for key, _ in job.wanted]
                self.progress.done(job.title, built=False)
                return
        except ElfkilnError as error:
            self._fail(job, str(error), error.exit_code)
            return
        self._waiting.append((job, found))
        self._write_down(soon=True)

    def _write_down(self, *, soon: bool = False) -> None:
        """Register what waits for it; `soon`: unless that was done a moment ago."""
        now = time.monotonic()
        if not self._waiting or (soon and now < self._written + _WRITE_SECONDS):
            return
        self._written = now
        waiting, self._waiting = self._waiting, []
        try:
            self._register([(job, found.artifact) for job, found in waiting])
            refused: dict[int, ElfkilnError] = {}
        except ElfkilnError:
            refused = self._register_each(waiting)
        for number, (job, found) in enumerate(waiting):
            if number in refused:
                self._fail(job, str(refused[number]), refused[number].exit_code)
                continue
            into = self.built if found.built else self.fetched if found.fetched else self.admitted
            into.extend(key for key, _ in job.wanted)
            self.progress.done(job.title, built=found.built, notes=job.generator.notes if found.built else ())

    def _register_each(self, waiting: list[tuple[Job, Obtained]]) -> dict[int, ElfkilnError]:
        """Register one by one, so that the one that clashes is known from the others."""
        refused = {}
        for number, (job, found) in enumerate(waiting):
            try:
                self._register([(job, found.artifact)])
            except ElfkilnError as error:
                refused[number] = error
        return refused

    def _register(self, made: list[tuple[Job, Artifact]]) -> None:
        entries = {key: entry for job, artifact in made for key, entry in entries_of(job, artifact).items()}
        register(self.project.registry_file, self.builder.pin.name, entries)

    def _fail(self, job: Job, reason: str, exit_code: int) -> None:
        self.failures += [Failure(key, reason, exit_code) for key, _ in job.wanted]
        self.progress.failed(job.title, reason)

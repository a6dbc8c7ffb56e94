"""From requirements to jobs: each requirement rendered, names of one generator or recipe put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError
from elfkiln.families.family import DesignRequest, RenderedGenerator, render, render_sealed
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.agreement import entry_fault
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import Recipe
from elfkiln.store.registry import Entry
from elfkiln.targets.target import Builder
from elfkiln.work.recipes import Memo, package_digest


@dataclass(frozen=True, slots=True)
class Job:
    """One generator to build from and every (registry key, requirement) it serves.

    `recipe` is None as long as nobody knows it: then the generator has to be run first.
    """

    recipe: Recipe | None
    generator: RenderedGenerator
    wanted: tuple[tuple[str, Requirement], ...]

    @property
    def title(self) -> str:
        """The keys on one line, for progress and messages."""
        return ", ".join(key for key, _ in self.wanted)

    @property
    def columns(self) -> int:
        """The array columns of its ELF."""
        return self.wanted[0][1].columns

    @property
    def shape(self) -> str:
        """What all its names share; empty for a sealed ELF, whose name says nothing."""
        name = self.wanted[0][1].name
        return "" if name is None else name.shape

    @property
    def sealed(self) -> tuple[tuple[int, int], ...]:
        """The geometries (K, N) of a sealed ELF; empty for any other."""
        return tuple(sorted(self.wanted[0][1].sealed))


@dataclass(frozen=True, slots=True)
class Failure:
    """A registry key that did not come to an artifact, why, and the exit code it asks for."""

    key: str
    reason: str
    exit_code: int


def registry_key(requirements: RequirementSet, requirement: Requirement) -> str:
    """Return the registry's key: the file name, or `<model>/<file>` for a sealed ELF."""
    return requirement.file_name if requirement.name else f"{requirements.model}/{requirement.file_name}"


def entry_of(entries: Mapping[str, Entry], requirements: RequirementSet, requirement: Requirement) -> Entry | None:
    """Return what the registry has for a requirement, None when it has nothing.

    A sealed ELF is the same under every model name: where its own key is not registered, one of the same file name and
    the same geometries serves (a model folder that was copied or renamed asks for those bytes).
    """
    own = entries.get(registry_key(requirements, requirement))
    if own is not None or requirement.name is not None:
        return own
    for key in sorted(entries):
        if key.endswith(f"/{requirement.file_name}") and set(entries[key].sealed) == set(requirement.sealed):
            return entries[key]
    return None


def registered_problem(need: Requirement, entry: Entry | None) -> str | None:
    """Return why a registered artifact is not the one asked for: a sealed ELF of other geometries, other columns.

    None when it is, or when nothing is registered.
    """
    if entry is None:
        return None
    if entry.columns != need.columns:
        return (
            f"expected {need.columns} columns, registered with {entry.columns}; doit elfs builds it anew, or names the "
            f"other model that asks for it"
        )
    if set(entry.sealed) == set(need.sealed):
        return None
    asked, held = (_geometries(one) for one in (need.sealed, entry.sealed))
    return f"the plan asks for {asked}, the registered ELF holds {held}; build it again"


def _geometries(pairs: tuple[tuple[int, int], ...]) -> str:
    return " ".join(f"{K}x{N}" for K, N in sorted(pairs)) or "no sealed geometry"


def served_problem(store: Store, target: str, key: str, need: Requirement, entry: Entry | None) -> str | None:
    """Return why a registered artifact does not serve: it is not the one asked for, or not what its manifest says."""
    problem = registered_problem(need, entry)
    return entry_fault(store, target, key, entry) if problem is None and entry is not None else problem


def generator_of(project: Project, requirements: RequirementSet, requirement: Requirement) -> RenderedGenerator:
    """Render the generator of one requirement; `Refused` when its geometry is not legal or its tag has no family."""
    name = requirement.name
    if name is None:
        return render_sealed(project.root, _tag_of(requirements), requirement.sealed, requirement.columns)
    request = DesignRequest(name.K, name.N, name.M, name.tag, requirement.columns, requirement.rows)
    return render(project.root, request)


def _tag_of(requirements: RequirementSet) -> str:
    """Return the tag of a set's names (two tags share the layout t2s); the layout's first where it has no names."""
    tags = (need.name.tag for need in requirements.requirements if need.name is not None)
    return next(tags, contract.tag_of_layout(requirements.layout))


def _nothing() -> None:
    """Do nothing."""


def plan_jobs(
    project: Project, builder: Builder, sets: Iterable[RequirementSet], missed: Callable[[], None] = _nothing
) -> tuple[tuple[Job, ...], tuple[Failure, ...]]:
    """Return the jobs for all requirements, names of one recipe together, and those that are refused before a build.

    Nothing is run: recipes are those that are remembered, and the jobs of others have none. At the first of those
    `missed` is called, once: something is going to be built.
    """
    memo, package = Memo(project, builder), package_digest()
    found: dict[object, tuple[Recipe | None, RenderedGenerator]] = {}
    wanted: dict[object, dict[str, Requirement]] = {}
    failures: list[Failure] = []
    for requirements in sets:
        for requirement in requirements.requirements:
            key = registry_key(requirements, requirement)
            try:
                generator = generator_of(project, requirements, requirement)
                recipe = memo.find(generator, package)
            except ElfkilnError as error:
                failures.append(Failure(key, str(error), error.exit_code))
                continue
            if recipe is None:
                missed()
                missed = _nothing
            # Names of one recipe have one shape: another number of columns is another design.
            of = (recipe.digest if recipe else identity(generator), requirement.columns)
            found.setdefault(of, (recipe, generator))
            wanted.setdefault(of, {}).setdefault(key, requirement)
    jobs = (Job(*found[of], tuple(sorted(keys.items()))) for of, keys in wanted.items())
    return tuple(jobs), tuple(failures)


def identity(generator: RenderedGenerator) -> str:
    """Return a digest of a generator's text and the microkernel objects it names."""
    kernels = [[kernel.object_name, kernel.source, dict(kernel.defines)] for kernel in generator.kernels]
    return sha256_hex(canonical_json([generator.text, kernels]))

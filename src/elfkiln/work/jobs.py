"""From requirements to jobs: each requirement rendered, its recipe made, names of one recipe put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError
from elfkiln.families.family import DesignRequest, RenderedGenerator, render, render_sealed
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.recipe import Recipe, make_recipe
from elfkiln.store.registry import Entry
from elfkiln.targets.target import Builder


@dataclass(frozen=True, slots=True)
class Job:
    """One recipe to build and every (registry key, requirement) it serves."""

    recipe: Recipe
    generator: RenderedGenerator
    wanted: tuple[tuple[str, Requirement], ...]

    @property
    def title(self) -> str:
        """The keys on one line, for progress and messages."""
        return ", ".join(key for key, _ in self.wanted)


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


def plan_jobs(
    project: Project, builder: Builder, sets: Iterable[RequirementSet]
) -> tuple[tuple[Job, ...], tuple[Failure, ...]]:
    """Return the jobs for all requirements, names of one recipe together, and those that are refused before a build."""
    recipes: dict[str, tuple[Recipe, RenderedGenerator]] = {}
    wanted: dict[str, dict[str, Requirement]] = {}
    failures: list[Failure] = []
    for requirements in sets:
        for requirement in requirements.requirements:
            key = registry_key(requirements, requirement)
            try:
                generator = generator_of(project, requirements, requirement)
                recipe = make_recipe(builder.pin, generator, builder.sources(generator))
            except ElfkilnError as error:
                failures.append(Failure(key, str(error), error.exit_code))
                continue
            recipes.setdefault(recipe.digest, (recipe, generator))
            wanted.setdefault(recipe.digest, {}).setdefault(key, requirement)
    jobs = (Job(*recipes[digest], tuple(sorted(keys.items()))) for digest, keys in wanted.items())
    return tuple(jobs), tuple(failures)

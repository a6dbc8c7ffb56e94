"""What a target is to the rest of elfkiln: its words, its builder, the reader of its ELFs, its toolchain's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import Capabilities
from elfkiln.families.family import RenderedGenerator
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.project import Project
from elfkiln.store.recipe import Recipe, Step
from elfkiln.store.toolchain_lock import TargetPin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from elfkiln.targets.elf_bytes import VolatileField
    from elfkiln.targets.given_wheels import CandidateLock


Say = Callable[[str], None]
"""Takes the name of the phase a build is in: `render`, `design`, `lint`, `compile`, `check`, `store`."""


def silent(phase: str) -> None:
    """Take a phase and say nothing."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of ours, beside the package itself, that a build reads: their bytes, read once, by relative name."""

    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """The sha256 over all names and bytes."""
        return sha256_hex(canonical_json({name: sha256_hex(data) for name, data in self.files.items()}))


@dataclass(frozen=True, slots=True)
class Inputs:
    """The compile inputs of one build: the recipe that names them, their bytes, and the design they come from.

    `work` is what the builder keeps for itself between the two halves of a build.
    """

    recipe: Recipe
    steps: tuple[Step, ...]
    design: str
    work: Any = None


@dataclass(frozen=True, slots=True)
class Built:
    """What one build left in its private folder: the ELF, the log, and what came of a remote where one was used."""

    elf: Path
    log: str
    remote: RemoteCounts | None = None


class Builder(Protocol):
    """One target's way from a rendered generator to an ELF, in two halves: what is compiled, and compiling it.

    A builder is handed to other processes: it can be pickled before its first use.
    """

    @property
    def pin(self) -> TargetPin:
        """The target's section of toolchain.lock."""
        ...

    @property
    def own_processes(self) -> bool:
        """Whether its builds take so long that each is worth a process of its own."""
        ...

    def describe(self) -> str:
        """Return the tools by name and version, for the first line of a build."""
        ...

    def prepare(self) -> None:
        """Check the bytes of the tools before the first build; `Refused` when they are not the locked ones."""
        ...

    def sources(self, generator: RenderedGenerator) -> Sources:
        """Read what of the project's files a build of this generator is made from."""
        ...

    def inputs(self, generator: RenderedGenerator, sources: Sources, workdir: Path, say: Say = silent) -> Inputs:
        """Run the generator and return what is compiled, from the bytes of `sources` alone.

        Works in a private folder below `workdir`. Raises `BuildFailed` or `Refused` with one line.
        """
        ...

    def compile(self, inputs: Inputs, workdir: Path, say: Say = silent) -> Built:
        """Check the design and compile it in the private folder; `BuildFailed` or `Refused` when that fails."""
        ...

    def open(self, elf: Path) -> OpenedElf:
        """Read an ELF of this target, which is then compared with every name it bears; `Differs` when it is none."""
        ...


@runtime_checkable
class SharedParts(Protocol):
    """A builder whose builds have parts in common that can be made before the first of them asks."""

    def shared_parts(self, generators: Iterable[RenderedGenerator]) -> Sequence[object]:
        """Return the parts that builds of these generators share, those that take longest first; can be pickled."""
        ...

    def make_part(self, part: object, workdir: Path) -> None:
        """Make one part and keep it where builds look for it, unless it is there or just being made."""
        ...


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """A shared cache and its workers, and what they may do.

    `expected` are the registered ELFs by recipe (both as hex): what is made or kept there must be these.
    `only_registered` takes nothing else from there. `fill` puts what is compiled here into the cache. `local` recipes
    may be compiled here at once, in all processes together, which `locks` is the folder for.
    """

    address: str
    locks: Path
    local: int
    fill: bool = False
    only_registered: bool = False
    expected: Mapping[str, str] = field(default_factory=dict)


@dataclass
class RemoteCounts:
    """What came of a remote: ELFs from its cache, executed there, compiled here and put there; and failed answers."""

    cached: int = 0
    executed: int = 0
    here: int = 0
    filled: int = 0
    failed: int = 0

    def __add__(self, other: RemoteCounts) -> RemoteCounts:
        """Return both together."""
        return RemoteCounts(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    def to_json(self) -> dict[str, int]:
        """Return the JSON form."""
        return {
            "cached": self.cached,
            "executed": self.executed,
            "here": self.here,
            "filled": self.filled,
            "failed": self.failed,
        }

    def line(self) -> str:
        """Return the line for a person."""
        return (
            f"{self.cached} ELFs from its cache, {self.executed} executed there, {self.here} compiled here, "
            f"{self.filled} of them put into its cache, {self.failed} answers that did not serve"
        )


@dataclass(frozen=True, slots=True)
class RemoteStep:
    """One command of a build on a remote: its action's digest (None: not known), hit, miss or failed, and why.

    `changes` are (input, sha256 or text before, now) against the last action of this step that was known there.
    """

    step: str
    action: str | None
    state: str
    why: str = ""
    changes: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "step": self.step,
            "action": f"sha256:{self.action}" if self.action else None,
            "state": self.state,
            "why": self.why or None,
            "changes": [{"input": name, "was": was, "is": now} for name, was, now in self.changes],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person."""
        line = f"  {self.step}: {self.state}{f': {self.why}' if self.why else ''}"
        return [line, *(f"    {name}: {was[:12]} -> {now[:12]}" for name, was, now in self.changes)]


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What a remote has for the commands of a build, and what it does with one that it does not have.

    `executes` and `takes_results` (from clients) are what it says of itself; None where it does not, and `refused` says
    why in a line.
    """

    steps: tuple[RemoteStep, ...]
    executes: bool | None = None
    takes_results: bool | None = None
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "executes": self.executes,
            "takes_results": self.takes_results,
            "refused": self.refused or None,
            "steps": [step.to_json() for step in self.steps],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person: each step, and what becomes of the misses."""
        lines = [line for step in self.steps for line in step.lines()]
        if self.executes is None or self.takes_results is None:
            return [*lines, f"  what it does is not known: {self.refused}"]
        if all(step.state == "hit" for step in self.steps):
            return lines
        executes = "it executes what it does not have" if self.executes else "it executes nothing"
        takes = "takes results from clients (--fill)" if self.takes_results else "takes no results from clients"
        nobody = "" if self.executes or self.takes_results else ": a miss stays one until its owner changes that"
        return [*lines, f"  {executes}, and {takes}{nobody}"]


@runtime_checkable
class RemoteBuilder(Protocol):
    """A builder whose compiles can be looked up and executed elsewhere."""

    def use_remote(self, spec: RemoteSpec) -> None:
        """Compile through a remote from now on; `Refused` for a wrong address, and where gRPC is not installed."""
        ...

    def explain_remote(self, inputs: Inputs) -> RemoteAnswer:
        """Return what the remote has for the commands of a build, and why not where it has nothing."""
        ...


class OpenedElf(Protocol):
    """An ELF that was read and is sound in itself."""

    def check(self, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Raise `Differs` unless it is what the name, or the sealed geometries, say."""
        ...


class RunnableElf(Protocol):
    """An ELF loaded into this process: its own array, which nothing else shares."""

    def run(
        self,
        a: NDArray[Any],
        b: NDArray[Any],
        c: NDArray[Any] | None = None,
        sequence: str = ...,
        *,
        again: bool = False,
    ) -> NDArray[Any]:
        """Run a sequence over A, B and C and return C; `SimulationFailed` when the run fails.

        With `again` a loaded array is not loaded anew: the run meets what the one before left.
        """
        ...

    def call(self, sequence: str) -> None:
        """Run a sequence that touches no argument."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """What `inspect` finds in a file: its kind, facts, and class and line of what is wrong (None: nothing)."""

    kind: str
    facts: Mapping[str, Any]
    reject: str | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class ToolchainState:
    """Whether a build could use a target's toolchain here and now, and why not.

    `mirrored` is None for a target that has nothing to mirror.
    """

    versions: str
    installed: bool
    usable: bool
    reason: str = ""
    mirrored: bool | None = None


class Target(Protocol):
    """One row of the table of targets: everything the rest of elfkiln asks of a target by name."""

    @property
    def name(self) -> str:
        """The word of `target=`, of toolchain.lock and of registry.yaml."""
        ...

    @property
    def machine(self) -> str:
        """What its ELFs run on, in words."""
        ...

    @property
    def lint_name(self) -> str:
        """Whose rules of lint its designs must pass (`elfkiln.lint.TARGETS`)."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it can do of what a plan may ask."""
        ...

    @property
    def kind(self) -> str:
        """The kind `inspect` gives a sound ELF of this target."""
        ...

    @property
    def kinds(self) -> Mapping[str, str]:
        """Every kind and reject that `look` may answer with, and what each means."""
        ...

    @property
    def has_wheels(self) -> bool:
        """Whether its toolchain is made of wheels of its own, which `toolchain install` and `mirror` deal with."""
        ...

    @property
    def on_device(self) -> bool:
        """Whether its ELFs run on a device of their own, which `verify on=device` and `bench` use."""
        ...

    def builder(self, project: Project, pin: TargetPin) -> Builder:
        """Return its builder; `Refused` when the tools that would run are not the locked ones."""
        ...

    def open(self, elf: Path) -> OpenedElf:
        """Read an ELF; `Differs` for a stub, a damaged or foreign file. No toolchain is needed."""
        ...

    def load(self, elf: Path) -> RunnableElf | None:
        """Load an ELF into this process; None when this target's ELFs do not run on the host."""
        ...

    def look(self, data: bytes, name: ArtifactName | str | None) -> Look | None:
        """Say what a file is and whether it is what the name (a text: a sealed ELF's) says; None: not one of its."""
        ...

    @property
    def volatile(self) -> tuple[VolatileField, ...]:
        """The bytes of its ELFs that may differ between two builds of one recipe, one by one; nothing else may."""
        ...

    def difference(self, was: bytes, now: bytes) -> tuple[str, ...]:
        """Say, a line each, what differs between two files that should be one ELF; nothing for equal ones."""
        ...

    def state(self, project: Project, pin: TargetPin) -> ToolchainState:
        """Return the state of the pinned toolchain; raises nothing, `reason` says what is wrong."""
        ...

    def install(
        self, project: Project, pin: TargetPin, wheels: Path | None, note: Callable[[str], None]
    ) -> ToolchainState:
        """Install the pinned toolchain, or check it where there is nothing to install; `Refused` when not usable."""
        ...

    def candidate(self, lock_file: Path, wheels: Sequence[Path], assembler: Path | None = None) -> CandidateLock:
        """Return the lock in which the given wheels replace the pinned ones; `Refused` for one that cannot be used.

        `assembler` is a program of the machine's to pin, for a target that takes one. Nothing is written.
        """
        ...

    def trial_builder(
        self, project: Project, pin: TargetPin, wheels: Sequence[Path], note: Callable[[str], None]
    ) -> Builder:
        """Return a builder with a candidate's toolchain for a project that goes afterwards, as `pin` of it says.

        `wheels` are the files and folders given. Raises `Refused` when the candidate cannot be used here.
        """
        ...

    def mirror(self, project: Project, pin: TargetPin, wheels: Path | None, note: Callable[[str], None]) -> Any:
        """Store the toolchain's wheels as blobs and return what the mirror holds; `Refused` where there are none."""
        ...


def headline_of(builder: Builder) -> str:
    """Return the first line of everything that builds: for which target, with which toolchain."""
    return f"target {builder.pin.name}, toolchain {builder.pin.digest[:12]} ({builder.describe()})"

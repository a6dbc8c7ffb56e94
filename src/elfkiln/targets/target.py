"""The targets as builders: what a build needs to know of a target, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.families.family import RenderedGenerator
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin, read_lock

if TYPE_CHECKING:
    from elfkiln.targets.npu2.full_elf import FullElf
    from elfkiln.targets.npu2.install_toolchain import Installed
    from elfkiln.targets.sim.sim_elf import SimElfInfo
    from elfkiln.targets.sim.zig_toolchain import SimToolchain


@dataclass(frozen=True, slots=True)
class Built:
    """What one build left in its private folder: the ELF, the design it was made from, and the log."""

    elf: Path
    design: str
    log: str


class Builder(Protocol):
    """One target's way from a rendered generator to an ELF."""

    @property
    def pin(self) -> TargetPin:
        """The target's section of toolchain.lock."""
        ...

    def describe(self) -> str:
        """Return the tools by name and version, for the first line of a build."""
        ...

    def prepare(self) -> None:
        """Check the bytes of the tools before the first build; `Refused` when they are not the locked ones."""
        ...

    def sources(self, generator: RenderedGenerator) -> Mapping[str, str]:
        """Return the sha256 of every source of ours that decides the bytes, by relative name."""
        ...

    def build(self, generator: RenderedGenerator, workdir: Path) -> Built:
        """Build in a private folder; `BuildFailed` or `Refused` with one line when that fails."""
        ...

    def check(self, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Check that an ELF is of this target and is what the name (or the sealed geometries) says; raise `Differs`."""
        ...


def builder_for(project: Project, target: str | None) -> Builder:
    """Return the builder of a target (default: `default_target` of toolchain.lock).

    Raises `Refused` for an unknown target, or when the tools that would run are not the locked ones.
    """
    pin = read_lock(project.lock_file).target(target)
    if pin.name == "sim":
        return SimBuilder(project, pin)
    return NpuBuilder(project, pin)


def headline_of(builder: Builder) -> str:
    """Return the first line of everything that builds: for which target, with which toolchain."""
    return f"target {builder.pin.name}, toolchain {builder.pin.digest[:12]} ({builder.describe()})"


class SimBuilder:
    """Target sim: iron_sim runs the generator, and zig compiles C that executes the design's data movement."""

    def __init__(self, project: Project, pin: TargetPin) -> None:
        """Take the pin and check that the zig and the CPU that would be used fit it; `Refused` if not."""
        from elfkiln.targets.sim.zig_toolchain import SimToolchain

        self.project = project
        self.pin = pin
        self.toolchain = SimToolchain.from_pin(pin)
        self.toolchain.check_versions()
        self._sources: dict[tuple[str, ...], Mapping[str, str]] = {}

    def describe(self) -> str:
        """Return e.g. `zig 0.17.1, x86_64_v3`."""
        return self.toolchain.describe()

    def prepare(self) -> None:
        """Check the bytes of zig."""
        self.toolchain.check()

    def checked_toolchain(self) -> SimToolchain:
        """Return the toolchain after checking the bytes of the zig that would run; `Refused` if they are others."""
        self.toolchain.check()
        return self.toolchain

    def sources(self, generator: RenderedGenerator) -> Mapping[str, str]:
        """Return the digests of the microkernels, the host header, the runtime and what reads the design."""
        from elfkiln.targets.sim.source_digests import source_digests

        # One answer per set of sources for the life of a builder: a build sees one state of the files.
        key = tuple(kernel.source for kernel in generator.kernels)
        if key not in self._sources:
            self._sources[key] = source_digests(self.project.kernels, generator.kernels)
        return self._sources[key]

    def build(self, generator: RenderedGenerator, workdir: Path) -> Built:
        """Run the generator, lint the design and compile what executes it."""
        from elfkiln.design.reader import read_design
        from elfkiln.design.run_generator import run_generator
        from elfkiln.lint.gate import pass_lint
        from elfkiln.targets.sim.make_elf import build_sim_elf

        toolchain = self.checked_toolchain()
        design = run_generator(generator.text, workdir=workdir)
        warnings = pass_lint(read_design(design), self.pin.name)
        built = build_sim_elf(
            design,
            generator.kernels,
            kernel_root=self.project.kernels,
            toolchain=toolchain,
            cache=self.project.out / "cache",
            workdir=workdir,
        )
        return Built(built.path, design, "".join(f"{line}\n" for line in warnings) + built.log)

    def check(self, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Check class, machine, exported symbols and metadata against the name or the sealed geometries."""
        check_elf(self.pin.name, elf, name, sealed)


class NpuBuilder:
    """Target npu2: the pinned mlir_aie and Peano make a full ELF."""

    def __init__(self, project: Project, pin: TargetPin) -> None:
        """Take the pin; the toolchain is opened by what needs it, so that recipes can be told without it."""
        self.project = project
        self.pin = pin

    @cached_property
    def toolchain(self) -> Installed:
        """The installed toolchain, its bytes verified; `Refused` when it is not installed or was changed."""
        from elfkiln.targets.npu2.install_toolchain import open_installed

        return open_installed(self.project, self.pin)

    def describe(self) -> str:
        """Return the wheels by version."""
        return self.toolchain.describe()

    def prepare(self) -> None:
        """Open the installed toolchain, which verifies its bytes."""
        self.toolchain.describe()

    def sources(self, generator: RenderedGenerator) -> Mapping[str, str]:
        """Return the digests of the microkernels, their headers, and the form of aiecc's command line."""
        from elfkiln.targets.npu2.driver import source_digests
        from elfkiln.targets.npu2.pin import read_pin

        return source_digests(self.project.kernels, generator.kernels, read_pin(self.pin).aiecc_generation)

    def build(self, generator: RenderedGenerator, workdir: Path) -> Built:
        """Run generator, lint, Peano and aiecc in the private folder and validate the full ELF."""
        from elfkiln.targets.npu2.driver import build_full_elf

        built = build_full_elf(
            generator,
            kernel_root=self.project.kernels,
            toolchain=self.toolchain,
            workdir=workdir,
            failed_logs=self.project.out / "logs",
        )
        return Built(built.path, built.design, built.log)

    def check(self, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Check that the file is a full ELF of main:seq whose geometry is the name's."""
        check_elf(self.pin.name, elf, name, sealed)


class OpenedElf(Protocol):
    """An ELF that was read and is sound in itself."""

    def check(self, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Raise `Differs` unless it is what the name, or the sealed geometries, say."""
        ...


def open_elf(target: str, elf: Path) -> OpenedElf:
    """Read an ELF of a target; raises `Differs` for a stub, a damaged or foreign file, an ELF of another target.

    No toolchain is needed.
    """
    if target == "sim":
        from elfkiln.targets.sim.sim_elf import read_sim_elf

        return _OpenedSim(read_sim_elf(elf))
    from elfkiln.targets.npu2.full_elf import read_full_elf

    return _OpenedFull(read_full_elf(elf.read_bytes()))


def check_elf(target: str, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
    """Check that a file is an ELF of the target and is what the name, or the sealed geometries, say.

    Raises `Differs` with one line, as `open_elf` does and for another geometry.
    """
    open_elf(target, elf).check(name, sealed)


@dataclass(frozen=True, slots=True)
class _OpenedSim:
    info: SimElfInfo

    def check(self, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        from elfkiln.targets.sim import sim_elf

        if name is None:
            sim_elf.check_sealed(self.info, sealed)
        else:
            sim_elf.check_name(self.info, name)


@dataclass(frozen=True, slots=True)
class _OpenedFull:
    full: FullElf

    def check(self, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        from elfkiln.targets.npu2 import full_elf

        if name is None:
            full_elf.check_sealed(self.full, sealed)
        else:
            full_elf.check_geometry(self.full, name)

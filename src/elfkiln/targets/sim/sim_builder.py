"""The builder of target sim."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from elfkiln.families.family import KernelObject, RenderedGenerator
from elfkiln.io.canonical import sha256_hex
from elfkiln.project import Project
from elfkiln.store.recipe import make_recipe
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.sim.zig_toolchain import Installed, SimToolchain, Stamps, hashed_programs, trust_hashed
from elfkiln.targets.target import Built, Inputs, OpenedElf, RemoteAnswer, RemoteSpec, Say, Sources, silent

if TYPE_CHECKING:
    from elfkiln.design.model import Design
    from elfkiln.targets.sim.remote_build import RemoteBuild

LINT_NAME = "sim"
"""Whose rules of lint a design must pass before it is compiled."""


class SimBuilder:
    """Target sim: iron_sim runs the generator, and zig compiles C that executes the design's data movement."""

    own_processes = True

    def __init__(self, project: Project, pin: TargetPin, installed: Installed | None = None) -> None:
        """Take the pin and check that the zig and the CPU that would be used fit it; `Refused` if not.

        `installed` are the packages to use in place of this Python's own.
        """
        self.project = project
        self.pin = pin
        self.installed = installed
        self.toolchain = SimToolchain.from_pin(pin, installed)
        self.toolchain.check_versions(installed=installed)
        self.remote: RemoteBuild | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Another process need not hash zig again, and makes its own connection to a remote."""
        spec = None if self.remote is None else self.remote.spec
        return _arrived, (self.project, self.pin, hashed_programs(), spec, self.installed)

    def use_remote(self, spec: RemoteSpec) -> None:
        """Compile through a remote from now on."""
        from elfkiln.store.reapi import RemoteAddress
        from elfkiln.targets.sim.remote_build import RemoteBuild

        RemoteAddress.parse(spec.address)
        self.remote = RemoteBuild(spec, self.toolchain, self.project.cache)
        # Where gRPC is not installed, that is said before anything is built.
        _ = self.remote.client

    def explain_remote(self, inputs: Inputs) -> RemoteAnswer:
        """Return what the remote has for the compiles and the link of a build."""
        assert self.remote is not None
        design, units, _ = inputs.work
        return self.remote.explain(_known_as(design), units)

    def describe(self) -> str:
        """Return e.g. `zig 0.17.1, x86_64_v3`."""
        return self.toolchain.describe()

    def prepare(self) -> None:
        """Check the bytes of zig."""
        self.toolchain.check(installed=self.installed)

    def checked_toolchain(self) -> SimToolchain:
        """Return the toolchain after checking the bytes of the zig that would run; `Refused` if they are others."""
        self.toolchain.check(installed=self.installed)
        return self.toolchain

    def sources(self, generator: RenderedGenerator) -> Sources:
        """Read the microkernels, their headers and the runtime."""
        from elfkiln.targets.sim.compiler import sim_sources

        return Sources(sim_sources(self.project.kernels, generator.kernels))

    def inputs(self, generator: RenderedGenerator, sources: Sources, workdir: Path, say: Say = silent) -> Inputs:
        """Run the generator and print the C of its design."""
        from elfkiln.design.run_generator import design_of_generator
        from elfkiln.targets.sim.compiler import Compiler
        from elfkiln.targets.sim.make_elf import units_of

        toolchain = self.checked_toolchain()
        say("render")
        text, design = design_of_generator(generator.text, workdir=workdir)
        say("design")
        compiler = Compiler(toolchain, self.project.cache, workdir)
        units = units_of(design, sha256_hex(text.encode()), generator.kernels, sources.files, compiler)
        recipe = make_recipe(self.pin.name, {"zig": toolchain.zig_sha256}, units.steps)
        return Inputs(recipe, units.steps, text, (design, units, compiler))

    def compile(self, inputs: Inputs, workdir: Path, say: Say = silent) -> Built:
        """Lint the design, compile what executes it, and link."""
        from elfkiln.lint.gate import pass_lint
        from elfkiln.targets.sim.make_elf import link_units

        design, units, compiler = inputs.work
        say("lint")
        warnings = pass_lint(design, LINT_NAME)
        say("compile")
        compiler.workdir = workdir
        counts = None
        if self.remote is None:
            elf = link_units(units, compiler)
        else:
            text = sha256_hex(inputs.design.encode())
            elf = self.remote.elf(_known_as(design), inputs.recipe.digest, text, units, compiler)
            counts = self.remote.take_counts()
        return Built(elf, "".join(f"{line}\n" for line in warnings) + compiler.log, counts)

    def shared_parts(self, generators: Iterable[RenderedGenerator]) -> list[object]:
        """Return the runtime and each microkernel's object, once; nothing where a remote may have whole ELFs."""
        if self.remote is not None:
            return []
        found: dict[str, tuple[tuple[KernelObject, ...], KernelObject | None]] = {}
        for generator in generators:
            found.setdefault("", (generator.kernels, None))
            for kernel in generator.kernels:
                found.setdefault(f"{kernel.source} {sorted(kernel.defines.items())}", (generator.kernels, kernel))
        return list(found.values())

    def make_part(self, part: object, workdir: Path) -> None:
        """Compile the runtime or a microkernel, from the sources that its build will read."""
        from elfkiln.targets.sim.compiler import Compiler, sim_sources

        kernels, kernel = cast("tuple[tuple[KernelObject, ...], KernelObject | None]", part)
        compiler = Compiler(self.checked_toolchain(), self.project.cache, workdir)
        sources = sim_sources(self.project.kernels, kernels)
        compiler.compile_ahead(compiler.runtime(sources) if kernel is None else compiler.kernel(kernel, sources))

    def open(self, elf: Path) -> OpenedElf:
        """Check class, machine, exported symbols and metadata."""
        from elfkiln.targets.sim.sim_elf import read_sim_elf

        return read_sim_elf(elf)


def _arrived(
    project: Project, pin: TargetPin, stamps: Stamps, spec: RemoteSpec | None, installed: Installed | None
) -> SimBuilder:
    trust_hashed(stamps)
    builder = SimBuilder(project, pin, installed)
    if spec is not None:
        builder.use_remote(spec)
    return builder


def _known_as(design: Design) -> str:
    """Return what stays when a design is edited: its device and the GEMMs that its sequences compute."""
    from elfkiln.design.gemm import geometry_of

    return f"{design.name} {[geometry_of(sequence, design) for sequence in design.sequences]}"

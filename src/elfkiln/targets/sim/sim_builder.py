"""The builder of target sim."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.families.family import RenderedGenerator
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.sim.zig_toolchain import SimToolchain
from elfkiln.targets.target import Built

LINT_NAME = "sim"
"""Whose rules of lint a design must pass before it is compiled."""


class SimBuilder:
    """Target sim: iron_sim runs the generator, and zig compiles C that executes the design's data movement."""

    def __init__(self, project: Project, pin: TargetPin) -> None:
        """Take the pin and check that the zig and the CPU that would be used fit it; `Refused` if not."""
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
        warnings = pass_lint(read_design(design), LINT_NAME)
        built = build_sim_elf(
            design,
            generator.kernels,
            kernel_root=self.project.kernels,
            toolchain=toolchain,
            cache=self.project.cache,
            workdir=workdir,
        )
        return Built(built.path, design, "".join(f"{line}\n" for line in warnings) + built.log)

    def check(self, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Check class, machine, exported symbols and metadata against the name or the sealed geometries."""
        from elfkiln.targets.sim.sim_elf import read_sim_elf

        read_sim_elf(elf).check(name, sealed)

"""The builder of target npu2."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from elfkiln.families.family import RenderedGenerator
from elfkiln.project import Project
from elfkiln.store.recipe import make_recipe
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.target import Built, Inputs, OpenedElf, Say, Sources, silent

if TYPE_CHECKING:
    from elfkiln.targets.npu2.installed_toolchain import Installed


class NpuBuilder:
    """Target npu2: the pinned mlir_aie and Peano make a full ELF."""

    own_processes = True

    def __init__(self, project: Project, pin: TargetPin) -> None:
        """Take the pin; the toolchain is opened by what needs it, so that recipes can be made without it."""
        self.project = project
        self.pin = pin

    def __reduce__(self) -> tuple[type[NpuBuilder], tuple[Project, TargetPin]]:
        """Another process opens the toolchain itself."""
        return NpuBuilder, (self.project, self.pin)

    @cached_property
    def toolchain(self) -> Installed:
        """The installed toolchain, its bytes verified; `Refused` when it is not installed or was changed."""
        from elfkiln.targets.npu2.installed_toolchain import open_installed

        return open_installed(self.project, self.pin)

    def describe(self) -> str:
        """Return the wheels by version."""
        return self.toolchain.describe()

    def prepare(self) -> None:
        """Open the installed toolchain and verify every byte of it, so that a changed one is refused once."""
        from elfkiln.targets.npu2.installed_toolchain import verify_install

        verify_install(self.toolchain)

    def sources(self, generator: RenderedGenerator) -> Sources:
        """Read the microkernels and what they include."""
        from elfkiln.targets.npu2.microkernel import read_sources

        return Sources(read_sources(self.project.kernels, generator.kernels))

    def inputs(self, generator: RenderedGenerator, sources: Sources, workdir: Path, say: Say = silent) -> Inputs:
        """Run the generator on elfkiln's stand-in for the `aie` package, which needs no toolchain."""
        from elfkiln.design.reader import canonical_text, parse_design_module
        from elfkiln.design.run_generator import design_of_generator
        from elfkiln.targets.npu2.driver import steps_of
        from elfkiln.targets.npu2.pin import read_pin

        say("design")
        printed, design = design_of_generator(generator.text, workdir=workdir)
        text = canonical_text(parse_design_module(printed))
        pin = read_pin(self.pin)
        steps = steps_of(self.pin, pin, generator, design, text, sources.files)
        wheels = {wheel.file: wheel.sha256 for wheel in pin.wheels}
        return Inputs(make_recipe(self.pin.name, wheels, steps), steps, text, (generator, sources))

    def compile(self, inputs: Inputs, workdir: Path, say: Say = silent) -> Built:
        """Run generator, lint, Peano and aiecc in the private folder and validate the full ELF."""
        from elfkiln.targets.npu2.driver import build_full_elf, seconds_line

        generator, sources = inputs.work
        built = build_full_elf(
            generator,
            kernel_root=self.project.kernels,
            toolchain=self.toolchain,
            workdir=workdir,
            failed_logs=self.project.logs,
            sources=sources.files,
            intended=inputs.design,
            say=say,
        )
        return Built(built.path, built.log + seconds_line(built.volatile))

    def open(self, elf: Path) -> OpenedElf:
        """Check that the file is a full ELF of main:seq."""
        from elfkiln.targets.npu2 import TARGET

        return TARGET.open(elf)

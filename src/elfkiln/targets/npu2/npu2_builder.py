"""The builder of target npu2."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.families.family import RenderedGenerator
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.target import Built

if TYPE_CHECKING:
    from elfkiln.targets.npu2.installed_toolchain import Installed


class NpuBuilder:
    """Target npu2: the pinned mlir_aie and Peano make a full ELF."""

    def __init__(self, project: Project, pin: TargetPin) -> None:
        """Take the pin; the toolchain is opened by what needs it, so that recipes can be told without it."""
        self.project = project
        self.pin = pin

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

    def sources(self, generator: RenderedGenerator) -> Mapping[str, str]:
        """Return the digests of the microkernels, their headers, and the form of aiecc's command line."""
        from elfkiln.targets.npu2.driver import source_digests
        from elfkiln.targets.npu2.pin import read_pin

        return source_digests(self.project.kernels, generator.kernels, read_pin(self.pin).aiecc_generation)

    def build(self, generator: RenderedGenerator, workdir: Path) -> Built:
        """Run generator, lint, Peano and aiecc in the private folder and validate the full ELF."""
        from elfkiln.targets.npu2.driver import build_full_elf, seconds_line

        built = build_full_elf(
            generator,
            kernel_root=self.project.kernels,
            toolchain=self.toolchain,
            workdir=workdir,
            failed_logs=self.project.logs,
        )
        return Built(built.path, built.design, built.log + seconds_line(built.volatile))

    def check(self, elf: Path, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Check that the file is a full ELF of main:seq whose geometry is the name's."""
        from elfkiln.targets.npu2.full_elf import check_full_elf, read_full_elf

        check_full_elf(read_full_elf(elf.read_bytes()), name, sealed)

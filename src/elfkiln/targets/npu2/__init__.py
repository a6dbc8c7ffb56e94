"""Target npu2: the real toolchain, pinned, installed, driven and distrusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import Capabilities
from elfkiln.errors import Differs, ElfkilnError
from elfkiln.io.reading import read_bytes, reason_of
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.kinds import FULL, MAX_ELF_BYTES, MEANINGS, SIM
from elfkiln.targets.target import Look, ToolchainState

if TYPE_CHECKING:
    from elfkiln.targets.elf_bytes import VolatileField
    from elfkiln.targets.given_wheels import CandidateLock
    from elfkiln.targets.npu2.full_elf import FullElf
    from elfkiln.targets.npu2.mirror import Mirror
    from elfkiln.targets.npu2.npu2_builder import NpuBuilder

# What the methods need is imported where it is used, as for target sim.


class Npu2Target:
    """The NPUs of the Strix family: the pinned mlir_aie and Peano make a full ELF."""

    name = "npu2"
    machine = "AIE2P (Strix, Strix Halo, Krackan)"
    lint_name = "npu2"
    capabilities = Capabilities("npu2", int8_kv=False, source="KV-contract pull request: no target has int8_kv today")
    kind = FULL
    kinds: Mapping[str, str] = {kind: meaning for kind, meaning in MEANINGS.items() if kind != SIM}
    has_wheels = True
    on_device = True

    def builder(self, project: Project, pin: TargetPin) -> NpuBuilder:
        """Return the builder; it opens the installed toolchain only when something needs it."""
        from elfkiln.targets.npu2.npu2_builder import NpuBuilder

        return NpuBuilder(project, pin)

    def open(self, elf: Path) -> OpenedFullElf:
        """Read and validate a full ELF; `Differs` naming its kind when it is none."""
        from elfkiln.targets.npu2.full_elf import read_full_elf

        try:
            data = read_bytes(elf, MAX_ELF_BYTES)
        except OSError as error:
            raise Differs(f"{elf}: {reason_of(error)}") from error
        return OpenedFullElf(read_full_elf(data))

    def load(self, elf: Path) -> None:
        """Return None: a full ELF runs on the NPU alone."""

    def look(self, data: bytes, name: ArtifactName | str | None) -> Look | None:
        """Say what a file is, None when its first bytes are those of no 32-bit ELF."""
        from elfkiln.targets.npu2.full_elf_facts import look

        return look(data, name)

    @property
    def volatile(self) -> tuple[VolatileField, ...]:
        """None: two builds of the pinned aiecc are equal to the byte, and the UID is made of the content."""
        return ()

    def difference(self, was: bytes, now: bytes) -> tuple[str, ...]:
        """Say it down to the operation of a stream and the register it writes."""
        from elfkiln.targets.npu2.full_elf.difference import describe_difference

        return describe_difference(was, now)

    def state(self, project: Project, pin: TargetPin) -> ToolchainState:
        """Hash every file of the installed toolchain and of its mirror, which takes some seconds."""
        from elfkiln.store.blobs import Store
        from elfkiln.store.healing import toolchain_ref
        from elfkiln.targets.npu2.installed_toolchain import open_installed, verify_install
        from elfkiln.targets.npu2.pin import read_pin

        versions, installed, mirrored = "", False, False
        try:
            npu2 = read_pin(pin)
            versions = f"{npu2.describe()}, Python {npu2.python}"
            store = Store(project.store)
            mirrored = toolchain_ref(pin.digest) in store.refs() and all(store.holds(w.sha256) for w in npu2.wheels)
            installed = (project.toolchains / pin.digest).is_dir()
            found = open_installed(project, pin)
            versions = found.describe()
            verify_install(found)
        except ElfkilnError as error:
            return ToolchainState(versions, installed, usable=False, reason=str(error), mirrored=mirrored)
        return ToolchainState(versions, installed=True, usable=True, mirrored=mirrored)

    def install(
        self, project: Project, pin: TargetPin, wheels: Path | None, note: Callable[[str], None]
    ) -> ToolchainState:
        """Install the pinned wheels unless they are there and whole."""
        from elfkiln.targets.npu2.install_toolchain import install

        installed = install(project, pin, wheels=wheels, note=note)
        return ToolchainState(installed.describe(), installed=True, usable=True)

    def candidate(self, lock_file: Path, wheels: Sequence[Path], assembler: Path | None = None) -> CandidateLock:
        """Return the lock with other wheels, or with this machine's aiebu-asm."""
        from elfkiln.targets.npu2.candidate_lock import candidate_lock

        return candidate_lock(lock_file, wheels, assembler)

    def trial_builder(
        self, project: Project, pin: TargetPin, wheels: Sequence[Path], note: Callable[[str], None]
    ) -> NpuBuilder:
        """Install the candidate's toolchain beside the others, from one folder of wheels where that is given."""
        folder = wheels[0].resolve() if len(wheels) == 1 and wheels[0].is_dir() else None
        self.install(project, pin, folder, note)
        return self.builder(project, pin)

    def mirror(self, project: Project, pin: TargetPin, wheels: Path | None, note: Callable[[str], None]) -> Mirror:
        """Store the pinned wheels as blobs."""
        from elfkiln.targets.npu2.mirror import mirror

        return mirror(project, pin, wheels=wheels, note=note)


@dataclass(frozen=True, slots=True)
class OpenedFullElf:
    """A full ELF that was read and is sound in itself."""

    full: FullElf

    def check(self, name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]) -> None:
        """Raise `BadElf` unless it is what the name, or the sealed geometries, say."""
        from elfkiln.targets.npu2.full_elf import check_full_elf

        check_full_elf(self.full, name, sealed)


TARGET = Npu2Target()

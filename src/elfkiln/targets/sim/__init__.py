"""Target sim: turns a design into C that executes it, and that C into an ELF shared object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import Capabilities
from elfkiln.errors import ElfkilnError, Refused
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.kinds import MALFORMED, MEANINGS, SIM, WRONG_GEOMETRY
from elfkiln.targets.target import Look, ToolchainState

if TYPE_CHECKING:
    from elfkiln.targets.elf_bytes import VolatileField
    from elfkiln.targets.given_wheels import CandidateLock
    from elfkiln.targets.sim.sim_builder import SimBuilder
    from elfkiln.targets.sim.sim_elf import SimElf, SimElfInfo

# What the methods need is imported where it is used: numpy, xDSL and pyelftools cost more than most verbs do.


class SimTarget:
    """x86-64 functional simulation of a design; its ELFs run in this process."""

    name = "sim"
    machine = "x86-64 Linux"
    lint_name = "sim"
    capabilities = Capabilities("sim", int8_kv=False, source="a simulated GEMM has no cache; it follows npu2")
    kind = SIM
    kinds: Mapping[str, str] = {kind: MEANINGS[kind] for kind in (SIM, MALFORMED, WRONG_GEOMETRY)}
    has_wheels = False
    on_device = False

    def builder(self, project: Project, pin: TargetPin) -> SimBuilder:
        """Return the builder; `Refused` when this machine's zig, xdsl or processor are not those of the lock."""
        from elfkiln.targets.sim.sim_builder import SimBuilder

        return SimBuilder(project, pin)

    def open(self, elf: Path) -> SimElfInfo:
        """Read an ELF and its note; `Differs` when it is none of this target's."""
        from elfkiln.targets.sim.sim_elf import read_sim_elf

        return read_sim_elf(elf)

    def load(self, elf: Path) -> SimElf:
        """Load an ELF into this process."""
        from elfkiln.targets.sim.sim_elf import SimElf

        return SimElf(elf)

    def look(self, data: bytes, name: ArtifactName | str | None) -> Look | None:
        """Say what a file is, None when it is not an x86-64 shared object of elfkiln."""
        from elfkiln.targets.sim.sim_facts import look

        return look(data, name)

    @property
    def volatile(self) -> tuple[VolatileField, ...]:
        """None: zig's output is reproducible to the byte."""
        return ()

    def difference(self, was: bytes, now: bytes) -> tuple[str, ...]:
        """Say it by section and symbol."""
        from elfkiln.targets.elf_bytes import describe

        return describe(was, now)

    def state(self, project: Project, pin: TargetPin) -> ToolchainState:  # noqa: ARG002 the packages are Python's
        """Check versions, processor and the bytes of zig."""
        from elfkiln.targets.sim.zig_toolchain import SimToolchain

        versions = ""
        try:
            toolchain = SimToolchain.from_pin(pin)
            versions = toolchain.describe()
            toolchain.check()
        except ElfkilnError as error:
            return ToolchainState(versions, installed=False, usable=False, reason=str(error))
        return ToolchainState(versions, installed=True, usable=True)

    def install(
        self,
        project: Project,
        pin: TargetPin,
        wheels: Path | None,  # noqa: ARG002
        note: Callable[[str], None],  # noqa: ARG002
    ) -> ToolchainState:
        """Check what requirements.txt installed; there is nothing else to install."""
        found = self.state(project, pin)
        if not found.usable:
            raise Refused(found.reason)
        return found

    def candidate(self, lock_file: Path, wheels: Sequence[Path], assembler: Path | None = None) -> CandidateLock:  # noqa: ARG002
        """Return the lock with another ziglang or xdsl."""
        from elfkiln.targets.sim.sim_candidate import sim_candidate

        return sim_candidate(lock_file, wheels)

    def trial_builder(
        self,
        project: Project,
        pin: TargetPin,
        wheels: Sequence[Path],
        note: Callable[[str], None],
    ) -> SimBuilder:
        """Return a builder that compiles with the zig of the given wheel, unpacked in the project."""
        from elfkiln.targets.sim.sim_candidate import trial_builder

        return trial_builder(project, pin, wheels, note)

    def mirror(self, project: Project, pin: TargetPin, wheels: Path | None, note: Callable[[str], None]) -> None:  # noqa: ARG002
        """Refuse: its packages are those of requirements.txt."""
        raise Refused(f"toolchain mirror: target {self.name} has no wheels of its own to mirror")


TARGET = SimTarget()

"""Builds a sim ELF: reads a design, prints its C, compiles that with the runtime and the microkernels, and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elfkiln.design.model import Design
from elfkiln.errors import Refused, refusal
from elfkiln.families.family import KernelObject
from elfkiln.io.canonical import sha256_hex
from elfkiln.store.recipe import Step
from elfkiln.targets.sim.c_source import c_source, version_script
from elfkiln.targets.sim.compiler import EXPORTS_FILE, Compiler, Unit, sim_sources
from elfkiln.targets.sim.lower_design import lower
from elfkiln.targets.sim.machine import Machine
from elfkiln.targets.sim.note import note_of
from elfkiln.targets.sim.zig_toolchain import SimToolchain

ELF_NAME = "design.elf"


@dataclass(frozen=True, slots=True)
class BuiltElf:
    """A linked ELF, and what the tools said while it was made."""

    path: Path
    log: str


@dataclass(frozen=True, slots=True)
class SimUnits:
    """What the ELF of one design is compiled from, in the order it is linked, and the names it exports."""

    units: tuple[Unit, ...]
    exports: str
    link_flags: tuple[str, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the recipe: every compile, then the link."""
        link = Step(
            "elf",
            ("ld.lld", *self.link_flags, f"--version-script={EXPORTS_FILE}"),
            {EXPORTS_FILE: self.exports.encode()},
        )
        return (*(unit.step for unit in self.units), link)


def units_of(
    design: Design,
    digest: str,
    kernels: Sequence[KernelObject],
    sources: Mapping[str, bytes],
    compiler: Compiler,
) -> SimUnits:
    """Return what the ELF of a design is made of; `digest` is that of the design's text, for the ELF's note.

    `kernels` are the microkernel objects that the design's `link_with` names, `sources` what `sim_sources` read. Raises
    `Refused` for a design or a microkernel that no ELF can be made of. A design that is wrong in what it does is taken:
    running it says what is wrong.
    """
    linked = _linked_kernels(design, kernels)
    machine = lower(design)
    symbols = _symbols(machine)
    source = c_source(machine, note_of(design, digest, compiler.toolchain.cpu))
    units = (
        compiler.design(source, sources),
        compiler.runtime(sources, more=machine.more),
        *(compiler.kernel(kernel, sources) for kernel in linked),
    )
    return SimUnits(units, version_script(symbols), compiler.toolchain.link_flags)


def build_sim_elf(
    design_text: str,
    kernels: Sequence[KernelObject],
    *,
    kernel_root: Path,
    toolchain: SimToolchain,
    cache: Path,
    workdir: Path,
) -> BuiltElf:
    """Build the ELF of a design (generic MLIR) in `workdir` and return it.

    Objects of the runtime and the microkernels are kept in `cache` by the digest of what they are made of. The bytes
    depend on the design, the sources and the toolchain alone. Raises `Refused` as `units_of` does and `BuildFailed`,
    with the first error, when a tool fails.
    """
    from elfkiln.design.reader import read_design

    return build_design(
        read_design(design_text),
        sha256_hex(design_text.encode()),
        kernels,
        kernel_root=kernel_root,
        toolchain=toolchain,
        cache=cache,
        workdir=workdir,
    )


def build_design(
    design: Design,
    digest: str,
    kernels: Sequence[KernelObject],
    *,
    kernel_root: Path,
    toolchain: SimToolchain,
    cache: Path,
    workdir: Path,
) -> BuiltElf:
    """Build the ELF of a design that was read before; `digest` is that of its text, for the ELF's note."""
    compiler = Compiler(toolchain, cache, workdir)
    units = units_of(design, digest, kernels, sim_sources(kernel_root, kernels), compiler)
    return BuiltElf(link_units(units, compiler), compiler.log)


def link_units(units: SimUnits, compiler: Compiler) -> Path:
    """Compile every unit and link the objects; return the ELF's path."""
    return compiler.link(compiler.compile_all(units.units), units.exports, ELF_NAME)


def _symbols(machine: Machine) -> list[str]:
    """Return the C names of all entries; raises `Refused` when two sequences ask for one."""
    names = [name for one in machine.sequences for name in (one.symbol, one.again) if name is not None]
    for name in names:
        if names.count(name) > 1:
            what = f"design {machine.design.name}: entry {name}"
            raise refusal(what, expected="one sequence for it", found="two", remedy="rename a sequence")
    return names


def _linked_kernels(design: Design, kernels: Sequence[KernelObject]) -> list[KernelObject]:
    """Return the microkernel objects that a design links, in the order of their names."""
    given = {kernel.object_name: kernel for kernel in kernels}
    if len(given) != len(kernels):
        raise Refused("microkernels: two objects of one name")
    wanted = {kernel.link_with for kernel in design.kernels} | {core.link_with for core in design.cores}
    for name in sorted(one for one in wanted if one is not None):
        if name not in given:
            raise refusal(
                f"design {design.name}: link_with",
                expected="one of " + (", ".join(sorted(given)) or "no microkernel objects"),
                found=name,
                remedy="name the object in the generator's family",
            )
    return [given[name] for name in sorted(one for one in wanted if one is not None)]

"""Builds a sim ELF: reads a design, prints its C, compiles that with the runtime and the microkernels, and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elfkiln.design.model import Design
from elfkiln.errors import Refused, refusal
from elfkiln.families.family import KernelObject
from elfkiln.io.canonical import sha256_hex
from elfkiln.targets.sim.c_source import c_source, version_script
from elfkiln.targets.sim.compiler import Compiler
from elfkiln.targets.sim.lower_design import lower
from elfkiln.targets.sim.note import note_of
from elfkiln.targets.sim.zig_toolchain import SimToolchain

ELF_NAME = "design.elf"


@dataclass(frozen=True, slots=True)
class BuiltElf:
    """A linked ELF, and what the tools said while it was made."""

    path: Path
    log: str


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

    `kernels` are the microkernel objects that the design's `link_with` names, with sources below `kernel_root`.
    Objects of the runtime and the microkernels are kept in `cache` by the digest of what they are made of. The bytes
    depend on the design, the sources and the toolchain alone. Raises `Refused` for a design or a microkernel that no
    ELF can be made of and `BuildFailed`, with the first error, when a tool fails. A design that is wrong in what it
    does still builds: running it says what is wrong.
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
    linked = _linked_kernels(design, kernels)
    machine = lower(design)
    source = c_source(machine, note_of(design, digest, toolchain.cpu))
    compiler = Compiler(toolchain, cache, workdir)
    objects = [
        compiler.design(source),
        compiler.runtime(),
        *(compiler.kernel(kernel_root, kernel) for kernel in linked),
    ]
    path = compiler.link(objects, version_script([sequence.symbol for sequence in machine.sequences]), ELF_NAME)
    return BuiltElf(path, compiler.log)


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

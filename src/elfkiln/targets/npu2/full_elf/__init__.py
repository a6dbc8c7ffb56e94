"""Full ELFs: reads and validates what aiecc and aiebu make for the NPU, byte by byte."""

from __future__ import annotations

from elfkiln.engine.contract import INSTANCE, KERNEL, SEALED_FORM, SEALED_INIT, is_sealed
from elfkiln.targets.kinds import (
    INNER_SEQUENCE,
    MALFORMED,
    MEANINGS,
    WRONG_KERNEL,
    BadElf,
    bad,
)
from elfkiln.targets.npu2.full_elf.against_design import check_design
from elfkiln.targets.npu2.full_elf.contents import FullElf, Instance, Kernel
from elfkiln.targets.npu2.full_elf.difference import Difference, classify_difference
from elfkiln.targets.npu2.full_elf.elf_geometry import check_full_elf, gemm_of
from elfkiln.targets.npu2.full_elf.pdi import Pdi, read_pdi
from elfkiln.targets.npu2.full_elf.sections import Container, read_container
from elfkiln.targets.npu2.full_elf.stream import Load, Stream, Transfer, read_stream
from elfkiln.targets.npu2.full_elf.tables import check_partition, check_relocations, check_uid, read_names

__all__ = [
    "MEANINGS",
    "BadElf",
    "Difference",
    "FullElf",
    "Instance",
    "Kernel",
    "Pdi",
    "Transfer",
    "check_design",
    "check_full_elf",
    "classify_difference",
    "gemm_of",
    "parse_full_elf",
    "read_full_elf",
    "validate_entry",
]

LEAST_ARGUMENTS = 3
"""aiecc gives every kernel three arguments or more (its config JSON: max(3, arguments of the sequence))."""


def read_full_elf(data: bytes) -> FullElf:
    """Read and validate a full ELF that the engine could open; raise `BadElf` naming its kind and the first fault.

    Every byte of the file is accounted for: header, tables and notes are rebuilt and compared, PDI and streams are
    walked to their ends and covered by the UID. What the UID does not cover under the scheme of the engine's own
    assembler (the PDI) is checked as far as its own checksums reach.
    """
    full = parse_full_elf(data)
    validate_entry(full)
    return full


def parse_full_elf(data: bytes) -> FullElf:
    """Read a full ELF whatever it exports; raises `BadElf` for anything that is not whole and consistent."""
    container = read_container(data)
    uid, scheme = check_uid(container)
    pdis = tuple(
        read_pdi(number, section.data)
        for block in container.blocks
        for number, section in enumerate(block.pdis, start=1)
    )
    streams = tuple(
        tuple(read_stream(section.name, section.data) for section in block.streams) for block in container.blocks
    )
    names = read_names(container)
    check_relocations(container, streams)
    columns = _columns(streams)
    check_partition(container, columns)
    kernels = tuple(
        _kernel(name, arguments, instances, group, len(block.pdis), container)
        for (name, arguments), instances, group, block in zip(
            names.kernels, names.instances, streams, container.blocks, strict=True
        )
    )
    sections = tuple((section.name, len(section.data)) for section in container.sections if section.name)
    return FullElf(len(data), container.abi_version, columns, uid, scheme, sections, pdis, kernels)


def validate_entry(full: FullElf) -> None:
    """Check that the engine finds its kernel and a sequence that loads the PDI; raise `BadElf` otherwise."""
    names = [kernel.name for kernel in full.kernels]
    if names != [KERNEL]:
        raise bad(WRONG_KERNEL, "kernels", expected=KERNEL, found=", ".join(names))
    instances = full.kernels[0].instances
    exported = [instance.name for instance in instances]
    sealed = exported[0] == SEALED_INIT and is_sealed(exported)
    loader = instances[0]
    if not any(instance.loads for instance in instances):
        raise bad(INNER_SEQUENCE, f"instance {loader.name}", expected="load_pdi as its first operation", found="none")
    if not loader.loads_first:
        raise bad(INNER_SEQUENCE, f"instance {loader.name}", expected="load_pdi as its first operation", found="later")
    if exported != [INSTANCE] and not sealed:
        wanted = f"{INSTANCE}, or {SEALED_INIT} and {SEALED_FORM}"
        raise bad(WRONG_KERNEL, "instances", expected=wanted, found=", ".join(exported))
    if sealed:
        for instance in instances[1:]:
            if instance.loads:
                what = f"instance {instance.name}"
                raise bad(WRONG_KERNEL, what, expected="no load_pdi: init loads it once", found="load_pdi")


def _columns(streams: tuple[tuple[Stream, ...], ...]) -> int:
    columns = sorted({stream.columns for group in streams for stream in group})
    if len(columns) != 1:
        raise bad(MALFORMED, "columns of the streams", expected="one number", found=columns)
    return columns[0]


def _kernel(
    name: str,
    arguments: int,
    instances: tuple[str, ...],
    streams: tuple[Stream, ...],
    pdis: int,
    container: Container,
) -> Kernel:
    if arguments < LEAST_ARGUMENTS:
        raise bad(MALFORMED, f"arguments of kernel {name}", expected=f"{LEAST_ARGUMENTS} or more", found=arguments)
    if len(set(instances)) != len(instances):
        raise bad(MALFORMED, f"instances of kernel {name}", expected="each name once", found=", ".join(instances))
    made = []
    for instance, stream in zip(instances, streams, strict=True):
        for event in stream.events:
            if isinstance(event, Transfer) and event.argument >= arguments:
                what = f"argument of a task of {instance}"
                raise bad(MALFORMED, what, expected=f"below {arguments}", found=event.argument)
            if isinstance(event, Load) and event.number > pdis:
                raise bad(MALFORMED, f"load_pdi of {instance}", expected=f"PDI 1 to {pdis}", found=event.number)
        made.append(
            Instance(
                instance,
                len(container.section(stream.name).data),
                stream.operations,
                stream.loads_first,
                tuple(stream.events),
                tuple(stream.descriptors),
            )
        )
    return Kernel(name, arguments, tuple(made))

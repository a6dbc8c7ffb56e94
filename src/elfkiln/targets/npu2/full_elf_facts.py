"""What `inspect` says of a full ELF: its facts, and whether it is what its name says."""

from __future__ import annotations

from typing import Any

from elfkiln.design.gemm import NotAGemm
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.targets.kinds import FULL, BadElf, other_kind
from elfkiln.targets.npu2.full_elf import (
    FullElf,
    Instance,
    check_full_elf,
    gemm_of,
    parse_full_elf,
    validate_entry,
)
from elfkiln.targets.sealed import sealed_geometries
from elfkiln.targets.target import Look


def look(data: bytes, name: ArtifactName | str | None) -> Look | None:
    """Say what a file is and, with a name, whether it is that; None when it is not an ELF for the NPU at all."""
    if other_kind(data) is not None:
        return None
    try:
        full = parse_full_elf(data)
    except BadElf as error:
        return Look(error.kind, {}, error.kind, str(error))
    facts = _facts(full)
    try:
        validate_entry(full)
        if isinstance(name, str):
            check_full_elf(full, None, sealed_geometries(i.name for i in full.kernels[0].instances))
        elif name is not None:
            check_full_elf(full, name, ())
    except BadElf as error:
        return Look(FULL, facts, error.kind, str(error))
    if name is not None:
        facts["name"] = f"{name} agrees"
    return Look(FULL, facts)


def _facts(full: FullElf) -> dict[str, Any]:
    cores = {core for pdi in full.pdis for core in pdi.cores}
    facts: dict[str, Any] = {
        "abi version": full.abi_version,
        "uid": {"value": full.uid, "scheme": full.uid_scheme},
        "partition": {"columns": full.columns, "cores": len(cores)},
        "sections": dict(full.sections),
        "kernels": [{"name": kernel.name, "arguments": kernel.arguments} for kernel in full.kernels],
        "instances": [_instance(instance) for kernel in full.kernels for instance in kernel.instances],
    }
    return facts


def _instance(instance: Instance) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": instance.name,
        "operations": instance.operations,
        "loads pdi": list(instance.loads),
        "tasks": len(instance.transfers),
        "syncs": instance.syncs,
    }
    if instance.transfers:
        try:
            gemm = gemm_of(instance)
            row["geometry"] = {
                "M": gemm.M,
                "K": gemm.K,
                "N": gemm.N,
                "weight bits": gemm.weight_bits,
                "contiguous": gemm.contiguous,
                "columns": gemm.columns,
                "groups": [gemm.row_groups, gemm.column_groups],
            }
        except NotAGemm as error:
            row["geometry"] = f"no GEMM: {error}"
    return row

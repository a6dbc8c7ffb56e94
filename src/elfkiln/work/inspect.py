"""Says what a file is: a full ELF, a sim ELF, or one of the wrong things that have stood behind artifact names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import INSTANCE, SEALED_ELF, SEALED_INIT
from elfkiln.errors import Differs, Refused, refusal
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import read_regular
from elfkiln.targets.npu2.full_elf import (
    BadElf,
    FullElf,
    Instance,
    check_geometry,
    check_sealed,
    gemm_of,
    parse_full_elf,
    validate_entry,
)
from elfkiln.targets.npu2.full_elf.kinds import FULL, MALFORMED, MEANINGS, SIM, WRONG_GEOMETRY, bad, other_kind

_SEALED = re.compile(rf"{INSTANCE}_K(?P<K>[1-9]\d{{0,8}})_N(?P<N>[1-9]\d{{0,8}})", re.ASCII)
_SEALED_FORM = f"at least one {INSTANCE}_K<K>_N<N>"
_MADE_FOR_ANOTHER = f" ({MEANINGS[WRONG_GEOMETRY]})"


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a file is (`kind`, a word of `elfkiln.targets.npu2.full_elf.kinds`) and facts about it.

    `reject` is the class of what is wrong with it, of the same words, and `fault` the line that says it (None: sound).
    """

    path: str
    kind: str
    size: int
    sha256: str
    facts: Mapping[str, Any]
    reject: str | None
    fault: str | None

    @property
    def sound(self) -> bool:
        """Whether the file is an artifact, and the one its name says."""
        return self.fault is None

    def to_json(self) -> dict[str, Any]:
        """The inspection for machines."""
        head = {"path": self.path, "kind": self.kind, "size": self.size, "sha256": self.sha256}
        return {**head, **self.facts, "sound": self.sound, "reject": self.reject, "fault": self.fault}

    def lines(self) -> list[str]:
        """The inspection for a person: one fact a line, the fault last."""
        rows = [f"{self.path}: {self.kind}, {self.size:,} bytes, sha256:{self.sha256}"]
        for key, value in self.facts.items():
            values = value if isinstance(value, list) else [value]
            rows += [f"  {key}: {_flat(one)}" for one in values]
        if self.fault is not None:
            rows.append(f"  fault: {self.fault}")
        return rows


Name: TypeAlias = "ArtifactName | str"
"""An artifact's name, or that of the sealed ELF (`pb16i_sealed.elf`), which says no geometry."""


def name_of(text: str) -> Name:
    """Read what an ELF may be called: an artifact name or the sealed ELF's; `Refused` for anything else."""
    return text if text == SEALED_ELF else ArtifactName.parse(text)


def inspect(path: Path, name: Name | None = None, target: str | None = None) -> Inspection:
    """Say what a file is; with a name (or an artifact's file name) also whether it computes what the name says.

    Of a sealed ELF the sequences say the geometries: `init` and at least one of `seq_K.._N..`, each computing its own.

    `target` (npu2 or sim) makes an ELF of the other target a fault. Raises `Refused` when the file cannot be read.
    """
    if target not in (None, "npu2", "sim"):
        raise refusal("inspect: target", expected="npu2 or sim", found=target)
    data = read_regular(path, limit=MAX_ELF_BYTES, remedy="give an ELF")
    wanted = name if name is not None else _own_name(path.name)
    kind, facts, reject, fault = _look(path, data, wanted)
    if fault is None and target is not None and kind != {"npu2": FULL, "sim": SIM}[target]:
        reject, fault = kind, f"{kind}: expected an ELF of target {target}, found {MEANINGS[kind]}"
    return Inspection(path.name, kind, len(data), sha256_hex(data), facts, reject, fault)


def _own_name(text: str) -> Name | None:
    try:
        return name_of(text)
    except Refused:
        return None


MAX_ELF_BYTES = 1 << 28
"""More than any ELF that could be meant: the largest seen has 0.3 MB."""

_Look: TypeAlias = "tuple[str, dict[str, Any], str | None, str | None]"


def _look(path: Path, data: bytes, name: Name | None) -> _Look:
    other = other_kind(data)
    if other is not None:
        return _look_at_sim(path, name) if other.kind == SIM else (other.kind, {}, other.kind, str(other))
    try:
        full = parse_full_elf(data)
    except BadElf as error:
        return error.kind, {}, error.kind, str(error)
    facts = _facts(full)
    try:
        validate_entry(full)
        if isinstance(name, str):
            check_sealed(full, _sealed_geometries(i.name for i in full.kernels[0].instances))
        elif name is not None:
            check_geometry(full, name)
        if name is not None:
            facts["name"] = f"{name} agrees"
    except BadElf as error:
        return FULL, facts, error.kind, str(error)
    return FULL, facts, None, None


def _sealed_geometries(sequences: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Return K and N of each sequence that is named after a geometry; `BadElf` when none is."""
    names = list(sequences)
    found = [(int(match["K"]), int(match["N"])) for match in map(_SEALED.fullmatch, names) if match is not None]
    if SEALED_INIT not in names or not found:
        shown = ", ".join(names) or "none"
        raise bad(WRONG_GEOMETRY, f"{SEALED_ELF}: sequences", expected=f"{SEALED_INIT} and {_SEALED_FORM}", found=shown)
    return tuple(found)


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
        except BadElf as error:
            # Its message ends with what a wrong name would mean, and there may be no name.
            row["geometry"] = f"no GEMM: {str(error).removeprefix(f'{error.kind}: ').removesuffix(_MADE_FOR_ANOTHER)}"
    return row


def _look_at_sim(path: Path, name: Name | None) -> _Look:
    from elfkiln.targets.sim.sim_elf import check_name, read_sim_elf
    from elfkiln.targets.sim.sim_elf import check_sealed as check_sealed_sim

    facts: dict[str, Any] = {}
    try:
        info = read_sim_elf(path)
        facts["design"] = {"sha256": info.design, "device": info.device}
        facts["cpu"] = info.cpu
        facts["instances"] = [_sim_entry(entry) for entry in info.entries]
        if isinstance(name, str):
            check_sealed_sim(info, _sealed_geometries(entry.sequence for entry in info.entries))
        elif name is not None:
            check_name(info, name)
        if name is not None:
            facts["name"] = f"{name} agrees"
    except (Differs, BadElf) as error:
        return SIM, facts, WRONG_GEOMETRY if "instances" in facts else MALFORMED, str(error)
    return SIM, facts, None, None


def _sim_entry(entry: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"name": entry.sequence, "symbol": entry.symbol, "loads pdi": entry.loads}
    row["arguments"] = [str(argument) for argument in entry.arguments]
    geometry = entry.geometry
    if geometry is not None:
        row["geometry"] = {
            "M": geometry.M,
            "K": geometry.K,
            "N": geometry.N,
            "weight bits": geometry.weight_bits,
            "contiguous": geometry.contiguous,
            "columns": geometry.columns,
            "rows": geometry.rows,
        }
    return row


def _flat(value: Any) -> str:
    """Return a fact on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(one)}" for key, one in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(_flat(one) for one in value) + "]"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)

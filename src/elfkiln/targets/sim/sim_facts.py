"""What `inspect` says of a sim ELF: its facts, and whether it is what its name says."""

from __future__ import annotations

from typing import Any

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import Differs
from elfkiln.targets.kinds import MALFORMED, SIM, WRONG_GEOMETRY, other_kind
from elfkiln.targets.sealed import sealed_geometries
from elfkiln.targets.sim.sim_elf import SimEntry, read_sim_elf
from elfkiln.targets.target import Look


def look(data: bytes, name: ArtifactName | str | None) -> Look | None:
    """Say what a file is and, with a name, whether it is that; None when it is not a shared object of elfkiln."""
    other = other_kind(data)
    if other is None or other.kind != SIM:
        return None
    facts: dict[str, Any] = {}
    try:
        info = read_sim_elf(data)
        facts["design"] = {"sha256": info.design, "device": info.device}
        facts["cpu"] = info.cpu
        facts["instances"] = [_entry(entry) for entry in info.entries]
        if isinstance(name, str):
            info.check(None, sealed_geometries(entry.sequence for entry in info.entries))
        elif name is not None:
            info.check(name, ())
    except Differs as error:
        return Look(SIM, facts, WRONG_GEOMETRY if "instances" in facts else MALFORMED, str(error))
    if name is not None:
        facts["name"] = f"{name} agrees"
    return Look(SIM, facts)


def _entry(entry: SimEntry) -> dict[str, Any]:
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

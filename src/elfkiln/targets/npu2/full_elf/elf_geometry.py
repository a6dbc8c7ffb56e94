"""Geometry read back from a full ELF, and compared with a name or a sealed set."""

from __future__ import annotations

from collections.abc import Sequence

from elfkiln.design.gemm import Gemm, Move, NotAGemm
from elfkiln.design.gemm import gemm_of as gemm_of_moves
from elfkiln.design.named_gemm import Entry, name_fault
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C, SEALED_INIT
from elfkiln.targets.kinds import WRONG_GEOMETRY, BadElf, bad
from elfkiln.targets.npu2.full_elf.contents import FullElf, Instance


def gemm_of(instance: Instance) -> Gemm:
    """Return the GEMM of an instance; `NotAGemm` when its tasks are none, or disagree among themselves."""
    moves = [
        Move(t.argument, f"column {t.column} channel {t.channel}", t.direction == "mm2s", t.pattern)
        for t in instance.transfers
    ]
    A, B, C = (instance.extent(argument) for argument in (ARGUMENT_A, ARGUMENT_B, ARGUMENT_C))
    return gemm_of_moves(moves, (A, B, C))


def check_full_elf(full: FullElf, name: ArtifactName | None, sealed: Sequence[tuple[int, int]]) -> None:
    """Raise `BadElf` (kind `wrong-geometry`) unless a full ELF is what the name, or the sealed geometries, say."""
    kernel = full.kernels[0]
    entries = [Entry(one.name, bool(one.loads), _gemm_or_why(one)) for one in kernel.instances]
    fault = name_fault(kernel.name, entries, name, tuple(sealed))
    if fault is not None:
        raise BadElf(WRONG_GEOMETRY, f"{WRONG_GEOMETRY}: {fault}")
    init = full.instance(SEALED_INIT)
    if name is None and init is not None and init.transfers:
        raise bad(WRONG_GEOMETRY, f"instance {SEALED_INIT}", expected="no tasks", found=len(init.transfers))


def _gemm_or_why(instance: Instance) -> Gemm | str:
    try:
        return gemm_of(instance)
    except NotAGemm as error:
        return str(error)

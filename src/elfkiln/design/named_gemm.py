"""What a name promises of an ELF's sequences, compared with what they are: one rule for every target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from elfkiln.design.gemm import Computes, gemm_text
from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import brief, mismatch_line


@dataclass(frozen=True, slots=True)
class Entry:
    """A sequence an ELF exports: its name, whether it loads the array first, its GEMM or why it is none."""

    sequence: str
    loads: bool
    gemm: Computes | str


@dataclass(frozen=True, slots=True)
class _Wanted:
    M: int
    K: int
    N: int
    weight_bits: int
    contiguous: bool


def name_fault(
    device: str, entries: Collection[Entry], name: ArtifactName | None, sealed: tuple[tuple[int, int], ...]
) -> str | None:
    """Return in one line why an ELF is not what its name says, None when it is.

    With a name the ELF holds exactly that GEMM, as `main:seq`. Without one it is a sealed ELF: `init`, which loads the
    array, and one 16-row sequence per geometry (K, N) of `sealed`, which do not.
    """
    return _sealed_fault(device, entries, sealed) if name is None else _named_fault(device, entries, name)


def _named_fault(device: str, entries: Collection[Entry], name: ArtifactName) -> str | None:
    sequences = [entry.sequence for entry in entries]
    if device != contract.KERNEL or sequences != [contract.INSTANCE]:
        expected = f"device {contract.KERNEL} with sequence {contract.INSTANCE}"
        return mismatch_line(str(name), expected=expected, found=f"device {device} with {', '.join(sequences)}")
    (entry,) = entries
    fault = _gemm_fault(str(name), entry, name.M, name.K, name.N, name.layout)
    if fault is None and not entry.loads:
        fault = f"{name}: its sequence does not begin with load_pdi, so nothing would configure the array"
    return fault


def _sealed_fault(device: str, entries: Collection[Entry], sealed: tuple[tuple[int, int], ...]) -> str | None:
    what = "sealed ELF"
    expected = {contract.sealed_instance(K, N): (K, N) for K, N in sealed}
    found = {entry.sequence: entry for entry in entries}
    if device != contract.KERNEL:
        return mismatch_line(what, expected=f"device {contract.KERNEL}", found=f"device {device}")
    missing = sorted({contract.SEALED_INIT, *expected} - found.keys())
    if missing:
        return f"{what}: it has no sequence {brief(', '.join(missing))}; build it again"
    more = sorted(found.keys() - {contract.SEALED_INIT, *expected})
    if more:
        return f"{what}: it has a sequence {brief(', '.join(more))} that is not asked for; build it again"
    if not found[contract.SEALED_INIT].loads:
        return f"{what}: its sequence {contract.SEALED_INIT} does not load the array"
    layout = contract.layout_of_tag(contract.SEALED_TAG)
    for sequence, (K, N) in expected.items():
        place = f"{what}, sequence {sequence}"
        fault = _gemm_fault(place, found[sequence], contract.DECODE_M, K, N, layout)
        if fault is None and found[sequence].loads:
            fault = f"{place}: it loads the array again, which costs 8 times the run"
        if fault is not None:
            return fault
    return None


def _gemm_fault(what: str, entry: Entry, M: int, K: int, N: int, layout: str) -> str | None:
    lies = contract.weight_layout(layout)
    wanted = gemm_text(_Wanted(M, K, N, lies.weight_bits, lies.contiguous))
    found = f"no GEMM: {entry.gemm}" if isinstance(entry.gemm, str) else gemm_text(entry.gemm)
    if found == wanted:
        return None
    return mismatch_line(what, expected=wanted, found=found, remedy="the ELF is another geometry's")

"""A set of artifacts that a model asks for: what each is, where it lies, and what of the model runs it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.legality import rows_for


@dataclass(frozen=True, slots=True)
class Use:
    """What runs an artifact: a projection of one layer of a plan, or of all `count` layers of a kind of a role table.

    >>> str(Use("qkv", "gdn", layer=3)), str(Use("QKV", "full", count=16))
    ('layer 3 gdn qkv', '16 full layers QKV')
    """

    projection: str
    kind: str
    layer: int | None = None
    count: int = 1

    def __str__(self) -> str:
        """Return the text for listings."""
        where = f"{self.count} {self.kind} layers" if self.layer is None else f"layer {self.layer} {self.kind}"
        return f"{where} {self.projection}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One file the engine will open.

    `directory` is relative to the model folder, with `/` ("kernels", "kernels-m16", "." for the folder itself).
    `name` is None for a sealed ELF, which carries the geometries of `sealed` instead; `rows` is then None and
    `columns` the columns of its one array configuration. `layers` says what runs the artifact: the sum of the counts
    is its launches per pass over the layers.
    """

    file_name: str
    directory: str
    name: ArtifactName | None
    columns: int
    rows: int | None
    layers: tuple[Use, ...]
    sealed: tuple[tuple[int, int], ...] = ()

    @property
    def path(self) -> str:
        """Path below the model folder.

        >>> Requirement("pb16i_sealed.elf", ".", None, 8, None, ()).path
        'pb16i_sealed.elf'
        """
        return self.file_name if self.directory == "." else f"{self.directory}/{self.file_name}"

    @property
    def launches(self) -> int:
        """Launches of this artifact in one pass over the layers."""
        return sum(use.count for use in self.layers)


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """What a model in one layout asks for, in a fixed order: prefill, twins, sealed ELF."""

    model: str
    layout: str
    requirements: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """One geometry a model runs: role (as in artifact names), K, N, array columns, and its uses."""

    role: str
    K: int
    N: int
    columns: int
    uses: tuple[Use, ...]


def gather(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """Merge demands of equal role and geometry, uses in order, first appearance first.

    The columns of equal geometries agree by construction of the callers; the first one counts.
    """
    merged: dict[tuple[str, int, int], Demand] = {}
    for demand in demands:
        key = (demand.role, demand.K, demand.N)
        seen = merged.get(key)
        uses = demand.uses if seen is None else (*seen.uses, *demand.uses)
        merged[key] = Demand(*key, demand.columns if seen is None else seen.columns, uses)
    return tuple(merged.values())


def named(demands: Iterable[Demand], tag: str, directory: str, *, m16: bool) -> tuple[Requirement, ...]:
    """Return the requirements of merged demands under one tag: the prefill set, or the 16-row twins."""
    requirements = []
    for demand in demands:
        name = ArtifactName(demand.role, demand.K, demand.N, tag, m16=m16)
        rows = rows_for(demand.columns, name.layout, m16=m16)
        requirements.append(Requirement(str(name), directory, name, demand.columns, rows, demand.uses))
    return tuple(requirements)


def prefill_and_twins(
    demands: Iterable[Demand], tag: str, *, decode: bool, twin_directory: str = contract.DECODE_DIRECTORY
) -> tuple[Requirement, ...]:
    """Return the M=128 set under `kernels` and, with `decode`, the M=16 twins under `twin_directory`."""
    merged = gather(demands)
    prefill = named(merged, tag, contract.PREFILL_DIRECTORY, m16=False)
    twins = named(merged, tag, twin_directory, m16=True) if decode else ()
    return prefill + twins

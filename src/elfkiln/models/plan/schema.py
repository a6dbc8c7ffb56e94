"""A plan as data: what a loaded plan.json says."""

from __future__ import annotations

from dataclasses import dataclass, field

from elfkiln.engine.contract import PLAN_FILE


@dataclass(frozen=True, slots=True)
class Directory:
    """One entry of decode.dirs: `root` is "model" or "kernels", `path` relative to it with `/` ("." for the root)."""

    root: str
    path: str


@dataclass(frozen=True, slots=True)
class Decode:
    """The decode section: whether the 16-row twins are used, where they are searched, and the sealed ELF ("" none)."""

    enabled: bool
    M: int
    dirs: tuple[Directory, ...]
    sealed_elf: str


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """The kv section: element types of keys and values, and the per-head rotation (block 0: none)."""

    key: str
    value: str
    hadamard_block: int
    hadamard_signs: str


@dataclass(frozen=True, slots=True)
class BatchedExperts:
    """moe.batched_expert_gu: one gate and one up GEMM of K x N over all chosen experts."""

    enabled: bool
    K: int
    N: int


@dataclass(frozen=True, slots=True)
class Projection:
    """One projection of a layer: its key in the plan, its geometry, and its `fused` flag (None where absent)."""

    key: str
    K: int
    N: int
    fused: bool | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its role and its projections in the order of `contract.PLAN_PROJECTIONS`."""

    index: int
    role: str
    projections: tuple[Projection, ...]

    def projection(self, key: str) -> Projection | None:
        """Return the projection of that key, or None."""
        return next((projection for projection in self.projections if projection.key == key), None)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that passed every rule of the loader.

    `notes` are things a reader should hear of: fields that were ignored, values outside a guessed table. `where` stands
    for the file in messages, as it was given; plans of two files are equal when they say the same.
    """

    generated_by: str
    hidden: int
    arch: str
    layout: str
    chunk_kind: str
    pb16i: bool
    tile_order: str
    gate_up: str
    prefill_M: int
    decode: Decode
    tag: str
    attention_mode: str
    kv: KeyValueCache
    batched_experts: BatchedExperts
    layers: tuple[Layer, ...]
    notes: tuple[str, ...] = ()
    where: str = field(default=PLAN_FILE, compare=False)

"""A plan as data, and the one list of plan.json's fields.

Each attribute made by `plan_field` is a field: its place in the file, what it may hold, and what it is where the file
leaves it out. The loader, the generator, the comparison and the list of known keys walk these classes. A new field is
one line here, and whatever gives it a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elfkiln.engine import contract
from elfkiln.io.checked import Value
from elfkiln.models.plan import field_checks as checks
from elfkiln.models.plan.field_checks import PlanReading
from elfkiln.models.plan.field_table import optional_field, plan_field, plan_section, read_fields

FREE_TEXT = "generated_by"
"""The field that means nothing to a reader, and so never counts as a difference."""

LAYER_ROLES = tuple(row.name for row in contract.LAYER_ROLES)
PROJECTION_KEYS = tuple(row.key for row in contract.PLAN_PROJECTIONS)
_HEIGHT = "the one height artifact names stand for"


@dataclass(frozen=True, slots=True)
class Directory:
    """One entry of decode.dirs: `root` is "model" or "kernels", `path` relative to it with `/` ("." for the root)."""

    root: str = plan_field("root", checks.choice(*contract.DIRECTORY_ROOTS))
    path: str = plan_field("path", checks.relative_path)


def _directory(reading: PlanReading, value: Value) -> Any:
    return read_fields(Directory, reading, value)


@dataclass(frozen=True, slots=True)
class Decode:
    """The decode section: whether the 16-row twins are used, where they are searched, and the sealed ELF ("" none)."""

    M: int = plan_field("M", checks.only(contract.DECODE_M, _HEIGHT), default=contract.DECODE_M)
    enabled: bool = plan_field("enabled", checks.boolean)
    dirs: tuple[Directory, ...] = plan_field(
        "dirs", checks.list_of(_directory, "a list of directories that is not empty")
    )
    sealed_elf: str = plan_field("sealed_elf", checks.text, default="")


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """The kv section: element types of keys and values, and the per-head rotation (block 0: none)."""

    key: str = plan_field("key", checks.choice(*contract.KV_TYPES), default=contract.KV_DEFAULT)
    value: str = plan_field("value", checks.choice(*contract.KV_TYPES), default=contract.KV_DEFAULT)
    hadamard_block: int = plan_field(
        "hadamard.block", checks.power_of_two(contract.HADAMARD_MIN, contract.HADAMARD_MAX), default=0
    )
    hadamard_signs: str = plan_field("hadamard.signs", checks.bare_name, default="")


@dataclass(frozen=True, slots=True)
class BatchedExperts:
    """moe.batched_expert_gu: one gate and one up GEMM of K x N over all chosen experts."""

    enabled: bool = plan_field("enabled", checks.boolean)
    K: int = plan_field("K", checks.whole, default=0)
    N: int = plan_field("N", checks.whole, default=0)


@dataclass(frozen=True, slots=True)
class Projection:
    """One projection of a layer: its key in the plan, its geometry, and its `fused` flag (None where absent)."""

    key: str
    K: int = plan_field("K", checks.positive)
    N: int = plan_field("N", checks.positive)
    fused: bool | None = optional_field("fused", checks.boolean)


def _projection(reading: PlanReading, key: str, value: Value) -> Any:
    missing = [letter for letter in "KN" if letter not in value.table()]
    if missing:  # one rule for both, in the engine's words: naming only one of them is refused
        raise value.refuse("both K and N", "neither" if len(missing) == 2 else "only " + "KN".replace(missing[0], ""))
    return read_fields(Projection, reading, value, key=key)


def _role(reading: PlanReading, value: Value) -> str:
    role = value.text(empty=True)
    if reading.strict and role not in LAYER_ROLES:
        remedy = "the verbs that take roles=any let it through with a note"
        raise value.refuse("one of " + ", ".join(LAYER_ROLES), remedy=remedy)
    return role


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its role and its projections in the order of `contract.PLAN_PROJECTIONS`, which lists their keys."""

    index: int = plan_field("index", checks.whole)
    role: str = plan_field("role", _role)
    projections: tuple[Projection, ...] = ()

    def projection(self, key: str) -> Projection | None:
        """Return the projection of that key, or None."""
        return next((projection for projection in self.projections if projection.key == key), None)


def _layers(reading: PlanReading, value: Value) -> tuple[Layer, ...]:
    if not isinstance(value.raw, list):
        raise value.refuse("a list of layers")
    return tuple(_layer(reading, item) for item in value.items())


def _layer(reading: PlanReading, value: Value) -> Any:
    entry = value.table()
    projections = tuple(_projection(reading, key, entry[key]) for key in PROJECTION_KEYS if key in entry)
    return read_fields(Layer, reading, value, also=PROJECTION_KEYS, projections=projections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan that passed every rule of the loader.

    `notes` are things a reader should hear of: fields that were ignored, values outside a guessed table. `where` stands
    for the file in messages, as it was given; plans of two files are equal when they say the same.
    """

    format: str = plan_field("format", checks.choice(contract.PLAN_FORMAT))
    generated_by: str = plan_field(FREE_TEXT, checks.text, default="", compared=False)
    hidden: int = plan_field("model.hidden", checks.positive)
    layer_count: int = plan_field("model.layers", checks.positive)
    arch: str = plan_field("model.arch", checks.text, default="")
    layout: str = plan_field("container.layout", checks.choice(*contract.LAYOUTS))
    chunk_kind: str = plan_field(
        "container.chunk_kind", checks.known_or_noted(*(kind.name for kind in contract.CHUNK_KINDS)), default=""
    )
    pb16i: bool = plan_field("container.pb16i", checks.boolean, default=False)
    tile_order: str = plan_field(
        "container.tile_order", checks.choice(*contract.TILE_ORDERS), default=contract.TILE_ORDERS[0]
    )
    gate_up: str = plan_field("fusion.gate_up", checks.choice(*contract.GATE_UP))
    prefill_M: int = plan_field("prefill.M", checks.only(contract.PREFILL_M, _HEIGHT), default=contract.PREFILL_M)
    decode: Decode = plan_section("decode", Decode)
    tag: str = plan_field("kernels.tag", checks.choice(*contract.TAGS))
    attention_mode: str = plan_field("attention.mode", checks.choice(*contract.ATTENTION_MODES))
    kv: KeyValueCache = plan_section("kv", KeyValueCache, default={}, written=False)
    batched_experts: BatchedExperts = plan_section(
        "moe.batched_expert_gu", BatchedExperts, default={"enabled": False}, written=False
    )
    layers: tuple[Layer, ...] = plan_field("layers", _layers)
    notes: tuple[str, ...] = ()
    where: str = field(default=contract.PLAN_FILE, compare=False)


def read_plan(reading: PlanReading, value: Value) -> Plan:
    """Return the plan that a JSON value says, each field checked by itself; raises `Refused` naming the field."""
    plan: Plan = read_fields(Plan, reading, value, where=value.where)
    return plan

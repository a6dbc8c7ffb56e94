"""What a plan asks for: its projections turned into artifact names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.engine.legality import check_geometry, largest_columns, legal_columns
from elfkiln.errors import ElfkilnError, Refused, refusal
from elfkiln.models.plan.load import load_plan
from elfkiln.models.plan.schema import Directory, Layer, Plan, Projection
from elfkiln.models.published import published_columns
from elfkiln.models.requirement import Demand, Requirement, RequirementSet, Use, gather, prefill_and_twins
from elfkiln.models.role_table import ROLES_FILE, read_role_table

Columns = Mapping[tuple[str, int, int], int]
"""Array columns by role, K and N, for geometries that do not get the published or the largest legal count."""

_PARTNERS = (
    ("q_a", "q_b", True),
    ("q_b", "q_a", False),
    ("q_a", "kv_a", False),
    ("kv_a", "q_a", False),
    ("down", "gate_up", False),
    ("dense_gate_up", "dense_down", True),
    ("dense_down", "dense_gate_up", False),
    ("ple_gate", "ple_proj", True),
    ("ple_proj", "ple_gate", False),
)
"""A projection, one that has to stand in the same layer, and whether the N of the first is the K of the second."""


def folder_requirements(folder: Path, layout: str | None = None, *, strict: bool = True) -> RequirementSet:
    """Return what the plan.json of a model folder below plans/ asks for.

    `container.layout` decides the layout: another one asked for is `Refused`. Columns come from the rows of a
    roles.yaml beside the plan, for the geometries it lists. `strict` is that of `load_plan`.
    """
    plan = load_plan(folder, strict=strict)
    if layout not in (None, plan.layout):
        raise refusal(
            f"{folder.name}: layout",
            expected=f"{plan.layout}, as container.layout of its plan says",
            found=layout,
            remedy="leave layout= out",
        )
    return plan_requirements(plan, folder.name, folder_columns(folder))


def folder_columns(folder: Path) -> Columns:
    """Return the columns that the roles.yaml of a folder records, none where there is no such file."""
    table = folder / ROLES_FILE
    return {(row.role, row.K, row.N): row.columns for row in read_role_table(table).rows} if table.is_file() else {}


def plan_requirements(plan: Plan, model: str, columns: Columns | None = None) -> RequirementSet:
    """Return what the engine asks for under a plan: prefill set, then twins, then the sealed ELF.

    The M=128 set lies under `kernels`. With decode enabled every geometry also needs its M=16 twin, in the first
    directory of decode.dirs; a sealed ELF comes on top and carries the same geometries (the engine's text names both;
    it says nowhere that a sealed ELF replaces the twins). Columns default to the published count of the geometry,
    else the largest legal one: the role tables' own rule, so that a name is one design whoever asks for it.

    Raises `Refused` naming the layer and projection for a geometry that contradicts the model's hidden size, a
    gate_up.N that is neither down.K nor its double, an attention output whose K is not attn_gate.N, a layer whose
    attention output does not show, more layers or designs than the engine holds, and a geometry no design can be
    built for.
    """
    if len(plan.layers) > contract.MAX_LAYERS:
        expected = f"at most {contract.MAX_LAYERS} (Q4NX_MAX_LAYERS)"
        raise refusal(f"{plan.where}: model.layers", expected=expected, found=len(plan.layers))
    chosen = columns or {}
    demands = gather(
        Demand(role, K, N, _columns(plan, chosen, role, K, N, use), (use,)) for role, K, N, use in _geometries(plan)
    )
    designs = len(demands)
    if not designs:
        raise refusal(f"{plan.where}: layers", expected="at least one projection", found="none in any layer")
    if designs > contract.MAX_DESIGNS:
        expected = f"at most {contract.MAX_DESIGNS} designs (Q4NX_MAX_DESIGNS)"
        raise refusal(f"{plan.where}: layers", expected=expected, found=f"{designs} geometries")
    twin_directory = _below_model(plan.decode.dirs[0])
    requirements = prefill_and_twins(demands, plan.tag, decode=plan.decode.enabled, twin_directory=twin_directory)
    if plan.decode.enabled and plan.decode.sealed_elf:
        requirements = (*requirements, _sealed(plan, demands))
    return RequirementSet(model, plan.layout, requirements)


def mlp_width(gate_up_N: int, down_K: int) -> int | None:
    """Return the MLP width that gate_up.N and down.K stand for, or None when they contradict each other.

    A plan may write gate_up.N as IM or as 2*IM; down.K is always IM.

    >>> mlp_width(17408, 17408), mlp_width(34816, 17408), mlp_width(18176, 18304)
    (17408, 17408, None)
    """
    return down_K if gate_up_N in (down_K, 2 * down_K) else None


def _below_model(directory: Directory) -> str:
    """Return the folder, below the model folder, where an artifact of a decode directory is installed."""
    root = "" if directory.root == "model" else contract.PREFILL_DIRECTORY
    return str(PurePosixPath(root) / directory.path)


def _columns(plan: Plan, columns: Columns, role: str, K: int, N: int, use: Use) -> int:
    chosen = columns.get((role, K, N)) or published_columns(role, K, N)
    where = f"{plan.where}: {_field_of(plan, use)}"
    check_geometry(where, K, N, chosen, joint=".")
    return largest_columns(where, N, joint=".") if chosen is None else chosen


def _field_of(plan: Plan, use: Use) -> str:
    """Return the field of the plan that a use stands for, in words where the plan has none."""
    if use.layer is None:
        return use.projection
    field = f"layers[{use.layer}].{use.projection}"
    written = plan.layers[use.layer].projection(use.projection) is not None
    return field if written else f"{field} (derived from attn_gate and model.hidden)"


def _geometries(plan: Plan) -> Iterator[tuple[str, int, int, Use]]:
    """Yield role, K, N and use for every GEMM a plan runs: by projection and role first, then by layer."""
    per_layer = [list(_layer_geometries(plan, layer)) for layer in plan.layers]
    for row in contract.PLAN_PROJECTIONS:
        roles = dict.fromkeys((*row.split, *row.fused))
        for role in roles:
            for geometries in per_layer:
                yield from (item for item in geometries if item[3].projection == row.key and item[0] == role)
    batched = plan.batched_experts
    if batched.enabled:
        if plan.hidden != batched.K:
            where = f"{plan.where}: moe.batched_expert_gu.K"
            raise refusal(where, expected=f"model.hidden = {plan.hidden}", found=batched.K)
        experts = sum(layer.projection("gate_up") is not None for layer in plan.layers)
        use = Use("moe.batched_expert_gu", "expert", count=experts)
        yield from ((role, batched.K, batched.N, use) for role in ("G", "U"))


def _layer_geometries(plan: Plan, layer: Layer) -> Iterator[tuple[str, int, int, Use]]:
    _check_partners(plan, layer)
    gate = layer.projection("attn_gate")
    for row in contract.PLAN_PROJECTIONS:
        projection = layer.projection(row.key)
        if projection is None:
            continue
        use = Use(row.key, layer.role, layer.index)
        _check_hidden(plan, layer, row, projection)
        roles = row.fused if plan.gate_up == contract.GATE_UP_FUSED else row.split
        N = projection.N
        if row.key == "gate_up":
            N = _gate_up_width(plan, layer, projection) * (2 if len(roles) == 1 else 1)
        elif projection.fused is False and row.key == "qkv":
            expected = "true: no artifact name stands for separate q, k and v"
            raise _refuse(plan, layer, "qkv.fused", expected=expected, found="false")
        elif gate is not None and row.key in ("o", "ssm_out") and projection.K != gate.N:
            raise _refuse(plan, layer, f"{row.key}.K", expected=f"attn_gate.N = {gate.N}", found=projection.K)
        yield from ((role, projection.K, N, use) for role in roles)
    derived = _derived_output(plan, layer)
    if derived is not None:
        yield "O", derived.K, derived.N, Use("o", layer.role, layer.index)


def _check_partners(plan: Plan, layer: Layer) -> None:
    """Refuse a projection without the one that feeds it or that it feeds, and a pair that is not of one width.

    gate_up and down are held against each other where gate_up.N is read, since a plan may write that in two ways.
    """
    for key, other, feeds in _PARTNERS:
        projection, partner = layer.projection(key), layer.projection(other)
        if projection is None:
            continue
        if partner is None:
            raise _refuse(plan, layer, other, expected=f"its K and N, as the layer has {key}", found="nothing")
        if feeds and projection.N != partner.K:
            expected = f"{other}.K = {partner.K}"
            raise _refuse(plan, layer, f"{key}.N", expected=expected, found=projection.N)


def _derived_output(plan: Plan, layer: Layer) -> Projection | None:
    """Return the attention output of a layer that names none: a gated one gives it, K = attn_gate.N, N = hidden."""
    if layer.projection("o") or layer.projection("ssm_out"):
        return None
    gate = layer.projection("attn_gate")
    if gate is not None:
        return Projection("o", gate.N, plan.hidden)
    if layer.projection("qkv") or layer.projection("q_b"):
        expected = "o, ssm_out or attn_gate, to tell the attention output"
        raise _refuse(plan, layer, "", expected=expected, found="none of them")
    return None


def _check_hidden(plan: Plan, layer: Layer, row: contract.PlanProjection, projection: Projection) -> None:
    for letter, is_hidden, value in (
        ("K", row.input_hidden, projection.K),
        ("N", row.output_hidden, projection.N),
    ):
        if is_hidden and value != plan.hidden:
            raise _refuse(plan, layer, f"{row.key}.{letter}", expected=f"model.hidden = {plan.hidden}", found=value)


def _gate_up_width(plan: Plan, layer: Layer, gate_up: Projection) -> int:
    down = layer.projection("down")
    if down is None:
        raise _refuse(plan, layer, "down", expected="its K, to read gate_up.N against", found="no down")
    width = mlp_width(gate_up.N, down.K)
    if width is None:
        expected = f"down.K = {down.K} or its double {2 * down.K}"
        raise _refuse(plan, layer, "gate_up.N", expected=expected, found=gate_up.N)
    fused = plan.gate_up == contract.GATE_UP_FUSED
    if gate_up.fused not in (None, fused):
        expected = f"{str(fused).lower()}, as fusion.gate_up is {plan.gate_up}"
        raise _refuse(plan, layer, "gate_up.fused", expected=expected, found=str(gate_up.fused).lower())
    return width


def _refuse(plan: Plan, layer: Layer, field: str, *, expected: object, found: object) -> ElfkilnError:
    name = f"layers[{layer.index}]" + (f".{field}" if field else "")
    return refusal(f"{plan.where}: {name}", expected=expected, found=found)


def _sealed(plan: Plan, demands: tuple[Demand, ...]) -> Requirement:
    """Return the sealed ELF's requirement: every decode geometry once, on the most columns that serve them all."""
    file_name, where = plan.decode.sealed_elf, f"{plan.where}: decode.sealed_elf"
    if _is_artifact_name(file_name):
        remedy = "the registry could not tell it from that GEMM"
        raise refusal(where, expected="a name of its own", found=repr(file_name), remedy=remedy)
    geometries = tuple(sorted({(demand.K, demand.N) for demand in demands}))
    shared = set.intersection(*(set(legal_columns(N)) for _, N in geometries))
    if not shared:
        raise refusal(
            where,
            expected="geometries that share a legal column count, as one array configuration serves all",
            found=", ".join(f"{K}x{N}" for K, N in geometries),
        )
    uses = tuple(use for demand in demands for use in demand.uses)
    return Requirement(file_name, contract.SEALED_DIRECTORY, None, max(shared), None, uses, geometries)


def _is_artifact_name(text: str) -> bool:
    try:
        ArtifactName.parse(text)
    except Refused:
        return False
    return True

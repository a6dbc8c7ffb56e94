"""Reads plan.json (schema 1bit-npu-plan/1) and refuses what the engine would, naming field, expectation and finding.

`schema` lists the fields and checks each by itself. Here stand the rules between fields, and the files around the plan.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import bare_elf_name
from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import read_strict_json, shown
from elfkiln.models.plan.field_checks import MAX_NOTED, PlanReading
from elfkiln.models.plan.schema import LAYER_ROLES, Plan, read_plan

MAX_PLAN_BYTES = 1024 * 1024
"""A plan of 64 layers has some 20 KB; what is fifty times longer is not a plan, and would only cost memory."""
MAX_DECISION_BYTES = 1024 * 1024


def plan_file(path: Path) -> Path:
    """Return the plan.json that `path` means: itself, or the one in that folder (a folder of that very name is none).

    >>> plan_file(Path("/nowhere/plan.json")).name
    'plan.json'
    """
    try:
        return path / contract.PLAN_FILE if path.is_dir() and path.name != contract.PLAN_FILE else path
    except (OSError, ValueError) as error:
        raise Refused(f"{brief(path)}: {getattr(error, 'strerror', None) or error}") from error


def load_plan(path: Path, *, strict: bool = True) -> Plan:
    """Read a plan.json, or the one in a model folder; raises `Refused` for whatever breaks a rule.

    With `strict` off, a layer role outside the (partly guessed) table is let through with a note instead. Where a
    decision_config.json lies beside the plan, its attention mode must agree.
    """
    file = plan_file(path)
    plan = parse_plan(read_strict_json(file, limit=MAX_PLAN_BYTES), brief(file, 4096), strict=strict)
    _check_decision(file.parent / contract.DECISION_FILE, plan)
    return plan


def parse_plan(value: Any, where: str = contract.PLAN_FILE, *, strict: bool = True) -> Plan:
    """Check a parsed plan and return it; `where` stands for the file in messages."""
    reading, file = PlanReading(strict), Value(value, where)
    plan = read_plan(reading, file)
    # A rule between fields may take its fields as sound: each was checked before. The order is that of the file, so
    # that the first fault a person meets when reading is the one that is named; only the family comes first, since a
    # plan of another family breaks most of what follows.
    _check_family(plan)
    _check_decode(plan)
    _check_rotation(plan)
    _check_batched_experts(plan)
    _check_layers(plan)
    return replace(plan, notes=(*reading.finish(where), *_unknown_roles(plan)))


def require_target(plan: Plan, capabilities: contract.Capabilities) -> None:
    """Refuse a plan that asks of a target what its capabilities do not have, naming the fields and the capability.

    This is not the loader's business: a plan with an int8 cache is sound, and other verbs (diff, plan) take it. Only
    what builds for a target or checks one asks here.
    """
    if contract.KV_INT8 in (plan.kv.key, plan.kv.value) and not capabilities.int8_kv:
        raise refusal(
            f"{plan.where}: kv.key={plan.kv.key}, kv.value={plan.kv.value}",
            expected=f"{contract.KV_DEFAULT} for both, as target {capabilities.target} has int8_kv=false",
            found=contract.KV_INT8,
            remedy="use a target with int8_kv, or plan the f16 cache",
        )


def decision_mode(path: Path) -> Any:
    """Return attention_mode of a decision_config.json; None where there is no such file, or it does not say.

    Raises `Refused` for a file that is not a JSON object.
    """
    if not os.path.lexists(path):
        return None
    value = read_strict_json(path, limit=MAX_DECISION_BYTES)
    if not isinstance(value, dict):
        raise refusal(brief(path, 4096), expected="an object", found=shown(value))
    return value.get(contract.DECISION_KEY)


def _refuse(plan: Plan, field: str, expected: str, found: object) -> Refused:
    return Value(found, plan.where, field).refuse(expected)


def _check_family(plan: Plan) -> None:
    """Hold tag, layout and pb16i against the table of families.

    The three say one thing three times over. The engine takes the tag into every file name and the layout into how it
    packs weights: kernels of one family on weights of another run, and compute nonsense. So a plan that contradicts
    itself is refused rather than read by whichever field comes first.
    """
    family = next(family for family in contract.FAMILIES if family.tag == plan.tag)
    if family.layout != plan.layout:
        tags = ", ".join(repr(family.tag) for family in contract.FAMILIES if family.layout == plan.layout)
        expected = f"a tag of container.layout {plan.layout} ({tags})"
        raise _refuse(plan, "kernels.tag", expected, plan.tag)
    if family.pb16i != plan.pb16i:
        expected = f"{shown(family.pb16i)}, as kernels.tag is {plan.tag!r}"
        raise _refuse(plan, "container.pb16i", expected, plan.pb16i)


def _check_decode(plan: Plan) -> None:
    """Hold the sealed ELF against the family and decode.enabled.

    Only the tag _pb16i needs one: the t2s families may have one (their container is flagged pb16i too), and with
    decode off nothing would ever open it. Its name is held to more than the engine asks (bare, ending in .elf): the
    file lies in the model folder, where `install` writes it, and a name like model.q4nx would cost the model.
    """
    name, sealed = "decode.sealed_elf", plan.decode.sealed_elf
    if sealed and not plan.pb16i:
        raise _refuse(plan, name, "nothing, as the container is not pb16i", sealed)
    if plan.decode.enabled and plan.tag == contract.SEALED_TAG and not sealed:
        expected = f"a file name, as decode of tag {plan.tag} needs a sealed ELF"
        raise _refuse(plan, name, expected, sealed)
    if sealed:
        bare_elf_name(sealed, f"{plan.where}: {name}")


def _check_rotation(plan: Plan) -> None:
    """Refuse signs without a rotation: the engine would drop them, and the cache would not be what was planned."""
    if plan.kv.hadamard_signs and not plan.kv.hadamard_block:
        expected = "nothing, as kv.hadamard.block is 0"
        raise _refuse(plan, "kv.hadamard.signs", expected, plan.kv.hadamard_signs)


def _check_batched_experts(plan: Plan) -> None:
    """Refuse an enabled pair without a size. One that is off may say anything: nothing reads it."""
    pair = plan.batched_experts
    for letter, value in (("K", pair.K), ("N", pair.N)):
        if pair.enabled and not value:
            expected = "a positive whole number, as enabled is true"
            raise _refuse(plan, f"moe.batched_expert_gu.{letter}", expected, value)


def _check_layers(plan: Plan) -> None:
    """Hold the layers against their count and order.

    The engine indexes its own arrays by position. A list in another order would run, each layer with the kernels of
    another one, so `index` is there to be compared and not to be sorted by.
    """
    if len(plan.layers) != plan.layer_count:
        expected = f"{plan.layer_count} layers, as model.layers says"
        raise _refuse(plan, "layers", expected, len(plan.layers))
    for index, layer in enumerate(plan.layers):
        if layer.index != index:
            expected = f"{index} (contiguous, in order)"
            raise _refuse(plan, f"layers[{index}].index", expected, layer.index)


def _unknown_roles(plan: Plan) -> Iterator[str]:
    """Yield a note for each role that is not known, at its first layer: only a plan read with `strict` off has some.

    Three of the four names are guesses, and a model of 64 layers of one other name should not print 64 lines.
    """
    unknown = [layer for layer in plan.layers if layer.role not in LAYER_ROLES]
    counts = Counter(layer.role for layer in unknown)
    first = {layer.role: layer.index for layer in reversed(unknown)}
    for role, count in list(counts.items())[:MAX_NOTED]:
        also = f"; {count - 1} more layer{'s have' if count > 2 else ' has'} it" if count > 1 else ""
        known = ", ".join(LAYER_ROLES)
        yield f"layers[{first[role]}].role: {brief(repr(role), 60)} is not one of {known}{also}"
    if len(counts) > MAX_NOTED:
        yield f"layers[].role: {len(counts) - MAX_NOTED} more roles that are not known"


def _check_decision(path: Path, plan: Plan) -> None:
    """Hold attention.mode against decision_config.json, which the engine reads too and which wins nowhere.

    A folder, a dangling link or a broken file under that name is refused as well: the engine reads it before it runs.
    """
    mode = decision_mode(path)
    if mode is not None and mode != plan.attention_mode:
        raise refusal(
            f"{plan.where}: attention.mode",
            expected=f"{shown(mode)}, as {contract.DECISION_FILE} says",
            found=plan.attention_mode,
        )

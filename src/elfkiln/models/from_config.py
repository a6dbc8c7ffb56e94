"""Makes a role table from a config.json alone, for a model without a container: each geometry with its derivation."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName, checked_model_name
from elfkiln.engine.legality import largest_columns
from elfkiln.errors import refusal
from elfkiln.io.strict_json import read_strict_json, shown
from elfkiln.io.strict_yaml import parse_strict_yaml
from elfkiln.models.architectures import Architecture, known_architecture
from elfkiln.models.config import MAX_CONFIG_BYTES, Dimensions, dimensions_of, text_part
from elfkiln.models.derive import Design, derive_designs, geometry_faults
from elfkiln.models.published import published_columns
from elfkiln.models.role_table import ROLES_FILE, SCHEMA, RoleRow, RoleTable, checked_layout, parse_role_table

_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+|\.{2,}")
_SHARED_EXPERTS = ("shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What config.json cannot tell: the model's name, a layout, whether the engine runs twins.

    `model` is "" where the folder's name is taken.
    """

    model: str = ""
    layout: str | None = None
    decode: bool = True


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """A role table as derived, its text as a file has it, and what to tell the user."""

    table: RoleTable
    text: str
    notes: tuple[str, ...]


def table_from_config(path: Path, options: TableOptions | None = None) -> DerivedTable:
    """Return the role table of the model whose config.json, or folder with one, is at `path`.

    Raises `Refused` for an architecture the engine does not know, a feature of it that it does not run, a key that
    cannot be used, a geometry no design can be built for, and more layers or designs than the engine holds.
    """
    options = options or TableOptions()
    file = path / contract.CONFIG_FILE if path.is_dir() else path
    notes: list[str] = []
    where = file.name
    read = read_strict_json(file, limit=MAX_CONFIG_BYTES, non_finite=True)
    given = text_part(read, where, notes)
    architecture = known_architecture(given, where)
    values = _with_defaults(given, architecture, where, notes)
    dims = dimensions_of(_with_layer_types(values, where, notes), where, notes)
    _check(dims, values, where, read, notes)
    model = options.model or _NOT_IN_NAMES.sub("-", file.resolve().parent.name.lower()).strip("-.")[:64]
    table = RoleTable(
        checked_model_name(model),
        f"derived from {where}: {_dimensions_text(dims, architecture)}",
        dims.hidden,
        dims.experts.width if dims.experts else dims.intermediate,
        dict(Counter(_kinds(dims))),
        checked_layout("layout", options.layout or dims.layout),
        options.decode,
        tuple(_rows(dims, where)),
    )
    text = table_text(table)
    # What is printed has to be what the reader of role tables takes, rules and all.
    parse_role_table(parse_strict_yaml(text, ROLES_FILE), ROLES_FILE, table.model)
    return DerivedTable(table, text, tuple(dict.fromkeys((*notes, *dims.notes))))


def table_text(table: RoleTable) -> str:
    """Return a role table as the text of its file."""
    source = textwrap.wrap(table.source, 100, initial_indent="  ", subsequent_indent="  ")
    kinds = ", ".join(f"{kind}: {count}" for kind, count in table.layers.items())
    lines = [
        f"schema: {SCHEMA}",
        f"model: {table.model}",
        "source: >-",
        *source,
        f"hidden: {table.hidden}",
        f"intermediate: {table.intermediate}",
        f"layers: {{{kinds}}}",
        f"layout: {table.layout}",
        f"decode: {'true' if table.decode else 'false'}",
        "rows:",
    ]
    for row in table.rows:
        own = "" if row.kinds == tuple(table.layers) else f"layers: [{', '.join(row.kinds)}], "
        geometry = f"role: {row.role}, K: {row.K}, N: {row.N}, columns: {row.columns}"
        lines.append(f'  - {{{geometry}, {own}note: "{row.note}"}}')
    return "\n".join(lines) + "\n"


def table_data(table: RoleTable) -> dict[str, Any]:
    """Return what of a role table decides names, as JSON data: all but its notes and its source."""
    return {
        "model": table.model,
        "hidden": table.hidden,
        "intermediate": table.intermediate,
        "layers": dict(table.layers),
        "layout": table.layout,
        "decode": table.decode,
        "rows": {
            f"{row.role} {row.K}x{row.N}": {"columns": row.columns, "layers": list(row.kinds)} for row in table.rows
        },
    }


def _with_defaults(
    given: Mapping[str, Any], architecture: Architecture, where: str, notes: list[str]
) -> Mapping[str, Any]:
    """Return the keys with those that the architecture's class fills in, each noted."""
    absent = {key: value for key, value in architecture.defaults.items() if given.get(key) is None}
    for key, value in absent.items():
        notes.append(f"{where}: no {key}; the class of {architecture.model_type} has {shown(value)}")
    return {**given, **absent}


def _with_layer_types(values: Mapping[str, Any], where: str, notes: list[str]) -> Mapping[str, Any]:
    """Return the keys with layer_types and the count of leading dense layers, where other keys give them."""
    values = dict(values)
    kinds = values.get("mlp_layer_types")
    if kinds is not None:
        leading = kinds.count("dense") if isinstance(kinds, list) else -1
        if leading < 0 or kinds != ["dense"] * leading + ["sparse"] * (len(kinds) - leading):
            expected = "dense layers, then sparse ones: the engine runs experts in every layer but leading ones"
            raise refusal(f"{where}: mlp_layer_types", expected=expected, found=shown(kinds))
        values.setdefault("leading_dense_block_count", leading)
    interval, layers = values.get("full_attention_interval"), values.get("num_hidden_layers")
    if interval is None or values.get("layer_types") is not None:
        return values
    if isinstance(interval, bool) or not isinstance(interval, int) or not 1 <= interval <= contract.MAX_LAYERS:
        expected = f"a whole number of 1 to {contract.MAX_LAYERS}"
        raise refusal(f"{where}: full_attention_interval", expected=expected, found=shown(interval))
    if isinstance(layers, int) and 0 < layers <= contract.MAX_LAYERS:
        types = ["full_attention" if (index + 1) % interval == 0 else "linear_attention" for index in range(layers)]
        notes.append(f"{where}: layer_types derived from full_attention_interval = {interval}")
        values["layer_types"] = types
    return values


def _check(dims: Dimensions, values: Mapping[str, Any], where: str, read: Any, notes: list[str]) -> None:
    """Refuse what the engine would refuse or not hold; note what of the model the table leaves out."""
    if dims.layers > contract.MAX_LAYERS:
        expected = f"at most {contract.MAX_LAYERS} (Q4NX_MAX_LAYERS)"
        raise refusal(f"{where}: num_hidden_layers", expected=expected, found=dims.layers)
    for index, kind in enumerate(dims.layer_types):
        if contract.layer_type_role(kind) is None:
            raise refusal(f"{where}: layer_types[{index}]", expected="a kind the engine knows", found=shown(kind))
    query = dims.heads * dims.head_dim
    if dims.linear_key and dims.mla is None and dims.linear_value != query:
        expected = f"num_attention_heads*head_dim = {query}, since GDN's output runs through design O"
        raise refusal(
            f"{where}: linear_num_value_heads*linear_value_head_dim", expected=expected, found=dims.linear_value
        )
    if dims.leading_dense and dims.mla is None:
        expected = "none, as only latent attention has dense layers before its experts"
        raise refusal(f"{where}: leading_dense_block_count", expected=expected, found=dims.leading_dense)
    if dims.leading_dense > dims.layers:
        expected = f"at most num_hidden_layers = {dims.layers}"
        raise refusal(f"{where}: leading_dense_block_count", expected=expected, found=dims.leading_dense)
    if dims.has_second_width and not dims.layer_types:
        widths = f"global_head_dim = {dims.global_head_dim} is not head_dim = {dims.head_dim}"
        raise refusal(f"{where}: layer_types", expected=f"the kind of each layer, as {widths}", found="nothing")
    shared = (key for key in _SHARED_EXPERTS if values.get(key))
    notes += [f"{where}: {key} = {shown(values[key])}; shared experts have no design of their own" for key in shared]
    towers = [key for key in ("vision_config", "audio_config") if isinstance(read, dict) and read.get(key)]
    if towers:
        notes.append(f"{where}: {' and '.join(towers)} left out: the table is the text model's")


def _kinds(dims: Dimensions) -> Iterator[str]:
    """Yield the kind of each layer: what tells its geometry from another's."""
    for index in range(dims.layers):
        if dims.mla:
            yield "dense" if index < dims.leading_dense else ("moe" if dims.experts else "mla")
            continue
        role = contract.layer_type_role(dims.layer_types[index]) if dims.layer_types else None
        attention = role or ("moe" if dims.experts else "full")
        wide = dims.double_wide and index >= dims.layers - dims.kv_shared_layers
        yield f"{attention}_wide" if wide else attention


def _runs(design: Design, kind: str, dims: Dimensions) -> bool:
    """Return whether a layer of a kind runs a design."""
    attention, wide = kind.removesuffix("_wide"), kind.endswith("_wide")
    second = dims.has_second_width and attention != "sliding" and attention != "gdn"
    role = design.role
    if role in ("QKV", "O"):
        return not second and (role == "O" or attention != "gdn")
    if role in ("QKV2", "O2"):
        return second
    if role in ("QKVLIN", "Z"):
        return attention == "gdn"
    if role in ("GU2", "D2"):
        return wide
    if role in ("G", "U", "GU", "D"):
        return not wide and attention != "dense"
    if role in ("DG", "DU", "DD"):
        return attention == "dense"
    return True


def _rows(dims: Dimensions, where: str) -> Iterator[RoleRow]:
    """Yield a row for each geometry that some layer runs, those of one role and geometry as one."""
    designs = derive_designs(dims, fused=dims.fused_by_default)
    kinds = tuple(dict.fromkeys(_kinds(dims)))
    rows: dict[tuple[str, int, int], RoleRow] = {}
    for design in designs:
        runs = tuple(kind for kind in kinds if _runs(design, kind, dims))
        if not runs:
            continue
        for fault in geometry_faults((design,)):
            raise refusal(
                where, expected="geometry with whole tiles", found=fault, remedy="no design can be built for it"
            )
        columns = published_columns(design.elf_role, design.K, design.N)
        source = "columns published" if columns else "columns derived"
        ArtifactName(design.elf_role, design.K, design.N, contract.LONGEST_TAG, m16=True)
        key = (design.elf_role, design.K, design.N)
        row = RoleRow(*key, columns or largest_columns(where, design.N), f"{design.derivation}; {source}", runs)
        other = rows.get(key)
        if other is not None:
            both = tuple(kind for kind in kinds if kind in (*other.kinds, *runs))
            row = replace(row, kinds=both, note=f"{other.note.rpartition('; ')[0]}; {row.note}")
        rows[key] = row
    if len(rows) > contract.MAX_DESIGNS:
        expected = f"at most {contract.MAX_DESIGNS} designs (Q4NX_MAX_DESIGNS)"
        raise refusal(where, expected=expected, found=f"{len(rows)} geometries")
    yield from rows.values()


def _dimensions_text(dims: Dimensions, architecture: Architecture) -> str:
    """Return the dimensions in words, for the table's source."""
    parts = [f"model_type {architecture.model_type}", f"hidden {dims.hidden}", f"{dims.layers} layers"]
    if dims.mla:
        mla = dims.mla
        parts.append(f"{dims.heads} heads, q_lora {mla.q_lora}, kv_lora {mla.kv_lora}, rope {mla.rope}")
        parts.append(f"nope {mla.nope}, v_head {mla.value_head}")
    else:
        parts.append(f"{dims.heads} heads and {dims.kv_heads} KV heads of {dims.head_dim}")
    if dims.experts:
        parts.append(f"{dims.experts.count} experts of width {dims.experts.width}, {dims.experts.top_k} a token")
    if dims.intermediate:
        parts.append(f"MLP {dims.intermediate}")
    if not dims.must_split:
        rule = "<=" if dims.fused_by_default else ">"
        fused = "fused" if dims.fused_by_default else "split"
        parts.append(f"gate and up {fused} as 2*{dims.intermediate} {rule} {contract.FUSED_MAX_N}")
    return f"{', '.join(parts)}. Known by {architecture.known_by}"

"""Role tables: a model's GEMM geometries written by hand (`plans/<model>/roles.yaml`, schema elfkiln-roles/1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName, checked_model_name
from elfkiln.engine.legality import check_geometry
from elfkiln.errors import one_of, refusal
from elfkiln.io.checked import YAML, Value
from elfkiln.io.strict_yaml import Field, read_strict_yaml
from elfkiln.models.requirement import Demand, RequirementSet, Use, prefill_and_twins

ROLES_FILE = "roles.yaml"
SCHEMA = "elfkiln-roles/1"
MAX_LAYERS_OF_A_KIND = 1024
MAX_NUMBER = 10**9 - 1

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_TABLE_KEYS = ("schema", "model", "source", "hidden", "intermediate", "layers", "layout", "decode", "rows")
_ROW_KEYS = ("role", "K", "N", "columns", "note", "layers")
_ROW_OPTIONAL = ("note", "layers")

# What a role's K and N must be: "hidden", "intermediate" (or its double, for a double-wide MLP), or anything.
_SHAPES: Mapping[str, tuple[str, str]] = {
    "QKV": ("hidden", "any"),
    "Z": ("hidden", "any"),
    "QA": ("hidden", "any"),
    "KVA": ("hidden", "any"),
    "PLEGATE": ("hidden", "any"),
    "O": ("any", "hidden"),
    "PLEPROJ": ("any", "hidden"),
    "G": ("hidden", "intermediate"),
    "U": ("hidden", "intermediate"),
    "GU": ("hidden", "2*intermediate"),
    "D": ("intermediate", "hidden"),
    "DG": ("hidden", "any"),
    "DU": ("hidden", "any"),
    "DD": ("any", "hidden"),
}


@dataclass(frozen=True, slots=True)
class RoleRow:
    """One geometry of a table; `kinds` are the kinds of layer that run it (none: only older containers ask for it)."""

    role: str
    K: int
    N: int
    columns: int
    note: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoleTable:
    """A role table: `layers` maps a kind of layer to how many the model has."""

    model: str
    source: str
    hidden: int
    intermediate: int
    layers: Mapping[str, int]
    layout: str
    decode: bool
    rows: tuple[RoleRow, ...]

    def requirements(self, layout: str | None = None) -> RequirementSet:
        """Return the artifacts the engine asks for, in the table's layout or another a config can declare.

        Raises `Refused` for any other layout: pb16i and t2s come only with a plan.
        """
        chosen = self.layout if layout is None else checked_layout(f"{self.model}: layout", layout)
        demands = (Demand(row.role, row.K, row.N, row.columns, self._uses(row)) for row in self.rows)
        tag = contract.tag_of_layout(chosen)
        return RequirementSet(self.model, chosen, prefill_and_twins(demands, tag, decode=self.decode))

    def _uses(self, row: RoleRow) -> tuple[Use, ...]:
        return tuple(Use(row.role, kind, count=self.layers[kind]) for kind in row.kinds)


def checked_layout(what: str, layout: str) -> str:
    """Return a layout a model without a plan can be in; raises `Refused` for another."""
    if layout not in contract.CONFIG_LAYOUTS:
        known = layout in contract.LAYOUTS
        raise refusal(
            what,
            expected=one_of(layout, contract.CONFIG_LAYOUTS),
            found=layout,
            remedy="this layout needs a plan.json" if known else "",
        )
    return layout


def read_role_table(path: Path) -> RoleTable:
    """Read and check a role table; raises `Refused` naming file, line and field.

    Refused: anything `read_strict_yaml` refuses, unknown, missing or wrongly typed keys, a model that is not the
    folder's name, unknown roles and layouts, a geometry no design can be built for, one that contradicts `hidden` or
    `intermediate`, and one listed twice.
    """
    return parse_role_table(read_strict_yaml(path), path.name, path.parent.name)


def parse_role_table(top: Field, where: str, folder: str) -> RoleTable:
    """Check a parsed role table; `where` and `folder` are the names of its file and folder."""
    table = Value(top, where, words=YAML).table(_TABLE_KEYS)
    table["schema"].choice((SCHEMA,))
    model = checked_model_name(table["model"].text())
    if model != folder:
        raise table["model"].refuse(f"the folder's name {folder}", model)
    hidden, intermediate = _number(table["hidden"]), _number(table["intermediate"])
    layers = _layer_counts(table["layers"])
    rows: dict[tuple[str, int, int], tuple[int, RoleRow]] = {}
    for index, value in enumerate(table["rows"].items(least=1)):
        row = _row(value, layers, hidden, intermediate)
        first, _ = rows.setdefault((row.role, row.K, row.N), (index, row))
        if first != index:
            raise value.refuse("each geometry once", f"{row.role} {row.K}x{row.N} again (rows[{first}])")
    return RoleTable(
        model,
        table["source"].text(),
        hidden,
        intermediate,
        layers,
        checked_layout(table["layout"].place, table["layout"].text()),
        table["decode"].boolean(),
        tuple(row for _, row in rows.values()),
    )


def _number(value: Value) -> int:
    return value.whole(1, MAX_NUMBER)


def _layer_counts(value: Value) -> dict[str, int]:
    entries = value.table()
    if not entries:
        raise value.refuse("a mapping of layer kinds to counts")
    for kind, count in entries.items():
        if _KIND.fullmatch(kind) is None:
            raise count.refuse("a lower-case word as kind", repr(kind))
    return {kind: count.whole(1, MAX_LAYERS_OF_A_KIND) for kind, count in entries.items()}


def _row(value: Value, layers: Mapping[str, int], hidden: int, intermediate: int) -> RoleRow:
    entries = value.table(_ROW_KEYS, _ROW_OPTIONAL)
    role = entries["role"].choice(contract.ELF_ROLES)
    K, N, columns = (_number(entries[key]) for key in ("K", "N", "columns"))
    check_geometry(f"{value.place} {role}", K, N, columns)
    ArtifactName(role, K, N, contract.LONGEST_TAG, m16=True)  # the longest name must fit the engine's buffer
    for letter, rule, found in zip("KN", _SHAPES.get(role, ("any", "any")), (K, N), strict=True):
        allowed = {
            "any": (found,),
            "hidden": (hidden,),
            "intermediate": (intermediate, 2 * intermediate),
            "2*intermediate": (2 * intermediate, 4 * intermediate),
        }[rule]
        if found not in allowed:
            expected = f"{rule} = {allowed[0]}" + (f" (double-wide: {allowed[1]})" if len(allowed) > 1 else "")
            raise refusal(f"{entries[letter].place} of {role}", expected=expected, found=found)
    kinds = tuple(layers)
    if "layers" in entries:
        listed = entries["layers"].items()
        kinds = tuple(item.text() for item in listed)
        for kind, item in zip(kinds, listed, strict=True):
            if kind not in layers or kinds.count(kind) > 1:
                raise item.refuse("each a kind of " + " ".join(layers) + ", once", repr(kind))
    note = entries["note"].text() if "note" in entries else ""
    return RoleRow(role, K, N, columns, note, kinds)

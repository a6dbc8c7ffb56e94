"""Role tables: a model's GEMM geometries written by hand (`plans/<model>/roles.yaml`, schema elfkiln-roles/1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName, checked_model_name
from elfkiln.engine.legality import check_geometry
from elfkiln.errors import brief, refusal
from elfkiln.io.strict_yaml import Field, read_strict_yaml
from elfkiln.models.requirement import Demand, RequirementSet, Use, prefill_and_twins

ROLES_FILE = "roles.yaml"
SCHEMA = "elfkiln-roles/1"
MAX_LAYERS_OF_A_KIND = 1024

_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
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
            expected="one of " + ", ".join(contract.CONFIG_LAYOUTS),
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
    table = _Reader(where)
    entries = table.mapping("the table", top, _TABLE_KEYS, ())
    table.exactly("schema", entries["schema"], SCHEMA)
    model = checked_model_name(table.text("model", entries["model"]))
    if model != folder:
        raise table.refuse("model", entries["model"], expected=f"the folder's name {folder}", found=model)
    hidden = table.number("hidden", entries["hidden"])
    intermediate = table.number("intermediate", entries["intermediate"])
    layers = table.layer_counts("layers", entries["layers"])
    layout = table.text("layout", entries["layout"])
    rows: list[RoleRow] = []
    seen: dict[tuple[str, int, int], int] = {}
    for index, field in enumerate(table.items("rows", entries["rows"])):
        row = table.row(f"rows[{index}]", field, layers)
        table.check_against_dimensions(f"rows[{index}]", field, row, hidden, intermediate)
        first = seen.setdefault((row.role, row.K, row.N), index)
        if first != index:
            found = f"{row.role} {row.K}x{row.N} again (rows[{first}])"
            raise table.refuse(f"rows[{index}]", field, expected="each geometry once", found=found)
        rows.append(row)
    return RoleTable(
        model,
        table.text("source", entries["source"]),
        hidden,
        intermediate,
        layers,
        checked_layout(f"{where} line {entries['layout'].line}: layout", layout),
        table.boolean("decode", entries["decode"]),
        tuple(rows),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks fields of one file and words the refusals."""

    where: str

    def refuse(self, name: str, field: Field, *, expected: object, found: object) -> Exception:
        return refusal(f"{self.where} line {field.line}: {name}", expected=expected, found=found)

    def mapping(self, name: str, field: Field, keys: Iterable[str], optional: Iterable[str]) -> dict[str, Field]:
        value, known = field.value, tuple(keys)
        if not isinstance(value, dict):
            raise self.refuse(name, field, expected="a mapping", found=_kind_of(field))
        for key, entry in value.items():
            if key not in known:
                raise self.refuse(name, entry, expected="only the keys " + " ".join(known), found=repr(key))
        for key in known:
            if key not in value and key not in optional:
                raise self.refuse(name, field, expected=f"a key {key}", found="none")
        return value

    def items(self, name: str, field: Field, *, empty: bool = False) -> list[Field]:
        if not isinstance(field.value, list) or not (field.value or empty):
            expected = "a list" if empty else "a list that is not empty"
            raise self.refuse(name, field, expected=expected, found=_kind_of(field))
        return field.value

    def text(self, name: str, field: Field) -> str:
        if not isinstance(field.value, str) or not field.value.strip():
            raise self.refuse(name, field, expected="a text", found=_kind_of(field))
        return field.value

    def exactly(self, name: str, field: Field, text: str) -> None:
        if field.value != text:
            raise self.refuse(name, field, expected=text, found=_kind_of(field))

    def number(self, name: str, field: Field) -> int:
        value = field.value
        if not isinstance(value, str) or not field.plain or _NUMBER.fullmatch(value) is None:
            raise self.refuse(name, field, expected="a positive whole number below 10^9", found=_kind_of(field))
        return int(value)

    def boolean(self, name: str, field: Field) -> bool:
        if not field.plain or field.value not in ("true", "false"):
            raise self.refuse(name, field, expected="true or false", found=_kind_of(field))
        return field.value == "true"

    def layer_counts(self, name: str, field: Field) -> dict[str, int]:
        if not isinstance(field.value, dict) or not field.value:
            raise self.refuse(name, field, expected="a mapping of layer kinds to counts", found=_kind_of(field))
        counts = {}
        for kind, entry in field.value.items():
            if _KIND.fullmatch(kind) is None:
                raise self.refuse(name, entry, expected="a lower-case word as kind", found=repr(kind))
            counts[kind] = self.number(f"{name}.{kind}", entry)
            if counts[kind] > MAX_LAYERS_OF_A_KIND:
                expected = f"at most {MAX_LAYERS_OF_A_KIND}"
                raise self.refuse(f"{name}.{kind}", entry, expected=expected, found=counts[kind])
        return counts

    def row(self, name: str, field: Field, layers: Mapping[str, int]) -> RoleRow:
        entries = self.mapping(name, field, _ROW_KEYS, _ROW_OPTIONAL)
        role = self.text(f"{name}.role", entries["role"])
        if role not in contract.ELF_ROLES:
            expected = "one of " + " ".join(contract.ELF_ROLES)
            raise self.refuse(f"{name}.role", entries["role"], expected=expected, found=repr(role))
        K = self.number(f"{name}.K", entries["K"])
        N = self.number(f"{name}.N", entries["N"])
        columns = self.number(f"{name}.columns", entries["columns"])
        check_geometry(f"{self.where} line {field.line}: {name} {role}", K, N, columns)
        ArtifactName(role, K, N, contract.LONGEST_TAG, m16=True)  # the longest name must fit the engine's buffer
        kinds = tuple(layers)
        if "layers" in entries:
            listed = self.items(f"{name}.layers", entries["layers"], empty=True)
            kinds = tuple(self.text(f"{name}.layers", item) for item in listed)
            for kind, item in zip(kinds, listed, strict=True):
                if kind not in layers or kinds.count(kind) > 1:
                    expected = "each a kind of " + " ".join(layers) + ", once"
                    raise self.refuse(f"{name}.layers", item, expected=expected, found=repr(kind))
        note = self.text(f"{name}.note", entries["note"]) if "note" in entries else ""
        return RoleRow(role, K, N, columns, note, kinds)

    def check_against_dimensions(self, name: str, field: Field, row: RoleRow, hidden: int, intermediate: int) -> None:
        for letter, rule, value in zip("KN", _SHAPES.get(row.role, ("any", "any")), (row.K, row.N), strict=True):
            allowed = {
                "any": (value,),
                "hidden": (hidden,),
                "intermediate": (intermediate, 2 * intermediate),
                "2*intermediate": (2 * intermediate, 4 * intermediate),
            }[rule]
            if value not in allowed:
                expected = f"{rule} = {allowed[0]}" + (f" (double-wide: {allowed[1]})" if len(allowed) > 1 else "")
                raise self.refuse(f"{name}.{letter} of {row.role}", field, expected=expected, found=value)


def _kind_of(field: Field) -> str:
    if isinstance(field.value, dict):
        return "a mapping"
    if isinstance(field.value, list):
        return f"a list of {len(field.value)}"
    return brief(repr(field.value), 80)

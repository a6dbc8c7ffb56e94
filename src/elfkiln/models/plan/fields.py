"""A plan as plain data, in the places and the order of the one list of fields in `schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from elfkiln.engine import contract
from elfkiln.models.plan.field_table import FieldSpec, specs
from elfkiln.models.plan.names import mlp_width
from elfkiln.models.plan.schema import Layer, Plan


def plan_fields(plan: Plan) -> dict[str, Any]:
    """Return a plan's fields as JSON data, with the defaults of those it leaves out; its free text is left out.

    gate_up.N, which a plan may write in two ways, is the N of its GEMM: 2*IM where gate and up are fused, else IM.
    """
    data = header_fields(plan)
    return data | {"layers": [_layer_fields(plan, layer) for layer in plan.layers]}


def header_fields(plan: Plan) -> dict[str, Any]:
    """Return the fields of a plan but for its layers and its free text."""
    data: dict[str, Any] = {}
    for attribute, spec in specs(type(plan)):
        if spec.compared and attribute != "layers":
            _put(data, spec.place, _as_data(getattr(plan, attribute)))
    return data


def written_fields(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a plan file: the fields stated by dotted place, and the defaults of those always written.

    Fields stand in the order of `schema`. Raises `KeyError` for a place that is not one of them.

    >>> list(written_fields({"kv.key": "int8", "format": "1bit-npu-plan/1"}))[:3]
    ['format', 'generated_by', 'model']
    """
    data: dict[str, Any] = {}
    table = dict(_leaves(Plan))
    for place in stated:
        table[place]
    for place, spec in table.items():
        if place in stated:
            _put(data, place, stated[place])
        elif spec.written and not (spec.needed or spec.none_where_absent):
            _put(data, place, spec.default)
    return data


def plan_text(data: Mapping[str, Any]) -> str:
    """Return a plan as text: keys in the order given, two-space indent, one line a layer."""
    layers = ",\n".join(f"    {json.dumps(layer)}" for layer in data["layers"])
    head = json.dumps({key: value for key, value in data.items() if key != "layers"}, indent=2)
    return f'{head[:-2]},\n  "layers": [\n{layers}\n  ]\n}}\n'


def _leaves(schema: type[Any], prefix: str = "", *, written: bool = True) -> Iterator[tuple[str, FieldSpec]]:
    """Yield dotted place and spec of every field that is not itself an object of fields."""
    for _, spec in specs(schema):
        place = f"{prefix}{spec.place}"
        if spec.section is None:
            yield place, spec if written else _unwritten(spec)
        else:
            yield from _leaves(spec.section, f"{place}.", written=written and spec.written)


def _unwritten(spec: FieldSpec) -> FieldSpec:
    return FieldSpec(spec.place, spec.check, spec.default, written=False, compared=spec.compared)


def _as_data(value: Any) -> Any:
    """Return a value of a plan as JSON data."""
    if isinstance(value, tuple):
        return [_as_data(item) for item in value]
    if not is_dataclass(value):
        return value
    data: dict[str, Any] = {}
    for attribute, spec in specs(type(value)):
        found = getattr(value, attribute)
        if found is not None or not spec.none_where_absent:
            _put(data, spec.place, _as_data(found))
    if isinstance(value, Layer):  # its projections stand under keys of their own, which `PLAN_PROJECTIONS` lists
        data |= {entry.key: _as_data(entry) for entry in value.projections}
    return data


def _put(data: dict[str, Any], place: str, value: Any) -> None:
    """Set a value at a dotted place, making the objects on the way."""
    *parents, last = place.split(".")
    for key in parents:
        data = data.setdefault(key, {})
    data[last] = value


def _layer_fields(plan: Plan, layer: Layer) -> dict[str, Any]:
    data: dict[str, Any] = _as_data(layer)
    gate_up, down = layer.projection("gate_up"), layer.projection("down")
    if gate_up is not None and down is not None:
        width = mlp_width(gate_up.N, down.K)
        if width is not None:
            data["gate_up"]["N"] = 2 * width if plan.gate_up == contract.GATE_UP_FUSED else width
    return data

"""Reads plan.json (schema 1bit-npu-plan/1) and refuses what the engine would, naming field, expectation and finding."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import bare_elf_name
from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.strict_json import read_strict_json
from elfkiln.models.plan.schema import (
    BatchedExperts,
    Decode,
    Directory,
    KeyValueCache,
    Layer,
    Plan,
    Projection,
)

MAX_PLAN_BYTES = 1024 * 1024
MAX_DECISION_BYTES = 1024 * 1024
MAX_NUMBER = 2**31 - 1
"""Largest whole number taken: the engine reads plans into C ints."""

MAX_NOTED = 20
"""How many ignored fields of one place, or unknown roles, are named before the rest is counted."""

_BARE_FORBIDDEN = ("/", "\\", "\0")
_LAYER_KEYS = ("index", "role")
_ROLES = tuple(row.name for row in contract.LAYER_ROLES)
_PROJECTIONS = tuple(row.key for row in contract.PLAN_PROJECTIONS)
_KNOWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "": (
        "format",
        "generated_by",
        "model",
        "container",
        "fusion",
        "prefill",
        "decode",
        "kernels",
        "attention",
        "kv",
        "moe",
        "layers",
    ),
    "model": ("hidden", "layers", "arch"),
    "container": ("layout", "chunk_kind", "pb16i", "tile_order"),
    "fusion": ("gate_up",),
    "prefill": ("M",),
    "decode": ("M", "enabled", "dirs", "sealed_elf"),
    "kernels": ("tag",),
    "attention": ("mode",),
    "kv": ("key", "value", "hadamard"),
    "kv.hadamard": ("block", "signs"),
    "moe": ("batched_expert_gu",),
    "moe.batched_expert_gu": ("enabled", "K", "N"),
}


def plan_file(path: Path) -> Path:
    """Return the plan.json that `path` means: itself, or the one in that folder.

    >>> plan_file(Path("/nowhere/plan.json")).name
    'plan.json'
    """
    try:
        return path / contract.PLAN_FILE if path.is_dir() else path
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
    reader = _Reader(where)
    top = reader.section("", value)
    reader.choice("format", top.get("format"), (contract.PLAN_FORMAT,))
    model = reader.needed("model", top)
    hidden = reader.positive("model.hidden", model.get("hidden"))
    layer_count = reader.positive("model.layers", model.get("layers"))
    container = reader.needed("container", top)
    layout = reader.choice("container.layout", container.get("layout"), contract.LAYOUTS)
    pb16i = reader.boolean("container.pb16i", container.get("pb16i", False))
    chunk_kind = reader.text("container.chunk_kind", container.get("chunk_kind", ""))
    known_kinds = tuple(kind.name for kind in contract.CHUNK_KINDS)
    if chunk_kind and chunk_kind not in known_kinds:
        reader.notes.append(
            f"container.chunk_kind: {brief(repr(chunk_kind), 80)} is not one of {', '.join(known_kinds)}"
        )
    order = container.get("tile_order", contract.TILE_ORDERS[0])
    tile_order = reader.choice("container.tile_order", order, contract.TILE_ORDERS)
    tag = _tag(reader, reader.needed("kernels", top).get("tag"), layout, pb16i=pb16i)
    fusion = reader.needed("fusion", top)
    attention = reader.needed("attention", top)
    prefill = reader.section("prefill", top.get("prefill", {}))
    return Plan(
        reader.text("generated_by", top.get("generated_by", "")),
        hidden,
        reader.text("model.arch", model.get("arch", "")),
        layout,
        chunk_kind,
        pb16i,
        tile_order,
        reader.choice("fusion.gate_up", fusion.get("gate_up"), contract.GATE_UP),
        reader.rows("prefill.M", prefill.get("M", contract.PREFILL_M), contract.PREFILL_M),
        _decode(reader, reader.needed("decode", top), tag, pb16i=pb16i),
        tag,
        reader.choice("attention.mode", attention.get("mode"), contract.ATTENTION_MODES),
        _kv(reader, reader.section("kv", top.get("kv", {}))),
        _batched_experts(reader, reader.section("moe", top.get("moe", {}))),
        _layers(reader, top.get("layers"), layer_count, strict=strict),
        tuple(reader.notes),
        where,
    )


def require_target(plan: Plan, capabilities: contract.Capabilities) -> None:
    """Refuse a plan that asks of a target what its capabilities do not have, naming the fields and the capability."""
    if contract.KV_INT8 in (plan.kv.key, plan.kv.value) and not capabilities.int8_kv:
        raise refusal(
            f"{plan.where}: kv.key={plan.kv.key}, kv.value={plan.kv.value}",
            expected=f"{contract.KV_DEFAULT} for both, as target {capabilities.target} has int8_kv=false",
            found=contract.KV_INT8,
            remedy="use a target with int8_kv, or plan the f16 cache",
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks the values of one plan and words the refusals; gathers notes."""

    where: str
    notes: list[str] = field(default_factory=list)

    def refuse(self, name: str, *, expected: object, found: object) -> ElfkilnError:
        return refusal(f"{self.where}: {name}" if name else self.where, expected=expected, found=_shown(found))

    def section(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refuse(name, expected="an object", found=value)
        known = _KNOWN_KEYS.get(name)
        if known is not None:
            self.note_ignored(name, (key for key in value if key not in known))
        return value

    def note_ignored(self, name: str, keys: Iterable[str]) -> None:
        prefix = f"{name}." if name else ""
        found = list(dict.fromkeys(keys))
        shown = (f"{prefix}{brief(key, 60)}" for key in found[:MAX_NOTED])
        self.notes.extend(f"{field_name}: not a field of {contract.PLAN_FORMAT}, ignored" for field_name in shown)
        if len(found) > MAX_NOTED:
            self.notes.append(f"{name or self.where}: {len(found) - MAX_NOTED} more fields ignored")

    def needed(self, name: str, top: Mapping[str, Any]) -> dict[str, Any]:
        if name not in top:
            raise self.refuse(name, expected="an object", found=None)
        return self.section(name, top[name])

    def choice(self, name: str, value: Any, allowed: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in allowed:
            shown = [choice or repr(choice) for choice in allowed]
            expected = shown[0] if len(shown) == 1 else "one of " + ", ".join(shown)
            raise self.refuse(name, expected=expected, found=value)
        return value

    def text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.refuse(name, expected="a string", found=value)
        return value

    def boolean(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(name, expected="true or false", found=value)
        return value

    def whole(self, name: str, value: Any, expected: str, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER:
            raise self.refuse(name, expected=expected, found=value)
        return value

    def positive(self, name: str, value: Any) -> int:
        return self.whole(name, value, "a positive whole number", 1)

    def rows(self, name: str, value: Any, only: int) -> int:
        if self.positive(name, value) != only:
            raise self.refuse(name, expected=f"{only}, the one height artifact names stand for", found=value)
        return only

    def bare_name(self, name: str, text: str) -> str:
        hidden = text in (".", "..") or any(mark in text for mark in _BARE_FORBIDDEN) or not text.isprintable()
        if hidden:
            raise self.refuse(name, expected="a bare file name", found=text)
        return text


def _tag(reader: _Reader, value: Any, layout: str, *, pb16i: bool) -> str:
    tag = reader.choice("kernels.tag", value, contract.TAGS)
    family = next(family for family in contract.FAMILIES if family.tag == tag)
    if family.layout != layout:
        expected = f"a tag of container.layout {layout} (" + _tags_of(layout) + ")"
        raise reader.refuse("kernels.tag", expected=expected, found=tag)
    if family.pb16i != pb16i:
        expected = f"{str(family.pb16i).lower()}, as kernels.tag is {tag!r}"
        raise reader.refuse("container.pb16i", expected=expected, found=pb16i)
    return tag


def _tags_of(layout: str) -> str:
    return ", ".join(repr(family.tag) for family in contract.FAMILIES if family.layout == layout)


def _decode(reader: _Reader, section: Mapping[str, Any], tag: str, *, pb16i: bool) -> Decode:
    enabled = reader.boolean("decode.enabled", section.get("enabled"))
    entries = section.get("dirs")
    if not isinstance(entries, list) or not entries:
        raise reader.refuse("decode.dirs", expected="a list of directories that is not empty", found=entries)
    dirs = tuple(_directory(reader, f"decode.dirs[{index}]", entry) for index, entry in enumerate(entries))
    sealed = reader.text("decode.sealed_elf", section.get("sealed_elf", ""))
    if sealed and not pb16i:
        expected = "nothing, as the container is not pb16i"
        raise reader.refuse("decode.sealed_elf", expected=expected, found=sealed)
    if enabled and tag == contract.SEALED_TAG and not sealed:
        expected = f"a file name, as decode of tag {tag} needs a sealed ELF"
        raise reader.refuse("decode.sealed_elf", expected=expected, found=sealed)
    if sealed:
        sealed = bare_elf_name(sealed, f"{reader.where}: decode.sealed_elf")
    rows = reader.rows("decode.M", section.get("M", contract.DECODE_M), contract.DECODE_M)
    return Decode(enabled, rows, dirs, sealed)


def _directory(reader: _Reader, name: str, value: Any) -> Directory:
    entry = reader.section(name, value)
    reader.note_ignored(name, (key for key in entry if key not in ("root", "path")))
    root = reader.choice(f"{name}.root", entry.get("root"), contract.DIRECTORY_ROOTS)
    path = reader.text(f"{name}.path", entry.get("path"))
    fault = (
        "an empty path"
        if not path
        else "an absolute path"
        if path.startswith("/")
        else "a backslash"
        if "\\" in path
        else "a step upwards"
        if ".." in path.split("/")
        else "a character that does not print"
        if not path.isprintable()
        else None
    )
    if fault:
        expected = "a relative path with / that stays below its root"
        raise refusal(f"{reader.where}: {name}.path", expected=expected, found=f"{fault}: {_shown(path)}")
    return Directory(root, "/".join(step for step in path.split("/") if step not in ("", ".")) or ".")


def _kv(reader: _Reader, section: Mapping[str, Any]) -> KeyValueCache:
    key = reader.choice("kv.key", section.get("key", contract.KV_DEFAULT), contract.KV_TYPES)
    value = reader.choice("kv.value", section.get("value", contract.KV_DEFAULT), contract.KV_TYPES)
    rotation = reader.section("kv.hadamard", section.get("hadamard", {}))
    least, most = contract.HADAMARD_MIN, contract.HADAMARD_MAX
    expected = f"0 or a power of two in {least}..{most}"
    block = reader.whole("kv.hadamard.block", rotation.get("block", 0), expected, 0)
    if block and (not least <= block <= most or block & (block - 1)):
        raise reader.refuse("kv.hadamard.block", expected=expected, found=block)
    signs = reader.bare_name("kv.hadamard.signs", reader.text("kv.hadamard.signs", rotation.get("signs", "")))
    if signs and not block:
        raise reader.refuse("kv.hadamard.signs", expected="nothing, as kv.hadamard.block is 0", found=signs)
    return KeyValueCache(key, value, block, signs)


def _batched_experts(reader: _Reader, moe: Mapping[str, Any]) -> BatchedExperts:
    if "batched_expert_gu" not in moe:
        return BatchedExperts(enabled=False, K=0, N=0)
    name = "moe.batched_expert_gu"
    section = reader.section(name, moe["batched_expert_gu"])
    enabled = reader.boolean(f"{name}.enabled", section.get("enabled"))
    least = 1 if enabled else 0
    expected = "a positive whole number, as enabled is true" if enabled else "a whole number"
    K = reader.whole(f"{name}.K", section.get("K", 0), expected, least)
    N = reader.whole(f"{name}.N", section.get("N", 0), expected, least)
    return BatchedExperts(enabled, K, N)


def _layers(reader: _Reader, value: Any, count: int, *, strict: bool) -> tuple[Layer, ...]:
    if not isinstance(value, list):
        raise reader.refuse("layers", expected=f"a list of {count} layers", found=value)
    if len(value) != count:
        expected = f"{count} layers, as model.layers says"
        raise refusal(f"{reader.where}: layers", expected=expected, found=len(value))
    layers = tuple(_layer(reader, index, entry, strict=strict) for index, entry in enumerate(value))
    _note_unknown_roles(reader, layers)
    ignored = (key for entry in value for key in entry if key not in (*_PROJECTIONS, *_LAYER_KEYS))
    reader.note_ignored("layers[]", ignored)
    return layers


def _layer(reader: _Reader, index: int, value: Any, *, strict: bool) -> Layer:
    name = f"layers[{index}]"
    entry = reader.section(name, value)
    found = entry.get("index")
    if isinstance(found, bool) or found != index or not isinstance(found, int):
        raise reader.refuse(f"{name}.index", expected=f"{index} (contiguous, in order)", found=found)
    role = reader.text(f"{name}.role", entry.get("role"))
    if strict and role not in _ROLES:
        remedy = "the verbs that take roles=any let it through with a note"
        expected = "one of " + ", ".join(_ROLES)
        raise refusal(f"{reader.where}: {name}.role", expected=expected, found=_shown(role), remedy=remedy)
    projections = (_projection(reader, f"{name}.{key}", key, entry[key]) for key in _PROJECTIONS if key in entry)
    return Layer(index, role, tuple(projections))


def _note_unknown_roles(reader: _Reader, layers: Iterable[Layer]) -> None:
    unknown = [layer for layer in layers if layer.role not in _ROLES]
    counts = Counter(layer.role for layer in unknown)
    first = {layer.role: layer.index for layer in reversed(unknown)}
    for role, count in list(counts.items())[:MAX_NOTED]:
        also = f"; {count - 1} more layer{'s have' if count > 2 else ' has'} it" if count > 1 else ""
        known = ", ".join(_ROLES)
        reader.notes.append(f"layers[{first[role]}].role: {brief(repr(role), 60)} is not one of {known}{also}")
    if len(counts) > MAX_NOTED:
        reader.notes.append(f"layers[].role: {len(counts) - MAX_NOTED} more roles that are not known")


def _projection(reader: _Reader, name: str, key: str, value: Any) -> Projection:
    entry = reader.section(name, value)
    for letter, other in (("K", "N"), ("N", "K")):
        if letter not in entry:
            found = f"only {other}" if other in entry else "neither"
            raise refusal(f"{reader.where}: {name}", expected="both K and N", found=found)
    K = reader.positive(f"{name}.K", entry["K"])
    N = reader.positive(f"{name}.N", entry["N"])
    fused = reader.boolean(f"{name}.fused", entry["fused"]) if "fused" in entry else None
    return Projection(key, K, N, fused)


def _check_decision(path: Path, plan: Plan) -> None:
    mode = decision_mode(path)
    if mode is not None and mode != plan.attention_mode:
        raise refusal(
            f"{plan.where}: attention.mode",
            expected=f"{_shown(mode)}, as {contract.DECISION_FILE} says",
            found=plan.attention_mode,
        )


def decision_mode(path: Path) -> Any:
    """Return attention_mode of a decision_config.json; None where there is no such file, or it does not say.

    Raises `Refused` for a file that is no JSON object.
    """
    if not os.path.exists(path):
        return None
    value = read_strict_json(path, limit=MAX_DECISION_BYTES)
    if not isinstance(value, dict):
        raise refusal(brief(path, 4096), expected="an object", found=_shown(value))
    return value.get(contract.DECISION_KEY)


def _shown(value: Any) -> str:
    """Return a found value as JSON would write it, without walking a large one."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        return brief(repr(value[:200]), 120)
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return brief(value, 40)

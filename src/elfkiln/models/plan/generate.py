"""Writes a model folder's plan.json from its container, its config.json and a kernel directory, in that order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import one_of, refusal
from elfkiln.io.files import write_atomic
from elfkiln.models.config import Dimensions, read_config
from elfkiln.models.container import Container, read_container
from elfkiln.models.container_layers import ReadLayers, read_layers
from elfkiln.models.derive import derive_designs
from elfkiln.models.plan.fields import plan_text, written_fields
from elfkiln.models.plan.load import decision_mode, parse_plan
from elfkiln.models.plan.names import plan_requirements
from elfkiln.models.plan.schema import FREE_TEXT, Layer, Plan, Projection

GENERATED_BY = "elfkiln plan 2"
"""Written into every plan; the number grows when the same model folder would give another plan."""

_TOLD_BY_CONTAINER = frozenset(("qkv", "o", "q_b", "gate_up", "down"))
"""Projections whose widths a sparse config.json leaves to the container."""

_TERNARY_LAYOUTS = {"pb16i": "pb16i", "t2s": "t2"}
"""Layouts of a ternary container and the chunk kind each is made of."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the model folder itself cannot tell.

    `kernels_dir` is the engine's --kernels directory: its files decide fused or split and the batched experts.
    `layout` and `tag` say what the container and config.json do not (no public source says how a container declares
    t2s); a layout that contradicts them is refused. `decode` turns the twins off.
    """

    kernels_dir: Path | None = None
    layout: str | None = None
    tag: str | None = None
    decode: bool = True


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated plan: as JSON data in writing order, as the loader reads it back, and what to tell the user."""

    data: Mapping[str, Any]
    plan: Plan
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file's text: two-space indent, one line a layer, a newline at the end."""
        return plan_text(self.data)


def generate_plan(model_dir: Path, options: Options | None = None) -> Generated:
    """Generate the plan of a model folder with model.q4nx and config.json; the same inputs give the same bytes.

    Sources of authority: the container's tensor table, then config.json, then the kernel directory; what a lower one
    says otherwise is noted, never followed. Raises `Refused` for inputs that are broken or do not fit together, and
    for a model whose plan the loader or the requirements would refuse.
    """
    options = options or Options()
    if options.kernels_dir is not None and not os.path.isdir(options.kernels_dir):
        raise refusal("--kernels", expected="a directory", found=options.kernels_dir)
    container = read_container(model_dir / contract.CONTAINER_FILE)
    dims = read_config(model_dir / contract.CONFIG_FILE, sparse=True)
    read = read_layers(container, dims)
    notes = [*dims.notes, *read.notes, *_disagreements(read, dims)]
    layout, chunk_kind = _layout(read, dims, options, notes)
    tag = _tag(layout, options)
    gate_up = _gate_up(read, dims, tag, options)
    stated = {
        "format": contract.PLAN_FORMAT,
        FREE_TEXT: GENERATED_BY,
        "model.hidden": read.hidden,
        "model.layers": len(read.layers),
        "model.arch": dims.arch,
        "container.layout": layout,
        "container.chunk_kind": chunk_kind,
        "container.pb16i": layout in _TERNARY_LAYOUTS,
        "fusion.gate_up": gate_up,
        "decode.enabled": options.decode,
        "decode.dirs": _decode_directories(),
        "decode.sealed_elf": contract.SEALED_ELF if options.decode and tag == contract.SEALED_TAG else "",
        "kernels.tag": tag,
        "attention.mode": _attention_mode(model_dir),
        "layers": [_layer_data(layer, gate_up) for layer in read.layers],
    }
    data = written_fields(stated | _batched_experts(read, dims, tag, gate_up, options))
    plan = parse_plan(data)
    plan_requirements(plan, model_dir.name)
    return Generated(data, plan, tuple(dict.fromkeys((*notes, *_unread(container)))))


def write_plan(path: Path, generated: Generated) -> None:
    """Write a generated plan: whole or not at all."""
    write_atomic(path, generated.text.encode())


def _disagreements(read: ReadLayers, dims: Dimensions) -> Iterator[str]:
    """Yield notes where container and config.json give other geometries, or one has a projection the other has not."""
    fused = derive_designs(dims, fused=not dims.must_split)
    derived: dict[str, set[tuple[int, int]]] = {}
    for design in (*fused, *derive_designs(dims, fused=False)):
        if design.K and design.N:  # zero: a sparse config.json does not say
            derived.setdefault(design.elf_role, set()).add((design.K, design.N))
    roles = {row.key: row.split[0] for row in contract.PLAN_PROJECTIONS}
    found = Counter((entry.key, entry.K, entry.N) for layer in read.layers for entry in layer.projections)
    for (key, K, N), count in found.items():
        shapes = derived.get(roles[key], set())
        if key == "gate_up":  # a double-wide MLP has a fused design only
            shapes = shapes | {(k, n // 2) for k, n in derived.get("GU", ())}
        if (K, N) not in shapes and not (key in _TOLD_BY_CONTAINER and not shapes):
            said = ", ".join(f"{k}x{n}" for k, n in sorted(shapes)) or "none"
            yield f"{key}: {K}x{N} in {count} layers of the container, {said} derived from {contract.CONFIG_FILE}"
    there = {role for key, _, _ in found for role in (*_roles(key, "split"), *_roles(key, "fused"))}
    for role in sorted(derived.keys() - there):
        said = ", ".join(f"{k}x{n}" for k, n in sorted(derived[role]))
        yield f"{role} {said} derived from {contract.CONFIG_FILE}, in no layer of the container"


def _layout(read: ReadLayers, dims: Dimensions, options: Options, notes: list[str]) -> tuple[str, str]:
    """Return container.layout and container.chunk_kind; add a note where the sources do not agree."""
    kind = read.chunk_kind.name if read.chunk_kind else ""
    holds_ternary = kind in _TERNARY_LAYOUTS.values()
    layout = options.layout
    if layout is None:
        layout = kind if kind in _TERNARY_LAYOUTS else dims.layout
    elif layout not in contract.LAYOUTS:
        raise refusal("layout", expected=one_of(layout, contract.LAYOUTS), found=layout)
    ternary = _TERNARY_LAYOUTS.get(layout, "")
    if kind and kind != ternary and (ternary or holds_ternary):
        layouts = [name for name, chunks in _TERNARY_LAYOUTS.items() if chunks == kind] or list(contract.CONFIG_LAYOUTS)
        expected = f"{' or '.join(layouts)}, as the container holds {kind} chunks"
        raise refusal("layout", expected=expected, found=layout)
    key = f"{contract.LAYOUT_KEY} of {contract.CONFIG_FILE}"
    if holds_ternary and dims.layout_stated:
        why = f"as the container holds {kind} chunks"
        notes.append(f"container.layout: {layout}, {why}; {key} says {dims.layout}")
    elif dims.layout_stated and dims.layout != layout:
        remedy = "leave layout= out, or correct the key: kernels of one layout on weights of another compute nonsense"
        raise refusal("layout", expected=f"{dims.layout}, as {key} says", found=layout, remedy=remedy)
    elif not ternary and dims.layout != layout:
        absent = f"{contract.CONFIG_FILE} has no {contract.LAYOUT_KEY}, which the engine reads as {dims.layout}"
        notes.append(f"{absent}; layout= says {layout}")
    return layout, ternary or kind


def _tag(layout: str, options: Options) -> str:
    tag = contract.tag_of_layout(layout) if options.tag is None else options.tag
    tags = [family.tag for family in contract.FAMILIES if family.layout == layout]
    if tag not in tags:
        expected = f"a tag of layout {layout}: " + ", ".join(repr(one) for one in tags)
        raise refusal("tag", expected=expected, found=repr(tag))
    return tag


def _width(read: ReadLayers) -> int:
    """Return the narrowest width of the MLPs, the engine's IM; 0 when no layer has one."""
    return min((entry.N for layer in read.layers if (entry := layer.projection("gate_up"))), default=0)


def _gate_up(read: ReadLayers, dims: Dimensions, tag: str, options: Options) -> str:
    width = _width(read)
    if dims.must_split:
        fused = False
    elif options.kernels_dir is None:
        fused = 2 * width <= contract.FUSED_MAX_N
    else:  # the engine's probe: a GU file, or no G file, means fused
        gu = _exists(options.kernels_dir, "GU", read.hidden, 2 * width, tag)
        fused = gu or not _exists(options.kernels_dir, "G", read.hidden, width, tag)
    return contract.GATE_UP_FUSED if fused else contract.GATE_UP_SPLIT


def _exists(folder: Path, role: str, K: int, N: int, tag: str) -> bool:
    file = folder / str(ArtifactName(role, K, max(N, 1), tag))
    return os.path.isfile(file) and os.path.getsize(file) > 0


def _decode_directories() -> list[dict[str, str]]:
    return [{"root": "model", "path": contract.DECODE_DIRECTORY}, {"root": "kernels", "path": "."}]


def _attention_mode(model_dir: Path) -> str:
    mode = decision_mode(model_dir / contract.DECISION_FILE)
    if mode is None:
        return contract.ATTENTION_MODES[0]
    if mode not in contract.ATTENTION_MODES:
        expected = "one of " + ", ".join(contract.ATTENTION_MODES)
        raise refusal(f"{contract.DECISION_FILE}: {contract.DECISION_KEY}", expected=expected, found=repr(mode))
    return str(mode)


def _batched_experts(read: ReadLayers, dims: Dimensions, tag: str, gate_up: str, options: Options) -> dict[str, Any]:
    """Return the fields of the moe section, by the engine's probe: the wide pair lies in the kernel directory."""
    experts = dims.experts
    if experts is None:
        return {}
    K, N, folder = read.hidden, contract.BATCHED_EXPERT_N, options.kernels_dir
    designs = {
        (role, entry.K, entry.N)
        for layer in read.layers
        for entry in layer.projections
        for role in _roles(entry.key, gate_up)
    }
    enabled = (
        folder is not None
        and experts.top_k > 1
        and dims.mla is None
        and experts.top_k * experts.width <= N
        and len(designs) + 2 <= contract.MAX_DESIGNS
        and all(_exists(folder, role, K, N, tag) for role in ("G", "U"))
    )
    pair = {"enabled": enabled, "K": K if enabled else 0, "N": N if enabled else 0}
    return {f"moe.batched_expert_gu.{key}": value for key, value in pair.items()}


def _roles(key: str, gate_up: str) -> Iterable[str]:
    row = next(row for row in contract.PLAN_PROJECTIONS if row.key == key)
    return row.fused if gate_up == contract.GATE_UP_FUSED else row.split


def _layer_data(layer: Layer, gate_up: str) -> dict[str, Any]:
    return {
        "index": layer.index,
        "role": layer.role,
        **{entry.key: _projection_data(entry, gate_up) for entry in layer.projections},
    }


def _projection_data(entry: Projection, gate_up: str) -> dict[str, Any]:
    """Return a projection as written: a fused gate_up with the width of its GEMM (the loader reads either)."""
    doubled = entry.key == "gate_up" and gate_up == contract.GATE_UP_FUSED
    data: dict[str, Any] = {"K": entry.K, "N": 2 * entry.N if doubled else entry.N}
    return data if entry.fused is None else data | {"fused": entry.fused}


def _unread(container: Container) -> Iterator[str]:
    """Yield a note when the data goes past the last tensor, as after a copy into a longer file."""
    end = max(tensor.end for tensor in container.tensors.values())
    if end < container.data_bytes:
        yield f"{contract.CONTAINER_FILE}: {container.data_bytes - end} bytes follow the last tensor"

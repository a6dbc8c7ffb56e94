"""Reads the projections of each layer off a container's tensor table; config.json fills in what it cannot tell."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError, brief, refusal
from elfkiln.models.config import Dimensions, padded
from elfkiln.models.container import Container, Tensor
from elfkiln.models.plan.schema import Layer, Projection

_LAYER_TENSOR = re.compile(r"model\.layers?\.(0|[1-9][0-9]{0,5})\.(.+)", re.ASCII)
_NORM = "model.norm.weight"

# Tensor names of the container, by what they feed (engine: model.c, q4nx_forward.cpp).
_GDN_QKV = "linear_attn.qkv_proj.weight"
_GDN_GATE = "self_attn.gate_proj.weight"
_GDN_OUT = "linear_attn.ssm_out_proj.weight"
_Q, _K, _V, _O = (f"self_attn.{letter}_proj.weight" for letter in "qkvo")
_Q_A = "self_attn.q_a_proj.weight"
_Q_B = "self_attn.q_b_proj.weight"
_KV_A = "self_attn.kv_a_proj_with_mqa.weight"
_GATE, _UP, _DOWN = (f"mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
_EXPERT_GATE, _EXPERT_UP, _EXPERT_DOWN = (f"mlp.{name}_exps_proj.weight" for name in ("gate", "up", "down"))
_PLE_GATE = "inp_gate.weight"
_PLE_PROJ = "per_layer_projection.weight"
_MATRICES = frozenset(
    (
        *(_GDN_QKV, _GDN_GATE, _GDN_OUT, _Q, _K, _V, _O, _Q_A, _Q_B, _KV_A),
        *(_GATE, _UP, _DOWN, _EXPERT_GATE, _EXPERT_UP, _EXPERT_DOWN),
    )
)


@dataclass(frozen=True, slots=True)
class ReadLayers:
    """What the container says: the model's hidden size, its layers, the commonest chunk kind, and notes.

    `chunk_kind` is None where no matrix is stored in chunks of a size that tells the kind.
    """

    hidden: int
    layers: tuple[Layer, ...]
    chunk_kind: contract.ChunkKind | None
    notes: tuple[str, ...]


def read_layers(container: Container, dims: Dimensions) -> ReadLayers:
    """Return every layer's role and projections, K and N of the GEMM each feeds.

    Widths come from the weights a tensor holds (8,192 a chunk); where a chunk's size does not tell that, config.json
    gives them, with a note. gate_up.N is the width of gate alone. Raises `Refused` for layers that are missing or have
    no attention this project knows, and for tensors whose weights do not fit.
    """
    groups: dict[int, dict[str, Tensor]] = {}
    for name, tensor in container.tensors.items():
        match = _LAYER_TENSOR.fullmatch(name)
        if match and groups.setdefault(int(match[1]), {}).setdefault(match[2], tensor) is not tensor:
            expected = "one of model.layers.<i> and model.layer.<i>"
            raise refusal(f"{contract.CONTAINER_FILE}: {brief(name, 80)}", expected=expected, found="both")
    count = max(groups, default=-1) + 1
    if not count:
        raise refusal(contract.CONTAINER_FILE, expected="tensors named model.layers.<i>.*", found="none")
    if len(groups) != count:
        gap = next(index for index in range(count) if index not in groups)
        raise refusal(
            contract.CONTAINER_FILE, expected=f"tensors of layers 0..{count - 1}", found=f"none of layer {gap}"
        )
    notes = []
    if count != dims.layers:
        notes.append(f"model.layers: {count} in the container, {dims.layers} in {contract.CONFIG_FILE}")
    hidden = _hidden(container, dims, notes)
    readers = [_LayerReader(index, groups[index], hidden, count, dims) for index in range(count)]
    layers = tuple(reader.layer() for reader in readers)
    guessed = sorted({name for reader in readers for name in reader.from_config})
    if guessed:
        told = ", ".join(guessed)
        notes.append(
            f"{contract.CONTAINER_FILE}: chunk size not known; {contract.CONFIG_FILE} gave the widths of {told}"
        )
    matrices = (tensor for group in groups.values() for name, tensor in group.items() if name in _MATRICES)
    return ReadLayers(hidden, layers, _commonest(matrices), tuple(notes))


def _hidden(container: Container, dims: Dimensions, notes: list[str]) -> int:
    norm = container.tensors.get(_NORM)
    if norm is None or norm.dtype in ("I8", "U8"):
        return dims.hidden
    width = math.prod(norm.shape)
    if width != dims.hidden:
        notes.append(f"model.hidden: {width} in the container, {dims.hidden} in {contract.CONFIG_FILE}")
    return width


def _commonest(matrices: Iterable[Tensor]) -> contract.ChunkKind | None:
    sizes: Counter[contract.ChunkKind] = Counter()
    for tensor in matrices:
        kind = tensor.chunk_kind
        if kind is not None:
            sizes[kind] += tensor.weights or 0
    return sizes.most_common(1)[0][0] if sizes else None


@dataclass(frozen=True, slots=True)
class _LayerReader:
    """Reads one layer."""

    index: int
    tensors: Mapping[str, Tensor]
    hidden: int
    count: int
    dims: Dimensions
    from_config: list[str] = field(default_factory=list)

    def refuse(self, name: str, *, expected: object, found: object) -> ElfkilnError:
        return refusal(f"{contract.CONTAINER_FILE}: layer {self.index}: {name}", expected=expected, found=found)

    def layer(self) -> Layer:
        if _GDN_QKV in self.tensors:
            role, attention = "gdn", self.gdn()
        elif _Q_A in self.tensors or _KV_A in self.tensors:
            role, attention = "mla", self.mla()
        elif _Q in self.tensors:
            role, attention = ("sliding" if self.is_sliding else "full"), self.attention()
        else:
            found = ", ".join(brief(name, 40) for name in sorted(self.tensors)[:4])
            expected = f"{_GDN_QKV}, {_Q} or {_Q_A}"
            raise self.refuse("attention", expected=expected, found=found)
        projections = {entry.key: entry for entry in (*attention, *self.mlp(), *self.per_layer_input())}
        rows = contract.PLAN_PROJECTIONS
        return Layer(self.index, role, tuple(projections[row.key] for row in rows if row.key in projections))

    @property
    def kind(self) -> str:
        types = self.dims.layer_types
        return types[self.index] if self.index < len(types) else ""

    @property
    def is_sliding(self) -> bool:
        return "sliding" in self.kind

    def gdn(self) -> list[Projection]:
        dims = self.dims
        width = self.outputs(_GDN_QKV, self.hidden, 2 * dims.linear_key + dims.linear_value)
        value = self.outputs(_GDN_GATE, self.hidden, dims.linear_value)
        found = [Projection("qkv", self.hidden, width, fused=True), Projection("attn_gate", self.hidden, value)]
        if _GDN_OUT in self.tensors:
            found.append(Projection("ssm_out", self.outputs(_GDN_OUT, self.hidden, value), self.hidden))
        return found

    def mla(self) -> list[Projection]:
        dims, mla = self.dims, self.dims.mla
        latent = self.outputs(_Q_A, self.hidden, mla.q_lora if mla else 0)
        query = self.outputs(_Q_B, latent, dims.heads * (mla.nope + mla.rope) if mla else 0)
        kv_latent = self.outputs(_KV_A, self.hidden, mla.kv_lora + mla.rope if mla else 0)
        value = self.outputs(_O, self.hidden, dims.heads * mla.value_head if mla else 0)
        return [
            Projection("q_a", self.hidden, latent),
            Projection("q_b", latent, query),
            Projection("kv_a", self.hidden, padded(kv_latent)),
            Projection("o", value, self.hidden),
        ]

    def attention(self) -> list[Projection]:
        dims = self.dims
        second = dims.has_second_width and not self.is_sliding
        head_dim = dims.global_head_dim if second else dims.head_dim
        kv_heads = (dims.global_kv_heads if second else 0) or dims.kv_heads
        query = self.outputs(_Q, self.hidden, dims.heads * head_dim * (2 if dims.output_gate and not second else 1))
        if _K in self.tensors:
            keys = self.outputs(_K, self.hidden, kv_heads * head_dim)
            values = self.outputs(_V, self.hidden, kv_heads * head_dim)
        elif self.index >= self.count - dims.kv_shared_layers:
            keys = values = kv_heads * head_dim  # it holds no keys and values, yet runs the design with room for them
        else:
            expected = f"a tensor of that name: only the last num_kv_shared_layers = {dims.kv_shared_layers} have none"
            raise self.refuse(_K, expected=expected, found="none")
        output = self.outputs(_O, self.hidden, dims.heads * head_dim)
        return [
            Projection("qkv", self.hidden, query + keys + values, fused=True),
            Projection("o", output, self.hidden),
        ]

    def mlp(self) -> list[Projection]:
        dims = self.dims
        if _EXPERT_GATE in self.tensors:
            if dims.experts is None:
                expected = f"the count of the experts that layer {self.index} of {contract.CONTAINER_FILE} holds"
                raise refusal(f"{contract.CONFIG_FILE}: n_expert", expected=expected, found="nothing")
            width = dims.experts.width
            return self.gate_up_down("gate_up", "down", (_EXPERT_GATE, _EXPERT_UP, _EXPERT_DOWN), width)
        if _GATE in self.tensors:
            wide = dims.double_wide and self.index >= self.count - dims.kv_shared_layers
            width = dims.intermediate * (2 if wide else 1)
            keys = ("dense_gate_up", "dense_down") if dims.mla and dims.experts else ("gate_up", "down")
            return self.gate_up_down(*keys, (_GATE, _UP, _DOWN), width)
        return []

    def gate_up_down(self, gate_up: str, down: str, names: tuple[str, str, str], width: int) -> list[Projection]:
        gate, up, back = (self.outputs(name, self.hidden, width) for name in names)
        if not gate == up == back:
            expected = f"one width for {', '.join(names)}"
            raise self.refuse("mlp", expected=expected, found=f"{gate}, {up}, {back}")
        return [Projection(gate_up, self.hidden, gate), Projection(down, gate, self.hidden)]

    def per_layer_input(self) -> list[Projection]:
        if _PLE_GATE not in self.tensors:
            return []
        width = self.outputs(_PLE_GATE, self.hidden, self.dims.per_layer_input)
        back = self.outputs(_PLE_PROJ, self.hidden, width)
        return [Projection("ple_gate", self.hidden, width), Projection("ple_proj", back, self.hidden)]

    def outputs(self, name: str, known_side: int, configured: int) -> int:
        """Return the other side of a matrix of which one side is known, or the configured one if it cannot be told."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise self.refuse(name, expected="a tensor of that name", found="none")
        weights = tensor.weights
        if weights is None:
            if not configured:
                expected = f"chunks of a known size, or the width in {contract.CONFIG_FILE}"
                raise self.refuse(name, expected=expected, found=f"{tensor.dtype} {list(tensor.shape)}")
            self.from_config.append(name)
            return configured
        if name in (_EXPERT_GATE, _EXPERT_UP, _EXPERT_DOWN):
            weights = self.one_expert(name, tensor, weights, known_side)
        width = weights // known_side
        if not width or weights % known_side:
            expected = f"a whole number of rows of {known_side} weights"
            raise self.refuse(name, expected=expected, found=f"{weights} weights")
        return width

    def one_expert(self, name: str, tensor: Tensor, weights: int, known_side: int) -> int:
        """Return the weights of one of the pooled experts: the engine divides a tensor's bytes by n_expert.

        Published containers pool them along the first dimension, either as [experts, chunks, chunk bytes] or as one
        grid, [experts * tile rows, column blocks, chunk bytes]; a grid tells its other side too, which must fit.
        """
        count = self.dims.experts.count if self.dims.experts else 0
        shape = tensor.shape
        if not count or not shape[0] or shape[0] % count or weights % count:
            expected = f"a first dimension that n_expert = {count} of {contract.CONFIG_FILE} divides"
            raise self.refuse(name, expected=expected, found=list(shape))
        if tensor.chunk_kind is not None and len(shape) == 3 and shape[0] != count:
            rows, columns = shape[0] // count * contract.CHUNK_ROWS, shape[1] * contract.CHUNK_COLUMNS
            side, found = ("rows", rows) if name == _EXPERT_DOWN else ("columns", columns)
            if found != known_side:
                raise self.refuse(name, expected=f"{count} experts of {known_side} {side}", found=list(shape))
        return weights // count

"""Reads the projections of each layer off a container's tensor table; config.json fills in what it cannot tell."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError, brief, refusal
from elfkiln.io.strict_json import shown
from elfkiln.models import tensor_names as names
from elfkiln.models.config import Dimensions
from elfkiln.models.container import Container, Tensor
from elfkiln.models.derive import padded
from elfkiln.models.plan.schema import Layer, Projection

_NORM = "model.norm.weight"
_EXPERTS = (names.EXPERT_GATE, names.EXPERT_UP, names.EXPERT_DOWN)
_DENSE = (names.GATE, names.UP, names.DOWN)
_ATTENTION = {
    "gdn": (names.GDN_QKV,),
    "mla": (names.Q_A, names.KV_A),
    "full": (names.Q, names.K, names.V),
}
"""The tensors by which a layer's attention is known."""
_OUTPUT_SIDE = frozenset((names.O, names.GDN_OUT, names.DOWN, names.EXPERT_DOWN, names.PLE_PROJ))
"""Matrices of which the outputs are the model's hidden size, and the inputs what is asked for."""
_MOST_NAMED = 40


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
    gives them, with a note. gate_up.N is the width of gate alone. Layers for multi-token prediction at the end are not
    the plan's. Raises `Refused` for layers that are missing, whose attention or MLP is not one this project knows, or
    has two of; for tensors whose weights do not fit, ternary chunks beside others, and widths that change from layer
    to layer though config.json states one. What no projection uses is noted.
    """
    groups = _groups(container)
    count = len(groups)
    if dims.has_second_width and not dims.layer_types:
        widths = f"global_head_dim = {dims.global_head_dim} is not head_dim = {dims.head_dim}"
        expected = f"the kind of each layer, as {widths}"
        raise refusal(f"{contract.CONFIG_FILE}: layer_types", expected=expected, found="nothing")
    notes = []
    if count != dims.layers:
        notes.append(f"model.layers: {count} in the container, {dims.layers} in {contract.CONFIG_FILE}")
    hidden = _hidden(container, dims, notes)
    readers = [_LayerReader(index, groups[index], hidden, count, dims) for index in range(count)]
    layers = tuple(reader.layer() for reader in readers)
    _refuse_changing_widths(readers, dims)
    kinds = _kinds(tensor for reader in readers for tensor in reader.used)
    guessed = sorted({name for reader in readers for name in reader.from_config})
    if guessed:
        said = ", ".join(guessed)
        notes.append(
            f"{contract.CONTAINER_FILE}: chunk size not known; {contract.CONFIG_FILE} gave the widths of {said}"
        )
    if len(kinds) > 1:
        counts = ", ".join(f"{kind.name} in {number}" for kind, number in kinds.most_common())
        notes.append(f"{contract.CONTAINER_FILE}: more than one kind of chunk: {counts} of the tensors used")
    notes += _contradicted_kinds(readers, layers, dims)
    notes += _unused(readers)
    notes += _elsewhere(container)
    return ReadLayers(hidden, layers, _commonest(readers), tuple(notes))


def _groups(container: Container) -> dict[int, dict[str, Tensor]]:
    """Return the tensors of each layer by the rest of their names, without those for multi-token prediction."""
    groups: dict[int, dict[str, Tensor]] = {}
    for name, tensor in container.tensors.items():
        place = names.layer_of(name)
        if place is None:
            continue
        number, rest = place
        if not names.is_layer_number(number) or not rest:
            expected = "model.layers.<i>.<tensor>, i a number below a million without leading zeros"
            raise refusal(f"{contract.CONTAINER_FILE}: {brief(name, 80)}", expected=expected, found=shown(name))
        if groups.setdefault(int(number), {}).setdefault(rest, tensor) is not tensor:
            expected = "one of model.layers.<i> and model.layer.<i>"
            raise refusal(f"{contract.CONTAINER_FILE}: {brief(name, 80)}", expected=expected, found="both")
    while groups and any(names.is_prediction(name) for name in groups[max(groups)]):
        del groups[max(groups)]
    if not groups:
        others = ", ".join(brief(name, 60) for name in list(container.tensors)[:3])
        expected = "tensors named model.layers.<i>.*"
        raise refusal(contract.CONTAINER_FILE, expected=expected, found=f"none, but {others}")
    count = max(groups) + 1
    if len(groups) != count:
        gap = next(index for index in range(count) if index not in groups)
        raise refusal(
            contract.CONTAINER_FILE, expected=f"tensors of layers 0..{count - 1}", found=f"none of layer {gap}"
        )
    return groups


def _hidden(container: Container, dims: Dimensions, notes: list[str]) -> int:
    """Return the model's hidden size: the width of the last norm, else config.json's."""
    norm = container.tensors.get(_NORM)
    if norm is None or norm.dtype in ("I8", "U8"):
        return dims.hidden
    width = math.prod(norm.shape)
    if not norm.shape or not width:
        raise refusal(
            f"{contract.CONTAINER_FILE}: {_NORM}",
            expected="a shape that gives the model's width",
            found=f"{norm.dtype} {list(norm.shape)}",
        )
    if width != dims.hidden:
        notes.append(f"model.hidden: {width} in the container, {dims.hidden} in {contract.CONFIG_FILE}")
    return width


def _kinds(tensors: Iterable[Tensor]) -> Counter[contract.ChunkKind]:
    """Count the tensors of each chunk kind; raise `Refused` where ternary chunks and anything else meet.

    One family of kernels runs the whole model, and a kernel that expands 2-bit weights reads nothing else. The other
    kinds are all made int8 when the engine loads them, so a mixture of those is sound.
    """
    kinds: Counter[contract.ChunkKind] = Counter()
    first: Tensor | None = None
    for tensor in tensors:
        kind = tensor.chunk_kind
        if first is None:
            first = tensor
        elif _is_ternary(kind) != _is_ternary(first.chunk_kind):
            raise refusal(
                f"{contract.CONTAINER_FILE}: {brief(tensor.name, 80)}",
                expected=f"{_stored(first)}, as {brief(first.name, 80)} has: one container has one layout",
                found=_stored(tensor),
                remedy="convert the whole model to one kind of chunk",
            )
        if kind is not None:
            kinds[kind] += 1
    return kinds


def _is_ternary(kind: contract.ChunkKind | None) -> bool:
    return kind is not None and kind.ternary


def _stored(tensor: Tensor) -> str:
    kind = tensor.chunk_kind
    return f"{kind.name} chunks" if kind else f"{tensor.dtype} {list(tensor.shape)}"


def _commonest(readers: Iterable[_LayerReader]) -> contract.ChunkKind | None:
    """Return the kind that holds the most weights, which a plan names for all."""
    weights: Counter[contract.ChunkKind] = Counter()
    for reader in readers:
        for tensor in reader.used:
            kind = tensor.chunk_kind
            if kind is not None:
                weights[kind] += tensor.weights or 0
    return weights.most_common(1)[0][0] if weights else None


def _refuse_changing_widths(readers: Iterable[_LayerReader], dims: Dimensions) -> None:
    """Refuse attention that is wider in one layer than in another where config.json states one head width for both.

    The engine has two attention designs at the most, the second only with global_head_dim, and picks by the kind of
    layer: a layer of another width would run a design that is not its own.
    """
    seen: dict[tuple[str, str], tuple[_LayerReader, int]] = {}
    for reader in readers:
        for name, width in reader.attention_widths.items():
            kind = reader.role if dims.has_second_width else ""
            first, expected = seen.setdefault((kind, name), (reader, width))
            if width != expected:
                of_kind = f" for {reader.role} layers" if kind else ""
                stated = f"{expected}, as in layer {first.index}: {contract.CONFIG_FILE} has one head width{of_kind}"
                remedy = "" if kind else "the second is global_head_dim, and layer_types says which layers have it"
                raise refusal(reader.place(name), expected=stated, found=width, remedy=remedy)


def _contradicted_kinds(readers: Iterable[_LayerReader], layers: Iterable[Layer], dims: Dimensions) -> Iterator[str]:
    """Yield a note for each kind of layer that config.json states and the tensors are not of."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for layer, kind in zip(layers, dims.layer_types, strict=False):
        role = contract.layer_type_role(kind)
        if role is None or (role != layer.role and not (role in ("full", "sliding") and layer.role == "mla")):
            found[kind, layer.role].append(layer.index)
    for (kind, role), indices in found.items():
        more = f" and {len(indices) - 1} more" if len(indices) > 1 else ""
        unknown = "" if contract.layer_type_role(kind) else ", a kind that is not known"
        yield (
            f"{contract.CONFIG_FILE}: layer_types: {brief(repr(kind), 60)} for layer {indices[0]}{more}{unknown}; "
            f"the plan says {role}, as the tensors are"
        )
    latent = [layer.index for layer in layers if layer.role == "mla"]
    if latent and dims.mla is None:
        yield (
            f"{contract.CONFIG_FILE}: no mla and no kv_lora_rank, though layer {latent[0]} of "
            f"{contract.CONTAINER_FILE} has latent attention; the engine reads them here"
        )
    if dims.mla is not None and not latent:
        yield f"{contract.CONFIG_FILE}: mla, though no layer of {contract.CONTAINER_FILE} has latent attention"
    if dims.experts is not None and not any(names.EXPERT_GATE in reader.tensors for reader in readers):
        yield f"{contract.CONFIG_FILE}: n_expert, though no layer of {contract.CONTAINER_FILE} has experts"


def _unused(readers: Iterable[_LayerReader]) -> Iterator[str]:
    """Yield notes that name the matrices of layers that no projection uses: nothing is dropped without a word."""
    layers: dict[bool, dict[str, list[int]]] = {False: defaultdict(list), True: defaultdict(list)}
    for reader in readers:
        for name in reader.unused():
            here = layers[names.is_for_host(name)][names.folded(name)]
            if not here or here[-1] != reader.index:
                here.append(reader.index)
    for is_for_host, found in layers.items():
        if not found:
            continue
        said = [f"{brief(name, 80)} ({_layers(indices)})" for name, indices in list(found.items())[:_MOST_NAMED]]
        if len(found) > _MOST_NAMED:
            said.append(f"{len(found) - _MOST_NAMED} more")
        why = "no design is theirs, the engine keeps them on the host" if is_for_host else "no projection uses them"
        yield f"{contract.CONTAINER_FILE}: {why}: {', '.join(said)}"


def _elsewhere(container: Container) -> Iterator[str]:
    """Yield a note for matrices of layers under other names than model.layers: the engine does not look there."""
    found = Counter(
        names.folded(name)
        for name, tensor in container.tensors.items()
        if names.is_layer_elsewhere(name) and names.is_matrix(tensor)
    )
    if found:
        said = [f"{brief(name, 80)} ({count})" for name, count in list(found.items())[:_MOST_NAMED]]
        if len(found) > _MOST_NAMED:
            said.append(f"{len(found) - _MOST_NAMED} more")
        yield f"{contract.CONTAINER_FILE}: layers under other names than model.layers.<i>, left out: {', '.join(said)}"


def _layers(indices: list[int]) -> str:
    return f"layer {indices[0]}" if len(indices) == 1 else f"{len(indices)} layers from {indices[0]}"


@dataclass(slots=True)
class _LayerReader:
    """Reads one layer, and keeps what it used of it."""

    index: int
    tensors: Mapping[str, Tensor]
    hidden: int
    count: int
    dims: Dimensions
    role: str = ""
    used: list[Tensor] = field(default_factory=list)
    attention_widths: dict[str, int] = field(default_factory=dict)
    from_config: list[str] = field(default_factory=list)

    def place(self, name: str) -> str:
        return f"{contract.CONTAINER_FILE}: layer {self.index}: {name}"

    def refuse(self, name: str, *, expected: object, found: object) -> ElfkilnError:
        return refusal(self.place(name), expected=expected, found=found)

    def layer(self) -> Layer:
        self.role = self.attention_kind()
        attention = {"gdn": self.gdn, "mla": self.mla}.get(self.role, self.attention)()
        projections = {entry.key: entry for entry in (*attention, *self.mlp(), *self.per_layer_input())}
        rows = contract.PLAN_PROJECTIONS
        return Layer(self.index, self.role, tuple(projections[row.key] for row in rows if row.key in projections))

    def unused(self) -> list[str]:
        """Return the names of the matrices that no projection used, in order."""
        used = {id(tensor) for tensor in self.used}
        return [
            name
            for name, tensor in self.tensors.items()
            if id(tensor) not in used and names.is_matrix(tensor) and not names.is_silent(name)
        ]

    def matrices(self, *, beside: tuple[str, ...] = ()) -> str:
        """Return the layer's matrices in words for a refusal, without those that are accounted for."""
        others = (name for name in self.unused() if name not in beside and not names.is_for_host(name))
        left = sorted({names.folded(name) for name in others})
        said = [brief(name, 60) for name in left[:6]]
        return ", ".join(said) + (f" and {len(left) - 6} more" if len(left) > 6 else "") if said else "no other matrix"

    def attention_kind(self) -> str:
        """Return the layer's role, by the tensors it has."""
        there = [kind for kind, marks in _ATTENTION.items() if any(mark in self.tensors for mark in marks)]
        if len(there) == 1:
            return "sliding" if there == ["full"] and contract.layer_type_role(self.kind) == "sliding" else there[0]
        if there:
            marks = [mark for kind in there for mark in _ATTENTION[kind] if mark in self.tensors]
            raise self.refuse("attention", expected="one kind", found=", ".join(marks))
        found = self.matrices(beside=(*_DENSE, *_EXPERTS))
        raise self.refuse("attention", expected=f"{names.GDN_QKV}, {names.Q} or {names.Q_A}", found=found)

    @property
    def kind(self) -> str:
        types = self.dims.layer_types
        return types[self.index] if self.index < len(types) else ""

    def gdn(self) -> list[Projection]:
        dims = self.dims
        width = self.outputs(names.GDN_QKV, self.hidden, 2 * dims.linear_key + dims.linear_value)
        value = self.outputs(names.GDN_GATE, self.hidden, dims.linear_value)
        found = [Projection("qkv", self.hidden, width, fused=True), Projection("attn_gate", self.hidden, value)]
        if names.GDN_OUT in self.tensors:
            found.append(Projection("ssm_out", self.outputs(names.GDN_OUT, self.hidden, value), self.hidden))
        return found

    def mla(self) -> list[Projection]:
        dims, mla = self.dims, self.dims.mla
        latent = self.outputs(names.Q_A, self.hidden, mla.q_lora if mla else 0)
        query = self.outputs(names.Q_B, latent, dims.heads * (mla.nope + mla.rope) if mla else 0)
        kv_latent = self.outputs(names.KV_A, self.hidden, mla.kv_lora + mla.rope if mla else 0)
        value = self.outputs(names.O, self.hidden, dims.heads * mla.value_head if mla else 0)
        return [
            Projection("q_a", self.hidden, latent),
            Projection("q_b", latent, query),
            Projection("kv_a", self.hidden, padded(kv_latent)),
            Projection("o", value, self.hidden),
        ]

    def attention(self) -> list[Projection]:
        dims = self.dims
        second = dims.has_second_width and self.role != "sliding"
        head_dim = dims.global_head_dim if second else dims.head_dim
        kv_heads = (dims.global_kv_heads if second else 0) or dims.kv_heads
        query = self.width(names.Q, dims.heads * head_dim * (2 if dims.output_gate and not second else 1))
        if names.K in self.tensors or names.V in self.tensors:
            keys = self.width(names.K, kv_heads * head_dim)
            values = self.width(names.V, kv_heads * head_dim)
        elif self.index >= self.count - dims.kv_shared_layers and kv_heads * head_dim:
            keys = values = kv_heads * head_dim  # it holds no keys and values, yet runs the design with room for them
        else:
            expected = f"a tensor of that name: only the last num_kv_shared_layers = {dims.kv_shared_layers} have none"
            raise self.refuse(names.K, expected=expected, found="none")
        output = self.width(names.O, dims.heads * head_dim)
        return [
            Projection("qkv", self.hidden, query + keys + values, fused=True),
            Projection("o", output, self.hidden),
        ]

    def width(self, name: str, configured: int) -> int:
        """Return a width of plain attention, and keep it: it may not change from layer to layer."""
        self.attention_widths[name] = self.outputs(name, self.hidden, configured)
        return self.attention_widths[name]

    def mlp(self) -> list[Projection]:
        dims = self.dims
        dense = [name for name in _DENSE if name in self.tensors]
        experts = [name for name in _EXPERTS if name in self.tensors]
        if dense and experts:
            expected = "experts or a dense MLP: the engine runs one of them in a layer"
            raise self.refuse("mlp", expected=expected, found=f"{experts[0]} and {dense[0]}")
        if names.EXPERT_GATE in experts:
            if dims.experts is None:
                expected = f"the count of the experts that layer {self.index} of {contract.CONTAINER_FILE} holds"
                raise refusal(f"{contract.CONFIG_FILE}: n_expert", expected=expected, found="nothing")
            return self.gate_up_down("gate_up", "down", _EXPERTS, dims.experts.width)
        if names.GATE in dense:
            wide = dims.double_wide and self.index >= self.count - dims.kv_shared_layers
            width = dims.intermediate * (2 if wide else 1)
            keys = ("dense_gate_up", "dense_down") if dims.mla and dims.experts else ("gate_up", "down")
            return self.gate_up_down(*keys, _DENSE, width)
        # Every layer of a decoder has an MLP: one under another name would be left out of the plan without a word.
        raise self.refuse("mlp", expected=f"{names.GATE} or {names.EXPERT_GATE}", found=self.matrices())

    def gate_up_down(self, gate_up: str, down: str, parts: tuple[str, str, str], width: int) -> list[Projection]:
        gate, up, back = (self.outputs(name, self.hidden, width) for name in parts)
        if not gate == up == back:
            expected = f"one width for {', '.join(parts)}"
            raise self.refuse("mlp", expected=expected, found=f"{gate}, {up}, {back}")
        return [Projection(gate_up, self.hidden, gate), Projection(down, gate, self.hidden)]

    def per_layer_input(self) -> list[Projection]:
        if names.PLE_GATE not in self.tensors:
            return []
        width = self.outputs(names.PLE_GATE, self.hidden, self.dims.per_layer_input)
        back = self.outputs(names.PLE_PROJ, self.hidden, width)
        return [Projection("ple_gate", self.hidden, width), Projection("ple_proj", back, self.hidden)]

    def outputs(self, name: str, known_side: int, configured: int) -> int:
        """Return the other side of a matrix of which one side is known, or the configured one if nothing tells it."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise self.refuse(name, expected="a tensor of that name", found="none")
        self.used.append(tensor)
        weights = tensor.weights
        count = 1
        if name in _EXPERTS:
            count = self.experts_in(name, tensor)
        if weights is None:
            if not configured:
                expected = f"chunks of a known size, or the width in {contract.CONFIG_FILE}"
                raise self.refuse(name, expected=expected, found=_stored(tensor))
            self.from_config.append(name)
            return configured
        if weights % count:
            expected = f"weights that n_expert = {count} of {contract.CONFIG_FILE} divides"
            raise self.refuse(name, expected=expected, found=f"{weights} weights")
        self.check_grid(name, tensor, known_side, count)
        width = weights // count // known_side
        if not width or weights // count % known_side:
            expected = f"a whole number of rows of {known_side} weights"
            raise self.refuse(name, expected=expected, found=f"{weights // count} weights")
        return width

    def experts_in(self, name: str, tensor: Tensor) -> int:
        """Return how many experts are pooled in a tensor: the engine divides its bytes by n_expert.

        Published containers pool them along the first dimension, either as [experts, chunks, chunk bytes] or as one
        grid, [experts * tile rows, column blocks, chunk bytes].
        """
        count = self.dims.experts.count if self.dims.experts else 0
        if not count or not tensor.shape or not tensor.shape[0] or tensor.shape[0] % count:
            expected = f"a first dimension that n_expert = {count} of {contract.CONFIG_FILE} divides"
            raise self.refuse(name, expected=expected, found=_stored_shape(tensor))
        return count

    def check_grid(self, name: str, tensor: Tensor, known_side: int, count: int) -> None:
        """Refuse a grid of chunks whose known side is another: it tells both, and holds as many weights transposed."""
        shape = tensor.shape
        pooled = f"{count} experts of " if name in _EXPERTS else ""
        side = "rows" if name in _OUTPUT_SIDE else "columns"
        if tensor.chunk_kind is not None and len(shape) == 3 and (name not in _EXPERTS or shape[0] != count):
            rows, columns = shape[0] // count * contract.CHUNK_ROWS, shape[1] * contract.CHUNK_COLUMNS
            if (rows if side == "rows" else columns) != known_side:
                raise self.refuse(name, expected=f"{pooled}{known_side} {side}", found=_stored_shape(tensor))
        plain = tensor.chunk_kind is None and tensor.dtype not in ("I8", "U8")
        if plain and count == 1 and len(shape) == 2 and known_side not in shape:  # stored with either side first
            raise self.refuse(name, expected=f"a side of {known_side}", found=_stored_shape(tensor))


def _stored_shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))

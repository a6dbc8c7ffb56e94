"""Derives a model's GEMM designs from its config.json, by the engine's own rules (q4nx_forward.cpp, q4nx_pack.c)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.engine.legality import legal_columns
from elfkiln.errors import ElfkilnError, refusal
from elfkiln.io.strict_json import read_strict_json, shown

MAX_CONFIG_BYTES = 8 * 1024 * 1024
MAX_DIMENSION = 2**31 - 1

_ELF_ROLES = {role.name: role.elf_role for role in contract.ROLES} | {"QKVLIN": "QKV"}
_OTHER_SPELLINGS = {row.key: row.others for row in contract.CONFIG_KEYS}


@dataclass(frozen=True, slots=True)
class Mla:
    """Widths of multi-head latent attention."""

    q_lora: int
    kv_lora: int
    rope: int
    nope: int
    value_head: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: how many there are, how many a token uses, and the width of one."""

    count: int
    top_k: int
    width: int


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What of a config.json decides geometry. Zero stands for "the model has none of it".

    `intermediate` is the width of the dense MLP, or of the leading dense layers where `experts` is set.
    `linear_key` and `linear_value` are GDN's KD and VD (heads times head width). `layout_stated` tells whether
    config.json has the key at all. `notes` are things the engine would read otherwise.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    output_gate: bool = False
    linear_key: int = 0
    linear_value: int = 0
    global_head_dim: int = 0
    global_kv_heads: int = 0
    per_layer_input: int = 0
    double_wide: bool = False
    kv_shared_layers: int = 0
    mla: Mla | None = None
    experts: Experts | None = None
    leading_dense: int = 0
    layer_types: tuple[str, ...] = ()
    layout: str = contract.CONFIG_LAYOUTS[0]
    layout_stated: bool = False
    arch: str = ""
    notes: tuple[str, ...] = ()

    @property
    def must_split(self) -> bool:
        """Whether gate and up have to be two designs: the engine's expert MLP has no fused form."""
        return self.experts is not None

    @property
    def fused_by_default(self) -> bool:
        """Whether the old build scripts fuse gate and up, where no kernel directory decides."""
        return not self.must_split and 2 * self.intermediate <= contract.FUSED_MAX_N

    def qkv_width(self, *, second: bool = False) -> int:
        """Return N of the fused query, key, value: query twice with an output gate; `second` is the other width."""
        if second:
            kv_heads = self.global_kv_heads or self.kv_heads
            return (self.heads + 2 * kv_heads) * self.global_head_dim
        return self.heads * self.head_dim * (2 if self.output_gate else 1) + 2 * self.kv_heads * self.head_dim

    @property
    def has_second_width(self) -> bool:
        """Whether full-attention layers have another head width than sliding ones."""
        return self.global_head_dim not in (0, self.head_dim)


@dataclass(frozen=True, slots=True)
class Design:
    """A derived design: the engine's design role, its geometry, and N before padding.

    >>> Design("KVA", 2048, 640, 576).elf_role, Design("QKVLIN", 5120, 10240, 10240).elf_role
    ('KVA', 'QKV')
    """

    role: str
    K: int
    N: int
    real_N: int

    @property
    def elf_role(self) -> str:
        """The role its ELF name carries."""
        return _ELF_ROLES[self.role]


def read_config(path: Path) -> Dimensions:
    """Read a config.json; raises `Refused` naming the key whose value cannot be used.

    NaN and Infinity are let through where no geometry hangs on them: published configs contain them.
    """
    value = read_strict_json(path, limit=MAX_CONFIG_BYTES, non_finite=True)
    return dimensions(value, path.name)


def dimensions(config: Any, where: str = contract.CONFIG_FILE) -> Dimensions:
    """Return the dimensions of a parsed config.json; `where` stands for the file in messages.

    Keys are those of `contract.CONFIG_KEYS`. A model whose text part lies in `text_config` is read there, and other
    spellings of a key are taken where the engine's own is absent; each is noted, since the engine takes neither.
    """
    if not isinstance(config, dict):
        raise refusal(where, expected="an object", found=shown(config))
    notes: list[str] = []
    text = config.get("text_config")
    if "hidden_size" not in config and isinstance(text, dict):
        notes.append(f"{where}: dimensions taken from text_config; the engine reads the outermost object only")
        config = {**config, **text}
    return _Config(where, config, notes).dimensions()


def derive_designs(dims: Dimensions, *, fused: bool) -> tuple[Design, ...]:
    """Return the designs of a model in the engine's order.

    `fused` chooses one GU design or the pair G, U. Raises `Refused` when it is asked of a mixture of experts.
    """
    if fused and dims.must_split:
        raise refusal("fusion.gate_up", expected="split, as the experts run G and U", found="fused")
    return tuple(_designs(dims, fused=fused))


def geometry_faults(designs: tuple[Design, ...]) -> tuple[str, ...]:
    """Name every derived geometry that no design with whole tiles can serve.

    >>> geometry_faults((Design("QKV", 576, 960, 960),))
    ('QKV 576x960: N is no multiple of 128 (padded: 1024)',)
    """
    faults = []
    for design in designs:
        shape = f"{design.role} {design.K}x{design.N}"
        if design.K % contract.TILE_K:
            faults.append(f"{shape}: K is no multiple of {contract.TILE_K}")
        if design.N % contract.TILE_N:
            faults.append(f"{shape}: N is no multiple of {contract.TILE_N} (padded: {padded(design.N)})")
        elif not legal_columns(design.N):
            faults.append(f"{shape}: N/{contract.TILE_N} = {design.N // contract.TILE_N} has no divisor in 2..8")
    return tuple(faults)


def padded(width: int) -> int:
    """Return a width padded to whole tiles of 128, as the engine pads the MLA key/value projection (q4nx_pack.h).

    >>> padded(576), padded(18176)
    (640, 18176)
    """
    return -(-width // contract.TILE_N) * contract.TILE_N


def _designs(dims: Dimensions, *, fused: bool) -> Iterator[Design]:
    hidden, width = dims.hidden, dims.experts.width if dims.experts else dims.intermediate
    query = dims.heads * (dims.mla.value_head if dims.mla else dims.head_dim)

    def design(role: str, K: int, N: int) -> Design:
        return Design(role, K, N, N)

    if dims.mla:
        mla = dims.mla
        latent = mla.kv_lora + mla.rope
        yield design("QA", hidden, mla.q_lora)
        yield design("QB", mla.q_lora, dims.heads * (mla.nope + mla.rope))
        yield Design("KVA", hidden, padded(latent), latent)
    else:
        yield design("QKV", hidden, dims.qkv_width())
    yield design("O", query, hidden)
    if fused:
        yield design("GU", hidden, 2 * width)
    else:
        yield design("G", hidden, width)
        yield design("U", hidden, width)
    yield design("D", width, hidden)
    if dims.mla:
        if dims.leading_dense:
            yield design("DG", hidden, dims.intermediate)
            yield design("DU", hidden, dims.intermediate)
            yield design("DD", dims.intermediate, hidden)
        return
    if dims.has_second_width:
        yield design("QKV2", hidden, dims.qkv_width(second=True))
        yield design("O2", dims.heads * dims.global_head_dim, hidden)
    if dims.per_layer_input:
        yield design("PLEGATE", hidden, dims.per_layer_input)
        yield design("PLEPROJ", dims.per_layer_input, hidden)
    if dims.double_wide:
        yield design("GU2", hidden, 4 * width)
        yield design("D2", 2 * width, hidden)
    if dims.linear_key:
        yield design("QKVLIN", hidden, 2 * dims.linear_key + dims.linear_value)
        yield design("Z", hidden, dims.linear_value)


@dataclass(frozen=True, slots=True)
class _Config:
    """Reads keys of one config.json and words the refusals."""

    where: str
    values: Mapping[str, Any]
    notes: list[str]

    def refuse(self, key: str, *, expected: object, found: object) -> ElfkilnError:
        return refusal(f"{self.where}: {key}", expected=expected, found=found)

    def value(self, key: str) -> Any:
        if self.values.get(key) is not None:
            return self.values[key]
        for other in _OTHER_SPELLINGS.get(key, ()):
            if self.values.get(other) is not None:
                self.notes.append(f"{self.where}: {key} taken from {other}; the engine reads only {key}")
                return self.values[other]
        return None

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number above 0, or the default where the key is absent (None: the key is needed)."""
        value = self.value(key)
        if value is None:
            if default is None:
                raise self.refuse(key, expected="a positive whole number", found="nothing")
            return default
        least = 1 if default is None else 0
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_DIMENSION:
            raise self.refuse(key, expected="a whole number of at least " + str(least), found=shown(value))
        return value

    def flag(self, key: str) -> bool:
        value = self.value(key)
        if value not in (None, True, False, 0, 1):
            raise self.refuse(key, expected="true or false", found=shown(value))
        return bool(value)

    def dimensions(self) -> Dimensions:
        hidden, heads = self.number("hidden_size"), self.number("num_attention_heads")
        kv_heads = self.number("num_key_value_heads", heads) or heads
        layers = self.number("num_hidden_layers")
        mla = self.mla()
        experts, dense = self.experts()
        global_kv_heads = self.number("num_global_key_value_heads", 0)
        if mla is None:
            for key, count in (("num_key_value_heads", kv_heads), ("num_global_key_value_heads", global_kv_heads)):
                if count and heads % count:
                    expected = f"a divisor of num_attention_heads = {heads}"
                    raise self.refuse(key, expected=expected, found=count)
        head_dim = self.number("head_dim", 0) or hidden // heads
        if not head_dim:
            raise self.refuse("head_dim", expected="a width, or hidden_size >= num_attention_heads", found="nothing")
        leading_dense = self.number("leading_dense_block_count", 0) if experts else 0
        if leading_dense and not dense:
            expected = f"the MLP width of the {leading_dense} leading dense layers"
            raise self.refuse("dense_intermediate_size", expected=expected, found="nothing")
        layer_types = self.layer_types(layers)
        linear_key, linear_value = self.linear(layer_types)
        if linear_key and mla is None and linear_value != heads * head_dim:
            self.notes.append(
                f"{self.where}: GDN value width {linear_value} is not heads*head_dim = {heads * head_dim}; "
                "the engine runs the GDN output through design O and needs them equal"
            )
        return Dimensions(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate=dense,
            output_gate=self.flag("attn_output_gate"),
            linear_key=linear_key,
            linear_value=linear_value,
            global_head_dim=self.number("global_head_dim", 0),
            global_kv_heads=global_kv_heads,
            per_layer_input=self.number("hidden_size_per_layer_input", 0),
            double_wide=self.flag("use_double_wide_mlp"),
            kv_shared_layers=self.shared_layers(layers),
            mla=mla,
            experts=experts,
            leading_dense=leading_dense,
            layer_types=layer_types,
            layout=self.layout(),
            layout_stated=contract.LAYOUT_KEY in self.values,
            arch=self.arch(),
            notes=tuple(self.notes),
        )

    def mla(self) -> Mla | None:
        if not self.flag("mla"):
            if self.values.get("kv_lora_rank") is None:
                return None
            self.notes.append(f"{self.where}: kv_lora_rank taken to mean mla; the engine reads only mla")
        keys = ("q_lora_rank", "kv_lora_rank", "rope_dim", "qk_nope_head_dim", "v_head_dim")
        return Mla(*(self.number(key) for key in keys))

    def experts(self) -> tuple[Experts | None, int]:
        """Return the experts, if any, and the width of the dense MLP."""
        count = self.number("n_expert", 0)
        if not count:
            return None, self.number("intermediate_size")
        top_k = self.number("top_k")
        if top_k > count:
            raise self.refuse("top_k", expected=f"at most n_expert = {count}", found=top_k)
        width = self.values.get(contract.EXPERT_WIDTH_KEY)
        if width is None:
            return Experts(count, top_k, self.number("intermediate_size")), self.number("dense_intermediate_size", 0)
        note = f"width of one expert taken from {contract.EXPERT_WIDTH_KEY}; the engine reads intermediate_size"
        self.notes.append(f"{self.where}: {note}")
        width = self.number(contract.EXPERT_WIDTH_KEY)
        return Experts(count, top_k, width), self.number("intermediate_size", 0)

    def layer_types(self, layers: int) -> tuple[str, ...]:
        value = self.value("layer_types")
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(kind, str) for kind in value):
            raise self.refuse("layer_types", expected="a list of strings", found=shown(value))
        if len(value) != layers:
            raise self.refuse("layer_types", expected=f"{layers} entries (num_hidden_layers)", found=len(value))
        return tuple(value)

    def linear(self, layer_types: tuple[str, ...]) -> tuple[int, int]:
        keys = (
            "linear_num_key_heads",
            "linear_key_head_dim",
            "linear_num_value_heads",
            "linear_value_head_dim",
        )
        needed = None if any("linear" in kind for kind in layer_types) else 0
        key_heads, key_width, value_heads, value_width = found = [self.number(key, needed) for key in keys]
        if any(found) and not all(found):
            missing = ", ".join(key for key, value in zip(keys, found, strict=True) if not value)
            raise self.refuse("linear_*", expected="all four of " + ", ".join(keys), found=f"no {missing}")
        return key_heads * key_width, value_heads * value_width

    def shared_layers(self, layers: int) -> int:
        shared = self.number("num_kv_shared_layers", 0)
        if shared > layers:
            expected = f"at most num_hidden_layers = {layers}"
            raise self.refuse("num_kv_shared_layers", expected=expected, found=shared)
        return shared

    def layout(self) -> str:
        layout = self.values.get(contract.LAYOUT_KEY, contract.CONFIG_LAYOUTS[0])
        if layout not in contract.CONFIG_LAYOUTS:
            expected = "one of " + ", ".join(contract.CONFIG_LAYOUTS)
            raise self.refuse(contract.LAYOUT_KEY, expected=expected, found=shown(layout))
        return str(layout)

    def arch(self) -> str:
        arch = self.values.get("model_type", "")
        if not isinstance(arch, str):
            raise self.refuse("model_type", expected="a string", found=shown(arch))
        return arch

"""Reads what of a config.json decides geometry, by the engine's own keys (q4nx_forward.cpp)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.engine import contract
from elfkiln.errors import ElfkilnError
from elfkiln.io.checked import Value
from elfkiln.io.strict_json import read_strict_json, shown

MAX_CONFIG_BYTES = 8 * 1024 * 1024
MAX_DIMENSION = 2**31 - 1

_PATTERN_KEYS = ("sliding_window_pattern", "_sliding_window_pattern")
_LONGEST_CYCLE = 1024


def _every(count: int) -> tuple[bool, ...]:
    """Return which layers of a cycle slide where the last of `count` sees all."""
    return (*[True] * (count - 1), False)


_CYCLE_OF: Mapping[str, tuple[bool, ...]] = {
    "gemma2": _every(2),
    "gemma3": _every(6),
    "gemma3_text": _every(6),
    "cohere2": _every(4),
    "mistral": (True,),
    "mixtral": (True,),
    "phi3": (True,),
    "starcoder2": (True,),
}
"""Which layers slide in classes that have it as their default, by model_type: every layer but the last of a cycle, or
all of them."""

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

    In a sparse config.json, read beside a container, zero heads or a zero MLP width stand for "not said".
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


def read_config(path: Path, *, sparse: bool = False) -> Dimensions:
    """Read a config.json; raises `Refused` naming the key whose value cannot be used.

    NaN and Infinity are let through where no geometry hangs on them: published configs contain them. `sparse` is that
    of `dimensions`.
    """
    value = read_strict_json(path, limit=MAX_CONFIG_BYTES, non_finite=True)
    return dimensions(value, path.name, sparse=sparse)


def dimensions(config: Any, where: str = contract.CONFIG_FILE, *, sparse: bool = False) -> Dimensions:
    """Return the dimensions of a parsed config.json; `where` stands for the file in messages.

    Keys are those of `contract.CONFIG_KEYS`. A model whose text part lies in `text_config` is read there, and other
    spellings of a key are taken where the engine's own is absent; each is noted, since the engine takes neither.
    `sparse` is for a config.json beside a container: heads and the MLP width may then be left out, with a note, as
    Gemma-3 does, whose class has them as defaults. The container tells the widths.
    """
    notes: list[str] = []
    return _Config(where, text_part(config, where, notes), notes, sparse).dimensions()


def dimensions_of(values: Mapping[str, Any], where: str, notes: list[str]) -> Dimensions:
    """Return the dimensions of a text model's keys, which nothing may be left out of; `notes` are those so far."""
    return _Config(where, values, notes).dimensions()


def text_part(config: Any, where: str, notes: list[str]) -> Mapping[str, Any]:
    """Return the keys of a config.json that describe the text model, from text_config where they lie there.

    Adds a note in that case. Raises `Refused` for what is not an object.
    """
    own = {key: field.raw for key, field in Value(config, where).table().items()}
    text = own.get("text_config")
    if "hidden_size" in own or not isinstance(text, dict):
        return own
    notes.append(f"{where}: dimensions taken from text_config; the engine reads the outermost object only")
    return {**own, **text}


@dataclass(frozen=True, slots=True)
class _Config:
    """Reads keys of one config.json: over the checked reader, other spellings of a key, and null for a key left out."""

    where: str
    values: Mapping[str, Any]
    notes: list[str]
    sparse: bool = False

    def refuse(self, key: str, *, expected: object, found: object, remedy: str = "") -> ElfkilnError:
        return Value(None, self.where, key).refuse(expected, found, remedy)

    def field(self, key: str) -> Value:
        """Return the value of a key, or of the first other spelling that is there, with a note; else that of null."""
        value = self.values.get(key)
        for other in _OTHER_SPELLINGS.get(key, ()):
            if value is None and self.values.get(other) is not None:
                self.notes.append(f"{self.where}: {key} taken from {other}; the engine reads only {key}")
                value = self.values[other]
        return Value(value, self.where, key)

    def value(self, key: str) -> Any:
        return self.field(key).raw

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number above 0, or the default where the key is absent (None: the key is needed)."""
        field = self.field(key)
        if field.raw is None and default is not None:
            return default
        return field.whole(1 if default is None else 0, MAX_DIMENSION)

    def number_or_container(self, key: str) -> int:
        """Return a number that a container tells as well: 0 where a sparse config.json leaves it out."""
        if self.sparse and self.value(key) is None:
            self.notes.append(f"{self.where}: no {key}; the container tells the widths, but the engine reads it here")
            return 0
        return self.number(key)

    def flag(self, key: str) -> bool:
        field = self.field(key)
        # 0 and 1 as well: the engine takes them.
        return (
            bool(field.raw)
            if field.raw is None or (type(field.raw) is int and field.raw in (0, 1))
            else field.boolean()
        )

    def dimensions(self) -> Dimensions:
        hidden, heads = self.number("hidden_size"), self.number_or_container("num_attention_heads")
        kv_heads = self.number("num_key_value_heads", heads) or heads
        layers = self.number("num_hidden_layers")
        mla = self.mla()
        experts, dense = self.experts()
        global_kv_heads = self.number("num_global_key_value_heads", 0)
        if mla is None and heads:
            for key, count in (("num_key_value_heads", kv_heads), ("num_global_key_value_heads", global_kv_heads)):
                if count and heads % count:
                    expected = f"a divisor of num_attention_heads = {heads}"
                    raise self.refuse(key, expected=expected, found=count)
        head_dim = self.number("head_dim", 0) or (hidden // heads if heads else 0)
        if heads and not head_dim:
            raise self.refuse("head_dim", expected="a width, or hidden_size >= num_attention_heads", found="nothing")
        leading_dense = self.number("leading_dense_block_count", 0) if experts else 0
        if leading_dense and not dense:
            expected = f"the MLP width of the {leading_dense} leading dense layers"
            raise self.refuse("dense_intermediate_size", expected=expected, found="nothing")
        layer_types = self.layer_types(layers)
        linear_key, linear_value = self.linear(layer_types)
        if linear_key and heads and mla is None and linear_value != heads * head_dim:
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
            return None, self.number_or_container("intermediate_size")
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
        field = self.field("layer_types")
        if field.raw is None:
            return self.sliding_types(layers)
        kinds = tuple(item.text(empty=True) for item in field.items())
        if len(kinds) != layers:
            raise field.refuse(f"{layers} entries (num_hidden_layers)", len(kinds))
        return kinds

    def sliding_types(self, layers: int) -> tuple[str, ...]:
        """Return the kinds of layers that a sliding window gives where layer_types does not say; () without one.

        The rules are those of the Hugging Face classes. What they leave open is refused: a layer with a window that
        is taken for one of full attention computes another model.
        """
        window, used = self.value("sliding_window"), self.value("use_sliding_window")
        if used is not None and not self.flag("use_sliding_window"):
            return ()
        key, cycle = self.sliding_cycle()
        if cycle is None and window is None:
            return ()
        if window is not None:
            self.number("sliding_window", 0)
        arch = self.values.get("model_type")
        bound = self.value("max_window_layers")
        if cycle is None and bound is not None:
            key, first = "max_window_layers", self.number("max_window_layers", 0)
            slides = [index >= first for index in range(layers)]
        elif cycle is None and isinstance(arch, str) and arch in _CYCLE_OF:
            key, cycle = f"model_type {arch}", _CYCLE_OF[arch]
            slides = [cycle[index % len(cycle)] for index in range(layers)]
        elif cycle is None:
            raise self.refuse(
                "layer_types",
                expected=f"the kind of each layer, or sliding_window_pattern, as sliding_window is {shown(window)}",
                found="nothing",
                remedy="add it, or use_sliding_window: false where every layer attends to all",
            )
        else:
            slides = [cycle[index % len(cycle)] for index in range(layers)]
        self.notes.append(
            f"{self.where}: layer_types derived from {key}: {sum(slides)} of {layers} layers slide; "
            "the engine reads only layer_types"
        )
        return tuple("sliding_attention" if one else "full_attention" for one in slides)

    def sliding_cycle(self) -> tuple[str, tuple[bool, ...] | None]:
        """Return the key of a sliding pattern and which layers of one cycle slide; None without such a key."""
        keys = [key for key in _PATTERN_KEYS if self.values.get(key) is not None]
        cycles = {key: self.cycle_of(key, self.values[key]) for key in keys}
        if len(set(cycles.values())) > 1:
            expected = f"one pattern in {' and '.join(keys)}"
            raise self.refuse(keys[0], expected=expected, found=" and ".join(shown(self.values[key]) for key in keys))
        return next(((f"{key} = {shown(self.values[key])}", cycle) for key, cycle in cycles.items()), ("", None))

    def cycle_of(self, key: str, value: Any) -> tuple[bool, ...]:
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_CYCLE and set(value) <= set("LG"):
            return tuple(letter == "L" for letter in value)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LONGEST_CYCLE:
            return _every(value)
        expected = f"a number of layers of 1 to {_LONGEST_CYCLE}, the last of which sees all, or letters L and G"
        raise self.refuse(key, expected=expected, found=shown(value))

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
        return Value(layout, self.where, contract.LAYOUT_KEY).choice(contract.CONFIG_LAYOUTS)

    def arch(self) -> str:
        return Value(self.values.get("model_type", ""), self.where, "model_type").text(empty=True)

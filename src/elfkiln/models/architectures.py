"""The model architectures that the engine knows, by model_type of config.json, and why it does not know others.

Its public sources say what the engine runs: the dimension tables and build scripts name models, the forward pass names
tensor families. An architecture is known where both fit: its layers are made of families the forward pass has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elfkiln.errors import refusal
from elfkiln.io.strict_json import shown


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture that the engine knows.

    `known_by` says where its public sources name it. `defaults` are keys that its Hugging Face class fills in where
    config.json leaves them out: the published files of some models do.
    """

    model_type: str
    known_by: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
_GEMMA4 = {"head_dim": 256, "global_head_dim": 512}
_GDN = {"attn_output_gate": True, "full_attention_interval": 4, "head_dim": 256}

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("llama", "npu_dims.h: llama, nanbeige4.1, smollm2"),
    Architecture("mistral", "build_xclbins.sh: mistral_7b"),
    Architecture("qwen2", "npu_dims.h: zr1"),
    Architecture("qwen3", "npu_dims.h: qwen3_0_6b to qwen3_14b", {"head_dim": 128}),
    Architecture("qwen3_vl", "npu_dims.h: qwen3_vl_4b", {"head_dim": 128}),
    Architecture("qwen3_vl_text", "npu_dims.h: qwen3_vl_4b", {"head_dim": 128}),
    Architecture("qwen3_moe", "the attention of qwen3 and the experts of q4nx_forward", {"head_dim": 128}),
    Architecture("qwen3_5", "plan-layer page: qwen3_5", _GDN),
    Architecture("qwen3_5_text", "plan-layer page: qwen3_5", _GDN),
    Architecture("qwen3_5_moe", "npu_dims.h: qwen3.6_moe_35b", _GDN),
    Architecture("qwen3_5_moe_text", "npu_dims.h: qwen3.6_moe_35b", _GDN),
    Architecture("phi3", "npu_dims.h: phi4_mini_4b"),
    Architecture("gemma3", "npu_dims.h: gemma3_1b, gemma3_4b", _GEMMA3),
    Architecture("gemma3_text", "npu_dims.h: gemma3_1b, gemma3_4b", _GEMMA3),
    Architecture("gemma4", "q4nx_forward: gemma4_e2b, gemma4_e4b", _GEMMA4),
    Architecture("gemma4_text", "q4nx_forward: gemma4_e2b, gemma4_e4b", _GEMMA4),
    Architecture("olmoe", "build_xclbins.sh: olmoe_1b"),
    Architecture("deepseek2", "q4nx_forward: latent attention"),
    Architecture("deepseek_v2", "q4nx_forward: latent attention"),
    Architecture("deepseek_v3", "q4nx_forward: latent attention"),
    Architecture("glm4_moe_lite", "q4nx_forward: latent attention, GLM-4.7-Flash"),
)

_NOT_KNOWN: Mapping[str, str] = {
    "falcon": "its MLP has no gate, and its QKV has no columns with whole tiles",
    "zamba2": "its Mamba layers are none of the engine's; a table of its attention is published",
    "zaya": "only its experts are published",
    "deepseek_v4": "its dimensions are reserved, and no build is published",
}

_ONE_WAY: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("attention_k_eq_v", (False,), "the engine packs keys and values apart"),
    ("enable_moe_block", (False,), "the engine runs experts or a dense MLP in a layer, not both"),
    ("mlp_only_layers", ([],), "the engine runs experts in every layer but leading ones"),
    ("decoder_sparse_step", (1,), "the engine runs experts in every layer but leading ones"),
    ("moe_layer_freq", (1,), "the engine runs experts in every layer but leading ones"),
    ("is_encoder_decoder", (False,), "the engine runs decoders"),
    ("cross_attention_layers", ([],), "the engine has no attention to another tower"),
    ("add_cross_attention", (False,), "the engine has no attention to another tower"),
)
"""Keys that mean another computation with any other value: key, the values that do not, why."""


def known_architecture(values: Mapping[str, Any], where: str) -> Architecture:
    """Return the architecture of a config.json; raises `Refused` for one the engine does not know.

    `values` are the keys of its text model. A key that makes another model of a known architecture is refused too.
    """
    model_type = values.get("model_type")
    found = next((entry for entry in ARCHITECTURES if entry.model_type == model_type), None)
    if found is None:
        known = ", ".join(entry.model_type for entry in ARCHITECTURES)
        why = _NOT_KNOWN.get(model_type, "") if isinstance(model_type, str) else ""
        raise refusal(
            f"{where}: model_type",
            expected="an architecture the engine knows",
            found=shown(model_type),
            remedy=why or f"it knows {known}",
        )
    for key, allowed, why in _ONE_WAY:
        value = values.get(key)
        if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
            expected = f"{shown(allowed[0]) if allowed[0] != [] else 'none'}: {why}"
            raise refusal(f"{where}: {key}", expected=expected, found=shown(value))
    return found

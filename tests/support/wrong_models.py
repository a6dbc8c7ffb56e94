"""Model folders that once made a wrong plan without a word, by name: tensors and config.json. Each is of a kind."""

from __future__ import annotations

from plan_data import attention, dense_mlp, layer_tensors, matrix

H = 1024
CONFIG = {
    "hidden_size": H,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 2048,
    "q4nx_weight_layout": "b8",
}


def layer(index, kind="q4_1"):
    """Return a sound layer: attention 1024 wide with 512 of keys and values, MLP 2048."""
    return attention(index, H, 1024, 512, 1024, kind) | dense_mlp(index, H, 2048, kind)


def config(**own):
    """Return config.json of two layers, with changes; None takes a key out."""
    return {key: value for key, value in (CONFIG | own).items() if value is not None}


def without(tensors, *parts):
    """Return tensors without those whose name has one of the parts."""
    return {name: shape for name, shape in tensors.items() if not any(part in name for part in parts)}


TWO = layer(0) | layer(1)
ONE = config(num_hidden_layers=1)

WRONG_MODELS = {
    "gate-missing": (without(TWO, "layers.1.mlp.gate"), config()),
    "no-mlp-in-layer-1": (without(TWO, "layers.1.mlp"), config()),
    "fused-gate-up": (
        attention(0, H, 1024, 512, 1024)
        | layer_tensors(0, mlp__gate_up_proj=matrix(4096, H), mlp__down_proj=matrix(H, 2048)),
        ONE,
    ),
    "shared-expert-ignored": (layer(0) | layer_tensors(0, mlp__gate_shexp_proj=matrix(512, H)), ONE),
    "two-kinds-of-chunk": (layer(0, "pb16i") | layer(1), config(q4nx_weight_layout=None)),
    "sliding-pattern": (
        {name: shape for index in range(6) for name, shape in layer(index).items()},
        config(num_hidden_layers=6, sliding_window=512, sliding_window_pattern=6),
    ),
    "empty-norm": (
        {"model.norm.weight": ("BF16", [0]), "model.layers.0.self_attn.q_proj.weight": ("BF16", [1])},
        ONE,
    ),
    "scalar-expert": (
        attention(0, H, 1024, 512, 1024) | layer_tensors(0, mlp__gate_exps_proj=("F32", [])),
        config(num_hidden_layers=1, n_expert=8, top_k=2),
    ),
}

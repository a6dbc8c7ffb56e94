"""Small models of each family that the engine knows, as tensors and config.json: hidden size 512, widths in chunks."""

from __future__ import annotations

from plan_data import attention, dense_mlp, experts, gdn, layer_tensors, matrix, write_model

H = 512
NORM = {"model.norm.weight": ("BF16", [H])}
BASE = {
    "hidden_size": H,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 768,
}


def dense_model(layers=2, **config):
    """A Qwen3 in small: 8 heads of 128, 4 KV heads, MLP 768."""
    tensors = dict(NORM)
    for index in range(layers):
        tensors |= attention(index, H, 1024, 512, 1024) | dense_mlp(index, H, 768)
    return tensors, {**BASE, "model_type": "qwen3", "num_hidden_layers": layers, **config}


def hybrid_model(kind="q4k"):
    """A Qwen3.5 in small: three GDN layers and one of full attention with an output gate."""
    tensors = dict(NORM)
    for index in range(3):
        tensors |= gdn(index, H, 2 * 512 + 1024, 1024, kind) | dense_mlp(index, H, 768, kind)
    tensors |= attention(3, H, 2 * 1024, 512, 1024, kind) | dense_mlp(3, H, 768, kind)
    config = {
        **BASE,
        "model_type": "qwen3_5",
        "num_hidden_layers": 4,
        "attn_output_gate": True,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 8,
        "linear_value_head_dim": 128,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    }
    return tensors, config


def mixture_model(**config):
    """A Qwen3 mixture in small: 4 experts of width 256, two a token, and a shared one."""
    tensors = dict(NORM)
    for index in range(2):
        tensors |= attention(index, H, 1024, 512, 1024)
        tensors |= layer_tensors(
            index,
            mlp__gate_exps_proj=experts(4, 256, H),
            mlp__up_exps_proj=experts(4, 256, H),
            mlp__down_exps_proj=experts(4, H, 256),
            mlp__share_gate_exps_proj=matrix(256, H),
            moe_router=("BF16", [H, 4]),
        )
    config = {**BASE, "num_hidden_layers": 2, "intermediate_size": 256, "n_expert": 4, "top_k": 2, **config}
    return tensors, config


def latent_model():
    """A GLM-4.7-Flash in small: latents of 256, heads of 64 + 64 and 128; one dense layer, one of experts."""
    tensors = dict(NORM)
    for index in range(2):
        tensors |= layer_tensors(
            index,
            self_attn__q_a_proj=matrix(256, H),
            self_attn__q_b_proj=matrix(8 * 128, 256),
            self_attn__kv_a_proj_with_mqa=matrix(320, H),
            self_attn__o_proj=matrix(H, 8 * 128),
        )
    tensors |= dense_mlp(0, H, 1024)
    tensors |= layer_tensors(
        1,
        mlp__gate_exps_proj=experts(4, 256, H),
        mlp__up_exps_proj=experts(4, 256, H),
        mlp__down_exps_proj=experts(4, H, 256),
    )
    config = {
        **BASE,
        "model_type": "deepseek2",
        "num_hidden_layers": 2,
        "mla": 1,
        "q_lora_rank": 256,
        "kv_lora_rank": 256,
        "rope_dim": 64,
        "qk_nope_head_dim": 64,
        "v_head_dim": 128,
        "n_expert": 4,
        "top_k": 2,
        "intermediate_size": 256,
        "dense_intermediate_size": 1024,
        "leading_dense_block_count": 1,
    }
    return tensors, config


def gemma_model():
    """A Gemma4 in small: sliding and full layers of two widths, per-layer embeddings, wide MLP on KV-shared layers."""
    tensors = dict(NORM)
    tensors |= attention(0, H, 8 * 128, 4 * 128, 8 * 128) | dense_mlp(0, H, 768)
    tensors |= attention(1, H, 8 * 256, 4 * 256, 8 * 256) | dense_mlp(1, H, 768)
    shared = attention(2, H, 8 * 128, 4 * 128, 8 * 128)
    tensors |= {name: shape for name, shape in shared.items() if "k_proj" not in name and "v_proj" not in name}
    tensors |= dense_mlp(2, H, 1536)
    for index in range(3):
        tensors |= layer_tensors(
            index, inp_gate=("BF16", [256 // 32, H, 32]), per_layer_projection=("BF16", [H // 32, 256, 32])
        )
    config = {
        **BASE,
        "model_type": "gemma4",
        "num_hidden_layers": 3,
        "global_head_dim": 256,
        "hidden_size_per_layer_input": 256,
        "use_double_wide_mlp": True,
        "num_kv_shared_layers": 1,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }
    return tensors, config


MODELS = {
    "dense": dense_model,
    "hybrid": hybrid_model,
    "mixture": mixture_model,
    "latent": latent_model,
    "gemma": gemma_model,
}


def dense(folder, *words, **config):
    """Write the dense model into a folder."""
    return write_model(folder, *dense_model(*words, **config))


def hybrid(folder, *words):
    """Write the GDN hybrid into a folder."""
    return write_model(folder, *hybrid_model(*words))


def mixture(folder, **config):
    """Write the mixture of experts into a folder."""
    return write_model(folder, *mixture_model(**config))


def latent(folder):
    """Write the model of latent attention into a folder."""
    return write_model(folder, *latent_model())


def gemma(folder):
    """Write the model of two attention widths into a folder."""
    return write_model(folder, *gemma_model())

"""Tensor names of a container's layers: which feed a projection, and which nobody misses where none does.

The engine's names are those of its own sources (model.c, q4nx_forward.cpp); the others occur in the converters and
model classes of Hugging Face architectures.
"""

from __future__ import annotations

import re

from elfkiln.engine import contract
from elfkiln.models.container import Tensor

GDN_QKV = "linear_attn.qkv_proj.weight"
GDN_GATE = "self_attn.gate_proj.weight"
GDN_OUT = "linear_attn.ssm_out_proj.weight"
Q, K, V, O = (f"self_attn.{letter}_proj.weight" for letter in "qkvo")  # noqa: E741
Q_A = "self_attn.q_a_proj.weight"
Q_B = "self_attn.q_b_proj.weight"
KV_A = "self_attn.kv_a_proj_with_mqa.weight"
GATE, UP, DOWN = (f"mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
EXPERT_GATE, EXPERT_UP, EXPERT_DOWN = (f"mlp.{name}_exps_proj.weight" for name in ("gate", "up", "down"))
PLE_GATE = "inp_gate.weight"
PLE_PROJ = "per_layer_projection.weight"

_LAYER = re.compile(r"model\.layers?\.([^.]*)\.?(.*)", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)

# A step of a name is what stands between two dots. These say what a tensor is, whatever stands before them.
_SILENT = re.compile(
    r"""(?:^|\.)(?:
          [^.]*norm[^.]*                                  # norms, of queries and keys too
        | ln|ln_[^.]*
        | bias|[^.]*_bias                                 # biases, of a router too
        | [^.]*lora[^.]*                                  # adapters
        | [^.]*(?:vision|visual|image|audio|video)[^.]*   # other towers
        | mtp[^.]*|nextn|eh_proj|enorm|hnorm|shared_head  # multi-token prediction
    )(?:\.|$)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_PREDICTION = re.compile(r"(?:^|\.)(?:mtp[^.]*|nextn|eh_proj)(?:\.|$)", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(
    r"""(?:
          linear_attn\.ssm_(?:alpha|beta)_proj(?:\..*)?   # N = value heads, below a tile's 128
        | linear_attn\.ssm_conv1d\..*
        | moe_router\..* | mlp\.(?:gate|router)\.weight | shared_expert_gate\..*
        | self_attn\.(?:kv|k|v)_b_proj\..*                # latent keys and values, absorbed
    )""",
    re.VERBOSE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"(?:^|\.)(?:layers?|blocks?|blk|h)\.[0-9]+\.", re.ASCII)
_STEP_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.)", re.ASCII)

_LEAST_NUMBERS = contract.TILE_K * contract.TILE_N
_LEAST_SIDE = contract.CHUNK_ROWS
_LEAST_CHUNK_BYTES = 1024


def layer_of(name: str) -> tuple[str, str] | None:
    """Return the layer number of a tensor as it is written, and the rest of its name; None outside the layers.

    >>> layer_of("model.layer.3.mlp.up_proj.weight"), layer_of("lm_head.weight")
    (('3', 'mlp.up_proj.weight'), None)
    """
    match = _LAYER.fullmatch(name)
    return (match[1], match[2]) if match else None


def is_layer_elsewhere(name: str) -> bool:
    """Return whether a tensor belongs to a layer of the text model under another name than model.layers.

    >>> is_layer_elsewhere("model.language_model.layers.0.mlp.up_proj.weight"), is_layer_elsewhere("lm_head.weight")
    (True, False)
    >>> is_layer_elsewhere("vision_tower.encoder.layers.0.mlp.fc1.weight"), is_layer_elsewhere("model.layers.0.x")
    (False, False)
    """
    return layer_of(name) is None and not is_silent(name) and _ELSEWHERE.search(name) is not None


def is_layer_number(text: str) -> bool:
    """Return whether a layer number is one: digits without a leading zero, below a million."""
    return _NUMBER.fullmatch(text) is not None


def is_silent(name: str) -> bool:
    """Return whether a tensor of a layer is one that no kernel is missed for, as its name says.

    >>> is_silent("self_attn.q_norm.weight"), is_silent("self_attn.q_proj.lora_A.weight"), is_silent(UP)
    (True, True, False)
    """
    return _SILENT.search(name) is not None


def is_prediction(name: str) -> bool:
    """Return whether a tensor marks its layer as one for multi-token prediction, which the plan does not count.

    >>> is_prediction("nextn.eh_proj.weight"), is_prediction(UP)
    (True, False)
    """
    return _PREDICTION.search(name) is not None


def is_for_host(name: str) -> bool:
    """Return whether the engine has no design for a tensor and computes it on the host, as far as its sources tell.

    >>> is_for_host("linear_attn.ssm_alpha_proj.weight"), is_for_host("moe_router.weight"), is_for_host(Q)
    (True, True, False)
    """
    return _HOST.fullmatch(name) is not None


def is_matrix(tensor: Tensor) -> bool:
    """Return whether a tensor is stored in chunks, or is as large as a GEMM's smallest operand.

    That is 64 x 128 numbers, at least 32 on the second longest side: a kernel of a convolution is not meant.

    >>> [is_matrix(Tensor("w", dtype, shape, 0, 0)) for dtype, shape in (
    ...     ("I8", (4, 5120)), ("BF16", (512, 512)), ("BF16", (8192, 1, 4)), ("F32", (8192,)), ("BF16", (512, 4)))]
    [True, True, False, False, False]
    """
    shape = tensor.shape
    if len(shape) < 2 or 0 in shape:
        return False
    if tensor.chunk_kind is not None:
        return True
    if tensor.dtype in ("I8", "U8") and shape[-1] >= _LEAST_CHUNK_BYTES:
        return True
    longest = sorted(shape)
    numbers = 1
    for side in shape:
        numbers *= side
    return longest[-2] >= _LEAST_SIDE and numbers >= _LEAST_NUMBERS


def folded(name: str) -> str:
    """Return a tensor's name with the numbers of its steps left out: the experts of a layer are one line.

    >>> folded("mlp.experts.17.up_proj.weight")
    'mlp.experts.*.up_proj.weight'
    """
    return _STEP_NUMBER.sub("*", name)

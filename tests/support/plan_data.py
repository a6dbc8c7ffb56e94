"""What the plan tests share: a sound small plan as data, and containers in the real framing with sparse payloads."""

from __future__ import annotations

import copy
import json
import struct

CHUNK = {"q4_1": 5120, "q4k": 4736, "q8": 8704, "pb16i": 2048, "t2": 2304}
"""Bytes of a chunk by kind. No public source gives those of t2: any size that is not another kind's stands for it."""
ELEMENT = {"I8": 1, "BF16": 2, "F32": 4}


def plan_data(**changes):
    """Return the data of a sound plan: hidden 256, one gdn and one full layer, layout b8, twins on.

    A change names a dotted field ("kernels__tag" is kernels.tag) and its new value; DROP takes the field out.
    """
    data = copy.deepcopy(SOUND)
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        where = data
        for key in parents:
            where = where.setdefault(key, {})
        if value is DROP:
            del where[last]
        else:
            where[last] = value
    return data


DROP = object()

SOUND = {
    "format": "1bit-npu-plan/1",
    "generated_by": "by hand",
    "model": {"hidden": 256, "layers": 2, "arch": "qwen3_5"},
    "container": {"layout": "b8", "chunk_kind": "q4_1", "pb16i": False, "tile_order": "engine-1"},
    "fusion": {"gate_up": "split"},
    "prefill": {"M": 128},
    "decode": {
        "M": 16,
        "enabled": True,
        "dirs": [{"root": "model", "path": "kernels-m16"}, {"root": "kernels", "path": "."}],
        "sealed_elf": "",
    },
    "kernels": {"tag": "_b8"},
    "attention": {"mode": "causal"},
    "layers": [
        {
            "index": 0,
            "role": "gdn",
            "qkv": {"K": 256, "N": 1024, "fused": True},
            "attn_gate": {"K": 256, "N": 512},
            "gate_up": {"K": 256, "N": 768},
            "down": {"K": 768, "N": 256},
        },
        {
            "index": 1,
            "role": "full",
            "qkv": {"K": 256, "N": 1280, "fused": True},
            "o": {"K": 512, "N": 256},
            "gate_up": {"K": 256, "N": 768},
            "down": {"K": 768, "N": 256},
        },
    ],
}

PB16I = {
    "container__layout": "pb16i",
    "container__chunk_kind": "pb16i",
    "container__pb16i": True,
    "kernels__tag": "_pb16i",
    "decode__sealed_elf": "pb16i_sealed.elf",
}


def write_plan_file(folder, data):
    """Write plan.json into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "plan.json"
    file.write_text(json.dumps(data))
    return file


def matrix(rows, columns, kind="q4_1"):
    """Return dtype and shape of a rows x columns matrix stored in chunks of 32 x 256."""
    assert rows % 32 == 0
    assert columns % 256 == 0
    return "I8", [rows // 32 * (columns // 256), CHUNK[kind]]


def experts(count, rows, columns, kind="q4_1"):
    """Return dtype and shape of `count` pooled experts."""
    dtype, (chunks, size) = matrix(rows, columns, kind)
    return dtype, [count, chunks, size]


def grid(rows, columns, kind="q4_1", count=1):
    """Return dtype and shape of a matrix, or of `count` pooled experts, as a grid: tile rows, column blocks, chunk."""
    assert rows % 32 == 0
    assert columns % 256 == 0
    return "I8", [count * (rows // 32), columns // 256, CHUNK[kind]]


def container_header(tensors):
    """Return the JSON header bytes and the payload size of a container; tensors lie at multiples of 64 bytes."""
    table, end = {"__metadata__": {"format": "q4nx"}}, 0
    for name, (dtype, shape) in tensors.items():
        begin = end + -end % 64
        size = ELEMENT[dtype]
        for dimension in shape:
            size *= dimension
        end = begin + size
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    header = json.dumps(table, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 64), end


def write_container(file, tensors):
    """Write a container: 8-byte length, header, and a payload that is a hole in the file."""
    header, payload = container_header(tensors)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + payload)


def write_model(folder, tensors, config):
    """Write a model folder: model.q4nx and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_container(folder / "model.q4nx", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def layer_tensors(index, **tensors):
    """Return tensors of one layer: `self_attn__q_proj=...` is model.layers.<index>.self_attn.q_proj.weight."""
    return {f"model.layers.{index}.{name.replace('__', '.')}.weight": shape for name, shape in tensors.items()}


def dense_mlp(index, hidden, width, kind="q4_1"):
    """Return the three tensors of a gated MLP."""
    return layer_tensors(
        index,
        mlp__gate_proj=matrix(width, hidden, kind),
        mlp__up_proj=matrix(width, hidden, kind),
        mlp__down_proj=matrix(hidden, width, kind),
    )


def attention(index, hidden, query, key_value, output, kind="q4_1"):
    """Return the four tensors of an attention layer; `output` is the width that o_proj takes."""
    return layer_tensors(
        index,
        self_attn__q_proj=matrix(query, hidden, kind),
        self_attn__k_proj=matrix(key_value, hidden, kind),
        self_attn__v_proj=matrix(key_value, hidden, kind),
        self_attn__o_proj=matrix(hidden, output, kind),
    )


def gdn(index, hidden, width, value, kind="q4_1"):
    """Return the matrices of a GDN layer: fused q|k|v, the gate, and the output."""
    return layer_tensors(
        index,
        linear_attn__qkv_proj=matrix(width, hidden, kind),
        self_attn__gate_proj=matrix(value, hidden, kind),
        linear_attn__ssm_out_proj=matrix(hidden, value, kind),
    )

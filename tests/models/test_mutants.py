"""Thousands of changed plans, containers and configs: each is taken or refused in one line, and nothing is dropped.

The seeds are fixed, so that a failure comes again; a mutant's own seed stands in the message. What is right is worked
out here by plain lists, not by the code under test.
"""

import copy
import json
import random
import re
import struct

import pytest

from elfkiln.errors import ElfkilnError
from elfkiln.models.plan.generate import generate_plan
from elfkiln.models.plan.load import parse_plan
from elfkiln.models.plan.names import plan_requirements
from plan_data import PB16I, container_header, plan_data
from small_models import MODELS

PYTHON_WORDS = re.compile(r"NoneType|Traceback|\bTrue\b|\bFalse\b|\bNone\b|<class|object at 0x|\bint\(|sys\.")


def outcome(work, seed):
    """Return what `work` gives, or None where it is refused in one line and in words a user knows."""
    try:
        return work()
    except ElfkilnError as error:
        message = str(error)
        assert "\n" not in message, seed
        assert len(message) < 2000, seed
        # Texts of the file itself stand in quotes; what is not quoted is ours.
        assert not PYTHON_WORDS.search(re.sub(r"'[^']*'", "", message)), (seed, message)
        return None
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


# --- values that a hand or a broken tool writes ---

ODD_NUMBERS = (0, 1, 2, 3, 7, 64, 127, 128, 129, 4096, 2**31 - 1, 2**31, 2**63, 10**30, -1, -128)
ODD_TEXTS = (
    "",
    " ",
    "rm",
    "b8",
    "..",
    "a/../b",
    "/",
    "x\ny",
    "\u202e",
    "é",
    "None",
    "gdn",
    "full",
    "_b8",
    "1",
    "x" * 300,
)


def odd_value(rng, depth=0):
    """Return a value of JSON of any kind."""
    kind = rng.randrange(9 if depth < 2 else 7)
    if kind < 2:
        return rng.choice(ODD_NUMBERS)
    if kind < 4:
        return rng.choice(ODD_TEXTS)
    if kind == 4:
        return rng.choice((True, False))
    if kind == 5:
        return None
    if kind == 6:
        return rng.choice((0.5, 1.0, -0.0, 1e300))
    if kind == 7:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(("K", "N", "x", "layout", "block")): odd_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def places(value, path=()):
    """Yield the path of everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def mutate_json(rng, data, keys):
    """Change one to three places of a JSON value: another value, a key gone, renamed, added or moved."""
    for _ in range(rng.randrange(1, 4)):
        paths = list(places(data))
        if not paths:
            return
        path = rng.choice(paths)
        where = data
        for step in path[:-1]:
            where = where[step]
        change = rng.randrange(6)
        if change < 3:
            where[path[-1]] = odd_value(rng)
        elif change == 3:
            del where[path[-1]]
        elif isinstance(where, dict):
            where[rng.choice(keys)] = where.pop(path[-1]) if change == 4 else odd_value(rng)
        else:
            where.insert(rng.randrange(len(where) + 1), copy.deepcopy(where[path[-1]]))


# --- plans ---

LATENT_LAYER = {
    "index": 2,
    "role": "mla",
    "q_a": {"K": 256, "N": 384},
    "q_b": {"K": 384, "N": 512},
    "kv_a": {"K": 256, "N": 640},
    "o": {"K": 512, "N": 256},
    "dense_gate_up": {"K": 256, "N": 1024},
    "dense_down": {"K": 1024, "N": 256},
    "ple_gate": {"K": 256, "N": 128},
    "ple_proj": {"K": 128, "N": 256},
}
ROLES_OF = {  # projection -> roles in names where gate and up are split, and where they are fused
    "qkv": ("QKV", "QKV"),
    "attn_gate": ("Z", "Z"),
    "q_a": ("QA", "QA"),
    "q_b": ("QB", "QB"),
    "kv_a": ("KVA", "KVA"),
    "o": ("O", "O"),
    "ssm_out": ("O", "O"),
    "gate_up": ("G U", "GU"),
    "down": ("D", "D"),
    "dense_gate_up": ("DG DU", "DG DU"),
    "dense_down": ("DD", "DD"),
    "ple_gate": ("PLEGATE", "PLEGATE"),
    "ple_proj": ("PLEPROJ", "PLEPROJ"),
}
PLAN_KEYS = (*ROLES_OF, "kv", "moe", "index", "role", "K", "N", "fused", "odd", "decode", "tag")
KNOWN = {  # section 1 of the engine contract
    "": "format generated_by model container fusion prefill decode kernels attention kv moe layers",
    "model": "hidden layers arch",
    "container": "layout chunk_kind pb16i tile_order",
    "fusion": "gate_up",
    "prefill": "M",
    "decode": "M enabled dirs sealed_elf",
    "decode.dirs[]": "root path",
    "kernels": "tag",
    "attention": "mode",
    "kv": "key value hadamard",
    "kv.hadamard": "block signs",
    "moe": "batched_expert_gu",
    "moe.batched_expert_gu": "enabled K N",
    "layers[]": "index role " + " ".join(ROLES_OF),
} | {f"layers[].{key}": "K N fused" for key in ROLES_OF}


def plan_bases():
    three = plan_data(model__layers=3)
    three["layers"].append(copy.deepcopy(LATENT_LAYER))
    yield plan_data()
    yield plan_data(**PB16I, kv={"key": "f16", "value": "f16", "hadamard": {"block": 64, "signs": "s.bin"}})
    yield plan_data(fusion__gate_up="fused", moe={"batched_expert_gu": {"enabled": True, "K": 256, "N": 8192}})
    yield three


def unknown_keys(value, place=""):
    """Yield the keys of a plan that the schema does not have, as notes spell them."""
    if isinstance(value, list):
        for item in value:
            yield from unknown_keys(item, f"{place}[]")
    elif isinstance(value, dict):
        known = KNOWN.get(place, "").split()
        for key, inner in value.items():
            spelt = f"{place}.{key}" if place else key
            if key not in known:
                yield spelt
            else:
                yield from unknown_keys(inner, spelt)


def asked_by(data):
    """Return role, K and N of every GEMM a sound plan asks for: its projections, one by one."""
    fused = data["fusion"]["gate_up"] == "fused"
    found = set()
    for layer in data["layers"]:
        for key, pair in ROLES_OF.items():
            if key not in layer:
                continue
            K, N = layer[key]["K"], layer[key]["N"]
            if key == "gate_up":
                N = layer["down"]["K"] * (2 if fused else 1)
            found |= {(role, K, N) for role in pair[fused].split()}
        if "attn_gate" in layer and not {"o", "ssm_out"} & layer.keys():
            found.add(("O", layer["attn_gate"]["N"], data["model"]["hidden"]))
    pair = data.get("moe", {}).get("batched_expert_gu", {})
    if pair.get("enabled"):
        found |= {(role, pair["K"], pair["N"]) for role in "GU"}
    return found


def test_changed_plans_are_taken_or_refused_and_nothing_of_them_is_dropped():
    taken = 0
    bases = list(plan_bases())
    for seed in range(4000):
        rng = random.Random(seed)
        data = copy.deepcopy(rng.choice(bases))
        mutate_json(rng, data, PLAN_KEYS)
        kept = copy.deepcopy(data)
        plan = outcome(lambda data=data: parse_plan(data, strict=False), seed)
        assert data == kept, seed  # reading changes nothing
        wanted = plan and outcome(lambda plan=plan: plan_requirements(plan, "m"), seed)
        if not wanted:
            continue
        taken += 1
        names = {(need.name.role, need.name.K, need.name.N) for need in wanted.requirements if need.name}
        assert names == asked_by(data), seed
        for layer in data["layers"]:
            for feeds, fed in (("q_a", "q_b"), ("dense_gate_up", "dense_down"), ("ple_gate", "ple_proj")):
                assert feeds not in layer or layer[feeds]["N"] == layer[fed]["K"], seed
        for key in unknown_keys(data):
            assert any(note.startswith(f"{key}: not a field of ") for note in plan.notes), (seed, key, plan.notes)
    assert taken > 300


# --- model folders ---

LAYER_NAMES = (
    "mlp.gate_up_proj", "mlp.dense_h_to_4h", "mlp.fc1", "feed_forward.w1", "mlp.switch_mlp.up_proj",
    "mlp.experts.3.w2", "block_sparse_moe.experts.0.w1", "mlp.shared_expert.up_proj",
    "mlp.shared_experts.down_proj", "mlp.gate_exps_proj", "mlp.gate_proj", "per_layer_projection",
    "per_layer_input_gate", "inp_gate", "linear_attn.out_proj", "linear_attn.in_proj_qkvz", "linear_attn.qkv_proj",
    "self_attn.gate_proj", "self_attn.q_a_proj", "self_attn.qkv_proj", "self_attn.kv_b_proj",
    "self_attn.q_proj.lora_A", "self_attn.q_norm", "input_layernorm", "nextn.eh_proj", "vision.proj",
    "self_attn.q_proj", "mlp.gate", "moe_router", "linear_attn.ssm_alpha_proj",
)  # fmt: skip
CONFIG_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "intermediate_size", "layer_types", "attn_output_gate", "linear_num_key_heads", "linear_value_head_dim", "mla",
    "kv_lora_rank", "n_expert", "num_experts", "top_k", "moe_intermediate_size", "leading_dense_block_count",
    "hidden_size_per_layer_input", "use_double_wide_mlp", "num_kv_shared_layers", "global_head_dim",
    "num_global_key_value_heads", "q4nx_weight_layout", "sliding_window", "sliding_window_pattern",
    "_sliding_window_pattern", "max_window_layers", "use_sliding_window", "text_config", "model_type",
)  # fmt: skip


def odd_shape(rng, shape):
    """Return another shape, near or far."""
    change = rng.randrange(7)
    if change == 0:
        return []
    if change == 1:
        return [0] * rng.randrange(1, 4)
    if change == 2:
        return shape[:-1]
    if change == 3:
        return [*shape, rng.choice((1, 2, 32))]
    if change == 4:
        return shape[::-1]
    shape = list(shape) or [1]
    at = rng.randrange(len(shape))
    shape[at] = rng.choice((shape[at] * 2, shape[at] // 2, shape[at] + 1, 1, 5120, 2048, 8704, 4736, 3000))
    return shape


def mutate_tensors(rng, tensors):
    """Change one to three tensors: gone, renamed, of another shape or type, of another layer, or one more."""
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice(list(tensors))
        dtype, shape = tensors[name]
        change = rng.randrange(8)
        if change == 0:
            del tensors[name]
        elif change < 3:
            del tensors[name]
            tensors[f"model.layers.{rng.randrange(3)}.{rng.choice(LAYER_NAMES)}.weight"] = (dtype, shape)
        elif change == 3:
            tensors[name] = (rng.choice(("I8", "BF16", "F32")), shape)
        elif change < 6:
            tensors[name] = (dtype, odd_shape(rng, shape))
        else:
            tensors[f"model.layers.{rng.randrange(3)}.{rng.choice(LAYER_NAMES)}.weight"] = rng.choice(
                list(tensors.values())
            )
        if not tensors:
            return


# The tensors behind a plan's projections, by what the layer has.
SOURCES = {
    "attn_gate": ["self_attn.gate_proj"],
    "q_a": ["self_attn.q_a_proj"],
    "q_b": ["self_attn.q_b_proj"],
    "kv_a": ["self_attn.kv_a_proj_with_mqa"],
    "o": ["self_attn.o_proj"],
    "ssm_out": ["linear_attn.ssm_out_proj"],
    "ple_gate": ["inp_gate"],
    "ple_proj": ["per_layer_projection"],
}
DENSE = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
POOLED = ["mlp.gate_exps_proj", "mlp.up_exps_proj", "mlp.down_exps_proj"]
QUIET = ("norm", "lora", "vision", "nextn", "bias")


def fed_by(layer, tensors):
    """Return the names of a layer's tensors that its plan entry stands for."""
    prefix, found = f"model.layers.{layer['index']}.", []
    for key in layer:
        if key == "qkv":
            gdn = ["linear_attn.qkv_proj"]
            found += gdn if "attn_gate" in layer else ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
        elif key in ("gate_up", "dense_gate_up"):
            found += POOLED if f"{prefix}mlp.gate_exps_proj.weight" in tensors else DENSE
        else:
            found += SOURCES.get(key, [])
    return {f"{prefix}{name}.weight" for name in found}


def is_large(dtype, shape):
    """Chunks of bytes, or 8,192 numbers of at least 32 a side: what a GEMM could read."""
    if len(shape) < 2 or 0 in shape:
        return False
    numbers = 1
    for side in shape:
        numbers *= side
    wide = sorted(shape)[-2] >= 32 and numbers >= 8192
    return wide or (dtype == "I8" and shape[-1] >= 1024)


def dropped(tensors, generated):
    """Yield the large tensors of layers that neither a projection nor a note accounts for."""
    layers = generated.data["layers"]
    used = set().union(*(fed_by(layer, tensors) for layer in layers))
    said = "\n".join(generated.notes)
    for name, (dtype, shape) in tensors.items():
        match = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
        if not match or name in used or not is_large(dtype, shape) or any(word in name for word in QUIET):
            continue
        if int(match[1]) >= len(layers) and any("nextn" in other for other in tensors):
            continue  # a layer for multi-token prediction
        if re.sub(r"\.\d+\.", ".*.", match[2]) not in said:
            yield name


@pytest.mark.parametrize("family", MODELS)
def test_changed_model_folders_are_taken_or_refused_and_no_matrix_is_dropped(tmp_path, family):
    tensors, config = MODELS[family]()
    file, settings = tmp_path / "model.q4nx", tmp_path / "config.json"
    taken = 0
    for seed in range(500):
        rng = random.Random(f"{family} {seed}")
        here, said = dict(tensors), copy.deepcopy(config)
        if rng.random() < 0.7:
            mutate_tensors(rng, here)
        if rng.random() < 0.5:
            mutate_json(rng, said, CONFIG_KEYS)
        header, payload = container_header(here)
        with file.open("wb") as stream:
            stream.write(struct.pack("<Q", len(header)) + header)
            stream.truncate(8 + len(header) + payload)
        settings.write_text(json.dumps(said))
        generated = outcome(lambda: generate_plan(tmp_path), seed)
        if generated is None:
            continue
        taken += 1
        assert list(dropped(here, generated)) == [], (family, seed, generated.notes)
        for layer in generated.data["layers"]:
            mlp = {"gate_up", "down"} <= layer.keys() or {"dense_gate_up", "dense_down"} <= layer.keys()
            assert mlp, (family, seed)
            assert {"o", "attn_gate"} & layer.keys(), (family, seed)
    assert taken > 30


def test_changed_bytes_of_a_container_are_taken_or_refused(tmp_path):
    tensors, config = MODELS["dense"]()
    header, payload = container_header(tensors)
    whole = struct.pack("<Q", len(header)) + header
    (tmp_path / "config.json").write_text(json.dumps(config))
    file = tmp_path / "model.q4nx"
    for seed in range(1000):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            data[rng.choice((rng.randrange(len(data)), rng.randrange(200)))] = rng.randrange(256)
        if rng.random() < 0.1:
            del data[rng.randrange(len(data)) :]
        with file.open("wb") as stream:
            stream.write(data)
            stream.truncate(len(whole) + payload - rng.choice((0, 0, 1)))
        outcome(lambda: generate_plan(tmp_path), seed)

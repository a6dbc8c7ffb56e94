"""Plans generated from small model folders in the real framing: dense, GDN hybrid, sliding, experts, latent."""

import json
import subprocess
import sys

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.io.json_difference import ABSENT, differences
from elfkiln.models.plan.compare import check_plan
from elfkiln.models.plan.fields import plan_text
from elfkiln.models.plan.generate import Options, generate_plan, write_plan
from elfkiln.models.plan.load import load_plan
from elfkiln.models.plan.names import plan_requirements
from plan_data import attention, dense_mlp, experts, gdn, grid, layer_tensors, matrix, write_model
from projects import CHECKOUT
from small_models import BASE, NORM, H, dense, gemma, hybrid, latent, mixture

SHARED = "model.q4nx: no projection uses them: mlp.share_gate_exps_proj.weight (2 layers from 0)"


def mixture_of(folder, gate, up, down):
    """A mixture of 4 experts of width 256 in one layer, stored as told."""
    tensors = NORM | attention(0, H, 1024, 512, 1024)
    tensors |= attention(1, H, 1024, 512, 1024)
    for index in range(2):
        tensors |= layer_tensors(index, mlp__gate_exps_proj=gate, mlp__up_exps_proj=up, mlp__down_exps_proj=down)
    config = {**BASE, "num_hidden_layers": 2, "intermediate_size": 256, "n_expert": 4, "top_k": 2}
    return write_model(folder, tensors, config)


def names(generated):
    wanted = plan_requirements(generated.plan, "m").requirements
    return [(item.name.role, item.name.K, item.name.N) for item in wanted if item.name and not item.name.m16]


def test_a_dense_model(tmp_path):
    generated = generate_plan(dense(tmp_path / "m"))
    assert generated.notes == ()
    assert dict(generated.data) | {"layers": None} == {
        "format": "1bit-npu-plan/1",
        "generated_by": "elfkiln plan 2",
        "model": {"hidden": 512, "layers": 2, "arch": "qwen3"},
        "container": {"layout": "rm", "chunk_kind": "q4_1", "pb16i": False, "tile_order": "engine-1"},
        "fusion": {"gate_up": "fused"},
        "prefill": {"M": 128},
        "decode": {
            "M": 16,
            "enabled": True,
            "dirs": [{"root": "model", "path": "kernels-m16"}, {"root": "kernels", "path": "."}],
            "sealed_elf": "",
        },
        "kernels": {"tag": ""},
        "attention": {"mode": "causal"},
        "layers": None,
    }
    assert generated.data["layers"][1] == {
        "index": 1,
        "role": "full",
        "qkv": {"K": 512, "N": 2048, "fused": True},
        "o": {"K": 1024, "N": 512},
        "gate_up": {"K": 512, "N": 1536},
        "down": {"K": 768, "N": 512},
    }
    assert names(generated) == [("QKV", 512, 2048), ("O", 1024, 512), ("GU", 512, 1536), ("D", 768, 512)]


@pytest.mark.parametrize("kind", ["q4_1", "q4k", "q8"])
def test_a_gdn_hybrid_in_every_chunk_kind(tmp_path, kind):
    generated = generate_plan(hybrid(tmp_path / "m", kind))
    assert generated.notes == ()
    assert generated.data["container"]["chunk_kind"] == kind
    assert [layer["role"] for layer in generated.data["layers"]] == ["gdn", "gdn", "gdn", "full"]
    assert generated.data["layers"][0] == {
        "index": 0,
        "role": "gdn",
        "qkv": {"K": 512, "N": 2048, "fused": True},
        "attn_gate": {"K": 512, "N": 1024},
        "ssm_out": {"K": 1024, "N": 512},
        "gate_up": {"K": 512, "N": 1536},
        "down": {"K": 768, "N": 512},
    }
    assert generated.data["layers"][3]["qkv"] == {"K": 512, "N": 2 * 1024 + 2 * 512, "fused": True}


def test_a_mixture_of_experts_is_split(tmp_path):
    generated = generate_plan(mixture(tmp_path / "m"))
    assert generated.notes == (SHARED,)
    assert generated.data["fusion"] == {"gate_up": "split"}
    assert generated.data["moe"] == {"batched_expert_gu": {"enabled": False, "K": 0, "N": 0}}
    assert names(generated) == [
        ("QKV", 512, 2048),
        ("O", 1024, 512),
        ("G", 512, 256),
        ("U", 512, 256),
        ("D", 256, 512),
    ]


def test_the_published_header_of_qwen36_35b_a3b(tmp_path):
    """Its tensors as the engine's public notes record them: every matrix a grid of tile rows, column blocks, chunk."""
    hidden, tensors = 2048, {"model.norm.weight": ("BF16", [2048])}
    for index in range(4):
        stem = f"model.layer.{index}."
        tensors |= {
            f"{stem}mlp.up_exps_proj.weight": ("I8", [4096, 8, 5120]),
            f"{stem}mlp.gate_exps_proj.weight": ("I8", [4096, 8, 5120]),
            f"{stem}mlp.down_exps_proj.weight": ("I8", [16384, 2, 5120]),
        }
        if index == 3:
            tensors |= {
                f"{stem}self_attn.q_proj.weight": ("I8", [256, 8, 8704]),
                f"{stem}self_attn.k_proj.weight": ("I8", [16, 8, 8704]),
                f"{stem}self_attn.v_proj.weight": ("I8", [16, 8, 8704]),
                f"{stem}self_attn.o_proj.weight": ("I8", [64, 16, 8704]),
            }
        else:
            tensors |= {
                f"{stem}linear_attn.qkv_proj.weight": ("I8", [256, 8, 8704]),
                f"{stem}linear_attn.ssm_out_proj.weight": ("I8", [64, 16, 8704]),
                f"{stem}self_attn.gate_proj.weight": ("I8", [128, 8, 8704]),
            }
    config = {
        "hidden_size": hidden,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "intermediate_size": 512,
        "n_expert": 256,
        "top_k": 8,
        "attn_output_gate": True,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
    }
    generated = generate_plan(write_model(tmp_path / "m", tensors, config))
    # four layers of three experts' matrices; three GDN layers of three, and one of four in attention
    assert generated.notes == ("model.q4nx: more than one kind of chunk: q8 in 13, q4_1 in 12 of the tensors used",)
    # 16 tile rows of 32 an expert are its width 512; the GDN packing 2*2048 + 4096, full attention with its gate
    assert names(generated) == [
        ("QKV", 2048, 8192),
        ("QKV", 2048, 9216),
        ("Z", 2048, 4096),
        ("O", 4096, 2048),
        ("G", 2048, 512),
        ("U", 2048, 512),
        ("D", 512, 2048),
    ]


def expert_grid(rows, columns):
    return grid(rows, columns, count=4)


def expert_rows(rows, columns):
    return "I8", [4 * (rows // 32) * (columns // 256), 5120]


def expert_numbers(rows, columns):
    return "BF16", [4 * rows, columns]


def expert_blocks(rows, columns):
    return "I8", [4, rows // 32, columns // 256, 5120]


@pytest.mark.parametrize("pool", [expert_grid, expert_rows, expert_numbers, expert_blocks])
def test_experts_are_pooled_in_every_published_form(tmp_path, pool):
    folder = mixture_of(tmp_path / "m", gate=pool(256, H), up=pool(256, H), down=pool(H, 256))
    assert generate_plan(folder).data["layers"] == generate_plan(mixture(tmp_path / "same")).data["layers"]


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        # three experts where config.json counts four
        (("I8", [3, 16, 5120]), "expected a first dimension that n_expert = 4 of config.json divides, found [3, 16"),
        (("I8", [4 * 8 + 2, 2, 5120]), "expected a first dimension that n_expert = 4 of config.json divides"),
        # eight experts of [16, 5120]: as a grid of four they would be 64 x 4096
        (("I8", [8, 16, 5120]), "expected 4 experts of 512 columns, found [8, 16, 5120]"),
        # a grid of other columns that holds as many chunks
        (("I8", [4 * 4, 4, 5120]), "expected 4 experts of 512 columns, found [16, 4, 5120]"),
    ],
)
def test_experts_that_do_not_fit_their_count_are_refused(tmp_path, gate, said):
    folder = mixture_of(tmp_path / "m", gate=gate, up=experts(4, 256, H), down=experts(4, H, 256))
    with pytest.raises(Refused) as caught:
        generate_plan(folder)
    assert "model.q4nx: layer 0: mlp.gate_exps_proj.weight: " + said in str(caught.value)


def test_a_transposed_grid_of_experts_is_refused(tmp_path):
    folder = mixture_of(tmp_path / "m", *(grid(256, H, count=4) for _ in range(3)))
    with pytest.raises(Refused) as caught:
        generate_plan(folder)
    assert "mlp.down_exps_proj.weight: expected 4 experts of 512 rows, found [32, 2, 5120]" in str(caught.value)


def test_latent_attention(tmp_path):
    generated = generate_plan(latent(tmp_path / "m"))
    assert generated.notes == ()
    assert [layer["role"] for layer in generated.data["layers"]] == ["mla", "mla"]
    assert generated.data["layers"][0] == {
        "index": 0,
        "role": "mla",
        "q_a": {"K": 512, "N": 256},
        "q_b": {"K": 256, "N": 1024},
        "kv_a": {"K": 512, "N": 384},  # 256 + 64 = 320, padded
        "o": {"K": 1024, "N": 512},
        "dense_gate_up": {"K": 512, "N": 1024},
        "dense_down": {"K": 1024, "N": 512},
    }
    assert generated.data["layers"][1]["gate_up"] == {"K": 512, "N": 256}


def test_two_widths_per_layer_embeddings_and_shared_layers(tmp_path):
    generated = generate_plan(gemma(tmp_path / "m"))
    assert generated.notes == ()
    layers = generated.data["layers"]
    assert [layer["role"] for layer in layers] == ["sliding", "full", "sliding"]
    # query plus keys and values; the shared layer holds none, yet runs the design that has room for them
    assert [layer["qkv"]["N"] for layer in layers] == [1024 + 2 * 512, 2048 + 2 * 1024, 1024 + 2 * 512]
    assert [layer["o"]["K"] for layer in layers] == [1024, 2048, 1024]
    assert [(layer["gate_up"]["N"], layer["down"]["K"]) for layer in layers] == [(1536, 768), (1536, 768), (3072, 1536)]
    assert {(layer["ple_gate"]["N"], layer["ple_proj"]["K"]) for layer in layers} == {(256, 256)}


def test_the_worked_example_is_what_its_container_gives(tmp_path):
    """Bonsai-2-27B at full size: 448 matrices of 2-bit chunks, 6 GB of payload that take no room."""
    hidden = 5120
    tensors = {"model.norm.weight": ("BF16", [hidden])}
    for index in range(64):
        full = index % 4 == 3
        tensors |= (
            attention(index, hidden, 2 * 6144, 1024, 6144, "pb16i")
            if full
            else gdn(index, hidden, 10240, 6144, "pb16i")
        )
        tensors |= dense_mlp(index, hidden, 17408, "pb16i")
    config = {
        "model_type": "qwen3_5",
        "hidden_size": hidden,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 17408,
        "attn_output_gate": True,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "layer_types": ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(64)],
    }
    folder = write_model(tmp_path / "bonsai2-27b-pb16i", tensors, config)
    generated = generate_plan(folder)
    assert generated.notes == ()
    committed = (CHECKOUT / "plans" / "bonsai2-27b-pb16i" / "plan.json").read_text()
    assert generated.text == committed
    assert json.loads(committed) == generated.data


# --- authority: container, then config.json, then the kernel directory ---


def test_the_container_wins_over_config_and_says_so(tmp_path):
    folder = dense(tmp_path / "m", layers=3, num_hidden_layers=2, intermediate_size=1024, hidden_size=256, head_dim=64)
    generated = generate_plan(folder)
    assert generated.data["model"]["hidden"] == 512
    assert len(generated.data["layers"]) == 3
    assert generated.data["layers"][0]["down"] == {"K": 768, "N": 512}
    assert generated.notes[:2] == (
        "model.layers: 3 in the container, 2 in config.json",
        "model.hidden: 512 in the container, 256 in config.json",
    )
    assert "down: 768x512 in 3 layers of the container, 1024x256 derived from config.json" in generated.notes


def test_config_gives_the_widths_of_chunks_of_unknown_size(tmp_path):
    tensors = dict(NORM)
    tensors |= {
        name: ("I8", [shape[1][0], 3000])
        for name, shape in (attention(0, H, 1024, 512, 1024) | dense_mlp(0, H, 768)).items()
    }
    folder = write_model(tmp_path / "m", tensors, {**BASE, "num_hidden_layers": 1})
    generated = generate_plan(folder)
    assert names(generated) == [("QKV", 512, 2048), ("O", 1024, 512), ("GU", 512, 1536), ("D", 768, 512)]
    assert generated.data["container"]["chunk_kind"] == ""
    (note,) = generated.notes
    assert note.startswith("model.q4nx: chunk size not known; config.json gave the widths of mlp.down_proj.weight")


def elf(folder, name, size=1):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"x" * size)


@pytest.mark.parametrize(
    ("files", "fused"),
    [
        ((), True),
        (("full_i8_GU_K512_N1536.elf",), True),
        (("full_i8_G_K512_N768.elf",), False),
        (("full_i8_G_K512_N768.elf", "full_i8_GU_K512_N1536.elf"), True),
        (("full_i8_G_K512_N768_b8.elf",), True),  # of another family
    ],
)
def test_the_kernel_directory_decides_fusion_by_the_engines_probe(tmp_path, files, fused):
    kernels = tmp_path / "k"
    kernels.mkdir()
    for name in files:
        elf(kernels, name)
    generated = generate_plan(dense(tmp_path / "m"), Options(kernels_dir=kernels))
    assert generated.plan.gate_up == ("fused" if fused else "split")


def test_an_empty_file_does_not_count_in_the_probe(tmp_path):
    elf(tmp_path / "k", "full_i8_G_K512_N768.elf", size=0)
    assert generate_plan(dense(tmp_path / "m"), Options(kernels_dir=tmp_path / "k")).plan.gate_up == "fused"


def test_the_probe_uses_the_tag_of_the_layout(tmp_path):
    elf(tmp_path / "k", "full_i8_G_K512_N768_b8.elf")
    folder = dense(tmp_path / "m", q4nx_weight_layout="b8")
    generated = generate_plan(folder, Options(kernels_dir=tmp_path / "k"))
    assert (generated.plan.gate_up, generated.plan.layout, generated.plan.tag) == ("split", "b8", "_b8")


def test_without_a_kernel_directory_the_old_width_rule_decides(tmp_path):
    tensors = NORM | attention(0, H, 1024, 512, 1024) | dense_mlp(0, H, 7168)
    config = {**BASE, "num_hidden_layers": 1, "intermediate_size": 7168}
    assert generate_plan(write_model(tmp_path / "a", tensors, config)).plan.gate_up == "fused"  # 14336
    tensors = NORM | attention(0, H, 1024, 512, 1024) | dense_mlp(0, H, 7424)
    config = {**BASE, "num_hidden_layers": 1, "intermediate_size": 7424}
    assert generate_plan(write_model(tmp_path / "b", tensors, config)).plan.gate_up == "split"


def test_batched_experts_need_both_wide_files_and_room(tmp_path):
    folder, kernels = mixture(tmp_path / "m"), tmp_path / "k"
    elf(kernels, "full_i8_G_K512_N8192.elf")
    options = Options(kernels_dir=kernels)
    assert not generate_plan(folder, options).plan.batched_experts.enabled
    elf(kernels, "full_i8_U_K512_N8192.elf")
    pair = generate_plan(folder, options).plan.batched_experts
    assert (pair.enabled, pair.K, pair.N) == (True, 512, 8192)
    assert not generate_plan(mixture(tmp_path / "one", top_k=1), options).plan.batched_experts.enabled
    assert not generate_plan(folder).plan.batched_experts.enabled


def test_latent_attention_never_batches_experts(tmp_path):
    for role in "GU":
        elf(tmp_path / "k", f"full_i8_{role}_K512_N8192.elf")
    generated = generate_plan(latent(tmp_path / "m"), Options(kernels_dir=tmp_path / "k"))
    assert not generated.plan.batched_experts.enabled


@pytest.mark.parametrize(
    ("kind", "options", "layout", "tag", "sealed"),
    [
        ("pb16i", Options(), "pb16i", "_pb16i", "pb16i_sealed.elf"),
        ("pb16i", Options(decode=False), "pb16i", "_pb16i", ""),
        ("t2", Options(layout="t2s"), "t2s", "_t2s", ""),
        ("t2", Options(layout="t2s", tag="_t2s2"), "t2s", "_t2s2", ""),
    ],
)
def test_ternary_layouts(tmp_path, kind, options, layout, tag, sealed):
    data = generate_plan(hybrid(tmp_path / "m", kind), options).data
    assert data["container"] == {"layout": layout, "chunk_kind": kind, "pb16i": True, "tile_order": "engine-1"}
    assert data["kernels"] == {"tag": tag}
    assert data["decode"]["sealed_elf"] == sealed


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("q4k", Options(layout="pb16i"), "layout: expected rm or b8, as the container holds q4k chunks, found pb16i"),
        ("pb16i", Options(layout="b8"), "layout: expected pb16i, as the container holds pb16i chunks, found b8"),
        ("pb16i", Options(layout="t2s"), "layout: expected pb16i, as the container holds pb16i chunks, found t2s"),
        ("q4k", Options(layout="nt"), "layout: expected one of rm, b8, pb16i, t2s, found nt"),
        ("q4k", Options(tag="_b8"), "tag: expected a tag of layout rm: '', found '_b8'"),
        ("pb16i", Options(tag="_t2s"), "tag: expected a tag of layout pb16i: '_pb16i', found '_t2s'"),
    ],
)
def test_options_that_contradict_the_container_are_refused(tmp_path, kind, options, said):
    with pytest.raises(Refused) as caught:
        generate_plan(hybrid(tmp_path / "m", kind), options)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("stated", "asked", "kind", "said"),
    [
        ("b8", "rm", "q4k", "expected b8, as q4nx_weight_layout of config.json says, found rm; leave layout= out"),
        ("rm", "b8", "q8", "expected rm, as q4nx_weight_layout of config.json says, found b8; leave layout= out"),
    ],
)
def test_a_layout_that_contradicts_config_is_refused(tmp_path, stated, asked, kind, said):
    folder = hybrid(tmp_path / "m", kind)
    config = json.loads((folder / "config.json").read_text()) | {"q4nx_weight_layout": stated}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused) as caught:
        generate_plan(folder, Options(layout=asked))
    assert str(caught.value).startswith(f"layout: {said}")
    assert generate_plan(folder, Options(layout=stated)).plan.layout == stated
    assert generate_plan(folder, Options(layout=stated)).notes == ()


def test_a_layout_that_config_does_not_tell_is_taken(tmp_path):
    generated = generate_plan(dense(tmp_path / "m"), Options(layout="b8"))
    assert (generated.plan.layout, generated.plan.tag) == ("b8", "_b8")
    assert generated.notes == ("config.json has no q4nx_weight_layout, which the engine reads as rm; layout= says b8",)


@pytest.mark.parametrize("options", [Options(), Options(layout="pb16i")])
def test_a_ternary_container_wins_over_the_layout_of_config(tmp_path, options):
    folder = hybrid(tmp_path / "m", "pb16i")
    config = json.loads((folder / "config.json").read_text()) | {"q4nx_weight_layout": "b8"}
    (folder / "config.json").write_text(json.dumps(config))
    generated = generate_plan(folder, options)
    assert generated.plan.layout == "pb16i"
    why = "as the container holds pb16i chunks; q4nx_weight_layout of config.json says b8"
    assert generated.notes == (f"container.layout: pb16i, {why}",)


def test_config_contradicts_a_ternary_layout_where_the_chunks_tell_nothing(tmp_path):
    tensors = attention(0, H, 1024, 512, 1024, "t2") | dense_mlp(0, H, 768, "t2")
    folder = write_model(tmp_path / "m", NORM | tensors, {**BASE, "num_hidden_layers": 1, "q4nx_weight_layout": "b8"})
    with pytest.raises(Refused, match=r"layout: expected b8, as q4nx_weight_layout of config.json says, found t2s"):
        generate_plan(folder, Options(layout="t2s"))


@pytest.mark.parametrize("decision", ["[]", "3", '"causal"', "{", '{"attention_mode": 3}'])
def test_a_decision_file_the_loader_refuses_makes_no_plan(tmp_path, decision):
    folder = dense(tmp_path / "m")
    (folder / "decision_config.json").write_text(decision)
    with pytest.raises(Refused, match=r"decision_config.json: "):
        generate_plan(folder)


def test_a_decision_file_that_is_no_file_makes_no_plan(tmp_path):
    folder = dense(tmp_path / "m")
    (folder / "decision_config.json").mkdir()
    with pytest.raises(Refused, match=r"decision_config.json: not a regular file \(a folder\)"):
        generate_plan(folder)


@pytest.mark.parametrize("mode", ["causal", "noncausal_full_attention"])
def test_the_attention_mode_is_the_decision_files(tmp_path, mode):
    folder = dense(tmp_path / "m")
    (folder / "decision_config.json").write_text(json.dumps({"attention_mode": mode}))
    generated = generate_plan(folder)
    write_plan(folder / "plan.json", generated)
    assert load_plan(folder).attention_mode == mode
    (folder / "decision_config.json").write_text('{"attention_mode": "other"}')
    with pytest.raises(Refused, match=r"decision_config.json: attention_mode: expected one of"):
        generate_plan(folder)


# --- what is refused ---


def model_with(tmp_path, tensors, **config):
    return write_model(tmp_path / "m", {**NORM, **tensors}, {**BASE, "num_hidden_layers": 1, **config})


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({}, "expected tensors named model.layers.<i>.*, found none, but model.norm.weight"),
        (attention(1, H, 1024, 512, 1024), "expected tensors of layers 0..1, found none of layer 0"),
        (dense_mlp(0, H, 768), "layer 0: attention: expected linear_attn.qkv_proj.weight"),
        (layer_tensors(0, shortconv__in_proj=matrix(768, H)), "found shortconv.in_proj.weight"),
        (layer_tensors(0, self_attn__q_proj=matrix(1024, H)), "layer 0: self_attn.k_proj.weight: expected a tensor"),
        (
            attention(0, H, 1024, 512, 1024) | layer_tensors(0, mlp__gate_proj=matrix(768, H)),
            "layer 0: mlp.up_proj.weight: expected a tensor of that name, found none",
        ),
        (
            attention(0, H, 1024, 512, 1024) | dense_mlp(0, H, 768) | layer_tensors(0, mlp__up_proj=matrix(1024, H)),
            "layer 0: mlp: expected one width for mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight",
        ),
        (
            attention(0, H, 1024, 512, 1024)
            | dense_mlp(0, H, 768)
            | layer_tensors(0, self_attn__o_proj=("BF16", [H, 3, 5])),
            "layers[0].o.K: expected a positive multiple of 64 (rule K % 64 == 0), found 15",
        ),
        (
            attention(0, H, 1024, 512, 1024) | layer_tensors(0, self_attn__o_proj=("BF16", [511])),
            "layer 0: self_attn.o_proj.weight: expected a whole number of rows of 512 weights, found 511 weights",
        ),
        (
            attention(0, H, 1024, 512, 1024) | {"model.layer.0.self_attn.q_proj.weight": matrix(1024, H)},
            "expected one of model.layers.<i> and model.layer.<i>, found both",
        ),
        (
            attention(0, H, 960, 512, 1024) | dense_mlp(0, H, 768),
            "layers[0].qkv.N: expected a positive multiple of 128",
        ),
    ],
)
def test_containers_that_make_no_plan_are_refused(tmp_path, tensors, said):
    folder = model_with(tmp_path, tensors)
    with pytest.raises(Refused) as caught:
        generate_plan(folder)
    assert said in str(caught.value)


def test_experts_that_config_does_not_count_are_refused(tmp_path):
    folder = mixture(tmp_path / "m", n_expert=0)
    with pytest.raises(Refused) as caught:
        generate_plan(folder)
    assert str(caught.value) == (
        "config.json: n_expert: expected the count of the experts that layer 0 of model.q4nx holds, found nothing"
    )


def test_a_folder_without_container_or_config_is_refused(tmp_path):
    folder = dense(tmp_path / "m")
    (folder / "config.json").rename(folder / "other.json")
    with pytest.raises(Refused, match=r"config.json: missing"):
        generate_plan(folder)
    (folder / "model.q4nx").unlink()
    with pytest.raises(Refused, match=r"model.q4nx: missing"):
        generate_plan(folder)
    with pytest.raises(Refused, match="--kernels: expected a directory"):
        generate_plan(folder, Options(kernels_dir=folder / "none"))


def test_more_layers_than_the_engine_holds_are_refused(tmp_path):
    with pytest.raises(Refused, match=r"expected at most 64 \(Q4NX_MAX_LAYERS\), found 65"):
        generate_plan(dense(tmp_path / "m", layers=65))


def test_bytes_after_the_last_tensor_are_noted(tmp_path):
    folder = dense(tmp_path / "m")
    with (folder / "model.q4nx").open("ab") as stream:
        stream.write(b"12345")
    assert generate_plan(folder).notes == ("model.q4nx: 5 bytes follow the last tensor",)


# --- the file, and the comparison ---


def test_the_text_is_the_data_one_line_a_layer_and_the_same_every_time(tmp_path):
    one = generate_plan(hybrid(tmp_path / "one"))
    other = generate_plan(hybrid(tmp_path / "elsewhere" / "other"))
    assert one.text == other.text == plan_text(one.data)
    assert json.loads(one.text) == one.data
    assert one.text.endswith("\n}\n")
    assert sum(line.startswith('    {"index"') for line in one.text.splitlines()) == 4


def test_a_written_plan_is_what_the_loader_reads(tmp_path):
    for make in (dense, hybrid, mixture, latent, gemma):
        folder = make(tmp_path / make.__name__)
        generated = generate_plan(folder)
        write_plan(folder / "plan.json", generated)
        assert load_plan(folder) == generated.plan
        checked = check_plan(folder / "plan.json", generated)
        assert (checked.differences, checked.refused, checked.notes) == ((), "", ())
        assert sorted(entry.name for entry in folder.iterdir()) == ["config.json", "model.q4nx", "plan.json"]


def test_differences_name_fields_of_both_sides():
    old = {"a": {"K": 1, "gone": 2}, "list": [1, 2], "same": [1], "type": 1, "empty": {}}
    new = {"a": {"K": 3}, "list": [1], "same": [1], "type": True, "empty": []}
    assert {str(entry) for entry in differences(old, new)} == {
        "a.K: 1 -> 3",
        "a.gone: 2 -> nothing",
        "list[1]: 2 -> nothing",
        "type: 1 -> true",
        "empty: {} -> []",
    }
    assert differences(old, old) == ()


def test_differences_follow_the_structure_not_the_spelling():
    nested = {"model": {"hidden": 1}, "list": [{"K": 1}], "deep": {"0": 1}, "\n": 0}
    flat = {"model.hidden": 1, "list[0].K": 1, "list[0]": {"K": 1}, "deep": [1]}
    assert [str(entry) for entry in differences(flat, nested)] == [
        'model: nothing -> {"hidden": 1}',
        'list: nothing -> [{"K": 1}]',
        'deep: [1] -> {"0": 1}',
        '["\\n"]: nothing -> 0',
        '["model.hidden"]: 1 -> nothing',
        '["list[0].K"]: 1 -> nothing',
        '["list[0]"]: {"K": 1} -> nothing',
    ]


def test_null_is_something():
    (entry,) = differences({"x": None}, {})
    assert (str(entry), entry.old, entry.new) == ("x: null -> nothing", None, ABSENT)
    assert entry.data("old", "new") == {"field": "x", "old": None}
    assert [str(found) for found in differences([], {"a": 1})] == ['the whole: [] -> {"a": 1}']


# --- the verb ---


def run(capsys, *words):
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    return code, out.out, out.err


def test_the_verb_writes_then_checks_then_finds_a_stale_plan(tmp_path, capsys):
    folder = hybrid(tmp_path / "m")
    code, out, err = run(capsys, "plan", folder)
    assert (code, err) == (0, "")
    assert out == f"wrote {folder}/plan.json: 4 layers, layout rm, gate and up fused, 12 names\n"
    assert run(capsys, "plan", folder, "--check") == (0, f"{folder}/plan.json is current\n", "")
    text = (folder / "plan.json").read_text()
    (folder / "plan.json").write_text(
        text.replace('"N": 2048, "fused"', '"N": 4096, "fused"', 1).replace("causal", "x")
    )
    code, out, _ = run(capsys, "plan", folder, "--check")
    assert code == 1
    assert 'attention.mode: "x" -> "causal"' in out
    assert "layers[0].qkv.N: 4096 -> 2048" in out
    assert "2 fields" in out
    code, out, _ = run(capsys, "plan", folder, "--check", "--json")
    assert code == 1
    assert [entry["field"] for entry in json.loads(out)["differences"]] == ["attention.mode", "layers[0].qkv.N"]
    assert "4096" in (folder / "plan.json").read_text()  # a check writes nothing


def flattened(data):
    model = data.pop("model")
    return data | {f"model.{key}": value for key, value in model.items()}


def unlisted(data):
    return data | {f"layers[{index}]": layer for index, layer in enumerate(data.pop("layers"))}


def unlisted_in_a_table(data):
    return data | {"layers": {str(index): layer for index, layer in enumerate(data["layers"])}}


@pytest.mark.parametrize("broken", [flattened, unlisted, unlisted_in_a_table])
def test_a_plan_of_another_structure_is_not_current(tmp_path, capsys, broken):
    folder = dense(tmp_path / "m")
    data = broken(json.loads(generate_plan(folder).text))
    (folder / "plan.json").write_text(json.dumps(data))
    code, out, _ = run(capsys, "plan", folder, "--check")
    assert code == 1
    assert "is current" not in out
    assert f"the loader refuses it: {folder}/plan.json: " in out
    code, out, _ = run(capsys, "plan", folder, "--check", "--json")
    found = json.loads(out)
    assert (code, found["current"], found["refused"][: len(str(folder))]) == (1, False, str(folder))


def test_a_check_takes_the_loaders_rules_even_where_the_fields_agree(tmp_path, capsys):
    folder = dense(tmp_path / "m")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "decision_config.json").write_text('{"attention_mode": "noncausal_full_attention"}')
    out = tmp_path / "elsewhere" / "plan.json"
    assert run(capsys, "plan", folder, "--out", out)[0] == 0
    code, out, _ = run(capsys, "plan", folder, "--out", out, "--check")
    assert code == 1
    assert "attention.mode: expected 'noncausal_full_attention', as " in out


@pytest.mark.parametrize(
    "same",
    [
        {"generated_by": "tools/npu_plan.py 1.1"},
        {"generated_by": None},
        {"kv": {"key": "f16", "value": "f16", "hadamard": {"block": 0, "signs": ""}}},
        {"kv": {}},
        {"moe": {"batched_expert_gu": {"enabled": False}}},
        {"prefill": None},
        {"container.tile_order": None},
        {"container.pb16i": None},
        {"decode.M": None},
        {"decode.sealed_elf": None},
        {"decode.dirs": [{"root": "model", "path": "./kernels-m16/"}, {"root": "kernels", "path": "."}]},
    ],
)
def test_what_means_the_same_is_current(tmp_path, capsys, same):
    folder = dense(tmp_path / "m")
    data = json.loads(generate_plan(folder).text)
    for dotted, value in same.items():
        *parents, last = dotted.split(".")
        where = data[parents[0]] if parents else data
        if value is None:
            del where[last]
        else:
            where[last] = value
    (folder / "plan.json").write_text(json.dumps(data))
    assert run(capsys, "plan", folder, "--check") == (0, f"{folder}/plan.json is current\n", "")


@pytest.mark.parametrize(("make", "factor"), [(hybrid, 0.5), (mixture, 2)])
def test_either_spelling_of_gate_ups_width_is_current(tmp_path, capsys, make, factor):
    folder = make(tmp_path / "m")
    data = json.loads(generate_plan(folder).text)
    for layer in data["layers"]:
        layer["gate_up"]["N"] = int(layer["gate_up"]["N"] * factor)
    (folder / "plan.json").write_text(json.dumps(data))
    assert run(capsys, "plan", folder, "--check")[:2] == (0, f"{folder}/plan.json is current\n")
    data["layers"][1]["down"]["K"] += 256
    data["layers"][1]["gate_up"]["N"] += int(256 * 2 * factor) if make is hybrid else 512
    (folder / "plan.json").write_text(json.dumps(data))
    code, out, _ = run(capsys, "plan", folder, "--check")
    assert (code, [line.split(": ")[0] for line in out.splitlines()[1:]]) == (
        1,
        ["  layers[1].gate_up.N", "  layers[1].down.K"],
    )


def test_a_check_shows_the_notes_of_the_file(tmp_path, capsys):
    folder = dense(tmp_path / "m")
    data = json.loads(generate_plan(folder).text)
    data |= {"kvv": {"key": "int8"}, "x": None}
    data["decode"]["sealed_elff"] = "y"
    data["container"]["chunk_kind"] = "nonsense"
    (folder / "plan.json").write_text(json.dumps(data))
    code, out, err = run(capsys, "plan", folder, "--check")
    file = f"{folder}/plan.json"
    assert (code, err.splitlines()) == (
        1,
        [
            f"note: {file}: kvv: not a field of 1bit-npu-plan/1, ignored",
            f"note: {file}: x: not a field of 1bit-npu-plan/1, ignored",
            f"note: {file}: container.chunk_kind: 'nonsense' is not one of q4_1, q4k, q8, pb16i, t2",
            f"note: {file}: decode.sealed_elff: not a field of 1bit-npu-plan/1, ignored",
        ],
    )
    assert out.splitlines()[1:] == [
        '  container.chunk_kind: "nonsense" -> "q4_1"',
        '  decode.sealed_elff: "y" -> nothing',
        '  kvv: {"key": "int8"} -> nothing',
        "  x: null -> nothing",
    ]
    notes = json.loads(run(capsys, "plan", folder, "--check", "--json")[1])["notes"]
    assert [f"note: {note}" for note in notes] == err.splitlines()


def test_the_verb_prints_without_writing(tmp_path, capsys):
    folder = dense(tmp_path / "m")
    code, out, _ = run(capsys, "plan", folder, "--print")
    assert code == 0
    assert out == generate_plan(folder).text
    assert not (folder / "plan.json").exists()


def test_the_verb_takes_out_kernels_layout_tag_and_decode(tmp_path, capsys):
    folder, kernels = hybrid(tmp_path / "m", "t2"), tmp_path / "k"
    elf(kernels, "full_i8_G_K512_N768_t2s2.elf")
    words = ("layout=t2s", "tag=_t2s2", "decode=false", "--kernels", kernels, "--out", tmp_path / "p.json")
    code, _, _ = run(capsys, "plan", folder, *words)
    assert code == 0
    plan = load_plan(tmp_path / "p.json")
    assert (plan.layout, plan.tag, plan.decode.enabled, plan.gate_up) == ("t2s", "_t2s2", False, "split")
    assert run(capsys, "plan", folder, *words, "--check")[0] == 0
    assert run(capsys, "plan", folder, "layout=t2s", "--out", tmp_path / "p.json", "--check")[0] == 1


def test_the_verb_refuses_in_one_line(tmp_path, capsys):
    folder = dense(tmp_path / "m")
    for words, code, said in (
        ((folder, "--check", "--print"), 2, "not both"),
        ((folder, "--check"), 1, "missing plan"),
        ((folder, "decode=maybe"), 2, "expected true or false"),
        ((tmp_path / "none",), 2, "expected a folder"),
        ((folder, "--kernels", tmp_path / "none"), 2, "expected a directory"),
        ((folder, "layout=pb16i"), 2, "as the container holds q4_1 chunks"),
        ((), 2, "takes one model folder, MODELDIR or dir="),
        ((folder, f"dir={folder}"), 2, "takes one model folder"),
        ((folder, "--kernels", ""), 2, "plan: --kernels: expected a directory, found nothing"),
        ((folder, "--out="), 2, "plan: --out: expected a file, found nothing"),
    ):
        found, _, err = run(capsys, "plan", *words)
        assert found == code
        assert said in err
        assert err.count("\n") == 1


def test_dir_names_the_folder_too(tmp_path, capsys):
    folder = dense(tmp_path / "m")
    assert run(capsys, "plan", f"dir={folder}", "--print")[:2] == (0, generate_plan(folder).text)


def test_doit_runs_the_same(tmp_path):
    folder = dense(tmp_path / "m")
    doit = [sys.executable, "-m", "doit", "-f", str(CHECKOUT / "dodo.py"), "plan", f"dir={folder}"]
    written = subprocess.run(doit, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert written.stdout.startswith(f"wrote {folder}/plan.json: 2 layers")
    (folder / "plan.json").write_text((folder / "plan.json").read_text().replace("causal", "other"))
    stale = subprocess.run([*doit, "--check"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert stale.returncode == 1
    assert 'attention.mode: "other" -> "causal"' in stale.stdout


def test_notes_go_to_standard_error(tmp_path, capsys):
    folder = dense(tmp_path / "m", layers=3, num_hidden_layers=2)
    code, out, err = run(capsys, "plan", folder)
    assert code == 0
    assert "note:" not in out
    assert err == "note: model.layers: 3 in the container, 2 in config.json\n"

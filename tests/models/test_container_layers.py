"""What a container's layers are refused for and what is noted: nothing of them is dropped without a word."""

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.models.plan.generate import generate_plan
from plan_data import attention, dense_mlp, experts, gdn, grid, layer_tensors, matrix, write_model
from wrong_models import CONFIG, ONE, TWO, WRONG_MODELS, H, config, layer, without


def generated(folder, tensors, settings=ONE):
    return generate_plan(write_model(folder / "m", tensors, settings))


def refused(folder, tensors, settings=ONE):
    with pytest.raises(Refused) as caught:
        generated(folder, tensors, settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the cases that went wrong ---

REFUSED = {
    "gate-missing": (
        "model.q4nx: layer 1: mlp: expected mlp.gate_proj.weight or mlp.gate_exps_proj.weight, "
        "found mlp.down_proj.weight, mlp.up_proj.weight"
    ),
    "no-mlp-in-layer-1": (
        "model.q4nx: layer 1: mlp: expected mlp.gate_proj.weight or mlp.gate_exps_proj.weight, found no other matrix"
    ),
    "fused-gate-up": (
        "model.q4nx: layer 0: mlp: expected mlp.gate_proj.weight or mlp.gate_exps_proj.weight, "
        "found mlp.down_proj.weight, mlp.gate_up_proj.weight"
    ),
    "two-kinds-of-chunk": (
        "model.q4nx: model.layers.1.self_attn.q_proj.weight: expected pb16i chunks, as "
        "model.layers.0.self_attn.q_proj.weight has: one container has one layout, found q4_1 chunks; "
        "convert the whole model to one kind of chunk"
    ),
    "empty-norm": "model.q4nx: model.norm.weight: expected a shape that gives the model's width, found BF16 [0]",
    "scalar-expert": (
        "model.q4nx: layer 0: mlp.gate_exps_proj.weight: expected a first dimension that n_expert = 8 of config.json "
        "divides, found []"
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_model_is_refused_in_one_line(tmp_path, capsys, case):
    folder = write_model(tmp_path / "m", *WRONG_MODELS[case])
    assert main(["plan", str(folder)]) == 2
    assert capsys.readouterr().err == f"elfkiln: {REFUSED[case]}\n"
    assert not (folder / "plan.json").exists()


def test_a_shared_expert_that_no_projection_uses_is_noted(tmp_path, capsys):
    folder = write_model(tmp_path / "m", *WRONG_MODELS["shared-expert-ignored"])
    assert main(["plan", str(folder)]) == 0
    note = "note: model.q4nx: no projection uses them: mlp.gate_shexp_proj.weight (layer 0)\n"
    assert capsys.readouterr().err == note


def test_a_sliding_pattern_gives_the_kinds_of_layers(tmp_path):
    plan = generate_plan(write_model(tmp_path / "m", *WRONG_MODELS["sliding-pattern"]))
    assert [one.role for one in plan.plan.layers] == ["sliding"] * 5 + ["full"]
    assert plan.notes == (
        (
            "config.json: layer_types derived from sliding_window_pattern = 6: 5 of 6 layers slide; "
            "the engine reads only layer_types"
        ),
    )


# --- an MLP under any other name ---

# Tensor names of MLPs and mixtures in Hugging Face classes and their converters, each as one layer has it.
OTHER_MLPS = {
    "fused": ["mlp.gate_up_proj", "mlp.down_proj"],
    "no gate": ["mlp.up_proj", "mlp.down_proj"],
    "gate alone": ["mlp.up_proj", "mlp.gate_proj"],
    "gpt-neox": ["mlp.dense_h_to_4h", "mlp.dense_4h_to_h"],
    "falcon": ["mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "mlp.gate_proj_fused"],
    "opt": ["fc1", "fc2"],
    "phi": ["mlp.fc1", "mlp.fc2"],
    "gpt-2": ["mlp.c_fc", "mlp.c_proj"],
    "starcoder gated": ["mlp.w1", "mlp.w2", "mlp.c_proj"],
    "llama original": ["feed_forward.w1", "feed_forward.w2", "feed_forward.w3"],
    "internlm": ["feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"],
    "mixtral": [f"block_sparse_moe.experts.{e}.{w}" for e in range(2) for w in ("w1", "w2", "w3")],
    "per expert": [f"mlp.experts.{e}.{w}_proj" for e in range(2) for w in ("gate", "up", "down")],
    "fused experts": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    "mlx": ["mlp.switch_mlp.gate_proj", "mlp.switch_mlp.up_proj", "mlp.switch_mlp.down_proj"],
    "shared alone": ["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj", "mlp.shared_expert.down_proj"],
    "dbrx": ["ffn.experts.mlp.w1", "ffn.experts.mlp.v1", "ffn.experts.mlp.w2"],
    "jamba": [f"feed_forward.experts.{e}.{w}_proj" for e in range(2) for w in ("gate", "up", "down")],
}


@pytest.mark.parametrize("family", OTHER_MLPS)
def test_an_mlp_under_another_name_is_refused_and_named(tmp_path, family):
    weights = {f"model.layers.0.{name}.weight": matrix(2048, H) for name in OTHER_MLPS[family]}
    message = refused(tmp_path, attention(0, H, 1024, 512, 1024) | weights)
    if family == "gate alone":
        assert message == "model.q4nx: layer 0: mlp.down_proj.weight: expected a tensor of that name, found none"
        return
    start = "model.q4nx: layer 0: mlp: expected mlp.gate_proj.weight or mlp.gate_exps_proj.weight, found "
    assert message.startswith(start)
    told = set(message.removeprefix(start).split(", "))
    assert told == {f"{name}.weight".replace("experts.0.", "experts.*.") for name in OTHER_MLPS[family]} - {
        f"{name}.weight" for name in OTHER_MLPS[family] if "experts.1." in name
    }


OTHER_ATTENTION = {
    "phi3": ["self_attn.qkv_proj", "self_attn.o_proj"],
    "gpt-2": ["attn.c_attn", "attn.c_proj"],
    "gpt-neox": ["attention.query_key_value", "attention.dense"],
    "mpt": ["attn.Wqkv", "attn.out_proj"],
    "internlm": ["attention.wqkv", "attention.wo"],
    "lfm2": ["conv.in_proj", "conv.out_proj"],
    "mamba": ["mamba.in_proj", "mamba.out_proj", "mamba.x_proj"],
    "rwkv": ["attention.key", "attention.receptance", "attention.value", "attention.output"],
    "gated deltanet of transformers": ["linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba", "linear_attn.out_proj"],
    "crossing": ["cross_attn.q_proj", "cross_attn.k_proj", "cross_attn.v_proj", "cross_attn.o_proj"],
}


@pytest.mark.parametrize("family", OTHER_ATTENTION)
def test_attention_under_another_name_is_refused_and_named(tmp_path, family):
    weights = {f"model.layers.0.{name}.weight": matrix(1024, H) for name in OTHER_ATTENTION[family]}
    message = refused(tmp_path, dense_mlp(0, H, 2048) | weights)
    start = "model.q4nx: layer 0: attention: expected linear_attn.qkv_proj.weight, self_attn.q_proj.weight or "
    assert message.startswith(start)
    assert all(f"{name}.weight" in message for name in OTHER_ATTENTION[family])


GDN = gdn(0, H, 4096, 2048)
LATENT = layer_tensors(
    0,
    self_attn__q_a_proj=matrix(256, H),
    self_attn__q_b_proj=matrix(1024, 256),
    self_attn__kv_a_proj_with_mqa=matrix(320, H),
    self_attn__o_proj=matrix(H, 1024),
)
FULL = attention(0, H, 1024, 512, 1024)


@pytest.mark.parametrize(
    ("tensors", "found"),
    [
        (GDN | FULL, "linear_attn.qkv_proj.weight, self_attn.q_proj.weight, self_attn.k_proj.weight"),
        (GDN | LATENT, "linear_attn.qkv_proj.weight, self_attn.q_a_proj.weight, self_attn.kv_a_proj_with_mqa.weight"),
        (LATENT | FULL, "self_attn.q_a_proj.weight, self_attn.kv_a_proj_with_mqa.weight, self_attn.q_proj.weight"),
        # DeepSeek-V2-Lite: keys and values from a latent, queries plain
        (without(LATENT, "q_a", "q_b") | without(FULL, "k_proj", "v_proj"), "kv_a_proj_with_mqa.weight, self_attn.q_"),
    ],
)
def test_two_kinds_of_attention_in_a_layer_are_refused(tmp_path, tensors, found):
    message = refused(tmp_path, tensors | dense_mlp(0, H, 2048))
    assert message.startswith("model.q4nx: layer 0: attention: expected one kind, found ")
    assert found in message


def test_experts_beside_a_dense_mlp_are_refused(tmp_path):
    pool = layer_tensors(
        0,
        mlp__gate_exps_proj=experts(4, 256, H),
        mlp__up_exps_proj=experts(4, 256, H),
        mlp__down_exps_proj=experts(4, H, 256),
    )
    settings = config(num_hidden_layers=1, n_expert=4, top_k=2, intermediate_size=256)
    expected = "expected experts or a dense MLP: the engine runs one of them in a layer"
    found = "found mlp.gate_exps_proj.weight and mlp.gate_proj.weight"
    assert refused(tmp_path, layer(0) | pool, settings) == f"model.q4nx: layer 0: mlp: {expected}, {found}"


# --- what no projection uses ---

UNUSED = [
    "mlp.shared_expert.gate_proj.weight",
    "mlp.shared_experts.up_proj.weight",
    "mlp.share_down_exps_proj.weight",
    "mlp.gate_shexp_proj.weight",
    "per_layer_projection.weight",
    "per_layer_input_gate.weight",
    "per_layer_model_projection.weight",
    "linear_attn.out_proj.weight",
    "linear_attn.in_proj_z.weight",
    "self_attn.gate_proj.weight",
    "self_attn.g_proj.weight",
    "self_attn.indexer.wq_b.weight",
    "altup.prediction_coefs.weight",
    "laurel.linear_left.weight",
    "self_attn.q_proj.qweight",
    "mlp.up_proj.weight_packed",
    "mlp.gate_proj.weight.1",
]


@pytest.mark.parametrize("name", UNUSED)
@pytest.mark.parametrize("shape", [matrix(512, H), ("BF16", [512, H]), ("I8", [64, 3000]), ("F32", [2, 64, 64])])
def test_every_matrix_that_no_projection_uses_is_noted(tmp_path, name, shape):
    notes = generated(tmp_path, layer(0) | {f"model.layers.0.{name}": shape}).notes
    assert notes == (f"model.q4nx: no projection uses them: {name} (layer 0)",)


HOST = [
    "linear_attn.ssm_alpha_proj.weight",
    "linear_attn.ssm_beta_proj.bf16.weight",
    "moe_router.weight",
    "mlp.gate.weight",
    "self_attn.kv_b_proj.weight",
]


@pytest.mark.parametrize("name", HOST)
def test_what_the_engine_has_no_design_for_is_noted_as_the_hosts(tmp_path, name):
    tensors = TWO | {f"model.layers.{index}.{name}": matrix(64, H) for index in (0, 1)}
    note = f"model.q4nx: no design is theirs, the engine keeps them on the host: {name} (2 layers from 0)"
    assert generated(tmp_path, tensors, config()).notes == (note,)


SILENT = [
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_norm.weight",
    "ln_1.weight",
    "linear_attn.ssm_norm.weight",
    "self_attn.q_proj.bias",
    "mlp.gate.e_score_correction_bias",
    "self_attn.q_proj.lora_A.weight",
    "self_attn.q_proj.lora_B.default.weight",
    "mlp.vision_mlp.gate_proj.weight",
    "self_attn.vision_expert_query_key_value.weight",
    "audio_proj.weight",
    "shared_head.head.weight",
]


@pytest.mark.parametrize("name", SILENT)
def test_norms_biases_adapters_and_other_towers_stay_silent(tmp_path, name):
    """Even as large as a matrix: the name says what they are."""
    assert generated(tmp_path, layer(0) | {f"model.layers.0.{name}": ("BF16", [512, H])}).notes == ()


OUTSIDE = [
    "model.embed_tokens.weight",
    "lm_head.weight",
    "model.visual.blocks.0.mlp.fc1.weight",
    "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
    "multi_modal_projector.linear_1.weight",
    "mtp.layers.0.self_attn.q_proj.weight",
    "model.mtp.fc.weight",
]


def test_what_is_no_layers_stays_silent(tmp_path):
    assert generated(tmp_path, layer(0) | {name: matrix(512, H) for name in OUTSIDE}).notes == ()


@pytest.mark.parametrize(
    "prefix", ["model.language_model.layers", "language_model.model.layers", "transformer.h", "blk"]
)
def test_layers_under_another_name_beside_the_models_are_noted(tmp_path, prefix):
    other = {f"{prefix}.{index}.mlp.up_proj.weight": matrix(512, H) for index in range(3)}
    small = {f"{prefix}.0.mlp.norm.weight": ("BF16", [H]), f"{prefix}.0.scale": ("F32", [1])}
    notes = generated(tmp_path, layer(0) | other | small).notes
    left_out = f"{prefix}.*.mlp.up_proj.weight (3)"
    assert notes == (f"model.q4nx: layers under other names than model.layers.<i>, left out: {left_out}",)


@pytest.mark.parametrize(
    "shape", [("F32", [8192]), ("BF16", [1, 8192]), ("BF16", [8192, 1, 4]), ("F32", [H, 4]), ("I8", [0, 5120])]
)
def test_what_is_smaller_than_a_matrix_stays_silent(tmp_path, shape):
    assert generated(tmp_path, layer(0) | {"model.layers.0.other.weight": shape}).notes == ()


def test_the_notes_name_each_matrix_once_with_its_layers_and_end(tmp_path):
    tensors = TWO | {f"model.layers.1.mlp.shared.{n}.up.weight": matrix(32, 256) for n in range(99)}
    (note,) = generated(tmp_path, tensors, config()).notes
    assert note == "model.q4nx: no projection uses them: mlp.shared.*.up.weight (layer 1)"
    tensors = TWO | {f"model.layers.{i}.odd_{n:02}.weight": matrix(32, 256) for n in range(60) for i in (0, 1)}
    (note,) = generated(tmp_path / "many", tensors, config()).notes
    told = [f"odd_{n:02}.weight (2 layers from 0)" for n in range(40)]
    assert note == "model.q4nx: no projection uses them: " + ", ".join([*told, "20 more"])


@pytest.mark.parametrize("mark", ["nextn.eh_proj.weight", "eh_proj.weight", "mtp_block.proj.weight"])
def test_layers_for_multi_token_prediction_are_not_the_plans(tmp_path, mark):
    tensors = TWO | attention(2, H, 1024, 512, 1024) | {f"model.layers.2.{mark}": matrix(H, 2 * H)}
    plan = generated(tmp_path, tensors, config())
    assert (len(plan.plan.layers), plan.notes) == (2, ())


# --- names and numbers of layers ---


@pytest.mark.parametrize("number", ["01", "-1", "1000000", "1.5", "x", "", "٣"])
def test_a_layer_number_that_is_none_is_refused(tmp_path, number):
    name = f"model.layers.{number}.self_attn.q_proj.weight"
    message = refused(tmp_path, layer(0) | {name: matrix(1024, H)})
    if number == "1.5":
        assert message.startswith("model.q4nx: layer 1: attention: expected linear_attn.qkv_proj.weight, ")
        assert message.endswith(", found 5.self_attn.q_proj.weight")
    else:
        assert "expected model.layers.<i>.<tensor>, i a number below a million without leading zeros" in message


# --- chunks ---


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("pb16i", "q4_1"), "expected pb16i chunks, as model.layers.0.self_attn.q_proj.weight has"),
        (("q8", "pb16i"), "expected q8 chunks, as model.layers.0.self_attn.q_proj.weight has"),
        (("t2", "pb16i"), "expected I8 [128, 2304], as model.layers.0.self_attn.q_proj.weight has"),
    ],
)
def test_ternary_chunks_beside_others_are_refused(tmp_path, kinds, said):
    message = refused(tmp_path, layer(0, kinds[0]) | layer(1, kinds[1]), config(q4nx_weight_layout=None))
    assert message.startswith(f"model.q4nx: model.layers.1.self_attn.q_proj.weight: {said}")


@pytest.mark.parametrize(
    ("part", "shape"),
    [
        ("self_attn.v_proj", matrix(512, H)),
        ("self_attn.v_proj", ("BF16", [512, H])),
        ("self_attn.v_proj", ("I8", [64, 3000])),
        ("mlp.down_proj", matrix(H, 2048, "q8")),
        ("mlp.down_proj", ("F32", [2048, H])),
    ],
)
def test_one_matrix_of_another_kind_in_a_ternary_container_is_named(tmp_path, part, shape):
    tensors = layer(0, "pb16i") | layer(1, "pb16i") | {f"model.layers.1.{part}.weight": shape}
    message = refused(tmp_path, tensors, config(q4nx_weight_layout=None))
    assert message.startswith(f"model.q4nx: model.layers.1.{part}.weight: expected pb16i chunks, as model.layers.0.")


def test_other_mixtures_are_a_note_with_counts(tmp_path):
    tensors = layer(0, "q4_1") | layer(1, "q8") | dense_mlp(1, H, 2048, "q4k")
    plan = generated(tmp_path, tensors, config())
    assert plan.notes == ("model.q4nx: more than one kind of chunk: q4_1 in 7, q8 in 4, q4k in 3 of the tensors used",)
    assert plan.data["container"]["chunk_kind"] == "q4_1"


def test_what_is_not_used_does_not_count_as_a_mixture(tmp_path):
    tensors = layer(0, "pb16i") | {"lm_head.weight": matrix(512, H, "q8"), "model.layers.0.odd.weight": matrix(64, H)}
    (note,) = generated(tmp_path, tensors, config(num_hidden_layers=1, q4nx_weight_layout=None)).notes
    assert note.endswith("odd.weight (layer 0)")


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("self_attn.q_proj", grid(512, 2048), "expected 1024 columns, found [16, 8, 5120]"),
        ("self_attn.v_proj", grid(1024, 512), "expected 1024 columns, found [32, 2, 5120]"),
        ("mlp.gate_proj", grid(H, 2048), "expected 1024 columns, found [32, 8, 5120]"),
        ("mlp.down_proj", grid(2048, H), "expected 1024 rows, found [64, 4, 5120]"),
        ("self_attn.o_proj", grid(512, 2048), "expected 1024 rows, found [16, 8, 5120]"),
        ("self_attn.q_proj", ("BF16", [512, 2048]), "expected a side of 1024, found [512, 2048]"),
    ],
)
def test_a_grid_of_the_wrong_width_is_refused(tmp_path, name, shape, said):
    message = refused(tmp_path, layer(0) | {f"model.layers.0.{name}.weight": shape})
    assert message == f"model.q4nx: layer 0: {name}.weight: {said}"


def test_a_grid_of_the_right_width_is_taken(tmp_path):
    grids = {
        f"model.layers.0.{name}.weight": shape
        for name, shape in {
            "self_attn.q_proj": grid(1024, H),
            "self_attn.k_proj": ("BF16", [512, H]),
            "self_attn.v_proj": ("BF16", [H, 512]),
            "self_attn.o_proj": grid(H, 1024),
            "mlp.gate_proj": grid(2048, H),
            "mlp.up_proj": grid(2048, H),
            "mlp.down_proj": grid(H, 2048),
        }.items()
    }
    assert generated(tmp_path / "a", grids).data == generated(tmp_path / "b", layer(0)).data


# --- empty and scalar tensors, and other shapes that tell nothing ---


@pytest.mark.parametrize("shape", [[], [0], [0, 5], [5, 0]])
@pytest.mark.parametrize("name", ["model.norm.weight", *(name for name in layer(0))])
def test_a_shape_that_tells_nothing_is_refused_by_name(tmp_path, name, shape):
    tensors = {"model.norm.weight": ("BF16", [H])} | layer(0) | {name: ("F32", shape)}
    message = refused(tmp_path, tensors)
    assert name.removeprefix("model.layers.0.") in message


@pytest.mark.parametrize("shape", [[], [0], [0, 5], [3, 5], [8]])
@pytest.mark.parametrize("part", ["gate", "up", "down"])
def test_experts_of_no_shape_are_refused_by_name(tmp_path, shape, part):
    pool = layer_tensors(
        0,
        mlp__gate_exps_proj=experts(8, 256, H),
        mlp__up_exps_proj=experts(8, 256, H),
        mlp__down_exps_proj=experts(8, H, 256),
    )
    pool |= {f"model.layers.0.mlp.{part}_exps_proj.weight": ("F32", shape)}
    settings = config(num_hidden_layers=1, n_expert=8, top_k=2, intermediate_size=256)
    assert f"layer 0: mlp.{part}_exps_proj.weight: expected " in refused(tmp_path, FULL | pool, settings)


def test_a_norm_stored_in_chunks_tells_nothing_and_config_does(tmp_path):
    assert generated(tmp_path, layer(0) | {"model.norm.weight": ("I8", [2, 5120])}).plan.hidden == H


# --- widths that change from layer to layer ---


def test_one_head_width_for_attention_of_two_is_refused(tmp_path):
    tensors = layer(0) | attention(1, H, 2048, 1024, 2048) | dense_mlp(1, H, 2048)
    assert refused(tmp_path, tensors, config()) == (
        "model.q4nx: layer 1: self_attn.q_proj.weight: expected 1024, as in layer 0: config.json has one head width, "
        "found 2048; the second is global_head_dim, and layer_types says which layers have it"
    )


def test_two_head_widths_go_by_the_kind_of_layer(tmp_path):
    tensors = layer(0) | attention(1, H, 2048, 1024, 2048) | dense_mlp(1, H, 2048)
    kinds = ["sliding_attention", "full_attention"]
    plan = generated(tmp_path / "a", tensors, config(global_head_dim=256, layer_types=kinds))
    assert [one.projection("qkv").N for one in plan.plan.layers] == [2048, 4096]
    tensors |= layer(2) | attention(3, H, 1024, 512, 1024) | dense_mlp(3, H, 2048)
    settings = config(global_head_dim=256, layer_types=kinds * 2, num_hidden_layers=4)
    assert refused(tmp_path / "b", tensors, settings) == (
        "model.q4nx: layer 3: self_attn.q_proj.weight: expected 2048, as in layer 1: config.json has one head width "
        "for full layers, found 1024"
    )


def test_two_head_widths_without_the_kinds_of_layers_are_refused(tmp_path):
    tensors = layer(0) | attention(1, H, 2048, 1024, 2048) | dense_mlp(1, H, 2048)
    assert refused(tmp_path, tensors, config(global_head_dim=256)).startswith(
        "config.json: layer_types: expected the kind of each layer, as global_head_dim = 256 is not head_dim = 128"
    )


# --- config.json and the tensors say different things ---


LINEAR = {
    "linear_num_key_heads": 8,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 128,
}


def test_layer_types_that_contradict_tensors_are_noted(tmp_path):
    settings = config(layer_types=["linear_attention", "mamba"], **LINEAR)
    said = "the plan says full, as the tensors are"
    assert generated(tmp_path, TWO, settings).notes == (
        f"config.json: layer_types: 'linear_attention' for layer 0; {said}",
        f"config.json: layer_types: 'mamba' for layer 1, a kind that is not known; {said}",
        "Z 1024x1024 derived from config.json, in no layer of the container",
    )


def test_latent_attention_that_config_does_not_say_is_noted(tmp_path):
    notes = generated(tmp_path, LATENT | dense_mlp(0, H, 2048)).notes
    assert (
        "config.json: no mla and no kv_lora_rank, though layer 0 of model.q4nx has latent attention; "
        "the engine reads them here"
    ) in notes


def test_latent_attention_that_the_container_has_not_is_noted(tmp_path):
    latent = {
        "mla": 1,
        "q_lora_rank": 256,
        "kv_lora_rank": 256,
        "rope_dim": 64,
        "qk_nope_head_dim": 64,
        "v_head_dim": 128,
    }
    notes = generated(tmp_path, layer(0), ONE | latent).notes
    assert "config.json: mla, though no layer of model.q4nx has latent attention" in notes


def test_experts_that_the_container_has_not_are_noted(tmp_path):
    notes = generated(tmp_path, layer(0), ONE | {"n_expert": 8, "top_k": 2}).notes
    assert notes == ("config.json: n_expert, though no layer of model.q4nx has experts",)


def test_a_projection_of_config_that_no_layer_has_is_noted(tmp_path):
    notes = generated(tmp_path, layer(0), ONE | {"hidden_size_per_layer_input": 256}).notes
    assert notes == (
        "PLEGATE 1024x256 derived from config.json, in no layer of the container",
        "PLEPROJ 256x1024 derived from config.json, in no layer of the container",
    )


def test_a_sparse_config_is_read_with_what_the_container_tells(tmp_path):
    """Gemma-3's config.json leaves the heads out: its class has them as defaults."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": H,
        "intermediate_size": 2048,
        "num_hidden_layers": 6,
        "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }
    tensors = {name: shape for index in range(6) for name, shape in layer(index).items()}
    plan = generated(tmp_path, tensors, {"model_type": "gemma3", "text_config": text})
    full = generated(tmp_path / "full", tensors, config(num_hidden_layers=6, q4nx_weight_layout=None))
    assert [one.projections for one in plan.plan.layers] == [one.projections for one in full.plan.layers]
    assert [one.role for one in plan.plan.layers] == ["sliding"] * 5 + ["full"]
    assert plan.notes == (
        "config.json: dimensions taken from text_config; the engine reads the outermost object only",
        "config.json: no num_attention_heads; the container tells the widths, but the engine reads it here",
        (
            "config.json: layer_types derived from model_type gemma3_text: 5 of 6 layers slide; "
            "the engine reads only layer_types"
        ),
    )


def test_a_sparse_config_does_not_help_where_chunks_tell_nothing(tmp_path):
    settings = {key: value for key, value in CONFIG.items() if key != "num_attention_heads"} | {"num_hidden_layers": 1}
    message = refused(tmp_path, layer(0, "t2"), settings)
    assert message.startswith(
        "model.q4nx: layer 0: self_attn.q_proj.weight: expected chunks of a known size, or the width"
    )

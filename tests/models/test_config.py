"""What of a config.json decides geometry, key by key, and what it is refused for."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.errors import Refused
from elfkiln.models.config import dimensions, read_config
from elfkiln.models.derive import derive_designs
from model_configs import GEMMA4_E2B, GLM_47_FLASH, QWEN3_06B, QWEN35_4B


def test_a_gdn_width_that_design_o_cannot_take_is_noted():
    (note,) = dimensions({**QWEN35_4B, "linear_num_value_heads": 16}).notes
    assert "GDN value width 2048 is not heads*head_dim = 4096" in note


def test_hugging_face_spellings_are_taken_and_noted():
    config = {
        **{key: QWEN3_06B[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim")},
        "num_key_value_heads": 8,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "intermediate_size": 6144,
    }
    dims = dimensions(config)
    assert (dims.experts.count, dims.experts.top_k, dims.experts.width, dims.intermediate) == (128, 8, 768, 6144)
    assert [note.split(": ", 1)[1].split(";")[0] for note in dims.notes] == [
        "n_expert taken from num_experts",
        "top_k taken from num_experts_per_tok",
        "width of one expert taken from moe_intermediate_size",
    ]


def test_the_engines_own_key_wins_over_another_spelling():
    dims = dimensions({**GLM_47_FLASH, "num_experts": 7, "qk_rope_head_dim": 1})
    assert (dims.experts.count, dims.mla.rope) == (64, 64)
    assert dims.notes == ()


def test_dimensions_in_text_config_are_found_and_noted():
    dims = dimensions({"model_type": "qwen3_vl", "text_config": QWEN3_06B})
    assert dims.hidden == 1024
    assert "text_config" in dims.notes[0]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("hidden_size", 0, "hidden_size: expected a whole number from 1 to 2147483647, found 0"),
        ("hidden_size", 2**31, "hidden_size: expected a whole number from 1 to 2147483647, found 2147483648"),
        ("hidden_size", "1024", "hidden_size: expected a whole number"),
        ("hidden_size", 1024.0, "hidden_size: expected a whole number"),
        ("hidden_size", True, "hidden_size: expected a whole number"),
        ("hidden_size", None, "hidden_size: expected a whole number from 1 to 2147483647, found nothing"),
        ("num_attention_heads", -1, "num_attention_heads"),
        ("num_key_value_heads", 3, "num_key_value_heads: expected a divisor of num_attention_heads = 16, found 3"),
        ("num_global_key_value_heads", 3, "num_global_key_value_heads: expected a divisor"),
        ("intermediate_size", None, "intermediate_size: expected a whole number from 1 to 2147483647, found nothing"),
        ("layer_types", ["full_attention"], "layer_types: expected 28 entries (num_hidden_layers), found 1"),
        ("layer_types", "full", "layer_types: expected a list, found"),
        ("layer_types", [1] * 28, "layer_types[0]: expected a string, found 1"),
        (
            "layer_types",
            ["linear_attention"] * 28,
            "linear_num_key_heads: expected a whole number from 1 to 2147483647",
        ),
        ("linear_num_key_heads", 16, "linear_*"),
        ("attn_output_gate", 2, "attn_output_gate: expected true or false"),
        ("attn_output_gate", "yes", "attn_output_gate: expected true or false"),
        ("mla", 1, "q_lora_rank: expected a whole number from 1 to 2147483647, found nothing"),
        ("n_expert", 8, "top_k: expected a whole number from 1 to 2147483647, found nothing"),
        ("num_kv_shared_layers", 29, "num_kv_shared_layers: expected at most num_hidden_layers = 28"),
        ("q4nx_weight_layout", "pb16i", "q4nx_weight_layout: expected one of rm, b8"),
        ("q4nx_weight_layout", ["rm"], "q4nx_weight_layout"),
        ("model_type", 5, "model_type: expected a string"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_by_key(key, value, said):
    config = {**QWEN3_06B, key: value}
    if key == "linear_num_key_heads":
        config["linear_key_head_dim"] = 128
    with pytest.raises(Refused) as caught:
        dimensions(config)
    assert str(caught.value).startswith("config.json: ")
    assert said in str(caught.value)


SLIDING = {**QWEN3_06B, "num_hidden_layers": 8, "sliding_window": 512}
S, F = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("keys", "kinds", "why"),
    [
        ({"sliding_window_pattern": 4}, [S, S, S, F] * 2, "sliding_window_pattern = 4"),
        ({"_sliding_window_pattern": 3}, [S, S, F, S, S, F, S, S], "_sliding_window_pattern = 3"),
        ({"sliding_window_pattern": 2, "_sliding_window_pattern": 2}, [S, F] * 4, "sliding_window_pattern = 2"),
        ({"sliding_window_pattern": "LLLG"}, [S, S, S, F] * 2, "sliding_window_pattern = 'LLLG'"),
        ({"sliding_window_pattern": 1}, [F] * 8, "sliding_window_pattern = 1"),
        ({"sliding_window_pattern": 4, "sliding_window": None}, [S, S, S, F] * 2, "sliding_window_pattern = 4"),
        ({"max_window_layers": 5}, [F] * 5 + [S] * 3, "max_window_layers"),
        ({"max_window_layers": 5, "use_sliding_window": True}, [F] * 5 + [S] * 3, "max_window_layers"),
        ({"max_window_layers": 28}, [F] * 8, "max_window_layers"),
        ({"model_type": "gemma3_text"}, [S, S, S, S, S, F, S, S], "model_type gemma3_text"),
        ({"model_type": "gemma2"}, [S, F] * 4, "model_type gemma2"),
        ({"model_type": "cohere2"}, [S, S, S, F] * 2, "model_type cohere2"),
        ({"model_type": "mistral"}, [S] * 8, "model_type mistral"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, [S, F] * 4, "sliding_window_pattern = 2"),
    ],
)
def test_a_sliding_window_without_layer_types_is_derived_with_a_note(keys, kinds, why):
    dims = dimensions(SLIDING | keys)
    assert list(dims.layer_types) == kinds
    slide = f"{kinds.count(S)} of 8 layers slide; the engine reads only layer_types"
    assert dims.notes == (f"config.json: layer_types derived from {why}: {slide}",)


@pytest.mark.parametrize(
    "keys",
    [
        {"use_sliding_window": False},
        {"use_sliding_window": False, "sliding_window_pattern": 4, "max_window_layers": 2},
        {"sliding_window": None},
        {"sliding_window": None, "max_window_layers": 2, "model_type": "mistral"},
        {"layer_types": [F] * 8},
    ],
)
def test_no_sliding_window_is_no_sliding_layer(keys):
    dims = dimensions(SLIDING | keys)
    assert (S in dims.layer_types, dims.notes) == (False, ())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {},
            "layer_types: expected the kind of each layer, or sliding_window_pattern, as sliding_window is 512, found",
        ),
        ({"use_sliding_window": True}, "layer_types: expected the kind of each layer, or sliding_window_pattern"),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern: expected a number of layers of 1 to 1024"),
        ({"sliding_window_pattern": 2**40}, "sliding_window_pattern: expected a number of layers of 1 to 1024"),
        ({"sliding_window_pattern": True}, "sliding_window_pattern: expected a number of layers"),
        ({"sliding_window_pattern": "LLXG"}, "sliding_window_pattern: expected a number of layers"),
        ({"sliding_window_pattern": ""}, "sliding_window_pattern: expected a number of layers"),
        ({"sliding_window_pattern": [1, 0]}, "sliding_window_pattern: expected a number of layers"),
        (
            {"sliding_window_pattern": 4, "_sliding_window_pattern": 6},
            "expected one pattern in sliding_window_pattern and _sliding_window_pattern, found 4 and 6",
        ),
        ({"max_window_layers": -1}, "max_window_layers: expected a whole number from 0 to 2147483647, found -1"),
        ({"max_window_layers": "5"}, "max_window_layers: expected a whole number from 0 to 2147483647, found '5'"),
        ({"sliding_window": "wide", "sliding_window_pattern": 2}, "sliding_window: expected a whole number"),
        ({"use_sliding_window": "no"}, "use_sliding_window: expected true or false, found 'no'"),
    ],
)
def test_a_sliding_window_that_says_too_little_is_refused(keys, said):
    with pytest.raises(Refused) as caught:
        dimensions(SLIDING | keys)
    assert str(caught.value).startswith(f"config.json: {said}") or said in str(caught.value)


def test_heads_and_the_mlp_width_may_be_left_out_beside_a_container():
    bare = {key: QWEN3_06B[key] for key in ("hidden_size", "num_hidden_layers")}
    with pytest.raises(
        Refused, match="num_attention_heads: expected a whole number from 1 to 2147483647, found nothing"
    ):
        dimensions(bare)
    dims = dimensions(bare, sparse=True)
    assert (dims.hidden, dims.layers, dims.heads, dims.kv_heads, dims.intermediate) == (1024, 28, 0, 0, 0)
    assert dims.notes == (
        "config.json: no num_attention_heads; the container tells the widths, but the engine reads it here",
        "config.json: no intermediate_size; the container tells the widths, but the engine reads it here",
    )
    for key, value in (("num_attention_heads", 0), ("intermediate_size", "wide"), ("hidden_size", None)):
        with pytest.raises(Refused, match=key):
            dimensions(bare | {key: value}, sparse=True)


@pytest.mark.parametrize("value", [None, [], "x", 3, True])
def test_a_config_that_is_no_object_is_told_in_jsons_words(value):
    with pytest.raises(Refused) as caught:
        dimensions(value)
    found = {"None": "nothing", "[]": "a list of 0", "x": "'x'", "3": "3", "True": "true"}[str(value)]
    assert str(caught.value) == f"config.json: expected an object, found {found}"


def test_experts_that_do_not_add_up_are_refused():
    with pytest.raises(Refused, match="top_k: expected at most n_expert = 64, found 65"):
        dimensions({**GLM_47_FLASH, "top_k": 65})
    with pytest.raises(Refused, match="dense_intermediate_size: expected the MLP width of the 1 leading dense layers"):
        dimensions({**GLM_47_FLASH, "dense_intermediate_size": 0})


def test_weight_layout_is_rm_where_absent():
    absent = dimensions(QWEN3_06B)
    assert (absent.layout, absent.layout_stated) == ("rm", False)
    for layout in ("rm", "b8"):
        stated = dimensions({**QWEN3_06B, "q4nx_weight_layout": layout})
        assert (stated.layout, stated.layout_stated) == (layout, True)


LINEAR = {
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
}


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_linear_keys_stand_together(count, zero):
    for some_keys in itertools.combinations(LINEAR, count):
        some = {key: LINEAR[key] for key in some_keys}
        if zero:
            some |= {key: 0 for key in LINEAR if key not in some_keys}
        missing = ", ".join(key for key in LINEAR if key not in some_keys)
        with pytest.raises(Refused) as caught:
            dimensions({**QWEN3_06B, **some})
        assert (
            str(caught.value) == f"config.json: linear_*: expected all four of {', '.join(LINEAR)}, found no {missing}"
        )


def test_a_model_without_linear_keys_or_with_none_of_them_has_no_gdn():
    for keys in ({}, dict.fromkeys(LINEAR, 0), dict.fromkeys(LINEAR), {"linear_num_key_heads": 0}):
        assert (dimensions({**QWEN3_06B, **keys}).linear_key, dimensions({**QWEN3_06B, **keys}).linear_value) == (0, 0)
    assert dimensions({**QWEN3_06B, **LINEAR}).linear_key == 2048


def test_a_config_file_may_hold_infinity_where_no_geometry_hangs_on_it(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**QWEN3_06B, "time_step_limit": [0.0, float("inf")]}))
    assert read_config(file) == dimensions(QWEN3_06B)
    file.write_text('{"hidden_size": 1, "hidden_size": 2}')
    with pytest.raises(Refused, match="'hidden_size' twice"):
        read_config(file)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**33), st.floats(), st.text(max_size=4), st.lists(st.none())
)


@settings(deadline=None)
@given(st.sampled_from(sorted({*GEMMA4_E2B, *GLM_47_FLASH, *QWEN35_4B})), VALUES)
@pytest.mark.parametrize("config", [QWEN3_06B, QWEN35_4B, GEMMA4_E2B, GLM_47_FLASH], ids=lambda c: c["model_type"])
def test_any_value_of_any_key_gives_designs_or_a_refusal(config, key, value):
    try:
        dims = dimensions({**config, key: value})
        derive_designs(dims, fused=False)
    except Refused as error:
        assert "\n" not in str(error)
    for broken in (None, [], "x", 3):
        with pytest.raises(Refused):
            dimensions(broken)

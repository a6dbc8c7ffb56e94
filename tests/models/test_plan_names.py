"""What a plan asks for: its projections as artifact names, and the plans no name can be made of."""

from pathlib import Path

import pytest

from elfkiln.errors import Refused
from elfkiln.models.catalogue import model_plan, model_requirements
from elfkiln.models.plan.load import load_plan, parse_plan
from elfkiln.models.plan.names import (
    folder_requirements,
    mlp_width,
    plan_requirements,
)
from elfkiln.project import Project
from plan_data import PB16I, plan_data, write_plan_file
from projects import CHECKOUT

WORKED_EXAMPLE = CHECKOUT / "plans" / "bonsai2-27b-pb16i"


def asked(data):
    return plan_requirements(parse_plan(data), "m").requirements


def paths(data):
    return [requirement.path for requirement in asked(data)]


def refused(data):
    with pytest.raises(Refused) as caught:
        asked(data)
    return str(caught.value)


def test_the_worked_example_is_64_layers_of_two_kinds():
    plan = load_plan(WORKED_EXAMPLE)
    assert [layer.role for layer in plan.layers] == ["gdn", "gdn", "gdn", "full"] * 16
    assert plan.notes == ()
    gdn = plan.layers[0]
    assert {entry.key: (entry.K, entry.N) for entry in gdn.projections} == {
        "qkv": (5120, 10240),
        "attn_gate": (5120, 6144),
        "ssm_out": (6144, 5120),
        "gate_up": (5120, 17408),
        "down": (17408, 5120),
    }


def test_the_worked_example_asks_for_its_exact_list():
    geometries = [
        ("QKV", 5120, 10240, 48),
        ("QKV", 5120, 14336, 16),
        ("Z", 5120, 6144, 48),
        ("O", 6144, 5120, 64),
        ("G", 5120, 17408, 64),
        ("U", 5120, 17408, 64),
        ("D", 17408, 5120, 64),
    ]
    wanted = folder_requirements(WORKED_EXAMPLE)
    assert (wanted.model, wanted.layout) == ("bonsai2-27b-pb16i", "pb16i")
    stem = "full_i8_{}_K{}_N{}_pb16i"
    assert [(item.path, item.columns, item.rows, item.launches) for item in wanted.requirements] == [
        *((f"kernels/{stem.format(*entry)}.elf", 8, 4, entry[3]) for entry in geometries),
        # Packed twins share each tile among four rows of cores.
        *((f"kernels-m16/{stem.format(*entry)}_m16.elf", 8, 4, entry[3]) for entry in geometries),
        ("pb16i_sealed.elf", 8, None, 368),
    ]
    sealed = wanted.requirements[-1]
    assert sealed.name is None
    assert sealed.sealed == ((5120, 6144), (5120, 10240), (5120, 14336), (5120, 17408), (6144, 5120), (17408, 5120))
    assert wanted == model_requirements(Project(CHECKOUT), "bonsai2-27b-pb16i")


def test_projection_keys_become_roles_whatever_the_layers_role():
    data = plan_data()
    expected = [
        "kernels/full_i8_QKV_K256_N1024_b8.elf",
        "kernels/full_i8_QKV_K256_N1280_b8.elf",
        "kernels/full_i8_Z_K256_N512_b8.elf",
        "kernels/full_i8_O_K512_N256_b8.elf",
        "kernels/full_i8_G_K256_N768_b8.elf",
        "kernels/full_i8_U_K256_N768_b8.elf",
        "kernels/full_i8_D_K768_N256_b8.elf",
    ]
    assert paths(data)[:7] == expected
    for layer in data["layers"]:
        layer["role"] = "mla"
    assert paths(data)[:7] == expected


def test_the_output_of_a_gdn_layer_without_one_is_derived_from_its_gate():
    data = plan_data()
    (output,) = [item for item in asked(data) if item.file_name == "full_i8_O_K512_N256_b8.elf"]
    assert [str(use) for use in output.layers] == ["layer 0 gdn o", "layer 1 full o"]
    del data["layers"][1]  # an all-GDN slice names no O anywhere, and still needs it
    data["model"]["layers"] = 1
    assert "kernels/full_i8_O_K512_N256_b8.elf" in paths(data)


def test_an_output_the_generator_wrote_is_taken():
    data = plan_data()
    data["layers"][0]["ssm_out"] = {"K": 512, "N": 256}
    (output,) = [item for item in asked(data) if item.file_name == "full_i8_O_K512_N256_b8.elf"]
    assert [str(use) for use in output.layers] == ["layer 1 full o", "layer 0 gdn ssm_out"]


@pytest.mark.parametrize("key", ["ssm_out", "o"])
def test_an_output_that_its_gate_contradicts_is_refused(key):
    data = plan_data()
    data["layers"][0][key] = {"K": 1024, "N": 256}
    assert refused(data) == f"plan.json: layers[0].{key}.K: expected attn_gate.N = 512, found 1024"


def test_a_layer_whose_output_cannot_be_told_is_refused():
    data = plan_data()
    del data["layers"][1]["o"]
    assert refused(data) == (
        "plan.json: layers[1]: expected o, ssm_out or attn_gate, to tell the attention output, found none of them"
    )


@pytest.mark.parametrize(("written", "fusion"), [(768, "fused"), (1536, "fused"), (768, "split"), (1536, "split")])
def test_gate_up_is_read_against_down(written, fusion):
    data = plan_data(fusion__gate_up=fusion)
    for layer in data["layers"]:
        layer["gate_up"]["N"] = written
    found = [path for path in paths(data) if "_G_" in path or "_U_" in path or "_GU_" in path]
    if fusion == "fused":
        assert found == ["kernels/full_i8_GU_K256_N1536_b8.elf", "kernels-m16/full_i8_GU_K256_N1536_b8_m16.elf"]
    else:
        assert found[:2] == ["kernels/full_i8_G_K256_N768_b8.elf", "kernels/full_i8_U_K256_N768_b8.elf"]
        assert len(found) == 4


@pytest.mark.parametrize("written", [384, 512, 2304, 256])
def test_any_other_gate_up_width_is_refused(written):
    data = plan_data()
    data["layers"][1]["gate_up"]["N"] = written
    expected = f"plan.json: layers[1].gate_up.N: expected down.K = 768 or its double 1536, found {written}"
    assert refused(data) == expected
    assert mlp_width(written, 768) is None


def test_gate_up_without_down_is_refused():
    data = plan_data()
    del data["layers"][0]["down"]
    assert "layers[0].down: expected its K, to read gate_up.N against" in refused(data)


@pytest.mark.parametrize(
    ("key", "letter", "said"),
    [
        ("qkv", "K", "qkv.K: expected model.hidden = 256, found 512"),
        ("attn_gate", "K", "attn_gate.K: expected model.hidden = 256, found 512"),
        ("gate_up", "K", "gate_up.K: expected model.hidden = 256, found 512"),
        ("down", "N", "down.N: expected model.hidden = 256, found 512"),
    ],
)
def test_geometry_that_contradicts_the_hidden_size_is_refused(key, letter, said):
    data = plan_data()
    data["layers"][0][key][letter] = 512
    assert f"plan.json: layers[0].{said}" == refused(data)


@pytest.mark.parametrize(
    ("key", "flag", "said"),
    [
        ("qkv", False, "qkv.fused: expected true: no artifact name stands for separate q, k and v, found false"),
        ("gate_up", True, "gate_up.fused: expected false, as fusion.gate_up is split, found true"),
    ],
)
def test_a_fused_flag_no_name_can_honour_is_refused(key, flag, said):
    data = plan_data()
    data["layers"][0][key]["fused"] = flag
    assert refused(data) == f"plan.json: layers[0].{said}"


def test_without_decode_there_are_neither_twins_nor_a_sealed_elf():
    data = plan_data(**PB16I | {"decode__enabled": False})
    assert {Path(path).parent.name for path in paths(data)} == {"kernels"}
    assert len(paths(data)) == 7


@pytest.mark.parametrize(
    ("first", "directory"),
    [
        ({"root": "model", "path": "kernels-m16"}, "kernels-m16"),
        ({"root": "model", "path": "."}, "."),
        ({"root": "kernels", "path": "."}, "kernels"),
        ({"root": "kernels", "path": "m16/new"}, "kernels/m16/new"),
    ],
)
def test_twins_lie_in_the_first_decode_directory(first, directory):
    data = plan_data(decode__dirs=[first, {"root": "model", "path": "other"}])
    twins = [item for item in asked(data) if item.name.m16]
    assert {item.directory for item in twins} == {directory}
    assert len(twins) == 7


def test_the_layout_drives_the_tag():
    for tag, layout in (("", "rm"), ("_b8", "b8"), ("_t2s", "t2s"), ("_t2s2", "t2s")):
        changes = {"container__layout": layout, "kernels__tag": tag, "container__pb16i": layout == "t2s"}
        names = [item.name for item in asked(plan_data(**changes))]
        assert {name.tag for name in names} == {tag}
        assert {name.layout for name in names} == {layout}


def test_batched_experts_ask_for_wide_g_and_u():
    data = plan_data(moe__batched_expert_gu={"enabled": True, "K": 256, "N": 8192})
    found = [item for item in asked(data) if item.name.N == 8192]
    assert [item.path for item in found] == [
        "kernels/full_i8_G_K256_N8192_b8.elf",
        "kernels/full_i8_U_K256_N8192_b8.elf",
        "kernels-m16/full_i8_G_K256_N8192_b8_m16.elf",
        "kernels-m16/full_i8_U_K256_N8192_b8_m16.elf",
    ]
    data["moe"]["batched_expert_gu"]["enabled"] = False
    assert not [item for item in asked(data) if item.name.N == 8192]


def test_batched_experts_take_the_models_hidden_size():
    data = plan_data(moe__batched_expert_gu={"enabled": True, "K": 512, "N": 8192})
    assert refused(data) == "plan.json: moe.batched_expert_gu.K: expected model.hidden = 256, found 512"
    data["moe"]["batched_expert_gu"]["enabled"] = False
    assert len(asked(data)) == 14


def test_a_sealed_elf_is_not_named_like_a_gemm():
    data = plan_data(**PB16I | {"decode__sealed_elf": "full_i8_D_K768_N256_pb16i.elf"})
    expected = "plan.json: decode.sealed_elf: expected a name of its own, found 'full_i8_D_K768_N256_pb16i.elf'"
    assert refused(data).startswith(expected)


def test_every_refusal_names_the_file_as_it_was_given(tmp_path):
    for field, change in {
        "layers[0].down.N: ": {"layers": 0, "key": "down", "value": {"K": 768, "N": 512}},
        "layers[0].attn_gate.N: ": {"layers": 0, "key": "attn_gate", "value": {"K": 256, "N": 500}},
        "layers[1]: ": {"layers": 1, "key": "o", "value": None},
    }.items():
        data = plan_data()
        data["layers"][change["layers"]][change["key"]] = change["value"]
        if change["value"] is None:
            del data["layers"][change["layers"]][change["key"]]
        file = write_plan_file(tmp_path / "m", data)
        with pytest.raises(Refused) as caught:
            folder_requirements(tmp_path / "m")
        assert str(caught.value).startswith(f"{file}: {field}")


def test_a_folder_with_an_unknown_role_is_read_when_not_strict(tmp_path):
    data = plan_data()
    data["layers"][1]["role"] = "attn"
    write_plan_file(tmp_path / "plans" / "m", data)
    (tmp_path / "toolchain.lock").write_text("")
    project = Project(tmp_path)
    with pytest.raises(Refused, match="'attn'"):
        folder_requirements(tmp_path / "plans" / "m")
    assert len(folder_requirements(tmp_path / "plans" / "m", strict=False).requirements) == 14
    with pytest.raises(Refused, match="'attn'"):
        model_requirements(project, "m")
    assert len(model_requirements(project, "m", strict=False).requirements) == 14
    assert model_plan(project, "m", strict=False).layers[1].role == "attn"


def mla_data():
    """GLM-4.7-Flash in small: one leading dense layer, one of experts."""
    attention = {
        "q_a": {"K": 256, "N": 384},
        "q_b": {"K": 384, "N": 512},
        "kv_a": {"K": 256, "N": 640},
        "o": {"K": 512, "N": 256},
    }
    dense = {"dense_gate_up": {"K": 256, "N": 1024}, "dense_down": {"K": 1024, "N": 256}}
    expert = {"gate_up": {"K": 256, "N": 512}, "down": {"K": 512, "N": 256}}
    return plan_data(
        layers=[
            {"index": 0, "role": "mla", **attention, **dense},
            {"index": 1, "role": "mla", **attention, **expert},
        ]
    )


def test_a_latent_attention_model_asks_for_its_own_roles():
    prefill = [item for item in asked(mla_data()) if not item.name.m16]
    assert [(item.name.role, item.name.K, item.name.N) for item in prefill] == [
        ("QA", 256, 384),
        ("QB", 384, 512),
        ("KVA", 256, 640),
        ("O", 512, 256),
        ("G", 256, 512),
        ("U", 256, 512),
        ("D", 512, 256),
        ("DG", 256, 1024),
        ("DU", 256, 1024),
        ("DD", 1024, 256),
    ]
    # KVA has five columns at N = 640; N = 256 has two, and so two rows
    assert {item.name.role: (item.columns, item.rows) for item in prefill}["KVA"] == (5, 4)
    assert {item.name.role: (item.columns, item.rows) for item in prefill}["O"] == (2, 2)


@pytest.mark.parametrize(
    ("layer", "key", "letter", "value", "said"),
    [
        (0, "q_a", "N", 512, "layers[0].q_a.N: expected q_b.K = 384, found 512"),
        (0, "q_b", "K", 256, "layers[0].q_a.N: expected q_b.K = 256, found 384"),
        (0, "dense_gate_up", "N", 2048, "layers[0].dense_gate_up.N: expected dense_down.K = 1024, found 2048"),
        (0, "dense_down", "K", 512, "layers[0].dense_gate_up.N: expected dense_down.K = 512, found 1024"),
        (1, "down", "K", 1024, "layers[1].gate_up.N: expected down.K = 1024 or its double 2048, found 512"),
        (0, "ple_gate", "N", 256, "layers[0].ple_gate.N: expected ple_proj.K = 128, found 256"),
        (0, "ple_proj", "K", 64, "layers[0].ple_gate.N: expected ple_proj.K = 64, found 128"),
    ],
)
def test_projections_that_contradict_each_other_are_refused(layer, key, letter, value, said):
    data = mla_data()
    data["layers"][0] |= {"ple_gate": {"K": 256, "N": 128}, "ple_proj": {"K": 128, "N": 256}}
    data["layers"][layer][key][letter] = value
    assert refused(data) == f"plan.json: {said}"


@pytest.mark.parametrize(
    ("gone", "found"),
    [
        ("q_a", "layers[0].q_a: expected its K and N, as the layer has q_b, found nothing"),
        ("q_b", "layers[0].q_b: expected its K and N, as the layer has q_a, found nothing"),
        ("kv_a", "layers[0].kv_a: expected its K and N, as the layer has q_a, found nothing"),
        ("dense_gate_up", "layers[0].dense_gate_up: expected its K and N, as the layer has dense_down, found nothing"),
        ("dense_down", "layers[0].dense_down: expected its K and N, as the layer has dense_gate_up, found nothing"),
        ("ple_gate", "layers[0].ple_gate: expected its K and N, as the layer has ple_proj, found nothing"),
        ("ple_proj", "layers[0].ple_proj: expected its K and N, as the layer has ple_gate, found nothing"),
    ],
)
def test_half_of_a_pair_is_refused(gone, found):
    data = mla_data()
    data["layers"][0] |= {"ple_gate": {"K": 256, "N": 128}, "ple_proj": {"K": 128, "N": 256}}
    del data["layers"][0][gone]
    assert refused(data) == f"plan.json: {found}"


def test_a_down_without_gate_up_is_refused():
    data = plan_data()
    del data["layers"][1]["gate_up"]
    assert refused(data) == "plan.json: layers[1].gate_up: expected its K and N, as the layer has down, found nothing"


def test_published_columns_come_before_the_most_legal_ones():
    hidden = {"model__hidden": 2560, "model__layers": 1}
    layer = {"index": 0, "role": "full", "qkv": {"K": 2560, "N": 3072}, "o": {"K": 4096, "N": 2560}}
    columns = {item.name.role: item.columns for item in asked(plan_data(**hidden, layers=[layer]))}
    assert columns == {"QKV": 8, "O": 4}  # O 4096x2560 is published with 4, though 5 divide N/128 = 20


def test_columns_can_be_given():
    plan = parse_plan(plan_data())
    wanted = plan_requirements(plan, "m", {("QKV", 256, 1024): 4})
    assert {item.columns for item in wanted.requirements if item.name.N == 1024} == {4}
    with pytest.raises(Refused, match="columns: expected a divisor of N/128 = 8"):
        plan_requirements(plan, "m", {("QKV", 256, 1024): 3})


@pytest.mark.parametrize(
    ("key", "K", "N", "said"), [("qkv", 256, 4736, "layers[1].qkv.N"), ("o", 100, 256, "layers[1].o.K")]
)
def test_geometry_no_design_serves_is_refused_by_field(key, K, N, said):
    data = plan_data()
    data["layers"][1][key] = {"K": K, "N": N}
    assert refused(data).startswith(f"plan.json: {said}: expected a ")


def test_a_derived_output_no_design_serves_says_what_it_comes_from():
    """A hidden size of 192 is 3 x 64 and no multiple of 128: fit for a K, and for no N."""
    layer = {"index": 0, "role": "gdn", "attn_gate": {"K": 192, "N": 512}}
    assert refused(plan_data(model__hidden=192, model__layers=1, layers=[layer])).startswith(
        "plan.json: layers[0].o (derived from attn_gate and model.hidden).N: expected a positive multiple of 128"
    )


def test_more_layers_than_the_engine_holds_are_refused():
    layer = plan_data()["layers"][0]
    many = [{**layer, "index": index} for index in range(65)]
    assert "model.layers: expected at most 64 (Q4NX_MAX_LAYERS), found 65" in refused(
        plan_data(layers=many, model__layers=65)
    )
    assert len(asked(plan_data(layers=many[:64], model__layers=64))) == 12


def test_more_designs_than_the_engine_holds_are_refused():
    layer = plan_data()["layers"][0]
    many = [{**layer, "index": index, "qkv": {"K": 256, "N": 256 * (index + 1)}} for index in range(8)]
    assert "expected at most 12 designs (Q4NX_MAX_DESIGNS), found 13 geometries" in refused(
        plan_data(layers=many, model__layers=8)
    )


def test_a_plan_that_names_no_projection_is_refused():
    bare = [{"index": 0, "role": "full"}]
    assert "expected at least one projection" in refused(plan_data(layers=bare, model__layers=1))


def test_a_sealed_elf_needs_columns_all_geometries_share():
    data = plan_data(**PB16I)
    data["layers"][0]["qkv"]["N"] = 640  # five columns only
    assert "decode.sealed_elf: expected geometries that share a legal column count" in refused(data)
    data["layers"][0]["qkv"]["N"] = 1024
    data["layers"][1]["qkv"]["N"] = 1024
    # N/128 is 8, 4, 2, 6, 2: two columns divide all
    assert [item.columns for item in asked(data) if item.sealed] == [2]

"""elfkiln.h reads plan.json as elfkiln does: the same plans are refused, the same names asked for, as often."""

from __future__ import annotations

import copy
import json
import random
import shutil

import pytest

from client_sets import mutant
from elfkiln.engine import contract
from elfkiln.errors import Refused
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.models.plan.load import parse_plan, require_target
from elfkiln.models.plan.names import plan_requirements
from elfkiln.targets.table import target_named
from plan_data import DROP, PB16I, SOUND, plan_data
from projects import CHECKOUT


def asked_by_python(data):
    """Return `name*launches` for each name a plan asks for, or its refusal. Roles are open: three are guesses."""
    try:
        plan = parse_plan(parse_strict_json(data, "plan.json"), strict=False)
        require_target(plan, target_named("sim").capabilities)
        return " ".join(f"{need.file_name}*{need.launches}" for need in plan_requirements(plan, "m").requirements)
    except Refused as error:
        return f"refused {error}"


def asked_by_client(probe, plans):
    return probe.frames("plan", [json.dumps(plan).encode() for plan in plans])


def test_the_names_of_a_small_plan_worked_out_by_hand(probe):
    (answer,) = asked_by_client(probe, [SOUND])
    prefill = [
        "full_i8_QKV_K256_N1024_b8",
        "full_i8_QKV_K256_N1280_b8",
        "full_i8_Z_K256_N512_b8",
        # Layer 0 leaves its attention output out: K = attn_gate.N, N = hidden; layer 1 writes it.
        "full_i8_O_K512_N256_b8",
        "full_i8_G_K256_N768_b8",
        "full_i8_U_K256_N768_b8",
        "full_i8_D_K768_N256_b8",
    ]
    launches = [1, 1, 1, 2, 2, 2, 2]
    expected = [
        f"{name}{end}*{count}" for end in (".elf", "_m16.elf") for name, count in zip(prefill, launches, strict=True)
    ]
    assert answer.split() == expected


def test_gate_up_fused_either_way_of_writing_its_width_and_a_sealed_elf(probe):
    once = plan_data(fusion__gate_up="fused", decode__enabled=False)
    twice = copy.deepcopy(once)
    for layer in twice["layers"]:
        layer["gate_up"]["N"] = 1536
    sealed = plan_data(**PB16I)
    answers = asked_by_client(probe, [once, twice, sealed])
    assert "full_i8_GU_K256_N1536_b8.elf*2" in answers[0].split()
    assert "_m16" not in answers[0]
    assert answers[1] == answers[0]
    assert answers[2].split()[-1] == "pb16i_sealed.elf*11"


def test_the_committed_plan_of_64_layers(probe):
    data = (CHECKOUT / "plans" / "bonsai2-27b-pb16i" / "plan.json").read_bytes()
    (answer,) = probe.frames("plan", [data])
    assert len(answer.split()) == 15
    # 48 gdn and 16 full layers: QKV and Z by kind, O, gate, up and down in every one.
    assert answer.split()[:3] == [
        "full_i8_QKV_K5120_N10240_pb16i.elf*48",
        "full_i8_QKV_K5120_N14336_pb16i.elf*16",
        "full_i8_Z_K5120_N6144_pb16i.elf*48",
    ]
    assert answer == asked_by_python(data)


def rich_plans():
    """Plans that have between them every field and every projection there is; one alone would ask for 17 designs."""
    mla = {"q_a": (256, 768), "q_b": (768, 512), "kv_a": (256, 640), "ssm_out": (512, 256)}
    dense = {"dense_gate_up": (256, 1024), "dense_down": (1024, 256)}
    embedded = {"ple_gate": (256, 256), "ple_proj": (256, 256)}
    experts = {"batched_expert_gu": {"enabled": True, "K": 256, "N": 1024}}
    plans = []
    for geometry in (mla, dense | {"ssm_out": (512, 256)}, embedded):
        plan = plan_data(kv={"key": "f16", "value": "f16", "hadamard": {"block": 64, "signs": "signs.bin"}})
        plan["layers"][1] |= {key: {"K": K, "N": N} for key, (K, N) in geometry.items()}
        plans.append(plan)
    plans[2]["moe"] = experts
    return plans


def test_every_projection_that_a_plan_may_name_is_known(probe):
    answers = asked_by_client(probe, rich_plans())
    assert answers == [asked_by_python(json.dumps(plan).encode()) for plan in rich_plans()]
    assert not any(answer.startswith("refused") for answer in answers)
    roles = {name.split("_")[2] for answer in answers for name in answer.split()}
    assert roles == {role for row in contract.PLAN_PROJECTIONS for role in row.split}


@pytest.mark.parametrize(("tag", "layout", "pb16i"), [(f.tag, f.layout, f.pb16i) for f in contract.FAMILIES])
def test_every_family(probe, tag, layout, pb16i):
    changes = {"container__layout": layout, "container__pb16i": pb16i, "kernels__tag": tag}
    sealed = {"decode__sealed_elf": "pb16i_sealed.elf"} if pb16i else {}
    plans = [plan_data(**changes, **sealed), plan_data(**changes | {"container__pb16i": not pb16i})]
    answers = asked_by_client(probe, plans)
    assert f"full_i8_D_K768_N256{tag}_m16.elf*2" in answers[0].split()
    assert answers[1].startswith("refused plan.json: ")
    for other in contract.FAMILIES:
        if other.layout != layout:
            (answer,) = asked_by_client(probe, [plan_data(**{**changes, "kernels__tag": other.tag})])
            assert answer.startswith("refused plan.json: kernels.tag: expected a tag of container.layout"), answer


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"format": "1bit-npu-plan/2"}, "format"),
        ({"format": DROP}, "format"),
        ({"model__hidden": 0}, "model.hidden"),
        ({"model__hidden": 256.0}, "model.hidden"),
        ({"model__hidden": True}, "model.hidden"),
        ({"model__hidden": 2**31}, "model.hidden"),
        ({"model__layers": 3}, "layers"),
        ({"model__layers": 65}, "model.layers"),
        ({"model__arch": 1}, "model.arch"),
        ({"container": DROP}, "container"),
        ({"container__layout": "b9"}, "container.layout"),
        ({"container__pb16i": 1}, "container.pb16i"),
        ({"container__tile_order": "engine-2"}, "container.tile_order"),
        ({"container__chunk_kind": None}, "container.chunk_kind"),
        ({"fusion__gate_up": "both"}, "fusion.gate_up"),
        ({"prefill__M": 64}, "prefill.M"),
        ({"prefill": None}, "prefill"),
        ({"decode__M": 8}, "decode.M"),
        ({"decode__enabled": 1}, "decode.enabled"),
        ({"decode__dirs": []}, "decode.dirs"),
        ({"decode__dirs": {}}, "decode.dirs"),
        ({"decode__dirs": [{"root": "home", "path": "a"}]}, "decode.dirs[0].root"),
        ({"decode__dirs": [{"root": "model", "path": "a"}, {"root": "model", "path": "../a"}]}, "decode.dirs[1].path"),
        ({"decode__dirs": [{"root": "model", "path": "/a"}]}, "decode.dirs[0].path"),
        ({"decode__dirs": [{"root": "model", "path": "a\\b"}]}, "decode.dirs[0].path"),
        ({"decode__dirs": [{"root": "model", "path": "a..b"}]}, "decode.dirs[0].path"),
        ({"decode__dirs": [{"root": "model", "path": "a\nb"}]}, "decode.dirs[0].path"),
        ({"decode__dirs": [{"root": "model", "path": ""}]}, "decode.dirs[0].path"),
        ({"decode__dirs": [{"root": "model", "path": "a/" * 33}]}, "decode.dirs[0].path"),
        ({"decode__dirs": [{"root": "model", "path": "a" * 256}]}, "decode.dirs[0].path"),
        ({"decode__sealed_elf": "x.elf"}, "decode.sealed_elf"),
        ({**PB16I, "decode__sealed_elf": ""}, "decode.sealed_elf"),
        ({**PB16I, "decode__sealed_elf": "a/x.elf"}, "decode.sealed_elf"),
        ({**PB16I, "decode__sealed_elf": "x" * 60 + ".elf"}, "decode.sealed_elf"),
        ({**PB16I, "decode__sealed_elf": "full_i8_D_K768_N256_pb16i.elf"}, "decode.sealed_elf"),
        ({"attention__mode": "none"}, "attention.mode"),
        ({"kv": {"key": "int8"}}, "kv.key"),
        ({"kv": {"value": "int8"}}, "kv.value"),
        ({"kv": {"value": 1}}, "kv.value"),
        ({"kv": {"hadamard": {"block": 3}}}, "kv.hadamard.block"),
        ({"kv": {"hadamard": {"block": 1}}}, "kv.hadamard.block"),
        ({"kv": {"hadamard": {"signs": "s.bin"}}}, "kv.hadamard.signs"),
        ({"kv": {"hadamard": {"block": 2, "signs": "../s"}}}, "kv.hadamard.signs"),
        ({"moe": []}, "moe"),
        ({"moe": {"batched_expert_gu": {"enabled": True, "K": 256}}}, "moe.batched_expert_gu"),
        ({"moe": {"batched_expert_gu": {"enabled": True, "K": 128, "N": 1024}}}, "moe.batched_expert_gu.K"),
        ({"generated_by": 7}, "generated_by"),
        ({"layers": {}}, "layers"),
    ],
)
def test_a_broken_plan_is_refused_by_field(probe, changes, field):
    data = json.dumps(plan_data(**changes)).encode()
    (answer,) = probe.frames("plan", [data])
    assert answer.startswith(f"refused plan.json: {field}: expected "), answer
    assert asked_by_python(data).startswith("refused ")


@pytest.mark.parametrize(
    ("key", "geometry"),
    [
        ("qkv", {"K": 128, "N": 1024}),
        ("qkv", {"K": 256}),
        ("qkv", {"N": 256}),
        ("qkv", {"K": 256, "N": 0}),
        ("qkv", {"K": 256, "N": 1024, "fused": False}),
        ("qkv", {"K": 256, "N": 1024, "fused": None}),
        ("qkv", {"K": 256, "N": 1000}),
        ("qkv", {"K": 256, "N": 4736}),  # 37 tiles: no column count divides them
        ("qkv", [256, 1024]),
        ("q_a", {"K": 256, "N": 768}),
        ("ple_proj", {"K": 256, "N": 256}),
        ("dense_down", {"K": 256, "N": 256}),
        ("o", {"K": 500, "N": 256}),
        ("o", {"K": 640, "N": 256}),  # layer 0 has attn_gate.N = 512
        ("down", {"K": 768, "N": 512}),
        ("gate_up", {"K": 256, "N": 1000}),
        ("gate_up", {"K": 256, "N": 768, "fused": True}),
        ("index", 1),
        ("index", False),
        ("index", 0.0),
        ("role", None),
    ],
)
def test_a_broken_layer_is_refused(probe, key, geometry):
    plan = plan_data()
    plan["layers"][0][key] = geometry
    data = json.dumps(plan).encode()
    (answer,) = probe.frames("plan", [data])
    assert answer.startswith("refused plan.json: layers"), answer
    assert asked_by_python(data).startswith("refused ")


def test_thirteen_designs_are_one_too_many(probe):
    plan = plan_data(model__layers=8, layers=[])
    for index in range(8):
        width = 256 * (index // 2 + 2)
        layer = {"index": index, "role": "full", "gate_up": {"K": 256, "N": width}, "down": {"K": width, "N": 256}}
        plan["layers"].append(layer)
    (twelve,) = asked_by_client(probe, [plan])
    assert len(twelve.split()) == 24
    plan["layers"][0] |= {"o": {"K": 512, "N": 256}}
    (answer,) = asked_by_client(probe, [plan])
    assert answer == "refused plan.json: layers: expected at most 12 designs (Q4NX_MAX_DESIGNS), found nothing"


VALUES = [
    *(0, 1, -1, 16, 64, 128, 256, 512, 640, 768, 1024, 1536, 2**31 - 1, 2**31, 10**30, 1.0, True, False, None, "", "x"),
    *("f16", "int8", "rm", "b8", "pb16i", "t2s", "_b8", "_pb16i", "_t2s", "_t2s2", "fused", "split", "causal"),
    *("model", "kernels", ".", "..", "a/../b", "a..b", "/x", "a\\b", "a//b/", "d/" * 32, "d/" * 33, "\u00e9" * 128),
    *("pb16i_sealed.elf", "full_i8_D_K64_N128_b8.elf", "full_i8_X_K64_N128.elf", "full_i8_QKV2_K64_N128_m16.elf"),
    *(".elf", "x" * 59 + ".elf", "x" * 60 + ".elf", "a b.elf", "\x7f", "gdn"),
    *([], {}, [1], {"K": 256, "N": 256}, {"K": 256}, {"root": "model", "path": "a"}),
]
KEYS = ("K", "N", "fused", "index", "role", "o", "ssm_out", "qkv", "q_b", "gate_up", "down", "attn_gate", "M", "odd")


def test_verdict_names_and_launches_are_elfkiln_s_on_three_thousand_mutants(probe):
    rng = random.Random(11)
    t2s = {"container__layout": "t2s", "container__pb16i": True, "kernels__tag": "_t2s2"}
    seeds = [SOUND, plan_data(**PB16I), *rich_plans(), plan_data(fusion__gate_up="fused"), plan_data(**t2s)]
    plans = [json.dumps(mutant(rng, rng.choice(seeds), VALUES, KEYS)).encode() for _ in range(3000)]
    expected = [asked_by_python(plan) for plan in plans]
    refused = [answer.startswith("refused ") for answer in expected]
    assert 300 < sum(refused) < 2700
    for plan, python, client in zip(plans, expected, probe.frames("plan", plans), strict=True):
        assert client == python or (client.startswith("refused ") and python.startswith("refused ")), plan


@pytest.mark.parametrize(
    ("decision", "taken"),
    [
        (b'{"attention_mode": "causal"}', True),
        (b'{"other": 1}', True),
        (b'{"attention_mode": null}', True),
        (b'{"attention_mode": "noncausal_full_attention"}', False),
        (b'{"attention_mode": 1}', False),
        (b'["causal"]', False),
        (b"{", False),
    ],
)
def test_the_decision_file_must_agree(probe, client_folder, decision, taken):
    path = client_folder / "decision_config.json"
    path.write_bytes(decision)
    if taken:
        assert probe.names(dir=client_folder, target="sim")
    else:
        word, text = probe.refusal(dir=client_folder, target="sim")
        assert word == "bad plan"
        assert text.startswith(str(path))


def test_there_is_a_plan_or_the_caller_says_that_there_is_none(probe, client_folder):
    plan = client_folder / "plan.json"
    word, text = probe.refusal(dir=client_folder, target="sim", without_plan=1)
    assert (word, text.startswith(f"{plan}: expected none")) == ("bad plan", True)
    kept = plan.read_bytes()
    plan.unlink()
    assert probe.refusal(dir=client_folder, target="sim") == ("bad plan", f"{plan}: missing")
    listed = json.loads((client_folder / "kernels.lock.json").read_bytes())["artifacts"]
    names = probe.names(dir=client_folder, target="sim", without_plan=1)
    assert names == sorted(path.rpartition("/")[2] for path in listed)
    plan.mkdir()
    for more in ({}, {"without_plan": 1}):
        assert probe.refusal(dir=client_folder, target="sim", **more)[0] == "bad plan"
    shutil.rmtree(plan)
    plan.symlink_to("nowhere")
    for more in ({}, {"without_plan": 1}):
        assert "leads nowhere" in probe.refusal(dir=client_folder, target="sim", **more)[1]
    plan.unlink()
    (client_folder / "elsewhere").write_bytes(kept)
    plan.symlink_to("elsewhere")
    assert len(probe.names(dir=client_folder, target="sim")) == len(names)

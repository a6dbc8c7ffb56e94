"""Two plans compared: names gained, lost and changed, plan fields, and the verb's exit codes."""

import json
import shutil

import pytest

from elfkiln.cli import main
from elfkiln.models.plan.compare import compare_headers, compare_sets
from elfkiln.models.plan.load import parse_plan
from elfkiln.models.plan.names import plan_requirements
from plan_data import PB16I, plan_data, write_plan_file
from projects import CHECKOUT, TINY_ROLES


def sets(old, new):
    return compare_sets(*(plan_requirements(parse_plan(data), "m") for data in (old, new)))


def test_equal_plans_have_no_difference():
    assert sets(plan_data(), plan_data(generated_by="someone else")).empty
    assert compare_headers(parse_plan(plan_data()), parse_plan(plan_data(generated_by="x"))) == ()


def test_a_changed_geometry_is_a_name_lost_and_one_gained():
    new = plan_data()
    new["layers"][1]["qkv"]["N"] = 1536
    found = sets(plan_data(), new)
    assert [item.file_name for item in found.gained] == [
        "full_i8_QKV_K256_N1536_b8.elf",
        "full_i8_QKV_K256_N1536_b8_m16.elf",
    ]
    assert [item.file_name for item in found.lost] == [
        "full_i8_QKV_K256_N1280_b8.elf",
        "full_i8_QKV_K256_N1280_b8_m16.elf",
    ]
    assert found.changed == ()


def test_another_family_loses_every_name():
    found = sets(plan_data(), plan_data(container__layout="rm", kernels__tag=""))
    assert (len(found.gained), len(found.lost), found.changed) == (14, 14, ())


def test_changed_attributes_are_named():
    new = plan_data(decode__dirs=[{"root": "model", "path": "twins"}])
    new["layers"][1]["qkv"]["N"] = 1024  # both layers now run the first layer's design
    found = sets(plan_data(), new)
    changes = {change.name: change.attributes for change in found.changed}
    assert changes["full_i8_QKV_K256_N1024_b8.elf"] == (("layers", "none", "1"),)
    assert changes["full_i8_QKV_K256_N1024_b8_m16.elf"] == (
        ("directory", "kernels-m16", "twins"),
        ("layers", "none", "1"),
    )
    assert changes["full_i8_D_K768_N256_b8_m16.elf"] == (("directory", "kernels-m16", "twins"),)
    assert "full_i8_D_K768_N256_b8.elf" not in changes


def test_columns_rows_and_sealed_geometries_are_compared():
    plan = parse_plan(plan_data(**PB16I))
    old = plan_requirements(plan, "m")
    new = plan_requirements(plan, "m", {("QKV", 256, 1024): 2})
    changes = {change.name: change.attributes for change in compare_sets(old, new).changed}
    assert changes == {
        "full_i8_QKV_K256_N1024_pb16i.elf": (("columns", "8", "2"), ("rows", "4", "2")),
        "full_i8_QKV_K256_N1024_pb16i_m16.elf": (("columns", "8", "2"), ("rows", "4", "2")),
    }
    other = plan_data(**PB16I)
    other["layers"][0]["attn_gate"]["N"] = 1024
    sealed = {
        change.name: {name: (a, b) for name, a, b in change.attributes}
        for change in sets(plan_data(**PB16I), other).changed
    }
    assert sealed["pb16i_sealed.elf"]["sealed"] == (
        "256x512 256x768 256x1024 256x1280 512x256 768x256",
        "256x768 256x1024 256x1280 512x256 768x256 1024x256",
    )


def test_plan_fields_are_compared_with_their_defaults():
    old = parse_plan(plan_data())
    same = parse_plan(plan_data(kv={"key": "f16", "hadamard": {"block": 0}}, container__tile_order="engine-1"))
    assert compare_headers(old, same) == ()
    new = parse_plan(plan_data(kv={"value": "int8", "hadamard": {"block": 256}}, fusion__gate_up="fused"))
    assert [str(entry) for entry in compare_headers(old, new)] == [
        'fusion.gate_up: "split" -> "fused"',
        'kv.value: "f16" -> "int8"',
        "kv.hadamard.block: 0 -> 256",
    ]


@pytest.fixture
def checkout(tmp_path):
    """A project folder with a model by role table and one by plan, and a plan outside of it."""
    shutil.copy(CHECKOUT / "toolchain.lock", tmp_path / "toolchain.lock")
    (tmp_path / "plans" / "tiny").mkdir(parents=True)
    (tmp_path / "plans" / "tiny" / "roles.yaml").write_text(TINY_ROLES)
    write_plan_file(tmp_path / "plans" / "planned", plan_data())
    new = plan_data(attention__mode="noncausal_full_attention")
    new["layers"][1]["qkv"]["N"] = 1536
    write_plan_file(tmp_path / "elsewhere", new)
    return tmp_path


def run(capsys, *words):
    code = main(["diff", *(str(word) for word in words)])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_verb_takes_files_folders_and_models(checkout, capsys):
    root = f"root={checkout}"
    planned = checkout / "plans" / "planned"
    for word in ("planned", planned, planned / "plan.json"):
        code, out, err = run(capsys, word, "planned", root)
        assert (code, err) == (0, "")
        assert out == f"{word} and planned ask for the same names in the same way\n"
    code, out, _ = run(capsys, "planned", checkout / "elsewhere", root)
    assert code == 1
    assert out.splitlines() == [
        'attention.mode: "causal" -> "noncausal_full_attention"',
        "gained  kernels/full_i8_QKV_K256_N1536_b8.elf",
        "gained  kernels-m16/full_i8_QKV_K256_N1536_b8_m16.elf",
        "lost  kernels/full_i8_QKV_K256_N1280_b8.elf",
        "lost  kernels-m16/full_i8_QKV_K256_N1280_b8_m16.elf",
        "2 gained, 2 lost, 0 changed",
    ]


def test_the_verb_tells_two_files_of_one_name_apart(checkout, capsys):
    bad = write_plan_file(checkout / "bad", plan_data(fusion__gate_up="both"))
    for words in ((checkout / "elsewhere", bad), (bad.parent, checkout / "elsewhere")):
        code, _, err = run(capsys, *words, f"root={checkout}")
        assert (code, err[: err.index(" expected")]) == (2, f"elfkiln: {bad}: fusion.gate_up:")


def test_the_verb_shows_what_it_ignored(checkout, capsys):
    odd = write_plan_file(checkout / "odd", plan_data(kvv={"key": "int8"}, decode__sealed_elff="x"))
    code, out, err = run(capsys, "planned", odd, f"root={checkout}")
    assert (code, "same names in the same way" in out) == (0, True)
    notes = [f"{odd}: {field}: not a field of 1bit-npu-plan/1, ignored" for field in ("kvv", "decode.sealed_elff")]
    assert err.splitlines() == [f"note: {note}" for note in notes]
    assert json.loads(run(capsys, odd, odd, f"root={checkout}", "--json")[1])["notes"] == notes


def test_the_verb_takes_other_roles_when_told(checkout, capsys):
    data = plan_data()
    data["layers"][1]["role"] = "attn"
    odd = write_plan_file(checkout / "plans" / "odd", data)
    for word in ("odd", odd):
        code, _, err = run(capsys, "planned", word, f"root={checkout}")
        assert code == 2
        assert f"{odd}: layers[1].role: expected one of gdn, full, sliding, mla, found 'attn'; " in err
        assert "roles=any" in err
        code, _, err = run(capsys, "planned", word, f"root={checkout}", "roles=any")
        assert (code, err) == (0, f"note: {odd}: layers[1].role: 'attn' is not one of gdn, full, sliding, mla\n")
    code, _, err = run(capsys, "planned", "odd", f"root={checkout}", "roles=some")
    assert (code, err) == (2, "elfkiln: roles: expected known or any, found some\n")


def test_changed_directories_are_named_one_by_one():
    old, new = plan_data(), plan_data(decode__dirs=[{"root": "model", "path": "m16"}])
    assert [str(entry) for entry in compare_headers(parse_plan(old), parse_plan(new))] == [
        'decode.dirs[0].path: "kernels-m16" -> "m16"',
        'decode.dirs[1]: {"root": "kernels", "path": "."} -> nothing',
    ]


def test_the_verb_compares_a_plan_with_a_role_table(checkout, capsys):
    code, out, _ = run(capsys, "tiny", "planned", f"root={checkout}", "--json")
    found = json.loads(out)
    assert (code, found["same"], found["fields"]) == (1, False, [])
    assert {"name": "full_i8_D_K768_N256_b8.elf", "directory": "kernels", "columns": 2} in found["gained"]
    assert "full_i8_D_K512_N256_b8.elf" in [entry["name"] for entry in found["lost"]]


def test_the_verb_refuses_what_is_no_plan(checkout, capsys):
    for words, said in (
        (("planned",), "takes PLAN1|GEN1 PLAN2|GEN2"),
        (("planned", "nobody"), "known models: planned, tiny"),
        (("planned", "no/where"), "missing"),
        (("planned", "none.json"), "missing"),
    ):
        code, _, err = run(capsys, *words, f"root={checkout}")
        assert code == 2
        assert said in err
        assert err.count("\n") == 1

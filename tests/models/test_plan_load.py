"""plan.json: every refusal rule of the engine, each with the field, what was expected and what was found."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elfkiln.engine import contract
from elfkiln.engine.contract import Capabilities
from elfkiln.errors import Refused
from elfkiln.models.plan.load import load_plan, parse_plan, require_target
from elfkiln.models.plan.schema import Plan
from plan_data import DROP, PB16I, plan_data, write_plan_file


def refused(data):
    with pytest.raises(Refused) as caught:
        parse_plan(data)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("plan.json: ")
    assert "expected" in message
    assert "found" in message
    return message.removeprefix("plan.json: ")


def test_a_sound_plan_is_read_field_by_field():
    plan = parse_plan(plan_data())
    assert (plan.hidden, plan.arch, plan.layout, plan.chunk_kind, plan.pb16i) == (256, "qwen3_5", "b8", "q4_1", False)
    assert (plan.tag, plan.gate_up, plan.prefill_M, plan.attention_mode) == ("_b8", "split", 128, "causal")
    assert (plan.decode.enabled, plan.decode.M, plan.decode.sealed_elf) == (True, 16, "")
    assert [(entry.root, entry.path) for entry in plan.decode.dirs] == [("model", "kernels-m16"), ("kernels", ".")]
    assert [(layer.index, layer.role) for layer in plan.layers] == [(0, "gdn"), (1, "full")]
    qkv = plan.layers[0].projection("qkv")
    assert (qkv.K, qkv.N, qkv.fused) == (256, 1024, True)
    assert plan.layers[0].projection("o") is None
    assert plan.notes == ()


def test_a_plan_without_kv_means_f16_without_rotation():
    kv = parse_plan(plan_data()).kv
    assert (kv.key, kv.value, kv.hadamard_block, kv.hadamard_signs) == ("f16", "f16", 0, "")


@pytest.mark.parametrize("value", ["1bit-npu-plan/2", "1bit-npu-plan/1 ", "", None, 1, DROP])
def test_format_is_exactly_the_one(value):
    assert refused(plan_data(format=value)).startswith("format: expected 1bit-npu-plan/1, found ")


@pytest.mark.parametrize("field", ["hidden", "layers"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "256", None, [256], DROP])
def test_model_dimensions_are_positive_whole_numbers(field, value):
    assert f"model.{field}: expected a positive whole number" in refused(plan_data(**{f"model__{field}": value}))


@pytest.mark.parametrize("value", [2**31, 2**64, 10**4000])
def test_a_number_the_engine_cannot_hold_is_refused_with_its_limit(value):
    message = refused(plan_data(model__hidden=value))
    expected = "a positive whole number below 2^31, as the engine reads it into an int"
    assert message.startswith(f"model.hidden: expected {expected}, found ")
    assert len(message) < 200


@pytest.mark.parametrize("layout", ["nt", "", "RM", 8, None, DROP])
def test_layout_is_one_of_four(layout):
    assert "container.layout: expected one of rm, b8, pb16i, t2s" in refused(plan_data(container__layout=layout))


@pytest.mark.parametrize("order", ["engine-2", "", 1, None])
def test_tile_order_is_engine_1(order):
    assert "container.tile_order: expected engine-1" in refused(plan_data(container__tile_order=order))


def test_an_absent_tile_order_is_engine_1():
    assert parse_plan(plan_data(container__tile_order=DROP)).tile_order == "engine-1"


@pytest.mark.parametrize("value", ["both", "", True, DROP])
def test_gate_up_is_fused_or_split(value):
    assert "fusion.gate_up: expected one of fused, split" in refused(plan_data(fusion__gate_up=value))


@pytest.mark.parametrize("value", ["noncausal", "", None, DROP])
def test_attention_mode_is_needed_and_known(value):
    message = refused(plan_data(attention__mode=value))
    assert "attention.mode: expected one of causal, noncausal_full_attention" in message


@pytest.mark.parametrize("section", ["model", "container", "fusion", "decode", "kernels", "attention"])
def test_a_missing_section_is_refused_by_name(section):
    assert refused(plan_data(**{section: DROP})).startswith(f"{section}: expected an object, found nothing")


@pytest.mark.parametrize("tag", ["_b9", "b8", "_B8", None, 8, DROP])
def test_tag_is_one_of_five(tag):
    expected = "kernels.tag: expected one of '', _b8, _pb16i, _t2s, _t2s2"
    assert expected in refused(plan_data(kernels__tag=tag))


# Section 1 of the contract: which tag goes with which layout and pb16i flag.
MATRIX = {
    ("", "rm", False),
    ("_b8", "b8", False),
    ("_pb16i", "pb16i", True),
    ("_t2s", "t2s", True),
    ("_t2s2", "t2s", True),
}


@pytest.mark.parametrize("pb16i", [False, True])
@pytest.mark.parametrize("layout", ["rm", "b8", "pb16i", "t2s"])
@pytest.mark.parametrize("tag", ["", "_b8", "_pb16i", "_t2s", "_t2s2"])
def test_tag_layout_and_pb16i_fit_together(tag, layout, pb16i):
    data = plan_data(
        kernels__tag=tag,
        container__layout=layout,
        container__pb16i=pb16i,
        decode__sealed_elf="pb16i_sealed.elf" if tag == "_pb16i" else "",
    )
    if (tag, layout, pb16i) in MATRIX:
        assert parse_plan(data).tag == tag
        return
    message = refused(data)
    if any((tag, layout, flag) in MATRIX for flag in (False, True)):
        assert message.startswith("container.pb16i: expected ")
    else:
        assert message.startswith(f"kernels.tag: expected a tag of container.layout {layout}")


@pytest.mark.parametrize("dirs", [[], None, {}, "kernels", DROP])
def test_decode_dirs_is_not_empty(dirs):
    assert "decode.dirs: expected a list of directories that is not empty" in refused(plan_data(decode__dirs=dirs))


@pytest.mark.parametrize("root", ["home", "", "MODEL", None, 1])
def test_a_decode_root_is_model_or_kernels(root):
    message = refused(plan_data(decode__dirs=[{"root": "model", "path": "."}, {"root": root, "path": "."}]))
    assert "decode.dirs[1].root: expected one of model, kernels" in message


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", "an empty path"),
        ("/kernels", "an absolute path"),
        ("..", "'..'"),
        ("a/../b", "'..'"),
        ("a/..", "'..'"),
        ("...", "'..'"),
        ("a..b", "'..'"),
        ("/".join("a" * 33), "33 steps, where 32 are taken"),
        ("a/" * 1500, "1500 steps, where 32 are taken"),
        ("a/" + 128 * "é", "a step of over 255 bytes"),
        ("kernels\\m16", "a backslash"),
        ("a\nb", "does not print"),
        ("a\0b", "does not print"),
        (None, "nothing"),
        (1, "1"),
    ],
)
def test_a_decode_path_stays_below_its_root(path, found):
    message = refused(plan_data(decode__dirs=[{"root": "model", "path": path}]))
    assert message.startswith("decode.dirs[0].path: expected ")
    assert found in message


@pytest.mark.parametrize(
    ("path", "read"),
    [
        (".", "."),
        ("./a//b/", "a/b"),
        ("./" * 500, "."),
        ("/".join("a" * 32), "/".join("a" * 32)),
        ("é" * 127, "é" * 127),
    ],
)
def test_decode_paths_are_folded(path, read):
    assert parse_plan(plan_data(decode__dirs=[{"root": "model", "path": path}])).decode.dirs[0].path == read


@pytest.mark.parametrize("enabled", [None, 1, "true", DROP])
def test_decode_enabled_is_a_boolean(enabled):
    assert "decode.enabled: expected true or false" in refused(plan_data(decode__enabled=enabled))


@pytest.mark.parametrize(("field", "only"), [("prefill__M", 128), ("decode__M", 16)])
def test_row_counts_are_those_of_artifact_names(field, only):
    name = field.replace("__", ".")
    assert f"{name}: expected {only}" in refused(plan_data(**{field: 64}))
    assert f"{name}: expected a positive whole number" in refused(plan_data(**{field: "128"}))
    assert isinstance(parse_plan(plan_data(**{field: DROP})), Plan)


@pytest.mark.parametrize("kind", ["key", "value"])
@pytest.mark.parametrize("wrong", ["fp8", "", "INT8", 8, None, ["f16"], True])
def test_kv_types_are_f16_or_int8_each_alone(kind, wrong):
    assert f"kv.{kind}: expected one of f16, int8" in refused(plan_data(kv={kind: wrong}))


@pytest.mark.parametrize("block", [0, 2, 256, 65536])
def test_hadamard_blocks_are_powers_of_two(block):
    assert parse_plan(plan_data(kv__hadamard={"block": block})).kv.hadamard_block == block


@pytest.mark.parametrize("block", [1, 3, 6, 255, 131072, -2, 2.0, "256", None, True])
def test_other_hadamard_blocks_are_refused(block):
    message = refused(plan_data(kv__hadamard={"block": block}))
    assert "kv.hadamard.block: expected 0 or a power of two in 2..65536" in message


@pytest.mark.parametrize("signs", ["a/b", "/signs.bin", "..", ".", "a\\b", "a\nb", "a\0b"])
def test_hadamard_signs_are_a_bare_name(signs):
    message = refused(plan_data(kv__hadamard={"block": 256, "signs": signs}))
    assert "kv.hadamard.signs: expected a bare file name" in message


def test_hadamard_signs_need_a_block():
    message = refused(plan_data(kv__hadamard={"block": 0, "signs": "signs.bin"}))
    assert "kv.hadamard.signs: expected nothing, as kv.hadamard.block is 0" in message
    assert parse_plan(plan_data(kv__hadamard={"block": 256, "signs": "signs.bin"})).kv.hadamard_signs == "signs.bin"


@pytest.mark.parametrize("kv", [{"key": "int8"}, {"value": "int8"}, {"key": "int8", "value": "int8"}])
@pytest.mark.parametrize("target", ["npu2", "sim"])
def test_an_int8_cache_loads_but_no_target_takes_it(kv, target):
    plan = parse_plan(plan_data(kv=kv))
    with pytest.raises(Refused) as caught:
        require_target(plan, Capabilities(target, int8_kv=False, source=""))
    message = str(caught.value)
    for told in (f"kv.key={plan.kv.key}", f"kv.value={plan.kv.value}", "int8_kv=false", target):
        assert told in message


def test_an_f16_cache_goes_to_every_target_and_an_int8_one_to_those_that_have_it():
    require_target(parse_plan(plan_data()), Capabilities("npu2", int8_kv=False, source=""))
    require_target(parse_plan(plan_data(kv={"key": "int8"})), Capabilities("gpu", int8_kv=True, source=""))


@pytest.mark.parametrize("letter", ["K", "N"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "a positive whole number, as enabled is true, found 0"),
        (DROP, "a positive whole number, as enabled is true, found 0"),
        (-1, "a whole number, found -1"),
        (None, "a whole number, found nothing"),
        ("8192", "a whole number, found '8192'"),
        (1.5, "a whole number, found 1.5"),
        (True, "a whole number, found true"),
        (2**31, "a whole number below 2^31, as the engine reads it into an int, found 2147483648"),
    ],
)
def test_batched_experts_need_positive_k_and_n(letter, value, expected):
    pair = {"enabled": True, "K": 256, "N": 8192}
    if value is DROP:
        del pair[letter]
    else:
        pair[letter] = value
    message = refused(plan_data(moe__batched_expert_gu=pair))
    assert message == f"moe.batched_expert_gu.{letter}: expected {expected}"


def test_batched_experts_may_be_off_or_absent():
    assert not parse_plan(plan_data(moe={})).batched_experts.enabled
    assert not parse_plan(plan_data(moe__batched_expert_gu={"enabled": False})).batched_experts.enabled
    assert "batched_expert_gu.enabled" in refused(plan_data(moe__batched_expert_gu={"K": 256, "N": 8192}))


@pytest.mark.parametrize("layers", [None, {}, "two", DROP])
def test_layers_are_a_list(layers):
    assert "layers: expected a list of layers" in refused(plan_data(layers=layers))


def test_layers_are_as_many_as_the_model_says():
    two = plan_data()["layers"]
    assert "layers: expected 2 layers, as model.layers says, found 1" in refused(plan_data(layers=two[:1]))
    assert "layers: expected 2 layers, as model.layers says, found 0" in refused(plan_data(layers=[]))
    assert "layers: expected 3 layers, as model.layers says, found 2" in refused(plan_data(model__layers=3))


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (0, "1 (contiguous, in order), found 0"),
        (2, "1 (contiguous, in order), found 2"),
        (-1, "a whole number, found -1"),
        ("1", "a whole number, found '1'"),
        (1.0, "a whole number, found 1.0"),
        (True, "a whole number, found true"),
        (None, "a whole number, found nothing"),
        (DROP, "a whole number, found nothing"),
    ],
)
def test_layers_are_in_order(index, said):
    data = plan_data()
    if index is DROP:
        del data["layers"][1]["index"]
    else:
        data["layers"][1]["index"] = index
    assert refused(data) == f"layers[1].index: expected {said}"


def test_swapped_layers_are_refused():
    data = plan_data()
    data["layers"].reverse()
    assert "layers[0].index: expected 0 (contiguous, in order), found 1" in refused(data)


@pytest.mark.parametrize("role", ["attention", "", "GDN", None, 1])
def test_an_unknown_role_is_refused(role):
    data = plan_data()
    data["layers"][1]["role"] = role
    message = refused(data)
    assert "layers[1].role: expected" in message


def test_an_unknown_role_is_let_through_with_a_note_when_not_strict():
    data = plan_data()
    data["layers"][1]["role"] = "attn"
    plan = parse_plan(data, strict=False)
    assert plan.layers[1].role == "attn"
    assert plan.notes == ("layers[1].role: 'attn' is not one of gdn, full, sliding, mla",)
    data["layers"][0]["role"] = "attn"
    plan = parse_plan(data, strict=False)
    assert plan.notes == ("layers[0].role: 'attn' is not one of gdn, full, sliding, mla; 1 more layer has it",)


def test_many_unknown_roles_are_counted():
    layer = plan_data()["layers"][0]
    many = [{**layer, "index": index, "role": f"r{index // 3}"} for index in range(66)]
    plan = parse_plan(plan_data(layers=many, model__layers=66), strict=False)
    assert plan.notes[0] == "layers[0].role: 'r0' is not one of gdn, full, sliding, mla; 2 more layers have it"
    assert plan.notes[19:] == (
        "layers[57].role: 'r19' is not one of gdn, full, sliding, mla; 2 more layers have it",
        "layers[].role: 2 more roles that are not known",
    )


@pytest.mark.parametrize(("gone", "found"), [("K", "only N"), ("N", "only K")])
@pytest.mark.parametrize("key", ["qkv", "attn_gate", "gate_up", "down"])
def test_a_projection_names_both_k_and_n(key, gone, found):
    data = plan_data()
    del data["layers"][0][key][gone]
    assert refused(data) == f"layers[0].{key}: expected both K and N, found {found}"


@pytest.mark.parametrize("value", [0, -128, "256", None, 256.0, True, []])
def test_a_projection_has_positive_whole_numbers(value):
    data = plan_data()
    data["layers"][0]["down"]["K"] = value
    assert "layers[0].down.K: expected a positive whole number" in refused(data)


@pytest.mark.parametrize("value", [None, 7, "x", []])
def test_a_layer_and_a_projection_are_objects(value):
    data = plan_data()
    data["layers"][0]["down"] = value
    assert "layers[0].down: expected an object" in refused(data)
    data["layers"][0] = value
    assert "layers[0]: expected an object" in refused(data)


@pytest.mark.parametrize("value", ["", DROP])
def test_pb16i_decode_needs_a_sealed_elf(value):
    message = refused(plan_data(**PB16I | {"decode__sealed_elf": value}))
    assert "decode.sealed_elf: expected a file name, as decode of tag _pb16i needs a sealed ELF" in message


def test_pb16i_without_decode_needs_none():
    plan = parse_plan(plan_data(**PB16I | {"decode__sealed_elf": "", "decode__enabled": False}))
    assert plan.decode.sealed_elf == ""


def test_a_container_that_is_not_pb16i_has_no_sealed_elf():
    message = refused(plan_data(decode__sealed_elf="pb16i_sealed.elf"))
    assert "decode.sealed_elf: expected nothing, as the container is not pb16i" in message


def test_a_t2s_container_may_have_one():
    t2s = {"container__layout": "t2s", "container__pb16i": True, "kernels__tag": "_t2s"}
    assert parse_plan(plan_data(**t2s)).decode.sealed_elf == ""
    assert parse_plan(plan_data(**t2s, decode__sealed_elf="sealed.elf")).decode.sealed_elf == "sealed.elf"


@pytest.mark.parametrize("name", ["../x.elf", "a/b.elf", "x.bin", ".elf", "x" * 64 + ".elf", 5, None])
def test_a_sealed_elf_is_a_bare_elf_name(name):
    assert "decode.sealed_elf: expected" in refused(plan_data(**PB16I | {"decode__sealed_elf": name}))


def test_fields_the_schema_does_not_have_are_noted():
    data = plan_data(extra=1, model__vocab=9)
    for layer in data["layers"]:
        layer["rope"] = {"theta": 1}
    assert parse_plan(data).notes == (
        "extra: not a field of 1bit-npu-plan/1, ignored",
        "model.vocab: not a field of 1bit-npu-plan/1, ignored",
        "layers[].rope: not a field of 1bit-npu-plan/1, ignored",
    )


def test_a_chunk_kind_outside_the_guessed_table_is_noted_not_refused():
    plan = parse_plan(plan_data(container__chunk_kind="q3"))
    assert plan.notes == ("container.chunk_kind: 'q3' is not one of q4_1, q4k, q8, pb16i, t2",)
    assert "container.chunk_kind: expected a string" in refused(plan_data(container__chunk_kind=4))


def test_values_no_public_source_states_are_marked():
    assert [row.name for row in contract.LAYER_ROLES if not row.guess] == ["gdn"]
    assert len(contract.LAYER_ROLES) == 4
    assert all(row.guess for row in contract.CHUNK_KINDS)


@pytest.mark.parametrize("value", [None, 1, "x", [], [{}]])
def test_a_plan_is_an_object(value):
    assert "expected an object" in refused(value)


def write_bytes(folder, data):
    (folder / "plan.json").write_bytes(data)
    return folder / "plan.json"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "expected JSON"),
        (lambda text: text[:-1] + ', "format": "1bit-npu-plan/1"}', "found 'format' twice"),
        (lambda text: text.replace('"hidden": 256', '"hidden": NaN'), "found NaN"),
        (lambda text: text.replace('"hidden": 256', '"hidden": Infinity'), "found Infinity"),
        (lambda text: text.replace('"hidden": 256', '"hidden": 1e999'), "expected finite numbers, found 1e999"),
        (lambda text: text.replace("by hand", "x" * 10_000_000), "at most 1048576 bytes"),
        (lambda text: text.replace('"by hand"', "[" * 100_000), "nesting"),
        (lambda text: text.replace('"by hand"', "[" * 500 + "]" * 500), "at most 64 levels"),
        (
            lambda text: text.replace('"by hand"', '"\\ud800"').replace('"causal"', '"\\ud800"'),
            "halves of surrogate pairs",
        ),
        (lambda _: "", "expected JSON"),
    ],
)
def test_broken_files_are_refused(tmp_path, change, said):
    file = write_bytes(tmp_path, change(json.dumps(plan_data())).encode())
    with pytest.raises(Refused) as caught:
        load_plan(file)
    message = str(caught.value)
    assert said in message
    assert message.encode("ascii", "strict")
    assert len(message) < 600


def test_a_refusal_names_the_file_as_it_was_given(tmp_path):
    file = write_plan_file(tmp_path / "one", plan_data(fusion__gate_up="both"))
    for word in (file, file.parent):
        with pytest.raises(Refused) as caught:
            load_plan(word)
        assert str(caught.value).startswith(f"{file}: fusion.gate_up: expected ")
    file.write_text("{")
    with pytest.raises(Refused) as caught:
        load_plan(file)
    assert str(caught.value).startswith(f"{file}: expected JSON")
    plan = load_plan(write_plan_file(tmp_path / "two", plan_data(kv={"key": "int8"})))
    with pytest.raises(Refused) as caught:
        require_target(plan, Capabilities("npu2", int8_kv=False, source=""))
    assert str(caught.value).startswith(f"{tmp_path}/two/plan.json: kv.key=int8")


def test_a_plan_is_loaded_from_its_folder_too(tmp_path):
    file = write_plan_file(tmp_path, plan_data())
    assert load_plan(tmp_path) == load_plan(file)
    with pytest.raises(Refused, match="missing"):
        load_plan(tmp_path / "nowhere")
    with pytest.raises(Refused):
        load_plan(tmp_path / "a\0b")


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ('{"attention_mode": "noncausal_full_attention"}', "attention.mode: expected 'noncausal_full_attention', as"),
        ('{"attention_mode": 3}', "attention.mode: expected 3, as decision_config.json says"),
        ("[]", "decision_config.json: expected an object"),
        ("{", "decision_config.json: expected JSON"),
    ],
)
def test_the_decision_file_must_agree(tmp_path, decision, said):
    write_plan_file(tmp_path, plan_data())
    (tmp_path / "decision_config.json").write_text(decision)
    with pytest.raises(Refused) as caught:
        load_plan(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize("decision", ['{"attention_mode": "causal"}', "{}", '{"attention_mode": null}'])
def test_a_decision_file_that_agrees_or_says_nothing_passes(tmp_path, decision):
    write_plan_file(tmp_path, plan_data())
    (tmp_path / "decision_config.json").write_text(decision)
    assert load_plan(tmp_path).attention_mode == "causal"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["rm", "", "..", "\ud800"]),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)


@settings(deadline=None)
@given(ANYTHING)
def test_any_value_is_a_plan_or_a_refusal(value):
    with pytest.raises(Refused):
        parse_plan(value)


def _places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _places(value[index], (*path, index))


PLACES = list(_places(plan_data(**PB16I, kv={"key": "f16", "hadamard": {"block": 2, "signs": "s"}})))[1:]


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), ANYTHING)
def test_a_sound_plan_with_anything_anywhere_is_a_plan_or_a_refusal(place, value):
    data = plan_data(**PB16I, kv={"key": "f16", "hadamard": {"block": 2, "signs": "s"}})
    where = data
    for step in place[:-1]:
        where = where[step]
    where[place[-1]] = value
    try:
        plan = parse_plan(data)
    except Refused as error:
        assert "\n" not in str(error)
        str(error).encode("utf-8")
    else:
        assert isinstance(plan, Plan)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_sound_file_with_changed_bytes_is_a_plan_or_a_refusal(tmp_path_factory, data):
    text = bytearray(json.dumps(plan_data()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    file = write_bytes(tmp_path_factory.mktemp("fuzz"), bytes(text))
    try:
        load_plan(file)
    except Refused as error:
        assert "\n" not in str(error)

"""Role tables made from a config.json alone: the committed ones come out, and what the engine cannot run does not."""

import json
import random

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.io.strict_yaml import parse_strict_yaml
from elfkiln.models.architectures import ARCHITECTURES
from elfkiln.models.from_config import TableOptions, table_from_config, table_text
from elfkiln.models.role_table import parse_role_table, read_role_table
from projects import CHECKOUT


def dense(model_type, hidden, layers, heads, kv_heads, width, **own):
    """Return a config.json of plain attention and a gated MLP, with Hugging Face's keys."""
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
        **own,
    }


GDN = {
    "attn_output_gate": True,
    "full_attention_interval": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
}
GEMMA4_TYPES = (["sliding_attention"] * 4 + ["full_attention"]) * 7
# Published config.json files, as far as geometry hangs on them.
CONFIGS = {
    "qwen3-0.6b": dense("qwen3", 1024, 28, 16, 8, 3072, head_dim=128, sliding_window=None, use_sliding_window=False),
    "qwen3-4b": dense("qwen3", 2560, 36, 32, 8, 9728, head_dim=128),
    "qwen3-8b": dense("qwen3", 4096, 36, 32, 8, 12288),
    "qwen3-14b": dense("qwen3", 5120, 40, 40, 8, 17408, head_dim=128),
    "qwen3-vl-4b": {
        "model_type": "qwen3_vl",
        "text_config": dense("qwen3_vl_text", 2560, 36, 32, 8, 9728, head_dim=128),
        "vision_config": {"hidden_size": 1024},
    },
    "llama-3.1-8b": dense("llama", 4096, 32, 32, 8, 14336),
    "mistral-7b": dense("mistral", 4096, 32, 32, 8, 14336, sliding_window=None),
    "phi4-mini": dense("phi3", 3072, 32, 24, 8, 8192, sliding_window=262144),
    "nanbeige4.1-3b": dense("llama", 2560, 32, 32, 8, 8192, head_dim=80),
    "zr1-1.5b": dense(
        "qwen2", 1536, 28, 12, 2, 8960, sliding_window=4096, use_sliding_window=False, max_window_layers=21
    ),
    "gemma3-4b": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
    },
    "gemma4-e2b": dense(
        "gemma4_text",
        1536,
        35,
        8,
        1,
        6144,
        hidden_size_per_layer_input=256,
        use_double_wide_mlp=True,
        num_kv_shared_layers=20,
        layer_types=GEMMA4_TYPES,
        sliding_window=512,
        attention_k_eq_v=False,
        enable_moe_block=False,
    ),
    "qwen3.5-4b": dense("qwen3_5_text", 2560, 32, 16, 4, 9216, head_dim=256, linear_num_value_heads=32, **GDN),
    "bonsai2-27b": dense("qwen3_5", 5120, 64, 24, 4, 17408, head_dim=256, linear_num_value_heads=48, **GDN),
    "qwen3.6-35b-a3b": dense(
        "qwen3_5_moe_text",
        2048,
        40,
        16,
        2,
        None,
        head_dim=256,
        linear_num_value_heads=32,
        num_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        **GDN,
    ),
    "olmoe-1b": dense("olmoe", 2048, 16, 16, 16, 1024, num_experts=64, num_experts_per_tok=8),
    "glm-4.7-flash": dense(
        "glm4_moe_lite",
        2048,
        47,
        20,
        20,
        10240,
        q_lora_rank=768,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=192,
        v_head_dim=256,
        n_routed_experts=64,
        num_experts_per_tok=4,
        moe_intermediate_size=1536,
        n_shared_experts=1,
        first_k_dense_replace=1,
    ),
}


def derived(folder, config, options=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return table_from_config(folder / "config.json", options or TableOptions(model="m"))


def refused(folder, config):
    with pytest.raises(Refused) as caught:
        derived(folder, config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("model", CONFIGS)
def test_the_committed_tables_are_what_their_published_config_gives(tmp_path, model):
    """Roles, geometry, columns and the counts of layers; only the names of the kinds are the hand's."""
    committed = read_role_table(CHECKOUT / "plans" / model / "roles.yaml")
    table = derived(tmp_path, CONFIGS[model]).table

    def rows(table):
        return {
            (row.role, row.K, row.N): (row.columns, sum(table.layers[kind] for kind in row.kinds)) for row in table.rows
        }

    expected = {key: value for key, value in rows(committed).items() if value[1]}
    found = rows(table)
    if model == "gemma4-e2b":  # the table by hand counts every kind as one, since the split was not published
        expected = {key: (columns, found[key][1]) for key, (columns, _) in expected.items()}
    assert found == expected
    assert (table.hidden, table.intermediate) == (committed.hidden, committed.intermediate)
    assert sum(table.layers.values()) == sum(committed.layers.values())


def test_every_known_architecture_has_a_config_here():
    types = {config.get("text_config", config)["model_type"] for config in CONFIGS.values()} | {"qwen3_vl", "gemma3"}
    same = {"qwen3_5_moe": "qwen3_5_moe_text", "gemma4": "gemma4_text", "qwen3_5": "qwen3_5_text"}
    left = {entry.model_type for entry in ARCHITECTURES} - types - set(same)
    assert left == {"qwen3_moe", "deepseek2", "deepseek_v2", "deepseek_v3"}


def test_each_row_shows_its_derivation(tmp_path):
    """Bonsai-2-27B: 2*24*256 + 2*4*256 = 14336, 2*2048 + 6144 = 10240, 24*256 = 6144."""
    table = derived(tmp_path, CONFIGS["bonsai2-27b"]).table
    assert [(row.role, row.K, row.N, row.kinds, row.note) for row in table.rows] == [
        ("QKV", 5120, 14336, ("full",), "N = 2*24*256 with the output gate + 2*4*256; columns derived"),
        ("O", 6144, 5120, ("gdn", "full"), "K = 24*256; columns derived"),
        ("G", 5120, 17408, ("gdn", "full"), "N = intermediate_size; columns derived"),
        ("U", 5120, 17408, ("gdn", "full"), "N = intermediate_size; columns derived"),
        ("D", 17408, 5120, ("gdn", "full"), "K = intermediate_size; columns derived"),
        ("QKV", 5120, 10240, ("gdn",), "GDN: N = 2*2048 + 6144; columns derived"),
        ("Z", 5120, 6144, ("gdn",), "GDN gate: N = 6144; columns derived"),
    ]
    assert table.layers == {"gdn": 48, "full": 16}
    assert table.source == (
        "derived from config.json: model_type qwen3_5, hidden 5120, 64 layers, 24 heads and 4 KV heads of 256, "
        "MLP 17408, gate and up split as 2*17408 > 14336. Known by plan-layer page: qwen3_5"
    )


def test_each_derivation_is_arithmetic_that_comes_out(tmp_path):
    """What stands behind `N =` or `K =` is the number of the row."""
    for model, config in CONFIGS.items():
        for row in derived(tmp_path / model, config).table.rows:
            side, _, sum_text = row.note.partition("; columns")[0].rpartition(": ")[2].partition(" = ")
            sum_text = sum_text.replace(" with the output gate", "").partition(" = ")[0]
            if all(character in "0123456789*+() " for character in sum_text):
                value = eval(sum_text, {"__builtins__": {}})
                assert -(-value // 128) * 128 == (row.N if side == "N" else row.K), (model, row)


def test_the_layers_of_a_gemma4_are_told_apart(tmp_path):
    table = derived(tmp_path, CONFIGS["gemma4-e2b"]).table
    # 15 layers with keys and values of their own: 12 slide; the last 20 share, and are wide: 16 slide
    assert table.layers == {"sliding": 12, "full": 3, "sliding_wide": 16, "full_wide": 4}
    kinds = {(row.role, row.N, row.K): row.kinds for row in table.rows}
    assert kinds["QKV", 2560, 1536] == ("sliding", "sliding_wide")
    assert kinds["QKV", 5120, 1536] == ("full", "full_wide")
    assert kinds["GU", 24576, 1536] == ("sliding_wide", "full_wide")
    assert kinds["GU", 12288, 1536] == ("sliding", "full")


def test_deepseek_v3_has_its_dense_layers_first(tmp_path):
    config = dense(
        "deepseek_v3",
        7168,
        61,
        128,
        128,
        18432,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        n_routed_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        moe_layer_freq=1,
        num_nextn_predict_layers=1,
    )
    table = derived(tmp_path, config).table
    assert table.layers == {"dense": 3, "moe": 58}
    assert {(row.role, row.K, row.N): row.kinds for row in table.rows} == {
        ("QA", 7168, 1536): ("dense", "moe"),
        ("QB", 1536, 24576): ("dense", "moe"),
        ("KVA", 7168, 640): ("dense", "moe"),
        ("O", 16384, 7168): ("dense", "moe"),
        ("G", 7168, 2048): ("moe",),
        ("U", 7168, 2048): ("moe",),
        ("D", 2048, 7168): ("moe",),
        ("DG", 7168, 18432): ("dense",),
        ("DU", 7168, 18432): ("dense",),
        ("DD", 18432, 7168): ("dense",),
    }
    with pytest.raises(Refused, match="q_lora_rank: expected a whole number from 1 to 2147483647, found nothing"):
        derived(tmp_path / "lite", config | {"q_lora_rank": None, "model_type": "deepseek_v2"})


def test_one_geometry_of_two_kinds_is_one_row(tmp_path):
    """GDN of 2*2048 + 2048 beside full attention of 16*128 + 2*16*128: both 6144."""
    config = dense("qwen3_5", 2048, 4, 16, 16, 4096, head_dim=128, linear_num_value_heads=16, **GDN)
    table = derived(tmp_path, config | {"attn_output_gate": False}).table
    (row,) = [row for row in table.rows if row.role == "QKV"]
    assert (row.K, row.N, row.kinds) == (2048, 6144, ("gdn", "full"))
    assert row.note == "N = 16*128 + 2*16*128; GDN: N = 2*2048 + 2048; columns derived"


def test_what_was_filled_in_or_left_out_is_noted(tmp_path):
    notes = derived(tmp_path / "a", CONFIGS["gemma3-4b"]).notes
    assert notes == (
        "config.json: dimensions taken from text_config; the engine reads the outermost object only",
        "config.json: no num_attention_heads; the class of gemma3_text has 8",
        "config.json: no num_key_value_heads; the class of gemma3_text has 4",
        "config.json: no head_dim; the class of gemma3_text has 256",
        (
            "config.json: layer_types derived from model_type gemma3_text: 29 of 34 layers slide; "
            "the engine reads only layer_types"
        ),
    )
    assert (
        "config.json: vision_config left out: the table is the text model's"
        in derived(tmp_path / "b", CONFIGS["qwen3-vl-4b"]).notes
    )
    shared = "config.json: shared_expert_intermediate_size = 512; shared experts have no design of their own"
    assert shared in derived(tmp_path / "c", CONFIGS["qwen3.6-35b-a3b"]).notes


LLAMA = CONFIGS["llama-3.1-8b"]


@pytest.mark.parametrize(
    ("model_type", "why"),
    [
        ("falcon", "its MLP has no gate, and its QKV has no columns with whole tiles"),
        ("zamba2", "its Mamba layers are none of the engine's; a table of its attention is published"),
        ("zaya", "only its experts are published"),
        ("gpt2", "it knows llama, mistral, qwen2, qwen3, "),
        ("mamba", "it knows llama, "),
        ("bert", "it knows llama, "),
        ("LLAMA", "it knows llama, "),
        ("", "it knows llama, "),
        (None, "it knows llama, "),
        (["llama"], "it knows llama, "),
        ({"a": 1}, "it knows llama, "),
    ],
)
def test_an_architecture_the_engine_does_not_know_is_refused(tmp_path, model_type, why):
    message = refused(tmp_path, LLAMA | {"model_type": model_type})
    assert message.startswith("config.json: model_type: expected an architecture the engine knows, found ")
    assert f"; {why}" in message


ONLY_LEADING = "the engine runs experts in every layer but leading ones"
NOT_RUN = (
    ("gemma4-e2b", {"attention_k_eq_v": True}, "attention_k_eq_v: expected false: the engine packs keys and"),
    ("gemma4-e2b", {"enable_moe_block": True}, "enable_moe_block: expected false: the engine runs experts or"),
    ("gemma4-e2b", {"layer_types": None, "sliding_window": None}, "layer_types: expected the kind of each layer, as"),
    ("qwen3.6-35b-a3b", {"mlp_only_layers": [0]}, f"mlp_only_layers: expected none: {ONLY_LEADING}"),
    ("qwen3.6-35b-a3b", {"decoder_sparse_step": 2}, f"decoder_sparse_step: expected 1: {ONLY_LEADING}"),
    ("glm-4.7-flash", {"moe_layer_freq": 2}, f"moe_layer_freq: expected 1: {ONLY_LEADING}"),
    ("glm-4.7-flash", {"moe_layer_freq": True}, f"moe_layer_freq: expected 1: {ONLY_LEADING}, found true"),
    ("glm-4.7-flash", {"first_k_dense_replace": 48}, "leading_dense_block_count: expected at most num_hidden_layers ="),
    ("glm-4.7-flash", {"mlp_layer_types": ["sparse", "dense"]}, "mlp_layer_types: expected dense layers, then sparse"),
    (
        "olmoe-1b",
        {"leading_dense_block_count": 1, "dense_intermediate_size": 4096},
        "leading_dense_block_count: expected none, as only latent attention has dense layers before its experts",
    ),
    ("llama-3.1-8b", {"cross_attention_layers": [3]}, "cross_attention_layers: expected none: the engine has no"),
    ("llama-3.1-8b", {"is_encoder_decoder": True}, "is_encoder_decoder: expected false: the engine runs decoders"),
    ("llama-3.1-8b", {"num_hidden_layers": 65}, "num_hidden_layers: expected at most 64 (Q4NX_MAX_LAYERS), found"),
    ("llama-3.1-8b", {"layer_types": ["mamba"] * 32}, "layer_types[0]: expected a kind the engine knows, found 'mam"),
    ("llama-3.1-8b", {"sliding_window": 512}, "layer_types: expected the kind of each layer, or sliding_window_"),
    (
        "llama-3.1-8b",
        {"num_attention_heads": None},
        "num_attention_heads: expected a whole number from 1 to 2147483647, found",
    ),
    ("llama-3.1-8b", {"hidden_size": 4100}, "expected geometry with whole tiles, found QKV 4100x"),
    ("llama-3.1-8b", {"hidden_size": 2**40}, "hidden_size: expected a whole number from 1 to 2147483647"),
    ("llama-3.1-8b", {"intermediate_size": 128 * 73}, "found G 4096x9344: N/128 = 73 has no divisor in 2..8"),
    ("bonsai2-27b", {"linear_num_value_heads": 32}, "linear_num_value_heads*linear_value_head_dim: expected"),
    ("bonsai2-27b", {"full_attention_interval": 0}, "full_attention_interval: expected a whole number of 1 to 64"),
    ("bonsai2-27b", {"full_attention_interval": "4"}, "full_attention_interval: expected a whole number of 1 to"),
    (
        "bonsai2-27b",
        {"linear_num_key_heads": None},
        "linear_num_key_heads: expected a whole number from 1 to 2147483647",
    ),
)


@pytest.mark.parametrize(("base", "keys", "said"), NOT_RUN)
def test_what_the_engine_does_not_run_is_refused_by_key(tmp_path, base, keys, said):
    message = refused(tmp_path, CONFIGS[base] | keys)
    assert message.startswith("config.json: ")
    assert said in message


def test_smollm2_has_no_whole_tiles(tmp_path):
    message = refused(tmp_path, dense("llama", 576, 30, 9, 3, 1536))
    fault = "QKV 576x960: N is not a multiple of 128 (padded: 1024); no design can be built for it"
    assert message == f"config.json: expected geometry with whole tiles, found {fault}"


def test_leading_dense_layers_may_be_told_by_their_kinds(tmp_path):
    config = CONFIGS["glm-4.7-flash"] | {"first_k_dense_replace": None, "mlp_layer_types": ["dense"] + ["sparse"] * 46}
    assert derived(tmp_path, config).table.layers == {"dense": 1, "moe": 46}


@pytest.mark.parametrize("model", CONFIGS)
def test_the_text_is_read_back_as_the_table(tmp_path, model):
    found = derived(tmp_path, CONFIGS[model])
    assert table_text(found.table) == found.text
    assert parse_role_table(parse_strict_yaml(found.text, "roles.yaml"), "roles.yaml", "m") == found.table
    assert max(len(line) for line in found.text.splitlines() if "note:" not in line) <= 100


def test_changed_configs_make_a_table_or_are_refused(tmp_path):
    """Fifteen hundred configs with one to three odd keys, seeded: no traceback, and nothing that the reader refuses."""
    keys = sorted({key for config in CONFIGS.values() for key in config} | {"mla", "n_expert", "layer_types", "top_k"})
    odd = (None, True, 0, 1, 3, -1, 64, 128, 2**31, 1.5, "x", [], ["full_attention"], {}, "gemma3_text", "qwen3_5", [1])
    taken = 0
    for seed in range(1500):
        rng = random.Random(seed)
        config = dict(CONFIGS[rng.choice(sorted(CONFIGS))])
        for _ in range(rng.randrange(1, 4)):
            config[rng.choice(keys)] = rng.choice(odd)
        try:
            table = derived(tmp_path, config).table
        except Refused as error:
            assert "\n" not in str(error), seed
        else:
            taken += 1
            assert table.rows, seed
            for kind in table.layers:
                roles = {row.role for row in table.rows if kind in row.kinds}
                assert "O" in roles, seed
                assert {"D", "DD"} & roles, seed
                assert {"G", "GU", "DG"} & roles, seed
                assert {"QKV", "QA"} & roles, seed
    assert taken > 100


# --- the verb ---


def run(capsys, *words):
    code = main(["plan", *(str(word) for word in words)])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def qwen(tmp_path):
    """A Hugging Face folder of Qwen3-8B."""
    folder = tmp_path / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIGS["qwen3-8b"]))
    return folder


def test_the_verb_prints_a_table_that_can_be_committed(qwen, capsys):
    for path in (qwen, qwen / "config.json"):
        code, out, err = run(capsys, "--from-config", path)
        assert (code, err) == (0, "note: config.json: no head_dim; the class of qwen3 has 128\n")
        assert out == (
            "schema: elfkiln-roles/1\n"
            "model: qwen3-8b\n"
            "source: >-\n"
            "  derived from config.json: model_type qwen3, hidden 4096, 36 layers, 32 heads and 8 KV heads of\n"
            "  128, MLP 12288, gate and up split as 2*12288 > 14336. Known by npu_dims.h: qwen3_0_6b to qwen3_14b\n"
            "hidden: 4096\n"
            "intermediate: 12288\n"
            "layers: {full: 36}\n"
            "layout: rm\n"
            "decode: true\n"
            "rows:\n"
            '  - {role: QKV, K: 4096, N: 6144, columns: 8, note: "N = 32*128 + 2*8*128; columns published"}\n'
            '  - {role: O, K: 4096, N: 4096, columns: 8, note: "K = 32*128; columns published"}\n'
            '  - {role: G, K: 4096, N: 12288, columns: 8, note: "N = intermediate_size; columns published"}\n'
            '  - {role: U, K: 4096, N: 12288, columns: 8, note: "N = intermediate_size; columns published"}\n'
            '  - {role: D, K: 12288, N: 4096, columns: 8, note: "K = intermediate_size; columns published"}\n'
        )


def test_the_verb_writes_a_model_that_the_project_then_has(qwen, tmp_path, capsys):
    (tmp_path / "toolchain.lock").write_text("")
    file = tmp_path / "plans" / "mine" / "roles.yaml"
    words = ("--from-config", qwen, "layout=b8", "decode=false", "--out", file)
    assert run(capsys, *words)[:2] == (0, f"wrote {file}: 5 geometries, 36 layers\n")
    table = read_role_table(file)
    assert (table.model, table.layout, table.decode) == ("mine", "b8", False)
    assert run(capsys, *words, "--check")[:2] == (0, f"{file} is current\n")
    file.write_text(
        file.read_text().replace("N: 6144, columns: 8", "N: 6144, columns: 4").replace("full: 36", "full: 35")
    )
    code, out, _ = run(capsys, *words, "--check")
    assert (code, out.splitlines()) == (
        1,
        [
            f"{file} differs from what config.json gives:",
            "  layers.full: 35 -> 36",
            '  rows["QKV 4096x6144"].columns: 4 -> 8',
        ],
    )
    code, out, _ = run(capsys, *words, "--check", "--json")
    assert [entry["field"] for entry in json.loads(out)["differences"]] == [
        "layers.full",
        'rows["QKV 4096x6144"].columns',
    ]


def test_the_verb_prints_json(qwen, tmp_path, capsys):
    code, out, _ = run(capsys, "--from-config", qwen, "name=other", "--json")
    data = json.loads(out)
    assert (code, data["model"], data["layers"], data["file"]) == (0, "other", {"full": 36}, None)
    assert data["rows"][0] == {
        "role": "QKV",
        "K": 4096,
        "N": 6144,
        "columns": 8,
        "layers": ["full"],
        "note": "N = 32*128 + 2*8*128; columns published",
    }
    assert data["notes"] == ["config.json: no head_dim; the class of qwen3 has 128"]
    code, out, _ = run(capsys, "--from-config", qwen, "--out", tmp_path / "t.yaml", "--json")
    assert (code, json.loads(out)["file"]) == (0, str(tmp_path / "t.yaml"))


def test_the_verb_refuses_in_one_line(qwen, tmp_path, capsys):
    for words, code, said in (
        ((tmp_path / "none",), 2, f"{tmp_path}/none: missing"),
        ((tmp_path,), 2, "config.json: missing"),
        ((qwen, "layout=pb16i"), 2, "layout: expected one of rm, b8, found pb16i; this layout needs a plan.json"),
        ((qwen, "decode=maybe"), 2, "plan: decode: expected true or false, found maybe"),
        ((qwen, "name=Bad Name"), 2, "model: expected a name of lower-case letters"),
        ((qwen, "name=../x"), 2, "model: expected a name of lower-case letters"),
        ((qwen, "tag=_b8"), 2, "no MODELDIR, dir= or tag="),
        ((qwen, "dir=x"), 2, "no MODELDIR, dir= or tag="),
        ((qwen, qwen), 2, "no MODELDIR, dir= or tag="),
        ((qwen, "--kernels", tmp_path), 2, "plan: --kernels does not go with --from-config"),
        ((qwen, "--check"), 2, "plan: --from-config --check takes --out FILE"),
        ((qwen, "--check", "--print"), 2, "not both"),
        ((qwen, "--out="), 2, "plan: --out: expected a file, found nothing"),
        ((qwen, "--check", "--out", tmp_path / "none.yaml"), 1, "missing role table"),
        ((qwen, "name=a", "--out", tmp_path / "b" / "roles.yaml"), 2, "plan: name: expected b, the folder of"),
    ):
        found, out, err = run(capsys, "--from-config", *words)
        assert (found, out) == (code, ""), words
        assert said in err.splitlines()[-1], err
        assert err.splitlines()[-1].startswith("elfkiln: ")
    found, _, err = run(capsys, qwen, "name=x")
    assert (found, "name= goes with --from-config alone" in err) == (2, True)


def test_a_file_that_is_no_config_is_called_what_it_is(tmp_path, capsys):
    (tmp_path / "config.json").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    code, _, err = run(capsys, "--from-config", tmp_path)
    assert (code, "found a git-lfs pointer; fetch the file" in err) == (2, True)

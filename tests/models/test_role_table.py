"""Role tables: the committed ones, and every way a table is refused."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.engine.legality import largest_columns
from elfkiln.errors import Refused
from elfkiln.io.strict_yaml import parse_strict_yaml
from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.models.published import published_columns
from elfkiln.models.role_table import parse_role_table, read_role_table
from elfkiln.project import Project
from elfkiln.studies.published_geometry import TABLES
from projects import CHECKOUT

TABLE = """\
schema: elfkiln-roles/1
model: tiny
source: made for the tests
hidden: 256
intermediate: 512
layers: {gdn: 3, full: 1}
layout: b8
decode: true
rows:
  - {role: QKV, K: 256, N: 768, columns: 2, layers: [full], note: some}
  - {role: GU, K: 256, N: 1024, columns: 8}
  - {role: D, K: 512, N: 256, columns: 2}
"""

CHECKOUT_PROJECT = Project(CHECKOUT)
TABLED_MODELS = [
    model for model in all_models(CHECKOUT_PROJECT) if (CHECKOUT_PROJECT.plans / model / "roles.yaml").is_file()
]


def parse(text, folder="tiny"):
    return parse_role_table(parse_strict_yaml(text, "roles.yaml"), "roles.yaml", folder)


def refused(text, folder="tiny"):
    with pytest.raises(Refused) as caught:
        parse(text, folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_table_gives_prefill_names_then_twins():
    wanted = parse(TABLE).requirements()
    assert [requirement.path for requirement in wanted.requirements] == [
        "kernels/full_i8_QKV_K256_N768_b8.elf",
        "kernels/full_i8_GU_K256_N1024_b8.elf",
        "kernels/full_i8_D_K512_N256_b8.elf",
        "kernels-m16/full_i8_QKV_K256_N768_b8_m16.elf",
        "kernels-m16/full_i8_GU_K256_N1024_b8_m16.elf",
        "kernels-m16/full_i8_D_K512_N256_b8_m16.elf",
    ]
    # two columns leave room for two rows; eight for four; a twin has one
    assert [requirement.rows for requirement in wanted.requirements] == [2, 4, 2, 1, 1, 1]
    assert [requirement.launches for requirement in wanted.requirements] == [1, 4, 4, 1, 4, 4]
    assert [str(use) for use in wanted.requirements[1].layers] == ["3 gdn layers GU", "1 full layers GU"]


def test_without_decode_there_are_no_twins():
    wanted = parse(TABLE.replace("decode: true", "decode: false")).requirements()
    assert [requirement.directory for requirement in wanted.requirements] == ["kernels"] * 3


def test_another_layout_gives_another_tag_and_nothing_else():
    b8 = parse(TABLE).requirements()
    rm = parse(TABLE).requirements("rm")
    assert rm.layout == "rm"
    assert [name.file_name for name in rm.requirements] == [
        name.file_name.replace("_b8", "") for name in b8.requirements
    ]


@pytest.mark.parametrize("layout", ["pb16i", "t2s"])
def test_a_layout_that_needs_a_plan_is_refused(layout):
    with pytest.raises(Refused, match=r"expected one of rm, b8, found .*this layout needs a plan.json"):
        parse(TABLE).requirements(layout)
    with pytest.raises(Refused, match=r"expected one of rm, b8, found b9$"):
        parse(TABLE).requirements("b9")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema: elfkiln-roles/1", "schema: elfkiln-roles/2", "line 1: schema: expected elfkiln-roles/1"),
        (
            "hidden: 256\n",
            "",
            "line 1: expected the fields decode hidden intermediate layers layout model rows ",
        ),
        ("decode: true", "decode: true\nextra: 1", "line 1: expected the fields decode hidden intermediate "),
        ("decode: true", "decode: yes", "line 8: decode: expected true or false, found 'yes'"),
        ("decode: true", "decode: 'true'", "line 8: decode: expected true or false"),
        ("hidden: 256", "hidden: 0", "line 4: hidden: expected a whole number from 1 to 999999999, found 0"),
        ("hidden: 256", "hidden: '256'", "line 4: hidden: expected a whole number from 1 to 999999999, found '256'"),
        ("hidden: 256", "hidden: 0x100", "line 4: hidden"),
        ("hidden: 256", "hidden: 2_56", "line 4: hidden"),
        ("hidden: 256", "hidden: 256.0", "line 4: hidden"),
        ("hidden: 256", "hidden: 99999999999", "line 4: hidden"),
        (
            "hidden: 256",
            "hidden: [256]",
            "hidden: expected a whole number from 1 to 999999999, found a list of 1",
        ),
        ("source: made for the tests", "source: ''", "line 3: source: expected a text"),
        ("layers: {gdn: 3, full: 1}", "layers: {}", "line 6: layers: expected a mapping"),
        ("layers: {gdn: 3, full: 1}", "layers: {GDN: 3}", "line 6: layers.GDN: expected a lower-case word as kind"),
        (
            "layers: {gdn: 3, full: 1}",
            "layers: {gdn: 2000, full: 1}",
            "line 6: layers.gdn: expected a whole number from 1 to 1024, found 2000",
        ),
        ("layout: b8", "layout: nt", "line 7: layout: expected one of rm, b8, found nt"),
        ("layout: b8", "layout: pb16i", "this layout needs a plan.json"),
        ("model: tiny", "model: other", "line 2: model: expected the folder's name tiny, found other"),
        ("role: D", "role: QKV2", "line 12: rows[2].role: expected one of"),
        ("role: D", "role: ../D", "rows[2].role: expected one of"),
        ("K: 512", "K: 500", "rows[2] D: K: expected a positive multiple of 64"),
        ("N: 768", "N: 700", "rows[0] QKV: N: expected a positive multiple of 128"),
        ("columns: 8", "columns: 7", "rows[1] GU: columns: expected a divisor of N/128 = 8"),
        ("columns: 8", "columns: 1", "rows[1] GU: columns"),
        ("K: 512, N: 256", "K: 576, N: 256", "rows[2].K of D: expected intermediate = 512 (double-wide: 1024)"),
        ("K: 512, N: 256", "K: 512, N: 512", "rows[2].N of D: expected hidden = 256, found 512"),
        ("N: 1024, columns: 8", "N: 512, columns: 4", "rows[1].N of GU: expected 2*intermediate = 1024"),
        ("layers: [full]", "layers: [moe]", "rows[0].layers[0]: expected each a kind of gdn full, once, found 'moe'"),
        ("layers: [full]", "layers: [full, full]", "rows[0].layers"),
        ("note: some", "note: [some]", "rows[0].note: expected a text"),
        ("note: some", "colour: red", "rows[0]: expected the fields K N columns layers note role, found colour"),
        ("role: D, K: 512, N: 256", "role: QKV, K: 256, N: 768", "found QKV 256x768 again (rows[0])"),
    ],
)
def test_a_bad_table_is_refused_with_line_and_field(old, new, said):
    assert TABLE.count(old) >= 1
    message = refused(TABLE.replace(old, new))
    assert message.startswith("roles.yaml line ")
    assert said in message


def test_a_table_without_rows_is_refused():
    head = TABLE[: TABLE.index("rows:")]
    for rows in ("rows: []", "rows: {}", "rows: x", "rows:\n  - x"):
        assert "rows" in refused(head + rows + "\n")


@pytest.mark.parametrize("model", ["../up", "a/b", "A", "..", "a..b", "x" * 65, "-a", "a b"])
def test_hostile_model_names_are_refused(model):
    assert "model" in refused(TABLE.replace("model: tiny", f"model: '{model}'"), folder=model)
    with pytest.raises(Refused, match="model: expected a name"):
        model_requirements(CHECKOUT_PROJECT, model)


@settings(deadline=None)
@given(st.text(alphabet="ab:- {}[]'\"&*!#\n\t0123456789.,|>", max_size=120))
def test_any_text_gives_a_table_or_a_refusal(text):
    try:
        parse(text)
    except Refused as error:
        assert "\n" not in str(error)


BONSAI = """
QKV 5120 14336
QKV 5120 10240
O 6144 5120
G 5120 17408
U 5120 17408
D 17408 5120
Z 5120 6144
"""


@pytest.mark.parametrize(("layout", "tag"), [(None, "_b8"), ("b8", "_b8"), ("rm", "")])
def test_bonsai_asks_for_the_14_names_of_the_b8_pull_request(layout, tag):
    shapes = [line.split() for line in BONSAI.split("\n") if line]
    prefill = [f"kernels/full_i8_{role}_K{K}_N{N}{tag}.elf" for role, K, N in shapes]
    twins = [f"kernels-m16/full_i8_{role}_K{K}_N{N}{tag}_m16.elf" for role, K, N in shapes]
    wanted = model_requirements(CHECKOUT_PROJECT, "bonsai2-27b", layout)
    assert [requirement.path for requirement in wanted.requirements] == prefill + twins
    assert {requirement.columns for requirement in wanted.requirements} == {8}
    assert {(requirement.name.m16, requirement.rows) for requirement in wanted.requirements} == {(False, 4), (True, 1)}


def test_bonsai_launches_are_the_published_368_a_token():
    wanted = model_requirements(CHECKOUT_PROJECT, "bonsai2-27b")
    assert sum(requirement.launches for requirement in wanted.requirements if requirement.name.m16) == 48 * 6 + 16 * 5


# Rows a table has on purpose where a published line is wrong or stands for something else.
CORRECTED = {
    ("olmoe-1b", "QKV", 2048, 4096): "6144 in the table, for its 16 key/value heads",
    ("olmoe-1b", "GU", 2048, 4096): "G and U 2048x1024: its MLP is 64 experts of that width",
    ("olmoe-1b", "D", 2048, 2048): "1024x2048, one expert",
}
NO_TABLE = {"falcon-7b"}  # N/128 = 37 columns cannot be divided


@pytest.mark.parametrize("published", TABLES, ids=lambda table: f"{table.model}-{table.script}")
def test_published_rows_stand_in_the_role_tables_with_their_columns(published):
    if published.model in NO_TABLE:
        assert published.model not in all_models(CHECKOUT_PROJECT)
        return
    table = read_role_table(CHECKOUT_PROJECT.plans / published.model / "roles.yaml")
    rows = {(row.role, row.K, row.N): row.columns for row in table.rows}
    for row in published.rows:
        if (published.model, row.role, row.K, row.N) in CORRECTED:
            assert (row.role, row.K, row.N) not in rows
            continue
        assert (row.role, row.K, row.N) in rows
        # two published lines contradict the v27 table: nanbeige's 8 columns are illegal, the 35B's 8 are the other set
        contradicted = published.script in ("build_all.sh", "build_new_xclbins.sh")
        if row.columns is not None and not contradicted:
            assert rows[row.role, row.K, row.N] == row.columns


@pytest.mark.parametrize("model", TABLED_MODELS)
def test_every_committed_table_states_source_and_marks_derived_columns(model):
    table = read_role_table(CHECKOUT_PROJECT.plans / model / "roles.yaml")
    assert len(table.source) > 20
    for row in table.rows:
        told = "columns derived" in row.note or "columns published" in row.note or "columns as published" in row.note
        assert told or model == "bonsai2-27b"
        if "columns derived" in row.note:
            assert row.columns == max(c for c in range(2, 9) if (row.N // 128) % c == 0)


def test_the_models_the_issue_names_have_tables():
    named = {
        "bonsai2-27b",
        "qwen3-0.6b",
        "qwen3-8b",
        "qwen3.5-4b",
        "qwen3.6-35b-a3b",
        "gemma4-e2b",
        "gemma4-e4b",
        "phi4-mini",
        "nanbeige4.1-3b",
        "llama-3.1-8b",
    }
    assert named <= set(TABLED_MODELS)


def test_committed_models_agree_on_the_columns_of_every_shared_name():
    columns = {}
    for model in all_models(CHECKOUT_PROJECT):
        for layout in ("rm", "b8") if model in TABLED_MODELS else (None,):
            for requirement in model_requirements(CHECKOUT_PROJECT, model, layout).requirements:
                first = columns.setdefault(requirement.file_name, (requirement.columns, requirement.rows, model))
                assert first[:2] == (requirement.columns, requirement.rows), (requirement.file_name, model, first[2])


@pytest.mark.parametrize("model", TABLED_MODELS)
def test_a_plan_gives_every_tabled_geometry_the_same_columns(model):
    """So a plan that is generated for one of these models asks for the designs its role table asks for."""
    for row in read_role_table(CHECKOUT_PROJECT.plans / model / "roles.yaml").rows:
        expected = published_columns(row.role, row.K, row.N) or largest_columns(row.role, row.N)
        assert row.columns == expected


def test_committed_tables_are_plain_yaml_too():
    for model in TABLED_MODELS:
        text = (CHECKOUT_PROJECT.plans / model / "roles.yaml").read_text()
        data = yaml.safe_load(text)
        table = read_role_table(CHECKOUT_PROJECT.plans / model / "roles.yaml")
        assert [(row.role, row.K, row.N, row.columns) for row in table.rows] == [
            (row["role"], row["K"], row["N"], row["columns"]) for row in data["rows"]
        ]

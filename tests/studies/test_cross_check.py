"""Published geometry against the derivation: what agrees is reproduced, what does not is named."""

import pytest

from elfkiln.models.derive import derive_designs
from elfkiln.models.role_table import read_role_table
from elfkiln.studies.cross_check import cross_check, models
from elfkiln.studies.published_geometry import DIMENSIONS, TABLES
from projects import CHECKOUT

# Section 4c of the engine contract: "agree exactly".
AGREE = {
    "qwen3-0.6b",
    "qwen3-8b",
    "qwen3-vl-4b",
    "llama-3.1-8b",
    "mistral-7b",
    "gemma4-e2b",
    "gemma4-e4b",
    "phi4-mini",
    "qwen3-4b",
}
# "agree exactly", with a second source that says otherwise.
AGREE_IN_ONE_SOURCE = {"qwen3.5-4b": "output_gate", "zamba2-2.7b": "intermediate"}


def findings(model):
    return [str(found) for found in cross_check(model)]


def dims(model):
    return next(known.dimensions for known in DIMENSIONS if known.model == model)


@pytest.mark.parametrize("model", sorted(AGREE))
def test_consistent_tables_are_reproduced(model):
    assert findings(model) == []


@pytest.mark.parametrize(("model", "subject"), AGREE_IN_ONE_SOURCE.items())
def test_tables_that_fit_one_source_name_the_other(model, subject):
    found = cross_check(model)
    assert [(entry.where, entry.subject) for entry in found] == [("dimensions", subject)]


def test_nanbeige_agrees_but_for_a_table_with_illegal_columns():
    assert findings("nanbeige4.1-3b") == [
        "nanbeige4.1-3b: build_all.sh: QKV 2560x3840: 8 columns, where run_build.sh has 6",
        "nanbeige4.1-3b: build_all.sh: QKV 2560x3840: 8 columns do not divide N/128 = 30",
    ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.model}-{table.script}")
def test_every_row_is_derived_or_named(table):
    """The same comparison written out plainly: a row is among the derived shapes, or a finding names it."""
    known = dims(table.model)
    fused = any(row.role == "GU" for row in table.rows) and known.experts is None
    shapes = {(design.elf_role, design.K, design.N) for design in derive_designs(known, fused=fused)}
    named = {found.subject for found in cross_check(table.model) if found.where == table.script}
    pad = {(role, -(-K // 128) * 128, -(-N // 128) * 128) for role, K, N in shapes}
    for row in table.rows:
        if (row.role, row.K, row.N) not in shapes | pad and not (table.ungated and row.role == "GU"):
            assert f"{row.role} {row.K}x{row.N}" in named


def test_olmoe_is_named_for_all_but_its_output():
    """The published config.json: 16 heads and as many KV heads of 128, 64 experts of width 1024."""
    source = "from its published config.json"
    assert findings("olmoe-1b") == [
        f"olmoe-1b: build_xclbins.sh: QKV 2048x4096: derived 2048x6144 {source}",
        f"olmoe-1b: build_xclbins.sh: GU 2048x4096: derived no such design, as experts run G and U {source}",
        f"olmoe-1b: build_xclbins.sh: D 2048x2048: derived 1024x2048 {source}",
    ]


def test_falcon_down_and_qkv_are_named():
    found = findings("falcon-7b")
    assert "D 18304x4608: its K is neither N nor half of N of GU 4608x18176 (padded 18176)" in found[0]
    assert "QKV 4608x4736: N/128 = 37 has no divisor in 2..8: no design with whole tiles" in found[1]
    assert len([entry for entry in found if "is not a multiple of 128" in entry]) == 3


def test_the_35b_is_named_for_qkv_fusion_and_columns():
    assert [entry.split(": ", 1)[1] for entry in findings("qwen3.6-35b-a3b")] == [
        "run_build.sh: QKV 2048x8192: is the GDN packing; full attention derives 2048x5120",
        "run_build.sh: G 2048x512: split although 2*512 <= 14336, where the old rule fuses",
        "build_new_xclbins.sh: D 512x2048: 8 columns, where run_build.sh has 4",
    ]


def test_smollm2_is_named_for_its_widths():
    assert [entry.subject for entry in cross_check("smollm2-135m")] == ["QKV 576x960", "O 576x576", "D 1536x576"]


def test_qwen3_1_7b_is_named_for_its_two_mlp_widths():
    assert findings("qwen3-1.7b") == [
        "qwen3-1.7b: dimensions: intermediate: 11008 in npu_dims.h, 6144 in general knowledge"
    ]


def test_exactly_the_known_models_disagree():
    disagree = {model for model in models() if cross_check(model)}
    assert disagree == {
        "falcon-7b",
        "nanbeige4.1-3b",
        "olmoe-1b",
        "qwen3-1.7b",
        "qwen3.5-4b",
        "qwen3.6-35b-a3b",
        "smollm2-135m",
        "zamba2-2.7b",
    }


# Rows of a role table beyond the derivation of the first published dimensions, on purpose (their notes say why).
BEYOND = {
    "qwen3.5-4b": {("QKV", 2560, 10240), ("QKV", 2560, 8192), ("Z", 2560, 4096)},
    "qwen3.6-35b-a3b": {("QKV", 2048, 9216)},
}


@pytest.mark.parametrize(
    "model", sorted({known.model for known in DIMENSIONS if (CHECKOUT / "plans" / known.model).is_dir()})
)
def test_committed_role_tables_are_what_the_published_dimensions_give(model):
    known = dims(model)
    table = read_role_table(CHECKOUT / "plans" / model / "roles.yaml")
    rows = {(row.role, row.K, row.N) for row in table.rows}
    fused = any(role == "GU" for role, _, _ in rows)
    derived = {(design.elf_role, design.K, design.N) for design in derive_designs(known, fused=fused)}
    assert rows == derived | BEYOND.get(model, set())
    assert table.hidden == known.hidden
    assert sum(table.layers.values()) == known.layers

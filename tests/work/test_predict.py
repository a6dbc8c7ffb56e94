"""The model of time: the formula by hand, the figures the project published as predictions, and its gate."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elfkiln.cli import main
from elfkiln.design.reader import read_design
from elfkiln.errors import Refused
from elfkiln.hardware.timing import CONSTANTS, constant
from elfkiln.work.predict import predict_design
from elfkiln.work.predict_baseline import compare_baseline, read_baseline, write_baseline
from gemm_designs import Shape, panel_b8, panel_rm, v27
from kilns import copy_kiln, keep_rows
from simulating import example

TWIN = Shape(16, 5120, 17408, 1, 8, m=16, depths=(2, 4, 2, 1, 1))
PREFILL = Shape(128, 5120, 17408, 4, 8)


def predicted(design):
    (one,) = predict_design(named(design))
    return one


def named(design):
    """Return the design with its kernels under the names the table of cycles knows."""
    text = {kernel.name: "matmul_i8_i32" for kernel in design.kernels if len(kernel.parameters) == 3}
    kernels = tuple(replace(kernel, name=text.get(kernel.name, kernel.name)) for kernel in design.kernels)
    assert text == {"matmul_i8_i32": "matmul_i8_i32"}
    return replace(design, kernels=kernels)


def test_the_formula_by_hand():
    """17 groups of 80 steps; 64 KiB of B and 1 KiB of A a step, A in 128 runs of 8 bytes."""
    one = predicted(panel_b8(TWIN))
    step = 65536 / 53.7e9 + 1024 / 53.7e9 + 128 * 1.5e-9
    c_fabric = 16 * 1024 * 4 / 54.2e9 + 16 * 1024 * 4 / 32 * 1.5e-9
    stall = 16 * 128 * 4 / (8 * 1.8e9) + 0.3e-6
    assert one.seconds == pytest.approx(17 * (80 * step + stall + 0.5 * c_fabric), rel=1e-9)
    assert (one.binds, one.groups, one.steps, one.tasks) == ("fabric", 17, 80, 289)
    # Without the fabric the shim's channel decides: 8 KiB a step at 11.8 GB/s.
    assert one.unbound == pytest.approx(17 * (80 * 8192 / 11.8e9 + stall), rel=1e-9)
    assert one.roof == pytest.approx((17 * 16 * 5120 + 5120 * 17408 + 16 * 17408 * 4) / 56.5e9)


@pytest.mark.parametrize(
    ("design", "milliseconds", "binds"),
    [
        # Worked out apart from this code, from the same constants: 2.00, 4.27 ms, and 4.9 GB/s of row-major weights.
        (panel_b8(TWIN), 2.00, "fabric"),
        (panel_b8(PREFILL), 4.27, "fabric"),
        (panel_rm(TWIN), 5120 * 17408 / 4.9e9 * 1e3, "fabric"),
    ],
)
def test_known_designs(design, milliseconds, binds):
    one = predicted(design)
    assert one.seconds * 1e3 == pytest.approx(milliseconds, rel=0.035)
    assert one.binds == binds
    assert one.low < one.seconds < one.high


def test_the_old_generators_tasks_are_what_binds_them():
    """One awaited task per 8 KiB tile: 12,376 tasks of 0.885 us, the published 10.96 ms."""
    shape = Shape(16, 5120, 17408, 1, 8, m=16)
    one = predicted(v27(shape))
    assert one.tasks >= 5120 // 64 * (17408 // 128)
    assert one.resources["controller"] == pytest.approx(one.tasks * 0.885e-6)


def test_operations_and_rates():
    one = predicted(panel_b8(PREFILL))
    assert one.operations == 2 * 128 * 5120 * 17408
    assert one.weight_bytes == 5120 * 17408
    assert one.tops == pytest.approx(one.operations / one.seconds / 1e12)


def test_a_reload_of_nothing_is_no_gemm():
    with pytest.raises(Refused, match=r"the model of time cannot follow|found none"):
        predict_design(read_design(example("copy_one_core")))


def test_a_kernel_without_known_cycles_is_refused():
    with pytest.raises(Refused, match="no cycles are known of"):
        predict_design(panel_b8_of_unknown_kernel())


def panel_b8_of_unknown_kernel():
    design = panel_b8(TWIN)
    unknown = {kernel.name: "matmul_unknown" for kernel in design.kernels if len(kernel.parameters) == 3}
    kernels = tuple(replace(kernel, name=unknown.get(kernel.name, kernel.name)) for kernel in design.kernels)
    cores = tuple(replace(core, body=renamed(core.body, unknown)) for core in design.cores)
    return replace(design, kernels=kernels, cores=cores)


def renamed(body, names):
    from elfkiln.design.model import Call, Loop

    found = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = replace(statement, body=renamed(statement.body, names))
        elif isinstance(statement, Call):
            statement = replace(statement, kernel=names.get(statement.kernel, statement.kernel))
        found.append(statement)
    return tuple(found)


def test_every_constant_has_a_source_and_lies_in_its_range():
    for row in CONSTANTS:
        assert row.low <= row.value <= row.high
        assert row.source
        assert row.kind in ("known", "measured", "fitted", "assumed")
    assert constant("task").value == 0.885e-6


# The gate.

BASELINE = {"a.elf": {"seconds": 1e-3, "binds": "fabric"}, "b.elf": {"seconds": 2e-3, "binds": "core"}}


@pytest.mark.parametrize(
    ("row", "bad"),
    [
        ({"seconds": 1.019e-3, "binds": "fabric"}, None),
        ({"seconds": 1.021e-3, "binds": "fabric"}, True),
        ({"seconds": 0.9e-3, "binds": "fabric"}, False),
        ({"seconds": 1e-3, "binds": "channel"}, True),
    ],
)
def test_the_gate(row, bad):
    changes = compare_baseline(BASELINE, {"a.elf": row})
    assert [change.bad for change in changes] == ([] if bad is None else [bad])


def test_a_design_the_baseline_lacks_fails():
    (change,) = compare_baseline(BASELINE, {"c.elf": {"seconds": 1e-3, "binds": "core"}})
    assert change.bad
    assert "--write-baseline" in change.text


def test_a_baseline_keeps_other_names(tmp_path):
    path = tmp_path / "b.json"
    write_baseline(path, BASELINE)
    write_baseline(path, {"a.elf": {"seconds": 3e-3, "binds": "fabric"}})
    assert read_baseline(path) == {**BASELINE, "a.elf": {"seconds": 3e-3, "binds": "fabric"}}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": "other", "designs": {}}', '{"schema": "elfkiln-predicted/1", "designs": {"a": 1}}',
     '{"schema": "elfkiln-predicted/1", "designs": {"a": {"seconds": 0.0, "binds": "core"}}}',
     '{"schema": "elfkiln-predicted/1", "designs": {"a": {"seconds": "1", "binds": "core"}}}'],
)  # fmt: skip
def test_a_file_that_is_not_a_baseline(tmp_path, text):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(Refused, match=r"b\.json"):
        read_baseline(path)


# The verb.


@pytest.fixture
def known(sim_kiln, tmp_path):
    """A project whose designs are in its store: predicting them runs no generator."""
    return copy_kiln(sim_kiln, tmp_path / "known")


def test_what_is_not_built_is_predicted_from_what_is_rendered(known, project, capsys):
    keep_rows(project, "D")
    found = []
    for one in (known, project):
        assert main(["predict", "model=tiny", f"root={one.root}", "--json"]) == 0
        (model,) = json.loads(capsys.readouterr().out)["models"]
        found.append([row for row in model["names"] if "_D_" in row["name"]])
    assert found[0] == found[1]
    assert [row["name"] for row in found[1]] == ["full_i8_D_K512_N256_b8.elf", "full_i8_D_K512_N256_b8_m16.elf"]
    assert not project.registry_file.exists()


def test_a_model_and_its_gate(known, tmp_path, capsys):
    file = tmp_path / "baseline.json"
    words = ["predict", "model=tiny", f"root={known.root}"]
    assert main([*words, "--write-baseline", str(file)]) == 0
    out = capsys.readouterr().out
    assert "predicted" in out
    assert "full_i8_D_K512_N256_b8_m16.elf" in out
    assert main([*words, "--baseline", str(file)]) == 0
    table = json.loads(file.read_text())
    table["designs"]["full_i8_D_K512_N256_b8.elf"]["seconds"] /= 1.05
    file.write_text(json.dumps(table))
    capsys.readouterr()
    assert main([*words, "--baseline", str(file)]) == 1
    assert "slower: full_i8_D_K512_N256_b8.elf: predicted" in capsys.readouterr().out


def test_launches_and_layers_of_a_model(known, capsys):
    assert main(["predict", "model=tiny", f"root={known.root}", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    decode = next(one for one in model["passes"] if one["what"] == "decode, a token")
    # Two layers of QKV, G, U and D.
    assert decode["launches"] == 8
    assert decode["launch_seconds"] == pytest.approx(8 * 0.55e-3)
    twins = [one for one in model["names"] if one["name"].endswith("_m16.elf")]
    assert decode["designs_seconds"] == pytest.approx(sum(2 * one["sequences"][0]["seconds"] for one in twins))


def test_a_file_beside_a_model_is_refused(project, capsys):
    assert main(["predict", "x.mlir", "model=tiny", f"root={project.root}"]) == 2
    assert "not both" in capsys.readouterr().err

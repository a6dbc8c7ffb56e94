"""What a plan asks for is the same wherever it is named: to build, to look up, to compare, and when it is written."""

from __future__ import annotations

import json
import shutil

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.models.plan.load import load_plan
from elfkiln.store.registry import load_registry
from elfkiln.work.asked import asked_by_model, asked_by_plan, asked_by_word, asked_of_plan, named_only
from elfkiln.work.build import build_elfs
from elfkiln.work.diff import diff
from plan_data import plan_data, write_plan_file


def shape(asked):
    return [(need.path, need.columns, need.rows) for need in asked.wanted.requirements]


@pytest.fixture
def served(tmp_path, project, stand_in):
    """A model folder elsewhere, one of whose names is registered with other columns than this project would choose."""
    folder = tmp_path / "Served Model"
    write_plan_file(folder, plan_data())
    asked = asked_by_plan(project, folder, target="sim")
    assert build_elfs(project, stand_in, [asked.wanted]).exit_code == 0
    text = project.registry_file.read_text()
    # Z, K = 256 and N = 512, gets the largest legal count, 4; 2 are legal as well.
    key = "full_i8_Z_K256_N512_b8.elf"
    start = text.index(f"    {key}:")
    assert load_registry(project.registry_file).entries("sim")[key].columns == 4
    project.registry_file.write_text(text[:start] + text[start:].replace("columns: 4", "columns: 2", 1))
    return folder


def test_registered_columns_are_kept_by_every_verb(served, project, capsys):
    by_plan = asked_by_plan(project, served, target="sim")
    columns = {need.file_name: need.columns for need in by_plan.wanted.requirements}
    assert (columns["full_i8_Z_K256_N512_b8.elf"], columns["full_i8_Z_K256_N512_b8_m16.elf"]) == (2, 4)
    others = [
        asked_by_plan(project, served / "plan.json", target="sim"),
        asked_by_word(project, str(served), target="sim"),
        asked_of_plan(project, load_plan(served), served, target="sim"),
    ]
    assert [shape(one) for one in others] == [shape(by_plan)] * 3
    # A checkout that built nothing: its registry.yaml is all there is, and no manifest stands against it.
    shutil.rmtree(project.store)
    # The names it would build are those it looks up, and those diff sees.
    assert main(["lookup", f"root={project.root}", f"plan={served}", "--json"]) == 0
    names = {row["path"]: row["columns"] for row in json.loads(capsys.readouterr().out)["names"]}
    assert names == {path: count for path, count, _ in shape(by_plan)}
    assert main(["diff", f"root={project.root}", str(served), str(served / "plan.json")]) == 0


def test_a_role_table_beside_the_plan_decides_instead(served, project):
    (served / "roles.yaml").write_text(
        "schema: elfkiln-roles/1\nmodel: Served Model\nsource: s\nhidden: 256\nintermediate: 768\nlayers: {full: 1}\n"
        "layout: b8\ndecode: true\nrows:\n  - {role: Z, K: 256, N: 512, columns: 4}\n".replace("Served Model", "served")
    )
    lower = served.rename(served.parent / "served")
    columns = {need.file_name: need.columns for need in asked_by_plan(project, lower).wanted.requirements}
    assert columns["full_i8_Z_K256_N512_b8.elf"] == 4


def test_a_models_own_plan_is_the_model(project):
    write_plan_file(project.plans / "planned", plan_data())
    by_model = asked_by_model(project, "planned")
    for other in (
        asked_by_plan(project, project.plans / "planned"),
        asked_by_plan(project, project.plans / "planned" / "plan.json"),
        asked_by_word(project, "planned"),
        asked_by_word(project, str(project.plans / "planned")),
    ):
        assert other.wanted == by_model.wanted
        assert diff(by_model, other).empty


def test_without_a_project_nothing_is_registered(served, project):
    asked = asked_of_plan(None, load_plan(served), served)
    assert ("kernels/full_i8_Z_K256_N512_b8.elf", 4) in {(path, columns) for path, columns, _ in shape(asked)}
    assert asked_by_model(project, "tiny", target="sim").plan is None


def test_a_set_is_cut_down_to_names(project):
    tiny = model_requirements(project, "tiny")
    first = tiny.requirements[0].file_name
    (cut,) = named_only([tiny], [first])
    assert [need.file_name for need in cut.requirements] == [first]
    with pytest.raises(Refused, match=r"did you mean full_i8_QKV_K256_N768_b8.elf\?"):
        named_only([tiny], ["full_i8_QKV_K256_N768_b9.elf"])

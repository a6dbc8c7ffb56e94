"""Models: found, refused, and read from their plan before their role table."""

import pytest

from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import Refused
from elfkiln.models.catalogue import all_models, model_plan, model_requirements
from elfkiln.models.role_table import ROLES_FILE
from elfkiln.project import MODEL_TABLES, Project
from plan_data import plan_data, write_plan_file
from projects import TINY_ROLES


@pytest.fixture
def models(tmp_path):
    """A project whose plans/ holds `tiny` (a role table), `planned` (a plan), and things that are not models."""
    plans = tmp_path / "plans"
    (plans / "tiny").mkdir(parents=True)
    (plans / "tiny" / "roles.yaml").write_text(TINY_ROLES)
    write_plan_file(plans / "planned", plan_data())
    (plans / "empty").mkdir()
    (plans / "README.md").write_text("text")
    return Project(tmp_path)


def test_models_are_the_folders_with_a_plan_or_a_table(models):
    assert all_models(models) == ("planned", "tiny")
    assert all_models(Project(models.root / "nowhere")) == ()


def test_an_unknown_model_is_refused_with_the_known_ones(models):
    with pytest.raises(Refused) as refused:
        model_requirements(models, "empty")
    assert str(refused.value) == "model=empty: no plan.json or roles.yaml in plans/empty; known models: planned, tiny"


def test_a_role_table_is_read_where_there_is_no_plan(models):
    wanted = model_requirements(models, "tiny")
    assert (wanted.model, wanted.layout, len(wanted.requirements)) == ("tiny", "b8", 8)


def test_a_plan_comes_before_a_role_table_and_takes_its_columns(models):
    folder = models.plans / "planned"
    # N = 768 would get 6 columns; N = 1024 keeps the most legal
    (folder / "roles.yaml").write_text(
        "schema: elfkiln-roles/1\nmodel: planned\nsource: made for the tests\nhidden: 256\nintermediate: 768\n"
        "layers: {gdn: 1}\nlayout: rm\ndecode: false\nrows:\n  - {role: G, K: 256, N: 768, columns: 3}\n"
    )
    columns = {str(item.name): item.columns for item in model_requirements(models, "planned").requirements}
    assert columns["full_i8_G_K256_N768_b8.elf"] == columns["full_i8_G_K256_N768_b8_m16.elf"] == 3
    assert columns["full_i8_U_K256_N768_b8.elf"] == 6
    assert columns["full_i8_QKV_K256_N1024_b8.elf"] == 8


def test_a_plan_has_one_layout(models):
    assert model_requirements(models, "planned", "b8") == model_requirements(models, "planned")
    with pytest.raises(Refused, match=r"planned: layout: expected b8, as container.layout of its plan says, found rm"):
        model_requirements(models, "planned", "rm")


def test_a_model_is_told_by_the_engines_plan_or_a_role_table():
    assert MODEL_TABLES == (PLAN_FILE, ROLES_FILE)


def test_a_model_s_folder_cannot_lie_outside_plans(models):
    (models.plans / "tiny").rename(models.root / "elsewhere")
    (models.plans / "tiny").symlink_to(models.root / "elsewhere")
    for look in (model_requirements, model_plan):
        with pytest.raises(Refused, match="plans/tiny: expected a file below plans/, found a link that leads outside"):
            look(models, "tiny")

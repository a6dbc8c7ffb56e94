"""Bump: a candidate lock from given wheels, and what it would change, before anything is built."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from elfkiln.cli import main
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.registry import Entry, register
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.given_wheels import write_candidate
from elfkiln.work.bump import bump
from npu2_standins import make_wheel
from projects import TINY_NAMES, TINY_ROLES

CHECKOUT = Path(__file__).resolve().parents[2]
REAL_LOCK = (CHECKOUT / "toolchain.lock").read_text()


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    (root / "toolchain.lock").write_text(REAL_LOCK)
    return Project(root)


def real_wheel(folder, version="1.4.4", *, tag="cp312-cp312-manylinux_2_35_x86_64", requires=()):
    return make_wheel(folder, "mlir_aie", version, {"mlir_aie/x": version}, tag=tag, requires=requires)


def entry(number):
    digests = {field: f"{number + offset:064x}" for offset, field in enumerate(("elf", "manifest", "design"))}
    return Entry(size=10, columns=8, recipe=f"{number // 2:064x}", **digests)


def fill_registry(project):
    names = ["full_i8_D_K17408_N5120_b8.elf", "full_i8_G_K5120_N17408_b8.elf", "full_i8_O_K6144_N5120_b8.elf"]
    register(project.registry_file, "npu2", {name: entry(16 * i) for i, name in enumerate(names, start=1)})
    register(project.registry_file, "sim", {names[0]: entry(4096)})
    return names


def test_the_names_whose_recipes_change_are_listed_before_anything_is_built(project, tmp_path):
    names = fill_registry(project)
    candidate = bump(project, [real_wheel(tmp_path / "new").path])
    assert candidate.names == tuple(sorted(names))
    assert candidate.recipes == 3
    assert not project.toolchains.exists()


def test_the_same_wheel_changes_nothing(project, tmp_path):
    fill_registry(project)
    wheel = real_wheel(tmp_path / "new")
    write_candidate(bump(project, [wheel.path]).lock.text, project.lock_file, overwrite=True)
    again = bump(project, [wheel.path])
    assert (again.lock.digest, again.lock.changes, again.names) == (again.lock.digest_before, (), ())
    assert again.lock.text == project.lock_file.read_text()


def two_models(project):
    """Role tables of two models of the same sizes."""
    for model in ("tiny", "twin"):
        (project.plans / model).mkdir(parents=True)
        (project.plans / model / "roles.yaml").write_text(TINY_ROLES.replace("model: tiny", f"model: {model}"))


def test_names_of_the_plans_without_a_recipe_are_counted(project, tmp_path):
    two_models(project)
    wheel = real_wheel(tmp_path / "new").path
    empty = bump(project, [wheel])
    # Two models of the same table ask for the same files.
    assert (empty.names, empty.recipes, empty.models) == ((), 0, 2)
    assert (empty.wanted, empty.unbuilt) == (TINY_NAMES, TINY_NAMES)
    first, second = "full_i8_D_K512_N256_b8.elf", "full_i8_QKV_K256_N768_b8.elf"
    register(project.registry_file, "npu2", {first: entry(16), second: entry(32)})
    # What another target has is not built for this one.
    register(project.registry_file, "sim", {"full_i8_O_K256_N256_b8.elf": entry(4096)})
    filled = bump(project, [wheel])
    assert (filled.names, filled.recipes) == ((first, second), 2)
    assert (filled.wanted, filled.unbuilt) == (TINY_NAMES, TINY_NAMES - 2)


def test_a_sealed_elf_counts_by_model(project, tmp_path):
    shutil.copytree(CHECKOUT / "plans" / "bonsai2-27b-pb16i", project.plans / "bonsai2-27b-pb16i")
    before = bump(project, [real_wheel(tmp_path / "new").path])
    asked = model_requirements(project, "bonsai2-27b-pb16i").requirements
    sealed = [need for need in asked if need.name is None]
    assert len(sealed) == 1
    one = replace(entry(16), sealed=sealed[0].sealed)
    register(project.registry_file, "npu2", {"bonsai2-27b-pb16i/pb16i_sealed.elf": one})
    after = bump(project, [tmp_path / "new"])
    assert (before.unbuilt, after.unbuilt) == (len(asked), len(asked) - 1)


def test_a_model_that_cannot_be_read_is_named_and_the_others_counted(project, tmp_path):
    two_models(project)
    (project.plans / "twin" / "roles.yaml").write_text("schema: [\n")
    candidate = bump(project, [real_wheel(tmp_path / "new").path])
    assert (candidate.models, candidate.unbuilt) == (1, TINY_NAMES)
    (note,) = candidate.notes
    assert note.startswith("model twin is not counted: ")
    assert "\n" not in note


def test_the_verb_says_what_is_not_built_yet(project, tmp_path, capsys):
    two_models(project)
    real_wheel(tmp_path / "new")
    words = ["toolchain", "bump", f"root={project.root}", f"wheels={tmp_path / 'new'}", f"out={tmp_path / 'c.lock'}"]
    assert main(words) == 0
    said = capsys.readouterr().out
    count = TINY_NAMES
    assert "0 recipes would change, under 0 names of registry.yaml\n" in said
    assert f"{count} of {count} names of the 2 models below plans/ have no npu2 recipe yet\n" in said
    assert main([*words, "--overwrite", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {key: report[key] for key in ("names", "recipes", "models", "wanted", "unbuilt")} == {
        "names": [],
        "recipes": 0,
        "models": 2,
        "wanted": count,
        "unbuilt": count,
    }


def test_the_verb_writes_the_candidate_and_never_the_lock_unless_told(project, tmp_path, capsys):
    fill_registry(project)
    real_wheel(tmp_path / "new")
    arguments = ["toolchain", "bump", f"root={project.root}", f"wheels={tmp_path / 'new'}"]
    out = tmp_path / "candidate.lock"
    assert main([*arguments, f"out={out}"]) == 0
    said = capsys.readouterr().out
    assert "3 recipes would change, under 3 names of registry.yaml: each holds its toolchain: wheels" in said
    assert "\n  full_i8_D_K17408_N5120_b8.elf\n" in said
    assert project.lock_file.read_text() == REAL_LOCK
    assert read_lock(out).target("npu2").digest[:12] in said
    assert main([*arguments, f"out={project.lock_file}"]) == 2
    assert "exists; name another file, or say --overwrite" in capsys.readouterr().err
    assert project.lock_file.read_text() == REAL_LOCK
    assert main([*arguments, f"out={project.lock_file}", "--overwrite", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["digest"] == read_lock(project.lock_file).target("npu2").digest
    assert report["changes"][0]["after"] == "mlir_aie-1.4.4-cp312-cp312-manylinux_2_35_x86_64.whl"


def test_the_verb_takes_several_files(project, tmp_path, capsys):
    one = real_wheel(tmp_path / "one").path
    two = make_wheel(tmp_path / "two", "aiofiles", "26.0", {}).path
    shutil.rmtree(project.out, ignore_errors=True)
    assert main(["toolchain", "bump", f"root={project.root}", f"wheels={one},{two}", f"out={tmp_path / 'c.lock'}"]) == 0
    assert "aiofiles: aiofiles-25.1.0-py3-none-any.whl -> aiofiles-26.0-py3-none-any.whl" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["wheels", "out"])
def test_the_verb_says_what_it_takes(missing, project, tmp_path, capsys):
    words = {"wheels": f"wheels={tmp_path}", "out": f"out={tmp_path / 'c.lock'}"}
    words.pop(missing)
    assert main(["toolchain", "bump", f"root={project.root}", *words.values()]) == 2
    assert "takes wheels=<files or a folder, comma between them> and out=<file>" in capsys.readouterr().err

"""Bump: a candidate lock from given wheels, and what it would change, before anything is built."""

import hashlib
import json
import shutil
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.io.canonical import canonical_json
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.registry import Entry, register
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.bump import bump, read_given, write_candidate
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


def test_the_candidate_pins_the_given_wheel_and_keeps_everything_else(project, tmp_path):
    wheel = real_wheel(tmp_path / "new")
    candidate = bump(project, [wheel.path])
    before, after = tomllib.loads(REAL_LOCK), tomllib.loads(candidate.text)
    row = after["target"]["npu2"]["wheels"][0]
    assert row == {
        "name": "mlir-aie",
        "version": "1.4.4",
        "file": "mlir_aie-1.4.4-cp312-cp312-manylinux_2_35_x86_64.whl",
        "url": "https://github.com/Xilinx/mlir-aie/releases/download/v1.4.4/mlir_aie-1.4.4-cp312-cp312-manylinux_2_35_x86_64.whl",
        "sha256": hashlib.sha256(wheel.path.read_bytes()).hexdigest(),
        "size": wheel.path.stat().st_size,
    }
    assert after["target"]["sim"] == before["target"]["sim"]
    assert after["target"]["npu2"]["wheels"][1:] == before["target"]["npu2"]["wheels"][1:]
    assert after["known_wheels"] == before["known_wheels"]
    assert candidate.digest == hashlib.sha256(canonical_json(after["target"]["npu2"])).hexdigest()
    # Comments stay: only the lines of that wheel differ.
    old, new = REAL_LOCK.splitlines(), candidate.text.splitlines()
    assert len([line for line in old if line.startswith("#")]) == len([line for line in new if line.startswith("#")])
    assert [c.name for c in candidate.changes] == ["mlir-aie"]
    assert candidate.notes == ()


def test_a_peano_nightly_keeps_its_address_with_the_plus_encoded(project, tmp_path):
    wheel = make_wheel(tmp_path / "new", "llvm_aie", "23.0.0.2026110101+abcdef01", {"llvm-aie/x": ""})
    row = tomllib.loads(bump(project, [tmp_path / "new"]).text)["target"]["npu2"]["wheels"][1]
    assert row["url"] == (
        "https://github.com/Xilinx/llvm-aie/releases/download/nightly/llvm_aie-23.0.0.2026110101%2Babcdef01-py3-none-any.whl"
    )
    assert row["file"] == wheel.path.name


def test_the_names_whose_recipes_change_are_listed_before_anything_is_built(project, tmp_path):
    names = fill_registry(project)
    candidate = bump(project, [real_wheel(tmp_path / "new").path])
    assert candidate.names == tuple(sorted(names))
    assert candidate.recipes == 3
    assert not project.toolchains.exists()


def test_the_same_wheel_changes_nothing(project, tmp_path):
    fill_registry(project)
    wheel = real_wheel(tmp_path / "new")
    write_candidate(bump(project, [wheel.path]), project.lock_file, overwrite=True)
    again = bump(project, [wheel.path])
    assert (again.digest, again.changes, again.names) == (again.digest_before, (), ())
    assert again.text == project.lock_file.read_text()


def test_another_python_tag_moves_the_python_and_names_what_no_longer_fits(project, tmp_path):
    wheel = real_wheel(tmp_path / "new", "1.5.0", tag="cp313-cp313-manylinux_2_35_x86_64")
    candidate = bump(project, [wheel.path])
    assert tomllib.loads(candidate.text)["target"]["npu2"]["python"] == "3.13"
    unfit = [note.partition(":")[0] for note in candidate.notes]
    assert [name.partition("-")[0] for name in unfit] == ["ml_dtypes", "numpy"]


@pytest.mark.parametrize(
    ("version", "generation", "said"),
    [("1.4.0", "get-full-elf", False), ("1.1.4", "generate-full-elf", False), ("1.3.1", "get-full-elf", True)],
)
def test_the_generation_of_aiecc_follows_the_release(version, generation, said, project, tmp_path):
    candidate = bump(project, [real_wheel(tmp_path / "new", version).path])
    assert tomllib.loads(candidate.text)["target"]["npu2"]["aiecc_generation"] == generation
    assert any("which command line its aiecc takes is not known" in note for note in candidate.notes) is said


def test_a_requirement_without_a_wheel_is_said(project, tmp_path):
    wheel = real_wheel(
        tmp_path / "new", requires=("numpy<3.0,>=2.5.1", "eudsl-python-extras", "newdep>=2", "pytest; extra == 'test'")
    )
    assert bump(project, [wheel.path]).notes == ("mlir-aie 1.4.4 requires newdep>=2, of which no wheel is pinned",)
    extra = make_wheel(tmp_path / "new", "newdep", "2.1", {"newdep.py": ""})
    candidate = bump(project, [tmp_path / "new"])
    assert candidate.notes == ()
    assert tomllib.loads(candidate.text)["target"]["npu2"]["wheels"][-1] == {
        "name": "newdep",
        "version": "2.1",
        "file": "newdep-2.1-py3-none-any.whl",
        "sha256": extra.sha256,
        "size": extra.path.stat().st_size,
    }
    assert [(c.name, c.before) for c in candidate.changes][-1] == ("newdep", None)


def test_a_known_wheel_without_its_pair_is_said(project, tmp_path):
    wheel = real_wheel(tmp_path / "new")
    text = REAL_LOCK + (
        f'\n[[known_wheels]]\nfile = "{wheel.path.name}"\nsha256 = "{wheel.sha256}"\n'
        'pairs_with = "llvm_aie-9-py3-none-any.whl"\naiecc_generation = "generate-full-elf"\n'
    )
    project.lock_file.write_text(text)
    candidate = bump(project, [wheel.path])
    assert f"{wheel.path.name} is known together with llvm_aie-9-py3-none-any.whl" in candidate.notes[0]
    assert tomllib.loads(candidate.text)["target"]["npu2"]["aiecc_generation"] == "generate-full-elf"


def test_other_bytes_under_the_name_of_a_known_wheel_are_said(project, tmp_path):
    # The lock knows this very file of release 1.1.4, by this digest.
    tag = "cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64"
    wheel = real_wheel(tmp_path / "new", "1.1.4", tag=tag)
    assert bump(project, [wheel.path]).notes == (
        (
            f"mlir_aie-1.1.4-{tag}.whl: toolchain.lock knows a file of this name with sha256 "
            f"933149c588c4eb1c6479f057453c6331e4ac036a09cfd82f567e4bd763873ce2, this one has {wheel.sha256}; "
            "find out which of the two upstream published"
        ),
    )


def test_other_bytes_under_the_name_of_a_pinned_wheel_are_said(project, tmp_path):
    wheel = make_wheel(tmp_path / "new", "aiofiles", "25.1.0", {"aiofiles.py": "evil = 1\n"})
    (note,) = bump(project, [wheel.path]).notes
    assert note.startswith("aiofiles-25.1.0-py3-none-any.whl: toolchain.lock knows a file of this name with sha256 ")
    assert f"abe311e527c862958650f9438e859c1fa7568a141b22abcd015e120e86a85695, this one has {wheel.sha256}" in note


def test_the_very_bytes_that_are_known_are_not_remarked_on(project, tmp_path):
    wheel = real_wheel(tmp_path / "new")
    project.lock_file.write_text(
        REAL_LOCK + f'\n[[known_wheels]]\nfile = "{wheel.path.name}"\nsha256 = "{wheel.sha256}"\n'
    )
    assert bump(project, [wheel.path]).notes == ()


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


def spoilt(folder, spoil):
    folder.mkdir()
    path = folder / "mlir_aie-1.4.4-py3-none-any.whl"
    spoil(path)
    return path


def other_metadata(path):
    make_wheel(path.parent, "mlir_aie", "1.4.4", {}, metadata="Metadata-Version: 2.1\nName: mlir-aie\nVersion: 1.4.5\n")


def no_metadata(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "")


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda path: path.write_bytes(b"no zip"), "not readable as a wheel"),
        (other_metadata, "METADATA: expected mlir-aie 1.4.4, found mlir-aie 1.4.5"),
        (no_metadata, "expected one .dist-info/METADATA, found 0"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(spoil, expected, tmp_path):
    with pytest.raises(Refused) as refused:
        read_given(spoilt(tmp_path / "new", spoil))
    assert expected in str(refused.value)


def test_a_truncated_wheel_is_refused(tmp_path):
    wheel = real_wheel(tmp_path / "new")
    wheel.path.write_bytes(wheel.path.read_bytes()[:-30])
    with pytest.raises(Refused, match="not readable as a wheel"):
        read_given(wheel.path)


def test_wheels_that_are_none(project, tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "absent", tmp_path / "empty"):
        with pytest.raises(Refused, match=r"^wheels: expected wheel files or a folder of them"):
            bump(project, [path])


def test_two_wheels_of_one_package_are_refused(project, tmp_path):
    real_wheel(tmp_path / "new")
    real_wheel(tmp_path / "new", "1.4.5")
    with pytest.raises(Refused, match="expected one wheel per package, found several of mlir-aie"):
        bump(project, [tmp_path / "new"])


def test_a_lock_laid_out_otherwise_is_not_half_edited(project, tmp_path):
    project.lock_file.write_text(REAL_LOCK.replace("[[target.npu2.wheels]]\n", "[[target.npu2.wheels]] # wheel\n", 1))
    with pytest.raises(Refused, match="not laid out as bump can edit"):
        bump(project, [real_wheel(tmp_path / "new").path])


def test_the_verb_writes_the_candidate_and_never_the_lock_unless_told(project, tmp_path, capsys):
    fill_registry(project)
    real_wheel(tmp_path / "new")
    arguments = ["toolchain", "bump", f"root={project.root}", f"wheels={tmp_path / 'new'}"]
    out = tmp_path / "candidate.lock"
    assert main([*arguments, f"out={out}"]) == 0
    said = capsys.readouterr().out
    assert "3 recipes would change, under 3 names of registry.yaml\n  full_i8_D_K17408_N5120_b8.elf\n" in said
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

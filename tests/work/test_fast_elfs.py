"""`elfs` with nothing to do is told from a kept answer: only while every input stands and every byte verifies."""

from __future__ import annotations

import json
import shutil

import pytest

from elfkiln.cli import main
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.registry import load_registry
from elfkiln.work import answers, build_state, fast_elfs
from elfkiln.work.build import build_elfs
from elfkiln.work.fast_elfs import UpToDate
from projects import TINY_NAMES, TINY_RECIPES

QKV = "full_i8_QKV_K256_N768_b8.elf"
NOTHING = f"{TINY_NAMES} names, {TINY_RECIPES} recipes: nothing to do, every ELF is registered and its bytes verify"


@pytest.fixture
def project(built):
    """A project in which all is built, and of which no answer is kept."""
    assert not built.index.exists()
    return built


def emptied(project):
    """Take away what was built."""
    shutil.rmtree(project.out)
    project.registry_file.unlink()


@pytest.fixture
def elfs(project, stand_in, monkeypatch):
    """Run the verb with the stand-in's builder."""
    monkeypatch.setattr("elfkiln.cli.elfs.builder_for", lambda *_: stand_in)

    def run(*words):
        return main(["elfs", f"root={project.root}", *(words or ("model=tiny",))])

    return run


def fast(project, *words):
    return fast_elfs.main([f"root={project.root}", *(words or ("model=tiny",))])


def test_after_a_build_the_fast_path_says_what_the_other_would(project, elfs, capsys, monkeypatch):
    emptied(project)
    assert fast(project) is None
    assert elfs() == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"{TINY_NAMES} built and registered, 0 up to date")
    assert fast(project) == 0
    kept = capsys.readouterr().out
    assert kept.splitlines()[-1] == NOTHING
    monkeypatch.setattr(fast_elfs, "main", lambda _: None)
    assert elfs() == 0
    assert capsys.readouterr().out == kept


def test_each_question_has_its_own_answer(project, elfs, capsys):
    assert elfs("model=tiny", "target=sim") == 0
    assert fast(project) is None
    assert fast(project, "model=tiny", "target=sim") == 0
    assert elfs("model=tiny", "layout=rm") == 0
    assert fast(project, "model=tiny", "layout=rm") == 0
    assert fast(project, "model=tiny", "layout=rm", "target=sim") is None
    capsys.readouterr()
    assert elfs("model=all") == 0
    assert fast(project, "model=all") == 0
    assert capsys.readouterr().out.splitlines()[-1] == NOTHING


@pytest.mark.parametrize(
    "words",
    [
        ["model=../tiny"],
        ["model=tiny", "layout=../rm"],
        ["model=tiny", "roles=any"],
        ["model=tiny", "--rebuild"],
        ["model=tiny", QKV],
        ["model=tiny", "model=tiny"],
        ["plan=tiny"],
        [],
    ],
)
def test_other_words_are_for_the_verb(project, elfs, words):
    assert elfs() == 0
    assert fast_elfs.main([f"root={project.root}", *words]) is None


def inputs(project):
    """Return every input below the root that a kept answer names."""
    text = (project.index / "elfs" / "tiny.txt").read_text()
    rows = [line.split("\t") for line in text.partition("\nanswer\n")[0].splitlines()[1:]]
    files = [row[1] for row in rows if row[0] in ("file", "bytes")]
    trees = [row[1] for row in rows if row[0] == "tree"]
    assert {row[0] for row in rows} <= {"file", "bytes", "tree", "folder", "python"}
    return files, trees


def test_every_input_of_a_recipe_is_an_input_of_the_answer(project, elfs):
    assert elfs() == 0
    files, trees = inputs(project)
    assert set(files) == {
        "registry.yaml",
        "toolchain.lock",
        "out/registry/index.json",
        "out/registry/index.added",
        "plans/tiny/plan.json",
        "plans/tiny/roles.yaml",
        "plans/tiny/decision_config.json",
    }
    # This package, and the folders the project of the tests is made of.
    assert set(trees) == {".", "generators", "templates", "kernels"}


def test_an_edit_of_any_input_is_seen(project, elfs):
    """In turn: each file of the project that a recipe could depend on, and those that are not there yet."""
    assert elfs() == 0
    files, trees = inputs(project)
    paths = [project.root / name for name in files]
    paths += [path for tree in trees if tree != "." for path in (project.root / tree).rglob("*") if path.is_file()]
    assert len(paths) > 15
    for path in paths:
        assert fast(project) == 0, path
        before = path.read_bytes() if path.exists() else None
        path.write_bytes((before or b"{}") + b"\n")
        assert fast(project) is None, path
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
        # The stamps are new, so it is worked out anew, and kept again.
        assert elfs() == 0


def test_other_code_or_packages_are_seen(project, elfs, monkeypatch, tmp_path):
    assert elfs() == 0
    with monkeypatch.context() as patched:
        patched.setattr(answers, "_PACKAGE", str(tmp_path))
        assert fast(project) is None
    with monkeypatch.context() as patched:
        patched.setattr(answers, "folder_stamp", lambda _: "1 2 3")
        assert fast(project) is None
    with monkeypatch.context() as patched:
        patched.setattr("sys.prefix", str(tmp_path))
        assert fast(project) is None
    assert fast(project) == 0


@pytest.mark.parametrize("part", ["elf", "manifest", "design", "recipe", "layers"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete", "link"])
def test_every_byte_of_every_blob_counts(project, elfs, capsys, part, damage, tmp_path):
    assert elfs() == 0
    entry = load_registry(project.registry_file).entries("sim")[QKV]
    if part == "layers":
        # One that the registry does not name itself.
        rest = json.loads((project.blobs / entry.manifest).read_bytes())["layers"][-1]["digest"]
        assert rest.removeprefix("sha256:") not in (entry.elf, entry.design)
        blob = project.blobs / rest.removeprefix("sha256:")
    else:
        blob = project.blobs / getattr(entry, part)
    data = blob.read_bytes()
    blob.unlink()
    match damage:
        case "flip":
            blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "cut":
            blob.write_bytes(data[:-1])
        case "link":
            (tmp_path / "same").write_bytes(data)
            blob.symlink_to(tmp_path / "same")
    assert fast(project) is None
    if part == "layers":
        # Nobody is held up by it, but it is not passed over either.
        assert elfs() == 0
        assert (fast(project) == 0) == (blob.is_file() and not blob.is_symlink() and blob.read_bytes() == data)
    elif damage != "link":
        capsys.readouterr()
        assert elfs() == 0
        assert blob.read_bytes() == data
        assert fast(project) == 0


def test_nothing_is_kept_while_something_is_to_do(project, elfs, stand_in):
    emptied(project)
    stand_in.fail_for = "768"
    assert elfs() == 1
    assert fast(project) is None
    assert not (project.index / "elfs").exists()


def test_nothing_is_kept_when_an_input_changes_meanwhile(project, elfs, monkeypatch):
    def meanwhile(*words, **options):
        found = build_elfs(*words, **options)
        source = next(project.kernels.glob("*.cc"))
        source.write_text(source.read_text() + "// edited\n")
        return found

    monkeypatch.setattr(build_state, "build_elfs", meanwhile)
    assert elfs() == 0
    assert fast(project) is None


def test_answers_that_contradict_each_other_are_for_the_verb():
    """One name under two recipes, as models ask for it with other columns; another toolchain; an unknown line."""
    one = ["headline\ta", "name\tx.elf\t1", "blob\t00\t5"]
    for other in (["headline\ta", "name\tx.elf\t2"], ["headline\tb"], ["nam\tx.elf\t1"], ["blob\t00\tfive"], [""]):
        state = UpToDate()
        assert state.add(one)
        assert not state.add(other)


def test_a_plans_notes_are_shown_again(project, elfs, capsys):
    assert elfs() == 0
    path = project.index / "elfs" / "tiny.txt"
    body = path.read_text().rpartition("sha256\t")[0]
    head, _, lines = body.removeprefix("elfkiln-answer/1\n").partition("\nanswer\n")
    rows = lines.split("\n")[:-1]
    path.write_bytes(answers.answer_bytes(head.split("\n"), [rows[0], "note\tplan.json: kvv: ignored", *rows[1:]]))
    capsys.readouterr()
    assert fast(project) == 0
    assert capsys.readouterr().err == "note: plan.json: kvv: ignored\n"


def test_an_answer_is_no_artifact(project, elfs):
    """Out of the way or not to be written, it only saves time."""
    project.index.parent.mkdir(parents=True, exist_ok=True)
    project.index.write_text("a file in place of the folder")
    assert elfs() == 0
    assert fast(project) is None
    project.index.unlink()
    assert elfs() == 0
    assert fast(project) == 0
    shutil.rmtree(project.index)
    assert elfs() == 0


def test_a_set_of_another_model_stays_its_own(project, elfs):
    (project.plans / "other").mkdir()
    text = (project.plans / "tiny" / "roles.yaml").read_text().replace("model: tiny", "model: other")
    (project.plans / "other" / "roles.yaml").write_text(text)
    assert elfs() == 0
    assert fast(project, "model=all") is None
    assert elfs("model=all") == 0
    assert fast(project, "model=other") == 0
    assert len(model_requirements(project, "other").requirements) == TINY_NAMES

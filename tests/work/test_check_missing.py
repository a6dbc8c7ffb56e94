"""check-missing: what is missing, what has other bytes, in the store and in a model folder, fast and never stale."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from elfkiln.cli import main
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work import fast_check
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from projects import TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"
TWIN = "full_i8_QKV_K256_N768_b8_m16.elf"


@pytest.fixture
def built(project, stand_in):
    build_elfs(project, stand_in, [model_requirements(project, "tiny")])
    return project


def check(project, *words):
    return main(["check-missing", f"root={project.root}", *words])


def overwrite(path, data):
    path.chmod(0o644)
    path.write_bytes(data)


def test_everything_there(built, capsys):
    assert check(built, "model=tiny") == 0
    assert capsys.readouterr().out == f"tiny: {TINY_NAMES} names, all there and their bytes verify (target sim)\n"


def test_nothing_built_names_every_gap_in_the_engines_words(project, capsys):
    assert check(project, "model=tiny") == 1
    lines = capsys.readouterr().out.splitlines()
    missing = [line for line in lines if line.startswith("missing full ELF ")]
    assert len(missing) == TINY_NAMES
    assert f"missing full ELF kernels/{QKV}" in missing
    assert f"missing full ELF kernels-m16/{TWIN}" in missing
    remedy = "run doit elfs model=tiny target=sim"
    assert lines[-1] == f"tiny: {TINY_NAMES} of {TINY_NAMES} names missing for target sim; {remedy}"


@pytest.mark.parametrize("damage", ["flip", "truncate", "stub", "empty", "delete"])
def test_a_blob_with_other_bytes_is_a_gap(built, capsys, damage):
    path = Store(built.store).path(load_registry(built.registry_file).entries("sim")[QKV].elf)
    data = path.read_bytes()
    # A first look writes the index: a later change of the bytes must show all the same.
    assert check(built, "model=tiny") == 0
    match damage:
        case "flip":
            overwrite(path, data[:50] + bytes([data[50] ^ 1]) + data[51:])
        case "truncate":
            overwrite(path, data[:-1])
        case "stub":
            overwrite(path, b"\x7fELF" + bytes(55))
        case "empty":
            overwrite(path, b"")
        case _:
            path.unlink()
    capsys.readouterr()
    assert check(built, "model=tiny") == 1
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"missing full ELF kernels/{QKV}"
    assert out.count("missing full ELF") == 1


def test_an_installed_set_is_checked_on_disk(built, capsys, tmp_path):
    folder = tmp_path / "model"
    install(built, "sim", model_requirements(built, "tiny"), folder)
    assert check(built, "model=tiny", f"dir={folder}") == 0
    target = folder / "kernels-m16" / TWIN
    data = target.read_bytes()
    target.unlink()
    capsys.readouterr()
    assert check(built, "model=tiny", f"dir={folder}") == 1
    assert f"missing full ELF {target}" in capsys.readouterr().out.splitlines()
    # The twin's name on the prefill ELF's bytes: there, readable, and wrong.
    target.write_bytes((folder / "kernels" / QKV).read_bytes())
    assert check(built, "model=tiny", f"dir={folder}") == 1
    assert "wrong bytes: expected sha256:" in capsys.readouterr().out
    target.write_bytes(data)
    assert check(built, "model=tiny", f"dir={folder}") == 0


def test_the_fast_path_answers_after_the_first_look_and_agrees(built, capsys):
    words = ["model=tiny", f"root={built.root}"]
    assert fast_check.main(words) is None
    assert check(built, "model=tiny") == 0
    slow = capsys.readouterr().out
    assert fast_check.main(words) == 0
    assert capsys.readouterr().out == slow


@pytest.mark.parametrize("changed", ["registry.yaml", "toolchain.lock", "plans/tiny/roles.yaml"])
def test_the_index_is_not_used_when_what_it_was_made_from_changed(built, capsys, changed):
    assert check(built, "model=tiny") == 0
    path = built.root / changed
    path.write_bytes(path.read_bytes() + b"# one more line\n")
    assert fast_check.read_index(str(built.root), "tiny") is None
    capsys.readouterr()
    assert check(built, "model=tiny") == 0
    assert fast_check.read_index(str(built.root), "tiny") is not None


def test_a_dropped_entry_is_seen_although_the_index_named_it(built, capsys):
    assert check(built, "model=tiny") == 0
    text = built.registry_file.read_text()
    start = text.index(f"    {QKV}:")
    built.registry_file.write_text(text[:start] + text[text.index("    full_i8_", start + 10) :])
    capsys.readouterr()
    assert check(built, "model=tiny") == 1
    assert f"missing full ELF kernels/{QKV}\n  not registered" in capsys.readouterr().out


def test_where_the_index_cannot_be_written_the_answer_comes_without_it(built, capsys):
    (built.out / "index").write_text("a file in place of the folder")
    assert check(built, "model=tiny") == 0
    assert "all there and their bytes verify" in capsys.readouterr().out


def test_a_disagreeing_decision_config_is_seen(built):
    """decision_config.json beside a plan must agree with it; the index names it among its sources."""
    assert check(built, "model=tiny") == 0
    (built.plans / "tiny" / "decision_config.json").write_text("{}")
    assert fast_check.read_index(str(built.root), "tiny") is None


@pytest.mark.parametrize("text", ["", "elfkiln-check-index/1\n", "elfkiln-check-index/1\nrow\tsim\n", "\x00", "end\n"])
def test_a_broken_index_is_written_anew(built, text):
    assert check(built, "model=tiny") == 0
    path = built.out / "index" / "tiny.txt"
    path.write_text(text)
    assert check(built, "model=tiny") == 0
    assert path.read_text().startswith("elfkiln-check-index/1\nsource\t")


def test_a_truncated_index_does_not_hide_names(built, capsys):
    assert check(built, "model=tiny") == 0
    path = built.out / "index" / "tiny.txt"
    text = path.read_text()
    path.write_text(text[: text.rindex("row\t")])
    Store(built.store).path(load_registry(built.registry_file).entries("sim")[TWIN].elf).unlink()
    capsys.readouterr()
    assert check(built, "model=tiny") == 1
    assert f"missing full ELF kernels-m16/{TWIN}" in capsys.readouterr().out


def test_json_for_machines(built, capsys):
    Store(built.store).path(load_registry(built.registry_file).entries("sim")[QKV].elf).unlink()
    assert check(built, "model=tiny", "--json") == 1
    table = json.loads(capsys.readouterr().out)
    assert table["missing"] == 1
    (model,) = table["models"]
    assert (model["model"], model["target"], model["names"]) == ("tiny", "sim", TINY_NAMES)
    (gap,) = model["gaps"]
    assert (gap["path"], gap["name"], gap["kind"]) == (f"kernels/{QKV}", QKV, "missing")


def test_all_models(built, capsys):
    assert check(built, "model=all") == 0
    assert "tiny: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "model= is needed"),
        (["model=nosuch"], "nosuch"),
        (["model=../../etc"], "model"),
        (["model=tiny", "target=gpu"], "target=gpu"),
        (["model=tiny", "layout=zz"], "layout"),
        (["modle=tiny"], "modle= is not an argument"),
        (["model=tiny", "--frobnicate"], "--frobnicate"),
        (["tiny"], "takes no plain words"),
    ],
)
def test_usage_that_cannot_be_honoured_is_code_2_and_one_line(built, capsys, words, says):
    assert check(built, *words) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_another_target_is_not_served(built, capsys):
    assert check(built, "model=tiny", "target=npu2") == 1
    assert capsys.readouterr().out.count("missing full ELF") == TINY_NAMES


def test_another_layout_of_the_table(built, capsys):
    assert check(built, "model=tiny", "layout=rm") == 1
    assert "missing full ELF kernels/full_i8_QKV_K256_N768.elf\n" in capsys.readouterr().out


def test_the_fast_path_imports_nothing_heavy(built):
    """The whole process, as a user runs it: neither doit, jinja2, yaml nor xdsl may be loaded."""
    assert check(built, "model=tiny") == 0
    program = (
        "import sys\n"
        "from elfkiln.cli import main\n"
        "code = main(['check-missing', 'model=tiny'])\n"
        "heavy = {'doit', 'jinja2', 'yaml', 'xdsl', 'numpy', 'json', 'argparse', 'rich', 'filelock'}\n"
        "print(sorted(heavy & set(sys.modules)), code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=built.root,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_the_project_is_found_from_a_folder_below(built, monkeypatch):
    monkeypatch.chdir(built.plans / "tiny")
    assert main(["check-missing", "model=tiny"]) == 0
    assert fast_check.main(["model=tiny"]) == 0

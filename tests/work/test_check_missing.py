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
from elfkiln.work import answers, check_index, fast_check
from elfkiln.work.install import install
from projects import TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"
TWIN = "full_i8_QKV_K256_N768_b8_m16.elf"


def check(project, *words):
    return main(["check-missing", f"root={project.root}", *words])


def kept(project, *words):
    return fast_check.read_wanted(answers.Proof(str(project.root)), "tiny", *(words or (None, None)))


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
    target.write_bytes((folder / "kernels" / QKV).read_bytes() + bytes(4096))
    assert check(built, "model=tiny", f"dir={folder}") == 1
    assert "  wrong bytes: " in capsys.readouterr().out
    target.write_bytes(b"\x7fELF" + bytes(55))
    assert check(built, "model=tiny", f"dir={folder}") == 1
    assert "  stub: expected a kernel ELF of at least 4096 bytes, found 59 bytes" in capsys.readouterr().out
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
    assert kept(built) is None
    capsys.readouterr()
    assert check(built, "model=tiny") == 0
    assert kept(built) is not None


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
    assert kept(built) is None


@pytest.mark.parametrize("text", ["", "elfkiln-answer/1\n", "elfkiln-answer/1\nrow\tsim\n", "\x00", "answer\n"])
def test_a_broken_index_is_written_anew(built, text):
    assert check(built, "model=tiny") == 0
    path = built.out / "index" / "check" / "tiny.txt"
    path.write_text(text)
    assert check(built, "model=tiny") == 0
    assert path.read_text().startswith("elfkiln-answer/1\n")
    assert kept(built) is not None


@pytest.mark.parametrize(
    "change", [("row\t", "rov\t"), ("\nset\t", "\nsat\t"), ("\tyes\t", "\tyes\tyes\t"), ("set\ttiny", "set\ttinz")]
)
def test_a_row_that_is_not_known_hides_no_name(built, change):
    """Sealed anew after the change, as another version would: what is not understood is not current."""
    assert check(built, "model=tiny") == 0
    path = built.out / "index" / "check" / "tiny.txt"
    body = path.read_text().rpartition("sha256\t")[0]
    inputs, _, lines = body.removeprefix("elfkiln-answer/1\n").partition("\nanswer\n")
    changed = f"\n{lines}".replace(*change, 1)[1:]
    assert changed != lines
    path.write_bytes(answers.answer_bytes(inputs.split("\n"), changed.split("\n")[:-1]))
    assert kept(built) is None or len(kept(built).rows) == TINY_NAMES
    assert check(built, "model=tiny") == 0


def test_a_truncated_index_does_not_hide_names(built, capsys):
    assert check(built, "model=tiny") == 0
    path = built.out / "index" / "check" / "tiny.txt"
    text = path.read_text()
    path.write_text(text[: text.rindex("row\t")])
    Store(built.store).path(load_registry(built.registry_file).entries("sim")[TWIN].elf).unlink()
    capsys.readouterr()
    assert check(built, "model=tiny") == 1
    assert f"missing full ELF kernels-m16/{TWIN}" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["store", "folder"])
def test_json_for_machines(built, capsys, tmp_path, where):
    """One form for `model=` with and without `dir=`; that of `plan=` is the same (tests/work/test_check_plan.py)."""
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    folder = tmp_path / "model"
    words = ["model=tiny"]
    if where == "folder":
        install(built, "sim", model_requirements(built, "tiny"), folder)
        words.append(f"dir={folder}")
        path, detail = f"{folder}/kernels/{QKV}", f"looked in {folder}/kernels"
        (folder / "kernels" / QKV).unlink()
    else:
        path, detail = f"kernels/{QKV}", f"blob sha256:{entry.elf} is not in the store"
        Store(built.store).path(entry.elf).unlink()
    gap = {
        "name": QKV,
        "path": path,
        "kind": "missing",
        "detail": detail,
        "expected": f"sha256:{entry.elf}",
        "found": None,
    }
    model = {"model": "tiny", "target": "sim", "layout": "b8", "names": TINY_NAMES, "gaps": [gap], "refused": None}
    assert check(built, *words, "--json") == 1
    assert json.loads(capsys.readouterr().out) == {
        "schema": "elfkiln-check-missing/1",
        "target": "sim",
        "dir": str(folder) if where == "folder" else None,
        "missing": 1,
        "models": [model],
    }


def test_all_models(built, capsys):
    for _ in ("worked out", "kept"):
        assert check(built, "model=all") == 0
        assert capsys.readouterr().out == f"tiny: {TINY_NAMES} names, all there and their bytes verify (target sim)\n"


def test_all_models_go_on_after_a_refused_one(built, capsys):
    """A broken table says so, in the words of its own refusal, and hides no other model; kept or not."""
    (built.plans / "a-broken").mkdir()
    (built.plans / "a-broken" / "plan.json").write_text("{")
    (built.plans / "z-folder" / "plan.json").mkdir(parents=True)
    Store(built.store).path(load_registry(built.registry_file).entries("sim")[QKV].elf).unlink()
    for _ in ("worked out", "kept"):
        assert check(built, "model=all") == 2
        captured = capsys.readouterr()
        assert captured.out.splitlines()[0] == f"missing full ELF kernels/{QKV}"
        assert f"tiny: 1 of {TINY_NAMES} names missing" in captured.out
        broken, folder = captured.err.splitlines()
        assert broken.startswith("elfkiln: ")
        assert "plan.json: expected JSON" in broken
        assert "z-folder/plan.json: not a regular file" in folder
    assert check(built, "model=all", "--json") == 2
    models = {one["model"]: one for one in json.loads(capsys.readouterr().out)["models"]}
    assert list(models) == ["a-broken", "tiny", "z-folder"]
    assert "expected JSON" in models["a-broken"]["refused"]
    assert (models["tiny"]["refused"], len(models["tiny"]["gaps"])) == (None, 1)
    assert fast_check.main(["model=all", f"root={built.root}"]) == 2


def place(kind, path):
    """Put what is not a regular file in place of one."""
    if path.exists():
        path.chmod(0o644)
        path.unlink()
    match kind:
        case "a folder":
            path.mkdir()
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to(path.parent / "nowhere")


KINDS = ["a folder", "a pipe", "a device", "a symbolic link that leads nowhere"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["store", "dir"])
def test_what_is_not_a_file_is_one_gap(built, capsys, tmp_path, kind, way):
    """Never waited for, never read, never `Is a directory`."""
    folder = tmp_path / "model"
    install(built, "sim", model_requirements(built, "tiny"), folder)
    digest = load_registry(built.registry_file).entries("sim")[QKV].elf
    words = ["model=tiny", f"dir={folder}"] if way == "dir" else ["model=tiny"]
    place(kind, folder / "kernels" / QKV if way == "dir" else Store(built.store).path(digest))
    for _ in ("worked out", "kept"):
        assert check(built, *words) == 1
        captured = capsys.readouterr()
        head, detail, closing = captured.out.splitlines()
        assert captured.err == ""
        assert head == "missing full ELF " + (f"{folder}/kernels/{QKV}" if way == "dir" else f"kernels/{QKV}")
        assert detail.startswith("  not a regular file: ")
        # A blob is never a link, wherever it leads; an engine follows one.
        assert detail.endswith("a symbolic link" if (way, kind) == ("store", "a device") else kind)
        assert closing.startswith(f"tiny: 1 of {TINY_NAMES} names missing for target sim; run doit ")


@pytest.mark.parametrize("way", ["store", "dir"])
def test_a_file_of_another_size_is_not_read(built, capsys, tmp_path, way):
    """100 GiB (a hole) under a name: the sizes tell."""
    folder = tmp_path / "model"
    install(built, "sim", model_requirements(built, "tiny"), folder)
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    path = folder / "kernels" / QKV if way == "dir" else Store(built.store).path(entry.elf)
    path.unlink()
    with path.open("wb") as stream:
        stream.truncate(100 << 30)
    words = ["model=tiny", f"dir={folder}"] if way == "dir" else ["model=tiny"]
    assert check(built, *words) == 1
    head, detail, _ = capsys.readouterr().out.splitlines()
    assert head.endswith(f"kernels/{QKV}")
    assert detail.startswith("  wrong bytes: expected ")
    assert detail.endswith(f"found {100 << 30} bytes")


@pytest.mark.parametrize("twin", ["kernels", "kernels-m16"])
def test_an_installed_set_is_walked_as_the_engine_does(built, capsys, tmp_path, twin):
    """Without a plan the engine looks for a twin in kernels first: a stub there hides the right file."""
    folder = tmp_path / "model"
    install(built, "sim", model_requirements(built, "tiny"), folder)
    if twin == "kernels":
        (folder / "kernels-m16" / TWIN).rename(folder / "kernels" / TWIN)
        assert check(built, "model=tiny", f"dir={folder}") == 0
        return
    (folder / "kernels" / TWIN).write_bytes(b"\x7fELF")
    assert check(built, "model=tiny", f"dir={folder}") == 1
    head, detail, _ = capsys.readouterr().out.splitlines()
    assert head == f"missing full ELF {folder}/kernels/{TWIN}"
    assert detail.startswith(f"  shadowed: the registered file is {folder}/kernels-m16/{TWIN}, but the engine opens")


def test_while_others_register_it_looks_again_itself(built, monkeypatch):
    """Twice the registry changes while it is read; the third look stands, and is kept."""
    original, looks = check_index._model_rows, []

    def meanwhile(project, *words, **options):
        found = original(project, *words, **options)
        looks.append(found)
        if len(looks) < 3:
            project.registry_file.write_text(project.registry_file.read_text() + "# registered\n")
        return found

    monkeypatch.setattr(check_index, "_model_rows", meanwhile)
    assert check(built, "model=tiny") == 0
    assert len(looks) == 3
    assert kept(built) is not None


def test_while_others_never_stop_the_answer_is_that_of_one_registry(built, monkeypatch):
    original = check_index._model_rows

    def meanwhile(project, *words, **options):
        project.registry_file.write_text(project.registry_file.read_text() + "# registered\n")
        found = original(project, *words, **options)
        project.registry_file.write_text(project.registry_file.read_text() + "# registered\n")
        return found

    monkeypatch.setattr(check_index, "_model_rows", meanwhile)
    assert check(built, "model=tiny") == 0
    assert kept(built) is None


def test_a_path_is_never_raw_on_the_terminal(built, capsys, tmp_path):
    folder = tmp_path / "a\x1b[31mb\nc"
    folder.mkdir()
    assert check(built, "model=tiny", f"dir={folder}") == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("\n") == 2 * TINY_NAMES + 1


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

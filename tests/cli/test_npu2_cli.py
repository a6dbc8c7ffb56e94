"""`elfkiln toolchain install|status|mirror`: what is printed, and the exit codes."""

import json
import shutil
import sys

import pytest

from elfkiln.cli import main
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2.interpreter import variable_name
from npu2_standins import PYTHON, make_standins


@pytest.fixture(scope="module")
def standins(tmp_path_factory):
    return make_standins(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def project(standins, tmp_path, monkeypatch):
    monkeypatch.setenv(variable_name(PYTHON), sys.executable)
    return standins.project(tmp_path / "project")


def run(project, *words):
    return main(["toolchain", words[0], f"root={project.root}", *words[1:]])


def test_from_nothing_to_installed_to_changed(project, standins, capsys):
    digest = read_lock(project.lock_file).target("npu2").digest
    assert run(project, "status", "target=npu2") == 1
    assert (
        f"state    not installed, not usable: toolchain npu2 {digest[:12]} is not installed" in capsys.readouterr().out
    )

    assert run(project, "install", "target=npu2", f"wheels={standins.folder}") == 0
    output = capsys.readouterr()
    version = ".".join(map(str, sys.version_info[:3]))
    versions = f"mlir-aie 1.4.3, llvm-aie 22.0.0+02be6fd8, Python {version}"
    assert output.out == f"target npu2: {versions} is installed (toolchain {digest[:12]})\n"
    assert "toolchain: installing 3 wheels\n" in output.err

    assert run(project, "install", "target=npu2", f"wheels={standins.folder}", "--json") == 0
    assert json.loads(capsys.readouterr().out)["digest"] == digest

    assert run(project, "status", "target=npu2") == 0
    said = capsys.readouterr().out
    assert f"  digest   {digest}\n  state    installed, usable\n  mirror   none" in said

    assert run(project, "mirror", f"wheels={standins.folder}") == 0
    assert capsys.readouterr().out == f"mirror toolchain-{digest}: 3 wheels stored, 0 were there\n"

    tool = (
        project.toolchains
        / digest
        / "venv"
        / "lib"
        / f"python{PYTHON}"
        / "site-packages"
        / "mlir_aie"
        / "bin"
        / "aiecc"
    )
    with tool.open("a") as stream:
        stream.write("# replaced at 18:08\n")
    assert run(project, "status", "--json") == 0
    rows = {row["target"]: row for row in json.loads(capsys.readouterr().out)["targets"]}
    assert set(rows) == {"npu2", "sim"}
    assert rows["npu2"]["installed"] is True
    assert rows["npu2"]["usable"] is False
    assert rows["npu2"]["mirrored"] is True
    assert rows["npu2"]["reason"].startswith("aiecc: venv/lib/python")
    assert rows["sim"]["default"] is True
    assert rows["sim"]["versions"].startswith("ziglang 0.17.1")
    assert rows["sim"]["mirrored"] is None


def test_target_sim_needs_no_install(project, capsys):
    assert run(project, "install") == 0
    assert capsys.readouterr().out.startswith("target sim: ziglang 0.17.1")


def test_a_wrong_wheel_is_one_line_and_exit_code_2(project, standins, tmp_path, capsys):
    folder = tmp_path / "wheels"
    shutil.copytree(standins.folder, folder)
    path = folder / "tinydep-1.0-py3-none-any.whl"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    assert run(project, "install", "target=npu2", f"wheels={folder}") == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("toolchain: ")]
    assert len(said) == 1
    assert "tinydep-1.0-py3-none-any.whl: sha256: expected " in said[0]
    assert not (project.toolchains / read_lock(project.lock_file).target("npu2").digest).exists()


def test_a_missing_wheel_is_exit_code_1(project, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert run(project, "install", "target=npu2", f"wheels={tmp_path / 'empty'}") == 1
    assert "3 of 3 pinned wheels missing there and in the mirror" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["upgrade"], "takes one of install, status, mirror, bump, found upgrade"),
        (["status", "wheels=x"], "toolchain status: takes no wheels="),
        (["install", "out=x"], "toolchain install: takes no out="),
        (["install", "--overwrite"], "toolchain install: takes no --overwrite"),
        (["install", "target=npu2", "wheels=absent"], "wheels=absent: not a folder"),
        (["install", "target=npu3"], "target=npu3: expected one of npu2, sim"),
        (["status", "target=npu3"], "target=npu3: expected one of npu2, sim"),
        (["mirror", "target=sim"], "target sim has no wheels of its own to mirror"),
    ],
)
def test_what_cannot_be_honoured_is_refused(words, said, project, capsys):
    assert run(project, *words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_broken_section_does_not_hide_the_other_target(project, capsys):
    text = project.lock_file.read_text().replace('peano = "llvm-aie"\n', "")
    project.lock_file.write_text(text)
    assert run(project, "status") == 0
    said = capsys.readouterr().out
    assert "sim (default)" in said
    assert "found no peano" in said

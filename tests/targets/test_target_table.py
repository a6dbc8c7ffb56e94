"""A target is one row of a table: everything else finds it by its name, and a name without a row is refused."""

from __future__ import annotations

import ast
import json

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.lint import TARGETS as LINT_TARGETS
from elfkiln.targets.table import HOST, TARGETS, builder_for, open_elf, target_named
from mini_target import TARGET as MINI
from projects import CHECKOUT, TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture
def mini(project, monkeypatch):
    """The project with a third target: its row in the table, its section in toolchain.lock."""
    monkeypatch.setitem(TARGETS, "mini", MINI)
    with project.lock_file.open("a") as lock:
        lock.write('\n[target.mini]\nversion = "1.0"\n')
    return project


def run(capsys, *words):
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_rows_are_the_locked_targets_and_bear_their_own_names():
    assert set(TARGETS) == {"npu2", "sim"}
    for name, target in TARGETS.items():
        assert (target.name, target.capabilities.target) == (name, name)
        assert target.lint_name in LINT_TARGETS
        assert target.kind in target.kinds
    assert HOST is TARGETS["sim"]


def test_a_third_target_is_one_row(mini, capsys, tmp_path):
    root = f"root={mini.root}"
    set_of = ("model=tiny", "target=mini", root)
    code, out, err = run(capsys, "elfs", *set_of)
    assert (code, err) == (0, "")
    assert out.startswith("target mini, toolchain ")
    assert f"{TINY_NAMES} names, 6 recipes: {TINY_NAMES} built and registered" in out
    code, out, _ = run(capsys, "elfs", *set_of)
    assert (code, "nothing to do" in out) == (0, True)
    code, out, _ = run(capsys, "lookup", *set_of, "--json")
    rows = json.loads(out)
    assert (code, {row["target"] for row in rows}, len(rows)) == (0, {"mini"}, TINY_NAMES)
    code, out, _ = run(capsys, "check-missing", *set_of)
    assert (code, out) == (0, f"tiny: {TINY_NAMES} names, all there and their bytes verify (target mini)\n")
    # Nothing of it is served for another target.
    code, out, _ = run(capsys, "check-missing", "model=tiny", "target=sim", root)
    assert (code, out.count("missing full ELF")) == (1, TINY_NAMES)
    folder = tmp_path / "model"
    code, _, _ = run(capsys, "install", *set_of, f"dir={folder}")
    installed = folder / "kernels" / QKV
    assert (code, installed.is_file()) == (0, True)
    code, out, _ = run(capsys, "inspect", str(installed), "target=mini")
    assert (code, out.startswith(f"{QKV}: mini, ")) == (0, True)
    code, out, _ = run(capsys, "inspect", str(installed), "target=npu2")
    assert (code, "mini: expected an ELF of target npu2, found a mini ELF" in out) == (1, True)
    code, out, _ = run(capsys, "inspect", str(installed), "name=full_i8_QKV_K256_N512_b8.elf")
    assert (code, "fault: " in out) == (1, True)
    code, out, _ = run(capsys, "explain", QKV, "target=mini", root)
    assert (code, f"{QKV} (target mini): up to date" in out) == (0, True)
    code, out, _ = run(capsys, "toolchain", "status", "target=mini", root)
    assert (code, out.startswith("mini: mini 1.0\n")) == (0, True)
    code, out, _ = run(capsys, "toolchain", "install", "target=mini", root)
    assert (code, out.startswith("target mini: mini 1.0 is installed")) == (0, True)


def test_a_target_without_a_row_is_refused_by_name(project, capsys):
    with project.lock_file.open("a") as lock:
        lock.write('\n[target.gpu]\nversion = "1.0"\n')
    for words in (("elfs", "model=tiny"), ("explain", QKV), ("toolchain", "status")):
        code, out, err = run(capsys, *words, "target=gpu", f"root={project.root}")
        assert (code, out, err) == (2, "", "elfkiln: target: expected one of npu2, sim, found gpu\n")
    for refused in (lambda: target_named("gpu"), lambda: builder_for(project, "gpu"), lambda: open_elf("gpu", "x")):
        with pytest.raises(Refused, match="target: expected one of npu2, sim, found gpu"):
            refused()


def test_a_target_without_a_section_of_the_lock_is_refused(project, capsys, monkeypatch):
    monkeypatch.setitem(TARGETS, "mini", MINI)
    code, _, err = run(capsys, "elfs", "model=tiny", "target=mini", f"root={project.root}")
    assert (code, err) == (2, "elfkiln: target=mini: expected one of npu2, sim, found mini\n")


def compared(source):
    """Return the lines of a source that compare anything with the name of a target."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        for side in ast.walk(node)
        if isinstance(side, ast.Constant) and side.value in ("sim", "npu2")
    ]


def test_nothing_compares_with_a_targets_name():
    assert compared('x = 1\nif target != "npu2": pass\nif a in ("sim", "b"): pass') == [2, 3]
    package = CHECKOUT / "src" / "elfkiln"
    # The device of an MLIR module is named npu2 too.
    found = {str(path.relative_to(package)): compared(path.read_text()) for path in package.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}

"""Where things lie: each path is spelt once, and a root that was named is a checkout or is refused."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elfkiln.cli import main
from elfkiln.cli.verbs import VERBS
from elfkiln.errors import Refused
from elfkiln.project import Project, find_project, find_root, named_project
from projects import CHECKOUT, make_project

PACKAGE = CHECKOUT / "src" / "elfkiln"
NAMES = {"out", "registry", "blobs", "sha256", "plans", "registry.yaml", "toolchain.lock", "out/registry"}
NAMES |= {"blobs/sha256", "out/index"}
# Words that name folders elsewhere too: only below out/ are they meant.
BELOW_OUT = {"index", "work", "locks", "cache", "toolchains", "logs"}


def spelt_paths(source: str) -> list[str]:
    """Return the names of project folders that a source joins to a path itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            right = node.right.value if isinstance(node.right, ast.Constant) else None
            if right in BELOW_OUT and "out" in ast.unparse(node.left).replace("'", ".").split("."):
                found.append(right)
            parts = [node.right]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("join", "joinpath")
        ):
            parts = list(node.args)
        else:
            continue
        found += [part.value for part in parts if isinstance(part, ast.Constant) and part.value in NAMES]
    return found


def test_paths_of_a_project_are_spelt_in_project_py_alone():
    found = {path.relative_to(PACKAGE).as_posix(): spelt_paths(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert {place: names for place, names in found.items() if names and place != "project.py"} == {}


@pytest.mark.parametrize(
    "line",
    ['project.root / "out"', 'project.out / "work"', 'os.path.join(root, "out", "registry")', 'a / "blobs" / "sha256"'],
)
def test_the_fence_sees_a_path_that_is_spelt_again(line):
    assert spelt_paths(line)


def test_the_paths_are_those_that_the_documents_name(tmp_path):
    project = Project(tmp_path)
    lie = {
        "registry_file": "registry.yaml",
        "lock_file": "toolchain.lock",
        "store": "out/registry",
        "blobs": "out/registry/blobs/sha256",
        "index": "out/index",
        "work": "out/work",
        "locks": "out/locks",
        "cache": "out/cache",
        "logs": "out/logs",
        "toolchains": "out/toolchains",
        "plans": "plans",
        "kernels": "kernels",
        "templates": "templates",
    }
    assert {name: getattr(project, name).relative_to(tmp_path).as_posix() for name in lie} == lie


def test_the_fast_path_gets_the_paths_without_heavy_imports():
    program = (
        "import sys, elfkiln.project; print(sorted({'pathlib', 'dataclasses', 'typing', 're'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(CHECKOUT / 'src')!r}); {program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_nearest_folder_upwards_is_the_project(tmp_path):
    project = make_project(tmp_path / "kiln")
    inner = project.plans / "tiny"
    assert find_project(inner) == project
    assert find_root(str(inner)) == str(project.root)
    assert find_root(str(tmp_path)) is None


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_checkout_whose_lock_is_not_a_file_is_not_passed_over(tmp_path, make, monkeypatch, capsys):
    """The checkout above it, or the one this package lies in, would answer in its place."""
    project = make_project(tmp_path / "outer" / "inner")
    make_project(tmp_path / "outer")
    project.lock_file.unlink()
    make(project.lock_file)
    monkeypatch.chdir(project.plans)
    assert find_project() == project
    assert main(["toolchain", "status"]) == 2
    assert f"{project.lock_file}: not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("make", ["folder", "file", "absent", "inside", "lock is a folder"])
def test_a_named_root_that_is_no_checkout_is_refused(tmp_path, make):
    """Nothing is looked for above it, or where this package lies: that would be another checkout's answer."""
    place = tmp_path / "there"
    if make == "folder":
        place.mkdir()
    elif make == "file":
        place.write_text("")
    elif make == "inside":
        place = make_project(tmp_path / "kiln").plans / "tiny"
    elif make == "lock is a folder":
        (place / "toolchain.lock").mkdir(parents=True)
    with pytest.raises(
        Refused, match=r"^root: expected an elfkiln checkout, with a toolchain\.lock, found no"
    ) as caught:
        named_project(str(place))
    assert str(place) in str(caught.value)


# Verbs that take root=, with the least that makes them ask for the project.
WORDS = {
    "list": [],
    "check-missing": ["model=tiny"],
    "elfs": ["model=tiny"],
    "lookup": ["model=tiny"],
    "install": ["model=tiny", "dir=x"],
    "verify": ["model=tiny"],
    "explain": ["full_i8_G_K256_N512_b8.elf"],
    "report": ["model=tiny"],
    "toolchain": ["status"],
}


@pytest.mark.parametrize("verb", WORDS)
def test_no_verb_answers_for_another_checkout(verb, tmp_path, capsys, monkeypatch):
    assert verb in VERBS
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    assert main([verb, *WORDS[verb], "root=elsewhere"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "elfkiln: root: expected an elfkiln checkout, with a toolchain.lock, found none in elsewhere\n",
    )


def test_a_copy_without_its_lock_is_refused_too(project, capsys):
    shutil.move(project.lock_file, project.root / "old.lock")
    assert main(["list", f"root={project.root}"]) == 2
    assert "toolchain.lock" in capsys.readouterr().err

"""What each verb imports, counted: time is not asked, so that a busy machine does not fail it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from elfkiln.cli import main
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from projects import StandInBuilder, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"
# Counts the modules that a verb loads beyond those Python starts with, and names those of a list among them.
PROGRAM = """\
import sys
before = set(sys.modules)
from elfkiln.cli import main
output, sys.stdout = sys.stdout, open("/dev/null", "w")
code = main(sys.argv[2:])
loaded = set(sys.modules) - before
named = {name.partition(".")[0] for name in loaded} & set(sys.argv[1].split(","))
print(code, len(loaded), *sorted(named), file=output)
"""
# A quick verb starts in the time of Python alone: not even json, dataclasses or pathlib.
QUICK = {"json", "re", "dataclasses", "typing", "pathlib", "enum", "functools", "collections", "hashlib", "threading"}
# A verb that only reads tables needs none of these.
HEAVY = {"doit", "jinja2", "numpy", "xdsl", "elftools", "urllib3", "cryptography", "rich", "subprocess", "http", "zig"}
# Verb and words -> modules, and which of the heavy ones. Measured with Python 3.11, and a tenth more.
BUDGETS = [
    (["check-missing", "model=tiny"], 20, QUICK | HEAVY),
    (["elfs", "model=tiny"], 20, QUICK | HEAVY),
    (["--help"], 50, HEAVY),
    (["lookup", "--help"], 50, HEAVY),
    (["frobnicate"], 60, HEAVY),
    (["check-missing", "model=tiny", "roles=known"], 225, HEAVY),
    (["lookup", "model=tiny"], 220, HEAVY),
    (["lookup", QKV], 220, HEAVY),
    (["list"], 220, HEAVY),
    (["install", "model=tiny", "dir={folder}"], 220, HEAVY),
    (["resolve", QKV, "model=tiny", "dir={folder}"], 220, HEAVY),
    (["report", "model=tiny"], 530, HEAVY - {"jinja2", "subprocess", "xdsl"}),
    (["diff", "tiny", "tiny"], 220, HEAVY),
    (["cross-check"], 220, HEAVY),
    (["compare-runs", "--self-test"], 220, HEAVY),
    (["explain", QKV], 560, HEAVY - {"jinja2", "numpy", "subprocess", "xdsl"}),
    (["toolchain", "status", "target=sim"], 270, HEAVY - {"subprocess"}),
    (["kv-gate"], 340, HEAVY - {"numpy", "subprocess"}),
    (["fsck"], 340, HEAVY - {"rich", "subprocess"}),
    (["keygen", "{folder}.key"], 265, HEAVY - {"cryptography"}),
]
ROOTLESS = {"--help", "frobnicate", "cross-check", "compare-runs", "kv-gate", "keygen"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project whose tiny model is built, installed, and known to have nothing to build or miss."""
    folder = tmp_path_factory.mktemp("world")
    project = make_project(folder / "project")
    stand_in = StandInBuilder(read_lock(project.lock_file).target())
    build_elfs(project, stand_in, [model_requirements(project, "tiny")])
    install(project, "sim", model_requirements(project, "tiny"), folder / "model")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.cli.elfs.builder_for", lambda *_: stand_in)
        for verb in ("elfs", "check-missing"):
            assert main([verb, "model=tiny", f"root={project.root}"]) == 0
    return project, folder / "model"


@pytest.mark.parametrize(("words", "most", "heavy"), BUDGETS, ids=[" ".join(words) for words, _, _ in BUDGETS])
def test_what_a_verb_imports(world, words, most, heavy):
    project, folder = world
    given = [word.format(folder=folder) for word in words]
    if words[0] not in ROOTLESS and "--help" not in words:
        given.append(f"root={project.root}")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(heavy), *given],
        cwd=project.root,
        env={"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    code, count, *found = done.stdout.split()
    assert found == []
    assert int(count) <= most
    assert code == {"frobnicate": "2", "explain": "1", "cross-check": "1"}.get(words[0], "0")


def test_the_command_ends_a_quick_verb_without_ceremony(world):
    """The installed script: no module that pip's own would import, and the exit code of the verb."""
    project, _ = world
    script = os.path.join(os.path.dirname(sys.executable), "elfkiln")
    for model, code in (("tiny", 0), ("nosuch", 2)):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", script, "check-missing", f"model={model}", f"root={project.root}"],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code
        if code == 0:
            assert done.stdout == "tiny: 8 names, all there and their bytes verify (target sim)\n"
            loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
            assert "elfkiln.work.fast_check" in loaded
            assert QUICK & loaded == set()

"""`elfs --dry-run`: what would be built and why, and nothing is; -k and --fail-fast."""

from __future__ import annotations

import json

import pytest

from elfkiln.cli import main
from elfkiln.models.catalogue import model_requirements
from elfkiln.work.build import build_elfs
from projects import TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture
def run(project, stand_in, monkeypatch, capsys):
    """Run elfs with words and return the exit code and what is printed."""
    monkeypatch.setattr("elfkiln.cli.elfs.builder_for", lambda *_: stand_in)

    def call(*words):
        code = main(["elfs", "model=tiny", f"root={project.root}", *words])
        return code, capsys.readouterr()

    return call


def test_it_says_what_would_be_built_and_builds_nothing(project, stand_in, run):
    code, printed = run("--dry-run")
    lines = printed.out.splitlines()
    assert code == 0
    assert lines[0].startswith("target sim, toolchain ")
    assert f"{QKV}: would be built: no recipe of target sim to compare with" in lines
    assert lines[-1] == f"{TINY_NAMES} names: {TINY_NAMES} would be built; nothing was built"
    assert stand_in.built == []
    assert not project.registry_file.exists() or "sha256" not in project.registry_file.read_text()
    assert list(project.blobs.glob("*")) == []


def test_it_names_the_input_that_changed_and_leaves_out_what_is_up_to_date(project, stand_in, run):
    build_elfs(project, stand_in, [model_requirements(project, "tiny")])
    code, printed = run("--dry-run")
    assert (code, printed.out.splitlines()[1:]) == (0, [f"{TINY_NAMES} names: 8 up to date; nothing was built"])
    built = len(stand_in.built)
    stand_in.source = "2" * 64
    code, printed = run("--dry-run", "--json")
    found = json.loads(printed.out)["dry_run"]
    assert {(one["state"], one["why"]) for one in found} == {
        ("would be built", "would be built: out.elf: stand-in changed")
    }
    assert len(found) == TINY_NAMES
    assert len(stand_in.built) == built


def test_fail_fast_and_k(stand_in, run):
    stand_in.fail_for = "M, K, N = 128, 256, 768"
    code, printed = run("--fail-fast", "-n1")
    assert code == 1
    assert "not built: stopped at the first failure; run again" in printed.out
    code, printed = run("-k")
    assert code == 1
    assert "stopped" not in printed.out
    assert printed.out.splitlines()[-1].endswith("1 failed")
    code, printed = run("-k", "--fail-fast")
    assert code == 2
    assert printed.err.startswith("elfkiln: elfs: -k and --fail-fast: expected one of them")

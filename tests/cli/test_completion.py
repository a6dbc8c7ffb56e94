"""Shell completion: what a word may become, and the script of a shell that is here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elfkiln.cli import main
from elfkiln.cli.completion import SCRIPTS, candidates
from elfkiln.cli.verbs import VERBS
from projects import CHECKOUT

QKV = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture
def here(built, tmp_path, monkeypatch):
    """A project in which `tiny` is built, entered."""
    monkeypatch.chdir(built.root)
    (tmp_path / "some model").mkdir()
    return built


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["exp"], ["explain", "export"]),
        (["nosuch", ""], []),
        (["elfs", "mo"], ["model="]),
        (["elfs", "model="], ["model=all", "model=tiny"]),
        (["elfs", "model=t"], ["model=tiny"]),
        (["elfs", "model=tiny", "mo"], []),
        (["check-missing", "target="], ["target=npu2", "target=sim"]),
        (["check-missing", "layout=p"], ["layout=pb16i"]),
        (["check-missing", "pmode="], []),
        (["plan", "decode="], ["decode=false", "decode=true"]),
        (["elfs", "--m"], ["--must-hit"]),
        (["lint", "-"], ["--help", "--json"]),
        (["toolchain", "st"], ["status"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
        (["diff", "ti"], ["tiny"]),
        (["explain", "full_i8_QKV"], [QKV, "full_i8_QKV_K256_N768_b8_m16.elf"]),
        (["install", "dir=pl"], ["dir=plans/"]),
        (["lint", "plans/tiny/r"], ["plans/tiny/roles.yaml"]),
        (["plan", "--out", "tool"], ["toolchain.lock"]),
        (["draw", "full_i8_D", "out=re"], ["out=registry.yaml"]),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_a_word_may_become(words, found):
    assert candidates(words) == found


def test_outside_a_checkout_there_are_no_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert candidates(["elfs", "model="]) == ["model=all"]
    assert candidates(["explain", "full"]) == []


def test_an_empty_line_gets_every_verb():
    assert candidates([""]) == sorted(VERBS) == candidates([])


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_script_of_a_shell(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "elfkiln completion candidates" in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=60)
    assert main(["completion", "tcsh"]) == 2
    assert "expected one of bash, fish, zsh, found tcsh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("elfkiln check-m", ["check-missing"]),
        ("elfkiln elfs model=", ["all", "tiny"]),
        ("elfkiln elfs model=ti", ["tiny"]),
        ("elfkiln elfs ta", ["target="]),
        ("elfkiln lint plans/", ["plans/tiny/"]),
        ("elfkiln nosuch x", []),
    ],
)
def test_bash_completes_a_line(here, line, reply):
    """Bash splits at `=`: what it is given back is the part behind it."""
    script = "\n".join(
        [
            f"PATH={Path(sys.executable).parent}:$PATH",
            SCRIPTS["bash"],
            f"COMP_LINE={line!r} COMP_POINT={len(line)}",
            "_elfkiln; printf '%s\\n' \"${COMPREPLY[@]}\"",
        ]
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=here.root,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == reply


def test_the_reference_is_the_one_the_table_gives(capsys):
    """`elfkiln help reference > docs/reference.md` writes it anew."""
    assert main(["help", "reference"]) == 0
    text = (CHECKOUT / "docs" / "reference.md").read_text()
    assert capsys.readouterr().out == text
    assert max(map(len, text.splitlines())) <= 100
    for name, verb in VERBS.items():
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert all(f"- `{key}=`:" in section for key in verb.spec.keys), name
        assert verb.differs in " ".join(section.split())

"""What a person sees of elfs, check-missing and lookup, to the letter: on a pseudo-terminal and without one."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from elfkiln.models.catalogue import model_requirements
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from projects import SUPPORT
from terminal import run_on_terminal

QKV, G, U, D = (
    f"full_i8_{role}_{shape}_b8"
    for role, shape in (("QKV", "K256_N768"), ("G", "K256_N512"), ("U", "K256_N512"), ("D", "K512_N256"))
)
# The verb as it is, but for the builder: it needs no compiler, and fails where it is told to.
PROGRAM = """\
import sys
sys.path.insert(0, {support!r})
import elfkiln.cli.elfs
from elfkiln.cli import main
from elfkiln.project import find_project
from elfkiln.store.toolchain_lock import read_lock
from projects import StandInBuilder
builder = StandInBuilder(read_lock(find_project({root!r}).lock_file).target("sim"), fail_for={fail!r})
elfkiln.cli.elfs.builder_for = lambda *_: builder
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(params=["terminal", "pipe"])
def seen(request, project):
    """Run a verb and return what is seen of it, line by line, and its exit code; on a terminal also all it wrote."""

    def run(*words, fail=""):
        program = PROGRAM.format(support=str(SUPPORT), root=str(project.root), fail=fail)
        command = [sys.executable, "-c", program, *words, f"root={project.root}"]
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        if request.param == "terminal":
            session = run_on_terminal(command, cwd=project.root, env=env)
            return session.lines, session.code, session.raw
        done = subprocess.run(
            command, cwd=project.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )
        assert "\x1b" not in done.stdout
        return done.stdout.splitlines(), done.returncode, None

    return run


def headline(project):
    return f"target sim, toolchain {read_lock(project.lock_file).target('sim').digest[:12]} (stand-in 1.0)"


def test_a_build_and_a_second_one(project, seen):
    lines, code, raw = seen("elfs", "model=tiny", "-n", "1")
    assert (code, lines) == (
        0,
        [
            headline(project),
            f"[1/6] built {QKV}.elf",
            f"[2/6] built {G}.elf, {U}.elf",
            f"[3/6] built {D}.elf",
            f"[4/6] built {QKV}_m16.elf",
            f"[5/6] built {G}_m16.elf, {U}_m16.elf",
            f"[6/6] built {D}_m16.elf",
            "8 names, 6 recipes: 8 built and registered, 0 up to date",
        ],
    )
    if raw is not None:
        # The cursor is hidden while the live line moves, and is there again at the end.
        assert raw.rindex("\x1b[?25h") > raw.rindex("\x1b[?25l")
        assert raw.count("\x1b[?25h") == raw.count("\x1b[?25l")
    nothing = [headline(project), "8 names, 6 recipes: nothing to do, every ELF is registered and its bytes verify"]
    lines, code, raw = seen("elfs", "model=tiny")
    assert (code, lines) == (0, nothing)
    assert raw is None or "\x1b" not in raw


def test_no_colour_where_it_is_not_wanted(project):
    """NO_COLOR (no-color.org), and a terminal that cannot: the live line comes without colours."""
    program = PROGRAM.format(support=str(SUPPORT), root=str(project.root), fail="")
    command = [sys.executable, "-c", program, "elfs", "model=tiny", "--rebuild", f"root={project.root}"]
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    coloured = re.compile(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[0-9;]*m")
    assert coloured.search(run_on_terminal(command, cwd=project.root, env=env).raw)
    assert not coloured.search(run_on_terminal(command, cwd=project.root, env=env | {"NO_COLOR": "1"}).raw)


def test_a_build_with_a_failure(project, seen):
    """D alone has K = 512 and N = 256; the others are built, and the last lines say what failed."""
    failure = "the stand-in was told to fail"
    lines, code, _ = seen("elfs", "model=tiny", "-n", "1", fail="x512x256 (M x K x N)")
    assert (code, lines) == (
        1,
        [
            headline(project),
            f"[1/6] built {QKV}.elf",
            f"[2/6] built {G}.elf, {U}.elf",
            f"[3/6] FAILED {D}.elf: {failure}",
            f"[4/6] built {QKV}_m16.elf",
            f"[5/6] built {G}_m16.elf, {U}_m16.elf",
            f"[6/6] FAILED {D}_m16.elf: {failure}",
            f"failed: {D}.elf: {failure}",
            f"failed: {D}_m16.elf: {failure}",
            "8 names, 6 recipes: 6 built and registered, 0 up to date, 2 failed",
        ],
    )


def test_check_missing(project, stand_in, seen, tmp_path):
    lines, code, _ = seen("check-missing", "model=tiny")
    paths = [f"kernels/{name}.elf" for name in (QKV, G, U, D)]
    paths += [f"kernels-m16/{name}_m16.elf" for name in (QKV, G, U, D)]
    gaps = [
        line
        for path in paths
        for line in (f"missing full ELF {path}", "  not registered: not in registry.yaml for target sim")
    ]
    closing = "tiny: 8 of 8 names missing for target sim; run doit elfs model=tiny target=sim"
    assert (code, lines) == (1, [*gaps, closing])
    wanted = model_requirements(project, "tiny")
    build_elfs(project, stand_in, [wanted])
    whole = ["tiny: 8 names, all there and their bytes verify (target sim)"]
    assert seen("check-missing", "model=tiny")[:2] == (whole, 0)
    folder = tmp_path / "a model"
    install(project, "sim", wanted, folder)
    assert seen("check-missing", "model=tiny", f"dir={folder}")[:2] == (whole, 0)
    (folder / "kernels" / f"{D}.elf").unlink()
    lines, code, _ = seen("check-missing", "model=tiny", f"dir={folder}")
    assert (code, lines) == (
        1,
        [
            f"missing full ELF {folder}/kernels/{D}.elf",
            f"  missing: looked in {folder}/kernels",
            f"tiny: 1 of 8 names missing for target sim; run doit install model=tiny target=sim 'dir={folder}'",
        ],
    )


def test_lookup(project, stand_in, seen):
    lines, code, _ = seen("lookup", "model=tiny")
    names = [f"kernels/{name}.elf" for name in (QKV, G, U, D)]
    names += [f"kernels-m16/{name}_m16.elf" for name in (QKV, G, U, D)]
    assert (code, lines) == (1, [f"{name}  not registered for target sim" for name in names])
    build_elfs(project, stand_in, [model_requirements(project, "tiny")])
    entries = load_registry(project.registry_file).entries("sim")
    found = [entries[name.partition("/")[2]] for name in names]
    lines, code, _ = seen("lookup", "model=tiny")
    rows = [
        f"{name}  sha256:{entry.elf}  {entry.size}  recipe sha256:{entry.recipe}"
        for name, entry in zip(names, found, strict=True)
    ]
    assert (code, lines) == (0, rows)
    lines, code, _ = seen("lookup", f"{D}*")
    keys = (f"{D}.elf", f"{D}_m16.elf")
    rows = [f"{k}  sha256:{entries[k].elf}  {entries[k].size}  recipe sha256:{entries[k].recipe}" for k in keys]
    assert (code, lines) == (0, rows)
    lines, code, _ = seen("lookup", "full_i8_X*")
    assert (code, lines) == (1, ["elfkiln: lookup full_i8_X*: none of 8 names registered for target sim fits"])

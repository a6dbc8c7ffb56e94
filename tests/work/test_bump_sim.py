"""Bump of target sim: ziglang and xdsl are its packages, and the zig of a given wheel is what builds the preview."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tomllib
import zipfile

import pytest

from elfkiln.cli import main
from elfkiln.cli.json_forms import FORMS, misfit
from elfkiln.errors import Refused
from elfkiln.store.registry import Entry, load_registry, register
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim.sim_candidate import zig_of_wheel
from elfkiln.targets.sim.zig_toolchain import installed_packages
from elfkiln.work.bump import bump
from kilns import copy_kiln, keep_rows
from npu2_standins import make_wheel
from projects import CHECKOUT

LINUX = "py3-none-manylinux_2_12_x86_64.musllinux_1_1_x86_64"
PROGRAM = b"#!/bin/sh\nexit 3\n"
NAMES = ("full_i8_G_K256_N512_b8.elf", "full_i8_U_K256_N512_b8.elf")


@pytest.fixture
def project(project):
    """The project `tiny` with the checkout's lock, and two names registered for sim and one for npu2."""
    project.lock_file.write_text((CHECKOUT / "toolchain.lock").read_text())
    rows = [Entry(f"{n:064x}", 10, f"{n + 1:064x}", f"{n + 2:064x}", f"{n + 3:064x}", 8) for n in (16, 32, 48)]
    register(project.registry_file, "sim", dict(zip(NAMES, rows[:2], strict=True)))
    register(project.registry_file, "npu2", {NAMES[0]: rows[2]})
    return project


def zig_wheel(folder, version="0.17.9", program=PROGRAM, *, tag=LINUX, files=()):
    return make_wheel(folder, "ziglang", version, {"+ziglang/zig": program, **dict(files)}, tag=tag).path


def section(text, target="sim"):
    return tomllib.loads(text)["target"][target]


def test_a_wheel_of_ziglang_changes_four_fields_of_sim_and_nothing_of_npu2(project, tmp_path):
    wheel = zig_wheel(tmp_path / "new")
    found = bump(project, [tmp_path / "new"])
    before, after = project.lock_file.read_text(), found.lock.text
    assert section(after)["ziglang"] == {
        "version": "0.17.9",
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "zig_sha256": hashlib.sha256(PROGRAM).hexdigest(),
    }
    assert section(after, "npu2") == section(before, "npu2")
    changed = [one for one, other in zip(before.splitlines(), after.splitlines(), strict=True) if one != other]
    assert [line.split(" = ")[0] for line in changed] == ["version", "wheel", "sha256", "zig_sha256"]
    (tmp_path / "c.lock").write_text(after)
    assert (found.lock.target, found.lock.digest) == ("sim", read_lock(tmp_path / "c.lock").target("sim").digest)
    assert (found.names, found.recipes) == (NAMES, 2)
    assert "zig is another: 0.17.1 -> 0.17.9" in found.lock.why


def test_the_same_program_in_another_wheel_changes_the_lock_and_no_recipe(project, tmp_path):
    first = bump(project, [zig_wheel(tmp_path / "new")])
    project.lock_file.write_text(first.lock.text)
    again = bump(project, [tmp_path / "new"])
    assert (again.lock.text, again.lock.changes, again.names, again.notes) == (first.lock.text, (), (), ())
    assert again.lock.digest == again.lock.digest_before
    packed_anew = bump(project, [zig_wheel(tmp_path / "newer", "0.17.9.post1")])
    assert [change.name for change in packed_anew.lock.changes] == ["ziglang"]
    assert (packed_anew.names, packed_anew.lock.why) == ((), "")
    assert "is the pinned one to the byte, so no recipe changes" in packed_anew.notes[0]


def test_what_else_pins_the_package_is_named(project, tmp_path):
    (project.root / "requirements.in").write_text("numpy\nziglang==0.17.1\n")
    (project.root / "requirements.txt").write_text("ziglang==0.17.1 \\\n    --hash=sha256:0\nnot-ziglang==3\n")
    (project.root / "requirements-other.txt").write_text("not-ziglang==3\n")
    (project.root / "pyproject.toml").write_text('dependencies = [\n    "ziglang==0.17.9",\n]\n')
    (note,) = bump(project, [zig_wheel(tmp_path / "new")]).notes
    assert "change requirements.in and requirements.txt too, which pin ziglang 0.17.1" in note


def test_another_xdsl_is_previewed_and_not_built_with(project, tmp_path, capsys):
    wheel = make_wheel(tmp_path / "new", "xdsl", "0.99", {"xdsl/__init__.py": ""}).path
    out = tmp_path / "c.lock"
    words = ["toolchain", "bump", f"root={project.root}", f"wheels={wheel}", f"out={out}"]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert misfit(report, FORMS["toolchain"][-1]) is None
    assert (report["target"], report["names"], report["why"]) == ("sim", [], None)
    assert report["changes"] == [{"name": "xdsl", "before": "xdsl-0.75.0-py3-none-any.whl", "after": wheel.name}]
    assert any("a recipe holds the C that is printed, not xdsl" in note for note in report["notes"])
    pinned = section(out.read_text())["xdsl"]
    assert pinned == {
        "version": "0.99",
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
    }
    assert main([*words, "--overwrite", "--build"]) == 2
    error = capsys.readouterr().err
    assert "the candidate has xdsl 0.99 and this Python has xdsl 0.75.0 installed" in error
    assert error.count("\n") == 1


def test_wheels_of_two_targets_and_of_none(project, tmp_path):
    zig_wheel(tmp_path / "new")
    new = make_wheel(tmp_path / "new", "somenewpackage", "1.0", {"a.py": ""}).path
    with pytest.raises(Refused, match="found somenewpackage of npu2 and ziglang of sim; name the wheels of one target"):
        bump(project, [tmp_path / "new"])
    # As ever: what no target pins is a new wheel of npu2's.
    assert bump(project, [new]).lock.target == "npu2"
    text = project.lock_file.read_text().partition("# Target npu2:")[0]
    project.lock_file.write_text(text)
    with pytest.raises(Refused, match="pins: xdsl, ziglang, found somenewpackage"):
        bump(project, [new])
    assert bump(project, [zig_wheel(tmp_path / "zig")]).lock.target == "sim"


def truncated(folder):
    path = zig_wheel(folder)
    path.write_bytes(path.read_bytes()[:-40])


def damaged(folder):
    path = zig_wheel(folder)
    path.write_bytes(path.read_bytes().replace(PROGRAM, PROGRAM[::-1]))


def no_zip(folder):
    zig_wheel(folder).write_bytes(b"an error page")


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (truncated, "not readable as a wheel"),
        (damaged, "not readable as a wheel"),
        (no_zip, "not readable as a wheel"),
        (lambda folder: zig_wheel(folder, program=b""), "expected the program ziglang/zig, found an empty file"),
        (lambda folder: make_wheel(folder, "ziglang", "0.17.9", {"ziglang/x": ""}, tag=LINUX), "zig, found none"),
        (lambda folder: zig_wheel(folder, tag="py3-none-macosx_12_0_arm64"), "found one for macosx_12_0_arm64"),
        (lambda folder: zig_wheel(folder, tag="py3-none-manylinux_2_17_aarch64"), "for manylinux_2_17_aarch64"),
        (
            lambda folder: (zig_wheel(folder), zig_wheel(folder, "0.17.8")),
            "one wheel per package, found several of zig",
        ),
    ],
)
def test_a_wheel_that_cannot_be_used_is_refused_before_anything_is_written(spoilt, said, project, tmp_path, capsys):
    spoilt(tmp_path / "new")
    out = tmp_path / "c.lock"
    assert main(["toolchain", "bump", f"root={project.root}", f"wheels={tmp_path / 'new'}", f"out={out}"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_what_is_unpacked_is_the_package_alone_and_stays_in_its_folder(tmp_path):
    path = zig_wheel(tmp_path / "one", files={"ziglang/lib/a.h": "int a;", "other/b": "", "../c": ""})
    program = zig_of_wheel(path, tmp_path / "place")
    found = sorted(p.relative_to(tmp_path / "place").as_posix() for p in (tmp_path / "place").rglob("*") if p.is_file())
    assert found == ["ziglang/lib/a.h", "ziglang/zig"]
    assert program.read_bytes() == PROGRAM
    assert os.access(program, os.X_OK)
    outside = zig_wheel(tmp_path / "two", files={"ziglang/../../c": ""})
    with pytest.raises(Refused, match="expected paths below ziglang/"):
        zig_of_wheel(outside, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        link = zipfile.ZipInfo("ziglang/zig")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    (tmp_path / "ziglang-1-py3-none-any.whl").write_bytes(data.getvalue())
    assert not zig_of_wheel(tmp_path / "ziglang-1-py3-none-any.whl", tmp_path / "third").is_symlink()


def test_the_names_are_built_with_the_zig_of_the_wheel_and_nothing_is_registered(sim_kiln, tmp_path, capsys):
    # A compiler like the installed one, but it optimizes nothing: other bytes, and quickly.
    script = f"""#!/bin/bash
words=()
for word in "$@"; do [[ $word = -O[1-3] ]] && word=-O0; words+=("$word"); done
exec {installed_packages().zig} "${{words[@]}}"
"""
    project = keep_rows(copy_kiln(sim_kiln, tmp_path / "project"), "D")
    wheel = zig_wheel(tmp_path / "new", program=script.encode())
    before = project.registry_file.read_bytes(), project.lock_file.read_bytes()
    killed = project.work / "build-0123456789abcdef" / "out" / "candidate-zig"
    killed.mkdir(parents=True)
    blobs = {path for path, _, _ in os.walk(project.store)}
    words = [f"root={project.root}", f"wheels={wheel}", f"out={tmp_path / 'c.lock'}", "--build"]
    assert main(["toolchain", "bump", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert misfit(answer, FORMS["toolchain"][-1]) is None
    report = {one["name"]: one for one in answer["preview"]}
    registered = load_registry(project.registry_file).entries("sim")
    assert report.keys() == registered.keys()
    built = {name: one for name, one in report.items() if "_D_" in name}
    assert len(built) == 2
    for name, one in built.items():
        assert one["elf"] == f"sha256:{registered[name].elf}" != one["candidate_elf"]
        assert one["failure"] is None
        assert any("zig" in why for why in one["why"])
        assert any(line.startswith("section .text: ") for line in one["difference"])
    others = {one["failure"] for name, one in report.items() if name not in built}
    assert others == {"no model below plans/ asks for it"}
    assert (project.registry_file.read_bytes(), project.lock_file.read_bytes()) == before
    assert {path for path, _, _ in os.walk(project.store)} == blobs
    assert not list(project.out.rglob("candidate-zig"))


def test_a_bump_of_npu2_installs_the_candidate_from_the_folder_given(project, tmp_path, monkeypatch, capsys):
    installed = []

    def install(there, pin, *, wheels, note):  # noqa: ARG001 as it is called
        installed.append((there.root != project.root, pin.digest, wheels))
        raise Refused("the stand-in installs nothing")

    monkeypatch.setattr("elfkiln.targets.npu2.install_toolchain.install", install)
    new, out = tmp_path / "new", tmp_path / "c.lock"
    file = make_wheel(new, "aiofiles", "26.0", {"a.py": ""}).path
    for given, folder in ((new, new), (file, None)):
        words = [f"root={project.root}", f"wheels={given}", f"out={out}", "--build", "--overwrite"]
        assert main(["toolchain", "bump", *words]) == 2
        assert "the stand-in installs nothing" in capsys.readouterr().err
        assert installed.pop() == (True, read_lock(out).target("npu2").digest, folder)

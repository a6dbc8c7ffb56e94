"""The main job on target sim with the real toolchain, on a small model: built, checked, verified, reproduced."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from elfkiln.cli import main
from elfkiln.engine import layouts
from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import Differs
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.targets.sim.sim_elf import SimElf
from elfkiln.targets.table import builder_for, check_elf
from elfkiln.work.build import build_elfs
from elfkiln.work.verify import Gauge, exact_product, exit_code_of, inputs, layout_checks, verify_set
from kilns import copy_kiln, keep_rows, lean_copy
from projects import CHECKOUT, TINY_NAMES, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"
TWIN = "full_i8_QKV_K256_N768_b8_m16.elf"
G, U = "full_i8_G_K256_N512_b8.elf", "full_i8_U_K256_N512_b8.elf"
G_TWIN, U_TWIN = "full_i8_G_K256_N512_b8_m16.elf", "full_i8_U_K256_N512_b8_m16.elf"


@pytest.fixture(scope="module")
def built(sim_kiln, tmp_path_factory):
    """A project whose model `tiny` was built for sim."""
    return copy_kiln(sim_kiln, tmp_path_factory.mktemp("built") / "project")


@pytest.fixture
def lean(built, tmp_path):
    """A copy of it whose model has one geometry, under two names: at M = 128 and M = 16 that is 4 names, 2 recipes."""
    return lean_copy(built, tmp_path / "lean")


def elf_of(project, name):
    return Store(project.store).path(load_registry(project.registry_file).entries("sim")[name].elf)


def doit(*words):
    return subprocess.run(
        [sys.executable, "-m", "doit", *words],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_doit_lists_a_sub_task_per_elf_with_its_state(built):
    words = ["model=tiny", f"root={built.root}"]
    done = doit("list", "--all", "-s", *words)
    rows = [line.split(None, 2) for line in done.stdout.splitlines() if " elfs:" in line]
    names = sorted(load_registry(built.registry_file).entries("sim"))
    assert rows == [["U", f"elfs:{name}", "up to date"] for name in names]
    assert len(rows) == TINY_NAMES
    assert " elfs:" not in doit("list", *words).stdout
    assert doit("list", "--all", "--quiet", "elfs", *words).stdout.split() == ["elfs", *(row[1] for row in rows)]


def test_doit_info_says_why_and_doit_builds_one(built, tmp_path):
    project = keep_rows(copy_kiln(built, tmp_path / "project"), "QKV")
    words = ["model=tiny", f"root={project.root}"]
    assert doit("info", f"elfs:{QKV}", *words).returncode == 0
    done = doit(f"elfs:{QKV}", *words)
    assert (done.returncode, done.stdout) == (0, f"-- elfs:{QKV}\n")
    source = project.kernels / "mm_i8.cc"
    source.write_text(source.read_text() + "// one more line\n")
    assert doit("info", f"elfs:{QKV}", *words).returncode == 0
    source.write_text(source.read_text() + "int one_more;\n")
    told = doit("info", f"elfs:{QKV}", *words)
    assert told.returncode == 1
    assert "would be built: kernels/mm_i8.cc changed" in told.stdout
    done = doit(f"elfs:{QKV}", *words)
    assert done.returncode == 0
    assert "1 names, 1 recipes: 1 built and registered" in done.stdout
    states = {line.split()[1]: line.split()[0] for line in doit("list", "--all", "-s", *words).stdout.splitlines()}
    assert [states[f"elfs:{name}"] for name in (QKV, TWIN)] == ["U", "R"]


def test_a_sub_task_nobody_asks_for_says_so(built):
    words = ["elfs:full_i8_QKV_K256_N769_b8.elf", "model=tiny", f"root={built.root}"]
    done = doit(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"did you mean {QKV}?" in done.stderr
    told = doit("info", *words)
    assert (told.returncode, told.stderr) == (1, "")
    assert f"did you mean {QKV}?" in told.stdout


def test_a_named_elf_alone_is_built(tmp_path, capsys):
    """Names of one recipe are each their own: G is registered, U waits until it is asked for."""
    project = make_project(tmp_path / "project")
    name = "full_i8_G_K256_N512_b8.elf"
    assert main(["elfs", name, f"root={project.root}", "model=tiny"]) == 0
    assert list(load_registry(project.registry_file).entries("sim")) == [name]
    assert main(["elfs", "full_i8_U_K256_N512_b8.elf", f"root={project.root}"]) == 0
    assert "1 registered from the store" in capsys.readouterr().out
    assert main(["elfs", "nobody.elf", f"root={project.root}"]) == 2


def test_every_artifact_is_what_its_name_says(built):
    for name in load_registry(built.registry_file).entries("sim"):
        check_elf("sim", elf_of(built, name), ArtifactName.parse(name), ())


@pytest.mark.parametrize(
    "other",
    [
        "full_i8_QKV_K768_N256_b8.elf",
        "full_i8_QKV_K256_N768.elf",
        "full_i8_QKV_K256_N768_b8_m16.elf",
        "full_i8_QKV_K256_N768_pb16i.elf",
        "full_i8_QKV_K512_N768_b8.elf",
    ],
)
def test_under_any_other_name_it_is_refused(built, other):
    with pytest.raises(Differs):
        check_elf("sim", elf_of(built, QKV), ArtifactName.parse(other), ())


def test_a_sim_elf_is_never_served_as_a_full_elf(built):
    with pytest.raises(Differs) as raised:
        check_elf("npu2", elf_of(built, QKV), ArtifactName.parse(QKV), ())
    assert "sim" in str(raised.value)


def test_the_elf_computes_the_product(built):
    """Against numpy int64, which shares nothing with the simulator or with verify."""
    rng = np.random.default_rng(7)
    a = rng.integers(-128, 128, (128, 256), dtype=np.int8)
    b = rng.integers(-128, 128, (256, 768), dtype=np.int8)
    expected = a.astype(np.int64) @ b.astype(np.int64)
    packed = layouts.pack(b, "b8")
    with SimElf(elf_of(built, QKV)) as elf, SimElf(elf_of(built, TWIN)) as twin:
        assert np.array_equal(elf.run(a, packed), expected)
        assert np.array_equal(twin.run(a[:16], packed), expected[:16])
        assert not np.array_equal(elf.run(a, b.reshape(-1)), expected)


def test_verify_passes_on_a_sound_set(lean):
    said = []
    builder, wanted, gauge = builder_for(lean, "sim"), model_requirements(lean, "tiny"), Gauge()
    results = verify_set(lean, builder, wanted, jobs=2, say=said.append, gauge=gauge)
    assert exit_code_of(results) == 0
    # Each of the inputs, once more in the other layout, and in two wrong packings: at 128 rows and at 16.
    inputs = len({r.what for r in results if r.what.startswith("M=128 against numpy")})
    # G and U are one ELF, which is run once.
    assert gauge.operations == 2 * 256 * 512 * (128 + 16) * (inputs + 1 + 2)
    whats = {getattr(result, "what", "") for result in results}
    for wanted in (
        "M=128 against numpy, random",
        "M=128 against numpy, -127, load_pdi left out",
        "M=16 twin against numpy, one-hot, load_pdi left out",
        "M=16 twin against numpy, coordinates, load_pdi left out",
        "M=16 twin against M=128, random",
        "b8 against rm, random",
        "M=128 fed a rm buffer",
        "M=128 fed tiles in ki-major order",
        "offsets are a bijection",
        "tiles of a 2 x 2 image lie nt-major",
    ):
        assert wanted in whats
    assert len(said) == len(results)
    # 128 x 256 positions of the layout image, every int32 of the outputs.
    assert next(r for r in results if r.what == "offsets are a bijection").elements == 32768
    assert next(r for r in results if r.what == "M=128 against numpy, random").elements == 128 * 512


def test_verify_finds_a_design_of_another_microkernel(tmp_path):
    """One wrong sign in the microkernel: built without complaint, and every comparison with numpy fails."""
    project = keep_rows(make_project(tmp_path / "wrong"), "G")
    source = project.kernels / "mm_i8.cc"
    text = source.read_text()
    assert text.count("c10.mac(a1, b0);") == 1
    source.write_text(text.replace("c10.mac(a1, b0);", "c10.mac(a1, b1);"))
    results = verify_set(
        project, builder_for(project, "sim"), model_requirements(project, "tiny"), jobs=2, say=lambda _: None
    )
    assert exit_code_of(results) == 1
    failed = {result.what for result in results if not result.passed}
    assert {"M=128 against numpy, random", "M=16 twin against numpy, coordinates, load_pdi left out"} <= failed
    # Twin and M=128 share the fault, so only the oracle shows it.
    assert "M=16 twin against M=128, random" not in failed


def test_verify_reports_an_elf_that_ends_in_a_message(tmp_path):
    project = keep_rows(make_project(tmp_path / "deadlock"), "G")
    template = project.templates / "panel_gemm.py.j2"
    text = template.read_text()
    lines = [line for line in text.splitlines(keepends=True) if "release(ObjectFifoPort.Consume" not in line]
    assert len(lines) == len(text.splitlines()) - 2
    template.write_text("".join(lines))
    results = verify_set(
        project, builder_for(project, "sim"), model_requirements(project, "tiny"), jobs=2, say=lambda _: None
    )
    assert exit_code_of(results) == 1
    assert all(not result.passed for result in results if result.names[0].startswith("full_i8"))


def test_verify_finds_a_design_that_is_right_on_a_fresh_array_only(tmp_path):
    """Cores that make as many tiles of C as one launch needs, and no more: the second launch waits for ever."""
    project = keep_rows(make_project(tmp_path / "fresh"), "G")
    template = project.templates / "panel_gemm.py.j2"
    text = template.read_text()
    assert text.count("range_(FOREVER)") == 1
    template.write_text(text.replace("range_(FOREVER)", "range_(ROW_GROUPS * COL_GROUPS)"))
    results = verify_set(
        project, builder_for(project, "sim"), model_requirements(project, "tiny"), jobs=2, say=lambda _: None
    )
    assert exit_code_of(results) == 1
    passed = {result.what for result in results if result.passed}
    assert {"M=128 against numpy, random", "M=16 twin against numpy, random"} <= passed
    failed = [result.line() for result in results if not result.passed]
    # Three inputs after the first, on each of M = 128 and 16.
    assert len(failed) == 3 * 2
    for line in failed:
        assert "right on a fresh array only; on one that an earlier run has used, load_pdi left out as the" in line
        assert "deadlock, 0 of" in line
        assert "\n" not in line


def test_verify_runs_what_is_registered_or_says_so(built, tmp_path):
    """A registry entry of other bytes, of another recipe, and a blob that is a stub: none is passed over."""
    project = keep_rows(copy_kiln(built, tmp_path / "project"), "QKV")
    wanted = model_requirements(project, "tiny")
    builder = builder_for(project, "sim")
    text = project.registry_file.read_text()
    entry = load_registry(project.registry_file).entries("sim")[QKV]

    def reasons():
        results = verify_set(project, builder, wanted, jobs=2, say=lambda _: None)
        return [result.line() for result in results if not result.passed]

    project.registry_file.write_text(text.replace(f"sha256:{entry.elf}", "sha256:" + "1" * 64))
    assert any("same recipe, other bytes" in line and QKV in line for line in reasons())
    project.registry_file.write_text(text.replace(f"sha256:{entry.recipe}", "sha256:" + "2" * 64))
    assert any("registered from another recipe" in line and QKV in line for line in reasons())
    project.registry_file.write_text(text)
    blob = Store(project.store).path(entry.elf)
    blob.chmod(0o644)
    blob.write_bytes(b"\x7fELF" + bytes(55))
    assert any("is damaged" in line and QKV in line for line in reasons())


def rebuilt(project, **options):
    return build_elfs(project, builder_for(project, "sim"), [model_requirements(project, "tiny")], **options)


def test_an_edit_that_changes_no_compile_input_changes_no_recipe(lean):
    """Comments of templates, generators and microkernels: nothing is built, and another machine writes the same."""
    project = lean
    registry = project.registry_file.read_bytes()
    edits = {
        "templates/panel_gemm.py.j2": ("Each core owns", "Every core owns"),
        "kernels/mm_i8.cc": ("namespace {", "// One more comment.\nnamespace   {"),
        "generators/__init__.py": ('"""', '"""Edited. '),
    }
    for name, (old, new) in edits.items():
        path = project.root / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
    assert "nothing to do" in rebuilt(project).summary()
    assert project.registry_file.read_bytes() == registry
    shutil.rmtree(project.out)
    project.registry_file.unlink()
    assert rebuilt(project).exit_code == 0
    assert project.registry_file.read_bytes() == registry


def test_an_edit_that_changes_one_is_named_to_the_line(tmp_path, built, capsys):
    project = Project(tmp_path / "project")
    shutil.copytree(built.root, project.root)
    kernel = project.kernels / "mm_i8.cc"
    text = kernel.read_text()
    kernel.write_text(text.replace("event1();", "event1(); event1();"))
    assert main(["explain", QKV, f"root={project.root}", "--json"]) == 1
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["input"] == "kernels/mm_i8.cc"
    assert (change["first_line"]["was"], change["first_line"]["is"]) == ("}", "event1 ( ) ;")
    kernel.write_text(text)
    template = project.templates / "panel_gemm.py.j2"
    text = template.read_text()
    edited = text.replace("strides=[0, A_RUN, K, 1]", "strides=[0, A_RUN, K, 1], issue_token=True")
    assert edited != text
    template.write_text(edited)
    assert main(["explain", QKV, f"root={project.root}"]) == 1
    out = capsys.readouterr().out
    assert "\n  design: " in out
    assert "issue_token = true" in out
    assert "\n  design.c: " in out
    assert "lines of the rendered generator that differ:" in out


def test_a_microkernel_edited_during_the_build_is_never_built_under_the_old_recipe(lean):
    """The plan knows the recipe of the old source; the new one is read when the build's turn comes."""
    project = lean
    shutil.rmtree(project.store)
    registry = project.registry_file.read_bytes()
    kernel = project.kernels / "mm_i8.cc"
    text = kernel.read_text()
    builder = builder_for(project, "sim")
    prepare = builder.prepare

    def edit():
        prepare()
        kernel.write_text(text.replace("event1();", "event1(); event1();"))

    builder.prepare = edit
    report = build_elfs(project, builder, [model_requirements(project, "tiny")])
    assert {failure.reason for failure in report.failures} == {"kernels/mm_i8.cc changed during the build; run again"}
    assert len(report.failures) == 4
    kernel.write_text(text)
    assert rebuilt(project).exit_code == 0
    assert project.registry_file.read_bytes() == registry


def test_nothing_compared_is_no_success():
    assert exit_code_of([]) == 1


@pytest.mark.parametrize("layout", ["rm", "b8", "pb16i"])
def test_layout_checks_pass(layout):
    checks = list(layout_checks(layout))
    assert all(check.passed for check in checks)
    assert len(checks) == (2 if layout == "rm" else 4)


def test_layout_checks_see_a_map_in_the_other_tile_order(monkeypatch):
    original = layouts.offset

    def ki_major(k, n, K, N, layout):
        return original(k, n, K, N, layout, layouts.TileOrder.KI_MAJOR)

    monkeypatch.setattr("elfkiln.work.verify.layouts.offset", ki_major)
    failed = {check.what for check in layout_checks("b8") if not check.passed}
    assert "packed elements lie at their offsets" in failed
    assert "tiles of a 2 x 2 image lie nt-major" in failed


def test_the_oracle_is_exact_where_float32_is_not():
    a, b = np.full((1, 17408), -127, np.int8), np.full((17408, 1), -127, np.int8)
    b[0, 0] = -126
    assert exact_product(a, b)[0, 0] == 127 * 127 * 17407 + 127 * 126
    for what, left, right, expected in inputs(64, 256):
        assert np.array_equal(expected, left.astype(np.int64) @ right.astype(np.int64)), what
    for what, left, right, expected in inputs(64, 256, ternary=True):
        assert np.array_equal(expected, left.astype(np.int64) @ right.astype(np.int64)), what
        assert set(np.unique(right)) <= {-1, 0, 1}


@pytest.mark.parametrize(("folder", "jobs"), [("a", "1"), ("deep er/ü 文件", "2")])
def test_the_same_digests_in_another_folder_home_and_job_count(lean, tmp_path, folder, jobs):
    """A whole process with another HOME, clock zone, locale and cache, as another machine would run it."""
    project = keep_rows(make_project(tmp_path / folder), "G", "U")
    done = subprocess.run(
        [sys.executable, "-m", "elfkiln", "elfs", "model=tiny", f"root={project.root}", "-n", jobs],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / folder), "TZ": "Asia/Tokyo", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("target sim, toolchain ")
    assert project.registry_file.read_bytes() == lean.registry_file.read_bytes()


def test_a_rebuild_of_everything_agrees_with_the_registry(lean):
    report = rebuilt(lean, rebuild=True)
    assert report.exit_code == 0
    assert report.built == (G, G_TWIN, U, U_TWIN)


def test_no_path_of_this_machine_enters_an_artifact(built):
    words = [str(built.root), str(CHECKOUT), sys.prefix, os.path.expanduser("~") + "/.", os.uname().nodename]
    for blob in Store(built.store).blobs.iterdir():
        data = blob.read_bytes()
        assert [word for word in words if len(word) > 3 and word.encode() in data] == []


def test_a_changed_zig_is_refused_by_name(tmp_path, capsys):
    project = make_project(tmp_path / "project")
    lock = project.lock_file
    lock.write_text(lock.read_text().replace('version = "0.17.1"', 'version = "0.16.0"'))
    assert main(["elfs", f"root={project.root}", "model=tiny"]) == 2
    error = capsys.readouterr().err
    assert "ziglang 0.16.0 as toolchain.lock says" in error
    assert "found ziglang 0.17.1" in error
    assert not project.registry_file.exists()


def test_zig_of_other_bytes_is_refused_before_anything_is_built(tmp_path, capsys):
    project = make_project(tmp_path / "project")
    lock = project.lock_file
    lock.write_text(re.sub(r'zig_sha256 = "[0-9a-f]{64}"', f'zig_sha256 = "{"0" * 64}"', lock.read_text()))
    assert main(["elfs", f"root={project.root}", "model=tiny"]) == 2
    error = capsys.readouterr().err
    assert "is not the one in toolchain.lock" in error
    assert error.count("\n") == 1
    assert not project.registry_file.exists()


def test_one_broken_generator_fails_its_names_only(tmp_path, capsys):
    """A template that breaks for one K: the other geometries are built, the exit code and the last lines say it."""
    project = keep_rows(make_project(tmp_path / "project"), "G", "D")
    template = project.templates / "n1_blocked.py.j2"
    template.write_text(template.read_text().replace("def fill_b(", "{{ 1 // (K - 512) }}\ndef fill_b("))
    code = main(["elfs", f"root={project.root}", "model=tiny"])
    out = capsys.readouterr().out
    assert code == 2
    failed = [line for line in out.splitlines() if line.startswith("failed: ")]
    assert [line.split()[1] for line in failed] == ["full_i8_D_K512_N256_b8.elf:", "full_i8_D_K512_N256_b8_m16.elf:"]
    assert out.splitlines()[-1].endswith("2 failed")

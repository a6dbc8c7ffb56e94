"""`elfs`: one build per recipe, what is known is not built, a failure stops nobody, nothing half-built is kept."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace

import pytest
import yaml

from elfkiln.engine.artifact_name import ArtifactName
from elfkiln.errors import BuildFailed, Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.artifacts import all_artifacts, find_artifact, read_generator, read_log
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.target import silent
from elfkiln.work.build import build_elfs
from elfkiln.work.progress import Progress
from projects import SUPPORT, TINY_NAMES, TINY_RECIPES, StandInBuilder, build_in_process, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"
G = "full_i8_G_K256_N512_b8.elf"
U = "full_i8_U_K256_N512_b8.elf"


def elfs(project, builder, **options):
    return build_elfs(project, builder, [model_requirements(project, "tiny")], **options)


def lines(project, builder, **options):
    stream = io.StringIO()
    report = elfs(project, builder, progress=Progress(stream), **options)
    return report, stream.getvalue().splitlines()


def test_names_of_one_recipe_are_built_once(project, stand_in):
    report = elfs(project, stand_in)
    assert (report.names, report.recipes, report.exit_code) == (TINY_NAMES, TINY_RECIPES, 0)
    assert len(report.built) == TINY_NAMES
    assert len(stand_in.built) == len(set(stand_in.built)) == TINY_RECIPES
    entries = load_registry(project.registry_file).entries("sim")
    assert len(entries) == TINY_NAMES
    assert entries[G] == entries[U] != entries[QKV]


def test_what_is_registered_is_what_was_built(project, stand_in):
    elfs(project, stand_in)
    entry = load_registry(project.registry_file).entries("sim")[QKV]
    (text,) = [text for text in stand_in.built if "M, K, N = 128, 256, 768" in text]
    elf = b"\x7fELF" + text.encode()
    assert entry.elf == hashlib.sha256(elf).hexdigest()
    assert entry.size == len(elf)
    assert entry.columns == 2
    store = Store(project.store)
    assert store.read(entry.elf) == elf
    artifact = find_artifact(store, entry.recipe)
    assert read_generator(store, entry.recipe) == text
    assert store.read(artifact.design) == b"module {}"
    assert read_log(store, entry.recipe) == "a log\n"


def test_the_first_line_names_target_and_toolchain(project, stand_in):
    _, printed = lines(project, stand_in)
    assert printed[0] == f"target sim, toolchain {stand_in.pin.digest[:12]} (stand-in 1.0)"
    assert printed[-1] == f"{TINY_NAMES} names, {TINY_RECIPES} recipes: {TINY_NAMES} built and registered, 0 up to date"
    assert len([line for line in printed if " built full_i8_" in line]) == TINY_RECIPES


def test_a_second_run_does_nothing_and_says_so(built, stand_in):
    again = StandInBuilder(stand_in.pin)
    before = built.registry_file.stat()
    report, printed = lines(built, again)
    assert again.built == []
    assert report.exit_code == 0
    assert printed[1:] == [
        f"{TINY_NAMES} names, {TINY_RECIPES} recipes: nothing to do, every ELF is registered and its bytes verify"
    ]
    assert built.registry_file.stat().st_mtime_ns == before.st_mtime_ns


def test_without_registry_yaml_the_store_is_registered_again_not_rebuilt(built, stand_in):
    text = built.registry_file.read_bytes()
    built.registry_file.unlink()
    again = StandInBuilder(stand_in.pin)
    report, printed = lines(built, again)
    assert report.exit_code == 0
    assert again.built == []
    assert built.registry_file.read_bytes() == text
    # What changed registry.yaml is not a "nothing to do".
    counts = f"0 built and registered, {TINY_NAMES} registered from the store, 0 up to date"
    assert printed[-1] == f"{TINY_NAMES} names, {TINY_RECIPES} recipes: {counts}"


def test_a_registry_yaml_that_is_a_link_is_refused_before_the_first_build(project, stand_in):
    """It would be refused when the first name is written, after the minutes of a compile, and after every other one."""
    real = project.root / "elsewhere.yaml"
    real.write_text("schema: elfkiln-registry/1\ntargets: {}\n")
    project.registry_file.symlink_to(real)
    with pytest.raises(
        Refused, match=r"registry.yaml: expected a file, or nothing, .* found a symbolic link; name the"
    ):
        elfs(project, stand_in)
    assert stand_in.built == []


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "stub"])
def test_a_damaged_blob_is_rebuilt_and_the_rest_is_not(built, stand_in, damage):
    store = Store(built.store)
    path = store.path(load_registry(built.registry_file).entries("sim")[QKV].elf)
    data = path.read_bytes()
    path.chmod(0o644)
    match damage:
        case "truncate":
            path.write_bytes(data[: len(data) // 2])
        case "flip":
            path.write_bytes(data[:100] + bytes([data[100] ^ 4]) + data[101:])
        case "delete":
            path.unlink()
        case _:
            path.write_bytes(b"\x7fELF" + bytes(55))
    again = StandInBuilder(stand_in.pin)
    report = elfs(built, again)
    assert report.built == (QKV,)
    assert len(again.built) == 1
    assert path.read_bytes() == data


def test_one_failed_elf_stops_nobody_and_is_listed_at_the_end(project, stand_in):
    stand_in.fail_for = "M, K, N = 128, 256, 768"
    report, printed = lines(project, stand_in)
    assert report.exit_code == 1
    assert [failure.key for failure in report.failures] == [QKV]
    assert len(report.built) == TINY_NAMES - 1
    assert printed[-2] == f"failed: {QKV}: the stand-in was told to fail"
    counts = f"{TINY_NAMES - 1} built and registered, 0 up to date, 1 failed"
    assert printed[-1] == f"{TINY_NAMES} names, {TINY_RECIPES} recipes: {counts}"
    assert QKV not in load_registry(project.registry_file).entries("sim")


def test_a_failed_recipe_of_two_names_fails_both(project, stand_in):
    stand_in.fail_for = "M, K, N = 128, 256, 512"
    assert [failure.key for failure in elfs(project, stand_in).failures] == [G, U]


def test_a_tool_that_ends_well_without_output_is_a_failure(project, stand_in):
    stand_in.no_output_for = "M, K, N = 128, 256, 768"
    report = elfs(project, stand_in)
    assert report.exit_code == 1
    assert "wrote no ELF" in report.failures[0].reason


def test_a_refused_geometry_is_named_and_the_others_are_built(project, stand_in):
    wanted = model_requirements(project, "tiny")
    # K = 100 is not a whole number of 64-row tiles; such a name can stand in a plan.
    name = ArtifactName("QKV", 100, 256, "_b8")
    illegal = replace(wanted.requirements[0], name=name, file_name=str(name))
    report = build_elfs(project, stand_in, [replace(wanted, requirements=(illegal, *wanted.requirements))])
    assert report.exit_code == 2
    assert [failure.key for failure in report.failures] == ["full_i8_QKV_K100_N256_b8.elf"]
    assert "100" in report.failures[0].reason
    assert "64" in report.failures[0].reason
    assert len(report.built) == TINY_NAMES


def test_the_same_recipe_with_other_bytes_is_refused_and_nothing_is_overwritten(built, stand_in):
    text = built.registry_file.read_bytes()
    drifting = StandInBuilder(stand_in.pin, suffix=b"drift")
    report = elfs(built, drifting, rebuild=True)
    assert report.exit_code == 1
    assert len(report.failures) == TINY_NAMES
    assert all("same recipe, other bytes: expected sha256:" in failure.reason for failure in report.failures)
    assert built.registry_file.read_bytes() == text


def test_rebuild_compares_and_agrees_when_the_bytes_are_the_same(built, stand_in):
    again = StandInBuilder(stand_in.pin)
    assert elfs(built, again, rebuild=True).exit_code == 0
    assert len(again.built) == TINY_RECIPES


def test_a_changed_source_is_another_recipe_and_replaces_the_entry(built, stand_in):
    before = load_registry(built.registry_file).entries("sim")
    changed = StandInBuilder(stand_in.pin, source="2" * 64, suffix=b"new")
    assert elfs(built, changed).exit_code == 0
    after = load_registry(built.registry_file).entries("sim")
    assert all(after[key].recipe != before[key].recipe for key in before)
    # The old artifacts stay in the store, by their recipes.
    assert len(all_artifacts(Store(built.store))) == 2 * TINY_RECIPES


def test_digests_do_not_depend_on_folder_home_or_job_count(tmp_path, monkeypatch):
    texts = set()
    for folder, home, jobs in (("a", "/nonexistent", 1), ("deep/er/b", str(tmp_path), 2), ("c", "/", 4)):
        monkeypatch.setenv("HOME", home)
        project = make_project(tmp_path / folder)
        assert elfs(project, StandInBuilder(read_lock(project.lock_file).target()), jobs=jobs).exit_code == 0
        texts.add(project.registry_file.read_bytes())
    assert len(texts) == 1


def test_a_recipe_holds_no_role_path_time_or_environment(built):
    store = Store(built.store)
    for artifact in all_artifacts(store):
        text = store.read(artifact.recipe).decode()
        assert hashlib.sha256(text.encode()).hexdigest() == artifact.recipe
        for word in (str(built.root), os.path.expanduser("~") + "/", "QKV", "full_i8", "tiny", "2026"):
            assert word not in text or word == "2026", word
        assert not {"time", "date", "host", "path", "cwd"} & set(yaml.safe_load(text))


def test_a_toolchain_change_is_another_recipe(built, stand_in):
    lock = built.lock_file
    lock.write_text(lock.read_text().replace("x86_64_v3", "x86_64_v4"))
    pin = read_lock(lock).target("sim")
    assert pin.digest != stand_in.pin.digest
    changed = StandInBuilder(pin, suffix=b"v4")
    elfs(built, changed)
    assert len(changed.built) == TINY_RECIPES


def test_a_full_disk_is_one_line_per_name_and_loses_nothing(built, stand_in, monkeypatch):
    text = built.registry_file.read_bytes()
    from elfkiln.io import files

    def no_space(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    report = elfs(built, StandInBuilder(stand_in.pin, source="3" * 64, suffix=b"z"))
    monkeypatch.undo()
    assert report.exit_code != 0
    assert all("no space left on the device" in failure.reason for failure in report.failures)
    assert built.registry_file.read_bytes() == text
    assert elfs(built, StandInBuilder(stand_in.pin)).built == ()


def test_two_builds_at_once_agree(project):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=build_in_process, args=(project.root, b"")) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert len(load_registry(project.registry_file).entries("sim")) == TINY_NAMES
    assert len(all_artifacts(Store(project.store))) == TINY_RECIPES


def test_kill_9_at_any_moment_leaves_whole_artifacts_and_the_next_run_ends_the_work(project):
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(SUPPORT)!r})\n"
        "from pathlib import Path\n"
        "from projects import build_in_process\n"
        "print('go', flush=True)\n"
        "build_in_process(Path(sys.argv[1]), b'')\n"
    )
    for delay in (0.02, 0.1, 0.2, 0.3, 0.45):
        child = subprocess.Popen([sys.executable, "-c", program, str(project.root)], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        store = Store(project.store)
        for entry in load_registry(project.registry_file).entries("sim").values():
            assert store.holds(entry.elf)
            assert find_artifact(store, entry.recipe) is not None
    report = elfs(project, StandInBuilder(read_lock(project.lock_file).target()))
    assert report.exit_code == 0
    assert len(load_registry(project.registry_file).entries("sim")) == TINY_NAMES
    # The killed builds' private folders are gone.
    assert [path for path in (project.out / "work").iterdir() if path.is_dir()] == []


def test_a_lost_index_is_made_again(built, stand_in):
    index = built.store / "index.json"
    before = index.read_bytes()
    index.unlink()
    again = StandInBuilder(stand_in.pin)
    assert elfs(built, again).exit_code == 0
    assert again.built == []
    table = json.loads(index.read_bytes())
    refs = {entry["annotations"]["org.opencontainers.image.ref.name"] for entry in table["manifests"]}
    kept = {entry["annotations"]["org.opencontainers.image.ref.name"] for entry in json.loads(before)["manifests"]}
    assert refs == kept


def test_two_models_that_want_one_name_with_other_columns_are_told_and_neither_wins(built, stand_in):
    before = load_registry(built.registry_file).entries("sim")
    evil = built.plans / "evil"
    evil.mkdir()
    text = (built.plans / "tiny" / "roles.yaml").read_text().replace("model: tiny", "model: evil")
    (evil / "roles.yaml").write_text(text.replace("N: 768, columns: 2", "N: 768, columns: 3"))
    report = build_elfs(built, stand_in, [model_requirements(built, "evil")])
    assert report.exit_code == 2
    assert [failure.key for failure in report.failures] == [QKV, QKV.replace(".elf", "_m16.elf")]
    assert "evil: 3, tiny: 2" in report.failures[0].reason
    assert load_registry(built.registry_file).entries("sim")[QKV] == before[QKV]
    both = [model_requirements(built, model) for model in ("evil", "tiny")]
    assert [failure.key for failure in build_elfs(built, stand_in, both).failures] == [
        QKV,
        QKV.replace(".elf", "_m16.elf"),
    ]


def test_a_table_that_changes_its_mind_about_columns_is_built_anew(built, stand_in):
    roles = built.plans / "tiny" / "roles.yaml"
    roles.write_text(roles.read_text().replace("N: 768, columns: 2", "N: 768, columns: 3"))
    assert elfs(built, stand_in).exit_code == 0
    assert load_registry(built.registry_file).entries("sim")[QKV].columns == 3


def test_a_failed_tool_on_a_full_disk_is_told_as_a_full_disk(project, stand_in, monkeypatch):
    usage = shutil.disk_usage(project.root)
    monkeypatch.setattr("elfkiln.io.files.shutil.disk_usage", lambda _: usage._replace(free=4096))
    stand_in.fail_for = "M, K, N = 128, 256, 768"
    (failure,) = elfs(project, stand_in).failures
    assert "no space left on the device" in failure.reason
    assert failure.exit_code == 2


def test_tools_that_are_not_the_locked_ones_are_refused_once_and_only_when_needed(project, stand_in, monkeypatch):
    def refuse():
        raise Refused("zig is another")

    monkeypatch.setattr(stand_in, "prepare", refuse)
    with pytest.raises(Refused, match="zig is another"):
        elfs(project, stand_in)
    assert stand_in.built == []
    monkeypatch.undo()
    elfs(project, stand_in)
    monkeypatch.setattr(stand_in, "prepare", refuse)
    assert elfs(project, stand_in).exit_code == 0


def test_a_fault_of_our_own_is_a_failure_not_a_silence(project, stand_in, monkeypatch):
    def broken(_inputs, _workdir, _say):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(stand_in, "compile", broken)
    report = elfs(project, stand_in)
    assert report.exit_code == 1
    assert len(report.failures) == TINY_NAMES
    assert report.failures[0].reason == "internal error: ZeroDivisionError: a fault"


def test_a_run_that_ends_early_leaves_no_name_untold(project, stand_in, monkeypatch):
    monkeypatch.setattr("elfkiln.work.build.do_here", lambda *_: (nothing for nothing in ()))
    report = elfs(project, stand_in)
    assert report.exit_code == 1
    assert len(report.failures) == TINY_NAMES


def test_an_interrupt_gives_the_terminal_back(project, stand_in, monkeypatch):
    stream = io.StringIO()
    show = Progress(stream, live=True)

    def interrupt(_self, _todo):
        show.start(1)
        show.begin("a.elf")
        raise KeyboardInterrupt

    monkeypatch.setattr("elfkiln.work.build._Run.all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        elfs(project, stand_in, progress=show)
    assert show._live is None


def test_a_reader_that_goes_away_does_not_stop_the_build(project, stand_in):
    class Gone(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    assert elfs(project, stand_in, progress=Progress(Gone())).exit_code == 0
    assert len(load_registry(project.registry_file).entries("sim")) == TINY_NAMES


def test_an_elf_that_is_not_what_its_name_says_is_never_registered(project, stand_in, monkeypatch):
    def refuse(_elf, name, _sealed):
        raise BuildFailed(f"{name}: geometry differs")

    monkeypatch.setattr("projects.StandInElf.check", refuse)
    report = elfs(project, stand_in)
    assert report.exit_code == 1
    assert not project.registry_file.exists()
    assert all_artifacts(Store(project.store)) == ()


@dataclass
class _Placed(StandInBuilder):
    """Notes where it builds."""

    places: list = field(default_factory=list)

    def compile(self, inputs, workdir, say=silent):
        """Write the folder down."""
        self.places.append(workdir)
        return super().compile(inputs, workdir, say)


@pytest.mark.parametrize("target", ["sim", "npu2"])
def test_in_a_checkout_with_a_space_builds_run_in_a_folder_without_one(target, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    project = make_project(tmp_path / "my kernels (new)")
    builder = _Placed(read_lock(project.lock_file).target(target))
    report = elfs(project, builder)
    assert (report.exit_code, len(report.built)) == (0, TINY_NAMES)
    assert {place.parents[1] for place in builder.places} == {tmp_path / "tmp"}
    (left,) = (tmp_path / "tmp").iterdir()
    assert list(left.iterdir()) == []
    # What a killed build left there goes with the next one.
    (left / "build-0123456789abcdef").mkdir()
    assert elfs(project, builder, rebuild=True).exit_code == 0
    assert list(left.iterdir()) == []


@pytest.mark.parametrize("target", ["sim", "npu2"])
def test_without_a_plain_folder_the_path_is_refused_once_before_anything_runs(target, tmp_path, monkeypatch):
    (tmp_path / "t t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t t"))
    project = make_project(tmp_path / "my kernels")
    builder = _Placed(read_lock(project.lock_file).target(target))
    with pytest.raises(
        Refused, match=r"^build folder .*: expected a path of letters, digits and _\+\./- alone, found "
    ):
        elfs(project, builder)
    assert builder.places == []


# Recipes told and remembered.


def counting(monkeypatch):
    told = []
    inputs = StandInBuilder.inputs

    def count(self, generator, *rest):
        told.append(generator.text)
        return inputs(self, generator, *rest)

    monkeypatch.setattr(StandInBuilder, "inputs", count)
    return told


def test_a_generator_is_run_once_and_its_recipe_remembered(project, stand_in, monkeypatch):
    told = counting(monkeypatch)
    elfs(project, stand_in)
    assert len(told) == len(set(told)) == TINY_RECIPES
    before = project.registry_file.read_bytes()
    assert "nothing to do" in elfs(project, stand_in).summary()
    assert len(told) == TINY_RECIPES
    # Deleting what is remembered costs time only.
    shutil.rmtree(project.cache)
    assert "nothing to do" in elfs(project, stand_in).summary()
    assert len(told) == 2 * TINY_RECIPES
    assert project.registry_file.read_bytes() == before
    assert len(stand_in.built) == TINY_RECIPES


@pytest.mark.parametrize("damage", ["truncate", "another", "not json", "a folder"])
def test_what_is_remembered_wrongly_is_told_anew(built, stand_in, monkeypatch, damage):
    kept = sorted((built.cache / "recipes").iterdir())
    assert len(kept) == TINY_RECIPES
    match damage:
        case "truncate":
            kept[0].write_bytes(kept[0].read_bytes()[:-1])
        case "another":
            kept[0].write_bytes(kept[1].read_bytes())
        case "not json":
            data = b"[]"
            kept[0].rename(kept[0].with_name(f"{kept[0].name[:64]}.{hashlib.sha256(data).hexdigest()}.json"))
            next((built.cache / "recipes").glob(f"{kept[0].name[:64]}.*")).write_bytes(data)
        case _:
            kept[0].unlink()
            kept[0].mkdir()
    told = counting(monkeypatch)
    assert "nothing to do" in elfs(built, stand_in).summary()
    assert len(told) == 1


def test_nothing_is_remembered_of_code_that_is_younger_than_the_process(project, stand_in, monkeypatch):
    monkeypatch.setattr("elfkiln.work.recipes._process_start", lambda: 0.0)
    told = counting(monkeypatch)
    elfs(project, stand_in)
    elfs(project, stand_in)
    assert len(told) == 2 * TINY_RECIPES
    assert not (project.cache / "recipes").exists()


def test_a_source_that_changes_between_plan_and_build_is_told(built, stand_in):
    """What is remembered belongs to the source that was there; the one that is there now asks for another recipe."""
    shutil.rmtree(built.store)
    first = stand_in.source

    class Edited(StandInBuilder):
        def prepare(self):
            self.source = "2" * 64

    edited = Edited(stand_in.pin, source=first)
    report = elfs(built, edited)
    assert report.exit_code == 1
    assert {failure.reason for failure in report.failures} == {"stand-in changed during the build; run again"}
    assert edited.built == []
    # Run again, it is built from what is there.
    report = elfs(built, edited)
    assert (report.exit_code, len(report.built)) == (0, TINY_NAMES)

"""What gc keeps and frees: by names and never by age, beside whoever uses the store, and whole at any moment."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.io.canonical import canonical_json
from elfkiln.io.locking import locked
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.artifacts import find_artifact, recipe_ref
from elfkiln.store.attestations import attest, attestations, statement
from elfkiln.store.blobs import Store, descriptor_of
from elfkiln.store.healing import TOOLCHAIN_TYPE, toolchain_ref
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work import gc
from elfkiln.work.fsck import fsck
from elfkiln.work.gc import collect
from elfkiln.work.install import install
from kilns import build, copy_kiln, flip
from stored import stored

G = "full_i8_G_K256_N512_b8.elf"
# What a build itself says of an artifact: provenance, and lint's result.
BUILD_STATEMENTS = 2
OLD = time.time() - 7200


@pytest.fixture(scope="module")
def original(tiny_kiln, tmp_path_factory):
    """The model `tiny`, built once from other sources, then from the present ones; all of it hours old."""
    project = copy_kiln(tiny_kiln, tmp_path_factory.mktemp("kiln") / "project")
    assert build(project, source="2" * 64).exit_code == 0
    forget_recipes(project)
    return project


@pytest.fixture
def kiln(original, tmp_path):
    project = copy_kiln(original, tmp_path / "project")
    age(project)
    return project


def age(project):
    for path in project.blobs.iterdir():
        os.utime(path, (OLD, OLD))


def forget_recipes(project):
    for note in (project.cache / "recipes").iterdir():
        note.unlink()


def entry(project, key=G):
    return load_registry(project.registry_file).entries("sim")[key]


def blobs(project):
    return {path.name for path in project.blobs.iterdir()}


def test_the_default_is_a_dry_run_that_prints_bytes(kiln, capsys):
    before = blobs(kiln)
    digest = Store(kiln.store).add_bytes(b"eleven bytes"[:11])
    os.utime(kiln.blobs / digest, (OLD, OLD))
    assert main(["gc", f"root={kiln.root}"]) == 0
    out = capsys.readouterr().out
    assert "would free 1 blobs, 11 bytes (11 given back)" in out
    assert "nothing was removed" in out
    assert blobs(kiln) == before | {digest}
    assert main(["gc", "--delete", "--json", f"root={kiln.root}"]) == 0
    assert json.loads(capsys.readouterr().out)["freed_bytes"] == 11
    assert blobs(kiln) == before


def test_generations_keep_what_they_name_and_without_them_it_goes(kiln):
    both = blobs(kiln)
    assert collect(kiln, delete=True).loose == ()
    # The registry of the first build is the first of two generations.
    assert collect(kiln, delete=True, generations=2).loose == ()
    found = collect(kiln, delete=True, generations=1)
    assert {one.name for one in found.loose} == both - blobs(kiln)
    assert fsck(kiln).findings == ()
    for one in load_registry(kiln.registry_file).entries("sim").values():
        assert find_artifact(Store(kiln.store), one.recipe) is not None
    # One recipe, ELF, manifest, ... of each of six; the design and what both share stay.
    assert sum("artifact of recipe" in one.what for one in found.loose) == 6


def test_what_the_plans_come_to_is_kept_though_nothing_names_it(kiln):
    assert build(kiln, source="3" * 64).exit_code == 0
    before = blobs(kiln)
    new = {one.recipe for one in load_registry(kiln.registry_file).entries("sim").values()}
    kiln.registry_file.unlink()
    age(kiln)
    # The stand-in's recipes are remembered under its own sources, which the project's builder does not read.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.work.roots.recipes_of_plans", lambda *_: new)
        assert collect(kiln, delete=True, generations=0).kept_blobs > 0
    assert {recipe_ref(one) for one in new} == {ref for ref in Store(kiln.store).refs() if ref.startswith("recipe-")}
    assert blobs(kiln) < before


def test_an_attestation_stays_as_long_as_its_artifact(kiln):
    store = Store(kiln.store)
    attest(store, entry(kiln).manifest, statement(G, entry(kiln).elf, "https://example.org/t", {}), signed=False)
    age(kiln)
    collect(kiln, delete=True, generations=1)
    assert len(attestations(store, [entry(kiln).manifest])[entry(kiln).manifest]) == 1 + BUILD_STATEMENTS
    manifest = entry(kiln).manifest
    kiln.registry_file.unlink()
    collect(kiln, delete=True, generations=0)
    assert attestations(store, [manifest])[manifest] == ()
    assert blobs(kiln) == set()


def test_an_attestation_whose_name_is_lost_stays_too_and_is_named_again(kiln):
    store = Store(kiln.store)
    attest(store, entry(kiln).manifest, statement(G, entry(kiln).elf, "https://example.org/t", {}), signed=False)
    index = kiln.store / "index.json"
    table = json.loads(index.read_bytes())
    table["manifests"] = [one for one in table["manifests"] if not str(one["annotations"]).count("attestation-")]
    index.write_text(json.dumps(table))
    age(kiln)
    collect(kiln, delete=True, generations=1)
    assert len(attestations(store, [entry(kiln).manifest])[entry(kiln).manifest]) == 1 + BUILD_STATEMENTS


def test_the_mirror_of_the_lock_stays_and_another_goes(kiln):
    store = Store(kiln.store)
    pins = read_lock(kiln.lock_file).targets
    wheel = store.add_bytes(b"a wheel")

    def mirror(table):
        config = descriptor_of(store, store.add_bytes(canonical_json(table)), "application/json")
        layer = descriptor_of(store, wheel, "application/vnd.elfkiln.wheel")
        store.add_manifest(
            ref=toolchain_ref(config.digest), artifact_type=TOOLCHAIN_TYPE, config=config, layers=(layer,)
        )
        return toolchain_ref(config.digest)

    ours, other = mirror(pins["npu2"].table), mirror({"pin": "of last year"})
    age(kiln)
    collect(kiln, delete=True)
    assert ours in store.refs()
    assert other not in store.refs()
    assert store.holds(wheel)


def test_a_wheel_that_the_lock_pins_stays_before_there_is_a_mirror(kiln):
    digest = Store(kiln.store).add_bytes(b"a wheel")
    text = kiln.lock_file.read_text()
    kiln.lock_file.write_text(f'{text}\n[target.other]\nwheels = [{{sha256 = "{digest}"}}]\n')
    age(kiln)
    assert collect(kiln).loose == ()


def test_images_of_other_tools_stay(kiln):
    store = Store(kiln.store)
    blob = descriptor_of(store, store.add_bytes(b"a layer"), "application/octet-stream")
    store.add_manifest(ref="somebody", artifact_type="application/x.other", config=blob, layers=(blob,))
    age(kiln)
    assert collect(kiln, delete=True).loose == ()


def test_what_is_young_stays_and_a_clock_that_is_wrong_frees_nothing_that_is_named(kiln, monkeypatch):
    store = Store(kiln.store)
    stored(store, "young", b"young", columns=2)
    assert collect(kiln).loose == ()
    named = blobs(kiln)
    monkeypatch.setattr(gc.time, "time", lambda: 0.0)
    assert collect(kiln, delete=True).loose == ()
    assert blobs(kiln) == named
    monkeypatch.setattr(gc.time, "time", lambda: 4_102_444_800.0)
    collect(kiln, delete=True)
    assert fsck(kiln).findings == ()
    assert find_artifact(store, entry(kiln).recipe) is not None


def test_the_artifact_of_a_running_build_stays(kiln):
    made = stored(Store(kiln.store), "running", b"running", columns=2)
    age(kiln)
    with locked(kiln.locks / f"{made.recipe}.lock", "the build"):
        assert collect(kiln).loose == ()
    assert len(collect(kiln).loose) > 0


def test_a_damaged_manifest_stops_it_before_anything_goes(kiln):
    Store(kiln.store).add_bytes(b"loose")
    flip(kiln.blobs / entry(kiln).manifest)
    age(kiln)
    before = blobs(kiln)
    with pytest.raises(Differs, match="run elfkiln fsck --repair first, nothing was removed"):
        collect(kiln, delete=True)
    assert blobs(kiln) == before


@pytest.mark.parametrize("name", ["registry.yaml", "toolchain.lock"])
def test_what_cannot_be_read_stops_it_too(kiln, name):
    before = blobs(kiln)
    (kiln.root / name).write_text("{[")
    with pytest.raises(Refused):
        collect(kiln, delete=True, generations=0)
    assert blobs(kiln) == before


def test_a_damaged_generation_stops_it(kiln):
    flip(next((kiln.generations / "registries").iterdir()), 200)
    with pytest.raises(Differs, match="generation"):
        collect(kiln, delete=True)


def test_it_waits_for_whoever_uses_the_store_and_says_so(kiln, capsys, monkeypatch):
    monkeypatch.setattr("elfkiln.io.locking.SAID_AFTER", 0.1)
    store, inside, leave = Store(kiln.store), threading.Event(), threading.Event()

    def use():
        with store.in_use():
            inside.set()
            leave.wait(20)

    user = threading.Thread(target=use)
    user.start()
    inside.wait(20)
    with pytest.raises(Differs, match="the store: this process itself has used it"):
        collect(kiln, delete=True, patience=0.3)
    assert "waiting for the store" in capsys.readouterr().err
    # Those who only use it do not wait for each other, and a dry run is one of them.
    assert collect(kiln, patience=0.1).loose == ()
    leave.set()
    user.join()
    collect(kiln, delete=True, patience=0.3)


def test_installed_files_outlive_their_blobs_and_are_not_counted_as_given_back(kiln, tmp_path):
    install(kiln, "sim", model_requirements(kiln, "tiny"), tmp_path / "model")
    elfs = {one.elf: one.size for one in load_registry(kiln.registry_file).entries("sim").values()}
    kiln.registry_file.unlink()
    found = collect(kiln, delete=True, generations=0)
    assert found.bytes - found.freed == sum(elfs.values())
    assert (tmp_path / "model" / "kernels" / G).stat().st_nlink == 2  # G and U


def test_a_store_that_is_not_there_has_nothing(tmp_path, kiln):
    empty = Project(tmp_path / "empty")
    (empty.root).mkdir()
    (empty.lock_file).write_text(kiln.lock_file.read_text())
    assert collect(empty, delete=True).loose == ()
    assert os.listdir(empty.root) == ["toolchain.lock"]


@pytest.mark.parametrize("words", [["--grace", "-1"], ["--keep", "many"], ["--damaged"]])
def test_words_that_do_not_fit_are_refused(kiln, words):
    assert main(["gc", *words, f"root={kiln.root}"]) == 2


def _build_and_collect(root, worker, rounds):
    project = Project(root)
    for number in range(rounds):
        if worker == 0:
            collect(project, delete=True, generations=0, grace=0)
        else:
            assert build(project, source=f"{number % 2}" * 64).exit_code == 0


def test_builds_and_collections_at_once_lose_nothing_that_is_named(kiln):
    """Without grace and generations, each build may find the blobs of the one before gone, and none of its own."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_build_and_collect, args=(kiln.root, one, 3)) for one in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    found = fsck(kiln)
    assert {one.state for one in found.findings} <= {"unreferenced"}

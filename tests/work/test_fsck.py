"""What fsck finds, by state and exit code, and what a repair makes of it: the right bytes, or a line that says why."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.artifacts import log_ref, recipe_ref
from elfkiln.store.attestations import attest, attestations, statement
from elfkiln.store.blobs import Store
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.store.registry import load_registry
from elfkiln.work.asked import asked_by_model
from elfkiln.work.fsck import EXIT_CORRUPT, EXIT_MISSING, EXIT_UNREFERENCED, fsck
from elfkiln.work.install import install
from elfkiln.work.mirrors import Mirrors
from elfkiln.work.push import push_sets
from elfkiln.work.repair import repair
from kilns import build, builder_of, copy_kiln, flip, overwrite
from oci_server import Registry as ServedRegistry
from oci_server import serving
from projects import TINY_NAMES, TINY_RECIPES

G = "full_i8_G_K256_N512_b8.elf"
U = "full_i8_U_K256_N512_b8.elf"
D = "full_i8_D_K512_N256_b8.elf"


@pytest.fixture
def kiln(tiny_kiln, tmp_path):
    return copy_kiln(tiny_kiln, tmp_path / "project")


def entry(project, key=G):
    return load_registry(project.registry_file).entries("sim")[key]


def states(found):
    return Counter(one.state for one in found.findings)


def mended(project, found=None, **words):
    builder = builder_of(project)
    words.setdefault("builder_of", lambda _target: builder)
    return repair(project, found or fsck(project), **words), builder


def bytes_of_names(project):
    """The sha256 of what lies under each registered digest, read by hand."""
    blobs = project.store / "blobs" / "sha256"
    return {
        key: hashlib.sha256((blobs / one.elf).read_bytes()).hexdigest()
        for key, one in load_registry(project.registry_file).entries("sim").items()
    }


def test_a_whole_store_has_no_findings(kiln):
    found = fsck(kiln)
    assert found.findings == ()
    assert found.exit_code == 0
    assert found.blobs == len(os.listdir(kiln.blobs))
    assert found.bytes == sum(path.stat().st_size for path in kiln.blobs.iterdir())
    # An artifact, a build record, provenance and lint's result for each recipe.
    assert (found.names, found.manifests) == (TINY_NAMES, 4 * TINY_RECIPES)


@pytest.mark.parametrize("part", ["elf", "design", "recipe", "manifest"])
def test_a_flipped_bit_is_corrupt_and_is_built_anew(kiln, part):
    whole = bytes_of_names(kiln)
    digest = getattr(entry(kiln), part)
    flip(kiln.blobs / digest, -1)
    damaged = (kiln.blobs / digest).read_bytes()
    found = fsck(kiln)
    assert found.exit_code == EXIT_CORRUPT
    line = next(one for one in found.findings if one.state == "corrupt")
    assert line.what == f"blob sha256:{digest}"
    assert f"sim/{G}" in line.detail
    done, _ = mended(kiln, found)
    assert done.checkup.findings == ()
    assert done.left == ()
    assert bytes_of_names(kiln) == whole
    # Quarantined: the damaged bytes are still there to be looked at.
    assert [path.read_bytes() for path in (kiln.store / "damaged").iterdir()] == [damaged]


def test_a_blob_that_is_gone_is_missing_and_is_built_anew_once(kiln):
    (kiln.blobs / entry(kiln).elf).unlink()
    found = fsck(kiln)
    assert found.exit_code == EXIT_MISSING
    # G and U are one recipe.
    assert sorted(one.what for one in found.findings) == [f"registry.yaml: sim/{G}", f"registry.yaml: sim/{U}"]
    done, builder = mended(kiln, found)
    assert (len(builder.built), done.checkup.exit_code) == (1, 0)


def test_what_nothing_refers_to_is_its_own_exit_code(kiln):
    digest = Store(kiln.store).add_bytes(b"left by somebody")
    found = fsck(kiln)
    assert found.exit_code == EXIT_UNREFERENCED
    assert [(one.what, one.size) for one in found.findings] == [(f"sha256:{digest}", 16)]


def test_an_artifact_that_no_name_plan_or_build_reaches_is_unreferenced_with_all_its_parts(kiln):
    before = {path.name for path in kiln.blobs.iterdir()}
    text = kiln.registry_file.read_text()
    assert build(kiln, source="2" * 64).exit_code == 0
    new = {path.name for path in kiln.blobs.iterdir()} - before
    kiln.registry_file.write_text(text)
    # The plans come to the new recipes while these are remembered; then nothing does.
    for note in (kiln.cache / "recipes").iterdir():
        note.unlink()
    assert fsck(kiln).findings == ()  # the generation of the second build names them
    shutil.rmtree(kiln.generations)
    assert {one.what for one in fsck(kiln).findings} == {f"sha256:{digest}" for digest in new}


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_blob_that_is_no_file_is_corrupt_and_never_waited_for(kiln, put):
    path = kiln.blobs / entry(kiln).elf
    path.unlink()
    put(path)
    found = fsck(kiln)
    assert found.exit_code == EXIT_CORRUPT
    done, _ = mended(kiln, found)
    assert done.checkup.findings == ()


def test_entries_that_contradict_their_manifests_are_corrupt(kiln):
    text = kiln.registry_file.read_text()
    kiln.registry_file.write_text(text.replace(entry(kiln).elf, entry(kiln, D).design))
    assert fsck(kiln).exit_code == EXIT_CORRUPT
    kiln.registry_file.write_text(text.replace("columns: 2", "columns: 4"))
    found = fsck(kiln)
    assert states(found) == {"corrupt": TINY_NAMES}
    assert "columns: expected 2" in found.findings[0].detail


def test_a_registry_that_cannot_be_read_is_a_finding_and_nothing_counts_as_unreferenced_then(kiln):
    kiln.registry_file.write_text("targets: [")
    found = fsck(kiln)
    assert [(one.state, one.what) for one in found.findings] == [("corrupt", "registry.yaml")]


def test_a_repair_that_could_not_read_the_registry_takes_no_name_out(kiln):
    """What is then built anew may be what an artifact lacks that no name stands for: a second repair has it all."""
    lost = Store(kiln.store).path(entry(kiln).design)
    names = set(Store(kiln.store).refs())
    lost.unlink()
    text = kiln.registry_file.read_text()
    kiln.registry_file.write_text("targets: [")
    found = fsck(kiln)
    kiln.registry_file.write_text(text)
    done, _ = mended(kiln, found)
    assert done.left == ("registry.yaml: could not be read, so nothing was built anew; restore it and repair again",)
    assert set(Store(kiln.store).refs()) == names
    done, _ = mended(kiln, fsck(kiln))
    assert (done.left, done.checkup.findings) == ((), ())
    assert lost.is_file()


def test_an_index_that_lost_entries_gets_them_again(kiln):
    store = Store(kiln.store)
    attest(store, entry(kiln).manifest, statement(G, entry(kiln).elf, "https://example.org/t", {}), signed=False)
    index = kiln.store / "index.json"
    table = json.loads(index.read_bytes())
    count = len(table["manifests"])
    for lost in range(count):
        kept = [one for number, one in enumerate(table["manifests"]) if number != lost]
        index.write_text(json.dumps(table | {"manifests": kept}))
        found = fsck(kiln)
        assert states(found) == {"missing": 1}, table["manifests"][lost]
        done, _ = mended(kiln, found)
        assert done.checkup.findings == ()
        assert len(Store(kiln.store).refs()) == count
    # The build's own two, and this one.
    assert len(attestations(store, [entry(kiln).manifest])[entry(kiln).manifest]) == 3


def test_a_damaged_index_is_said_and_not_mended_unless_asked(kiln):
    index = kiln.store / "index.json"
    index.write_text("{")
    assert fsck(kiln).exit_code == EXIT_CORRUPT
    assert index.read_text() == "{"
    done, _ = mended(kiln)
    assert done.checkup.findings == ()


def test_a_log_that_is_lost_is_unnamed_since_nobody_can_make_it_again(kiln):
    store = Store(kiln.store)
    record = store.manifest(store.refs()[log_ref(entry(kiln).recipe)])
    for path in kiln.blobs.iterdir():
        if path.read_bytes() == b"a log\n":
            flip(path)
    assert record["layers"][0]["mediaType"] == "text/plain"
    done, builder = mended(kiln)
    assert builder.built == []
    assert done.checkup.exit_code in (0, EXIT_UNREFERENCED)
    assert recipe_ref(entry(kiln).recipe) in store.refs()
    assert log_ref(entry(kiln).recipe) not in store.refs()


def test_other_sources_do_not_mend_what_is_registered(kiln):
    text = kiln.registry_file.read_text()
    (kiln.blobs / entry(kiln).elf).unlink()
    other = builder_of(kiln, source="9" * 64)
    done, _ = mended(kiln, builder_of=lambda _target: other)
    assert done.checkup.exit_code == EXIT_MISSING
    assert "its recipe is another one now" in done.left[0]
    assert kiln.registry_file.read_text() == text
    assert other.built == []


def test_a_toolchain_that_makes_other_bytes_does_not_mend_either(kiln):
    (kiln.blobs / entry(kiln).elf).unlink()
    other = builder_of(kiln, suffix=b"other")
    done, _ = mended(kiln, builder_of=lambda _target: other)
    assert "same recipe, other bytes" in done.left[0]
    assert done.checkup.exit_code == EXIT_MISSING


def test_a_name_that_no_model_asks_for_is_named(kiln):
    (kiln.blobs / entry(kiln).elf).unlink()
    (kiln.plans / "tiny" / "roles.yaml").unlink()
    done, _ = mended(kiln)
    assert sorted(line.partition(":")[0] for line in done.left) == [f"sim/{G}", f"sim/{U}"]


def test_what_a_registry_has_is_fetched_and_not_built(tiny_kiln, kiln):
    with serving(ServedRegistry()) as host:
        address = f"oci://{host}/kernels"
        registry = OciRegistry(OciAddress.parse(address), plain_http=True, environment={})
        push_sets(tiny_kiln, registry, [asked_by_model(tiny_kiln, "tiny")])
        whole = bytes_of_names(kiln)
        flip(kiln.blobs / entry(kiln).elf)
        (kiln.blobs / entry(kiln, D).manifest).unlink()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("elfkiln.work.take_artifact.check_elf", lambda *_: None)
            done, builder = mended(kiln, mirrors=Mirrors((address,), plain_http=True))
    assert builder.built == []
    assert done.checkup.findings == ()
    assert bytes_of_names(kiln) == whole


def test_install_folders_are_checked_and_mended_with_the_blob_they_are_linked_to(kiln, tmp_path):
    folder = tmp_path / "model"
    install(kiln, "sim", model_requirements(kiln, "tiny"), folder)
    installed = folder / "kernels" / G
    assert installed.samefile(kiln.blobs / entry(kiln).elf)
    flip(installed, 100)
    (folder / "kernels" / D).unlink()
    found = fsck(kiln)
    assert found.folders == (str(folder),)
    assert {(one.state, one.what) for one in found.findings} == {
        ("corrupt", f"blob sha256:{entry(kiln).elf}"),
        ("corrupt", str(installed)),
        ("corrupt", str(folder / "kernels" / U)),
        ("missing", str(folder / "kernels" / D)),
    }
    done, _ = mended(kiln, found)
    assert done.checkup.findings == ()
    assert hashlib.sha256(installed.read_bytes()).hexdigest() == entry(kiln).elf


def test_a_folder_of_another_checkout_is_checked_when_it_is_given(tiny_kiln, kiln, tmp_path):
    folder = tmp_path / "model"
    install(kiln, "sim", model_requirements(kiln, "tiny"), folder)
    overwrite(folder / "kernels" / G, b"short")
    assert "size: 5" in fsck(tiny_kiln, [folder]).findings[0].detail
    with pytest.raises(Refused, match=r"expected a folder with a kernels\.lock\.json, found none"):
        fsck(tiny_kiln, [tmp_path])


def test_kept_answers_and_cached_files_are_checked_and_set_aside(kiln):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.cli.elfs.builder_for", lambda *_: builder_of(kiln))
        assert main(["elfs", "model=tiny", f"root={kiln.root}"]) == 0
    (answer,) = (kiln.index / "elfs").iterdir()
    note = next((kiln.cache / "recipes").iterdir())
    for path in (answer, note):
        flip(path, 40)
    found = fsck(kiln)
    wanted = {str(path.relative_to(kiln.root)) for path in (answer, note)}
    assert {one.what for one in found.findings} == wanted
    done, _ = mended(kiln, found)
    assert done.checkup.findings == ()
    assert not answer.exists()


def test_a_checkout_where_nothing_is_built_misses_its_names(kiln):
    for path in [*kiln.blobs.iterdir(), kiln.store / "index.json"]:
        path.unlink()
    found = fsck(kiln)
    assert (found.exit_code, states(found)) == (EXIT_MISSING, {"missing": TINY_NAMES})


def test_the_command_line_tells_the_states_apart_and_has_them_in_json(kiln, capsys):
    root = f"root={kiln.root}"
    assert main(["fsck", root]) == 0
    assert capsys.readouterr().out.endswith("names: everything is there, and every byte verifies\n")
    flip(kiln.blobs / entry(kiln).elf)
    assert main(["fsck", root, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["corrupt"], found["missing"], found["unreferenced"]) == (1, 0, 0)
    assert main(["fsck", root]) == 1
    assert "elfkiln fsck --repair moves damaged blobs aside" in capsys.readouterr().out
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("elfkiln.cli.fsck.builder_for", lambda *_: builder_of(kiln))
        assert main(["fsck", root, "--repair"]) == 0
    assert f"repaired blob sha256:{entry(kiln).elf}: moved to out/registry/damaged" in capsys.readouterr().out
    assert main(["fsck", root, "mirror=oci://localhost/x"]) == 2

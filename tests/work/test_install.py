"""install: verified files under the engine's names, all or none, and never two targets in one folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from elfkiln.work.lookup import lookup, lookup_exit_code
from projects import TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"
TWIN = "full_i8_QKV_K256_N768_b8_m16.elf"


def put(project, folder):
    return install(project, "sim", model_requirements(project, "tiny"), folder)


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_prefill_and_twins_lie_where_the_engine_looks(built, tmp_path):
    folder = tmp_path / "model"
    done = put(built, folder)
    assert done.linked == TINY_NAMES
    names = [path for path in tree(folder) if path != "kernels.lock.json"]
    assert len(names) == TINY_NAMES
    assert all(path.startswith("kernels-m16/") == path.endswith("_m16.elf") for path in names)
    entries = load_registry(built.registry_file).entries("sim")
    for path in names:
        found = hashlib.sha256((folder / path).read_bytes()).hexdigest()
        assert found == entries[os.path.basename(path)].elf


def test_the_lock_has_every_digest_and_no_place_or_time(built, tmp_path):
    put(built, tmp_path / "model")
    text = (tmp_path / "model" / "kernels.lock.json").read_text()
    table = json.loads(text)
    assert (table["sets"], table["target"]) == ([{"model": "tiny", "layout": "b8"}], "sim")
    assert len(table["artifacts"]) == TINY_NAMES
    row = table["artifacts"][f"kernels/{QKV}"]
    data = (tmp_path / "model" / "kernels" / QKV).read_bytes()
    assert row["elf"] == "sha256:" + hashlib.sha256(data).hexdigest()
    assert row["size"] == len(data)
    assert str(tmp_path) not in text
    put(built, tmp_path / "other")
    assert (tmp_path / "other" / "kernels.lock.json").read_text() == text


def test_a_second_set_in_one_folder_keeps_the_first_listed(built, stand_in, tmp_path):
    put(built, tmp_path)
    rows = model_requirements(built, "tiny", "rm")
    assert build_elfs(built, stand_in, [rows]).exit_code == 0
    install(built, "sim", rows, tmp_path)
    table = json.loads((tmp_path / "kernels.lock.json").read_text())
    assert [one["layout"] for one in table["sets"]] == ["b8", "rm"]
    assert len(table["artifacts"]) == 2 * TINY_NAMES
    # What is no longer there is no longer listed.
    (tmp_path / "kernels" / QKV).unlink()
    install(built, "sim", rows, tmp_path)
    assert f"kernels/{QKV}" not in json.loads((tmp_path / "kernels.lock.json").read_text())["artifacts"]


def test_a_second_install_changes_nothing(built, tmp_path):
    put(built, tmp_path)
    before = {path: (tmp_path / path).stat().st_ino for path in tree(tmp_path) if path.endswith(".elf")}
    done = put(built, tmp_path)
    assert (done.unchanged, done.linked, done.copied) == (TINY_NAMES, 0, 0)
    assert {path: (tmp_path / path).stat().st_ino for path in before} == before


def test_a_foreign_file_of_the_same_name_is_replaced(built, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / QKV).write_bytes(b"a 59-byte stub from an earlier life")
    put(built, tmp_path)
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    assert hashlib.sha256((tmp_path / "kernels" / QKV).read_bytes()).hexdigest() == entry.elf


def test_what_has_another_size_is_replaced_without_a_look_at_its_bytes(built, tmp_path, monkeypatch):
    put(built, tmp_path)
    place = tmp_path / "kernels" / QKV
    place.unlink()
    place.touch()
    os.truncate(place, 1 << 40)
    hashed = []
    monkeypatch.setattr("elfkiln.io.files.sha256_of", lambda path, limit: hashed.append((path.name, limit)))
    assert put(built, tmp_path).linked == 1
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    # Once for the row of kernels.lock.json, once before it is replaced; neither reads more than the ELF has.
    assert [limit for name, limit in hashed if name == QKV] == [entry.size] * 2
    assert hashlib.sha256(place.read_bytes()).hexdigest() == entry.elf


def test_a_symlink_is_replaced_not_written_through(built, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "m" / "kernels").mkdir(parents=True)
    (tmp_path / "m" / "kernels" / QKV).symlink_to(victim)
    put(built, tmp_path / "m")
    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / "m" / "kernels" / QKV).is_symlink()


def test_a_fifo_in_place_of_an_artifact_is_refused(built, tmp_path):
    (tmp_path / "m" / "kernels").mkdir(parents=True)
    os.mkfifo(tmp_path / "m" / "kernels" / QKV)
    with pytest.raises(Refused, match="expected a file or nothing"):
        put(built, tmp_path / "m")
    assert not (tmp_path / "m" / "kernels.lock.json").exists()


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_set_that_is_not_whole_installs_nothing(built, tmp_path, damage):
    path = Store(built.store).path(load_registry(built.registry_file).entries("sim")[QKV].elf)
    if damage == "missing":
        path.unlink()
    else:
        path.chmod(0o644)
        path.write_bytes(b"\x00" + path.read_bytes()[1:])
    with pytest.raises(Differs, match=f"missing full ELF kernels/{QKV}.*nothing was installed"):
        put(built, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_is_registered_for_another_choice_is_not_installed(built, tmp_path):
    put(built, tmp_path / "model")
    before = (tmp_path / "model" / "kernels" / QKV).read_bytes()
    text = built.registry_file.read_text()
    start = text.index(f"    {QKV}:")
    built.registry_file.write_text(text[:start] + text[start:].replace("columns: 2", "columns: 3", 1))
    with pytest.raises(Differs, match="expected 2 columns, registered with 3"):
        put(built, tmp_path / "model")
    assert (tmp_path / "model" / "kernels" / QKV).read_bytes() == before
    found = lookup(built, asked_by_model(built, "tiny", target="sim"))
    rows = found.rows
    assert [row.path for row in rows if row.problem] == [f"kernels/{QKV}"]
    assert lookup_exit_code(rows) == 1
    assert found.set_digest is None


def test_artifacts_of_two_targets_never_mix(built, tmp_path):
    put(built, tmp_path)
    lock = tmp_path / "kernels.lock.json"
    lock.write_text(lock.read_text().replace('"sim"', '"npu2"'))
    before = tree(tmp_path)
    with pytest.raises(Refused, match="target: expected sim, found npu2"):
        put(built, tmp_path)
    assert tree(tmp_path) == before


def test_a_file_in_place_of_the_folder_is_refused(built, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(Refused, match="expected a model folder"):
        put(built, tmp_path / "file")


def test_without_hard_links_the_files_are_copied(built, tmp_path, monkeypatch):
    def other_device(_source, _target, **_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("elfkiln.work.install.os.link", other_device)
    done = put(built, tmp_path)
    assert (done.linked, done.copied) == (0, TINY_NAMES)
    store = Store(built.store)
    blob = store.path(load_registry(built.registry_file).entries("sim")[QKV].elf)
    assert (tmp_path / "kernels" / QKV).read_bytes() == blob.read_bytes()
    assert (tmp_path / "kernels" / QKV).stat().st_ino != blob.stat().st_ino
    assert put(built, tmp_path).unchanged == TINY_NAMES


def test_a_full_disk_is_one_line_and_leaves_no_part_files(built, tmp_path, monkeypatch):
    def full(_source, _target, **_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("elfkiln.work.install.os.link", full)
    with pytest.raises(Refused, match="no space left on the device"):
        put(built, tmp_path / "model")
    assert tree(tmp_path / "model") == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model=tiny"], "dir= is needed"),
        (["dir=x"], "model= is needed"),
        (["model=tiny", "dir=x", "target=gpu"], "target=gpu"),
    ],
)
def test_usage(built, capsys, words, says):
    assert main(["install", f"root={built.root}", *words]) == 2
    assert says in capsys.readouterr().err


def test_the_verb_says_what_it_did(built, capsys, tmp_path):
    assert main(["install", f"root={built.root}", "model=tiny", f"dir={tmp_path / 'm'}"]) == 0
    assert capsys.readouterr().out.startswith(
        f"{TINY_NAMES} ELFs of target sim in {tmp_path / 'm'} ({TINY_NAMES} linked"
    )
    assert main(["install", f"root={built.root}", "model=tiny", f"dir={tmp_path / 'm'}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unchanged"] == TINY_NAMES

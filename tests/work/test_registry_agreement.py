"""Entries of registry.yaml are held against the store's manifests wherever bytes are served or built by them."""

from __future__ import annotations

import pytest
import yaml

from elfkiln.cli import main
from elfkiln.store.agreement import MEND, entry_fault
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from projects import StandInBuilder

QKV, G, D = (f"full_i8_{shape}_b8.elf" for shape in ("QKV_K256_N768", "G_K256_N512", "D_K512_N256"))


@pytest.fixture
def built(built, stand_in, monkeypatch):
    monkeypatch.setattr("elfkiln.cli.elfs.builder_for", lambda *_: StandInBuilder(stand_in.pin))
    return built


def edit(project, change):
    """Change the rows of target sim as a hand or a merge would."""
    table = yaml.safe_load(project.registry_file.read_text())
    change(table["targets"]["sim"])
    project.registry_file.write_text(yaml.safe_dump(table))


def swap(field):
    def change(rows):
        rows[QKV][field], rows[D][field] = rows[D][field], rows[QKV][field]

    return field, change


def put(field, value):
    def change(rows):
        rows[QKV][field] = value(rows[QKV][field])

    return field, change


def whole(rows):
    rows[QKV], rows[D] = rows[D], rows[QKV]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        swap("elf"),
        put("design", lambda _: "sha256:" + "0" * 64),
        put("size", lambda size: size + 1),
        put("columns", lambda columns: columns * 2),
        # Whichever manifest it is, it says another recipe first.
        ("recipe", swap("manifest")[1]),
        ("shape", whole),
    ],
    ids=["elf", "design", "size", "columns", "manifest", "whole rows"],
)
def test_an_entry_that_is_not_what_its_manifest_says(built, tmp_path, capsys, field, change):
    right = built.registry_file.read_bytes()
    edit(built, change)
    wrong = built.registry_file.read_bytes()
    root = f"root={built.root}"

    def run(*words):
        code = main([*words, root])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    for words in (("lookup", QKV), ("lookup", "*_QKV_*")):
        code, out = run(*words)
        assert (code, f"registry.yaml: sim/{QKV}: {field}: expected " in out, MEND in out) == (1, True, True), words
    code, out = run("check-missing", "model=tiny")
    assert (code, f"missing full ELF kernels/{QKV}" in out, "  wrong " in out) == (1, True, True)
    assert f"registry.yaml: sim/{QKV}: {field}" in out or field == "columns"
    assert run("check-missing", "model=tiny")[0] == 1
    assert run("lookup", "model=tiny")[0] == 1
    folder = tmp_path / "m"
    code, out = run("install", "model=tiny", f"dir={folder}")
    assert (code, folder.exists(), f"missing full ELF kernels/{QKV}" in out) == (1, False, True)
    code, out = run("elfs", "model=tiny")
    # Rows that moved as a whole name other recipes, and set right one by one they clash.
    told = f"registry.yaml: sim/{QKV}: {field}: expected " if field != "shape" else "differ in geometry or target"
    assert (code, told in out) == (1, True)
    assert built.registry_file.read_bytes() == wrong
    built.registry_file.write_bytes(right)
    for words in (("lookup", QKV), ("check-missing", "model=tiny"), ("install", "model=tiny", f"dir={folder}")):
        assert run(*words)[0] == 0, words
    code, out = run("elfs", "model=tiny")
    assert (code, "nothing to do" in out) == (0, True)


def test_an_entry_taken_out_is_written_again(built, capsys):
    """The second way to mend that the message names."""
    right = built.registry_file.read_bytes()
    edit(built, lambda rows: rows.pop(QKV))
    assert main(["elfs", "model=tiny", f"root={built.root}"]) == 0
    assert "1 registered from the store" in capsys.readouterr().out
    assert built.registry_file.read_bytes() == right


def test_a_manifest_that_is_no_artifact_and_one_that_is_not_there(built):
    store = Store(built.store)
    edit(built, lambda rows: rows[QKV].update(manifest=rows[QKV]["design"]))
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    assert entry_fault(store, "sim", QKV, entry).startswith(f"registry.yaml: sim/{QKV}: manifest: ")
    # Nothing can be said by a manifest that is not stored; its blob is missing, and check-missing says that of the ELF.
    edit(built, lambda rows: rows[QKV].update(manifest="sha256:" + "0" * 64))
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    assert entry_fault(store, "sim", QKV, entry) is None


def test_the_sealed_list_of_an_entry(built):
    store = Store(built.store)
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    # By the manifest it is not a sealed ELF.
    fault = entry_fault(store, "sim", "tiny/pb16i_sealed.elf", entry)
    assert fault is not None
    assert "shape: expected K256_N768_b8, as manifest sha256:" in fault

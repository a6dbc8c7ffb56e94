"""registry.yaml: what is read, what is refused, what it looks like, and that nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from elfkiln.errors import Differs, Refused
from elfkiln.io import files
from elfkiln.store.registry import Entry, Registry, dump_registry, load_registry, register, shape_of

G = "full_i8_G_K5120_N17408_b8.elf"
U = "full_i8_U_K5120_N17408_b8.elf"
D = "full_i8_D_K17408_N5120_b8.elf"


def entry(digit, size=100):
    return Entry(elf=digit * 64, size=size, recipe="1" * 64, manifest="2" * 64, design="3" * 64, columns=8)


def test_an_absent_file_is_an_empty_registry(tmp_path):
    assert load_registry(tmp_path / "registry.yaml") == Registry({})


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "registry.yaml"
    sealed = replace(entry("b"), sealed=((128, 256), (5120, 14336)))
    registry = Registry({"sim": {G: entry("a"), "bonsai/pb16i_sealed.elf": sealed}, "npu2": {G: entry("c")}})
    path.write_bytes(dump_registry(registry))
    assert load_registry(path) == registry


def test_the_file_is_sorted_with_one_field_a_line():
    text = dump_registry(Registry({"sim": {U: entry("a"), G: entry("a")}})).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        "schema: elfkiln-registry/1",
        "targets:",
        "  sim:",
        f"    {G}:",
        "      columns: 8",
        "      design: sha256:" + "3" * 64,
        "      elf: sha256:" + "a" * 64,
        "      manifest: sha256:" + "2" * 64,
        "      recipe: sha256:" + "1" * 64,
        "      size: 100",
        f"    {U}:",
        "      columns: 8",
        "      design: sha256:" + "3" * 64,
        "      elf: sha256:" + "a" * 64,
        "      manifest: sha256:" + "2" * 64,
        "      recipe: sha256:" + "1" * 64,
        "      size: 100",
    ]


def test_g_and_u_of_one_geometry_may_share_bytes():
    Registry({}).with_entries("sim", {G: entry("a"), U: entry("a")})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("sim", G), ("sim", D)),
        (("sim", G), ("sim", "full_i8_G_K5120_N17408_b8_m16.elf")),
        (("sim", G), ("sim", "full_i8_G_K5120_N17408.elf")),
        (("sim", G), ("npu2", G)),
        (("sim", G), ("sim", "bonsai/pb16i_sealed.elf")),
    ],
)
def test_equal_digests_under_other_geometry_or_target_are_an_error(first, second):
    one = Registry({}).with_entries(first[0], {first[1]: entry("a")})
    with pytest.raises(Differs, match="have the same digest sha256:a") as raised:
        one.with_entries(second[0], {second[1]: entry("a")})
    for target, key in (first, second):
        assert f"{target}/{key}" in str(raised.value)


def test_a_clash_in_the_file_itself_is_found(tmp_path):
    path = tmp_path / "registry.yaml"
    path.write_bytes(dump_registry(Registry({"sim": {G: entry("a"), D: entry("a")}})))
    with pytest.raises(Differs, match="same digest"):
        load_registry(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "registry.yaml: expected a mapping, found an empty file"),
        ("[1, 2]", "registry.yaml line 1: expected a mapping, found a list of 2"),
        ("targets: {}\n", "schema: expected elfkiln-registry/1, found nothing"),
        ("schema: other/1\ntargets: {}\n", "expected elfkiln-registry/1, found 'other/1'"),
        ("schema: elfkiln-registry/1\ntargets: 3\n", "targets"),
        ("schema: elfkiln-registry/1\ntargets: {sim: []}\n", "targets.sim"),
        ("schema: elfkiln-registry/1\ntargets: {sim: {x.elf: 3}}\n", "sim/x.elf"),
        ("schema: elfkiln-registry/1\ntargets: {sim: {x.elf: {elf: sha256:00}}}\n", "expected the fields"),
        ("schema: elfkiln-registry/1\ntargets: {sim: {x.elf: {1: 2}}}\n", "found 1"),
        ("a: [", "registry.yaml line 2: expected YAML"),
        ("!!python/object/apply:os.system ['false']", "expected no tags"),
        ("\x00", "expected YAML"),
        ("a: &a [x, x]\nb: *a\n", "line 1: expected no anchors"),
        ("- " * 20_000 + "x", "levels"),
        ("[" * 20_000, "nesting"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_it(tmp_path, text, says):
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    with pytest.raises(Refused) as raised:
        load_registry(path)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("restore it from the repository")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("elf", "sha256:../../../etc/passwd", "expected sha256:<64 lower-case hex digits>"),
        ("elf", 3, "expected sha256:"),
        ("size", 0, "size: expected a whole number of at least 1, found 0"),
        ("size", True, "size"),
        ("columns", "8", "columns"),
        ("size", 10**400, "size: expected a whole number"),
        ("size", 1e999, "size: expected a whole number of at least 1, found '.inf'"),
    ],
)
def test_a_bad_field_of_an_entry_is_named(tmp_path, field, value, says):
    table = yaml.safe_load(dump_registry(Registry({"sim": {G: entry("a")}})))
    table["targets"]["sim"][G][field] = value
    path = tmp_path / "registry.yaml"
    path.write_text(yaml.safe_dump(table))
    with pytest.raises(Refused) as raised:
        load_registry(path)
    assert says in str(raised.value)
    assert G in str(raised.value)


@pytest.mark.parametrize("value", [None, [], "128x256", [3], ["128x"], ["0x1"], ["1x2", "../x"]])
def test_the_geometries_of_a_sealed_elf_are_checked(tmp_path, value):
    key = "bonsai/pb16i_sealed.elf"
    good = Registry({"sim": {key: replace(entry("b"), sealed=((128, 256),))}})
    table = yaml.safe_load(dump_registry(good))
    assert table["targets"]["sim"][key]["sealed"] == ["128x256"]
    table["targets"]["sim"][key]["sealed"] = value
    path = tmp_path / "registry.yaml"
    path.write_text(yaml.safe_dump(table))
    with pytest.raises(Refused, match=r"sealed(\[[01]\])?: expected (a list of at least 1|<K>x<N>|a text)"):
        load_registry(path)


def test_a_key_given_twice_is_refused(tmp_path):
    text = dump_registry(Registry({"sim": {G: entry("a")}})).decode()
    path = tmp_path / "registry.yaml"
    path.write_text(text + text[text.index(f"    {G}:") :])
    with pytest.raises(Refused, match=rf"line 12: {G}: expected each key once"):
        load_registry(path)


def test_a_name_that_is_no_artifact_name_is_refused(tmp_path):
    path = tmp_path / "registry.yaml"
    path.write_bytes(dump_registry(Registry({"sim": {G: entry("a")}})).replace(b"full_i8_G", b"../full_i8_G"))
    with pytest.raises(Refused, match="sim/"):
        load_registry(path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_neither_waited_for_nor_read_without_end(tmp_path, make):
    path = tmp_path / "registry.yaml"
    make(path)
    with pytest.raises(Refused, match=r"not a regular file \(.*restore it"):
        load_registry(path)


def test_a_registry_of_a_terabyte_is_refused_by_its_size(tmp_path):
    path = tmp_path / "registry.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(Refused, match="at most 67108864 bytes"):
        load_registry(path)


def test_shapes_are_k_n_tag_and_m():
    assert shape_of(G) == shape_of(U) == "K5120_N17408_b8"
    assert shape_of(D) != shape_of(G)


def test_unchanged_content_leaves_the_file_alone(tmp_path):
    path = tmp_path / "registry.yaml"
    register(path, "sim", {G: entry("a")})
    before = path.stat()
    register(path, "sim", {G: entry("a")})
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_lock_lies_beside_the_file_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "registry.yaml"
    register(path, "sim", {G: entry("a")})
    assert sorted(os.listdir(tmp_path)) == [".registry.yaml.lock", "registry.yaml"]


def test_an_edit_between_reading_and_renaming_is_kept(tmp_path, monkeypatch):
    """Somebody without the lock, a person or git, writes the file while its new content is made."""
    path = tmp_path / "registry.yaml"
    register(path, "sim", {G: entry("a")})
    meanwhile = [dump_registry(Registry({"sim": {G: entry("a"), D: entry("d")}}))]
    write = files.os.fsync

    def edit(descriptor):
        write(descriptor)
        if meanwhile:
            path.write_bytes(meanwhile.pop())

    monkeypatch.setattr(files.os, "fsync", edit)
    register(path, "sim", {U: entry("a")})
    monkeypatch.undo()
    assert sorted(load_registry(path).entries("sim")) == sorted([G, U, D])
    assert sorted(os.listdir(tmp_path)) == [".registry.yaml.lock", "registry.yaml"]


def test_a_file_that_goes_on_changing_is_given_up_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "registry.yaml"
    register(path, "sim", {G: entry("a")})
    sizes = iter(range(1, 100))
    monkeypatch.setattr(
        files.os,
        "fsync",
        lambda _: path.write_bytes(dump_registry(Registry({"sim": {G: entry("a", size=next(sizes))}}))),
    )
    with pytest.raises(Refused, match="changes while it is written"):
        register(path, "sim", {U: entry("a")})
    assert sorted(os.listdir(tmp_path)) == [".registry.yaml.lock", "registry.yaml"]


def test_a_file_that_goes_between_reading_and_renaming_stays_gone_but_for_what_is_registered(tmp_path, monkeypatch):
    path = tmp_path / "registry.yaml"
    register(path, "sim", {G: entry("a")})
    gone = []

    def remove(_descriptor):
        if not gone:
            gone.append(path.unlink())

    monkeypatch.setattr(files.os, "fsync", remove)
    register(path, "sim", {U: entry("a")})
    assert sorted(load_registry(path).entries("sim")) == [U]


def _register_one(root, number):
    name = f"full_i8_G_K{64 * (number + 1)}_N128.elf"
    digits = f"{number:064x}"
    register(root / "registry.yaml", "sim", {name: Entry(digits, 1, digits, digits, digits, 2)})


def test_processes_that_register_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_register_one, args=(tmp_path, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert len(load_registry(tmp_path / "registry.yaml").entries("sim")) == 4

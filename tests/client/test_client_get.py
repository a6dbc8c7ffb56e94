"""elfkiln.h opens what the engine would open, or nothing: by hand here, and against check-missing and resolve."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess

import pytest

from client_sets import PATHS, QKV, TWIN, lock_table, make_set, mutant, read_lock_table, write_lock, write_lock_table
from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.models.plan.load import load_plan
from elfkiln.models.plan.names import plan_requirements
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work import diagnose
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from elfkiln.work.kernels_lock import read_kernels_lock
from plan_data import DROP, PB16I, plan_data
from projects import StandInBuilder, make_project


def test_a_whole_set(probe, client_folder):
    names = [path.rpartition("/")[2] for path in PATHS]
    rows = probe.rows(*names, dir=client_folder, target="sim")
    assert [row[1] for row in rows if row[0] == "name"] == names
    found = [row for row in rows if row[0] == "artifact"]
    for path, (_, name, folder, size, digest, same) in zip(PATHS, found, strict=True):
        data = (client_folder / path).read_bytes()
        assert (f"{folder}/{name}", int(size)) == (str(client_folder / path), len(data))
        assert digest == hashlib.sha256(data).hexdigest()
        assert same == "1"
    # Opening takes memory once; handing ELFs out takes none beside the map.
    assert ["allocated"] not in rows
    assert rows[0] == ["name", QKV, "QKV", "256", "1024", "128", "1"]
    assert rows[7] == ["name", TWIN, "QKV", "256", "1024", "16", "1"]


def test_without_the_sha_extensions_the_answer_is_the_same(probe, client_folder):
    assert probe.get(QKV, dir=client_folder, target="sim", portable=1) == probe.get(
        QKV, dir=client_folder, target="sim"
    )


def test_c_and_cxx_give_the_same_rows(client_programs, probe, client_folder):
    from client_programs import SOURCES, Probe

    cxx = Probe(client_programs.build(SOURCES / "probe.c", cxx=True))
    plain = Probe(client_programs.build(SOURCES / "probe.c", "-O2"))
    (client_folder / PATHS[3]).unlink()
    names = [path.rpartition("/")[2] for path in PATHS]
    rows = [one.rows(*names, dir=client_folder, target="sim") for one in (probe, cxx, plain)]
    assert rows[0] == rows[1] == rows[2]
    assert sum(row[0] == "error" for row in rows[0]) == 1


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        ".elf",
        "a.ELF",
        "../kernels/" + QKV,
        "kernels/" + QKV,
        QKV + "\n",
        "a b.elf",
        "\u00e9.elf",
        "x" * 60 + ".elf",
    ],
)
def test_what_is_not_a_file_name_is_refused(probe, client_folder, name):
    row = probe.get(name, dir=client_folder, target="sim")
    assert row[:3] == ["error", "7", "bad name"]


def test_a_name_that_the_plan_does_not_ask_for_is_refused_even_if_it_is_there(probe, client_folder):
    other = "full_i8_GU_K256_N1536_b8.elf"
    shutil.copy(client_folder / "kernels" / QKV, client_folder / "kernels" / other)
    write_lock(client_folder, [*PATHS, f"kernels/{other}"])
    row = probe.get(other, dir=client_folder, target="sim")
    assert row[2:4] == ["bad name", f"{other}: not a name that plan.json asks for"]
    longest = "y" * 59 + ".elf"
    assert probe.get(longest, dir=client_folder, target="sim")[2] == "bad name"


def test_another_target_or_model_is_refused(probe, client_folder):
    lock = client_folder / "kernels.lock.json"
    assert probe.refusal(dir=client_folder, target="npu2") == (
        "wrong target",
        f"{lock}: target: expected npu2, found 'sim'",
    )
    assert probe.get(QKV, dir=client_folder, target="sim", model="tiny")[0] == "artifact"
    assert probe.refusal(dir=client_folder, target="sim", model="tin")[0] == "wrong target"


def test_what_a_call_needs(probe, client_folder):
    assert probe.refusal(dir=client_folder)[0] == "bad options"
    assert probe.refusal(target="sim")[0] == "bad options"
    assert probe.refusal(dir="", target="sim")[0] == "bad options"
    assert probe.refusal(dir=client_folder, target="sim", kernels="")[0] == "bad options"
    assert probe.refusal(dir=client_folder, target="sim", policy="a", policy_bytes="b")[0] == "bad options"


def test_no_lock_no_elf(probe, client_folder):
    lock = client_folder / "kernels.lock.json"
    lock.unlink()
    assert probe.refusal(dir=client_folder, target="sim") == ("bad lock", f"{lock}: missing")
    lock.mkdir()
    assert probe.refusal(dir=client_folder, target="sim") == (
        "bad lock",
        f"{lock}: expected a file, found something else",
    )
    lock.rmdir()
    os.mkfifo(lock)
    assert probe.refusal(dir=client_folder, target="sim")[0] == "bad lock"
    lock.unlink()
    lock.symlink_to("/dev/zero")
    assert probe.refusal(dir=client_folder, target="sim")[0] == "bad lock"


DIGEST = f"sha256:{'0' * 64}"
ROW = {"elf": DIGEST, "size": 5000, "recipe": DIGEST}


def one_row(path="a.elf", **changes):
    """Return artifacts of one row."""
    return {"artifacts": {path: {key: value for key, value in (ROW | changes).items() if value is not DROP}}}


HOSTILE = [
    ({"schema": "elfkiln-kernels-lock/2"}, "schema"),
    ({"schema": None}, "schema"),
    ({"later": 1}, "expected only fields"),
    ({"target": 1}, "target"),
    ({"target": ""}, "target"),
    ({"sets": {}}, "sets"),
    ({"sets": [{"model": "m"}]}, "sets[0].layout"),
    ({"sets": [{"model": "m", "layout": "b9"}]}, "sets[0].layout"),
    ({"sets": [{"model": "M", "layout": "b8"}]}, "sets[0].model"),
    ({"sets": [{"model": "../m", "layout": "b8"}]}, "sets[0].model"),
    ({"sets": [{"model": "m..n", "layout": "b8"}]}, "sets[0].model"),
    ({"sets": [{"model": "m" * 65, "layout": "b8"}]}, "sets[0].model"),
    ({"sets": [{"model": "m", "layout": "b8", "x": 1}]}, "sets[0]"),
    ({"sets": [{"model": "m", "layout": "b8"}, 3]}, "sets[1]"),
    ({"artifacts": []}, "artifacts"),
    ({"artifacts": {"a.elf": []}}, "artifacts"),
    (one_row(note="x"), "artifacts"),
    (one_row(size=DROP), "artifacts.a.elf"),
    (one_row(size=0), "artifacts.a.elf"),
    (one_row(size=-1), "artifacts.a.elf"),
    (one_row(size=True), "artifacts.a.elf"),
    (one_row(size=5000.0), "artifacts.a.elf"),
    (one_row(size="5000"), "artifacts.a.elf"),
    (one_row(size=2**53 + 1), "artifacts.a.elf"),
    (one_row(size=10**400), "artifacts.a.elf"),
    (one_row(elf=DROP), "artifacts.a.elf"),
    (one_row(elf="0" * 64), "artifacts.a.elf"),
    (one_row(elf=f"sha256:{'A' * 64}"), "artifacts.a.elf"),
    (one_row(elf=f"sha256:{'0' * 63}"), "artifacts.a.elf"),
    (one_row(elf=f"sha256:{'0' * 65}"), "artifacts.a.elf"),
    (one_row(elf=f"sha512:{'0' * 64}"), "artifacts.a.elf"),
    (one_row(recipe=DROP), "artifacts.a.elf"),
    (one_row(recipe=f"sha256:{'g' * 64}"), "artifacts.a.elf"),
    *(
        (one_row(path), "artifacts")
        for path in (
            *("", "a", "/a.elf", "../a.elf", "b/../a.elf", "..", "b/..", "b\\a.elf", "b/\u0085/a.elf", "b/\n/a.elf"),
            *("x" * 60 + ".elf", "b//a.elf", "./a.elf", "b/./a.elf", "b/a.elf/", ".elf", "b/-a.elf", "b/a b.elf"),
        )
    ),
]


@pytest.mark.parametrize(("change", "field"), HOSTILE)
def test_a_hostile_lock_is_refused_by_field_and_by_elfkiln_too(probe, client_folder, change, field):
    write_lock_table(client_folder, read_lock_table(client_folder) | change)
    lock = client_folder / "kernels.lock.json"
    word, text = probe.refusal(dir=client_folder, target="sim")
    assert word == "bad lock"
    assert text.startswith(f"{lock}: {field}"), text
    with pytest.raises(Refused):
        read_kernels_lock(lock)


VALUES = (
    *(0, 1, -1, 4096, 2**53, 2**53 + 1, 10**30, 1.0, True, None, "", "x", "sim", "b8", "rm", "t2s", "b9", "M", "a..b"),
    *(DIGEST, DIGEST.upper(), DIGEST[:-1], "0" * 64, "sha256:", "a.elf", "b/a.elf", "../a.elf", "./a.elf", "a//b.elf"),
    *([], {}, [{}], {"model": "m", "layout": "b8"}, ROW, {"a.elf": ROW}, {"b/./a.elf": ROW}, {"a.elf ": ROW}),
)
KEYS = ("elf", "size", "recipe", "model", "layout", "target", "a.elf", "b/c.elf", "b/../c.elf", "/a.elf", "x")


def test_the_verdict_on_two_thousand_locks_is_elfkiln_s(probe, tmp_path):
    rng = random.Random(5)
    sound = lock_table({"kernels/a.elf": ROW, "b.elf": ROW})
    locks = [json.dumps(mutant(rng, sound, VALUES, KEYS)).encode() for _ in range(2000)]
    file, expected = tmp_path / "kernels.lock.json", []
    for lock in locks:
        file.write_bytes(lock)
        try:
            read = read_kernels_lock(file)
        except Refused:
            read = None
        expected.append(read is not None and read.target == "sim")
    assert 200 < sum(expected) < 1800
    taken = [answer == "taken" for answer in probe.frames("lock", locks)]
    assert [lock for lock, mine, theirs in zip(locks, taken, expected, strict=True) if mine != theirs] == []


def test_a_lock_that_is_not_usual_is_taken_by_both(probe, client_folder):
    table = read_lock_table(client_folder)
    table["sets"] += [{"model": "a.b-c_9", "layout": "t2s"}] * 2
    table["artifacts"] |= one_row("b/..c/\u00e9 x/a..b.elf", size=2**53)["artifacts"]
    table["artifacts"] |= one_row("d/" * 3000 + "y" * 59 + ".elf")["artifacts"]
    write_lock_table(client_folder, table)
    assert probe.get(QKV, dir=client_folder, target="sim")[0] == "artifact"
    assert read_kernels_lock(client_folder / "kernels.lock.json") is not None


def test_a_size_that_no_elf_has_is_never_mapped(probe, client_folder):
    table = read_lock_table(client_folder)
    table["artifacts"][f"kernels/{QKV}"]["size"] = 2**28 + 1
    write_lock_table(client_folder, table)
    with (client_folder / "kernels" / QKV).open("r+b") as stream:
        stream.truncate(2**28 + 1)
    row = probe.get(QKV, dir=client_folder, target="sim")
    assert row[2] == "wrong bytes"
    assert row[4].endswith("found 268435457 bytes, which no kernel ELF has")


def test_a_name_under_two_paths_needs_one_digest(probe, client_folder):
    other = client_folder / "kernels" / TWIN
    shutil.copy(client_folder / "kernels-m16" / TWIN, other)
    write_lock(client_folder, [*PATHS, f"kernels/{TWIN}"])
    assert probe.get(TWIN, dir=client_folder, target="sim")[2] == str(client_folder / "kernels-m16")
    other.write_bytes(b"\x7fELF" + bytes(6000))
    write_lock(client_folder, [*PATHS, f"kernels/{TWIN}"])
    row = probe.get(TWIN, dir=client_folder, target="sim")
    assert row[2:4] == ["not listed", f"missing full ELF {client_folder}/kernels-m16/{TWIN}"]
    assert row[4].startswith("not listed: kernels.lock.json has it under two paths with different bytes")


def test_twins_are_searched_in_the_order_of_decode_dirs_each_folder_once(probe, tmp_path):
    dirs = [
        {"root": "kernels", "path": "deep/./er//"},
        {"root": "model", "path": "."},
        {"root": "kernels", "path": "deep/er"},
        {"root": "model", "path": "kernels-m16"},
    ]
    folder = make_set(tmp_path / "model", decode__dirs=dirs)
    kernels = tmp_path / "elsewhere"
    options = {"dir": folder, "target": "sim", "kernels": kernels}
    shutil.copytree(folder / "kernels", kernels)
    assert probe.get(QKV, **options)[2] == str(kernels)
    assert probe.get(TWIN, **options)[2] == str(folder / "kernels-m16")
    (folder / "kernels-m16" / TWIN).rename(folder / TWIN)
    assert probe.get(TWIN, **options)[2] == str(folder)
    (kernels / "deep" / "er").mkdir(parents=True)
    (folder / TWIN).rename(kernels / "deep" / "er" / TWIN)
    assert probe.get(TWIN, **options)[2] == str(kernels / "deep" / "er")
    (kernels / "deep" / "er" / TWIN).unlink()
    row = probe.get(TWIN, **options)
    assert row[3] == f"missing full ELF {folder}/kernels-m16/{TWIN}"
    assert row[4] == f"missing: looked in {kernels}/deep/er, {folder}, {folder}/kernels-m16"


def test_the_sealed_elf_lies_in_the_model_folder(probe, tmp_path):
    folder = make_set(tmp_path / "model", **PB16I)
    (folder / "pb16i_sealed.elf").write_bytes(b"\x7fELF" + bytes(9000))
    write_lock(folder, [*PATHS, "pb16i_sealed.elf"])
    assert probe.get("pb16i_sealed.elf", dir=folder, target="sim")[:3] == ["artifact", "pb16i_sealed.elf", str(folder)]
    names = [row for row in probe.rows(dir=folder, target="sim") if row[0] == "name"]
    assert names[-1] == ["name", "pb16i_sealed.elf", "", "0", "0", "0", "11"]


def test_65_directories_are_one_too_many(probe, tmp_path):
    for count, taken in ((64, True), (65, False)):
        dirs = [{"root": "model", "path": f"d{index}"} for index in range(count)]
        folder = make_set(tmp_path / f"model{count}", decode__dirs=dirs)
        rows = probe.rows(TWIN, dir=folder, target="sim")
        assert (rows[0][0] == "name") == taken
    assert rows[-1][2] == "bad plan"


def test_without_a_plan_the_probes_of_the_engine(probe, client_folder, tmp_path):
    (client_folder / "plan.json").unlink()
    kernels = tmp_path / "elsewhere"
    kernels.mkdir()
    options = {"dir": client_folder, "target": "sim", "kernels": kernels, "without_plan": 1}
    row = probe.get(QKV, **options)
    assert row[2:4] == ["missing", f"missing full ELF {kernels}/{QKV}"]
    assert probe.get(TWIN, **options)[2] == str(client_folder / "kernels-m16")
    shutil.copy(client_folder / "kernels-m16" / TWIN, client_folder / "kernels" / TWIN)
    assert probe.get(TWIN, **options)[2] == str(client_folder / "kernels")
    shutil.copy(client_folder / "kernels-m16" / TWIN, kernels / TWIN)
    assert probe.get(TWIN, **options)[2] == str(kernels)
    # A name that the lock does not have: missing while it is, not listed once it lies there.
    other = "full_i8_GU_K256_N1536_b8.elf"
    assert probe.get(other, **options)[2:4] == ["missing", f"missing full ELF {kernels}/{other}"]
    shutil.copy(client_folder / "kernels" / QKV, kernels / other)
    assert probe.get(other, **options)[2:4] == ["not listed", f"missing full ELF {kernels}/{other}"]


def test_six_thousand_names_in_a_lock(probe, tmp_path):
    rows = {f"d{index % 7}/full_i8_D_K64_N{128 * index + 128}_b8.elf": ROW for index in range(6000)}
    (tmp_path / "kernels.lock.json").write_text(json.dumps(lock_table(rows)))
    names = probe.names(dir=tmp_path, target="sim", without_plan=1)
    assert len(names) == len(set(names)) == 6000
    assert probe.get(names[4321], dir=tmp_path, target="sim", without_plan=1)[2] == "missing"


def test_a_name_has_63_bytes_and_no_more(probe, tmp_path):
    """The engine's buffer has 64 bytes with the NUL: a sealed ELF's name may fill it."""
    longest = "s" * 59 + ".elf"
    folder = make_set(tmp_path / "model", **{**PB16I, "decode__sealed_elf": longest})
    data = b"\x7fELF" + bytes(9000)
    (folder / longest).write_bytes(data)
    write_lock(folder, [*PATHS, longest])
    row = probe.get(longest, dir=folder, target="sim")
    assert row[:3] == ["artifact", longest, str(folder)]
    assert row[4] == hashlib.sha256(data).hexdigest()
    assert probe.get(f"s{longest}", dir=folder, target="sim")[:3] == ["error", "7", "bad name"]


def test_bytes_that_were_handed_out_stay_whatever_happens_to_the_file(client_programs, client_folder):
    from client_programs import SOURCES

    program = client_programs.build(SOURCES / "keeps.c")
    done = subprocess.run([program, client_folder, "sim", QKV], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr


# --- agreement with Python on the same folders ---

TINY = {
    "format": "1bit-npu-plan/1",
    "model": {"hidden": 256, "layers": 1},
    "container": {"layout": "b8"},
    "fusion": {"gate_up": "split"},
    "decode": {
        "enabled": True,
        "dirs": [{"root": "model", "path": "kernels-m16"}, {"root": "kernels", "path": "."}],
    },
    "kernels": {"tag": "_b8"},
    "attention": {"mode": "causal"},
    "layers": [
        {"index": 0, "role": "full", "gate_up": {"K": 256, "N": 512}, "down": {"K": 512, "N": 256}},
    ],
}
G, G_TWIN = "full_i8_G_K256_N512_b8.elf", "full_i8_G_K256_N512_b8_m16.elf"
D, D_TWIN = "full_i8_D_K512_N256_b8.elf", "full_i8_D_K512_N256_b8_m16.elf"


class Opened:
    """An ELF of the stand-in: sound when its text ends in the padding, of the name's geometry when it says so."""

    def __init__(self, _target, elf):
        self.text = elf.read_bytes()
        if not self.text.startswith(b"\x7fELF") or len(self.text.rstrip(b"\0\1")) + 5000 != len(self.text):
            raise Differs(f"{elf}: damaged")

    def check(self, name, _sealed):
        """Look the geometry up in the text."""
        if f"{name.K}, {name.N}\n".encode() not in self.text:
            raise Differs(f"{name}: the ELF is of another geometry")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A project and a model folder with its installed set; tests take copies of the folder."""
    root = tmp_path_factory.mktemp("agreement")
    project = make_project(root / "project")
    folder = root / "model"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(TINY))
    builder = StandInBuilder(read_lock(project.lock_file).target("sim"), suffix=bytes(5000))
    wanted = plan_requirements(load_plan(folder), "model")
    assert build_elfs(project, builder, [wanted]).exit_code == 0
    install(project, "sim", wanted, folder)
    return project, folder


@pytest.fixture
def model(installed, tmp_path, monkeypatch):
    monkeypatch.setattr(diagnose, "open_elf", Opened)
    folder = tmp_path / "Model Dir"
    shutil.copytree(installed[1], folder)
    return folder


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def put(path, data):
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def sparse(path, size):
    path.unlink()
    with path.open("wb") as stream:
        stream.truncate(size)


def bind(path):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{here}/{path.name}")  # a socket's own path may not be long
        finally:
            os.close(here)


def link(path, target):
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def swap(path, other):
    data, held = path.read_bytes(), other.read_bytes()
    put(path, held)
    put(other, data)


# What is done to the folder, and the kind of gap of each name that is not right.
FOLDERS = {
    "good": (lambda _: None, {}),
    "missing": (lambda m: (m / "kernels" / G).unlink(), {G: "missing"}),
    "missing everywhere": (lambda m: (m / "kernels-m16" / G_TWIN).unlink(), {G_TWIN: "missing"}),
    "a folder of twins is gone": (
        lambda m: shutil.rmtree(m / "kernels-m16"),
        dict.fromkeys((G_TWIN, D_TWIN, "full_i8_U_K256_N512_b8_m16.elf"), "missing"),
    ),
    "a twin in the second folder alone": (lambda m: (m / "kernels-m16" / G_TWIN).rename(m / "kernels" / G_TWIN), {}),
    "a prefill ELF among the twins": (lambda m: (m / "kernels" / G).rename(m / "kernels-m16" / G), {G: "missing"}),
    "an empty file": (lambda m: put(m / "kernels" / G, b""), {G: "missing"}),
    "an empty file before the right one": (
        lambda m: ((m / "kernels-m16" / G_TWIN).rename(m / "kernels" / G_TWIN), put(m / "kernels-m16" / G_TWIN, b"")),
        {},
    ),
    "a stub of 59 bytes": (lambda m: put(m / "kernels" / G, b"\x7fELF" + bytes(55)), {G: "stub"}),
    "a stub of one byte before the right one": (
        lambda m: ((m / "kernels-m16" / G_TWIN).rename(m / "kernels" / G_TWIN), put(m / "kernels-m16" / G_TWIN, b"x")),
        {G_TWIN: "shadowed"},
    ),
    "4095 bytes": (lambda m: put(m / "kernels" / G, bytes(4095)), {G: "stub"}),
    "4096 bytes": (lambda m: put(m / "kernels" / G, bytes(4096)), {G: "wrong bytes"}),
    "one flipped bit": (lambda m: flip(m / "kernels" / G), {G: "wrong bytes"}),
    "cut": (lambda m: put(m / "kernels" / G, (m / "kernels" / G).read_bytes()[:-1]), {G: "wrong bytes"}),
    "longer": (lambda m: put(m / "kernels" / G, (m / "kernels" / G).read_bytes() + b"\0"), {G: "wrong bytes"}),
    "foreign bytes": (lambda m: put(m / "kernels" / G, b"#!/bin/sh\n" + bytes(9000)), {G: "wrong bytes"}),
    "two ELFs change places": (
        lambda m: swap(m / "kernels" / G, m / "kernels" / D),
        {G: "wrong bytes", D: "wrong bytes"},
    ),
    "a twin that is the prefill ELF": (
        lambda m: put(m / "kernels-m16" / G_TWIN, (m / "kernels" / G).read_bytes()),
        {G_TWIN: "wrong bytes"},
    ),
    "shadowed": (
        lambda m: (
            shutil.copy(m / "kernels-m16" / G_TWIN, m / "kernels" / G_TWIN),
            flip(m / "kernels-m16" / G_TWIN),
        ),
        {G_TWIN: "shadowed"},
    ),
    "wrong in both": (
        lambda m: (
            flip(m / "kernels-m16" / G_TWIN),
            shutil.copy(m / "kernels-m16" / G_TWIN, m / "kernels" / G_TWIN),
        ),
        {G_TWIN: "wrong bytes"},
    ),
    "the right one before a wrong one": (lambda m: put(m / "kernels" / G_TWIN, bytes(9000)), {}),
    "a link to the file": (
        lambda m: ((m / "kernels" / G).rename(m / "held"), link(m / "kernels" / G, "../held")),
        {},
    ),
    "a link out of the folder": (
        lambda m: ((m / "kernels" / G).rename(m.parent / "held"), link(m / "kernels" / G, m.parent / "held")),
        {},
    ),
    "a linked folder": (
        lambda m: ((m / "kernels-m16").rename(m / "twins"), (m / "kernels-m16").symlink_to("twins")),
        {},
    ),
    "a link to another ELF": (lambda m: link(m / "kernels" / G, D), {G: "wrong bytes"}),
    "a link that leads nowhere": (lambda m: link(m / "kernels" / G, "nowhere"), {G: "not a regular file"}),
    "a link to itself": (lambda m: link(m / "kernels" / G, G), {G: "not a regular file"}),
    "a link that leads nowhere before the right one": (
        lambda m: (
            (m / "kernels-m16" / G_TWIN).rename(m / "kernels" / G_TWIN),
            link(m / "kernels-m16" / G_TWIN, "nowhere"),
        ),
        {},
    ),
    "a huge file": (lambda m: sparse(m / "kernels" / G, 100 << 30), {G: "wrong bytes"}),
    "a huge file before the right one": (
        lambda m: (
            shutil.copy(m / "kernels-m16" / G_TWIN, m / "kernels" / G_TWIN),
            sparse(m / "kernels-m16" / G_TWIN, 100 << 30),
        ),
        {G_TWIN: "shadowed"},
    ),
    "a pipe": (lambda m: ((m / "kernels" / G).unlink(), os.mkfifo(m / "kernels" / G)), {G: "not a regular file"}),
    "a pipe before the right one": (
        lambda m: (
            (m / "kernels-m16" / G_TWIN).rename(m / "kernels" / G_TWIN),
            os.mkfifo(m / "kernels-m16" / G_TWIN),
        ),
        {},
    ),
    "a folder": (lambda m: ((m / "kernels" / G).unlink(), (m / "kernels" / G).mkdir()), {G: "not a regular file"}),
    "a socket": (lambda m: bind(m / "kernels" / G), {G: "not a regular file"}),
    "a device": (lambda m: link(m / "kernels" / G, "/dev/zero"), {G: "not a regular file"}),
    "a file where the folder should be": (
        lambda m: (shutil.rmtree(m / "kernels-m16"), (m / "kernels-m16").write_bytes(b"x" * 9000)),
        dict.fromkeys((G_TWIN, D_TWIN, "full_i8_U_K256_N512_b8_m16.elf"), "missing"),
    ),
}


def python_gaps(project, folder, capsys, *words):
    capsys.readouterr()
    main(["check-missing", f"root={project.root}", f"plan={folder}", "target=sim", "--json", *words])
    (checked,) = json.loads(capsys.readouterr().out)["models"]
    assert checked["refused"] is None
    return {gap["name"]: gap for gap in checked["gaps"]}


@pytest.mark.parametrize("case", FOLDERS)
def test_the_client_says_what_check_missing_and_resolve_say(installed, model, probe, capsys, case):
    project = installed[0]
    change, expected = FOLDERS[case]
    change(model)
    names = probe.names(dir=model, target="sim")
    rows = dict(zip(names, probe.rows(*names, dir=model, target="sim")[len(names) :], strict=True))
    assert {name: row[2] for name, row in rows.items() if row[0] == "error"} == expected
    gaps = python_gaps(project, model, capsys)
    # A client cannot tell a wrong geometry from other wrong bytes.
    assert {name: gap["kind"].replace("geometry", "bytes") for name, gap in gaps.items()} == expected
    for name, row in rows.items():
        if "huge" in case and row[0] == "error":
            continue  # resolve tells the digest of whatever lies there, which here takes minutes
        main(["resolve", name, f"root={project.root}", f"plan={model}", "target=sim", "--json"])
        opened = json.loads(capsys.readouterr().out)["opened"]
        if row[0] == "artifact":
            assert f"{row[2]}/{row[1]}" == opened
        else:
            assert row[3] == f"missing full ELF {gaps[name]['path']}"
            assert row[4].startswith(f"{row[2]}: ")
            assert opened in (None, gaps[name]["path"])


def test_bytes_that_the_lock_has_and_the_registry_has_not(installed, model, probe, capsys):
    """The client goes by the lock, check-missing by the registry: where the two part, each says so in its words."""
    table = read_lock_table(model)
    del table["artifacts"][f"kernels/{G}"]
    write_lock_table(model, table)
    row = probe.get(G, dir=model, target="sim")
    assert row[2:4] == ["not listed", f"missing full ELF {model}/kernels/{G}"]
    assert python_gaps(installed[0], model, capsys) == {}
    (model / "kernels" / G).unlink()
    assert probe.get(G, dir=model, target="sim")[2] == "missing"
    put(model / "kernels" / G, b"x")
    assert probe.get(G, dir=model, target="sim")[2] == "stub"


def test_a_plan_with_kernels_elsewhere_agrees_with_check_missing(installed, model, probe, capsys, tmp_path):
    kernels = tmp_path / "kernels elsewhere"
    (model / "kernels").rename(kernels)
    names = probe.names(dir=model, target="sim", kernels=kernels)
    rows = probe.rows(*names, dir=model, target="sim", kernels=kernels)[len(names) :]
    assert [row[0] for row in rows] == ["artifact"] * 6
    assert python_gaps(installed[0], model, capsys, f"kernels={kernels}") == {}
    assert len(python_gaps(installed[0], model, capsys)) == 3
    assert [row[2] for row in probe.rows(*names, dir=model, target="sim")[len(names) :]].count("missing") == 3


def test_a_model_without_a_plan_agrees_with_resolve(probe, tmp_path, capsys):
    project = make_project(tmp_path / "project")
    builder = StandInBuilder(read_lock(project.lock_file).target("sim"), suffix=bytes(5000))
    wanted = model_requirements(project, "tiny")
    assert build_elfs(project, builder, [wanted]).exit_code == 0
    folder = tmp_path / "model"
    install(project, "sim", wanted, folder)
    rng = random.Random(1)
    files = sorted(path for path in folder.glob("*/*.elf"))
    for path in rng.sample(files, 4):
        path.rename(folder / rng.choice(["kernels", "kernels-m16"]) / path.name)
    for need in wanted.requirements:
        main(["resolve", need.file_name, f"root={project.root}", "model=tiny", f"dir={folder}", "--json"])
        opened = json.loads(capsys.readouterr().out)["opened"]
        row = probe.get(need.file_name, dir=folder, target="sim", without_plan=1)
        assert (f"{row[2]}/{row[1]}" if row[0] == "artifact" else None) == opened
        if opened is None:
            assert row[2] == "missing"


def test_a_file_without_permission_is_passed_over(installed, model, probe, capsys):
    path = model / "kernels" / G
    path.chmod(0)
    if os.access(path, os.R_OK):
        # Whoever may read everything sees no difference.
        assert probe.get(G, dir=model, target="sim")[0] == "artifact"
        return
    assert probe.get(G, dir=model, target="sim")[2] == "missing"
    assert python_gaps(installed[0], model, capsys)[G]["kind"] == "missing"


def test_a_path_that_is_too_long_is_passed_over(probe, tmp_path):
    dirs = [{"root": "model", "path": "/".join(["e" * 255] * 20)}, {"root": "model", "path": "kernels-m16"}]
    folder = make_set(tmp_path / "model", decode__dirs=dirs)
    assert probe.get(TWIN, dir=folder, target="sim")[2] == str(folder / "kernels-m16")
    (folder / "plan.json").write_text(json.dumps(plan_data(decode__dirs=dirs[:1])))
    row = probe.get(TWIN, dir=folder, target="sim")
    assert row[2] == "missing"
    assert len(row[3]) < 4352

"""check-missing plan=, resolve and lookup plan=: what the engine would open, state by state."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs
from elfkiln.models.plan.load import load_plan
from elfkiln.models.plan.names import plan_requirements
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work import diagnose
from elfkiln.work.build import build_elfs
from elfkiln.work.install import install
from kilns import copy_kiln
from projects import CHECKOUT, StandInBuilder, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"
TWIN = "full_i8_QKV_K256_N768_b8_m16.elf"
PLAN = {
    "format": "1bit-npu-plan/1",
    "model": {"hidden": 256, "layers": 2, "arch": "tiny"},
    "container": {"layout": "b8", "chunk_kind": "q4_1", "pb16i": False, "tile_order": "engine-1"},
    "fusion": {"gate_up": "split"},
    "prefill": {"M": 128},
    "decode": {
        "enabled": True,
        "M": 16,
        "dirs": [{"root": "model", "path": "kernels-m16"}, {"root": "kernels", "path": "."}],
        "sealed_elf": "",
    },
    "kernels": {"tag": "_b8"},
    "attention": {"mode": "causal"},
    "layers": [
        {
            "index": index,
            "role": "gdn",
            "qkv": {"K": 256, "N": 768},
            "attn_gate": {"K": 256, "N": 256},
            "gate_up": {"K": 256, "N": 512},
            "down": {"K": 512, "N": 256},
        }
        for index in range(2)
    ],
}
# QKV, Z, O, G, U, D, each at M = 128 and M = 16.
NAMES = 12


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A project in which all that the plan asks for is built."""
    project = make_project(tmp_path_factory.mktemp("planned") / "project")
    (project.root.parent / "plan.json").write_text(json.dumps(PLAN))
    builder = StandInBuilder(read_lock(project.lock_file).target("sim"), suffix=bytes(5000))
    wanted = plan_requirements(load_plan(project.root.parent), "model-dir")
    assert build_elfs(project, builder, [wanted]).exit_code == 0
    return project


@pytest.fixture
def model(tmp_path, planned, project, monkeypatch):
    """A model folder with a plan and its installed set, whose ELFs the stand-in checks."""
    folder = tmp_path / "Model Dir"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(PLAN))
    shutil.rmtree(project.root)
    copy_kiln(planned, project.root)
    install(project, "sim", plan_requirements(load_plan(folder), "model-dir"), folder)

    monkeypatch.setattr(diagnose, "open_elf", Opened)
    return folder


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


def check(project, folder, capsys, *words):
    code = main(["check-missing", f"root={project.root}", f"plan={folder}", *words])
    return code, capsys.readouterr().out.splitlines()


def test_a_sound_set(project, model, capsys):
    code, lines = check(project, model, capsys)
    assert code == 0
    assert lines == [f"model-dir: {NAMES} names, all there and their bytes verify (target sim)"]


def test_missing_everywhere_names_the_places(project, model, capsys):
    (model / "kernels-m16" / TWIN).unlink()
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {model}/kernels/{TWIN}"
    assert f"looked in {model}/kernels-m16, {model}/kernels" in lines[1]
    # It is registered: installing is enough.
    assert lines[-1].endswith(f"run doit install 'plan={model}' target=sim 'dir={model}'")


def test_what_was_never_built_is_to_be_built_before_it_can_be_installed(project, capsys, tmp_path):
    folder = tmp_path / "fresh"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(PLAN))
    code, lines = check(project, folder, capsys)
    words = f"plan={folder} target=sim"
    remedy = f"run doit elfs {words}, then doit install {words} dir={folder}"
    assert (code, lines[-1]) == (1, f"fresh: {NAMES} of {NAMES} names missing for target sim; {remedy}")


def test_a_stub_is_called_one(project, model, capsys):
    path = model / "kernels" / QKV
    path.unlink()
    path.write_bytes(b"\x7fELF" + bytes(55))
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {path}"
    assert lines[1].startswith("  stub: ")
    assert "found 59 bytes" in lines[1]


def test_another_geometry_under_the_name(project, model, capsys):
    path = model / "kernels" / QKV
    data = (model / "kernels" / "full_i8_D_K512_N256_b8.elf").read_bytes()
    path.unlink()
    path.write_bytes(data)
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {path}"
    assert lines[1].startswith("  wrong geometry: ")


def test_one_flipped_byte(project, model, capsys):
    path = model / "kernels" / QKV
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {path}"
    assert lines[1].startswith("  wrong bytes: ")
    assert hashlib.sha256(data).hexdigest() in lines[1]


@pytest.mark.parametrize("damage", ["cut", "longer", "foreign"])
def test_a_damaged_or_foreign_file_has_wrong_bytes_not_a_wrong_geometry(project, model, capsys, damage):
    path = model / "kernels" / QKV
    data = path.read_bytes()
    path.unlink()
    path.write_bytes({"cut": data[:-100], "longer": data + b"x", "foreign": b"#!/bin/sh\n" + bytes(6000)}[damage])
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {path}"
    assert lines[1].startswith("  wrong bytes: ")


def test_a_fifo_or_a_folder_in_place_of_an_artifact_is_missing_not_waited_for(project, model, capsys):
    path = model / "kernels" / QKV
    path.unlink()
    os.mkfifo(path)
    code, lines = check(project, model, capsys)
    assert (code, lines[0]) == (1, f"missing full ELF {path}")
    assert main(["resolve", f"root={project.root}", QKV, f"plan={model}"]) == 1
    assert "passed over: not a regular file" in capsys.readouterr().out
    assert main(["check-missing", f"root={project.root}", "model=tiny", f"dir={model}"]) == 1
    path.unlink()
    path.mkdir()
    assert check(project, model, capsys)[0] == 1


def test_plan_means_the_file_it_names(project, capsys):
    """Below plans/ too: a second plan beside plan.json is its own."""
    folder = project.plans / "two"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(PLAN))
    layers = [layer | {"qkv": {"K": 256, "N": 512}} for layer in PLAN["layers"]]
    (folder / "new.json").write_text(json.dumps(PLAN | {"layers": layers}))
    assert main(["lookup", f"root={project.root}", f"plan={folder / 'new.json'}"]) == 1
    out = capsys.readouterr().out
    assert "full_i8_QKV_K256_N512_b8.elf" in out
    assert "N768" not in out


def test_a_folders_own_columns_are_not_the_engines_business(project, model, capsys):
    """The set was registered with the columns of a role table; a model folder without one takes what is there."""
    text = project.registry_file.read_text()
    project.registry_file.write_text(
        text.replace("columns: 2\n", "columns: 4\n").replace("columns: 6\n", "columns: 3\n")
    )
    # A checkout that built nothing: its registry.yaml is all there is, and no manifest stands against it.
    shutil.rmtree(project.store)
    assert check(project, model, capsys)[0] == 0
    assert main(["lookup", f"root={project.root}", f"plan={model}"]) == 0


def test_an_int8_cache_is_refused_by_model_too(project, capsys):
    folder = project.plans / "tint8"
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(PLAN | {"kv": {"key": "f16", "value": "int8"}}))
    for words in (["check-missing", "model=tint8"], ["check-missing", "model=tint8"], ["report", "model=tint8"]):
        assert main([words[0], f"root={project.root}", *words[1:]]) == 2
        assert "int8_kv=false" in capsys.readouterr().err


def test_a_twin_shadowed_by_an_earlier_directory(project, model, capsys):
    first = model / "kernels-m16" / TWIN
    shutil.copy(first, model / "kernels" / TWIN)
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.unlink()
    first.write_bytes(data)
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {first}"
    assert lines[1].startswith("  shadowed: ")
    assert f"the registered file is {model}/kernels/{TWIN}" in lines[1]


def test_an_empty_file_is_passed_over_as_the_engine_does(project, model, capsys):
    first = model / "kernels-m16" / TWIN
    shutil.copy(first, model / "kernels" / TWIN)
    first.unlink()
    first.write_bytes(b"")
    code, _ = check(project, model, capsys)
    assert code == 0


def test_a_sound_elf_nobody_registered(project, model, capsys):
    text = project.registry_file.read_text()
    start = text.index(f"    {QKV}:")
    project.registry_file.write_text(text[:start] + text[text.index("    full_i8_", start + 10) :])
    code, lines = check(project, model, capsys)
    assert code == 1
    assert lines[0] == f"missing full ELF {model}/kernels/{QKV}"
    assert lines[1].startswith("  not registered: ")


@pytest.mark.parametrize("name", ["folder", "device", "dangling"])
def test_a_plan_that_is_not_a_file_is_refused_in_one_line(project, model, capsys, name):
    file = model / "plan.json"
    file.unlink()
    match name:
        case "folder":
            file.mkdir()
        case "device":
            file.symlink_to("/dev/zero")
        case _:
            file.symlink_to(model / "nowhere")
    for words in ([f"plan={model}"], [f"plan={file}"]):
        assert main(["check-missing", f"root={project.root}", *words]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert f"{file}: not a regular file" in captured.err


def test_a_directory_whose_name_is_too_long_is_passed_over(project, model, capsys):
    long = f"kernels={'n' * 300}"
    assert main(["resolve", f"root={project.root}", TWIN, f"plan={model}", long]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{'n' * 300}/{TWIN}  passed over: cannot be read (File name too long)"
    assert lines[-1] == f"opens {model}/kernels-m16/{TWIN}"
    code, lines = check(project, model, capsys, long)
    assert code == 1
    # The six names at M = 128 are looked up in that directory alone.
    assert [line.rpartition(": ")[2] for line in lines[1::2]] == ["cannot be read (File name too long)"] * 6


def test_another_kernels_directory(project, model, capsys, tmp_path):
    shutil.move(model / "kernels", tmp_path / "elsewhere")
    assert check(project, model, capsys)[0] == 1
    assert check(project, model, capsys, f"kernels={tmp_path / 'elsewhere'}")[0] == 0


def test_json_has_the_form_of_model(project, model, capsys):
    """The same fields as for `model=` and `dir=`: tests/work/test_check_missing.py pins them."""
    (model / "kernels" / QKV).unlink()
    assert main(["check-missing", f"root={project.root}", f"plan={model}", "--json"]) == 1
    digest = load_registry(project.registry_file).entries("sim")[QKV].elf
    assert json.loads(capsys.readouterr().out) == {
        "schema": "elfkiln-check-missing/1",
        "target": "sim",
        "dir": str(model),
        "missing": 1,
        "models": [
            {
                "model": "model-dir",
                "target": "sim",
                "layout": "b8",
                "names": NAMES,
                "refused": None,
                "gaps": [
                    {
                        "name": QKV,
                        "path": f"{model}/kernels/{QKV}",
                        "kind": "missing",
                        "detail": f"looked in {model}/kernels",
                        "expected": f"sha256:{digest}",
                        "found": None,
                    }
                ],
            }
        ],
    }


def test_an_int8_cache_is_refused_for_every_target_today(project, model, capsys):
    (model / "plan.json").write_text(json.dumps(PLAN | {"kv": {"key": "int8", "value": "f16"}}))
    assert main(["check-missing", f"root={project.root}", f"plan={model}"]) == 2
    error = capsys.readouterr().err
    assert "kv.key=int8, kv.value=f16" in error
    assert "int8_kv=false" in error


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plan=/nonexistent/plan.json"], "plan.json"),
        (["plan=x", "model=tiny"], "not both"),
        (["plan=x", "layout=rm"], "container.layout"),
        (["model=tiny", "kernels=x"], "kernels= goes with plan="),
    ],
)
def test_usage(project, capsys, words, says):
    assert main(["check-missing", f"root={project.root}", *words]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_resolve_says_what_the_engine_opens_and_why(project, model, capsys):
    shutil.copy(model / "kernels-m16" / TWIN, model / "kernels" / TWIN)
    assert main(["resolve", f"root={project.root}", TWIN, f"plan={model}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    digest = load_registry(project.registry_file).entries("sim")[TWIN].elf
    assert lines[0].startswith(f"{model}/kernels-m16/{TWIN}  opened: the first that exists")
    assert f"sha256:{digest}, registered as {TWIN}" in lines[0]
    assert lines[1].startswith(f"{model}/kernels/{TWIN}  shadowed: an earlier directory has the name")
    assert lines[-1] == f"opens {model}/kernels-m16/{TWIN}"


def test_a_file_larger_than_any_kernel_elf_is_opened_and_not_hashed(project, model, capsys):
    """The engine opens any size; hashing a sparse file of 1 TiB would take a quarter of an hour."""
    os.truncate(model / "kernels" / QKV, 1 << 40)
    assert main(["resolve", f"root={project.root}", QKV, f"plan={model}"]) == 0
    captured = capsys.readouterr()
    assert "opened: the first that exists" in captured.out
    assert f"; {1 << 40} bytes are more than a kernel ELF has (268435456)\n" in captured.out
    assert "sha256:" not in captured.out


def test_resolve_of_what_is_not_there_uses_the_engines_words(project, model, capsys):
    (model / "kernels" / QKV).unlink()
    assert main(["resolve", f"root={project.root}", QKV, f"plan={model}"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"missing full ELF {model}/kernels/{QKV}"


def test_resolve_without_a_plan_follows_the_probes(project, model, capsys):
    words = ["resolve", f"root={project.root}", TWIN, "model=tiny", f"dir={model}", "--json"]
    assert main(words) == 0
    table = json.loads(capsys.readouterr().out)
    assert [row["path"] for row in table["candidates"]][-1] == f"{model}/kernels-m16/{TWIN}"
    assert table["opened"] == f"{model}/kernels-m16/{TWIN}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["full_i8_QKV_K64_N128.elf", "plan=PLAN"], "full_i8_QKV_K64_N128.elf"),
        ([TWIN, "model=tiny"], "dir= is needed"),
        ([TWIN, "model=all", "dir=x"], "model=all"),
        ([], "takes NAME"),
    ],
)
def test_resolve_usage(project, model, capsys, words, says):
    given = [word.replace("PLAN", str(model)) for word in words]
    assert main(["resolve", f"root={project.root}", *given]) == 2
    assert says in capsys.readouterr().err


def test_lookup_of_a_plan_has_every_layer_and_one_digest(project, model, capsys):
    assert main(["lookup", f"root={project.root}", f"plan={model}", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert len(table["names"]) == NAMES
    # 2 layers; G and U both come from gate_up: 6 roles a layer, prefill and twin.
    assert len(table["layers"]) == 2 * 6 * 2
    assert [row["layer"] for row in table["layers"]] == [0] * 12 + [1] * 12
    roles = {row["role"] for row in table["layers"]}
    assert roles == {"QKV", "Z", "O", "G", "U", "D"}
    # The stated definition, computed here: sha256 over sorted `<sha256>  <path>` lines.
    lines = sorted(f"{row['elf'].removeprefix('sha256:')}  {row['path']}\n".encode() for row in table["names"])
    assert table["set_digest"] == "sha256:" + hashlib.sha256(b"".join(lines)).hexdigest()


def test_lookup_of_the_worked_example_before_anything_is_built(capsys, tmp_path):
    root = tmp_path / "empty"
    root.mkdir()
    shutil.copy(CHECKOUT / "toolchain.lock", root)
    plan = CHECKOUT / "plans" / "bonsai2-27b-pb16i"
    assert main(["lookup", f"root={root}", f"plan={plan}"]) == 1
    assert "set digest: none" in capsys.readouterr().out
    assert Project(root).registry_file.exists() is False


def test_notes_of_a_plan_are_shown_and_unknown_roles_can_be_let_through(project, model, capsys):
    (model / "plan.json").write_text(json.dumps(PLAN | {"kvv": {}}))
    assert main(["check-missing", f"root={project.root}", f"plan={model}"]) == 0
    assert "kvv" in capsys.readouterr().err
    layers = [layer | {"role": "mamba"} for layer in PLAN["layers"]]
    (model / "plan.json").write_text(json.dumps(PLAN | {"layers": layers}))
    assert main(["lookup", f"root={project.root}", f"plan={model}"]) == 2
    capsys.readouterr()
    assert main(["check-missing", f"root={project.root}", f"plan={model}", "roles=any"]) == 0
    assert "mamba" in capsys.readouterr().err
    assert main(["lookup", f"root={project.root}", f"plan={model}", "roles=some"]) == 2


SEALED = PLAN | {
    "container": PLAN["container"] | {"layout": "pb16i", "chunk_kind": "pb16i", "pb16i": True},
    "kernels": {"tag": "_pb16i"},
    "decode": PLAN["decode"] | {"sealed_elf": "pb16i_sealed.elf"},
}


@pytest.fixture
def sealed(tmp_path, project):
    """Two model folders of one base name, the second without the QKV geometry; the first's set is built and stored."""
    for name, layers in (("a", PLAN["layers"]), ("b", [without(layer, "qkv") for layer in PLAN["layers"]])):
        folder = tmp_path / name / "served"
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps(SEALED | {"layers": layers}))
    monkey = StandInBuilder(read_lock(project.lock_file).target("sim"), suffix=bytes(5000))
    return monkey, tmp_path / "a" / "served", tmp_path / "b" / "served"


def without(table, key):
    return {name: value for name, value in table.items() if name != key}


def elfs(project, builder, folder, monkeypatch):
    monkeypatch.setattr("elfkiln.cli.elfs.builder_for", lambda *_: builder)
    return main(["elfs", f"root={project.root}", f"plan={folder}"])


def test_folders_of_one_base_name_do_not_take_each_others_sealed_elf(project, sealed, monkeypatch, capsys):
    builder, first, second = sealed
    monkeypatch.setattr(diagnose, "open_elf", lambda *_: SealedStandIn())
    assert elfs(project, builder, first, monkeypatch) == 0
    assert elfs(project, builder, second, monkeypatch) == 0
    keys = [key for key in load_registry(project.registry_file).entries("sim") if key.endswith("/pb16i_sealed.elf")]
    assert len(keys) == 2
    for folder, K_N in ((first, "256x768"), (second, "512x256")):
        assert main(["install", f"root={project.root}", f"plan={folder}", f"dir={folder}"]) == 0
        capsys.readouterr()
        assert main(["check-missing", f"root={project.root}", f"plan={folder}"]) == 0, K_N
    assert (first / "pb16i_sealed.elf").read_bytes() != (second / "pb16i_sealed.elf").read_bytes()


def test_a_renamed_folder_finds_its_sealed_elf_by_what_it_holds(project, sealed, monkeypatch, tmp_path, capsys):
    builder, first, _ = sealed
    assert elfs(project, builder, first, monkeypatch) == 0
    shutil.copytree(first, tmp_path / "Renamed")
    capsys.readouterr()
    assert main(["lookup", f"root={project.root}", f"plan={tmp_path / 'Renamed'}"]) == 0
    assert "set digest sha256:" in capsys.readouterr().out


def test_a_sealed_elf_without_a_geometry_of_the_plan_is_neither_served_nor_installed(
    project, sealed, monkeypatch, tmp_path, capsys
):
    """The plan below plans/ gains a geometry after the build: the name stays, the bytes no longer serve."""
    builder, _, second = sealed
    monkeypatch.setattr(diagnose, "open_elf", lambda *_: SealedStandIn())
    folder = project.plans / "served"
    shutil.copytree(second, folder)
    assert elfs(project, builder, folder, monkeypatch) == 0
    assert main(["check-missing", f"root={project.root}", "model=served"]) == 0
    (folder / "plan.json").write_text(json.dumps(SEALED))
    capsys.readouterr()
    assert main(["check-missing", f"root={project.root}", "model=served"]) == 1
    assert "the plan asks for 256x256 256x512 256x768 512x256, the registered ELF holds" in capsys.readouterr().out
    assert main(["lookup", f"root={project.root}", f"plan={folder}"]) == 1
    assert main(["install", f"root={project.root}", "model=served", f"dir={tmp_path / 'm'}"]) == 1
    assert not (tmp_path / "m").exists()


class SealedStandIn:
    """A sealed ELF whose metadata says whatever is asked."""

    def check(self, _name, _sealed):
        """Find nothing wrong."""

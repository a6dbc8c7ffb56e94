"""doctor: each thing it looks at, sound and not, with what to do."""

from __future__ import annotations

import json
import resource

import pytest

from elfkiln.cli import main
from elfkiln.io.sandbox import way
from elfkiln.store.registry import load_registry
from elfkiln.targets.sim.zig_toolchain import Host, this_host
from elfkiln.work import doctor as module
from elfkiln.work.doctor import doctor
from projects import TINY_NAMES

QKV = "full_i8_QKV_K256_N768_b8.elf"


def rows(project, root="/nonexistent"):
    return {one.what: one for one in doctor(project, module.Path(root)).findings}


def test_a_sound_machine_without_an_npu(built):
    found = rows(built)
    assert {what: one.state for what, one in found.items()} == {
        "Python": "ok",
        "disk": "ok",
        "CPU": "ok",
        "network of builds": "note" if way().kind == "none" else "ok",
        "toolchain npu2": "note",
        "toolchain sim": "ok",
        "registry sim": "ok",
        "NPU": "note",
    }
    assert found["registry sim"].found == f"{TINY_NAMES} of {TINY_NAMES} names stored, their bytes verify"
    assert "toolchain install target=npu2" in found["toolchain npu2"].found


def test_nothing_registered_is_no_fault(project):
    assert "registry sim" not in rows(project)
    assert doctor(project, module.Path("/nonexistent")).exit_code == 0


def test_a_damaged_blob_is_wrong_and_a_missing_one_a_note(built):
    blob = built.blobs / load_registry(built.registry_file).entries("sim")[QKV].elf
    data = blob.read_bytes()
    blob.unlink()
    found = rows(built)["registry sim"]
    assert (found.state, found.found.split(" names")[0]) == ("note", f"{TINY_NAMES - 1} of {TINY_NAMES}")
    blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = rows(built)["registry sim"]
    assert found.state == "wrong"
    assert f"1 blobs damaged, first sha256:{blob.name[:12]}" in found.found
    assert doctor(built, module.Path("/nonexistent")).exit_code == 1


def test_an_entry_that_contradicts_its_manifest_is_wrong(built):
    text = built.registry_file.read_text()
    size = load_registry(built.registry_file).entries("sim")[QKV].size
    built.registry_file.write_text(text.replace(f"size: {size}\n", f"size: {size + 1}\n"))
    found = rows(built)["registry sim"]
    assert found.state == "wrong"
    assert "contradict their manifests, first: registry.yaml: sim/full_i8_" in found.found
    assert f"expected {size}, as manifest" in found.found


def test_a_processor_that_runs_no_sim_elf_is_wrong(built, monkeypatch):
    flags = frozenset(this_host().cpu_flags - {"avx2", "sha_ni"})
    monkeypatch.setattr(module, "this_host", lambda: Host("Linux", "x86_64", flags))
    found = rows(built)["CPU"]
    assert found.state == "wrong"
    assert "no SHA extensions" in found.found
    assert "without avx2" in found.found
    monkeypatch.setattr(module, "this_host", lambda: Host("Linux", "aarch64", frozenset()))
    assert "found Linux on aarch64" in rows(built)["CPU"].found


def test_files_that_cannot_be_read_are_one_finding(built):
    built.registry_file.write_text("]")
    assert rows(built)["registry"].state == "wrong"
    built.lock_file.write_text("]")
    found = rows(built)
    assert found["toolchain.lock"].state == "wrong"
    assert doctor(built, module.Path("/nonexistent")).exit_code == 1


def test_another_zig_than_the_locked_one_is_wrong(built):
    lock = built.lock_file
    lock.write_text(lock.read_text().replace('version = "0.17.1"', 'version = "0.16.0"'))
    found = rows(built)["toolchain sim"]
    assert found.state == "wrong"
    assert "ziglang 0.16.0" in found.found


def test_a_full_disk_and_an_old_python_are_wrong(built, monkeypatch):
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: Usage())
    monkeypatch.setattr(module, "LEAST_PYTHON", (4, 0))
    found = rows(built)
    assert (found["disk"].state, found["disk"].found) == ("wrong", "0.1 GB free")
    assert (found["Python"].state, found["Python"].remedy) == ("wrong", "elfkiln needs 4.0 or newer")


class Usage:
    """A disk with 100 MB left."""

    free = 100_000_000


def test_an_npu_that_can_and_cannot_be_used(built, tmp_path, monkeypatch):
    node = tmp_path / "dev" / "accel" / "accel0"
    node.parent.mkdir(parents=True)
    node.write_text("")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", str(bin_folder))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    found = rows(built, tmp_path)
    assert {what: found[what].state for what in ("NPU", "memlock", "XRT")} == {
        "NPU": "ok",
        "memlock": "wrong",
        "XRT": "wrong",
    }
    assert "8192 KiB may be locked" in found["memlock"].found
    (bin_folder / "xrt-smi").write_text("#!/bin/sh\n")
    (bin_folder / "xrt-smi").chmod(0o755)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr(module.os, "access", lambda path, _mode: path != node)
    found = rows(built, tmp_path)
    assert {what: found[what].state for what in ("NPU", "memlock", "XRT")} == {
        "NPU": "wrong",
        "memlock": "ok",
        "XRT": "ok",
    }
    assert "group (render)" in found["NPU"].remedy
    assert found["XRT"].found.startswith(f"{bin_folder}/xrt-smi, which does not say its version")


@pytest.mark.parametrize(
    ("report", "state", "found"),
    [
        ('{"version": "2.21.75", "hash": "0123456789abcdef"}', "ok", "2.21.75 (0123456789ab) at "),
        ('{"version": "2.23.0"}', "ok", "2.23.0 at "),
        ('{"version": "2.21.70", "hash": ""}', "wrong", "2.21.70 at "),
        ('{"version": "2.9.900"}', "wrong", "2.9.900 at "),
        ('{"version": "main"}', "ok", "main at "),
        ('{"version": ["2.21.75"]}', "ok", ""),
        ("[" * 100_000, "ok", ""),
    ],
)
def test_xrt_is_named_by_the_version_it_says_of_itself(tmp_path, monkeypatch, report, state, found):
    (tmp_path / "report.json").write_text(f'{{"system": {{"host": {{"xrt": {report}}}}}}}')
    smi = tmp_path / "xrt-smi"
    smi.write_text(
        '#!/bin/sh\n[ "$1 $2 $3" = "examine -r host" ] || exit 1\nwhile [ "$1" != -o ]; do shift; done\n'
        f'while read -r line || [ "$line" ]; do echo "$line"; done < {tmp_path}/report.json > "$2"\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = module._xrt()
    assert seen.state == state
    assert seen.found == f"{found}{smi}" if found else "does not say its version" in seen.found
    assert seen.remedy == ("install XRT 2.21.75 or newer (docs/device.md)" if state == "wrong" else "")


def test_text_and_json(built, capsys):
    assert main(["doctor", f"root={built.root}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok    Python: ")
    notes = sum(line.startswith("note ") for line in lines)
    assert lines[-1] == f"{len(lines) - 1} looked at, 0 wrong, {notes} notes"
    assert main(["doctor", f"root={built.root}", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["sound"] is True
    assert len(table["checks"]) == len(lines) - 1

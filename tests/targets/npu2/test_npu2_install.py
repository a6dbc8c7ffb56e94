"""Installing the npu2 toolchain from stand-in wheels: every source, every way it can go wrong, and every later use."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from filelock import FileLock

from elfkiln.cli import main
from elfkiln.errors import Differs, ElfkilnError, Refused
from elfkiln.io.child import ends_at_sigterm
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2 import install_toolchain as module
from elfkiln.targets.npu2.aiecc import GENERATIONS
from elfkiln.targets.npu2.install_toolchain import install
from elfkiln.targets.npu2.installed_toolchain import (
    check_unchanged,
    open_installed,
    tool_environment,
    verify_install,
    verify_tools,
)
from elfkiln.targets.npu2.interpreter import find_python
from elfkiln.targets.npu2.pin import read_pin
from elfkiln.targets.npu2.wheels import Sources, collect
from npu2_server import serve
from npu2_standins import (
    NEW_HELP,
    OLD_HELP,
    PYTHON,
    assembler,
    copy_installed,
    make_standins,
    make_wheel,
    this_python,
    unpack,
)
from processes import alive, wait_for

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def standins(tmp_path_factory):
    return make_standins(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def installed(standins, tmp_path_factory):
    """One install that tests copy before they spoil it."""
    project = standins.project(tmp_path_factory.mktemp("installed") / "project")
    return install(project, wheels=standins.folder, find=this_python)


@pytest.fixture
def copy(installed, tmp_path):
    """A copy of that install in a project of its own."""
    root = tmp_path / "copy"
    root.mkdir()
    shutil.copy(installed.folder.parents[2] / "toolchain.lock", root)
    return copy_installed(installed, root)


@pytest.fixture
def unpacked(monkeypatch):
    """What is tried here comes before or after pip, whose place another takes: a real install is 2 s of a processor."""
    monkeypatch.setattr(module, "run_pip", unpack)


@pytest.fixture
def server():
    with serve() as running:
        yield running


def target_of(project):
    return read_lock(project.lock_file).target("npu2")


def left_over(project):
    """What an install left besides its lock file."""
    folder = project.toolchains
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.is_dir() else []


def fails(project, kind=ElfkilnError, **arguments):
    """Install, which must fail in one line and leave nothing; return the line."""
    with pytest.raises(kind) as error:
        install(project, **{"find": this_python, **arguments})
    assert left_over(project) == []
    line = str(error.value)
    assert "\n" not in line
    return line


# From a folder, the mirror, addresses.


def test_an_install_holds_the_pinned_wheels_and_nothing_else(installed):
    names = sorted(path.name for path in installed.site.iterdir() if not path.name.endswith(".dist-info"))
    assert names == ["aie.pth", "llvm-aie", "mlir_aie", "tinydep.py"]
    listing = subprocess.run(
        [
            installed.python,
            "-c",
            "from importlib.metadata import distributions as d; print(sorted({*(x.name for x in d())}))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert listing.stdout == "['llvm_aie', 'mlir_aie', 'tinydep']\n"
    assert (
        sorted(path.name for path in (installed.folder / "venv" / "bin").iterdir() if "python" not in path.name) == []
    )


def test_the_record_has_the_digest_of_every_binary_as_the_wheels_hold_it(installed, standins):
    with (
        zipfile.ZipFile(standins.wheels["mlir_aie"].path) as mlir,
        zipfile.ZipFile(standins.wheels["llvm_aie"].path) as peano,
    ):
        expected = {
            "aiecc": mlir.read("mlir_aie/bin/aiecc"),
            "aie-opt": mlir.read("mlir_aie/bin/aie-opt"),
            "aiebu-asm": mlir.read("mlir_aie/bin/aiebu-asm"),
            "clang": peano.read("llvm-aie/bin/clang"),
            "clang++": peano.read("llvm-aie/bin/clang++"),
            "python": Path(os.path.realpath(sys.executable)).read_bytes(),
        }
    record = json.loads((installed.folder / "install.json").read_text())
    assert {name: row["sha256"] for name, row in record["tools"].items()} == {
        name: hashlib.sha256(data).hexdigest() for name, data in expected.items()
    }
    assert record["tools"]["aiecc"]["file"].endswith("site-packages/mlir_aie/bin/aiecc")
    assert record["wheels"] == {wheel.path.name: wheel.sha256 for wheel in standins.wheels.values()}
    assert (record["aiecc"]["generation"], record["aiecc"]["version"]) == (
        "get-full-elf",
        "aiecc (stand-in)\\n  git SHA:  0000000",
    )
    names = re.findall(r"^  --?([a-z-]+)", NEW_HELP, re.MULTILINE)
    assert sorted(record["aiecc"]["options"]) == sorted(names)
    assert record["toolchain"] == installed.folder.name == installed.pin.digest


def test_the_record_holds_no_path_of_the_machine(installed):
    record = (installed.folder / "install.json").read_text()
    for place in (
        str(installed.folder.parents[2]),
        os.path.dirname(os.path.realpath(sys.executable)),
        str(Path.home()),
    ):
        assert str(place) not in record


def test_the_package_that_generators_import_works_in_it(installed):
    done = subprocess.run(
        [installed.python, "-c", "import aie; aie.emit('panel_gemm.2026-08')"],
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("module {\n")


def test_installing_again_does_nothing(installed, standins):
    project = Project(installed.folder.parents[2])
    before = (installed.folder / "install.json").stat().st_ino
    said = []
    again = install(project, wheels=standins.folder, find=None, note=said.append)
    assert (again.folder, said) == (installed.folder, [])
    assert (installed.folder / "install.json").stat().st_ino == before


@pytest.mark.usefixtures("unpacked")
def test_the_mirror_is_enough(standins, tmp_path):
    rows = [wheel.row(f"http://127.0.0.1:9/{wheel.path.name}") for wheel in standins.wheels.values()]
    project = standins.project(tmp_path / "project", wheels=rows)
    for wheel in standins.wheels.values():
        Store(project.store).add_file(wheel.path)
    assert install(project, find=this_python).tool("aiecc").is_file()


def test_a_damaged_mirror_is_not_used(standins, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    rows = [wheel.row(f"http://127.0.0.1:9/{wheel.path.name}") for wheel in standins.wheels.values()]
    project = standins.project(tmp_path / "project", wheels=rows)
    store = Store(project.store)
    for wheel in standins.wheels.values():
        store.add_file(wheel.path)
    blob = store.path(standins.wheels["mlir_aie"].sha256)
    blob.chmod(0o644)
    size = blob.stat().st_size + 6
    blob.write_bytes(blob.read_bytes() + b"TAMPER")
    said = []
    line = fails(project, Differs, note=said.append)
    assert "mlir_aie-1.4.3-py3-none-any.whl from 127.0.0.1: not reachable" in line
    found = hashlib.sha256(blob.read_bytes()).hexdigest()
    remark = "mlir_aie-1.4.3-py3-none-any.whl: the mirror's copy is damaged and not used "
    assert [word for word in said if "mirror" in word] == [f"{remark}({size} bytes, sha256 {found})"]


def test_a_damaged_mirror_is_said_though_the_wheel_is_there(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    blob = Store(project.store).path(standins.wheels["mlir_aie"].sha256)
    blob.parent.mkdir(parents=True)
    blob.mkdir()
    said = []
    into = tmp_path / "into"
    into.mkdir()
    pin = read_pin(target_of(project))
    collect(pin.wheels, Sources(Store(project.store), standins.folder), into, PYTHON, said.append)
    (line,) = said
    assert re.fullmatch(r"mlir_aie-1.4.3-py3-none-any.whl: the mirror's copy is damaged and not used \(.* .*\)", line)


@pytest.mark.usefixtures("unpacked")
def test_wheels_come_from_their_addresses(standins, tmp_path, server):
    rows = []
    for wheel in standins.wheels.values():
        name = wheel.path.name.replace("+", "%2B")
        server.body(f"/real/{name}", wheel.path.read_bytes())
        rows.append(wheel.row(server.redirect(f"/releases/{name}", f"/real/{name}")))
    project = standins.project(tmp_path / "project", wheels=rows)
    said = []
    found = install(project, find=this_python, note=said.append)
    assert found.describe() == f"mlir-aie 1.4.3, llvm-aie 22.0.0+02be6fd8, Python {this_python(PYTHON).version}"
    assert "fetching llvm_aie-22.0.0+02be6fd8-py3-none-any.whl (2 of 3)" in said
    assert "/releases/llvm_aie-22.0.0%2B02be6fd8-py3-none-any.whl" in server.asked


def test_with_a_folder_the_network_is_not_asked(standins, tmp_path, server):
    rows = [
        wheel.row(server.body(f"/{wheel.path.name}", wheel.path.read_bytes())) for wheel in standins.wheels.values()
    ]
    project = standins.project(tmp_path / "project", wheels=rows)
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(standins.wheels["mlir_aie"].path, half)
    line = fails(project, Differs, wheels=half)
    assert (
        "2 of 3 pinned wheels missing there and in the mirror: llvm_aie-22.0.0+02be6fd8-py3-none-any.whl, tinydep-1.0"
        in line
    )
    assert server.asked == []


def test_a_folder_may_hold_the_name_as_the_address_spells_it(standins, tmp_path):
    pin = read_pin(target_of(standins.project(tmp_path / "project")))
    folder, into = tmp_path / "wheels", tmp_path / "into"
    folder.mkdir()
    into.mkdir()
    for wheel in standins.wheels.values():
        shutil.copy(wheel.path, folder / wheel.path.name.replace("+", "%2B"))
    collect(pin.wheels, Sources(Store(tmp_path / "store"), folder), into, PYTHON)
    assert {path.name for path in into.iterdir()} == {wheel.path.name for wheel in standins.wheels.values()}


def test_a_wheel_without_an_address_comes_from_pips_index_by_digest(standins, tmp_path, server, monkeypatch):
    names = ["mlir_aie", "llvm_aie"]
    rows = [
        standins.wheels[n].row(
            server.body(f"/{n}/{standins.wheels[n].path.name}", standins.wheels[n].path.read_bytes())
        )
        for n in names
    ]
    tiny = standins.wheels["tinydep"]
    project = standins.project(tmp_path / "project", wheels=[*rows, tiny.row()])
    server.body("/files/" + tiny.path.name, tiny.path.read_bytes())
    page = f'<html><body><a href="/files/{tiny.path.name}">{tiny.path.name}</a></body></html>'
    answer = page.encode()

    def index(request):
        request.send_response(200)
        request.send_header("Content-Type", "text/html")
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    server.routes["/simple/tinydep/"] = index
    monkeypatch.setenv("PIP_INDEX_URL", server.base + "/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    # Settings that would change what is installed have no effect.
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    found = install(project, find=this_python)
    assert (found.site / "tinydep.py").is_file()
    assert not (tmp_path / "elsewhere").exists()


def test_other_bytes_in_pips_index_are_refused(standins, tmp_path, monkeypatch):
    rows = [standins.wheels[name].row() for name in ("mlir_aie", "llvm_aie")]
    folder = tmp_path / "index"
    other = make_wheel(folder, "tinydep", "1.0", {"tinydep.py": "evil = True\n"})
    row = {**standins.wheels["tinydep"].row(), "file": other.path.name}
    project = standins.project(tmp_path / "project", wheels=[*rows, row])
    for name in ("mlir_aie", "llvm_aie"):
        Store(project.store).add_file(standins.wheels[name].path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    line = fails(project, Differs)
    assert "wanted from pip's index by sha256: tinydep-1.0-py3-none-any.whl; or give them with wheels=DIR" in line


# What can be wrong with what is given.


def test_other_bytes_under_the_pinned_name_are_refused(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    folder = tmp_path / "wheels"
    shutil.copytree(standins.folder, folder)
    path = folder / standins.wheels["mlir_aie"].path.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    line = fails(project, Refused, wheels=folder)
    expected, found = standins.wheels["mlir_aie"].sha256, hashlib.sha256(data).hexdigest()
    assert f"{path.name}: sha256: expected {expected}, found {found}" in line


def test_a_wheel_of_another_size_is_refused(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    folder = tmp_path / "wheels"
    shutil.copytree(standins.folder, folder)
    path = folder / standins.wheels["mlir_aie"].path.name
    path.write_bytes(path.read_bytes()[:-10])
    assert "size: expected" in fails(project, Refused, wheels=folder)


def test_wrong_bytes_at_an_address_leave_nothing(standins, tmp_path, server):
    rows = [wheel.row(server.body(f"/{wheel.path.name}", b"other")) for wheel in standins.wheels.values()]
    for row in rows:
        del row["size"]
    project = standins.project(tmp_path / "project", wheels=rows)
    assert "sha256: expected" in fails(project, Refused)


def test_a_folder_that_is_none(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    assert "wheels: expected a folder that holds the pinned wheels" in fails(project, wheels=tmp_path / "absent")


def test_a_pinned_file_that_is_no_wheel(standins, tmp_path):
    folder = tmp_path / "wheels"
    shutil.copytree(standins.folder, folder)
    path = folder / "tinydep-1.0-py3-none-any.whl"
    path.write_bytes(b"no zip archive")
    rows = [wheel.row() for wheel in standins.wheels.values()]
    rows[2].update(sha256=hashlib.sha256(b"no zip archive").hexdigest(), size=14)
    project = standins.project(tmp_path / "project", wheels=rows)
    assert "tinydep-1.0-py3-none-any.whl: has the pinned digest but is not a wheel" in fails(project, wheels=folder)


def test_a_wheel_for_another_python_is_refused(standins, tmp_path):
    folder = tmp_path / "wheels"
    shutil.copytree(standins.folder, folder)
    other = make_wheel(folder, "tinydep", "1.0", {"tinydep.py": ""}, tag="cp37-cp37m-manylinux_2_17_x86_64")
    rows = [*(standins.wheels[name].row() for name in ("mlir_aie", "llvm_aie")), other.row()]
    project = standins.project(tmp_path / "project", wheels=rows)
    line = fails(project, wheels=folder)
    assert "tinydep-1.0-cp37-cp37m-manylinux_2_17_x86_64.whl is not a supported wheel on this platform" in line


def test_a_requirement_no_wheel_serves_is_named(tmp_path):
    standins = make_standins(tmp_path / "wheels", requires=("tinydep", "eudsl-python-extras"))
    project = standins.project(tmp_path / "project")
    line = fails(project, Refused, wheels=standins.folder)
    assert "mlir-aie 1.4.3 requires eudsl-python-extras, which is not installed" in line.replace("mlir_aie", "mlir-aie")


@pytest.mark.usefixtures("unpacked")
def test_a_package_that_is_not_inside_its_wheel_is_named(tmp_path):
    standins = make_standins(
        tmp_path / "wheels",
        leave_out=("mlir_aie/python/aie/extras/__init__.py", "mlir_aie/python/aie/extras/context.py"),
    )
    project = standins.project(tmp_path / "project")
    line = fails(project, Refused, wheels=standins.folder)
    assert "ModuleNotFoundError: No module named 'aie.extras'" in line
    assert "packages said to lie inside them: eudsl-python-extras" in line


@pytest.mark.usefixtures("unpacked")
def test_a_binary_that_is_not_there_is_refused_by_name(tmp_path):
    tool = "llvm-aie/bin/clang"
    standins = make_standins(tmp_path / "wheels", leave_out=(tool,))
    project = standins.project(tmp_path / "project")
    line = fails(project, Refused, wheels=standins.folder)
    assert line.startswith(f"{Path(tool).name}: {tool} is not there after install; the wheels do not hold it")


def outside_project(tmp_path, text="#!/bin/sh\necho assembled\n", **changes):
    """A project whose wheels lack aiebu-asm, which the lock pins where the machine has it."""
    standins = make_standins(tmp_path / "wheels", leave_out=("mlir_aie/bin/aiebu-asm",))
    program = tmp_path / "xrt" / "bin" / "aiebu-asm-2.23"
    program.parent.mkdir(parents=True)
    program.write_text(text)
    program.chmod(0o755)
    tools = {
        "aiecc": "mlir_aie/bin/aiecc",
        "aie-opt": "mlir_aie/bin/aie-opt",
        "clang": "llvm-aie/bin/clang",
        "clang++": "llvm-aie/bin/clang++",
    }
    row = {"file": str(program), "sha256": hashlib.sha256(program.read_bytes()).hexdigest(), **changes}
    project = standins.project(tmp_path / "project", tools=tools, outside_tools={"aiebu-asm": row})
    return project, standins.folder, program


def unpinned_project(tmp_path, monkeypatch):
    """A project whose lock pins no aiebu-asm, on a machine that has none either."""
    project, wheels, program = outside_project(tmp_path, text=assembler())
    text = project.lock_file.read_text()
    head, _, rest = text.partition("[target.npu2.outside_tools]\n")
    project.lock_file.write_text(head + "[target.npu2.outside_tools]\n" + rest.partition("\n")[2])
    monkeypatch.setattr("elfkiln.targets.npu2.assembler.PLACES", (str(tmp_path / "nowhere"),))
    return project, wheels, program


def test_where_to_get_the_assembler_is_told_before_anything_is_fetched(tmp_path, monkeypatch):
    project, wheels, _ = unpinned_project(tmp_path, monkeypatch)
    said = []
    line = fails(project, Differs, wheels=wheels, note=said.append)
    assert line == (
        "aiebu-asm: no wheel holds it and toolchain.lock pins none; it comes with XRT (/usr/bin in the packages of "
        "Ubuntu and Fedora, /opt/xilinx/xrt/bin in AMD's) or is built from Xilinx/aiebu alone; then elfkiln toolchain "
        "bump aiebu-asm=PATH out=toolchain.lock --overwrite"
    )
    assert said == []


@pytest.mark.parametrize("where", ["path", "place"])
@pytest.mark.usefixtures("unpacked")
def test_the_assembler_of_this_machine_is_named_with_the_command_that_pins_it(where, tmp_path, monkeypatch):
    project, wheels, program = unpinned_project(tmp_path, monkeypatch)
    there = program.with_name("aiebu-asm")
    there.symlink_to(program.name)
    if where == "path":
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    else:
        monkeypatch.setattr("elfkiln.targets.npu2.assembler.PLACES", (str(program.parent),))
    line = fails(project, Differs, wheels=wheels)
    assert f"this machine has {program}: " in line
    # What the line says does it.
    command = f"toolchain bump aiebu-asm={program} out={project.lock_file} --overwrite root={project.root}"
    assert f"elfkiln toolchain bump aiebu-asm={program} out=toolchain.lock --overwrite pins it" in line
    assert main(command.split()) == 0
    found = install(project, wheels=wheels, find=this_python)
    row = found.record["tools"]["aiebu-asm"]
    assert (row["sha256"], row["abi"]) == (hashlib.sha256(program.read_bytes()).hexdigest(), 33)
    (tool,) = found.pin.outside_tools
    assert (tool.file, tool.abi) == (str(program), 33)


@pytest.mark.usefixtures("unpacked")
def test_the_abi_of_what_the_assembler_makes_is_recorded(tmp_path, installed):
    assert installed.record["tools"]["aiebu-asm"]["abi"] == 33
    project, wheels, _ = outside_project(tmp_path, text=assembler(16))
    assert install(project, wheels=wheels, find=this_python).record["tools"]["aiebu-asm"]["abi"] == 16


@pytest.mark.usefixtures("unpacked")
def test_an_assembler_of_another_abi_than_pinned_is_refused(tmp_path):
    project, wheels, _ = outside_project(tmp_path, text=assembler(32), abi=33)
    line = fails(project, Refused, wheels=wheels)
    where = "toolchain.lock: target.npu2.outside_tools.aiebu-asm.abi"
    assert line == f"{where}: expected 32, the ABI version of what it makes, found 33"


@pytest.mark.usefixtures("unpacked")
def test_an_assembler_that_cannot_be_tried_has_the_abi_of_the_lock_or_none(tmp_path):
    said = []
    project, wheels, _ = outside_project(tmp_path / "a")
    found = install(project, wheels=wheels, find=this_python, note=said.append)
    assert found.record["tools"]["aiebu-asm"]["abi"] is None
    assert any("the ABI version of what it makes could not be found out" in line for line in said)
    project, wheels, _ = outside_project(tmp_path / "b", abi=33)
    assert install(project, wheels=wheels, find=this_python).record["tools"]["aiebu-asm"]["abi"] == 33


def test_equal_installs_have_equal_records(installed, standins, tmp_path):
    records = []
    other = install(standins.project(tmp_path / "another/deeper"), wheels=standins.folder, find=this_python)
    for folder in (installed.folder, other.folder):
        project = Project(folder.parents[2])
        records.append([(folder / file).read_bytes() for file in ("install.json", "files.json")])
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.name != "pyvenv.cfg":
                assert str(project.root).encode() not in path.read_bytes(), path
    assert records[0] == records[1]


@pytest.mark.parametrize("name", ["pyvenv.cfg", "bin/python3"])
def test_what_names_places_of_the_machine_is_watched_too(name, copy):
    path = copy.folder / "venv" / name
    path.unlink()
    path.write_text("include-system-site-packages = true\n")
    with pytest.raises(Refused, match=rf"^{name}: expected "):
        verify_install(copy)


@pytest.mark.usefixtures("unpacked")
def test_a_tool_of_the_machine_can_be_pinned_in_the_place_of_a_missing_one(tmp_path):
    project, wheels, program = outside_project(tmp_path)
    found = install(project, wheels=wheels, find=this_python)
    environment = tool_environment(found.pin, found.folder, tmp_path, {})
    done = subprocess.run(["aiebu-asm"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "assembled\n"
    assert found.record["tools"]["aiebu-asm"]["sha256"] == hashlib.sha256(program.read_bytes()).hexdigest()
    assert str(tmp_path) not in (found.folder / "install.json").read_text()
    program.write_text("#!/bin/sh\necho other\n")
    with pytest.raises(Refused, match=r"^aiebu-asm: aiebu-asm-2.23: sha256: expected "):
        verify_tools(found)
    program.unlink()
    with pytest.raises(Refused, match=r"^aiebu-asm: aiebu-asm cannot be read"):
        verify_tools(found)


def test_a_tool_of_the_machine_with_other_bytes_is_refused(tmp_path):
    project, wheels, program = outside_project(tmp_path, sha256="0" * 64)
    line = fails(project, Refused, wheels=wheels)
    assert line.startswith(f"aiebu-asm: {program}: sha256: expected {'0' * 64}, found ")


def test_a_pinned_tool_the_machine_does_not_have_is_named(tmp_path):
    project, wheels, _ = outside_project(tmp_path, file="/nowhere/aiebu-asm")
    line = fails(project, Differs, wheels=wheels)
    assert line.startswith("aiebu-asm: /nowhere/aiebu-asm: missing on this machine")


def test_no_python_of_the_pinned_version(standins, tmp_path, monkeypatch):
    project = standins.project(tmp_path / "project", python="3.99")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ELFKILN_PYTHON399", raising=False)
    line = fails(project, Differs, wheels=standins.folder, find=find_python)
    assert line.startswith("Python 3.99 is missing: no python3.99 on PATH starts")


# aiecc must say what it is.


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        ("hang", "aiecc --help did not end in 2 s and was killed with all it had started"),
        ("version-hang", "aiecc --version did not end in 2 s and was killed with all it had started"),
        ("fails", "aiecc --help: exit code 1: aiecc: error while loading shared libraries: libz.so.1"),
    ],
)
@pytest.mark.usefixtures("unpacked")
def test_an_aiecc_that_does_not_answer_is_refused(probe, expected, tmp_path):
    standins = make_standins(tmp_path / "wheels", probe=probe)
    project = standins.project(tmp_path / "project")
    assert expected in fails(project, Refused, wheels=standins.folder, probe_seconds=2)


@pytest.mark.usefixtures("unpacked")
def test_an_aiecc_of_another_generation_is_refused(tmp_path):
    standins = make_standins(tmp_path / "wheels", help_text=OLD_HELP)
    project = standins.project(tmp_path / "project")
    line = fails(project, Refused, wheels=standins.folder)
    assert "found those of generate-full-elf" in line
    assert 'set aiecc_generation = "generate-full-elf" in toolchain.lock' in line


@pytest.mark.parametrize(("text", "generation"), [(NEW_HELP, "get-full-elf"), (OLD_HELP, "generate-full-elf")])
@pytest.mark.usefixtures("unpacked")
def test_a_flag_that_aiecc_does_not_list_is_refused_by_name(text, generation, tmp_path):
    # The old generation ignores what it does not know: the default allocation would be used, without a word.
    standins = make_standins(tmp_path / "wheels", help_text=text)
    flags = ["--allok-scheme=basic-sequential"]
    project = standins.project(tmp_path / "project", aiecc_generation=generation, aiecc_flags=flags)
    assert fails(project, Refused, wheels=standins.folder) == (
        "toolchain.lock: target.npu2.aiecc_flags: --allok-scheme=basic-sequential: expected an option that "
        "aiecc --help lists, found none of that name; did you mean --alloc-scheme?"
    )


@pytest.mark.usefixtures("unpacked")
def test_an_option_that_the_help_is_known_not_to_list_is_noted(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    said = []
    found = install(project, wheels=standins.folder, find=this_python, note=said.append)
    assert "aiecc --help does not list --get-full-elf by itself; it counts as one of --get-<name>" in said
    assert found.record["aiecc"]["unlisted"] == ["--get-full-elf"]


def test_an_installed_aiecc_is_held_against_what_elfkiln_passes_now(copy, monkeypatch):
    row = dataclasses.replace(GENERATIONS["get-full-elf"], arguments=("--get-full-elf", "--full-elf={peano}"))
    monkeypatch.setattr("elfkiln.targets.npu2.installed_toolchain.GENERATIONS", {"get-full-elf": row})
    project = Project(copy.folder.parents[2])
    with pytest.raises(Refused, match=r"^aiecc --help: lists no --full-elf, which elfkiln passes"):
        open_installed(project, target_of(project))


@pytest.mark.parametrize("options", [None, [], {"j": 1}, {}])
def test_a_record_without_aieccs_options_is_no_install(options, copy):
    record = json.loads((copy.folder / "install.json").read_text())
    record["aiecc"]["options"] = options
    (copy.folder / "install.json").write_text(json.dumps(record))
    project = Project(copy.folder.parents[2])
    with pytest.raises(Refused, match="is of another install"):
        open_installed(project, target_of(project))


# Space, kills, two at once.


def test_a_disk_too_small_is_seen_before_anything_is_unpacked(standins, tmp_path, monkeypatch):
    project = standins.project(tmp_path / "project")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _path: usage(1 << 30, 1 << 30, 1 << 20))
    assert "1 MiB are free; free some space and run again" in fails(project, Refused, wheels=standins.folder)


def test_a_disk_that_fills_up_is_named(standins, tmp_path, monkeypatch):
    project = standins.project(tmp_path / "project")

    def full(source, target):
        Path(target).write_bytes(Path(source).read_bytes()[:100])
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("elfkiln.targets.npu2.wheels.shutil.copyfile", full)
    assert "no space left on the device" in fails(project, Refused, wheels=standins.folder)


@pytest.mark.usefixtures("unpacked")
def test_a_half_finished_install_is_redone(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    pin = target_of(project)
    half = project.toolchains / pin.digest / "venv" / "bin"
    half.mkdir(parents=True)
    with pytest.raises(Refused, match=r"is half-installed .*; run elfkiln toolchain install target=npu2"):
        open_installed(project, pin)
    said = []
    found = install(project, wheels=standins.folder, find=this_python, note=said.append)
    assert verify_install(found)
    assert said[0].startswith("installing again: toolchain npu2 ")
    assert left_over(project) == [pin.digest]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"schema":"elfkiln-install/2","toolchain":"x"}', b"\xff"])
def test_a_spoilt_record_is_no_install(content, copy):
    (copy.folder / "install.json").write_bytes(content)
    project = Project(copy.folder.parents[2])
    with pytest.raises(Refused, match=r"half-installed|is of another install"):
        open_installed(project, target_of(project))


def test_an_install_of_another_lock_under_this_name_is_refused(copy):
    record = json.loads((copy.folder / "install.json").read_text())
    record["toolchain"] = "0" * 64
    (copy.folder / "install.json").write_text(json.dumps(record))
    project = Project(copy.folder.parents[2])
    with pytest.raises(Refused, match="is of another install"):
        open_installed(project, target_of(project))


def running_below(project):
    """Return the processes whose working folder or program lies in a project."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if alive(name) and os.readlink(f"/proc/{name}/cwd").startswith(str(project.root)):
                found.append(name)
    return found


@contextlib.contextmanager
def half_way(tmp_path, pip="run_pip"):
    """Yield a project, its wheels and the process that installs them, stopped where aiecc is asked for its help.

    `pip` may be "unpack", which stands in for it.
    """
    slow = make_standins(tmp_path / "slow", probe="hang")
    project = slow.project(tmp_path / "project")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from npu2_standins import this_python, unpack\n"
        "from elfkiln.targets.npu2 import install_toolchain\n"
        "from elfkiln.targets.npu2.install_toolchain import install, run_pip\n"
        "from elfkiln.project import Project\n"
        f"install_toolchain.run_pip = {pip}\n"
        "install(Project(Path(sys.argv[2])), wheels=Path(sys.argv[3]), find=this_python)\n"
    )
    tests = str(CHECKOUT / "tests" / "support")
    with subprocess.Popen([sys.executable, "-c", program, tests, str(project.root), str(slow.folder)]) as process:
        deadline = time.monotonic() + 60
        while not list(project.toolchains.glob(".part-*/venv/bin/python")) or not list(
            project.toolchains.glob(".part-*/venv/lib/*/site-packages/mlir_aie/bin/aiecc")
        ):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        yield project, slow, process


@pytest.mark.usefixtures("unpacked")
def test_a_killed_install_leaves_no_toolchain_and_the_next_one_clears_up(tmp_path):
    with half_way(tmp_path, "unpack") as (project, slow, process):
        wait_for(lambda: len(running_below(project)) >= 2)  # aiecc --help, and the child it waits for
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: running_below(project) == [])
    pin = target_of(project)
    with pytest.raises(Refused, match="is not installed"):
        open_installed(project, pin)
    assert [name for name in left_over(project) if not name.startswith(".part-")] == []
    assert "aiecc --help did not end" in fails(project, wheels=slow.folder, probe_seconds=1)
    assert left_over(project) == []


def test_a_terminated_install_clears_up_itself(tmp_path):
    with half_way(tmp_path) as (project, _, process):
        process.send_signal(signal.SIGTERM)
        # 128 + 15, as a shell says it.
        assert process.wait(60) == 143
    assert left_over(project) == []


@pytest.mark.usefixtures("unpacked")
def test_what_a_killed_install_of_another_lock_left_goes_too(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    gone, busy = (project.toolchains / f".part-{digit * 64}-0123abcd" for digit in "ab")
    aside = project.toolchains / f".part-{'a' * 64}-old-0123abcd"
    for folder in (gone, busy, aside):
        (folder / "venv").mkdir(parents=True)
    with FileLock(f"{busy}.lock"):
        install(project, wheels=standins.folder, find=this_python)
    assert left_over(project) == sorted([busy.name, target_of(project).digest])


def test_sigterm_is_as_before_after_an_install_and_untouched_in_a_thread():
    before = signal.getsignal(signal.SIGTERM)
    with ends_at_sigterm():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
    seen = []

    def work():
        with ends_at_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.usefixtures("unpacked")
def test_two_installs_at_once_are_one(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    said, found, errors = [], [], []

    def work():
        try:
            found.append(install(project, wheels=standins.folder, find=this_python, note=said.append))
        except ElfkilnError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {item.folder for item in found} == {project.toolchains / target_of(project).digest}
    assert said.count("installing 3 wheels") == 1
    assert left_over(project) == [target_of(project).digest]


# Every later use.


def test_not_installed_says_what_to_do(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    with pytest.raises(Refused, match=r"is not installed; run elfkiln toolchain install target=npu2$"):
        open_installed(project, target_of(project))


def test_a_copy_that_nobody_touched_verifies(copy):
    assert set(verify_install(copy)) == {"aiecc", "aie-opt", "aiebu-asm", "clang", "clang++", "python"}


@pytest.mark.parametrize("tool", ["aiecc", "aie-opt", "aiebu-asm", "clang", "clang++"])
def test_a_tool_with_other_bytes_is_refused_by_name_and_digest(tool, copy):
    path = copy.tool(tool)
    before = path.read_bytes()
    path.write_bytes(before + b"\n")
    with pytest.raises(Refused) as refused:
        verify_tools(copy)
    line = str(refused.value)
    assert line.startswith(f"{tool}: venv/lib/python{PYTHON}/site-packages/")
    assert (
        f"expected {hashlib.sha256(before).hexdigest()}, found {hashlib.sha256(before + bytes([10])).hexdigest()}"
        in line
    )
    assert "run elfkiln toolchain install target=npu2 to redo it" in line


def test_a_change_that_keeps_size_and_time_is_seen(copy):
    path = copy.tool("aiecc")
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    with pytest.raises(Refused, match=r"^aiecc: "):
        verify_tools(copy)


def test_a_tool_replaced_by_a_link_out_of_the_toolchain_is_refused(copy, tmp_path):
    path = copy.tool("aiecc")
    outside = tmp_path / "aiecc"
    shutil.move(path, outside)
    path.symlink_to(outside)
    with pytest.raises(Refused, match=r"^aiecc: aiecc: expected a file of the installed wheels, found a link to "):
        verify_tools(copy)


def test_a_tool_replaced_by_a_link_to_its_like_is_refused(copy):
    path = copy.tool("clang")
    real = path.with_name("clang-22")
    path.rename(real)
    path.symlink_to(real.name)
    with pytest.raises(Refused, match=r"^clang: .*expected this file, found a link to .*/clang-22"):
        verify_tools(copy)


def test_a_tool_that_went_is_refused(copy):
    copy.tool("aiebu-asm").unlink()
    with pytest.raises(Refused, match=r"^aiebu-asm: aiebu-asm cannot be read \(No such file or directory\)"):
        verify_tools(copy)


def test_a_bootgen_that_appears_is_refused(copy):
    (copy.site / "mlir_aie" / "bin" / "bootgen").write_text("#!/bin/sh\n")
    with pytest.raises(Refused, match=r"^bootgen: appeared after install"):
        verify_tools(copy)


def test_another_interpreter_is_refused(copy):
    python = copy.folder / "venv" / "bin" / "python"
    real = Path(os.path.realpath(python))
    python.unlink()
    shutil.copyfile(real, python)
    with python.open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(Refused, match=r"^python: "):
        verify_tools(copy)


def spoil_header(site):
    with (site / "mlir_aie" / "include" / "aie_api" / "aie.hpp").open("a") as stream:
        stream.write("#define int8 int16\n")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (spoil_header, "mlir_aie/include/aie_api/aie.hpp: expected "),
        (
            lambda site: (site / "aie").mkdir() or (site / "aie" / "__init__.py").write_text(""),
            "aie/__init__.py: expected no such file",
        ),
        (lambda site: (site / "tinydep.py").unlink(), "tinydep.py: expected "),
        (
            lambda site: (site / "sitecustomize.py").symlink_to("/dev/null"),
            "sitecustomize.py: expected no such file, found -> /dev/null",
        ),
    ],
)
def test_any_other_file_that_changed_is_refused_by_name(spoil, named, copy):
    spoil(copy.site)
    verify_tools(copy)
    with pytest.raises(Refused) as refused:
        verify_install(copy)
    assert str(refused.value).startswith(f"lib/python{PYTHON}/site-packages/{named}")


def test_a_changed_setting_of_the_environment_is_refused(copy):
    settings = copy.folder / "venv" / "pyvenv.cfg"
    text = settings.read_text()
    assert "include-system-site-packages = false" in text
    settings.write_text(text.replace("packages = false", "packages = true"))
    with pytest.raises(Refused, match=r"^pyvenv.cfg: expected "):
        verify_install(copy)


def test_a_file_that_changes_after_the_first_look_is_seen_too(copy):
    verify_install(copy)
    path = copy.site / "mlir_aie" / "include" / "aie_api" / "aie.hpp"
    stat, data = path.stat(), bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(Refused, match=r"^lib/python3[.0-9]+/site-packages/mlir_aie/include/aie_api/aie.hpp: expected "):
        verify_install(copy)


def test_bytecode_that_a_person_left_is_not_part_of_the_toolchain(copy):
    cache = copy.site / "mlir_aie" / "python" / "aie" / "__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"")
    assert verify_install(copy)


def test_a_tool_that_changes_during_a_build_is_seen(copy):
    seen = verify_tools(copy)
    check_unchanged(copy, seen)
    path = copy.tool("aiecc")
    path.write_bytes(path.read_bytes())
    with pytest.raises(Refused, match=r"^aiecc: aiecc was changed during the build"):
        check_unchanged(copy, seen)


@pytest.mark.usefixtures("unpacked")
def test_a_changed_toolchain_is_redone_by_install(copy, standins):
    copy.tool("aiecc").write_text("#!/bin/sh\n")
    project = Project(copy.folder.parents[2])
    said = []
    # Whatever stands in the place of the folder, here a link to the spoilt one, goes.
    elsewhere = copy.folder.with_name("elsewhere")
    copy.folder.rename(elsewhere)
    copy.folder.symlink_to(elsewhere)
    found = install(project, wheels=standins.folder, find=this_python, note=said.append)
    assert said[0].startswith("installing again: aiecc: ")
    assert not found.folder.is_symlink()
    shutil.rmtree(elsewhere)
    assert verify_install(found)
    assert left_over(project) == [copy.pin.digest]


def test_a_place_that_cannot_be_written(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    project.out.write_text("no folder")
    with pytest.raises(Refused, match=r"Not a directory|File exists"):
        install(project, wheels=standins.folder, find=this_python)
    with contextlib.suppress(FileNotFoundError):
        project.out.unlink()

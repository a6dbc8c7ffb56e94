"""The mirror: pinned wheels as blobs of the store, named by an OCI manifest, whatever upstream deletes."""

import hashlib
import json
import shutil

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2.mirror import mirror
from npu2_server import serve
from npu2_standins import make_standins


@pytest.fixture(scope="module")
def standins(tmp_path_factory):
    return make_standins(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def server():
    with serve() as running:
        yield running


def blob_names(project):
    folder = project.store / "blobs" / "sha256"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def test_the_wheels_become_blobs_under_a_manifest(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    digest = read_lock(project.lock_file).target("npu2").digest
    result = mirror(project, wheels=standins.folder)
    files = tuple(wheel.path.name for wheel in standins.wheels.values())
    assert (result.ref, result.stored, result.kept) == (f"toolchain-{digest}", files, ())
    # Read as any OCI tool would read the layout.
    index = json.loads((project.store / "index.json").read_text())
    (entry,) = index["manifests"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == f"toolchain-{digest}"
    blobs = project.store / "blobs" / "sha256"
    manifest = json.loads((blobs / entry["digest"].removeprefix("sha256:")).read_text())
    assert {
        layer["annotations"]["org.opencontainers.image.title"]: layer["digest"] for layer in manifest["layers"]
    } == {
        wheel.path.name: f"sha256:{hashlib.sha256(wheel.path.read_bytes()).hexdigest()}"
        for wheel in standins.wheels.values()
    }
    for layer in manifest["layers"]:
        data = (blobs / layer["digest"].removeprefix("sha256:")).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (layer["digest"].removeprefix("sha256:"), layer["size"])


def test_a_second_time_nothing_is_fetched_and_the_manifest_is_the_same(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    first = mirror(project, wheels=standins.folder)
    second = mirror(project, wheels=tmp_path / "absent")
    assert (second.stored, len(second.kept), second.manifest) == ((), 3, first.manifest)


def test_what_came_before_the_line_broke_stays(standins, tmp_path, server):
    mlir, peano, tiny = standins.wheels.values()
    rows = [
        mlir.row(server.body("/" + mlir.path.name, mlir.path.read_bytes())),
        peano.row(server.status("/" + peano.path.name.replace("+", "%2B"), 503)),
        tiny.row(server.body("/" + tiny.path.name, tiny.path.read_bytes())),
    ]
    project = standins.project(tmp_path / "project", wheels=rows)
    with pytest.raises(Differs, match="the server answered 503"):
        mirror(project)
    assert blob_names(project) == {mlir.sha256}
    assert Store(project.store).refs() == {}
    server.body("/" + peano.path.name.replace("+", "%2B"), peano.path.read_bytes())
    server.asked.clear()
    result = mirror(project)
    assert result.kept == (mlir.path.name,)
    assert "/" + mlir.path.name not in server.asked
    assert blob_names(project) >= {mlir.sha256, peano.sha256, tiny.sha256}


def test_wrong_bytes_do_not_enter_the_store(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    folder = tmp_path / "wheels"
    shutil.copytree(standins.folder, folder)
    path = folder / standins.wheels["llvm_aie"].path.name
    path.write_bytes(path.read_bytes() + b"TAMPER")
    with pytest.raises(Refused, match="size: expected"):
        mirror(project, wheels=folder)
    assert blob_names(project) == set()
    assert list((project.out / "work").glob("build-*")) == []


def test_a_damaged_blob_is_stored_anew(standins, tmp_path):
    project = standins.project(tmp_path / "project")
    mirror(project, wheels=standins.folder)
    blob = Store(project.store).path(standins.wheels["mlir_aie"].sha256)
    blob.chmod(0o644)
    blob.write_bytes(b"rot")
    said = []
    again = mirror(project, wheels=standins.folder, note=said.append)
    assert again.stored == (standins.wheels["mlir_aie"].path.name,)
    rot = hashlib.sha256(b"rot").hexdigest()
    name = standins.wheels["mlir_aie"].path.name
    assert said == [f"{name}: the mirror's copy is damaged and not used (3 bytes, sha256 {rot})"]
    assert blob.read_bytes() == standins.wheels["mlir_aie"].path.read_bytes()

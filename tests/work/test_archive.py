"""Sets in one file: out and in, the same bytes each time, and archives that are not what they say."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work.archive import export_sets, import_sets
from elfkiln.work.asked import asked_by_model
from kilns import copy_kiln
from programs import need_program
from projects import TINY_NAMES, TINY_RECIPES, make_project


@pytest.fixture(scope="module")
def built(sim_kiln, tmp_path_factory):
    return copy_kiln(sim_kiln, tmp_path_factory.mktemp("built") / "project")


@pytest.fixture(scope="module")
def archive(built):
    sink = io.BytesIO()
    export_sets(built, [asked_by_model(built, "tiny")], sink)
    return sink.getvalue()


@pytest.fixture
def fresh(tmp_path):
    return make_project(tmp_path / "fresh")


def entries(project):
    return dict(load_registry(project.registry_file).entries("sim"))


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        return [(one, opened.extractfile(one).read() if one.isfile() else b"") for one in opened]


def packed(files):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as made:
        for info, data in files:
            made.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def info(name, data=b"", kind=tarfile.REGTYPE, link=""):
    one = tarfile.TarInfo(name)
    one.size, one.type, one.linkname = len(data), kind, link
    return one, data


def test_out_and_in(built, fresh, archive):
    (taken,) = import_sets(fresh, io.BytesIO(archive), "a.tar")
    assert (taken.names, taken.artifacts) == (TINY_NAMES, TINY_RECIPES)
    assert entries(fresh) == entries(built)
    assert all(Store(fresh.store).holds(entry.elf) for entry in entries(fresh).values())


def test_equal_sets_are_equal_bytes_and_hold_no_time_or_owner(built, archive):
    sink = io.BytesIO()
    export_sets(built, [asked_by_model(built, "tiny")], sink)
    assert sink.getvalue() == archive
    for one, _ in members(archive):
        assert (one.mtime, one.uid, one.gid, one.uname, one.gname) == (0, 0, 0, "", "")


def test_it_is_an_oci_layout(archive):
    files = {one.name: data for one, data in members(archive)}
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(data).hexdigest() == name.rpartition("/")[2]
    index = json.loads(files["index.json"])
    assert [row["annotations"]["org.opencontainers.image.ref.name"] for row in index["manifests"][:1]] == ["tiny-sim"]


def test_skopeo_reads_it(archive, tmp_path):
    skopeo = need_program("skopeo")
    place = tmp_path / "layout"
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(place, filter="data")
    raw = subprocess.run([skopeo, "inspect", "--raw", f"oci:{place}:tiny-sim"], capture_output=True, check=True).stdout
    index = json.loads(raw)
    assert len(index["manifests"]) == TINY_RECIPES


def test_through_a_pipe(built, fresh):
    command = [sys.executable, "-m", "elfkiln"]
    out = subprocess.Popen([*command, "export", "-", "model=tiny", f"root={built.root}"], stdout=subprocess.PIPE)
    done = subprocess.run(
        [*command, "import", "-", f"root={fresh.root}"], stdin=out.stdout, capture_output=True, check=False
    )
    out.stdout.close()
    assert out.wait() == 0
    assert (done.returncode, done.stderr) == (0, b"")
    assert entries(fresh) == entries(built)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
def test_a_compressed_archive(built, fresh, archive, kind):
    import bz2
    import gzip
    import lzma

    squeeze = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[kind]
    import_sets(fresh, io.BytesIO(squeeze(archive)), "a.tar")
    assert entries(fresh) == entries(built)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.97])
def test_an_archive_that_breaks_off(fresh, archive, part):
    with pytest.raises((Refused, Differs)) as caught:
        import_sets(fresh, io.BytesIO(archive[: int(len(archive) * part)]), "a.tar")
    assert str(caught.value).startswith(("a.tar", "manifest", "blob"))
    assert not fresh.registry_file.exists()


def without(name):
    return lambda files: [(one, data) for one, data in files if not one.name.startswith(name)]


def flipped(files):
    changed = []
    for one, data in files:
        if one.name.startswith("blobs/") and len(data) > 10_000:
            data = data[:-1] + bytes([data[-1] ^ 1])
        changed.append((one, data))
    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flipped, "blob sha256:.*found .* bytes of sha256:"),
        (without("index.json"), "expected index.json"),
        (without("blobs/"), "expected in the archive, found none"),
        (lambda files: [*files, info("x", kind=tarfile.SYMTYPE, link="/etc/passwd")], "found a link or a device"),
        (lambda files: [*files, info("x", kind=tarfile.CHRTYPE)], "found a link or a device"),
        (lambda _: [info("index.json", b"[]")], "expected an OCI image index"),
        (lambda _: [info("index.json", b'{"manifests": []}')], "expected sets of elfkiln"),
        (lambda _: [info("index.json", b"{" * 100_000)], "index.json"),
        (lambda _: [], "expected index.json"),
    ],
)
def test_an_archive_that_is_not_what_it_says(fresh, archive, change, words):
    with pytest.raises((Refused, Differs), match=words) as caught:
        import_sets(fresh, io.BytesIO(packed(change(members(archive)))), "a.tar")
    assert "\n" not in str(caught.value)
    assert not fresh.registry_file.exists()


def test_a_name_that_leads_out_is_passed_over(built, fresh, archive, tmp_path):
    files = [info("../../outside", b"x"), info("/tmp/outside", b"x"), *members(archive)]
    import_sets(fresh, io.BytesIO(packed(files)), "a.tar")
    assert entries(fresh) == entries(built)
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("data", [b"", b"not a tar" * 100, b"\x7fELF" + bytes(1000)])
def test_what_is_not_a_tar(fresh, data):
    with pytest.raises(Refused, match=r"a\.tar"):
        import_sets(fresh, io.BytesIO(data), "a.tar")


def test_the_verbs(built, fresh, tmp_path, capsys):
    file = tmp_path / "set.tar"
    assert main(["export", str(file), "model=tiny", f"root={built.root}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] > 10_000
    assert main(["import", str(file), f"root={fresh.root}"]) == 0
    assert f"{TINY_NAMES} names" in capsys.readouterr().out
    assert main(["import", str(tmp_path / "absent"), f"root={fresh.root}"]) == 2
    assert "absent: No such file or directory" in capsys.readouterr().err
    assert main(["export", str(file / "x.tar"), "model=tiny", f"root={built.root}"]) == 2
    assert not list(tmp_path.glob(".part-*"))


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a symbolic link"])
def test_an_export_replaces_files_only(built, tmp_path, capsys, kind):
    """As root, an archive renamed over a device would take the device's place."""
    place = tmp_path / "out.tar"
    {"a pipe": os.mkfifo, "a folder": os.mkdir, "a symbolic link": lambda p: os.symlink("/dev/null", p)}[kind](place)
    before = place.lstat().st_mode
    assert main(["export", str(place), "model=tiny", f"root={built.root}"]) == 2
    assert f"expected a file, or nothing, to write, found {kind}" in capsys.readouterr().err
    assert place.lstat().st_mode == before

"""The store heals what it can: an index, a layout or a blob that is damaged, gone, or something else than a file."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.io.canonical import canonical_json
from elfkiln.store.artifacts import all_artifacts, find_artifact, read_log
from elfkiln.store.blobs import Descriptor, Store, descriptor_of
from elfkiln.store.healing import TOOLCHAIN_TYPE, toolchain_ref
from manifests import add_manifest
from stored import recipe_of, stored


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    return Store(tmp_path / "registry")


def fill(store):
    """Put two artifacts with logs, a toolchain and a referrer into a store; return its refs."""
    for text in ("one", "two"):
        stored(store, text, text.encode(), log=f"log of {text}\n")
    config = descriptor_of(store, store.add_bytes(canonical_json({"pin": 1})), "application/json")
    store.add_manifest(ref=toolchain_ref(config.digest), artifact_type=TOOLCHAIN_TYPE, config=config, layers=(config,))
    return store.refs()


def make_folder(path):
    path.mkdir()
    (path / "something").write_text("kept")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


DAMAGES = {
    "absent": lambda _path: None,
    "empty": lambda path: path.write_text(""),
    "half": lambda path: path.write_text('{"manifests": ['),
    "another kind of JSON": lambda path: path.write_text("[]"),
    "a wrong type": lambda path: path.write_text('{"manifests": 3}'),
    "a wrong digest": lambda path: path.write_text('{"manifests": [{"digest": "sha256:../../x"}]}'),
    "wrong annotations": lambda path: path.write_text(
        '{"manifests": [{"mediaType": "x", "digest": "sha256:' + "0" * 64 + '", "size": 1, "annotations": ["a"]}]}'
    ),
    "a size without end": lambda path: path.write_text(
        '{"manifests": [{"mediaType": "x", "digest": "sha256:' + "0" * 64 + '", "size": 1e999}]}'
    ),
    "brackets": lambda path: path.write_text("[" * 20_000),
    "a NUL": lambda path: path.write_bytes(b"\0"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff"),
    "a pipe": os.mkfifo,
    "a folder": make_folder,
    "a socket": make_socket,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_index_that_is_lost_or_damaged_is_made_anew_from_the_manifests(store, damage, capsys):
    before = fill(store)
    index = store.root / "index.json"
    whole = index.read_bytes()
    index.unlink()
    DAMAGES[damage](index)
    assert store.refs() == before
    line = capsys.readouterr().err
    assert line.startswith(f"elfkiln: {index}: ")
    assert line.endswith("; made anew from the 5 manifests in the store\n")
    assert line.count("\n") == 1
    assert index.read_bytes() == whole
    # Mended: nothing more to say.
    assert store.refs() == before
    assert capsys.readouterr().err == ""
    assert [artifact.recipe for artifact in all_artifacts(store)] == sorted(recipe_of(t).digest for t in ("one", "two"))
    assert read_log(store, recipe_of("two").digest) == "log of two\n"


@pytest.mark.parametrize("damage", DAMAGES)
def test_whoever_names_a_manifest_first_loses_no_other(store, damage):
    before = fill(store)
    index = store.root / "index.json"
    index.unlink()
    DAMAGES[damage](index)
    new = add_manifest(store, "new", b"payload")
    # What add_manifest of the tests stored says no name of its own, so only the name given now is known.
    assert store.refs() == before | {"new": new}


def test_what_was_in_the_place_of_the_index_is_kept_aside(store):
    fill(store)
    (store.root / "index.json").unlink()
    make_folder(store.root / "index.json")
    store.refs()
    (kept,) = (store.root / "damaged").iterdir()
    assert (kept / "something").read_text() == "kept"


def test_a_store_that_has_nothing_has_lost_nothing(store, capsys):
    assert store.refs() == {}
    store.add_bytes(b"a blob without a manifest")
    assert store.refs() == {}
    assert capsys.readouterr().err == ""
    assert json.loads((store.root / "index.json").read_text())["manifests"] == []


def test_of_two_manifests_of_one_recipe_the_younger_is_named(store):
    first = stored(store, "one", b"first bytes")
    second = stored(store, "one", b"other bytes")
    os.utime(store.path(first.manifest), (1000, 1000))
    (store.root / "index.json").unlink()
    assert find_artifact(store, recipe_of("one").digest) == second


def test_a_damaged_manifest_tells_nothing(store):
    fill(store)
    victim = find_artifact(store, recipe_of("one").digest).manifest
    path = store.path(victim)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data.replace(b"one", b"two") + b" ")
    (store.root / "index.json").unlink()
    assert f"recipe-{recipe_of('one').digest}" not in store.refs()


def test_referrers_and_other_manifests_are_named_too(store):
    kept = stored(store, "one", b"x")
    empty = descriptor_of(store, store.add_bytes(b"{}"), "application/vnd.oci.empty.v1+json")
    about = Descriptor("application/vnd.oci.image.manifest.v1+json", kept.manifest, 1)
    made = store.add_manifest(ref="x", artifact_type="application/other", config=empty, layers=(), subject=about)
    lone = store.add_manifest(ref="y", artifact_type="application/other", config=empty, layers=())
    record = f"log-{kept.recipe}"
    written = store.refs()[record].digest
    (store.root / "index.json").unlink()
    assert {name: entry.digest for name, entry in store.refs().items()} == {
        f"recipe-{recipe_of('one').digest}": kept.manifest,
        record: written,
        f"referrer-{made.digest}": made.digest,
        f"manifest-{lone.digest}": lone.digest,
    }


def test_where_nothing_can_be_written_the_answer_comes_all_the_same(store):
    before = fill(store)
    (store.root / "index.json").unlink()
    program = (
        "import json, os, sys\n"
        "from pathlib import Path\n"
        "from elfkiln.store.blobs import Store\n"
        "import elfkiln.store.healing\n"
        "import pathlib, filelock\n"
        "if os.getuid() == 0:\n"
        "    os.setgid(65534)\n"
        "    os.setuid(65534)\n"
        "print(json.dumps(sorted(Store(Path(sys.argv[1])).refs())))\n"
    )
    root = store.root
    for place in (root, *root.rglob("*")):
        if place.is_dir():
            place.chmod(0o555)
    top = root
    while str(top.parent).startswith(str(root.parents[3])) and os.stat(top.parent).st_uid == os.getuid():
        top = top.parent
        top.chmod(top.stat().st_mode | 0o055)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(root)], capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        for place in (root, *root.rglob("*")):
            if place.is_dir():
                place.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == sorted(before)
    assert not (store.root / "index.json").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_layout_that_is_damaged_is_written_anew(store, damage):
    store.add_bytes(b"one")
    layout = store.root / "oci-layout"
    layout.unlink()
    DAMAGES[damage](layout)
    store.add_bytes(b"two")
    assert json.loads(layout.read_text()) == {"imageLayoutVersion": "1.0.0"}
    assert not layout.is_symlink()


def test_a_layout_that_another_tool_wrote_stays(store):
    store.add_bytes(b"one")
    text = '{\n  "imageLayoutVersion": "1.0.0",\n  "by": "another tool"\n}\n'
    (store.root / "oci-layout").write_text(text)
    store.add_bytes(b"two")
    assert (store.root / "oci-layout").read_text() == text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_folder, "a folder"),
        (os.mkfifo, "a pipe"),
        (make_socket, "a socket"),
        (lambda path: path.symlink_to("nothing"), "a symbolic link that leads nowhere"),
        (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    ],
)
def test_a_blob_that_is_no_file_is_named_and_replaced(store, make, said):
    digest = store.add_bytes(b"the bytes")
    store.path(digest).unlink()
    make(store.path(digest))
    assert f"cannot be read (not a regular file ({said}" in store.problem(digest)
    with pytest.raises(Differs, match="not a regular file"):
        store.read(digest)
    assert store.add_bytes(b"the bytes") == digest
    assert store.path(digest).read_bytes() == b"the bytes"
    assert not store.path(digest).is_symlink()


def test_a_blob_that_is_a_link_to_the_right_bytes_is_none(store, tmp_path):
    """Whoever owns what it leads to could change the bytes under their digest."""
    digest = store.add_bytes(b"the bytes")
    (tmp_path / "elsewhere").write_bytes(b"the bytes")
    store.path(digest).unlink()
    store.path(digest).symlink_to(tmp_path / "elsewhere")
    assert not store.holds(digest)
    store.add_file(tmp_path / "elsewhere", expected=digest)
    assert store.holds(digest)
    assert (tmp_path / "elsewhere").read_bytes() == b"the bytes"


def test_a_file_in_place_of_the_blobs_folder_is_moved_aside(store):
    store.root.mkdir()
    (store.root / "blobs").mkdir()
    (store.root / "blobs" / "sha256").write_text("kept")
    digest = store.add_bytes(b"the bytes")
    assert store.holds(digest)
    (kept,) = (store.root / "damaged").iterdir()
    assert kept.read_text() == "kept"


def test_a_large_file_is_stored_in_parts(store, tmp_path):
    source = tmp_path / "large"
    source.write_bytes(os.urandom(3 * 2**20 + 1))
    digest = store.add_file(source)
    assert store.read(digest) == source.read_bytes()


def test_a_file_that_changes_while_it_is_stored_is_not(store, tmp_path, monkeypatch):
    source = tmp_path / "file"
    source.write_bytes(b"before")
    hashed = []

    def change(path):
        from elfkiln.io.reading import sha256_of

        hashed.append(sha256_of(path))
        source.write_bytes(b"after!")
        return hashed[-1]

    monkeypatch.setattr("elfkiln.store.blobs.sha256_of", lambda path, **_: change(path) if not hashed else "0" * 64)
    with pytest.raises(Differs, match="file: changed while it was read; run again"):
        store.add_file(source)
    monkeypatch.undo()
    assert not store.holds(hashed[0])
    assert list((store.root / "tmp").iterdir()) == []


def test_a_pipe_is_not_stored(store, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match=r"not a regular file \(a pipe\)"):
        store.add_file(tmp_path / "pipe")


def test_a_manifest_that_is_none_is_told(store):
    for data in (b"[]", b"{", b"\xff", b"1e999"):
        digest = store.add_bytes(data)
        with pytest.raises(Differs, match=f"blob sha256:{digest} is not an OCI image manifest"):
            store.manifest(Descriptor("x", digest, len(data)))

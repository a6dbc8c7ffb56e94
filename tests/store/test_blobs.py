"""The store: blobs by digest, an OCI layout that other tools can read, nothing half-written."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import signal
import subprocess
import sys
import threading
import time

import pytest

from elfkiln.errors import Differs, Refused
from elfkiln.io import files
from elfkiln.store.blobs import MANIFEST_TYPE, Descriptor, Store, check_digest, parse_digest
from manifests import add_manifest
from projects import CHECKOUT


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "registry")


def test_a_blob_is_named_by_the_sha256_of_its_bytes(store):
    digest = store.add_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (store.root / "blobs" / "sha256" / digest).read_bytes() == b"abc"
    assert store.read(digest) == b"abc"


def test_making_a_store_object_touches_nothing(tmp_path):
    Store(tmp_path / "absent").refs()
    assert not (tmp_path / "absent").exists()


def test_the_layout_is_an_oci_image_layout(store):
    manifest = add_manifest(store, "recipe-x", b"payload")
    assert json.loads((store.root / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((store.root / "index.json").read_text())
    assert index["schemaVersion"] == 2
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    (entry,) = index["manifests"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": "recipe-x"}
    data = (store.root / "blobs" / "sha256" / entry["digest"].removeprefix("sha256:")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == manifest.digest
    assert len(data) == entry["size"]
    body = json.loads(data)
    assert body["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert body["layers"][0]["digest"] == "sha256:" + hashlib.sha256(b"payload").hexdigest()
    assert body["layers"][0]["size"] == len(b"payload")
    # The OCI empty descriptor's published digest.
    assert body["config"]["digest"] == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_the_same_manifest_twice_is_one_entry_and_another_ref_a_second(store):
    first = add_manifest(store, "a", b"1")
    assert add_manifest(store, "a", b"1") == first
    add_manifest(store, "b", b"1")
    assert sorted(store.refs()) == ["a", "b"]
    changed = add_manifest(store, "a", b"2")
    assert store.refs()["a"].digest == changed.digest != first.digest


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data[:0], lambda data: data[:3] + bytes([data[3] ^ 1]) + data[4:]],
    ids=["truncated", "empty", "one bit"],
)
def test_a_damaged_blob_is_never_served_and_is_repaired_by_the_next_add(store, damage):
    digest = store.add_bytes(b"some bytes of an ELF")
    path = store.path(digest)
    path.chmod(0o644)
    path.write_bytes(damage(b"some bytes of an ELF"))
    assert not store.holds(digest)
    with pytest.raises(Differs, match=f"sha256:{digest} is damaged"):
        store.read(digest)
    assert store.add_bytes(b"some bytes of an ELF") == digest
    assert store.read(digest) == b"some bytes of an ELF"


def test_an_absent_blob_is_named(store):
    digest = hashlib.sha256(b"never stored").hexdigest()
    with pytest.raises(Differs, match=f"sha256:{digest} is not in the store"):
        store.read(digest)


@pytest.mark.parametrize(
    "text", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 63 + "/", "0" * 63 + "\n"]
)
def test_a_digest_that_is_none_never_becomes_a_path(store, text):
    with pytest.raises(Refused, match="expected 64 lower-case hex digits"):
        store.path(text)
    with pytest.raises(Refused):
        check_digest(text)
    with pytest.raises(Refused):
        parse_digest("sha256:" + text)


def test_a_file_with_another_digest_than_expected_is_refused_and_not_stored(store, tmp_path):
    source = tmp_path / "wheel.whl"
    source.write_bytes(b"tampered")
    expected = hashlib.sha256(b"pinned").hexdigest()
    found = hashlib.sha256(b"tampered").hexdigest()
    with pytest.raises(Refused, match=f"wheel.whl: sha256: expected {expected}, found {found}"):
        store.add_file(source, expected=expected)
    assert not store.holds(found)


def test_a_full_disk_is_one_line_and_leaves_no_blob(store, monkeypatch):
    store.add_bytes(b"first")

    def no_space(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(Refused, match="no space left on the device"):
        store.add_bytes(b"second")
    monkeypatch.undo()
    assert not store.holds(hashlib.sha256(b"second").hexdigest())
    assert [path.name for path in (store.root / "tmp").iterdir()] == []
    assert store.read(hashlib.sha256(b"first").hexdigest()) == b"first"


def test_a_real_full_file_size_limit_is_one_line_too(store):
    """A process that may write 4 KiB a file meets EFBIG, as a full quota would."""
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from elfkiln.store.blobs import Store\n"
        "from elfkiln.errors import ElfkilnError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    Store(Path(sys.argv[1])).add_bytes(b'x' * 10000)\n"
        "except ElfkilnError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store.root)], capture_output=True, text=True, timeout=60, check=True
    )
    assert "no space left on the device" in done.stdout
    assert done.stderr == ""
    assert not store.holds(hashlib.sha256(b"x" * 10000).hexdigest())


def _add_many(root, start):
    store = Store(root)
    for number in range(start, start + 20):
        add_manifest(store, f"recipe-{number}", f"payload {number}".encode())


def test_two_processes_lose_no_entry(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add_many, args=(tmp_path / "r", start)) for start in (0, 10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    store = Store(tmp_path / "r")
    assert sorted(store.refs()) == sorted(f"recipe-{number}" for number in range(30))
    for entry in store.refs().values():
        for layer in store.manifest(entry)["layers"]:
            store.read(parse_digest(layer["digest"]))


def test_kill_9_at_any_moment_leaves_only_whole_things(tmp_path):
    """What a killed writer leaves: every blob verifies, the index parses, every entry of it is complete."""
    root = tmp_path / "r"
    program = (
        "import sys, itertools\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from manifests import add_manifest\n"
        "from elfkiln.store.blobs import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "print('go', flush=True)\n"
        "for number in itertools.count():\n"
        "    add_manifest(store, f'recipe-{number % 7}', bytes([number % 256]) * 50000)\n"
    )
    for delay in (0.0, 0.013, 0.05, 0.11):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(root), str(CHECKOUT / "tests" / "support")], stdout=subprocess.PIPE
        )
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        store = Store(root)
        for blob in store.blobs.iterdir() if store.blobs.is_dir() else []:
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
        for entry in store.refs().values():
            for layer in store.manifest(entry)["layers"]:
                assert store.holds(parse_digest(layer["digest"]))
        assert isinstance(add_manifest(store, "after", b"works"), Descriptor)


def test_the_first_manifest_of_a_new_store_is_not_taken_for_a_lost_index(tmp_path, capsys):
    """Between a manifest's bytes and its name another thread or process may ask for the index."""
    store = Store(tmp_path / "store")
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"digest": f"sha256:{'0' * 64}"},
        "layers": [],
    }
    digest = store.add_bytes(json.dumps(manifest).encode())
    assert store.refs() == {}
    store.name_manifest("it", digest)
    # Who comes to the folders anew leaves the index alone.
    Store(tmp_path / "store").add_bytes(b"x")
    assert list(store.refs()) == ["it"]
    assert capsys.readouterr().err == ""


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A store whose index counts as large from its first entry, and the digest of a manifest in it."""
    monkeypatch.setattr("elfkiln.store.blobs._SMALL_INDEX", 1)
    store = Store(tmp_path / "store")
    return store, store.add_bytes(json.dumps({"schemaVersion": 2, "mediaType": MANIFEST_TYPE}).encode())


def listed(store):
    """Return the names in index.json itself, as another tool sees them."""
    table = json.loads((store.root / "index.json").read_text())
    return [one["annotations"]["org.opencontainers.image.ref.name"] for one in table["manifests"]]


def test_names_of_a_large_index_are_added_and_the_index_is_written_now_and_then(large, monkeypatch):
    store, digest = large
    written = []
    whole = Store._write_index

    def write_index(self, entries):
        written.append(len(entries))
        whole(self, entries)

    monkeypatch.setattr(Store, "_write_index", write_index)
    names = [f"name-{number:04}" for number in range(400)]
    for name in names:
        store.name_manifest(name, digest)
    assert sorted(store.refs()) == names
    # Each time at most a quarter more names than the last: what is written in all is a multiple of the last index.
    assert sum(written) < 6 * 400
    assert len(listed(store)) < 400
    store.settle()
    assert listed(store) == names
    assert not (store.root / "index.added").exists()


def test_what_was_added_replaces_and_outlives_a_cut_line(large):
    store, digest = large
    other = store.add_bytes(json.dumps({"mediaType": MANIFEST_TYPE, "schemaVersion": 2}).encode())
    for number in range(40):
        store.name_manifest(f"name-{number}", digest)
    assert (store.root / "index.added").exists()
    store.name_manifest("name-3", other)
    with (store.root / "index.added").open("ab") as stream:
        stream.write(b'\n{"digest":"sha256:00')
    store.name_manifest("last", other)
    refs = store.refs()
    assert (len(refs), refs["name-3"].digest, refs["last"].digest) == (41, other, other)
    # Left behind by a crash right after the index was written, it says the same once more.
    added = (store.root / "index.added").read_bytes()
    store.settle()
    (store.root / "index.added").write_bytes(added)
    assert Store(store.root).refs() == refs


def test_readers_of_a_large_index_miss_nothing_while_names_are_added(large):
    store, digest = large
    store.name_manifest("first", digest)
    given, missed, done = [], [], threading.Event()

    def read():
        while not done.is_set():
            known = list(given)
            seen = store.refs()
            missed.extend(name for name in known if name not in seen)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(150):
        store.name_manifest(f"name-{number}", digest)
        given.append(f"name-{number}")
    done.set()
    for reader in readers:
        reader.join()
    assert missed == []
    assert len(store.refs()) == 151

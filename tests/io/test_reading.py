"""The one bounded reader: regular files alone, never a wait, never more bytes than asked for."""

from __future__ import annotations

import hashlib
import os
import socket
import threading

import pytest

from elfkiln.errors import Refused
from elfkiln.io.reading import TooLong, Unreadable, read_bytes, read_regular, read_text, sha256_of


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, as a socket's path must be short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_odd(here):
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
    (here / "to-device").symlink_to("/dev/zero")
    (here / "to-folder").symlink_to("folder")
    return {
        "folder": "not a regular file (a folder)",
        "pipe": "not a regular file (a pipe)",
        "socket": "not a regular file (a socket or a device)",
        "to-device": "not a regular file (a device)",
        "to-folder": "not a regular file (a folder)",
        "nul\0": "not a name that a file can have",
        "half\ud800": "not a name that a file can have",
    }


def test_what_is_no_regular_file_is_refused_by_its_kind(here):
    for name, said in make_odd(here).items():
        for act in (lambda path: read_bytes(path, 10), sha256_of):
            with pytest.raises(Unreadable) as caught:
                act(name)
            assert caught.value.strerror == said
        with pytest.raises(Refused) as refused:
            read_regular(name, limit=10, remedy="name another")
        line = str(refused.value)
        assert line.endswith(f": {said}; name another")
        assert line.isprintable()


def test_the_limit_is_the_last_length_that_is_read(here):
    (here / "file").write_bytes(b"x" * 100)
    assert read_bytes("file", 100) == b"x" * 100
    with pytest.raises(TooLong):
        read_bytes("file", 99)
    assert sha256_of("file", limit=100) == sha256_of("file")
    with pytest.raises(TooLong):
        sha256_of("file", limit=99)
    with pytest.raises(Refused, match=r"^file: expected at most 99 bytes, found a longer file; cut it$"):
        read_regular("file", limit=99, remedy="cut it")


def test_a_sparse_file_of_100_gib_is_refused_by_its_size(here):
    with open(here / "sparse", "wb") as stream:
        stream.truncate(100 << 30)
    with pytest.raises(TooLong):
        read_bytes(here / "sparse", 1 << 36)


def test_a_file_without_a_size_is_read_to_its_end():
    """Files of /proc say 0 bytes."""
    assert read_bytes("/proc/self/status", 1 << 20).startswith(b"Name:")


def test_a_file_longer_than_one_part_is_whole(here):
    data = os.urandom((1 << 20) * 2 + 17)
    (here / "long").write_bytes(data)
    assert read_bytes("long", len(data)) == data
    assert sha256_of("long") == hashlib.sha256(data).hexdigest()


def test_a_file_that_grows_while_it_is_read_stays_below_the_limit(here):
    (here / "growing").write_bytes(b"x" * 1000)
    done = threading.Event()

    def grow():
        with open("growing", "ab", buffering=0) as stream:
            while not done.is_set():
                stream.write(b"y" * 4096)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(50):
            try:
                assert len(read_bytes("growing", 1 << 16)) <= 1 << 16
            except TooLong:
                break
    finally:
        done.set()
        writer.join()


def test_a_link_is_followed_unless_told_otherwise(here):
    (here / "file").write_bytes(b"abc")
    (here / "link").symlink_to("file")
    (here / "nowhere").symlink_to("nothing")
    assert read_bytes("link", 3) == b"abc"
    for name in ("link", "nowhere"):
        with pytest.raises(Unreadable, match=r"a symbolic link"):
            read_bytes(name, 3, follow=False)
    with pytest.raises(Unreadable, match=r"not a regular file \(a symbolic link that leads nowhere\)"):
        read_bytes("nowhere", 3)
    with pytest.raises(FileNotFoundError):
        read_bytes("nothing", 3)


def test_what_is_absent_is_missing(here):
    with pytest.raises(Refused, match=r"/absent: missing; restore it$"):
        read_regular(here / "absent", limit=1, remedy="restore it")


def test_text_is_utf_8(here):
    (here / "good").write_text("grün", encoding="utf-8")
    (here / "bad").write_bytes(b"ab\xff")
    assert read_text("good", limit=10) == "grün"
    with pytest.raises(Refused, match=r"^bad: expected UTF-8 text, found byte 2 is not UTF-8$"):
        read_text("bad", limit=10)

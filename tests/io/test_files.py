"""Files written whole or not at all, and only in the place of a file."""

import errno
import itertools
import os
import socket
import stat
import threading

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.io import files
from elfkiln.io.files import write_atomic, write_together


def make_fifo(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def make_folder(path):
    path.mkdir()


def make_link_to_a_file(path):
    path.with_name("file").write_bytes(b"old")
    path.symlink_to("file")


def make_link_to_a_fifo(path):
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def make_link_to_a_device(path):
    path.symlink_to(os.devnull)


def make_link_to_nothing(path):
    path.symlink_to("nothing")


OTHERS = {
    make_fifo: "a pipe",
    make_socket: "a socket",
    make_folder: "a folder",
    make_link_to_a_file: "a symbolic link",
    make_link_to_a_fifo: "a symbolic link",
    make_link_to_a_device: "a symbolic link",
    make_link_to_nothing: "a symbolic link",
}


def entries(folder):
    return {entry.name: stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) for entry in os.scandir(folder)}


@pytest.mark.parametrize("make", OTHERS)
def test_what_is_no_file_is_neither_replaced_nor_written_through(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = tmp_path / "out"
    make(path.relative_to(tmp_path))
    before = entries(tmp_path)
    with pytest.raises(Refused) as caught:
        write_atomic(path, b"new")
    assert str(caught.value).startswith(f"{path}: expected a file, or nothing, to write, found {OTHERS[make]}")
    assert entries(tmp_path) == before
    if make is make_link_to_a_file:
        assert (tmp_path / "file").read_bytes() == b"old"


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "out"
    write_atomic(path, b"one")
    write_atomic(path, b"two", mode=0o600)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert entries(path.parent) == {"out": stat.S_IFREG}


@pytest.mark.parametrize("make", [make_fifo, make_link_to_a_fifo, make_folder])
def test_no_verb_writes_over_what_is_no_file(tmp_path, capsys, make):
    from plan_data import attention, dense_mlp, write_model

    config = {
        "hidden_size": 512,
        "num_hidden_layers": 1,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 768,
    }
    tensors = {"model.norm.weight": ("BF16", [512])} | attention(0, 512, 1024, 512, 1024) | dense_mlp(0, 512, 768)
    folder = write_model(tmp_path / "m", tensors, config)
    make(tmp_path / "out")
    before = entries(tmp_path)
    assert main(["plan", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert entries(tmp_path) == before


def test_files_written_together_are_on_the_disk_before_they_have_their_names_and_the_names_before_the_end(
    tmp_path, monkeypatch
):
    folder = tmp_path / "blobs"
    folder.mkdir()
    bodies = {f"{number:02}": bytes([number]) * 50_000 for number in range(20)}
    events, replace = [], os.replace

    def synced(descriptor):
        # At an fsync the file has all its bytes, and is not yet named.
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        events.append(("sync", path, os.path.getsize(path)))

    def renamed(source, target, **words):
        events.append(("name", os.fspath(source), os.fspath(target)))
        replace(source, target, **words)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(files.os, "replace", renamed)
    before = threading.active_count()
    write_together(folder, bodies, scratch=tmp_path / "scratch", mode=0o444)
    assert threading.active_count() == before
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == bodies
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}
    assert not list((tmp_path / "scratch").iterdir())
    kind, last, _ = events.pop()
    assert (kind, last) == ("sync", str(folder))
    names = [event for event in events if event[0] == "name"]
    assert len(names) == len(bodies)
    for event in names:
        assert ("sync", event[1], 50_000) in events[: events.index(event)]


@pytest.mark.parametrize("threads", [True, False])
def test_a_file_that_cannot_be_written_ends_the_others_and_what_has_its_name_is_whole(tmp_path, monkeypatch, threads):
    bodies = {f"{number:03}": bytes([number]) * 2_000 for number in range(100)}
    calls = itertools.count()

    def full(_descriptor):
        if next(calls) >= 5:
            raise OSError(errno.ENOSPC, "No space left on device")

    def no_thread(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(files.os, "fsync", full)
    if not threads:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(Refused, match="no space left on the device; free some and run again"):
        write_together(tmp_path, bodies, scratch=tmp_path / "scratch")
    there = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert len(there) == 5
    assert there.items() <= bodies.items()
    assert not list((tmp_path / "scratch").iterdir())

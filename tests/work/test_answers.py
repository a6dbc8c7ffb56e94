"""Kept answers are used only while every input is what it was; files are hashed in parts, on all cores."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from elfkiln.work import answers
from elfkiln.work.answers import Proof, answer_bytes, inputs_of, look_at, look_at_all, read_answer

FILES = ["registry.yaml", "toolchain.lock", "plans/tiny/plan.json", "plans/tiny/roles.yaml"]
# Long past the last edit, so that stamps are enough; at the last edit, so that bytes are needed.
LATER, AT_ONCE = 10**10, 0


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A root with three files of the four, a tree, and a package of its own."""
    root = tmp_path / "root"
    for name in (*FILES[:2], FILES[3], "templates/a.j2", "templates/deep/b.j2"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"text of {name}\n")
    package = tmp_path / "package"
    for name in ("__init__.py", "work/fast.py", "targets/runtime.h"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(f"code of {name}\n")
    monkeypatch.setattr(answers, "_PACKAGE", str(package))
    return root


def keep(root, wait):
    inputs = inputs_of(str(root), FILES, [".", "templates"], time.time_ns() + wait)
    (root / "out" / "index").mkdir(parents=True, exist_ok=True)
    (root / "out" / "index" / "a.txt").write_bytes(answer_bytes(inputs, ["one\ttwo", "three"]))
    return inputs


def read(root):
    return read_answer(Proof(str(root)), "a.txt")


@pytest.mark.parametrize("wait", [LATER, AT_ONCE])
def test_an_answer_whose_inputs_stand_is_read(root, wait):
    inputs = keep(root, wait)
    assert read(root) == ["one\ttwo", "three"]
    kinds = {line.split("\t")[0] for line in inputs}
    assert kinds == ({"file", "tree"} if wait == LATER else {"file", "bytes", "tree"})
    # The plan that is not there has no bytes to look at.
    assert "file\tplans/tiny/plan.json\tabsent" in inputs


def same_size(path):
    """Change a byte and put the old times back: only ctime tells."""
    state = path.stat()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"#")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def replaced(path):
    """Put another file of the same size and times in place by rename."""
    state = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[:-1] + b"#")
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    other.replace(path)


def longer(path):
    path.write_bytes(path.read_bytes() + b"#")


def gone(path):
    path.unlink()


def a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("edit", [same_size, replaced, longer, gone, a_folder])
@pytest.mark.parametrize("wait", [LATER, AT_ONCE])
@pytest.mark.parametrize(
    "name",
    [
        "root/registry.yaml",
        "root/toolchain.lock",
        "root/plans/tiny/roles.yaml",
        "root/templates/a.j2",
        "root/templates/deep/b.j2",
        "package/__init__.py",
        "package/work/fast.py",
        "package/targets/runtime.h",
    ],
)
def test_no_edit_of_an_input_is_missed(root, name, edit, wait):
    keep(root, wait)
    time.sleep(0.02)
    edit(root.parent / name)
    assert read(root) is None


@pytest.mark.parametrize("wait", [LATER, AT_ONCE])
@pytest.mark.parametrize("name", ["root/plans/tiny/plan.json", "root/templates/new.j2", "package/work/new.py"])
def test_what_comes_is_seen_too(root, name, wait):
    keep(root, wait)
    (root.parent / name).write_text("new")
    assert read(root) is None


def test_an_edit_within_the_clock_tick_of_the_one_before_is_seen_by_its_bytes(root, monkeypatch):
    """The stamps say nothing then: they are made equal here."""
    monkeypatch.setattr(answers, "stamp_of", lambda _: f"1 1 {time.time_ns()} 1")
    keep(root, AT_ONCE)
    monkeypatch.setattr(answers, "stamp_of", lambda _: "1 1 1 1")
    assert read(root) is not None
    (root / "registry.yaml").write_text("text of registry.yamL\n")
    assert read(root) is None


def test_what_python_and_editors_leave_behind_is_no_edit(root):
    keep(root, LATER)
    (root.parent / "package" / "__pycache__").mkdir()
    (root.parent / "package" / "__pycache__" / "x.pyc").write_text("x")
    (root / "templates" / ".a.j2.swp").write_text("x")
    assert read(root) is not None


def test_a_copied_checkout_answers_for_itself(root):
    keep(root, LATER)
    shutil.copytree(root, root.parent / "copy")
    assert read(root.parent / "copy") is None


def test_every_flipped_byte_is_seen(root):
    keep(root, LATER)
    path = root / "out" / "index" / "a.txt"
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert read(root) is None, position
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert read(root) is None, length
    path.write_bytes(data)
    assert read(root) is not None


@pytest.mark.parametrize(
    "line", ["fule\tregistry.yaml\tx", "file\tregistry.yaml", "tree\t.\tguess\tx", "file", "", "tree\t.\tstamps"]
)
def test_a_line_that_is_not_known_makes_it_not_current(root, line):
    """Sealed as it should be, by a version that knows more."""
    inputs = keep(root, LATER)
    (root / "out" / "index" / "a.txt").write_bytes(answer_bytes([*inputs, line], ["one"]))
    assert read(root) is None


def test_what_is_not_a_file_is_no_answer(root):
    keep(root, LATER)
    path = root / "out" / "index" / "a.txt"
    path.unlink()
    os.mkfifo(path)
    assert read(root) is None
    path.unlink()
    path.mkdir()
    assert read(root) is None


def test_a_tree_with_a_link_upwards_ends(root):
    (root / "templates" / "up").symlink_to(root / "templates")
    keep(root, LATER)
    assert read(root) is not None


def test_files_are_hashed_whatever_their_size(tmp_path):
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 5):
        path = tmp_path / str(size)
        path.write_bytes(bytes(range(256)) * (size // 256) + bytes(size % 256))
        assert look_at(str(path), size) == hashlib.sha256(path.read_bytes()).hexdigest()
        assert look_at(str(path), size + 1) == f"size: {size}"


def test_many_files_are_hashed_at_once(tmp_path):
    wanted = {}
    for number in range(40):
        path = tmp_path / str(number)
        path.write_bytes(bytes([number]) * (200_000 + number))
        wanted[str(path)] = 200_000 + number
    wanted[str(tmp_path / "absent")] = 5
    found = look_at_all(wanted)
    assert found.pop(str(tmp_path / "absent")) == "absent: no such file"
    assert found == {str(tmp_path / str(n)): hashlib.sha256(bytes([n]) * (200_000 + n)).hexdigest() for n in range(40)}


def test_short_files_are_hashed_by_one_thread_and_long_ones_beside_them_by_more(tmp_path, monkeypatch):
    started = []

    class Counted(threading.Thread):
        def start(self):
            started.append(self)
            super().start()

    monkeypatch.setattr(threading, "Thread", Counted)
    monkeypatch.setattr(answers.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(answers, "_POOL_BYTES", 100_000)
    bodies = {str(tmp_path / f"short-{n}"): bytes([n]) * 2_048 for n in range(100)}
    long = {str(tmp_path / f"long-{n}"): bytes([n]) * 60_000 for n in range(3)}
    for path, body in (bodies | long).items():
        Path(path).write_bytes(body)

    def sizes(files):
        return {path: len(body) for path, body in files.items()}

    def digests(files):
        return {path: hashlib.sha256(body).hexdigest() for path, body in files.items()}

    assert look_at_all(sizes(bodies)) == digests(bodies)
    assert not started
    assert look_at_all(sizes(bodies | long)) == digests(bodies | long)
    assert len(started) == 1


def test_what_is_not_a_regular_file_is_called_so(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    looks = {name: look_at(str(tmp_path / name), None) for name in ("folder", "pipe", "dangling", "loop")}
    assert looks == {
        "folder": "irregular: a folder",
        "pipe": "irregular: a pipe",
        "dangling": "irregular: a symbolic link that leads nowhere",
        "loop": "irregular: a symbolic link that leads nowhere",
    }
    assert look_at("/dev/zero", None) == "irregular: a device"
    assert look_at(str(tmp_path / "link"), 1) == hashlib.sha256(b"x").hexdigest()
    assert look_at(str(tmp_path / "link"), 1, follow=False) == "irregular: a symbolic link"
    assert look_at(str(tmp_path / ("n" * 300)), None) == "absent: cannot be read (File name too long)"
    assert look_at(str(tmp_path / "file" / "below"), None) == "absent: no such file"

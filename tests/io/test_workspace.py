"""Private folders: gone after a build, and swept when their process was killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

import pytest

from elfkiln.errors import Refused
from elfkiln.io import files
from elfkiln.io.workspace import build_parent, check_plain_path, private_folder, sweep, sweep_files


def test_a_private_folder_is_fresh_and_goes_away(tmp_path):
    with private_folder(tmp_path / "work") as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").write_text("x")
        with private_folder(tmp_path / "work") as other:
            assert other != folder
    assert not folder.exists()
    assert list((tmp_path / "work").iterdir()) == []


def test_a_failure_inside_removes_it_too(tmp_path):
    with pytest.raises(ZeroDivisionError), private_folder(tmp_path) as folder:
        raise ZeroDivisionError
    assert not folder.exists()


def test_a_sweep_spares_the_living_and_removes_the_killed(tmp_path):
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from elfkiln.io.workspace import private_folder\n"
        "with private_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('x')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60)
    (dead,) = (path for path in tmp_path.iterdir() if path.is_dir())
    with private_folder(tmp_path) as alive:
        assert sweep(tmp_path) == 1
        assert not dead.exists()
        assert alive.exists()


def test_a_sweep_of_nothing(tmp_path):
    assert sweep(tmp_path / "absent") == 0
    (tmp_path / "file").write_text("")
    assert sweep(tmp_path / "file") == 0


KILLED_WRITER = (
    "import os, signal, sys\n"
    "from pathlib import Path\n"
    "from elfkiln.io import files\n"
    "files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
    "files.write_atomic(Path(sys.argv[1]), b'half')\n"
)


def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path, monkeypatch):
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path / "registry.yaml")], timeout=60)
    (dead,) = tmp_path.iterdir()
    assert dead.name.startswith(".part-registry.yaml-")
    seen = []

    def look(_descriptor):
        if not seen:
            # While our own unfinished file lies there.
            seen.append(sorted(path.name for path in tmp_path.iterdir()))
            seen.append(sweep_files(tmp_path))
            seen.append(dead.exists())

    monkeypatch.setattr(files.os, "fsync", look)
    files.write_atomic(tmp_path / "index.json", b"whole")
    assert len(seen[0]) == 2
    assert seen[1:] == [1, False]
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]


def test_a_writer_whose_file_a_sweep_took_in_the_first_instant_makes_another(tmp_path, monkeypatch):
    lock = files.fcntl.flock
    swept = []

    def late(descriptor, how):
        if how == files.fcntl.LOCK_EX and not swept:
            swept.append(sweep_files(tmp_path))
        lock(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", late)
    files.write_atomic(tmp_path / "file", b"whole")
    assert swept == [1]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"whole")]


def test_what_is_not_ours_is_never_swept(tmp_path):
    """A folder of somebody's may hold anything; only unfinished files are looked for there."""
    (tmp_path / "build-mine").mkdir()
    (tmp_path / ".part-folder").mkdir()
    (tmp_path / "notes.part-1").write_text("")
    (tmp_path / ".part-link").symlink_to("notes.part-1")
    os.mkfifo(tmp_path / ".part-pipe")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert sweep_files(tmp_path) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_folder_without_its_lock_is_nobodys(tmp_path):
    """The lock comes first and goes last, so such a folder is one whose removal failed."""
    (tmp_path / "build-0011").mkdir()
    (tmp_path / "build-0011" / "left").write_text("")
    (tmp_path / "build-2233.lock").write_text("")
    (tmp_path / "doit.json").write_text("")
    assert sweep(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["doit.json"]


def test_folders_without_write_permission_go_too(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    for folder in (*tmp_path.parents, tmp_path):
        if os.stat(folder).st_uid == os.getuid() and str(folder).startswith(tempfile.gettempdir() + os.sep):
            folder.chmod(0o755)
    place.chmod(0o777)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from elfkiln.io.workspace import private_folder\n"
        # Permissions do not bind root.
        "if os.getuid() == 0:\n"
        "    os.setgid(65534)\n"
        "    os.setuid(65534)\n"
        "with private_folder(Path(sys.argv[1])) as folder:\n"
        "    inner = folder / 'a' / 'b'\n"
        "    inner.mkdir(parents=True)\n"
        "    (inner / 'file').write_text('x')\n"
        "    inner.chmod(0o500)\n"
        "    inner.parent.chmod(0o000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(place)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["plain", "a_b-c.d+1"])
def test_builds_run_where_they_belong_when_its_path_is_plain(name, tmp_path):
    assert build_parent(tmp_path / name / "work") == tmp_path / name / "work"
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    "name", ["a b", "a(1)", "a'b", 'a"b', "a@b", "a,b", "a:b", "a=b", "a~b", "\u00e9", "a\nb", "a%b", "a\\b"]
)
def test_builds_run_elsewhere_when_a_tool_would_stumble_over_the_path(name, tmp_path, monkeypatch):
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    found = build_parent(tmp_path / name / "work")
    assert found.parent == place
    assert re.fullmatch(rf"elfkiln-{os.getuid()}-[0-9a-f]{{12}}", found.name)
    assert found.stat().st_mode & 0o777 == 0o700
    # Every run of a checkout has the same one, so that the next sweeps what a killed one left; another has its own.
    assert build_parent(tmp_path / name / "work") == found
    assert build_parent(tmp_path / name / "other") != found
    check_plain_path(found)
    with pytest.raises(
        Refused, match=r"^build folder .*: expected a path of letters, digits and _\+\./- alone, found "
    ):
        check_plain_path(tmp_path / name)


def test_a_link_with_a_plain_name_does_not_make_a_path_plain(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "a b").mkdir()
    (tmp_path / "link").symlink_to("a b")
    assert build_parent(tmp_path / "link" / "work").name.startswith("elfkiln-")


def test_without_any_plain_folder_the_path_is_refused(tmp_path, monkeypatch):
    (tmp_path / "t t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t t"))
    with pytest.raises(
        Refused, match=r"other characters; name a folder for temporary files with such a path in TMPDIR"
    ):
        build_parent(tmp_path / "a b")


@pytest.mark.parametrize("what", ["file", "link", "open"])
def test_what_is_not_ours_alone_is_no_place_for_builds(what, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = build_parent(tmp_path / "a b")
    found.rmdir()
    (tmp_path / "elsewhere").mkdir()
    if what == "file":
        found.write_text("")
    elif what == "link":
        found.symlink_to(tmp_path / "elsewhere")
    else:
        found.mkdir()
        found.chmod(0o777)
    with pytest.raises(Refused) as refused:
        build_parent(tmp_path / "a b")
    assert str(found) in str(refused.value)

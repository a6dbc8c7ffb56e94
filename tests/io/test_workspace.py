"""Private folders: gone after a build, and swept when their process was killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elfkiln.io.workspace import private_folder, sweep


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

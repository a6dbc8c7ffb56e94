"""./doit: makes .venv once, from hashes, and a half-finished or refused install is one line and no .venv to trust."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from processes import gone, number_in, wait_for
from projects import CHECKOUT

OWN_PIP = CHECKOUT / "src" / "elfkiln" / "io" / "own_pip.py"

STUB_PYTHON = """\
#!/bin/sh
echo "venv-python $*" >> "{log}"
case "$*" in
    *own_pip.py*) {pip_command} ;;
    *"-m doit"*) shift 2; echo "doit got: $*"; echo "from $ELFKILN_CALLED_FROM" >> "{log}" ;;
esac
"""
FAKE_PYTHON = """\
#!/bin/sh
case "$1" in
    -c) case "$2" in *flock*) exec "{real}" "$@" ;; *) exit {version_code} ;; esac ;;
    --version) echo "Python 3.11.0" ;;
    -m) mkdir -p "$3/bin" && cp "{stub}" "$3/bin/python" && chmod +x "$3/bin/python" ;;
esac
"""


class Bench:
    """A folder with the wrapper, a stand-in python3 on PATH, and a log of what the venv's python was asked."""

    def __init__(self, root):
        self.root = root
        root.mkdir(exist_ok=True)
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "log"
        self.stub = root / "stub"
        for name in ("doit", "requirements.txt", "pyproject.toml", "dodo.py"):
            shutil.copy(CHECKOUT / name, root / name)
        self.set()

    def set(self, *, version_code=0, pip_command="exit 0"):
        """Choose what the stand-ins answer: to the question for the version, and to an install."""
        self.stub.write_text(STUB_PYTHON.format(log=self.log, pip_command=pip_command))
        python = self.bin / "python3"
        python.write_text(FAKE_PYTHON.format(version_code=version_code, stub=self.stub, real=sys.executable))
        python.chmod(0o755)

    def path(self):
        """Return a PATH with nothing but the stand-in python and the base tools."""
        tools = self.root / "tools"
        tools.mkdir(exist_ok=True)
        for tool in ("sh", "dirname", "cat", "cmp", "rm", "mkdir", "mv", "cp", "chmod", "sleep", "readlink"):
            if not (tools / tool).exists():
                (tools / tool).symlink_to(shutil.which(tool))
        return f"{self.bin}:{tools}"

    def run(self, *words, cwd=None):
        """Run the wrapper."""
        return subprocess.run(
            ["/bin/sh", str(self.root / "doit"), *words],
            cwd=cwd or self.root,
            env={"PATH": self.path()},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def start(self, *words):
        """Start the wrapper and leave it running."""
        return subprocess.Popen(
            ["/bin/sh", str(self.root / "doit"), *words],
            cwd=self.root,
            env={"PATH": self.path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_the_first_run_installs_and_the_second_does_not(bench):
    first = bench.run("elfs", "model=x y")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "doit got: elfs model=x y\n"
    log = bench.log.read_text()
    assert "--require-hashes" in log
    assert "-r requirements.txt" in log
    assert "--no-deps --no-build-isolation -e ." in log
    bench.log.unlink()
    assert bench.run("test").stdout == "doit got: test\n"
    assert "own_pip" not in bench.log.read_text()


def test_it_runs_from_any_folder(bench, tmp_path):
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    assert bench.run("list", cwd=elsewhere).stdout == "doit got: list\n"


def test_a_folder_with_blanks_and_other_letters(tmp_path):
    bench = Bench(tmp_path / "my kiln ü")
    assert bench.run("list").stdout == "doit got: list\n"


def test_a_path_that_is_not_utf_8_is_refused_once(tmp_path):
    """Python's venv would end with an error that names nothing."""
    folder = tmp_path / os.fsdecode(b"k\xffln")
    folder.mkdir()
    for name in ("doit", "requirements.txt", "pyproject.toml", "dodo.py"):
        shutil.copy(CHECKOUT / name, folder / name)
    done = subprocess.run(["/bin/sh", folder / "doit", "list"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("doit: the path of this checkout is not UTF-8")
    assert not (folder / ".venv").exists()


def test_paths_are_meant_from_where_it_was_called(bench, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    bench.run("install", "dir=here", cwd=elsewhere)
    assert f"from {elsewhere}\n" in bench.log.read_text()


def run_copy(bench, place):
    return subprocess.run(
        ["/bin/sh", str(place), "list"], env={"PATH": bench.path()}, capture_output=True, text=True, timeout=60
    )


def test_through_a_link_it_is_the_same_checkout(bench, tmp_path):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "kiln").symlink_to("../doit")
    assert run_copy(bench, tmp_path / "links" / "kiln").stdout == "doit got: list\n"
    assert not (tmp_path / "links" / ".venv").exists()


def test_outside_a_checkout_it_touches_nothing(bench, tmp_path):
    (tmp_path / "other").mkdir()
    shutil.copy(bench.root / "doit", tmp_path / "other" / "doit")
    done = run_copy(bench, tmp_path / "other" / "doit")
    assert done.returncode == 2
    assert "is not an elfkiln checkout" in done.stderr
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["doit"]


def test_a_copied_checkout_installs_its_own(bench, tmp_path):
    bench.run("list")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("doit", "requirements.txt", "pyproject.toml", "dodo.py"):
        shutil.copy(bench.root / name, copy / name)
    shutil.copytree(bench.root / ".venv", copy / ".venv")
    bench.log.unlink()
    assert run_copy(bench, copy / "doit").stdout == "doit got: list\n"
    assert "--no-build-isolation -e ." in bench.log.read_text()


def test_changed_pins_are_installed_anew(bench):
    bench.run("list")
    bench.log.unlink()
    with (bench.root / "requirements.txt").open("a") as stream:
        stream.write("# another pin\n")
    bench.run("list")
    assert "--require-hashes" in bench.log.read_text()


def test_a_failed_install_is_not_trusted_later(bench):
    bench.set(pip_command="exit 1")
    assert bench.run("list").returncode != 0
    assert not (bench.root / ".venv" / ".installed-from").exists()
    bench.set()
    assert bench.run("list").stdout == "doit got: list\n"


def test_without_a_new_enough_python_one_line_says_so(bench):
    bench.set(version_code=1)
    done = bench.run("list")
    assert done.returncode == 2
    assert done.stderr == "doit: no Python >= 3.11 on PATH; install one and run ./doit again\n"
    assert not (bench.root / ".venv").exists()


def test_what_an_earlier_version_left_as_its_lock_holds_nobody(bench):
    """It was a folder with the number of a process, which may be somebody else's by now."""
    lock = bench.root / ".venv.lock"
    lock.mkdir()
    (lock / "pid").write_text(str(os.getpid()))
    done = bench.run("list")
    assert (done.stdout, done.returncode) == ("doit got: list\n", 0)
    assert lock.is_file()


def test_a_lock_file_that_nobody_holds_holds_nobody(bench):
    (bench.root / ".venv.lock").write_text("4711\n")
    done = bench.run("list")
    assert done.stdout == "doit got: list\n"
    assert "waiting" not in done.stderr


def test_whoever_waits_says_so(bench):
    with (bench.root / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = bench.start("list")
        assert waiting.stderr.readline() == "doit: waiting for another ./doit, which makes .venv\n"
        assert waiting.poll() is None
    out, err = waiting.communicate(timeout=60)
    assert out == "doit got: list\n"
    assert err.startswith("doit: making .venv")


def test_the_lock_is_not_held_by_what_runs_afterwards(bench):
    """doit, which may run for hours, does not keep others from making a .venv anew."""
    bench.stub.write_text(bench.stub.read_text().replace('echo "doit got', 'ls -l /proc/$$/fd >&2; echo "doit got'))
    (bench.root / "tools").mkdir(exist_ok=True)
    (bench.root / "tools" / "ls").symlink_to(shutil.which("ls"))
    assert ".venv.lock" not in bench.run("list").stderr


def test_a_killed_wrapper_leaves_no_pip_and_the_next_one_goes_on(bench):
    script = (
        "import os, runpy, sys\n"
        "def sleep(*_):\n"
        f"    open({str(bench.root / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n')\n"
        "    import time; time.sleep(600)\n"
        "os.execve = sleep\n"
        f"sys.argv = [{str(OWN_PIP)!r}, 'install']\n"
        f"runpy.run_path({str(OWN_PIP)!r}, run_name='__main__')\n"
    )
    (bench.root / "pip.py").write_text(script)
    bench.set(pip_command=f'exec "{sys.executable}" "{bench.root}/pip.py"')
    first = bench.start("list")
    pip = wait_for(lambda: number_in(bench.root / "pid"))
    first.kill()
    first.communicate()
    assert gone(pip)
    bench.set()
    assert bench.run("list").stdout == "doit got: list\n"


def test_two_first_runs_at_once_install_once(bench):
    bench.run("--version")
    shutil.rmtree(bench.root / ".venv")
    bench.log.unlink()
    tools = f"{bench.bin}:{bench.root / 'tools'}"
    runs = [
        subprocess.Popen(
            ["/bin/sh", str(bench.root / "doit"), "list"], env={"PATH": tools}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [run.communicate(timeout=60)[0] for run in runs] == ["doit got: list\n"] * 3
    assert bench.log.read_text().count("--require-hashes") == 1


def test_the_wrapper_is_executable_and_plain_sh():
    assert os.access(CHECKOUT / "doit", os.X_OK)
    assert (CHECKOUT / "doit").read_text().startswith("#!/bin/sh\n")
    assert subprocess.run(["/bin/sh", "-n", str(CHECKOUT / "doit")], timeout=60).returncode == 0

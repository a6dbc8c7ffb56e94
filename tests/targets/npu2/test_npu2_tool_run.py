"""Running a tool: endings, time limits, whole process groups, output without end."""

import os
import sys
import time
from pathlib import Path

import pytest

from elfkiln.errors import BuildFailed, Refused
from elfkiln.targets.npu2 import tool_run
from elfkiln.targets.npu2.tool_run import KEPT_BYTES, probe, run_tool

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


def run(program, tmp_path, *, timeout=30.0, out_file=None, environment=None):
    return run_tool(
        [sys.executable, "-c", program],
        name="tool",
        cwd=tmp_path,
        environment=environment or ENVIRONMENT,
        timeout=timeout,
        out_file=out_file,
    )


def alive(pid):
    """Whether a process runs; one that waits for its parent to look (a zombie) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid):
    deadline = time.monotonic() + 20
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_streams_and_exit_code_come_back(tmp_path):
    done = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    assert (done.exit_code, done.out, done.err, done.ending) == (3, "out\n", "err\n", "exit code 3")


def test_a_signal_is_named(tmp_path):
    done = run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tmp_path)
    assert done.ending == "killed by signal 11 (SIGSEGV)"


def test_the_environment_is_exactly_the_given_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PEANO_INSTALL_DIR", "/elsewhere")
    done = run("import os; print(sorted(os.environ))", tmp_path, environment={"ONLY": "this", "LC_ALL": "C.UTF-8"})
    assert done.out == "['LC_ALL', 'ONLY']\n"


def test_standard_input_is_empty(tmp_path):
    assert run("import sys; print(len(sys.stdin.read()))", tmp_path).out == "0\n"


def test_a_tool_that_hangs_is_killed_with_what_it_started(tmp_path):
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(BuildFailed, match=r"^tool did not end in 5 s and was killed with all it had started$"):
        run(program, tmp_path, timeout=5)
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_that_outlives_its_tool_is_killed_and_not_waited_for(tmp_path):
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid)\n"
    )
    done = run(program, tmp_path)
    assert done.exit_code == 0
    assert gone(int(done.out))


def test_a_hundred_megabytes_on_stderr_are_cut_to_both_ends(tmp_path):
    program = (
        "import sys\n"
        "sys.stderr.write('first\\n')\n"
        "for _ in range(100): sys.stderr.write('w' * 1048575 + '\\n')\n"
        "sys.stderr.write('last\\n')\n"
    )
    done = run(program, tmp_path)
    assert done.err.startswith("first\n")
    assert done.err.endswith("last\n")
    left_out = 100 * 1048576 + len("first\n") + len("last\n") - 2 * KEPT_BYTES
    assert f"\n... {left_out} bytes left out ...\n" in done.err
    assert len(done.err) < 2 * KEPT_BYTES + 100


def test_output_just_longer_than_what_is_kept_once_is_whole(tmp_path):
    length = KEPT_BYTES + 17
    done = run(f"import sys; sys.stdout.write('a' * {length})", tmp_path)
    assert done.out == "a" * length


def test_output_goes_to_a_file_whole(tmp_path):
    done = run("print('b' * 1_000_000)", tmp_path, out_file=tmp_path / "out.mlir")
    assert (tmp_path / "out.mlir").read_text() == "b" * 1_000_000 + "\n"
    assert done.out == ""


def test_a_file_that_is_there_is_not_taken_for_the_output(tmp_path):
    (tmp_path / "out.mlir").write_text("old")
    with pytest.raises(BuildFailed, match=r"^tool: out.mlir is there before tool ran; "):
        run("open('ran', 'w')", tmp_path, out_file=tmp_path / "out.mlir")
    assert not (tmp_path / "ran").exists()


def test_a_file_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(tool_run, "FILE_BYTES", 1_000_000)
    with pytest.raises(BuildFailed, match="printed more than 1000000 bytes and was killed"):
        run("while True: print('b' * 100_000)", tmp_path, out_file=tmp_path / "out.mlir")
    assert list(tmp_path.iterdir()) == []


def test_a_tool_that_is_not_there_or_no_program(tmp_path):
    noise = tmp_path / "noise"
    noise.write_bytes(b"\0\1\2")
    noise.chmod(0o755)
    for path in (tmp_path / "absent", noise):
        with pytest.raises(BuildFailed, match=r"^tool cannot be started"):
            run_tool([path], name="tool", cwd=tmp_path, environment=ENVIRONMENT, timeout=5)


def test_output_that_is_no_text_does_not_break_the_log(tmp_path):
    done = run("import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok')", tmp_path)
    assert done.out.endswith(" ok")


def test_a_probe_that_hangs_is_refused_by_name(tmp_path):
    with pytest.raises(
        Refused, match=r"^aiecc --version did not end in 1 s .* a tool that does not answer is not used$"
    ):
        probe(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            name="aiecc --version",
            cwd=tmp_path,
            environment=ENVIRONMENT,
            timeout=1,
        )


def test_what_a_tool_writes_under_the_name_is_not_mixed_with_what_it_prints(tmp_path):
    program = "print('printed'); open('out.mlir', 'w').write('written')"
    with pytest.raises(BuildFailed, match=r"^tool: wrote out.mlir itself"):
        run(program, tmp_path, out_file=tmp_path / "out.mlir")
    assert (tmp_path / "out.mlir").read_text() == "written"

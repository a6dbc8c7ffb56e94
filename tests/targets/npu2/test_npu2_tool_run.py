"""Running a tool: what it prints as a file of its own, and what it may not do (the rest is the runner's)."""

import os
import sys

import pytest

from elfkiln.errors import BuildFailed, Refused
from elfkiln.targets.npu2 import tool_run
from elfkiln.targets.npu2.tool_run import probe, run_tool
from processes import gone

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


def test_streams_and_exit_code_come_back(tmp_path):
    done = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    assert (done.exit_code, done.out, done.err, done.ending) == (3, "out\n", "err\n", "exit code 3")


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

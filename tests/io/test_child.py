"""The one runner of children: endings, limits, output without end, and nothing that outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from elfkiln.io import child as module
from elfkiln.io.child import GIB, KEPT_BYTES, MIB, ChildStopped, Limits, run_child
from processes import alive, gone, number_in, wait_for

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
LIMITS = Limits(seconds=60, cpu_seconds=60, memory_bytes=GIB, file_bytes=64 * MIB)


def run(program, folder, *, environment=None, whole=False, **limits):
    return run_child(
        [sys.executable, "-c", program],
        name="tool",
        cwd=folder,
        environment=ENVIRONMENT if environment is None else environment,
        limits=replace(LIMITS, **limits),
        whole=whole,
    )


def test_streams_and_exit_code_come_back(tmp_path):
    done = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    assert (done.exit_code, done.stdout, done.err, done.ending) == (3, b"out\n", "err\n", "exit code 3")


def test_a_signal_is_named(tmp_path):
    done = run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tmp_path)
    assert done.ending == "killed by signal 11 (SIGSEGV)"
    assert run("import os; os.kill(os.getpid(), 40)", tmp_path).ending == "killed by signal 40"


def test_nothing_is_inherited(tmp_path, monkeypatch):
    monkeypatch.setenv("PEANO_INSTALL_DIR", "/elsewhere")
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        done = run(
            "import json, os, signal, sys\n"
            "print(json.dumps([dict(os.environ), os.getcwd(), len(sys.stdin.read()), sorted(map(int, "
            "os.listdir('/proc/self/fd'))), os.getsid(0) == os.getpid(), "
            "[str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM)]]))\n",
            tmp_path,
            environment={"ONLY": "this", "LC_ALL": "C.UTF-8"},
        )
    finally:
        os.close(reader)
        os.close(writer)
    environment, folder, read, descriptors, leads, handlers = json.loads(done.out)
    assert environment == {"ONLY": "this", "LC_ALL": "C.UTF-8"}
    assert folder == os.path.realpath(tmp_path)
    assert (read, leads) == (0, True)
    assert descriptors[:3] == [0, 1, 2]
    assert len(descriptors) == 4  # and the listing itself
    assert handlers[1] == "0"  # the default


def test_signals_that_python_ignores_are_not_ignored_below(tmp_path):
    done = run_child(
        ["/bin/sh", "-c", "grep SigIgn /proc/self/status"],
        name="grep",
        cwd=tmp_path,
        environment=ENVIRONMENT,
        limits=LIMITS,
    )
    ignored = int(done.out.removeprefix("SigIgn:\t"), 16)
    assert [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []


def test_words_variables_and_folders_may_hold_any_bytes(tmp_path):
    odd = os.fsdecode(b"n\xffu \xc3\xbc\n")
    (tmp_path / odd).mkdir()
    done = run_child(
        [
            sys.executable,
            "-c",
            "import os, sys; print([os.fsencode(x) for x in (sys.argv[1], os.environ['V'], os.getcwd())])",
            odd,
        ],
        name="tool",
        cwd=tmp_path / odd,
        environment={**ENVIRONMENT, "V": odd},
        limits=LIMITS,
    )
    name = b"n\xffu \xc3\xbc\n"
    assert done.out == f"{[name, name, os.fsencode(os.path.realpath(tmp_path)) + b'/' + name]}\n"


def test_a_large_environment_arrives_whole(tmp_path):
    many = {f"VARIABLE_{number}": "x" * 1000 for number in range(1000)}
    assert (
        run(
            "import os; print(sum(map(len, map(os.environ.get, [v for v in os.environ if v[:3] == 'VAR']))))",
            tmp_path,
            environment=many,
        ).out
        == "1000000\n"
    )


def test_what_is_given_is_read_and_ends(tmp_path):
    words = [sys.executable, "-c", "import sys; data = sys.stdin.buffer.read(); print(len(data), data[:2], data[-2:])"]
    options = {"name": "tool", "cwd": tmp_path, "environment": ENVIRONMENT, "limits": LIMITS}
    given = b"ab" + bytes(5_000_000) + b"yz"
    assert run_child(words, given=given, **options).out == "5000004 b'ab' b'yz'\n"
    assert run_child(words, **options).out == "0 b'' b''\n"
    # Who does not read it holds nobody up.
    assert run_child([sys.executable, "-c", "pass"], given=given, **options).exit_code == 0


SLEEPER = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
LEAVER = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)"
DAEMON = (
    "subprocess.run([sys.executable, '-c', 'import os, sys, time\\n"
    "if os.fork(): os._exit(0)\\n"
    "os.setsid()\\n"
    "if os.fork(): os._exit(0)\\n"
    'open(sys.argv[1], "w").write(str(os.getpid()) + chr(10))\\n'
    "time.sleep(600)', 'pid'])"
)


@pytest.mark.parametrize("start", [SLEEPER, LEAVER])
def test_a_child_that_hangs_is_killed_with_what_it_started(start, tmp_path):
    program = (
        f"import subprocess, sys, time\nother = {start}\nopen('pid', 'w').write(f'{{other.pid}}\\n')\ntime.sleep(600)\n"
    )
    with pytest.raises(ChildStopped, match=r"^tool did not end in 5 s and was killed with all it had started$"):
        run(program, tmp_path, seconds=5)
    assert not alive(number_in(tmp_path / "pid"))


@pytest.mark.parametrize("start", [SLEEPER, LEAVER])
def test_what_outlives_its_tool_is_killed_and_not_waited_for(start, tmp_path):
    program = f"import subprocess, sys\nother = {start}\nprint(other.pid)\n"
    done = run(program, tmp_path)
    assert done.exit_code == 0
    assert done.seconds < 30
    assert not alive(int(done.out))


def test_a_daemon_that_left_its_session_and_its_parent_is_killed_too(tmp_path):
    program = f"import subprocess, sys, time, os\n{DAEMON}\nwhile not os.path.exists('pid'): time.sleep(0.01)\n"
    assert run(program, tmp_path).exit_code == 0
    assert not alive(wait_for(lambda: number_in(tmp_path / "pid")))


PARENT = (
    "import sys\n"
    "from pathlib import Path\n"
    "from elfkiln.io.child import GIB, Limits, run_child\n"
    "limits = Limits(600, 600, GIB, GIB)\n"
    "words = [sys.executable, '-c', sys.argv[1]]\n"
    "run_child(words, name='tool', cwd=Path(sys.argv[2]), environment={}, limits=limits)\n"
)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV])
@pytest.mark.parametrize("start", [SLEEPER, LEAVER])
def test_nothing_outlives_a_parent_however_it_ends(how, start, tmp_path):
    program = (
        f"import os, subprocess, sys, time\nother = {start}\n"
        "open('pid', 'w').write(f'{os.getpid()}\\n')\nopen('other', 'w').write(f'{other.pid}\\n')\n"
        "while True: pass\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, program, str(tmp_path)],
        stderr=subprocess.DEVNULL,
        # A shell's background job is started with interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    other = wait_for(lambda: number_in(tmp_path / "other"))
    own = number_in(tmp_path / "pid")
    parent.send_signal(how)
    assert parent.wait(30) != 0
    assert gone(own)
    assert gone(other)


def test_a_parent_killed_in_the_first_instants_leaves_nothing(tmp_path):
    """At every moment from the start of the keeper to the run of the child."""
    program = "import os, time\nopen(f'{os.getpid()}.pid', 'w').close()\ntime.sleep(600)\n"
    for pause in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        parent = subprocess.Popen([sys.executable, "-c", PARENT, program, str(tmp_path)], stderr=subprocess.DEVNULL)
        time.sleep(pause)
        parent.kill()
        parent.wait()
    time.sleep(0.5)
    for mark in tmp_path.glob("*.pid"):
        assert gone(int(mark.stem))


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
    assert done.stdout == b"a" * length


def test_output_is_kept_whole_where_that_is_asked_for(tmp_path):
    done = run("print('b' * 3_000_000)", tmp_path, whole=True)
    assert done.stdout == b"b" * 3_000_000 + b"\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("whole", [True, False])
def test_printing_without_end_is_stopped(stream, whole, tmp_path):
    program = f"import sys\nwhile True: sys.{stream}.write('b' * 100_000)"
    with pytest.raises(ChildStopped, match=r"^tool printed more than 1000000 bytes and was killed"):
        run(program, tmp_path, whole=whole, printed_bytes=1_000_000)


def test_a_file_without_end_is_stopped(tmp_path):
    with_python = "f = open('file', 'wb')\nwhile True: f.write(b'x' * 65536)\n"
    done = run(with_python, tmp_path, file_bytes=MIB)
    assert done.exit_code == 1
    assert "File too large" in done.err
    done = run_child(
        ["/bin/sh", "-c", "exec dd if=/dev/zero of=file bs=65536"],
        name="dd",
        cwd=tmp_path,
        environment=ENVIRONMENT,
        limits=replace(LIMITS, file_bytes=MIB),
    )
    assert done.ending == "stopped at a file of more than 1048576 bytes"
    assert (tmp_path / "file").stat().st_size == MIB


def test_many_files_are_stopped_by_what_the_folder_holds(tmp_path):
    program = (
        "import os\n"
        "for n in range(10**9):\n"
        "    os.makedirs(f'a/{n}')\n"
        "    open(f'a/{n}/f', 'wb').write(b'x' * 500_000)\n"
    )
    with pytest.raises(ChildStopped, match=r"^tool wrote more than 8388608 bytes into its folder and was killed"):
        run(program, tmp_path, folder_bytes=8 * MIB)


def test_processor_time_without_end_is_stopped(tmp_path):
    done = run("while True: pass", tmp_path, cpu_seconds=1)
    assert done.ending == "stopped after 1 s of processor time"


def test_memory_without_end_is_refused(tmp_path):
    done = run("x = []\nwhile True: x.append(bytearray(2**24))\n", tmp_path, memory_bytes=256 * MIB)
    assert done.exit_code == 1
    assert "MemoryError" in done.err


def test_limits_hold_for_what_a_child_starts(tmp_path):
    done = run(
        "import resource, subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'import resource; print([resource.getrlimit(k) for k in "
        "(resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_CORE)])'], "
        "capture_output=True, text=True).stdout, end='')",
        tmp_path,
    )
    limit = 64 * MIB
    assert done.out == f"[({GIB}, {GIB}), ({limit}, {limit}), (60, 65), (0, 0)]\n"


def test_a_program_that_is_not_there_or_none(tmp_path):
    noise = tmp_path / "noise"
    noise.write_bytes(b"\0\1\2")
    noise.chmod(0o755)
    said = {tmp_path / "absent": "No such file or directory", noise: "Exec format error", tmp_path: "Permission denied"}
    for path, why in said.items():
        with pytest.raises(ChildStopped, match=rf"^tool cannot be started \({why}\)$"):
            run_child([path], name="tool", cwd=tmp_path, environment=ENVIRONMENT, limits=LIMITS)
    with pytest.raises(ChildStopped, match=r"^tool cannot be started \(No such file or directory\)$"):
        run("pass", tmp_path / "absent")


def test_children_of_many_threads_at_once(tmp_path):
    found = {}

    def work(number):
        found[number] = run(f"import sys; print({number}); sys.exit({number})", tmp_path)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: (one.out, one.exit_code) for number, one in found.items()} == {n: (f"{n}\n", n) for n in range(8)}


def test_a_killed_keeper_is_replaced(tmp_path):
    run("pass", tmp_path)
    process = module._KEEPER._process
    process.kill()
    process.wait()
    assert run("print('again')", tmp_path).out == "again\n"
    assert module._KEEPER._process.pid != process.pid


def test_a_killed_guardian_is_told_and_its_child_ends(tmp_path):
    program = "import os, time\nopen('pids', 'w').write(f'{os.getpid()} {os.getppid()}\\n')\ntime.sleep(600)\n"
    failures = []

    def work():
        try:
            run(program, tmp_path)
        except ChildStopped as error:
            failures.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    pids = tmp_path / "pids"
    child, guardian = map(
        int, wait_for(lambda: pids.exists() and pids.read_text().endswith("\n") and pids.read_text().split())
    )
    os.kill(guardian, signal.SIGKILL)
    thread.join(60)
    assert failures == ["tool: the process that watches over child processes was killed; run again"]
    assert gone(child)


def test_a_forked_process_has_a_keeper_of_its_own(tmp_path):
    """And holds no line of its parent's: else the parent's children would outlive the parent in it."""
    script = (
        "import os, signal, sys, threading, time\n"
        "from pathlib import Path\n"
        "from elfkiln.io.child import GIB, Limits, run_child\n"
        "limits = Limits(600, 600, GIB, GIB)\n"
        "def run(program):\n"
        "    words = [sys.executable, '-c', program]\n"
        "    return run_child(words, name='tool', cwd=Path(sys.argv[1]), environment={}, limits=limits)\n"
        "program = \"import os, time; open('pid', 'w').write(f'{os.getpid()}\\\\n'); time.sleep(600)\"\n"
        "threading.Thread(target=run, args=(program,), daemon=True).start()\n"
        "while not os.path.exists(sys.argv[1] + '/pid'): time.sleep(0.01)\n"
        "forked = os.fork()\n"
        "if forked == 0:\n"
        "    signal.alarm(60)\n"
        "    print(run(\"print('forked')\").out, end='', flush=True)\n"
        "    time.sleep(50)\n"
        "    os._exit(0)\n"
        "print(forked, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        lines = sorted([parent.stdout.readline(), parent.stdout.readline()])
        assert lines[1] == "forked\n"
        child = wait_for(lambda: number_in(tmp_path / "pid"))
        parent.kill()
        parent.wait()
        assert gone(child)
        assert alive(int(lines[0]))
    finally:
        os.kill(int(lines[0]), signal.SIGKILL)
        parent.stdout.close()


def test_the_keeper_ends_with_its_process(tmp_path):
    script = PARENT.replace("run_child(", "from elfkiln.io import child\nrun_child(") + (
        "print(child._KEEPER._process.pid)\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script, "pass", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert gone(int(done.stdout))

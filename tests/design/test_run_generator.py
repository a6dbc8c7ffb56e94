"""Running generators: what a child process may see and leave, and how each failure is told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from elfkiln import cli
from elfkiln.design import run_generator as module
from elfkiln.design.reader import design_digest
from elfkiln.design.run_generator import run_generator
from elfkiln.errors import BuildFailed, Refused
from processes import gone
from rendered import failure_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "iron"
COPY = (EXAMPLES / "copy_one_core.py").read_text()
HEAD = "from aie.dialects.aie import *\nfrom aie.extras.context import mlir_mod_ctx\n"
EMPTY = f"{HEAD}with mlir_mod_ctx() as ctx:\n    @device(AIEDevice.npu2)\n    def main(): pass\n"
PRINTED = "print(ctx.module)\n"


def failure(program, tmp_path, **options):
    with pytest.raises(BuildFailed) as failed:
        run_generator(program, workdir=tmp_path / "work", **options)
    message = str(failed.value)
    assert "\n" not in message
    assert list((tmp_path / "work").iterdir()) == []
    return message


def test_the_smallest_generator_leaves_nothing_behind(tmp_path):
    printed = run_generator(EMPTY + PRINTED, workdir=tmp_path / "a" / "b")
    assert printed == (
        '"builtin.module"() ({\n'
        '  "aie.device"() <{device = 8 : i32, sym_name = "main"}> ({\n'
        '    "aie.end"() : () -> ()\n'
        "  }) : () -> ()\n"
        "}) : () -> ()\n"
    )
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (EMPTY + "\n\nraise KeyError('x')\n", "generator: line 8: KeyError: 'x'"),
        (EMPTY + "def f():\n    1 / 0\n\nf()\n", "generator: line 7: ZeroDivisionError: division by zero"),
        # The line of the generator, not that of numpy or of the stand-in.
        (
            EMPTY + "import numpy as np\nnp.zeros(-1)\n",
            "generator: line 7: ValueError: negative dimensions are not allow",
        ),
        (HEAD + "\ntile(0, 0)\n", "generator: line 4: RuntimeError: no module is under construction"),
        (HEAD + "import nothing_of_that_name\n", "line 3: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        (
            "from aie.iron.placers import SequentialPlacer\n",
            "line 1: ModuleNotFoundError: aie.iron.placers is not supported by elfkiln's aie: write generators at the",
        ),
        ("from aie.dialects.aie import nothing\n", "line 1: ImportError: cannot import name 'nothing'"),
        (HEAD + "def broken(:\n", "generator: line 3: SyntaxError: invalid syntax"),
        (HEAD + "\tx = 1\n", "generator: line 3: IndentationError: unexpected indent"),
        ("\x00", "generator: SyntaxError: source code string cannot contain null bytes"),
        ("import sys\nsys.exit(3)\n", "generator: line 2: SystemExit: 3"),
        ("raise SystemExit('no such geometry')\n", "generator: line 1: SystemExit: no such geometry"),
        ("import os\nos._exit(4)\n", "generator: exit code 4: it said nothing"),
        ("import os\nos.write(2, b'first\\nlast words\\n')\nos._exit(4)\n", "exit code 4: last words"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "generator: killed by signal 9 (SIGKILL)"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "generator: killed by signal 11 (SIGSEGV)"),
        ("raise KeyboardInterrupt\n", "generator: line 1: KeyboardInterrupt"),
        ("def f(): f()\nf()\n", "generator: line 1: RecursionError: maximum recursion depth exceeded"),
        ("raise ValueError('one\\ntwo ' + 'x' * 9999)\n", "generator: line 1: ValueError: one two xxxx"),
        ("", "generator: ended without printing a module; a generator ends with print(ctx.module)"),
        (EMPTY, "generator: ended without printing a module"),
        (EMPTY + "import sys\nsys.exit(0)\n", "generator: ended without printing a module"),
        ("print('\\n \\n')\n", "generator: ended without printing a module"),
        ("print('building')\n", "generator: printed no design: its output: line 1: building is not an operation"),
        (
            EMPTY + "print('done with it')\n" + PRINTED,
            "printed no design: its output: line 1: done is not an operation",
        ),
        (EMPTY + PRINTED + "print('done')\n", "printed no design: its output: line 6: done is not an operation"),
        (EMPTY + PRINTED + PRINTED, "printed no design: its output: expected nothing but an aie.device in the module"),
        (
            f"{HEAD}with mlir_mod_ctx() as ctx: pass\n{PRINTED}",
            "printed no design: its output: expected one aie.device",
        ),
        ("print('module { }')\n", "printed no design: its output: expected generic MLIR"),
        ("import os\nos.write(1, b'\\xff\\xfe')\n", "generator: printed bytes that are not UTF-8"),
        ("x = open('/proc/self/mem/x')\n", "generator: line 1: NotADirectoryError"),
    ],
)
def test_a_failing_generator_is_told_in_one_line(program, expected, tmp_path):
    """In a fork, as builds run them; a Python of its own says the same (test_forked_generators.py)."""
    message = failure_of(program, tmp_path / "work")
    assert expected in message
    assert len(message) < 600


def test_misuse_in_a_core_names_the_line_of_the_misuse(tmp_path):
    wrong = COPY.replace("relay(src, dst)", "relay(src)")
    line = next(number for number, text in enumerate(wrong.splitlines(), 1) if "relay(src)" in text)
    assert failure(wrong, tmp_path).startswith(
        f"generator: line {line}: ValueError: Expected 2 arguments, but got 1 arguments in the call of relay_i8"
    )


def test_the_name_of_the_generator_is_the_callers(tmp_path):
    assert failure("1 / 0", tmp_path, name="n1_blocked").startswith("n1_blocked: line 1: ZeroDivisionError")


SLEEPER = (
    "import subprocess, sys, time\nother = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
)


def test_a_generator_that_does_not_end_is_stopped_with_what_it_started(tmp_path):
    pid = tmp_path / "pid"
    program = f"{SLEEPER}open({str(pid)!r}, 'w').write(str(other.pid))\ntime.sleep(60)\n"
    said = failure(program, tmp_path, timeout=1.5)
    assert said == "generator did not end in 1.5 s and was killed with all it had started"
    assert gone(int(pid.read_text()))


def test_what_a_generator_started_ends_with_it(tmp_path):
    pid = tmp_path / "pid"
    program = f"{EMPTY}{SLEEPER}open({str(pid)!r}, 'w').write(str(other.pid))\n{PRINTED}"
    assert run_generator(program, workdir=tmp_path / "work").startswith('"builtin.module"')
    assert gone(int(pid.read_text()))


def test_a_generator_that_prints_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_CHARACTERS", 100_000)
    message = failure("while True:\n    print('x' * 10000)\n", tmp_path)
    assert message == "generator printed more than 100000 bytes and was killed with all it had started"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "with open('big', 'wb') as f:\n    while True: f.write(b'x' * 65536)\n",
            "line 2: OSError: [Errno 27] File too large",
        ),
        (
            "while True: open(str(id(object())) + str(__import__('time').time_ns()), 'wb').write(b'x' * 400_000)\n",
            "wrote more than 2000000 bytes into its folder",
        ),
        ("x = []\nwhile True: x.append(bytearray(2**26))\n", "line 2: MemoryError"),
    ],
)
def test_what_a_generator_may_use_is_limited(program, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FILE_BYTES", 1_000_000)
    monkeypatch.setattr(module, "FOLDER_BYTES", 2_000_000)
    monkeypatch.setattr(module, "MEMORY_BYTES", 2**29)
    assert expected in failure(program, tmp_path)


def test_a_generator_sees_nothing_of_the_callers_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ELFKILN_SECRET", "hunter2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONSTARTUP", "nothing.py")
    report = tmp_path / "seen.json"
    run_generator(
        f"{EMPTY}import json, os, sys\n"
        f"seen = dict(environment=dict(os.environ), folder=os.getcwd(), path=sys.path, argv=sys.argv, name=__name__,\n"
        f"            file=__file__, files=sorted(os.listdir()), input=sys.stdin.read(),\n"
        f"            bytecode=sys.dont_write_bytecode)\n"
        f"open({str(report)!r}, 'w').write(json.dumps(seen))\n{PRINTED}",
        workdir=tmp_path / "work",
    )
    seen = json.loads(report.read_text())
    assert set(seen["environment"]) <= {"PYTHONHASHSEED", "PYTHONUTF8", "LC_ALL", "TZ", "LC_CTYPE"}
    assert seen["environment"]["PYTHONHASHSEED"] == "0"
    assert Path(seen["folder"]).parent == (tmp_path / "work").resolve()
    assert not Path(seen["folder"]).exists()
    assert "" not in seen["path"]
    assert not any("elsewhere" in entry for entry in seen["path"])
    assert (seen["argv"], seen["name"], seen["file"]) == (["generator.py"], "__main__", "generator.py")
    assert seen["files"] == ["generator.py"]
    assert (seen["input"], seen["bytecode"]) == ("", True)


def test_the_order_of_sets_is_the_same_every_time(tmp_path):
    body = "        for name in set('abcdefghijklmnop'): external_func(name, inputs=[])\n"
    program = EMPTY.replace("def main(): pass\n", f"def main():\n{body}") + PRINTED
    first = run_generator(program, workdir=tmp_path)
    order = re.findall(r'sym_name = "(\w)"', first)
    assert sorted(order) == list("abcdefghijklmnop")
    assert order != sorted(order)
    assert {run_generator(program, workdir=tmp_path) for _ in range(3)} == {first}


def test_two_at_once_in_one_folder(tmp_path):
    results = {}

    def run(number):
        program = EMPTY.replace("AIEDevice.npu2", f'AIEDevice.npu2, sym_name="d{number}"') + PRINTED
        results[number] = run_generator(program, workdir=tmp_path)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [f'sym_name = "d{number}"' in results[number] for number in range(3)] == [True] * 3
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="file"):
        run_generator(EMPTY + PRINTED, workdir=tmp_path / "file" / "below")


def test_an_interrupt_stops_the_child(tmp_path):
    marker = tmp_path / "started"
    program = f"import time\nopen({str(marker)!r}, 'w').write(str(__import__('os').getpid()))\ntime.sleep(60)\n"
    script = (
        "import signal, sys\nfrom pathlib import Path\nfrom elfkiln.design.run_generator import run_generator\n"
        # A shell's background job is started with interrupts ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "run_generator(sys.argv[1], workdir=Path(sys.argv[2]))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, program, str(tmp_path / "work")], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 30
    while not (marker.exists() and marker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    child = int(marker.read_text())
    parent.send_signal(2)
    assert parent.wait(30) != 0
    assert gone(child)


# The verb


def elfkiln(capsys, *words):
    code = cli.main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_verb_prints_the_generic_module(capsys):
    code, out, err = elfkiln(capsys, "design", str(EXAMPLES / "copy_one_core.py"))
    assert (code, err) == (0, "")
    assert design_digest(out) == design_digest((EXAMPLES / "copy_one_core.2026-08.generic.mlir").read_text())


def test_the_verb_says_the_same_in_json(capsys):
    _, text, _ = elfkiln(capsys, "design", str(EXAMPLES / "sequences_rtp.py"))
    code, out, err = elfkiln(capsys, "design", str(EXAMPLES / "sequences_rtp.py"), "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said.pop("design") == text
    assert re.fullmatch(r"[0-9a-f]{64}", said.pop("digest"))
    assert said == {
        "cores": 2,
        "device": "npu2",
        "fifos": 7,
        "kernels": {"zero_i32": "mm_pb16i_16x64x128.o", "matmul_pb16i_i32": "mm_pb16i_16x64x128.o"},
        "name": "main",
        "sequences": {"init": {"tasks": 0}, "seq_K128_N256": {"tasks": 5}, "seq_K256_N512": {"tasks": 10}},
    }


def test_the_verb_refuses_what_it_cannot_read_and_reports_what_fails(capsys, tmp_path):
    (tmp_path / "broken.py").write_text("\n1 / 0\n")
    (tmp_path / "binary.py").write_bytes(b"\x80\xfe\x00")
    cases = {
        str(tmp_path / "absent.py"): (
            2,
            "absent.py: missing; name a Python file that builds a design",
        ),
        str(tmp_path): (2, "not a regular file (a folder); name"),
        str(tmp_path / "binary.py"): (
            2,
            "binary.py: expected UTF-8 text, found byte 0 is not UTF-8; name a Python file",
        ),
        "\x00": (2, "not a name that a file can have"),
        str(tmp_path / "broken.py"): (1, "elfkiln: broken.py: line 2: ZeroDivisionError: division by zero"),
    }
    for word, (expected, message) in cases.items():
        code, out, err = elfkiln(capsys, "design", word)
        assert (code, out) == (expected, "")
        assert message in err
        assert err.count("\n") == 1
    code, _, err = elfkiln(capsys, "design")
    assert code == 2
    assert "takes FILE.py, found none" in err

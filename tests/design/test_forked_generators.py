"""Generators in forks of a prepared process: the same text and failures as in a Python of their own, and a design."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import elfkiln
from elfkiln.design import model
from elfkiln.design import run_generator as module
from elfkiln.design.reader import read_design
from elfkiln.design.run_generator import run_generator

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "iron"
COPY = (EXAMPLES / "copy_one_core.py").read_text()
HEAD = "from aie.dialects.aie import *\nfrom aie.extras.context import mlir_mod_ctx\n"
EMPTY = f"{HEAD}with mlir_mod_ctx() as ctx:\n    @device(AIEDevice.npu2)\n    def main(): pass\n"
STATE = (
    "import json, os, signal, sys\n"
    "print(json.dumps([dict(os.environ), sys.argv, __name__, __file__, sys.flags.hash_randomization, hash('a'),\n"
    "  list({str(n) for n in range(99)}), list(dict.fromkeys(sys.path[1:])),\n"
    "  [str(signal.getsignal(n)) for n in range(1, 32)],\n"
    "  sys.stdin.read(), sys.stdout.encoding, sys.getrecursionlimit(), sorted(os.listdir()),\n"
    "  sorted(map(int, os.listdir('/proc/self/fd')))]), file=open(OUT, 'w'))\n"
)
PROGRAMS = {
    "state": EMPTY + "OUT = %r\n" + STATE + "print(ctx.module)\n",
    "design": COPY,
    "text and more": EMPTY + "print(ctx.module)\nprint('// more')\n",
    "nothing": EMPTY,
    "error": EMPTY + "\n1 / 0\n",
    "exit": EMPTY + "import sys\nsys.exit('no')\n",
    "no design": EMPTY.replace("    @device(AIEDevice.npu2)\n    def main(): pass\n", "    pass\n")
    + "print(ctx.module)\n",
    "a core of its own": COPY + "\nimport elfkiln.work\n",
    "after a thread": COPY,
    "beside a thread": COPY,
    "beside a thread of a library": COPY,
}
# A process with a hash seed like a worker's runs them all, and says what came of each.
SCRIPT = """\
import ctypes, json, sys, threading
sys.path.insert(0, sys.argv.pop(1))
from pathlib import Path
from elfkiln.design import reader, run_generator
run_generator.prepare_to_fork()
sys.path.insert(0, "elsewhere")
read = reader.read_design
read_texts = []
run_generator.read_design = lambda text, **options: read_texts.append(text) or read(text, **options)
found = {}
ended, threads = threading.Event(), []
for name, program in json.load(sys.stdin).items():
    del read_texts[:]
    if "thread" in name:
        threads.append(threading.Thread(target=ended.wait, daemon=True))
        threads[-1].start()
        if "after" in name or "library" in name:
            ended.set()
            for thread in threads:
                thread.join()
            ended.clear()
        if "library" in name:
            # As gRPC's: Python knows nothing of it. pause() never returns.
            libc = ctypes.CDLL(None)
            libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
    try:
        text, design = run_generator.design_of_generator(program, workdir=Path(sys.argv[1]))
        found[name] = [text, len(read_texts), design == read(text)]
    except Exception as error:
        found[name] = [f"{type(error).__name__}: {error}", len(read_texts), None]
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What came of each program: in forks (text or failure, texts read, design equal), and in Pythons of their own."""
    folder = tmp_path_factory.mktemp("forked")
    programs = dict(PROGRAMS, state=PROGRAMS["state"] % str(folder / "forked.json"))
    done = subprocess.run(
        [sys.executable, "-P", "-s", "-B", "-c", SCRIPT, str(Path(elfkiln.__file__).parents[1]), str(folder / "work")],
        input=json.dumps(programs),
        env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    programs["state"] = PROGRAMS["state"] % str(folder / "own.json")
    own = {}
    for name, program in programs.items():
        if program == COPY and "design" in own:
            own[name] = own["design"]
            continue
        try:
            own[name] = run_generator(program, workdir=folder / "work")
        except Exception as error:
            own[name] = f"{type(error).__name__}: {error}"
    assert list((folder / "work").iterdir()) == []
    states = [json.loads((folder / name).read_text()) for name in ("forked.json", "own.json")]
    return json.loads(done.stdout), own, states


def test_texts_and_failures_are_those_of_a_python_of_its_own(both):
    forked, own, _ = both
    assert {name: found[0] for name, found in forked.items()} == own
    assert own["error"] == "BuildFailed: generator: line 7: ZeroDivisionError: division by zero"
    assert own["design"].startswith('"builtin.module"() ({')


def test_a_generator_sees_what_it_sees_in_a_python_of_its_own(both):
    _, _, (forked, own) = both
    assert forked[:-1] == own[:-1]
    # Standard streams, and the listing's own; the file that is written comes with the listing's number or next to it.
    assert len(forked[-1]) == len(own[-1])


def test_a_design_that_is_handed_over_is_that_of_the_text_which_is_not_read_then(both):
    forked, _, _ = both
    assert {name: found[1:] for name, found in forked.items() if found[2] is not None} == {
        "state": [0, True],
        "design": [0, True],
        "a core of its own": [0, True],
        "after a thread": [0, True],
        # Neither is a fork: what another thread held would be held in it for ever.
        "beside a thread": [1, True],
        "beside a thread of a library": [1, True],
        # What is printed is not what was handed over.
        "text and more": [1, True],
    }


class _Call:
    def __init__(self, call, *arguments):
        self.call = call, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "handed",
    [
        b"",
        b"\x80\x05.",
        pickle.dumps(_Call(print, "called")),
        pickle.dumps(("0" * 64, _Call(model.dataclass))),
        pickle.dumps(("0" * 64, "no design")),
        b"\x80\x04c" + model.__name__.encode() + b"\n__builtins__\n.",
        b"\x80\x04\x8c\x15elfkiln.design.model\x8c\x10Design.__init__\x93.",
    ],
)
def test_what_is_handed_over_wrongly_is_not_taken(handed, tmp_path, capsys):
    (tmp_path / "design.pickle").write_bytes(handed)
    assert module._handed_over(tmp_path / "design.pickle", b"") is None
    assert capsys.readouterr().out == ""


def test_a_design_is_taken_for_its_own_text_alone(tmp_path):
    text = run_generator(COPY, workdir=tmp_path)
    design = read_design(text)
    (tmp_path / "design.pickle").write_bytes(pickle.dumps((module.sha256_hex(text.encode()), design)))
    assert module._handed_over(tmp_path / "design.pickle", text.encode()) == design
    assert module._handed_over(tmp_path / "design.pickle", text.encode() + b"\n") is None
    assert module._handed_over(tmp_path / "absent", text.encode()) is None

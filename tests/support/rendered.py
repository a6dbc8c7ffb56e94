"""What generators print on the stand-in, each run once whoever asks for its text or its design."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from elfkiln.design.model import Design
from elfkiln.families.family import DesignRequest, render
from projects import CHECKOUT

_DESIGNS = CHECKOUT / "out" / "cache" / "test-designs"


@cache
def _sources() -> bytes:
    """The digest of all that decides what a program's design is."""
    found = hashlib.sha256(sys.version.encode())
    for folder in ("errors.py", "io", "hardware", "design"):
        path = CHECKOUT / "src" / "elfkiln" / folder
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(hashlib.sha256(source.read_bytes()).digest())
    return found.digest()


# Runs generators in forks of a process that has imported once, as builds do.
_SERVER = """\
import json, pickle, sys
from pathlib import Path
from elfkiln.design.run_generator import design_of_generator, prepare_to_fork
from elfkiln.errors import ElfkilnError
prepare_to_fork()
while True:
    try:
        program, folder, kept = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    answer = ""
    try:
        kept.write_bytes(pickle.dumps(design_of_generator(program, workdir=Path(folder))))
    except ElfkilnError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""


@cache
def _server() -> subprocess.Popen[bytes]:
    """The process of this worker that runs generators; it ends when its input does."""
    words = [sys.executable, "-P", "-s", "-B", "-c", _SERVER]
    environment = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1"}
    server = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(server.communicate)
    return server


def _run(program: str, folder: str | Path, made: Path) -> str:
    """Let the server run a generator in a folder and write its design to `made`; return how it failed, or nothing."""
    server = _server()
    pickle.dump((program, folder, made), server.stdin)
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def failure_of(program: str, folder: Path) -> str:
    """The one line that a generator's failure is, run in a folder where it may leave nothing."""
    folder.mkdir()
    failure = _run(program, folder, folder.parent / "design")
    assert failure
    assert "\n" not in failure
    assert list(folder.iterdir()) == []
    return failure


def design_of(program: str) -> Design:
    """The design that a generator prints; it is shared by all tests and runs, so nobody may change it."""
    return printed_by(program)[1]


@cache
def printed_by(program: str) -> tuple[str, Design]:
    """What a generator prints, and the design that it is, which nobody may change."""
    kept = _DESIGNS / (hashlib.sha256(_sources() + program.encode()).hexdigest() + ".both")
    if kept.is_file():
        return pickle.loads(kept.read_bytes())
    _DESIGNS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_DESIGNS) as folder:
        made = Path(folder) / "design"
        failure = _run(program, folder, made)
        assert not failure, failure
        both = pickle.loads(made.read_bytes())
        os.replace(made, kept)
    return both


@cache
def rendered_design(tag: str, M: int, K: int, N: int, columns: int) -> Design:
    """The design of a request; it is shared, so nobody may change it."""
    return design_of(render(CHECKOUT, DesignRequest(K, N, M, tag, columns)).text)

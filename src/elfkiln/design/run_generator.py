"""Runs a rendered generator on `elfkiln.design.iron_sim` in a child process and returns the design it prints."""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import elfkiln
from elfkiln.design.reader import MAX_CHARACTERS, read_design
from elfkiln.errors import BuildFailed, Refused, brief
from elfkiln.io.checked import Value
from elfkiln.io.child import GIB, MIB, ChildRun, Limits, run_child
from elfkiln.io.complaint import complaint
from elfkiln.io.files import storage_refusal
from elfkiln.io.strict_json import read_strict_json

SECONDS = 120.0
MEMORY_BYTES = 4 * GIB
FILE_BYTES = 64 * MIB
FOLDER_BYTES = 256 * MIB

_REPORT_BYTES = 1 * MIB
_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from elfkiln.design.iron_sim.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
_REPORT = "report.json"
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run_generator(program: str, *, workdir: Path, timeout: float = SECONDS, name: str = "generator") -> str:
    """Run the text of a generator and return the generic MLIR it printed, which is a design that `read_design` reads.

    The child is this Python with nothing of the caller's environment, a fixed hash seed, and a private folder below
    `workdir` as its working folder; in it, and nowhere else, `aie` is `elfkiln.design.iron_sim`. `timeout` is in
    seconds, of the clock and of processor time; `name` is what an error calls the generator. Raises `BuildFailed` with
    one line when the generator fails (with its line and the error), prints nothing or anything else than one design,
    runs too long, takes too much memory or room on the disk, or is killed.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="generator-", dir=workdir, ignore_cleanup_errors=True) as folder:
            private = Path(folder)
            (private / "generator.py").write_bytes(program.encode("utf-8", "surrogatepass"))
            run = _run(private, timeout, name)
            if run.exit_code:
                raise BuildFailed(f"{name}: {_failure(private / _REPORT, run)}")
    except OSError as error:
        raise storage_refusal(workdir, error) from error
    try:
        output = run.stdout.decode("utf-8")
    except UnicodeDecodeError:
        raise BuildFailed(
            f"{name}: printed bytes that are not UTF-8; a generator prints its module and nothing else"
        ) from None
    if not output.strip():
        raise BuildFailed(f"{name}: ended without printing a module; a generator ends with print(ctx.module)")
    try:
        read_design(output, name="its output")
    except Refused as refused:
        raise BuildFailed(f"{name}: printed no design: {refused}") from None
    return output


def _run(folder: Path, timeout: float, name: str) -> ChildRun:
    """Run `generator.py` of a folder."""
    root = str(Path(elfkiln.__file__).resolve().parents[1])
    # Not -I: it would ignore PYTHONHASHSEED. The environment has nothing else of Python's, and -P -s do the rest.
    return run_child(
        [sys.executable, "-P", "-s", "-B", "-c", _START, root, "generator.py", _REPORT],
        name=name,
        cwd=folder,
        environment=_ENVIRONMENT,
        limits=Limits(timeout, math.ceil(timeout), MEMORY_BYTES, FILE_BYTES, MAX_CHARACTERS, FOLDER_BYTES),
        whole=True,
    )


def _failure(report: Path, run: ChildRun) -> str:
    """Return the line about a child that ended with a status other than 0."""
    try:
        top = Value(read_strict_json(report, limit=_REPORT_BYTES), report.name)
        error = top["error"].text()
        where = "" if top["line"].raw is None else f"line {top['line'].whole()}: "
    except Refused:
        return f"{run.ending}: {complaint(run.err)}" if run.exit_code > 0 else run.ending
    return f"{where}{brief(' '.join(error.split()), 400)}"

"""Runs a rendered generator on `elfkiln.design.iron_sim` in a child process and returns the design it prints."""

from __future__ import annotations

import contextlib
import gc
import io
import math
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

import elfkiln
from elfkiln.design import model
from elfkiln.design.model import Design
from elfkiln.design.reader import MAX_CHARACTERS, design_of_module, read_design
from elfkiln.errors import BuildFailed, Refused, brief, with_log
from elfkiln.io import sandbox
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.child import GIB, MIB, ChildRun, Limits, has_threads, run_child, run_forked
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
_PROGRAM = "generator.py"
_REPORT = "report.json"
_DESIGN = "design.pickle"
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run_generator(program: str, *, workdir: Path, timeout: float = SECONDS, name: str = "generator") -> str:
    """Run the text of a generator and return the generic MLIR it printed, which is a design that `read_design` reads.

    The child is this Python with nothing of the caller's environment, a fixed hash seed, and a private folder below
    `workdir` as its working folder; in it, and nowhere else, `aie` is `elfkiln.design.iron_sim`. `timeout` is in
    seconds, of the clock and of processor time; `name` is what an error calls the generator. Raises `BuildFailed` with
    one line when the generator fails (with its line and the error), prints nothing or anything else than one design,
    runs too long, takes too much memory or room on the disk, or is killed.
    """
    return design_of_generator(program, workdir=workdir, timeout=timeout, name=name)[0]


def design_of_generator(
    program: str, *, workdir: Path, timeout: float = SECONDS, name: str = "generator"
) -> tuple[str, Design]:
    """Run a generator as `run_generator` does, and return what it printed with the design that it is.

    In a process that `prepare_to_fork` was called in, and that has no threads now, the child is a fork of it. It then
    hands over the design it printed, which saves reading the text: what is printed was verified, and is compared by its
    digest.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="generator-", dir=workdir, ignore_cleanup_errors=True) as folder:
            private = Path(folder)
            (private / _PROGRAM).write_bytes(program.encode("utf-8", "surrogatepass"))
            # A program that keeps the network away has to be started; a fork does that itself, or not at all. And what
            # was used here meanwhile may have brought threads: gRPC does, with remote=.
            forked = _may_fork and not sandbox.way().prefix and not has_threads()
            run = (_forked if forked else _run)(private, timeout, name)
            if run.exit_code:
                raise with_log(BuildFailed(f"{name}: {_failure(private / _REPORT, run)}"), run.err)
            handed = _handed_over(private / _DESIGN, run.stdout) if forked else None
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
    if handed is not None:
        return output, handed
    try:
        return output, read_design(output, name="its output")
    except Refused as refused:
        raise BuildFailed(f"{name}: printed no design: {refused}") from None


_may_fork = False
_path: list[str] = []


def prepare_to_fork() -> None:
    """Import what a generator needs, so that one can be run in a fork of this process.

    For a process that has no threads and was started with the environment a generator has (`PYTHONHASHSEED` above all:
    a program's sets are in the order that it decides).
    """
    global _may_fork
    # This package comes last where a generator looks for modules.
    root = str(Path(elfkiln.__file__).resolve().parents[1])
    _path[:] = [*(entry for entry in sys.path if entry != root), root]
    from elfkiln.design.iron_sim.__main__ import install_as_aie

    assert os.environ.get("PYTHONHASHSEED") == ENVIRONMENT["PYTHONHASHSEED"]
    install_as_aie()
    _may_fork = True


def _forked(folder: Path, timeout: float, name: str) -> ChildRun:
    """Run `generator.py` of a folder in a fork of this process."""
    return run_forked(_generate, name=name, cwd=folder, environment=ENVIRONMENT, limits=_limits(timeout))


def _generate() -> int:
    """Run the generator of the working folder, and hand over the design that it prints."""
    from elfkiln.design.iron_sim import ir
    from elfkiln.design.iron_sim.__main__ import main

    sys.path[:] = _path
    # A module is hundreds of thousands of objects that all stay until this process ends.
    gc.disable()
    handed: list[tuple[str, Design]] = []

    def listen(text: str, module: ModuleOp) -> None:
        # What is wrong with a module is found in its text, as everywhere else.
        with contextlib.suppress(Refused):
            handed[:] = [(sha256_hex(f"{text}\n".encode()), design_of_module(module))]

    ir.listeners.append(listen)
    code = main([_PROGRAM, _REPORT])
    if code == 0 and handed:
        Path(_DESIGN).write_bytes(pickle.dumps(handed[0], protocol=pickle.HIGHEST_PROTOCOL))
    return code


def _handed_over(path: Path, printed: bytes) -> Design | None:
    """Return the design a generator handed over, None when it printed anything else or handed over none."""
    try:
        digest, design = _DesignUnpickler(io.BytesIO(path.read_bytes())).load()
    except (OSError, pickle.UnpicklingError, ValueError, TypeError, EOFError, AttributeError, IndexError):
        return None
    return design if isinstance(design, Design) and digest == sha256_hex(printed) else None


class _DesignUnpickler(pickle.Unpickler):
    """Reads values of `elfkiln.design.model` and of Python's plain types, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of the model."""
        found = getattr(model, name, None)
        if module != model.__name__ or not isinstance(found, type) or found.__module__ != module:
            raise pickle.UnpicklingError(f"{module}.{name} is not a part of a design")
        return found


def _run(folder: Path, timeout: float, name: str) -> ChildRun:
    """Run `generator.py` of a folder."""
    root = str(Path(elfkiln.__file__).resolve().parents[1])
    # Not -I: it would ignore PYTHONHASHSEED. The environment has nothing else of Python's, and -P -s do the rest.
    return run_child(
        [sys.executable, "-P", "-s", "-B", "-c", _START, root, _PROGRAM, _REPORT],
        name=name,
        cwd=folder,
        environment=ENVIRONMENT,
        limits=_limits(timeout),
        whole=True,
    )


def _limits(timeout: float) -> Limits:
    seconds = math.ceil(timeout)
    return Limits(timeout, seconds, MEMORY_BYTES, FILE_BYTES, MAX_CHARACTERS, FOLDER_BYTES, offline=True)


def _failure(report: Path, run: ChildRun) -> str:
    """Return the line about a child that ended with a status other than 0."""
    try:
        top = Value(read_strict_json(report, limit=_REPORT_BYTES), report.name)
        error = top["error"].text()
        where = "" if top["line"].raw is None else f"line {top['line'].whole()}: "
    except Refused:
        return f"{run.ending}: {complaint(run.err)}" if run.exit_code > 0 else run.ending
    return f"{where}{brief(' '.join(error.split()), 400)}"

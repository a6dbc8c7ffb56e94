"""Runs a rendered generator on `elfkiln.design.iron_sim` in a child process and returns the design it prints."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import elfkiln
from elfkiln.design.reader import MAX_CHARACTERS, read_design
from elfkiln.errors import BuildFailed, Refused, brief
from elfkiln.io.files import storage_refusal

_START = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from elfkiln.design.iron_sim.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run_generator(program: str, *, workdir: Path, timeout: float = 120.0, name: str = "generator") -> str:
    """Run the text of a generator and return the generic MLIR it printed, which is a design that `read_design` reads.

    The child is this Python with nothing of the caller's environment, a fixed hash seed, and a private folder below
    `workdir` as its working folder; in it, and nowhere else, `aie` is `elfkiln.design.iron_sim`. `timeout` is in
    seconds; `name` is what an error calls the generator. Raises `BuildFailed` with one line when the generator fails
    (with its line and the error), prints nothing or anything else than one design, runs too long or is killed.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="generator-", dir=workdir, ignore_cleanup_errors=True) as folder:
            private = Path(folder)
            (private / "generator.py").write_bytes(program.encode("utf-8", "surrogatepass"))
            output, failure = _run_child(private, timeout)
    except OSError as error:
        raise storage_refusal(workdir, error) from error
    if failure is not None:
        raise BuildFailed(f"{name}: {failure}")
    if not output.strip():
        raise BuildFailed(f"{name}: ended without printing a module; a generator ends with print(ctx.module)")
    try:
        read_design(output, name="its output")
    except Refused as refused:
        raise BuildFailed(f"{name}: printed no design: {refused}") from None
    return output


def _run_child(folder: Path, timeout: float) -> tuple[str, str | None]:
    """Run `generator.py` of a folder; return what it printed, and what is to say about its failure."""
    report = folder / "report.json"
    root = str(Path(elfkiln.__file__).resolve().parents[1])
    # Not -I: it would ignore PYTHONHASHSEED. The environment has nothing else of Python's, and -P -s do the rest.
    command = [sys.executable, "-P", "-s", "-B", "-c", _START, root, "generator.py", report.name, str(MAX_CHARACTERS)]
    with (folder / "stdout").open("w+b") as stdout, (folder / "stderr").open("w+b") as stderr:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            return "", f"did not end within {timeout:g} seconds and was stopped"
        finally:
            # The whole session: a generator may have started processes of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        stdout.seek(0)
        printed = stdout.read()
        stderr.seek(0)
        complaint = stderr.read(65536).decode("utf-8", "replace").strip()
    if status < 0:
        return "", f"was killed by {signal.Signals(-status).name}"
    if status > 0:
        return "", _failure(report, status, complaint)
    try:
        return printed.decode("utf-8"), None
    except UnicodeDecodeError:
        return "", "printed bytes that are not UTF-8; a generator prints its module and nothing else"


def _failure(report: Path, status: int, complaint: str) -> str:
    """Return the line about a child that ended with a status other than 0."""
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
        line, error = found["line"], str(found["error"])
    except (OSError, ValueError, KeyError, TypeError):
        last = complaint.splitlines()[-1] if complaint else "nothing on standard error"
        return f"ended with status {status}: {brief(last)}"
    where = f"line {line}: " if isinstance(line, int) else ""
    return f"{where}{brief(' '.join(error.split()), 400)}"

"""Finds the Python a toolchain is pinned to; the generators run under it, not under elfkiln's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elfkiln.errors import Differs, ElfkilnError, brief, refusal
from elfkiln.io.checked import Value
from elfkiln.io.child import run_child
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.targets.npu2.tool_run import limits_of

_ASK = (
    "import json, sys; print(json.dumps([sys.implementation.name, list(sys.version_info[:3]), sys.maxsize > 2**32, "
    "getattr(sys, '_base_executable', sys.executable)]))"
)
_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python found on this machine: its path and full version ("3.12.1")."""

    path: Path
    version: str


def variable_name(version: str) -> str:
    """Return the environment variable that names the interpreter of a version.

    >>> variable_name("3.12")
    'ELFKILN_PYTHON312'
    """
    return "ELFKILN_PYTHON" + version.replace(".", "")


def find_python(version: str, environ: Mapping[str, str] | None = None) -> Interpreter:
    """Return a 64-bit CPython of this version ("3.12").

    Order: the variable ELFKILN_PYTHON312 (which must fit, nothing else is tried when it is set), every python3.12 on
    PATH (a version manager's stub that does not start is passed over), elfkiln's own interpreter. Raises `Refused`
    when the variable names something else, `Differs` when there is none.
    """
    variables = os.environ if environ is None else environ
    variable = variable_name(version)
    named = variables.get(variable)
    if named:
        found = _ask(Path(named), variables)
        if found is None or not _fits(found, version):
            what = f"Python {found.version}" if found else "no 64-bit CPython that starts"
            raise refusal(f"{variable}={named}", expected=f"a CPython {version}", found=what)
        return found
    for path in _candidates(version, variables):
        found = _ask(path, variables)
        if found is not None and _fits(found, version):
            return found
    raise Differs(
        f"Python {version} is missing: no python{version} on PATH starts; install it, or name one with {variable}=PATH"
    )


def _candidates(version: str, variables: Mapping[str, str]) -> Iterator[Path]:
    for folder in variables.get("PATH", "").split(os.pathsep):
        path = Path(folder, f"python{version}")
        if folder and os.access(path, os.X_OK) and path.is_file():
            yield path
    yield Path(sys.executable)


def _fits(found: Interpreter, version: str) -> bool:
    return found.version.rpartition(".")[0] == version


def _ask(path: Path, variables: Mapping[str, str]) -> Interpreter | None:
    """Ask an interpreter for itself; None when it does not start, does not answer, or is not a 64-bit CPython.

    It gets the caller's variables: a version manager's stub finds the real one by them.
    """
    try:
        run = run_child(
            [path, "-I", "-c", _ASK], name=path.name, cwd=Path(), environment=variables, limits=limits_of(_SECONDS)
        )
        answer = Value(parse_strict_json(run.stdout, path.name), path.name).items()
        name, version, wide, base = answer
        if run.exit_code == 0 and name.text() == "cpython" and wide.boolean():
            return Interpreter(Path(base.text()), ".".join(str(part.whole(0)) for part in version.items()))
    except (ElfkilnError, ValueError):
        return None
    return None


def describe_choice(interpreter: Interpreter) -> str:
    """Return e.g. `Python 3.12.1 (python3.12)`, without the folder it lies in."""
    return f"Python {interpreter.version} ({brief(interpreter.path.name)})"

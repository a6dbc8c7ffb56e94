"""Runs one tool of the toolchain: limits that fit its tools, and what it prints as the file of a step."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elfkiln.errors import BuildFailed, Refused
from elfkiln.io.child import GIB, Limits, run_child

FILE_BYTES = 1 << 30
"""The most a tool may print: a design of one task per 8-KiB tile is some 20 MB."""

MEMORY_BYTES = 32 * GIB
"""Address space of one tool. Linking the largest design of reference size takes some hundred MB."""

WRITTEN_BYTES = 8 * GIB
"""The most a tool may write into one file: wheels of some hundred MB are the largest."""

FOLDER_BYTES = 64 * GIB
"""The most that may lie below the folder a tool works in."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """How a tool ended: `exit_code` is negative for a signal; `out` and `err` are its streams, shortened if long."""

    argv: tuple[str, ...]
    exit_code: int
    out: str
    err: str
    seconds: float
    ending: str


def limits_of(seconds: float) -> Limits:
    """Return what a tool may use that is given this much time: all cores for all of it, and room for its output."""
    cores = os.cpu_count() or 1
    return Limits(seconds, math.ceil(seconds * cores), MEMORY_BYTES, WRITTEN_BYTES, FILE_BYTES)


def run_tool(
    argv: Sequence[str | os.PathLike[str]],
    *,
    name: str,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float,
    out_file: Path | None = None,
) -> ToolRun:
    """Run a tool and wait for it; a failing exit code is the caller's to judge.

    What it prints goes into the new file `out_file` if given, and nothing else does. Raises `BuildFailed` naming the
    tool when it cannot be started, does not end in `timeout` seconds, prints more than a design can be, or when a file
    of that name is there before or is made by the tool.
    """
    if out_file is not None and os.path.lexists(out_file):
        raise BuildFailed(nobodys_output(name, out_file.name))
    limits = replace(limits_of(timeout), folder_bytes=FOLDER_BYTES, offline=True)
    run = run_child(argv, name=name, cwd=cwd, environment=environment, limits=limits, whole=out_file is not None)
    if out_file is not None:
        # Written after the end: what the tool writes under the name itself is then not mixed with this.
        try:
            with out_file.open("xb") as file:
                file.write(run.stdout)
        except FileExistsError as error:
            raise BuildFailed(f"{name}: wrote {out_file.name} itself; only what it prints is taken") from error
    return ToolRun(run.argv, run.exit_code, "" if out_file else run.out, run.err, run.seconds, run.ending)


def nobodys_output(tool: str, file: str) -> str:
    """Return the line for a file that lies where a tool that has not run yet will put its output."""
    return f"{tool}: {file} is there before {tool} ran; it is nobody's output"


def probe(
    argv: Sequence[str | os.PathLike[str]], *, name: str, cwd: Path, environment: Mapping[str, str], timeout: float
) -> ToolRun:
    """Run a tool for its help or version text; a tool that hangs is killed and is `Refused` by name."""
    try:
        return run_tool(argv, name=name, cwd=cwd, environment=environment, timeout=timeout)
    except BuildFailed as error:
        raise Refused(f"{error}; a tool that does not answer is not used") from error

"""Runs a program on a pseudo-terminal and says what a person would see there in the end."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from dataclasses import dataclass

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


@dataclass(frozen=True)
class Session:
    """What a program wrote on a terminal (`raw`), the lines that stand there at its end, and its exit code."""

    raw: str
    lines: list[str]
    code: int


def screen(raw: str) -> list[str]:
    """Return the lines that stand on a terminal of endless width after `raw` was written; trailing spaces go.

    >>> screen("one\\r\\ntwo\\r\\x1b[2Kthree\\r\\n\\x1b[1A\\x1b[2K")
    ['one', '']
    """
    lines, row, column, position = [""], 0, 0, 0
    while position < len(raw):
        match = _SEQUENCE.match(raw, position)
        if match is not None:
            position = match.end()
            private, number, kind = match.groups()
            if kind == "A":
                row = max(row - int(number or 1), 0)
            elif kind == "K":
                lines[row] = "" if number == "2" else lines[row][:column]
            elif kind not in "mlh" or (private and kind == "m"):
                raise AssertionError(f"a sequence this terminal does not know: {match.group()!r}")
            continue
        letter = raw[position]
        position += 1
        if letter == "\r":
            column = 0
        elif letter == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        else:
            lines[row] = lines[row].ljust(column)[:column] + letter + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def run_on_terminal(words, *, cwd, env, columns=120, timeout=120.0) -> Session:
    """Run a program with standard output and error on a pseudo-terminal of its own."""
    leader, follower = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm"}
    process = subprocess.Popen(words, cwd=cwd, env=env | size, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    parts, end = [], time.monotonic() + timeout
    try:
        while time.monotonic() < end:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    part = os.read(leader, 65536)
                except OSError:
                    # The other side is closed.
                    break
                if not part:
                    break
                parts.append(part)
            elif process.poll() is not None:
                break
        code = process.wait(timeout=5)
    finally:
        process.kill()
        os.close(leader)
    raw = b"".join(parts).decode()
    lines = screen(raw)
    return Session(raw, lines[:-1] if lines[-1] == "" else lines, code)

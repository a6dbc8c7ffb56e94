"""docs/tutorial.md can be followed to its end: its commands are run as they stand, and print what it says they do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oci_server import Registry, serving
from projects import CHECKOUT, make_project

TUTORIAL = CHECKOUT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "@@ end of block"


def blocks():
    """Return (commands, the lines that are shown to follow) of each block of commands, in order."""
    found = []
    for kind, text in BLOCK.findall(TUTORIAL.read_text()):
        if kind == "sh":
            found.append((text, []))
        elif kind == "text":
            found[-1][1].extend(text.splitlines())
    return found


def missing_lines(shown, printed):
    """Return the lines of `shown` that `printed` does not have in this order; `...` stands for anything."""
    rest = iter(printed)
    wanted = [re.compile(".*".join(map(re.escape, line.split("...")))) for line in shown if line != "..."]
    return [line.pattern for line in wanted if not any(line.fullmatch(one) for one in rest)]


@pytest.mark.parametrize(("shown", "left"), [(["a 1", "c"], 0), (["a 2"], 1), (["c", "a 1"], 1), (["a ...", "..."], 0)])
def test_what_is_shown_must_be_printed_in_order(shown, left):
    assert len(missing_lines(shown, ["a 1", "b", "c"])) == left


def test_it_can_be_followed_to_the_end(tmp_path):
    project = make_project(tmp_path / "elfkiln")
    commands = blocks()
    assert len(commands) >= 9
    with serving(Registry()) as host:
        script = f"echo {END}\n".join(text for text, _ in commands).replace("localhost:5000", host)
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=project.root,
            # As the tutorial sets it: the programs of .venv first.
            env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout
    printed = [part.splitlines() for part in done.stdout.split(f"{END}\n")]
    assert [missing_lines(shown, lines) for (_, shown), lines in zip(commands, printed, strict=True)] == [
        [] for _ in commands
    ], done.stdout
    assert (project.root / "out" / "site" / "index.html").is_file()

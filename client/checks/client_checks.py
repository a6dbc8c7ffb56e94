"""Fuzzes elfkiln.h and looks for data races, with the pinned zig.

    .venv/bin/python client/checks/client_checks.py fuzz [INPUTS [SEED]]       a million inputs by default; some seconds
    .venv/bin/python client/checks/client_checks.py threads MODEL_DIR TARGET   a folder with an installed set

Both build their program first, with undefined behaviour ending it in a message (fuzz) or under ThreadSanitizer
(threads); the first build also builds zig's libraries for these, which takes a minute or two. Exit codes: 0 done, 1
found something, 2 usage.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from elfkiln.project import find_project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim.zig_toolchain import SimToolchain

HERE = Path(__file__).resolve().parent
FLAGS = {"fuzz": ("-fsanitize=undefined",), "threads": ("-fsanitize=thread", "-pthread")}


def build(name: str, folder: Path) -> Path:
    """Compile `name`.c of this folder with its sanitizer into `folder` and return the program."""
    project = find_project(HERE)
    zig = SimToolchain.from_pin(read_lock(project.lock_file).target("sim")).zig
    words = (
        "cc",
        "-target",
        "x86_64-linux-gnu",
        "-std=c11",
        "-O1",
        "-g",
        *FLAGS[name],
        f"-I{HERE.parent}",
        str(HERE / f"{name}.c"),
    )
    environment = {"LC_ALL": "C", "HOME": str(folder)}
    for kind in ("GLOBAL", "LOCAL"):
        environment[f"ZIG_{kind}_CACHE_DIR"] = str(project.root / "out" / "cache" / "client")
    subprocess.run([zig, *words, "-o", str(folder / name)], env=environment, check=True)
    return folder / name


def main(words: Sequence[str]) -> int:
    """Build the program that the first word names and run it with the others."""
    if not words or words[0] not in FLAGS or (words[0] == "threads" and len(words) < 3):
        print(__doc__, file=sys.stderr)
        return 2
    name, arguments = words[0], list(words[1:])
    if name == "fuzz" and not arguments:
        arguments = ["1000000"]
    with tempfile.TemporaryDirectory(prefix="elfkiln-client-") as folder:
        environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}
        code = subprocess.run([build(name, Path(folder)), *arguments], env=environment, check=False).returncode
    return min(abs(code), 1) if code not in (0, 2) else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Prints what the stand-in `aie` makes of every generator of a folder, as JSON: `python print_designs.py FOLDER`.

Each generator runs in a fork of a process that has imported the stand-in once. Of each: `text`, the module it printed;
or `error`, the class and words of what it raised, and `unchecked`, the module as it prints where the stand-in leaves
what its verifiers find to the end (null if there is none). Lint reads those, as it reads any text.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from elfkiln.design.iron_sim import building, ir
from elfkiln.design.iron_sim.__main__ import install_as_aie
from elfkiln.design.mlir import verifiers


def forked(program: Path, *, checked: bool) -> dict[str, str]:
    """Run a generator in a child; return its `text`, or the `error` that it raised."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        with open(writes, "w", encoding="utf-8") as pipe:
            json.dump(run(program, checked=checked), pipe)
        os._exit(0)
    os.close(writes)
    with open(reads, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


def run(program: Path, *, checked: bool) -> dict[str, str]:
    if not checked:
        for name in ("check", "finish", "declare"):
            setattr(verifiers.Scope, name, lambda *_: None)
        building.verify = ir.verify = lambda *_: None
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program.read_bytes(), program.name, "exec"), {"__name__": "__main__"})
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": printed.getvalue()}


def main(folder: Path) -> None:
    install_as_aie()
    found = {}
    for program in sorted(folder.glob("*.py")):
        made = forked(program, checked=True)
        if "error" in made:
            made["unchecked"] = forked(program, checked=False).get("text")
        found[program.stem] = made
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

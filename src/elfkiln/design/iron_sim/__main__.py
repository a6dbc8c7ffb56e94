"""Runs one generator with this package as its `aie`: `python -m elfkiln.design.iron_sim GENERATOR REPORT`.

The child process of `elfkiln.design.run_generator`, which limits what it may use. What the generator prints goes to
standard output; how it failed, if it did, goes to the file REPORT as one JSON object: `line` in the generator (or
null), `error`.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

from elfkiln.design import iron_sim
from elfkiln.design.iron_sim.building import NOT_SUPPORTED


class _NoOther(MetaPathFinder):
    """Says of a module below `aie` that it is not here: not in Python's words, nor where this package lies."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse every module that is not among those installed."""
        del path, target
        if fullname.startswith("aie."):
            raise ModuleNotFoundError(f"{fullname} {NOT_SUPPORTED}", name=fullname)
        return None


def install_as_aie() -> None:
    """Put this package and its modules under the name `aie`, for this process alone."""
    sys.modules["aie"] = iron_sim
    if not any(isinstance(finder, _NoOther) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoOther())
    for name in iron_sim.MODULES:
        sys.modules[f"aie.{name}"] = importlib.import_module(f"elfkiln.design.iron_sim.{name}")


def run(program: Path) -> dict[str, object] | None:
    """Run a generator as `__main__`; return how it failed, or None."""
    file_name = program.name
    module = types.ModuleType("__main__")
    module.__file__ = file_name
    sys.modules["__main__"] = module
    sys.argv = [file_name]
    try:
        exec(compile(program.read_bytes(), file_name, "exec"), module.__dict__)
        sys.stdout.flush()
    except SystemExit as error:
        if error.code in (None, 0):
            sys.stdout.flush()
            return None
        return {"line": _line(error, file_name), "error": f"SystemExit: {error.code}"}
    except SyntaxError as error:
        line = error.lineno if error.filename == file_name else _line(error, file_name)
        return {"line": line, "error": f"{type(error).__name__}: {error.msg}"}
    except BaseException as error:
        # Whatever a generator raises is its failure, and is reported as such.
        return {"line": _line(error, file_name), "error": f"{type(error).__name__}: {error}".rstrip(": ")}
    return None


def _line(error: BaseException, file_name: str) -> int | None:
    """Return the line of the innermost frame that is in the generator."""
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == file_name:
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def main(arguments: list[str]) -> int:
    """Run the generator named first and return 0, or 1 with a report."""
    program, report = Path(arguments[0]), Path(arguments[1])
    install_as_aie()
    failure = run(program)
    if failure is None:
        return 0
    report.write_text(json.dumps(failure), encoding="utf-8")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The `elfkiln` command: a table of verbs (`elfkiln.cli.verbs`) and one module per verb."""

from __future__ import annotations

import gc as garbage  # one of the verbs beside this is called gc
import os
import sys

from elfkiln.io.terminal import answering


def command() -> None:
    """Run the verb of the command line and end the process with its exit code."""
    code = main()
    if "elfkiln.cli.dispatch" not in sys.modules:
        # A kept answer said everything: taking the interpreter down in order would take a fifth of the whole time.
        os._exit(code)
    sys.exit(code)


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 something missing or differing, 2 usage or refused input."""
    words = sys.argv[1:] if argv is None else argv
    return answering(lambda: _run(words))


def _run(words: list[str]) -> int:
    code = _answered(words)
    if code is not None:
        return code
    from elfkiln.cli.dispatch import dispatch

    return dispatch(words)


def _answered(words: list[str]) -> int | None:
    """Return the exit code where a kept answer says everything, None where the verb has to work."""
    if not words or words[0] not in ("check-missing", "elfs"):
        return None
    if words[0] == "elfs":
        from elfkiln.work.fast_elfs import main as fast
    else:
        from elfkiln.work.fast_check import main as fast
    # What an answer holds lives until the process ends: looking for garbage in thousands of rows finds none, and takes
    # the longer the more there are.
    collecting = garbage.isenabled()
    garbage.disable()
    try:
        return fast(words[1:])
    finally:
        if collecting:
            garbage.enable()

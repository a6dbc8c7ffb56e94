"""The `elfkiln` command: a table of verbs (`elfkiln.cli.verbs`) and one module per verb."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code: 0 done, 1 something missing or differing, 2 usage or refused input."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in ("check-missing", "elfs"):
        try:
            answer = _answered(words[0], words[1:])
            sys.stdout.flush()
        except OSError as error:
            sys.stderr.write(f"elfkiln: {error.strerror or error}\n")
            return 1
        if answer is not None:
            return answer
    from elfkiln.cli.dispatch import dispatch

    return dispatch(words)


def _answered(verb: str, words: list[str]) -> int | None:
    """Return the exit code where a kept answer says everything, None where the verb has to work."""
    if verb == "elfs":
        from elfkiln.work.fast_elfs import main as fast
    else:
        from elfkiln.work.fast_check import main as fast
    return fast(words)

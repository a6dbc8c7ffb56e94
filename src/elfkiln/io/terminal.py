"""What a person reads: text without raw control characters, on streams that may be closed, full, or not UTF-8.

A path may hold an escape sequence, which a terminal would obey, or bytes that are not UTF-8, which no stream takes.
`answering` stands around every command, so that no place that prints has to think of it. Nothing is imported here that
the fast path of `check-missing` does not have already.
"""

from __future__ import annotations

import os
import sys

from elfkiln.errors import EXIT_DIFFERS, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

_STANDARD = 3


def plain(text: object) -> str:
    r"""Return a text with everything that does not print as escapes; line ends and tabs stay.

    >>> plain("a\x1b[2Jb\tc\n\udcff")
    'a\\x1b[2Jb\tc\n\\udcff'
    """
    shown = str(text)
    if shown.isascii() and shown.replace("\n", "").replace("\t", "").isprintable():
        return shown
    return "\n".join("\t".join(one_line(part) for part in line.split("\t")) for line in shown.split("\n"))


def tell(text: object) -> None:
    """Print a text on standard error if that can be done; whoever closed it does not want to know."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{_fitting(sys.stderr, text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


class PlainStream:
    """A stream that takes only what prints, and remembers when it took nothing: closed (None), full, or gone."""

    def __init__(self, stream: TextIO | None) -> None:
        """Take the stream of the process, None where it was closed before the process began."""
        self.raw = stream
        self.failure: OSError | None = None
        self.written = False

    def write(self, text: str) -> int:
        """Write a text; what cannot be encoded is escaped, and a failure is kept for the end of the command."""
        self.written = self.written or bool(text)
        if self.raw is not None and self.failure is None:
            try:
                self.raw.write(_fitting(self.raw, text))
            except OSError as error:
                self.failure = error
        return len(text)

    def flush(self) -> None:
        """Pass on what was written."""
        if self.raw is not None and self.failure is None:
            try:
                self.raw.flush()
            except OSError as error:
                self.failure = error

    def isatty(self) -> bool:
        """Whether a person looks on."""
        return self.raw is not None and self.raw.isatty()

    @property
    def lost(self) -> bool:
        """Whether something was written that nobody got."""
        return self.failure is not None or (self.written and self.raw is None)

    def __getattr__(self, name: str) -> Any:
        """Return anything else from the stream itself: `buffer` for bytes, `encoding`, `fileno`."""
        if self.raw is None:
            raise OSError("it is closed")
        return getattr(self.raw, name)


def _fitting(stream: TextIO, text: object) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return plain(text).encode(encoding, "backslashreplace").decode(encoding)


def answering(run: Callable[[], int]) -> int:
    """Run a command on plain streams and return its exit code; 1 where its answer was lost.

    That is said in one line if it can be said. Python, which flushes both streams when it ends and then would end with
    120, finds streams that take anything.
    """
    _hold_descriptors()
    before = sys.stdout, sys.stderr
    out, err = PlainStream(sys.stdout), PlainStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        code = run()
        out.flush()
        if out.lost:
            if not isinstance(out.failure, BrokenPipeError):
                reason = "closed" if out.failure is None else out.failure.strerror
                tell(f"elfkiln: standard output: {reason}; the answer is lost")
            code = max(code, EXIT_DIFFERS)
        err.flush()
        return max(code, EXIT_DIFFERS) if err.lost else code
    finally:
        sys.stdout, sys.stderr = before
        for name, stream in (("stdout", out), ("stderr", err)):
            if stream.failure is not None:
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _hold_descriptors() -> None:
    """Open the null device under a standard descriptor that is closed, so that no file of ours comes to lie there."""
    for number in range(_STANDARD):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given: this one.
            os.open(os.devnull, os.O_RDWR)

"""What a person reads: text without raw control characters, on streams that may be closed, full, or not UTF-8.

A path may hold an escape sequence, which a terminal would obey, or bytes that are no UTF-8, which no stream would take.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from elfkiln.errors import one_line


def plain(text: object) -> str:
    r"""Return a text with everything that does not print as escapes; line ends and tabs stay.

    >>> plain("a\x1b[2Jb\tc\n\udcff")
    'a\\x1b[2Jb\tc\n\\udcff'
    """
    return "\n".join("\t".join(one_line(part) for part in line.split("\t")) for line in str(text).split("\n"))


def say(text: object) -> None:
    """Print a text and a line end on standard output.

    Where that is closed, nothing is printed: `elfkiln.cli.dispatch` makes of it an exit code. Raises `OSError` when it
    cannot be written.
    """
    if sys.stdout is not None:
        _write(sys.stdout, f"{plain(text)}\n")


def tell(text: object) -> None:
    """Print a text on standard error if that can be done; whoever closed it does not want to know."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        _write(sys.stderr, f"{plain(text)}\n")
        sys.stderr.flush()


def _write(stream: TextIO, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def drop_broken_streams() -> None:
    """Put a stream that takes nothing in the place of standard output and error that cannot be flushed.

    Python flushes both when it ends, and ends with 120 when that fails.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115

"""The one picker of the line that says what went wrong, out of all that a program printed."""

from __future__ import annotations

import re

from elfkiln.errors import brief

NOTHING = "it said nothing"

_ERROR = re.compile(r"\b(?:fatal )?error\b", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last):"
_PIP_ERROR = "ERROR: "
_PIP_WARNING = "WARNING: "
_LONGEST = 300


def complaint(text: str, *, otherwise_all: bool = False) -> str:
    """Return the line of a program's output that reports an error, at most 300 characters of it.

    A traceback of Python says it last, and so does pip, whose `ERROR:` lines go from the general to the particular;
    compilers say it first, and what follows from it after. Where no line speaks of an error it is the last one, or with
    `otherwise_all` all of them but pip's warnings, joined.

    >>> complaint("reading\\nx.mlir:3:1: error: no such op\\nx.mlir:4:1: error: and so on\\n")
    'x.mlir:3:1: error: no such op'
    >>> complaint("Traceback (most recent call last):\\n  File ...\\nImportError: no error, but a name\\n\\n")
    'ImportError: no error, but a name'
    >>> complaint("Looking up\\nERROR: Could not find a version\\nERROR: No matching distribution found for a==1\\n")
    'No matching distribution found for a==1'
    >>> complaint("a 1 requires b.\\na 1 requires c.\\n", otherwise_all=True)
    'a 1 requires b.; a 1 requires c.'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    pip = [line.removeprefix(_PIP_ERROR) for line in lines if line.startswith(_PIP_ERROR)]
    errors = [line for line in lines if _ERROR.search(line) and not line.startswith(_PIP_WARNING)]
    if _TRACEBACK in lines:
        said = lines[-1]
    elif pip:
        said = pip[-1]
    elif errors:
        said = errors[0]
    elif otherwise_all:
        said = "; ".join(line for line in lines if not line.startswith(_PIP_WARNING))
    else:
        said = lines[-1] if lines else ""
    return brief(said or NOTHING, _LONGEST)

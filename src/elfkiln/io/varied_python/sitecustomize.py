"""Python under other conditions: loaded by each Python that starts with this folder on PYTHONPATH.

`reproduce` puts it there for what it rebuilds, so that a program whose output hangs on the order in which a folder is
listed is found out. `ELFKILN_LISTING` says which order: `forward` or `backward`, by name.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Any


class _Entries:
    """What `os.scandir` returns, in the order wanted."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._rest = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[Any]]:
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._rest)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        """Have nothing to close."""

    def close(self) -> None:
        """Have nothing to close."""


def _install(listdir: Callable[..., list[Any]], scandir: Callable[..., Any], *, backward: bool) -> None:
    def listed(*given: Any, **named: Any) -> list[Any]:
        return sorted(listdir(*given, **named), reverse=backward)

    def scanned(*given: Any, **named: Any) -> _Entries:
        with scandir(*given, **named) as entries:
            return _Entries(sorted(entries, key=lambda entry: entry.name, reverse=backward))

    os.listdir, os.scandir = listed, scanned  # type: ignore[assignment]


def _sleep(seconds: float) -> None:
    """Sleep by another call: libfaketime up to 0.9.10 hands the kernel a time before the epoch for `time.sleep`."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


if "FAKETIME" in os.environ:
    time.sleep = _sleep  # type: ignore[assignment]

if os.environ.get("ELFKILN_LISTING") in ("forward", "backward"):
    _install(os.listdir, os.scandir, backward=os.environ["ELFKILN_LISTING"] == "backward")

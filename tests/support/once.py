"""Work that the processes of a test run share: whoever comes first does it, the others wait and find it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def once(made: Path, make: Callable[[], object]) -> Path:
    """Return `made` after `make` was called, which lets it appear as the last thing it does, whole."""
    with FileLock(f"{made}.lock"):
        if not made.exists():
            make()
    return made

"""Installs and mirrors the pinned toolchain of a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from elfkiln.project import Project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.table import target_named

Note: TypeAlias = Callable[[str], None]
"""Takes each line that says what is being done."""


def _silent(_line: str) -> None:
    """Say nothing."""


def install_toolchain(
    project: Project, target: str, wheels: Path | None = None, note: Note = _silent
) -> dict[str, object]:
    """Install a target's toolchain, or check it where there is nothing to install, and return what is then there."""
    pin = read_lock(project.lock_file).target(target)
    found = target_named(pin.name).install(project, pin, wheels, note)
    return {"target": target, "digest": pin.digest, "versions": found.versions}


def mirror_toolchain(
    project: Project, target: str, wheels: Path | None = None, note: Note = _silent
) -> dict[str, object]:
    """Store the wheels of a target's toolchain as blobs and return what the mirror holds."""
    pin = read_lock(project.lock_file).target(target)
    result: dict[str, object] = target_named(pin.name).mirror(project, pin, wheels, note).to_json()
    return result

"""Which folders this checkout has installed into: remembered below out/, so that fsck can look at them again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from elfkiln.errors import Refused
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.files import write_atomic
from elfkiln.io.reading import read_bytes
from elfkiln.project import Project

_LONGEST = 4096


def remember_folder(project: Project, folder: Path) -> None:
    """Remember a folder that was installed into; where nothing can be written it is not."""
    path = os.fsencode(folder.resolve())
    note = project.installs / sha256_hex(path)
    if not note.exists():
        with contextlib.suppress(Refused):
            write_atomic(note, path)


def known_folders(project: Project) -> tuple[Path, ...]:
    """Return the folders that were installed into and are still there, sorted."""
    try:
        notes = sorted(os.listdir(project.installs))
    except OSError:
        return ()
    found = set()
    for name in notes:
        try:
            data = read_bytes(project.installs / name, _LONGEST)
        except OSError:
            continue
        # A note is named by its bytes, so a damaged one leads nowhere.
        if sha256_hex(data) == name and os.path.isdir(data):
            found.add(Path(os.fsdecode(data)))
    return tuple(sorted(found))

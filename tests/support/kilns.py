"""A project that is built by the stand-in, to be copied for each test that damages it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.build import build_elfs
from projects import StandInBuilder, make_project


def built_kiln(root: Path) -> Project:
    """Return a project below `root` whose model `tiny` is built by the stand-in."""
    project = make_project(root)
    assert build(project).exit_code == 0
    return project


def builder_of(project: Project, **words) -> StandInBuilder:
    """Return a stand-in builder for a project."""
    return StandInBuilder(read_lock(project.lock_file).target(), **words)


def build(project: Project, **words):
    """Build the model `tiny` with a stand-in and return the report."""
    return build_elfs(project, builder_of(project, **words), [model_requirements(project, "tiny")], jobs=1)


def copy_kiln(project: Project, root: Path) -> Project:
    """Copy a built project, so that a test may damage it."""
    shutil.copytree(project.root, root, symlinks=True)
    return Project(root)


def overwrite(path: Path, data: bytes) -> None:
    """Put other bytes into a file that is read-only, in place: its links see them too."""
    os.chmod(path, 0o644)
    path.write_bytes(data)


def flip(path: Path, position: int = 0) -> None:
    """Flip one bit of a file in place."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    overwrite(path, bytes(data))

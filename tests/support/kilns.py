"""Projects that are built, once in a run: by the stand-in and by the real tools, to be copied and then damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.build import build_elfs
from once import once
from projects import TINY_NAMES, TINY_RECIPES, StandInBuilder, make_project

LEAN_NAMES, LEAN_RECIPES = 4, 2


def built_kiln(root: Path) -> Project:
    """Return a project below `root` whose model `tiny` is built by the stand-in."""
    project = make_project(root)
    assert build(project).exit_code == 0
    return project


def sim_built_kiln(folder: Path) -> Project:
    """Return the project below a folder that processes share whose model `tiny` the real tools built for target sim."""
    from elfkiln.targets.table import builder_for

    project, done = Project(folder / "sim-kiln" / "project"), folder / "sim-kiln.done"

    def make() -> None:
        make_project(project.root)
        report = build_elfs(project, builder_for(project, "sim"), [model_requirements(project, "tiny")])
        assert (report.exit_code, report.names, report.recipes) == (0, TINY_NAMES, TINY_RECIPES)
        done.touch()

    once(done, make)
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


def keep_rows(project: Project, *roles: str) -> Project:
    """Leave only the rows of some roles in the model `tiny`: what is built for it takes so much less time."""
    table = project.root / "plans" / "tiny" / "roles.yaml"
    lines = table.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "{role: " not in line or any(f"role: {role}," in line for role in roles)]
    assert len(kept) == len(lines) - 4 + len(roles)
    table.write_text("".join(kept))
    return project


def lean_copy(sim_kiln: Project, root: Path) -> Project:
    """Copy what is built for sim with one geometry under two names: at M = 128 and 16 that is 4 names, 2 recipes."""
    from elfkiln.targets.table import builder_for

    project = keep_rows(copy_kiln(sim_kiln, root), "G", "U")
    project.registry_file.unlink()
    report = build_elfs(project, builder_for(project, "sim"), [model_requirements(project, "tiny")])
    assert (report.names, report.recipes, len(report.registered)) == (LEAN_NAMES, LEAN_RECIPES, LEAN_NAMES)
    return project


def overwrite(path: Path, data: bytes) -> None:
    """Put other bytes into a file that is read-only, in place: its links see them too."""
    os.chmod(path, 0o644)
    path.write_bytes(data)


def flip(path: Path, position: int = 0) -> None:
    """Flip one bit of a file in place."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    overwrite(path, bytes(data))

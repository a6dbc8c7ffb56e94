"""What killed processes left in a project: unfinished files and private folders, wherever elfkiln makes such."""

from __future__ import annotations

from elfkiln.io.workspace import sweep, sweep_files
from elfkiln.project import Project
from elfkiln.store.blobs import Store


def sweep_project(project: Project) -> int:
    """Remove what dead writers left, and return how many things went; what a living process works on stays."""
    generations = project.generations
    return sweep(project.work) + sweep_files(
        project.root,
        Store(project.store).scratch,
        generations,
        generations / "registries",
        project.installs,
        project.cache / "recipes",
    )

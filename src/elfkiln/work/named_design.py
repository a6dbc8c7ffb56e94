"""The design behind what a person names: a file of generic MLIR, or a registered artifact name."""

from __future__ import annotations

from pathlib import Path

from elfkiln.design.model import Design
from elfkiln.design.reader import MAX_CHARACTERS, read_design
from elfkiln.errors import Refused, did_you_mean
from elfkiln.io.reading import read_text
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry


def design_text(project: Project, target: str, text: str) -> str:
    """Return the generic MLIR that `text` names.

    A name ending in `.elf` is looked up in the registry of `target` and read from the store, its digest checked;
    anything else is a file's path. Raises `Refused` when there is neither.
    """
    if not text.endswith(".elf"):
        return read_text(text, limit=MAX_CHARACTERS, remedy="give the generic MLIR of a design")
    entries = load_registry(project.registry_file).entries(target)
    entry = entries.get(text)
    if entry is None:
        near = did_you_mean(text, entries, cutoff=0.9)
        raise Refused(
            f"{text}: not registered for target {target}{near}; build it with doit elfs, or give a DESIGN.mlir"
        )
    return Store(project.store).read(entry.design).decode()


def named_design(project: Project, target: str, text: str) -> Design:
    """Return the design that `text` names; raises `Refused` as `design_text` and the reader do."""
    return read_design(design_text(project, target, text), name=Path(text).name)

"""The models below plans/, and how much of each is registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elfkiln.errors import ElfkilnError
from elfkiln.models.catalogue import all_models
from elfkiln.project import Project
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.asked import asked_by_model
from elfkiln.work.lookup import lookup_set


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model: its layout, how many names it asks for and how many of them are registered.

    `refused` is the line that says why it cannot be asked for; the rest is then empty.
    """

    model: str
    layout: str = ""
    names: int = 0
    registered: int = 0
    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        if self.refused is not None:
            return {"model": self.model, "refused": self.refused}
        return {"model": self.model, "layout": self.layout, "names": self.names, "registered": self.registered}


def list_models(project: Project, target: str | None = None) -> tuple[ListedModel, ...]:
    """Return every model below plans/, sorted; a refused one has its reason. Raises `Refused` for an unknown target."""
    chosen = read_lock(project.lock_file).target(target).name
    entries = load_registry(project.registry_file).entries(chosen)
    return tuple(_listed(project, model, chosen, entries) for model in all_models(project))


def _listed(project: Project, model: str, target: str, entries: Mapping[str, Entry]) -> ListedModel:
    try:
        asked = asked_by_model(project, model, target=target)
        found = lookup_set(project, target, asked.wanted, entries)
    except ElfkilnError as error:
        return ListedModel(model, refused=str(error))
    registered = sum(row.entry is not None for row in found)
    return ListedModel(model, asked.wanted.layout, len(found), registered)

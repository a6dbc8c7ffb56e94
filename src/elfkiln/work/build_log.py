"""What the tools said when an ELF was built: of one that was made the store keeps it, of one that failed out/logs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import ElfkilnError, refusal
from elfkiln.io.files import storage_refusal, write_atomic
from elfkiln.models.catalogue import every_requirement
from elfkiln.project import Project
from elfkiln.store.artifacts import read_log
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work.jobs import registry_key

BUILT, FAILED, NONE = "built", "failed", "none"
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BuildLog:
    """The log of a name: `state` says of what, `none` that there is none; `reason` why the build failed."""

    name: str
    target: str
    state: str
    text: str = ""
    recipe: str | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        recipe = f"sha256:{self.recipe}" if self.recipe else None
        return {
            "name": self.name,
            "target": self.target,
            "state": self.state,
            "recipe": recipe,
            "reason": self.reason,
            "log": self.text,
        }

    @property
    def line(self) -> str:
        """What it is the log of, or why there is none."""
        if self.state == FAILED:
            return f"{self.name} (target {self.target}): the last build failed: {self.reason}"
        if self.state == BUILT:
            return f"{self.name} (target {self.target}): built as recipe sha256:{self.recipe}"
        where = "it was not built here" if self.recipe else "it was never built here"
        return f"{self.name} (target {self.target}): no log: {where}"


def keep_failed(project: Project, target: str, key: str, reason: str, text: str) -> None:
    """Keep how the build of a name failed, its first line the reason; what cannot be written is left out."""
    with contextlib.suppress(ElfkilnError, OSError):
        write_atomic(_file(project, target, key), f"{reason}\n{text}".encode("utf-8", "replace"))


def forget_failed(project: Project, target: str, key: str) -> None:
    """Remove what was kept of a failed build, because the name was built since."""
    with contextlib.suppress(OSError):
        _file(project, target, key).unlink(missing_ok=True)


def log_of(project: Project, target: str, name: str) -> BuildLog:
    """Return the log of a name or registry key: of its last build if that failed, else of its registered artifact.

    Raises `Refused` for a name that no model asks for, and for a log that cannot be read.
    """
    entries = load_registry(project.registry_file).entries(target)
    if name not in entries:
        name = _key(project, name)
    entry = entries.get(name)
    path = _file(project, target, name)
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise storage_refusal(path, error) from error
    else:
        reason, _, text = data.decode("utf-8", "replace").partition("\n")
        return BuildLog(name, target, FAILED, text, reason=reason)
    if entry is None:
        return BuildLog(name, target, NONE)
    found = read_log(Store(project.store), entry.recipe)
    return BuildLog(name, target, NONE if found is None else BUILT, found or "", entry.recipe)


def _key(project: Project, name: str) -> str:
    for wanted, need in every_requirement(project):
        key = registry_key(wanted, need)
        if name in (key, need.file_name):
            return key
    raise refusal("log", expected="a name that is registered, or that a model below plans/ asks for", found=name)


def _file(project: Project, target: str, key: str) -> Path:
    return project.logs / target / f"{key}.log"

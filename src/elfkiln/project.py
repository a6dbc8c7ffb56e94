"""Where things lie: the project folder and the folders below it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from elfkiln.errors import Refused

LOCK_FILE = "toolchain.lock"


@dataclass(frozen=True, slots=True)
class Project:
    """A checkout of elfkiln: every path a command uses hangs below `root`."""

    root: Path

    @property
    def plans(self) -> Path:
        """Folder of the models' plans and role tables."""
        return self.root / "plans"

    @property
    def out(self) -> Path:
        """Folder of everything built."""
        return self.root / "out"

    @property
    def store(self) -> Path:
        """The OCI image layout that holds the blobs."""
        return self.out / "registry"

    @property
    def registry_file(self) -> Path:
        """`registry.yaml`: names to digests, committed."""
        return self.root / "registry.yaml"

    @property
    def lock_file(self) -> Path:
        """`toolchain.lock`: the pinned toolchains by target."""
        return self.root / LOCK_FILE

    @property
    def kernels(self) -> Path:
        """Microkernel sources."""
        return self.root / "kernels"

    @property
    def templates(self) -> Path:
        """The jinja2 templates of the generators."""
        return self.root / "templates"

    @property
    def toolchains(self) -> Path:
        """Installed toolchains, by digest."""
        return self.out / "toolchains"


def find_project(start: str | os.PathLike[str] | None = None) -> Project:
    """Return the project that holds `start` (default: the current folder).

    The project is the nearest folder, upwards, with a toolchain.lock; the checkout this package runs from serves
    when there is none. Raises `Refused` when neither exists.
    """
    here = Path(start or os.curdir).resolve()
    for folder in (here, *here.parents):
        if (folder / LOCK_FILE).is_file():
            return Project(folder)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / LOCK_FILE).is_file():
        return Project(checkout)
    raise Refused(f"no {LOCK_FILE} in {here} or above it; run elfkiln inside its checkout, or name one with root=DIR")

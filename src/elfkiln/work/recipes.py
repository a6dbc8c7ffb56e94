"""From a rendered generator to its recipe: made by running it, or remembered from the last time.

The memo (out/cache/recipes) says which recipe came of a generator's text, the microkernel sources, the target's pin and
this package as it is. It is not a part of anything: deleting it costs the time to run the generators again.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elfkiln.errors import ElfkilnError
from elfkiln.families.family import RenderedGenerator
from elfkiln.io.byte_cache import ByteCache
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.project import Project
from elfkiln.store.recipe import SCHEMA, Recipe, recipe_of
from elfkiln.targets.target import Builder, Inputs, Say, Sources, silent

_SUFFIXES = (".py", ".c", ".h")
# What takes part in printing a design, beside this package; the tools of a target are in its pin.
_PACKAGES = ("xdsl", "numpy")
_RACE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Memo:
    """The remembered recipes of a project under one builder."""

    project: Project
    builder: Builder

    def find(self, generator: RenderedGenerator, package: str | None = None) -> Recipe | None:
        """Return the recipe that came of a generator, None when that is not known. Raises what reading sources does.

        `package` is what `package_digest` returned; who asks for many generators finds it out once.
        """
        key = self.key(generator, self.builder.sources(generator), package)
        try:
            data = self._cache.find(key) if key is not None else None
            table = json.loads(data) if data is not None else {}
        except (ElfkilnError, ValueError):
            return None
        return recipe_of(table) if isinstance(table, dict) and table.get("schema") == SCHEMA else None

    def tell(self, generator: RenderedGenerator, workdir: Path, say: Say = silent) -> Inputs:
        """Run the generator and return its compile inputs; the recipe is remembered. Raises what the builder does."""
        sources = self.builder.sources(generator)
        inputs = self.builder.inputs(generator, sources, workdir, say)
        # Last: where this package was edited meanwhile there is no key, and what it did before is not remembered.
        key = self.key(generator, sources)
        if key is not None:
            with contextlib.suppress(ElfkilnError):
                self._cache.keep(key, inputs.recipe.data)
        return inputs

    def key(self, generator: RenderedGenerator, sources: Sources, package: str | None = None) -> str | None:
        """Return the digest of everything that leads to a recipe, None when this process may be older than its code."""
        package = package or package_digest()
        if package is None:
            return None
        read = {
            "package": package,
            "target": self.builder.pin.name,
            "pin": self.builder.pin.digest,
            "generator": [
                generator.text,
                [[kernel.object_name, kernel.source, dict(kernel.defines)] for kernel in generator.kernels],
            ],
            "sources": sources.digest,
        }
        return sha256_hex(canonical_json(read))

    @property
    def _cache(self) -> ByteCache:
        return ByteCache(self.project.cache / "recipes", ".json")


def package_digest() -> str | None:
    """Return the digest of this package's sources and of the packages it prints designs with.

    None when a source was changed since this process began: what runs is then not what the file says.
    """
    root = Path(__file__).resolve().parents[1]
    states: list[tuple[str, os.stat_result]] = []
    try:
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                if name.endswith(_SUFFIXES):
                    path = os.path.join(folder, name)
                    states.append((path, os.stat(path)))
        newest = max(max(state.st_mtime, state.st_ctime) for _, state in states)
        if newest > _process_start() - _RACE_SECONDS:
            return None
        stamps = tuple((path, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for path, s in sorted(states))
        return _digest_of(root, stamps)
    except OSError:
        return None


@cache
def _digest_of(root: Path, stamps: tuple[tuple[str, int, int, int, int], ...]) -> str:
    # Many verbs work out no recipe, and would wait for this import.
    import importlib.metadata

    files = {os.path.relpath(path, root): sha256_hex(Path(path).read_bytes()) for path, *_ in stamps}
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return sha256_hex(canonical_json({"files": files, "python": platform.python_version(), **versions}))


@cache
def _process_start() -> float:
    """Return when this process began, in seconds since the epoch; now where the kernel does not say."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)
    except (OSError, ValueError, IndexError):
        return time.time()

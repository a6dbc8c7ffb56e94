"""The fence: imports between the folders of the package go one way, and file names say one thing each."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from projects import CHECKOUT

PACKAGE = CHECKOUT / "src" / "elfkiln"

# Folder -> what it may import from. The order is that of the flow; whatever is not named is refused.
ANYWHERE = {"errors", "project"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "project": {"errors"},
    "io": {"errors"},
    "hardware": {"io"},
    "engine": {"io", "hardware"},
    "design": {"io", "hardware", "engine"},
    "lint": {"io", "hardware", "engine", "design"},
    "families": {"io", "hardware", "engine", "design", "lint"},
    "models": {"io", "hardware", "engine"},
    "store": {"io", "engine", "families"},
    "targets": {"io", "hardware", "engine", "design", "lint", "families", "store"},
    "work": {"io", "hardware", "engine", "design", "lint", "families", "models", "store", "targets"},
    "studies": {"io", "hardware", "engine", "design", "families", "models"},
    "cli": {"io", "hardware", "engine", "design", "lint", "families", "models", "store", "targets", "work", "studies"},
}
# The entry point of `python -m elfkiln`.
TOP = {"__init__": set[str](), "__main__": {"cli"}}
# The stand-in mirrors the real package's module names, and a verb's module is named for the verb in work, studies and
# cli alike; every other file name occurs once.
MIRRORS = ("design/iron_sim/", "cli/")


def imports_of(source: str) -> list[str]:
    """Return the modules of the package that a source imports, anywhere in it, as dotted names below `elfkiln`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "elfkiln":
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elfkiln."):
            found.append(str(node.module).removeprefix("elfkiln."))
        elif isinstance(node, ast.Import):
            found += [alias.name.removeprefix("elfkiln.") for alias in node.names if alias.name.startswith("elfkiln.")]
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.append(f"relative import of {node.module}")
    return found


def breaches(place: str, source: str) -> list[str]:
    """Return what a file at `place` (relative to the package) imports that its folder may not."""
    folder = place.partition("/")[0].removesuffix(".py")
    allowed = {folder} | (
        TOP[folder] if folder in TOP else BELOW[folder] | (ANYWHERE if folder not in ANYWHERE else set())
    )
    return [f"{place}: {name}" for name in imports_of(source) if name.split(".")[0] not in allowed]


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_imports_go_one_way():
    assert [
        line for path in sources() for line in breaches(path.relative_to(PACKAGE).as_posix(), path.read_text())
    ] == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("design/reader.py", "from elfkiln.lint import lint"),
        ("design/reader.py", "from elfkiln import targets"),
        ("lint/flow.py", "import elfkiln.targets.sim.machine"),
        ("models/container.py", "from elfkiln.store.blobs import Store"),
        ("store/blobs.py", "def later():\n    from elfkiln.models.catalogue import all_models"),
        ("work/build.py", "from elfkiln.cli.arguments import Arguments"),
        ("io/files.py", "from elfkiln.project import Project\nfrom elfkiln.engine import contract"),
        ("studies/kv_gate.py", "from elfkiln.work.build import build_elfs"),
        ("work/build.py", "from .jobs import plan_jobs"),
    ],
)
def test_the_fence_fails_on_a_breach(place, line):
    assert len(breaches(place, line)) == 1


def test_every_folder_stands_in_the_table():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(BELOW) - ANYWHERE


def test_a_file_name_occurs_once():
    names = [
        path.name
        for path in sources()
        if path.name not in ("__init__.py", "__main__.py")
        and not path.relative_to(PACKAGE).as_posix().startswith(MIRRORS)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []

"""Every example in a docstring and in a page of docs/ runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import elfkiln
from projects import CHECKOUT, make_project

# iron_sim is imported as `aie` by a generator's own process only.
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(elfkiln.__path__, "elfkiln.", onerror=lambda _: None)
    if not info.name.startswith("elfkiln.design.iron_sim")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [importlib.import_module(name) for name in MODULES]
    assert sum(len(test.examples) for module in modules for test in finder.find(module)) > 50


PAGES = sorted(path.name for path in (CHECKOUT / "docs").glob("*.md") if "\n>>> " in path.read_text())


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_docs(page, tmp_path):
    """A page's examples run in order, in a checkout with the model `tiny` and an empty folder."""
    root, scratch = tmp_path / "checkout", tmp_path / "scratch"
    make_project(root)
    scratch.mkdir()
    names = {"root": str(root), "scratch": scratch}
    outcome = doctest.testfile(str(CHECKOUT / "docs" / page), module_relative=False, globs=names, encoding="utf-8")
    assert (outcome.failed, outcome.attempted > 10) == (0, True)


def test_the_library_has_a_page():
    assert "library.md" in PAGES

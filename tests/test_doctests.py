"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import elfkiln

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

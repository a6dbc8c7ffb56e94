"""Programs and packages that some tests drive: present on CI, skipped with their package's name elsewhere."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest

# Program -> Debian package. `.ci/run` installs them and sets ELFKILN_TEST_PROGRAMS, so that none is skipped there.
PACKAGES = {
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "bwrap": "bubblewrap",
    "faketime": "faketime",
    "chromium": "chromium",
    "openssl": "openssl",
}


def need_program(name: str) -> str:
    """Return a program's path; without it the test is skipped, or fails where CI promised all of them."""
    found = shutil.which(name)
    if found is None:
        _do_without(f"{name} is not installed (Debian package {PACKAGES[name]})")
    return found


def need_package(name: str, requirements: str = "requirements-remote.txt") -> ModuleType:
    """Import and return a package of an extra; without it the test is skipped, or fails on CI."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return _do_without(f"{name} is not installed ({requirements})")


def _do_without(text: str) -> NoReturn:
    if os.environ.get("ELFKILN_TEST_PROGRAMS"):
        pytest.fail(text)
    pytest.skip(text)

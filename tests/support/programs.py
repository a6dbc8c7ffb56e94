"""Programs of the system that some tests drive: present on CI, skipped with their package's name elsewhere."""

from __future__ import annotations

import os
import shutil

import pytest

# Program -> Debian package. `.ci/run` installs them and sets ELFKILN_TEST_PROGRAMS, so that none is skipped there.
PACKAGES = {
    "docker-registry": "docker-registry",
    "skopeo": "skopeo",
    "bwrap": "bubblewrap",
    "faketime": "faketime",
    "chromium": "chromium",
}


def need_program(name: str) -> str:
    """Return a program's path; without it the test is skipped, or fails where CI promised all of them."""
    found = shutil.which(name)
    if found is not None:
        return found
    text = f"{name} is not installed (Debian package {PACKAGES[name]})"
    if os.environ.get("ELFKILN_TEST_PROGRAMS"):
        pytest.fail(text)
    pytest.skip(text)

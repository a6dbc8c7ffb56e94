"""The fixtures that tests share."""

from __future__ import annotations

import pytest

from elfkiln.store.toolchain_lock import read_lock
from projects import StandInBuilder, make_project


@pytest.fixture
def project(tmp_path):
    """A fresh project with the model `tiny`."""
    return make_project(tmp_path / "project")


@pytest.fixture
def stand_in(project):
    """A stand-in builder for the project's default target."""
    return StandInBuilder(read_lock(project.lock_file).target())


@pytest.fixture(scope="session")
def simulator(tmp_path_factory):
    """What builds and runs sim ELFs, with one cache of objects for the whole session."""
    from simulating import Simulator

    return Simulator.below(tmp_path_factory.mktemp("simulator"))

"""The fixtures that tests share."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from elfkiln.store.toolchain_lock import read_lock
from projects import StandInBuilder, make_project

# The same examples in every run: a change is what makes a test fail, not a day.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")


def pytest_xdist_auto_num_workers(config):  # noqa: ARG001 the hook's own parameter
    """Two workers a core: a test waits for the programs it runs about half of its time."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.fixture(scope="session", autouse=True)
def unwaiting():
    """No test pulls the plug, so none needs to wait for the disk; a build of 6 ELFs waits for it a hundred times."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


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


@pytest.fixture(scope="session")
def client_programs(shared_folder):
    """The C programs around client/elfkiln.h, each built once in a run."""
    from client_programs import Programs

    folder = shared_folder / "client"
    folder.mkdir(exist_ok=True)
    return Programs(folder)


@pytest.fixture(scope="session")
def probe(client_programs):
    """The program that opens folders and ELFs through client/elfkiln.h, its undefined behaviour trapped."""
    from client_programs import SOURCES, TRAPS, Probe

    return Probe(client_programs.build(SOURCES / "probe.c", *TRAPS))


@pytest.fixture
def client_folder(tmp_path):
    """A model folder as `install` leaves it, made by hand: plan.json, ELFs of random bytes, kernels.lock.json."""
    from client_sets import make_set

    return make_set(tmp_path / "model")

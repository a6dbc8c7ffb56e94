"""The fixtures that tests share."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

from elfkiln.project import LOCK_FILE
from elfkiln.store.toolchain_lock import read_lock
from projects import CHECKOUT, StandInBuilder, make_project

# A product of small matrices takes one thread a hundredth of what two take that wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# The same examples in every run: a change is what makes a test fail, not a day.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")


def pytest_xdist_auto_num_workers(config):  # noqa: ARG001 the hook's own parameter
    """Two workers a core: a test waits for the programs it runs about half of its time."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_configure(config):
    """Let each worker begin to collect elsewhere: what one has compiled, the others need not compile again."""
    if config.args == ["tests"] and (worker := os.environ.get("PYTEST_XDIST_WORKER")):
        files = sorted(str(path) for path in (config.rootpath / "tests").rglob("test_*.py"))
        start = len(files) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        config.args[:] = files[start:] + files[:start]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep what is compiled, even where PYTHONDONTWRITEBYTECODE is set: it is half of what collecting takes."""
    was, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = was


def pytest_collection_modifyitems(items):
    """Put the tests into the same order in every worker."""
    items.sort(key=lambda item: item.path)


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


@pytest.fixture(scope="session")
def tiny_kiln(tmp_path_factory):
    """A project whose model `tiny` the stand-in has built. Nobody changes it: `built` is a copy."""
    from kilns import built_kiln

    return built_kiln(tmp_path_factory.mktemp("kiln") / "project")


@pytest.fixture
def built(tiny_kiln, tmp_path):
    """A project whose model `tiny` the stand-in has built, the test's own."""
    from kilns import copy_kiln

    return copy_kiln(tiny_kiln, tmp_path / "project")


@pytest.fixture(scope="session")
def sim_kiln(shared_folder):
    """A project whose model `tiny` is built for target sim by the real tools, once in a run. Nobody changes it."""
    from kilns import sim_built_kiln

    return sim_built_kiln(shared_folder)


@pytest.fixture
def stand_in():
    """A stand-in builder for the default target of a project."""
    return StandInBuilder(read_lock(CHECKOUT / LOCK_FILE).target())


@pytest.fixture(scope="session")
def simulator(shared_folder):
    """What builds and runs sim ELFs, with one cache of objects for the whole run."""
    from simulating import Simulator

    return Simulator.below(shared_folder / "simulator")


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

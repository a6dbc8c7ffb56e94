"""What `reproduce` says of toolchains that are deterministic and of those that are not."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import unsteady
from elfkiln.cli.json_forms import FORMS, misfit
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.io import variation
from elfkiln.io.canonical import sha256_hex
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.artifacts import find_artifact
from elfkiln.store.blobs import Store
from elfkiln.store.registry import dump_registry, load_registry
from elfkiln.work.asked import named_only
from elfkiln.work.build import build_elfs
from elfkiln.work.conditions import DIMENSIONS, NONE_OF_THESE, OTHER, PLAIN, RANDOM, THREADS, find_causes
from elfkiln.work.rebuilding import committed
from elfkiln.work.reproduce import reproduce
from programs import need_program
from projects import TINY_NAMES, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"


def one(project):
    """The one name that most tests rebuild."""
    return named_only([model_requirements(project, "tiny")], [QKV])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project whose QKV a steady stand-in built."""
    project = make_project(tmp_path_factory.mktemp("reproduce") / "project")
    assert build_elfs(project, unsteady.steady(project, "sim"), one(project)).exit_code == 0
    return project


@pytest.fixture
def here(built, tmp_path):
    shutil.copytree(built.root, tmp_path / "here")
    return Project(tmp_path / "here")


def built_by(make, root):
    """A project whose QKV an unsteady toolchain built, once."""
    project = make_project(root / "project")
    assert build_elfs(project, make(project, "sim"), one(project)).exit_code == 0
    return project


def test_a_steady_toolchain_comes_to_the_same_bytes(built):
    done = reproduce(built, "sim", [model_requirements(built, "tiny")], builder=unsteady.steady)
    states = {name.key: name.state for name in done.names}
    assert states.pop(QKV) == "same"
    # What registry.yaml does not have cannot be compared, and is not passed over.
    assert set(states.values()) == {"not-registered"}
    assert len(states) == TINY_NAMES - 1
    assert (done.rebuilt, done.exit_code) == (TINY_NAMES, EXIT_DIFFERS)
    # Every condition was another than the plain one's.
    assert all(getattr(done.conditions, name) != getattr(PLAIN, name) for name in DIMENSIONS if name != "clock")
    assert not (built.out / "reproduce" / QKV).exists()
    assert misfit(json.loads(json.dumps(done.to_json())), FORMS["reproduce"][0]) is None


@pytest.mark.parametrize(
    ("make", "causes"),
    [
        (unsteady.by_clock_and_path, ("the clock", "the path of the folder it is built in")),
        (unsteady.by_chance, (RANDOM,)),
        (unsteady.by_threads, (THREADS,)),
    ],
    ids=["time and path", "random", "threads"],
)
def test_an_unsteady_toolchain_is_caught_and_named(tmp_path, make, causes):
    need_program("faketime")
    project = built_by(make, tmp_path)
    done = reproduce(project, "sim", one(project), builder=make)
    (found,) = done.names
    assert (found.state, found.causes, done.exit_code) == ("other-bytes", causes, EXIT_DIFFERS)
    # The stand-in's ELF has no sections: the first byte that differs is the first behind its text.
    was = Store(project.store).read(found.registered.elf)
    now = (project.root / found.kept / "rebuilt.elf").read_bytes()
    assert sha256_hex(now) == found.found.elf != found.registered.elf
    at = next(place for place, (a, b) in enumerate(itertools.zip_longest(was, now)) if a != b)
    assert f"the first at {at:#x}" in found.difference[0]
    assert (project.root / found.kept / "registered.elf").read_bytes() == was
    assert [line.strip() for line in done.lines() if "it hangs on" in line] == [
        f"it hangs on {cause}" for cause in causes
    ]


def test_a_design_that_hangs_on_the_clock_is_not_taken_for_an_edit(tmp_path):
    need_program("faketime")
    project = built_by(unsteady.design_by_clock, tmp_path)
    (found,) = reproduce(project, "sim", one(project), builder=unsteady.design_by_clock).names
    assert (found.state, found.causes) == ("other-inputs", ("the clock",))
    (change,) = found.changes
    assert (change.input, change.line[0], change.line[1]) == ("stamp.o: stamp", 2, "2030")  # PLAIN's clock
    # 2468 days ahead of now.
    assert int(change.line[2]) == (datetime.now(UTC) + timedelta(days=2468)).year


def test_an_edited_input_is_named_with_its_line(here):
    template = here.templates / "n1_blocked.py.j2"
    assert template.is_file()
    old = template.read_text().splitlines()
    template.write_text("# an edit\n" + "\n".join(old) + "\n")
    done = reproduce(here, "sim", one(here), builder=unsteady.steady)
    (found,) = done.names
    assert (found.state, done.exit_code) == ("recipe-changed", EXIT_DIFFERS)
    assert misfit(json.loads(json.dumps(done.to_json())), FORMS["reproduce"][0]) is None
    (change,) = found.changes
    assert change.input == "out.elf: generator.py"
    assert change.line[0] == 1
    assert change.line[2] == "# an edit"
    assert found.causes == ()


def test_another_toolchain_is_told_from_an_unsteady_one(here):
    """The recipe is the same, the bytes are others, and they stay the same whatever the conditions are."""
    registry = load_registry(here.registry_file)
    entry = registry.entries("sim")[QKV]
    store = Store(here.store)
    data = store.read(entry.elf) + b"of another machine"
    other = replace(entry, elf=store.add_bytes(data), size=len(data))
    here.registry_file.write_bytes(dump_registry(registry.with_entries("sim", {QKV: other})))
    (found,) = reproduce(here, "sim", one(here), builder=unsteady.steady).names
    assert (found.state, found.causes) == ("other-bytes", (NONE_OF_THESE,))
    at = len(data) - 18
    places = f"18 bytes differ, the first at {at:#x}"
    assert found.difference == (f"{places}: was {data[at - 8 :]!r}, is {data[at - 8 : at]!r}",)


def test_a_run_that_rebuilt_nothing_is_a_failure(here):
    done = reproduce(here, "sim", one(here), builder=unsteady.that_builds_nothing)
    assert (done.rebuilt, done.exit_code) == (0, EXIT_DIFFERS)
    assert [name.state for name in done.names] == ["not-rebuilt"]
    assert "nothing was rebuilt" in done.lines()[-1]
    assert reproduce(here, "sim", [], builder=unsteady.steady).exit_code == EXIT_DIFFERS


def test_what_came_out_the_same_can_enter_the_store(here, monkeypatch):
    # A stand-in's ELF is none of target sim.
    monkeypatch.setattr("elfkiln.work.take_artifact.check_elf", lambda *_: None)
    entry = load_registry(here.registry_file).entries("sim")[QKV]
    shutil.rmtree(here.out)
    assert reproduce(here, "sim", one(here), take=True, builder=unsteady.steady).exit_code == EXIT_DONE
    artifact = find_artifact(Store(here.store), entry.recipe)
    assert artifact is not None
    assert (artifact.elf, artifact.manifest) == (entry.elf, entry.manifest)
    assert build_elfs(here, unsteady.steady(here, "sim"), one(here)).up_to_date == (QKV,)


def test_without_the_registered_bytes_the_digests_still_differ(here, monkeypatch):
    monkeypatch.setattr("elfkiln.work.reproduce.find_causes", lambda *_, **__: ("looked for",))
    registry = load_registry(here.registry_file)
    other = replace(registry.entries("sim")[QKV], elf="1" * 64)
    here.registry_file.write_bytes(dump_registry(registry.with_entries("sim", {QKV: other})))
    shutil.rmtree(here.out)
    (found,) = reproduce(here, "sim", one(here), builder=unsteady.steady).names
    assert (found.state, found.causes) == ("other-bytes", ("looked for",))
    assert found.reason.startswith("its registered bytes are not in the store, and under plain conditions")


# --- causes, by builds that are none ------------------------------------------------------------------------------


def depends_on(*names):
    """A build whose output is what these conditions are; counts how often it is called."""

    def build(conditions):
        build.calls += 1
        return repr([getattr(conditions, name) for name in names])

    build.calls = 0
    return build


@pytest.mark.parametrize("name", DIMENSIONS)
def test_each_condition_is_found_alone(name):
    assert find_causes(depends_on(name), clock=True) == (DIMENSIONS[name],)


def test_two_causes_are_both_found_and_what_explains_all_ends_the_search():
    build = depends_on("folder", "umask")
    assert find_causes(build, clock=True) == (DIMENSIONS["folder"], DIMENSIONS["umask"])
    first = depends_on("clock")
    find_causes(first, clock=True)
    # Two plain builds, all together, the clock alone, and all but the clock.
    assert first.calls == 5


def test_causes_that_only_come_together_are_said_to():
    def build(conditions):
        return str(conditions.locale == OTHER.locale and conditions.umask == OTHER.umask)

    assert find_causes(build, clock=True) == ("several conditions together: each alone changes nothing",)


def test_without_faketime_the_clock_is_not_accused_and_not_cleared():
    numbers = itertools.count()
    (cause,) = find_causes(lambda _: str(next(numbers)), clock=False)
    assert "or the clock: faketime is not installed" in cause
    assert find_causes(depends_on("clock"), clock=False) == (NONE_OF_THESE,)


# --- what is rebuilt from -----------------------------------------------------------------------------------------


def test_of_a_git_checkout_what_a_clone_would_have_is_taken(tmp_path):
    git = shutil.which("git")
    if git is None:
        pytest.fail("git is not installed, and every checkout is its work")
    project = make_project(tmp_path / "p")
    assert committed(project) == (None, ())
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"]):
        subprocess.run([git, *words], cwd=project.root, env=environment, check=True)
    (project.templates / "stray.j2").write_text("never added")
    (project.root / "toolchain.lock").write_text((project.root / "toolchain.lock").read_text() + "\n")
    files, uncommitted = committed(project)
    assert "toolchain.lock" in files
    assert "templates/stray.j2" not in files
    assert uncommitted == ("templates/stray.j2", "toolchain.lock")


def test_a_caller_cannot_vary_a_build(monkeypatch, capsys):
    from elfkiln.cli import main

    monkeypatch.setenv(variation.VARIABLE, json.dumps({"LC_ALL": "tr_TR.UTF-8"}))
    assert variation.varied({"A": "1"}) == {"A": "1", "LC_ALL": "tr_TR.UTF-8"}
    assert main(["frobnicate"]) == 2
    assert variation.varied({"A": "1"}) == {"A": "1"}
    capsys.readouterr()

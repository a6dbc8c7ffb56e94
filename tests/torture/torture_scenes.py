"""What is tortured: small projects, and what a command does to each, with everything that is right about the end."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from elfkiln.errors import Differs, ElfkilnError
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.recipe import Step, make_recipe
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.target import Inputs, silent
from elfkiln.work.archive import export_sets, import_sets
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build import build_elfs
from elfkiln.work.fsck import fsck
from elfkiln.work.gc import collect
from elfkiln.work.generations import roll_back
from elfkiln.work.install import install
from elfkiln.work.jobs import generator_of
from elfkiln.work.registry_check import check_registry
from elfkiln.work.repair import repair
from elfkiln.work.take_set import take_set
from projects import CHECKOUT, StandInBuilder, StandInElf

ROLES = """\
schema: elfkiln-roles/1
model: tiny
source: made for the tests
hidden: 256
intermediate: 512
layers:
  full: 1
layout: b8
decode: false
rows:
  - {role: G, K: 256, N: 512, columns: 2}
  - {role: U, K: 256, N: 512, columns: 2}
  - {role: D, K: 512, N: 256, columns: 2}
"""
NAMES, RECIPES = 3, 2
OLD, NEW = "1", "2"


@dataclass
class SmallBuilder(StandInBuilder):
    """A stand-in whose compile input and ELF are a hundred bytes: what is flipped byte by byte should be few."""

    def inputs(self, generator, sources, workdir, say=silent):  # noqa: ARG002
        """Take the text's digest for what is compiled."""
        text = hashlib.sha256(generator.text.encode()).hexdigest().encode()
        steps = (Step("out.elf", ("stand-in",), {"generator.py": text, **sources.files}),)
        return Inputs(make_recipe(self.pin.name, {"stand-in": self.pin.digest}, steps), steps, "module {}", generator)

    def compile(self, inputs, workdir, say=silent):
        """Write digest and sizes; the source makes other bytes."""
        built = super().compile(inputs, workdir, say)
        data = built.elf.read_bytes()
        sizes = [one for one in (b"256", b"512") if one in data]
        digest = hashlib.sha256(data + self.source.encode()).hexdigest().encode()
        built.elf.write_bytes(b"\x7fELF" + b" ".join(sizes) + digest)
        return built


def builder_of(project, source=NEW):
    """Return the builder of some sources."""
    return SmallBuilder(read_lock(project.lock_file).target(), source=source * 64)


def build(project, source=NEW):
    """Build the model; raises the first failure."""
    report = build_elfs(project, builder_of(project, source), [model_requirements(project, "tiny")], jobs=1)
    for failure in report.failures:
        raise Differs(f"{failure.key}: {failure.reason}")
    return report


def make_small(root):
    """Make a project whose sources are links to the checkout's."""
    (root / "plans" / "tiny").mkdir(parents=True)
    for name in ("generators", "templates", "kernels"):
        (root / name).symlink_to(CHECKOUT / name)
    shutil.copy(CHECKOUT / "toolchain.lock", root / "toolchain.lock")
    (root / "plans" / "tiny" / "roles.yaml").write_text(ROLES)
    return Project(root)


@contextlib.contextmanager
def stand_ins():
    """Let whatever opens an ELF by its target's name take those of the stand-in, and render each generator once.

    Rendering reads nothing that is tortured, and would take most of the time.
    """
    rendered = {}

    def generator(project, requirements, need):
        if need.file_name not in rendered:
            rendered[need.file_name] = generator_of(project, requirements, need)
        return rendered[need.file_name]

    def check(store, _target, artifact, names):
        StandInElf(store.path(artifact.elf).read_bytes())
        assert names

    with (
        mock.patch("elfkiln.work.take_artifact.check_elf", check),
        mock.patch("elfkiln.work.jobs.generator_of", generator),
    ):
        yield


def sha256(path):
    """Hash a file by hand."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class World:
    """The prepared folders of all scenes, and which bytes are right under each name."""

    folder: Path
    right: dict[str, set[str]] = field(default_factory=dict)
    archive: bytes = b""

    @classmethod
    def make(cls, folder):
        """Make it."""
        world = cls(folder)
        base = make_small(folder / "empty" / "project")
        for name in ("built", "both"):
            shutil.copytree(base.root, folder / name / "project", symlinks=True)
        built, both = (Project(folder / name / "project") for name in ("built", "both"))
        build(built, OLD)
        world.learn(built)
        build(both, OLD)
        install(both, "sim", model_requirements(both, "tiny"), folder / "both" / "model")
        shutil.rmtree(both.installs)  # it names this folder, and copies have their own
        build(both, NEW)
        world.learn(both)
        sink = io.BytesIO()
        export_sets(both, [asked_by_model(both, "tiny")], sink)
        world.archive = sink.getvalue()
        return world

    def learn(self, project):
        """Take what a sound build has registered for right."""
        for key, entry in load_registry(project.registry_file).entries("sim").items():
            assert sha256(project.blobs / entry.elf) == entry.elf
            self.right.setdefault(key, set()).add(entry.elf)

    def copy(self, name, place):
        """Return a project to work on, with the folder `model` beside it where the scene has one."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder / name, place, symlinks=True)
        return Project(place / "project")

    def wrong(self, project):
        """Return everything that is wrong with what a project would serve, which nothing may ever make so."""
        found = []
        try:
            entries = load_registry(project.registry_file).entries("sim")
        except ElfkilnError as error:
            return [f"registry.yaml cannot be read: {error}"]
        found += [
            f"{key}: {one.elf[:12]} is registered" for key, one in entries.items() if not self.is_right(key, one.elf)
        ]
        for path in project.blobs.iterdir() if project.blobs.is_dir() else ():
            if len(path.name) == 64 and sha256(path) != path.name:
                found.append(f"blob {path.name[:12]} has other bytes")
        return found + self.wrong_files(project.root.parent / "model")

    def wrong_names(self, project):
        """Return the registered names whose ELFs are not there with bytes that may stand under them."""
        entries = load_registry(project.registry_file).entries("sim")
        return [
            f"{key}: {one.elf[:12]} is not its ELF"
            for key, one in entries.items()
            if not self.is_right(key, one.elf) or sha256(project.blobs / one.elf) != one.elf
        ]

    @staticmethod
    def wrong_archive(data):
        """Return the blobs of an exported archive that are not what their names say."""
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            blobs = {one.name: archive.extractfile(one).read() for one in archive if "/sha256/" in one.name}
        return [name for name, blob in blobs.items() if hashlib.sha256(blob).hexdigest() != name.rpartition("/")[2]]

    def is_right(self, key, elf):
        """Whether an ELF may stand under a name."""
        return elf in self.right.get(key, ())

    def wrong_files(self, folder):
        """Return the installed files whose bytes are none that were ever right."""
        return [
            f"{path.name}: an installed file has other bytes"
            for path in sorted(folder.glob("kernels*/*.elf"))
            if not self.is_right(path.name, sha256(path))
        ]

    def serve(self, project, place):
        """Ask for the set as a user would, into a fresh folder; return what was wrong about the bytes that came."""
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(ElfkilnError):
            install(project, "sim", model_requirements(project, "tiny"), place)
        found = self.wrong_files(place)
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(project.installs, ignore_errors=True)
        return found


@dataclass(frozen=True)
class Scene:
    """A command: the prepared folder it begins with, and what it does. Done again, it comes to the same end."""

    name: str
    start: str
    act: Callable[[World, Project], object]
    damage: Callable[[Project], object] = lambda _project: None


class _FromArchive:
    """The archive's blobs as a registry would hand them out."""

    def __init__(self, project):
        self.store = Store(project.store)

    def pull_blob(self, digest, _size, sink):
        sink.write(self.store.read(digest))

    def manifest(self, digest):
        return self.store.read(digest)

    def referring(self, digest):
        return [
            one.digest
            for one in self.store.refs().values()
            if (self.store.manifest(one).get("subject") or {}).get("digest") == f"sha256:{digest}"
        ]


def _pull(world, project):
    from elfkiln.work.push import shipment_of

    source = Project(world.folder / "both" / "project")
    shipment = shipment_of(source, Store(source.store), [asked_by_model(source, "tiny")])
    take_set(project, _FromArchive(source), shipment.indexes[0][1], "the other kiln")


def _install(_world, project):
    install(project, "sim", model_requirements(project, "tiny"), project.root.parent / "model")


def _collect(_world, project):
    collect(project, delete=True, generations=0, grace=0)


def _lose(project):
    entries = load_registry(project.registry_file).entries("sim")
    first, second = (entries[key] for key in sorted(entries) if "_U_" not in key)
    os.chmod(project.blobs / first.elf, 0o644)
    (project.blobs / first.elf).write_bytes(b"other bytes")
    (project.blobs / second.design).unlink()


def _repair(_world, project):
    done = repair(project, fsck(project), lambda _target: builder_of(project))
    if done.left:
        raise Differs(done.left[0])


SCENES = {
    one.name: one
    for one in (
        Scene("build", "empty", lambda _, project: build(project)),
        Scene("rebuild", "built", lambda _, project: build(project)),
        Scene("install", "both", _install),
        Scene("gc", "both", _collect),
        Scene("fsck", "both", _repair, _lose),
        # Its names stand for other bytes, which a pull refuses: it is as if they had been taken out by hand.
        Scene("pull", "built", _pull, lambda project: project.registry_file.unlink()),
        Scene("import", "empty", lambda world, project: import_sets(project, io.BytesIO(world.archive), "archive")),
        Scene("rollback", "both", lambda _, project: roll_back(project, 1)),
        Scene("check", "both", lambda _, project: check_registry(project, str(project.registry_file))),
    )
}


def end_of(project):
    """Return all that is decided of a project's end: registry.yaml, the blobs, and the files that are installed."""
    model = project.root.parent / "model"
    registry = project.registry_file.read_bytes() if project.registry_file.exists() else b""
    blobs = {path.name for path in project.blobs.iterdir()} if project.blobs.is_dir() else set()
    files = {path.relative_to(model).as_posix(): sha256(path) for path in sorted(model.rglob("*")) if path.is_file()}
    return registry, blobs, files

"""A small project folder with the model `tiny`, and a builder that needs no compiler."""

# ruff: noqa: ARG002 what a protocol hands over need not be used

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from elfkiln.errors import BuildFailed, Differs, with_log
from elfkiln.models.catalogue import model_requirements
from elfkiln.project import Project
from elfkiln.store.recipe import Step, make_recipe
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.target import Built, Inputs, Sources, silent
from elfkiln.work.build import build_elfs

CHECKOUT = Path(__file__).resolve().parents[2]
SUPPORT = CHECKOUT / "tests" / "support"
# Objects of the runtime and the microkernels, by the digest of all they are made of: no test needs to make them again.
OBJECTS = CHECKOUT / "out" / "cache" / "test-objects"

TINY_ROLES = """\
schema: elfkiln-roles/1
model: tiny
source: made for the tests
hidden: 256
intermediate: 512
layers:
  full: 2
layout: b8
decode: true
rows:
  - {role: QKV, K: 256, N: 768, columns: 2}
  - {role: G, K: 256, N: 512, columns: 2}
  - {role: U, K: 256, N: 512, columns: 2}
  - {role: D, K: 512, N: 256, columns: 2}
"""
# QKV, G = U and D, each at M = 128 and M = 16: 8 names, 6 recipes.
TINY_NAMES = 8
TINY_RECIPES = 6


def make_project(root: Path) -> Project:
    """Make a project below `root` with the checkout's generators, templates, kernels and lock, and the model `tiny`."""
    root.mkdir(parents=True, exist_ok=True)
    for folder in ("generators", "templates", "kernels"):
        shutil.copytree(CHECKOUT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "toolchain.lock", root / "toolchain.lock")
    (root / "plans" / "tiny").mkdir(parents=True)
    (root / "plans" / "tiny" / "roles.yaml").write_text(TINY_ROLES)
    project = Project(root)
    OBJECTS.mkdir(parents=True, exist_ok=True)
    project.cache.mkdir(parents=True)
    (project.cache / "objects").symlink_to(OBJECTS)
    return project


@dataclass
class StandInBuilder:
    """A builder whose ELF is the generator's text: it needs no compiler, and can be told to fail."""

    pin: TargetPin
    own_processes: bool = False
    fail_for: str = ""
    no_output_for: str = ""
    killed_for: str = ""
    hangs_in: str = ""
    parts_in: str = ""
    suffix: bytes = b""
    built: list[str] = field(default_factory=list)
    source: str = "1" * 64

    def describe(self):
        """Return the tools' name."""
        return "stand-in 1.0"

    def prepare(self):
        """Need nothing."""

    def sources(self, generator):
        """Return one source."""
        return Sources({"stand-in": self.source.encode()})

    def inputs(self, generator, sources, workdir, say=silent):
        """Take the text for what is compiled."""
        kernels = ",".join(kernel.source for kernel in generator.kernels).encode()
        seen = {"generator.py": generator.text.encode(), "kernels": kernels, **sources.files}
        steps = (Step("out.elf", ("stand-in",), seen),)
        return Inputs(make_recipe(self.pin.name, {"stand-in": self.pin.digest}, steps), steps, "module {}", generator)

    def compile(self, inputs, workdir, say=silent):
        """Write the text as the ELF."""
        text = inputs.work.text
        self.built.append(text)
        if self.fail_for and self.fail_for in text:
            raise with_log(BuildFailed("the stand-in was told to fail"), "the tool said no\n")
        if self.killed_for and self.killed_for in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.hangs_in:
            Path(self.hangs_in, f"{os.getpid()}.pid").touch()
            time.sleep(600)
        elf = workdir / "out.elf"
        if not (self.no_output_for and self.no_output_for in text):
            elf.write_bytes(b"\x7fELF" + text.encode() + self.suffix)
        return Built(elf, "a log\n")

    def shared_parts(self, generators):
        """Name two parts, if there is a folder for them: one for all generators, and one that cannot be made."""
        return [str(len(list(generators))), "broken/part"] if self.parts_in else []

    def make_part(self, part, workdir):
        """Note a part, and how much was built before it."""
        Path(self.parts_in, part).write_text(f"{len(self.built)} {workdir.is_dir()}")

    def open(self, elf):
        """Return the text, which speaks of the name's K and N."""
        return StandInElf(elf.read_bytes())


@dataclass(frozen=True)
class StandInElf:
    """The text of a stand-in's ELF."""

    text: bytes

    def check(self, name, sealed):
        """Look for the name's K."""
        if name is not None and f"{name.K}".encode() not in self.text:
            raise Differs(f"{name}: the ELF is of another geometry")
        assert not sealed or name is None


def build_in_process(root, suffix, **options):
    """Build the tiny model with a stand-in builder and exit with the code: the body of a child process."""
    project = Project(root)
    builder = StandInBuilder(read_lock(project.lock_file).target(), suffix=suffix, **options)
    sys.exit(build_elfs(project, builder, [model_requirements(project, "tiny")]).exit_code)

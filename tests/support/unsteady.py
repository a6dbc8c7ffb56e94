"""Toolchains that are not deterministic, each in one way: stand-in builders whose ELF hangs on what it must not.

Each function makes a builder; the process that rebuilds imports them from here.
"""

# ruff: noqa: ARG001 what a protocol hands over need not be used

from __future__ import annotations

import hashlib
import os
import queue
import random
import sys
import threading
import time
from dataclasses import replace

from elfkiln.io.child import GIB, Limits, run_child
from elfkiln.store.recipe import Step, make_recipe
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.target import Built, silent
from projects import StandInBuilder

_LIMITS = Limits(60, 60, 8 * GIB, GIB)


class Unsteady(StandInBuilder):
    """A stand-in whose ELF ends with what a function makes of its folder."""

    def compile(self, inputs, workdir, say=silent):
        """Write the ELF, and the unsteady bytes behind it."""
        built = super().compile(inputs, workdir, say)
        with built.elf.open("ab") as stream:
            stream.write(self.unsteady(workdir))
        return Built(built.elf, built.log)


def _builder(project, target, unsteady):
    builder = Unsteady(read_lock(project.lock_file).target(target))
    builder.unsteady = unsteady
    return builder


def steady(project, target):
    """The stand-in itself."""
    return StandInBuilder(read_lock(project.lock_file).target(target))


def by_clock_and_path(project, target):
    """Stamps the time, and leaves a hash of its folder's path: the path itself is not in the bytes.

    The time is told by a program of its own that gets no environment from its builder.
    """

    def stamp(workdir):
        program = [sys.executable, "-c", "import time; print(time.time())"]
        run = run_child(program, name="stamp", cwd=workdir, environment={}, limits=_LIMITS)
        return run.stdout + hashlib.sha256(os.fsencode(workdir)).digest()

    return _builder(project, target, stamp)


def by_chance(project, target):
    """Leaves random bytes."""
    return _builder(project, target, lambda _: os.urandom(16))


def by_threads(project, target):
    """Writes 32 parts in the order in which threads, one for a processor or else several, come to them."""

    def parts(workdir):
        todo, done = queue.SimpleQueue(), []
        for number in range(32):
            todo.put(number)

        def work():
            while True:
                try:
                    number = todo.get_nowait()
                except queue.Empty:
                    return
                time.sleep(random.SystemRandom().random() / 500)
                done.append(number)

        alone = len(os.sched_getaffinity(0)) == 1
        threads = [threading.Thread(target=work) for _ in range(1 if alone else 8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return bytes(done)

    return _builder(project, target, parts)


def by_hash_seed_and_listing(project, target):
    """Writes a set as it comes, and a folder as it is listed."""

    def order(workdir):
        for name in ("a", "b", "c"):
            (workdir / name).touch()
        return repr((list({"one", "two", "three", "four"}), os.listdir(workdir))).encode()

    return _builder(project, target, order)


def design_by_clock(project, target):
    """Its generator's design hangs on the year, so its compile inputs do."""

    class Stamped(StandInBuilder):
        def inputs(self, generator, sources, workdir, say=silent):
            first = super().inputs(generator, sources, workdir, say)
            steps = (
                *first.steps,
                Step("stamp.o", ("stand-in",), {"stamp": f"// a stamp\n{time.gmtime().tm_year}\n".encode()}),
            )
            return replace(first, steps=steps, recipe=make_recipe(self.pin.name, {}, steps))

    return Stamped(read_lock(project.lock_file).target(target))


def that_builds_nothing(project, target):
    """Fails for everything."""
    builder = steady(project, target)
    builder.fail_for = "import"
    return builder

"""Runs the torture, in whole or in part, and says what came of it: figures, and every fault that was not survived."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import random
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from elfkiln.errors import ElfkilnError
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.registry import load_registry
from elfkiln.work import fast_elfs
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build_state import keep_state
from elfkiln.work.fsck import fsck
from elfkiln.work.gc import collect
from elfkiln.work.generations import history, roll_back
from elfkiln.work.install import install
from elfkiln.work.lookup import lookup
from elfkiln.work.repair import repair
from torture.torture_faults import ERRORS, KILL, TEAR, Faults, injected
from torture.torture_scenes import NEW, OLD, SCENES, World, build, builder_of, end_of, sha256, stand_ins

SAID, BROKE = 3, 4
KINDS = (KILL, TEAR, *ERRORS)


@dataclass
class Outcome:
    """Counts by what was done, and a line for everything that went wrong."""

    say: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def blame(self, where, lines):
        """Note what is wrong at a place."""
        for line in lines:
            self.wrong.append(f"{where}: {line}")
            self.say(f"WRONG {self.wrong[-1]}")


def in_a_child(work):
    """Run a function in a forked child; return its exit code, or minus the signal that ended it."""
    with warnings.catch_warnings():
        # Threads of a pool that has ended are no danger to a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = BROKE
        try:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
            work()
            code = 0
        except (ElfkilnError, OSError):
            # Both are one line and an exit code on the command line.
            code = SAID
        except BaseException:
            with contextlib.suppress(OSError), open(f"/proc/{os.getppid()}/cwd/torture-trace", "a") as stream:
                traceback.print_exc(file=stream)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Campaign:
    """All torture of one folder."""

    def __init__(self, folder, say=lambda _line: None):
        self.place, self.say = Path(folder), say
        self.world = World.make(self.place / "world")
        self.outcome = Outcome(say)

    # Kills and errors at every call.

    def begun(self, scene):
        """Return a fresh copy of the project a scene begins with."""
        project = self.world.copy(scene.start, self.place / "case")
        scene.damage(project)
        return project

    def undisturbed(self, scene):
        """Return the calls of an undisturbed run, and its end."""
        project = self.begun(scene)
        with injected(Faults(project.root.parent)) as faults:
            scene.act(self.world, project)
        return faults, end_of(project)

    def faults(self, names=tuple(SCENES), kinds=KINDS, part=1.0, seed=0):
        """Let every fault come at every call of every scene, or at a `part` of them, drawn by `seed`."""
        draw = random.Random(seed)
        for name in names:
            scene = SCENES[name]
            calls, end = self.undisturbed(scene)
            for kind in kinds:
                count = calls.that_meet(kind)
                points = range(1, count + 1)
                if part < 1:
                    points = sorted(draw.sample(points, min(count, max(1, round(count * part)))))
                for at in points:
                    self.one_fault(scene, kind, at, end)
                self.outcome.counts[f"{name}: {kind}"] += len(points)
                self.say(f"{name}: {kind} at {len(points)} of {count} calls, {len(self.outcome.wrong)} wrong so far")

    def one_fault(self, scene, kind, at, end):
        """Let one fault come, look at what it left, and do the same again undisturbed."""
        where = f"{scene.name}, {kind} at call {at}"
        project = self.begun(scene)

        def disturbed():
            with injected(Faults(project.root.parent, kind, at)):
                scene.act(self.world, project)

        code = in_a_child(disturbed)
        killed = kind in (KILL, TEAR)
        # Threads that come upon the same blob make a call less, so the last one may not come. Some errors are survived:
        # what only saves time is not written, another way is taken.
        if killed and code == 0:
            self.outcome.counts[f"{scene.name}: {kind}"] -= 1
        elif code not in ((-signal.SIGKILL,) if killed else (0, SAID)):
            self.outcome.blame(where, [f"ended with {code}"])
        self.look(where, project, damaged=scene.name == "fsck")
        try:
            scene.act(self.world, project)
        except ElfkilnError as error:
            self.outcome.blame(where, [f"cannot be done again: {error}"])
            return
        parts = zip(("registry.yaml", "blobs", "installed files"), end_of(project), end, strict=True)
        self.outcome.blame(where, [f"done again, {what} differ" for what, now, was in parts if now != was])
        self.look(f"{where}, done again", project, whole=True)

    def look(self, where, project, *, damaged=False, whole=False):
        """Check that nothing is wrong, and that fsck finds nothing but what may be."""
        if not damaged:
            self.outcome.blame(where, self.world.wrong(project))
        self.outcome.blame(where, self.world.serve(project, self.place / "served"))
        states = {one.state for one in fsck(project).findings}
        if not states <= {"unreferenced"} | ({"corrupt", "missing"} if damaged else set()):
            found = [one.line() for one in fsck(project).findings if one.state != "unreferenced"]
            self.outcome.blame(where, found)
        left = [path.name for path in project.root.parent.rglob(".part-*")]
        if whole and left:
            self.outcome.blame(where, [f"unfinished files stay: {left[0]}"])

    # Every byte of every kind of file.

    def flips(self, every=1):
        """Flip a bit of every byte (or of each `every`-th) of each kind of file, and ask for everything."""
        project = self.world.copy("both", self.place / "case")
        shelf = self.place / "case" / "model"
        build(project)
        asked = asked_by_model(project, "tiny")
        keep_state(project, builder_of(project), [asked], None)
        install(project, "sim", model_requirements(project, "tiny"), shelf)
        assert self.passes(project)
        for kind, path in sorted(self.kinds_of_files(project, shelf).items()):
            data = path.read_bytes()
            places = range(0, len(data), every)
            for place in places:
                self.one_flip(kind, project, path, data, place)
            self.outcome.counts[f"flip: {kind}"] += len(places)
            self.say(f"flip: {kind}: {len(places)} of {len(data)} bytes, {len(self.outcome.wrong)} wrong so far")

    def kinds_of_files(self, project, shelf):
        """Return one file of each kind, by what it is."""
        entry = next(iter(load_registry(project.registry_file).entries("sim").values()))
        registries = project.generations / "registries"
        return {
            "ELF": project.blobs / entry.elf,
            "recipe": project.blobs / entry.recipe,
            "design": project.blobs / entry.design,
            "manifest": project.blobs / entry.manifest,
            "index.json": project.store / "index.json",
            "oci-layout": project.store / "oci-layout",
            "registry.yaml": project.registry_file,
            "kept answer": next((project.index / "elfs").iterdir()),
            # None is remembered where the sources are younger than this process.
            **dict(zip(["remembered recipe"], (project.cache / "recipes").glob("*.json"), strict=False)),
            "generation": next(path for path in sorted(project.generations.iterdir()) if path.suffix == ".json"),
            "registry of a generation": next(registries.iterdir()),
            "kernels.lock.json": shelf / "kernels.lock.json",
        }

    def one_flip(self, kind, project, path, data, place):
        """Flip one bit; nothing may then serve a wrong byte, and fsck must see it where a digest says what was."""
        where = f"flip: {kind}, byte {place}"
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        os.chmod(path, 0o644)
        path.write_bytes(changed)
        try:
            self.outcome.blame(where, self.ask(project))
            if path.parent == project.blobs and self.passes(project):
                self.outcome.blame(where, ["elfs says that there is nothing to do"])
            found = fsck(project)
            sealed = kind not in ("registry.yaml", "kernels.lock.json", "oci-layout", "index.json")
            if sealed and not found.count("corrupt"):
                self.outcome.blame(where, ["fsck does not see it"])
        except (ElfkilnError, OSError) as error:
            self.outcome.blame(where, [f"fsck ends with {error}"])
        finally:
            path.write_bytes(data)

    def ask(self, project):
        """Ask for the set in every way; return what was wrong about the answers. An error is an answer."""
        wrong = self.world.serve(project, self.place / "served")
        with contextlib.suppress(ElfkilnError):
            for row in lookup(project, asked_by_model(project, "tiny")).rows:
                if row.entry is not None and row.problem is None and not self.world.is_right(row.key, row.entry.elf):
                    wrong.append(f"lookup says {row.entry.elf[:12]} for {row.key}")
        with contextlib.suppress(ElfkilnError):
            history(project)
        return wrong

    def passes(self, project):
        """Whether the fast path of `elfs` says that every byte verifies."""
        with contextlib.redirect_stdout(io.StringIO()):
            return fast_elfs.main(["model=tiny", f"root={project.root}"]) == 0

    # Clocks.

    def clocks(self, names=tuple(SCENES)):
        """Do every scene with the clock and the files of 1970 and of 2100; it must come to the same end."""
        for name in names:
            scene = SCENES[name]
            _, end = self.undisturbed(scene)
            for year, seconds in (("1970", 86_400.0), ("2100", 4_102_444_800.0)):
                project = self.begun(scene)
                for path in project.root.parent.rglob("*"):
                    os.utime(path, (seconds, seconds), follow_symlinks=False)
                self.outcome.blame(f"{name} in {year}", self.at(seconds, scene, project, end))
                self.look(f"{name} in {year}", project, whole=True)
                self.outcome.counts[f"clock of {year}"] += 1
        self.say(f"clocks: {len(names)} commands in 1970 and in 2100, {len(self.outcome.wrong)} wrong so far")

    def at(self, seconds, scene, project, end):
        """Do a scene at a time."""
        start, saved, saved_ns = time.monotonic(), time.time, time.time_ns
        time.time = lambda: seconds + time.monotonic() - start
        time.time_ns = lambda: int(time.time() * 1e9)
        try:
            scene.act(self.world, project)
        except ElfkilnError as error:
            return [str(error)]
        finally:
            time.time, time.time_ns = saved, saved_ns
        return [] if end_of(project) == end else ["it comes to another end"]

    # Many at once.

    def mix(self, processes=8, seconds=20.0, seed=0, kills=True):
        """Let processes do everything at once, some of them killed; then look, mend, and build."""
        project = self.world.copy("both", self.place / "case")
        context = multiprocessing.get_context("fork")
        done = context.Array("L", len(_VERBS))
        faulty = context.Value("L", 0)
        until = time.monotonic() + seconds
        draw = random.Random(seed)

        def start(number):
            worker = context.Process(target=_mixed, args=(self, project, number, until, done, faulty))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                worker.start()
            return worker

        workers = [start(number) for number in range(processes)]
        count = processes
        while time.monotonic() < until:
            time.sleep(0.3)
            if kills:
                at = draw.randrange(processes)
                workers[at].kill()
                workers[at].join()
                self.outcome.counts["mix: processes killed"] += 1
                workers[at] = start(count)
                count += 1
        for worker in workers:
            worker.join(120)
            if worker.exitcode != 0:
                self.outcome.blame("mix", [f"a process ended with {worker.exitcode}"])
        for verb, number in zip(_VERBS, done, strict=True):
            self.outcome.counts[f"mix: {verb}"] += number
        if faulty.value:
            self.outcome.blame("mix", [f"{faulty.value} wrong answers; see torture-trace"])
        self.look("mix", project)
        build(project)
        install(project, "sim", model_requirements(project, "tiny"), project.root.parent / "model")
        self.look("mix, built and installed again", project, whole=True)
        self.say(f"mix: {sum(done)} commands by {count} processes, {len(self.outcome.wrong)} wrong so far")


_VERBS = ("build", "install", "lookup", "fsck", "repair", "gc", "rollback", "check files")


def _mixed(campaign, project, number, until, done, faulty):
    """Do one thing after another until the time is over; a refusal is an answer, a traceback or a wrong byte is not."""
    draw = random.Random(number)
    own = campaign.place / f"served-{number}"
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    while time.monotonic() < until:
        at = draw.randrange(len(_VERBS))
        try:
            wrong = _do(_VERBS[at], campaign, project, own, draw)
        except ElfkilnError:
            wrong = []
        except BaseException:
            wrong = [traceback.format_exc()]
        with done.get_lock():
            done[at] += 1
        if wrong:
            with faulty.get_lock():
                faulty.value += len(wrong)
            with open(campaign.place / "torture-trace", "a") as stream:
                stream.write("\n".join([_VERBS[at], *wrong, ""]))


def _do(verb, campaign, project, own, draw):
    if verb == "build":
        build(project, draw.choice((OLD, NEW)))
    elif verb == "install":
        install(project, "sim", model_requirements(project, "tiny"), own if draw.random() < 0.5 else own.parent / "all")
        return campaign.world.wrong_files(own) + campaign.world.wrong_files(own.parent / "all")
    elif verb == "lookup":
        rows = lookup(project, asked_by_model(project, "tiny")).rows
        return [row.key for row in rows if row.entry and not campaign.world.is_right(row.key, row.entry.elf)]
    elif verb == "fsck":
        # Of an install that was killed some files are of the old set and some of the new: `wrong_files` judges them.
        found = [one for one in fsck(project).findings if one.state == "corrupt"]
        return [one.line() for one in found if not one.what.endswith(".elf")]
    elif verb == "repair":
        repair(project, fsck(project), lambda _target: builder_of(project, draw.choice((OLD, NEW))))
    elif verb == "gc":
        collect(project, delete=True, generations=draw.choice((0, 2)), grace=0)
    elif verb == "rollback":
        roll_back(project, draw.choice(history(project).generations).number)
    else:
        for path in project.blobs.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if sha256(path) != path.name and not path.name.startswith("."):
                    return [f"blob {path.name}"]
    return []


def run_all(folder, say, *, part=1.0, every=1, seconds=60.0):
    """Run everything and return the outcome with how long it took."""
    begun = time.monotonic()
    with stand_ins():
        campaign = Campaign(folder, say)
        campaign.faults(part=part)
        campaign.clocks()
        campaign.flips(every)
        campaign.mix(seconds=seconds)
    return campaign.outcome, time.monotonic() - begun

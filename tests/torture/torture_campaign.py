"""Runs the torture, in whole or in part, and says what came of it: figures, and every fault that was not survived."""

from __future__ import annotations

import contextlib
import io
import json
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
from fnmatch import fnmatch
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from elfkiln.errors import ElfkilnError
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.artifacts import (
    ARTIFACT_TYPE,
    DESIGN_TYPE,
    ELF_TYPE,
    EMPTY_CONFIG_TYPE,
    GENERATOR_TYPE,
    INPUT_TYPE,
    LOG_TYPE,
    RECORD_ARTIFACT_TYPE,
)
from elfkiln.store.blobs import MANIFEST_TYPE
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.store.policy import read_policy
from elfkiln.store.recipe import MEDIA_TYPE as RECIPE_TYPE
from elfkiln.store.registry import load_registry
from elfkiln.store.signing_keys import load_key, write_key_pair
from elfkiln.store.statement_types import ENVELOPE_TYPE, PAYLOAD_TYPE, PROVENANCE
from elfkiln.work import fast_elfs
from elfkiln.work.archive import export_sets, import_sets
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build_state import keep_state
from elfkiln.work.check import check_models
from elfkiln.work.fsck import fsck
from elfkiln.work.gc import collect
from elfkiln.work.generations import history, roll_back
from elfkiln.work.install import install
from elfkiln.work.lock_signatures import sign_lock
from elfkiln.work.lookup import lookup
from elfkiln.work.pull import pull_set
from elfkiln.work.push import push_sets
from elfkiln.work.registry_check import check_registry
from elfkiln.work.repair import repair
from elfkiln.work.trust import require_signed, sign
from oci_server import Registry, serving
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

    def flips(self, every=1, kinds=None):
        """Flip a bit of every byte (or of each `every`-th) of each kind of file, or of some, and ask for everything."""
        project = self.world.copy("both", self.place / "case")
        shelf = self.place / "case" / "model"
        build(project)
        install(project, "sim", model_requirements(project, "tiny"), shelf)
        self.sign(project, shelf)
        keep_state(project, builder_of(project), [asked_by_model(project, "tiny")], None)
        check_models(project, ["tiny"])
        assert self.passes(project)
        assert self.ask(project) == []
        for kind, path in sorted(kinds_of_files(project).items()):
            if kinds is not None and kind not in kinds:
                continue
            data = path.read_bytes()
            places = range(0, len(data), every)
            for place in places:
                self.one_flip(kind, project, path, data, place)
            self.outcome.counts[f"flip: {kind}"] += len(places)
            self.say(f"flip: {kind}: {len(places)} of {len(data)} bytes, {len(self.outcome.wrong)} wrong so far")
        return tuple(kinds_of_files(project))

    def sign(self, project, shelf):
        """Sign what is registered and what is installed, and write a policy that asks for it."""
        place = shelf.parent
        public = write_key_pair(place / "key")
        key = load_key(place / "key")
        sign(project, lookup(project, asked_by_model(project, "tiny")).rows, key)
        sign_lock(shelf, key)
        voter = {"name": "lab", "ed25519": public, "roles": ["builder"], "expires": "2100-01-01T00:00:00Z"}
        rule = {"target": "sim", "predicate": PROVENANCE, "role": "builder", "threshold": 1}
        table = {"schema": "elfkiln-policy/1", "keys": [voter], "rules": [rule]}
        (place / "policy.json").write_text(json.dumps(table))
        self.require(project)

    def require(self, project):
        """Raise what `--require-signed` says of the set."""
        rows = lookup(project, asked_by_model(project, "tiny")).rows
        require_signed(project, "sim", rows, read_policy(project.root.parent / "policy.json"))

    def one_flip(self, kind, project, path, data, place):
        """Flip one bit; nothing may then serve a wrong byte, and fsck must see it where a digest says what was."""
        where = f"flip: {kind}, byte {place}"
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        os.chmod(path, 0o644)
        path.write_bytes(changed)
        try:
            found = fsck(project)
            if kind not in UNSEALED and not found.count("corrupt"):
                self.outcome.blame(where, ["fsck does not see it"])
            self.outcome.blame(where, self.ask(project))
            if kind in SERVED and self.passes(project):
                self.outcome.blame(where, ["elfs says that there is nothing to do"])
        except ElfkilnError as error:
            # A lock or plan that cannot be read is refused by whatever needs it.
            if kind not in INPUTS:
                self.outcome.blame(where, [f"fsck ends with {error}"])
        except Exception:
            self.outcome.blame(where, [traceback.format_exc()])
        finally:
            path.write_bytes(data)

    def ask(self, project):
        """Ask for the set in every way; return what was wrong about the answers. An error is an answer."""
        wrong = self.world.serve(project, self.place / "served")
        shelf = project.root.parent / "model"
        with contextlib.suppress(ElfkilnError):
            if check_models(project, ["tiny"], folder=shelf).exit_code == 0:
                wrong += self.world.wrong_files(shelf)
        with contextlib.suppress(ElfkilnError):
            if check_models(project, ["tiny"]).exit_code == 0:
                wrong += self.world.wrong_names(project)
        with contextlib.suppress(ElfkilnError):
            self.require(project)
        with contextlib.suppress(ElfkilnError):
            load_key(project.root.parent / "key")
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
        with _served_apart() as self.host:
            self.crowd(processes, seconds, seed, kills)

    def crowd(self, processes, seconds, seed, kills):
        """Do what `mix` does beside its registry."""
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


# Nothing else says what these were: a person writes them, or a digest of theirs stands nowhere.
INPUTS = ("toolchain.lock", "role table", "policy", "key", "public key")
UNSEALED = (
    *INPUTS,
    "registry.yaml",
    "kernels.lock.json",
    "signatures of a lock",
    "oci-layout",
    "index.json",
    "installed ELF",
)
# What `elfs` hashes before it says that there is nothing to do.
SERVED = ("ELF", "recipe", "design", "manifest")
_PLACES = (
    ("registry.yaml", "project/registry.yaml"),
    ("toolchain.lock", "project/toolchain.lock"),
    ("role table", "project/plans/*/roles.yaml"),
    ("index.json", "project/out/registry/index.json"),
    ("oci-layout", "project/out/registry/oci-layout"),
    ("remembered recipe", "project/out/cache/recipes/*.json"),
    ("answer of elfs", "project/out/index/elfs/*"),
    ("answer of check-missing", "project/out/index/*"),
    ("generation", "project/out/generations/*.json"),
    ("registry of a generation", "project/out/generations/registries/*.yaml"),
    ("kernels.lock.json", "model/kernels.lock.json"),
    ("signatures of a lock", "model/kernels.lock.intoto.jsonl"),
    ("installed ELF", "model/kernels*/*.elf"),
    ("policy", "policy.json"),
    ("key", "key"),
    ("public key", "key.pub"),
)
_LAYERS = {ELF_TYPE: "ELF", DESIGN_TYPE: "design", INPUT_TYPE: "compile input", GENERATOR_TYPE: "generator"}
_LAYERS |= {LOG_TYPE: "build log", PAYLOAD_TYPE: "statement", ENVELOPE_TYPE: "envelope"}
_LAYERS |= {RECIPE_TYPE: "recipe", EMPTY_CONFIG_TYPE: "empty config"}
_MANIFESTS = {ARTIFACT_TYPE: "manifest", RECORD_ARTIFACT_TYPE: "manifest of a log"}


def kinds_of_files(project):
    """Return one file of each kind, by what it is; fails for a file of a kind that is not known."""
    blobs = {}
    for path in sorted(project.blobs.iterdir()):
        data = path.read_bytes()
        table = json.loads(data) if data.startswith(b"{") else {}
        if table.get("mediaType") == MANIFEST_TYPE:
            blobs[path.name] = _MANIFESTS.get(table["artifactType"], "manifest of a statement")
            for one in (table["config"], *table["layers"]):
                blobs.setdefault(one["digest"].removeprefix("sha256:"), _LAYERS[one["mediaType"]])
    found = {}
    served = {digest for one in load_registry(project.registry_file).entries("sim").values() for digest in one.digests}
    # Of blobs those first that a name stands for.
    for path in sorted(project.root.parent.rglob("*"), key=lambda path: (path.name not in served, path)):
        if not path.is_file() or any(one.is_symlink() for one in (path, *path.parents)) or not path.stat().st_size:
            continue
        place = path.relative_to(project.root.parent)
        kind = blobs[path.name] if path.parent == project.blobs else None
        kind = kind or next((kind for kind, pattern in _PLACES if fnmatch(str(place), pattern)), None)
        assert kind is not None, f"{place}: a kind of file that no flip is for"
        found.setdefault(kind, path)
    return found


_VERBS = (
    "build", "install", "lookup", "fsck", "repair", "gc", "rollback", "check files",
    "push", "pull", "export", "import", "sign", "check-missing", "registry check",
)  # fmt: skip


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


def _registry_at(host):
    return OciRegistry(OciAddress.parse(f"oci://{host}/tiny/kernels"), plain_http=True, environment={})


@contextlib.contextmanager
def _served_apart():
    """Run a registry in a process of its own and yield its HOST:PORT: no thread is there when processes are forked."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def serve():
        with serving(Registry()) as host:
            theirs.send(host)
            theirs.recv()

    process = context.Process(target=serve)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("done")
        process.join()


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
    elif verb == "push":
        push_sets(project, _registry_at(campaign.host), [asked_by_model(project, "tiny")])
    elif verb == "pull":
        pull_set(project, _registry_at(campaign.host), "tiny-sim")
    elif verb == "export":
        sink = io.BytesIO()
        export_sets(project, [asked_by_model(project, "tiny")], sink)
        return campaign.world.wrong_archive(sink.getvalue())
    elif verb == "import":
        import_sets(project, io.BytesIO(campaign.world.archive), "archive")
    elif verb == "sign":
        sign(project, lookup(project, asked_by_model(project, "tiny")).rows, Ed25519PrivateKey.generate())
    elif verb == "check-missing":
        report = check_models(project, ["tiny"])
        return ["a set that was whole at every moment is not"] if report.refusals else []
    elif verb == "registry check":
        check_registry(project, str(project.registry_file))
    else:
        for path in project.blobs.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if sha256(path) != path.name and not path.name.startswith("."):
                    return [f"blob {path.name}"]
    return []


def run_all(folder, say, *, part=1.0, every=1, seconds=60.0, jobs=1):
    """Run everything, `jobs` things at once, and return the outcome with how long it took."""
    begun = time.monotonic()
    tasks = [("faults", (name,), (kind,), part) for kind in KINDS for name in SCENES]
    tasks += [("clocks", (name,)) for name in SCENES]
    with stand_ins():
        campaign = Campaign(folder, say)
        kinds = campaign.flips(every=1 << 30)
        campaign.outcome.counts.clear()
        tasks += [("flips", every, (kind,)) for kind in kinds]
        with multiprocessing.get_context("fork").Pool(jobs, _begin, (folder, say), maxtasksperchild=None) as pool:
            for counts, wrong in pool.imap_unordered(_task, tasks):
                campaign.outcome.counts.update(counts)
                campaign.outcome.wrong += wrong
        campaign.mix(seconds=seconds)
    return campaign.outcome, time.monotonic() - begun


_own: list[Campaign] = []


def _begin(folder, say):
    """Make the campaign of a process."""
    _own.append(Campaign(Path(folder) / f"campaign-{os.getpid()}", say))


def _task(task):
    """Do one part of the torture in this process's own folder; return its counts and what was wrong."""
    (campaign,) = _own
    campaign.outcome.counts.clear()
    campaign.outcome.wrong.clear()
    getattr(campaign, task[0])(*task[1:])
    return campaign.outcome.counts, list(campaign.outcome.wrong)

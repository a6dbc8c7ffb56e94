"""Runs rebuilds under given conditions: a copy of the inputs in a fresh folder, and a process that builds from it.

The inputs are what a clone of the checkout would have: of a git checkout the files git knows, with what they hold now.
Nothing that was built before is in the copy, so nothing can be taken for rebuilt that was not.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import elfkiln
from elfkiln.errors import BuildFailed, Refused
from elfkiln.io import variation
from elfkiln.io.child import GIB, MIB, Limits, run_child
from elfkiln.io.files import storage_refusal
from elfkiln.io.variation import variables
from elfkiln.io.workspace import check_plain_path, remove_tree
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import LOCK_FILE, PLANS, REGISTRY_FILE, Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, load_registry
from elfkiln.work.conditions import Conditions
from elfkiln.work.rebuilder import MakeBuilder, Request

INPUTS = ("generators", "templates", "kernels", PLANS, LOCK_FILE)
"""What of a project a build reads, beside elfkiln itself."""

PACKAGE = "src/elfkiln"
_HOURS = 3600
_LIMITS = Limits(24 * _HOURS, 7 * 24 * _HOURS, 64 * GIB, 16 * GIB, 64 * MIB)
_QUICK = Limits(60, 60, 4 * GIB, GIB, 64 * MIB)
_START = (
    "import sys; package, more = sys.argv[2], sys.argv[3:]; sys.path[:0] = [package]; sys.path += more; "
    "from elfkiln.work.rebuilder import main; sys.exit(main(sys.argv[1:3]))"
)
# A child gets the environment its builder gives it, and these of the conditions on top.
_CARRIED = (
    "LC_ALL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "PYTHONHASHSEED",
    "USER",
    "LOGNAME",
    "ELFKILN_LISTING",
    "PYTHONPATH",
    "LD_PRELOAD",
    "FAKETIME",
    "FAKETIME_FMT",
    "FAKETIME_DONT_FAKE_MONOTONIC",
)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What one rebuild left: its project, the entries it registered, why names failed, and those it built."""

    project: Project
    entries: Mapping[str, Entry]
    failures: Mapping[str, str]
    built: tuple[str, ...]

    @property
    def store(self) -> Store:
        """Where its blobs are."""
        return Store(self.project.store)

    def fingerprint(self, key: str) -> str:
        """Return what came of a name, as one text: every digest, or why there is none."""
        entry = self.entries.get(key)
        return repr(entry) if entry is not None else self.failures.get(key, "not built")


@dataclass
class Rig:
    """Rebuilds the names of a project below a folder of its own.

    `preload` is what LD_PRELOAD must name for faketime, "" where it is not installed: then the clock stays as it is.
    """

    project: Project
    target: str
    builder: MakeBuilder
    base: Path
    preload: str = ""
    files: tuple[str, ...] | None = field(default=None)

    def run(self, conditions: Conditions, sets: tuple[RequirementSet, ...], place: str, *, equal: bool) -> Rebuilt:
        """Rebuild under conditions below `place`; what a run before left there is removed.

        With `equal` private folders get equal names in every run. Raises `BuildFailed` when the process that rebuilds
        does not come to its end.
        """
        root = self.base / place / conditions.folder
        check_plain_path(root)
        project = self._fresh(root)
        request = Request(
            str(root), self.target, sets, self.builder, conditions.umask, conditions.jobs, conditions.cpus
        )
        path = self.base / place / "request.pickle"
        path.write_bytes(pickle.dumps(request))
        here = Path(elfkiln.__file__).resolve().parents[1]
        more = [entry for entry in sys.path if entry and Path(entry).resolve() != here]
        run = run_child(
            [sys.executable, "-P", "-s", "-c", _START, str(path), str(root / "src"), *more],
            name="the process that rebuilds",
            cwd=root,
            environment=self._environment(conditions, self.base / place, equal=equal),
            limits=_LIMITS,
            whole=True,
        )
        if run.exit_code:
            raise BuildFailed(f"the process that rebuilds: {run.ending}: {_last_line(run.err)}")
        answer = json.loads(run.stdout)
        if "refused" in answer:
            raise Refused(answer["refused"])
        entries = load_registry(project.registry_file).entries(self.target)
        return Rebuilt(project, entries, dict(answer["failed"]), tuple(answer["built"]))

    def _fresh(self, root: Path) -> Project:
        """Return a project below `root` that has the inputs and nothing else; what was built there before goes."""
        project = Project(root)
        try:
            if root.is_dir():
                remove_tree(project.out)
                project.registry_file.unlink(missing_ok=True)
            else:
                root.mkdir(parents=True)
                self._copy(root)
            project.out.mkdir()
            if self.project.toolchains.is_dir():
                # Installed ones are verified where they are used; they are not inputs of ours.
                project.toolchains.symlink_to(self.project.toolchains.resolve(), target_is_directory=True)
        except OSError as error:
            raise storage_refusal(root, error) from error
        return project

    def _copy(self, root: Path) -> None:
        if self.files is None:
            for name in INPUTS:
                source = self.project.root / name
                if source.is_dir():
                    shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
                elif source.exists():
                    shutil.copy2(source, root / name)
        else:
            for name in self.files:
                target = root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.project.root / name, target)
        package = root / PACKAGE
        if not package.is_dir():
            # A project that does not hold elfkiln is built by the one that is installed.
            shutil.copytree(Path(elfkiln.__file__).resolve().parent, package)

    def _environment(self, conditions: Conditions, place: Path, *, equal: bool) -> dict[str, str]:
        home, temporary = place / conditions.home, place / conditions.tmpdir
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        # Nothing secret goes along, and nothing that other conditions of the caller's are made of.
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "LC_", "LD_", "FAKETIME")) and name != "ELFKILN_SIGNING_KEY"
        }
        varied = {
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "USER": conditions.user,
            "LOGNAME": conditions.user,
            "LC_ALL": conditions.locale,
            "LANG": conditions.locale,
            "LANGUAGE": conditions.locale.partition("_")[0],
            "TZ": conditions.timezone,
            "PYTHONHASHSEED": str(conditions.hash_seed),
            "PYTHONPATH": str(Path(variation.__file__).with_name("varied_python")),
            "ELFKILN_LISTING": conditions.listing,
        }
        if self.preload and conditions.clock:
            # Time that is measured goes on: a standing clock must not stop whoever waits.
            varied |= {
                "LD_PRELOAD": self.preload,
                **_faketime(conditions.clock),
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        carried = {name: varied[name] for name in _CARRIED if name in varied}
        return kept | varied | variables(carried, fixed_names=equal)


def _faketime(clock: str) -> dict[str, str]:
    """Return the variables that set the clock; a standing time goes as seconds, since a text means the local zone."""
    if clock.startswith("+"):
        return {"FAKETIME": clock}
    seconds = datetime.strptime(clock, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    return {"FAKETIME": str(int(seconds)), "FAKETIME_FMT": "%s"}


def faketime_preload() -> str:
    """Return what LD_PRELOAD must name for faketime to set the clock; "" where it is not installed or does not work."""
    program, printer = shutil.which("faketime"), shutil.which("env")
    if program is None or printer is None:
        return ""
    try:
        run = run_child(
            [program, "-m", "-f", "+1d", printer], name="faketime", cwd=Path("/"), environment={}, limits=_QUICK
        )
    except BuildFailed:
        return ""
    found = [line.partition("=")[2] for line in run.out.splitlines() if line.startswith("LD_PRELOAD=")]
    return found[0] if run.exit_code == 0 and found else ""


def committed(project: Project) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Return the input files that git has in a checkout, and those that differ from the commit or are not in it.

    None where the project is not the work of git; then all files are taken.
    """
    program = shutil.which("git")
    if program is None or not (project.root / ".git").exists():
        return None, ()
    names = (*INPUTS, PACKAGE)
    listed = _git(program, project.root, "ls-files", "-z", "--", *names)
    states = _git(program, project.root, "status", "--porcelain", "-z", "--no-renames", "--", *names, REGISTRY_FILE)
    if listed is None or states is None or LOCK_FILE not in listed:
        return None, ()
    files = tuple(name for name in listed if (project.root / name).is_file())
    return files, tuple(sorted(state[3:] for state in states))


def _git(program: str, root: Path, *words: str) -> list[str] | None:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    # A checkout may be another user's, as in a container: only names and states are asked for here.
    command = [program, "-c", f"safe.directory={root}", *words]
    try:
        run = run_child(command, name="git", cwd=root, environment=environment, limits=_QUICK, whole=True)
    except BuildFailed:
        return None
    return [name for name in run.out.split("\0") if name] if run.exit_code == 0 else None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"

"""Installs the pinned toolchain into out/toolchains/<digest>/ and checks it on every use.

An install is made in a folder of its own and renamed into place when it is complete, its record inside; so a folder of
that name is a whole install or none. The virtual environment survives the rename: what runs is its `bin/python` (a
link to the pinned interpreter) and the tools below site-packages; launcher scripts, which hold the old folder's path,
are removed. One process installs a digest at a time (file lock); others wait and then find it done. An install that
SIGTERM or an interrupt ends removes its folder; what SIGKILL or a power cut leaves goes when the next install begins.

What a build uses is hashed: the tools before every build, every other file of the virtual environment once per process
and by size, times and inode after that (`tree.Guard`).
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elfkiln.errors import Differs, ElfkilnError, Refused, brief, mismatch_line, refusal
from elfkiln.io.canonical import canonical_json, file_sha256, sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.child import ends_at_sigterm, run_child
from elfkiln.io.complaint import complaint
from elfkiln.io.files import PART, storage_refusal, sync_folder, write_atomic
from elfkiln.io.locking import locked
from elfkiln.io.reading import read_bytes
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.io.workspace import private_folder, remove_tree, sweep
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.npu2.aiecc import GENERATIONS, check_options, detect_generation, listed_options
from elfkiln.targets.npu2.interpreter import Interpreter, describe_choice, find_python
from elfkiln.targets.npu2.pin import Npu2Pin, Tool, read_pin
from elfkiln.targets.npu2.tool_run import limits_of, probe
from elfkiln.targets.npu2.toolchain_tree import Guard, Signature, hash_tree, signature
from elfkiln.targets.npu2.wheels import (
    Note,
    Sources,
    collect,
    isolated_environment,
    run_pip,
    silent,
    unpacked_bytes,
)

SCHEMA = "elfkiln-install/2"
RECORD = "install.json"
FILES = "files.json"
PYTHON = "python"
"""How the interpreter is called among the hashed tools."""

OUTSIDE = "outside"
"""Folder of links to the tools no wheel holds; on PATH, so that aiecc finds them by name."""

REDO = "run elfkiln toolchain install target=npu2"
_LOCK_SECONDS = 3600.0
_VENV_SECONDS = 600.0
_PROBE_SECONDS = 60.0
_RECORD_BYTES = 64 << 20
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Installed:
    """A toolchain in its folder, with the record of what was installed."""

    folder: Path
    pin: Npu2Pin
    record: Mapping[str, Any]
    guard: Guard = field(compare=False, repr=False)

    @property
    def python(self) -> Path:
        """The interpreter generators run under."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def site(self) -> Path:
        """The virtual environment's site-packages."""
        return site_packages(self.folder, self.pin.python)

    @property
    def peano(self) -> Path:
        """Peano's folder (what aiecc calls PEANO_INSTALL_DIR)."""
        return self.site / self.pin.peano

    def tool(self, name: str) -> Path:
        """Return a tool's file; `Refused` for a name the lock does not list."""
        for tool in self.pin.tools:
            if tool.name == name:
                return self.site / tool.file
        raise Refused(f"toolchain.lock: target.npu2.tools: no row for {name}")

    def describe(self) -> str:
        """Return the wheels and the interpreter by version."""
        return f"{self.pin.describe()}, Python {self.record['python']['version']}"


def install(
    project: Project,
    pin: TargetPin | None = None,
    *,
    wheels: Path | None = None,
    find: Callable[[str], Interpreter] = find_python,
    note: Note = silent,
    probe_seconds: float = _PROBE_SECONDS,
) -> Installed:
    """Install target npu2 unless it is there and whole, and return it.

    `wheels` is a folder of wheels for a machine without a network; the store's mirror is tried first in any case.
    A half-finished or damaged install is redone, and `note` says so. Raises `Refused` or `Differs` with one line
    (wrong digest, missing wheel or Python, full disk, a binary that is not there, an aiecc of another generation or
    without an option that the lock passes); nothing half-installed is then left.
    """
    target = pin if pin is not None else read_lock(project.lock_file).target("npu2")
    npu2 = read_pin(target)
    folder = project.toolchains / npu2.digest
    lock = project.toolchains / f".{npu2.digest}.lock"
    try:
        project.toolchains.mkdir(parents=True, exist_ok=True)
        with ends_at_sigterm(), locked(lock, "this toolchain", patience=_LOCK_SECONDS, note=note):
            if folder.exists() or folder.is_symlink():
                try:
                    return _whole(folder, npu2)
                except Refused as problem:
                    note(f"installing again: {problem}")
            sweep(project.toolchains)
            with private_folder(project.toolchains, PART) as part:
                _install_into(part, npu2, Sources(Store(project.store), wheels), find, note, probe_seconds)
                _publish(part, folder)
    except OSError as error:
        raise storage_refusal(Path(error.filename or folder), error) from error
    installed = _whole(folder, npu2)
    note(f"installed {installed.describe()}")
    return installed


def open_installed(project: Project, pin: TargetPin) -> Installed:
    """Return the installed toolchain after hashing its tools.

    Raises `Refused` when it is not installed, half-installed or changed since.
    """
    npu2 = read_pin(pin)
    installed = _read(project.toolchains / npu2.digest, npu2)
    verify_tools(installed)
    return installed


def verify_install(installed: Installed) -> dict[str, Signature]:
    """Hash the tools and check every other file of the toolchain; `Refused` naming file, expected and found digest.

    Returns the tools' signatures, as `verify_tools` does.
    """
    seen = verify_tools(installed)
    installed.guard.check()
    return seen


def verify_tools(installed: Installed) -> dict[str, Signature]:
    """Hash the interpreter and every tool, and compare with the install record.

    Returns their signatures, so that a build can tell afterwards that they did not change meanwhile
    (`check_unchanged`). Raises `Refused` naming the tool, the recorded and the found digest.
    """
    seen: dict[str, Signature] = {}
    recorded = installed.record["tools"]
    for name, path in _binaries(installed.folder, installed.pin):
        before = recorded.get(name)
        if before is None:
            if path.exists():
                raise Refused(f"{path.name}: appeared after install; {REDO} to redo it")
            continue
        try:
            seen[name] = signature(path)
            found = file_sha256(path)
        except OSError as error:
            raise Refused(f"{name}: {path.name} cannot be read ({error.strerror}); {REDO} to redo it") from error
        remedy = f"the tool was changed after install; {REDO} to redo it"
        where = f"{name}: {before['file']}"
        if found != before["sha256"]:
            raise Refused(mismatch_line(f"{where}: sha256", expected=before["sha256"], found=found, remedy=remedy))
        if (real := _leads_to(installed.folder, path, name)) != before["file"]:
            raise Refused(mismatch_line(where, expected="this file", found=f"a link to {real}", remedy=remedy))
    return seen


def check_unchanged(installed: Installed, seen: Mapping[str, Signature]) -> None:
    """Raise `Refused` when a tool is not the file whose signature `verify_tools` took before the build."""
    for name, path in _binaries(installed.folder, installed.pin):
        if name in seen and (not path.exists() or signature(path) != seen[name]):
            raise Refused(f"{name}: {path.name} was changed during the build; what it made is thrown away")


def site_packages(folder: Path, python: str) -> Path:
    """Return the site-packages folder of an install."""
    return folder / "venv" / "lib" / f"python{python}" / "site-packages"


def tool_environment(pin: Npu2Pin, folder: Path, home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a tool: what the lock sets and lets through, and PATH, HOME and TMPDIR.

    PATH holds the toolchain's own folders only, so no tool of the machine is picked up by name.
    """
    site = site_packages(folder, pin.python)
    folders = dict.fromkeys(str((site / tool.file).parent) for tool in pin.tools)
    if pin.outside_tools:
        folders[str(folder / OUTSIDE)] = None
    return {
        **{name: environ[name] for name in pin.environment_pass if name in environ},
        **dict(pin.environment_set),
        "PATH": os.pathsep.join([*folders, str(folder / "venv" / "bin")]),
        "HOME": str(home),
        "TMPDIR": str(home),
        # No cached bytecode is read from or written to the toolchain: a cache can disagree with its source.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(home / "pycache"),
    }


def _whole(folder: Path, pin: Npu2Pin) -> Installed:
    installed = _read(folder, pin)
    verify_install(installed)
    return installed


def _read(folder: Path, pin: Npu2Pin) -> Installed:
    """Read an install's record; `Refused` when there is none or it is not of this pin."""
    if not folder.is_dir():
        raise Refused(f"toolchain npu2 {pin.digest[:12]} is not installed; {REDO}")
    try:
        data = read_bytes(folder / RECORD, _RECORD_BYTES)
        files = read_bytes(folder / FILES, _RECORD_BYTES)
        record = parse_strict_json(data, RECORD)
        whole = (
            record["schema"] == SCHEMA
            and record["toolchain"] == pin.digest
            and record["files_sha256"] == sha256_hex(files)
            and isinstance(record["tools"], dict)
            and isinstance(record["python"]["version"], str)
            and _are_options(record["aiecc"]["options"])
        )
        expected = dict(parse_strict_json(files, FILES))
    except (OSError, ValueError, KeyError, TypeError, Refused) as error:
        raise Refused(f"toolchain npu2 {pin.digest[:12]} is half-installed ({brief(error, 80)}); {REDO}") from error
    if not whole:
        raise Refused(f"toolchain npu2 {pin.digest[:12]}: {RECORD} is of another install or elfkiln; {REDO} to redo it")
    # What is passed can have changed with elfkiln since; the lock's flags are those of the install.
    check_options(GENERATIONS[pin.aiecc_generation], pin.aiecc_flags, record["aiecc"]["options"])
    return Installed(folder, pin, record, Guard(folder / "venv", expected))


def _are_options(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(item, bool) for item in value.values())


def _publish(part: Path, folder: Path) -> None:
    # Should this process end here, the next sweep finds it without a lock.
    aside = folder.parent / f"{PART}old-{secrets.token_hex(4)}"
    if folder.exists() or folder.is_symlink():
        folder.rename(aside)
    part.rename(folder)
    sync_folder(folder.parent)
    remove_tree(aside)


def _install_into(
    part: Path,
    pin: Npu2Pin,
    sources: Sources,
    find: Callable[[str], Interpreter],
    note: Note,
    probe_seconds: float,
) -> None:
    """Do every step of an install in the private folder `part`; the record is written last."""
    interpreter = find(pin.python)
    note(f"using {describe_choice(interpreter)}")
    wheelhouse, home = part / "wheels", part / "home"
    wheelhouse.mkdir()
    home.mkdir()
    collect(pin.wheels, sources, wheelhouse, pin.python, note)
    _need_space(part, unpacked_bytes(wheelhouse))
    note(f"installing {len(pin.wheels)} wheels")
    _make_venv(interpreter, part / "venv", home)
    _install_wheels(pin, part, wheelhouse, home)
    _remove_launchers(part / "venv")
    _link_outside_tools(part, pin)
    tools = _hash_tools(part, pin)
    environment = tool_environment(pin, part, home, os.environ)
    _try_imports(pin, part, home, environment, probe_seconds)
    aiecc = _probe_aiecc(pin, part, home, environment, probe_seconds)
    for word in aiecc["unlisted"]:
        note(f"aiecc --help does not list {word} by itself; it counts as one of --get-<name>")
    shutil.rmtree(wheelhouse)
    shutil.rmtree(home)
    files = canonical_json(hash_tree(part / "venv"))
    record = {
        "schema": SCHEMA,
        "target": "npu2",
        "toolchain": pin.digest,
        "python": {"version": interpreter.version},
        "wheels": {wheel.file: wheel.sha256 for wheel in pin.wheels},
        "tools": tools,
        "aiecc": aiecc,
        "files_sha256": sha256_hex(files),
    }
    write_atomic(part / FILES, files)
    write_atomic(part / RECORD, canonical_json(record))


def _need_space(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part).free
    if free < needed + _SPARE_BYTES:
        raise Refused(
            f"out/toolchains: the wheels unpack to {needed >> 20} MiB and {free >> 20} MiB are free; "
            "free some space and run again, nothing was half-installed"
        )


def _make_venv(interpreter: Interpreter, venv: Path, home: Path) -> None:
    """Make an empty virtual environment: no pip in it, so that it holds the pinned wheels and nothing else."""
    command = [str(interpreter.path), "-I", "-m", "venv", "--without-pip", "--symlinks", str(venv)]
    environment = isolated_environment(os.environ, home)
    done = run_child(command, name="python -m venv", cwd=home, environment=environment, limits=limits_of(_VENV_SECONDS))
    if done.exit_code != 0:
        raise Refused(f"Python {interpreter.version}: its venv module fails ({complaint(done.err + done.out)})")


def _install_wheels(pin: Npu2Pin, part: Path, wheelhouse: Path, home: Path) -> None:
    requirements = wheelhouse / "requirements.txt"
    requirements.write_text("".join(f"./{wheel.file} --hash=sha256:{wheel.sha256}\n" for wheel in pin.wheels))
    environment = isolated_environment(os.environ, home)
    python = part / "venv" / "bin" / "python"
    arguments = ["install", "--isolated", "--no-index", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    arguments += ["--no-compile", "--no-cache-dir", "--no-warn-script-location", "--progress-bar", "off"]
    try:
        run_pip([*arguments, "-r", requirements.name], cwd=wheelhouse, environment=environment, python=python)
        run_pip(["check"], cwd=wheelhouse, environment=environment, python=python)
    except Refused:
        raise
    except ElfkilnError as error:
        inside = ", ".join(pin.inside_wheels) or "none"
        raise Refused(
            f"{error}; the wheels of toolchain.lock do not fit together or this machine "
            f"(packages said to lie inside them: {inside})"
        ) from error


def _remove_launchers(venv: Path) -> None:
    for path in (venv / "bin").iterdir():
        if not path.name.startswith("python"):
            path.unlink()


def _link_outside_tools(part: Path, pin: Npu2Pin) -> None:
    """Link to the tools of the machine that the lock pins: linked, not copied, for their libraries lie beside them."""
    for tool in pin.outside_tools:
        where, path = f"{tool.name}: {tool.file}", Path(tool.file)
        if not path.is_file() or not os.access(path, os.X_OK):
            raise Differs(
                f"{where}: missing on this machine, or no program; toolchain.lock pins it under outside_tools"
            )
        found = file_sha256(path)
        if found != tool.sha256:
            raise refusal(f"{where}: sha256", expected=tool.sha256, found=found, remedy="it is not the pinned program")
        (part / OUTSIDE).mkdir(exist_ok=True)
        (part / OUTSIDE / tool.name).symlink_to(path)


def _binaries(folder: Path, pin: Npu2Pin) -> list[tuple[str, Path]]:
    site = site_packages(folder, pin.python)
    tools = [(tool.name, site / tool.file) for tool in pin.tools]
    outside = [(tool.name, folder / OUTSIDE / tool.name) for tool in pin.outside_tools]
    return [(PYTHON, folder / "venv" / "bin" / "python"), *tools, *outside]


def _hash_tools(folder: Path, pin: Npu2Pin) -> dict[str, dict[str, Any]]:
    required: dict[str, Tool] = {tool.name: tool for tool in pin.tools if tool.required}
    found = {}
    for name, path in _binaries(folder, pin):
        if not path.is_file():
            if name in required:
                raise Refused(
                    f"{name}: {required[name].file} is not there after install; the wheels do not hold it (a program "
                    "of this machine can be pinned in its place, under target.npu2.outside_tools of toolchain.lock)"
                )
            continue
        if not os.access(path, os.X_OK):
            raise Refused(f"{name}: {path.name} is not executable after install; the wheel is not usable")
        found[name] = {
            "file": _leads_to(folder, path, name),
            "sha256": file_sha256(path),
            "size": path.stat().st_size,
        }
    return found


def _leads_to(folder: Path, path: Path, name: str) -> str:
    """Return where a tool really lies, links resolved, below the install.

    The interpreter and tools outside the wheels are the machine's own: of them the place does not count.
    """
    if name == PYTHON or path.parent == folder / OUTSIDE:
        return path.resolve().name
    real, home = path.resolve(), folder.resolve()
    if not real.is_relative_to(home):
        raise refusal(f"{name}: {path.name}", expected="a file of the installed wheels", found=f"a link to {real}")
    return real.relative_to(home).as_posix()


def _try_imports(pin: Npu2Pin, part: Path, home: Path, environment: Mapping[str, str], probe_seconds: float) -> None:
    """Import what generators import, and see that it comes from the installed wheels."""
    program = (
        "import importlib, json, sys\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    found[name] = importlib.import_module(name).__file__\n"
        "print(json.dumps(found))\n"
    )
    python = part / "venv" / "bin" / "python"
    run = probe(
        [python, "-P", "-s", "-c", program, *pin.imports],
        name="python (first import of aie)",
        cwd=home,
        environment=environment,
        # numpy and the dialects load without cached bytecode here.
        timeout=5 * probe_seconds,
    )
    if run.exit_code != 0:
        reason = run.ending if run.exit_code < 0 else complaint(run.err)
        inside = ", ".join(pin.inside_wheels) or "none"
        raise Refused(
            f"the installed wheels cannot import {' '.join(pin.imports)}: {brief(reason, 200)} "
            f"(packages said to lie inside them: {inside})"
        )
    site = site_packages(part, pin.python).resolve()
    try:
        answer = Value(parse_strict_json(run.out.encode(), "its answer"), "its answer").table()
        places = {name: place.text() for name, place in answer.items() if place.raw is not None}
    except Refused as error:
        raise Refused(f"python (first import of aie) printed {brief(run.out)} and not its answer") from error
    for name, place in places.items():
        if not Path(place).resolve().is_relative_to(site):
            raise refusal(f"import {name}", expected="a module of the installed wheels", found=place)


def _probe_aiecc(
    pin: Npu2Pin, part: Path, home: Path, environment: Mapping[str, str], probe_seconds: float
) -> dict[str, Any]:
    """Ask aiecc for its options and version.

    Raises `Refused` unless it is of the pinned generation and has every option that elfkiln and the lock will pass.
    """
    aiecc = next(site_packages(part, pin.python) / tool.file for tool in pin.tools if tool.name == "aiecc")
    answers = {}
    for question in ("--help", "--version"):
        run = probe(
            [aiecc, question], name=f"aiecc {question}", cwd=home, environment=environment, timeout=probe_seconds
        )
        if run.exit_code != 0:
            raise Refused(f"aiecc {question}: {run.ending}: {complaint(run.err)}; it does not run on this machine")
        answers[question] = run.out + run.err
    generation = detect_generation(answers["--help"])
    if generation.name != pin.aiecc_generation:
        raise refusal(
            "aiecc --help",
            expected=f"the options of {pin.aiecc_generation} ({' '.join(GENERATIONS[pin.aiecc_generation].has)})",
            found=f"those of {generation.name}",
            remedy=f'if the wheels are right, set aiecc_generation = "{generation.name}" in toolchain.lock',
        )
    options = listed_options(answers["--help"])
    unlisted = check_options(generation, pin.aiecc_flags, options)
    return {
        "generation": generation.name,
        "version": brief(answers["--version"].strip(), 400),
        "options": options,
        "unlisted": list(unlisted),
    }

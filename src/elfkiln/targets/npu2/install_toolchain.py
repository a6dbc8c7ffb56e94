"""Installs the pinned toolchain into out/toolchains/<digest>/ and checks it on every use.

An install is made in a folder of its own and renamed into place when it is complete, its record inside; so a folder of
that name is a whole install or none. The virtual environment survives the rename: what runs is its `bin/python` (a
link to the pinned interpreter) and the tools below site-packages; launcher scripts, which hold the old folder's path,
are removed. One process installs a digest at a time (file lock); others wait and then find it done. An install that
SIGTERM or an interrupt ends removes its folder; what SIGKILL or a power cut leaves goes when the next install begins.

Two installs of one lock on one machine have the same record, whatever their folders: what names a place (launchers,
pip's note of where a wheel lay, the command that made the environment) is taken out.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.canonical import canonical_json, file_sha256, sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.child import ends_at_sigterm, run_child
from elfkiln.io.complaint import complaint
from elfkiln.io.files import PART, storage_refusal, sync_folder, write_atomic
from elfkiln.io.locking import locked
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.io.workspace import private_folder, remove_tree, sweep
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.npu2.aiecc import GENERATIONS, check_options, detect_generation, listed_options
from elfkiln.targets.npu2.assembler import abi_of, check_pinned
from elfkiln.targets.npu2.installed_toolchain import (
    FILES,
    MACHINE,
    OUTSIDE,
    RECORD,
    SCHEMA,
    Installed,
    binaries,
    leads_to,
    open_whole,
    site_packages,
    tool_environment,
)
from elfkiln.targets.npu2.interpreter import Interpreter, describe_choice, find_python
from elfkiln.targets.npu2.pin import AIEBU_ASM, Npu2Pin, Tool, read_pin
from elfkiln.targets.npu2.tool_run import limits_of, probe
from elfkiln.targets.npu2.toolchain_tree import hash_tree
from elfkiln.targets.npu2.wheels import (
    Note,
    Sources,
    collect,
    isolated_environment,
    run_pip,
    silent,
    unpacked_bytes,
)

_VENV = "pyvenv.cfg"
_LOCK_SECONDS = 3600.0
_VENV_SECONDS = 600.0
_PROBE_SECONDS = 60.0
_SPARE_BYTES = 64 << 20


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
                    return open_whole(folder, npu2)
                except Refused as problem:
                    note(f"installing again: {problem}")
            # Before some GB are fetched for nothing.
            check_pinned(npu2, os.environ)
            sweep(project.toolchains)
            with private_folder(project.toolchains, PART) as part:
                _install_into(part, npu2, Sources(Store(project.store), wheels), find, note, probe_seconds)
                _publish(part, folder)
    except OSError as error:
        raise storage_refusal(Path(error.filename or folder), error) from error
    installed = open_whole(folder, npu2)
    note(f"installed {installed.describe()}")
    return installed


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
    _take_places_out(part / "venv", site_packages(part, pin.python))
    _link_outside_tools(part, pin)
    tools = _hash_tools(part, pin)
    environment = tool_environment(pin, part, home, os.environ)
    _note_abi(tools, pin, part, home, environment, note)
    _try_imports(pin, part, home, environment, probe_seconds)
    aiecc = _probe_aiecc(pin, part, home, environment, probe_seconds)
    for word in aiecc["unlisted"]:
        note(f"aiecc --help does not list {word} by itself; it counts as one of --get-<name>")
    shutil.rmtree(wheelhouse)
    shutil.rmtree(home)
    tree = hash_tree(part / "venv")
    machine = {name: digest for name, digest in tree.items() if name == _VENV or name.startswith("bin/")}
    files = canonical_json({name: digest for name, digest in tree.items() if name not in machine})
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
    write_atomic(part / MACHINE, canonical_json(machine))
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
    environment = isolated_environment(home)
    done = run_child(command, name="python -m venv", cwd=home, environment=environment, limits=limits_of(_VENV_SECONDS))
    if done.exit_code != 0:
        raise Refused(f"Python {interpreter.version}: its venv module fails ({complaint(done.err + done.out)})")


def _install_wheels(pin: Npu2Pin, part: Path, wheelhouse: Path, home: Path) -> None:
    requirements = wheelhouse / "requirements.txt"
    requirements.write_text("".join(f"./{wheel.file} --hash=sha256:{wheel.sha256}\n" for wheel in pin.wheels))
    environment = isolated_environment(home)
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


def _take_places_out(venv: Path, site: Path) -> None:
    """Remove what holds the folder of this install: nothing of it is needed, and all of it would differ elsewhere."""
    for path in (venv / "bin").iterdir():
        if not path.name.startswith("python"):
            path.unlink()
    for note in site.glob("*.dist-info/direct_url.json"):
        note.unlink()
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("../../../bin/") and "/direct_url.json," not in line]
        record.write_text("".join(kept), encoding="utf-8")
    settings = venv / _VENV
    lines = settings.read_text(encoding="utf-8").splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("command")), encoding="utf-8")


def _link_outside_tools(part: Path, pin: Npu2Pin) -> None:
    """Link to the tools of the machine that the lock pins: linked, not copied, for their libraries lie beside them."""
    for tool in pin.outside_tools:
        (part / OUTSIDE).mkdir(exist_ok=True)
        (part / OUTSIDE / tool.name).symlink_to(tool.file)


def _note_abi(
    tools: dict[str, dict[str, Any]], pin: Npu2Pin, part: Path, home: Path, environment: Mapping[str, str], note: Note
) -> None:
    """Record the ABI version of the ELFs that aiebu-asm makes: as it is found by trying, else as the lock has it."""
    path = next(path for name, path in binaries(part, pin) if name == AIEBU_ASM)
    pinned = next((tool.abi for tool in pin.outside_tools if tool.name == AIEBU_ASM), None)
    found = abi_of(path, home / "abi", environment)
    if None not in (pinned, found) and pinned != found:
        where = f"toolchain.lock: target.npu2.outside_tools.{AIEBU_ASM}.abi"
        raise refusal(where, expected=f"{found}, the ABI version of what it makes", found=pinned)
    if found is None and pinned is None:
        note(f"{AIEBU_ASM}: the ABI version of what it makes could not be found out; the first full ELF shows it")
    tools[AIEBU_ASM]["abi"] = found if found is not None else pinned


def _hash_tools(folder: Path, pin: Npu2Pin) -> dict[str, dict[str, Any]]:
    required: dict[str, Tool] = {tool.name: tool for tool in pin.tools if tool.required}
    found = {}
    for name, path in binaries(folder, pin):
        if not path.is_file():
            if name in required:
                raise Refused(
                    f"{name}: {required[name].file} is not there after install; the wheels do not hold it (a program "
                    f"of this machine can be pinned in its place: elfkiln toolchain bump {name}=PATH)"
                )
            continue
        if not os.access(path, os.X_OK):
            raise Refused(f"{name}: {path.name} is not executable after install; the wheel is not usable")
        found[name] = {
            "file": leads_to(folder, path, name),
            "sha256": file_sha256(path),
            "size": path.stat().st_size,
        }
    return found


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

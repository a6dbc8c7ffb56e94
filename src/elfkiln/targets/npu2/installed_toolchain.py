"""An installed toolchain: opening it, and the checks that what runs is what was installed.

What a build uses is hashed: the tools before every build, every other file of the virtual environment once per process
and by size, times and inode after that (`toolchain_tree.Guard`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elfkiln.errors import Refused, brief, mismatch_line, refusal
from elfkiln.io.canonical import file_sha256, sha256_hex
from elfkiln.io.reading import read_bytes
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin
from elfkiln.targets.npu2.aiecc import GENERATIONS, check_options
from elfkiln.targets.npu2.pin import Npu2Pin, read_pin
from elfkiln.targets.npu2.toolchain_tree import Guard, Signature, signature

SCHEMA = "elfkiln-install/3"
RECORD = "install.json"
FILES = "files.json"
MACHINE = "machine.json"
"""Files of the virtual environment that name places of this machine, by sha256: what differs between equal installs."""

PYTHON = "python"
"""How the interpreter is called among the hashed tools."""

OUTSIDE = "outside"
"""Folder of links to the tools no wheel holds; on PATH, so that aiecc finds them by name."""

REDO = "run elfkiln toolchain install target=npu2"
_RECORD_BYTES = 64 << 20


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
    for name, path in binaries(installed.folder, installed.pin):
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
        if (real := leads_to(installed.folder, path, name)) != before["file"]:
            raise Refused(mismatch_line(where, expected="this file", found=f"a link to {real}", remedy=remedy))
    return seen


def check_unchanged(installed: Installed, seen: Mapping[str, Signature]) -> None:
    """Raise `Refused` when a tool is not the file whose signature `verify_tools` took before the build."""
    for name, path in binaries(installed.folder, installed.pin):
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


def open_whole(folder: Path, pin: Npu2Pin) -> Installed:
    """Return the toolchain of a folder after hashing every file of it; `Refused` when it is not whole."""
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
        machine = read_bytes(folder / MACHINE, _RECORD_BYTES)
        record = parse_strict_json(data, RECORD)
        whole = (
            record["schema"] == SCHEMA
            and record["toolchain"] == pin.digest
            and record["files_sha256"] == sha256_hex(files)
            and isinstance(record["tools"], dict)
            and isinstance(record["python"]["version"], str)
            and _are_options(record["aiecc"]["options"])
        )
        expected = {**parse_strict_json(files, FILES), **parse_strict_json(machine, MACHINE)}
    except (OSError, ValueError, KeyError, TypeError, Refused) as error:
        raise Refused(f"toolchain npu2 {pin.digest[:12]} is half-installed ({brief(error, 80)}); {REDO}") from error
    if not whole:
        raise Refused(f"toolchain npu2 {pin.digest[:12]}: {RECORD} is of another install or elfkiln; {REDO} to redo it")
    # What is passed can have changed with elfkiln since; the lock's flags are those of the install.
    check_options(GENERATIONS[pin.aiecc_generation], pin.aiecc_flags, record["aiecc"]["options"])
    return Installed(folder, pin, record, Guard(folder / "venv", expected))


def _are_options(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(item, bool) for item in value.values())


def binaries(folder: Path, pin: Npu2Pin) -> list[tuple[str, Path]]:
    """Return every program that an install's record has a digest of, by name."""
    site = site_packages(folder, pin.python)
    tools = [(tool.name, site / tool.file) for tool in pin.tools]
    outside = [(tool.name, folder / OUTSIDE / tool.name) for tool in pin.outside_tools]
    return [(PYTHON, folder / "venv" / "bin" / "python"), *tools, *outside]


def leads_to(folder: Path, path: Path, name: str) -> str:
    """Return where a tool really lies, links resolved, below the install.

    The interpreter and tools outside the wheels are the machine's own: of them the place does not count.
    """
    if name == PYTHON or path.parent == folder / OUTSIDE:
        return path.resolve().name
    real, home = path.resolve(), folder.resolve()
    if not real.is_relative_to(home):
        raise refusal(f"{name}: {path.name}", expected="a file of the installed wheels", found=f"a link to {real}")
    return real.relative_to(home).as_posix()

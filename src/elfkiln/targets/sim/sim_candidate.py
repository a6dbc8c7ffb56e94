"""A candidate lock with another ziglang or xdsl for target sim, and a builder that compiles with the zig of a wheel."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.files import storage_refusal
from elfkiln.io.reading import read_text
from elfkiln.project import Project
from elfkiln.store.toolchain_lock import MAX_BYTES, TargetPin, read_lock
from elfkiln.targets.given_wheels import DAMAGED, CandidateLock, Change, GivenWheel, WheelName, find_wheels, read_given
from elfkiln.targets.sim.sim_builder import SimBuilder
from elfkiln.targets.sim.zig_toolchain import Installed, SimToolchain, installed_packages

_ZIGLANG, _XDSL = "ziglang", "xdsl"
_PROGRAM = "ziglang/zig"
# The wheel of 0.17 holds a program of 185 MB among 375 MB in 19,500 files.
_MOST_BYTES, _MOST_FILES = 4 << 30, 200_000
_PIECE = 1 << 20
_MOST_REQUIREMENTS = 8 << 20


def sim_candidate(lock_file: Path, wheels: Sequence[Path]) -> CandidateLock:
    """Make the candidate lock in which the given wheels replace the pinned ziglang and xdsl; nothing is written.

    Raises `Refused` for a wheel that cannot be used: not readable, of another platform, a ziglang without its zig.
    """
    lock = read_lock(lock_file)
    pin = lock.target("sim")
    SimToolchain.from_pin(pin)
    table = {name: dict(value) if isinstance(value, Mapping) else value for name, value in pin.table.items()}
    changes, notes = [], list[str]()
    for path in wheels:
        _check_platform(path.name)
        given = read_given(path)
        row = _row(given, path, table[given.name])
        before = table[given.name]
        if row["wheel"] == before.get("wheel") and row["sha256"] != before.get("sha256"):
            notes.append(
                f"{given.file}: toolchain.lock knows a file of this name with sha256 {before.get('sha256')}, this one "
                f"has {given.sha256}; find out which of the two upstream published"
            )
        if row != before:
            changes.append(Change(given.name, before.get("wheel"), given.file))
            table[given.name] = row
    digest = sha256_hex(canonical_json(table)) if changes else pin.digest
    text = _rewritten(read_text(lock.path, limit=MAX_BYTES), table)
    notes += _notes(pin.table, table)
    notes += _also(lock_file.parent, pin.table, table)
    return CandidateLock("sim", text, pin.digest, digest, tuple(changes), tuple(notes), _why(pin.table, table))


def zig_of_wheel(path: Path, folder: Path) -> Path:
    """Unpack the package of a ziglang wheel below `folder` and return its program; what is not the package stays.

    Raises `Refused` for a damaged wheel or one that leads out of its folder, and where there is no space.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [one for one in archive.infolist() if one.filename.startswith("ziglang/")]
            if sum(one.file_size for one in entries) > _MOST_BYTES or len(entries) > _MOST_FILES:
                raise refusal(path.name, expected="at most 4 GiB in 200,000 files", found="more")
            for entry in entries:
                if ".." in entry.filename.split("/") or "\\" in entry.filename:
                    raise refusal(path.name, expected="paths below ziglang/", found=brief(entry.filename, 80))
            archive.extractall(folder, entries)
    except OSError as error:
        raise storage_refusal(folder, error) from error
    except (*DAMAGED, ValueError) as error:
        raise _unreadable(path, error) from error
    program = folder / _PROGRAM
    os.chmod(program, 0o755)
    return program


def trial_builder(project: Project, pin: TargetPin, wheels: Sequence[Path], note: Callable[[str], None]) -> SimBuilder:
    """Return a builder of a trial project that uses the candidate's zig, unpacked in that project, not this Python's.

    Without a wheel of ziglang the installed zig is used. Raises `Refused` when the pin asks for another xdsl than this
    Python has: elfkiln imports it, so it cannot be another one in this process.
    """
    found = installed_packages()
    wanted = str(pin.table[_XDSL]["version"])
    if found.xdsl != wanted:
        raise Refused(
            f"toolchain bump --build: the candidate has xdsl {wanted} and this Python has xdsl "
            f"{found.xdsl or 'not'} installed, which elfkiln itself imports; install the candidate's in a second "
            "checkout (requirements.in, requirements.txt) and build there, or leave out --build"
        )
    zig = next((path for path in find_wheels(wheels) if WheelName.parse(path.name).name == _ZIGLANG), None)
    if zig is not None:
        note(f"unpacking {zig.name} for this build alone")
        program = zig_of_wheel(zig, project.out / "candidate-zig")
        found = Installed(str(pin.table[_ZIGLANG]["version"]), found.xdsl, program)
    builder = SimBuilder(project, pin, found)
    builder.prepare()
    return builder


def _check_platform(file: str) -> None:
    """Refuse a wheel that target sim's machine, Linux on x86-64, cannot use."""
    platforms = WheelName.parse(file).platforms
    if not any(one == "any" or re.fullmatch(r"(many|musl)?linux[0-9_]*_x86_64", one) for one in platforms):
        raise refusal(
            file,
            expected="a wheel for Linux on x86-64, target sim's machine",
            found=f"one for {', '.join(platforms)}",
            remedy="pip download on such a machine gets the right one",
        )


def _row(given: GivenWheel, path: Path, before: Mapping[str, Any]) -> dict[str, Any]:
    row = {**before, "version": given.version, "wheel": given.file, "sha256": given.sha256}
    if given.name == _ZIGLANG and given.sha256 != before.get("sha256"):
        row["zig_sha256"] = _digest_of_program(path)
    return row


def _digest_of_program(path: Path) -> str:
    """Return the sha256 of the zig in a wheel; `Refused` when it has none or is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            entry = next((one for one in archive.infolist() if one.filename == _PROGRAM), None)
            if entry is None or not entry.file_size:
                raise refusal(
                    path.name,
                    expected=f"the program {_PROGRAM}",
                    found="none" if entry is None else "an empty file",
                    remedy="get the wheel of ziglang for Linux on x86-64",
                )
            if entry.file_size > _MOST_BYTES:
                raise refusal(f"{path.name}: {_PROGRAM}", expected="at most 4 GiB", found=f"{entry.file_size} bytes")
            digest = hashlib.sha256()
            with archive.open(entry) as stream:
                while piece := stream.read(_PIECE):
                    digest.update(piece)
    except (*DAMAGED, OSError) as error:
        raise _unreadable(path, error) from error
    return digest.hexdigest()


def _unreadable(path: Path, error: Exception) -> Refused:
    return Refused(f"{path.name}: not readable as a wheel ({brief(error, 100)}); get it again")


def _why(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return why recipes change: each holds the sha256 of zig, and of xdsl only what the C that is printed says."""
    one, other = before[_ZIGLANG], after[_ZIGLANG]
    if one["zig_sha256"] == other["zig_sha256"]:
        return ""
    return f"each holds the sha256 of zig, and zig is another: {one['version']} -> {other['version']}"


def _notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    notes = []
    one, other = before[_ZIGLANG], after[_ZIGLANG]
    if one != other and one["zig_sha256"] == other["zig_sha256"]:
        notes.append("ziglang: the program in the wheel is the pinned one to the byte, so no recipe changes")
    if before[_XDSL] != after[_XDSL]:
        notes.append(
            "xdsl: a recipe holds the C that is printed, not xdsl; with another xdsl one changes only where that C "
            "does, which a build with it installed shows"
        )
    return notes


def _also(root: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what else has to change with toolchain.lock: what pins the packages that this Python installs."""
    notes = []
    for package in (_ZIGLANG, _XDSL):
        was, now = str(before[package]["version"]), str(after[package]["version"])
        if before[package] == after[package]:
            continue
        pinning = [path.name for path in _requirement_files(root) if _pins_another(path, package, now)]
        if pinning:
            last = f" and {pinning[-1]}" if len(pinning) > 1 else ""
            files = ", ".join(pinning[:-1] or pinning) + last
            verb = "pin" if last else "pins"
            notes.append(
                f"to replace toolchain.lock with this, change {files} too, which {verb} {package} {was}: a build takes "
                f"what is installed, and only {package} {now} then"
            )
        elif was != now:
            notes.append(f"to build with this as toolchain.lock, install {package}=={now} in place of {was}")
    return notes


def _requirement_files(root: Path) -> list[Path]:
    return [*sorted(root.glob("requirements*.in")), *sorted(root.glob("requirements*.txt")), root / "pyproject.toml"]


def _pins_another(path: Path, package: str, version: str) -> bool:
    """Whether a file pins a package to another version than that; a file that is not there or not text does not."""
    try:
        text = read_text(path, limit=_MOST_REQUIREMENTS)
    except ElfkilnError:
        return False
    found = re.findall(rf"""^[\s"']*{package}\s*==\s*([^\s;,\\"']+)""", text, re.MULTILINE)
    return any(one != version for one in found)


def _rewritten(text: str, table: Mapping[str, Any]) -> str:
    """Return the lock's text with other fields of ziglang and xdsl; every other line stays as it is."""
    document = tomlkit.parse(text)
    expected = document.unwrap()
    expected["target"]["sim"] = dict(table)
    try:
        for package in (_ZIGLANG, _XDSL):
            section: Any = document["target"]["sim"][package]
            for field, value in table[package].items():
                if section[field] != value:
                    section[field] = value
        candidate = tomlkit.dumps(document)
        same = tomlkit.parse(candidate).unwrap() == expected
    except (KeyError, TypeError, TOMLKitError):
        same = False
    if not same:
        raise Refused("toolchain.lock: its sim section is not laid out as bump can edit; write the wheels in by hand")
    return candidate

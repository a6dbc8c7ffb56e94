"""The lock in which given wheels replace the pinned ones: read from their metadata, written with tomlkit.

Comments, order and every line that does not change stay as they are. What the candidate would mean for what is
registered and for the models is `elfkiln.work.bump`'s to say.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Comment, Table, Whitespace

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.canonical import canonical_json, file_sha256, sha256_hex
from elfkiln.io.reading import read_text
from elfkiln.store.toolchain_lock import MAX_BYTES, TargetPin, read_lock
from elfkiln.targets.given_wheels import CandidateLock, Change, GivenWheel, WheelName, find_wheels, read_given
from elfkiln.targets.npu2.assembler import abi_of
from elfkiln.targets.npu2.pin import AIEBU_ASM, MLIR_AIE, Npu2Pin, Wheel, read_pin


def candidate_lock(lock_file: Path, paths: Iterable[Path], assembler: Path | None = None) -> CandidateLock:
    """Make the candidate lock in which the given wheels replace the pinned ones of the same packages.

    A wheel of a package that is not pinned yet is added. mlir-aie's Python tag sets the Python version. `assembler` is
    the aiebu-asm of this machine to pin, or None; `paths` may then be empty. Nothing is written. Raises `Refused` for
    an unusable wheel or program.
    """
    lock = read_lock(lock_file)
    target = lock.target("npu2")
    pin = read_pin(target)
    files = tuple(paths)
    given = [read_given(path) for path in (find_wheels(files) if files or assembler is None else ())]
    text = read_text(lock.path, limit=MAX_BYTES)
    known = _known_wheels(text)
    notes: list[str] = []
    table = _edited(target, pin, given, known, notes)
    if assembler is not None:
        _pin_assembler(table, assembler, notes)
    digest = sha256_hex(canonical_json(table))
    after = read_pin(TargetPin("npu2", table, digest))
    notes += _gaps(after, given, known)
    notes += _namesakes(pin, given, known)
    why = "each holds its toolchain: wheels, programs and flags" if digest != target.digest else ""
    return CandidateLock("npu2", rewritten(text, table), target.digest, digest, _changes(pin, after), tuple(notes), why)


def _pin_assembler(table: dict[str, Any], path: Path, notes: list[str]) -> None:
    """Put the machine's aiebu-asm into the section: its place, its sha256, and the ABI version of what it makes."""
    program = path.absolute()
    if not program.is_file() or not os.access(program, os.X_OK):
        raise refusal(f"{AIEBU_ASM}={path}", expected="a program", found="none that can be run")
    row: dict[str, Any] = {"file": str(program), "sha256": file_sha256(program)}
    with tempfile.TemporaryDirectory(prefix="elfkiln-abi-") as folder:
        environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        abi = abi_of(program, Path(folder, "abi"), environment)
    if abi is None:
        notes.append(f"{AIEBU_ASM}: the ABI version of what {program} makes could not be found out")
    else:
        row["abi"] = abi
    table["tools"] = {name: file for name, file in table["tools"].items() if name != AIEBU_ASM}
    table["outside_tools"] = {**table.get("outside_tools", {}), AIEBU_ASM: row}


def _edited(
    target: TargetPin,
    pin: Npu2Pin,
    given: Sequence[GivenWheel],
    known: Mapping[str, Mapping[str, Any]],
    notes: list[str],
) -> dict[str, Any]:
    """Return the npu2 section with the given wheels in it."""
    table = dict(target.table)
    fresh = {wheel.name: wheel for wheel in given}
    rows = [
        _row(fresh.pop(wheel.name), wheel) if wheel.name in fresh else dict(row)
        for wheel, row in zip(pin.wheels, table["wheels"], strict=True)
    ]
    rows += [_row(wheel, None) for wheel in fresh.values()]
    table["wheels"] = rows
    for wheel in given:
        if wheel.name == MLIR_AIE and wheel.sha256 != pin.wheel(MLIR_AIE).sha256:
            table["python"] = _python_of(wheel, pin.python)
            table["aiecc_generation"] = _generation_of(wheel, pin, known, notes)
    return table


def _row(wheel: GivenWheel, before: Wheel | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": wheel.name, "version": wheel.version, "file": wheel.file}
    if before is not None and before.url is not None:
        place = before.url.rpartition("/")[0].replace(f"v{before.version}", f"v{wheel.version}")
        row["url"] = before.url if wheel.file == before.file else f"{place}/{quote(wheel.file)}"
    return {**row, "sha256": wheel.sha256, "size": wheel.size}


def _python_of(wheel: GivenWheel, now: str) -> str:
    """Return the CPython a wheel is for by its tag, e.g. cp312 -> 3.12; a pure one leaves the version alone."""
    for tag in sorted(map(str, WheelName.parse(wheel.file).tags)):
        match = re.match(r"cp3([0-9]{1,2})-", tag)
        if match is not None:
            return f"3.{match[1]}"
    return now


def _generation_of(wheel: GivenWheel, pin: Npu2Pin, known: Mapping[str, Mapping[str, Any]], notes: list[str]) -> str:
    """Return aiecc's generation: of a known wheel, else by release (1.4.0 came after the change, 1.1 before it)."""
    row = known.get(wheel.sha256, {})
    if "aiecc_generation" in row:
        return str(row["aiecc_generation"])
    match = re.match(r"([0-9]+)\.([0-9]+)\.", wheel.version)
    if match is not None and match[1] != "0":
        release = (int(match[1]), int(match[2]))
        if release >= (1, 4):
            return "get-full-elf"
        if release <= (1, 1):
            return "generate-full-elf"
    notes.append(
        f"mlir-aie {wheel.version}: which command line its aiecc takes is not known; {pin.aiecc_generation} is kept, "
        "and the install says if that is wrong"
    )
    return pin.aiecc_generation


def _gaps(after: Npu2Pin, given: Sequence[GivenWheel], known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what a person has to see to: tags that do not fit, requirements no wheel serves, a known pair broken."""
    notes = [
        f"{wheel.file}: its tags do not fit Python {after.python}; give a wheel that does"
        for wheel in after.wheels
        if not WheelName.parse(wheel.file).fits_python(after.python)
    ]
    for wheel in given:
        notes += filter(None, (_unserved(wheel, line, after) for line in wheel.requires))
    files = {wheel.file for wheel in after.wheels}
    for wheel in given:
        pair = known.get(wheel.sha256, {}).get("pairs_with")
        if pair is not None and pair not in files:
            notes.append(f"{wheel.file} is known together with {pair}, which is not in the candidate")
    return notes


def _unserved(wheel: GivenWheel, line: str, after: Npu2Pin) -> str:
    """Return what is missing for a requirement of a wheel, or nothing: no wheel of it, or one of another version."""
    try:
        needed = Requirement(line)
    except InvalidRequirement:
        return f"{wheel.name} {wheel.version} requires {brief(line, 80)}, which is not a requirement pip could read"
    if needed.marker is not None and not needed.marker.evaluate({"extra": "", "python_version": after.python}):
        return ""
    name = canonicalize_name(needed.name)
    if name in map(canonicalize_name, after.inside_wheels):
        return ""
    pinned = next((one.version for one in after.wheels if one.name == name), None)
    if pinned is None:
        return f"{wheel.name} {wheel.version} requires {brief(line, 80)}, of which no wheel is pinned"
    if not needed.specifier.contains(pinned, prereleases=True):
        return f"{wheel.name} {wheel.version} requires {brief(line, 80)}, and {pinned} is pinned"
    return ""


def _namesakes(pin: Npu2Pin, given: Sequence[GivenWheel], known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a note for every given wheel whose file name the lock has, pinned or known, with other digests only."""
    digests: dict[str, list[str]] = {}
    for file, digest in [(w.file, w.sha256) for w in pin.wheels] + [(row.get("file"), d) for d, row in known.items()]:
        digests.setdefault(str(file), []).append(digest)
    return [
        f"{wheel.file}: toolchain.lock knows a file of this name with sha256 {' or '.join(digests[wheel.file])}, this "
        f"one has {wheel.sha256}; find out which of the two upstream published"
        for wheel in given
        if wheel.file in digests and wheel.sha256 not in digests[wheel.file]
    ]


def _changes(before: Npu2Pin, after: Npu2Pin) -> tuple[Change, ...]:
    old = {wheel.name: wheel for wheel in before.wheels}
    tools = {tool.name: tool for tool in before.outside_tools}
    changes = [
        Change(tool.name, tools[tool.name].file if tool.name in tools else None, tool.file)
        for tool in after.outside_tools
        if tools.get(tool.name) != tool
    ]
    changes += [
        Change(wheel.name, old[wheel.name].file if wheel.name in old else None, wheel.file)
        for wheel in after.wheels
        if wheel.name not in old or old[wheel.name].sha256 != wheel.sha256
    ]
    for name, left, right in (
        ("python", before.python, after.python),
        ("aiecc_generation", before.aiecc_generation, after.aiecc_generation),
    ):
        if left != right:
            changes.append(Change(name, left, right))
    return tuple(changes)


def _known_wheels(text: str) -> dict[str, Mapping[str, Any]]:
    rows = tomlkit.parse(text).unwrap().get("known_wheels", [])
    return {row["sha256"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("sha256"), str)}


def rewritten(text: str, table: Mapping[str, Any]) -> str:
    """Return the lock's text with the npu2 section saying `table`; every line that need not change stays as it is.

    Raises `Refused` when the section is not laid out as tables, so that nothing is half-edited.
    """
    document = tomlkit.parse(text)
    expected = document.unwrap()
    expected["target"]["npu2"] = dict(table)
    try:
        section = document["target"]["npu2"]
        assert isinstance(section, Table)
        for field in ("python", "aiecc_generation"):
            if section[field] != table[field]:
                section[field] = table[field]
        _set_tools(section, table)
        wheels = section["wheels"]
        assert isinstance(wheels, AoT)
        _set_rows(wheels, table["wheels"])
        candidate = tomlkit.dumps(document)
        same = tomlkit.parse(candidate).unwrap() == expected
    except (AssertionError, KeyError, TypeError, TOMLKitError):
        same = False
    if not same:
        raise Refused("toolchain.lock: its npu2 section is not laid out as bump can edit; write the wheels in by hand")
    return candidate


def _set_tools(section: Table, table: Mapping[str, Any]) -> None:
    """Make `tools` and `outside_tools` say what `table` says; the row of a program is one line."""
    tools = section["tools"]
    assert isinstance(tools, Table)
    for name in [name for name in tools if name not in table["tools"]]:
        tools.remove(name)
    wanted = table.get("outside_tools", {})
    if "outside_tools" not in section and wanted:
        section.add("outside_tools", tomlkit.table())
    for name, row in wanted.items():
        outside = section["outside_tools"]
        assert isinstance(outside, Table)
        if outside.get(name) != row:
            line = tomlkit.inline_table()
            line.update(row)
            outside[name] = line


def _set_rows(wheels: AoT, rows: Sequence[Mapping[str, Any]]) -> None:
    """Make the wheels' tables say `rows`: those there are changed in place, by package, and new ones come last."""
    there = {str(one["name"]): one for one in wheels}
    for row in rows:
        block = there.get(row["name"])
        if block is None:
            block = tomlkit.table()
            for key, value in row.items():
                block.add(key, value)
            _move_tail(wheels[-1], block)
            wheels.append(block)
            continue
        for key in [key for key in block if key not in row]:
            block.remove(key)
        for key, value in row.items():
            if block.get(key) != value:
                block[key] = value


def _move_tail(before: Table, after: Table) -> None:
    """Move the comment behind the last table, which speaks of what comes next, behind the one that is added."""
    body = before.value.body
    tail: list[Comment | Whitespace] = []
    while body and isinstance(item := body[-1][1], Comment | Whitespace):
        tail.insert(0, item)
        body.pop()
    before.add(tomlkit.nl())
    for one in tail:
        after.add(one)

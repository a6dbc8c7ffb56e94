"""Writes a candidate toolchain.lock from given wheels, and says what it would change before anything is built."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.canonical import canonical_json, file_sha256, sha256_hex
from elfkiln.io.files import write_atomic
from elfkiln.models.catalogue import all_models, model_requirements
from elfkiln.project import Project
from elfkiln.store.registry import Entry, load_registry
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.npu2.pin import MLIR_AIE, Npu2Pin, Wheel, WheelName, normalized, read_pin
from elfkiln.work.jobs import entry_of, registry_key

_HEADER = "[[target.npu2.wheels]]"
_METADATA_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class GivenWheel:
    """A wheel as it lies there: name and version of its metadata, file name, digest, size, and what it requires."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    requires: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One package of the candidate: its pinned and its new file (None: not pinned before)."""

    name: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate lock: its text, both toolchain digests, the changed wheels, and what stays to be seen to.

    `names` are those of registry.yaml whose recipes it changes, `recipes` the number of those recipes. Of the `wanted`
    names that the `models` below plans/ ask for, `unbuilt` have no npu2 recipe yet: whichever lock is there when they
    are built makes them.
    """

    text: str
    digest_before: str
    digest: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    names: tuple[str, ...]
    recipes: int
    models: int
    wanted: int
    unbuilt: int

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value without the text."""
        return {
            "digest": self.digest,
            "digest_before": self.digest_before,
            "changes": [{"name": c.name, "before": c.before, "after": c.after} for c in self.changes],
            "notes": list(self.notes),
            "names": list(self.names),
            "recipes": self.recipes,
            "models": self.models,
            "wanted": self.wanted,
            "unbuilt": self.unbuilt,
        }


def find_wheels(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the wheels among files and folders; `Refused` for a path that is neither, or when there are none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(path.glob("*.whl"))
        elif path.is_file():
            found.append(path)
        else:
            raise refusal("wheels", expected="wheel files or a folder of them", found=path)
    if not found:
        raise refusal("wheels", expected="wheel files or a folder of them", found="none")
    return tuple(found)


def read_given(path: Path) -> GivenWheel:
    """Read a wheel's name, version and requirements from its metadata, and hash it.

    Raises `Refused` when the file is no wheel, or its metadata and its file name do not say the same.
    """
    parts = WheelName.parse(path.name)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            if len(names) != 1:
                raise refusal(path.name, expected="one .dist-info/METADATA", found=len(names))
            with archive.open(names[0]) as stream:
                metadata = BytesParser().parsebytes(stream.read(_METADATA_BYTES), headersonly=True)
        size, digest = path.stat().st_size, file_sha256(path)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
        raise Refused(f"{path.name}: not readable as a wheel ({brief(error, 100)})") from error
    name, version = normalized(str(metadata.get("Name", ""))), str(metadata.get("Version", ""))
    if (name, version) != (parts.name, parts.version):
        raise refusal(f"{path.name}: METADATA", expected=f"{parts.name} {parts.version}", found=f"{name} {version}")
    requires = tuple(str(line) for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in str(line))
    return GivenWheel(name, version, path.name, digest, size, requires)


def bump(project: Project, paths: Iterable[Path]) -> Candidate:
    """Make the candidate lock in which the given wheels replace the pinned ones of the same packages.

    A wheel of a package that is not pinned yet is added. mlir-aie's Python tag sets the Python version. Nothing is
    written, installed or built. Raises `Refused` for an unusable wheel or when the lock cannot be edited.
    """
    lock = read_lock(project.lock_file)
    target = lock.target("npu2")
    pin = read_pin(target)
    given = [read_given(path) for path in find_wheels(paths)]
    for wheel in given:
        if sum(other.name == wheel.name for other in given) > 1:
            raise refusal("wheels", expected="one wheel per package", found=f"several of {wheel.name}")
    text = lock.path.read_text(encoding="utf-8")
    known = _known_wheels(text)
    notes: list[str] = []
    table = _edited(target, pin, given, known, notes)
    candidate = _rewrite(text, pin, table)
    digest = sha256_hex(canonical_json(table))
    after = read_pin(TargetPin("npu2", table, digest))
    notes += _gaps(after, given, known)
    notes += _namesakes(pin, given, known)
    registered = load_registry(project.registry_file).entries("npu2")
    models, wanted = _wanted(project, registered, notes)
    changed = registered if digest != target.digest else {}
    return Candidate(
        candidate,
        target.digest,
        digest,
        _changes(pin, after),
        tuple(notes),
        tuple(sorted(changed)),
        len({entry.recipe for entry in changed.values()}),
        models,
        len(wanted),
        sum(not there for there in wanted.values()),
    )


def write_candidate(candidate: Candidate, out: Path, *, overwrite: bool) -> None:
    """Write the candidate; an existing file (toolchain.lock itself, say) is `Refused` unless `overwrite`."""
    if out.exists() and not overwrite:
        raise Refused(f"out={out}: exists; name another file, or say --overwrite")
    write_atomic(out, candidate.text.encode())


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
    for tag in WheelName.parse(wheel.file).pythons:
        match = re.fullmatch(r"cp3([0-9]{1,2})", tag)
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
    there = {wheel.name for wheel in after.wheels} | set(map(normalized, after.inside_wheels))
    for wheel in given:
        for line in wheel.requires:
            match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
            if match is not None and normalized(match[0]) not in there:
                notes.append(f"{wheel.name} {wheel.version} requires {brief(line, 80)}, of which no wheel is pinned")
    files = {wheel.file for wheel in after.wheels}
    for wheel in given:
        pair = known.get(wheel.sha256, {}).get("pairs_with")
        if pair is not None and pair not in files:
            notes.append(f"{wheel.file} is known together with {pair}, which is not in the candidate")
    return notes


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


def _wanted(project: Project, registered: Mapping[str, Entry], notes: list[str]) -> tuple[int, dict[str, bool]]:
    """Return how many models below plans/ could be read, and for each name they ask for whether it is registered."""
    models, wanted = 0, dict[str, bool]()
    for model in all_models(project):
        try:
            asked = model_requirements(project, model)
        except ElfkilnError as error:
            notes.append(f"model {model} is not counted: {error}")
            continue
        models += 1
        for need in asked.requirements:
            wanted[registry_key(asked, need)] = entry_of(registered, asked, need) is not None
    return models, wanted


def _changes(before: Npu2Pin, after: Npu2Pin) -> tuple[Change, ...]:
    old = {wheel.name: wheel for wheel in before.wheels}
    changes = [
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
    rows = tomllib.loads(text).get("known_wheels", [])
    return {row["sha256"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("sha256"), str)}


def _rewrite(text: str, pin: Npu2Pin, table: Mapping[str, Any]) -> str:
    """Return the lock's text with the section's wheels, Python and generation replaced; comments stay where they are.

    The result is read again and must say exactly `table`, and the same as before in every other section.
    """
    lines = text.splitlines()
    blocks = _wheel_blocks(lines)
    rows = {row["name"]: row for row in table["wheels"]}
    out: list[str] = []
    position = 0
    for start, end, name in blocks:
        out += lines[position:start]
        out += _render(rows.pop(name)) if name in rows else lines[start:end]
        position = end
    for row in rows.values():
        out += ["", *_render(row)]
    out += lines[position:]
    candidate = "\n".join(out) + "\n"
    for field, before in (("python", pin.python), ("aiecc_generation", pin.aiecc_generation)):
        candidate = _replace_field(candidate, field, before, str(table[field]))
    try:
        old, new = tomllib.loads(text), tomllib.loads(candidate)
    except tomllib.TOMLDecodeError:
        new = {}
        old = tomllib.loads(text)
    old["target"]["npu2"] = dict(table)
    if new != old:
        raise Refused("toolchain.lock: its npu2 section is not laid out as bump can edit; write the wheels in by hand")
    return candidate


def _wheel_blocks(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return (first line, line after the last, package) of every block of the npu2 wheels."""
    blocks = []
    for start, line in enumerate(lines):
        if line.strip() != _HEADER:
            continue
        end = start + 1
        while end < len(lines) and re.match(r"\s*[A-Za-z0-9_-]+\s*=", lines[end]):
            end += 1
        try:
            name = tomllib.loads("\n".join(lines[start + 1 : end])).get("name")
        except tomllib.TOMLDecodeError:
            name = None
        blocks.append((start, end, str(name)))
    return blocks


def _render(row: Mapping[str, Any]) -> list[str]:
    return [_HEADER, *(f"{key} = {json.dumps(value)}" for key, value in row.items())]


def _replace_field(text: str, field: str, before: str, after: str) -> str:
    head, section, rest = text.partition("[target.npu2]\n")
    line = re.compile(rf'^{field} = "{re.escape(before)}"', re.MULTILINE)
    return head + section + line.sub(lambda _match: f'{field} = "{after}"', rest, count=1)

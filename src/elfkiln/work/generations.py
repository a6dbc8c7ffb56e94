"""Generations: what registry.yaml was after each run that changed it, kept below out/ and never rewritten.

    out/generations/000012.<sha256 of the file>.json     number, what was run, when, the registry's digest, counts
    out/generations/registries/<sha256>.yaml             a registry.yaml, once, whatever number of generations has it

A run that changes nothing makes none. What a killed run, an edit by hand or git left behind becomes a generation of
its own when the next run changes something, so nothing that was there is lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elfkiln.errors import Differs, ElfkilnError, Refused, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.checked import Value
from elfkiln.io.files import write_atomic
from elfkiln.io.locking import locked
from elfkiln.io.reading import read_bytes, read_regular, utf8_text
from elfkiln.io.strict_json import parse_strict_json
from elfkiln.io.terminal import tell
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import MAX_BYTES, Entry, Registry, lock_file, parse_registry
from elfkiln.work.leftovers import sweep_project

SCHEMA = "elfkiln-generation/1"
KEPT = 10
"""Generations whose artifacts `gc` keeps, where nobody says otherwise."""

FOUND = "found as it was, not left by a run"

_NAME = re.compile(r"([0-9]{6,9})\.([0-9a-f]{64})\.json", re.ASCII)
_MOST_RECORD = 1 << 16


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation: its number, what was run, when (seconds since 1970, UTC), and the registry's sha256 (hex).

    The counts are names against the generation before.
    """

    number: int
    what: str
    time: int
    registry: str
    added: int
    changed: int
    dropped: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "number": self.number,
            "what": self.what,
            "time": self.time,
            "registry": f"sha256:{self.registry}",
            "added": self.added,
            "changed": self.changed,
            "dropped": self.dropped,
        }

    def line(self) -> str:
        """Return the line for a person."""
        when = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M:%S")
        counts = f"+{self.added} ~{self.changed} -{self.dropped}"
        return f"{self.number:>4}  {when}  {self.registry[:12]}  {counts:<14}  {self.what}"


@dataclass(frozen=True, slots=True)
class History:
    """All generations, the oldest first; files that are damaged; whether registry.yaml is one of them, and which."""

    generations: tuple[Generation, ...]
    damaged: tuple[Path, ...]
    current: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "current": self.current,
            "generations": [one.to_json() for one in self.generations],
            "damaged": [path.name for path in self.damaged],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person, the latest first."""
        lines = [
            one.line() + ("  <- registry.yaml" if one.number == self.current else "")
            for one in reversed(self.generations)
        ]
        if not self.generations:
            lines.append("no generations yet: the next run that changes registry.yaml makes one")
        elif self.current is None:
            lines.insert(0, "registry.yaml is none of these: it was edited, or a run was killed before it was kept")
        return lines + [f"damaged: {path.name}; elfkiln fsck --repair sets it aside" for path in self.damaged]


@contextlib.contextmanager
def changing(project: Project, what: str) -> Iterator[None]:
    """Keep what registry.yaml is after a block as a generation, if the block changed it, however the block ends.

    `what` says what was run. Where it cannot be kept that is said on standard error; the next change keeps it then.
    """
    before, begun = _registry_bytes(project), _last_number(project)
    try:
        yield
    finally:
        try:
            _keep_change(project, what, before, begun)
        except ElfkilnError as error:
            tell(f"elfkiln: registry.yaml changed and is not kept as a generation: {error}")


def _keep_change(project: Project, what: str, before: bytes | None, begun: int) -> None:
    if _registry_bytes(project) == before:
        return
    with locked(project.generations / ".lock", "the list of generations"):
        if before is not None and not _registry_path(project, sha256_hex(before)).exists():
            _append(project, FOUND, before)
        now = _registry_bytes(project)
        last = _latest(project)
        # Another run may have kept it meanwhile, with what this one did.
        kept = last is not None and last.number > begun and last.registry == (sha256_hex(now) if now else "")
        if now is not None and not kept:
            _append(project, what, now)


def _append(project: Project, what: str, data: bytes) -> None:
    last = _latest(project)
    try:
        known = Registry({}) if last is None else registry_of(project, last)
        registry = parse_registry(utf8_text(data, "registry.yaml"), "registry.yaml", clashes=True)
        counts = [len(names) for names in difference(known, registry).parts]
    except ElfkilnError:
        # What cannot be read is kept as it is, all the same.
        counts = [0, 0, 0]
    digest = sha256_hex(data)
    write_atomic(_registry_path(project, digest), data)
    number = _last_number(project) + 1
    made = Generation(number, what, max(0, int(time.time())), digest, *counts)
    record = canonical_json({"schema": SCHEMA, **made.to_json()})
    write_atomic(project.generations / f"{number:06d}.{sha256_hex(record)}.json", record)


def history(project: Project) -> History:
    """Return all generations; nothing is written. Raises nothing for damaged ones: they are listed."""
    found, damaged = [], []
    for _, digest, path in _records(project):
        try:
            found.append(_read(path, digest))
        except ElfkilnError:
            damaged.append(path)
    now = _registry_bytes(project)
    digest = sha256_hex(now) if now is not None else ""
    current = next((one.number for one in reversed(found) if one.registry == digest), None)
    return History(tuple(found), tuple(damaged), current)


def generation(project: Project, number: int) -> Generation:
    """Return one generation; raises `Refused` when there is none of that number, `Differs` when it is damaged."""
    for known, digest, path in _records(project):
        if known == number:
            return _read(path, digest)
    numbers = [number for number, _, _ in _records(project)]
    known_ones = f"one from {min(numbers)} to {max(numbers)}" if numbers else "one, and there is none yet"
    raise refusal(f"generation {number}", expected=known_ones, found=number, remedy="elfkiln generations lists them")


def registry_bytes_of(project: Project, one: Generation) -> bytes:
    """Return the registry.yaml of a generation, byte for byte; raises `Differs` when it is gone or damaged."""
    path = _registry_path(project, one.registry)
    try:
        data = read_bytes(path, MAX_BYTES)
    except OSError:
        data = b""
    if sha256_hex(data) != one.registry:
        raise Differs(
            f"generation {one.number}: expected the registry of sha256:{one.registry} in {path.name}, found "
            "none or other bytes; take registry.yaml from the repository's history"
        )
    return data


def registry_of(project: Project, one: Generation) -> Registry:
    """Return the registry of a generation; raises as `registry_bytes_of` does."""
    where = f"generation {one.number}"
    return parse_registry(utf8_text(registry_bytes_of(project, one), where), where, clashes=True)


def registries_kept(project: Project, now: Registry, count: int = KEPT) -> list[Registry]:
    """Return the registries whose artifacts are kept: the one that is, and those of the last generations.

    A generation that was found unreadable when it was kept keeps nothing. Raises `Differs` for one that is damaged:
    what it keeps cannot be known then.
    """
    past = history(project)
    if past.damaged:
        raise Differs(f"generations: {past.damaged[0].name} is damaged; elfkiln fsck --repair sets it aside")
    found = [now]
    for one in past.generations[len(past.generations) - count :] if count else ():
        data = registry_bytes_of(project, one)
        try:
            found.append(parse_registry(utf8_text(data, "registry.yaml"), "registry.yaml", clashes=True))
        except ElfkilnError:
            continue
    return found


def damaged_files(project: Project) -> list[Path]:
    """Return the files of generations that are not what their names say, and records whose registries are not there."""
    bad = []
    registries = project.generations / "registries"
    try:
        names = sorted(name for name in os.listdir(registries) if not name.startswith("."))
    except OSError:
        names = []
    for name in names:
        try:
            whole = sha256_hex(read_bytes(registries / name, MAX_BYTES)) == name.removesuffix(".yaml")
        except OSError:
            whole = False
        if not whole:
            bad.append(registries / name)
    for _, digest, path in _records(project):
        try:
            registry_bytes_of(project, _read(path, digest))
        except ElfkilnError:
            bad.append(path)
    return bad


@dataclass(frozen=True, slots=True)
class Difference:
    """Names of (target, key) that one registry has beyond another: gained, with other facts, and lost."""

    gained: tuple[tuple[str, str], ...]
    changed: tuple[tuple[str, str, Entry, Entry], ...]
    lost: tuple[tuple[str, str], ...]

    @property
    def parts(self) -> tuple[tuple[Any, ...], ...]:
        """The three lists, in the order of a generation's counts."""
        return self.gained, self.changed, self.lost


def difference(old: Registry, new: Registry) -> Difference:
    """Compare two registries name by name, in every field."""
    before = {(target, key): entry for target, rows in old.targets.items() for key, entry in rows.items()}
    after = {(target, key): entry for target, rows in new.targets.items() for key, entry in rows.items()}
    return Difference(
        tuple(sorted(after.keys() - before.keys())),
        tuple((*name, before[name], after[name]) for name in sorted(before.keys() & after.keys())
              if before[name] != after[name]),
        tuple(sorted(before.keys() - after.keys())),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GenerationsDifference:
    """What one generation has beyond another."""

    old: int
    new: int
    difference: Difference

    @property
    def empty(self) -> bool:
        """Whether they name the same things."""
        return not any(self.difference.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "old": self.old,
            "new": self.new,
            "same": self.empty,
            "gained": [f"{target}/{key}" for target, key in self.difference.gained],
            "lost": [f"{target}/{key}" for target, key in self.difference.lost],
            "changed": [
                {
                    "name": f"{target}/{key}",
                    "fields": {name: {"old": was, "new": now} for name, was, now in _fields(*pair)},
                }
                for target, key, *pair in self.difference.changed
            ],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person."""
        if self.empty:
            return [f"generations {self.old} and {self.new} name the same artifacts"]
        lines = [f"gained  {target}/{key}" for target, key in self.difference.gained]
        lines += [f"lost  {target}/{key}" for target, key in self.difference.lost]
        for target, key, *pair in self.difference.changed:
            fields = ", ".join(f"{name} {was[:19]} -> {now[:19]}" for name, was, now in _fields(*pair))
            lines.append(f"changed {target}/{key}: {fields}")
        gained, changed, lost = map(len, self.difference.parts)
        return [*lines, f"{gained} gained, {lost} lost, {changed} changed"]


def compare_generations(project: Project, old: int, new: int) -> GenerationsDifference:
    """Compare two generations by number; raises as `generation` and `registry_bytes_of` do."""
    before, after = (registry_of(project, generation(project, number)) for number in (old, new))
    return GenerationsDifference(old, new, difference(before, after))


def _fields(was: Entry, now: Entry) -> Iterator[tuple[str, str, str]]:
    for one in fields(Entry):
        old, new = getattr(was, one.name), getattr(now, one.name)
        if old != new:
            yield one.name, _shown(old), _shown(new)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{K}x{N}" for K, N in value) or "none"
    return f"sha256:{value}" if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback did: to which generation, the one it made itself (None: nothing changed), and what is not whole.

    `incomplete` are names (target/key) of which the store lacks a blob.
    """

    to: int
    made: int | None
    names: int
    incomplete: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"to": self.to, "made": self.made, "names": self.names, "incomplete": list(self.incomplete)}


def roll_back(project: Project, number: int) -> RolledBack:
    """Make registry.yaml what it was in a generation, byte for byte; that is a generation itself.

    What registry.yaml was before is kept first. Raises `Refused` for a number that is none, `Differs` for a damaged
    generation.
    """
    sweep_project(project)
    one = generation(project, number)
    data = registry_bytes_of(project, one)
    registry = parse_registry(utf8_text(data, f"generation {number}"), f"generation {number}")
    store = Store(project.store)
    changes = _registry_bytes(project) != data
    if changes:
        guard = locked(lock_file(project.registry_file), project.registry_file.name)
        with store.in_use(), changing(project, f"rollback {number}"), guard:
            write_atomic(project.registry_file, data)
    incomplete = [
        f"{target}/{key}"
        for target, entries in registry.targets.items()
        for key, entry in entries.items()
        if not all(store.path(digest).is_file() for digest in entry.digests)
    ]
    names = sum(len(entries) for entries in registry.targets.values())
    return RolledBack(number, history(project).current if changes else None, names, tuple(incomplete))


def _records(project: Project) -> list[tuple[int, str, Path]]:
    """Return (number, sha256, file) of every record, in order."""
    try:
        names = os.listdir(project.generations)
    except OSError:
        return []
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted((int(match[1]), match[2], project.generations / match[0]) for match in matches if match is not None)


def _last_number(project: Project) -> int:
    return max((number for number, _, _ in _records(project)), default=0)


def _latest(project: Project) -> Generation | None:
    for _, digest, path in reversed(_records(project)):
        with contextlib.suppress(ElfkilnError):
            return _read(path, digest)
    return None


def _read(path: Path, digest: str) -> Generation:
    try:
        data = read_bytes(path, _MOST_RECORD)
    except OSError as error:
        raise Differs(f"{path.name}: {error.strerror}") from error
    if sha256_hex(data) != digest:
        raise Differs(f"{path.name}: expected bytes of sha256:{digest}, found others")
    top = Value(parse_strict_json(data, path.name), path.name)
    top["schema"].choice((SCHEMA,))
    counts = [top[name].whole(0) for name in ("added", "changed", "dropped")]
    return Generation(
        top["number"].whole(), top["what"].text(), top["time"].whole(0), top["registry"].digest("sha256:"), *counts
    )


def _registry_path(project: Project, digest: str) -> Path:
    return project.generations / "registries" / f"{digest}.yaml"


def _registry_bytes(project: Project) -> bytes | None:
    """Return registry.yaml as it is, None where there is none or it is nothing that can be read."""
    if not os.path.lexists(project.registry_file):
        return None
    try:
        return read_regular(project.registry_file, limit=MAX_BYTES)
    except Refused:
        return None

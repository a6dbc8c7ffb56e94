"""Continuity of registry.yaml: nothing leaves it, and no bytes change under a name, unless somebody says why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused, brief, refusal
from elfkiln.io.child import MIB, Limits, run_child
from elfkiln.io.reading import read_text, utf8_text
from elfkiln.project import REGISTRY_FILE, Project
from elfkiln.store.registry import MAX_BYTES, Entry, Registry, load_registry, parse_registry

_GIT_LIMITS = Limits(seconds=60.0, cpu_seconds=60, memory_bytes=4096 * MIB, file_bytes=MIB, printed_bytes=MAX_BYTES)


@dataclass(frozen=True, slots=True)
class Change:
    """One name that is not as it was: `what` happened (dropped, changed, ...), in words, and the reason given, if any.

    `faulty` says that it fails the check.
    """

    target: str
    key: str
    what: str
    detail: str
    why: str | None
    faulty: bool

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "target": self.target,
            "name": self.key,
            "what": self.what,
            "detail": self.detail,
            "why": self.why,
            "faulty": self.faulty,
        }

    def line(self) -> str:
        """Return the line for a person."""
        mark = "FAILED " if self.faulty else ""
        why = f" ({self.why})" if self.why else ""
        return f"{mark}{self.target}/{self.key}: {self.what}: {self.detail}{why}"


@dataclass(frozen=True, slots=True)
class Continuity:
    """What a check of registry.yaml found: against what, how many names it has, and every change."""

    against: str | None
    names: int
    new: int
    changes: tuple[Change, ...]

    @property
    def exit_code(self) -> int:
        """1 when something left or changed without a reason, else 0."""
        return EXIT_DIFFERS if any(one.faulty for one in self.changes) else EXIT_DONE

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "against": self.against,
            "passed": self.exit_code == EXIT_DONE,
            "names": self.names,
            "new": self.new,
            "changes": [one.to_json() for one in self.changes],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person, what failed first."""
        lines = [one.line() for one in sorted(self.changes, key=lambda one: (not one.faulty, one.target, one.key))]
        failed = sum(one.faulty for one in self.changes)
        if self.against is None:
            lines.append(f"{self.names} names, {failed} contradict what is retired; nothing earlier was compared")
        else:
            lines.append(
                f"{self.names} names, {self.new} of them new, against {self.against}: "
                f"{len(self.changes) - failed} changed for a reason, {failed} without"
            )
        return lines


def check_registry(project: Project, against: str | None = None) -> Continuity:
    """Check registry.yaml by itself, and against an earlier one: a file, or a git revision that has one.

    Raises `Differs` when equal digests stand under names of different geometry, `Refused` when either cannot be read.
    """
    now = load_registry(project.registry_file)
    names = sum(len(entries) for entries in now.targets.values())
    if against is None:
        return Continuity(None, names, 0, tuple(_contradictions(now)))
    before = earlier_registry(project, against)
    new = sum(key not in before.entries(target) for target, entries in now.targets.items() for key in entries)
    return Continuity(against, names, new, (*_contradictions(now), *compare_registries(before, now)))


def compare_registries(before: Registry, now: Registry) -> tuple[Change, ...]:
    """Return every name of an earlier registry that is gone or differs in any field, and every reason that is gone."""
    found = []
    for target, entries in sorted(before.targets.items()):
        for key, was in sorted(entries.items()):
            entry = now.entries(target).get(key)
            if entry is None:
                why = now.reasons.why_retired(target, key)
                detail = f"was sha256:{was.elf}"
                if why is None:
                    detail += "; register it again, or say why under retired: of registry.yaml"
                found.append(Change(target, key, "dropped" if why is None else "retired", detail, why, why is None))
            elif entry != was:
                found.append(_change(now, target, key, was, entry))
    return (*found, *_lost_reasons(before, now))


def _change(now: Registry, target: str, key: str, was: Entry, entry: Entry) -> Change:
    detail = ", ".join(
        f"{one.name} {_shown(getattr(was, one.name))} -> {_shown(getattr(entry, one.name))}"
        for one in fields(Entry)
        if getattr(was, one.name) != getattr(entry, one.name)
    )
    if entry.recipe != was.recipe:
        return Change(target, key, "built by another recipe", detail, None, faulty=False)
    why = now.reasons.why_changed(target, key, was.elf, was.manifest, was.design)
    if why is None:
        detail += f"; build it again, or say why under changed: {target}: {key}: sha256:{was.elf}: of registry.yaml"
    return Change(target, key, "the same recipe, other facts", detail, why, faulty=why is None)


def _lost_reasons(before: Registry, now: Registry) -> Iterator[Change]:
    for target, keys in sorted(before.reasons.retired.items()):
        for key, why in sorted(keys.items()):
            if now.reasons.why_retired(target, key) is None and key not in now.entries(target):
                yield Change(target, key, "a reason is gone", f"it was retired: {brief(why)}", None, faulty=True)
    for target, changed in sorted(before.reasons.changed.items()):
        for key, digests in sorted(changed.items()):
            for digest, why in sorted(digests.items()):
                if now.reasons.why_changed(target, key, digest) is None:
                    detail = f"sha256:{digest} was changed: {brief(why)}"
                    yield Change(target, key, "a reason is gone", detail, None, faulty=True)


def _contradictions(now: Registry) -> Iterator[Change]:
    for target, keys in sorted(now.reasons.retired.items()):
        for key, why in sorted(keys.items()):
            if key in now.entries(target):
                detail = "take its line out of retired:, or the name out of targets:"
                yield Change(target, key, "retired and registered", detail, why, faulty=True)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value[:12]
    if isinstance(value, tuple):
        return " ".join(f"{K}x{N}" for K, N in value) or "none"
    return str(value)


def earlier_registry(project: Project, against: str) -> Registry:
    """Return the registry of a file, or of a git revision of the project; raises `Refused` when there is none."""
    if os.path.lexists(against):
        text = read_text(Path(against), limit=MAX_BYTES)
        return parse_registry(text, brief(against), clashes=True)
    where = f"{brief(against)}:{REGISTRY_FILE}"
    revision = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}")
    if revision is None:
        raise refusal(
            f"--against {brief(against)}",
            expected="a file, or a git revision of the checkout",
            found="neither",
            remedy="a shallow clone has the last revision alone: git fetch the one to compare with",
        )
    data = _git(project, "show", f"{revision.decode('ascii').strip()}:./{REGISTRY_FILE}")
    if data is None:
        raise refusal(where, expected=f"a {REGISTRY_FILE} in that revision", found="none")
    return parse_registry(utf8_text(data, where), where, clashes=True)


def _git(project: Project, *words: str) -> bytes | None:
    """Return what git prints, None when it fails."""
    program = shutil.which("git")
    if program is None:
        raise Refused("git: expected it on PATH to read a revision, found none; name a file with --against instead")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = run_child(
        [program, *words], name="git", cwd=project.root, environment=environment, limits=_GIT_LIMITS, whole=True
    )
    return done.stdout if done.exit_code == 0 else None

"""`reproduce`: rebuilds names from the inputs under other conditions, compares every byte, and says what differs.

Each name comes to one state. `same`: every digest of registry.yaml is met. `volatile`: only bytes differ that the
target's table lists one by one. `recipe-changed`: the inputs are others than registry.yaml was made from, named with
their first line. `other-inputs`: what is compiled hangs on the conditions. `other-bytes`: the recipe is the same and
the ELF is not, with section, symbol, instruction or register. Of the last two the condition they hang on is looked for.
Everything but the first two is a failure, and so is a run that rebuilt nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.io.files import write_atomic
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import read_log, recipe_table
from elfkiln.store.blobs import Store, parse_digest
from elfkiln.store.recipe import differing_inputs
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.elf_bytes import only_volatile
from elfkiln.targets.table import builder_for, target_named
from elfkiln.work.conditions import OTHER, PLAIN, RUNNING_CLOCK, Conditions, find_causes
from elfkiln.work.explain import DESIGN, Change, first_line
from elfkiln.work.jobs import entry_of, registry_key
from elfkiln.work.rebuilder import MakeBuilder
from elfkiln.work.rebuilding import Rebuilt, Rig, committed, faketime_preload
from elfkiln.work.take_artifact import name_artifact, take_artifact

SAME, VOLATILE, RECIPE, INPUTS, BYTES = "same", "volatile", "recipe-changed", "other-inputs", "other-bytes"
UNREGISTERED, FAILED = "not-registered", "not-rebuilt"
_SOUND = (SAME, VOLATILE)
_MOST_EXAMINED = 2
NO_FAKETIME = "the clock (faketime is not installed)"
STATIC = "the clock of programs that are linked statically, as zig is (faketime does not reach them)"


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One name: its state, and what is known of a difference.

    `registered` and `found` are the entries compared; `changes` the inputs that differ, `difference` the lines on the
    ELFs' bytes, `causes` what the difference hangs on, `volatile` the fields of the target's table that differ, `kept`
    the folder in which the second output lies.
    """

    key: str
    state: str
    registered: Entry | None
    found: Entry | None
    reason: str = ""
    changes: tuple[Change, ...] = ()
    difference: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    kept: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing about it is unexplained."""
        return self.state in _SOUND

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.key,
            "state": self.state,
            "registered": f"sha256:{self.registered.elf}" if self.registered else None,
            "rebuilt": f"sha256:{self.found.elf}" if self.found else None,
            "reason": self.reason,
            "changes": [change.to_json() for change in self.changes],
            "difference": list(self.difference),
            "causes": list(self.causes),
            "volatile": list(self.volatile),
            "kept": self.kept or None,
        }

    def lines(self) -> list[str]:
        """Return the lines for a person."""
        rows = [f"{self.state}  {self.key}{f': {self.reason}' if self.reason else ''}"]
        for change in self.changes:
            rows += change.lines()
        rows += [f"  {line}" for line in self.difference]
        rows += [f"  volatile: {line}" for line in self.volatile]
        rows += [f"  it hangs on {cause}" for cause in self.causes]
        if self.kept:
            rows.append(f"  second output kept in {self.kept}")
        return rows


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a reproduction came to: the conditions, what could not be varied, inputs that are not committed, names."""

    target: str
    conditions: Conditions
    not_varied: tuple[str, ...]
    uncommitted: tuple[str, ...]
    rebuilt: int
    names: tuple[Reproduced, ...]

    @property
    def exit_code(self) -> int:
        """0 when something was rebuilt and every name is the same, or differs in volatile fields alone."""
        return EXIT_DONE if self.rebuilt and all(one.sound for one in self.names) else EXIT_DIFFERS

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "target": self.target,
            "conditions": self.conditions.to_json(),
            "not_varied": list(self.not_varied),
            "uncommitted": list(self.uncommitted),
            "rebuilt": self.rebuilt,
            "names": [one.to_json() for one in self.names],
        }

    def lines(self) -> list[str]:
        """Return the lines for a person: what is not the same, and the closing line."""
        rows = [line for one in self.names if one.state != SAME for line in one.lines()]
        states: dict[str, int] = {}
        for one in self.names:
            states[one.state] = states.get(one.state, 0) + 1
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        if not self.rebuilt:
            return [*rows, f"{len(self.names)} names: nothing was rebuilt, so nothing is known of them"]
        return [*rows, f"{len(self.names)} names, {self.rebuilt} rebuilt and compared: {counts}"]


def reproduce(
    project: Project,
    target: str,
    sets: Iterable[RequirementSet],
    *,
    jobs: int | None = None,
    take: bool = False,
    builder: MakeBuilder = builder_for,
    say: Callable[[str], None] = lambda _line: None,
) -> Reproduction:
    """Rebuild every name of the sets under other conditions and compare what comes of it with registry.yaml.

    `jobs` recipes are built at once (default: one more than there are processors). With `take` artifacts that came out
    the same enter the store, as a build's would. `builder` is a function of a module, for the process that rebuilds.
    Second outputs that differ are kept below out/reproduce. Raises `Refused` where no build could begin.
    """
    wanted = tuple(sets)
    preload = faketime_preload()
    conditions = replace(OTHER, clock=RUNNING_CLOCK if preload else "", jobs=jobs or (os.cpu_count() or 1) + 1)
    files, uncommitted = committed(project)
    not_varied = (STATIC,) if preload else (NO_FAKETIME,)
    for line in not_varied:
        say(f"not varied: {line}")
    for name in uncommitted:
        say(f"not as committed: {name}")
    with tempfile.TemporaryDirectory(prefix="elfkiln-reproduce-") as scratch:
        rig = Rig(project, target, builder, Path(scratch).resolve(), preload, files)
        rebuilt = rig.run(conditions, wanted, "main", equal=False)
        judge = _Judge(project, target, rig, wanted, rebuilt)
        names = tuple(judge.names())
        if take:
            _take(Store(project.store), target, rebuilt, {one.key for one in names if one.state == SAME})
    return Reproduction(target, conditions, not_varied, uncommitted, len(rebuilt.built), names)


@dataclass
class _Judge:
    """Compares a rebuild with registry.yaml, and builds again where the cause of a difference is not plain."""

    project: Project
    target: str
    rig: Rig
    sets: tuple[RequirementSet, ...]
    rebuilt: Rebuilt
    store: Store = field(init=False)
    _plain: Rebuilt | None = None
    _examined: int = 0

    def __post_init__(self) -> None:
        self.store = Store(self.project.store)

    def names(self) -> Iterator[Reproduced]:
        registered = load_registry(self.project.registry_file).entries(self.target)
        seen = set()
        for wanted in self.sets:
            for need in wanted.requirements:
                key = registry_key(wanted, need)
                if key not in seen:
                    seen.add(key)
                    found = self._judge(key, entry_of(registered, wanted, need), self.rebuilt.entries.get(key))
                    yield found if found.sound or found.found is None else self._keep(found)

    def _judge(self, key: str, entry: Entry | None, found: Entry | None) -> Reproduced:
        if found is None:
            reason = self.rebuilt.failures.get(key, "the rebuild says nothing of it")
            return Reproduced(key, FAILED, entry, None, reason)
        if entry is None:
            return Reproduced(key, UNREGISTERED, None, found, "registry.yaml has nothing to compare with")
        if entry == found:
            return Reproduced(key, SAME, entry, found)
        if entry.recipe != found.recipe:
            return self._other_recipe(key, entry, found)
        if entry.elf == found.elf:
            return Reproduced(key, BYTES, entry, found, f"the ELF is the same, its {_fields(entry, found)} not")
        return self._other_bytes(key, entry, found)

    def _other_recipe(self, key: str, entry: Entry, found: Entry) -> Reproduced:
        """Tell inputs that were edited from inputs that come out otherwise under other conditions."""
        plain = self.plain.entries.get(key)
        if plain is None or plain.recipe == found.recipe:
            same = "; the ELF is the same" if entry.elf == found.elf else ""
            known = recipe_table(self.store, entry.recipe) is not None
            reason = f"registry.yaml is of other inputs{same}" + (
                "" if known else "; the store has not the registered recipe, so which is not known"
            )
            return Reproduced(key, RECIPE, entry, found, reason, self._changes(self.store, entry, found))
        changes = self._changes(self.plain.store, plain, found)
        reason = "under other conditions other inputs are compiled"
        return Reproduced(key, INPUTS, entry, found, reason, changes, causes=self._causes(key))

    def _other_bytes(self, key: str, entry: Entry, found: Entry) -> Reproduced:
        now = self.rebuilt.store.read(found.elf)
        was = self._bytes(entry.elf) or self._plain_bytes(key)
        if was is None or was == now:
            stands = "its registered bytes are not in the store"
            reason = f"{stands}, and under plain conditions it comes to these, too" if was else stands
            return Reproduced(key, BYTES, entry, found, reason, causes=self._causes(key))
        kind = target_named(self.target)
        fields = only_volatile(was, now, kind.volatile)
        if fields is not None:
            named = tuple(
                f"section {row.section} bytes {row.start} to {row.start + row.size}: {row.why}" for row in fields
            )
            return Reproduced(key, VOLATILE, entry, found, volatile=named)
        reason = "the recipe is the same and the ELF is not"
        return Reproduced(
            key, BYTES, entry, found, reason, difference=kind.difference(was, now), causes=self._causes(key)
        )

    @property
    def plain(self) -> Rebuilt:
        """All names once more under plain conditions; built when first asked for."""
        if self._plain is None:
            clock = PLAIN.clock if self.rig.preload else ""
            jobs = os.cpu_count() or 1
            self._plain = self.rig.run(replace(PLAIN, clock=clock, jobs=jobs), self.sets, "plain", equal=False)
        return self._plain

    def _bytes(self, digest: str) -> bytes | None:
        return self.store.read(digest) if self.store.holds(digest) else None

    def _plain_bytes(self, key: str) -> bytes | None:
        entry = self.plain.entries.get(key)
        return None if entry is None else self.plain.store.read(entry.elf)

    def _causes(self, key: str) -> tuple[str, ...]:
        """Return what a difference hangs on; of the first names that differ, since it takes some builds each."""
        if self._examined == _MOST_EXAMINED:
            return ()
        self._examined += 1
        sets = _only(self.sets, key)
        return find_causes(
            lambda conditions: self.rig.run(conditions, sets, "causes", equal=True).fingerprint(key),
            clock=bool(self.rig.preload),
        )

    def _changes(self, old: Store, was: Entry, now: Entry) -> tuple[Change, ...]:
        """Return the inputs that differ between a recipe of one store and one of the rebuild's."""
        new = self.rebuilt.store
        before, after = recipe_table(old, was.recipe), recipe_table(new, now.recipe)
        differing = [(DESIGN, was.design, now.design)] if was.design != now.design else []
        if before is not None and after is not None:
            differing += differing_inputs(before, after)
        found: dict[tuple[str, str], Change] = {}
        for name, one, other in differing:
            data = new.read(other) if _is_digest(other) and new.holds(other) else None
            found.setdefault((one, other), Change(name, one, other, first_line(old, one, data)))
        return tuple(found.values())

    def _keep(self, one: Reproduced) -> Reproduced:
        """Keep the second output of a name: ELF, design and log, and the registered ELF beside it."""
        assert one.found is not None
        store = self.rebuilt.store
        folder = self.project.out / "reproduce" / one.key.replace("/", "-")
        write_atomic(folder / "rebuilt.elf", store.read(one.found.elf))
        write_atomic(folder / "rebuilt.mlir", store.read(one.found.design))
        write_atomic(folder / "rebuilt.log", (read_log(store, one.found.recipe) or "").encode())
        first = self._bytes(one.registered.elf) if one.registered else None
        if first is not None:
            write_atomic(folder / "registered.elf", first)
        return replace(one, kept=folder.relative_to(self.project.root).as_posix())


def _fields(one: Entry, other: Entry) -> str:
    return ", ".join(
        name
        for name in ("manifest", "design", "size", "columns", "sealed")
        if getattr(one, name) != getattr(other, name)
    )


def _only(sets: tuple[RequirementSet, ...], key: str) -> tuple[RequirementSet, ...]:
    cut = (replace(one, requirements=tuple(n for n in one.requirements if registry_key(one, n) == key)) for one in sets)
    return tuple(one for one in cut if one.requirements)[:1]


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class _Local:
    """Another store on this machine, as a source of artifacts."""

    store: Store

    def pull_blob(self, digest: str, size: int, sink: IO[bytes]) -> None:  # noqa: ARG002
        """Write a blob's verified bytes."""
        sink.write(self.store.read(digest))


def _take(store: Store, target: str, rebuilt: Rebuilt, keys: set[str]) -> None:
    """Put artifacts of a rebuild into the store, with what refers to them."""
    source = _Local(rebuilt.store)
    names: dict[str, dict[str, Entry]] = {}
    for key in sorted(keys):
        entry = rebuilt.entries[key]
        names.setdefault(entry.manifest, {})[key] = entry
    for manifest, entries in names.items():
        if store.holds(manifest):
            continue
        data = rebuilt.store.read(manifest)
        artifact, _ = take_artifact(store, source, target, data, entries)
        name_artifact(store, artifact, data)
    for ref, descriptor in rebuilt.store.refs().items():
        table = rebuilt.store.manifest(descriptor)
        subject = table.get("subject")
        if isinstance(subject, dict) and parse_digest(subject["digest"]) in names:
            for one in (table["config"], *table["layers"]):
                store.add_bytes(rebuilt.store.read(parse_digest(one["digest"])))
            store.name_manifest(ref, store.add_bytes(rebuilt.store.read(descriptor.digest)))

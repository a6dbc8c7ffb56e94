"""check-missing: what is looked at, and its fast path, which imports neither doit, jinja2, yaml nor xdsl.

The answer kept for a model (see `elfkiln.work.answers`; `elfkiln.work.check_index` works it out) has these lines:

    set      <model>  <target>  <layout>
    refused  <one-line reason>
    row      <registry key>  <sha256 of the ELF, or "-">  <bytes>  <problem>  <sealed>  <examined>  <path>  <place> ...

`problem` is empty unless what is registered is not what the model asks for now; `sealed` are the geometries of a
sealed ELF, which `examined` says to have been found in its own metadata (`no`: it was not stored when the answer was
worked out). `path` is where the name is installed below a model folder, the places are where the engine looks for it,
in order.
"""

from __future__ import annotations

import os
import sys

from elfkiln.project import BLOBS, STORE, find_root, is_checkout, models_below
from elfkiln.work.answers import Proof, answer_name, look_at, look_at_all, read_answer
from elfkiln.work.gaps import CheckedSet, CheckReport, Gap, kind_of

KEYS = ("model", "layout", "target", "dir", "root")
NO_DIGEST = "-"


class Row:
    """One name to check: what it should be, and where the engine looks for it."""

    __slots__ = ("digest", "examined", "key", "path", "places", "problem", "sealed", "size")

    def __init__(
        self, key: str, digest: str, size: str, problem: str, sealed: str, examined: str, path: str, *places: str
    ) -> None:
        """Take the fields of a `row` line after its first word; `sealed` is `<K>x<N>` with commas between."""
        self.key, self.digest, self.problem, self.sealed, self.path, self.places = (
            key,
            digest,
            problem,
            sealed,
            path,
            places,
        )
        self.size = int(size)
        self.examined = examined == "yes"

    def line(self) -> str:
        """Return the line of the answer."""
        fields = (self.key, self.digest, str(self.size), self.problem, self.sealed)
        return "\t".join(("row", *fields, "yes" if self.examined else "no", self.path, *self.places))


class Wanted:
    """What one model or plan asks for under a target: its rows, or why it cannot be asked for."""

    __slots__ = ("asked", "layout", "model", "refused", "rows", "target")

    def __init__(
        self,
        model: str,
        target: str,
        layout: str,
        rows: list[Row],
        refused: str | None = None,
        asked: tuple[str, ...] = (),
    ) -> None:
        """Take what the attributes say; `asked` are the words a command names the set by."""
        self.model, self.target, self.layout, self.rows, self.refused = model, target, layout, rows, refused
        self.asked = asked

    def lines(self) -> list[str]:
        """Return the answer's lines."""
        head = f"set\t{self.model}\t{self.target}\t{self.layout}"
        return [head, f"refused\t{self.refused}"] if self.refused is not None else [head, *map(Row.line, self.rows)]


def read_wanted(proof: Proof, model: str, target: str | None, layout: str | None) -> Wanted | None:
    """Return what is kept for a model, None when nothing is, or what is there is not current."""
    name = answer_name("check", model, target, layout)
    lines = read_answer(proof, name) if name is not None else None
    return None if lines is None else parse_wanted(lines, model, layout)


def parse_wanted(lines: list[str], model: str, layout: str | None) -> Wanted | None:
    """Return what the lines of an answer say, None when one of them is not known."""
    try:
        kind, named, target, own = lines[0].split("\t")
        if kind != "set" or named != model:
            return None
        asked = (f"model={model}", *((f"layout={layout}",) if layout else ()))
        if lines[1].startswith("refused\t"):
            return Wanted(model, target, own, [], lines[1].partition("\t")[2], asked)
        rows = []
        for line in lines[1:]:
            kind, *fields = line.split("\t")
            if kind != "row":
                return None
            rows.append(Row(*fields))
    except (ValueError, TypeError, IndexError):
        return None
    return Wanted(model, target, own, rows, None, asked)


def find_gaps(sets: list[Wanted], target: str, store: str, folder: str | None) -> CheckReport | None:
    """Hash what the rows name and return what is missing or has other bytes; sizes are compared before a byte is read.

    `store` is the folder of the blobs. With `folder`, a model folder, what the engine would open there is looked at
    instead. None when a blob of a sealed ELF is there now and was never examined.
    """
    rows = [row for one in sets for row in one.rows]
    choices = [] if folder is None else [_choose(row, folder) for row in rows]
    places = [f"{store}/{row.digest}" for row in rows] if folder is None else [opened for opened, _, _ in choices]
    sizes = {place: row.size for row, place in zip(rows, places, strict=True) if place and row.digest != NO_DIGEST}
    found = look_at_all(sizes, follow=folder is not None)
    if folder is None:
        for row, place in zip(rows, places, strict=True):
            if not row.examined and found.get(place or "") == row.digest:
                return None
        gaps = iter([_stored(row, target, found.get(place or "", "")) for row, place in zip(rows, places, strict=True)])
    else:
        gaps = iter([_installed(row, target, *choice, found) for row, choice in zip(rows, choices, strict=True)])
    checked = []
    for one in sets:
        own = [gap for _, gap in zip(one.rows, gaps, strict=False) if gap is not None]
        checked.append(CheckedSet(one.model, one.asked, one.layout, len(one.rows), own, one.refused))
    return CheckReport(target, folder, checked)


def _stored(row: Row, target: str, state: str) -> Gap | None:
    """Return what is wrong with a name's blob, of which `look_at` said `state`."""
    if row.digest == NO_DIGEST:
        return Gap(row.key, row.path, "not registered", f"not in registry.yaml for target {target}")
    if row.problem:
        return Gap(row.key, row.path, kind_of(row.problem), row.problem, row.digest)
    if state == row.digest:
        return None
    blob = f"blob sha256:{row.digest}"
    word, _, rest = state.partition(": ")
    if word == "absent":
        why = "is not in the store" if rest == "no such file" else rest
        return Gap(row.key, row.path, "missing", f"{blob} {why}", row.digest)
    if word == "irregular":
        return Gap(row.key, row.path, "not a regular file", f"{blob} is {rest}", row.digest)
    return other_bytes(row, row.path, state)


def other_bytes(row: Row, path: str, state: str) -> Gap:
    """Return the gap of a file of other bytes; of one of another size nothing was hashed."""
    word, _, size = state.partition(": ")
    if word == "size":
        detail = f"expected {row.size} bytes with sha256:{row.digest}, found {size} bytes"
        return Gap(row.key, path, "wrong bytes", detail, row.digest)
    detail = f"expected sha256:{row.digest}, found sha256:{state}"
    return Gap(row.key, path, "wrong bytes", detail, row.digest, state)


def _choose(row: Row, folder: str) -> tuple[str | None, list[str], list[str]]:
    """Return what the engine opens (the first regular file of at least one byte), the later ones, and all places."""
    places = [os.path.join(folder, place) for place in row.places]
    there = []
    for place in places:
        try:
            state = os.stat(place)
        except (OSError, ValueError):
            continue
        if state.st_size and state.st_mode & 0o170000 == 0o100000 and os.access(place, os.R_OK):
            there.append(place)
    return (there[0] if there else None), there[1:], places


def _installed(
    row: Row, target: str, opened: str | None, later: list[str], places: list[str], found: dict[str, str]
) -> Gap | None:
    """Return what is wrong with what the engine opens for a name in a model folder."""
    expected = None if row.digest == NO_DIGEST else row.digest
    if opened is None:
        detail = "looked in " + ", ".join(os.path.dirname(place) for place in places)
        for place in places:
            word, _, rest = look_at(place, -1).partition(": ")
            if word == "irregular":
                return Gap(row.key, place, "not a regular file", f"expected a full ELF, found {rest}", expected)
            if word == "size":
                detail += f"; {place} is empty"
            elif rest != "no such file":
                detail += f"; {place}: {rest}"
        return Gap(row.key, places[-1], "missing", detail, expected)
    if found.get(opened) == row.digest and row.examined and not row.problem:
        return None
    # Only where something may be wrong: reading ELFs takes the heavy imports.
    from elfkiln.work.diagnose import diagnose

    return diagnose(row, target, opened, later, found.get(opened, ""))


def main(words: list[str]) -> int | None:
    """Answer `check-missing model=...` if what is kept for it is current; return None for the full path otherwise."""
    keys: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS or not value or key in keys or value.startswith("~"):
            return None
        keys[key] = value
    named = keys.get("root")
    root = find_root(os.curdir) if named is None else named
    model, target, layout = keys.get("model"), keys.get("target"), keys.get("layout")
    if root is None or model is None or not is_checkout(root):
        return None
    proof = Proof(root)
    sets = []
    for name in models_below(root) if model == "all" else [model]:
        wanted = read_wanted(proof, name, target, layout)
        if wanted is None:
            return None
        sets.append(wanted)
    if len({one.target for one in sets}) != 1 or (model != "all" and sets[0].refused is not None):
        return None
    report = find_gaps(sets, sets[0].target, os.path.join(root, STORE, BLOBS), keys.get("dir"))
    if report is None:
        return None
    sys.stdout.write(report.text())
    for line in report.refusals:
        sys.stderr.write(f"elfkiln: {line}\n")
    return report.exit_code

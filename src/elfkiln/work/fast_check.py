"""The fast path of `elfkiln check-missing`: no doit, jinja2, yaml or xdsl import, one flat index file per model.

The index (out/index/<model>.txt) is generated; `elfkiln.work.check_index` writes it. Its lines are tab-separated:

    elfkiln-check-index/1
    source   <path below the root>  <sha256 of the file, or "absent">
    stamp    <path below the package>  <size>  <mtime in ns>
    default  <target>  <layout>
    refused  <layout>  <one-line reason>
    unserved <target>  <one-line reason>
    row      <target>  <layout>  <directory>  <file>  <registry key>  <ELF sha256 or "-">  <size in bytes>  <problem>

`problem` is empty unless what is registered is not what the model asks for now.

It is current iff every source has its digest and every stamp holds: then registry.yaml, toolchain.lock, the model's
own files and the code that reads them are those the index was made from.
"""

from __future__ import annotations

import hashlib
import os
import sys

HEADER = "elfkiln-check-index/1"
KEYS = ("model", "layout", "target", "dir", "root")


class Row:
    """One name to check: where it must lie below a model folder, and the digest and size the registry gives it."""

    __slots__ = ("digest", "directory", "file", "key", "layout", "problem", "size", "target")

    def __init__(self, fields: list[str]) -> None:
        """Take the fields of a `row` line after its first word."""
        self.target, self.layout, self.directory, self.file, self.key, self.digest = fields[:6]
        self.size = int(fields[6])
        self.problem = fields[7]

    @property
    def path(self) -> str:
        """The path below a model folder."""
        return self.file if self.directory == "." else f"{self.directory}/{self.file}"


class Index:
    """A current index of one model."""

    __slots__ = ("layout", "refused", "rows", "target", "unserved")

    def __init__(self) -> None:
        """Make an empty one."""
        self.rows: list[Row] = []
        self.refused: dict[str, str] = {}
        self.unserved: dict[str, str] = {}
        self.target = self.layout = ""


class Gap:
    """A name that is not there as it should be: the path the engine would print, the kind of gap and the detail."""

    __slots__ = ("detail", "key", "kind", "path")

    def __init__(self, path: str, key: str, kind: str, detail: str) -> None:
        """Take path, registry key, kind (`missing`, `wrong bytes`, `wrong geometry`, `not registered`) and detail."""
        self.path, self.key, self.kind, self.detail = path, key, kind, detail


def read_index(root: str, model: str) -> Index | None:
    """Return the model's index if there is one and it is current, else None."""
    try:
        with open(os.path.join(root, "out", "index", f"{model}.txt"), encoding="utf-8") as stream:
            return parse_index(root, stream.read())
    except (OSError, ValueError):
        return None


def parse_index(root: str, text: str) -> Index | None:
    """Return the index a text holds if it is whole and current, else None."""
    lines = text.split("\n")
    if lines[0] != HEADER or lines[-2:] != ["end", ""]:
        return None
    index = Index()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        for line in lines[1:-2]:
            kind, *fields = line.split("\t")
            if kind == "row":
                index.rows.append(Row(fields))
            elif kind == "source":
                if digest_of(os.path.join(root, fields[0])) != fields[1]:
                    return None
            elif kind == "stamp":
                state = os.stat(os.path.join(package, fields[0]))
                if (str(state.st_size), str(state.st_mtime_ns)) != (fields[1], fields[2]):
                    return None
            elif kind == "default":
                index.target, index.layout = fields
            elif kind == "refused":
                index.refused[fields[0]] = fields[1]
            elif kind == "unserved":
                index.unserved[fields[0]] = fields[1]
    except (OSError, ValueError, IndexError):
        return None
    return index


def digest_of(path: str) -> str:
    """Return a regular file's sha256 in hex, or `absent` when there is none that can be read."""
    try:
        # Not to wait for a writer of a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return "absent"
    with open(descriptor, "rb", buffering=0) as stream:
        if os.fstat(descriptor).st_mode & 0o170000 != 0o100000:
            return "absent"
        try:
            return hashlib.sha256(stream.read()).hexdigest()
        except OSError:
            return "absent"


def find_gaps(rows: list[Row], blobs: str, folder: str | None) -> list[Gap]:
    """Hash what each row names and return what is missing or has other bytes.

    `blobs` is the store's blob folder; `folder` a model folder whose installed files are checked instead of the blobs.
    """
    gaps: list[Gap] = []
    seen: dict[str, str] = {}
    for row in rows:
        shown = row.path if folder is None else os.path.join(folder, row.path)
        if row.digest == "-":
            gaps.append(Gap(shown, row.key, "not registered", f"not in registry.yaml for target {row.target}"))
            continue
        if row.problem:
            gaps.append(Gap(shown, row.key, "wrong geometry", row.problem))
            continue
        place = os.path.join(blobs, row.digest) if folder is None else shown
        if place not in seen:
            seen[place] = digest_of(place)
        found = seen[place]
        if found == "absent":
            where = f"blob sha256:{row.digest} is not in the store" if folder is None else "no such file"
            gaps.append(Gap(shown, row.key, "missing", where))
        elif found != row.digest:
            gaps.append(Gap(shown, row.key, "wrong bytes", f"expected sha256:{row.digest}, found sha256:{found}"))
    return gaps


def select_rows(index: Index, target: str | None, layout: str | None) -> list[Row]:
    """Return the rows of one target and layout (default: the index's own)."""
    wanted = (target or index.target, layout or index.layout)
    return [row for row in index.rows if (row.target, row.layout) == wanted]


def find_root(start: str) -> str | None:
    """Return the nearest folder upwards with a toolchain.lock, else None."""
    folder = os.path.abspath(start)
    while not os.path.isfile(os.path.join(folder, "toolchain.lock")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder


def report(model: str, target: str, names: int, gaps: list[Gap], *, dir_given: bool) -> str:
    """Return what is printed for one model: the engine's own words per gap, the detail below, and a closing line."""
    lines: list[str] = []
    for gap in gaps:
        lines += [f"missing full ELF {gap.path}", f"  {gap.kind}: {gap.detail}"]
    if gaps:
        verb = f"install model={model} target={target} dir=..." if dir_given else f"elfs model={model} target={target}"
        lines.append(f"{model}: {len(gaps)} of {names} names missing for target {target}; run doit {verb}")
    else:
        lines.append(f"{model}: {names} names, all there and their bytes verify (target {target})")
    return "\n".join(lines)


def main(words: list[str]) -> int | None:
    """Answer `check-missing model=...` if that model's index is current; return None for the full path otherwise."""
    keys: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS or not value:
            return None
        keys[key] = value
    model = keys.get("model", "")
    root = find_root(keys.get("root", os.curdir))
    if root is None or not model or model == "all" or "/" in model or model.startswith("."):
        return None
    index = read_index(root, model)
    if index is None:
        return None
    rows = select_rows(index, keys.get("target"), keys.get("layout"))
    if not rows or rows[0].target in index.unserved:
        return None
    gaps = find_gaps(rows, os.path.join(root, "out", "registry", "blobs", "sha256"), keys.get("dir"))
    sys.stdout.write(report(model, rows[0].target, len(rows), gaps, dir_given="dir" in keys) + "\n")
    return 1 if gaps else 0

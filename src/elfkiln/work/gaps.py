"""What check-missing says of a name that is not there as it should be: one record, one printer, one JSON form.

`model=`, `plan=` and `dir=` all answer with these. Imports nothing: the fast path prints with it too.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypeAlias

    Kind: TypeAlias = Literal[
        "missing",
        "not registered",
        "not a regular file",
        "stub",
        "wrong bytes",
        "wrong geometry",
        "shadowed",
        "untrusted",
        "wrong entry",
    ]

SCHEMA = "elfkiln-check-missing/1"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")


def kind_of(problem: str) -> Kind:
    """Return the kind of a problem with what is registered: the entry itself is wrong, or stands for another ELF.

    >>> kind_of("registry.yaml: sim/a.elf: size: expected 1, found 2"), kind_of("expected 8 columns")
    ('wrong entry', 'wrong geometry')
    """
    return "wrong entry" if problem.startswith("registry.yaml: ") else "wrong geometry"


class Gap:
    """A name that is not there as it should be.

    `path` is what the engine would open, or the last place it looked; `kind` a word of `Kind`; `expected` and `found`
    are sha256 in hex where they are known. A `shadowed` file is right, but an earlier directory holds other bytes
    under its name, and the engine opens those.
    """

    __slots__ = ("detail", "expected", "found", "kind", "name", "path")

    def __init__(
        self, name: str, path: str, kind: Kind, detail: str, expected: str | None = None, found: str | None = None
    ) -> None:
        """Take the registry key, the path, the kind, one line of detail, and the digests."""
        self.name, self.path, self.kind, self.detail = name, path, kind, detail
        self.expected, self.found = expected, found

    def lines(self) -> list[str]:
        """Return the lines for a person: the engine's own words with the path, and below them kind and detail."""
        return [f"missing full ELF {_shown(self.path)}", f"  {self.kind}: {_shown(self.detail)}"]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "path": self.path,
            "kind": self.kind,
            "detail": self.detail,
            "expected": f"sha256:{self.expected}" if self.expected else None,
            "found": f"sha256:{self.found}" if self.found else None,
        }


class CheckedSet:
    """What checking one set came to: its model, the words a command names it by, the number of names, and the gaps.

    `refused` is the line that says why the set cannot be asked for; it then has no names.
    """

    __slots__ = ("asked", "gaps", "layout", "model", "names", "refused")

    def __init__(
        self, model: str, asked: tuple[str, ...], layout: str, names: int, gaps: list[Gap], refused: str | None = None
    ) -> None:
        """Take what the attributes say."""
        self.model, self.asked, self.layout, self.names, self.gaps = model, asked, layout, names, gaps
        self.refused = refused


class CheckReport:
    """What check-missing found for one target, in the store or (`folder`) in a model folder."""

    __slots__ = ("folder", "sets", "target")

    def __init__(self, target: str, folder: str | None, sets: list[CheckedSet]) -> None:
        """Take what the attributes say."""
        self.target, self.folder, self.sets = target, folder, sets

    @property
    def missing(self) -> int:
        """How many names are not there as they should be."""
        return sum(len(one.gaps) for one in self.sets)

    @property
    def refusals(self) -> list[str]:
        """The line of every set that cannot be asked for."""
        return [one.refused for one in self.sets if one.refused is not None]

    @property
    def exit_code(self) -> int:
        """0 when every name is there and verifies, 2 when a set was refused, else 1."""
        return 2 if self.refusals else 1 if self.missing else 0

    def text(self) -> str:
        """Return the lines for a person; refused sets are not among them, their lines go to standard error."""
        lines: list[str] = []
        for one in self.sets:
            if one.refused is None:
                for gap in one.gaps:
                    lines += gap.lines()
                lines.append(self._closing(one))
        return "".join(f"{line}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "dir": self.folder,
            "missing": self.missing,
            "models": [
                {
                    "model": one.model,
                    "target": self.target,
                    "layout": one.layout or None,
                    "names": one.names,
                    "gaps": [gap.to_json() for gap in one.gaps],
                    "refused": one.refused,
                }
                for one in self.sets
            ],
        }

    def _closing(self, one: CheckedSet) -> str:
        if not one.gaps:
            return f"{one.model}: {one.names} names, all there and their bytes verify (target {self.target})"
        words = " ".join(_quoted(word) for word in (*one.asked, f"target={self.target}"))
        remedy = f"doit elfs {words}"
        if self.folder is not None:
            install = f"doit install {words} {_quoted(f'dir={self.folder}')}"
            # Only what is registered, and so has a digest to be expected, can be installed at once.
            fresh = any(gap.expected is None and gap.kind != "untrusted" for gap in one.gaps)
            remedy = f"{remedy}, then {install}" if fresh else install
        return f"{one.model}: {len(one.gaps)} of {one.names} names missing for target {self.target}; run {remedy}"


def _shown(text: str) -> str:
    """Return a text fit for a terminal: a path may hold whatever a file system takes."""
    if text.isprintable():
        return text
    from elfkiln.errors import one_line

    return one_line(text)


def _quoted(text: str) -> str:
    """Return a word as a shell takes it; what is not plain stands in quotes."""
    if _PLAIN.issuperset(text):
        return text
    return _shown("'" + text.replace("'", "'\\''") + "'")

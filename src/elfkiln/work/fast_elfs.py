"""`elfs` where nothing is to do: answered from a kept answer and the bytes of the store, without a heavy import.

The answer kept for a model (see `elfkiln.work.answers`; `elfkiln.work.build_state` keeps it) has these lines:

    headline  <the first line of a build>
    note      <a note of the plan, for standard error>
    name      <registry key>  <recipe digest>
    blob      <sha256>  <bytes>

It was kept after a run that found nothing to do. While its inputs stand, every name still has its recipe, and what is
left to check are the bytes of the blobs: each is hashed.
"""

from __future__ import annotations

import os
import sys

from elfkiln.project import BLOBS, STORE, find_root, is_checkout, models_below
from elfkiln.work.answers import Proof, answer_name, look_at_all, read_answer

KEYS = ("model", "layout", "target", "root")


class UpToDate:
    """What kept answers say together: headline, the recipe of each name, and the blobs with their sizes."""

    __slots__ = ("blobs", "headline", "names", "notes")

    def __init__(self) -> None:
        """Start with nothing."""
        self.headline = ""
        self.notes: list[str] = []
        self.names: dict[str, str] = {}
        self.blobs: dict[str, int] = {}

    def add(self, lines: list[str]) -> bool:
        """Take an answer's lines; False when one is not known or contradicts another answer."""
        try:
            for line in lines:
                kind, *fields = line.split("\t")
                if kind == "headline":
                    (headline,) = fields
                    if self.headline not in ("", headline):
                        return False
                    self.headline = headline
                elif kind == "note":
                    self.notes += fields
                elif kind == "name":
                    key, recipe = fields
                    if self.names.setdefault(key, recipe) != recipe:
                        return False
                elif kind == "blob":
                    digest, size = fields
                    self.blobs[digest] = int(size)
                else:
                    return False
        except ValueError:
            return False
        return True

    def summary(self) -> str:
        """Return the closing line of a build that had nothing to do."""
        return nothing_to_do(len(self.names), len(set(self.names.values())))


def nothing_to_do(names: int, recipes: int) -> str:
    """Return the closing line of a build that had nothing to do."""
    return f"{names} names, {recipes} recipes: nothing to do, every ELF is registered and its bytes verify"


def main(words: list[str]) -> int | None:
    """Answer `elfs model=...` if nothing is to do and that is proven; return None for the full path otherwise."""
    keys: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS or not value or key in keys:
            return None
        keys[key] = value
    named = keys.get("root")
    root = find_root(os.curdir) if named is None else named
    model = keys.get("model")
    if root is None or model is None or not is_checkout(root):
        return None
    proof, state = Proof(root), UpToDate()
    for one in models_below(root) if model == "all" else [model]:
        name = answer_name("elfs", one, keys.get("target"), keys.get("layout"))
        lines = read_answer(proof, name) if name is not None else None
        if lines is None or not state.add(lines):
            return None
    if not state.names or not verifies(state, os.path.join(root, STORE, BLOBS)):
        return None
    for note in dict.fromkeys(state.notes):
        sys.stderr.write(f"note: {note}\n")
    sys.stdout.write(f"{state.headline}\n{state.summary()}\n")
    return 0


def verifies(state: UpToDate, blobs: str) -> bool:
    """Whether every blob is there and has the bytes its name says; all are hashed."""
    found = look_at_all({os.path.join(blobs, digest): size for digest, size in state.blobs.items()}, follow=False)
    return all(os.path.basename(path) == digest for path, digest in found.items())

"""Reads toolchain.lock: the pinned toolchains by target, and the digest that stands for each in recipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from elfkiln.errors import one_of, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.checked import TOML, Value
from elfkiln.io.reading import read_text
from elfkiln.io.strict_toml import parse_strict_toml

SCHEMA = "elfkiln-toolchain/1"
MAX_BYTES = 2**20

_REMEDY = "restore it from the repository"


@dataclass(frozen=True, slots=True)
class TargetPin:
    """One target's section of the lock. `digest` is the sha256 of its canonical JSON: any edit changes it."""

    name: str
    table: Mapping[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Lock:
    """The whole lock."""

    path: Path
    default_target: str
    targets: Mapping[str, TargetPin]

    def target(self, name: str | None = None) -> TargetPin:
        """Return a target's pin (default: `default_target`); an unknown name is `Refused`."""
        wanted = self.default_target if name is None else name
        if wanted not in self.targets:
            raise refusal(f"target={wanted}", expected=one_of(wanted, sorted(self.targets)), found=wanted)
        return self.targets[wanted]


def read_lock(path: Path) -> Lock:
    """Read toolchain.lock; raises `Refused` naming the field when it is absent, not TOML or not of this schema."""
    default, pins = _parsed(read_text(path, limit=MAX_BYTES, remedy=_REMEDY), path.name)
    return Lock(path, default, pins)


@lru_cache(maxsize=4)
def _parsed(text: str, where: str) -> tuple[str, Mapping[str, TargetPin]]:
    """Return the default target and the pins of a lock's text; the same text, asked for by each model, is read once."""
    top = Value(parse_strict_toml(text, where, remedy=_REMEDY), where, words=TOML, remedy=_REMEDY)
    top["schema"].choice((SCHEMA,))
    tables = top["target"].table()
    sections = {name: {key: value.raw for key, value in table.table().items()} for name, table in tables.items()}
    pins = {name: TargetPin(name, section, sha256_hex(canonical_json(section))) for name, section in sections.items()}
    return top["default_target"].choice(sorted(pins)), pins

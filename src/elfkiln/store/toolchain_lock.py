"""Reads toolchain.lock: the pinned toolchains by target, and the digest that stands for each in recipes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import Refused, refusal
from elfkiln.io.canonical import canonical_json, sha256_hex

SCHEMA = "elfkiln-toolchain/1"


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
            raise refusal(f"target={wanted}", expected="one of " + ", ".join(sorted(self.targets)), found=wanted)
        return self.targets[wanted]


def read_lock(path: Path) -> Lock:
    """Read toolchain.lock; raises `Refused` naming the field when it is absent, not TOML or not of this schema."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path.name}: missing; restore it from the repository") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{path.name}: not readable as TOML ({error}); restore it from the repository") from error
    if table.get("schema") != SCHEMA:
        raise refusal(f"{path.name}: schema", expected=SCHEMA, found=table.get("schema"))
    sections = table.get("target")
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise refusal(f"{path.name}: target", expected="one table per target", found=sections)
    pins = {name: TargetPin(name, section, sha256_hex(canonical_json(section))) for name, section in sections.items()}
    default = table.get("default_target")
    if not isinstance(default, str) or default not in pins:
        raise refusal(f"{path.name}: default_target", expected="one of " + ", ".join(sorted(pins)), found=default)
    return Lock(path, default, pins)

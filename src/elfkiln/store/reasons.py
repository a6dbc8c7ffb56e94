"""Why names left registry.yaml, or stand for other bytes of the same recipe: its sections `retired:` and `changed:`.

    retired:
      npu2:
        full_i8_G_K5120_N17408.elf: no engine asks for row-major weights any more
    changed:
      npu2:
        full_i8_G_K5120_N17408_b8.elf:
          sha256:<the ELF, manifest or design that it was>: the compiler put a time stamp into it

Written by hand, kept by every rewriting of the file, and read by `registry check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elfkiln.errors import ElfkilnError, Refused, brief
from elfkiln.io.checked import YAML, Value

RETIRED = "retired"
CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Reasons:
    """`retired` says why by target and key; `changed` by target, key, and the digest (hex) that it was before."""

    retired: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    changed: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)

    def why_retired(self, target: str, key: str) -> str | None:
        """Return why a name is no longer there, None where nobody says."""
        return self.retired.get(target, {}).get(key)

    def why_changed(self, target: str, key: str, *was: str) -> str | None:
        """Return why a name does not stand for one of these digests any more, None where nobody says."""
        known = self.changed.get(target, {}).get(key, {})
        return next((known[digest] for digest in was if digest in known), None)

    def tables(self) -> dict[str, Any]:
        """Return the sections for the file, sorted; those that say nothing are left out."""
        found: dict[str, Any] = {}
        if self.changed:
            found[CHANGED] = {
                target: {
                    key: {f"sha256:{digest}": why for digest, why in sorted(digests.items())}
                    for key, digests in sorted(keys.items())
                }
                for target, keys in sorted(self.changed.items())
            }
        if self.retired:
            found[RETIRED] = {target: dict(sorted(keys.items())) for target, keys in sorted(self.retired.items())}
        return found


def read_reasons(top: Value) -> Reasons:
    """Read the two sections; raises `Refused` naming the name whose reason is none."""
    retired, changed = top[RETIRED], top[CHANGED]
    return Reasons(
        {} if retired.absent else {target: _retired(target, rows) for target, rows in retired.table().items()},
        {} if changed.absent else {target: _changed(target, rows) for target, rows in changed.table().items()},
    )


def _retired(target: str, rows: Value) -> dict[str, str]:
    return {key: _named(value, RETIRED, target, key).text() for key, value in rows.table().items()}


def _changed(target: str, rows: Value) -> dict[str, dict[str, str]]:
    found = {}
    for key, value in rows.table().items():
        named = _named(value, CHANGED, target, key)
        reasons = named.table()
        if not reasons:
            raise named.refuse("sha256:<what it was>: <why>, for each")
        found[key] = {
            Value(digest, f"{named.where}: digest", remedy=value.remedy).digest("sha256:"): why.text()
            for digest, why in reasons.items()
        }
    return found


def _named(value: Value, section: str, target: str, key: str) -> Value:
    """Return a value whose place in messages is the name, which is what is looked for in the file."""
    from elfkiln.store.registry import shape_of

    where = f"{value.where}: {section}: {target}/{brief(key)}"
    try:
        shape_of(key)
    except ElfkilnError as error:
        raise Refused(f"{where}: {error}") from error
    return Value(value.raw, where, words=YAML, remedy=value.remedy)

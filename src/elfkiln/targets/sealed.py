"""The geometries a sealed ELF says it holds, read off the names of its sequences."""

from __future__ import annotations

from collections.abc import Iterable

from elfkiln.engine.contract import SEALED_ELF, SEALED_FORM, SEALED_INIT, sealed_geometry
from elfkiln.targets.kinds import WRONG_GEOMETRY, bad


def sealed_geometries(sequences: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Return K and N of each sequence that is named after a geometry; `BadElf` when none is, or there is no `init`."""
    names = list(sequences)
    found = tuple(pair for pair in map(sealed_geometry, names) if pair is not None)
    if SEALED_INIT not in names or not found:
        shown = ", ".join(names) or "none"
        expected = f"{SEALED_INIT} and at least one {SEALED_FORM}"
        raise bad(WRONG_GEOMETRY, f"{SEALED_ELF}: sequences", expected=expected, found=shown)
    return found

"""The kernel families: one module and one row each. docs/families.md says how to add one."""

from __future__ import annotations

from . import n1_blocked, pb16i, row_major

FAMILIES = (
    row_major.FAMILY,
    n1_blocked.FAMILY,
    pb16i.FAMILY,
)

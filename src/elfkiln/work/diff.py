"""What one plan or model asks for beyond another."""

from __future__ import annotations

from dataclasses import replace

from elfkiln.models.plan.compare import SetDifference, compare_headers, compare_sets
from elfkiln.work.asked import Asked


def diff(old: Asked, new: Asked) -> SetDifference:
    """Compare the names two plans or models ask for, and the fields of the plans where both have one."""
    found = compare_sets(old.wanted, new.wanted)
    if old.plan is None or new.plan is None:
        return found
    return replace(found, headers=compare_headers(old.plan, new.plan))

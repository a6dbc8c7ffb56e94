"""Sealed designs whose counts and locks are written in right and in wrong orders."""

from __future__ import annotations

from dataclasses import replace

from elfkiln.design.model import (
    AwaitTask,
    FreeTask,
    RtpWrite,
    SetLock,
    StartTask,
)
from elfkiln.design.reader import read_design
from simulating import example

SEALED = read_design(example("sequences_rtp"))


def sealed(reorder):
    """The sealed example with the steps of its sequences changed, init apart."""
    sequences = tuple(replace(one, steps=tuple(reorder(one.steps))) for one in SEALED.sequences[1:])
    return replace(SEALED, sequences=(SEALED.sequences[0], *sequences))


def first_lock_then_counts(steps):
    locks = [step for step in steps if isinstance(step, SetLock)]
    return [*locks, *(step for step in steps if not isinstance(step, SetLock))]


def one_count_late(steps):
    """The last write, K tiles of column 1, comes after the lock of column 1."""
    late = [step for step in steps if isinstance(step, RtpWrite)][-1]
    at = max(i for i, step in enumerate(steps) if isinstance(step, SetLock))
    kept = list(steps)
    kept.insert(at + 1, late)
    kept.remove(late)
    return kept


def data_before_counts(steps):
    """Fills and drains start before the counts are written: the data waits in the FIFOs until a lock opens."""
    first = next(i for i, step in enumerate(steps) if isinstance(step, AwaitTask | FreeTask))
    starts = [step for step in steps[:first] if isinstance(step, StartTask)]
    return [*starts, *(step for step in steps[:first] if step not in starts), *steps[first:]]


def all_counts_then_all_locks(steps):
    writes = [step for step in steps if isinstance(step, RtpWrite)]
    locks = [step for step in steps if isinstance(step, SetLock)]
    return [*writes, *locks, *(step for step in steps if step not in writes and step not in locks)]

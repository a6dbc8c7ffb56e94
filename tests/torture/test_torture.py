"""A bounded part of the torture: some kills, errors, flips, clocks and crowds of each kind; and that it can fail.

The whole is `.venv/bin/python tests/torture` (docs/reliability.md).
"""

from __future__ import annotations

import pytest

from elfkiln.io import files
from torture.torture_campaign import Campaign
from torture.torture_faults import ERRORS, KILL, TEAR
from torture.torture_scenes import SCENES, stand_ins


@pytest.fixture(scope="module")
def torture(tmp_path_factory):
    with stand_ins():
        yield Campaign(tmp_path_factory.mktemp("torture"))


@pytest.fixture
def campaign(torture):
    """The campaign without what earlier tests came to."""
    torture.outcome.counts.clear()
    torture.outcome.wrong.clear()
    return torture


def test_a_kill_at_any_call_costs_nothing_but_doing_it_again(campaign):
    campaign.faults(("rebuild", "install", "gc", "fsck", "pull", "rollback"), (KILL, TEAR), part=0.01)
    assert campaign.outcome.wrong == []
    assert sum(campaign.outcome.counts.values()) >= 12


def test_an_error_at_any_call_is_one_line_and_costs_nothing(campaign):
    campaign.faults(("build", "fsck", "import"), ERRORS, part=0.003, seed=1)
    assert campaign.outcome.wrong == []
    assert sum(campaign.outcome.counts.values()) >= 12


def test_a_flipped_bit_is_never_served(campaign):
    campaign.flips(every=307)
    assert campaign.outcome.wrong == []
    assert len(campaign.outcome.counts) >= 11


def test_the_clock_decides_nothing(campaign):
    campaign.clocks(("rebuild", "gc", "rollback"))
    assert campaign.outcome.wrong == []


def test_many_at_once_some_of_them_killed(campaign):
    campaign.mix(processes=4, seconds=2.0)
    assert campaign.outcome.wrong == []
    assert campaign.outcome.counts["mix: processes killed"] > 0


def test_every_scene_makes_calls_that_a_fault_can_hit(campaign):
    for name in ("install", "gc", "rollback"):
        calls, _ = campaign.undisturbed(SCENES[name])
        assert all(calls.that_meet(kind) for kind in (KILL, TEAR, *ERRORS)), name


def test_it_finds_writing_in_place(campaign, monkeypatch):
    """Planted: files are written under their own names, as if nobody could be killed."""

    def in_place(path, data, **_words):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb", buffering=0) as stream:
            for part in [data] if isinstance(data, bytes) else data:
                stream.write(part)

    monkeypatch.setattr("elfkiln.store.blobs.write_atomic", in_place)
    campaign.faults(("pull",), (TEAR,), part=0.3)
    assert any("has other bytes" in line for line in campaign.outcome.wrong)


def test_it_finds_an_index_that_is_written_before_its_blobs(campaign, monkeypatch):
    """Planted: the name comes first, as of a store that does not care in which order things are written."""
    monkeypatch.setattr("elfkiln.work.gc._Collector.remove", _names_last)
    campaign.faults(("gc",), (KILL,), part=0.4)
    assert any("is not there" in line for line in campaign.outcome.wrong)


def _names_last(self, found, *, damaged):  # noqa: ARG001
    for one in found.loose:
        (self.store.blobs / one.name).unlink()
    files.sync_folder(self.store.blobs)
    self.store.reindex({one.name for one in found.loose})
    return found

"""A candidate lock's names built beside the registered ones: which bytes change, why, and nothing registered."""

from __future__ import annotations

import os

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.bump_preview import preview
from projects import StandInBuilder

G = "full_i8_G_K256_N512_b8.elf"


@pytest.fixture(scope="module")
def kiln(tiny_kiln):
    return tiny_kiln


@pytest.fixture
def candidate(kiln):
    """The lock with another zig: another pin, which the stand-in's recipes name."""
    text = kiln.lock_file.read_text()
    assert "[target.sim]" in text
    return text.replace("[target.sim]", '[target.sim]\nnote = "another"')


def builder_of(**words):
    return lambda trial: StandInBuilder(read_lock(trial.lock_file).target(), **words)


def everything(kiln):
    found = {}
    for place, _, names in os.walk(kiln.root):
        for name in names:
            path = os.path.join(place, name)
            found[path] = os.stat(path).st_mtime_ns
    return found


def test_other_bytes_are_named_with_the_input_that_changed_and_nothing_is_registered(kiln, candidate):
    before = everything(kiln)
    found = preview(kiln, candidate, "sim", builder_of(suffix=b"of the new toolchain"))
    registered = load_registry(kiln.registry_file).entries("sim")
    assert [one.key for one in found] == sorted(registered)
    assert all(one.changed and one.before == registered[one.key].elf for one in found)
    assert {one.why for one in found} == {("stand-in",)}
    assert everything(kiln) == before


def test_a_toolchain_that_makes_the_same_bytes_changes_recipes_alone(kiln, candidate):
    found = preview(kiln, candidate, "sim", builder_of())
    assert [one.changed for one in found] == [False] * 8
    assert {one.line().partition(": ")[2] for one in found} == {"the same bytes"}


def test_what_does_not_build_is_named_with_the_reason(kiln, candidate):
    # G and U are K = 256, N = 512; D is K = 512, N = 256; the text of each holds both.
    found = {one.key: one for one in preview(kiln, candidate, "sim", builder_of(fail_for="768"))}
    failed = sorted(key for key, one in found.items() if one.after is None)
    assert failed == ["full_i8_QKV_K256_N768_b8.elf", "full_i8_QKV_K256_N768_b8_m16.elf"]
    assert found[failed[0]].failure == "the stand-in was told to fail"
    assert not found[G].changed


def test_a_target_without_names_is_refused_before_anything_is_made(kiln, candidate, tmp_path):
    with pytest.raises(Refused, match="expected names registered for npu2, found none"):
        preview(kiln, candidate, "npu2", builder_of())
    assert main(["toolchain", "status", "--build", f"root={kiln.root}"]) == 2
    assert list(tmp_path.iterdir()) == []

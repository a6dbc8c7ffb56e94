"""Generations of registry.yaml: which runs make one, that none is lost, and going back to one."""

from __future__ import annotations

import json
import os

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.store.registry import load_registry
from elfkiln.work.fsck import fsck
from elfkiln.work.generations import FOUND, changing, generation, history, registry_bytes_of, roll_back
from elfkiln.work.repair import repair
from kilns import build, builder_of, copy_kiln, flip

G = "full_i8_G_K256_N512_b8.elf"


@pytest.fixture(scope="module")
def original(tiny_kiln, tmp_path_factory):
    """The model `tiny` built from other sources, then from the present ones: two generations."""
    project = copy_kiln(tiny_kiln, tmp_path_factory.mktemp("kiln") / "project")
    assert build(project, source="2" * 64).exit_code == 0
    return project


@pytest.fixture
def kiln(original, tmp_path):
    return copy_kiln(original, tmp_path / "project")


def counts(project):
    return [(one.number, one.added, one.changed, one.dropped) for one in history(project).generations]


def test_each_run_that_changed_something_is_one_and_no_other(kiln):
    assert counts(kiln) == [(1, 8, 0, 0), (2, 0, 8, 0)]
    assert {one.what for one in history(kiln).generations} == {"elfs target=sim"}
    before = sorted(os.walk(kiln.generations))
    assert build(kiln, source="2" * 64).up_to_date
    assert sorted(os.walk(kiln.generations)) == before


def test_rolling_back_is_byte_for_byte_and_is_a_generation_itself(kiln, capsys):
    second = kiln.registry_file.read_bytes()
    first = registry_bytes_of(kiln, generation(kiln, 1))
    done = roll_back(kiln, 1)
    assert kiln.registry_file.read_bytes() == first != second
    assert (done.to, done.made, done.names, done.incomplete) == (1, 3, 8, ())
    assert counts(kiln)[-1] == (3, 0, 8, 0)
    assert fsck(kiln).findings == ()
    assert roll_back(kiln, 1).made is None
    assert len(counts(kiln)) == 3
    assert main(["rollback", "2", f"root={kiln.root}"]) == 0
    assert "registry.yaml is that of generation 2 (8 names), which is generation 4" in capsys.readouterr().out
    assert kiln.registry_file.read_bytes() == second
    # Three generations, two registries.
    assert len(list((kiln.generations / "registries").iterdir())) == 2


def test_what_was_edited_by_hand_is_kept_before_it_is_changed(kiln):
    by_hand = kiln.registry_file.read_bytes() + b"# mine\n"
    kiln.registry_file.write_bytes(by_hand)
    assert history(kiln).current is None
    roll_back(kiln, 1)
    found = history(kiln).generations
    assert [one.what for one in found[2:]] == [FOUND, "rollback 1"]
    assert registry_bytes_of(kiln, found[2]) == by_hand
    assert history(kiln).current == 4


def test_a_run_that_fails_after_it_registered_something_is_one_too(kiln):
    kiln.registry_file.unlink()
    report = build(kiln, source="4" * 64, fail_for="512")
    assert report.exit_code == 1
    assert report.built
    assert counts(kiln)[-1] == (3, 0, 2, 6)


def test_what_a_block_leaves_is_kept_however_it_ends(kiln):
    text = kiln.registry_file.read_text()

    def interrupted():
        with changing(kiln, "something"):
            kiln.registry_file.write_text(text.replace("columns: 2", "columns: 4"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert counts(kiln)[-1] == (3, 0, 8, 0)


def test_a_generation_that_cannot_be_kept_is_said_and_kept_by_the_next_change(kiln, capsys, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("elfkiln.work.generations.write_atomic", _full)
        build(kiln, source="4" * 64)
    assert "registry.yaml changed and is not kept as a generation: disk full" in capsys.readouterr().err
    assert len(counts(kiln)) == 2
    build(kiln, source="5" * 64)
    assert [one.what for one in history(kiln).generations[2:]] == [FOUND, "elfs target=sim"]


def _full(*_words, **_more):
    raise Refused("disk full")


def test_two_generations_are_compared_by_the_diff_verb(kiln, capsys):
    assert main(["diff", "1", "2", f"root={kiln.root}", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (len(found["changed"]), found["gained"], found["lost"]) == (8, [], [])
    row = next(one for one in found["changed"] if one["name"] == f"sim/{G}")
    # The stand-in's ELF is the generator's text: another source is another recipe, and the same bytes.
    assert sorted(row["fields"]) == ["manifest", "recipe"]
    assert row["fields"]["recipe"]["new"] == f"sha256:{load_registry(kiln.registry_file).entries('sim')[G].recipe}"
    assert main(["diff", "2", "2", f"root={kiln.root}"]) == 0
    assert main(["diff", "2", "9", f"root={kiln.root}"]) == 2
    assert "generation 9: expected one from 1 to 2, found 9" in capsys.readouterr().err


def test_what_the_store_lacks_of_a_generation_is_named(kiln):
    (kiln.blobs / load_registry(kiln.registry_file).entries("sim")[G].manifest).unlink()
    assert roll_back(kiln, 1).incomplete == ()
    done = roll_back(kiln, 2)
    assert sorted(done.incomplete) == ["sim/full_i8_G_K256_N512_b8.elf", "sim/full_i8_U_K256_N512_b8.elf"]


def test_a_damaged_generation_is_never_rolled_back_to_and_is_set_aside(kiln):
    one = generation(kiln, 1)
    path = kiln.generations / "registries" / f"{one.registry}.yaml"
    flip(path, 300)
    with pytest.raises(Differs, match="generation 1: expected the registry of sha256:"):
        roll_back(kiln, 1)
    found = fsck(kiln)
    assert {os.path.basename(finding.what) for finding in found.findings} == {
        path.name,
        next(name for name in os.listdir(kiln.generations) if name.startswith("000001.")),
    }
    done = repair(kiln, found, lambda _target: builder_of(kiln))
    # Nothing keeps its artifacts any more.
    assert {one.state for one in done.checkup.findings} == {"unreferenced"}
    assert [one.number for one in history(kiln).generations] == [2]


def test_a_damaged_record_is_listed_and_does_not_hide_the_others(kiln, capsys):
    name = next(name for name in os.listdir(kiln.generations) if name.startswith("000002."))
    flip(kiln.generations / name, 40)
    assert main(["generations", f"root={kiln.root}"]) == 1
    out = capsys.readouterr().out
    assert f"damaged: {name}" in out
    assert [one.number for one in history(kiln).generations] == [1]
    # Its number is not given again.
    roll_back(kiln, 1)
    assert history(kiln).generations[-1].number == 3


@pytest.mark.parametrize("word", ["x", "-1", "1.5", "9" * 30])
def test_a_word_that_is_no_number_is_refused(kiln, word):
    assert main(["rollback", word, f"root={kiln.root}"]) == 2


def test_a_fresh_checkout_has_none(tmp_path, original):
    root = tmp_path / "fresh"
    root.mkdir()
    (root / "toolchain.lock").write_text(original.lock_file.read_text())
    assert main(["generations", f"root={root}"]) == 0
    assert os.listdir(root) == ["toolchain.lock"]
    assert main(["rollback", "1", f"root={root}"]) == 2

"""Continuity of registry.yaml: what may not leave it or change in it without a reason, found and excused."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest

from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.project import Project
from elfkiln.store.reasons import Reasons
from elfkiln.store.registry import Entry, Registry, dump_registry, load_registry, register
from elfkiln.work.registry_check import check_registry, compare_registries

G = "full_i8_G_K5120_N17408_b8.elf"
D = "full_i8_D_K17408_N5120_b8.elf"
SEALED = "bonsai/pb16i_sealed.elf"


def entry(digit, **fields):
    facts = {"elf": digit * 64, "size": 100, "recipe": "1" * 64, "manifest": "2" * 64, "design": "3" * 64, "columns": 8}
    return Entry(**facts | fields)


BEFORE = Registry({"npu2": {G: entry("a"), D: entry("d"), SEALED: entry("e", sealed=((128, 256),))}})


def changes(now):
    return [(one.target, one.key, one.what, one.faulty) for one in compare_registries(BEFORE, now)]


def with_g(**fields):
    return Registry({"npu2": {**BEFORE.targets["npu2"], G: entry("a", **fields)}})


def test_the_same_registry_and_a_longer_one_have_no_changes():
    assert changes(BEFORE) == []
    assert changes(BEFORE.with_entries("sim", {G: entry("b")})) == []


def test_fifty_four_names_that_are_dropped_are_fifty_four_failures():
    names = {f"full_i8_G_K{64 * (number + 1)}_N128.elf": entry(f"{number:x}"[-1]) for number in range(54)}
    found = compare_registries(Registry({"npu2": names}), Registry({"npu2": {}}))
    assert [one.key for one in found if one.faulty] == sorted(names)


def test_a_target_that_is_dropped_drops_its_names():
    assert changes(Registry({})) == [("npu2", key, "dropped", True) for key in sorted([G, D, SEALED])]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("elf", "b" * 64),
        ("manifest", "b" * 64),
        ("design", "b" * 64),
        ("size", 101),
        ("columns", 4),
    ],
)
def test_every_recorded_field_is_compared_under_the_same_recipe(field, value):
    assert changes(with_g(**{field: value})) == [("npu2", G, "the same recipe, other facts", True)]
    # By another recipe any of them may be another.
    assert changes(with_g(**{field: value, "recipe": "9" * 64})) == [("npu2", G, "built by another recipe", False)]


def test_the_geometries_of_a_sealed_elf_are_compared_too():
    now = Registry({"npu2": {**BEFORE.targets["npu2"], SEALED: entry("e", sealed=((128, 512),))}})
    assert changes(now) == [("npu2", SEALED, "the same recipe, other facts", True)]
    assert "sealed 128x256 -> 128x512" in compare_registries(BEFORE, now)[0].detail


def test_a_reason_excuses_what_it_is_about_and_nothing_else():
    less = {key: one for key, one in BEFORE.targets["npu2"].items() if key != D}
    reasons = Reasons({"npu2": {D: "no engine asks for it"}}, {"npu2": {G: {"a" * 64: "a time stamp went"}}})
    now = Registry({"npu2": {**less, G: entry("b")}}, reasons)
    assert changes(now) == [
        ("npu2", D, "retired", False),
        ("npu2", G, "the same recipe, other facts", False),
    ]
    assert [one.why for one in compare_registries(BEFORE, now)] == ["no engine asks for it", "a time stamp went"]
    # The next change of the same name needs its own reason; so does the other target's name.
    again = compare_registries(now, Registry({"npu2": {**less, G: entry("c")}}, reasons))
    assert [one.faulty for one in again] == [True]
    other = compare_registries(
        Registry({"sim": {D: entry("f")}}), Registry({}, Reasons({"npu2": {D: "no engine asks for it"}}))
    )
    assert [one.faulty for one in other] == [True]


def test_a_reason_that_is_gone_is_a_lost_fact():
    reasons = Reasons({"npu2": {D: "old"}}, {"npu2": {G: {"a" * 64: "new"}}})
    found = compare_registries(Registry({"npu2": {G: entry("b")}}, reasons), Registry({"npu2": {G: entry("b")}}))
    assert [(one.key, one.what) for one in found] == [(D, "a reason is gone"), (G, "a reason is gone")]


def test_reasons_survive_every_rewriting_of_the_file(tmp_path):
    path = tmp_path / "registry.yaml"
    reasons = Reasons({"npu2": {D: "why: not"}}, {"npu2": {G: {"c" * 64: "so", "d" * 64: "and so"}}})
    path.write_bytes(dump_registry(Registry({"npu2": {G: entry("a")}}, reasons)))
    register(path, "sim", {G: entry("b")})
    assert load_registry(path).reasons == reasons
    assert path.read_text().count("why: not") == 1


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("wheels: {a: b}", "found wheels"),
        ("retired: 3", "retired: expected a mapping"),
        ("retired: {npu2: {../x: y}}", r"retired: npu2/\.\./x: "),
        (f"retired: {{npu2: {{{G}: ''}}}}", f"retired: npu2/{G}.*expected a text"),
        (f"changed: {{npu2: {{{G}: because}}}}", f"changed: npu2/{G}.*expected a mapping"),
        (f"changed: {{npu2: {{{G}: {{}}}}}}", "sha256:<what it was>"),
        (f"changed: {{npu2: {{{G}: {{abc: because}}}}}}", "expected sha256:"),
    ],
)
def test_sections_that_are_not_known_or_do_not_fit_are_refused(tmp_path, section, says):
    path = tmp_path / "registry.yaml"
    path.write_text(f"schema: elfkiln-registry/1\ntargets: {{}}\n{section}\n")
    with pytest.raises(Refused, match=says):
        load_registry(path)


@pytest.fixture
def repository(tmp_path):
    """A git repository whose first commit has BEFORE as registry.yaml."""

    def git(*words):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "toolchain.lock").write_text("")
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "nothing")
    git("tag", "empty")
    (tmp_path / "registry.yaml").write_bytes(dump_registry(BEFORE))
    git("add", ".")
    git("commit", "-q", "-m", "registry")
    return Project(tmp_path)


def test_against_a_revision_and_against_a_file(repository, tmp_path, capsys):
    root = f"root={repository.root}"
    assert main(["registry", "check", "--against", "HEAD", root]) == 0
    assert capsys.readouterr().out == "3 names, 0 of them new, against HEAD: 0 changed for a reason, 0 without\n"
    kept = tmp_path / "kept.yaml"
    repository.registry_file.rename(kept)
    repository.registry_file.write_bytes(dump_registry(Registry({"npu2": {G: entry("b"), D: entry("d")}})))
    for against in ("HEAD", str(kept)):
        assert main(["registry", "check", "--against", against, root, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert [(one["name"], one["faulty"]) for one in found["changes"]] == [(SEALED, True), (G, True)]
    assert main(["registry", "check", root]) == 0


@pytest.mark.parametrize(
    ("against", "says"),
    [
        ("nowhere", "expected a file, or a git revision"),
        ("--output=x", "expected a file, or a git revision"),
        ("empty", "empty:registry.yaml: expected a registry.yaml in that revision, found none"),
        ("HEAD:registry.yaml", "expected a file, or a git revision"),
    ],
)
def test_what_is_no_earlier_registry_is_refused(repository, against, says):
    with pytest.raises(Refused, match=says):
        check_registry(repository, against)


def test_a_name_that_is_retired_and_registered_contradicts(repository):
    path = repository.registry_file
    path.write_bytes(dump_registry(replace(BEFORE, reasons=Reasons({"npu2": {G: "gone"}}))))
    found = check_registry(repository)
    assert (found.exit_code, found.changes[0].what) == (1, "retired and registered")


def test_equal_digests_under_other_geometry_fail_in_what_is_and_not_in_what_was(repository):
    clash = dump_registry(Registry({"npu2": {G: entry("a"), D: entry("a")}}))
    earlier = repository.root / "earlier.yaml"
    earlier.write_bytes(clash)
    now = check_registry(repository, str(earlier))
    assert [one.key for one in now.changes if one.faulty] == [D]
    repository.registry_file.write_bytes(clash)
    with pytest.raises(Differs, match="have the same digest"):
        check_registry(repository, "HEAD")

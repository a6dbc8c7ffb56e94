"""From a key to an engine's folder: sign, look, push, pull, install and check under a policy."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pathlib

import pytest

from elfkiln.cli import main
from elfkiln.cli.json_forms import FORMS, misfit
from elfkiln.errors import Differs, Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.attestations import attest, result_predicate, statement
from elfkiln.store.blobs import Store
from elfkiln.store.oci_address import OciAddress
from elfkiln.store.oci_registry import OciRegistry
from elfkiln.store.registry import load_registry
from elfkiln.store.signing_keys import load_key, write_key_pair
from elfkiln.store.statement_types import PROVENANCE, TEST_RESULT
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.archive import export_sets, import_sets
from elfkiln.work.asked import asked_by_model
from elfkiln.work.build import build_elfs
from elfkiln.work.jobs import generator_of
from elfkiln.work.lookup import lookup_set
from elfkiln.work.origin import origin_of
from elfkiln.work.pull import pull_set
from elfkiln.work.push import push_sets
from elfkiln.work.trust import accepting, attest_provenance, said_of, sign, untrusted
from elfkiln.work.verify import Check, Problem
from kilns import copy_kiln
from oci_server import Registry, serving
from projects import TINY_NAMES, TINY_RECIPES, StandInBuilder, make_project

NAME = "full_i8_QKV_K256_N768_b8.elf"
# A build says of each artifact where it comes from, and that its design passed lint.
STATEMENTS = 2 * TINY_RECIPES


@pytest.fixture(scope="module")
def built(sim_kiln, tmp_path_factory):
    return copy_kiln(sim_kiln, tmp_path_factory.mktemp("built") / "project")


@pytest.fixture
def here(built, tmp_path):
    """A copy of the built project that a test may sign in."""
    import shutil

    shutil.copytree(built.root, tmp_path / "here")
    return type(built)(tmp_path / "here")


@pytest.fixture
def fresh(tmp_path):
    return make_project(tmp_path / "fresh")


@pytest.fixture
def keys(tmp_path):
    """Two key files, and a policy in which the first vouches for builds on target sim."""
    texts = {name: write_key_pair(tmp_path / name) for name in ("ci", "other")}
    table = {
        "schema": "elfkiln-policy/1",
        "keys": [
            {"name": name, "ed25519": text, "roles": [role], "expires": "2100-01-01T00:00:00Z"}
            for (name, text), role in zip(texts.items(), ("builder", "tester"), strict=True)
        ],
        "rules": [{"target": "sim", "predicate": PROVENANCE, "role": "builder", "threshold": 1}],
    }
    (tmp_path / "policy.json").write_text(json.dumps(table))
    return tmp_path


def rows(project):
    return lookup_set(project, "sim", asked_by_model(project, "tiny").wanted)


def policy(keys):
    from elfkiln.store.policy import read_policy

    return read_policy(keys / "policy.json")


def test_provenance_is_made_of_the_recipe_alone(here):
    entries = {row.entry.manifest: row.entry for row in rows(here)}
    store = Store(here.store)
    attest_provenance(store, entries.values())
    assert attest_provenance(store, entries.values()) == 0
    said = {one.key: one for one in said_of(here, rows(here))}
    (one,) = [a for a in said[NAME].attestations if a.predicate_type == PROVENANCE]
    assert one.statement["_type"] == "https://in-toto.io/Statement/v1"
    assert one.statement["subject"][0]["digest"]["sha256"] == said[NAME].entry.elf
    build = one.statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {"target": "sim", "columns": 2}
    recipe = json.loads(store.read(said[NAME].entry.recipe))
    (zig,) = recipe["tools"].values()
    assert zig in {d["digest"]["sha256"] for d in build["resolvedDependencies"]}
    # G and U are one artifact, so one statement.
    assert len({a.manifest for said_one in said.values() for a in said_one.attestations}) == STATEMENTS


def test_sign_look_and_require(here, keys, capsys):
    words = ["model=tiny", f"root={here.root}"]
    assert main(["check-missing", *words, f"policy={keys / 'policy.json'}"]) == 1
    out = capsys.readouterr().out
    assert (
        out.count("untrusted: https://slsa.dev/provenance/v1: expected signatures by 1 of role builder") == TINY_NAMES
    )
    assert main(["sign", *words, f"key={keys / 'ci'}"]) == 0
    assert f"{TINY_NAMES} names: {STATEMENTS} statements signed" in capsys.readouterr().out
    assert main(["check-missing", *words, f"policy={keys / 'policy.json'}", "--require-signed"]) == 0
    assert main(["install", *words, f"dir={keys / 'm'}", f"policy={keys / 'policy.json'}"]) == 0
    capsys.readouterr()
    assert main(["attestations", NAME, f"root={here.root}", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert {a["signatures"] for a in one["attestations"] if a["predicate_type"] == PROVENANCE} == {0, 1}
    assert main(["sign", *words, f"key={keys / 'ci'}"]) == 0
    assert "0 statements signed" in capsys.readouterr().out


def test_another_key_is_not_enough(here, keys):
    sign(here, rows(here), load_key(keys / "other"))
    why = untrusted(here, "sim", rows(here), policy(keys))
    assert len(why) == TINY_NAMES
    assert all("other: not of role builder" in reason for reason in why.values())


def test_an_install_under_a_policy_that_is_not_met_writes_nothing(here, keys, capsys):
    folder = keys / "m"
    words = ["install", "model=tiny", f"root={here.root}", f"dir={folder}", f"policy={keys / 'policy.json'}"]
    assert main(words) == 1
    assert "it has no signed statement" in capsys.readouterr().err
    assert not folder.exists()


def test_signatures_travel_with_push_and_pull(here, fresh, keys):
    sign(here, rows(here), load_key(keys / "ci"))
    with serving(Registry()) as host:
        registry = OciRegistry(OciAddress.parse(f"oci://{host}/a"), plain_http=True, environment={})
        push_sets(here, registry, [asked_by_model(here, "tiny")])
        pull_set(fresh, registry, "tiny-sim", accepting(fresh, policy(keys)))
    assert untrusted(fresh, "sim", rows(fresh), policy(keys)) == {}


def test_a_pull_that_a_policy_refuses_names_nothing(here, fresh, keys):
    with serving(Registry()) as host:
        registry = OciRegistry(OciAddress.parse(f"oci://{host}/a"), plain_http=True, environment={})
        push_sets(here, registry, [asked_by_model(here, "tiny")])
        with pytest.raises(Differs, match="expected signatures by 1 of role builder"):
            pull_set(fresh, registry, "tiny-sim", accepting(fresh, policy(keys)))
    assert not fresh.registry_file.exists()
    # Nor would a build take it from the store: it is not named there.
    assert not any(ref.startswith("recipe-") for ref in Store(fresh.store).refs())


def test_an_archive_under_a_policy(here, fresh, keys):
    sink = io.BytesIO()
    export_sets(here, [asked_by_model(here, "tiny")], sink)
    with pytest.raises(Differs, match="expected signatures"):
        import_sets(fresh, io.BytesIO(sink.getvalue()), "a.tar", accepting(fresh, policy(keys)))
    sign(here, rows(here), load_key(keys / "ci"))
    sink = io.BytesIO()
    export_sets(here, [asked_by_model(here, "tiny")], sink)
    import_sets(fresh, io.BytesIO(sink.getvalue()), "a.tar", accepting(fresh, policy(keys)))
    assert load_registry(fresh.registry_file) == load_registry(here.registry_file)


def test_a_failed_test_result_is_said_and_not_trusted(here, keys):
    store, row = Store(here.store), next(row for row in rows(here) if row.key == NAME)
    predicate = result_predicate(["gemm"], ["twin"], [], [{"name": "seed", "annotations": {"seed": 7}}])
    attest(store, row.entry.manifest, statement(NAME, row.entry.elf, TEST_RESULT, predicate), signed=False)
    (said,) = said_of(here, [row])
    assert "FAILED" in said.text()
    table = json.loads((keys / "policy.json").read_text())
    table["rules"][0]["predicate"] = TEST_RESULT
    (keys / "policy.json").write_text(json.dumps(table))
    sign(here, [row], load_key(keys / "ci"))
    # Lint's result, which passed, is signed by the same key and does not hide it.
    assert "ci signed a result that is FAILED" in untrusted(here, "sim", [row], policy(keys))[NAME]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["check-missing", "model=tiny", "--require-signed"], "--require-signed needs policy=FILE"),
        (["check-missing", "model=tiny", "policy=absent.json"], "absent.json"),
        (["sign", "model=tiny"], "key=: expected a key file"),
        (["sign", "model=tiny", NAME, "key=x"], "x: missing; name a key"),
        (["attestations"], "takes one of model="),
    ],
)
def test_words_that_do_not_fit(project, capsys, monkeypatch, words, line):
    monkeypatch.delenv("ELFKILN_SIGNING_KEY", raising=False)
    assert main([*words, f"root={project.root}"]) == 2
    assert line in capsys.readouterr().err


# --- what a build and its checks say by themselves ----------------------------------------------------------------


def said_about(project, name=NAME):
    return next(one for one in said_of(project, rows(project)) if one.key == name)


def results_of(project, name=NAME):
    """(tool, result, passed, failed) of every test result about a name."""
    found = []
    for one in said_about(project, name).attestations:
        if one.predicate_type == TEST_RESULT:
            predicate = one.statement["predicate"]
            found.append((one.tool, one.result, predicate["passedTests"], predicate["failedTests"]))
    return found


def test_a_build_attaches_where_each_artifact_comes_from(here):
    said = said_about(here)
    (one,) = [a for a in said.attestations if a.predicate_type == PROVENANCE]
    assert one.envelope is None
    build = one.statement["predicate"]["buildDefinition"]
    found = {d["name"]: d["digest"]["sha256"] for d in build["resolvedDependencies"]}
    for file in ("templates/n1_blocked.py.j2", "generators/__init__.py"):
        assert found[file] == hashlib.sha256((here.root / file).read_bytes()).hexdigest()
    assert found["toolchain.lock: target.sim"] == read_lock(here.lock_file).target("sim").digest
    assert found["generator.py"] in {path.name for path in Store(here.store).blobs.iterdir()}
    (zig,) = json.loads(Store(here.store).read(said.entry.recipe))["tools"].values()
    assert zig in found.values()
    assert any(name.endswith(".cc") for name in found)
    # Lint's result is about the very design in it.
    assert results_of(here) == [("elfkiln lint", "PASSED", ["lint: no errors"], [])]


@pytest.mark.parametrize("file", ["templates/panel_gemm.py.j2", "generators/__init__.py"])
def test_a_source_that_cannot_be_read_is_no_reason_to_leave_it_out(project, monkeypatch, file):
    """A statement without it would be another one than an undisturbed build makes of the same bytes."""
    target = read_lock(project.lock_file).target("sim")
    wanted = model_requirements(project, "tiny")
    generator = generator_of(project, wanted, wanted.requirements[0])
    assert file in origin_of(project, target, generator)

    def no_more_files(function):
        def wrapped(path, *given, **words):
            if os.fspath(path).endswith(file):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), os.fspath(path))
            return function(path, *given, **words)

        return wrapped

    monkeypatch.setattr(os, "open", no_more_files(os.open))
    monkeypatch.setattr(pathlib.Path, "read_text", no_more_files(pathlib.Path.read_text))
    with pytest.raises(Refused, match=f"{file}: Too many open files"):
        origin_of(project, target, generator)


def test_equal_builds_say_the_same_in_any_folder(tmp_path):
    manifests = []
    for name in ("one", "a-longer-name"):
        project = make_project(tmp_path / name / "project")
        builder = StandInBuilder(read_lock(project.lock_file).target("sim"))
        assert build_elfs(project, builder, [model_requirements(project, "tiny")]).exit_code == 0
        manifests.append([[a.manifest for a in one.attestations] for one in said_of(project, rows(project))])
        assert {len(found) for found in manifests[-1]} == {2}
    assert manifests[0] == manifests[1]


def test_what_verify_finds_is_said_of_both_names_it_compared(here, monkeypatch, capsys):
    twin = "full_i8_QKV_K256_N768_b8_m16.elf"
    checks = [
        Check((NAME,), "prefill random against numpy", 98304, 0, 0),
        Check((NAME, twin), "twin against prefill, random", 12288, 0, 0),
        Check((twin,), "twin fed a rm buffer", 12288, 12000, 9, must_differ=True),
        Problem(("full_i8_D_K512_N256_b8.elf",), "a deadlock"),
    ]
    monkeypatch.setattr("elfkiln.work.verify.verify_set", lambda *_, **__: checks)
    for _ in range(2):
        assert main(["verify", "model=tiny", f"root={here.root}"]) == 1
    tool = "elfkiln verify, seed 20261129"
    both = "twin against prefill, random"
    assert (tool, "PASSED", ["prefill random against numpy", both], []) in results_of(here)
    assert (tool, "PASSED", [both, "twin fed a rm buffer (must differ)"], []) in results_of(here, twin)
    assert (tool, "FAILED", [], ["could not be run: a deadlock"]) in results_of(here, "full_i8_D_K512_N256_b8.elf")
    # Twice the same is one statement, and what was not tried has none.
    assert len(results_of(here)) == 2
    assert len(results_of(here, "full_i8_G_K256_N512_b8.elf")) == 1
    capsys.readouterr()
    assert main(["attestations", NAME, f"root={here.root}"]) == 0
    assert f"test-result/v0.1 PASSED ({tool}), not signed" in capsys.readouterr().out


def test_what_predict_finds_against_a_baseline_is_said(here, tmp_path, capsys):
    baseline = tmp_path / "baseline.json"
    words = ["predict", "model=tiny", f"root={here.root}"]
    assert main([*words, "--write-baseline", str(baseline), "--baseline", str(baseline)]) == 0
    assert ("elfkiln predict baseline", "PASSED", ["predicted time against the baseline"], []) in results_of(here)
    table = json.loads(baseline.read_text())
    table["designs"][NAME]["seconds"] /= 2
    baseline.write_text(json.dumps(table))
    assert main([*words, "--baseline", str(baseline)]) == 1
    (failed,) = [row for row in results_of(here) if row[1] == "FAILED"]
    assert failed[3][0].startswith("predicted time against the baseline: predicted ")
    capsys.readouterr()


def test_inspect_shows_what_is_said_of_a_file_s_bytes_and_takes_a_registered_name(here, tmp_path, capsys):
    entry = said_about(here).entry
    copy = tmp_path / NAME
    copy.write_bytes(Store(here.store).read(entry.elf))
    for word in (str(copy), NAME):
        assert main(["inspect", word, f"root={here.root}", "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        (said,) = table["attestations"]
        assert said["name"] == NAME
        assert [a["predicate_type"] for a in said["attestations"]] == [TEST_RESULT, PROVENANCE]
        assert misfit(table, FORMS["inspect"][0]) is None
    assert main(["inspect", NAME, f"root={here.root}"]) == 0
    assert "  https://slsa.dev/provenance/v1, not signed" in capsys.readouterr().out

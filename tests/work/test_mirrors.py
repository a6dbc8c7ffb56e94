"""Artifacts that come from a mirror instead of a build, by the command line: found, missing, wrong, not signed."""

from __future__ import annotations

import json
import shutil

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import dump_registry, load_registry, parse_registry, register
from elfkiln.store.signing_keys import write_key_pair
from elfkiln.targets.table import TARGETS
from elfkiln.work.mirrors import chosen_mirrors
from mini_target import TARGET as MINI
from mini_target import MiniBuilder
from oci_server import Registry, serving
from projects import TINY_NAMES, TINY_RECIPES, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture(scope="module", autouse=True)
def mini():
    TARGETS["mini"] = MINI
    yield
    del TARGETS["mini"]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("template") / "project")
    with project.lock_file.open("a") as lock:
        lock.write('\n[target.mini]\nversion = "1.0"\n')
    return project


@pytest.fixture(scope="module")
def pushed(template, tmp_path_factory):
    """A project whose tiny model is built for target mini, and a registry that it was pushed to."""
    root = tmp_path_factory.mktemp("pushed") / "project"
    shutil.copytree(template.root, root)
    state = Registry()
    with serving(state) as host:
        words = ["model=tiny", "target=mini", f"root={root}"]
        assert main(["elfs", *words]) == 0
        assert main(["push", f"oci://{host}/kernels", *words, "--plain-http"]) == 0
        yield Project(root), state, host


@pytest.fixture
def mirror(pushed):
    """The address of the mirror; what a test makes it say or hold otherwise is put right."""
    _, state, host = pushed
    kept = dict(state.manifests), dict(state.blobs)
    yield f"mirror=oci://{host}/kernels"
    state.manifests, state.blobs, state.lie = kept[0], kept[1], None
    state.asked.clear()


@pytest.fixture
def fresh(template, tmp_path):
    shutil.copytree(template.root, tmp_path / "fresh")
    return Project(tmp_path / "fresh")


@pytest.fixture
def compiled(monkeypatch):
    """The generators that were compiled here."""
    texts = []
    whole = MiniBuilder.compile

    def compile_one(self, inputs, workdir, _say=None):
        texts.append(inputs.work)
        return whole(self, inputs, workdir)

    monkeypatch.setattr(MiniBuilder, "compile", compile_one)
    return texts


def elfs(capsys, project, *words):
    code = main(["elfs", "model=tiny", "target=mini", "--json", "--plain-http", f"root={project.root}", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def entries(project):
    return dict(load_registry(project.registry_file).entries("mini"))


def test_what_a_mirror_has_is_fetched_and_not_built(pushed, mirror, fresh, compiled, capsys):
    code, report, err = elfs(capsys, fresh, mirror)
    assert (code, err, compiled) == (0, "", [])
    assert (len(report["fetched"]), report["built"]) == (TINY_NAMES, [])
    assert entries(fresh) == entries(pushed[0])
    # Then it is there: nobody is asked again, and nothing is left to do.
    pushed[1].asked.clear()
    code, report, _ = elfs(capsys, fresh, mirror, "--must-hit")
    assert (code, len(report["up_to_date"]), pushed[1].asked) == (0, TINY_NAMES, [])


def test_mirrors_of_the_registry_file(pushed, mirror, fresh, compiled, capsys):
    fresh.registry_file.write_text(f"schema: elfkiln-registry/1\nmirrors:\n- {mirror[7:]}\ntargets: {{}}\n")
    code, report, _ = elfs(capsys, fresh)
    assert (code, len(report["fetched"]), compiled) == (0, TINY_NAMES, [])
    assert load_registry(fresh.registry_file).mirrors == (mirror[7:],)
    assert entries(fresh) == entries(pushed[0])


def test_no_substitute_asks_nobody(pushed, mirror, fresh, compiled, capsys):
    fresh.registry_file.write_text(f"schema: elfkiln-registry/1\nmirrors: [{mirror[7:]}]\ntargets: {{}}\n")
    code, report, _ = elfs(capsys, fresh, "--no-substitute")
    assert (code, len(report["built"]), len(compiled), pushed[1].asked) == (0, TINY_NAMES, TINY_RECIPES, [])
    code, _, err = elfs(capsys, fresh, "--no-substitute", mirror)
    assert (code, "--no-substitute does not go with mirror=" in err) == (2, True)


def test_what_no_mirror_has_is_built_or_with_must_hit_a_failure(pushed, mirror, fresh, compiled, capsys):
    recipe = entries(pushed[0])[QKV].recipe
    del pushed[1].manifests[f"recipe-{recipe}"]
    code, report, _ = elfs(capsys, fresh, mirror, "--must-hit")
    assert (code, compiled, len(report["fetched"])) == (1, [], TINY_NAMES - 1)
    assert [one["name"] for one in report["failed"]] == [QKV]
    assert f"recipe {recipe[:12]} is neither in the store nor to be had from {mirror[7:]}" in str(report["failed"])
    code, report, _ = elfs(capsys, fresh, mirror)
    assert (code, report["built"], len(compiled)) == (0, [QKV], 1)


def swapped(state, project):
    """Put another recipe's manifest under the tag of QKV's."""
    known = entries(project)
    other = next(one for one in known.values() if one.recipe != known[QKV].recipe)
    state.manifests[f"recipe-{known[QKV].recipe}"] = state.manifests[f"recipe-{other.recipe}"]


def flipped(state, project):
    """Change a byte of QKV's ELF."""
    digest = f"sha256:{entries(project)[QKV].elf}"
    state.blobs[digest] = state.blobs[digest][:-1] + b"\1"


def not_json(state, project):
    tag = f"recipe-{entries(project)[QKV].recipe}"
    state.manifests[tag] = (b"{", state.manifests[tag][1])


@pytest.mark.parametrize("wrong", [swapped, flipped, not_json])
def test_a_mirror_that_lies_is_said_and_the_rest_is_built(pushed, mirror, fresh, compiled, capsys, wrong):
    wrong(pushed[1], pushed[0])
    code, report, err = elfs(capsys, fresh, mirror)
    assert (code, report["built"], len(compiled)) == (0, [QKV], 1)
    assert err.startswith(f"elfkiln: mirror {mirror[7:]}: recipe {entries(pushed[0])[QKV].recipe[:12]} is not taken: ")
    assert err.count("\n") == 1
    assert entries(fresh) == entries(pushed[0])


def test_other_bytes_than_registered_are_not_taken(pushed, mirror, fresh, compiled, capsys):
    """The checkout knows the digest that a recipe came to: a mirror with a sound ELF of other bytes is not believed."""
    register(fresh.registry_file, "mini", entries(pushed[0]))
    state, entry = pushed[1], entries(pushed[0])[QKV]
    tag = f"recipe-{entry.recipe}"
    other = state.blobs[f"sha256:{entry.elf}"] + bytes(8)
    digest = Store(fresh.root / "scratch").add_bytes(other)
    table = json.loads(state.manifests[tag][0])
    layer = next(one for one in table["layers"] if one["digest"] == f"sha256:{entry.elf}")
    layer |= {"digest": f"sha256:{digest}", "size": len(other)}
    state.blobs[f"sha256:{digest}"] = other
    state.manifests[tag] = (json.dumps(table).encode(), state.manifests[tag][1])
    code, report, err = elfs(capsys, fresh, mirror)
    assert (code, report["built"], len(compiled)) == (0, [QKV], 1)
    assert f"same recipe, other bytes: expected sha256:{entry.elf}" in err
    assert not Store(fresh.store).holds(digest)


@pytest.mark.parametrize("status", [500, 401])
def test_a_mirror_that_fails_is_asked_once_and_the_next_one_serves(
    mirror, fresh, compiled, capsys, monkeypatch, status
):
    monkeypatch.setattr("elfkiln.store.oci_registry._TRIES", 1)
    broken = Registry(lie=lambda *_: lambda handler: handler.answer(status, WWW_Authenticate="Basic realm=x"))
    with serving(broken) as host:
        both = f"mirror=oci://{host}/gone,{mirror[7:]}"
        code, report, err = elfs(capsys, fresh, both, "-n", "1")
    assert (code, len(report["fetched"]), compiled) == (0, TINY_NAMES, [])
    assert err.count("\n") == 1
    assert f"elfkiln: mirror oci://{host}/gone is not asked again: " in err


def test_a_mirror_that_nobody_serves_costs_nothing_but_a_line(fresh, compiled, capsys, monkeypatch):
    monkeypatch.setattr("elfkiln.store.oci_registry._TRIES", 1)
    code, report, err = elfs(capsys, fresh, "mirror=oci://127.0.0.1:1/x", "-n", "1")
    assert (code, len(report["built"]), len(compiled)) == (0, TINY_NAMES, TINY_RECIPES)
    assert "127.0.0.1:1 cannot be reached" in err


def test_a_policy_decides_what_is_taken(pushed, mirror, fresh, compiled, capsys, tmp_path):
    """A signature of the builder's key over one artifact's provenance: that one is taken, the others are built."""
    project, _, host = pushed
    text = write_key_pair(tmp_path / "ci")
    key = {"name": "ci", "ed25519": text, "roles": ["builder"], "expires": "2100-01-01T00:00:00Z"}
    rule = {"target": "mini", "predicate": "https://slsa.dev/provenance/v1", "role": "builder", "threshold": 1}
    (tmp_path / "policy.json").write_text(json.dumps({"schema": "elfkiln-policy/1", "keys": [key], "rules": [rule]}))
    words = [QKV, "target=mini", f"root={project.root}"]
    assert main(["sign", *words, f"key={tmp_path / 'ci'}"]) == 0
    assert main(["push", f"oci://{host}/kernels", *words, "--plain-http"]) == 0
    capsys.readouterr()
    code, report, err = elfs(capsys, fresh, mirror, f"policy={tmp_path / 'policy.json'}")
    assert (code, report["fetched"]) == (0, [QKV])
    assert len(compiled) == TINY_RECIPES - 1
    assert err.count("is not taken: ") == TINY_RECIPES - 1
    assert "it has no signed statement" in err
    code, _, err = elfs(capsys, fresh, f"policy={tmp_path / 'policy.json'}")
    assert (code, "policy= is for what comes from elsewhere" in err) == (2, True)


@pytest.mark.parametrize("verb", ["check-missing", "install"])
def test_fetch_brings_what_is_registered_and_missing(pushed, mirror, fresh, compiled, capsys, tmp_path, verb):
    register(fresh.registry_file, "mini", entries(pushed[0]))
    folder = [f"dir={tmp_path / 'model'}"] if verb == "install" else []
    words = [verb, "model=tiny", "target=mini", f"root={fresh.root}", *folder]
    assert main(words) == 1
    capsys.readouterr()
    assert main([*words, "--fetch", "--plain-http", mirror]) == 0
    out, err = capsys.readouterr()
    assert f"note: {TINY_NAMES} names fetched from {mirror[7:]}\n" == err
    assert compiled == []
    if verb == "install":
        elf = Store(pushed[0].store).read(entries(pushed[0])[QKV].elf)
        assert (tmp_path / "model" / "kernels" / QKV).read_bytes() == elf
    else:
        assert f"{TINY_NAMES} names, all there" in out


def test_fetch_mends_a_damaged_blob_and_leaves_what_nobody_has(pushed, mirror, fresh, capsys):
    words = ["check-missing", "model=tiny", "target=mini", f"root={fresh.root}"]
    register(fresh.registry_file, "mini", entries(pushed[0]))
    assert main([*words, "--fetch", "--plain-http", mirror]) == 0
    known = entries(pushed[0])
    blob = Store(fresh.store).path(known[QKV].elf)
    blob.chmod(0o644)
    blob.write_bytes(b"damaged")
    assert main([*words, "--fetch", "--plain-http", mirror]) == 0
    blob.unlink()
    del pushed[1].manifests[f"recipe-{known[QKV].recipe}"]
    capsys.readouterr()
    assert main([*words, "--fetch", "--plain-http", mirror]) == 1
    out, err = capsys.readouterr()
    assert "note: 0 names fetched" in err
    assert f"missing full ELF kernels/{QKV}" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["elfs", "--must-hit"], "--must-hit needs a mirror"),
        (["check-missing", "--fetch"], "--fetch needs a mirror"),
        (["elfs", "mirror=http://a/b"], "address: expected oci://"),
        (["elfs", "mirror=oci://a/b:tag"], "expected a repository without a tag"),
        (["elfs", "mirror=oci://example.org/b", "--plain-http"], "expected a loopback address"),
    ],
)
def test_words_that_do_not_fit(fresh, capsys, words, line):
    assert main([*words, "model=tiny", "target=mini", f"root={fresh.root}"]) == 2
    assert line in capsys.readouterr().err


def test_mirrors_in_the_registry_file_are_kept_and_checked(fresh):
    text = "schema: elfkiln-registry/1\nmirrors:\n- oci://b/x\n- oci://a/y\ntargets: {}\n"
    registry = parse_registry(text, "registry.yaml")
    # In the order they are asked in, which is not the alphabet's.
    assert registry.mirrors == ("oci://b/x", "oci://a/y")
    assert parse_registry(dump_registry(registry).decode(), "r").mirrors == registry.mirrors
    assert b"mirrors" not in dump_registry(parse_registry("schema: elfkiln-registry/1\ntargets: {}\n", "r"))
    with pytest.raises(Refused, match=r"registry\.yaml.*mirrors"):
        parse_registry("schema: elfkiln-registry/1\nmirrors: oci://a/b\ntargets: {}\n", "registry.yaml")
    fresh.registry_file.write_text("schema: elfkiln-registry/1\nmirrors: [oci://a/b@sha256:1]\ntargets: {}\n")
    with pytest.raises(Refused, match="digest: expected"):
        chosen_mirrors(fresh, None)

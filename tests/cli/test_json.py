"""What `--json` prints, verb by verb, over one small project: its form, and the values that are not machine's own.

The files of tests/golden/json hold the values. Digests, sizes and measured numbers stand there as marks; what is left
was worked out: four geometries of two layers are 8 names, G and U share a recipe, and so on.
"""

from __future__ import annotations

import json
import re

import pytest

from elfkiln.cli import main
from elfkiln.cli.json_forms import FORMS, VERSION, misfit
from elfkiln.cli.verbs import VERBS
from elfkiln.families.family import DesignRequest, render
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from kilns import copy_kiln, keep_rows
from oci_server import Registry, serving
from plan_data import plan_data, write_model, write_plan_file
from projects import CHECKOUT, make_project
from small_models import dense_model

GOLDEN = CHECKOUT / "tests" / "golden" / "json"
QKV = "full_i8_QKV_K256_N768_b8.elf"
TWIN = "full_i8_QKV_K256_N768_b8_m16.elf"
# What a machine, a compiler or the next edit of a template decides.
MARKED = {
    "size": "<count>",
    "bytes": "<count>",
    "blobs": "<count>",
    "blobs_sent": "<count>",
    "blobs_there": "<count>",
    "bytes_sent": "<count>",
    "versions": "<text>",
    "reason": "<text>",
    "measured": "<text>",
    "ed25519": "<text>",
}


@pytest.fixture(scope="module")
def world(sim_kiln, tmp_path_factory):
    """A folder with the project `project` (the model `tiny`, built for sim), and a running registry."""
    folder = tmp_path_factory.mktemp("world")
    project = copy_kiln(sim_kiln, folder / "project")
    keep_rows(copy_kiln(sim_kiln, folder / "lean"), "QKV")
    Store(make_project(folder / "loose").store).add_bytes(b"nothing names it")
    write_plan_file(folder / "one", plan_data())
    write_plan_file(folder / "two", plan_data(decode__enabled=False))
    (folder / "generator.py").write_text(render(project.root, DesignRequest(256, 768, 128, "_b8", 3)).text)
    (folder / "a.log").write_text("[greedy 0] a b c\n")
    for name in ("dense", "planned"):
        write_model(folder / name, *dense_model())
    with serving(Registry()) as host:
        root = f"root={project.root}"
        for words in (
            ["install", "model=tiny", f"dir={folder / 'model'}", root],
            ["export", str(folder / "tiny.tar"), "model=tiny", root],
            ["push", f"oci://{host}/kernels", "model=tiny", "--plain-http", root],
            ["keygen", str(folder / "ci.key")],
            ["plan", str(folder / "planned")],
        ):
            assert main(words) == 0, words
        yield folder, project, host


def marked(value, folder, host, key=""):
    """Return a JSON value with marks for what is not the same everywhere."""
    if isinstance(value, dict):
        return {name: marked(one, folder, host, name) for name, one in value.items()}
    if isinstance(value, list):
        return [marked(one, folder, host, key) for one in value]
    if key in MARKED and value not in (None, ""):
        return MARKED[key]
    if isinstance(value, float):
        return "<number>"
    if isinstance(value, str):
        text = value.replace(str(folder), "WORLD").replace(host, "HOST")
        return re.sub(r"sha256:[0-9a-f]{64}", "<sha256>", re.sub(r"^[0-9a-f]{64}$", "<hex>", text))
    return value


# None needs another to have run. A word in braces is filled in.
GOLDEN_RUNS = [
    ("elfs", 0, ["elfs", "model=tiny", "root={root}"]),
    ("list", 0, ["list", "root={root}"]),
    ("check-missing", 0, ["check-missing", "model=tiny", "root={root}"]),
    ("check-missing-gap", 1, ["check-missing", "model=tiny", "layout=rm", "root={root}"]),
    ("lookup-name", 0, ["lookup", QKV, "root={root}"]),
    ("lookup-model", 0, ["lookup", "model=tiny", "root={root}"]),
    ("lookup-plan", 1, ["lookup", "plan={world}/two", "root={root}"]),
    ("install", 0, ["install", "model=tiny", "dir={world}/again", "root={root}"]),
    ("resolve", 0, ["resolve", TWIN, "model=tiny", "dir={world}/model", "root={root}"]),
    ("explain", 0, ["explain", QKV, "root={root}"]),
    ("report", 0, ["report", "model=tiny", "root={root}"]),
    ("diff", 1, ["diff", "{world}/one", "{world}/two", "root={root}"]),
    ("plan", 0, ["plan", "{world}/dense"]),
    ("plan-check", 0, ["plan", "{world}/planned", "--check"]),
    ("toolchain-status", 0, ["toolchain", "status", "root={root}"]),
    ("toolchain-install", 0, ["toolchain", "install", "target=sim", "root={root}"]),
    ("kv-gate", 0, ["kv-gate"]),
    ("cross-check", 0, ["cross-check", "model=qwen3-4b"]),
    ("export", 0, ["export", "{world}/again.tar", "model=tiny", "root={root}"]),
    ("import", 0, ["import", "{world}/tiny.tar", "root={root}"]),
    ("push", 0, ["push", "oci://{host}/kernels", "model=tiny", "--plain-http", "root={root}"]),
    ("pull", 0, ["pull", "oci://{host}/kernels:tiny-sim", "--plain-http", "root={root}"]),
    ("keygen", 0, ["keygen", "{world}/new.key"]),
    ("sign", 0, ["sign", QKV, "key={world}/ci.key", "root={root}"]),
]
# Held to their forms alone: their values are the business of their own tests.
FORM_RUNS = [
    ("verify", 0, ["verify", "model=tiny", "root={world}/lean"]),
    ("elfs", 0, ["elfs", "model=tiny", "--dry-run", "root={root}"]),
    ("log", 0, ["log", QKV, "root={root}"]),
    ("predict", 0, ["predict", QKV, "root={root}"]),
    ("predict", 0, ["predict", "model=tiny", "root={root}"]),
    ("predict", 0, ["predict", "--validate", "root={root}"]),
    ("plan", 0, ["plan", "--from-config", "{world}/dense"]),
    ("site", 0, ["site", "out={world}/site", "root={root}"]),
    ("draw", 0, ["draw", QKV, "out={world}/qkv.svg", "root={root}"]),
    ("inspect", 0, ["inspect", "{world}/model/kernels/" + QKV]),
    ("inspect", 1, ["inspect", "{world}/a.log"]),
    ("design", 0, ["design", "{generator}"]),
    ("lint", 0, ["lint", "{design}", "target=sim"]),
    ("compare-runs", 0, ["compare-runs", "--self-test"]),
    ("completion", 0, ["completion", "bash"]),
    ("doctor", 0, ["doctor", "root={root}"]),
    ("registry", 0, ["registry", "check", "--against", "{root}/registry.yaml", "root={root}"]),
    ("gc", 0, ["gc", "root={root}"]),
    ("generations", 0, ["generations", "root={root}"]),
    ("log", 0, ["log", "root={root}"]),
    ("rollback", 0, ["rollback", "1", "root={root}"]),
    ("diff", 0, ["diff", "1", "1", "root={root}"]),
    ("fsck", 4, ["fsck", "root={world}/loose"]),
    ("attestations", 0, ["attestations", QKV, "root={root}"]),
]


def said(world, capsys, code, words):
    folder, project, host = world
    entry = load_registry(project.registry_file).entries("sim")[QKV]
    store = Store(project.store)
    filled = {
        "root": project.root,
        "world": folder,
        "host": host,
        "design": store.path(entry.design),
        "generator": folder / "generator.py",
    }
    capsys.readouterr()
    assert main([*(word.format(**filled) for word in words), "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def check_form(verb, value):
    misfits = [misfit(value, form) for form in FORMS[verb]]
    assert None in misfits, misfits


@pytest.mark.parametrize(("name", "code", "words"), GOLDEN_RUNS, ids=[run[0] for run in GOLDEN_RUNS])
def test_the_values_of_a_verb(world, capsys, name, code, words):
    value = said(world, capsys, code, words)
    check_form(words[0], value)
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert marked(value, world[0], world[2]) == expected


@pytest.mark.parametrize(("verb", "code", "words"), FORM_RUNS)
def test_the_form_of_a_verb(world, capsys, verb, code, words):
    check_form(verb, said(world, capsys, code, words))


def test_every_verb_has_a_form_and_a_run():
    assert set(FORMS) == set(VERBS)
    # What `bench` prints is held to its form where there is a device to run on (tests/work/test_on_device.py).
    # `reproduce` builds everything anew, and is held to its form where a stand-in does that (test_reproduce.py); the
    # form of `sbom` is CycloneDX's own (test_sbom.py).
    assert {words[0] for _, _, words in (*GOLDEN_RUNS, *FORM_RUNS)} == set(VERBS) - {"bench", "reproduce", "sbom"}
    assert VERSION == 1

"""The bill of materials: valid CycloneDX by its own schema, whole, and the same for the same set."""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import pytest

import elfkiln
from elfkiln.cli import main
from elfkiln.errors import Differs, Refused
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.asked import asked_by_model
from elfkiln.work.sbom import needed_packages, pinned_packages, sbom
from kilns import copy_kiln
from projects import CHECKOUT, TINY_NAMES, make_project

QKV = "full_i8_QKV_K256_N768_b8.elf"


@pytest.fixture(scope="module")
def built(tiny_kiln, tmp_path_factory):
    project = copy_kiln(tiny_kiln, tmp_path_factory.mktemp("sbom") / "project")
    shutil.copy(CHECKOUT / "requirements.txt", project.root)
    return project


@pytest.fixture(scope="module")
def text(built):
    return sbom(built, asked_by_model(built, "tiny", target="sim"))


@pytest.fixture(scope="module")
def components(text):
    return json.loads(text)["components"]


def sha256_of(component):
    (found,) = component["hashes"]
    assert found["alg"] == "SHA-256"
    return found["content"]


def test_it_is_valid_by_the_schema_of_cyclonedx(text):
    # Imported here: they would cost every process of the suite a second.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    # The validator parses every address by a grammar, which takes a minute for all; of equal rows the first are enough.
    table = json.loads(text)
    for one in table["components"]:
        for rows in ("externalReferences", "components"):
            if rows in one:
                one[rows] = one[rows][:1]
    short = json.dumps(table)
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(short) is None
    # And the validator is one: it says no to what is not.
    assert validator.validate_str(short.replace('"firmware"', '"firmwear"')) is not None


def test_every_elf_is_there_by_its_digest(built, components):
    registered = load_registry(built.registry_file).entries("sim")
    elfs = {one["name"]: sha256_of(one) for one in components if one["type"] == "firmware"}
    assert elfs == {key: entry.elf for key, entry in registered.items()}
    assert len(elfs) == TINY_NAMES


def test_inputs_sources_and_toolchain_are_there_by_digest(built, components):
    files = {one["name"]: sha256_of(one) for one in components if one["type"] == "file"}
    for name in ("templates/n1_blocked.py.j2", "templates/panel_gemm.py.j2", "generators/__init__.py"):
        assert files[name] == hashlib.sha256((built.root / name).read_bytes()).hexdigest()
    pin = read_lock(built.lock_file).target("sim")
    assert files["toolchain.lock: target.sim"] == pin.digest
    (zig,) = [one for one in components if one["name"] == "zig"]
    assert (zig["version"], sha256_of(zig)) == (pin.table["ziglang"]["version"], pin.table["ziglang"]["zig_sha256"])
    (own,) = [one for one in components if one["name"] == "elfkiln"]
    inside = {one["name"]: sha256_of(one) for one in own["components"]}
    source = CHECKOUT / "src" / "elfkiln" / "errors.py"
    assert inside["elfkiln/errors.py"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert not any("__pycache__" in name for name in inside)
    assert elfkiln.__name__ == own["name"]


def test_a_wheel_that_the_lock_pins_is_marked_by_its_own_digest(built, components):
    table = read_lock(built.lock_file).target("sim").table
    for name in ("ziglang", "xdsl"):
        (row,) = [one for one in components if one["bom-ref"].startswith(f"python/{name}@")]
        assert sha256_of(row) == table[name]["sha256"]
        assert {"name": "elfkiln:wheel", "value": table[name]["wheel"]} in row["properties"]
    (numpy,) = [one for one in components if one["bom-ref"].startswith("python/numpy@")]
    assert "hashes" not in numpy


def test_every_package_elfkiln_needs_is_there_with_the_digests_of_the_lock_file(components):
    packages = {one["name"]: one for one in components if one["bom-ref"].startswith("python/")}
    assert {"numpy", "jinja2", "markupsafe", "cryptography", "cffi", "pycparser"} <= set(packages)
    assert not {"pytest", "ruff", "mypy"} & set(packages)
    lines = (CHECKOUT / "requirements.txt").read_text()
    version, block = re.search(r"^jinja2==(\S+)((?: \\\n    --hash=\S+)+)", lines, re.MULTILINE).groups()
    jinja2 = packages["jinja2"]
    assert jinja2["version"] == version
    assert jinja2["purl"] == f"pkg:pypi/jinja2@{version}"
    digests = {one["hashes"][0]["content"] for one in jinja2["externalReferences"]}
    assert digests == set(re.findall(r"sha256:([0-9a-f]{64})", block))


def test_an_elf_depends_on_its_own_inputs_and_the_set_on_its_elfs(text):
    table = json.loads(text)
    depends = {one["ref"]: set(one.get("dependsOn", ())) for one in table["dependencies"]}
    names = {one["bom-ref"]: one["name"] for one in table["components"]}
    (qkv,) = [ref for ref, name in names.items() if name == QKV]
    wanted = {names[ref] for ref in depends[qkv]}
    assert {"zig", "elfkiln", "design.mlir", "templates/n1_blocked.py.j2"} <= wanted
    assert {names[ref] for ref in depends["model/tiny"]} == {name for name in names.values() if name.endswith(".elf")}
    assert {"numpy", "cryptography"} <= {names[ref] for ref in depends["elfkiln"]}


def test_the_same_set_gives_the_same_bytes_and_no_time(built, text):
    assert sbom(built, asked_by_model(built, "tiny", target="sim")) == text
    assert "timestamp" not in text
    assert str(built.root) not in text


def test_what_is_not_registered_or_pinned_is_refused(built, tmp_path, capsys):
    fresh = make_project(tmp_path / "project")
    assert main(["sbom", "model=tiny", f"root={fresh.root}"]) == 1
    assert "not registered for target sim" in capsys.readouterr().err
    with pytest.raises(Differs, match="not registered"):
        sbom(fresh, asked_by_model(fresh, "tiny", target="sim"))
    shutil.copytree(built.root, tmp_path / "copy")
    here = type(built)(tmp_path / "copy")
    (here.root / "requirements.txt").write_text("numpy==2.4.6\n")
    with pytest.raises(Refused, match=r"requirements.txt: expected a pin of \S+, which elfkiln needs, found none"):
        sbom(here, asked_by_model(here, "tiny", target="sim"))
    (here.root / "requirements.txt").unlink()
    assert main(["sbom", "model=tiny", f"root={here.root}"]) == 2
    assert "requirements.txt: missing" in capsys.readouterr().err


def test_requirements_are_read_as_pip_reads_them():
    text = 'a==1 ; python_version < "3" \\\n    --hash=sha256:' + "1" * 64 + "\nB_c[x]==2 --hash=sha256:" + "2" * 64
    assert pinned_packages(f"# a comment\n--only-binary=:all:\n{text}\n") == {"b-c": ("2", ("2" * 64,))}
    with pytest.raises(Refused, match="expected NAME==VERSION with hashes"):
        pinned_packages("not a requirement at all\n")
    assert "elfkiln" not in needed_packages("elfkiln")


def test_the_command_writes_a_file(built, tmp_path, text):
    out = tmp_path / "tiny.cdx.json"
    assert main(["sbom", "model=tiny", "target=sim", f"out={out}", f"root={built.root}"]) == 0
    assert out.read_text() == f"{text}\n"

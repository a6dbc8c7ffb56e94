"""explain and lookup: why a name would be rebuilt, and which bytes stand behind it."""

from __future__ import annotations

import hashlib
import json
import sys

import pytest

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.work.build import build_elfs
from elfkiln.work.explain import explain
from elfkiln.work.progress import Progress
from plan_data import plan_data, write_plan_file

QKV = "full_i8_QKV_K256_N768_b8.elf"


def test_up_to_date(built, stand_in):
    answer = explain(built, stand_in, QKV)
    assert answer.state == "up to date"
    assert answer.changes == ()
    assert answer.recipe == load_registry(built.registry_file).entries("sim")[QKV].recipe


def test_nothing_known_yet(project, stand_in):
    answer = explain(project, stand_in, QKV)
    assert (answer.state, answer.nearest) == ("would be built", None)
    assert "no recipe of this target is in the store yet" in answer.text()


def test_what_a_design_does_otherwise_is_told(project, stand_in, capsys):
    """N = 256 has 2 columns: packed decode runs on 2 rows of cores, and says so where it is explained and built."""
    plan = plan_data(
        container__layout="pb16i",
        container__chunk_kind="pb16i",
        container__pb16i=True,
        kernels__tag="_pb16i",
        decode__sealed_elf="pb16i_sealed.elf",
    )
    write_plan_file(project.plans / "packed", plan)
    twin = "full_i8_D_K768_N256_pb16i_m16.elf"
    note = "It runs on 2 of 4 rows of cores: rule rows <= columns, of which there are 2."
    answer = explain(project, stand_in, twin)
    assert answer.notes == (note,)
    assert answer.text().endswith(f"\nnote: {note}")
    assert answer.to_json()["notes"] == [note]
    assert explain(project, stand_in, twin.replace("_m16", "")).notes == ()
    wanted = model_requirements(project, "packed")
    assert next(need.rows for need in wanted.requirements if need.file_name == twin) == 2
    build_elfs(project, stand_in, [wanted], progress=Progress(sys.stdout, live=False))
    assert f"note: {twin}: {note}" in capsys.readouterr().out.splitlines()
    # Up to date, it is still told.
    assert explain(project, stand_in, twin).text().endswith(f"up to date\nrecipe sha256:{answer.recipe}\nnote: {note}")


def test_a_changed_source_is_named(built, stand_in):
    stand_in.source = "one\ntwo\n"
    build_elfs(built, stand_in, [model_requirements(built, "tiny")])
    stand_in.source = "one\nthree\n"
    answer = explain(built, stand_in, QKV)
    assert answer.state == "would be built"
    assert answer.nearest == load_registry(built.registry_file).entries("sim")[QKV].recipe
    was, now = (hashlib.sha256(text).hexdigest() for text in (b"one\ntwo\n", b"one\nthree\n"))
    assert [(c.input, c.was, c.now, c.line) for c in answer.changes] == [
        ("out.elf: stand-in", was, now, (2, "two", "three"))
    ]
    assert answer.generator_diff == ()
    assert "    line 2 was two\n    line 2 is  three" in answer.text()
    assert answer.to_json()["changes"][0]["first_line"] == {"number": 2, "was": "two", "is": "three"}


def test_a_changed_template_shows_the_lines(built, stand_in):
    template = built.templates / "panel_gemm.py.j2"
    template.write_text(template.read_text().replace("Each core owns", "Every core owns"))
    answer = explain(built, stand_in, QKV)
    assert [change.input for change in answer.changes] == ["out.elf: generator.py"]
    assert answer.changes[0].line[1:] != ("", "")
    assert any(line.startswith("+Every core owns") for line in answer.generator_diff)
    assert any(line.startswith("-Each core owns") for line in answer.generator_diff)


def test_a_name_that_was_never_built_is_compared_with_the_nearest(built, stand_in):
    roles = built.plans / "tiny" / "roles.yaml"
    roles.write_text(roles.read_text() + "  - {role: Z, K: 256, N: 1024, columns: 2}\n")
    answer = explain(built, stand_in, "full_i8_Z_K256_N1024_b8.elf")
    assert answer.state == "would be built"
    assert [change.input for change in answer.changes] == ["out.elf: generator.py"]


def test_damage_and_a_lost_registration_are_told_apart(built, stand_in):
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    built.registry_file.unlink()
    assert explain(built, stand_in, QKV).state == "stored, not registered"
    build_elfs(built, stand_in, [model_requirements(built, "tiny")])
    path = Store(built.store).path(entry.elf)
    path.chmod(0o644)
    path.write_bytes(b"x")
    assert explain(built, stand_in, QKV).state == "bytes damaged or gone"
    path.unlink()
    assert explain(built, stand_in, QKV).state == "bytes damaged or gone"
    build_elfs(built, stand_in, [model_requirements(built, "tiny")])
    (built.store / "index.json").unlink()
    assert explain(built, stand_in, QKV).state == "up to date"


def test_a_name_nobody_asks_for_is_refused(built, stand_in):
    with pytest.raises(Refused, match="full_i8_QKV_K64_N128"):
        explain(built, stand_in, "full_i8_QKV_K64_N128.elf")


def test_lookup_of_a_model(built, capsys):
    assert main(["lookup", f"root={built.root}", "model=tiny", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 8
    entry = load_registry(built.registry_file).entries("sim")[QKV]
    (row,) = [row for row in rows if row["path"] == f"kernels/{QKV}"]
    assert (row["elf"], row["size"], row["recipe"]) == (f"sha256:{entry.elf}", entry.size, f"sha256:{entry.recipe}")
    assert main(["lookup", f"root={built.root}", "model=tiny"]) == 0
    assert f"kernels/{QKV}  sha256:{entry.elf}  {entry.size}  recipe sha256:{entry.recipe}\n" in capsys.readouterr().out


def test_lookup_of_a_pattern(built, capsys):
    assert main(["lookup", f"root={built.root}", "*_QKV_*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [QKV, QKV.replace(".elf", "_m16.elf")]
    assert main(["lookup", f"root={built.root}", "nothing*"]) == 1
    assert "nothing*" in capsys.readouterr().err


def test_lookup_of_one_name(built, capsys):
    assert main(["lookup", f"root={built.root}", QKV]) == 0
    assert capsys.readouterr().out.startswith(f"{QKV}  sha256:")
    assert main(["lookup", f"root={built.root}", "full_i8_QKV_K4096_N6144.elf"]) == 1
    assert capsys.readouterr().out == "full_i8_QKV_K4096_N6144.elf  not registered for target sim\n"
    assert main(["lookup", f"root={built.root}", "no_name.elf"]) == 2
    assert "artifact name" in capsys.readouterr().err


def test_lookup_of_what_is_not_registered_is_code_1(project, capsys):
    assert main(["lookup", f"root={project.root}", "model=tiny"]) == 1
    assert "not registered for target sim" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["model=tiny", "*"], ["model=tiny", "layout=zz"], ["a", "b"]])
def test_lookup_usage(built, capsys, words):
    assert main(["lookup", f"root={built.root}", *words]) == 2
    assert capsys.readouterr().err.startswith("elfkiln: ")

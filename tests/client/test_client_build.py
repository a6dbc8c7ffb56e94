"""elfkiln.h as C11 and C++17: warnings are errors, what it exports, its example, its fuzzer and its thread check."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from elftools.elf.elffile import ELFFile

from client_programs import ANY_MACHINE, CLIENT, LINK, SOURCES, TRAPS
from client_sets import (
    PATHS,
    QKV,
    envelope,
    lock_digest,
    policy_key,
    policy_rule,
    policy_table,
    statement,
    write_signatures,
)
from elfkiln.cli import main
from elfkiln.engine import contract
from elfkiln.work.inspect import MAX_ELF_BYTES
from projects import TINY_NAMES

HEADER = CLIENT / "elfkiln.h"
EXAMPLE = CLIENT / "example" / "engine.c"


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_the_notice_stands_at_the_head_of_every_file_of_the_client():
    for path in CLIENT.rglob("*.[ch]"):
        head = path.read_text().splitlines()[:20]
        assert any("SPDX-License-Identifier: Apache-2.0" in line for line in head), path
        assert any("Copyright 2026" in line for line in head), path
    assert "http://www.apache.org/licenses/LICENSE-2.0" in "\n".join(HEADER.read_text().splitlines()[:12])


@pytest.mark.parametrize("cxx", [False, True], ids=["C11", "C++17"])
def test_declarations_and_implementation_in_files_of_their_own(client_programs, tmp_path, cxx):
    """One file has the implementation, another only the declarations, in either language and mixed."""
    user = tmp_path / "user.c"
    user.write_text(
        '#include <stdio.h>\n#include "elfkiln.h"\n#include "elfkiln.h"\n'
        "int main(void) { puts(elfkiln_word(ELFKILN_SHADOWED)); elfkiln_close(NULL); elfkiln_release(NULL); }\n"
    )
    whole = tmp_path / "whole.c"
    whole.write_text('#define ELFKILN_IMPLEMENTATION\n#include "elfkiln.h"\n#include "elfkiln.h"\n')
    made = [client_programs.compile(path, tmp_path / f"{path.stem}.o", cxx=cxx) for path in (user, whole)]
    other = client_programs.compile(whole, tmp_path / "other.o", cxx=not cxx)
    for objects in (made, [made[0], other]):
        assert client_programs.run_zig("cc", *ANY_MACHINE, *LINK, *objects, "-o", tmp_path / "program")[0] == 0
        assert run(tmp_path / "program") == (0, "shadowed\n", "")


def test_cxx_with_exceptions_compiles_too(client_programs, tmp_path):
    client_programs.compile(SOURCES / "wrapper.cc", tmp_path / "wrapper.o", "-fexceptions", cxx=True)


def test_another_header_first_is_told(client_programs, tmp_path):
    source = tmp_path / "late.c"
    source.write_text('#include <stdio.h>\n#define ELFKILN_IMPLEMENTATION\n#include "elfkiln.h"\n')
    code, said = client_programs.run_zig(
        "cc", *ANY_MACHINE, "-std=c11", f"-I{CLIENT}", "-c", source, "-o", tmp_path / "late.o"
    )
    assert code != 0
    assert "include it with ELFKILN_IMPLEMENTATION before any other header, or define _DEFAULT_SOURCE" in said
    code, said = client_programs.run_zig(
        "cc", *ANY_MACHINE, "-std=c11", "-D_DEFAULT_SOURCE", f"-I{CLIENT}", "-c", source, "-o", tmp_path / "late.o"
    )
    assert code == 0, said


def test_only_the_interface_is_exported(client_programs, tmp_path):
    source = tmp_path / "whole.c"
    source.write_text('#define ELFKILN_IMPLEMENTATION\n#include "elfkiln.h"\n')
    made = client_programs.compile(source, tmp_path / "whole.o")
    with made.open("rb") as stream:
        elf = ELFFile(stream)
        symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
        places = {s.name: elf.get_section(s["st_shndx"]).name for s in symbols if s["st_info"]["type"] == "STT_OBJECT"}
    bound = {s.name for s in symbols if s["st_info"]["bind"] == "STB_GLOBAL" and s["st_shndx"] != "SHN_UNDEF"}
    interface = HEADER.read_text().partition('extern "C" {')[2].partition("namespace")[0]
    declared = set(re.findall(r"\b(elfkiln_[a-z0-9]+)\(", interface))
    assert bound == declared
    assert len(declared) == 8
    needed = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name}
    assert not {name for name in needed if "printf" in name or "pthread" in name or "locale" in name}
    # Nothing of the implementation lives between calls: its data are constants.
    assert places
    assert [name for name, section in places.items() if not section.startswith((".rodata", ".data.rel.ro"))] == []


def test_the_figures_are_those_of_the_engine_contract():
    text = HEADER.read_text()

    def figure(name):
        return int(eval(re.search(rf"\b{name}(?: =)? ([0-9< ]+)", text)[1]))

    assert figure("ELFKILN_NAME_BYTES") == contract.NAME_BYTES
    assert figure("EK_LEAST_ELF_BYTES") == contract.MIN_ELF_BYTES
    assert figure("EK_LAYERS") == contract.MAX_LAYERS
    assert figure("EK_DESIGNS") == contract.MAX_DESIGNS
    assert figure("EK_ELF_BYTES") == MAX_ELF_BYTES
    assert set(re.findall(r'"([A-Z0-9]+)"', re.search(r"roles\[\] = \{(.*?)\};", text, re.DOTALL)[1])) == {
        role.name for role in contract.ROLES
    }


def test_the_cxx_wrapper_owns_moves_and_lets_go(client_programs, client_folder):
    program = client_programs.build(SOURCES / "wrapper.cc", cxx=True)
    code, said, errors = run(program, client_folder, "sim", QKV)
    assert (code, errors) == (0, "")
    assert said.splitlines() == ["14 names", f"{client_folder}/kernels/{QKV}", "moved", "missing", "wrong target"]


def test_the_example_engine_loads_a_set_and_says_what_it_would_run(client_programs, client_folder, tmp_path):
    engine = client_programs.build(EXAMPLE)
    code, said, errors = run(engine, client_folder, "target=sim")
    assert (code, errors) == (0, "")
    lines = said.splitlines()
    assert len(lines) == 15
    form = rf"QKV +M=128 K=256 +N=1024 +1 launches  sha256:[0-9a-f]{{64}}  {client_folder}/kernels/{QKV}"
    assert re.fullmatch(form, lines[0])
    assert lines[-1].endswith(" bytes, all as kernels.lock.json lists them")
    code, said, errors = run(engine, client_folder, "target=sim", "--json")
    table = json.loads(said)
    assert [row["name"] for row in table["elfs"]] == [path.rpartition("/")[2] for path in PATHS]
    assert table["bytes"] == sum((client_folder / path).stat().st_size for path in PATHS)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(policy_table([policy_key("ci", "builder")], [policy_rule("builder")])))
    code, said, errors = run(engine, client_folder, "target=sim", f"policy={policy}")
    assert (code, said) == (1, "")
    assert errors == f"engine: {client_folder}/kernels.lock.intoto.jsonl: missing\n"
    write_signatures(client_folder, envelope(statement(lock_digest(client_folder)), "ci"))
    assert run(engine, client_folder, "target=sim", f"policy={policy}")[0] == 0


def test_one_gap_ends_the_example_engine_in_the_engine_s_words(client_programs, client_folder):
    engine = client_programs.build(EXAMPLE)
    (client_folder / PATHS[-1]).unlink()
    code, said, errors = run(engine, client_folder, "target=sim")
    assert (code, said) == (1, "")
    assert errors.splitlines()[0] == f"engine: missing full ELF {client_folder}/kernels/{PATHS[-1].rpartition('/')[2]}"
    assert errors.splitlines()[1].startswith("  missing: looked in ")
    assert run(engine, client_folder)[0] == 2
    assert run(engine, client_folder, "target=npu2")[0] == 2
    assert run(engine, client_folder, "target=sim", "odd=1")[0] == 2


def test_the_example_engine_on_elfs_that_are_built(client_programs, project, tmp_path, capsys):
    """Real ELFs of target sim, by way of elfs and install; the digests are those that lookup tells."""
    words = [f"root={project.root}", "model=tiny", "target=sim"]
    folder = tmp_path / "model"
    assert main(["elfs", *words]) == 0
    assert main(["install", *words, f"dir={folder}"]) == 0
    capsys.readouterr()
    assert main(["lookup", *words, "--json"]) == 0
    listed = {row["path"].rpartition("/")[2]: row["elf"] for row in json.loads(capsys.readouterr().out)}
    assert len(listed) == TINY_NAMES
    code, said, errors = run(client_programs.build(EXAMPLE), folder, "target=sim", "plan=none", "--json")
    assert (code, errors) == (0, "")
    assert {row["name"]: f"sha256:{row['sha256']}" for row in json.loads(said)["elfs"]} == listed


def test_thirty_thousand_hostile_inputs_do_no_harm(client_programs):
    program = client_programs.build(CLIENT / "checks" / "fuzz.c", *TRAPS)
    code, said, errors = run(program, 30_000, 1)
    assert (code, errors) == (0, "")
    counts = [tuple(map(int, found)) for found in re.findall(r"(\d+) inputs, +(\d+) accepted", said)]
    assert len(counts) == 5
    # Each kind of file is met, and what it is made of is sound: a fair part is taken, and not all.
    assert all(0.8 * inputs > accepted > 0.05 * inputs for inputs, accepted in counts), said
    assert said.splitlines()[-1] == "30000 inputs of seed 1, none did harm"
    assert run(program, 30_000, 1)[1] == said


PLANTED = {
    "a byte past the end": ("if (length == 0 || length > size) {", "if (length == 0) {"),
    "one node too few": ("size_t nodes = (size_t)scan.count *", "size_t nodes = (size_t)(scan.count - 1) *"),
    "a block not freed": ("    ELFKILN_FREE(set->sorted);\n", ""),
    "an overflow": ("if (sum > most) {", "if (most < 0) {"),
    "a folder list not cleared": (
        "    memset(set->folders, 0, (count + 3) * sizeof *set->folders); /* the list ends with a NULL */\n",
        "",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_fuzzer_finds_a_fault_that_is_planted(client_programs, tmp_path, fault):
    """A check that never fails would check nothing."""
    old, new = PLANTED[fault]
    text = HEADER.read_text()
    assert text.count(old) == 1
    (tmp_path / "checks").mkdir()
    (tmp_path / "elfkiln.h").write_text(text.replace(old, new))
    (tmp_path / "checks" / "fuzz.c").write_text((CLIENT / "checks" / "fuzz.c").read_text())
    options = ("-std=c11", *ANY_MACHINE, *TRAPS, "-O0", "--rtlib=none", "-o", tmp_path / "fuzz")
    code, said = client_programs.run_zig("cc", *options, tmp_path / "checks" / "fuzz.c")
    assert code == 0, said
    code, _, errors = run(tmp_path / "fuzz", 100_000, 1)
    assert code < 0
    assert re.fullmatch(r"fuzz: died at input \d+\n", errors)


def test_threads_share_one_set(client_programs, client_folder):
    program = client_programs.build(CLIENT / "checks" / "threads.c")
    assert run(program, client_folder, "sim", 5) == (0, "8 threads, 5 rounds over 14 names\n", "")
    (client_folder / PATHS[0]).unlink()
    assert run(program, client_folder, "sim", 1)[0] == 1


def test_the_checks_tell_what_they_take():
    done = subprocess.run([sys.executable, CLIENT / "checks" / "client_checks.py", "x"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "client/checks/client_checks.py fuzz [INPUTS [SEED]]" in done.stderr

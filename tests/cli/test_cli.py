"""The command line: verbs, key=value words, one line per error, exit codes; the same through doit."""

from __future__ import annotations

import gc
import importlib
import json
import os
import shlex
import subprocess
import sys

import pytest

from elfkiln.cli import main
from elfkiln.cli.arguments import Spec, parse
from elfkiln.cli.doit_tasks import options_of, run_verb, verb_task
from elfkiln.cli.verbs import TARGET_WORDS, VERBS
from elfkiln.errors import Refused
from elfkiln.project import find_project
from elfkiln.store.registry import Entry, register
from elfkiln.studies.kv_gate import HEAD_WIDTH, OUTLIER_CHANNELS
from elfkiln.targets.table import TARGETS
from elfkiln.work import fast_check
from elfkiln.work.lint import DEFAULT_TARGET
from projects import CHECKOUT, make_project

SPEC = Spec(
    keys={"model": "", "dir": ""},
    valued={"-n": "", "--out": ""},
    flags={"--check": ""},
    words=("A", "B"),
    optional_words=1,
)


def test_words_flags_and_values():
    got = parse("verb", SPEC, ["model=x=y", "one", "-n", "2", "--check", "--out=f", "--json"])
    assert got.keys == {"model": "x=y"}
    assert got.valued == {"-n": "2", "--out": "f"}
    assert got.flags == {"--check", "--json"}
    assert got.words == ("one",)
    assert got.json
    assert parse("verb", SPEC, ["one", "-n4"]).valued == {"-n": "4"}


@pytest.mark.parametrize("answer", [0, None])
def test_no_garbage_is_looked_for_while_a_kept_answer_is_read_and_it_is_again_after_it(monkeypatch, answer):
    states = []
    monkeypatch.setattr(fast_check, "main", lambda _words: (states.append(gc.isenabled()), answer)[1])
    assert main(["check-missing", "model=..", f"root={CHECKOUT}"]) == (0 if answer == 0 else 2)
    assert states == [False]
    assert gc.isenabled()


def test_a_path_with_an_equals_sign_is_a_word():
    assert parse("verb", SPEC, ["./a=b.txt", "c"]).words == ("./a=b.txt", "c")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "takes A B"),
        (["a", "b", "c"], "takes A B"),
        (["a", "modle=x"], "modle= is not an argument"),
        (["a", "--wrong"], "--wrong is not an option"),
        (["a", "-n"], "-n takes a value"),
    ],
)
def test_what_does_not_fit(given, says):
    with pytest.raises(Refused, match=says):
        parse("verb", SPEC, given)


def test_every_verb_has_help_and_takes_json(capsys):
    assert main(["help"]) == 0
    overview = capsys.readouterr().out
    for verb in VERBS:
        assert f"  {verb} " in overview
        assert main([verb, "--help"]) == 0
        assert "--json" in capsys.readouterr().out


def test_help_has_examples_that_the_verb_takes(capsys):
    for name, verb in VERBS.items():
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert verb.examples, name
        for example in verb.examples:
            assert f"  elfkiln {example}\n" in shown
            first, *words = shlex.split(example.partition(" > ")[0])
            assert first == name
            parse(name, verb.spec, words)


def test_every_verb_has_a_module_that_runs_it():
    for name, verb in VERBS.items():
        assert callable(importlib.import_module(f"elfkiln.cli.{verb.module}").run), name
    sources = (CHECKOUT / "src" / "elfkiln" / "cli").glob("*.py")
    assert {path.stem for path in sources if "\ndef run(" in path.read_text()} == {
        verb.module for verb in VERBS.values()
    }


def test_the_table_of_verbs_says_what_the_library_does():
    """Its texts are written down, so that help and completion need no import; here they are held to the source."""
    assert " or ".join(sorted(TARGETS)) == TARGET_WORDS
    keys = VERBS["kv-gate"].spec.keys
    assert f"of {HEAD_WIDTH} (default: {OUTLIER_CHANNELS})" in keys["outliers"]
    assert f"default: {HEAD_WIDTH}," in keys["block"]
    assert f"(default: {DEFAULT_TARGET})" in VERBS["lint"].spec.keys["target"]


def test_no_verb_and_an_unknown_verb_are_code_2(capsys):
    assert main([]) == 2
    capsys.readouterr()
    assert main(["frobnicate"]) == 2
    assert "no verb 'frobnicate'; it has " in capsys.readouterr().err


def test_a_kept_answer_is_looked_for_after_any_other_verb_has_run(project, monkeypatch):
    """The verb gc is a module beside the package's own import of Python's gc."""
    importlib.import_module("elfkiln.cli.gc")
    monkeypatch.chdir(project.root)
    assert main(["elfs", "model=nobody"]) == 2


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["lokup"], "(did you mean lookup?)"),
        (["elfs", "modle=tiny"], "(did you mean model=?)"),
        (["elfs", "model=tiny", "--rebuid"], "(did you mean --rebuild?)"),
        (["elfs", "model=tinny"], "(did you mean tiny?)"),
        (["explain", "full_i8_QKV_K256_N769_b8.elf"], "(did you mean full_i8_QKV_K256_N768_b8.elf?)"),
        (["resolve", "full_i8_QKV_K256_N768_b8_m17.elf", "model=tiny", "dir=x"], "N768_b8_m16.elf?)"),
        (["elfs", "model=tiny", "target=npu"], "(did you mean npu2?)"),
        (["lint", "x.mlir", "target=simm"], "(did you mean sim?)"),
        (["lookup", "full_i8_QVK_K256_N768_b8.elf"], "(did you mean QKV?)"),
        (["completion", "bsah"], "(did you mean bash?)"),
        (["toolchain", "instal"], "(did you mean install?)"),
        (["help", "lokup"], "(did you mean lookup?)"),
        (["cross-check", "model=qwen3-4"], "(did you mean qwen3-4b?)"),
        (["bench", "model=tiny", "target=npu2", "pmode=perfomance"], "(did you mean performance?)"),
        (["zzzz"], ""),
    ],
)
def test_a_near_word_is_offered(project, capsys, monkeypatch, words, near):
    monkeypatch.chdir(project.root)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert near in error
    assert error.count("did you mean") == bool(near)
    assert error.count("\n") == 1


@pytest.mark.parametrize(("verb", "code"), [("lookup", 1), ("attestations", 1), ("draw", 2), ("predict", 2)])
def test_a_registered_name_is_offered_for_one_that_is_not(tmp_path, capsys, verb, code):
    project = make_project(tmp_path / "project")
    entry = Entry(*("0" * 64, 1), *("0" * 64,) * 3, 2)
    register(project.registry_file, "sim", {"full_i8_QKV_K256_N768_b8.elf": entry})
    assert main([verb, "full_i8_QKV_K256_N786_b8.elf", f"root={project.root}"]) == code
    said = capsys.readouterr()
    assert "not registered for target sim (did you mean full_i8_QKV_K256_N768_b8.elf?)" in said.out + said.err


def test_help_of_a_verb_is_what_the_verb_says_of_itself(capsys):
    assert main(["help", "site"]) == 0
    first = capsys.readouterr().out
    assert main(["site", "--help"]) == 0
    assert capsys.readouterr().out == first


def test_outside_a_checkout_root_must_be_named(tmp_path, monkeypatch):
    monkeypatch.setattr("elfkiln.project.__file__", str(tmp_path / "a" / "b" / "c.py"))
    with pytest.raises(Refused, match="run elfkiln inside its checkout, or name one with root=DIR"):
        find_project(tmp_path)


def test_list_names_the_models_and_what_is_registered(project, capsys):
    assert main(["list", f"root={project.root}", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table == {
        "target": "sim",
        "models": [{"model": "tiny", "layout": "b8", "names": 8, "registered": 0}],
    }


def test_a_key_given_twice_is_refused():
    with pytest.raises(Refused, match="model= is given twice: model=a and model=b"):
        parse("verb", SPEC, ["one", "model=a", "model=b"])


def test_an_option_given_twice_is_refused():
    with pytest.raises(Refused, match="--out is given twice"):
        parse("verb", SPEC, ["one", "--out", "a", "--out=b"])


@pytest.mark.parametrize("verb", [["list"], ["--help"], ["check-missing", "model=bonsai2-27b"]])
def test_a_full_standard_output_is_one_line_and_no_success(verb):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "elfkiln", *verb],
            cwd=CHECKOUT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr


def test_a_closed_standard_output_is_no_success():
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m elfkiln list >&-'],
        cwd=CHECKOUT,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["lint", "inspect", "design"])
def test_what_is_no_file_is_refused_not_waited_for(verb, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero", tmp_path, tmp_path / "absent"):
        assert main([verb, str(name)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_an_error_is_one_line_whatever_the_path_holds(capsys):
    assert main(["lint", "a\nb.mlir"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_relative_path_is_meant_from_where_the_wrapper_was_called(project, tmp_path, monkeypatch, capsys):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("ELFKILN_CALLED_FROM", str(elsewhere))
    run_verb("check-missing", ["model=tiny", "dir=here", f"root={project.root}"])
    run_verb("plan", ["absent", f"--out={elsewhere / 'x'}"])
    assert "absent" in capsys.readouterr().err
    assert os.getcwd() != str(elsewhere)


def doit(*words, cwd=CHECKOUT):
    return subprocess.run(
        [sys.executable, "-m", "doit", *words],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_doit_has_a_task_per_verb():
    listed = {line.split()[0] for line in doit("list").stdout.splitlines()}
    # doit keeps `list` for itself; a verb with actions has a task for each.
    names = {*VERBS, "models", "toolchain-status", "toolchain-mirror", "test", "help-elfkiln"} - {"list"}
    assert listed == names


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_options_of_a_task_are_the_flags_of_its_verb(verb):
    spec = VERBS[verb].spec
    options = options_of(VERBS[verb])
    assert set(options) == {*spec.flags, *spec.valued, *spec.paired, "--json"}
    task = verb_task(verb, [])
    assert len({option["name"] for option in task["params"]}) == len(options)
    assert ("pos_arg" in task) == bool(spec.words)


def test_a_verbs_flags_go_through_doit():
    done = doit("lookup", "--json", "full_i8_QKV_K5120_N14336_b8.elf")
    assert (done.returncode, json.loads(done.stdout)[0]["name"]) == (0, "full_i8_QKV_K5120_N14336_b8.elf")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("elfs",), 2, "elfs: model= is needed"),
        (("elfs", "model=nosuch"), 2, "nosuch"),
        (("elfs", "modle=bonsai2-27b"), 2, "modle= is not an argument"),
        (("lookup", "model=qwen3-0.6b", "model=bonsai2-27b"), 2, "model= is given twice"),
        (("elfs", "model=bonsai2-27b", "-n", "zero"), 2, "-n: expected a number of jobs"),
        (("check-missing", "model=bonsai2-27b", "target=gpu"), 2, "target=gpu"),
        (("lookup", "no-such-name*"), 1, "no-such-name*"),
    ],
)
def test_doit_ends_with_the_verbs_exit_code_and_one_line(words, code, says):
    done = doit(*words)
    assert done.returncode == code
    assert says in done.stderr
    assert (done.stdout + done.stderr).count("\n") == 1


def test_plain_doit_says_what_there_is():
    done = doit()
    assert done.returncode == 0
    assert "usage: elfkiln VERB" in done.stdout


def test_doit_leaves_no_database_behind():
    doit("check-missing", "model=nosuch")
    assert [name for name in os.listdir(CHECKOUT) if name.startswith((".doit", ":memory:"))] == []


@pytest.mark.parametrize("word", ["model=~/m", "--out=~/m"])
def test_a_tilde_is_the_home_folder_and_never_a_folder_of_that_name(word, monkeypatch):
    monkeypatch.setenv("HOME", "/somebodys/place")
    given = parse("verb", SPEC, ["one", word])
    assert {**given.keys, **given.valued} == {word.partition("=")[0]: "/somebodys/place/m"}
    with pytest.raises(Refused, match=r"=~nobody-at-all/m: no home folder of that name; a folder called so is .*=\./~"):
        parse("verb", SPEC, ["one", word.replace("~/", "~nobody-at-all/")])
    assert parse("verb", SPEC, ["one", word.replace("~", "./~")]) != given


def test_an_install_into_a_tilde_makes_no_folder_called_so(project, stand_in, tmp_path, monkeypatch, capsys):
    from elfkiln.models.catalogue import model_requirements
    from elfkiln.work.build import build_elfs

    build_elfs(project, stand_in, [model_requirements(project, "tiny")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert main(["install", f"root={project.root}", "model=tiny", "dir=~/m"]) == 0
    assert (tmp_path / "home" / "m" / "kernels.lock.json").is_file()
    assert not (tmp_path / "~").exists()
    assert main(["check-missing", f"root={project.root}", "model=tiny", "dir=~/m"]) == 0
    capsys.readouterr()

"""Logs of builds: of an ELF that was made, of a build that failed, and of one that is mended."""

from __future__ import annotations

import json

import pytest

from elfkiln.cli import main
from elfkiln.design.run_generator import run_generator
from elfkiln.errors import BuildFailed, Refused, log_of_error
from elfkiln.models.catalogue import model_requirements
from elfkiln.store.registry import load_registry
from elfkiln.work.build import build_elfs
from elfkiln.work.build_log import log_of

QKV = "full_i8_QKV_K256_N768_b8.elf"
G, U = "full_i8_G_K256_N512_b8.elf", "full_i8_U_K256_N512_b8.elf"
TOLD = "the stand-in was told to fail"


@pytest.fixture
def failed(project, stand_in):
    """A project whose G and U failed, and whose other names were built."""
    stand_in.fail_for = "M, K, N = 128, 256, 512"
    build_elfs(project, stand_in, [model_requirements(project, "tiny")])
    return project


def test_of_what_was_made_it_is_the_stores_and_of_what_failed_it_is_kept_apart(failed):
    made = log_of(failed, "sim", QKV)
    recipe = load_registry(failed.registry_file).entries("sim")[QKV].recipe
    assert (made.state, made.text, made.recipe, made.reason) == ("built", "a log\n", recipe, "")
    for name in (G, U):
        found = log_of(failed, "sim", name)
        assert (found.state, found.text, found.recipe, found.reason) == ("failed", "the tool said no\n", None, TOLD)
    assert (failed.out / "logs" / "sim" / f"{G}.log").read_text() == f"{TOLD}\nthe tool said no\n"


def test_it_goes_when_the_name_is_built_after_all(failed, stand_in):
    stand_in.fail_for = ""
    build_elfs(failed, stand_in, [model_requirements(failed, "tiny")])
    assert log_of(failed, "sim", G).state == "built"
    assert list((failed.out / "logs" / "sim").iterdir()) == []


def test_the_verb_shows_it(failed, capsys):
    root = f"root={failed.root}"
    assert main(["log", G, root]) == 0
    assert capsys.readouterr().out == f"{G} (target sim): the last build failed: {TOLD}\nthe tool said no\n"
    assert main(["log", QKV, root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["log"] == "a log\n"


def test_where_there_is_none_the_verb_says_so(project, capsys):
    root = f"root={project.root}"
    assert main(["log", QKV, root]) == 1
    assert capsys.readouterr().out == f"{QKV} (target sim): no log: it was never built here\n"
    assert main(["log", "../../etc/passwd", root]) == 2
    assert "expected a name that is registered" in capsys.readouterr().err


def test_a_log_that_cannot_be_read_is_told(failed):
    path = failed.out / "logs" / "sim" / f"{G}.log"
    path.unlink()
    path.mkdir()
    with pytest.raises(Refused, match=r"full_i8_G_K256_N512_b8\.elf\.log"):
        log_of(failed, "sim", G)


def test_a_generator_that_fails_leaves_what_it_printed(tmp_path):
    program = "import sys\nprint('on standard error', file=sys.stderr)\n1 / 0\n"
    with pytest.raises(BuildFailed) as failure:
        run_generator(program, workdir=tmp_path)
    assert log_of_error(failure.value) == "on standard error\n"

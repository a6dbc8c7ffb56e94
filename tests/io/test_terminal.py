"""What a person reads: nothing raw, and an answer that was lost is not a success."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.cli import main
from elfkiln.io.terminal import PlainStream, answering, plain, tell
from model_configs import QWEN3_06B
from projects import CHECKOUT, make_project


@settings(deadline=None)
@given(st.text() | st.text(alphabet="\x00\x07\x1b\x7f\x9b\u202e\u200b\udcff\ud800\n\t\rab", max_size=20))
def test_only_what_prints_is_left_and_line_ends_and_tabs(text):
    shown = plain(text)
    assert shown.replace("\n", "").replace("\t", "").isprintable()
    shown.encode()
    assert (shown.count("\n"), shown.count("\t")) == (text.count("\n"), text.count("\t"))
    if text.replace("\n", "").replace("\t", "").isprintable():
        assert shown == text
    assert plain(shown) == shown


def test_a_stream_of_another_encoding_gets_escapes():
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PlainStream(raw).write("grün \udcff\n")
    raw.flush()
    assert raw.buffer.getvalue() == b"gr\\xfcn \\udcff\n"


def test_a_closed_stream_takes_anything_and_knows_that_it_was_lost():
    stream = PlainStream(None)
    assert not stream.lost
    print("text", file=stream, flush=True)
    assert stream.lost
    assert not stream.isatty()
    with pytest.raises(OSError, match="closed"):
        _ = stream.buffer


def test_telling_nobody_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    tell("x")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    tell("x")


def test_the_streams_are_as_before_afterwards(capsys):
    before = sys.stdout, sys.stderr
    assert answering(lambda: sys.stdout.write("\x1b[2J\n")) == len("\x1b[2J\n")
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "\\x1b[2J\n"


VERBS = {
    "list": (["list"], 0),
    "help": (["--help"], 0),
    "lookup": (["lookup", "model=tiny"], 1),
    "check-missing": (["check-missing", "model=tiny"], 1),
    "a refusal": (["lookup", "model=nothing"], 2),
    "no verb": (["frobnicate"], 2),
}
REDIRECTIONS = (">/dev/full", ">&-", "2>/dev/full", "2>&-", ">&- 2>&-", ">/dev/full 2>/dev/full", "<&-", "<&- >&- 2>&-")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A project, with what check-missing keeps."""
    project = make_project(tmp_path_factory.mktemp("terminal") / "project")
    main(["check-missing", "model=tiny", f"root={project.root}"])
    return project


@pytest.mark.parametrize("redirection", REDIRECTIONS)
@pytest.mark.parametrize("verb", VERBS)
def test_closed_and_full_streams(tiny, verb, redirection):
    words, code = VERBS[verb]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "elfkiln", *words],
        cwd=tiny.root,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT / "src"), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    out_lost = ">/dev/full" in redirection.replace("2>/dev/full", "") or ">&-" in redirection.replace("2>&-", "")
    answers = code < 2
    assert done.returncode == (max(code, 1) if out_lost and answers else code)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    said = done.stderr.splitlines()
    if "2>" in redirection:
        assert said == []
    elif out_lost and answers:
        (line,) = said
        assert line.startswith("elfkiln: standard output: ")
        assert line.endswith("; the answer is lost")
    # Nothing that was meant for one stream lands on the other.
    assert (done.stdout != "") == (not out_lost and answers)


def test_doit_says_the_same():
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >/dev/full', "sh", sys.executable, "-m", "doit", "models"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "elfkiln: standard output: No space left on device; the answer is lost\n",
    )


def test_a_reader_that_leaves_is_no_error_to_speak_of(tiny):
    done = subprocess.run(
        ["/bin/sh", "-c", '{ "$@"; echo $? >&2; } | true', "sh", sys.executable, "-m", "elfkiln", "--help"],
        cwd=tiny.root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr in ("0\n", "1\n")


def test_control_characters_of_a_path_never_reach_the_terminal(tiny, capfd):
    hostile = "\x1b[31mred\x07\r\x9b"
    assert main(["check-missing", "model=tiny", f"root={tiny.root}", f"dir={hostile}"]) == 1
    assert main(["resolve", "full_i8_G_K256_N512_b8.elf", "model=tiny", f"root={tiny.root}", f"dir={hostile}"]) == 1
    assert main(["inspect", hostile]) == 2
    assert main(["list", f"root={hostile}"]) == 2
    assert main([hostile]) == 2
    assert main(["lookup", f"model={hostile}", f"root={tiny.root}"]) == 2
    out, err = capfd.readouterr()
    assert "\\x1b[31mred\\x07\\r\\x9b" in out
    for text in (out, err):
        assert text.replace("\n", "").replace("\t", "").isprintable()


def test_a_line_end_in_a_path_makes_no_line(tiny, tmp_path, capfd):
    """What follows it would read as an answer of its own."""
    folder = tmp_path / "m\nmissing full ELF x"
    folder.mkdir()
    root, config, table = f"root={tiny.root}", str(folder / "config.json"), str(folder / "x" / "roles.yaml")
    (folder / "x").mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN3_06B))
    design = CHECKOUT / "tests" / "examples" / "long-runs" / "rm_128_panel.2026-08.generic.mlir"
    for words, code in (
        (["resolve", "full_i8_G_K256_N512_b8.elf", "model=tiny", root, f"dir={folder}"], 1),
        (["keygen", str(folder / "key")], 0),
        (["plan", "--from-config", config, "name=x", "--out", table], 0),
        (["plan", "--from-config", config, "name=x", "--out", table, "--check"], 0),
        (["draw", str(design), f"out={folder / 'x.svg'}", root], 0),
    ):
        assert main(words) == code
        out, err = capfd.readouterr()
        assert "m\\nmissing full ELF x" in out
        assert not [line for line in (out + err).split("\n") if line.startswith("missing full ELF x")]


def test_a_checkout_whose_path_is_not_utf_8_works(tmp_path, capfd):
    project = make_project(tmp_path / os.fsdecode(b"k\xffln \x1b[31m"))
    from elfkiln.models.catalogue import model_requirements
    from elfkiln.store.toolchain_lock import read_lock
    from elfkiln.work.build import build_elfs
    from projects import StandInBuilder

    builder = StandInBuilder(read_lock(project.lock_file).target())
    assert build_elfs(project, builder, [model_requirements(project, "tiny")]).exit_code == 0
    root = f"root={project.root}"
    assert main(["list", root]) == 0
    assert main(["lookup", "model=tiny", root]) == 0
    assert main(["check-missing", "model=tiny", root]) == 0
    assert main(["install", "model=tiny", root, f"dir={project.root / 'm'}"]) == 0
    assert main(["check-missing", "model=tiny", root, f"dir={project.root / 'm'}"]) == 0
    assert main(["check-missing", "model=tiny", root, f"dir={project.root / 'm'}", "--json"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.replace("\n", "").isprintable()

"""What a person sees: exact lines without a terminal, a live bar that is gone at the end on one."""

from __future__ import annotations

import io
import re

from elfkiln.work.progress import Progress


def test_plain_lines():
    stream = io.StringIO()
    show = Progress(stream)
    show.headline("target sim, toolchain 0123 (zig)")
    show.start(3)
    show.begin("a.elf")
    show.done("a.elf", built=True)
    show.done("b.elf", built=False)
    show.failed("c.elf", "lint: L1 full")
    show.close("3 names", [("c.elf", "lint: L1 full")])
    assert stream.getvalue().splitlines() == [
        "target sim, toolchain 0123 (zig)",
        "[1/3] built a.elf",
        "[3/3] FAILED c.elf: lint: L1 full",
        "failed: c.elf: lint: L1 full",
        "3 names",
    ]


def test_a_terminal_shows_what_runs_and_what_each_has_come_to(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    show = Progress(stream, live=True)
    show.start(3)
    show.phase("a.elf", "render")
    seen = []
    monkeypatch.setattr(show._live, "update", lambda done, title: seen.append((done, title)))
    show.phase("b.elf", "design")
    show.phase("a.elf", "lint")
    show.done("a.elf", built=True)
    show.failed("b.elf", "no")
    show.stop()
    assert seen == [
        (0, "render a.elf; design b.elf"),
        (0, "lint a.elf; design b.elf"),
        (1, "design b.elf"),
        (2, ""),
    ]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    # Of 3 none is done; elapsed, and what is left is not known yet.
    assert "0/3 0:00:00 left -:--:-- render a.elf" in text


def test_silent_prints_nothing(capsys):
    show = Progress.silent()
    show.headline("x")
    show.start(1)
    show.begin("a")
    show.done("a", built=True)
    show.close("done", [])
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_live_line_and_the_same_text(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    show = Progress(stream, live=True)
    show.start(2)
    show.begin("a[b].elf")
    show.done("a[b].elf", built=True)
    show.close("all done", [])
    text = stream.getvalue()
    assert "[1/2] built a[b].elf" in text
    assert text.rstrip().endswith("all done")

"""The engine's compare gate on two logs."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elfkiln.cli import main
from elfkiln.errors import Refused
from elfkiln.studies.compare_runs import compare_figures, compare_texts, control_tolerance, parse_run, self_test
from projects import CHECKOUT

LOG = """\
  [forward] GU  M=128 K=5120 N=34816  kernels/full_i8_GU_K5120_N34816_b8.elf
[prompt 1] The capital of France is
[greedy 1]  Paris.
The river is the Seine.
[prompt 2] 2 + 2 =
[greedy 2] 4
[end]
  stray line of another stream
[ph] GU n=128 wait_ms=1402.1 GB/s=8.13
[ph] D n=64 wait_ms=691.4 rate=8.25GB/s
[prof] step n=368 wait=3.163s tok/s=0.243
"""


def log(old="", new="", text=LOG):
    assert not old or old in text
    return parse_run(text.replace(old, new), "log")


def failures(verdicts):
    return [f"{verdict.kind} {verdict.subject}" for verdict in verdicts if verdict.fails]


def test_a_log_is_read():
    run = log()
    assert run.prompts == {"1": "The capital of France is", "2": "2 + 2 ="}
    assert run.answers == {"1": " Paris.\nThe river is the Seine.", "2": "4"}
    assert {name: (figure.value, figure.measure, figure.better) for name, figure in run.figures.items()} == {
        "GU n": (128, "", 0),
        "GU wait_ms": (Decimal("1.4021"), "s", -1),
        "GU GB/s": (8_130_000_000, "B/s", 1),
        "D n": (64, "", 0),
        "D wait_ms": (Decimal("0.6914"), "s", -1),
        "D rate": (8_250_000_000, "B/s", 1),
        "step n": (368, "", 0),
        "step wait": (Decimal("3.163"), "s", -1),
        "step tok/s": (Decimal("0.243"), "tok/s", 1),
    }


def test_an_answer_marked_as_json_is_decoded():
    assert parse_run('[greedy 1 json] "a\\n[ph] b"\nnoise\n[greedy 2] c\n', "log").answers == {
        "1": "a\n[ph] b",
        "2": "c",
    }
    assert failures(compare_texts(parse_run("[greedy 1] a\nb\n", "x"), parse_run('[greedy 1 json] "a\\nb"', "y"))) == []


@pytest.mark.parametrize("wrong", ["Paris", '"Paris', '"a" b', "5", "null", '["a"]', "", '"a\\ud800"'])
def test_an_answer_marked_as_json_is_one_string(wrong):
    with pytest.raises(Refused, match=r"log line 1: expected one JSON string after \[greedy 1 json\]"):
        parse_run(f"[greedy 1 json] {wrong}\n", "log")


def test_quotes_that_were_generated_are_part_of_the_answer():
    plain, quoted = parse_run("[greedy 1] Paris\n", "plain"), parse_run('[greedy 1] "Paris"\n', "quoted")
    assert quoted.answers == {"1": '"Paris"'}
    assert failures(compare_texts(plain, quoted)) == ["text greedy 1"]


BREAKS = ["\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n\n", " \n"]


@pytest.mark.parametrize("other", BREAKS)
def test_only_a_line_feed_is_a_line_feed(other):
    one, two = (parse_run(f"[greedy 1] a{text}b\n[end]\n", "log") for text in ("\n", other))
    assert two.answers == {"1": f"a{other}b"}
    assert failures(compare_texts(one, two)) == ["text greedy 1"]


@pytest.mark.parametrize("rest", ["", "\n", "\n[end]\n", "\n[end]", "\n[greedy 2] x", "\n[ph] GU n=1"])
def test_line_feeds_at_the_end_of_an_answer_count_but_for_the_last(rest):
    assert parse_run(f"[greedy 1] a{rest}", "log").answers["1"] == "a"
    if rest:
        assert parse_run(f"[greedy 1] a\n{rest}", "log").answers["1"] == "a\n"


@settings(deadline=None)
@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_answers_are_equal_to_the_character_or_not_at_all(one, two):
    runs = [parse_run(f"[greedy 1 json] {json.dumps(text)}\n", "log") for text in (one, two)]
    assert [run.answers["1"] for run in runs] == [one, two]
    assert failures(compare_texts(*runs)) == ([] if one == two else ["text greedy 1"])


@pytest.mark.parametrize(
    ("old", "new", "subjects"),
    [
        ("Paris", "Lyon", ["text greedy 1"]),
        ("Seine.", "Seine. ", ["text greedy 1"]),
        ("2 + 2", "2 + 3", ["text prompt 2"]),
        ("[greedy 2] 4\n", "", ["text greedy 2"]),
        ("[prompt 2]", "[prompt 3]", ["text prompt 2", "text prompt 3"]),
        ("The river is", "[note] The river is", ["text greedy 1"]),
    ],
)
def test_texts_must_be_identical(old, new, subjects):
    assert failures(compare_texts(log(), log(old, new))) == subjects


def test_equal_texts_pass_and_a_difference_says_where():
    assert failures(compare_texts(log(), log())) == []
    (verdict,) = [entry for entry in compare_texts(log(), log("Paris", "Pavia")) if entry.fails]
    assert verdict.what.startswith("differs at character 3: 'ris.")


@pytest.mark.parametrize(
    ("old", "new", "tolerance", "subjects"),
    [
        ("wait_ms=1402.1", "wait_ms=1472.2", 0.05, []),  # 5.0 % less a hair
        ("wait_ms=1402.1", "wait_ms=1472.3", 0.05, ["timing GU wait_ms"]),
        ("wait_ms=1402.1", "wait_ms=700.0", 0.0, []),
        ("GB/s=8.13", "GB/s=8.12", 0.0, ["timing GU GB/s"]),
        ("GB/s=8.13", "GB/s=9.99", 0.0, []),
        ("tok/s=0.243", "tok/s=0.2", 0.1, ["timing step tok/s"]),
        ("wait=3.163s", "wait=4.0s", 0.1, ["timing step wait"]),
        ("n=368", "n=367", 10.0, ["count step n"]),
        ("[ph] D n=64 ", "[ph] D ", 10.0, ["timing D n"]),
        ("wait=3.163s", "wait=3163ms", 0.0, []),
        ("wait=3.163s", "wait=3163000.0us", 0.0, []),
        ("wait=3.163s", "wait=3.163ms", 0.0, []),  # a thousand times faster
        ("wait=3163ms", "wait=9.5s", 0.03, ["timing step wait"]),
        ("wait=3.163s", "wait=3164ms", 0.0, ["timing step wait"]),
        ("rate=8.25GB/s", "rate=8250MBps", 0.0, []),
        ("rate=8.25GB/s", "rate=8.25MB/s", 0.5, ["timing D rate"]),
        ("rate=8.25GB/s", "rate=8.25tok/s", 10.0, ["timing D rate"]),
        ("wait=3.163s", "wait=3.163", 10.0, ["timing step wait"]),
        ("wait=3.163s", "wait=3.163h", 10.0, ["timing step wait"]),
        ("n=368", "n=368ms", 10.0, ["timing step n"]),
        ("n=368", "n=368.0", 0.0, []),
        ("n=368", "n=368.0000000000000000001", 0.0, ["count step n"]),
        ("n=368", "n=368kernels", 0.0, ["count step n"]),
    ],
)
def test_figures_are_judged_by_direction_and_tolerance(old, new, tolerance, subjects):
    base = LOG if old in LOG else LOG.replace("wait=3.163s", old)
    assert failures(compare_figures(log(text=base), log(old, new, base), tolerance)) == subjects


def test_timings_are_shown_as_they_were_written():
    (verdict,) = [
        entry
        for entry in compare_figures(log("wait=3.163s", "wait=3163ms"), log("wait=3.163s", "wait=9.5s"), 0.03)
        if entry.subject == "step wait"
    ]
    assert verdict.what == "3163ms against 9.5s: 200.35% worse, 3.00% allowed"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wait_ms=691.4", "wait_ms=0"),
        ("wait_ms=691.4", "wait_ms=-0.0"),
        ("wait_ms=691.4", "wait_ms=-691.4"),
        ("rate=8.25GB/s", "rate=0GB/s"),
        ("tok/s=0.243", "tok/s=-1"),
    ],
)
def test_a_time_or_rate_that_is_not_above_nothing_is_refused(old, new):
    for one, two in ((log(), log(old, new)), (log(old, new), log())):
        with pytest.raises(Refused, match="expected a time or rate above 0, found"):
            compare_figures(one, two, 10.0)
        with pytest.raises(Refused, match="expected a time or rate above 0, found"):
            control_tolerance(one, two, log())
    assert failures(compare_texts(log(), log(old, new))) == []


@pytest.mark.parametrize("word", ["wait_ms=5s", "GB/s=8MB/s", "wait_ms=1e-400", "n=1e400", "n=1e99999999999999999999"])
def test_a_figure_that_says_two_things_or_none_is_refused(word):
    with pytest.raises(Refused, match="log line 2: expected "):
        parse_run(f"[greedy 1] a\n[ph] GU {word}\n", "log")


def test_controls_give_each_figure_its_own_tolerance():
    noisy = log("wait_ms=1402.1", "wait_ms=1500.247")
    tolerance = control_tolerance(log(), noisy, log())
    assert tolerance["GU wait_ms"] == pytest.approx(0.07)
    assert tolerance["D wait_ms"] == 0
    assert failures(compare_figures(log(), log("wait_ms=1402.1", "wait_ms=1490.0"), tolerance)) == []
    assert failures(compare_figures(log(), log("wait_ms=1402.1", "wait_ms=1510.0"), tolerance)) == ["timing GU wait_ms"]
    assert failures(compare_figures(log(), log("wait_ms=691.4", "wait_ms=691.5"), tolerance)) == ["timing D wait_ms"]


def test_controls_must_repeat_themselves_and_have_every_figure():
    with pytest.raises(Refused, match="control logs: expected two runs with equal texts, found greedy 1"):
        control_tolerance(log(), log("Paris", "Lyon"), log())
    other = log("[ph] D ", "[ph] E ")
    with pytest.raises(Refused, match="control logs: expected the figure D n in both, found it missing"):
        control_tolerance(other, other, log())
    new = log("[prof] step", "[ph] E wait_ms=5\n[prof] step")
    with pytest.raises(Refused, match="control logs: expected the figure E wait_ms in both, found it missing"):
        compare_figures(new, new, control_tolerance(log(), log(), log()))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2 + 2", "2 + 3", "expected the texts of A.log, found prompt 2: differs at character 4"),
        ("[prompt 2] 2 + 2 =\n", "", "expected the texts of A.log, found prompt 2: only in A.log"),
        ("[greedy 2] 4", "[greedy 2] 5", "expected the texts of A.log, found greedy 2: differs at character 0"),
        ("n=368", "n=367", "expected step n as in A.log, 368, found 367"),
        ("n=128", "n=128ms", "expected GU n as in A.log, 128, found 128ms"),
        ("rate=8.25GB/s", "rate=8.25tok/s", "expected D rate as in A.log, 8.25GB/s, found 8.25tok/s"),
    ],
)
def test_controls_ran_what_is_compared(old, new, said):
    reference = parse_run(LOG, "A.log")
    with pytest.raises(Refused) as caught:
        control_tolerance(log(old, new), log(old, new), reference)
    assert f"control logs: {said}" in str(caught.value)


def test_controls_whose_counts_differ_from_each_other_are_refused():
    with pytest.raises(Refused, match="control logs: expected step n as in log, 368, found 9"):
        control_tolerance(log(), log("n=368", "n=9"), log())


def test_controls_that_lie_too_far_apart_are_refused():
    with pytest.raises(Refused, match="control logs: expected GU wait_ms at most 1000% apart, found 1100%"):
        control_tolerance(log("1402.1", "100"), log("1402.1", "1200"), log())


# --- the engine's own line, as published ---

PUBLISHED = """\
[greedy 1] Au
[ph] wall=4098-4286 | layers=3922-4110 (wait 3163-3316, host 537-588, ql 184-201, n=368)
     | head=176-205 (wait 156-189)
"""
PUBLISHED_MS = {
    "wall": (4098, 4286),
    "layers": (3922, 4110),
    "layers wait": (3163, 3316),
    "layers host": (537, 588),
    "layers ql": (184, 201),
    "head": (176, 205),
    "head wait": (156, 189),
}


def test_the_published_line_is_read_with_its_continuation():
    figures = log(text=PUBLISHED).figures
    times = {
        f"{key} {end}": (Decimal(ms) / 1000, "s", -1)
        for key, pair in PUBLISHED_MS.items()
        for end, ms in zip(("lowest", "highest"), pair, strict=True)
    }
    assert {name: (f.value, f.measure, f.better) for name, f in figures.items()} == times | {
        "layers n": (Decimal(368), "", 0)
    }


@pytest.mark.parametrize("key", PUBLISHED_MS)
@pytest.mark.parametrize("end", [0, 1])
def test_every_figure_of_the_published_line_is_judged(key, end):
    """Each end of each range 4 % worse: within 5 %, not within 3 %."""
    low, high = PUBLISHED_MS[key]
    word = f"{low}-{high}"
    slower = f"{low * 1.04:.2f}-{max(high, low * 1.04):.2f}" if end == 0 else f"{low}-{high * 1.04:.2f}"
    other = log(word, slower, PUBLISHED)
    name = f"timing {key} {('lowest', 'highest')[end]}"
    assert name in failures(compare_figures(log(text=PUBLISHED), other, 0.03))
    assert failures(compare_figures(log(text=PUBLISHED), other, 0.05)) == []
    assert failures(compare_figures(other, log(text=PUBLISHED), 0.0)) == []


def test_the_launches_of_the_published_line_are_counted():
    other = log("n=368", "n=367", PUBLISHED)
    assert failures(compare_figures(log(text=PUBLISHED), other, 10.0)) == ["count layers n"]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("wall=4098-4286", "wall=4200", {"wall lowest": "4.2", "wall highest": "4.2"}),
        ("\n     | head", " | head", {"head lowest": "0.176"}),
        ("n=368)\n     |", "n=368) |\n\t|", None),
        (
            "\n     | head=176-205 (wait 156-189)\n",
            "\n\t| head=176-205\n  | tail=1-2 (wait 1-2)\n",
            {"tail wait highest": "0.002"},
        ),
        ("(wait 3163-3316,", "( wait  3163-3316 ,", {"layers wait lowest": "3.163"}),
        ("4098-4286", "4098.25-4286.5", {"wall lowest": "4.09825"}),
    ],
)
def test_the_published_line_in_other_spellings(old, new, names):
    if names is None:
        with pytest.raises(Refused, match="log line 2: expected parts key=number"):
            log(old, new, PUBLISHED)
        return
    figures = log(old, new, PUBLISHED).figures
    assert {name: figures[name].value for name in names} == {name: Decimal(value) for name, value in names.items()}


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("wall=4098-4286 |", "wall=4098-4286, |", 2),
        ("wall=4098-4286", "wall=4286-4098", 2),
        ("wall=4098-4286", "wall=4098-4286ms", 2),
        ("wall=4098-4286", "wall=4098-", 2),
        ("wall=4098-4286", "wall=4.0.9-4286", 2),
        ("n=368)", "n=368", 2),
        ("n=368)", "n=3.5)", 2),
        ("n=368)", "n=368-369)", 2),
        ("host 537-588", "host", 2),
        ("host 537-588", "host 537..588", 2),
        ("host 537-588", "wait 537-588", 2),
        ("head=176-205", "wall=176-205", 3),
        ("head=176-205", "head 176-205", 3),
        ("     | head", "noise\n     | head", 4),
        ("     | head", "[end]\n     | head", 4),
    ],
)
def test_a_published_line_that_is_not_one_is_refused_with_its_line(old, new, line):
    with pytest.raises(Refused, match=f"log line {line}: expected "):
        log(old, new, PUBLISHED)


def test_more_than_one_published_line_are_told_apart():
    two = log(text=PUBLISHED + "[greedy 2] Ag\n[ph] wall=5000-6000 | head=1-2\n")
    assert {"wall lowest", "wall lowest of line 2", "head highest of line 2"} <= set(two.figures)
    assert failures(compare_figures(two, log(text=PUBLISHED), 10.0)) == [
        f"timing {key} {end} of line 2" for key in ("wall", "head") for end in ("lowest", "highest")
    ]


# --- a tag that is not a tag line is never passed over ---

BEFORE = ["\x1b[32m", "12:00:01 ", "\r", "step 3\r", "\u00a0", "\u200b", "\u2060", "\ufeff", "> ", "\x00", "INFO: "]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("line", ["[greedy 9] x", "[prompt 9] x", "[ph] GU n=64 wait_ms=500", "[prof] s n=1", "[end]"])
def test_what_stands_before_a_tag_is_refused_outside_a_text(before, line):
    with pytest.raises(Refused, match=r"log line 4: expected a line that begins with its tag"):
        parse_run(f"[greedy 1] Au\n[end]\n[ph] s wait_ms=5\n{before}{line}\n", "log")


@pytest.mark.parametrize(
    "line",
    [
        "[ph]GU n=64",
        "[ph]",
        "[PH] GU n=64",
        "[Prof] s n=1",
        "[ph]\u00a0GU n=64",
        "[ph]\u200b GU n=64",
        "[\u200bph] GU n=64",
        "[ph\x1b[0m] GU n=64",
        "\x1b]8;;x\x07[ph] GU n=64",
        "[ ph ] GU n=64",
        "\uff3bph\uff3d GU n=64",
        "[greedy 1 ] x",
        "[greedy] x",
        "[greedy 2]x",
        "[greedy 2: x",
        "[GREEDY 2] x",
        "[prompt two words] x",
        "[prompts read: 3]",
        "[END]",
        "[end] of it",
        "[end]x",
        "[ph] GU\rn=64",
    ],
)
def test_a_tag_in_another_form_is_refused_outside_a_text(line):
    with pytest.raises(Refused, match="log line 3: expected "):
        parse_run(f"[greedy 1] Au\n[end]\n{line}\n", "log")


@pytest.mark.parametrize(
    "line", ["[phase] 3", "ph] GU", "[profile]", "greedy 2", "[end", "[e n d]x"[:4], "\x1b[32mok\x1b[0m", ""]
)
def test_a_line_without_a_tag_is_still_ignored(line):
    assert parse_run(f"{line}\n[greedy 1] Au\n[end]\n{line}\n", "log").answers == {"1": "Au"}


@pytest.mark.parametrize("line", ["[ph] GU 1402 ms", "[ph] GU wait 1402", "[prof] step"])
def test_a_figure_line_without_a_figure_is_refused(line):
    with pytest.raises(Refused, match=r"log line 2: expected at least one key=number\[unit\], found "):
        parse_run(f"[greedy 1] Au\n{line}\n", "log")


@pytest.mark.parametrize("rest", ["GU\x1b[0m n=64", "GU\u00a0n=64", "GU n=64\u200b", "GU\u200b n=64", "GU n=64\x00"])
def test_figures_in_characters_that_do_not_print_are_refused(rest):
    with pytest.raises(Refused, match="log line 2: expected figures in characters that print"):
        parse_run(f"[greedy 1] Au\n[ph] {rest}\n", "log")


def test_a_tag_within_a_text_is_part_of_it():
    texts = [parse_run(f"[greedy 1] Au\n\x1b[32m[ph] GU wait_ms={ms}\n[end]\n", "log") for ms in (5, 500)]
    assert failures(compare_texts(*texts)) == ["text greedy 1"]


def test_a_byte_order_mark_is_no_part_of_a_log():
    runs = [parse_run(f"\ufeff[greedy 1] {text}\n[greedy 2] Au\n", "log") for text in ("Paris", "Rome")]
    assert [run.answers["1"] for run in runs] == ["Paris", "Rome"]
    assert failures(compare_texts(*runs)) == ["text greedy 1"]
    assert parse_run("\ufeff" + LOG, "log") == log()


def test_lines_that_end_in_another_way_are_told_so():
    crlf = parse_run(LOG.replace("\n", "\r\n"), "log")
    assert crlf.figures == log().figures
    failed = [verdict for verdict in compare_texts(log(), crlf) if verdict.fails]
    assert {verdict.what for verdict in failed} == {"differs in line ends alone: LF against CRLF"}
    assert len(failed) == 4
    assert failures(compare_texts(crlf, crlf)) == []
    other = parse_run(LOG.replace("\n", "\r\n").replace("Paris", "Lyon"), "log")
    (verdict,) = [entry for entry in compare_texts(log(), other) if entry.subject == "greedy 1"]
    assert verdict.what.startswith("differs at character 1: ")


def test_a_control_is_no_log_that_it_judges(logs, capsys, monkeypatch):
    """Whatever the name it goes by: the same path, another spelling, a symbolic and a hard link."""
    monkeypatch.chdir(logs)
    (logs / "link.log").symlink_to("a.log")
    (logs / "hard.log").hardlink_to(logs / "slow.log")
    for control in ("a.log", "./a.log", logs / "a.log", "link.log", "slow.log", "hard.log"):
        for pair in ((control, "c1.log"), ("c1.log", control)):
            code, out, err = run(capsys, "a.log", "slow.log", "--control", *pair)
            assert (code, out) == (2, "")
            expected = "control logs: expected two more runs of the first log's build"
            assert err.startswith(f"elfkiln: {expected}, found {Path(control)}")
    code, _, err = run(capsys, "a.log", "slow.log", "--control", "c1.log", "c1.log")
    assert (code, err.endswith("found c1.log, which is c1.log\n")) == (2, True)
    assert run(capsys, "a.log", "slow.log", "--control", "c1.log", "none.log")[0] == 2


def test_nothing_measured_is_nothing_judged():
    bare = parse_run("[greedy 1] a\n", "bare")
    with pytest.raises(Refused, match=r"timings: expected \[ph\] or \[prof\] figures in the logs, found none"):
        compare_figures(bare, bare, 0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected at least one [greedy <id>] text, found none"),
        ("[prompt 1] x\n[ph] GU n=1\n", "expected at least one [greedy <id>] text"),
        ("[greedy 1]\n", "[greedy 1]: expected a text, found nothing"),
        ("[greedy 1]   \n\n[ph] GU n=1\n", "[greedy 1]: expected a text, found nothing"),
        ("[greedy 1] a\n[greedy 1] a\n", "line 2: expected [greedy 1] once, found it again"),
        ("[greedy 1] a\n[ph] GU n=1\n[ph] GU n=1\n", "line 3: expected GU n once"),
        ("[greedy 1] a\n[ph] GU n=\n", "line 2: expected key=number[unit], found n="),
        ("[greedy 1] a\n[ph] GU ms=nan\n", "line 2: expected key=number[unit]"),
        ("[greedy 1] a\n[ph] GU ms=1e999\n", "line 2: expected key=number[unit]"),
        ("[greedy 1] a\n[ph] GU ms=1.2.3\n", "line 2: expected key=number[unit]"),
    ],
)
def test_logs_that_prove_nothing_are_refused(text, said):
    with pytest.raises(Refused) as caught:
        parse_run(text, "log")
    assert said in str(caught.value)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_run_or_a_refusal(text):
    for head in ("", "[greedy 1] a\n[ph] ", "[greedy 1] "):
        try:
            parse_run(head + text, "log")
        except Refused as error:
            assert "\n" not in str(error)


def test_the_gate_tests_itself():
    cases = self_test()
    assert len(cases) == 17
    assert all(right for _, right in cases)


@pytest.fixture
def logs(tmp_path):
    """A.log, a copy, one 4 % slower, and one with another text."""
    texts = {
        "a": LOG,
        "c1": LOG,
        "c2": LOG,
        "c3": LOG.replace("1402.1", "1458.1"),
        "same": LOG,
        "slow": LOG.replace("1402.1", "1458.1"),
        "text": LOG.replace("Paris", "Lyon"),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.log").write_text(text)
    return tmp_path


def run(capsys, *words):
    code = main(["compare-runs", *(str(word) for word in words)])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_the_verb_refuses_timings_without_tolerance_or_controls(logs, capsys):
    code, out, err = run(capsys, logs / "a.log", logs / "same.log")
    assert (code, out) == (2, "")
    assert "--tol PCT or --control C1 C2" in err
    both = ("--tol", "5", "--control", logs / "a.log", logs / "same.log")
    assert run(capsys, logs / "a.log", logs / "same.log", *both)[0] == 2


@pytest.mark.parametrize(
    ("other", "options", "code"),
    [
        ("same", ("--tol", "0"), 0),
        ("slow", ("--tol", "3"), 1),
        ("slow", ("--tol=5%",), 0),
        ("slow", ("--texts",), 0),
        ("text", ("--texts",), 1),
        ("text", ("--tol", "50"), 1),
        ("slow", ("--control", "c1.log", "c2.log"), 1),
        ("slow", ("--control", "c1.log", "c3.log"), 0),
        ("slow", ("--control", "c1.log", "text.log"), 2),
        ("slow", ("--control", "c1.log"), 2),
        ("slow", ("--control", "a.log", "c3.log"), 2),
        ("slow", ("--control", "c1.log", "slow.log"), 2),
        ("slow", ("--control", "c1.log", "c1.log"), 2),
        ("slow", ("--tol", "-1"), 2),
        ("slow", ("--tol", "nan"), 2),
        ("slow", ("--tol", "five"), 2),
        ("none", ("--tol", "5"), 2),
    ],
)
def test_the_verbs_exit_codes(logs, capsys, monkeypatch, other, options, code):
    monkeypatch.chdir(logs)
    found, out, err = run(capsys, "a.log", f"{other}.log", *options)
    assert found == code
    if code == 2:
        assert err.count("\n") == 1
    else:
        assert out.splitlines()[-1].endswith("1 failed" if code else "0 failed")


def test_the_verb_prints_json_and_tests_itself(logs, capsys):
    code, out, _ = run(capsys, logs / "a.log", logs / "slow.log", "--tol", "3", "--json")
    data = json.loads(out)
    assert (code, data["passed"]) == (1, False)
    assert [entry["subject"] for entry in data["compared"] if entry["fails"]] == ["GU wait_ms"]
    code, out, _ = run(capsys, "--self-test")
    assert (code, out.count("ok ")) == (0, 17)
    assert json.loads(run(capsys, "--self-test", "--json")[1])["passed"]
    assert run(capsys)[0] == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--control", "c1.log", "c3.log", "a.log", "slow.log"), 0),
        (("--control", "c1.log", "c2.log", "a.log", "slow.log"), 1),
        (("--control=c1.log", "c2.log", "a.log", "slow.log"), 1),
        (("a.log", "slow.log", "--control", "c1.log", "c3.log"), 0),
        (("--control", "c1.log", "c2.log", "a.log"), 2),
        (("--tol", "3", "--control", "a.log", "same.log", "a.log", "same.log"), 2),
        (("--tol", "5", "a.log", "slow.log"), 0),
    ],
)
def test_doit_takes_controls_too(logs, words, code):
    words = [str(logs / word) if word.endswith(".log") and "=" not in word else word for word in words]
    words = [word.replace("=c1.log", f"={logs / 'c1.log'}") for word in words]
    doit = [sys.executable, "-m", "doit", "-f", str(CHECKOUT / "dodo.py"), "compare-runs", *words]
    found = subprocess.run(doit, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr


def test_two_logs_of_one_name_are_told_apart(logs, capsys):
    for name in ("old", "new"):
        (logs / name).mkdir()
    (logs / "old" / "run.log").write_text(LOG)
    (logs / "new" / "run.log").write_text(LOG.replace("[prompt 2] 2 + 2 =\n", ""))
    _, out, _ = run(capsys, logs / "old" / "run.log", logs / "new" / "run.log", "--texts")
    assert f"FAIL text    prompt 2: only in {logs}/old/run.log\n" in out


@pytest.mark.parametrize("data", [b"\xff\xfe", b""])
def test_files_that_are_no_logs_are_refused(logs, capsys, data):
    (logs / "bad.log").write_bytes(data)
    code, _, err = run(capsys, logs / "a.log", logs / "bad.log", "--texts")
    assert code == 2
    assert err.startswith(f"elfkiln: {logs / 'bad.log'}: expected ")
    assert run(capsys, logs / "a.log", logs, "--texts")[0] == 2

"""Compares two engine runs: greedy texts must be equal, timings are judged only against a stated tolerance or controls.

Accepted lines of a log (the engine's own format is only partly published; docs/compare-runs.md gives the grammar):

    [prompt <id>] text        what was asked
    [greedy <id>] text        what the engine answered; further lines belong to it until the next tag of this list
    [ph] <label> key=value    figures of one phase, e.g. [ph] GU n=128 wait_ms=1402.1 GB/s=8.13
    [prof] <label> key=value  figures of a step
    [end]                     ends a text

Any line outside a text that begins otherwise is ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elfkiln.errors import ElfkilnError, Refused, brief, refusal

MAX_LOG_BYTES = 64 * 1024 * 1024

_TEXT_TAG = re.compile(r"\s*\[(prompt|greedy)\s+([A-Za-z0-9_.:-]+)\](?: (.*)|\s*)", re.ASCII)
_FIGURE_TAG = re.compile(r"\s*\[(ph|prof)\]\s+(.*)", re.ASCII)
_END_TAG = re.compile(r"\s*\[end\]\s*", re.ASCII)
_FIGURE = re.compile(r"([A-Za-z][A-Za-z0-9_./%-]*)=([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)([A-Za-z/%]*)", re.ASCII)

_TIMES = ("us", "ms", "s", "sec", "seconds")
_RATES = ("GB/s", "GBps", "MB/s", "MBps", "tok/s", "tps", "GOP/s", "GOPs", "it/s")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a log, with its unit. `better` is -1 where less is better (times), 1 where more is (rates), else 0.

    >>> [Figure.of(*word).better for word in (("wait_ms", "12.5", ""), ("rate", "8.1", "GB/s"), ("n", "368", ""))]
    [-1, 1, 0]
    """

    value: float
    better: int

    @classmethod
    def of(cls, key: str, number: str, unit: str) -> Figure:
        """Return the figure a `key=number[unit]` word stands for; raises `ValueError` for no number."""
        suffix = unit or (key if key in _RATES else key.rpartition("_")[2])
        better = -1 if suffix in _TIMES else 1 if suffix in _RATES else 0
        value = float(number)
        if not math.isfinite(value):
            raise ValueError(number)
        return cls(value, better)


@dataclass(frozen=True, slots=True)
class Run:
    """What a log holds: prompts and answers by id, figures by "label key"."""

    name: str
    prompts: Mapping[str, str]
    answers: Mapping[str, str]
    figures: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that was compared. `kind` is text, count or timing; `fails` whether it breaks the gate."""

    kind: str
    subject: str
    what: str
    fails: bool


def read_run(path: Path) -> Run:
    """Read an engine log; raises `Refused` for a file that is absent, too long, not text, or has no greedy text."""
    try:
        if not path.is_file():
            raise Refused(f"{path}: missing" if not path.exists() else f"{path}: not a file")
        with path.open("rb") as stream:
            data = stream.read(MAX_LOG_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Refused(f"{brief(path)}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_LOG_BYTES:
        raise refusal(path.name, expected=f"at most {MAX_LOG_BYTES} bytes", found="a longer log")
    try:
        return parse_run(data.decode("utf-8"), path.name)
    except UnicodeDecodeError as error:
        raise refusal(path.name, expected="UTF-8 text", found=f"byte {error.start} is not UTF-8") from error


def parse_run(text: str, name: str) -> Run:
    """Read the text of a log; `name` stands for it in messages.

    Raises `Refused` for a repeated id or figure, a figure that is no finite number, and a log that proves nothing:
    no greedy text at all, or an empty one.
    """
    texts: dict[tuple[str, str], list[str]] = {}
    figures: dict[str, Figure] = {}
    current: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        tag, figure = _TEXT_TAG.fullmatch(line), _FIGURE_TAG.fullmatch(line)
        if tag:
            kind, key = str(tag[1]), str(tag[2])
            if (kind, key) in texts:
                raise _refuse(name, number, expected=f"[{kind} {key}] once", found="it again")
            current = texts[kind, key] = [tag[3] or ""]
        elif figure:
            current = None
            _take_figures(figures, figure[2], name, number)
        elif _END_TAG.fullmatch(line):
            current = None
        elif current is not None:
            current.append(line)
    prompts = {key: _joined(lines) for (sort, key), lines in texts.items() if sort == "prompt"}
    answers = {key: _joined(lines) for (sort, key), lines in texts.items() if sort == "greedy"}
    if not answers:
        raise refusal(name, expected="at least one [greedy <id>] text", found="none")
    for prompt, answer in answers.items():
        if not answer.strip():
            raise refusal(f"{name}: [greedy {prompt}]", expected="a text", found="nothing")
    return Run(name, prompts, answers, figures)


def compare_texts(one: Run, other: Run) -> tuple[Verdict, ...]:
    """Compare prompts and answers of two runs: the same ids, the same prompts, the same answers to the character."""
    verdicts = []
    for kind, mine, theirs in (
        ("prompt", one.prompts, other.prompts),
        ("greedy", one.answers, other.answers),
    ):
        for key in dict.fromkeys((*mine, *theirs)):
            subject = f"{kind} {key}"
            if key not in mine or key not in theirs:
                what = f"only in {one.name if key in mine else other.name}"
                verdicts.append(Verdict("text", subject, what, fails=True))
            elif mine[key] != theirs[key]:
                verdicts.append(Verdict("text", subject, _first_difference(mine[key], theirs[key]), fails=True))
            else:
                verdicts.append(Verdict("text", subject, "equal", fails=False))
    return tuple(verdicts)


def compare_figures(one: Run, other: Run, tolerance: Mapping[str, float] | float) -> tuple[Verdict, ...]:
    """Compare figures of two runs, `other` against `one`.

    `tolerance` is the deviation allowed, as a fraction: one for all, or one for each figure (as `control_tolerance`
    gives). Counts must be equal. A time may not be longer, a rate not lower, by more than the tolerance; a figure of
    unknown direction counts as a count. Raises `Refused` when neither run has figures, or the controls lack one.
    """
    names = tuple(dict.fromkeys((*one.figures, *other.figures)))
    if not names:
        raise refusal("timings", expected="[ph] or [prof] figures in the logs", found="none")
    verdicts = []
    for name in names:
        mine, theirs = one.figures.get(name), other.figures.get(name)
        if mine is None or theirs is None:
            what = f"only in {one.name if mine else other.name}"
            verdicts.append(Verdict("timing", name, what, fails=True))
        elif not mine.better:
            same = mine.value == theirs.value
            what = f"{mine.value:g}" if same else f"{mine.value:g} against {theirs.value:g}"
            verdicts.append(Verdict("count", name, what, fails=not same))
        else:
            verdicts.append(_timing(name, mine, theirs, _allowed(tolerance, name)))
    return tuple(verdicts)


def control_tolerance(one: Run, other: Run) -> dict[str, float]:
    """Return, for each figure of two control runs, how far they lie apart (a fraction of the smaller).

    Raises `Refused` when the controls' texts differ: then the machine does not repeat itself and proves nothing.
    """
    broken = next((verdict for verdict in compare_texts(one, other) if verdict.fails), None)
    if broken:
        found = f"{broken.subject}: {broken.what}"
        raise refusal("control logs", expected="two runs with equal texts", found=found)
    tolerance = {}
    for name, mine in one.figures.items():
        theirs = other.figures.get(name)
        if theirs is not None:
            tolerance[name] = _apart(mine.value, theirs.value)
    return tolerance


def self_test() -> tuple[tuple[str, bool], ...]:
    """Run the gate on small built-in logs; return each case and whether the gate did what it must."""
    log = "[prompt 1] hello\n[greedy 1] a b c\n[ph] GU n=64 wait_ms={ms} GB/s=8.0\n[prof] step n=368\n"
    base = parse_run(log.format(ms="100.0"), "base")
    slower = parse_run(log.format(ms="104.0"), "slower")
    faster = parse_run(log.format(ms="90.0"), "faster")
    changed = parse_run(log.format(ms="100.0").replace("a b c", "a b d"), "changed")
    fewer = parse_run(log.format(ms="100.0").replace("n=368", "n=367"), "fewer")
    unmeasured = parse_run("[prompt 1] hello\n[greedy 1] a b c\n", "unmeasured")

    def fails(verdicts: tuple[Verdict, ...]) -> bool:
        return any(verdict.fails for verdict in verdicts)

    def refuses(text: str) -> bool:
        try:
            parse_run(text, "bad")
        except Refused:
            return True
        return False

    controls = control_tolerance(base, slower)
    return (
        ("equal texts pass", not fails(compare_texts(base, slower))),
        ("a changed text fails", fails(compare_texts(base, changed))),
        ("4 % slower fails within 3 %", fails(compare_figures(base, slower, 0.03))),
        ("4 % slower passes within 5 %", not fails(compare_figures(base, slower, 0.05))),
        ("10 % faster passes within 1 %", not fails(compare_figures(base, faster, 0.01))),
        ("another count fails whatever the tolerance", fails(compare_figures(base, fewer, 1.0))),
        ("a figure in one log alone fails", fails(compare_figures(base, unmeasured, 1.0))),
        ("controls 4 % apart let 4 % pass", not fails(compare_figures(base, slower, controls))),
        ("controls that agree let nothing pass", fails(compare_figures(base, slower, control_tolerance(base, base)))),
        ("a log without greedy text is refused", refuses("[ph] GU n=1\n")),
        ("an empty greedy text is refused", refuses("[greedy 1]\n")),
    )


def _take_figures(figures: dict[str, Figure], rest: str, name: str, number: int) -> None:
    words = rest.split()
    label = " ".join(word for word in words if "=" not in word)
    for word in words:
        if "=" not in word:
            continue
        match = _FIGURE.fullmatch(word)
        try:
            figure = Figure.of(match[1], match[2], match[3]) if match else None
        except ValueError:
            figure = None
        if match is None or figure is None:
            raise _refuse(name, number, expected="key=number[unit]", found=word)
        subject = f"{label} {match[1]}".strip()
        if subject in figures:
            raise _refuse(name, number, expected=f"{subject} once", found="it again")
        figures[subject] = figure


def _joined(lines: list[str]) -> str:
    """Return a text as it was generated: written as a JSON string it is decoded, else line ends at its end are cut."""
    text = "\n".join(lines).rstrip("\n")
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        try:
            decoded = json.loads(text)
        except ValueError:
            return text
        return str(decoded)
    return text


def _first_difference(one: str, other: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    mine, theirs = (brief(repr(text[at : at + 24]), 60) for text in (one, other))
    return f"differs at character {at}: {mine} against {theirs}"


def _allowed(tolerance: Mapping[str, float] | float, name: str) -> float:
    if isinstance(tolerance, Mapping):
        if name not in tolerance:
            raise refusal("control logs", expected=f"the figure {name} in both", found="it missing")
        return tolerance[name]
    return tolerance


def _timing(name: str, mine: Figure, theirs: Figure, allowed: float) -> Verdict:
    apart = _apart(mine.value, theirs.value)
    worse = (theirs.value - mine.value) * mine.better < 0
    fails = worse and apart > allowed + 1e-12
    change = "equal" if mine.value == theirs.value else f"{apart:.2%} {'worse' if worse else 'better'}"
    what = f"{mine.value:g} against {theirs.value:g}: {change}, {allowed:.2%} allowed"
    return Verdict("timing", name, what, fails)


def _apart(one: float, other: float) -> float:
    """Return how far two figures lie apart, as a fraction of the smaller; infinite when only one is zero."""
    if one == other:
        return 0.0
    smaller = min(abs(one), abs(other))
    return abs(one - other) / smaller if smaller and one * other > 0 else math.inf


def _refuse(name: str, line: int, *, expected: object, found: object) -> ElfkilnError:
    return refusal(f"{name} line {line}", expected=expected, found=found)

"""Compares two engine runs: greedy texts must be equal, timings are judged only against a stated tolerance or controls.

Accepted lines of a log (the engine's own format is only partly published; docs/compare-runs.md gives the grammar):

    [prompt <id>] text        what was asked
    [greedy <id>] text        what the engine answered; further lines belong to it until the next tag of this list
    [greedy <id> json] "..."  the same as one JSON string, for texts that hold tags; so for prompts
    [ph] <label> key=value    figures of one phase, e.g. [ph] GU n=128 wait_ms=1402.1 GB/s=8.13
    [ph] wall=4098-4286 | ... the engine's own line of a step, as published: milliseconds, lowest and highest
    [prof] <label> key=value  figures of a step
    [end]                     ends a text

Lines end at a line feed and at nothing else. A line outside a text that has none of these tags in it is ignored; one
that has, and is not of this list, is refused: what it says would be lost.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from elfkiln.errors import ElfkilnError, Refused, brief, refusal
from elfkiln.io.reading import read_text

MAX_LOG_BYTES = 64 * 1024 * 1024
MAX_TOLERANCE = 10.0
"""The widest tolerance that still judges something, as a fraction: eleven times as slow."""

_TEXT_TAG = re.compile(
    r"[ \t]*\[(?P<kind>prompt|greedy)[ \t]+(?P<id>[A-Za-z0-9_.:-]+)(?P<json>[ \t]+json)?\]"
    r"(?: (?P<text>.*)|(?P<blank>[ \t\r]*))",
    re.ASCII | re.DOTALL,
)
_FIGURE_TAG = re.compile(r"[ \t]*\[(?:ph|prof)\][ \t]+(?P<rest>[^\r]*)\r?", re.ASCII | re.DOTALL)
_END_TAG = re.compile(r"[ \t]*\[end\][ \t]*\r?", re.ASCII)
_ENGINE_LINE = re.compile(r"wall=(?:.*[-|()].*|[0-9.]+\s*)", re.ASCII | re.DOTALL)
_CONTINUED = re.compile(r"[ \t]+\|(?P<rest>[^\r]*)\r?", re.ASCII | re.DOTALL)

# What has one of the tags in it, whatever stands before, behind or between: compared without the case, and without
# what a terminal does not show.
_ANY_TAG = re.compile(r"\[(?:ph|prof|end)\]|\[(?:greedy|prompt)")
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_UNSEEN = ("Cc", "Cf", "Zs", "Zl", "Zp", "Mn", "Me", "Co", "Cs")

# The engine's line of a step: parts `key=RANGE (item, item)` between bars; an item is `name RANGE` or `name=COUNT`.
_PART = re.compile(
    r"(?P<key>[A-Za-z][A-Za-z0-9_]*)=(?P<range>[0-9.]+(?:-[0-9.]+)?)(?:\s*\((?P<items>[^()]*)\))?", re.ASCII
)
_ITEM = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9_]*)(?P<joint>=|\s+)(?P<range>[0-9.]+(?:-[0-9.]+)?)", re.ASCII)
_LINE_END = re.compile(r"\r(?=\n|\Z)")
_FIGURE = re.compile(r"([A-Za-z][A-Za-z0-9_./%-]*)=([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)([A-Za-z/%]*)", re.ASCII)

_TIMES = {"ns": -9, "us": -6, "ms": -3, "s": 0, "sec": 0, "seconds": 0}
_RATES = {
    "B/s": ("B/s", 0),
    "MB/s": ("B/s", 6),
    "MBps": ("B/s", 6),
    "GB/s": ("B/s", 9),
    "GBps": ("B/s", 9),
    "tok/s": ("tok/s", 0),
    "tps": ("tok/s", 0),
    "GOP/s": ("op/s", 9),
    "GOPs": ("op/s", 9),
    "TOP/s": ("op/s", 12),
    "TOPs": ("op/s", 12),
    "it/s": ("it/s", 0),
}
_UNITS = {unit: ("s", power, -1) for unit, power in _TIMES.items()} | {
    unit: (measure, power, 1) for unit, (measure, power) in _RATES.items()
}
"""Unit -> what it measures, the power of ten of that base unit, and the better direction."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a log in the base unit of what it measures: seconds, B/s, tok/s, op/s, it/s.

    `measure` is that base unit; for a count the unit as written, mostly none. `better` is -1 where less is better
    (times), 1 where more is (rates), else 0. `written` is the number with its unit as the log has it.

    >>> Figure.of("wait_ms", "12.5", "")
    Figure(value=Decimal('0.0125'), measure='s', better=-1, written='12.5ms')
    >>> [Figure.of(*word).better for word in (("rate", "8.1", "GB/s"), ("n", "368", ""))]
    [1, 0]
    """

    value: Decimal
    measure: str
    better: int
    written: str

    @classmethod
    def of(cls, key: str, number: str, unit: str) -> Figure:
        """Return the figure a `key=number[unit]` word stands for; the unit may also end the key, after `_`.

        Raises `ValueError` for no number, one no float can hold, and a key and a number that name different units.
        """
        of_key = next((name for name in (key, key.rpartition("_")[2]) if name in _UNITS), "")
        if of_key and unit and unit != of_key:
            raise ValueError(f"the units {of_key} and {unit}")
        unit = unit or of_key
        measure, power, better = _UNITS.get(unit, (unit, 0, 0))
        try:
            value = Decimal(number)
        except InvalidOperation:
            raise ValueError(number) from None
        if not math.isfinite(float(value)) or (value and not float(value)):
            raise ValueError(number)
        return cls(value.scaleb(power) if power else value, measure, better, f"{number}{unit}")


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
    """Read an engine log, known in messages by its path as given.

    Raises `Refused` for a file that is absent, no regular file, too long, not text, or has no greedy text.
    """
    return parse_run(read_text(path, limit=MAX_LOG_BYTES), brief(path, 4096))


def refuse_own_controls(logs: Sequence[Path], controls: Sequence[Path]) -> None:
    """Refuse a control that is one of the logs it judges, or the other control: it would prove nothing.

    Links count as the file they lead to.
    """
    for index, control in enumerate(controls):
        for other in (*logs, *controls[:index]):
            if os.path.exists(control) and os.path.exists(other) and os.path.samefile(control, other):
                found = f"{brief(control)}, which is {brief(other)}"
                raise refusal("control logs", expected="two more runs of the first log's build", found=found)


def parse_run(text: str, name: str) -> Run:
    """Read the text of a log; `name` stands for it in messages. A byte-order mark at its start is left out.

    Raises `Refused` for a repeated id or figure, a figure that is not a finite number, a line outside a text that has a
    tag in it and is not a line of the grammar, and a log that proves nothing: no greedy text at all, or an empty one.
    """
    log = _Log(name)
    # Not splitlines(): a text may hold the other characters that it takes for line ends.
    for number, line in enumerate(text.removeprefix("\ufeff").removesuffix("\n").split("\n"), 1):
        log.take(number, line)
    return log.run()


class _Log:
    """Takes the lines of one log."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts: dict[tuple[str, str], list[str]] = {}
        self.figures: dict[str, Figure] = {}
        self.open_text: list[str] | None = None
        self.engine_lines = 0
        self.in_engine_line = False

    def take(self, number: int, line: str) -> None:
        """Take the next line."""
        continues, self.in_engine_line = self.in_engine_line, False
        tag, figure, more = _TEXT_TAG.fullmatch(line), _FIGURE_TAG.fullmatch(line), _CONTINUED.fullmatch(line)
        if tag:
            self.take_text(number, tag)
        elif figure:
            self.open_text = None
            self.take_figures(number, figure["rest"])
        elif _END_TAG.fullmatch(line):
            self.open_text = None
        elif self.open_text is not None:
            self.open_text.append(line)
        elif more and continues:
            self.take_engine_line(number, more["rest"])
        elif more and _PART.match(more["rest"].strip()):
            expected = "a [ph] wall=... line before its continuation"
            raise _refuse(self.name, number, expected=expected, found=brief(repr(line), 80))
        elif _has_tag(line):
            expected = "a line that begins with its tag and a space behind it, or no tag"
            raise _refuse(self.name, number, expected=expected, found=brief(repr(line), 80))

    def take_text(self, number: int, tag: re.Match[str]) -> None:
        place = (str(tag["kind"]), str(tag["id"]))
        if place in self.texts:
            raise _refuse(self.name, number, expected=f"[{' '.join(place)}] once", found="it again")
        first = tag["blank"] if tag["text"] is None else tag["text"]
        self.open_text = self.texts[place] = [first]
        if tag["json"]:
            self.texts[place] = [_decoded(first, self.name, number, place)]
            self.open_text = None

    def take_figures(self, number: int, rest: str) -> None:
        if not rest.replace("\t", " ").isprintable():
            expected = "figures in characters that print"
            raise _refuse(self.name, number, expected=expected, found=brief(repr(rest), 80))
        if _ENGINE_LINE.fullmatch(rest):
            self.engine_lines += 1
            self.take_engine_line(number, rest)
        else:
            for subject, figure in _figures(rest, self.name, number):
                self.keep(number, subject, figure)

    def take_engine_line(self, number: int, rest: str) -> None:
        self.in_engine_line = True
        nth = f" of line {self.engine_lines}" if self.engine_lines > 1 else ""
        for subject, figure in _engine_figures(rest, self.name, number):
            self.keep(number, f"{subject}{nth}", figure)

    def keep(self, number: int, subject: str, figure: Figure) -> None:
        if subject in self.figures:
            raise _refuse(self.name, number, expected=f"{subject} once", found="it again")
        self.figures[subject] = figure

    def run(self) -> Run:
        """Return the run, once the lines are at their end."""
        prompts = {key: "\n".join(lines) for (sort, key), lines in self.texts.items() if sort == "prompt"}
        answers = {key: "\n".join(lines) for (sort, key), lines in self.texts.items() if sort == "greedy"}
        if not answers:
            raise refusal(self.name, expected="at least one [greedy <id>] text", found="none")
        for prompt, answer in answers.items():
            if not answer.strip():
                raise refusal(f"{self.name}: [greedy {prompt}]", expected="a text", found="nothing")
        return Run(self.name, prompts, answers, self.figures)


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
    gives). Counts must be equal. A time may not be longer, a rate not lower, by more than the tolerance, whatever the
    units they are written in; a figure of unknown direction counts as a count, and figures that measure different
    things differ. Raises `Refused` when neither run has figures, for a time or rate that is not above 0, and when the
    controls lack a figure.
    """
    names = tuple(dict.fromkeys((*one.figures, *other.figures)))
    if not names:
        raise refusal("timings", expected="[ph] or [prof] figures in the logs", found="none")
    for run in (one, other):
        _refuse_nothing(run)
    verdicts = []
    for name in names:
        mine, theirs = one.figures.get(name), other.figures.get(name)
        if mine is None or theirs is None:
            what = f"only in {one.name if mine else other.name}"
            verdicts.append(Verdict("timing", name, what, fails=True))
            continue
        against = f"{mine.written} against {theirs.written}"
        if mine.measure != theirs.measure:
            kind = "timing" if mine.better or theirs.better else "count"
            verdicts.append(Verdict(kind, name, f"{against}: units that cannot be compared", fails=True))
        elif not mine.better:
            same = mine.value == theirs.value
            verdicts.append(Verdict("count", name, mine.written if same else against, fails=not same))
        else:
            verdicts.append(_timing(name, mine, theirs, _allowed(tolerance, name)))
    return tuple(verdicts)


def control_tolerance(one: Run, other: Run, reference: Run) -> dict[str, float]:
    """Return, for each figure of the reference run, how far two control runs lie apart (a fraction of the smaller).

    The controls must have run what is judged: raises `Refused` when their texts differ from each other (the machine
    does not repeat itself and proves nothing) or from those of `reference`, when a figure of the reference is missing
    in them or measures something else, when a count differs, for a time or rate that is not above 0, and when they
    lie further apart than any tolerance that judges something.
    """
    broken = next((verdict for verdict in compare_texts(one, other) if verdict.fails), None)
    if broken:
        found = f"{broken.subject}: {broken.what}"
        raise refusal("control logs", expected="two runs with equal texts", found=found)
    broken = next((verdict for verdict in compare_texts(reference, one) if verdict.fails), None)
    if broken:
        found = f"{broken.subject}: {broken.what}"
        raise refusal("control logs", expected=f"the texts of {reference.name}", found=found)
    for run in (one, other):
        _refuse_nothing(run)
    tolerance = {}
    for name, figure in reference.figures.items():
        pair = [run.figures[name] for run in (one, other) if name in run.figures]
        if len(pair) < 2:
            raise refusal("control logs", expected=f"the figure {name} in both", found="it missing")
        for control in pair:
            if control.measure != figure.measure or (not figure.better and control.value != figure.value):
                expected = f"{name} as in {reference.name}, {figure.written}"
                raise refusal("control logs", expected=expected, found=control.written)
        apart = _apart(*pair)
        if figure.better and apart > MAX_TOLERANCE:
            expected = f"{name} at most {MAX_TOLERANCE:.0%} apart"
            raise refusal("control logs", expected=expected, found=f"{apart:.0%}")
        tolerance[name] = apart
    return tolerance


def self_test() -> tuple[tuple[str, bool], ...]:
    """Run the gate on small built-in logs; return each case and whether the gate did what it must."""
    log = "[prompt 1] hello\n[greedy 1] a b c\n[ph] GU n=64 wait_ms={ms} GB/s=8.0\n[prof] step n=368 host=0.8s\n"
    base = parse_run(log.format(ms="100.0"), "base")
    slower = parse_run(log.format(ms="104.0"), "slower")
    faster = parse_run(log.format(ms="90.0"), "faster")
    changed = parse_run(log.format(ms="100.0").replace("a b c", "a b d"), "changed")
    fewer = parse_run(log.format(ms="100.0").replace("n=368", "n=367"), "fewer")
    quoted = parse_run(log.format(ms="100.0").replace("a b c", '"a b c"'), "quoted")
    milliseconds = parse_run(log.format(ms="100.0").replace("0.8s", "800ms"), "milliseconds")
    engine = (
        "[greedy 1] a b c\n[ph] wall=4098-4286 | layers=3922-4110 (wait 3163-3316, n=368)\n     | head=176-{head}\n"
    )
    step = parse_run(engine.format(head=205), "step")
    slower_head = parse_run(engine.format(head=405), "slower head")
    without_unit = parse_run(log.format(ms="100.0").replace("0.8s", "0.8"), "without unit")
    unmeasured = parse_run("[prompt 1] hello\n[greedy 1] a b c\n", "unmeasured")

    def fails(verdicts: tuple[Verdict, ...]) -> bool:
        return any(verdict.fails for verdict in verdicts)

    def refuses(text: str) -> bool:
        try:
            parse_run(text, "bad")
        except Refused:
            return True
        return False

    controls = control_tolerance(base, slower, base)
    steady = control_tolerance(base, base, base)
    return (
        ("equal texts pass", not fails(compare_texts(base, slower))),
        ("a changed text fails", fails(compare_texts(base, changed))),
        ("a text in quotes is another text", fails(compare_texts(base, quoted))),
        ("4 % slower fails within 3 %", fails(compare_figures(base, slower, 0.03))),
        ("4 % slower passes within 5 %", not fails(compare_figures(base, slower, 0.05))),
        ("10 % faster passes within 1 %", not fails(compare_figures(base, faster, 0.01))),
        ("the same time in another unit passes", not fails(compare_figures(base, milliseconds, 0.0))),
        ("a time without its unit fails", fails(compare_figures(base, without_unit, 10.0))),
        ("another count fails whatever the tolerance", fails(compare_figures(base, fewer, 1.0))),
        ("a figure in one log alone fails", fails(compare_figures(base, unmeasured, 1.0))),
        ("controls 4 % apart let 4 % pass", not fails(compare_figures(base, slower, controls))),
        ("controls that agree let nothing pass", fails(compare_figures(base, slower, steady))),
        ("the engine's own line is judged", fails(compare_figures(step, slower_head, 0.5))),
        ("a tag behind a time stamp is refused", refuses("[greedy 1] a\n[end]\n12:00 [ph] GU wait_ms=5\n")),
        ("a tag in colour is refused", refuses("\x1b[32m[greedy 1] a\n[greedy 2] b\n")),
        ("a log without greedy text is refused", refuses("[ph] GU n=1\n")),
        ("an empty greedy text is refused", refuses("[greedy 1]\n")),
    )


def _has_tag(line: str) -> bool:
    """Return whether a line has a tag in it, seen or not: with colours, marks or spaces in between, in any case."""
    seen = unicodedata.normalize("NFKC", _ESCAPE.sub("", line))
    return _ANY_TAG.search("".join(c for c in seen if unicodedata.category(c) not in _UNSEEN).casefold()) is not None


def _figures(rest: str, name: str, number: int) -> Iterator[tuple[str, Figure]]:
    """Yield label with key, and figure, of a line `LABEL key=number[unit] ...`."""
    words = rest.split()
    label = " ".join(word for word in words if "=" not in word)
    if not any("=" in word for word in words):
        raise _refuse(name, number, expected="at least one key=number[unit]", found=brief(repr(rest), 80))
    for word in words:
        if "=" not in word:
            continue
        match = _FIGURE.fullmatch(word)
        if match is None:
            raise _refuse(name, number, expected="key=number[unit]", found=word)
        try:
            figure = Figure.of(match[1], match[2], match[3])
        except ValueError as error:
            expected = "key=number[unit], the number finite, one unit"
            raise _refuse(name, number, expected=expected, found=f"{brief(word, 60)} ({brief(error, 60)})") from error
        yield f"{label} {match[1]}".strip(), figure


def _engine_figures(rest: str, name: str, number: int) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of the engine's own line, or of its continuation: times are milliseconds, n a count.

    A range is the lowest and the highest of the run: two figures, each of which is judged.
    """
    parts = rest.split("|")
    if not parts[0].strip() and len(parts) > 1:
        parts = parts[1:]
    for part in parts:
        match = _PART.fullmatch(part.strip())
        if match is None:
            expected = "parts key=number[-number] (name number[-number], n=count) between bars"
            raise _refuse(name, number, expected=expected, found=brief(repr(part.strip()), 80))
        yield from _range(match["key"], match["range"], name, number)
        for item in match["items"].split(",") if match["items"] is not None else ():
            inner = _ITEM.fullmatch(item.strip())
            if inner is None:
                expected = "name number[-number] or n=count in brackets"
                raise _refuse(name, number, expected=expected, found=brief(repr(item.strip()), 80))
            subject = f"{match['key']} {inner['key']}"
            if inner["joint"] != "=":
                yield from _range(subject, inner["range"], name, number)
            elif inner["range"].isdigit():
                yield subject, Figure.of(inner["key"], inner["range"], "")
            else:
                raise _refuse(name, number, expected=f"a count as {subject}", found=inner["range"])


def _range(subject: str, text: str, name: str, number: int) -> Iterator[tuple[str, Figure]]:
    low, bar, high = text.partition("-")
    try:
        ends = [Figure.of(subject, end, "ms") for end in (low, high if bar else low)]
    except ValueError:
        expected = f"{subject} as number[-number] of milliseconds"
        raise _refuse(name, number, expected=expected, found=brief(text, 60)) from None
    if ends[0].value > ends[1].value:
        raise _refuse(name, number, expected=f"{subject} from its lowest to its highest", found=brief(text, 60))
    yield f"{subject} lowest", ends[0]
    yield f"{subject} highest", ends[1]


def _decoded(text: str, name: str, number: int, place: tuple[str, str]) -> str:
    """Return the text a JSON string stands for."""
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value.encode()  # half of a surrogate pair is not text
            return value
    except (ValueError, RecursionError):
        pass
    expected = f"one JSON string after [{' '.join(place)} json]"
    raise _refuse(name, number, expected=expected, found=brief(text, 60) or "nothing")


def _refuse_nothing(run: Run) -> None:
    """Refuse a time or rate of nothing or less: it was not measured, and would count as better than any."""
    for name, figure in run.figures.items():
        if figure.better and figure.value <= 0:
            raise refusal(f"{run.name}: {name}", expected="a time or rate above 0", found=figure.written)


def _first_difference(one: str, other: str) -> str:
    if _LINE_END.sub("", one) == _LINE_END.sub("", other):
        ends = ("CRLF" if _LINE_END.search(text) else "LF" for text in (one, other))
        mine, theirs = ends
        return f"differs in line ends alone: {mine} against {theirs}"
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
    apart = _apart(mine, theirs)
    worse = (theirs.value - mine.value) * mine.better < 0
    fails = worse and apart > allowed + 1e-12
    change = "equal" if mine.value == theirs.value else f"{apart:.2%} {'worse' if worse else 'better'}"
    what = f"{mine.written} against {theirs.written}: {change}, {allowed:.2%} allowed"
    return Verdict("timing", name, what, fails)


def _apart(one: Figure, other: Figure) -> float:
    """Return how far two figures lie apart, as a fraction of the smaller; 0 for counts, which are not judged so."""
    if one.value == other.value or not one.better:
        return 0.0
    return float(abs(one.value - other.value) / min(one.value, other.value))


def _refuse(name: str, line: int, *, expected: object, found: object) -> ElfkilnError:
    return refusal(f"{name} line {line}", expected=expected, found=found)

"""`elfkiln report`: launches, weight bytes and predicted device wait of one decoded token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import one_asked_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, ElfkilnError, Refused, refusal
from elfkiln.work.asked import Asked
from elfkiln.work.report import DecodeReport, token_report

if TYPE_CHECKING:
    from elfkiln.work.predict_token import ModelPrediction


def run(arguments: Arguments) -> int:
    """Print the report of one model or plan."""
    asked, report = report_of(arguments, "report")
    designs = _by_designs(arguments, asked, report)
    if arguments.json:
        refused = designs if isinstance(designs, str) else None
        passes = [] if isinstance(designs, str) else [one.to_json() for one in designs.passes]
        print_json(report.to_json() | {"designs": passes, "designs_refused": refused})
        return EXIT_DONE
    print(report.text())
    print(f"by the designs that elfkiln renders for {asked.wanted.layout} (see predict; nothing is measured):")
    if isinstance(designs, str):
        print(f"  {designs}")
    else:
        for one in designs.passes:
            central, low, high = one.seconds
            print(f"  {one.what}: predicted {central:.3f} s [{low:.3f} to {high:.3f}]")
    return EXIT_DONE


def _by_designs(arguments: Arguments, asked: Asked, report: DecodeReport) -> ModelPrediction | str:
    """Return what the model of time says of the designs, or why it cannot."""
    from elfkiln.work.predict_token import predict_model

    project = project_of(arguments)
    try:
        return predict_model(
            project, asked.wanted, head_bytes=report.vocabulary * report.hidden, experts=report.experts
        )
    except ElfkilnError as error:
        return str(error)


def report_of(arguments: Arguments, verb: str) -> tuple[Asked, DecodeReport]:
    """Return what the one model or plan named asks for, and its report."""
    project = project_of(arguments)
    if "plan" not in arguments.keys and arguments.keys.get("model", "") in ("", "all"):
        raise Refused(f"{verb}: takes model=NAME or plan=PATH")
    asked = one_asked_of(project, arguments, verb)
    vocabulary, experts = _count(arguments, "vocab", 0), _count(arguments, "experts", 1) or 1
    return asked, token_report(project, asked, vocabulary=vocabulary, experts=experts)


def _count(arguments: Arguments, key: str, least: int) -> int | None:
    text = arguments.keys.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):
        raise refusal(f"{key}={text}", expected=f"a number from {least}", found=repr(text))
    return int(text)

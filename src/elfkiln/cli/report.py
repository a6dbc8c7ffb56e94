"""`elfkiln report`: launches, weight bytes and predicted device wait of one decoded token."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import one_asked_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused, refusal
from elfkiln.work.asked import Asked
from elfkiln.work.report import DecodeReport, token_report


def run(arguments: Arguments) -> int:
    """Print the report of one model or plan."""
    _, report = report_of(arguments, "report")
    if arguments.json:
        print_json(report.to_json())
    else:
        print(report.text())
    return EXIT_DONE


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

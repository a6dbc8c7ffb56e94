"""`elfkiln report`: launches, weight bytes and predicted device wait of one decoded token."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import MODEL, PLAN, ROOT, TARGET, one_asked_of, print_json, project_of
from elfkiln.errors import EXIT_DONE, Refused, refusal
from elfkiln.models.catalogue import model_dimensions
from elfkiln.models.requirement import RequirementSet
from elfkiln.work.report import DecodeReport, decode_report

HELP = "report launches, weight bytes per token and layout, and the predicted device wait of a decode step"
EXPERTS = {"experts": "how often a layer's MLP runs for a token: the chosen experts of a mixture (default: 1)"}
VOCABULARY = {"vocab": "rows of the lm_head (default: a published run's; 0: none)"}
SPEC = Spec(keys=MODEL | PLAN | VOCABULARY | EXPERTS | TARGET | ROOT)


def run(arguments: Arguments) -> int:
    """Print the report of one model or plan."""
    _, _, report = report_of(arguments, "report")
    if arguments.json:
        print_json(report.to_json())
    else:
        print(report.text())
    return EXIT_DONE


def report_of(arguments: Arguments, verb: str) -> tuple[RequirementSet, int, DecodeReport]:
    """Return what one model or plan asks for, its hidden size, and its report."""
    project = project_of(arguments)
    if "plan" not in arguments.keys and arguments.keys.get("model", "") in ("", "all"):
        raise Refused(f"{verb}: takes model=NAME or plan=PATH")
    asked = one_asked_of(project, arguments, verb)
    if asked.plan is not None:
        hidden, layers = asked.plan.hidden, len(asked.plan.layers)
    else:
        hidden, layers = model_dimensions(project, asked.wanted.model)
    vocabulary, experts = _count(arguments, "vocab", 0), _count(arguments, "experts", 1) or 1
    report = decode_report(asked.wanted, hidden=hidden, layers=layers, vocabulary=vocabulary, experts=experts)
    return asked.wanted, hidden, report


def _count(arguments: Arguments, key: str, least: int) -> int | None:
    text = arguments.keys.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):
        raise refusal(f"{key}={text}", expected=f"a number from {least}", found=repr(text))
    return int(text)

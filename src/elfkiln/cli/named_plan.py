"""A plan named on the command line: its notes are shown, and `roles=any` takes it whatever its layers are called."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.errors import refusal
from elfkiln.models.plan.load import load_plan
from elfkiln.models.plan.schema import Plan

ROLES = {"roles": "known, or any: also take a plan whose layers have a role that is not known (default: known)"}


def strict_roles(arguments: Arguments) -> bool:
    """Return whether an unknown layer role is refused: `roles=known`, the default. `roles=any` notes it instead.

    Geometry hangs on the projections alone, and three of the four role names are guesses.
    """
    text = arguments.keys.get("roles", "known")
    if text not in ("known", "any"):
        raise refusal("roles", expected="known or any", found=text)
    return text == "known"


def open_plan(file: Path, arguments: Arguments) -> Plan:
    """Load a plan as `roles=` says and show its notes on standard error; raises `Refused` as `load_plan`."""
    plan = load_plan(file, strict=strict_roles(arguments))
    show_notes(plan_notes(plan))
    return plan


def plan_notes(plan: Plan) -> list[str]:
    """Return the notes of a plan with its file, for `--json`."""
    return [f"{plan.where}: {note}" for note in plan.notes]


def show_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, one a line, each once."""
    for note in dict.fromkeys(notes):
        print(f"note: {note}", file=sys.stderr)

"""Every elfkiln command in the docs is one that the verbs take: their tables parse it."""

from __future__ import annotations

import re
import shlex

import pytest

from elfkiln.cli.arguments import parse
from elfkiln.cli.verbs import VERBS
from elfkiln.errors import Refused
from projects import CHECKOUT

PAGES = sorted([*(CHECKOUT / "docs").glob("*.md"), CHECKOUT / "README.md"])
BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```$|((?:^    .*\n)+)", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:\$ )?((?:\./)?doit|(?:\.venv/bin/)?elfkiln) ([a-z][a-z-]*)\b(.*)")
TASKS = {task: (name, words) for name, verb in VERBS.items() for task, words in verb.tasks.items()}
# doit's own, and those of dodo.py that run no verb.
OTHERS = {"list", "info", "test", "help"}


def commands(text):
    """Yield (program, verb or task, its words) of every command in a page's blocks of code."""
    for fenced, indented in BLOCK.findall(text):
        for line in (fenced or indented).splitlines():
            match = COMMAND.fullmatch(line.strip())
            if match is not None and "VERB" not in line and "[" not in line:
                program = match[1].rpartition("/")[2]
                yield program, match[2], shlex.split(match[3].partition(" || ")[0].partition(" > ")[0], comments=True)


def fault(program, verb, words):
    """Return why a command would be refused by its spec, None when it would not."""
    if "--help" in words or (program == "doit" and verb in OTHERS):
        return None
    name, first = TASKS.get(verb, (verb, ())) if program == "doit" else (verb, ())
    if name not in VERBS:
        return f"no verb {verb}"
    spec = VERBS[name].spec
    try:
        found = parse(name, spec, [*first, *words])
    except Refused as error:
        return str(error)
    least = len(spec.words) - spec.optional_words
    return None if len(found.words) >= least else f"{verb}: words missing"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_are_taken(page):
    assert [(one, why) for one in commands(page.read_text()) if (why := fault(*one))] == []


def test_there_are_commands_and_wrong_ones_are_seen():
    assert sum(1 for page in PAGES for _ in commands(page.read_text())) > 100
    wrong = "    elfkiln lookup modl=x\n    ./doit frobnicate\n    elfkiln draw\n    ./doit toolchain status\n"
    assert all(fault(*one) for one in commands(wrong))
    assert len(list(commands(wrong))) == 4

"""The doit tasks, made from the table of verbs, and a reporter that adds no noise of its own.

`doit VERB key=value ...` runs a verb. Where a model or plan is named, each of its ELFs is a sub-task of `elfs`:
`doit list --all model=M` shows the states, `doit info elfs:NAME model=M` says why, `doit elfs:NAME model=M` builds it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doit.exceptions import BaseFail, TaskError, TaskFailed
from doit.reporter import ConsoleReporter
from doit.task import Task

from elfkiln.cli.verbs import VERBS, Verb
from elfkiln.errors import EXIT_DONE, EXIT_REFUSED, ElfkilnError, one_line

CALLED_FROM = "ELFKILN_CALLED_FROM"
ELFS = "elfs"
# doit's own commands that show tasks without running them.
_SHOWING = frozenset({"list", "info"})


class OneLineReporter(ConsoleReporter):  # type: ignore[misc]
    """Prints what a verb did not already print: nothing for a verb's own failures, one line for doit's."""

    desc = "elfkiln: the verbs speak for themselves"

    def execute_task(self, task: Task) -> None:
        """Print nothing when a task starts."""

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        """Print one line unless the verb said it."""
        if fail.report:
            text = fail.get_msg().strip().splitlines()
            self.write(f"doit {task.name}: {text[-1] if text else fail.get_name()}\n")

    def complete_run(self) -> None:
        """Print doit's own errors, if there were any."""
        for message in self.runtime_errors:
            self.write(f"doit: {message}\n")


CONFIG: dict[str, Any] = {
    # doit's database would decide nothing here: the store and registry.yaml say what is built. So it has no file.
    "backend": "sqlite3",
    "dep_file": ":memory:",
    "default_tasks": ["help-elfkiln"],
    "verbosity": 2,
    "reporter": OneLineReporter,
}


def run_verb(verb: str, words: Sequence[str]) -> bool | BaseFail:
    """Run a verb as the `elfkiln` command would; doit then ends with 2 where the verb refused, else with 1."""
    from elfkiln.cli import main

    with _called_from():
        code = main([verb, *words])
    if code == EXIT_DONE:
        return True
    kind = TaskError if code == EXIT_REFUSED else TaskFailed
    return kind(f"exit code {code}", report=False)


def _called_from() -> contextlib.chdir[str]:
    """Enter the folder the wrapper ./doit was called from: relative paths among the words are meant from there."""
    return contextlib.chdir(os.environ.get(CALLED_FROM) or os.curdir)


def given_variables(doit_cmd: Any, words: Sequence[str]) -> list[str]:
    """Return every `key=value` word doit was given, so that a verb can refuse one it does not know.

    doit itself only answers for names it is asked for (`get_var`), which would drop a misspelt one silently, and keeps
    the last of two with one name: `words`, the command line, has both.
    """
    taken = []
    for key, value in (doit_cmd._CMDLINE_VARS or {}).items():
        given = [word for word in words if word.startswith(f"{key}=")]
        taken += given if len(given) > 1 else [f"{key}={value}"]
    return taken


def all_tasks(doit_cmd: Any, words: Sequence[str]) -> Iterator[Task | dict[str, Any]]:
    """Yield a task for every verb, and for every ELF of the model or plan named where a command asks for them.

    `words` is doit's command line.
    """
    variables = given_variables(doit_cmd, words)
    elfs: list[Task] = []
    showing = not _SHOWING.isdisjoint(words)
    if showing or any(word.startswith(f"{ELFS}:") for word in words):
        elfs = elf_tasks(variables, [word.partition(":")[2] for word in words if word.startswith(f"{ELFS}:")])
    for name, verb in VERBS.items():
        for task, first in (verb.tasks or {name: ()}).items():
            row = verb_task(name, variables, task=task, first_words=first)
            if task == ELFS and showing:
                # Only then: a group that runs would run its ELFs one by one, and the verb builds them together.
                row["task_dep"] = [one.name for one in elfs]
            yield row
    yield from elfs


def verb_task(
    name: str, variables: Sequence[str], *, task: str = "", first_words: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the doit task of a verb, called `task` where that is not the verb's name.

    `variables` are the `key=value` words given to doit; the verb's flags are the task's options, and words after the
    task's name are passed on where the verb takes any. `first_words` are passed before all others.
    """
    verb = VERBS[name]
    options = options_of(verb)

    def action(**given: Any) -> bool | BaseFail:
        passed = [*first_words, *variables]
        for flag, option in options.items():
            value = given[option["name"]]
            if value is True:
                passed.append(flag)
            elif value:
                passed += [flag, str(value)]
        return run_verb(name, [*passed, *given.get("words", [])])

    row: dict[str, Any] = {
        "basename": task or name,
        "doc": verb.help,
        "params": list(options.values()),
        "verbosity": 2,
        "io": {"capture": False},
        "actions": [action],
    }
    if len(verb.spec.words) > len(first_words):
        row["pos_arg"] = "words"
    return row


def options_of(verb: Verb) -> Mapping[str, dict[str, Any]]:
    """Return the doit options of a verb by its own flags.

    One that takes two values comes last: doit gives it the first, the second is the first of the words that follow.
    """
    spec = verb.spec
    texts = [*spec.valued.items(), *spec.paired.items()]
    switches = [*spec.flags.items(), ("--json", "print JSON for machines")]
    options = {flag: {"type": bool, "default": False, "help": text} for flag, text in switches}
    options |= {flag: {"type": str, "default": "", "help": text} for flag, text in texts}
    for flag, option in options.items():
        option["name"] = flag.lstrip("-")
        option["long" if flag.startswith("--") else "short"] = flag.lstrip("-")
    return options


class _UpToDate:
    """What doit asks whether an ELF is up to date; `doit info` shows its text where it is not."""

    def __init__(self, state: str, why: str) -> None:
        """Take the state, and why."""
        self.state, self.why = state, why

    def __call__(self) -> bool:
        """Say whether the name is registered and its bytes verify."""
        return self.state == "up to date"

    def __str__(self) -> str:
        """Return the reason."""
        return self.why


def elf_tasks(variables: Sequence[str], names: Sequence[str]) -> list[Task]:
    """Return a task per ELF that the model or plan among the variables asks for, or per name where some are given.

    Without a model or plan, the names are looked for in every model. A name that nobody asks for has a task as well,
    which says so when it is shown and when it is run.
    """
    from elfkiln.cli.arguments import parse
    from elfkiln.cli.elfs import states_of

    keys = [word for word in variables if word.partition("=")[0] in VERBS[ELFS].spec.keys]
    if not names and not any(word.startswith(("model=", "plan=")) for word in keys):
        return []
    try:
        with _called_from():
            states = states_of(parse(ELFS, VERBS[ELFS].spec, keys), names)
    except ElfkilnError as error:
        if not names:
            print(f"elfkiln: {one_line(error)}", file=sys.stderr)
        return [_elf_task(name, variables, _UpToDate("refused", one_line(error))) for name in names]
    return [_elf_task(one.key, variables, _UpToDate(one.state, one.line)) for one in states]


def _elf_task(name: str, variables: Sequence[str], state: _UpToDate) -> Task:
    action = (run_verb, [ELFS, [*variables, name]])
    task = Task(f"{ELFS}:{name}", [action], doc=str(state), uptodate=[state], verbosity=2, io={"capture": False})
    task.subtask_of = ELFS
    return task

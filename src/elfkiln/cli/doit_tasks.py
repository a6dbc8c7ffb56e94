"""What dodo.py needs: a task that runs one verb of elfkiln, and a reporter that adds no noise of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from doit.exceptions import BaseFail, TaskError, TaskFailed
from doit.reporter import ConsoleReporter
from doit.task import Task

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE

CALLED_FROM = "ELFKILN_CALLED_FROM"

CONFIG: dict[str, Any] = {
    # doit's database would decide nothing here: the store and registry.yaml say what is built. So it has no file.
    "backend": "sqlite3",
    "dep_file": ":memory:",
    "default_tasks": ["help-elfkiln"],
    "verbosity": 2,
}


class OneLineReporter(ConsoleReporter):  # type: ignore[misc]
    """Prints what a verb did not already print: nothing for a verb's own failures, one line for doit's."""

    desc = "elfkiln: the verbs speak for themselves"

    def execute_task(self, task: Task) -> None:
        """Print nothing when a task starts."""

    def skip_uptodate(self, task: Task) -> None:
        """Print nothing for a task that is up to date."""

    def add_failure(self, task: Task, fail: BaseFail) -> None:
        """Print one line unless the verb said it."""
        if fail.report:
            text = fail.get_msg().strip().splitlines()
            self.write(f"doit {task.name}: {text[-1] if text else fail.get_name()}\n")

    def complete_run(self) -> None:
        """Print doit's own errors, if there were any."""
        for message in self.runtime_errors:
            self.write(f"doit: {message}\n")


def run_verb(verb: str, words: Sequence[str]) -> bool | BaseFail:
    """Run a verb as the `elfkiln` command would; doit then ends with the verb's exit code (1 or 2)."""
    from elfkiln.cli import main

    # The wrapper ./doit enters the checkout; relative paths among the words are meant from where it was called.
    with contextlib.chdir(os.environ.get(CALLED_FROM) or os.curdir):
        code = main([verb, *words])
    if code == EXIT_DONE:
        return True
    kind = TaskFailed if code == EXIT_DIFFERS else TaskError
    return kind(f"exit code {code}", report=False)


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


def verb_task(
    verb: str,
    variables: Sequence[str],
    *,
    options: Sequence[dict[str, Any]] = (),
    takes_words: bool = False,
    name: str | None = None,
    first_words: Sequence[str] = (),
    doc: str,
) -> dict[str, Any]:
    """Return the doit task of a verb.

    `variables` are the `key=value` words given to doit; `options` are doit parameters whose values, when given, are
    passed on as the verb's own flags (`-n 2`, `--rebuild`); `takes_words` passes the words after the task's name.
    `name` is the task's where it is not the verb's; `first_words` are passed before all others.
    """

    def action(**given: Any) -> bool | BaseFail:
        passed = [*first_words, *variables]
        for option in options:
            value = given[option["name"]]
            flag = f"-{option['short']}" if "short" in option else f"--{option['long']}"
            if value is True:
                passed.append(flag)
            elif value:
                passed += [flag, str(value)]
        return run_verb(verb, [*passed, *given.get("words", [])])

    task: dict[str, Any] = {
        "basename": name or verb,
        "doc": doc,
        "params": list(options),
        "verbosity": 2,
        "io": {"capture": False},
        "actions": [action],
    }
    if takes_words:
        task["pos_arg"] = "words"
    return task

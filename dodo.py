"""The doit tasks of elfkiln. Each runs one verb: `doit elfs model=bonsai2-27b` is `elfkiln elfs model=bonsai2-27b`.

They are made from the table of verbs (src/elfkiln/cli/verbs.py), which says once what each takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from doit import doit_cmd

from elfkiln.cli.doit_tasks import CONFIG, all_tasks, run_verb

DOIT_CONFIG = CONFIG


def task_verbs() -> Iterator[Any]:
    """One task per verb, and one per ELF of the model named."""
    yield from all_tasks(doit_cmd, sys.argv[1:])


def task_test() -> dict[str, Any]:
    """Run the whole test suite with pytest."""
    return {
        "actions": [f'"{sys.executable}" -m pytest -n auto --dist worksteal %(words)s'],
        "pos_arg": "words",
        "verbosity": 2,
        "io": {"capture": False},
        "doc": "run the whole test suite",
    }


def task_help_elfkiln() -> dict[str, Any]:
    """Say what there is; what plain `doit` does."""
    return {"basename": "help-elfkiln", "actions": [(run_verb, ["help", []])], "verbosity": 2, "doc": "list the verbs"}

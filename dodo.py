"""The doit tasks of elfkiln. Each runs one verb: `doit elfs model=bonsai2-27b` is `elfkiln elfs model=bonsai2-27b`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from doit import doit_cmd

from elfkiln.cli.doit_tasks import CONFIG, OneLineReporter, given_variables, verb_task

DOIT_CONFIG = CONFIG | {"reporter": OneLineReporter}

# Verb -> what `doit list` says, whether words may follow the task's name, and doit options passed on as flags.
JOBS = {"name": "jobs", "short": "n", "type": str, "default": "", "help": "how many recipes are built at once"}
REBUILD = {"name": "rebuild", "long": "rebuild", "type": bool, "default": False, "help": "build also what is there"}
PLAN_OPTIONS = (
    {"name": "check", "long": "check", "type": bool, "default": False, "help": "compare instead of writing"},
    {"name": "print", "long": "print", "type": bool, "default": False, "help": "print instead of writing"},
    {"name": "kernels", "long": "kernels", "type": str, "default": "", "help": "the engine's kernel directory"},
    {"name": "out", "long": "out", "type": str, "default": "", "help": "the file to write or check"},
)
COMPARE_OPTIONS = (
    {"name": "tol", "long": "tol", "type": str, "default": "", "help": "tolerated timing difference in percent"},
    {"name": "texts", "long": "texts", "type": bool, "default": False, "help": "compare the texts alone"},
    {"name": "self-test", "long": "self-test", "type": bool, "default": False, "help": "check the comparison itself"},
    # Last, as it takes two: doit gives it the first, and the second is the first of the words that follow.
    {"name": "control", "long": "control", "type": str, "default": "", "help": "two more logs of A's build: C1 C2"},
)
PREDICT_OPTIONS = (
    {"name": "validate", "long": "validate", "type": bool, "default": False, "help": "against published points"},
    {"name": "compare", "long": "compare", "type": str, "default": "", "help": "another layout or design"},
    {"name": "baseline", "long": "baseline", "type": str, "default": "", "help": "the gate's file"},
    {"name": "write-baseline", "long": "write-baseline", "type": str, "default": "", "help": "write the gate's file"},
)
VERBS: dict[str, tuple[str, bool, tuple[dict[str, Any], ...]]] = {
    "elfs": ("build, check and register every ELF of model=", False, (JOBS, REBUILD)),
    "check-missing": ("say which ELFs of model= are missing or damaged", False, ()),
    "lookup": ("print digest, size and recipe of model= or of a name or pattern", True, ()),
    "install": ("put the ELFs of model= into dir=", False, ()),
    "resolve": ("say which file the engine would open for a NAME of plan= or model=", True, ()),
    "report": ("report launches, bytes and predicted wait of a decode step of plan= or model=", False, ()),
    "draw": ("draw a NAME or a DESIGN.mlir as SVG", True, ()),
    "predict": ("predict the time of model= or of a DESIGN.mlir", True, PREDICT_OPTIONS),
    "plan": ("write or check the plan.json of a model folder, dir=", False, PLAN_OPTIONS),
    "diff": ("compare what two plans or models ask for", True, ()),
    "kv-gate": ("measure the arithmetic of an int8 key cache", False, ()),
    "explain": ("say why a NAME would be rebuilt", True, ()),
    "verify": ("run every ELF of model= and compare each int32 with numpy", False, ()),
    "design": ("run a generator FILE.py on iron_sim and print its module", True, ()),
    "lint": ("check a DESIGN.mlir against the array's limits and the tools' traps", True, ()),
    "inspect": ("say what an ELF FILE is, and whether it is what its name says", True, ()),
    "compare-runs": ("compare two engine logs: texts and timings", True, COMPARE_OPTIONS),
    "cross-check": ("name where published geometry contradicts the derivation", True, ()),
}
# Tasks whose verb has another name or a first word: doit keeps `list` for itself.
NAMED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "models": ("list", (), "list the models, and how much of each is registered"),
    "toolchain": ("toolchain", ("install",), "install the toolchain of target= (wheels= for a folder of wheels)"),
    "toolchain-status": ("toolchain", ("status",), "show the pinned toolchains, installed or not, usable or not"),
    "toolchain-mirror": ("toolchain", ("mirror",), "store the wheels of target npu2 as blobs"),
}


def task_verbs() -> Iterator[dict[str, Any]]:
    """One task per verb."""
    for verb, (doc, takes_words, options) in VERBS.items():
        yield verb_task(verb, given_variables(doit_cmd, sys.argv), options=options, takes_words=takes_words, doc=doc)
    for name, (verb, words, doc) in NAMED.items():
        yield verb_task(verb, given_variables(doit_cmd, sys.argv), name=name, first_words=words, doc=doc)


def task_test() -> dict[str, Any]:
    """Run the whole test suite with pytest."""
    return {
        "actions": [f'"{sys.executable}" -m pytest -n auto %(words)s'],
        "pos_arg": "words",
        "verbosity": 2,
        "io": {"capture": False},
        "doc": "run the whole test suite",
    }


def task_help_elfkiln() -> dict[str, Any]:
    """Say what there is; what plain `doit` does."""
    from elfkiln.cli.doit_tasks import run_verb

    return {"basename": "help-elfkiln", "actions": [(run_verb, ["help", []])], "verbosity": 2, "doc": "list the verbs"}

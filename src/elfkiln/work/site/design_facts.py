"""What can be said of a design from its text alone: picture, taps, lint's findings and budgets, predicted times.

Reading a design takes most of a second, so what came out is kept (out/cache/site) under the digest of the design and of
this package's sources, and what is not there yet is read side by side. Deleting the folder costs time alone.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

import elfkiln
from elfkiln.design.gemm import gemm_text, geometry_of
from elfkiln.design.model import Design, Sequence, StartTask, Task
from elfkiln.design.patterns import full_tap, pattern_of, task_dims
from elfkiln.design.reader import read_design
from elfkiln.engine.contract import ARGUMENT_A, ARGUMENT_B, ARGUMENT_C
from elfkiln.errors import BuildFailed, ElfkilnError, brief
from elfkiln.io.byte_cache import ByteCache
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.child import GIB, MIB, Limits, run_child
from elfkiln.lint import budgets, lint
from elfkiln.project import Project
from elfkiln.work.draw import draw_design
from elfkiln.work.lint import Linted
from elfkiln.work.predict import Prediction, predict_design
from elfkiln.work.recipes import package_digest

_MATRIX = {ARGUMENT_A: "A", ARGUMENT_B: "B", ARGUMENT_C: "C"}
_FEW = 2
"""Designs that are read in this process: others take longer to begin."""
_SECONDS_EACH = 120.0
_START = "import sys; sys.path.append(sys.argv.pop(1)); from elfkiln.work.site.design_facts import answer; answer()"


@dataclass(frozen=True, slots=True)
class DesignFacts:
    """What is known of one design; each part is empty, and `refused` says why, where it is not known.

    `svg` is the picture, `taps` a row for each matrix of each sequence, `linted` the JSON form of `work.lint`.
    """

    svg: str
    geometry: str
    taps: tuple[Mapping[str, Any], ...]
    linted: Mapping[str, Any]
    predictions: tuple[Prediction, ...]
    refused: tuple[str, ...]


def design_facts(project: Project, texts: Mapping[str, str], rules: str) -> dict[str, DesignFacts]:
    """Return the facts of designs by their digests; `texts` are their generic MLIR, `rules` lint's name of a target.

    Raises `Refused` when the cache cannot be used, `BuildFailed` when a child that reads designs dies. What a design is
    refused for is part of its facts.
    """
    package = package_digest()
    cache = ByteCache(project.cache / "site", ".json")
    keys = {digest: sha256_hex(canonical_json([package, rules, digest])) for digest in texts}
    found: dict[str, bytes] = {}
    if package is not None:
        found = {digest: data for digest in texts if (data := cache.find(keys[digest])) is not None}
    missing = [digest for digest in texts if digest not in found]
    for digest, data in zip(missing, _tell_all([(digest, texts[digest], rules) for digest in missing]), strict=True):
        found[digest] = data
        if package is not None:
            with contextlib.suppress(ElfkilnError):
                cache.keep(keys[digest], data)
    return {digest: _facts_of(json.loads(found[digest])) for digest in texts}


def _tell_all(given: list[tuple[str, str, str]]) -> list[bytes]:
    if len(given) <= _FEW:
        return [tell_facts(one) for one in given]
    # Programs of their own, not forks or multiprocessing's children: this process may have threads, and whoever calls
    # the library from a script need not know that it starts processes.
    shares = [given[start :: cpu_count() or 1] for start in range(min(cpu_count() or 1, len(given)))]
    with ThreadPoolExecutor(len(shares)) as pool:
        answers = list(pool.map(_tell_elsewhere, shares))
    found: dict[str, bytes] = {}
    for share, parts in zip(shares, answers, strict=True):
        found |= dict(zip((digest for digest, _, _ in share), parts, strict=True))
    return [found[digest] for digest, _, _ in given]


def _tell_elsewhere(share: list[tuple[str, str, str]]) -> list[bytes]:
    """Return the facts of some designs, made by a child process. Raises `BuildFailed` when it ends without them."""
    seconds = _SECONDS_EACH * len(share)
    limits = Limits(seconds=seconds, cpu_seconds=int(seconds), memory_bytes=4 * GIB, file_bytes=MIB)
    words = [sys.executable, "-I", "-c", _START, str(Path(elfkiln.__file__).resolve().parents[1])]
    with tempfile.TemporaryDirectory(prefix="elfkiln-designs-") as folder:
        run = run_child(
            words,
            name="reading designs",
            cwd=Path(folder),
            environment={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            limits=limits,
            whole=True,
            given=json.dumps(share).encode(),
        )
    lines = run.stdout.splitlines()
    if run.exit_code or len(lines) != len(share):
        raise BuildFailed(f"reading designs: ended with exit code {run.exit_code}; {brief(run.err.strip()[-160:])}")
    return lines


def answer() -> None:
    """Read designs as JSON from standard input and print the facts of each on a line: what a child does."""
    for one in json.loads(sys.stdin.buffer.read()):
        sys.stdout.buffer.write(tell_facts((one[0], one[1], one[2])) + b"\n")


def tell_facts(given: tuple[str, str, str]) -> bytes:
    """Return the facts of one design (digest, text, lint's rules) as JSON."""
    digest, text, rules = given
    table: dict[str, Any] = {
        "svg": "",
        "geometry": "",
        "taps": [],
        "linted": {"errors": 0, "warnings": 0, "findings": [], "tiles": []},
        "predictions": [],
        "refused": [],
    }
    try:
        design = read_design(text, name=f"design {digest[:12]}")
    except ElfkilnError as error:
        return canonical_json(table | {"refused": [str(error)]})
    moving = [one for one in design.sequences if one.tasks]
    table["linted"] = Linted(digest, lint(design, rules), budgets(design)).to_json()
    table["taps"] = [row for sequence in moving for row in _taps(sequence)]
    texts = (_geometry(design, sequence) for sequence in moving)
    table["geometry"] = "; ".join(dict.fromkeys(one for one in texts if one))
    try:
        table["svg"] = draw_design(design, f"design {digest[:12]}")
    except ElfkilnError as error:
        table["refused"].append(str(error))
    try:
        table["predictions"] = [asdict(one) for one in predict_design(design)]
    except ElfkilnError as error:
        table["refused"].append(str(error))
    return json.dumps(table).encode()


def _facts_of(table: Mapping[str, Any]) -> DesignFacts:
    return DesignFacts(
        table["svg"],
        table["geometry"],
        tuple(table["taps"]),
        table["linted"],
        tuple(Prediction(**one) for one in table["predictions"]),
        tuple(dict.fromkeys(table["refused"])),
    )


def _geometry(design: Design, sequence: Sequence) -> str:
    geometry = geometry_of(sequence, design)
    return gemm_text(geometry) if geometry else ""


def _taps(sequence: Sequence) -> Iterator[dict[str, Any]]:
    """Yield a row for each matrix of a sequence: how many tasks bring or take it, and the tap of the first."""
    started = [sequence.tasks[step.task] for step in sequence.steps if isinstance(step, StartTask)]
    for argument, matrix in _MATRIX.items():
        tasks = [task for task in started if task.argument == argument]
        if tasks and argument < len(sequence.arguments):
            yield {"sequence": sequence.name, "matrix": matrix, **_tap(sequence, tasks)}


def _tap(sequence: Sequence, tasks: list[Task]) -> dict[str, Any]:
    first, memory = tasks[0], sequence.arguments[tasks[0].argument]
    sizes, strides = full_tap(first)
    dims = task_dims(first)
    run = None if isinstance(dims, str) else pattern_of(dims, first.offset, memory.element_bytes).run
    return {
        "type": str(memory),
        "tasks": len(tasks),
        "fifos": len({task.fifo for task in tasks}),
        "sizes": list(sizes),
        "strides": list(strides),
        "run": run,
        "bytes": sum(sequence.bytes_of(task) for task in tasks),
    }

"""The designs of tests/examples/small-designs: what is known of them, and the form of them that a sim ELF runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from elfkiln.design.fifo_lowering import place
from elfkiln.design.model import Call, Design, Loop, MemRef, Sequence, Statement, Task
from elfkiln.design.patterns import fills
from elfkiln.families.family import KernelObject
from elfkiln.io.files import write_atomic
from once import once

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "small-designs"
FACTS = json.loads((FOLDER / "facts.json").read_text())
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
KERNELS = KernelObject("any.o", "any.cc", {})
MOST_KERNELS = 16


def printed(folder: Path) -> dict[str, dict[str, str]]:
    """What the stand-in makes of each: `text`, or `error` and `unchecked` (tests/support/print_designs.py).

    It is kept in a folder that processes may share, for the other ones.
    """
    kept = folder / "small-designs.json"
    return json.loads(once(kept, lambda: write_atomic(kept, _print_all())).read_bytes())


def _print_all() -> bytes:
    script = Path(__file__).with_name("print_designs.py")
    paths = os.pathsep.join(map(str, (FOLDER.parents[2] / "src", script.parent)))
    environment = {"PYTHONPATH": paths, "PYTHONHASHSEED": "0", "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, script, FOLDER], env=environment, stdout=subprocess.PIPE, check=True)
    return done.stdout


def numbers(design: Design) -> dict[str, dict[str, object]]:
    """The numbers of a design's lowering as `facts.json` has them: what is there, by tile."""
    placed = place(design)
    rows: dict[str, dict[str, object]] = {}
    for tile in {*(tile for tile, _ in (*placed.stored, *placed.locks)), *(end.tile for end in placed.ends)}:
        row: dict[str, object] = {}
        buffers = sorted(stored.bytes_each for stored in placed.stored_on(tile) for _ in range(stored.count))
        channels = {
            f"{end.direction.upper()} {end.channel}": end.descriptors
            for end in placed.ends_on(tile)
            if tile.kind != "shim"
        }
        row = {
            "buffers": buffers,
            "channels": channels,
            "locks": sorted(value for place, value in placed.locks if place == tile),
        }
        if any(row.values()):
            rows[f"({tile.col},{tile.row})"] = {key: value for key, value in row.items() if value}
    return rows


def for_entries(design: Design) -> Design:
    """Return a design whose sequences take A (all they read), B (nothing) and C (all they write), as entries do.

    The arguments keep no byte that no task of the sequence touches behind the last one. Kernels are named after the
    stand-ins of `any_kernels`.
    """
    names = {kernel.name: f"k{number}" for number, kernel in enumerate(design.kernels)}

    def renamed(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        out: list[Statement] = []
        for statement in body:
            if isinstance(statement, Call):
                statement = replace(statement, kernel=names[statement.kernel])
            elif isinstance(statement, Loop):
                statement = replace(statement, body=renamed(statement.body))
            out.append(statement)
        return tuple(out)

    return replace(
        design,
        sequences=tuple(_three_arguments(design, sequence) for sequence in design.sequences),
        kernels=tuple(
            replace(kernel, name=names[kernel.name], link_with=KERNELS.object_name) for kernel in design.kernels
        ),
        cores=tuple(replace(core, body=renamed(core.body), link_with=None) for core in design.cores),
    )


def _three_arguments(design: Design, sequence: Sequence) -> Sequence:
    inward = {fifo.name: fills(fifo) for fifo in design.fifos}
    ends: dict[int, int] = defaultdict(int)
    read = {task.argument for task in sequence.tasks if inward[task.fifo]}
    tasks = [_bytewise(task, sequence.arguments[task.argument].element_bytes) for task in sequence.tasks]
    for task in tasks:
        steps = zip(task.sizes, task.strides, strict=True)
        last = sum((size - 1) * stride for size, stride in steps) if task.sizes else task.length - 1
        ends[task.argument] = max(ends[task.argument], task.offset + last + 1)
    bases, lengths = {}, [0, 0, 0]
    for argument in sorted(ends):
        of_entry = 0 if argument in read else 2
        bases[argument] = of_entry, lengths[of_entry]
        lengths[of_entry] += ends[argument]
    moved = tuple(
        replace(task, argument=bases[task.argument][0], offset=task.offset + bases[task.argument][1]) for task in tasks
    )
    return replace(sequence, arguments=tuple(MemRef((max(1, n),), "i8") for n in lengths), tasks=moved)


def _bytewise(task: Task, width: int) -> Task:
    """Return a task that moves the same bytes of a buffer of bytes."""
    if not task.sizes:
        return replace(task, offset=task.offset * width, length=task.length * width)
    sizes, strides = list(task.sizes), [stride * width for stride in task.strides]
    if width > 1:
        assert task.strides[-1] == 1, "only whole elements in a row are the same bytes in a row"
        sizes[-1], strides[-1] = sizes[-1] * width, 1
    return replace(
        task, offset=task.offset * width, length=task.length * width, sizes=tuple(sizes), strides=tuple(strides)
    )


def any_kernels() -> str:
    """C++ of kernels that do nothing: without a word of theirs they count as reading and writing what they get."""
    return "".join(f'extern "C" void k{number}() {{}}\n' for number in range(MOST_KERNELS))


def inputs(design: Design, sequence: str) -> list[np.ndarray]:
    """Bytes for the arguments of a sequence."""
    of_sequence = next(one for one in design.sequences if one.name == sequence)
    return [np.arange(argument.elements, dtype=np.int64).astype(np.int8) for argument in of_sequence.arguments]

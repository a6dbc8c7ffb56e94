"""Measures what a large project costs, verb by verb, against its number of names.

Usage: .venv/bin/python benchmarks/scale.py [MODELS ...] [--write]     (default: 125 250 500; --write: docs/scale.md)

For each number of models a project is made: 24 names and 16 recipes a model, every name registered, every artifact
stored with its manifest, its inputs and the record of its build. ELFs are small random files: what is measured is what
looking at names costs. Each verb is a process of its own; its time and its greatest memory are the kernel's.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
sys.path[:0] = [str(HERE), str(CHECKOUT / "tests" / "support")]

from made_project import begin_project, made_models  # noqa: E402

from elfkiln.io.canonical import canonical_json  # noqa: E402
from elfkiln.project import Project  # noqa: E402
from elfkiln.store.artifacts import Artifact, Made, put_artifact  # noqa: E402
from elfkiln.store.blobs import Store  # noqa: E402
from elfkiln.store.recipe import Step, make_recipe  # noqa: E402
from elfkiln.store.registry import Entry, Registry, dump_registry  # noqa: E402

NAMES_EACH, RECIPES_EACH = 24, 16
ELF_BYTES = 2048
SHORT, REPEATS = 1.0, 5
PAGE = CHECKOUT / "docs" / "scale.md"
BEGIN, END = "<!-- figures: begin (benchmarks/scale.py --write) -->", "<!-- figures: end -->"

_MORE_ROWS = """\
  - {{role: QKV, K: {h}, N: {q3}, columns: 2}}
  - {{role: O, K: {q2}, N: {h}, columns: 2}}
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One verb on one project: seconds of wall clock and processor, and the greatest resident memory in MB."""

    verb: str
    names: int
    seconds: float
    cpu: float
    megabytes: float


def make_project(root: Path, models: int) -> tuple[Project, float]:
    """Make the project and return it with the seconds that storing its artifacts took."""
    project, rng = begin_project(root, checkout=CHECKOUT), random.Random(7)
    store = Store(project.store)
    entries: dict[str, Entry] = {}
    spent = 0.0
    # Waiting for the disk some 60,000 times measures the disk.
    os.fsync = lambda fd: None  # noqa: ARG005 as its own parameter is called
    for model, requirements in made_models(project, models, _MORE_ROWS):
        made: dict[str, Artifact] = {}
        for need in requirements:
            assert need.name is not None
            shape = need.name.shape
            if shape not in made:
                begin = time.monotonic()
                made[shape] = _stored(store, rng, f"{model} {shape}", shape, need.columns)
                spent += time.monotonic() - begin
            one = made[shape]
            entries[need.file_name] = Entry(one.elf, one.size, one.recipe, one.manifest, one.design, need.columns)
    begin = time.monotonic()
    store.settle()
    spent += time.monotonic() - begin
    project.registry_file.write_bytes(dump_registry(Registry({"sim": entries})))
    assert len(entries) == models * NAMES_EACH
    return project, spent


def _stored(store: Store, rng: random.Random, text: str, shape: str, columns: int) -> Artifact:
    steps = (Step("design.c", ("cc",), {"design.c": text.encode()}),)
    recipe = make_recipe("sim", {"zig": "0" * 64}, steps)
    return put_artifact(
        store, Made(recipe, steps, rng.randbytes(ELF_BYTES), f"module {text}", text, "", columns, shape)
    )


def run(verb: str, names: int, words: list[str], codes: tuple[int, ...] = (0,)) -> Figure:
    """Run `elfkiln` as a process and return what it cost; an exit code that is not expected ends the run.

    What takes less than a second is run five times, and the run in the middle counts: alone it shows the machine's
    other work as much as its own.
    """
    figure = _run_once(verb, names, words, codes)
    if figure.seconds >= SHORT:
        return figure
    more = [figure, *(_run_once(verb, names, words, codes) for _ in range(REPEATS - 1))]
    return sorted(more, key=lambda one: one.seconds)[REPEATS // 2]


def _run_once(verb: str, names: int, words: list[str], codes: tuple[int, ...]) -> Figure:
    program = str(CHECKOUT / ".venv" / "bin" / "elfkiln")
    with tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        actions = [(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, out.fileno(), 2)]
        process = os.posix_spawn(program, [program, *words], os.environ, file_actions=actions)
        # The kernel's own greatest size counts the memory that the process was spawned from.
        kilobytes, reaped = 0, 0
        while not reaped:
            kilobytes = max(kilobytes, _peak(process))
            time.sleep(0.01)
            reaped, status, usage = os.wait4(process, os.WNOHANG)
        seconds = time.monotonic() - begin
        if os.waitstatus_to_exitcode(status) not in codes:
            out.seek(0)
            sys.exit(f"{verb}: {words}: {out.read()[-2000:].decode(errors='replace')}")
    return Figure(verb, names, seconds, usage.ru_utime + usage.ru_stime, kilobytes / 1024)


def _peak(process: int) -> int:
    """Return the greatest resident memory of a process so far, in KiB."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return int(text.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in text else 0


def measure(project: Project, host: str, names: int, making: float) -> Iterator[Figure]:
    """Yield the figures of every verb on a project; `host` is a registry's."""
    root, everything = f"root={project.root}", ["model=all", "target=sim"]
    yield Figure("storing the artifacts", names, making, making, 0.0)
    yield run("plan (list)", names, ["list", "target=sim", root])
    yield run("lookup", names, ["lookup", *everything, root])
    yield run("lookup of one name", names, ["lookup", "full_i8_QKV_K512_N1536_b8.elf", "target=sim", root])
    # Once only: the second run finds what the first has kept.
    yield _run_once("check-missing, first", names, ["check-missing", *everything, root], (0,))
    yield run("check-missing, again", names, ["check-missing", *everything, root])
    push = ["push", f"oci://{host}/scale-{names}", *everything, "--plain-http", root]
    yield run("push, nothing to send", names, push)
    yield run("gc, dry run", names, ["gc", root])
    # Nobody's ELF is one: fsck says that of each (exit code 1), after all it looks at.
    yield run("fsck", names, ["fsck", root], codes=(0, 1, 3, 4))


@contextmanager
def registry(project: Project) -> Iterator[str]:
    """Serve a registry in memory that has everything of a project, by the tag scheme of referrers; yield HOST:PORT."""
    from oci_server import INDEX, MANIFEST, Registry, serving

    store = Store(project.store)
    state = Registry(referrers_api=False)
    for ref, descriptor in store.refs().items():
        data = store.read(descriptor.digest)
        state.manifests[f"sha256:{descriptor.digest}"] = (data, MANIFEST)
        if ref.startswith("recipe-"):
            state.manifests[ref] = (data, MANIFEST)
            continue
        subject = store.manifest(descriptor)["subject"]["digest"]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor.to_json()]}
        state.manifests[subject.replace(":", "-")] = (canonical_json(index), INDEX)
    with serving(state) as host:
        yield host


def table(figures: list[Figure]) -> list[str]:
    """Return the rows of the page: per verb the seconds at each size, growth per name, and memory at the largest."""
    sizes = sorted({one.names for one in figures})
    found = {(one.verb, one.names): one for one in figures}
    lines = [
        "| verb | " + " | ".join(f"{size:,} names" for size in sizes) + " | µs per name | growth | memory |",
        "|-|" + "-|" * (len(sizes) + 3),
    ]
    for verb in dict.fromkeys(one.verb for one in figures):
        row = [found[verb, size] for size in sizes]
        last, first = row[-1], row[0]
        per = last.seconds / last.names * 1e6
        growth = (last.seconds / first.seconds) / (last.names / first.names)
        memory = f"{last.megabytes:.0f} MB" if last.megabytes else "-"
        cells = " | ".join(f"{one.seconds:.2f} s" for one in row)
        lines.append(f"| {verb} | {cells} | {per:.0f} | {growth:.2f} | {memory} |")
    return lines


def main(words: list[str]) -> None:
    """Measure, print the table, and write it into the page where that was asked for."""
    sizes = [int(word) for word in words if word != "--write"] or [125, 250, 500]
    figures: list[Figure] = []
    for models in sizes:
        with tempfile.TemporaryDirectory(prefix="elfkiln-scale-") as scratch:
            project, making = make_project(Path(scratch) / "project", models)
            with registry(project) as host:
                for figure in measure(project, host, models * NAMES_EACH, making):
                    line = f"{figure.names:>6} {figure.verb:<24} {figure.seconds:8.2f} s {figure.megabytes:6.0f} MB"
                    print(line, flush=True)
                    figures.append(figure)
    lines = table(figures)
    print("\n".join(lines))
    if "--write" in words:
        text = PAGE.read_text()
        head, _, rest = text.partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{tail}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Measures elfkiln as ratios against named baselines, both taken in turn in the same run.

Usage: .venv/bin/python benchmarks/run.py [NAME ...] [--json] [--write-readme]     (an unknown NAME lists them)

Every figure is a median over paired runs: A, B, A, B, ... so that a drifting machine moves both; the spread is that of
the middle half of the ratios. Absolute times are printed for orientation only; quote the ratios. `--write-readme` puts
the rows into benchmarks/results.json, in the place of older ones of the same subject, and README's table is written
from that file.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
README = HERE.parent / "README.md"
BEGIN, END = "<!-- written by benchmarks/run.py --write-readme -->", "<!-- end -->"
# The plain loop over a microkernel is the tests' own, which check microkernels alone with it.
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]


@dataclass(frozen=True)
class Row:
    """One comparison: median seconds of both sides, and the median and quartiles of the paired ratios."""

    name: str
    subject: str
    baseline: str
    subject_seconds: float
    baseline_seconds: float
    ratio: float
    low: float
    high: float
    runs: int

    def line(self) -> str:
        """Return the line for a person."""
        times = f"{self.subject_seconds * 1e3:.1f} ms / {self.baseline_seconds * 1e3:.1f} ms, {self.runs} pairs"
        spread = f"{self.ratio:.2f} [{self.low:.2f} to {self.high:.2f}]"
        return f"{self.name:<14} {self.subject} / {self.baseline}: ratio {spread} ({times})"


def paired(
    name: str,
    subject: str,
    baseline: str,
    run_subject: Callable[[], float],
    run_baseline: Callable[[], float],
    runs: int,
) -> Row:
    """Time both sides in turn; each callable does one run and returns its seconds. The first pair is thrown away."""
    pairs = [(run_subject(), run_baseline()) for _ in range(runs + 1)][1:]
    ratios = sorted(one / other for one, other in pairs)
    return Row(
        name,
        subject,
        baseline,
        statistics.median(one for one, _ in pairs),
        statistics.median(other for _, other in pairs),
        statistics.median(ratios),
        ratios[len(ratios) // 4],
        ratios[-1 - len(ratios) // 4],
        runs,
    )


def machine() -> str:
    """Return what the rows were measured on: processors, memory, kernel, Python, and what else ran meanwhile."""
    model = "unknown processor"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Linux {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def write_readme(rows: Sequence[Row]) -> None:
    """Put rows into results.json and write README's table from it."""
    kept: dict[str, dict[str, object]] = {}
    if RESULTS.exists():
        kept = {f"{one['subject']} / {one['baseline']}": one for one in json.loads(RESULTS.read_text())}
    where = machine()
    kept |= {f"{row.subject} / {row.baseline}": {**asdict(row), "machine": where} for row in rows}
    order = {name: number for number, name in enumerate(_names())}
    known = (one for one in kept.values() if one["name"] in order)
    found = sorted(known, key=lambda one: (order[str(one["name"])], one["subject"]))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{readme_table(found)}{END}{after}")


def readme_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table, with the machines they were measured on below."""
    lines = ["| subject | baseline | ratio (middle half) | seen |", "|-|-|-|-|"]
    for row in rows:
        ratio = f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        seen = f"{_seconds(row['subject_seconds'])} / {_seconds(row['baseline_seconds'])}"
        lines.append(f"| {row['subject']} | {row['baseline']} | {ratio} | {seen} |")
    loads: dict[str, list[float]] = {}
    for row in rows:
        where, _, load = str(row["machine"]).rpartition(", load ")
        loads.setdefault(where, []).append(float(load))
    # What else ran meanwhile makes steps that wait for others look dearer than they are.
    lines += ["", *(f"Measured on {one}, load {min(all_):.1f} to {max(all_):.1f}." for one, all_ in loads.items())]
    return "\n".join(lines) + "\n"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.0f} ms"


def _names() -> list[str]:
    import measures

    return list(measures.MEASURES)


def main(words: Sequence[str]) -> int:
    """Run the named benchmarks (default: all) and print their rows."""
    if "-h" in words or "--help" in words:
        print(__doc__)
        return 0
    import measures

    wanted = [word for word in words if not word.startswith("--")] or list(measures.MEASURES)
    unknown = [word for word in wanted if word not in measures.MEASURES]
    if unknown:
        print(f"benchmarks: no measure {unknown[0]!r}; there are {', '.join(measures.MEASURES)}", file=sys.stderr)
        return 2
    # Where PYTHONDONTWRITEBYTECODE is set, every process would compile what it imports.
    compileall.compile_dir(HERE.parent / "src", quiet=1)
    rows: list[Row] = []
    scratch = Path(tempfile.mkdtemp(prefix="elfkiln-benchmarks-"))
    try:
        for name in wanted:
            for row in measures.MEASURES[name](scratch):
                rows.append(row)
                if "--json" not in words:
                    print(row.line(), flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if "--write-readme" in words:
        write_readme(rows)
    if "--json" in words:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(machine())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

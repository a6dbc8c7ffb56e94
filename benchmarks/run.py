"""Measures elfkiln as ratios against named baselines, both taken in turn in the same run.

Usage: .venv/bin/python benchmarks/run.py [NAME ...] [--json]     (an unknown NAME lists them)

Every figure is a median over paired runs: A, B, A, B, ... so that a drifting machine moves both. Absolute times are
printed for orientation only; quote the ratios.
"""

from __future__ import annotations

import compileall
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The plain loop over a microkernel is the tests' own, which check microkernels alone with it.
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "support")]


@dataclass(frozen=True)
class Row:
    """One comparison: median seconds of both sides and the median of the paired ratios."""

    name: str
    subject: str
    baseline: str
    subject_seconds: float
    baseline_seconds: float
    ratio: float
    runs: int

    def line(self) -> str:
        """Return the line for a person."""
        return (
            f"{self.name:<14} {self.subject} / {self.baseline}: ratio {self.ratio:.2f} "
            f"({self.subject_seconds * 1e3:.1f} ms / {self.baseline_seconds * 1e3:.1f} ms, {self.runs} pairs)"
        )


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
    return Row(
        name,
        subject,
        baseline,
        statistics.median(one for one, _ in pairs),
        statistics.median(other for _, other in pairs),
        statistics.median(one / other for one, other in pairs),
        runs,
    )


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
    if "--json" in words:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

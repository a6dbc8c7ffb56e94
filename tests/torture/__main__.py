"""The whole torture: `.venv/bin/python tests/torture [--part 0.1] [--every 10] [--seconds 60]
[--jobs 2] [--write]`.

`--part` is the share of the calls at which faults come, `--every` takes one byte of so many, `--seconds` is for how
long many processes do everything at once. `--write` puts the figures into docs/reliability.md. Ends with 1 when
anything was not survived.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "tests"), str(CHECKOUT / "tests" / "support")]

from torture.torture_campaign import KINDS, run_all  # noqa: E402

PAGE = CHECKOUT / "docs" / "reliability.md"
BEGIN, END = "<!-- figures of the torture -->", "<!-- end of the figures -->"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=float, default=1.0)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true")
    words = parser.parse_args()
    # No plug is pulled, so where the files are decides nothing but how long it takes.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="torture-", dir=memory) as folder:
        os.chdir(folder)
        share = {"part": words.part, "every": words.every, "seconds": words.seconds, "jobs": words.jobs}
        outcome, seconds = run_all(folder, say, **share)
        trace = Path(folder) / "torture-trace"
        if trace.exists():
            say(trace.read_text())
        os.chdir(CHECKOUT)
    text = figures(outcome, words, seconds)
    say(text)
    if words.write:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{text}\n{END}", page, flags=re.S))
    return 1 if outcome.wrong else 0


def say(line):
    print(line, flush=True)  # noqa: T201


def figures(outcome, words, seconds):
    """Return the figures as a table and a sentence."""
    counts = outcome.counts
    commands = sorted({name.partition(": ")[0] for name in counts if name.partition(": ")[2] in KINDS})
    rows = ["| command | " + " | ".join(KINDS) + " |", "|-|" + "-|" * len(KINDS)]
    rows += [f"| {one} | " + " | ".join(str(counts[f"{one}: {kind}"]) for kind in KINDS) + " |" for one in commands]
    flips = {name.partition(": ")[2]: count for name, count in counts.items() if name.startswith("flip: ")}
    mixed = Counter({name.partition(": ")[2]: count for name, count in counts.items() if name.startswith("mix: ")})
    killed = mixed.pop("processes killed", 0)
    share = "every call" if words.part >= 1 else f"{100 * words.part:g} % of the calls, drawn"
    bytes_of = "each byte" if words.every == 1 else f"one byte in {words.every}"
    rows += [
        "",
        f"Faults at {share}; {sum(flips.values())} bits flipped ({bytes_of} of {len(flips)} kinds of file);",
        f"{counts['clock of 1970'] + counts['clock of 2100']} commands with the clock at 1970 and 2100.",
        f"{sum(mixed.values())} commands by 8 processes at once in {words.seconds:g} s, {killed} processes killed.",
        f"Not survived: {len(outcome.wrong)}. The run took {seconds / 60:.0f} minutes.",
        "",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())

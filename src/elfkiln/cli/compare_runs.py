"""`elfkiln compare-runs`: the engine's compare gate on two logs."""

from __future__ import annotations

import math
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused, refusal
from elfkiln.studies.compare_runs import (
    MAX_TOLERANCE,
    Verdict,
    compare_figures,
    compare_texts,
    control_tolerance,
    read_run,
    refuse_own_controls,
    self_test,
)


def run(arguments: Arguments) -> int:
    """Compare; return 1 when a text differs or a timing is worse than allowed."""
    if "--self-test" in arguments.flags:
        return _self_test(json=arguments.json)
    if len(arguments.words) != 2:
        raise Refused("compare-runs: takes two logs, A.log B.log")
    judges = ("--tol" in arguments.valued, "--control" in arguments.paired, "--texts" in arguments.flags)
    if sum(judges) != 1:
        raise Refused(
            "compare-runs: timings are judged only against --tol PCT or --control C1 C2; give one of them, "
            "or --texts to compare texts alone"
        )
    one, other = (read_run(Path(word)) for word in arguments.words)
    verdicts = compare_texts(one, other)
    if "--tol" in arguments.valued:
        verdicts += compare_figures(one, other, _percent(arguments.valued["--tol"]))
    elif "--control" in arguments.paired:
        controls = [Path(word) for word in arguments.paired["--control"]]
        refuse_own_controls([Path(word) for word in arguments.words], controls)
        first, second = (read_run(path) for path in controls)
        verdicts += compare_figures(one, other, control_tolerance(first, second, one))
    failed = [verdict for verdict in verdicts if verdict.fails]
    if arguments.json:
        print_json({"passed": not failed, "compared": [_row(verdict) for verdict in verdicts]})
    else:
        for verdict in verdicts:
            print(f"{'FAIL' if verdict.fails else 'ok':<5}{verdict.kind:<7} {verdict.subject}: {verdict.what}")
        print(f"{len(verdicts)} compared, {len(failed)} failed")
    return EXIT_DIFFERS if failed else EXIT_DONE


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_TOLERANCE * 100:
        expected = f"a percentage from 0 to {MAX_TOLERANCE * 100:g}"
        raise refusal("compare-runs: --tol", expected=expected, found=repr(text))
    return value / 100


def _self_test(*, json: bool) -> int:
    cases = self_test()
    passed = all(right for _, right in cases)
    if json:
        print_json({"passed": passed, "cases": dict(cases)})
    else:
        for case, right in cases:
            print(f"{'ok' if right else 'WRONG':<6}{case}")
    return EXIT_DONE if passed else EXIT_DIFFERS


def _row(verdict: Verdict) -> dict[str, object]:
    return {"kind": verdict.kind, "subject": verdict.subject, "what": verdict.what, "fails": verdict.fails}

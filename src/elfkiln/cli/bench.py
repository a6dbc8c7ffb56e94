"""`elfkiln bench model=...`: times of a model's ELFs on the device, if they are right, beside the predicted."""

from __future__ import annotations

import os
import sys

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, sets_of, target_of
from elfkiln.errors import EXIT_DONE, Refused, one_of, refusal
from elfkiln.targets.npu2.device.results import DeviceResult, table
from elfkiln.targets.npu2.device.series import DeviceOptions

MODES = ("default", "powersaver", "balanced", "performance", "turbo", "any")
_MOST = 100_000


def run(arguments: Arguments) -> int:
    """Time every ELF of every set asked for; return 1 when one is wrong or could not be run."""
    mode = arguments.keys.get("pmode", "any")
    if mode not in MODES:
        raise refusal("pmode", expected=one_of(mode, MODES), found=mode)
    iterations = _count(arguments, "iterations", 50)
    if not iterations:
        raise Refused("bench: iterations: expected 1 or more, found 0; verify on=device takes no times")
    options = DeviceOptions(iterations, _count(arguments, "warmup", 10), None if mode == "any" else mode)
    return run_sets(arguments, options, "bench")


def _count(arguments: Arguments, key: str, default: int) -> int:
    text = arguments.keys.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and int(text) <= _MOST):
        raise refusal(key, expected=f"a number up to {_MOST}", found=text)
    return int(text)


def run_sets(arguments: Arguments, options: DeviceOptions, verb: str) -> int:
    """Run every set asked for on the device and print a table, or its JSON; return the highest exit code."""
    from elfkiln.work.on_device import run_on_device

    project = project_of(arguments)
    target = target_of(project, arguments)
    code = EXIT_DONE
    sets = []

    def say(result: DeviceResult) -> None:
        # Such a run takes minutes; the table comes at the end, because a twin needs both of its results.
        print(f"elfkiln: {result.outcome} {', '.join(result.names)}", file=sys.stderr, flush=True)

    for wanted in sets_of(project, arguments, verb):
        found = run_on_device(project, target, wanted, options, environ=os.environ, say=say, times=verb == "bench")
        code = max(code, found.series.exit_code)
        sets.append(found.to_json())
        if not arguments.json:
            print(f"{wanted.model} {wanted.layout}, target {target}, on the device")
            for line in table(found.series, found.predicted):
                print(line)
        if found.attested:
            kept = f"{len(found.attested)} statements kept"
            print(f"elfkiln: {kept}; elfkiln attestations shows them, sign seals them", file=sys.stderr)
        if found.series.stopped:
            break
    if arguments.json:
        print_json({"target": target, "sets": sets})
    return code

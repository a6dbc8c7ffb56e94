"""`elfkiln verify model=...`: run every ELF and compare every int32 with numpy."""

from __future__ import annotations

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, sets_of
from elfkiln.cli.elfs import job_count
from elfkiln.errors import EXIT_DONE, Refused, refusal
from elfkiln.targets.table import builder_for
from elfkiln.targets.target import headline_of


def run(arguments: Arguments) -> int:
    """Verify every set asked for; return 1 when one comparison fails."""
    import os
    import time

    from elfkiln.work.check_results import attest_by_name
    from elfkiln.work.verify import Gauge, exit_code_of, said_of_names, verify_configuration, verify_set

    if "on" in arguments.keys:
        return _on_device(arguments)
    project = project_of(arguments)
    builder = builder_for(project, arguments.keys.get("target"))
    jobs = job_count(arguments.valued.get("-n")) or os.cpu_count() or 1
    quiet = arguments.json or "--quiet" in arguments.flags
    code = EXIT_DONE
    tables = []
    if not arguments.json:
        print(headline_of(builder), flush=True)
    for wanted in sets_of(project, arguments, "verify"):

        def say(line: str) -> None:
            if not quiet or (line.startswith("FAILED") and not arguments.json):
                print(line, flush=True)

        gauge, started = Gauge(), time.perf_counter()
        results = verify_set(project, builder, wanted, jobs=jobs, say=say, gauge=gauge)
        seconds = time.perf_counter() - started
        attest_by_name(project, builder.pin.name, wanted, said_of_names(results), verify_configuration())
        code = max(code, exit_code_of(results))
        failed = sum(not result.passed for result in results)
        if not quiet:
            rate = f"{gauge.operations / 1e9:,.1f} GOP simulated and compared in {seconds:.1f} s"
            print(f"{rate}: {gauge.operations / 1e9 / seconds:,.1f} GOP/s, {jobs} geometries at once")
        if not arguments.json:
            print(f"{wanted.model} {wanted.layout}, target {builder.pin.name}: {len(results)} checks, {failed} failed")
        tables.append(
            {
                "model": wanted.model,
                "layout": wanted.layout,
                "operations": gauge.operations,
                "seconds": seconds,
                "at_once": jobs,
                "checks": [result.to_json() for result in results],
            }
        )
    if arguments.json:
        print_json({"target": builder.pin.name, "sets": tables})
    return code


def _on_device(arguments: Arguments) -> int:
    """Run the set's registered ELFs on the device, each checked and run some times more."""
    from elfkiln.cli.bench import run_sets
    from elfkiln.targets.npu2.device.series import DeviceOptions

    if arguments.keys["on"] != "device":
        raise refusal("on", expected="device, or no on= to run the designs on this machine", found=arguments.keys["on"])
    if "-n" in arguments.valued:
        raise Refused("verify: -n does not go with on=device: one ELF runs at a time")
    return run_sets(arguments, DeviceOptions(), "verify")

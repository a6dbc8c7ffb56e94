"""What ELFs did on a device, as statements beside them: a test result, and the times that `bench` took.

Only what was run is stated: an ELF that no check came to (no device, an earlier hang) gets no statement. Equal outcomes
on equal machines are one statement. No time of day, host, bus address or process enters one; `sign` seals them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from elfkiln.store.attestations import attest, result_predicate, statement
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry
from elfkiln.store.statement_types import TEST_RESULT
from elfkiln.targets.npu2.device.machine_state import MachineState
from elfkiln.targets.npu2.device.results import DeviceResult, DeviceSeries, TwinCheck

DEVICE_TIMES = "urn:elfkiln:device-times:1"
"""Predicate of times: `device` (as in a test result), `timings` in nanoseconds, `predicted_seconds` by instance."""

_OF_THE_MACHINE = ("device", "power_mode", "driver", "driver_build", "firmware", "xrt", "tdr_timeout_ms")


def state_series(
    store: Store,
    series: DeviceSeries,
    entries: Iterable[Entry],
    predicted: Mapping[tuple[str, str], float],
    *,
    times: bool,
) -> tuple[str, ...]:
    """Store a statement for each ELF of a series that was run, and return their manifests' digests (hex).

    `entries` are those of the ELFs, `predicted` the seconds by (sha256 of the ELF, instance); with `times` the timed
    runs of right ELFs are stated, too. Raises `Refused` when the store cannot be written.
    """
    manifests = {entry.elf: entry.manifest for entry in entries}
    made = []
    with store.in_use():
        for result in series.results:
            if not result.checks or result.elf not in manifests:
                continue
            name = result.names[0]
            twins = [twin for twin in series.twins if twin.twin in result.names]
            said = [statement(name, result.elf, TEST_RESULT, tested(result, twins))]
            if times and result.timings and result.outcome == "right":
                said.append(statement(name, result.elf, DEVICE_TIMES, _timed(result, predicted)))
            made += [attest(store, manifests[result.elf], data, signed=False) for data in said]
    return tuple(made)


def tested(result: DeviceResult, twins: Iterable[TwinCheck]) -> dict[str, Any]:
    """Return the predicate of a test result: each check by instance, inputs and run, each twin by the other's name."""
    verdicts = [(f"{one.instance}, {one.inputs}, {one.when}", not one.mismatched) for one in result.checks]
    verdicts += [(f"the first rows of {one.other}", not one.mismatched) for one in twins]
    if result.fault is not None:
        verdicts.append((f"runs to its end: {result.fault.kind}", False))
    passed = list(dict.fromkeys(name for name, good in verdicts if good))
    failed = list(dict.fromkeys(name for name, good in verdicts if not good))
    inputs = {"name": "inputs", "annotations": {"seed": str(result.seed)}}
    machine = {"name": "device", "annotations": _machine(result.before)}
    return result_predicate([name for name in passed if name not in failed], failed, [], [inputs, machine])


def _timed(result: DeviceResult, predicted: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    rows = [{key: value for key, value in one.to_json().items() if key != "nanoseconds"} for one in result.timings]
    seconds = {one.instance: predicted.get((result.elf, one.instance)) for one in result.timings}
    return {"device": _machine(result.before), "timings": rows, "predicted_seconds": seconds}


def _machine(state: MachineState) -> dict[str, str]:
    """Return what of a machine bears on a result, as text; what is not known is left out."""
    known = asdict(state)
    return {name: str(known[name]) for name in _OF_THE_MACHINE if known[name] is not None}

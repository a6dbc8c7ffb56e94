"""Predicts the time of a design from the design alone.

    T = max( tasks * task,
             shim bytes / fabric-both,
             groups * [ steps * max(core, stream, channel, fabric) + C stall + c-shown * C fabric ] )

A *group* is one tile of C on every core, a *step* one call of the matmul kernel: a K tile. All of it is counted from
the design's taps, links and core programs (`design.traffic`); the constants are `hardware.timing`, the kernels' cycles
`families.kernel_costs`. docs/performance.md derives it and says how well the published points are met. Nothing here
was run on a device: what comes out is a prediction, with the range that the sources leave open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elfkiln.design.model import Design, Kernel, MemRef, Sequence
from elfkiln.design.traffic import Traffic, Transfer, traffic_of
from elfkiln.engine.contract import ARGUMENT_B, ARGUMENT_C
from elfkiln.errors import Refused
from elfkiln.families.kernel_costs import matmul_cycles
from elfkiln.hardware.timing import constant

Resource = Literal["core", "stream", "channel", "fabric", "controller"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of one sequence of a design. Times in seconds, per launch, without the launch itself.

    `seconds` is the central value, `low` and `high` the range that the constants' ranges leave. `resources` are the
    seconds that each resource is busy; `binds` is the one that decides, and `unbound` the time if it were free, with
    `next` deciding. `roof` is the time of the bytes alone at the array's full rate.
    """

    sequence: str
    seconds: float
    low: float
    high: float
    resources: Mapping[Resource, float]
    binds: Resource
    next: Resource
    unbound: float
    roof: float
    tasks: int
    groups: int
    steps: int
    weight_bytes: int
    shim_bytes: int
    short_runs: int
    shortest_run: int
    operations: int

    @property
    def tops(self) -> float:
        """Operations (two a product) a second, in units of 10**12."""
        return self.operations / self.seconds / 1e12

    @property
    def weights_rate(self) -> float:
        """Weight bytes a second."""
        return self.weight_bytes / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: seconds, bytes, operations a second."""
        return {
            "kind": "prediction",
            "sequence": self.sequence,
            "seconds": self.seconds,
            "range_seconds": [self.low, self.high],
            "binds": self.binds,
            "next": {"resource": self.next, "seconds": self.unbound},
            "roof_seconds": self.roof,
            "busy_seconds": dict(self.resources),
            "tasks": self.tasks,
            "groups": self.groups,
            "steps": self.steps,
            "weight_bytes": self.weight_bytes,
            "shim_bytes": self.shim_bytes,
            "short_runs": self.short_runs,
            "shortest_run_bytes": self.shortest_run,
            "weight_bytes_per_second": self.weights_rate,
            "tops": self.tops,
        }


@dataclass(frozen=True, slots=True)
class Launch:
    """What the formula needs to know of one launch, whoever counted it: a design's taps or a published table.

    `core_cycles` is the kernel's (central, low, high) of one step; `stream_bytes` the most that one stream carries to
    a core or out of a mem tile in a step; `fills` and `drains` the shim's transfers of the whole launch.
    """

    groups: int
    steps: int
    core_cycles: tuple[float, float, float]
    stream_bytes: float
    c_tile_bytes: int
    tasks: int
    fills: tuple[Transfer, ...]
    drains: tuple[Transfer, ...]


def predict_design(design: Design) -> tuple[Prediction, ...]:
    """Return a prediction for each GEMM sequence of a design, in the module's order.

    Raises `Refused` when there is none, or when its taps, kernels or objects are not those of a GEMM.
    """
    # A sealed design's first sequence only loads the PDI.
    moving = (one for one in design.sequences if one.tasks and len(one.arguments) > ARGUMENT_C)
    found = tuple(predict_sequence(design, one) for one in moving)
    if not found:
        raise Refused(f"{design.name}: expected a sequence with arguments A, B and C, found none to predict")
    return found


def predict_sequence(design: Design, sequence: Sequence) -> Prediction:
    """Return the prediction of one sequence; raises `Refused` when it is not a GEMM the model can follow."""
    try:
        traffic = traffic_of(design, sequence)
        kernel, calls, cores = _matmul(design, traffic)
        a, _, c = (one for one in kernel.parameters if isinstance(one, MemRef))
        (m, k), n = a.shape, c.shape[-1]
        launch = _launch_of(design, traffic, calls, matmul_cycles(kernel.name, m, k, n), c.bytes)
    except (ValueError, KeyError) as error:
        raise Refused(f"{sequence.name}: the model of time cannot follow it: {error}") from error
    parts = (*launch.fills, *launch.drains)
    busy = busy_seconds(launch, CENTRAL)
    binds, following = sorted(busy, key=lambda resource: -busy[resource])[:2]
    full = int(constant("full-run").value)
    seconds = launch_seconds(launch, CENTRAL)
    return Prediction(
        sequence.name,
        seconds,
        min(seconds, launch_seconds(launch, LOW)),
        max(seconds, launch_seconds(launch, HIGH), launch_seconds(launch, ONE_CHANNEL)),
        busy,
        binds,
        following,
        launch_seconds(launch, CENTRAL, free=binds),
        sum(one.bytes for one in parts) / constant("fabric-both").value,
        launch.tasks,
        launch.groups,
        launch.steps,
        sum(one.bytes for one in parts if one.argument == ARGUMENT_B),
        sum(one.bytes for one in parts),
        sum(one.short_runs(full) for one in parts),
        min(length for one in parts for length, _ in one.runs),
        2 * calls * cores * m * k * n,
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """Which end of every constant's range is taken, and how a short run is read (see `launch_seconds`)."""

    end: Literal["value", "low", "high"]
    one_channel: bool = False

    def __call__(self, name: str) -> float:
        """Return the constant's value at this end."""
        return float(getattr(constant(name), self.end))


CENTRAL, LOW, HIGH = Reading("value"), Reading("low"), Reading("high")
ONE_CHANNEL = Reading("high", one_channel=True)


def launch_seconds(launch: Launch, reading: Reading, *, free: Resource | None = None) -> float:
    """Return the time of one launch in seconds, without the launch itself.

    Short runs cost the whole array `run` each, or, read as `one_channel`, the channel that makes them `run-channel`:
    published figures allow both. `free` is a resource that is taken to cost nothing.
    """
    step = _step_seconds(launch, reading)
    if free in step:
        step[free] = 0.0
    both = sum(one.bytes for one in (*launch.fills, *launch.drains)) / reading("fabric-both")
    controller = 0.0 if free == "controller" else launch.tasks * reading("task")
    c_fabric = 0.0 if free == "fabric" else _fabric(launch.drains, "fabric-write", reading) / launch.groups
    group = launch.steps * max(step.values()) + _c_stall(launch, reading) + reading("c-shown") * c_fabric
    return max(controller, 0.0 if free == "fabric" else both, launch.groups * group)


def busy_seconds(launch: Launch, reading: Reading) -> dict[Resource, float]:
    """Return for how many seconds of a launch each resource is busy."""
    step = _step_seconds(launch, reading)
    turns = launch.groups * launch.steps
    busy: dict[Resource, float] = {resource: turns * seconds for resource, seconds in step.items()}
    busy["stream"] += launch.groups * launch.c_tile_bytes / _stream_rate(reading)
    busy["fabric"] += _fabric(launch.drains, "fabric-write", reading) * reading("c-shown")
    busy["controller"] = launch.tasks * reading("task")
    return busy


def _step_seconds(launch: Launch, reading: Reading) -> dict[Resource, float]:
    """Return what one step costs each resource that works step by step."""
    clock, turns = reading("clock"), launch.groups * launch.steps
    cycles = launch.core_cycles[("value", "low", "high").index(reading.end)] + reading("lock")
    full, short = int(constant("full-run").value), reading("run-channel") if reading.one_channel else 0.0
    channels = [one.bytes / reading("channel") + one.short_runs(full) * short for one in launch.fills]
    return {
        "core": cycles / clock,
        "stream": launch.stream_bytes / _stream_rate(reading),
        "channel": max(channels, default=0.0) / turns,
        "fabric": _fabric(launch.fills, "fabric-read", reading) / turns,
    }


def _stream_rate(reading: Reading) -> float:
    return reading("stream") * reading("clock")


def _fabric(transfers: tuple[Transfer, ...], rate: str, reading: Reading) -> float:
    """Return the seconds that the whole array's fabric needs for transfers: their bytes, and their short runs."""
    full = int(constant("full-run").value)
    runs = sum(one.short_runs(full) for one in transfers)
    return sum(one.bytes for one in transfers) / reading(rate) + runs * reading("run")


def _c_stall(launch: Launch, reading: Reading) -> float:
    """Return what a core waits in each group: its one tile of C is sent away and zeroed before the next begins."""
    return launch.c_tile_bytes / _stream_rate(reading) + reading("c-group")


def _matmul(design: Design, traffic: Traffic) -> tuple[Kernel, int, int]:
    """Return the kernel that multiplies, how often each core calls it, and on how many cores."""
    kernels = {kernel.name: kernel for kernel in design.kernels}
    found = [
        (kernels[one.kernel], one.calls, one.cores)
        for one in traffic.calls
        if one.calls and sum(isinstance(parameter, MemRef) for parameter in kernels[one.kernel].parameters) == 3
    ]
    if len(found) != 1:
        raise ValueError(
            f"expected one kernel over tiles of A, B and C, equally often on each core, found {len(found)}"
        )
    return found[0]


def _launch_of(design: Design, traffic: Traffic, calls: int, cycles: tuple[float, float, float], c_tile: int) -> Launch:
    fills = tuple(one for one in traffic.transfers if one.into_array)
    drains = tuple(one for one in traffic.transfers if not one.into_array)
    carried = dict(traffic.fifo_bytes)
    outputs = {one.name for one in design.fifos if one.producer.kind == "core"}
    joined = {name for link in design.links if outputs & set(link.ins) for name in link.outs}
    groups = max(
        (carried.get(one.name, 0) // one.object_type.bytes for one in design.fifos if one.name in outputs), default=0
    )
    if not groups or not drains or not fills:
        raise ValueError("expected fills of A and B and drains of C, found a sequence without one of them")
    inputs = [size for name, size in carried.items() if name not in outputs | joined]
    steps = calls // groups
    if not steps:
        raise ValueError(f"{calls} calls of the kernel for {groups} tiles of C on a core")
    return Launch(groups, steps, cycles, max(inputs) / (groups * steps), c_tile, traffic.tasks, fills, drains)

"""What came of ELFs on a device, as data: checks, times, the machine's state, and the table a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.targets.npu2.device.faults import Fault
from elfkiln.targets.npu2.device.machine_state import MachineState

When = Literal["first", "again", "after"]
Outcome = Literal["right", "wrong", "fault", "not run"]


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """C of one run against numpy: `when` is the first run, one on the array it left, or one after the timed runs.

    `first` is (row, column, expected, found) of the first element that differs; `untouched` elements still had the
    poison that C was filled with.
    """

    instance: str
    inputs: str
    when: When
    elements: int
    mismatched: int
    largest: int
    first: tuple[int, int, int, int] | None
    untouched: int
    zero: bool

    @property
    def line(self) -> str:
        """What is wrong, on one line; a hint where the pattern is a known one."""
        text = f"{self.instance}, {self.inputs}, {self.when}: {self.mismatched} of {self.elements} int32 differ"
        if self.first is not None:
            row, column, expected, found = self.first
            text += f", first at row {row} column {column}: expected {expected}, found {found}"
        if self.untouched:
            text += f"; {self.untouched} were never written"
        elif self.zero:
            text += "; all zeros: nothing was computed, is the device of this generation?"
        elif self.when == "again":
            text += "; the first run was right: the design is right on a fresh array only"
        return text


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one instance's runs, start and wait alone, in nanoseconds, in their order."""

    instance: str
    warmup: int
    nanoseconds: tuple[int, ...]

    @property
    def median(self) -> float:
        """The median, in nanoseconds."""
        return float(median(self.nanoseconds))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value with the usual figures."""
        ordered = sorted(self.nanoseconds)
        middle = self.median
        return {
            "instance": self.instance,
            "warmup": self.warmup,
            "runs": len(ordered),
            "median_ns": middle,
            "mad_ns": float(median(abs(one - middle) for one in ordered)),
            "p95_ns": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
            "min_ns": ordered[0],
            "max_ns": ordered[-1],
            "nanoseconds": list(self.nanoseconds),
        }


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One ELF on the device. `names` are those it is registered under, `elf` its sha256, `seed` that of the inputs."""

    names: tuple[str, ...]
    elf: str
    seed: int
    checks: tuple[DeviceCheck, ...]
    timings: tuple[Timing, ...]
    fault: Fault | None
    before: MachineState
    after: MachineState
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Whether it is right, as far as it was run."""
        if self.fault is not None:
            return "fault"
        if any(check.mismatched for check in self.checks):
            return "wrong"
        return "right" if self.checks else "not run"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {
            "names": list(self.names),
            "elf": f"sha256:{self.elf}",
            "seed": self.seed,
            "outcome": self.outcome,
            "checks": [asdict(check) for check in self.checks],
            "timings": [timing.to_json() for timing in self.timings],
            "fault": None if self.fault is None else asdict(self.fault),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class TwinCheck:
    """C of a 16-row ELF against the first rows of C of the 128-row one, both from the device, on the same inputs."""

    twin: str
    other: str
    elements: int
    mismatched: int
    largest: int


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """A series of ELFs on one device, as far as it went; `left` are names not come to, `stopped` says why."""

    results: tuple[DeviceResult, ...]
    twins: tuple[TwinCheck, ...]
    left: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def exit_code(self) -> int:
        """0 when everything was run and was right, else 1."""
        right = bool(self.results) and all(result.outcome == "right" for result in self.results)
        return EXIT_DONE if right and not self.left and not any(t.mismatched for t in self.twins) else EXIT_DIFFERS

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {
            "schema": "elfkiln-device/1",
            "results": [result.to_json() for result in self.results],
            "twins": [asdict(twin) for twin in self.twins],
            "left": list(self.left),
            "stopped": self.stopped,
        }


def table(series: DeviceSeries, predicted: Mapping[tuple[str, str], float]) -> list[str]:
    """Return the lines of the table a person reads; `predicted` has seconds by (sha256 of the ELF, instance)."""
    lines = []
    for result in series.results:
        name = ", ".join(result.names)
        right = sum(not check.mismatched for check in result.checks)
        lines.append(f"{result.outcome:<8} {name}: {right} of {len(result.checks)} checks right")
        lines += [f"         {check.line}" for check in result.checks if check.mismatched]
        if result.fault is not None:
            lines.append(f"         {result.fault.line}")
        for timing in result.timings:
            figures = timing.to_json()
            seconds = predicted.get((result.elf, timing.instance))
            beside = "" if seconds is None else f", predicted {seconds * 1e6:.0f}"
            lines.append(
                f"         {timing.instance}: median {timing.median / 1e3:.0f} us ({figures['min_ns'] / 1e3:.0f} to "
                f"{figures['max_ns'] / 1e3:.0f}, {figures['runs']} runs){beside}"
            )
        lines += [f"         note: {note}" for note in result.notes]
    for twin in series.twins:
        verdict = "right" if not twin.mismatched else "wrong"
        lines.append(
            f"{verdict:<8} {twin.twin} against {twin.other}: mismatched={twin.mismatched} maxdiff={twin.largest} "
            f"of {twin.elements}"
        )
    lines += [f"not run  {name}" for name in series.left]
    if series.stopped:
        lines.append(f"stopped: {series.stopped}")
    return lines

"""Runs a series of ELFs on the device, one child process each, under a lock, and stops at the first that hangs."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elfkiln.errors import Refused
from elfkiln.io.child import GIB, MIB, ChildStopped, Limits, run_child
from elfkiln.io.locking import locked
from elfkiln.targets.npu2.device import session
from elfkiln.targets.npu2.device.faults import NOT_THIS_MACHINE, Fault, fault_of
from elfkiln.targets.npu2.device.machine_state import GENERATION, MachineState, read_state
from elfkiln.targets.npu2.device.results import DeviceCheck, DeviceResult, DeviceSeries, Timing, TwinCheck

PYXRT = "ELFKILN_PYXRT"
"""The folder that pyxrt lies in, where Python does not find it by itself."""

PYTHON = "ELFKILN_DEVICE_PYTHON"
"""The Python that pyxrt was built for, where it is another one than elfkiln's; it needs numpy."""

XRT_FOLDER = Path("/opt/xilinx/xrt/python")
_PASSED = ("PATH", "HOME", "XILINX_XRT", "LD_LIBRARY_PATH", "XRT_INI_PATH")

WAIT_MS = 10_000
"""How long a run may take. More than the driver's own 2 s, so that the driver is heard first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of inputs in files of numpy: A (128 rows), B as it lies in the buffer, and what C must be."""

    inputs: str
    a: Path
    b: Path
    want: Path


@dataclass(frozen=True, slots=True)
class DeviceInstance:
    """One sequence of an ELF with the GEMM it computes, the sequence that has to run before it, and its inputs."""

    name: str
    before: str | None
    M: int
    K: int
    N: int
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class DeviceCase:
    """One ELF to run: the names it is registered under, its file, its sha256, and its sequences."""

    names: tuple[str, ...]
    elf: Path
    sha256: str
    instances: tuple[DeviceInstance, ...]


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How a series is run: timed runs and those before them, the power mode it must find, and where things are.

    `seconds` is how long one ELF's process may live; `root` is where sysfs lies, `smi` the program xrt-smi.
    """

    iterations: int = 10
    warmup: int = 0
    power_mode: str | None = None
    seconds: float = 600.0
    wait_ms: int = WAIT_MS
    root: Path = Path("/")
    smi: str | None = "xrt-smi"
    lock: Path | None = None


def write_trial(folder: Path, inputs: str, a: NDArray[Any], packed: NDArray[Any], want: NDArray[Any]) -> Trial:
    """Write one set of inputs into files below `folder`; `want` is stored as the int32 that C holds."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{inputs}.{letter}.npy" for letter in ("a", "b", "want")]
    for path, array in zip(paths, (a, packed, want.astype(np.int32)), strict=True):
        np.save(path, array)
    return Trial(inputs, *paths)


def as_it_is(case: DeviceCase) -> DeviceCase:
    """Return the case: the `prepare` of one whose inputs are there already."""
    return case


def run_series(
    cases: Sequence[DeviceCase],
    *,
    seed: int,
    folder: Path,
    options: DeviceOptions,
    environ: Mapping[str, str],
    say: Callable[[DeviceResult], None] = lambda _result: None,
    prepare: Callable[[DeviceCase], DeviceCase] = as_it_is,
) -> DeviceSeries:
    """Run every case on device 0, one at a time, and return what came of each; `say` gets each result when it is there.

    `prepare` is asked for a case just before it is run, so that not all inputs need lie on the disk at once. `folder`
    is a private one for files between processes. A fault that leaves nothing to hope for (no device, a hang) ends the
    series; what was not run is listed. Raises `Refused` when the power mode is not the one asked for or the device is
    of another generation, `Differs` when another process keeps the device.
    """
    lock = options.lock or Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), "elfkiln-npu0.lock")
    results: list[DeviceResult] = []
    kept: dict[str, Path] = {}
    waiting = list(cases)
    stopped = ""
    with locked(lock, "the NPU"):
        while waiting and not stopped:
            case = waiting.pop(0)
            result = _run_case(prepare(case), seed, folder, options, environ, kept)
            if result.fault is not None and result.fault.kind == NOT_THIS_MACHINE:
                raise Refused(result.fault.text)
            results.append(result)
            say(result)
            if result.fault is not None and result.fault.stops:
                stopped = f"{', '.join(case.names)}: {result.fault.kind}; {result.fault.remedy}"
    left = tuple(name for case in waiting for name in case.names)
    return DeviceSeries(tuple(results), tuple(twins(kept)), left, stopped)


def twins(kept: Mapping[str, Path]) -> Iterable[TwinCheck]:
    """Yield the comparison of every 16-row C with the 128-row C of its geometry; keys are `<K>x<N> <M> <name>`."""
    arrays = {key: np.load(path) for key, path in kept.items() if path.exists()}
    for key, small in arrays.items():
        geometry, rows, name = key.split(" ", 2)
        for other_key, large in arrays.items():
            other_geometry, other_rows, other = other_key.split(" ", 2)
            if geometry == other_geometry and int(rows) < int(other_rows):
                difference = np.abs(small.astype(np.int64) - large[: small.shape[0]])
                wrong = int(np.count_nonzero(difference))
                yield TwinCheck(name, other, small.size, wrong, int(difference.max(initial=0)))


def _run_case(
    case: DeviceCase,
    seed: int,
    folder: Path,
    options: DeviceOptions,
    environ: Mapping[str, str],
    kept: dict[str, Path],
) -> DeviceResult:
    request, result = folder / "request.json", folder / "result.jsonl"
    result.unlink(missing_ok=True)
    instances = []
    for instance in case.instances:
        keep = folder / f"c-{len(kept)}.npy"
        kept[f"{instance.K}x{instance.N} {instance.M} {case.names[0]}"] = keep
        instances.append(_asked(instance, keep))
    wanted = {
        "elf": str(case.elf),
        "python_path": _python_path(environ),
        "instances": instances,
        "warmup": options.warmup,
        "iterations": options.iterations,
        "wait_ms": options.wait_ms,
        "power_mode": options.power_mode,
        "generation": GENERATION,
    }
    request.write_text(json.dumps(wanted), encoding="utf-8")
    before = read_state({}, options.root, options.smi)
    fault: Fault | None = None
    try:
        run = run_child(
            [environ.get(PYTHON) or sys.executable, "-I", session.__file__, str(request), str(result)],
            name=case.names[0],
            cwd=folder,
            environment={name: environ[name] for name in _PASSED if name in environ},
            limits=Limits(options.seconds, 24 * 3600, 64 * GIB, 4 * GIB, 16 * MIB),
        )
        if run.exit_code < 0:
            fault = fault_of("run", "Crashed", run.ending)
        elif run.exit_code not in (0, 1, 3):
            fault = fault_of("import", "Crashed", f"{run.ending}: {run.err[-200:]}")
    except ChildStopped as error:
        fault = fault_of("run", "Killed", str(error))
    return _result(case, seed, options, _events(result), before, fault)


def _asked(instance: DeviceInstance, keep: Path) -> dict[str, Any]:
    return {
        "name": f"main:{instance.name}",
        "before": f"main:{instance.before}" if instance.before else None,
        "shape": [instance.M, instance.K, instance.N],
        "keep": str(keep),
        "trials": [
            {"inputs": trial.inputs, "a": str(trial.a), "b": str(trial.b), "want": str(trial.want)}
            for trial in instance.trials
        ],
    }


def _python_path(environ: Mapping[str, str]) -> list[str]:
    named = environ.get(PYXRT)
    if named:
        return [os.path.abspath(named)]
    return [str(XRT_FOLDER)] if XRT_FOLDER.is_dir() else []


def _events(path: Path) -> list[dict[str, Any]]:
    """Return what a session wrote; a last line that was cut off by its end is left out."""
    events = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            break
    return events


def _result(
    case: DeviceCase,
    seed: int,
    options: DeviceOptions,
    events: Sequence[dict[str, Any]],
    before: MachineState,
    fault: Fault | None,
) -> DeviceResult:
    info: dict[str, dict[str, Any]] = {"before": {}, "after": {}}
    checks, timings = [], []
    for event in events:
        match event["event"]:
            case "device":
                info[event["when"]] = event
            case "check":
                values = {key: value for key, value in event.items() if key != "event"}
                values["first"] = None if event["first"] is None else tuple(event["first"])
                checks.append(DeviceCheck(**values))
            case "timing":
                timings.append(Timing(event["instance"], options.warmup, tuple(event["nanoseconds"])))
            case "fault":
                fault = fault_of(event["stage"], event["type"], event["text"])
    # `others` was read before the session, which has a context itself.
    before = replace(read_state(info["before"], options.root, None), others=before.others)
    after = read_state(info["after"] or info["before"], options.root, options.smi)
    notes = before.changed(after)
    if before.others:
        notes = (f"other processes had contexts on the NPU before: {', '.join(before.others)}", *notes)
    return DeviceResult(case.names, case.sha256, seed, tuple(checks), tuple(timings), fault, before, after, notes)

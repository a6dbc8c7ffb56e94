"""A model's registered ELFs on the device itself: every int32 compared with numpy, twins with their M=128, times taken.

Nothing is built or registered by this; what came out lies beside the ELFs as attestations. The inputs are those of
`verify`, so what the simulator was shown the device is shown too. Not run on a device:
docs/device.md says how it was tested.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elfkiln.design.reader import read_design
from elfkiln.engine import contract, layouts
from elfkiln.errors import Differs, ElfkilnError, Refused, refusal
from elfkiln.io.workspace import build_parent, private_folder
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.npu2.device.results import DeviceResult, DeviceSeries
from elfkiln.targets.npu2.device.series import (
    DeviceCase,
    DeviceInstance,
    DeviceOptions,
    Trial,
    run_series,
    write_trial,
)
from elfkiln.targets.table import TARGETS, target_named
from elfkiln.work.device_statements import state_series
from elfkiln.work.jobs import entry_of, registry_key, served_problem
from elfkiln.work.predict import predict_design
from elfkiln.work.verify import SEED, inputs


@dataclass(frozen=True, slots=True)
class OnDevice:
    """What a set's ELFs did on the device, and the seconds predicted for each (sha256 of the ELF, instance).

    `attested` are the digests (hex) of the statements about it that lie in the store now.
    """

    wanted: RequirementSet
    series: DeviceSeries
    predicted: Mapping[tuple[str, str], float]
    attested: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value; predictions stand beside the instance they are for."""
        predicted = [
            {"elf": f"sha256:{elf}", "instance": instance, "seconds": seconds}
            for (elf, instance), seconds in sorted(self.predicted.items())
        ]
        series = self.series.to_json()
        return {"model": self.wanted.model, "layout": self.wanted.layout, **series, "predicted": predicted} | {
            "attested": [f"sha256:{digest}" for digest in self.attested]
        }


def run_on_device(
    project: Project,
    target: str,
    wanted: RequirementSet,
    options: DeviceOptions,
    *,
    environ: Mapping[str, str] = os.environ,
    say: Callable[[DeviceResult], None] = lambda _result: None,
    times: bool = False,
) -> OnDevice:
    """Run every registered ELF of a set on the device, keep the outcome as attestations, and return it.

    With `times` the times of right ELFs are kept, too. An ELF under several names runs once; names that are not
    registered are listed as left. Raises `Refused` for a target whose ELFs run on no device and a layout whose bytes
    are not defined, `Differs` when a registered ELF is not
    what is asked for or its bytes are not in the store, and what `run_series` raises.
    """
    if not target_named(target).on_device:
        there = ", ".join(name for name, one in TARGETS.items() if one.on_device)
        raise refusal("target", expected=f"one whose ELFs run on a device: {there}", found=target)
    if wanted.layout not in layouts.DEFINED:
        raise Refused(f"layout {wanted.layout}: its bytes are not defined, so no weights can be packed for its ELFs")
    cases, entries, missing = _cases(project, target, wanted)
    # Paths without a space: the inputs' names go to the child as they are.
    with private_folder(build_parent(project.work)) as folder:
        bench = _Inputs(folder / "inputs", wanted.layout)
        work = folder / "work"
        work.mkdir()
        series = run_series(
            cases, seed=SEED, folder=work, options=options, environ=environ, say=say, prepare=bench.prepare
        )
    store = Store(project.store)
    predicted = _predicted(store, entries)
    attested = state_series(store, series, entries, predicted, times=times)
    return OnDevice(wanted, replace(series, left=(*series.left, *missing)), predicted, attested)


def _cases(
    project: Project, target: str, wanted: RequirementSet
) -> tuple[list[DeviceCase], list[Entry], tuple[str, ...]]:
    """Return a case per registered ELF, in the set's order but one geometry after the other, and what is missing."""
    registered = load_registry(project.registry_file).entries(target)
    store = Store(project.store)
    found: dict[str, tuple[Entry, Requirement, list[str]]] = {}
    missing = []
    for need in wanted.requirements:
        entry = entry_of(registered, wanted, need)
        if entry is None:
            missing.append(need.file_name)
            continue
        key = registry_key(wanted, need)
        problem = served_problem(store, target, key, need, entry) or store.problem(entry.elf)
        if problem is not None:
            raise Differs(f"{need.file_name}: {problem}")
        found.setdefault(entry.elf, (entry, need, []))[2].append(need.file_name)
    cases = [
        DeviceCase(tuple(names), store.path(entry.elf), entry.elf, _instances(need))
        for entry, need, names in found.values()
    ]
    # Both ELFs of a geometry share its inputs, so they come one after the other; a sealed one needs those of several.
    order = {_geometry(case): position for position, case in reversed(list(enumerate(cases)))}
    cases.sort(key=lambda case: (len(case.instances) > 1, order[_geometry(case)]))
    return cases, [entry for entry, _, _ in found.values()], tuple(missing)


def _geometry(case: DeviceCase) -> tuple[int, int]:
    return case.instances[0].K, case.instances[0].N


def _instances(need: Requirement) -> tuple[DeviceInstance, ...]:
    if need.name is not None:
        return (DeviceInstance(contract.INSTANCE, None, need.name.M, need.name.K, need.name.N, ()),)
    return tuple(
        DeviceInstance(contract.sealed_instance(K, N), contract.SEALED_INIT, contract.DECODE_M, K, N, ())
        for K, N in need.sealed
    )


@dataclass(slots=True)
class _Inputs:
    """Inputs in files, of the geometries that are being run alone: those of one geometry can take 0.4 GB."""

    folder: Path
    layout: str

    def prepare(self, case: DeviceCase) -> DeviceCase:
        """Return the case with its inputs written; those of other geometries go."""
        wanted = {f"{one.K}x{one.N}" for one in case.instances}
        for old in self.folder.iterdir() if self.folder.is_dir() else ():
            if old.name not in wanted:
                shutil.rmtree(old)
        return replace(case, instances=tuple(replace(one, trials=self.trials(one.K, one.N)) for one in case.instances))

    def trials(self, K: int, N: int) -> tuple[Trial, ...]:
        """Return the inputs of a geometry, written if they are not there."""
        place = self.folder / f"{K}x{N}"
        kinds = ("random", "-127", "one-hot", "coordinates")
        if place.is_dir():
            return tuple(Trial(kind, *(place / f"{kind}.{part}.npy" for part in ("a", "b", "want"))) for kind in kinds)
        ternary = contract.weight_layout(self.layout).ternary
        return tuple(
            write_trial(place, what, a, layouts.pack(b, self.layout), expected)
            for what, a, b, expected in inputs(K, N, ternary=ternary)
        )


def _predicted(store: Store, entries: list[Entry]) -> dict[tuple[str, str], float]:
    """Return the predicted seconds of every sequence the model of time can follow."""
    found = {}
    for entry in entries:
        try:
            predictions = predict_design(read_design(store.read(entry.design).decode()))
        except (ElfkilnError, UnicodeDecodeError):
            continue
        for one in predictions:
            found[entry.elf, f"{contract.KERNEL}:{one.sequence}"] = one.seconds
    return found

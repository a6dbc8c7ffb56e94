"""Predicts a decoded token and a prefill pass of a model: its launches, by the designs that run them.

    token = sum over launches of (design + launch) + head bytes / fabric-read

A sealed ELF's sequences stand for the launches of their geometries: it loads its PDI once. The head streams as int8
in every layout. Everything here is a prediction; see `work.predict`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from typing import Any

from elfkiln.design.model import Design
from elfkiln.design.reader import read_design
from elfkiln.design.run_generator import run_generator
from elfkiln.engine.contract import PREFILL_M, sealed_instance
from elfkiln.errors import ElfkilnError, Refused
from elfkiln.hardware.timing import constant
from elfkiln.io.canonical import sha256_hex
from elfkiln.io.workspace import private_folder
from elfkiln.models.requirement import Requirement, RequirementSet
from elfkiln.project import Project
from elfkiln.store.artifacts import designs_by_generator
from elfkiln.store.blobs import Store
from elfkiln.work.jobs import generator_of, registry_key
from elfkiln.work.predict import Prediction, predict_design


@dataclass(frozen=True, slots=True)
class NamePrediction:
    """One artifact of a model: its registry key, launches in a pass over the layers, and its sequences' predictions."""

    key: str
    requirement: Requirement
    sequences: tuple[Prediction, ...]

    @property
    def launches(self) -> int:
        """Launches of this artifact in one pass over the layers."""
        return self.requirement.launches


@dataclass(frozen=True, slots=True)
class Pass:
    """One way through all layers of a model: launches, and seconds (central, low, high) without and with them."""

    what: str
    launches: int
    designs: tuple[float, float, float]
    head: float
    launch: tuple[float, float, float]

    @property
    def seconds(self) -> tuple[float, float, float]:
        """Seconds of the pass with its launches and the head: central, low, high."""
        central, low, high = (
            design + one * self.launches + self.head for design, one in zip(self.designs, self.launch, strict=True)
        )
        return central, low, high

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, in seconds."""
        central, low, high = self.seconds
        return {
            "what": self.what,
            "launches": self.launches,
            "designs_seconds": self.designs[0],
            "launch_seconds": self.launches * self.launch[0],
            "head_seconds": self.head,
            "seconds": central,
            "range_seconds": [low, high],
        }


@dataclass(frozen=True, slots=True)
class ModelPrediction:
    """What the model of time says of a model in one layout: its artifacts, and the passes it makes of them."""

    model: str
    layout: str
    names: tuple[NamePrediction, ...]
    passes: tuple[Pass, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; every time is a prediction, in seconds."""
        return {
            "kind": "prediction",
            "model": self.model,
            "layout": self.layout,
            "names": [
                {"name": one.key, "launches": one.launches, "sequences": [s.to_json() for s in one.sequences]}
                for one in self.names
            ],
            "passes": [one.to_json() for one in self.passes],
        }


def predict_model(
    project: Project, wanted: RequirementSet, *, head_bytes: int = 0, experts: int = 1
) -> ModelPrediction:
    """Return the prediction of a requirement set.

    `head_bytes` are the int8 bytes of the lm_head (0: leave it out), `experts` how often a layer's MLP runs for one
    token (a mixture's chosen experts). Raises `Refused` for a name that cannot be rendered or followed.
    """
    names = tuple(_names(project, wanted))
    return ModelPrediction(wanted.model, wanted.layout, names, tuple(passes_of(names, head_bytes, experts)))


def _names(project: Project, wanted: RequirementSet) -> Iterator[NamePrediction]:
    designs = designs_of(project, wanted, wanted.requirements)
    for need, design in zip(wanted.requirements, designs, strict=True):
        key = registry_key(wanted, need)
        try:
            yield NamePrediction(key, need, predict_design(design))
        except ElfkilnError as error:
            raise Refused(f"{key}: {error}") from error


def designs_of(project: Project, wanted: RequirementSet, needs: Iterable[Requirement]) -> tuple[Design, ...]:
    """Return the design of each requirement, from the store where an artifact has the very generator, else made anew.

    Generators that must run do so side by side. Raises what rendering, running or reading raises.
    """
    store = Store(project.store)
    known = designs_by_generator(store)
    texts = [generator_of(project, wanted, need).text for need in needs]

    def read(text: str) -> Design:
        digest = known.get(sha256_hex(text.encode()))
        if digest is not None and store.holds(digest):
            return read_design(store.read(digest).decode())
        with private_folder(project.work) as folder:
            return read_design(run_generator(text, workdir=folder))

    unique = list(dict.fromkeys(texts))
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        made = dict(zip(unique, pool.map(read, unique), strict=True))
    return tuple(made[text] for text in texts)


def passes_of(names: tuple[NamePrediction, ...], head_bytes: int, experts: int) -> Iterator[Pass]:
    """Yield the passes that a set of names makes: a decoded token, and a prefill pass; arguments as `predict_model`."""
    head = head_bytes / constant("fabric-read").value
    row = constant("launch")
    launch = (row.value, row.low, row.high)
    reload = constant("reload").value
    twins = [(one.sequences[0], _turns(one.requirement, experts)) for one in names if _is_twin(one.requirement)]
    if twins:
        yield _pass("decode, a token", twins, head, launch)
        yield _pass(
            "decode, a token, if every launch loads another PDI", twins, head, tuple(one + reload for one in launch)
        )
    for one in names:
        if one.requirement.name is None and twins:
            sealed = _sealed_turns(one, names, experts)
            yield _pass(f"decode, a token, by {one.requirement.file_name}", sealed, head, launch)
    prefill = [
        (one.sequences[0], _turns(one.requirement, experts))
        for one in names
        if one.requirement.name is not None and not one.requirement.name.m16
    ]
    if prefill:
        yield _pass(f"prefill, {PREFILL_M} tokens", prefill, 0.0, launch)


def _is_twin(need: Requirement) -> bool:
    return need.name is not None and need.name.m16


def _turns(need: Requirement, experts: int) -> int:
    """Return how often a name is launched for one pass: an expert's MLP as often as experts are chosen."""
    mlp = need.name is not None and need.name.role in ("G", "U", "GU", "D")
    return need.launches * (experts if mlp else 1)


def _sealed_turns(
    sealed: NamePrediction, names: tuple[NamePrediction, ...], experts: int
) -> list[tuple[Prediction, int]]:
    by_sequence = {one.sequence: one for one in sealed.sequences}
    turns = []
    for one in names:
        name = one.requirement.name
        if name is not None and name.m16:
            found = by_sequence.get(sealed_instance(name.K, name.N))
            if found is None:
                raise Refused(f"{sealed.key}: expected a sequence for K={name.K} N={name.N}, found none")
            turns.append((found, _turns(one.requirement, experts)))
    return turns


def _pass(what: str, launches: list[tuple[Prediction, int]], head: float, launch: tuple[float, ...]) -> Pass:
    central, low, high = (
        sum(getattr(one, field) * turns for one, turns in launches) for field in ("seconds", "low", "high")
    )
    each = (launch[0], launch[1], launch[2])
    return Pass(what, sum(turns for _, turns in launches), (central, low, high), head, each)

"""Small designs against what the real compiler made of them: the stand-in, lint and the simulator, one walk over all.

What the compiler refuses lint refuses, and nothing else, but for two kinds of things: whether a design runs, which no
compiler can say and the simulator does, and what is meant to be stricter, which `STRICTER` names with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest

from corpus import FACTS, KERNELS, NAMES, any_kernels, for_entries, inputs, numbers, printed
from elfkiln.design.fifo_lowering import place
from elfkiln.design.model import Sequence
from elfkiln.design.reader import read_design, read_for_lint
from elfkiln.io.files import write_atomic
from elfkiln.lint import lint
from elfkiln.targets.sim.lower_design import lower
from elfkiln.targets.sim.sim_elf import SimulationFailed

WITH_FACTS = sorted(FACTS)

RUN_TIME = frozenset(
    {
        "await-early",
        "drain-wait",
        "flow-total",
        "free-early",
        "lock-grants",
        "lock-set",
        "object-unwritten",
        "parameter-guard",
        "parameter-late",
        "parameter-unwritten",
        "release-held",
        "release-missing",
        "task-stuck",
    }
)
"""Rules about what happens when a design runs: the compiler has no answer to them."""

STRICTER = {
    "dims_st8193_mem_frm": ("dim-product", "the descriptor runs on past its dims: 128 elements instead of 4"),
    "join_frm_past": ("dim-bounds", "the dims reach into the other piece of the join: wrong data, and nothing says so"),
    "linkdims_in_small_own": ("dim-product", "the link's descriptor is as long as the larger object: the dims run on"),
    "linkdims_out_small_own": ("dim-product", "the link's descriptor is as long as the larger object: the dims run on"),
    "lockval_shared_64": ("lock-value", "64 objects do not fit the 6 bits of a lock"),
    "repeat_d1_100": ("lock-value", "100 repeats do not fit the 6 bits of a lock"),
    "tap_i16_in2": ("tap-inner-stride", "a stride of 2 elements of 16 bits becomes one whole word"),
}
"""What the compiler takes and lint refuses: rule and reason. All of it is silent, and wrong on the array."""

# A chain of descriptors is a form of the dialect that a `Design` does not have; the stand-in says so.
NOT_SUPPORTED = {"seq_chain"}

# Families that vary a limit of the hardware or the tools, which the simulator does not know, and nothing that runs.
LIMITS = ("addr", "bd", "chan", "dims2", "locks", "mem", "memt", "place", "shape", "size")
RUN = [name for name in NAMES if name.split("_")[0] not in LIMITS and name not in NOT_SUPPORTED]


@pytest.fixture(scope="session")
def modules(shared_folder):
    """Of each design what the stand-in made of it."""
    return printed(shared_folder)


@pytest.fixture(scope="session")
def lintable(modules):
    """A function that returns a design as lint reads it, or None where there is no module to read."""

    @cache
    def read(name):
        text = modules[name].get("text") or modules[name].get("unchecked")
        return text and read_for_lint(text)

    return read


@cache
def found_in(design, target):
    return lint(design, target)


def errors(design, target="npu2"):
    return {finding.rule for finding in found_in(design, target) if finding.severity == "error"}


def warnings(design):
    return {finding.rule for finding in found_in(design, "npu2") if finding.severity == "warning"}


def test_every_design_is_looked_at():
    assert [name for name in NAMES if name not in FACTS] == [name for name in NAMES if name.startswith("run_")]
    assert FACTS.keys() <= set(NAMES)
    assert len(FACTS) == 163
    assert set(STRICTER) <= set(WITH_FACTS)


@pytest.mark.parametrize("name", WITH_FACTS)
def test_the_stand_in_prints_a_module_or_refuses_as_the_package_does(modules, name):
    made, fact = modules[name], FACTS[name]
    error = made.get("error", "").partition(":")[0]
    if name in NOT_SUPPORTED:
        assert error == "NotImplementedError"
    elif fact["accepted"]:
        assert not error
        read_design(made["text"])
    elif fact["stage"] == "package":
        assert error == fact["error"].partition(":")[0]
    else:
        # What the compiler's verifiers find may be told at the line of the generator, as an MLIRError.
        assert error in ("", "MLIRError")


@pytest.mark.parametrize("name", [name for name in WITH_FACTS if FACTS[name].get("stage") != "package"])
def test_lint_refuses_what_the_compiler_refuses(lintable, name):
    design = lintable(name)
    if design is None:
        # There is no module: the stand-in has said it, and so it has for the compiler.
        assert name in NOT_SUPPORTED or not FACTS[name]["accepted"]
        return
    found = errors(design) - RUN_TIME
    if name in STRICTER:
        assert found == {STRICTER[name][0]}
        assert FACTS[name]["accepted"]
    else:
        assert bool(found) != FACTS[name]["accepted"], found


@pytest.mark.parametrize("name", [name for name in WITH_FACTS if "tiles" in FACTS[name]])
def test_buffers_locks_and_descriptors_are_the_compilers(lintable, name):
    design = lintable(name)
    if design is None:
        assert name in NOT_SUPPORTED or not FACTS[name]["accepted"]
        return
    assert numbers(design) == FACTS[name]["tiles"]
    # The simulator's objects are those same buffers. What drives them makes no difference.
    machine = lower(for_entries(replace(design, sequences=(Sequence("seq", (), (), ()),))))
    simulated, lowered = defaultdict(int), defaultdict(int)
    for ring in machine.pools:
        simulated[ring.tile] += ring.depth * ring.object_bytes
    for pool in place(design).pools:
        if pool.tile.kind != "shim":
            lowered[pool.tile] += pool.count * pool.bytes_each
    assert simulated == lowered or (machine.fault and (name in STRICTER or not FACTS[name]["accepted"]))


@pytest.fixture(scope="session")
def with_kernels(simulator):
    """The simulator, with kernels that do nothing."""
    write_atomic(simulator.root / "kernels" / KERNELS.source, any_kernels().encode())
    return simulator


@pytest.mark.parametrize("name", RUN)
def test_lint_and_the_simulator_agree(with_kernels, lintable, name):
    design = lintable(name)
    if design is None:
        assert name not in FACTS or not FACTS[name]["accepted"]
        return
    found = errors(design, "sim") | (warnings(design) & RUN_TIME)
    if found and not found & RUN_TIME:
        return
    failure = run(with_kernels, for_entries(design))
    assert bool(found) == bool(failure), (found, failure)


def run(simulator, design):
    """Run all sequences of a design; return how it failed, or nothing."""
    elf = simulator.elf(design, *([KERNELS] if design.kernels else []))
    for sequence in design.sequences:
        try:
            elf.run(*inputs(design, sequence.name), sequence=sequence.name)
        except SimulationFailed as error:
            return str(error)
    return ""

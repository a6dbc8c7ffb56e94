"""No design, however broken, crashes the process that runs it: every run ends in a result or in a line."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from elfkiln.design.reader import read_design
from elfkiln.errors import Refused, SimulationFailed
from gemm_designs import Shape, panel_b8, panel_rm
from simulating import example, mm_i8, mm_pb16i

DTYPES = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32}
BASES = {
    "b8": (panel_b8(Shape(32, 128, 256, 2, 2, m=16)), mm_i8(16)),
    "rm": (panel_rm(Shape(16, 128, 256, 1, 2, m=16)), mm_i8(16)),
    "sealed": (read_design(example("sequences_rtp")), mm_pb16i(16, "mm_pb16i_16x64x128.o")),
}
MUTANTS = 12


class Mutator:
    """Changes numbers and names anywhere in a design, drops, doubles and swaps parts of its tuples."""

    def __init__(self, seed: int, names: tuple[str, ...]) -> None:
        self.dice = random.Random(seed)
        self.names = names
        self.rate = self.dice.choice([0.002, 0.005, 0.01])

    def hit(self, part: float = 1.0) -> bool:
        return self.dice.random() < self.rate * part

    def change(self, value):
        if is_dataclass(value):
            changed = {field.name: self.change(getattr(value, field.name)) for field in fields(value)}
            return replace(value, **changed)
        if isinstance(value, tuple):
            parts = [self.change(part) for part in value]
            if parts and self.hit(0.5):
                at, other = self.dice.randrange(len(parts)), self.dice.randrange(len(parts))
                how = self.dice.choice(["drop", "double", "swap"])
                if how == "drop":
                    del parts[at]
                elif how == "double":
                    parts.insert(at, parts[at])
                else:
                    parts[at], parts[other] = parts[other], parts[at]
            return tuple(parts)
        if isinstance(value, bool):
            return value != self.hit()
        if isinstance(value, int) and self.hit():
            near = [value + 1, value - 1, value * 2, value // 2]
            return self.dice.choice([0, 1, 2, -1, *near, self.dice.randrange(100_000), 1 << 40])
        if isinstance(value, str) and self.hit(0.3):
            return self.dice.choice(self.names)
        return value


@pytest.mark.parametrize("base", BASES)
def test_broken_designs_end_in_a_line(simulator, base):
    design, kernel = BASES[base]
    names = (*(fifo.name for fifo in design.fifos), "zero_i32", "produce", "consume", "i8", "i32", "nowhere")
    ends = {"refused": 0, "failed": 0, "ran": 0}
    for seed in range(MUTANTS):
        mutant = Mutator(seed, names).change(design)
        try:
            elf = simulator.elf(mutant, kernel)
        except Refused as error:
            assert "\n" not in str(error)
            ends["refused"] += 1
            continue
        for entry in elf.info.entries:
            if len(entry.arguments) < 3:
                continue
            arrays = [np.ones(one.elements, DTYPES.get(one.element, np.int8)) for one in entry.arguments]
            try:
                elf.run(*arrays, sequence=entry.sequence)
                ends["ran"] += 1
            except (SimulationFailed, Refused) as error:
                assert str(error)
                assert "\n" not in str(error)
                ends["failed"] += 1
        elf.close()
    # A mutation too mild or too wild would test nothing.
    assert ends["failed"] >= 3, ends


def test_a_mutation_changes_the_design():
    design, _ = BASES["b8"]
    changed = [Mutator(seed, ("x",)).change(design) != design for seed in range(MUTANTS)]
    assert sum(changed) > MUTANTS // 2

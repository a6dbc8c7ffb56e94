"""aiecc's command line by generation: one table, chosen by what `aiecc --help` says.

Two spellings of "make a full ELF" exist. Until July 2026 aiecc took `--generate-full-elf`, used Chess unless told not
to, and ignored flags it did not know; since mlir-aie b1589f766 (2026-07-21) it takes `--get-full-elf`, uses Peano and
refuses unknown flags. `--get-<name>` is taken off the command line before options are parsed, so `--help` names the
form with `--get-<name>` and lists `--full-elf-name`, not the selector itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from elfkiln.canonical import canonical_json, sha256_hex
from elfkiln.errors import Refused

OUTPUT_NAME = "aie.elf"
INPUT_NAME = "design.mlir"
SCRATCH_FOLDER = "aiecc.tmp"
OUTPUT_FOLDER = "aiecc.out"


@dataclass(frozen=True, slots=True)
class Generation:
    """One spelling of the command line.

    `has` and `lacks` are options `aiecc --help` must and must not list. `{peano}` in `arguments` stands for Peano's
    folder. `output` is where the full ELF then lies, below the folder aiecc runs in. `dynamic_loops` is what a design
    with run-time loop bounds needs in addition.
    """

    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    arguments: tuple[str, ...]
    output: str
    dynamic_loops: tuple[str, ...] = ()


_TABLE = (
    Generation(
        name="generate-full-elf",
        has=("--generate-full-elf", "--full-elf-name", "--no-xchesscc", "--no-xbridge", "--tmpdir", "--peano"),
        lacks=("--get-<name>",),
        arguments=(
            "--no-xchesscc",
            "--no-xbridge",
            "--peano={peano}",
            "--generate-full-elf",
            f"--full-elf-name={OUTPUT_NAME}",
            f"--tmpdir={SCRATCH_FOLDER}",
        ),
        output=OUTPUT_NAME,
        # Its static unroller asserts on an SSA loop bound; seen with the tree of April 2026.
        dynamic_loops=("--dynamic-objFifos",),
    ),
    Generation(
        name="get-full-elf",
        has=("--get-<name>", "--full-elf-name", "--tmpdir", "--output-dir", "--peano"),
        lacks=("--generate-full-elf",),
        arguments=(
            "--get-full-elf",
            f"--full-elf-name={OUTPUT_NAME}",
            f"--tmpdir={SCRATCH_FOLDER}",
            f"--output-dir={OUTPUT_FOLDER}",
            "--peano={peano}",
        ),
        output=f"{OUTPUT_FOLDER}/{OUTPUT_NAME}",
    ),
)

GENERATIONS: Mapping[str, Generation] = {generation.name: generation for generation in _TABLE}


def detect_generation(help_text: str) -> Generation:
    """Return the generation whose options `aiecc --help` lists; `Refused` when none or more than one fits.

    A help text that lists `--get-full-elf` itself counts as naming the `--get-<name>` form.
    """
    options = set(re.findall(r"--?[A-Za-z][A-Za-z0-9-]*(?:<name>)?", help_text))
    spelled = {f"--{option.lstrip('-')}" for option in options}
    if "--get-full-elf" in spelled:
        spelled.add("--get-<name>")
    fitting = [g for g in _TABLE if spelled.issuperset(g.has) and spelled.isdisjoint(g.lacks)]
    if len(fitting) != 1:
        known = "; ".join(f"{g.name}: {' '.join(g.has)}" for g in _TABLE)
        raise Refused(
            f"aiecc --help: its options are those of no generation elfkiln knows ({known}); "
            "a guessed flag would be ignored or misread, so nothing is built with it"
        )
    return fitting[0]


def command_line(
    generation: Generation, *, peano: str, flags: tuple[str, ...], dynamic_loops: bool, jobs: int
) -> tuple[str, ...]:
    """Return aiecc's arguments. `jobs` changes the speed only; everything else decides the bytes.

    >>> command_line(GENERATIONS["get-full-elf"], peano="P", flags=("-x",), dynamic_loops=True, jobs=2)
    ... # doctest: +NORMALIZE_WHITESPACE
    ('--get-full-elf', '--full-elf-name=aie.elf', '--tmpdir=aiecc.tmp', '--output-dir=aiecc.out', '--peano=P', '-x',
     '-j', '2', 'design.mlir')
    """
    fixed = tuple(argument.replace("{peano}", peano) for argument in generation.arguments)
    extra = generation.dynamic_loops if dynamic_loops else ()
    return (*fixed, *extra, *flags, "-j", str(jobs), INPUT_NAME)


def generation_digest(name: str) -> str:
    """Return a sha256 over a row of the table, so that an edit of the table changes the recipes it touches."""
    row = GENERATIONS[name]
    return sha256_hex(canonical_json([row.name, row.arguments, row.dynamic_loops, row.output]))

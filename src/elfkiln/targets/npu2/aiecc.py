"""aiecc's command line by generation: one table, chosen by what `aiecc --help` says.

Two spellings of "make a full ELF" exist. Until July 2026 aiecc took `--generate-full-elf`, used Chess unless asked not
to, and ignored flags it did not know; since mlir-aie b1589f766 (2026-07-21) it takes `--get-full-elf`, uses Peano and
refuses unknown flags. `--get-<name>` is taken off the command line before options are parsed, so `--help` names the
form with `--get-<name>` and lists `--full-elf-name`, not the selector itself.

Because of the ignored flags everything that will be passed is held against what the help lists, at install and again
whenever an install is opened (`check_options`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from elfkiln.errors import Refused, refusal

OUTPUT_NAME = "aie.elf"
INPUT_NAME = "design.mlir"
SCRATCH_FOLDER = "aiecc.tmp"
OUTPUT_FOLDER = "aiecc.out"


@dataclass(frozen=True, slots=True)
class Generation:
    """One spelling of the command line.

    `has` and `lacks` are options `aiecc --help` must and must not list. `{peano}` in `arguments` stands for Peano's
    folder. `output` is where the full ELF then lies, below the folder aiecc runs in. `dynamic_loops` is what a design
    with run-time loop bounds needs in addition. `selectors` are the names that `--get-<name>` takes: the help names
    the form and not each. `joined` are short options that take their value without `=` (`-O3`).
    """

    name: str
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    arguments: tuple[str, ...]
    output: str
    dynamic_loops: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()


CORE_ELF = re.compile(r"elfs_\w+_[0-9]+_[0-9]+")
"""How the newer generation calls the ELFs of the cores in its temporary folder; the older one's end in `.elf`."""

VALUES: Mapping[str, tuple[str, ...]] = {"alloc-scheme": ("basic-sequential", "bank-aware")}
"""Values of the options that aiecc takes as any text: of an unknown one it thinks as of none, and the bytes are others
(AIEAssignBufferAddresses compares the scheme with these two words). Values of other kinds its own parser checks."""

QUIET = "--no-progress"
"""Passed where the help lists it: a progress bar is not a part of a log."""

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
        # tools/aiecc/CommandLineOptions.h of mlir-aie: the table that aiecc reads them off before it parses options.
        selectors=(
            "input-with-addresses",
            "scratchpad-parameters",
            "core-elfs",
            "npu-insts",
            "elf",
            "cdo",
            "pdi",
            "txn",
            "ctrlpkt",
            "xclbin",
            "full-elf",
            "locmap",
            "host",
            "aiesim",
        ),
        # Before, -O was not a prefix option, and -O3 one of the flags that are ignored.
        joined=("O",),
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


def listed_options(help_text: str) -> dict[str, bool]:
    """Return the options a help text lists, without dashes, and whether each must be given a value.

    Only what a line begins with counts; an option that a description mentions need not exist.

    >>> listed_options("  --peano=<string>  - see --aiesim\\n  -j <uint>  - Threads\\n  --verbose  - More\\n")
    {'peano': True, 'j': True, 'verbose': False}
    """
    lines = re.findall(r"^[ \t]*--?([A-Za-z](?:[\w-]*\w)?)([ =]<)?", help_text, re.MULTILINE | re.ASCII)
    return {name: bool(value) for name, value in lines}


def check_options(generation: Generation, flags: tuple[str, ...], listed: Mapping[str, bool]) -> tuple[str, ...]:
    """Raise `Refused` naming the first word of the table's or the lock's `flags` that is not an option of this aiecc.

    `listed` is what its help lists (`listed_options`). Returns the words that are taken though the help does not list
    them: the selectors, of which it lists the form `--get-<name>` only.
    """
    own = [word.partition("=")[0] for word in (*generation.arguments, *generation.dynamic_loops, "-j")]
    for word in own:
        if not _has(generation, _name(word), listed):
            raise Refused(
                f"aiecc --help: lists no {word}, which elfkiln passes to a {generation.name} aiecc; this one is of a "
                "version elfkiln does not know, pin another"
            )
    taken = {_name(word) for word in own} - {_name(word) for word in generation.dynamic_loops} | {"nthreads"}
    for word in flags:
        _check_flag(generation, word, listed, taken)
    return tuple(word for word in (*own, *flags) if _name(word) not in listed and _name(word).startswith("get-"))


def _check_flag(generation: Generation, word: str, listed: Mapping[str, bool], taken: set[str]) -> None:
    where = f"toolchain.lock: target.npu2.aiecc_flags: {word}"
    name, equals = _name(word), "=" in word
    if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word, re.ASCII) is None:
        raise refusal(where, expected="an option and its value in one word, --name=value", found="no option")
    if name in taken or re.fullmatch(r"j[0-9]+", name):
        raise Refused(f"{where}: elfkiln passes this one itself; take it out")
    if not _has(generation, name, listed):
        near = difflib.get_close_matches(name, listed, 1)
        raise refusal(
            where,
            expected="an option that aiecc --help lists",
            found="none of that name",
            remedy=f"did you mean --{near[0]}?" if near else "take it out",
        )
    known, value = VALUES.get(name), word.partition("=")[2]
    if known is not None and equals and value not in known:
        near = difflib.get_close_matches(value, known, 1)
        raise refusal(
            where,
            expected=f"--{name}= one of {', '.join(known)}",
            found=value or "nothing",
            remedy=f"did you mean {near[0]}?" if near else "aiecc takes any other word for none at all",
        )
    if listed.get(name, False) and not equals:
        raise refusal(where, expected=f"--{name}=<value>", found="no value", remedy="aiecc would take the next word")


def _name(word: str) -> str:
    """Return an option's name; one dash or two are the same to aiecc."""
    return word.lstrip("-").partition("=")[0]


def _has(generation: Generation, name: str, listed: Mapping[str, bool]) -> bool:
    selector = name.startswith("get-") and name.removeprefix("get-") in generation.selectors
    joined = name[:1] in generation.joined and name[:1] in listed and name[1:].isdecimal()
    return name in listed or selector or joined


def command_line(
    generation: Generation,
    *,
    peano: str,
    flags: tuple[str, ...],
    dynamic_loops: bool,
    jobs: int | None,
    listed: Mapping[str, bool] | None = None,
) -> tuple[str, ...]:
    """Return aiecc's arguments. `jobs` changes the speed only (None: left out); everything else decides the bytes.

    `listed` are the options this aiecc's help lists: with `--no-progress` among them, it is asked to print none.

    What the lock's `flags` say of run-time loop bounds themselves is not said twice: aiecc would end with an error.

    >>> command_line(GENERATIONS["get-full-elf"], peano="P", flags=("-x",), dynamic_loops=True, jobs=2)
    ... # doctest: +NORMALIZE_WHITESPACE
    ('--get-full-elf', '--full-elf-name=aie.elf', '--tmpdir=aiecc.tmp', '--output-dir=aiecc.out', '--peano=P', '-x',
     '-j', '2', 'design.mlir')
    """
    fixed = tuple(argument.replace("{peano}", peano) for argument in generation.arguments)
    given = {_name(flag) for flag in flags}
    extra = [word for word in generation.dynamic_loops if dynamic_loops and _name(word) not in given]
    quiet = [QUIET] if _name(QUIET) in (listed or {}) and _name(QUIET) not in given else []
    threads = () if jobs is None else ("-j", str(jobs))
    return (*fixed, *extra, *flags, *quiet, *threads, INPUT_NAME)

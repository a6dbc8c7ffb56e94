"""aiecc's command line: the generation read from --help, and the flags of each."""

import pytest

from elfkiln.errors import Refused
from elfkiln.targets.npu2.aiecc import (
    GENERATIONS,
    check_options,
    command_line,
    detect_generation,
    listed_options,
)
from npu2_standins import NEW_HELP, OLD_HELP


def test_the_two_generations_are_told_apart_by_their_help():
    assert detect_generation(OLD_HELP).name == "generate-full-elf"
    assert detect_generation(NEW_HELP).name == "get-full-elf"


def test_a_help_that_lists_the_selector_itself_is_the_new_one():
    assert (
        detect_generation(NEW_HELP.replace("--get-<name> shorthands", "others") + "  --get-full-elf\n").name
        == "get-full-elf"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "aiecc: no help\n",
        # The Python driver of early 2026, which had no full ELF.
        "usage: aiecc.py [-h] [--version] [--peano PEANO_INSTALL_DIR] [--tmpdir TMPDIR] file\n",
        # Both spellings at once: which one works cannot be told.
        OLD_HELP + NEW_HELP,
        NEW_HELP.replace("--output-dir", "--outdir"),
        OLD_HELP.replace("--no-xchesscc", "--without-xchesscc"),
    ],
)
def test_any_other_help_is_refused(text):
    with pytest.raises(Refused, match="no generation elfkiln knows"):
        detect_generation(text)


def test_an_option_that_only_begins_alike_does_not_count():
    with pytest.raises(Refused):
        detect_generation(OLD_HELP.replace("--generate-full-elf ", "--generate-full-elf-later "))


def test_the_new_command_line():
    # Written down from the release's own documentation of the flags.
    assert command_line(
        GENERATIONS["get-full-elf"],
        peano="/peano",
        flags=("--alloc-scheme=basic-sequential",),
        dynamic_loops=False,
        jobs=4,
    ) == (
        "--get-full-elf",
        "--full-elf-name=aie.elf",
        "--tmpdir=aiecc.tmp",
        "--output-dir=aiecc.out",
        "--peano=/peano",
        "--alloc-scheme=basic-sequential",
        "-j",
        "4",
        "design.mlir",
    )


def test_the_old_command_line_turns_chess_off():
    words = command_line(GENERATIONS["generate-full-elf"], peano="/peano", flags=(), dynamic_loops=False, jobs=1)
    assert words == (
        "--no-xchesscc",
        "--no-xbridge",
        "--peano=/peano",
        "--generate-full-elf",
        "--full-elf-name=aie.elf",
        "--tmpdir=aiecc.tmp",
        "-j",
        "1",
        "design.mlir",
    )


def test_run_time_loop_bounds_need_a_flag_in_the_old_one_only():
    old = command_line(GENERATIONS["generate-full-elf"], peano="P", flags=(), dynamic_loops=True, jobs=1)
    new = command_line(GENERATIONS["get-full-elf"], peano="P", flags=(), dynamic_loops=True, jobs=1)
    assert "--dynamic-objFifos" in old
    assert "--dynamic-objFifos" not in new


def test_the_command_line_in_a_recipe_names_no_folder_and_no_threads():
    words = command_line(GENERATIONS["get-full-elf"], peano="{peano}", flags=("-x",), dynamic_loops=False, jobs=None)
    assert "--peano={peano}" in words
    assert "-j" not in words
    assert words[-2:] == ("-x", "design.mlir")


# What the lock adds to the command line must be an option aiecc has.

NEW, OLD = GENERATIONS["get-full-elf"], GENERATIONS["generate-full-elf"]
# As LLVM's option parser prints them: short names with a space before the value, aliases, values of an enumeration,
# options that a description mentions only.
LLVM_HELP = """\
USAGE: aiecc [options] <input mlir>

OPTIONS:

AIE Compiler Options:

  -O <uint>                  - Optimization level (0-3)
  --alloc-scheme=<string>    - Buffer allocation scheme; not for --aiesim
  --link_against_hsa         - Link against HSA runtime
  --placer=<value>           - Placement algorithm to use
    =sequential_placer       -   Sequential column-major placement
  -v                         - Alias for --verbose
  --verbose[=<bool>]         - Verbose execution
"""


def test_the_options_are_those_a_line_of_the_help_begins_with():
    assert listed_options(LLVM_HELP) == {
        "O": True,
        "alloc-scheme": True,
        "link_against_hsa": False,
        "placer": True,
        "v": False,
        "verbose": False,
    }


@pytest.mark.parametrize(
    ("generation", "text", "flags", "unlisted"),
    [
        (NEW, NEW_HELP, ("--alloc-scheme=basic-sequential",), ("--get-full-elf",)),
        (NEW, NEW_HELP, ("-alloc-scheme=basic-sequential",), ("--get-full-elf",)),
        (NEW, NEW_HELP, ("--get-npu-insts",), ("--get-full-elf", "--get-npu-insts")),
        (NEW, NEW_HELP + "  --get-full-elf\n  --get-later\n", ("--get-later",), ()),
        (NEW, NEW_HELP + "  -O <uint>  - Level\n", ("-O3", "-O=3"), ("--get-full-elf",)),
        (OLD, OLD_HELP, ("--alloc-scheme=basic-sequential", "--dynamic-objFifos"), ()),
    ],
)
def test_options_that_aiecc_has(generation, text, flags, unlisted):
    assert check_options(generation, flags, listed_options(text)) == unlisted


@pytest.mark.parametrize("generation", [NEW, OLD])
@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--allok-scheme=basic-sequential", "found none of that name; did you mean --alloc-scheme?"),
        # A name that only begins alike, one the help's prose mentions, one joined with its value, a bare separator.
        ("--alloc=basic-sequential", "found none of that name"),
        ("--aiesim", "found none of that name"),
        ("-O3", "found none of that name"),
        ("--get-ful-elf", "found none of that name"),
        ("--", "expected an option and its value in one word, --name=value"),
        ("basic-sequential", "expected an option and its value in one word, --name=value"),
        ("--alloc-scheme", "expected --alloc-scheme=<value>"),
        ("--alloc-scheme=basic-sequentiall", "expected --alloc-scheme= one of basic-sequential, bank-aware, found"),
        ("-alloc-scheme=Bank-Aware", "found Bank-Aware"),
        ("--alloc-scheme=", "found nothing; aiecc takes any other word for none at all"),
        ("--tmpdir=elsewhere", "elfkiln passes this one itself"),
        ("-full-elf-name=other.elf", "elfkiln passes this one itself"),
        ("-j8", "elfkiln passes this one itself"),
        ("--nthreads=8", "elfkiln passes this one itself"),
    ],
)
def test_options_that_aiecc_does_not_have_are_refused_by_name(generation, flag, expected):
    listed = listed_options((NEW_HELP if generation is NEW else OLD_HELP) + "  -v  - See --aiesim\n")
    with pytest.raises(Refused) as refused:
        check_options(generation, (flag,), listed)
    line = str(refused.value)
    assert line.startswith(f"toolchain.lock: target.npu2.aiecc_flags: {flag}: ")
    assert expected in line


@pytest.mark.parametrize(("name", "line"), [("--dynamic-objFifos", "  --dynamic-objFifos"), ("-j", "  -j <uint>")])
def test_an_option_of_the_table_that_aiecc_does_not_have_is_refused_too(name, line):
    assert line in OLD_HELP
    with pytest.raises(Refused) as refused:
        check_options(OLD, (), listed_options(OLD_HELP.replace(line, "  --other")))
    assert str(refused.value).startswith(f"aiecc --help: lists no {name}, which elfkiln passes")


def test_a_flag_of_the_lock_is_not_given_twice():
    # aiecc's option parser ends with an error at an option given twice.
    words = command_line(OLD, peano="P", flags=("--dynamic-objFifos=true",), dynamic_loops=True, jobs=1)
    assert [word for word in words if "dynamic" in word] == ["--dynamic-objFifos=true"]


def test_a_misspelt_value_is_told_with_the_right_one():
    # aiecc ends with exit code 0 on it and allocates as if no scheme had been asked for.
    with pytest.raises(Refused, match=r"found basic-sequentiall; did you mean basic-sequential\?$"):
        check_options(NEW, ("--alloc-scheme=basic-sequentiall",), listed_options(NEW_HELP))
    check_options(NEW, ("--alloc-scheme=bank-aware",), listed_options(NEW_HELP))


@pytest.mark.parametrize("generation", [NEW, OLD])
def test_no_progress_bar_where_aiecc_can_be_told(generation):
    listed = listed_options(NEW_HELP + "  --no-progress  - Disable the progress bar\n")

    def words(flags=(), **options):
        return command_line(generation, peano="P", flags=flags, dynamic_loops=False, jobs=1, **options)

    assert words(listed=listed) == (*words()[:-3], "--no-progress", *words()[-3:])
    assert words(listed=listed_options(NEW_HELP)) == words()
    assert words(("--no-progress",), listed=listed).count("--no-progress") == 1

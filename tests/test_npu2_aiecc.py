"""aiecc's command line: the generation read from --help, and the flags of each."""

import pytest

from elfkiln.errors import Refused
from elfkiln.npu2.aiecc import GENERATIONS, command_line, detect_generation, generation_digest
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


def test_each_row_of_the_table_has_its_own_digest():
    digests = {generation_digest(name) for name in GENERATIONS}
    assert len(digests) == len(GENERATIONS)

"""The errors a caller may meet: one hierarchy, one line each, an exit code each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

EXIT_DONE = 0
EXIT_DIFFERS = 1
EXIT_REFUSED = 2


class ElfkilnError(Exception):
    """Anything elfkiln refuses or finds wrong; its text is one line fit for a terminal."""

    exit_code = EXIT_REFUSED


class Refused(ElfkilnError):
    """Input or usage that cannot be honoured (exit code 2)."""


class Differs(ElfkilnError):
    """Something asked for is missing, damaged or not what its name says (exit code 1)."""

    exit_code = EXIT_DIFFERS


class BuildFailed(Differs):
    """A tool of the toolchain failed, or ended well without its output (exit code 1)."""


class SimulationFailed(Differs):
    """A simulated run ended in a misuse, a deadlock or an access out of range (exit code 1)."""


def refusal(what: str, *, expected: object, found: object, remedy: str = "") -> Refused:
    """Build a `Refused` that names the field or file, what was expected, what was found and what to do.

    >>> str(refusal("roles.yaml: hidden", expected="a positive integer", found="-1", remedy="correct the table"))
    'roles.yaml: hidden: expected a positive integer, found -1; correct the table'
    """
    return Refused(mismatch_line(what, expected=expected, found=found, remedy=remedy))


def mismatch_line(what: str, *, expected: object, found: object, remedy: str = "") -> str:
    """Return the one-line form every refusal uses; line breaks and overlong values of the input are folded."""
    line = f"{what}: expected {brief(expected)}, found {brief(found)}"
    return f"{line}; {remedy}" if remedy else line


def did_you_mean(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ` (did you mean X?)` when one of the known words is near, else nothing.

    `cutoff` is difflib's ratio from which a word counts as near; artifact names, which all begin alike, need 0.9.

    >>> did_you_mean("lokup", ["elfs", "lookup"])
    ' (did you mean lookup?)'
    >>> did_you_mean("frobnicate", ["elfs", "lookup"])
    ''
    """
    from difflib import get_close_matches

    near = get_close_matches(word, list(dict.fromkeys(known)), n=1, cutoff=cutoff)
    return f" (did you mean {near[0]}?)" if near else ""


def with_log(error: BuildFailed, log: str) -> BuildFailed:
    """Return an error with what the tools said so far hung on it as a note; a build keeps that (`log_of_error`)."""
    error.add_note(log)
    return error


def log_of_error(error: BaseException) -> str:
    """Return what was hung on an error as notes."""
    return "\n".join(getattr(error, "__notes__", ()))


def one_of(word: str, known: Iterable[str]) -> str:
    """Return `one of A, B`, and which of them is near a word that is none.

    >>> one_of("npu", ["npu2", "sim"])
    'one of npu2, sim (did you mean npu2?)'
    """
    names = list(known)
    return f"one of {', '.join(names)}{did_you_mean(word, names)}"


def brief(value: object, limit: int = 160) -> str:
    """Return the text of a value on one line of at most `limit` characters, escapes shown.

    >>> brief("a\\nb")
    'a\\\\nb'
    """
    try:
        text = str(value)
    except ValueError:
        # Python refuses to print an integer of more than 4,300 digits.
        text = "a number of thousands of digits"
    if len(text) > limit:
        text = text[: limit - 3] + "..."
    return one_line(text)


def one_line(text: object) -> str:
    """Return a text with everything that is not printable, line breaks too, as escapes.

    >>> one_line("a\\nb")
    'a\\\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))

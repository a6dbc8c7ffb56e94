"""C and C++ as a compiler sees them: one spelling for sources that differ in comments and white space alone.

A recipe holds the digests of these spellings, so that an edit no compiler can see asks for no rebuild. Two kinds of
text come in. Preprocessed text is split by the file each part came from: white space means nothing in it any more, so
its tokens stand one space apart. A source that was not preprocessed keeps its directives, and keeps whether there was
white space between two tokens (a macro may turn its arguments into a string), but not how much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_TOKEN = re.compile(
    r"""
    (?P<space>\s+) | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?:u8|u|U|L)?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
    | (?:u8|u|U|L)?"(?:\\.|[^"\\\n])*"
    | (?:u8|u|U|L)?'(?:\\.|[^'\\\n])+'
    | \.?[0-9](?:[eEpP][+-]|'?[\w.])*
    | [A-Za-z_$][\w$]*
    | <=>|<<=|>>=|\.\.\.|->\*|\#\#|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\*
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)\n?')
_BREAK_AFTER = (";", "{", "}")

POSITIONS = re.compile(r"__LINE__|__builtin_(?:LINE|COLUMN|source_location)|source_location")
"""What can put a line's number into the bytes: in a text with one of these, comments and lines count."""

ELSEWHERE = "headers of the compiler"
"""The name under which the parts of a preprocessed text stand that come from files outside the build folder."""


def source_text(text: str) -> str:
    """Return the one spelling of a source that was not preprocessed.

    >>> source_text("int  a; /* one */ // two\\n#define F( x )   x  + 1 // three\\n  int b = F( 2 );\\n")
    'int a;\\n#define F( x ) x + 1\\nint b = F( 2 );\\n'

    A text whose lines can be known from the bytes stays as it is, and so does one with a raw string, in which a
    backslash at the end of a line means what it says.
    """
    if POSITIONS.search(text) or re.search(r'R"', text):
        return text
    lines: list[str] = []
    line = ""
    directive = False
    for space, token in _tokens(re.sub(r"\\\r?\n", "", text)):
        if directive and space == "\n":
            lines.append(line)
            line, directive = "", False
        elif space and line:
            if not directive and line.endswith(_BREAK_AFTER):
                lines.append(line)
                line = ""
            elif token != "#" or directive or space != "\n":
                line += " "
        if token == "#" and not directive and (space == "\n" or not (lines or line)):
            if line:
                lines.append(line)
            line, directive = "", True
        line += token
    return "".join(f"{one.strip()}\n" for one in (*lines, line) if one.strip())


def seen_texts(preprocessed: str, folder_of_compiler: str) -> Mapping[str, str]:
    """Return what a compiler sees of each file of a preprocessed text, by name; files are named as it was given them.

    Where a file includes another, an `#include` line stands in its text, so that the whole can be put together again.
    Parts from files with absolute names, which come with the compiler, are put together under `ELSEWHERE` as they are;
    `folder_of_compiler` is what their names begin with. Macros that were defined (clang's -dD) stay lines.
    """
    parts: dict[str, list[str]] = {}
    stack: list[str] = []
    for name, entered, text in _sections(preprocessed):
        known = _known_name(name, folder_of_compiler)
        if entered:
            if stack and not known.startswith("<") and not stack[-1].startswith("<"):
                parts.setdefault(stack[-1], []).append(f"\n#include <{known}>\n")
            stack.append(known)
        else:
            while stack and stack[-1] != known:
                stack.pop()
            stack = stack or [known]
        if not name.startswith("<"):
            parts.setdefault(known, []).append(text)
    elsewhere: list[str] = []
    texts: dict[str, str] = {}
    for name, found in parts.items():
        if name.startswith("/"):
            elsewhere += [f"{name}\n", *found]
        else:
            texts[name] = _spelled("".join(found))
    if elsewhere:
        texts[ELSEWHERE] = "\n".join(line for line in "".join(elsewhere).splitlines() if line.strip()) + "\n"
    return texts


def _sections(text: str) -> Iterator[tuple[str, bool, str]]:
    """Yield (file, whether it begins here, text) of every part between two line markers."""
    start, name, entered = 0, "<none>", False
    for match in _MARKER.finditer(text):
        if match.start() and text[match.start() - 1] != "\n":
            continue
        if start:
            yield name, entered, text[start : match.start()]
        name, entered = match[2].replace('\\"', '"').replace("\\\\", "\\"), "1" in match[3].split() or name == "<none>"
        start = match.end()
    yield name, entered, text[start:]


def _known_name(name: str, folder_of_compiler: str) -> str:
    """Return a file's name without this machine's folders: `/...` below the compiler's folder, else as it was given."""
    if name.startswith(folder_of_compiler):
        return "/" + name.removeprefix(folder_of_compiler).lstrip("/")
    return name.removeprefix("./")


def _spelled(text: str) -> str:
    """Return preprocessed text with its tokens one space apart; directives that are left keep lines of their own."""
    lines: list[str] = []
    line: list[str] = []
    for number, part in enumerate(re.split(r"(?m)^[ \t]*(#[^\n]*)$", text)):
        if number % 2:
            lines += [" ".join(line), part.strip()]
            line = []
            continue
        for _, token in _tokens(part):
            line.append(token)
            if token in _BREAK_AFTER:
                lines.append(" ".join(line))
                line = []
    return "".join(f"{one}\n" for one in (*lines, " ".join(line)) if one)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield (what stands before it: nothing, a space or a line break; token). A comment is a space."""
    space = ""
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "space":
            space = "\n" if "\n" in match[0] or space == "\n" else " "
        elif match.lastgroup == "comment":
            space = space or " "
        else:
            yield space, match[0]
            space = ""

"""docs/reference.md, made from the table of verbs and the forms of their JSON: `elfkiln help reference` prints it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

from elfkiln.cli.json_forms import FORMS, VERSION, Form
from elfkiln.cli.verbs import VERBS, Verb
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, EXIT_REFUSED

_WIDTH = 100
_HEAD = f"""\
# Reference of the verbs

Made by `elfkiln help reference > docs/reference.md` from the table the command line itself is made from; a test holds
the two together.

Every verb is a subcommand of `elfkiln` and a doit task of the same name, unless it says otherwise. Words are
`key=value`, flags, or plain; what does not fit is refused. `~` at the start of a value is the home folder.

## Exit codes

- `{EXIT_DONE}`: done; everything asked for is there and verifies.
- `{EXIT_DIFFERS}`: something is missing, damaged, or not what its name says; each verb says what below.
- `{EXIT_REFUSED}`: usage, or input that was refused. One line on standard error names the field or file, what was
  expected, what was found and what to do.
- `130`: interrupted; nothing half-built entered the store.

## JSON

Every verb takes `--json`. The forms below are version {VERSION}: the number grows when a field goes or changes its
meaning; a new field or a new verb is not such a change. Keys are sorted, two spaces indent. The words:

- `text`, `count` (a whole number from 0), `number`, `flag` (true or false), `null`, `any`;
- `sha256`: `sha256:` and 64 hex digits; `hex`: 64 hex digits;
- `a|b`: one of them; `"key?"`: may be absent; `"*"`: any other key; `[form]`: a list of that form.
"""


def reference() -> str:
    """Return the text of docs/reference.md."""
    parts = [_wrapped_head(), *(_section(name, VERBS[name]) for name in sorted(VERBS))]
    return "\n".join(parts)


def _wrapped_head() -> str:
    blocks = [_wrap(block) if not block.startswith(("#", "-")) else _list(block) for block in _HEAD.split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def _list(block: str) -> str:
    items = block.replace("\n  ", " ").split("\n")
    return "\n".join(item if item.startswith("#") else _wrap(item, "  ") for item in items).rstrip()


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _section(name: str, verb: Verb) -> str:
    spec = verb.spec
    optional = len(spec.words) - spec.optional_words
    words = [word if number < optional else f"[{word}]" for number, word in enumerate(spec.words)]
    lines = [f"## {name}", "", _wrap(f"{verb.help[0].upper()}{verb.help[1:]}."), ""]
    lines += [f"    elfkiln {' '.join([name, *words])} [key=value ...]", ""]
    lines += [_wrap(f"- `{term}`: {text}", "  ") for term, text in _terms(verb)]
    if verb.tasks:
        tasks = ", ".join(f"`doit {' '.join([task, *()])}`" for task in verb.tasks)
        lines += ["", f"As a doit task: {tasks}."]
    lines += ["", "Examples:", "", *(f"    elfkiln {example}" for example in verb.examples), ""]
    differs = f"{EXIT_DIFFERS} {verb.differs}, " if verb.differs else ""
    lines += [_wrap(f"Exit code: {EXIT_DONE} done, {differs}{EXIT_REFUSED} refused."), "", "JSON:", "", "```"]
    lines += ["\nor\n".join(_form(form) for form in FORMS[name]), "```", ""]
    return "\n".join(lines)


def _terms(verb: Verb) -> Iterator[tuple[str, str]]:
    spec = verb.spec
    yield from ((f"{key}=", text) for key, text in spec.keys.items())
    yield from ((f"{flag} VALUE", text) for flag, text in spec.valued.items())
    yield from ((f"{flag} ONE TWO", text) for flag, text in spec.paired.items())
    yield from spec.flags.items()
    yield "--json", "print JSON for machines"


def _form(form: Form, indent: str = "") -> str:
    """Return a form as JSON-like text; what is short stands on one line."""
    flat = json.dumps(form)
    if len(indent) + len(flat) <= _WIDTH - 10 or isinstance(form, str):
        return flat
    inner = indent + "  "
    if isinstance(form, list):
        return f"[\n{inner}{_form(form[0], inner)}\n{indent}]"
    rows = (f"{inner}{json.dumps(key)}: {_form(value, inner)}" for key, value in form.items())
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"

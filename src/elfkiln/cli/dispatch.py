"""Finds the verb's module, runs it, and turns an `ElfkilnError` into one line and its exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from elfkiln.cli import VERBS
from elfkiln.cli.arguments import parse
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, EXIT_REFUSED, Differs, ElfkilnError, Refused, one_line


def dispatch(words: list[str]) -> int:
    """Run `words[0]` with the rest as its arguments and return the exit code."""
    try:
        code = _run(words)
        if sys.stdout is None:
            raise Differs("standard output is closed: nobody read the answer")
        sys.stdout.flush()
    except ElfkilnError as error:
        print(f"elfkiln: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the answer has gone: that it was good cannot be told.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return EXIT_DIFFERS
    except KeyboardInterrupt:
        print("elfkiln: interrupted; nothing half-built entered the store", file=sys.stderr)
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"elfkiln: {one_line(f'{where}{error.strerror or error}')}", file=sys.stderr)
        return EXIT_DIFFERS
    return code


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return EXIT_DONE if words else EXIT_REFUSED
    verb, given = words[0], words[1:]
    if verb not in VERBS:
        raise Refused(f"elfkiln: no verb {verb!r}; it has {', '.join(sorted(VERBS))}")
    module = import_module(f"elfkiln.cli.{VERBS[verb]}")
    if "--help" in given or "-h" in given:
        print(_usage(verb, module.HELP, module.SPEC))
        return EXIT_DONE
    code: int = module.run(parse(verb, module.SPEC, given))
    return code


def _overview() -> str:
    lines = ["usage: elfkiln VERB [key=value ...] [--json]", ""]
    width = max((len(verb) for verb in VERBS), default=0)
    lines += [f"  {verb:<{width}}  {import_module(f'elfkiln.cli.{VERBS[verb]}').HELP}" for verb in sorted(VERBS)]
    return "\n".join(lines)


def _usage(verb: str, text: str, spec: object) -> str:
    from elfkiln.cli.arguments import Spec

    assert isinstance(spec, Spec)
    lines = [f"usage: elfkiln {' '.join([verb, *spec.words])} [key=value ...]", "", text, ""]
    entries = [
        *((f"{k}=", v) for k, v in spec.keys.items()),
        *spec.valued.items(),
        *spec.paired.items(),
        *spec.flags.items(),
    ]
    entries.append(("--json", "print JSON for machines"))
    width = max(len(name) for name, _ in entries)
    lines += [f"  {name:<{width}}  {meaning}" for name, meaning in entries]
    return "\n".join(lines)

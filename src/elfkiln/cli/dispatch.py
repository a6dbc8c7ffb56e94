"""Finds the verb's module, runs it, and turns an `ElfkilnError` into one line and its exit code."""

from __future__ import annotations

from importlib import import_module

from elfkiln.cli.arguments import parse
from elfkiln.cli.verbs import VERBS, Verb
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, EXIT_REFUSED, ElfkilnError, Refused, did_you_mean, one_line
from elfkiln.io import variation
from elfkiln.io.terminal import tell


def dispatch(words: list[str]) -> int:
    """Run `words[0]` with the rest as its arguments and return the exit code."""
    # Builds of this process are nobody's reproduction, whatever the caller's environment says.
    variation.drop()
    try:
        return _run(words)
    except ElfkilnError as error:
        tell(f"elfkiln: {one_line(error)}")
        return error.exit_code
    except KeyboardInterrupt:
        tell("elfkiln: interrupted; nothing half-built entered the store")
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        tell(f"elfkiln: {one_line(f'{where}{error.strerror or error}')}")
        return EXIT_DIFFERS


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if words[1:2] == ["reference"]:
            from elfkiln.cli.reference import reference

            print(reference(), end="")
        elif words[:1] == ["help"] and words[1:]:
            print(_usage(words[1], _known(words[1])))
        else:
            print(_overview())
        return EXIT_DONE if words else EXIT_REFUSED
    verb, given = words[0], words[1:]
    known = _known(verb)
    if verb == "completion" and given[:1] == ["candidates"]:
        # What a shell asks at each press of the key: any words, options too.
        from elfkiln.cli.completion import candidates

        print("\n".join(candidates(given[1:])))
        return EXIT_DONE
    if "--help" in given or "-h" in given:
        print(_usage(verb, known))
        return EXIT_DONE
    arguments = parse(verb, known.spec, given)
    code: int = import_module(f"elfkiln.cli.{known.module}").run(arguments)
    return code


def _known(verb: str) -> Verb:
    if verb not in VERBS:
        near = did_you_mean(verb, VERBS)
        raise Refused(f"no verb {verb!r}{near}; it has {', '.join(sorted(VERBS))}")
    return VERBS[verb]


def _overview() -> str:
    lines = ["usage: elfkiln VERB [key=value ...] [--json]", ""]
    width = max(len(verb) for verb in VERBS)
    lines += [f"  {verb:<{width}}  {VERBS[verb].help}" for verb in sorted(VERBS)]
    return "\n".join([*lines, "", "elfkiln VERB --help says what a verb takes, with examples."])


def _usage(verb: str, known: Verb) -> str:
    spec = known.spec
    lines = [f"usage: elfkiln {' '.join([verb, *spec.words])} [key=value ...]", "", known.help, ""]
    entries = [
        *((f"{k}=", v) for k, v in spec.keys.items()),
        *spec.valued.items(),
        *spec.paired.items(),
        *spec.flags.items(),
    ]
    entries.append(("--json", "print JSON for machines"))
    width = max(len(name) for name, _ in entries)
    lines += [f"  {name:<{width}}  {meaning}" for name, meaning in entries]
    lines += ["", "examples:", *(f"  elfkiln {example}" for example in known.examples)]
    differs = f"1 {known.differs}; " if known.differs else ""
    return "\n".join([*lines, "", f"exit code: 0 done; {differs}2 usage or refused input"])

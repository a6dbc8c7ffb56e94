"""Arguments of the verbs: `key=value` words, flags and plain words, the same on the command line and in doit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from elfkiln.errors import Refused, did_you_mean


@dataclass(frozen=True, slots=True)
class Spec:
    """What a verb takes: keys of `key=value` words, `--flags` (each with a value or none), and plain words.

    `keys` and `valued` map a name to its help text, `flags` likewise for those without a value and `paired` for those
    with two. `words` names the plain words in order; `optional_words` of them, counted from the end, may be left out.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    valued: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    optional_words: int = 0
    paired: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a verb was given, already checked against its `Spec`."""

    keys: Mapping[str, str]
    flags: frozenset[str]
    valued: Mapping[str, str]
    words: tuple[str, ...]
    paired: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def json(self) -> bool:
        """Whether `--json` was given; every verb takes it."""
        return "--json" in self.flags


def parse(verb: str, spec: Spec, given: list[str]) -> Arguments:
    """Check the words after a verb against its spec; raise `Refused` naming the word that does not fit."""
    keys: dict[str, str] = {}
    valued: dict[str, str] = {}
    paired: dict[str, tuple[str, str]] = {}
    flags: set[str] = set()
    words: list[str] = []
    rest = iter(given)
    for word in rest:
        name, equals, value = word.partition("=")
        if word in spec.flags or word == "--json":
            flags.add(word)
        elif name in spec.valued:
            text = value if equals else next(rest, None)
            if text is None:
                raise Refused(f"{verb}: {name} takes a value; see elfkiln {verb} --help")
            if name in valued:
                raise Refused(f"{verb}: {name} is given twice: {valued[name]} and {text}")
            valued[name] = _without_tilde(verb, name, text)
        elif word in spec.paired:
            first, second = next(rest, None), next(rest, None)
            if first is None or second is None:
                raise Refused(f"{verb}: {word} takes two values; see elfkiln {verb} --help")
            if word in paired:
                raise Refused(f"{verb}: {word} is given twice: {' '.join(paired[word])} and {first} {second}")
            paired[word] = (first, second)
        elif word.startswith("-n") and word[2:].isdigit() and "-n" in spec.valued:
            valued["-n"] = word[2:]
        elif word.startswith("-") and word != "-":
            near = did_you_mean(name, (*spec.flags, *spec.valued, *spec.paired, "--json"))
            raise Refused(f"{verb}: {word} is not an option of this verb{near}; see elfkiln {verb} --help")
        elif equals and (name in spec.keys):
            if name in keys:
                raise Refused(f"{verb}: {name}= is given twice: {name}={keys[name]} and {name}={value}")
            keys[name] = _without_tilde(verb, name, value)
        elif equals and "/" not in name and name.isidentifier():
            known = ", ".join(f"{key}=" for key in spec.keys) or "none"
            near = did_you_mean(f"{name}=", (f"{key}=" for key in spec.keys))
            raise Refused(f"{verb}: {name}= is not an argument of this verb{near}; it takes {known}")
        else:
            words.append(word)
    least, most = len(spec.words) - spec.optional_words, len(spec.words)
    if not least <= len(words) <= most:
        raise Refused(f"{verb}: takes {' '.join(spec.words) or 'no plain words'}, found {' '.join(words) or 'none'}")
    return Arguments(keys, frozenset(flags), valued, tuple(words), paired)


def _without_tilde(verb: str, name: str, value: str) -> str:
    """Return a value with the home folder in the place of its `~`, which not every shell puts there after a `=`."""
    if not value.startswith("~"):
        return value
    expanded = os.path.expanduser(value)
    if expanded.startswith("~"):
        raise Refused(f"{verb}: {name}={value}: no home folder of that name; a folder called so is {name}=./{value}")
    return expanded

"""YAML read strictly: plain mappings, lists and scalars with their lines; nothing YAML can hide is let through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.file_kinds import HEAD_BYTES, disguise
from elfkiln.io.reading import read_text

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the file: a dict or list of further fields, or the text of a scalar, with its line (from 1).

    `plain` tells `8` from `"8"`: only an unquoted scalar may be a number or a boolean.
    """

    value: dict[str, Field] | list[Field] | str
    line: int
    plain: bool = False


def read_strict_yaml(path: Path, *, limit: int = MAX_BYTES, remedy: str = "") -> Field:
    """Read a YAML file of at most `limit` bytes; raises `Refused` naming file and line, and `remedy`.

    Refused: a file that is absent, no regular file, too long, not UTF-8 or not YAML; more than one document; anchors,
    aliases and tags (an alias bomb needs them); duplicate keys; keys that are not plain words; nesting over 16 levels.
    """
    return parse_strict_yaml(read_text(path, limit=limit, remedy=remedy), path.name, remedy=remedy)


def parse_strict_yaml(text: str, where: str, *, remedy: str = "") -> Field:
    """Parse YAML text as `read_strict_yaml` does; `where` stands for the file in messages.

    >>> field = parse_strict_yaml("a: 1\\nb: [x, 'y']\\n", "t.yaml")
    >>> field.value["b"].line, [item.value for item in field.value["b"].value]
    (2, ['x', 'y'])
    """
    other = disguise(text[:HEAD_BYTES].encode())
    if other is not None:
        raise refusal(where, expected="YAML", found=other[0], remedy=other[1])
    builder = _Builder(where, remedy)
    try:
        # libyaml's parser where PyYAML has it: a registry of thousands of names takes seconds without. Events and not
        # nodes: composing them goes as deep into the stack as the text nests.
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise refusal(f"{where}{line}", expected="YAML", found=problem, remedy=remedy) from error
    if builder.top is None:
        raise refusal(where, expected="a mapping", found="an empty file", remedy=remedy)
    return builder.top


class _Builder:
    """Makes fields of a parser's events, and refuses what the file may not hold as soon as it comes."""

    def __init__(self, where: str, remedy: str) -> None:
        self.top: Field | None = None
        self._where = where
        self._remedy = remedy
        self._documents = 0
        # What is open, outermost first, and for each mapping the key whose value comes next.
        self._open: list[Field] = []
        self._keys: list[str | None] = []

    def take(self, event: yaml.Event) -> None:
        """Take the next event."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._keys.pop()
            self._put(self._open.pop())
            return
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._refuse(line, expected="one document", found="a second one")
        elif isinstance(event, yaml.NodeEvent):
            self._node(event, line)

    def _node(self, event: yaml.NodeEvent, line: int) -> None:
        if event.anchor is not None:
            raise self._refuse(line, expected="no anchors and aliases", found=f"&{event.anchor}")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self._refuse(line, expected="no tags", found=tag)
        awaits_key = bool(self._open) and isinstance(self._open[-1].value, dict) and self._keys[-1] is None
        if isinstance(event, yaml.ScalarEvent):
            if awaits_key:
                self._key(str(event.value), line)
            else:
                self._put(Field(str(event.value), line, plain=not event.style))
            return
        if awaits_key:
            raise self._refuse(line, expected="a word as key", found="a list or mapping")
        if len(self._open) == MAX_DEPTH:
            raise self._refuse(line, expected=f"at most {MAX_DEPTH} levels", found="deeper nesting")
        self._open.append(Field({} if isinstance(event, yaml.MappingStartEvent) else [], line))
        self._keys.append(None)

    def _key(self, key: str, line: int) -> None:
        table = self._open[-1].value
        assert isinstance(table, dict)
        if key in table:
            raise self._refuse(line, expected="each key once", found="it twice", field=f": {brief(key)}")
        self._keys[-1] = key

    def _put(self, field: Field) -> None:
        if not self._open:
            self.top = field
            return
        holder = self._open[-1].value
        if isinstance(holder, list):
            holder.append(field)
            return
        assert isinstance(holder, dict)
        key = self._keys[-1]
        assert key is not None  # a key comes before each value of a mapping
        holder[key] = field
        self._keys[-1] = None

    def _refuse(self, line: int, *, expected: str, found: str, field: str = "") -> Refused:
        return refusal(f"{self._where} line {line}{field}", expected=expected, found=found, remedy=self._remedy)

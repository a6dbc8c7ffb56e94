"""YAML read strictly: plain mappings, lists and scalars with their lines; nothing YAML can hide is let through."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from elfkiln.errors import Refused, refusal

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


def read_strict_yaml(path: Path) -> Field:
    """Read a YAML file; raises `Refused` naming file and line.

    Refused: a file that is absent, not UTF-8, over 256 KiB or not YAML; more than one document; anchors, aliases and
    tags (an alias bomb needs them); duplicate keys; keys that are no plain words; nesting over 16 levels.
    """
    return parse_strict_yaml(_read_text(path), path.name)


def parse_strict_yaml(text: str, where: str) -> Field:
    """Parse YAML text as `read_strict_yaml` does; `where` stands for the file in messages.

    >>> field = parse_strict_yaml("a: 1\\nb: [x, 'y']\\n", "t.yaml")
    >>> field.value["b"].line, [item.value for item in field.value["b"].value]
    (2, ['x', 'y'])
    """
    try:
        _refuse_hidden(text, where)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise refusal(f"{where}{line}", expected="YAML", found=problem) from error
    if node is None:
        raise refusal(where, expected="a mapping", found="an empty file")
    return _field(node, where)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise Refused(f"{path}: missing") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise refusal(path.name, expected=f"at most {MAX_BYTES} bytes", found="a longer file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refusal(path.name, expected="UTF-8 text", found=f"byte {error.start} is not UTF-8") from error


def _refuse_hidden(text: str, where: str) -> None:
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise refusal(f"{where} line {line}", expected="one document", found="a second one")
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if anchor is not None:
            raise refusal(f"{where} line {line}", expected="no anchors and aliases", found=f"&{anchor}")
        if tag is not None:
            raise refusal(f"{where} line {line}", expected="no tags", found=tag)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise refusal(f"{where} line {line}", expected=f"at most {MAX_DEPTH} levels", found="deeper nesting")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _field(node: yaml.Node, where: str) -> Field:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Field] = {}
        for key, value in node.value:
            key_line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise refusal(f"{where} line {key_line}", expected="a word as key", found="a list or mapping")
            if key.value in entries:
                raise refusal(f"{where} line {key_line}: {key.value}", expected="each key once", found="it twice")
            entries[key.value] = _field(value, where)
        return Field(entries, line)
    if isinstance(node, yaml.SequenceNode):
        return Field([_field(item, where) for item in node.value], line)
    assert isinstance(node, yaml.ScalarNode)  # compose makes no fourth kind
    return Field(str(node.value), line, plain=node.style is None)

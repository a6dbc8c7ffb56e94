"""`elfkiln diff`: which names one plan or model asks for beyond another, or one generation of the registry has."""

from __future__ import annotations

import os

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, show_notes, strict_roles
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE
from elfkiln.models.plan.compare import SetDifference
from elfkiln.models.requirement import Requirement
from elfkiln.project import Project
from elfkiln.work.asked import asked_by_word
from elfkiln.work.diff import diff


def run(arguments: Arguments) -> int:
    """Compare; return 1 when they differ.

    A word is a plan.json, a folder with one, or a model below plans/; two numbers that are none of these are
    generations.
    """
    if all(word.isascii() and word.isdigit() and len(word) < 10 for word in arguments.words):
        project = project_of(arguments)
        if not any(os.path.lexists(word) or os.path.lexists(project.plans / word) for word in arguments.words):
            return _generations(project, arguments)
    project, target, strict = project_of(arguments), arguments.keys.get("target"), strict_roles(arguments)
    old, new = (asked_by_word(project, word, target=target, strict=strict) for word in arguments.words)
    notes = list(dict.fromkeys((*old.notes, *new.notes)))
    show_notes(notes)
    found = diff(old, new)
    if arguments.json:
        print_json(_data(found) | {"notes": notes})
    else:
        print("\n".join(_lines(found, arguments.words)))
    return EXIT_DONE if found.empty else EXIT_DIFFERS


def _generations(project: Project, arguments: Arguments) -> int:
    from elfkiln.work.generations import compare_generations

    found = compare_generations(project, *(int(word) for word in arguments.words))
    if arguments.json:
        print_json(found.to_json())
    else:
        print("\n".join(found.lines()))
    return EXIT_DONE if found.empty else EXIT_DIFFERS


def _lines(found: SetDifference, words: tuple[str, ...]) -> list[str]:
    if found.empty:
        return [f"{words[0]} and {words[1]} ask for the same names in the same way"]
    lines = [str(entry) for entry in found.headers]
    for title, entries in (("gained", found.gained), ("lost", found.lost)):
        lines += [f"{title}  {entry.path}" for entry in entries]
    for change in found.changed:
        said = ", ".join(f"{name} {old} -> {new}" for name, old, new in change.attributes)
        lines.append(f"changed {change.name}: {said}")
    lines.append(f"{len(found.gained)} gained, {len(found.lost)} lost, {len(found.changed)} changed")
    return lines


def _data(found: SetDifference) -> dict[str, object]:
    return {
        "same": found.empty,
        "fields": [entry.data("old", "new") for entry in found.headers],
        "gained": [_row(entry) for entry in found.gained],
        "lost": [_row(entry) for entry in found.lost],
        "changed": [
            {"name": change.name, **{name: {"old": old, "new": new} for name, old, new in change.attributes}}
            for change in found.changed
        ],
    }


def _row(requirement: Requirement) -> dict[str, object]:
    return {"name": requirement.file_name, "directory": requirement.directory, "columns": requirement.columns}

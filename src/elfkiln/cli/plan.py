"""`elfkiln plan`: writes or checks the plan.json of a model folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, show_notes
from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Differs, Refused, one_line, refusal
from elfkiln.models.plan.compare import Checked, check_plan
from elfkiln.models.plan.generate import Generated, Options, generate_plan, write_plan
from elfkiln.project import find_project
from elfkiln.work.asked import asked_of_plan

_MOST_SHOWN = 40


def run(arguments: Arguments) -> int:
    """Generate, then write, print or compare."""
    if {"--check", "--print"} <= arguments.flags:
        raise Refused("plan: takes --check or --print, not both")
    if "--from-config" in arguments.valued:
        from elfkiln.cli.plan_from_config import run_from_config

        return run_from_config(arguments)
    if "name" in arguments.keys:
        raise Refused("plan: name= goes with --from-config alone: a plan has no name of its own")
    named = (*arguments.words, *filter(None, (arguments.keys.get("dir"),)))
    if len(named) != 1:
        raise Refused("plan: takes one model folder, MODELDIR or dir=")
    folder = Path(named[0])
    if not os.path.isdir(folder):
        raise refusal("plan: MODELDIR", expected="a folder", found=folder)
    generated = generate_plan(folder, _options(arguments))
    file = _path(arguments, "--out", "a file") or folder / PLAN_FILE
    show_notes(generated.notes)
    if "--check" in arguments.flags:
        return _check(file, generated, json=arguments.json)
    if "--print" in arguments.flags:
        print(generated.text, end="")
        return EXIT_DONE
    # Before it is written: a plan that elfs would refuse is refused here.
    summary = _summary(folder, generated)
    write_plan(file, generated)
    if arguments.json:
        print_json({"file": str(file), "notes": list(generated.notes), **summary})
    else:
        print(
            f"wrote {one_line(file)}: {summary['layers']} layers, layout {summary['layout']}, "
            f"gate and up {summary['gate_up']}, {summary['names']} names"
        )
    return EXIT_DONE


def _options(arguments: Arguments) -> Options:
    decode = arguments.keys.get("decode", "true")
    if decode not in ("true", "false"):
        raise refusal("plan: decode", expected="true or false", found=decode)
    return Options(
        _path(arguments, "--kernels", "a directory"),
        arguments.keys.get("layout"),
        arguments.keys.get("tag"),
        decode == "true",
    )


def _path(arguments: Arguments, option: str, expected: str) -> Path | None:
    text = arguments.valued.get(option)
    if text == "":
        raise refusal(f"plan: {option}", expected=expected, found="nothing")
    return None if text is None else Path(text)


def _summary(folder: Path, generated: Generated) -> dict[str, object]:
    project = None
    with contextlib.suppress(Refused):
        project = find_project()
    plan = generated.plan
    names = len(asked_of_plan(project, plan, folder.resolve()).wanted.requirements)
    return {"layers": len(plan.layers), "layout": plan.layout, "gate_up": plan.gate_up, "names": names}


def _check(file: Path, generated: Generated, *, json: bool) -> int:
    if not os.path.exists(file):
        raise Differs(f"missing plan {file}; write it with elfkiln plan")
    found = check_plan(file, generated)
    notes = [f"{file}: {note}" for note in found.notes]
    show_notes(notes)
    if json:
        print_json(
            {
                "file": str(file),
                "current": found.current,
                "differences": [entry.data("plan", "generated") for entry in found.differences],
                "refused": found.refused or None,
                "notes": [*generated.notes, *notes],
            }
        )
    else:
        print("\n".join(_lines(file, found)))
    return EXIT_DONE if found.current else EXIT_DIFFERS


def _lines(file: Path, found: Checked) -> list[str]:
    if found.current:
        return [f"{one_line(file)} is current"]
    lines = []
    count = len(found.differences)
    if count:
        lines.append(
            f"{one_line(file)} differs from what its model folder gives in {count} field{'s' if count > 1 else ''}:"
        )
        lines += [f"  {entry}" for entry in found.differences[:_MOST_SHOWN]]
    if count > _MOST_SHOWN:
        lines.append(f"  and {count - _MOST_SHOWN} more; --json lists all")
    if found.refused:
        lines.append(f"the loader refuses it: {found.refused}")
    return lines

"""`elfkiln plan`: writes or checks the plan.json of a model folder."""

from __future__ import annotations

import os
from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import print_json
from elfkiln.cli.named_plan import show_notes
from elfkiln.engine.contract import PLAN_FILE
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Differs, Refused, refusal
from elfkiln.models.plan.compare import Checked, check_plan
from elfkiln.models.plan.generate import Generated, Options, generate_plan, write_plan
from elfkiln.models.plan.names import plan_requirements

HELP = "write the plan.json of a model folder, or check the one it has"
SPEC = Spec(
    keys={
        "dir": "the model folder, instead of MODELDIR",
        "layout": "rm, b8, pb16i or t2s, where container and config.json do not tell",
        "tag": "the family of a t2s container: _t2s or _t2s2",
        "decode": "false: without the 16-row twins (default: true)",
    },
    valued={
        "--kernels": "the engine's kernel directory: what it holds decides fused or split, and batched experts",
        "--out": "the file to write or check (default: plan.json in the model folder)",
    },
    flags={
        "--check": "generate again and compare; exit 1 and name the fields on any difference",
        "--print": "print the plan instead of writing it",
    },
    words=("MODELDIR",),
    optional_words=1,
)
_MOST_SHOWN = 40


def run(arguments: Arguments) -> int:
    """Generate, then write, print or compare."""
    if {"--check", "--print"} <= arguments.flags:
        raise Refused("plan: takes --check or --print, not both")
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
    write_plan(file, generated)
    if arguments.json:
        print_json({"file": str(file), "notes": list(generated.notes), **_summary(folder, generated)})
    else:
        summary = _summary(folder, generated)
        print(
            f"wrote {file}: {summary['layers']} layers, layout {summary['layout']}, "
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
    plan = generated.plan
    names = len(plan_requirements(plan, folder.name).requirements)
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
        return [f"{file} is current"]
    lines = []
    count = len(found.differences)
    if count:
        lines.append(f"{file} differs from what its model folder gives in {count} field{'s' if count > 1 else ''}:")
        lines += [f"  {entry}" for entry in found.differences[:_MOST_SHOWN]]
    if count > _MOST_SHOWN:
        lines.append(f"  and {count - _MOST_SHOWN} more; --json lists all")
    if found.refused:
        lines.append(f"the loader refuses it: {found.refused}")
    return lines

"""`elfkiln toolchain ...`: install, show, mirror and bump the pinned toolchains."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import print_json, project_of, target_of
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused, one_line, one_of
from elfkiln.project import Project
from elfkiln.targets.table import TARGETS
from elfkiln.work.toolchain import install_toolchain, mirror_toolchain

if TYPE_CHECKING:
    from elfkiln.targets.given_wheels import CandidateLock
    from elfkiln.targets.target import Builder
    from elfkiln.work.bump_preview import Previewed


def run(arguments: Arguments) -> int:
    """Do what the first word says; `status target=...` ends with 1 when that target is not usable."""
    actions = {"install": _install, "status": _status, "mirror": _mirror, "bump": _bump}
    action = arguments.words[0]
    if action not in actions:
        raise Refused(f"toolchain: takes {one_of(action, actions)}, found {action}")
    _refuse_unused(action, arguments)
    return actions[action](project_of(arguments), arguments)


def _install(project: Project, arguments: Arguments) -> int:
    result = install_toolchain(project, target_of(project, arguments), _wheels(arguments), _say)
    if arguments.json:
        print_json(result)
    else:
        print(f"target {result['target']}: {result['versions']} is installed (toolchain {str(result['digest'])[:12]})")
    return EXIT_DONE


def _status(project: Project, arguments: Arguments) -> int:
    from elfkiln.work.toolchain_status import toolchain_status

    only = arguments.keys.get("target")
    rows = toolchain_status(project, only)
    if arguments.json:
        print_json({"targets": [row.to_json() for row in rows]})
    else:
        for row in rows:
            mark = " (default)" if row.is_default else ""
            state = "usable" if row.usable else "not usable"
            place = "installed" if row.installed else "not installed"
            print(f"{row.target}{mark}: {row.versions}")
            print(f"  digest   {row.digest}")
            print(f"  state    {place}, {state}{': ' + row.reason if row.reason else ''}")
            if row.mirrored is not None:
                print(f"  mirror   {'in the store' if row.mirrored else 'none; elfkiln toolchain mirror makes one'}")
    return EXIT_DIFFERS if only is not None and not all(row.usable for row in rows) else EXIT_DONE


def _mirror(project: Project, arguments: Arguments) -> int:
    mirrored = [name for name, target in TARGETS.items() if target.has_wheels]
    target = target_of(project, arguments) if "target" in arguments.keys else mirrored[0]
    if target not in mirrored:
        known = ", ".join(mirrored)
        raise Refused(f"toolchain mirror: target {target} has no wheels of its own to mirror; {known} has")
    result = mirror_toolchain(project, target, _wheels(arguments), _say)
    if arguments.json:
        print_json(result)
    else:
        stored, kept = result["stored"], result["kept"]
        assert isinstance(stored, list)
        assert isinstance(kept, list)
        print(f"mirror {result['ref']}: {len(stored)} wheels stored, {len(kept)} were there")
    return EXIT_DONE


def _bump(project: Project, arguments: Arguments) -> int:
    from elfkiln.targets.given_wheels import write_candidate
    from elfkiln.work.bump import bump

    wheels, out = arguments.keys.get("wheels", ""), arguments.keys.get("out")
    assembler = arguments.keys.get("aiebu-asm")
    if not (wheels or assembler) or not out:
        raise Refused(
            "toolchain bump: takes wheels=<files or a folder, comma between them> and out=<file>; aiebu-asm=<program> "
            "in place of wheels= or beside it"
        )
    given = [Path(word) for word in wheels.split(",") if word]
    found = bump(project, given, Path(assembler) if assembler else None)
    candidate = found.lock
    write_candidate(candidate.text, Path(out), overwrite="--overwrite" in arguments.flags)
    previewed = _preview(project, candidate, given) if "--build" in arguments.flags else None
    if arguments.json:
        built = {} if previewed is None else {"preview": [one.to_json() for one in previewed]}
        print_json({"out": out, **found.to_json(), **built})
        return EXIT_DONE
    after, before = candidate.digest[:12], candidate.digest_before[:12]
    print(f"candidate {one_line(out)}: toolchain {candidate.target} {after}, was {before}")
    for change in candidate.changes:
        print(f"  {change.name}: {change.before or 'not pinned'} -> {change.after}")
    if candidate.digest == candidate.digest_before:
        print("nothing changes")
    else:
        why = f": {candidate.why}" if found.names else ""
        print(f"{found.recipes} recipes would change, under {len(found.names)} names of registry.yaml{why}")
    # What is built is listed below, with what came of it.
    for name in found.names if previewed is None else ():
        print(f"  {name}")
    if found.models:
        many = "model" if found.models == 1 else f"{found.models} models"
        print(
            f"{found.unbuilt} of {found.wanted} names of the {many} below plans/ have no {candidate.target} recipe yet"
        )
    for note in found.notes:
        print(f"note: {note}")
    if previewed is not None:
        changed = sum(one.changed and one.after is not None for one in previewed)
        failed = sum(one.after is None for one in previewed)
        print(
            f"built under the candidate, and not registered: {len(previewed)} names, {changed} with other bytes, "
            f"{failed} not built"
        )
        for one in previewed:
            for line in one.lines():
                print(f"  {line}")
        if any(one.changed and one.after is not None and not one.difference for one in previewed):
            print(
                "note: where the registered ELF is not in the store, which sections differ is not said; elfs makes it"
            )
    return EXIT_DONE


def _preview(project: Project, candidate: CandidateLock, wheels: list[Path]) -> tuple[Previewed, ...]:
    """Build every registered name of the candidate's target with the candidate's toolchain."""
    from elfkiln.store.toolchain_lock import read_lock
    from elfkiln.work.bump_preview import preview

    def builder_of(trial: Project) -> Builder:
        pin = read_lock(trial.lock_file).target(candidate.target)
        return TARGETS[candidate.target].trial_builder(trial, pin, wheels, _say)

    return preview(project, candidate.text, candidate.target, builder_of)


def _wheels(arguments: Arguments) -> Path | None:
    text = arguments.keys.get("wheels")
    if text is None:
        return None
    if not text or not Path(text).is_dir():
        raise Refused(f"wheels={text}: not a folder; name the one that holds the pinned wheels")
    return Path(text).resolve()


_TAKES = {
    "install": {"target", "wheels", "root"},
    "status": {"target", "root"},
    "mirror": {"target", "wheels", "root"},
    "bump": {"wheels", "aiebu-asm", "out", "root"},
}


def _refuse_unused(action: str, arguments: Arguments) -> None:
    for key in arguments.keys:
        if key not in _TAKES[action]:
            raise Refused(f"toolchain {action}: takes no {key}=")
    for flag in ("--overwrite", "--build"):
        if flag in arguments.flags and action != "bump":
            raise Refused(f"toolchain {action}: takes no {flag}")


def _say(line: str) -> None:
    print(f"toolchain: {line}", file=sys.stderr, flush=True)

"""`elfkiln fsck`: what is corrupt, missing or unreferenced, and mending it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from elfkiln.cli.arguments import Arguments
from elfkiln.cli.common import mirrors_of, print_json, project_of
from elfkiln.errors import Refused
from elfkiln.targets.table import builder_for
from elfkiln.work.fsck import REPAIR, fsck
from elfkiln.work.progress import Progress


def run(arguments: Arguments) -> int:
    """Check, repair where asked to, and return 0, 1 (corrupt), 3 (missing) or 4 (only unreferenced)."""
    project = project_of(arguments)
    folders = [Path(arguments.keys["dir"])] if "dir" in arguments.keys else []
    mend = "--repair" in arguments.flags
    if "mirror" in arguments.keys and not mend:
        raise Refused("fsck: mirror= says where --repair fetches from; give both")
    progress = Progress.silent() if arguments.json else Progress.console()
    found = fsck(project, folders, progress=progress)
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    if mend and found.damaged:
        from elfkiln.work.repair import repair

        mirrors = mirrors_of(arguments, project, "fsck")
        repaired = repair(project, found, partial(builder_for, project), mirrors, folders=folders, progress=progress)
        done, left, found = repaired.done, repaired.left, repaired.checkup
    if arguments.json:
        print_json(found.to_json() | {"repaired": list(done), "left": list(left)})
        return found.exit_code
    for line in done:
        print(f"repaired {line}")
    for line in left:
        print(f"left     {line}")
    print("\n".join(found.lines()))
    if found.damaged and not mend:
        print(f"{REPAIR} moves damaged blobs aside and builds them anew; mirror=oci://HOST/REPO fetches them")
    return found.exit_code

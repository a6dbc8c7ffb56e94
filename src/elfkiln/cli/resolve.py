"""`elfkiln resolve NAME`: what the engine would open for a name, and why."""

from __future__ import annotations

from pathlib import Path

from elfkiln.cli.arguments import Arguments, Spec
from elfkiln.cli.common import (
    LAYOUT,
    MODEL,
    PLAN,
    ROOT,
    TARGET,
    one_set_of,
    planned_model,
    print_json,
    project_of,
    target_of,
)
from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, Refused, refusal
from elfkiln.io.files import digest_or_none
from elfkiln.models.plan.search import Candidates, walk_candidates
from elfkiln.store.registry import load_registry
from elfkiln.work.plan_check import opened_of, size_of

HELP = "say which file the engine would open for a name, which it would pass over, and why"
SPEC = Spec(
    keys=MODEL
    | PLAN
    | LAYOUT
    | TARGET
    | {"dir": "the model folder (default: the plan's)", "kernels": "the engine's --kernels directory"}
    | ROOT,
    words=("NAME",),
)


def run(arguments: Arguments) -> int:
    """Print the candidates in order; return 1 when the engine would find none."""
    project = project_of(arguments)
    target = target_of(project, arguments)
    found = _candidates(arguments)
    entries = load_registry(project.registry_file).entries(target)
    names: dict[str, list[str]] = {}
    for key, entry in sorted(entries.items()):
        names.setdefault(entry.elf, []).append(key)
    choice = opened_of(found)
    rows = []
    for path in found.paths:
        if path == choice.opened:
            state = "opened: the first that exists and has at least one byte"
        elif path in choice.shadowed:
            state = "shadowed: an earlier directory has the name"
        elif path in choice.empty:
            state = "passed over: empty"
        else:
            state = "passed over: not a regular file" if path.exists() else "passed over: no such file"
        digest = digest_or_none(path)
        registered = ", ".join(names.get(digest, [])) if digest else None
        rows.append(
            {"path": str(path), "state": state, "bytes": size_of(path), "sha256": digest, "is": registered or None}
        )
    if arguments.json:
        opened = str(choice.opened) if choice.opened else None
        print_json({"name": found.requirement.file_name, "opened": opened, "candidates": rows})
    else:
        for row in rows:
            detail = f"  sha256:{row['sha256']}, registered as {row['is'] or 'nothing'}" if row["sha256"] else ""
            print(f"{row['path']}  {row['state']}{detail}")
        print(f"opens {choice.opened}" if choice.opened else f"missing full ELF {found.paths[-1]}")
    return EXIT_DONE if choice.opened else EXIT_DIFFERS


def _candidates(arguments: Arguments) -> Candidates:
    project = project_of(arguments)
    name = arguments.words[0]
    kernels = Path(arguments.keys["kernels"]) if "kernels" in arguments.keys else None
    planned = planned_model(project, arguments, "resolve")
    folder = arguments.keys.get("dir")
    if planned is not None:
        wanted = planned.wanted
        found = walk_candidates(planned.plan, wanted, Path(folder) if folder else planned.folder, kernels)
    else:
        if not folder:
            raise Refused("resolve: dir= is needed with model=: the model folder the engine would be given")
        wanted = one_set_of(project, arguments, "resolve")
        found = walk_candidates(None, wanted, Path(folder), kernels)
    for candidates in found:
        if candidates.requirement.file_name == name:
            return candidates
    raise refusal(
        "resolve",
        expected=f"a name {wanted.model} asks for in layout {wanted.layout}",
        found=name,
        remedy="elfkiln lookup lists them",
    )

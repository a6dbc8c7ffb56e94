"""What several verbs share: opening the project, choosing models, plans and targets, printing JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from elfkiln.cli.arguments import Arguments
from elfkiln.errors import Refused, refusal
from elfkiln.models.catalogue import all_models
from elfkiln.models.requirement import RequirementSet
from elfkiln.project import Project, find_project, named_project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.work.asked import Asked, asked_by_model, asked_by_plan

if TYPE_CHECKING:
    from elfkiln.store.policy import Policy
    from elfkiln.work.mirrors import Mirrors


def project_of(arguments: Arguments) -> Project:
    """Return the project that `root=` names, or the nearest one."""
    root = arguments.keys.get("root")
    return find_project() if root is None else named_project(root)


def target_of(project: Project, arguments: Arguments) -> str:
    """Return the target asked for, checked against toolchain.lock."""
    return read_lock(project.lock_file).target(arguments.keys.get("target")).name


def models_of(project: Project, arguments: Arguments, verb: str) -> tuple[str, ...]:
    """Return the models that `model=` names; `Refused` listing the known ones when it is absent."""
    model = arguments.keys.get("model")
    known = all_models(project)
    if not model:
        raise Refused(f"{verb}: model= is needed: all, or one of {', '.join(known) or 'none yet'}")
    return known if model == "all" else (model,)


def asked_of(project: Project, arguments: Arguments, verb: str, *, notes: bool = True) -> tuple[Asked, ...]:
    """Return what `plan=`, or `model=` and `layout=`, ask for, and show the notes of their plans (unless asked not to).

    A plan that the target cannot serve (an int8 cache, today) is `Refused`.
    """
    keys, strict = arguments.keys, strict_roles(arguments)
    target, layout = keys.get("target"), keys.get("layout")
    if "plan" in keys:
        if "model" in keys:
            raise Refused(f"{verb}: takes model= or plan=, not both")
        if layout is not None:
            raise Refused(f"{verb}: layout= does not go with plan=: container.layout of the plan decides")
        found: tuple[Asked, ...] = (asked_by_plan(project, Path(keys["plan"]), target=target, strict=strict),)
    else:
        models = models_of(project, arguments, verb)
        found = tuple(asked_by_model(project, name, target=target, layout=layout, strict=strict) for name in models)
    if notes:
        show_notes(note for one in found for note in one.notes)
    for one in found:
        one.require_target()
    return found


def sets_of(project: Project, arguments: Arguments, verb: str) -> tuple[RequirementSet, ...]:
    """Return the requirement sets that `plan=`, or `model=` and `layout=`, name."""
    return tuple(one.wanted for one in asked_of(project, arguments, verb))


def one_asked_of(project: Project, arguments: Arguments, verb: str) -> Asked:
    """Return what the one model or plan named asks for; `model=all` is `Refused`."""
    if arguments.keys.get("model") == "all":
        raise Refused(f"{verb}: one model at a time: expected model=NAME or plan=PATH, found model=all")
    return asked_of(project, arguments, verb)[0]


def strict_roles(arguments: Arguments) -> bool:
    """Return whether an unknown layer role is refused: `roles=known`, the default. `roles=any` notes it instead.

    Geometry hangs on the projections alone, and three of the four role names are guesses.
    """
    text = arguments.keys.get("roles", "known")
    if text not in ("known", "any"):
        raise refusal("roles", expected="known or any", found=text)
    return text == "known"


def show_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, one a line, each once."""
    for note in dict.fromkeys(notes):
        print(f"note: {note}", file=sys.stderr)


def policy_of(arguments: Arguments, verb: str) -> Policy | None:
    """Return the policy that `policy=` names, None without one; `Refused` for --require-signed without a policy."""
    text = arguments.keys.get("policy")
    if text is None:
        if "--require-signed" in arguments.flags:
            raise Refused(f"{verb}: --require-signed needs policy=FILE")
        return None
    from elfkiln.store.policy import read_policy

    return read_policy(Path(text))


def mirrors_of(arguments: Arguments, project: Project, verb: str) -> Mirrors:
    """Return the mirrors that `mirror=` or registry.yaml name, and what is asked of them; maybe none.

    Raises `Refused` for an address that is none, and for words that contradict each other.
    """
    from elfkiln.work.mirrors import chosen_mirrors

    given, flags = arguments.keys.get("mirror"), arguments.flags
    if "--no-substitute" in flags:
        if given is not None or "--must-hit" in flags:
            raise Refused(f"{verb}: --no-substitute does not go with mirror= or --must-hit")
        given = ""
    mirrors = chosen_mirrors(
        project,
        given,
        plain_http="--plain-http" in flags,
        must_hit="--must-hit" in flags,
        policy=policy_of(arguments, verb),
    )
    if not mirrors.addresses and verb == "elfs" and mirrors.policy is not None and "remote" not in arguments.keys:
        raise Refused("elfs: policy= is for what comes from elsewhere: a mirror or remote=, and there is none")
    for flag in ("--must-hit", "--fetch"):
        if flag in flags and not mirrors.addresses:
            raise Refused(f"{verb}: {flag} needs a mirror: mirror=oci://HOST/REPO, or mirrors: in registry.yaml")
    return mirrors


def print_json(value: object) -> None:
    """Print a JSON value for machines: indented, keys sorted."""
    print(json.dumps(value, indent=2, sort_keys=True))

"""`remote=` and the words that go with it: which remote a build uses, and what it may do."""

from __future__ import annotations

import os
from dataclasses import dataclass

from elfkiln.cli.arguments import Arguments
from elfkiln.errors import Refused
from elfkiln.project import Project
from elfkiln.store.registry import load_registry
from elfkiln.targets.target import Builder, RemoteBuilder, RemoteSpec

AT_ONCE_THERE = 4
"""Recipes that are on their way at a remote beside those that are compiled here."""


@dataclass(frozen=True, slots=True)
class UsedRemote:
    """The remote of a run: its address, and how many recipes are compiled here beside it."""

    address: str
    local: int


def remote_of(arguments: Arguments, project: Project, builder: Builder) -> UsedRemote | None:
    """Return the remote that `remote=` names, in use by the builder from now on; None without one.

    Raises `Refused` for an address that is none, for a target that is compiled here only, and for words without
    `remote=` that go with it.
    """
    address, text = arguments.keys.get("remote"), arguments.valued.get("--local")
    if address is None:
        for flag in ("--fill", "--local"):
            if flag in arguments.flags or flag in arguments.valued:
                raise Refused(f"elfs: {flag} goes with remote=")
        return None
    if "--rebuild" in arguments.flags:
        raise Refused("elfs: --rebuild builds here, to compare; leave out remote=")
    if text is not None and (not text.isascii() or not text.isdigit() or int(text) > 1024):
        raise Refused(f"elfs: --local: expected a number of jobs from 0 to 1024, found {text!r}")
    local = (os.cpu_count() or 1) if text is None else int(text)
    spec = RemoteSpec(
        address,
        project.locks,
        local,
        fill="--fill" in arguments.flags,
        only_registered="policy" in arguments.keys,
        expected=registered_elves(project, builder.pin.name),
    )
    remote_builder(builder, "elfs").use_remote(spec)
    return UsedRemote(address, local)


def remote_builder(builder: Builder, verb: str) -> RemoteBuilder:
    """Return a builder that can use a remote; `Refused` for a target that is compiled here only."""
    if not isinstance(builder, RemoteBuilder):
        raise Refused(f"{verb}: target {builder.pin.name} is compiled here only; leave out remote=")
    return builder


def registered_elves(project: Project, target: str) -> dict[str, str]:
    """Return the registered ELF of each recipe, both as hex digests."""
    return {entry.recipe: entry.elf for entry in load_registry(project.registry_file).entries(target).values()}

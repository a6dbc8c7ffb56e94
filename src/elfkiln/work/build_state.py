"""Keeps, for the fast path of `elfs`, that a model has nothing to build."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from elfkiln.engine.contract import DECISION_FILE
from elfkiln.errors import Refused
from elfkiln.io.files import write_atomic
from elfkiln.io.workspace import sweep_files
from elfkiln.project import MODEL_TABLES, Project
from elfkiln.store.blobs import INDEX_FILES, Store, parse_digest
from elfkiln.store.registry import Entry, load_registry
from elfkiln.targets.target import Builder, headline_of
from elfkiln.work.answers import answer_bytes, answer_name, folder_stamp, inputs_of, python_in_use
from elfkiln.work.asked import Asked
from elfkiln.work.build import build_elfs
from elfkiln.work.jobs import registry_key

# Everything a recipe is made from lies below these or in this package.
_TREES = (".", "generators", "templates", "kernels")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The state of everything that a run of `elfs` rests on, the blobs apart: what all models share, and each one's."""

    shared: tuple[str, ...]
    own: tuple[tuple[str, ...], ...]


def state_of_inputs(project: Project, asked: Sequence[Asked], now_ns: int) -> Inputs:
    """Return the state of the inputs of these models at `now_ns`."""
    # It reads the environment when it is imported.
    import sysconfig

    root = str(project.root)

    def below(path: os.PathLike[str]) -> str:
        return os.path.relpath(path, root)

    names = (project.store / name for name in INDEX_FILES)
    files = [below(path) for path in (project.registry_file, project.lock_file, *names)]
    packages = sysconfig.get_paths()["purelib"]
    shared = inputs_of(root, files, _TREES, now_ns)
    shared += ["\t".join(("folder", packages, folder_stamp(packages))), "\t".join(("python", *python_in_use()))]
    tables = [
        [below(project.plans / one.wanted.model / name) for name in (*MODEL_TABLES, DECISION_FILE)] for one in asked
    ]
    return Inputs(tuple(shared), tuple(tuple(inputs_of(root, names, (), now_ns)) for names in tables))


def keep_state(project: Project, builder: Builder, asked: Sequence[Asked], target: str | None) -> None:
    """Look whether nothing is to do for these models, and keep that; `target` is as it was given.

    Nothing is kept when something is to do after all, or when an input changes meanwhile.
    """
    now = time.time_ns()
    before = state_of_inputs(project, asked, now)
    again = build_elfs(project, builder, [one.wanted for one in asked])
    if again.failures or again.built or again.registered:
        return
    entries = load_registry(project.registry_file).entries(builder.pin.name)
    answers = []
    for one in asked:
        keys = [registry_key(one.wanted, need) for need in one.wanted.requirements]
        found = {key: entries[key] for key in keys}
        blobs = {digest for entry in found.values() for digest in _blobs_of(project, entry)}
        try:
            sizes = {digest: os.stat(project.blobs / digest).st_size for digest in sorted(blobs)}
        except OSError:
            # Something behind the artifact is gone: the verb says what it needs of it.
            return
        lines = [f"headline\t{headline_of(builder)}"]
        lines += [f"note\t{' '.join(note.split())}" for note in one.notes]
        lines += [f"name\t{key}\t{entry.recipe}" for key, entry in found.items()]
        lines += [f"blob\t{digest}\t{size}" for digest, size in sizes.items()]
        answers.append(lines)
    if state_of_inputs(project, asked, now) != before:
        return
    sweep_files(project.index / "elfs")
    for one, own, lines in zip(asked, before.own, answers, strict=True):
        layout = next((word.partition("=")[2] for word in one.words if word.startswith("layout=")), None)
        name = answer_name("elfs", one.wanted.model, target, layout)
        if name is not None:
            # The file only saves time.
            with contextlib.suppress(Refused):
                write_atomic(project.index / name, answer_bytes([*before.shared, *own], lines))


def _blobs_of(project: Project, entry: Entry) -> set[str]:
    """Return the digests of everything that stands behind an entry: its manifest, and what that is made of."""
    manifest = json.loads(Store(project.store).read(entry.manifest))
    parts = {parse_digest(part["digest"]) for part in (manifest["config"], *manifest["layers"])}
    return parts.union(entry.digests)

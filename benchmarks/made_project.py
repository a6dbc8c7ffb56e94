"""Makes a project of many models whose ELFs are random bytes: what looking at names costs does not depend on them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.models.catalogue import model_requirements
from elfkiln.models.requirement import Requirement
from elfkiln.project import Project
from elfkiln.store.artifacts import ARTIFACT_TYPE, COLUMNS, DESIGN_TYPE, ELF_TYPE, SHAPE
from elfkiln.store.blobs import MANIFEST_TYPE
from elfkiln.store.recipe import MEDIA_TYPE
from elfkiln.store.registry import Entry, Registry, dump_registry

NAMES_EACH = 20
"""QKV, O, G, U, D and Z at two widths where the rules of role tables let them, each at M = 128 and M = 16."""

_TABLE = """\
schema: elfkiln-roles/1
model: {model}
source: made by benchmarks/made_project.py
hidden: {h}
intermediate: {i}
layers: {{full: 2}}
layout: b8
decode: true
rows:
  - {{role: QKV, K: {h}, N: {q}, columns: 2}}
  - {{role: QKV, K: {h}, N: {q2}, columns: 2}}
  - {{role: O, K: {h}, N: {h}, columns: 2}}
  - {{role: O, K: {q}, N: {h}, columns: 2}}
  - {{role: G, K: {h}, N: {i}, columns: 2}}
  - {{role: U, K: {h}, N: {i}, columns: 2}}
  - {{role: D, K: {i}, N: {h}, columns: 2}}
  - {{role: Z, K: {h}, N: {h}, columns: 2}}
  - {{role: Z, K: {h}, N: {q}, columns: 2}}
  - {{role: QA, K: {h}, N: {q}, columns: 2}}
"""


def begin_project(root: Path, *, checkout: Path) -> Project:
    """Make a project folder with a checkout's lock, generators, templates and microkernels, and without models."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("toolchain.lock", "generators", "templates", "kernels"):
        place = checkout / name
        (shutil.copytree if place.is_dir() else shutil.copy)(place, root / name)
    return Project(root)


def made_models(project: Project, models: int, more_rows: str = "") -> Iterator[tuple[str, tuple[Requirement, ...]]]:
    """Write role tables, and yield each model with what it asks for. No two have a geometry in common.

    `more_rows` are rows besides the ten, in which {h}, {i}, {q}, {q2} and {q3} stand for widths.
    """
    for number in range(models):
        model, hidden = f"made-{number:04}", 256 * (number + 2)
        (project.plans / model).mkdir(parents=True)
        sizes = {"h": hidden, "i": 2 * hidden, "q": 3 * hidden, "q2": 3 * hidden + 256, "q3": 3 * hidden + 512}
        (project.plans / model / "roles.yaml").write_text((_TABLE + more_rows).format(model=model, **sizes))
        yield model, model_requirements(project, model).requirements


def make_project(root: Path, models: int, elf_bytes: int, *, checkout: Path) -> Project:
    """Make a project of `models` models of 20 names, each name's ELF registered and stored: `elf_bytes` random bytes.

    Every name is a geometry of its own, so that no two share a blob.
    """
    project = begin_project(root, checkout=checkout)
    project.blobs.mkdir(parents=True)
    rng = random.Random(11)
    entries: dict[str, Entry] = {}
    for _, requirements in made_models(project, models):
        for need in requirements:
            elf = _stored(project, rng.randbytes(elf_bytes))
            recipe, design = (_stored(project, rng.randbytes(64)) for _ in range(2))
            parts = ((recipe, MEDIA_TYPE, 64), (elf, ELF_TYPE, elf_bytes), (design, DESIGN_TYPE, 64))
            config, *layers = (
                {"digest": f"sha256:{digest}", "mediaType": kind, "size": size} for digest, kind, size in parts
            )
            table = {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "artifactType": ARTIFACT_TYPE,
                "config": config,
                "layers": layers,
                "annotations": {COLUMNS: str(need.columns), SHAPE: need.name.shape if need.name else ""},
            }
            manifest = _stored(project, canonical_json(table))
            entries[need.file_name] = Entry(elf, elf_bytes, recipe, manifest, design, need.columns)
    project.registry_file.write_bytes(dump_registry(Registry({"sim": entries})))
    return project


def _stored(project: Project, data: bytes) -> str:
    digest = sha256_hex(data)
    (project.blobs / digest).write_bytes(data)
    return digest

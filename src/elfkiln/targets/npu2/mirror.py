"""Keeps the pinned wheels as blobs of the store: upstream's nightly release removes its files, the mirror does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elfkiln.io.canonical import canonical_json
from elfkiln.io.child import ends_at_sigterm
from elfkiln.io.files import storage_refusal
from elfkiln.io.workspace import private_folder
from elfkiln.project import Project
from elfkiln.store.blobs import Store, descriptor_of
from elfkiln.store.healing import TOOLCHAIN_TYPE, toolchain_ref
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.npu2.pin import Npu2Pin, Wheel, read_pin
from elfkiln.targets.npu2.wheels import Note, Sources, collect, silent

CONFIG_TYPE = "application/vnd.elfkiln.toolchain.config.v1+json"
WHEEL_TYPE = "application/vnd.elfkiln.wheel"
TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True, slots=True)
class Mirror:
    """What the mirror of one toolchain holds: its ref and manifest, wheels stored now and wheels it had already."""

    ref: str
    manifest: str
    stored: tuple[str, ...]
    kept: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return {
            "ref": self.ref,
            "manifest": f"sha256:{self.manifest}",
            "stored": list(self.stored),
            "kept": list(self.kept),
        }


def mirror(
    project: Project, pin: TargetPin | None = None, *, wheels: Path | None = None, note: Note = silent
) -> Mirror:
    """Store every pinned wheel of target npu2 as a blob, and an OCI manifest that names them all.

    Wheels come from the folder `wheels` if given, else from their addresses and pip's index or cache, verified by
    sha256. Each is stored as soon as it is there, so a broken run goes on where it stopped; the manifest comes last.
    Raises `Refused` or `Differs` as `wheels.collect` does.
    """
    target = pin if pin is not None else read_lock(project.lock_file).target("npu2")
    npu2 = read_pin(target)
    store = Store(project.store)
    kept = [wheel for wheel in npu2.wheels if store.holds(wheel.sha256)]
    missing = [wheel for wheel in npu2.wheels if wheel not in kept]
    for group in _groups(missing, wheels):
        with ends_at_sigterm(), private_folder(project.work) as folder:
            collect(group, Sources(store, wheels), folder, npu2.python, note)
            for wheel in group:
                store.add_file(folder / wheel.file, expected=wheel.sha256)
    with store.in_use():
        manifest = _add_manifest(store, target, npu2)
    return Mirror(
        toolchain_ref(npu2.digest),
        manifest,
        tuple(wheel.file for wheel in missing),
        tuple(wheel.file for wheel in kept),
    )


def _groups(missing: list[Wheel], folder: Path | None) -> list[list[Wheel]]:
    """Return what is collected at once: all from a folder; else one by one, what pip fetches in one go."""
    if folder is not None:
        return [missing] if missing else []
    indexed = [wheel for wheel in missing if wheel.url is None]
    return [*([wheel] for wheel in missing if wheel.url is not None), *([indexed] if indexed else [])]


def _add_manifest(store: Store, target: TargetPin, npu2: Npu2Pin) -> str:
    try:
        config = descriptor_of(store, store.add_bytes(canonical_json(target.table)), CONFIG_TYPE)
        layers = tuple(
            descriptor_of(store, wheel.sha256, WHEEL_TYPE, **{TITLE: wheel.file})
            for wheel in sorted(npu2.wheels, key=lambda wheel: wheel.file)
        )
    except OSError as error:
        raise storage_refusal(store.root, error) from error
    return store.add_manifest(
        ref=toolchain_ref(npu2.digest), artifact_type=TOOLCHAIN_TYPE, config=config, layers=layers
    ).digest

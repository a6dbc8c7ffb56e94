"""What `elfkiln toolchain status` says: the locked toolchains, and whether a build could use them here and now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elfkiln.errors import ElfkilnError
from elfkiln.project import Project
from elfkiln.store.blobs import Store
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.npu2.install_toolchain import open_installed, verify_install
from elfkiln.targets.npu2.mirror import mirror_ref
from elfkiln.targets.npu2.pin import read_pin


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target: versions, toolchain digest, whether it is installed and usable, and why not."""

    target: str
    is_default: bool
    digest: str
    versions: str
    installed: bool
    usable: bool
    reason: str
    mirrored: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value; `mirrored` is null for a target that has nothing to mirror."""
        return {
            "target": self.target,
            "default": self.is_default,
            "digest": self.digest,
            "versions": self.versions,
            "installed": self.installed,
            "usable": self.usable,
            "reason": self.reason,
            "mirrored": self.mirrored,
        }


def toolchain_status(project: Project, only: str | None = None) -> tuple[TargetStatus, ...]:
    """Return the state of every target of the lock, or of one (`Refused` when the lock has no such target).

    Every file of an installed npu2 toolchain and of its mirror is hashed, which takes some seconds.
    """
    lock = read_lock(project.lock_file)
    pins = [lock.target(only)] if only is not None else [lock.targets[name] for name in sorted(lock.targets)]
    return tuple(_status(project, pin, pin.name == lock.default_target) for pin in pins)


def _status(project: Project, pin: TargetPin, is_default: bool) -> TargetStatus:
    if pin.name == "npu2":
        return _npu2_status(project, pin, is_default)
    return _sim_status(pin, is_default)


def _npu2_status(project: Project, pin: TargetPin, is_default: bool) -> TargetStatus:
    versions, installed, mirrored = "", False, False
    try:
        npu2 = read_pin(pin)
        versions = f"{npu2.describe()}, Python {npu2.python}"
        store = Store(project.store)
        mirrored = mirror_ref(pin.digest) in store.refs() and all(store.holds(wheel.sha256) for wheel in npu2.wheels)
        installed = (project.toolchains / pin.digest).is_dir()
        found = open_installed(project, pin)
        versions = found.describe()
        verify_install(found)
    except ElfkilnError as error:
        return TargetStatus("npu2", is_default, pin.digest, versions, installed, False, str(error), mirrored)
    return TargetStatus("npu2", is_default, pin.digest, versions, True, True, "", mirrored)


def _sim_status(pin: TargetPin, is_default: bool) -> TargetStatus:
    from elfkiln.targets.sim.zig_toolchain import SimToolchain

    versions = ""
    try:
        toolchain = SimToolchain.from_pin(pin)
        versions = toolchain.describe()
        toolchain.check()
    except ElfkilnError as error:
        return TargetStatus(pin.name, is_default, pin.digest, versions, False, False, str(error), None)
    return TargetStatus(pin.name, is_default, pin.digest, versions, True, True, "", None)

"""What `elfkiln toolchain status` says: the locked toolchains, and whether a build could use them here and now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elfkiln.project import Project
from elfkiln.store.toolchain_lock import TargetPin, read_lock
from elfkiln.targets.table import target_named


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

    Every file of an installed toolchain and of its mirror is hashed, which takes some seconds.
    """
    lock = read_lock(project.lock_file)
    pins = [lock.target(only)] if only is not None else [lock.targets[name] for name in sorted(lock.targets)]
    return tuple(_status(project, pin, pin.name == lock.default_target) for pin in pins)


def _status(project: Project, pin: TargetPin, is_default: bool) -> TargetStatus:
    found = target_named(pin.name).state(project, pin)
    return TargetStatus(
        pin.name,
        is_default,
        pin.digest,
        found.versions,
        found.installed,
        found.usable,
        found.reason,
        found.mirrored,
    )

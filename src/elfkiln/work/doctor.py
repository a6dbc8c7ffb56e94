"""Whether this machine can build, check and run what the project asks for, and what to do where it cannot."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from elfkiln.errors import EXIT_DIFFERS, EXIT_DONE, ElfkilnError, brief
from elfkiln.io.sandbox import NONE, way
from elfkiln.project import Project
from elfkiln.store.agreement import entry_fault
from elfkiln.store.blobs import Store
from elfkiln.store.registry import load_registry
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.npu2.device.faults import FIRST_XRT, older_xrt
from elfkiln.targets.npu2.device.machine_state import xrt_version
from elfkiln.targets.sim.zig_toolchain import SimToolchain, check_host, this_host
from elfkiln.work.answers import look_at_all
from elfkiln.work.toolchain_status import toolchain_status

State: TypeAlias = Literal["ok", "note", "wrong"]
"""`note` is what only some uses need: a device, a second toolchain."""

LEAST_PYTHON = (3, 11)
LEAST_FREE_BYTES = 1 << 30
"""A cold build of a model takes some 50 MB; a toolchain of npu2 some hundred."""

HEAP_BYTES = 64 << 20
"""What the driver's shim locks at the first open of the device (docs/device.md)."""


@dataclass(frozen=True, slots=True)
class Looked:
    """One thing that was looked at: what it is, its state, what was found, and what to do ("" where nothing is)."""

    what: str
    state: State
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"what": self.what, "state": self.state, "found": self.found, "remedy": self.remedy or None}

    def line(self) -> str:
        """Return the line for a person."""
        return f"{self.state:<5} {self.what}: {self.found}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was looked at, in order."""

    findings: tuple[Looked, ...]

    @property
    def exit_code(self) -> int:
        """1 when something is wrong, else 0."""
        return EXIT_DIFFERS if any(one.state == "wrong" for one in self.findings) else EXIT_DONE

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"sound": self.exit_code == EXIT_DONE, "checks": [one.to_json() for one in self.findings]}

    def text(self) -> str:
        """Return the lines for a person, and a closing one."""
        wrong = sum(one.state == "wrong" for one in self.findings)
        notes = sum(one.state == "note" for one in self.findings)
        return "\n".join(
            [*(one.line() for one in self.findings), f"{len(self.findings)} looked at, {wrong} wrong, {notes} notes"]
        )


def doctor(project: Project, device_root: Path = Path("/")) -> Diagnosis:
    """Look at Python, disk, processor, toolchains, the registry against the store, and the NPU; nothing is changed.

    Registered blobs are hashed, and so is every file of an installed toolchain. `device_root` is where /dev lies.
    """
    return Diagnosis(
        (
            _python(),
            _disk(project),
            *_cpu(project),
            _network(),
            *_toolchains(project),
            *_registry(project),
            *_device(device_root),
        )
    )


def _python() -> Looked:
    found = f"{platform.python_version()} at {sys.prefix}"
    if sys.version_info < LEAST_PYTHON:
        least = ".".join(map(str, LEAST_PYTHON))
        return Looked("Python", "wrong", found, f"elfkiln needs {least} or newer")
    return Looked("Python", "ok", found)


def _disk(project: Project) -> Looked:
    try:
        free = shutil.disk_usage(project.root).free
    except OSError as error:
        return Looked("disk", "wrong", brief(error), "the checkout cannot be read")
    if not os.access(project.root, os.W_OK):
        return Looked("disk", "wrong", f"{project.root} is not writable", "nothing can be built or registered here")
    state: State = "ok" if free >= LEAST_FREE_BYTES else "wrong"
    return Looked("disk", state, f"{free / 1e9:.1f} GB free", "" if state == "ok" else "free some")


def _cpu(project: Project) -> Iterator[Looked]:
    """Say whether ELFs of target sim, which are compiled for one kind of processor, run on this one."""
    host = this_host()
    try:
        lock = read_lock(project.lock_file)
        pin = lock.target("sim")
        needed = SimToolchain.from_pin(pin).cpu
    except ElfkilnError:
        return  # what is wrong with the lock is said below
    hashes = "SHA extensions" if "sha_ni" in host.cpu_flags else "no SHA extensions, so hashing takes longer"
    text = f"{host.machine}, {os.cpu_count() or 1} processors, {hashes}"
    try:
        check_host(needed, host)
    except ElfkilnError as error:
        yield Looked("CPU", "wrong" if pin.name == lock.default_target else "note", f"{text}; {error}")
        return
    yield Looked("CPU", "ok", f"{text}, runs {needed}")


def _network() -> Looked:
    found = way()
    if found.kind == NONE:
        remedy = "allow user namespaces, or install bubblewrap (docs/security.md)"
        return Looked("network of builds", "note", f"not forbidden to generators and compilers: {found.reason}", remedy)
    return Looked("network of builds", "ok", f"forbidden to generators and compilers, by {found.kind}")


def _toolchains(project: Project) -> Iterator[Looked]:
    try:
        rows = toolchain_status(project)
    except ElfkilnError as error:
        yield Looked("toolchain.lock", "wrong", str(error))
        return
    for row in rows:
        what = f"toolchain {row.target}"
        if row.usable:
            yield Looked(what, "ok", f"{row.versions} ({row.digest[:12]})")
        else:
            yield Looked(what, "wrong" if row.is_default else "note", row.reason)


def _registry(project: Project) -> Iterator[Looked]:
    try:
        targets = sorted(read_lock(project.lock_file).targets)
        registry = load_registry(project.registry_file)
        Store(project.store).refs()
    except ElfkilnError as error:
        yield Looked("registry", "wrong", str(error))
        return
    for target in targets:
        entries = registry.entries(target)
        if not entries:
            continue
        sizes = {str(project.blobs / entry.elf): entry.size for entry in entries.values()}
        found = look_at_all(sizes, follow=False)
        good = {path for path, seen in found.items() if path.endswith(seen)}
        there = sum(str(project.blobs / entry.elf) in good for entry in entries.values())
        damaged = [path for path, seen in found.items() if path not in good and not seen.startswith("absent")]
        what, text = f"registry {target}", f"{there} of {len(entries)} names stored, their bytes verify"
        store = Store(project.store)
        faults = [fault for key, entry in entries.items() if (fault := entry_fault(store, target, key, entry))]
        if faults:
            yield Looked(what, "wrong", f"{text}; {len(faults)} contradict their manifests, first: {faults[0]}")
        elif damaged:
            first = os.path.basename(damaged[0])[:12]
            remedy = "doit elfs builds them anew"
            yield Looked(what, "wrong", f"{text}; {len(damaged)} blobs damaged, first sha256:{first}", remedy)
        elif there < len(entries):
            yield Looked(what, "note", text, "doit elfs model=all builds the others")
        else:
            yield Looked(what, "ok", text)


def _device(root: Path) -> Iterator[Looked]:
    node = root / "dev/accel/accel0"
    if not node.exists():
        yield Looked("NPU", "note", "no /dev/accel/accel0", "only verify on=device and bench need one")
        return
    if not os.access(node, os.R_OK | os.W_OK):
        remedy = "add this user to the node's group (render), or --group-add in a container"
        yield Looked("NPU", "wrong", "/dev/accel/accel0 may not be opened", remedy)
    else:
        yield Looked("NPU", "ok", "/dev/accel/accel0")
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit != resource.RLIM_INFINITY and limit < HEAP_BYTES:
        found = f"{limit >> 10} KiB may be locked, the device's heap takes {HEAP_BYTES >> 10}"
        yield Looked("memlock", "wrong", found, "ulimit -l unlimited, or LimitMEMLOCK=infinity for a service")
    else:
        yield Looked("memlock", "ok", "no limit" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB")
    yield _xrt()


def _xrt() -> Looked:
    """Say which XRT there is, by its own tool, and whether it is one that takes full ELFs."""
    smi, remedy = shutil.which("xrt-smi"), f"install XRT {FIRST_XRT} or newer (docs/device.md)"
    if smi is None:
        return Looked("XRT", "wrong", "no xrt-smi on PATH", remedy)
    known = xrt_version(smi)
    if known is None:
        return Looked("XRT", "ok", f"{smi}, which does not say its version; {FIRST_XRT} or newer is needed")
    version, digest = known
    found = f"{brief(version)}{f' ({brief(digest[:12])})' if digest else ''} at {smi}"
    if older_xrt(version):
        return Looked("XRT", "wrong", found, remedy)
    return Looked("XRT", "ok", found)

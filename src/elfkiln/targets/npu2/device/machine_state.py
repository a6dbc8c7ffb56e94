"""The state of the machine around a run: device, driver, firmware, XRT, power mode, and who else uses the NPU."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elfkiln.errors import ElfkilnError
from elfkiln.io.child import GIB, MIB, Limits, run_child
from elfkiln.io.reading import read_bytes

ACCEL = "sys/class/accel/accel0/device"
MODULE = "sys/module/amdxdna"
_SMI_LIMITS = Limits(seconds=30, cpu_seconds=30, memory_bytes=4 * GIB, file_bytes=16 * MIB)

GENERATION = ("Strix", "Krackan", "npu4", "npu5", "npu6")
"""Words in the name of an XDNA2 device ("NPU Strix Halo", older "RyzenAI-npu5")."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """What is known of the machine at one moment; None where it could not be read.

    `others` are the hardware contexts of other processes, one text each; `memlock` is this process's limit in bytes
    (-1: none).
    """

    device: str | None = None
    bdf: str | None = None
    power_mode: str | None = None
    driver: str | None = None
    driver_build: str | None = None
    firmware: str | None = None
    xrt: str | None = None
    tdr_timeout_ms: str | None = None
    memlock: int | None = None
    others: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return asdict(self)

    def changed(self, after: MachineState) -> tuple[str, ...]:
        """Return what is different afterwards, in words; times measured over such a change mean little."""
        words = []
        for field in ("power_mode", "driver", "firmware", "xrt"):
            before, now = getattr(self, field), getattr(after, field)
            if before is not None and now is not None and before != now:
                words.append(f"{field.replace('_', ' ')} changed during the run: {before} before, {now} after")
        if after.others and after.others != self.others:
            words.append(f"other processes used the NPU during the run: {', '.join(after.others)}")
        return tuple(words)


def read_state(info: Mapping[str, str | None], root: Path = Path("/"), smi: str | None = "xrt-smi") -> MachineState:
    """Return the state: what the session's `get_info` said, what sysfs below `root` says, and what xrt-smi lists."""
    platform, host = _json(info.get("platform")), _json(info.get("host"))
    first = _at(platform, "platforms", 0)
    drivers = _at(host, "drivers")
    names = drivers if isinstance(drivers, list) else []
    xdna = next((row for row in names if isinstance(row, dict) and "xdna" in str(row.get("name"))), {})
    version, digest = _text(_at(host, "version")), _text(_at(host, "hash"))
    return MachineState(
        device=info.get("name") or _line(root / ACCEL / "vbnv"),
        bdf=info.get("bdf"),
        power_mode=_text(_at(first, "status", "power_mode")),
        driver=_line(root / MODULE / "version") or _text(xdna.get("version")),
        driver_build=_line(root / MODULE / "srcversion"),
        firmware=_line(root / ACCEL / "fw_version"),
        xrt=f"{version} {digest}".strip() if version else None,
        tdr_timeout_ms=_line(root / MODULE / "parameters/tdr_timeout_ms"),
        memlock=_memlock(),
        others=_others(smi),
    )


def _memlock() -> int:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


def _others(smi: str | None) -> tuple[str, ...] | None:
    """Return the hardware contexts that xrt-smi lists, None where it cannot be asked."""
    found = _examined("aie-partitions", smi)
    if found is None:
        return None
    contexts = []
    for device in _list(_at(found, "devices")):
        for partition in _list(_at(device, "aie_partitions", "partitions")):
            for context in _list(_at(partition, "hw_contexts")):
                pid, number, status = (_text(_at(context, key)) for key in ("pid", "context_id", "status"))
                if pid != str(os.getpid()):
                    contexts.append(f"process {pid} context {number} {status}")
    return tuple(contexts)


def xrt_version(smi: str | None = "xrt-smi") -> tuple[str, str] | None:
    """Return XRT's version and the hash of its sources ("" where there is none), None where xrt-smi says no version."""
    host = _at(_examined("host", smi), "system", "host", "xrt")
    version, digest = _text(_at(host, "version")), _text(_at(host, "hash"))
    return None if version is None else (version[:80], (digest or "")[:80])


def _examined(what: str, smi: str | None) -> Any:
    """Return a report of `xrt-smi examine`, None where it cannot be asked or does not answer in JSON."""
    program = shutil.which(smi) if smi else None
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="elfkiln-smi-") as folder:
        report = Path(folder, "report.json")
        # JSON needs -o, and a file that is there needs --force.
        words = [program, "examine", "-r", what, "-f", "JSON", "-o", str(report), "--force"]
        environment = {
            name: os.environ[name] for name in ("PATH", "XILINX_XRT", "LD_LIBRARY_PATH") if name in os.environ
        }
        try:
            run_child(words, name="xrt-smi", cwd=Path(folder), environment=environment, limits=_SMI_LIMITS)
            return json.loads(read_bytes(report, _SMI_LIMITS.file_bytes))
        except (ElfkilnError, OSError, ValueError, RecursionError):
            return None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _at(value: Any, *path: str | int) -> Any:
    """Follow keys and positions into a JSON value; None where the way ends."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and str(value) else None


def _line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()[:200] or None
    except OSError:
        return None

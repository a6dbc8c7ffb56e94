"""What goes wrong on a device, by what XRT and the driver say of it, and what to do: one table."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elfkiln.errors import brief

FIRST_XRT = "2.21.75"
"""The first release whose pyxrt makes a context of a full ELF (backport 4eb1f4392a of XRT #9560)."""


def older_xrt(version: str) -> bool:
    """Return whether a version of XRT is older than `FIRST_XRT`; one that is not made of numbers is taken for newer.

    >>> older_xrt("2.21.70"), older_xrt("2.21.75"), older_xrt("main")
    (True, False, False)
    """
    if not re.match(r"[0-9]{1,4}\.[0-9]+", version):
        return False
    return [int(part) for part in re.findall(r"[0-9]{1,9}", version)[:3]] < [int(part) for part in FIRST_XRT.split(".")]


@dataclass(frozen=True, slots=True)
class Cause:
    """One row: how it is recognised (type and text of the exception, the stage it came at), and the remedy in a line.

    `stops` says that no further ELF is tried: nothing would go better, or the device does not answer any more.
    """

    kind: str
    type: str
    text: str
    remedy: str
    stops: bool = False
    stage: str = ""


NOT_THIS_MACHINE = "not-this-machine"
_INSTALL = "install XRT and the amdxdna plugin of the same release"

CAUSES: tuple[Cause, ...] = (
    Cause(NOT_THIS_MACHINE, "NotThisMachine", "", "", stops=True),
    Cause("no-answer", "NoAnswer", "", "the device is stuck: reboot; a reload of the driver seldom helps", stops=True),
    Cause("no-numpy", "ModuleNotFoundError", "numpy", "install numpy for the Python that pyxrt is for", stops=True),
    Cause(
        "no-pyxrt",
        "ModuleNotFoundError",
        "pyxrt",
        "pyxrt is built for one Python: name that one in ELFKILN_DEVICE_PYTHON, and its folder in ELFKILN_PYXRT "
        "(/opt/xilinx/xrt/python in AMD's packages)",
        stops=True,
    ),
    Cause(
        "other-python", "ImportError", "", "this pyxrt is for another Python or another XRT; " + _INSTALL, stops=True
    ),
    Cause(
        "old-xrt",
        "TypeError",
        "incompatible",
        f"this pyxrt makes no context of an ELF; XRT {FIRST_XRT} or newer does",
        stops=True,
        stage="context",
    ),
    Cause("old-xrt", "AttributeError", "", f"this pyxrt is older than XRT {FIRST_XRT}", stops=True),
    Cause(
        "no-device",
        "",
        "No such device with index",
        "load the amdxdna driver, or give the container --device=/dev/accel/accel0",
        stops=True,
    ),
    Cause(
        "no-permission",
        "",
        r"err=-?13\b|Permission denied",
        "this user may not open /dev/accel/accel0: add it to the node's group (render), or --group-add in a container",
        stops=True,
    ),
    Cause(
        "memlock",
        "",
        r"mmap\(.*err=-?11\b",
        "the limit of locked memory is below the 64 MiB heap: ulimit -l unlimited, LimitMEMLOCK=infinity for a "
        "service, --ulimit memlock=-1:-1 for a container",
        stops=True,
    ),
    Cause(
        "no-context",
        "",
        r"CREATE_HWCTX.*err=-?22\b",
        "every hardware context is taken, or the firmware is stuck: end other users of the NPU, then reboot",
        stops=True,
    ),
    Cause("no-context", "", r"CREATE_HWCTX.*err=-?2\b", "it comes and goes: run again", stops=True),
    Cause(
        "not-supported",
        "",
        r"err=-?95\b|not supported",
        "driver or firmware take no ELF with a PDI: driver 0.6 and firmware protocol 6.15 or newer, and "
        "/sys/module/amdxdna/parameters/force_cmdlist must be Y",
        stops=True,
    ),
    Cause(
        "asleep",
        "",
        r"GET_INFO.*err=-?22\b",
        "the device did not wake up: run again, then reload the driver",
        stops=True,
    ),
    Cause("not-an-elf", "", "is not found or is not a valid ELF file", "elfkiln inspect says what the file is"),
    Cause("other-machine", "", "unsupported platform OS/ABI", "an ELF of another device; elfkiln inspect"),
    Cause("instruction-only", "", "missing xrt configuration info", "it has no PDI: build a full ELF"),
    Cause("stub", "", "mangled kernel name|prefix _Z", "its kernel is none that aiecc makes; elfkiln inspect"),
    Cause("wrong-kernel", "", "no (?:ELF|module) found with given kernel name", "the kernel must be called main"),
    Cause("wrong-instance", "", "find group idx for given kernel", "the ELF has no such sequence; elfkiln inspect"),
    Cause("several-instances", "", "Multiple sub kernels present", "a sealed ELF: name the sequence"),
    Cause("xclbin-api", "", "not created using XCLBIN", "an ELF's kernel is opened with pyxrt.ext.kernel alone"),
    Cause("argument", "IndexError", "", "the sequence has fewer arguments than A, B and C"),
    Cause(
        "timeout",
        "",
        "ERT_CMD_STATE_TIMEOUT",
        "the array hung (a deadlock, a wrong geometry, no load_pdi); verify the design, and reboot before the next run",
        stops=True,
    ),
    Cause(
        "abort",
        "",
        "ERT_CMD_STATE_ABORT",
        "firmware and driver do not fit together: install both of one release",
        stops=True,
    ),
    Cause("error", "", "ERT_CMD_STATE_", "the firmware refused the command: keep dmesg and report it", stops=True),
    Cause("killed", "Killed", "", "it was killed after its time; reboot before the next run", stops=True),
    Cause("crashed", "Crashed", "", "the process crashed inside XRT: keep dmesg and report it", stops=True),
)

UNKNOWN = Cause("unknown", "", "", "no known cause: keep dmesg and report it", stops=True)


@dataclass(frozen=True, slots=True)
class Fault:
    """What ended a session: its kind, at which stage, in whose words, and what to do."""

    kind: str
    stage: str
    text: str
    remedy: str
    stops: bool

    @property
    def line(self) -> str:
        """The fault on one line."""
        return f"{self.kind}: {self.text}; {self.remedy}"


def fault_of(stage: str, type_name: str, text: str) -> Fault:
    """Return the fault of an exception by its type's name and its text.

    >>> fault_of("device", "RuntimeError", "Open /dev/accel/accel0 failed (err=-13): Permission denied").kind
    'no-permission'
    >>> fault_of("context", "RuntimeError", "DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=22): Invalid").kind
    'no-context'
    """
    for cause in CAUSES:
        if (cause.type and cause.type != type_name) or (cause.stage and cause.stage != stage):
            continue
        if re.search(cause.text, text) is not None:
            break
    else:
        cause = UNKNOWN
    return Fault(cause.kind, stage, brief(" ".join(text.split()) or type_name, 400), cause.remedy, cause.stops)

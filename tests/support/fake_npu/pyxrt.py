"""A stand-in pyxrt over the simulator, with the traps of the real one; the tests put its folder on the child's path.

`scenario.json` beside this file says which sim ELF computes what each full ELF would, and what goes wrong.
`machine.json` is what outlives a process: contexts of others, and whether the device hangs. `trace.txt` gets a line for
each thing that a caller must not do, and for each context given back. Names, overloads by type, exceptions and texts
are XRT's, as its sources show them.
"""

from __future__ import annotations

import enum
import gc
import hashlib
import json
import os
import secrets
import time
import weakref
from pathlib import Path

import numpy as np

_HERE = Path(__file__).resolve().parent
_SCENARIO = json.loads((_HERE / "scenario.json").read_text())
if _SCENARIO.get("import_error"):
    raise ImportError(_SCENARIO["import_error"])


def _machine(**changes):
    path = _HERE / "machine.json"
    state = json.loads(path.read_text()) if path.exists() else {"others": 0, "wedged": False, "runs": 0}
    if changes:
        state.update(changes)
        path.write_text(json.dumps(state))
    return state


def _trace(line):
    with (_HERE / "trace.txt").open("a") as file:
        file.write(line + "\n")


class _State(int):
    """A value of a plain C enum: equal to its number, with a name."""

    def __new__(cls, number, name):
        made = int.__new__(cls, number)
        made.name = name
        return made

    def __str__(self):
        return f"ert_cmd_state.{self.name}"

    __repr__ = __str__


class ert_cmd_state:  # noqa: N801 the binding's name
    """The states that are bound; RUNNING (3) is not."""


_STATES = {
    name: _State(number, f"ERT_CMD_STATE_{name}")
    for name, number in {"NEW": 1, "QUEUED": 2, "COMPLETED": 4, "ERROR": 5, "ABORT": 6, "TIMEOUT": 8}.items()
}
for _state in _STATES.values():
    setattr(ert_cmd_state, _state.name, _state)


class xclBOSyncDirection(enum.Enum):  # noqa: N801
    """Which way a sync copies."""

    XCL_BO_SYNC_BO_TO_DEVICE = 0
    XCL_BO_SYNC_BO_FROM_DEVICE = 1


class xrt_info_device(enum.Enum):  # noqa: N801
    """What `get_info` can be asked."""

    name = 0
    bdf = 1
    platform = 2
    host = 3


class device:  # noqa: N801
    """The NPU."""

    def __init__(self, which):
        if type(which) not in (int, str):
            raise TypeError("device(): incompatible constructor arguments")
        _fail("device")
        self.clock = time.monotonic
        self.asked = 0

    def get_info(self, key):
        found = _SCENARIO["info"].get(key.name)
        if key is xrt_info_device.platform:
            self.asked += 1
            modes = _SCENARIO.get("power_modes")
            if modes:
                mode = modes[min(self.asked, len(modes)) - 1]
                found = json.dumps({"platforms": [{"status": {"power_mode": mode}}]})
        if found is None:
            raise RuntimeError(f"get_info {key.name} failed (err=-95): Operation not supported")
        return found


def _fail(stage):
    fault = _SCENARIO.get("fail", {}).get(stage)
    if fault:
        raise {"RuntimeError": RuntimeError, "IndexError": IndexError, "TypeError": TypeError}[fault[0]](fault[1])


def kernel_of(data):
    """What is read of a full ELF: its kernel, how many arguments that has, and of each instance whether it loads.

    A scenario may have it under `read`, by the file's sha256: the reader's modules are most of a child's start.
    """
    from elfkiln.targets.npu2.full_elf import parse_full_elf

    kernel = parse_full_elf(data).kernels[0]
    return kernel.name, kernel.arguments, {one.name: bool(one.loads) for one in kernel.instances}


class elf:  # noqa: N801
    """A full ELF, read as the real one is."""

    def __init__(self, path):
        if type(path) is not str:
            raise TypeError("elf(): incompatible constructor arguments")
        data = Path(path).read_bytes() if Path(path).is_file() else b""
        if data[:4] != b"\x7fELF":
            raise RuntimeError(f"{path} is not found or is not a valid ELF file")
        if data[7] != 69:
            raise RuntimeError(f"ELF contains unsupported platform OS/ABI: {data[7]}")
        if data[8] == 2:
            raise RuntimeError("ELF is missing xrt configuration info\n")
        digest = hashlib.sha256(data).hexdigest()
        self.kernel, self.arguments, self.instances = _SCENARIO.get("read", {}).get(digest) or kernel_of(data)
        self.sim = _SCENARIO["elves"].get(digest)


_OURS = weakref.WeakSet()


class hw_context:  # noqa: N801
    """A hardware context: one of 16 places of the whole machine."""

    def __init__(self, which, file):
        if _SCENARIO.get("release") == "2.20" or type(file) is not elf:
            raise TypeError(
                "hw_context(): incompatible constructor arguments. The following argument types are supported"
            )
        _fail("context")
        if _machine()["others"] + len(_OURS) >= 16:
            raise RuntimeError("DRM_IOCTL_AMDXDNA_CREATE_HWCTX IOCTL failed (err=-22): Invalid argument")
        self.device, self.elf = which, file
        self.loaded = False
        self.last = time.monotonic()
        self.model = None
        _OURS.add(self)
        weakref.finalize(self, _trace, "context released")


class kernel:  # noqa: N801
    """The way of xclbins."""

    def __init__(self, *_):
        raise RuntimeError(
            "Invalid API called for xrt::kernel creation, xrt::hw_context passed is not created using XCLBIN"
        )


class _ElfKernel:
    def __init__(self, context, name):
        if type(context) is not hw_context or type(name) is not str:
            raise TypeError("kernel(): incompatible constructor arguments")
        head, _, instance = name.partition(":")
        if head != context.elf.kernel:
            raise RuntimeError("no ELF found with given kernel name in ctx")
        if not instance and len(context.elf.instances) > 1:
            raise RuntimeError("Multiple sub kernels present for given kernel, cannot choose sub kernel\n")
        instance = instance or next(iter(context.elf.instances))
        if instance not in context.elf.instances:
            raise RuntimeError(f"Unable to find group idx for given kernel: {name}")
        self.context, self.instance = context, instance

    def group_id(self, _index):
        _trace("group_id of an ELF's kernel is undefined")
        return secrets.randbelow(1 << 16)


class _Bo:
    """A buffer with two memories: the host's, which `map` shows, and the device's, which runs see."""

    def __init__(self, owner, size):
        if type(owner) not in (device, hw_context) or type(size) is not int:
            raise TypeError("bo(): incompatible constructor arguments")
        self.host = bytearray(secrets.token_bytes(size))
        self.far = bytearray(secrets.token_bytes(size))
        weakref.finalize(self, _end_of_buffer, self.host)

    def map(self):
        return memoryview(self.host)

    def size(self):
        return len(self.host)

    def sync(self, direction, *_):
        if direction is xclBOSyncDirection.XCL_BO_SYNC_BO_TO_DEVICE:
            self.far[:] = self.host
        else:
            self.host[:] = self.far
            _passed[0] += _SCENARIO.get("seconds_after_a_run", 0)


# What a slow comparison takes, on the clock of the process; the session and the device look at the same one.
_passed = [0]
_real_clock = time.monotonic
if _SCENARIO.get("seconds_after_a_run"):
    time.monotonic = lambda: _real_clock() + _passed[0]


def _end_of_buffer(host):
    host[:] = b"\xdd" * len(host)
    try:
        host.append(0)  # not possible while a view looks at it
    except BufferError:
        _trace("a view outlived its buffer")


class ext:  # noqa: N801
    """What full ELFs use."""

    kernel = _ElfKernel
    bo = _Bo


class run:  # noqa: N801
    """A run of a kernel."""

    def __init__(self, which):
        if type(which) is not _ElfKernel:
            raise TypeError("run(): incompatible constructor arguments")
        self.kernel = which
        self.arguments = {}
        self.now = _STATES["NEW"]
        self.told = ""

    def set_arg(self, index, value):
        if index >= self.kernel.context.elf.arguments:
            raise IndexError("vector::_M_range_check: __n (which is 3) >= this->size() (which is 3)")
        if type(value) is not _Bo:
            if type(value) is int and 0 <= value < 1 << 31:
                _trace("an integer was taken for an address")
            else:
                raise TypeError("set_arg(): incompatible function arguments")
        self.arguments[index] = value

    def start(self):
        context = self.kernel.context
        _fail("run")
        count = _machine(runs=_machine()["runs"] + 1)["runs"]
        if _SCENARIO.get("crash_at") == count:
            os.abort()
        idle = time.monotonic() - context.last > 5 or count in _SCENARIO.get("idle_before", [])
        context.last = time.monotonic()
        if idle:
            context.loaded = False
        if _machine()["wedged"]:
            self._end("TIMEOUT")
            return
        loads = context.elf.instances[self.kernel.instance]
        elided = loads and context.loaded
        if not loads and not context.loaded:
            self._hang()
            return
        context.loaded = True
        for kind in ("TIMEOUT", "ABORT", "ERROR"):
            if count in _SCENARIO.get(kind, []):
                self._hang() if kind == "TIMEOUT" else self._end(kind)
                return
        if count in _SCENARIO.get("silent", []):
            self.now = _STATES["NEW"]
            self.told = "silent"
            return
        if count in _SCENARIO.get("stuck", []):
            self.told = "stuck"
            return
        self._compute(elided, count)
        self.now = _STATES["COMPLETED"]

    def _hang(self):
        _machine(wedged=True)
        self._end("TIMEOUT")

    def _end(self, kind):
        self.now = _STATES[kind]
        self.told = "ended"

    def _compute(self, elided, count):
        if self.kernel.instance == "init":
            return
        from elfkiln.targets.sim.sim_elf import SimElf

        context = self.kernel.context
        if context.model is None:
            context.model = SimElf(context.elf.sim)
            if "init" in context.elf.instances:
                context.model.call("init")
        entry = context.model.info.entry(self.kernel.instance)
        kinds = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32}
        a, b, c = (
            np.frombuffer(bytes(self.arguments[i].far), kinds[argument.element])
            for i, argument in enumerate(entry.arguments)
        )
        c = context.model.run(a, b, c.copy(), sequence=self.kernel.instance).ravel()
        for wrong in _SCENARIO.get("wrong", []):
            if count not in wrong.get("runs", [count]) or (wrong.get("elided") and not elided):
                continue
            if wrong["how"] == "one":
                c[wrong["place"]] += 1
            elif wrong["how"] == "zeros":
                c[:] = 0
            elif wrong["how"] == "untouched":
                return
        self.arguments[2].far[:] = c.astype(np.int32).tobytes()

    def wait(self, *times):
        if len(times) > 1 or (times and (type(times[0]) is not int or times[0] < 0)):
            raise TypeError("wait(): incompatible function arguments")
        if self.told == "stuck":
            while True:
                time.sleep(60)
        if self.told == "silent":
            return _STATES["TIMEOUT"]
        return self.now

    def wait2(self, *times):
        if times:
            raise TypeError("wait2(): incompatible function arguments")
        if self.now != _STATES["COMPLETED"]:
            health = "\ntxn_op_idx = 0x12\nctx_pc = 0x34\n" if _SCENARIO.get("health") else ""
            raise RuntimeError(f"Command failed to complete successfully ({self.now.name}){health}")

    def state(self):
        return self.now


def enumerate_devices():
    """How many there are."""
    return 1


gc.collect()

"""One ELF on the device: the program of the child process, one for each ELF.

Run as `python -I session.py REQUEST RESULT`. It needs pyxrt and numpy and nothing of elfkiln, so that it can run under
the Python that pyxrt was built for. REQUEST is JSON; RESULT gets one JSON object a line as things happen, so that what
was found out stays when the process has to be killed. A wait of pyxrt holds Python's interpreter lock: no thread and no
signal handler of this process runs meanwhile, so the parent watches the time.

pyxrt is taken as it is in XRT 2.21.75 and later: positional arguments alone, `ext.kernel` and never `kernel` (which
asks for an xclbin), never `group_id` (undefined for a full ELF), `wait(ms)` and never `wait2(ms)` (no release has it).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from typing import Any

POISON = -0x5A5A5A5B
"""What C is filled with before a run. No sum of a GEMM here is that small; all zeros is how most failures look."""

GAP_SECONDS = 4.0
"""An array is asleep after 5 s without a command, and then a sealed design has to be configured anew."""

INFO = ("name", "bdf", "platform", "host")


class NoAnswer(Exception):
    """A run that gave no answer in time: this process can do no more, and cannot even let go of the device."""


class NotThisMachine(Exception):
    """The machine is not one whose results would mean what was asked for."""


class Session:
    """The device, its context and what was run on it."""

    def __init__(self, request: dict[str, Any], tell: Any) -> None:
        self.request = request
        self.tell = tell
        self.stage = "import"
        self.last = 0.0

    def all(self) -> None:
        """Open the device and the ELF, check every instance, and time those that are right."""
        sys.path[:0] = self.request["python_path"]
        self.np = importlib.import_module("numpy")
        self.xrt = importlib.import_module("pyxrt")
        directions = self.xrt.xclBOSyncDirection
        self.to_device = directions.XCL_BO_SYNC_BO_TO_DEVICE
        self.from_device = directions.XCL_BO_SYNC_BO_FROM_DEVICE
        self.stage = "device"
        device = self.xrt.device(0)
        info = self.info(device)
        self.tell({"event": "device", "when": "before", **info})
        self.preflight(info)
        self.stage = "elf"
        elf = self.xrt.elf(self.request["elf"])
        self.stage = "context"
        context = self.xrt.hw_context(device, elf)
        try:
            for instance in self.request["instances"]:
                self.instance(device, context, instance)
        finally:
            # A context gives its place back when nothing holds it any more.
            del context, elf
            gc.collect()
        self.tell({"event": "device", "when": "after", **self.info(device)})

    def info(self, device: Any) -> dict[str, str | None]:
        """Return what the device says of itself; a key that an NPU does not have raises, and is null here."""
        found: dict[str, str | None] = {}
        for key in INFO:
            try:
                found[key] = str(device.get_info(getattr(self.xrt.xrt_info_device, key)))
            except (RuntimeError, ValueError, AttributeError):
                found[key] = None
        return found

    def preflight(self, info: dict[str, str | None]) -> None:
        """Raise before anything is run on another generation's device, or in another power mode than asked for."""
        name, words = info["name"], self.request["generation"]
        if name is not None and not any(word in name for word in words):
            raise NotThisMachine(f"device: expected an XDNA2 NPU (Strix, Strix Halo, Krackan), found {name}")
        wanted = self.request["power_mode"]
        if wanted is None:
            return
        try:
            mode = json.loads(info["platform"] or "")["platforms"][0]["status"]["power_mode"]
        except (ValueError, LookupError, TypeError):
            mode = "unknown"
        if mode != wanted:
            raise NotThisMachine(
                f"pmode={wanted}: the device is in mode {mode}, and no time is taken in another; set it with sudo "
                f"xrt-smi configure --pmode {wanted}, wait 4 s, and run again"
            )

    def instance(self, device: Any, context: Any, wanted: dict[str, Any]) -> None:
        """Check one sequence on every trial's data; time it if it was right each time, and check it once more."""
        np = self.np
        self.stage = "kernel"
        kernel = self.xrt.ext.kernel(context, wanted["name"])
        before = self.xrt.ext.kernel(context, wanted["before"]) if wanted["before"] else None
        self.stage = "buffer"
        M, K, N = wanted["shape"]
        first = wanted["trials"][0]
        sizes = (M * K, np.load(first["b"], mmap_mode="r").nbytes, 4 * M * N)
        buffers = [self.xrt.ext.bo(device, size) for size in sizes]
        views = [
            np.frombuffer(buffer.map(), kind)
            for buffer, kind in zip(buffers, (np.int8, np.uint8, np.int32), strict=True)
        ]
        self.stage = "run"
        run = self.xrt.run(kernel)
        for index, buffer in enumerate(buffers):
            run.set_arg(index, buffer)
        init = self.xrt.run(before) if before is not None else None
        try:
            right = True
            for trial in wanted["trials"]:
                want = self.fill(buffers, views, trial, M)
                for when in ("first", "again"):
                    # The second run meets the array as the first one left it: firmware skips the load_pdi of the PDI
                    # it loaded last, and a sealed design is not configured again.
                    fresh = when == "first" or time.monotonic() - self.last > GAP_SECONDS
                    right &= self.judged(run, init if fresh else None, buffers, views, want, wanted, trial, when)
            if right and self.request["iterations"]:
                want = self.fill(buffers, views, first, M)
                self.timed(run, init, wanted)
                self.judged(run, None, buffers, views, want, wanted, first, "after")
        finally:
            # A view does not keep its buffer alive: views go first.
            del views, run, init, buffers, kernel, before
            gc.collect()

    def fill(self, buffers: list[Any], views: list[Any], trial: dict[str, Any], M: int) -> Any:
        """Bring A and B of a trial onto the device and return what C must be."""
        np = self.np
        views[0][:] = np.load(trial["a"], mmap_mode="r")[:M].ravel()
        views[1][:] = np.load(trial["b"], mmap_mode="r").view(np.uint8).ravel()
        for buffer in buffers[:2]:
            buffer.sync(self.to_device)
        return np.load(trial["want"], mmap_mode="r")[:M]

    def judged(
        self,
        run: Any,
        init: Any,
        buffers: list[Any],
        views: list[Any],
        want: Any,
        wanted: dict[str, Any],
        trial: dict[str, Any],
        when: str,
    ) -> bool:
        """Run once over a poisoned C and compare every int32."""
        np = self.np
        views[2][:] = POISON
        buffers[2].sync(self.to_device)
        if init is not None:
            self.dispatch(init)
        self.dispatch(run)
        buffers[2].sync(self.from_device)
        found = views[2].reshape(want.shape)
        wrong = np.flatnonzero(found.ravel() != want.ravel())
        places = None
        largest = 0
        if wrong.size:
            row, column = divmod(int(wrong[0]), want.shape[1])
            places = [row, column, int(want[row, column]), int(found[row, column])]
            largest = int(np.abs(found.astype(np.int64) - want).max())
        self.tell(
            {
                "event": "check",
                "instance": wanted["name"],
                "inputs": trial["inputs"],
                "when": when,
                "elements": int(want.size),
                "mismatched": int(wrong.size),
                "largest": largest,
                "first": places,
                "untouched": int((found == POISON).sum()),
                "zero": bool(wrong.size and not found.any()),
            }
        )
        if wanted["keep"] and trial is wanted["trials"][0] and when == "first":
            np.save(wanted["keep"], found)
        return not wrong.size

    def timed(self, run: Any, init: Any, wanted: dict[str, Any]) -> None:
        """Time start and wait alone, after some runs that are not counted; no pause lies between the runs."""
        if init is not None and time.monotonic() - self.last > GAP_SECONDS:
            self.dispatch(init)
        for _ in range(self.request["warmup"]):
            self.dispatch(run)
        took = [self.dispatch(run) for _ in range(self.request["iterations"])]
        self.tell({"event": "timing", "instance": wanted["name"], "nanoseconds": took})

    def dispatch(self, run: Any) -> int:
        """Start a run and wait for it; return the nanoseconds, or raise what the driver says of it."""
        states = self.xrt.ert_cmd_state
        begin = time.perf_counter_ns()
        run.start()
        state = run.wait(self.request["wait_ms"])
        took = time.perf_counter_ns() - begin
        self.last = time.monotonic()
        if state != states.ERT_CMD_STATE_COMPLETED:
            if state == states.ERT_CMD_STATE_TIMEOUT and run.state() != states.ERT_CMD_STATE_TIMEOUT:
                # The wait itself ran out; the driver knows of no end.
                raise NoAnswer(f"no answer in {self.request['wait_ms']} ms")
            run.wait2()  # it has ended, so this raises at once, with the lines about the context's health
            raise RuntimeError(str(state).rpartition(".")[2])
        return took


def main(arguments: list[str]) -> int:
    """Run the request; the last line of the result says how it ended."""
    with open(arguments[0], encoding="utf-8") as file:
        request = json.load(file)
    with open(arguments[1], "w", encoding="utf-8") as result:

        def tell(event: dict[str, Any]) -> None:
            result.write(json.dumps(event) + "\n")
            result.flush()

        session = Session(request, tell)
        try:
            session.all()
        except NoAnswer as error:
            tell({"event": "fault", "stage": session.stage, "type": "NoAnswer", "text": str(error)})
            result.flush()
            # Not by the way of Python, which would try to let go of a context that does not answer.
            os._exit(3)
        except Exception as error:
            tell({"event": "fault", "stage": session.stage, "type": type(error).__name__, "text": str(error)})
            return 1
        tell({"event": "end"})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

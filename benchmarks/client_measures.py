"""Measures of client/elfkiln.h: its rate of mapping, hashing and comparing, and a set as an engine opens it.

Its example engine is what is timed, as a whole process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from run import Row, paired

from elfkiln.project import find_project
from elfkiln.store.toolchain_lock import read_lock
from elfkiln.targets.sim.zig_toolchain import SimToolchain

PROJECT = find_project(Path(__file__).parent)
ELFKILN = str(Path(sys.executable).parent / "elfkiln")
MAIN_JOB = "model=bonsai2-27b"
ANY_MACHINE = ("-target", "x86_64-linux-gnu", "-mcpu=x86_64")
NAME = "full_i8_D_K17408_N5120_b8.elf"
BYTES = 200 * 1000 * 1000


def build_engine(folder: Path) -> Path:
    """Build client/example/engine.c for any x86-64, as an engine's build would, and return the program."""
    zig = SimToolchain.from_pin(read_lock(PROJECT.lock_file).target("sim")).zig
    client = PROJECT.root / "client"
    words = ("cc", "-std=c11", "-O2", *ANY_MACHINE, f"-I{client}", str(client / "example" / "engine.c"))
    cache = {f"ZIG_{kind}_CACHE_DIR": str(PROJECT.root / "out" / "cache" / "client") for kind in ("GLOBAL", "LOCAL")}
    environment = {"LC_ALL": "C", "HOME": str(folder), "PATH": os.environ["PATH"]} | cache
    subprocess.run([zig, *words, "-o", str(folder / "engine")], env=environment, check=True)
    return folder / "engine"


def _timed(words: Sequence[str]) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        subprocess.run(words, cwd=PROJECT.root, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start

    return run


def client_hash(scratch: Path) -> Iterator[Row]:
    """One file of 200 MB through the client (found, copied into memory of its own, hashed, compared) and sha256sum."""
    engine = build_engine(scratch)
    file = scratch / "model" / "kernels" / NAME
    file.parent.mkdir(parents=True)
    data = os.urandom(BYTES // 100) * 100
    file.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    row = {"elf": f"sha256:{digest}", "size": BYTES, "recipe": f"sha256:{'0' * 64}"}
    table = {"schema": "elfkiln-kernels-lock/1", "target": "sim", "sets": [], "artifacts": {f"kernels/{NAME}": row}}
    (scratch / "model" / "kernels.lock.json").write_text(json.dumps(table))
    client = [str(engine), str(scratch / "model"), "target=sim", "plan=none"]
    for title, more in (("SHA extensions", []), ("portable", ["sha256=portable"])):
        yield paired(
            "client-hash",
            f"elfkiln.h on a file of 200 MB, {title}",
            "sha256sum",
            _timed([*client, *more]),
            _timed(["sha256sum", str(file)]),
            7,
        )


def client_set(scratch: Path) -> Iterator[Row]:
    """An engine that opens the main job's 14 names, whole process, against check-missing on the same folder."""
    engine = build_engine(scratch)
    folder = scratch / "installed"
    for words in (["elfs", MAIN_JOB], ["install", MAIN_JOB, f"dir={folder}"]):
        subprocess.run([ELFKILN, *words, "target=sim"], cwd=PROJECT.root, stdout=subprocess.DEVNULL, check=True)
    yield paired(
        "client-set",
        "elfkiln.h on an installed set of 14 names",
        "elfkiln check-missing dir=",
        _timed([str(engine), str(folder), "target=sim", "plan=none"]),
        _timed([ELFKILN, "check-missing", MAIN_JOB, "target=sim", f"dir={folder}"]),
        21,
    )


MEASURES: dict[str, Callable[[Path], Iterator[Row]]] = {"client-hash": client_hash, "client-set": client_set}

"""aiebu-asm, the tool that no wheel holds: where machines have it, what to say when none is pinned, its ABI version.

aiecc calls it by name for every full ELF. Neither mlir-aie's CMake nor its setup.py builds or installs it: it is XRT's,
and each release of XRT has its own. So the lock pins the one of the machine, by sha256 (`outside_tools`).
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

from elfkiln.errors import Differs, ElfkilnError, refusal
from elfkiln.io.canonical import file_sha256
from elfkiln.targets.npu2.full_elf.sections import ABI_VERSIONS, OSABI
from elfkiln.targets.npu2.pin import AIEBU_ASM, Npu2Pin
from elfkiln.targets.npu2.tool_run import probe

PLACES = ("/opt/xilinx/xrt/bin", "/usr/bin", "/opt/xilinx/aiebu/bin")
"""Where aiecc looks when PATH has none: AMD's packages of XRT, those of Fedora and Ubuntu, aiebu alone."""

_WHERE = (
    "it comes with XRT (/usr/bin in the packages of Ubuntu and Fedora, /opt/xilinx/xrt/bin in AMD's) or is built from "
    "Xilinx/aiebu alone"
)
_PROBE_SECONDS = 30.0
# One operation, load_pdi of PDI 1, behind the header of a stream (full_elf/stream.py has the format).
_STREAM = struct.pack("<8I", 0x06040100, 0x108, 1, 32, 0x00010008, 0, 0, 0)


def on_machine(environ: Mapping[str, str]) -> Path | None:
    """Return the aiebu-asm that aiecc would find on this machine: on PATH, then in the known places."""
    path = os.pathsep.join([environ.get("PATH", ""), *PLACES])
    found = shutil.which(AIEBU_ASM, path=path)
    return Path(found).resolve() if found else None


def pin_words(path: str) -> str:
    """Return the command that pins a program as this toolchain's aiebu-asm."""
    return f"elfkiln toolchain bump {AIEBU_ASM}={path} out=toolchain.lock --overwrite"


def check_pinned(pin: Npu2Pin, environ: Mapping[str, str]) -> None:
    """Raise in one line unless the lock pins every tool from outside the wheels and the machine has it.

    `Differs` names the place to get aiebu-asm from and the command that pins it; `Refused` is for other bytes.
    """
    names = [*(tool.name for tool in pin.tools), *(tool.name for tool in pin.outside_tools)]
    if AIEBU_ASM not in names:
        found = on_machine(environ)
        if found is None:
            raise Differs(
                f"{AIEBU_ASM}: no wheel holds it and toolchain.lock pins none; {_WHERE}; then {pin_words('PATH')}"
            )
        raise Differs(
            f"{AIEBU_ASM}: no wheel holds it and toolchain.lock pins none; this machine has {found}: "
            f"{pin_words(str(found))} pins it by its sha256"
        )
    for tool in pin.outside_tools:
        where, path = f"{tool.name}: {tool.file}", Path(tool.file)
        if not path.is_file() or not os.access(path, os.X_OK):
            get = f"; {_WHERE}" if tool.name == AIEBU_ASM else ""
            raise Differs(f"{where}: missing on this machine, or no program; toolchain.lock pins it{get}")
        digest = file_sha256(path)
        if digest != tool.sha256:
            remedy = f"it is not the pinned program; {pin_words(tool.file)} pins this one, which is another toolchain"
            raise refusal(f"{where}: sha256", expected=tool.sha256, found=digest, remedy=remedy)


def abi_of(program: Path, folder: Path, environment: Mapping[str, str]) -> int | None:
    """Return the ABI version (16, 32, 33) of the full ELFs a program makes, by having it make the smallest one.

    `folder` is made for it. None when the program does not make one of these few bytes, whatever the reason.
    """
    image, stream, config, out = (folder / name for name in ("main.pdi", "main.bin", "config.json", "x.elf"))
    try:
        folder.mkdir(parents=True)
        image.write_bytes(bytes(16))
        stream.write_bytes(_STREAM)
        arguments = [{"name": f"arg_{i}", "type": "char *", "offset": hex(8 * i)} for i in range(3)]
        kernel = {
            "name": "main",
            "arguments": arguments,
            "PDIs": [{"id": 1, "PDI_file": str(image)}],
            "instance": [{"id": "seq", "TXN_ctrl_code_file": str(stream)}],
        }
        config.write_text(json.dumps({"xrt-kernels": [kernel]}), encoding="utf-8")
        words = [str(program), "-t", "aie2_config", "-j", str(config), "-o", str(out)]
        probe(words, name=AIEBU_ASM, cwd=folder, environment=environment, timeout=_PROBE_SECONDS)
        head = out.read_bytes()[:16]
    except (ElfkilnError, OSError):
        return None
    if len(head) < 16 or head[:4] != b"\x7fELF" or head[7] != OSABI or head[8] not in ABI_VERSIONS:
        return None
    return head[8]

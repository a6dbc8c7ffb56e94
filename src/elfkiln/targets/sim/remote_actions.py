"""The compiles and the link of a sim ELF as actions of the Remote Execution API.

An action is decided by its command, its input files and the platform it asks for. zig is not among the input files: it
and its library are 400 MB in 20,000 files. The platform asks for it by the sha256 in toolchain.lock instead, so that
the toolchain's identity is in the action's digest, and the command compares that sha256 with the program it is about
to run, so that a worker with another zig fails and never answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elfkiln.io.canonical import sha256_hex
from elfkiln.store import reapi_messages as wire
from elfkiln.targets.sim.compiler import EXPORTS_FILE, Unit
from elfkiln.targets.sim.zig_toolchain import SimToolchain

ZIG = "/opt/elfkiln/ziglang/zig"
"""Where a worker has the program of the pinned ziglang wheel, with its folder `lib` beside it."""

ZIG_PROPERTY = "elfkiln-zig"
OBJECT, ELF = "out.o", "design.elf"
SECONDS = 600
"""How long an action may take: what a compile may take here."""

WRONG_ZIG = 97
"""The exit code of an action on a worker whose zig is not the one asked for."""

# The words after it are zig's. Caches and temporary files stay in the action's folder, whose path is mapped away.
_SCRIPT = """\
set -eu
here=$(pwd)
echo "$ELFKILN_ZIG_SHA256  $ELFKILN_ZIG" | sha256sum -c --quiet - >&2 || exit 97
export HOME="$here" TMPDIR="$here" ZIG_GLOBAL_CACHE_DIR="$here/zig-global" ZIG_LOCAL_CACHE_DIR="$here/zig-local"
if [ "$1" = ld.lld ]; then exec "$ELFKILN_ZIG" "$@"; fi
exec "$ELFKILN_ZIG" "$@" "-ffile-prefix-map=$here=."
"""
# The root of a sandbox is often the action's folder itself, with /usr bound into it.
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob by digest (hex) and size in bytes; `data` is None where only the server has it."""

    digest: str
    size: int
    data: bytes | None = None

    @classmethod
    def of(cls, data: bytes) -> Blob:
        """Return the blob of some bytes."""
        return cls(sha256_hex(data), len(data), data)


@dataclass(frozen=True, slots=True)
class RemoteAction:
    """An action: its own digest and size, its command's, what it makes, the blobs it rests on, and facts for people.

    `facts` are the inputs by name with their sha256, and the command's words: what two actions are compared by.
    """

    name: str
    action: Blob
    command: Blob
    output: str
    blobs: Mapping[str, bytes]
    inputs: Mapping[str, Blob]
    facts: Mapping[str, str]


def compile_action(toolchain: SimToolchain, unit: Unit) -> RemoteAction:
    """Return the action that compiles a unit to `out.o`."""
    words = ("zig", unit.command, *unit.flags, unit.source, "-o", OBJECT)
    inputs = {name: Blob.of(data) for name, data in unit.sources.items()}
    return _action(toolchain, unit.source, words, inputs, OBJECT)


def link_action(toolchain: SimToolchain, objects: Sequence[Blob], exports: str) -> RemoteAction:
    """Return the action that links objects, in this order, to `design.elf`; their bytes may be the server's alone."""
    names = [f"{number}.o" for number in range(len(objects))]
    words = (
        "zig",
        "ld.lld",
        *toolchain.link_flags,
        f"--version-script={EXPORTS_FILE}",
        "-o",
        ELF,
        *names,
    )
    inputs = {EXPORTS_FILE: Blob.of(exports.encode()), **dict(zip(names, objects, strict=True))}
    return _action(toolchain, "link", words, inputs, ELF)


def result_of(action: RemoteAction, output: bytes) -> tuple[Any, Blob]:
    """Return the result of an action that was run here, for the cache, and the blob of its output."""
    blob = Blob.of(output)
    made = wire.message("OutputFile", path=action.output, digest=_digest(blob))
    return wire.message("ActionResult", output_files=[made], exit_code=0), blob


def output_of(action: RemoteAction, result: Any) -> Blob | None:
    """Return the output that a result names, None when it has none of this name."""
    for one in result.output_files:
        if one.path == action.output:
            return Blob(one.digest.hash, one.digest.size_bytes)
    return None


def _action(
    toolchain: SimToolchain, name: str, words: Sequence[str], inputs: Mapping[str, Blob], output: str
) -> RemoteAction:
    properties = {"ISA": "x86-64", "OSFamily": "linux", ZIG_PROPERTY: toolchain.zig_sha256}
    environment = {"ELFKILN_ZIG": ZIG, "ELFKILN_ZIG_SHA256": toolchain.zig_sha256, "LC_ALL": "C"}
    # What is listed is sorted by name: one action, one digest.
    platform = wire.message(
        "Platform", properties=[wire.message("Property", name=key, value=properties[key]) for key in sorted(properties)]
    )
    command = wire.message(
        "Command",
        arguments=["/bin/sh", "-c", _SCRIPT, *words],
        environment_variables=[
            wire.message("EnvironmentVariable", name=key, value=environment[key]) for key in sorted(environment)
        ],
        output_files=[output],
        output_paths=[output],
        platform=platform,
    )
    blobs: dict[str, bytes] = {one.digest: one.data for one in inputs.values() if one.data is not None}
    root = _tree(inputs, blobs, _LINKS)
    said = Blob.of(wire.encoded(command))
    action = Blob.of(
        wire.encoded(
            wire.message(
                "Action",
                command_digest=_digest(said),
                input_root_digest=_digest(root),
                timeout=wire.message("Duration", seconds=SECONDS),
                platform=platform,
            )
        )
    )
    assert said.data is not None
    assert action.data is not None
    blobs |= {said.digest: said.data, action.digest: action.data}
    facts = {"zig": toolchain.zig_sha256, "command": " ".join(words)}
    facts |= {key: one.digest for key, one in sorted(inputs.items())}
    return RemoteAction(name, action, said, output, blobs, inputs, facts)


def _tree(files: Mapping[str, Blob], blobs: dict[str, bytes], links: Mapping[str, str]) -> Blob:
    """Add the folders that hold files under relative names to `blobs`, and return the blob of the root."""
    below: dict[str, dict[str, Blob]] = {}
    here: list[Any] = []
    for name, blob in sorted(files.items()):
        folder, slash, rest = name.partition("/")
        if slash:
            below.setdefault(folder, {})[rest] = blob
        else:
            here.append(wire.message("FileNode", name=name, digest=_digest(blob)))
    folders = [
        wire.message("DirectoryNode", name=name, digest=_digest(_tree(inner, blobs, {})))
        for name, inner in sorted(below.items())
    ]
    symlinks = [wire.message("SymlinkNode", name=name, target=target) for name, target in sorted(links.items())]
    root = Blob.of(wire.encoded(wire.message("Directory", files=here, directories=folders, symlinks=symlinks)))
    assert root.data is not None
    blobs[root.digest] = root.data
    return root


def _digest(blob: Blob) -> Any:
    return wire.message("Digest", hash=blob.digest, size_bytes=blob.size)

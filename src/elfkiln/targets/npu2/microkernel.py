"""Microkernel objects for npu2: which sources enter one, and the Peano command that compiles it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from elfkiln.errors import Refused, refusal
from elfkiln.families.family import KernelObject
from elfkiln.io.canonical import file_sha256
from elfkiln.io.files import storage_refusal
from elfkiln.targets.npu2.pin import Npu2Pin

SOURCES = "kernels"
"""The folder of the sources, in a project and, with copies of what is needed, in a build."""

_QUOTED_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\r\n]+)"', re.MULTILINE)
_OBJECT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.o", re.ASCII)


def source_files(kernel_root: Path, source: str) -> tuple[str, ...]:
    """Return a source and the files of `kernel_root` it includes, directly or not, as sorted relative names.

    Only `#include "..."` is followed: beside the including file, then below `kernel_root`. One found in neither is
    left to the compiler, whose own headers are pinned with it. Raises `Refused` for a source that is not there or
    an include that leads out of `kernel_root`.
    """
    root = kernel_root.resolve()
    first = _inside(root, root / source, source)
    if first is None:
        raise Refused(f"kernels/{source}: missing; the family that names it cannot be built")
    found: dict[str, None] = {}
    waiting = [first]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(root).as_posix()
        if name in found:
            continue
        found[name] = None
        try:
            text = path.read_bytes()
        except OSError as error:
            raise storage_refusal(path, error) from error
        for match in _QUOTED_INCLUDE.finditer(text):
            included = match[1].decode(errors="replace")
            for place in (path.parent / included, root / included):
                inside = _inside(root, place, f'{name}: #include "{included}"')
                if inside is not None:
                    waiting.append(inside)
                    break
    return tuple(sorted(found))


def _inside(root: Path, path: Path, what: str) -> Path | None:
    """Return the file, links resolved, or None when there is none; `Refused` when it lies outside `root`."""
    real = path.resolve()
    if not real.is_file():
        return None
    if not real.is_relative_to(root):
        raise refusal(f"kernels/{what}", expected="a file below kernels/", found="one outside it")
    return real


def source_digests(kernel_root: Path, kernels: Iterable[KernelObject]) -> dict[str, str]:
    """Return the sha256 of every source file the kernels compile from, named `kernels/<relative name>`."""
    names = {name for kernel in kernels for name in source_files(kernel_root, kernel.source)}
    return {f"{SOURCES}/{name}": file_sha256(kernel_root / name) for name in sorted(names)}


def check_objects(kernels: Iterable[KernelObject]) -> None:
    """Raise `Refused` for an object name that is no plain file name, or is given to two different objects."""
    seen: dict[str, KernelObject] = {}
    for kernel in kernels:
        if _OBJECT_NAME.fullmatch(kernel.object_name) is None:
            raise refusal("microkernel object", expected="a plain file name ending in .o", found=kernel.object_name)
        if seen.setdefault(kernel.object_name, kernel) != kernel:
            raise Refused(f"microkernel object {kernel.object_name}: named twice with different sources or defines")


def copy_sources(kernel_root: Path, kernel: KernelObject, build: Path) -> None:
    """Copy an object's sources into the build's folder, so that nothing else of `kernel_root` can be included."""
    for name in source_files(kernel_root, kernel.source):
        target = build / SOURCES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kernel_root / name, target)


def compile_arguments(pin: Npu2Pin, kernel: KernelObject, *, site: Path, build: Path) -> tuple[str, ...]:
    """Return clang++'s arguments, for running in `build`: the lock's flags, the headers, the defines, the source.

    Folder prefixes are mapped away, so that the object holds none whatever the sources do with `__FILE__`.
    """
    defines = tuple(f"-D{name}={value}" if value else f"-D{name}" for name, value in sorted(kernel.defines.items()))
    source = PurePosixPath(SOURCES, kernel.source)
    return (
        *pin.microkernel_flags,
        f"-ffile-prefix-map={site}=.",
        f"-ffile-prefix-map={build}=.",
        *(f"-I{site / include}" for include in pin.microkernel_includes),
        f"-I{SOURCES}",
        *defines,
        "-c",
        str(source),
        "-o",
        kernel.object_name,
    )

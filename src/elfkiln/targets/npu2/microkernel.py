"""Microkernel objects for npu2: which sources enter one, and the Peano command that compiles it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath, PurePosixPath

from elfkiln.errors import Refused, refusal
from elfkiln.families.family import KernelObject
from elfkiln.io.files import storage_refusal
from elfkiln.targets.c_text import POSITIONS, source_text
from elfkiln.targets.npu2.pin import Npu2Pin

SOURCES = "kernels"
"""The folder of the sources, in a project and, with copies of what is needed, in a build."""

_QUOTED_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\r\n]+)"', re.MULTILINE)
_OBJECT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.o", re.ASCII)


def read_sources(kernel_root: Path, kernels: Iterable[KernelObject]) -> dict[str, bytes]:
    """Read the kernels' sources and the files of `kernel_root` they include, directly or not: `kernels/...`, once each.

    Only `#include "..."` is followed: beside the including file, then below `kernel_root`. One found in neither is
    left to the compiler, whose own headers are pinned with it. Raises `Refused` for a source that is not there or
    an include that leads out of `kernel_root`.
    """
    root = kernel_root.resolve()
    found: dict[str, bytes] = {}
    waiting: list[Path] = []
    for source in dict.fromkeys(kernel.source for kernel in kernels):
        first = _inside(root, root / source, source)
        if first is None:
            raise Refused(f"kernels/{source}: missing; the family that names it cannot be built")
        waiting.append(first)
    while waiting:
        path = waiting.pop()
        name = f"{SOURCES}/{path.relative_to(root).as_posix()}"
        if name in found:
            continue
        try:
            found[name] = path.read_bytes()
        except OSError as error:
            raise storage_refusal(path, error) from error
        for included in _included(found[name]):
            for place in (path.parent / included, root / included):
                inside = _inside(root, place, f'{name.removeprefix(SOURCES + "/")}: #include "{included}"')
                if inside is not None:
                    waiting.append(inside)
                    break
    return dict(sorted(found.items()))


def sources_of(kernel: KernelObject, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return those of the sources that were read which one object is compiled from."""
    found: dict[str, bytes] = {}
    waiting = [f"{SOURCES}/{kernel.source}"]
    while waiting:
        name = waiting.pop()
        if name in found or name not in sources:
            continue
        found[name] = sources[name]
        folder = posixpath.dirname(name)
        for included in _included(sources[name]):
            places = (posixpath.normpath(posixpath.join(place, included)) for place in (folder, SOURCES))
            waiting += [place for place in places if place in sources][:1]
    return dict(sorted(found.items()))


def seen_of(kernel: KernelObject, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what enters a recipe of an object's sources: their one spelling, without comments and white space.

    Where line numbers can enter the object (a macro of one file may use them in another), the files themselves.
    """
    own = sources_of(kernel, sources)
    texts = {name: data.decode("utf-8", "replace") for name, data in own.items()}
    if any(POSITIONS.search(text) for text in texts.values()):
        return own
    return {name: source_text(text).encode() for name, text in texts.items()}


def _included(data: bytes) -> list[str]:
    return [match[1].decode(errors="replace") for match in _QUOTED_INCLUDE.finditer(data)]


def _inside(root: Path, path: Path, what: str) -> Path | None:
    """Return the file, links resolved, or None when there is none; `Refused` when it lies outside `root`."""
    real = path.resolve()
    if not real.is_file():
        return None
    if not real.is_relative_to(root):
        raise refusal(f"kernels/{what}", expected="a file below kernels/", found="one outside it")
    return real


def check_objects(kernels: Iterable[KernelObject]) -> None:
    """Raise `Refused` for an object name that is not a plain file name, or is given to two different objects."""
    seen: dict[str, KernelObject] = {}
    for kernel in kernels:
        if _OBJECT_NAME.fullmatch(kernel.object_name) is None:
            raise refusal("microkernel object", expected="a plain file name ending in .o", found=kernel.object_name)
        if seen.setdefault(kernel.object_name, kernel) != kernel:
            raise Refused(f"microkernel object {kernel.object_name}: named twice with different sources or defines")


def copy_sources(sources: Mapping[str, bytes], kernel: KernelObject, build: Path) -> None:
    """Write an object's sources into the build's folder, so that nothing else can be included."""
    for name, data in sources_of(kernel, sources).items():
        target = build / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def compile_arguments(pin: Npu2Pin, kernel: KernelObject, *, site: PurePath, build: PurePath) -> tuple[str, ...]:
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

"""Runs zig's clang and lld: in a private folder, on copies of the sources, with nothing of the caller's environment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from elfkiln.errors import BuildFailed, Refused, refusal, with_log
from elfkiln.families.family import KernelObject
from elfkiln.io.byte_cache import ByteCache
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.child import GIB, Limits, run_child
from elfkiln.io.complaint import complaint
from elfkiln.io.files import storage_refusal
from elfkiln.io.reading import require_inside
from elfkiln.io.workspace import private_folder
from elfkiln.store.recipe import Step
from elfkiln.targets.c_text import ELSEWHERE, POSITIONS, seen_texts
from elfkiln.targets.sim.machine import MORE
from elfkiln.targets.sim.zig_toolchain import SimToolchain

RUNTIME = "runtime/runtime.c"
HEADER = "sim.h"
DESIGN = "design.c"
EXPORTS_FILE = "exports.map"
# Seen: up to 3 s, 0.25 GB of address space and some MB of zig's own cache for one command.
_LIMITS = Limits(
    seconds=600, cpu_seconds=1200, memory_bytes=8 * GIB, file_bytes=GIB, folder_bytes=4 * GIB, offline=True
)
_HEADERS = (".h", ".hpp")
_DEFINE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DEFINED_AS = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Unit:
    """One compile of a build: command, flags, the source it begins with, and all sources it may include, by name.

    `seen` is what enters the recipe: what the compiler sees of them. `shared` says that other builds have it too.
    """

    command: str
    source: str
    flags: tuple[str, ...]
    sources: Mapping[str, bytes]
    seen: Mapping[str, bytes]
    shared: bool = True

    @property
    def step(self) -> Step:
        """The unit as a step of a recipe."""
        return Step(self.source, (self.command, *self.flags, self.source), self.seen)


class Compiler:
    """The tools of one build. Objects that many builds share come from the cache; `log` is what the tools said."""

    def __init__(self, toolchain: SimToolchain, cache: Path, workdir: Path) -> None:
        """Take the toolchain, the folder of cached objects, and the folder of this build."""
        self.toolchain = toolchain
        self.objects = ByteCache(cache / "objects", ".o")
        self.seen = ByteCache(cache / "seen", ".json")
        self.workdir = workdir
        self.log = ""

    def runtime(self, sources: Mapping[str, bytes], *, more: bool = False) -> Unit:
        """Return the unit of the simulator's runtime; `more` is for designs that have what few have (sim.h)."""
        flags = (*self.toolchain.runtime_flags, "-DSIM_MORE") if more else self.toolchain.runtime_flags
        return self._unit("cc", RUNTIME, flags, _below("runtime/", sources))

    def design(self, source: str, sources: Mapping[str, bytes]) -> Unit:
        """Return the unit of a design's generated C."""
        flags = (*self.toolchain.design_flags, "-Iruntime")
        runtime = _below("runtime/", sources)
        # The C is one spelling already; what it includes is the same for all designs, macros too.
        first = f"{MORE}\n" if source.startswith(MORE) else ""
        stub = {**runtime, DESIGN: f'{first}#include "{HEADER}"\n'.encode()}
        seen = {name: data for name, data in self.see("cc", DESIGN, (*flags, "-dD"), stub).items() if name != DESIGN}
        return Unit(
            "cc", DESIGN, flags, {**runtime, DESIGN: source.encode()}, {DESIGN: source.encode(), **seen}, shared=False
        )

    def kernel(self, kernel: KernelObject, sources: Mapping[str, bytes]) -> Unit:
        """Return the unit of a microkernel; raises `Refused` for a source or a define that cannot be."""
        defines = [_define(kernel, name, value) for name, value in sorted(kernel.defines.items())]
        folders = ("-Ikernels", "-Ikernels/host", "-Iruntime")
        return self._unit(
            "c++", f"kernels/{kernel.source}", (*self.toolchain.microkernel_flags, *defines, *folders), sources
        )

    def _unit(self, command: str, source: str, flags: Sequence[str], sources: Mapping[str, bytes]) -> Unit:
        return Unit(command, source, tuple(flags), sources, self.see(command, source, flags, sources))

    def see(self, command: str, source: str, flags: Sequence[str], sources: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return what the compiler sees of each source that takes part in a compile, by name (`c_text.seen_texts`).

        Where line numbers can enter the object, the sources themselves are returned.
        """
        key = self._key([command, *flags, source], {name: sha256_hex(data) for name, data in sources.items()})
        packed = self.seen.get(key, lambda: _pack(self._preprocess(command, source, flags, sources)))
        return {name: text.encode() for name, text in json.loads(packed).items()}

    def _preprocess(
        self, command: str, source: str, flags: Sequence[str], sources: Mapping[str, bytes]
    ) -> Mapping[str, str]:
        text = self._make(source, (command, *flags, "-E"), sources, "out.i").decode("utf-8", "replace")
        texts = seen_texts(text, str(self.toolchain.zig.parent / "lib"))
        if any(POSITIONS.search(one) for name, one in texts.items() if name != ELSEWHERE):
            return {name: data.decode("utf-8", "replace") for name, data in sources.items()}
        return texts

    def compile_all(self, units: Sequence[Unit]) -> list[bytes]:
        """Return the objects of units, in their order; those that other builds have too come from the cache.

        What another process is just making is left to it, and looked for again when the rest is done.
        """
        found: dict[int, bytes] = {}
        late = []
        for number, unit in enumerate(units):
            data = self.objects.try_get(*self._made(unit)) if unit.shared else self._object(unit)
            if data is None:
                late.append(number)
            else:
                found[number] = data
        for number in late:
            found[number] = self.objects.get(*self._made(units[number]))
        return [found[number] for number in range(len(units))]

    def compile_ahead(self, unit: Unit) -> None:
        """Make the object of a unit that many builds share, unless it is in the cache or just being made."""
        self.objects.try_get(*self._made(unit))

    def _made(self, unit: Unit) -> tuple[str, Callable[[], bytes]]:
        """Return a unit's key in the cache, and what makes its object."""
        words = [unit.command, *unit.flags, unit.source]
        key = self._key(words, {name: sha256_hex(data) for name, data in unit.seen.items()})
        return key, lambda: self._object(unit)

    def _object(self, unit: Unit) -> bytes:
        return self._make(unit.source, (unit.command, *unit.flags), unit.sources, "out.o")

    def _key(self, command: Sequence[str], inputs: Mapping[str, str]) -> str:
        zig = self.toolchain.zig_sha256
        return sha256_hex(canonical_json({"zig": zig, "command": list(command), "inputs": inputs}))

    def link(self, objects: Sequence[bytes], exports: str, name: str) -> Path:
        """Link objects to the shared object `name` in the build's folder and return its path."""
        try:
            with private_folder(self.workdir) as folder:
                files = [f"{number}.o" for number in range(len(objects))]
                _write(folder, {EXPORTS_FILE: exports.encode(), **dict(zip(files, objects, strict=True))})
                arguments = (*self.toolchain.link_flags, f"--version-script={EXPORTS_FILE}", "-o", name, *files)
                self._run("link", ("ld.lld", *arguments), folder)
                return (folder / name).replace(self.workdir / name)
        except FileNotFoundError:
            raise BuildFailed("link: zig ld.lld ended well and left no ELF") from None
        except OSError as error:
            raise storage_refusal(self.workdir, error) from error

    def _make(self, source: str, words: Sequence[str], sources: Mapping[str, bytes], output: str) -> bytes:
        """Run zig on one of `sources` (relative names and their bytes) and return what it leaves.

        The tool sees copies under relative names in a fresh folder: no path of this machine is known to it but that
        folder's, which is mapped away, and no source can change under it.
        """
        try:
            with private_folder(self.workdir) as folder:
                _write(folder, sources)
                mapped = f"-ffile-prefix-map={folder}=."
                self._run(source, (*words, mapped, source, "-o", output), folder)
                return (folder / output).read_bytes()
        except FileNotFoundError:
            raise BuildFailed(f"{source}: zig {words[0]} ended well and left no object") from None
        except OSError as error:
            raise storage_refusal(self.workdir, error) from error

    def _run(self, what: str, arguments: Sequence[str], folder: Path) -> None:
        """Run zig; raise `BuildFailed` with its first error when it fails."""
        # Variables such as CPATH would change what is compiled, and zig keeps caches below HOME.
        environment = {
            "LC_ALL": "C",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig-global"),
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig-local"),
        }
        done = run_child(
            [self.toolchain.zig, *arguments],
            name=f"{what}: zig {arguments[0]}",
            cwd=folder,
            environment=environment,
            limits=_LIMITS,
        )
        said = (done.err + done.out).replace(str(folder), ".")
        self.log += said
        if done.exit_code:
            failed = BuildFailed(f"{what}: zig {arguments[0]}: {done.ending}: {complaint(said)}")
            raise with_log(failed, self.log)


def sim_sources(kernel_root: Path, kernels: Iterable[KernelObject]) -> dict[str, bytes]:
    """Read the runtime, the microkernels and their headers: `runtime/...` and `kernels/...`, each once.

    Raises `Refused` naming a microkernel source that is not there.
    """
    found = runtime_sources()
    for source in dict.fromkeys(kernel.source for kernel in kernels):
        found |= kernel_sources(kernel_root, source)
    return found


def runtime_sources() -> dict[str, bytes]:
    """Return the C of the runtime, named `runtime/<file>`."""
    return _tree(_package() / "targets" / "sim" / "runtime", "runtime", (".c", ".h"))


def kernel_sources(kernel_root: Path, source: str) -> dict[str, bytes]:
    """Return a microkernel's source and every header below `kernel_root`, named `kernels/<relative name>`.

    Raises `Refused` for a name that leads out of the folder and for a source that is not there.
    """
    relative = PurePosixPath(source)
    if relative.is_absolute() or ".." in relative.parts or "\\" in source or str(relative) != source:
        raise refusal("microkernel source", expected="a relative name below kernels/", found=source)
    try:
        first = require_inside(kernel_root, kernel_root / relative, f"kernels/{source}")
        found = {f"kernels/{source}": first.read_bytes()}
        for path in sorted(kernel_root.rglob("*")):
            if path.suffix in _HEADERS and path.is_file():
                name = f"kernels/{path.relative_to(kernel_root).as_posix()}"
                found[name] = require_inside(kernel_root, path, name).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise Refused(f"kernels/{source}: missing; restore it from the repository") from None
    except OSError as error:
        raise storage_refusal(kernel_root, error) from error
    return found


def _package() -> Traversable:
    return resources.files("elfkiln")


def _tree(place: Traversable, name: str, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in sorted(place.iterdir(), key=lambda one: one.name):
        if entry.is_dir():
            found |= _tree(entry, f"{name}/{entry.name}", suffixes)
        elif entry.name.endswith(suffixes):
            found[f"{name}/{entry.name}"] = entry.read_bytes()
    return found


def _define(kernel: KernelObject, name: str, value: str) -> str:
    if not _DEFINE.fullmatch(name) or not _DEFINED_AS.fullmatch(value):
        raise refusal(f"{kernel.object_name}: define", expected="NAME=word", found=f"{name}={value}")
    return f"-D{name}={value}"


def _below(prefix: str, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in sources.items() if name.startswith(prefix)}


def _pack(texts: Mapping[str, str]) -> bytes:
    return canonical_json(dict(texts))


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

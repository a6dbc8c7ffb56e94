"""Runs zig's clang and lld: in a private folder, on copies of the sources, with nothing of the caller's environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from elfkiln.errors import BuildFailed, Refused, refusal
from elfkiln.families.family import KernelObject
from elfkiln.io.canonical import canonical_json, sha256_hex
from elfkiln.io.child import GIB, Limits, run_child
from elfkiln.io.complaint import complaint
from elfkiln.io.files import storage_refusal
from elfkiln.io.workspace import private_folder
from elfkiln.targets.sim.object_cache import ObjectCache
from elfkiln.targets.sim.zig_toolchain import SimToolchain

# Seen: up to 3 s, 0.25 GB of address space and some MB of zig's own cache for one command.
_LIMITS = Limits(seconds=600, cpu_seconds=1200, memory_bytes=8 * GIB, file_bytes=GIB, folder_bytes=4 * GIB)
_HEADERS = (".h", ".hpp")
_DEFINE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DEFINED_AS = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)

# What of the package, beside the simulator, decides a sim ELF's bytes: what makes a generator's program a design (the
# `aie` stand-in), what reads the design, and the figures these use.
_DECIDING = (
    "design",
    "engine/contract.py",
    "engine/layouts.py",
    "hardware/limits.py",
    "io/canonical.py",
    "targets/sim",
)


class Compiler:
    """The tools of one build. Objects that many builds share come from the cache; `log` is what the tools said."""

    def __init__(self, toolchain: SimToolchain, cache: Path, workdir: Path) -> None:
        """Take the toolchain, the folder of cached objects, and the folder of this build."""
        self.toolchain = toolchain
        self.objects = ObjectCache(cache / "objects")
        self.workdir = workdir
        self.log = ""

    def runtime(self) -> bytes:
        """Return the object of the simulator's runtime."""
        return self._cached("cc", "runtime/runtime.c", self.toolchain.runtime_flags, runtime_sources())

    def design(self, source: str) -> bytes:
        """Return the object of a design's generated C."""
        sources = {**runtime_sources(), "design.c": source.encode()}
        return self.compile("cc", "design.c", (*self.toolchain.design_flags, "-Iruntime"), sources)

    def kernel(self, kernel_root: Path, kernel: KernelObject) -> bytes:
        """Return the object of a microkernel; raises `Refused` for a source or a define that cannot be."""
        sources = {**runtime_sources(), **kernel_sources(kernel_root, kernel.source)}
        defines = [_define(kernel, name, value) for name, value in sorted(kernel.defines.items())]
        folders = ("-Ikernels", "-Ikernels/host", "-Iruntime")
        flags = (*self.toolchain.microkernel_flags, *defines, *folders)
        return self._cached("c++", f"kernels/{kernel.source}", flags, sources)

    def link(self, objects: Sequence[bytes], exports: str, name: str) -> Path:
        """Link objects to the shared object `name` in the build's folder and return its path."""
        try:
            with private_folder(self.workdir) as folder:
                files = [f"{number}.o" for number in range(len(objects))]
                _write(folder, {"exports.map": exports.encode(), **dict(zip(files, objects, strict=True))})
                arguments = (*self.toolchain.link_flags, "--version-script=exports.map", "-o", name, *files)
                self._run("link", ("ld.lld", *arguments), folder)
                return (folder / name).replace(self.workdir / name)
        except FileNotFoundError:
            raise BuildFailed("link: zig ld.lld ended well and left no ELF") from None
        except OSError as error:
            raise storage_refusal(self.workdir, error) from error

    def compile(self, command: str, source: str, flags: Sequence[str], sources: Mapping[str, bytes]) -> bytes:
        """Compile one of `sources` (relative names and their bytes) and return the object.

        The tool sees copies under relative names in a fresh folder: no path of this machine is known to it but that
        folder's, which is mapped away, and no source can change under it.
        """
        try:
            with private_folder(self.workdir) as folder:
                _write(folder, sources)
                mapped = f"-ffile-prefix-map={folder}=."
                self._run(source, (command, *flags, mapped, source, "-o", "out.o"), folder)
                return (folder / "out.o").read_bytes()
        except FileNotFoundError:
            raise BuildFailed(f"{source}: zig {command} ended well and left no object") from None
        except OSError as error:
            raise storage_refusal(self.workdir, error) from error

    def _cached(self, command: str, source: str, flags: Sequence[str], sources: Mapping[str, bytes]) -> bytes:
        made_of = {
            "zig": self.toolchain.zig_sha256,
            "command": [command, *flags, source],
            "sources": {name: sha256_hex(data) for name, data in sources.items()},
        }
        key = sha256_hex(canonical_json(made_of))
        return self.objects.get(key, lambda: self.compile(command, source, flags, sources))

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
            raise BuildFailed(f"{what}: zig {arguments[0]}: {done.ending}: {complaint(said)}")


def runtime_sources() -> dict[str, bytes]:
    """Return the C of the runtime, named `runtime/<file>`."""
    return _tree(_package() / "targets" / "sim" / "runtime", "runtime", (".c", ".h"))


def package_sources() -> dict[str, bytes]:
    """Return the Python modules that decide a sim ELF's bytes, by their names below the package."""
    found: dict[str, bytes] = {}
    for name in _DECIDING:
        place = _package().joinpath(*name.split("/"))
        if place.is_dir():
            found |= _tree(place, name, (".py",))
        elif place.is_file():
            found[name] = place.read_bytes()
    return found


def kernel_sources(kernel_root: Path, source: str) -> dict[str, bytes]:
    """Return a microkernel's source and every header below `kernel_root`, named `kernels/<relative name>`.

    Raises `Refused` for a name that leads out of the folder and for a source that is not there.
    """
    relative = PurePosixPath(source)
    if relative.is_absolute() or ".." in relative.parts or "\\" in source or str(relative) != source:
        raise refusal("microkernel source", expected="a relative name below kernels/", found=source)
    try:
        found = {f"kernels/{source}": (kernel_root / relative).read_bytes()}
        for path in sorted(kernel_root.rglob("*")):
            if path.suffix in _HEADERS and path.is_file():
                found[f"kernels/{path.relative_to(kernel_root).as_posix()}"] = path.read_bytes()
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


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

"""The toolchain of target sim as toolchain.lock pins it, and the check that it is what would run here."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from elfkiln.errors import Refused, refusal
from elfkiln.io.canonical import file_sha256
from elfkiln.store.toolchain_lock import TargetPin

# What a -mcpu takes of the processor, by the names of /proc/cpuinfo (x86-64 psABI, microarchitecture levels;
# `abm` is LZCNT).
_CPU_FLAGS: Mapping[str, tuple[str, ...]] = {
    "x86_64_v3": (
        "cx16",
        "popcnt",
        "ssse3",
        "sse4_1",
        "sse4_2",
        "avx",
        "avx2",
        "bmi1",
        "bmi2",
        "f16c",
        "fma",
        "abm",
        "movbe",
        "xsave",
    ),
}


@dataclass(frozen=True, slots=True)
class Host:
    """What a sim ELF needs to know of a machine: operating system, architecture, and the processor's flags."""

    system: str
    machine: str
    cpu_flags: frozenset[str]


@dataclass(frozen=True, slots=True)
class Installed:
    """The installed packages that the pin names: versions (None: not installed) and the zig program."""

    ziglang: str | None
    xdsl: str | None
    zig: Path | None


@dataclass(frozen=True, slots=True)
class SimToolchain:
    """The pin of target sim: versions, the sha256 of the zig program, and the exact arguments of every step."""

    triple: str
    cpu: str
    ziglang_version: str
    zig_sha256: str
    xdsl_version: str
    runtime_flags: tuple[str, ...]
    design_flags: tuple[str, ...]
    microkernel_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    digest: str
    zig: Path

    @classmethod
    def from_pin(cls, pin: TargetPin, installed: Installed | None = None) -> SimToolchain:
        """Read the section of toolchain.lock; raises `Refused` naming the field that is absent or of a wrong type.

        `zig` is the program that would run, of `installed` or of this Python; whether it is the locked one is for
        `check` to say.
        """
        table = pin.table
        common = _words(pin.name, table, "flags.common")
        target = ("-target", _text(pin.name, table, "triple"), f"-mcpu={_text(pin.name, table, 'cpu')}")
        return cls(
            triple=_text(pin.name, table, "triple"),
            cpu=_text(pin.name, table, "cpu"),
            ziglang_version=_text(pin.name, table, "ziglang.version"),
            zig_sha256=_text(pin.name, table, "ziglang.zig_sha256"),
            xdsl_version=_text(pin.name, table, "xdsl.version"),
            runtime_flags=(*common, *target, *_words(pin.name, table, "flags.runtime")),
            design_flags=(*common, *target, *_words(pin.name, table, "flags.design")),
            microkernel_flags=(*common, *target, *_words(pin.name, table, "flags.microkernel")),
            link_flags=_words(pin.name, table, "flags.link"),
            digest=pin.digest,
            zig=(installed_packages() if installed is None else installed).zig or Path("zig"),
        )

    def describe(self) -> str:
        """Return the tools by version, e.g. `ziglang 0.17.1, xdsl 0.75.0, x86_64_v3`."""
        return f"ziglang {self.ziglang_version}, xdsl {self.xdsl_version}, {self.cpu}"

    def check(self, host: Host | None = None, installed: Installed | None = None) -> None:
        """Raise `Refused`, in one line, unless this machine can run the pinned toolchain and has exactly it.

        Refused are another operating system or architecture, a processor that lacks what `-mcpu` takes, another
        version of ziglang or xdsl, and a zig whose bytes differ from the locked ones.
        """
        found = installed_packages() if installed is None else installed
        self.check_versions(host, found)
        if found.zig is None or not found.zig.is_file():
            raise Refused(
                f"target sim: ziglang {self.ziglang_version} is installed without its program zig; "
                "reinstall it from requirements.txt"
            )
        digest = _digest_of(found.zig)
        if digest != self.zig_sha256:
            raise refusal(
                f"target sim: program zig of ziglang {self.ziglang_version}",
                expected=f"sha256 {self.zig_sha256}",
                found=digest,
                remedy="it is not the one in toolchain.lock; reinstall it from requirements.txt",
            )

    def check_versions(self, host: Host | None = None, installed: Installed | None = None) -> None:
        """Raise `Refused` as `check` does, but trust zig's version: hashing its bytes takes a tenth of a second.

        Enough where nothing is compiled; whatever compiles calls `check` first.
        """
        check_host(self.cpu, host)
        found = installed_packages() if installed is None else installed
        self._check_version("ziglang", self.ziglang_version, found.ziglang)
        self._check_version("xdsl", self.xdsl_version, found.xdsl)

    @staticmethod
    def _check_version(package: str, wanted: str, found: str | None) -> None:
        if found != wanted:
            raise refusal(
                f"target sim: {package}",
                expected=f"{package} {wanted} as toolchain.lock says",
                found="none installed" if found is None else f"{package} {found}",
                remedy="pip install -r requirements.txt, or delete .venv and run ./doit again",
            )


def check_host(cpu: str, host: Host | None = None) -> None:
    """Raise `Refused` unless `host` (default: this machine) runs x86-64 Linux code compiled for `-mcpu=cpu`."""
    here = this_host() if host is None else host
    needed = _CPU_FLAGS.get(cpu)
    if needed is None:
        raise refusal("target sim: cpu", expected="one of " + ", ".join(_CPU_FLAGS), found=cpu)
    if here.system != "Linux" or here.machine.lower() not in ("x86_64", "amd64"):
        raise refusal(
            "target sim",
            expected="Linux on x86-64",
            found=f"{here.system or 'an unknown system'} on {here.machine or 'an unknown machine'}",
            remedy="sim ELFs are x86-64 shared objects; build and run them on such a machine",
        )
    missing = [flag for flag in needed if flag not in here.cpu_flags]
    if missing:
        raise refusal(
            "target sim",
            expected=f"a processor with {cpu} (AVX2 and its kin)",
            found=f"one without {' '.join(missing)}",
            remedy="sim ELFs use these instructions; build and run them on a newer machine",
        )


def this_host() -> Host:
    """Return this machine's facts; the flags are empty where /proc/cpuinfo cannot be read."""
    flags: frozenset[str] = frozenset()
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, values = line.partition(":")
                if name.strip() == "flags":
                    flags = frozenset(values.split())
                    break
    except OSError:
        pass
    return Host(platform.system(), platform.machine(), flags)


def installed_packages() -> Installed:
    """Return the installed versions of what the pin names, and the zig program of the installed ziglang."""
    spec = importlib.util.find_spec("ziglang")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    zig = Path(folders[0]) / "zig" if folders else None
    return Installed(_version("ziglang"), _version("xdsl"), zig)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


Stamps: TypeAlias = "dict[tuple[str, int, int, int, int], str]"

_HASHED: Stamps = {}


def hashed_programs() -> Stamps:
    """Return the sha256 of the programs that were hashed, by path, size, mtime, ctime and inode.

    One build checks the toolchain more than once, in several processes, and the program is large.
    """
    return dict(_HASHED)


def trust_hashed(stamps: Stamps) -> None:
    """Take what another process of this build has hashed."""
    _HASHED.update(stamps)


def _digest_of(path: Path) -> str:
    try:
        state = path.stat()
        stamp = (str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
        if stamp not in _HASHED:
            _HASHED[stamp] = file_sha256(path)
        return _HASHED[stamp]
    except OSError as error:
        raise Refused(f"target sim: zig cannot be read ({os.strerror(error.errno or 0)})") from error


def _field(target: str, table: Mapping[str, Any], path: str) -> object:
    value: object = table
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None:
        raise refusal(f"toolchain.lock: target.{target}.{path}", expected="a value", found="none")
    return value


def _text(target: str, table: Mapping[str, Any], path: str) -> str:
    value = _field(target, table, path)
    if not isinstance(value, str) or not value:
        raise refusal(f"toolchain.lock: target.{target}.{path}", expected="a text", found=value)
    return value


def _words(target: str, table: Mapping[str, Any], path: str) -> tuple[str, ...]:
    value = _field(target, table, path)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise refusal(f"toolchain.lock: target.{target}.{path}", expected="a list of texts", found=value)
    return tuple(value)

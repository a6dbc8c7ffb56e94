"""Wheels that are given for a candidate lock, read from their metadata, and what a candidate lock says.

What a target does with them is its own `candidate`; which target they belong to is `elfkiln.work.bump`'s to say.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.canonical import file_sha256
from elfkiln.io.files import write_atomic

_METADATA_BYTES = 8 << 20
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What zipfile raises for a file that is no archive, or a damaged, encrypted or unknown one."""


@dataclass(frozen=True, slots=True)
class WheelName:
    """A wheel's file name taken apart: name and version in their normal forms, and its tags."""

    name: str
    version: str
    tags: frozenset[Tag]

    @classmethod
    def parse(cls, file: str) -> WheelName:
        """Read a file name; `Refused` when it is not one of a wheel.

        >>> name = WheelName.parse("llvm_aie-22.0.0+02be6fd8-py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl")
        >>> name.name, name.version, name.platforms
        ('llvm-aie', '22.0.0+02be6fd8', ('manylinux_2_27_x86_64', 'manylinux_2_28_x86_64'))
        """
        try:
            name, version, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            expected = "a file name <name>-<version>-<python>-<abi>-<platform>.whl"
            raise refusal("wheel", expected=expected, found=file) from None
        return cls(name, str(version), tags)

    @property
    def abis(self) -> tuple[str, ...]:
        """The ABIs it is for."""
        return tuple(sorted({tag.abi for tag in self.tags}))

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms it is for."""
        return tuple(sorted({tag.platform for tag in self.tags}))

    def fits_python(self, version: str) -> bool:
        """Whether the tags allow CPython `version` ("3.12"): its own tag, an older abi3, or pure Python.

        >>> WheelName.parse("a-1-cp312-cp312-any.whl").fits_python("3.12")
        True
        >>> WheelName.parse("a-1-cp311-cp311-any.whl").fits_python("3.12")
        False
        """
        major, minor = (int(part) for part in version.split("."))
        interpreter = f"cp{major}{minor}"
        # Whether this machine has the platform is for pip to say.
        supported = {
            *cpython_tags((major, minor), [interpreter], self.platforms),
            *compatible_tags((major, minor), interpreter, self.platforms),
        }
        return not self.tags.isdisjoint(supported)


def normal_version(version: str) -> str:
    """Return a version in its normal form, as file names and indexes are compared; any other text as it is.

    >>> normal_version("1.4.3-rc1"), normal_version("22.0.0.2026092301+02BE6fd8")
    ('1.4.3rc1', '22.0.0.2026092301+02be6fd8')
    """
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


@dataclass(frozen=True, slots=True)
class GivenWheel:
    """A wheel as it lies there: name and version of its metadata, file name, digest, size, and what it requires."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    requires: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One package or program of the candidate: its pinned and its new file (None: not pinned before)."""

    name: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class CandidateLock:
    """A candidate lock of one target's: its text, the toolchain digests before and after, what changed.

    `notes` are what a person has to see to. `why` says why recipes of the target change; empty: none does.
    """

    target: str
    text: str
    digest_before: str
    digest: str
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    why: str


def find_wheels(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the wheels among files and folders; `Refused` for a path that is neither, none, or two of a package."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(path.glob("*.whl"))
        elif path.is_file():
            found.append(path)
        else:
            raise refusal("wheels", expected="wheel files or a folder of them", found=path)
    if not found:
        raise refusal("wheels", expected="wheel files or a folder of them", found="none")
    names = [WheelName.parse(path.name).name for path in found]
    for name in names:
        if names.count(name) > 1:
            raise refusal("wheels", expected="one wheel per package", found=f"several of {name}")
    return tuple(found)


def read_given(path: Path) -> GivenWheel:
    """Read a wheel's name, version and requirements from its metadata, and hash it.

    Raises `Refused` when the file is not a wheel, or its metadata and its file name do not say the same.
    """
    parts = WheelName.parse(path.name)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            if len(names) != 1:
                raise refusal(path.name, expected="one .dist-info/METADATA", found=len(names))
            with archive.open(names[0]) as stream:
                metadata = BytesParser().parsebytes(stream.read(_METADATA_BYTES), headersonly=True)
        size, digest = path.stat().st_size, file_sha256(path)
    except (*DAMAGED, OSError) as error:
        raise Refused(f"{path.name}: not readable as a wheel ({brief(error, 100)})") from error
    name, version = canonicalize_name(str(metadata.get("Name", ""))), str(metadata.get("Version", ""))
    if (name, normal_version(version)) != (parts.name, parts.version):
        raise refusal(f"{path.name}: METADATA", expected=f"{parts.name} {parts.version}", found=f"{name} {version}")
    requires = tuple(str(line) for line in metadata.get_all("Requires-Dist", []))
    return GivenWheel(name, version, path.name, digest, size, requires)


def write_candidate(text: str, out: Path, *, overwrite: bool) -> None:
    """Write a candidate's text; an existing file (toolchain.lock itself, say) is `Refused` unless `overwrite`."""
    if out.exists() and not overwrite:
        raise Refused(f"out={out}: exists; name another file, or say --overwrite")
    write_atomic(out, text.encode())

"""Collects the pinned wheels: from the store's mirror, a folder, their addresses, or the package index of pip.

Whatever the source, a wheel counts only by its sha256; a file of the right name and other bytes is refused.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from elfkiln.errors import Differs, Refused, mismatch_line, refusal
from elfkiln.io.canonical import file_sha256
from elfkiln.io.child import ChildStopped, run_child
from elfkiln.io.complaint import complaint
from elfkiln.io.files import storage_refusal
from elfkiln.store.blobs import Store
from elfkiln.targets.given_wheels import WheelName
from elfkiln.targets.npu2.download import fetch
from elfkiln.targets.npu2.pin import Wheel
from elfkiln.targets.npu2.tool_run import limits_of

Note = Callable[[str], None]

_PIP_SECONDS = 3600
# What of the caller's pip settings says where packages come from; the rest could change what is installed.
_INDEX_SETTINGS = (
    "PIP_CACHE_DIR",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_RETRIES",
    "PIP_TRUSTED_HOST",
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where wheels may come from: the mirror in `store` first, then `folder`. With a folder, no network is used."""

    store: Store
    folder: Path | None = None


def silent(_line: str) -> None:
    """Say nothing: the default of every `note`."""


def collect(wheels: Iterable[Wheel], sources: Sources, into: Path, python: str, note: Note = silent) -> None:
    """Bring every pinned wheel into the folder `into` under its own file name, verified by sha256.

    `python` is the version the wheels are for ("3.12"). Raises `Refused` for wrong bytes, `Differs` listing what is
    missing or could not be fetched.
    """
    wanted = tuple(wheels)
    left = [wheel for wheel in wanted if not _from_store(wheel, sources.store, into, note)]
    if left and sources.folder is not None:
        left = [wheel for wheel in left if not _from_folder(wheel, sources.folder, into)]
        if left:
            names = ", ".join(wheel.file for wheel in left)
            raise Differs(
                f"wheels={sources.folder}: {len(left)} of {len(wanted)} pinned wheels missing there and in the mirror: "
                f"{names}"
            )
    addressed = [wheel for wheel in left if wheel.url is not None]
    for position, wheel in enumerate(addressed, start=1):
        assert wheel.url is not None
        note(f"fetching {wheel.file} ({position} of {len(addressed)})")
        fetch(wheel.url, into / wheel.file, sha256=wheel.sha256, size=wheel.size)
    indexed = [wheel for wheel in left if wheel.url is None]
    if indexed:
        note(f"fetching {len(indexed)} wheels from pip's package index")
        _from_index(indexed, into, python)


def _from_store(wheel: Wheel, store: Store, into: Path, note: Note) -> bool:
    source, target = store.path(wheel.sha256), into / wheel.file
    if not store.holds(wheel.sha256):
        if os.path.lexists(source):
            note(f"{wheel.file}: the mirror's copy is damaged and not used ({_state(source)})")
        return False
    try:
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    except OSError as error:
        raise storage_refusal(target, error) from error
    return True


def _state(path: Path) -> str:
    try:
        return f"{path.stat().st_size} bytes, sha256 {file_sha256(path)}"
    except OSError as error:
        return error.strerror or str(error)


def _from_folder(wheel: Wheel, folder: Path, into: Path) -> bool:
    # A browser may have kept the address's spelling of the name, with %2B for +.
    for name in dict.fromkeys((wheel.file, quote(wheel.file))):
        source, target = folder / name, into / wheel.file
        if not source.is_file():
            continue
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise storage_refusal(source, error) from error
        check_bytes(wheel, target, f"wheels={folder}: {name}")
        return True
    if not folder.is_dir():
        raise refusal("wheels", expected="a folder that holds the pinned wheels", found=folder)
    return False


def check_bytes(wheel: Wheel, path: Path, where: str) -> None:
    """Raise `Refused` unless the file has the pinned size (where known) and sha256."""
    found = path.stat().st_size
    remedy = "it is not the pinned file; get that one"
    if wheel.size is not None and found != wheel.size:
        raise Refused(mismatch_line(f"{where}: size", expected=f"{wheel.size} bytes", found=found, remedy=remedy))
    digest = file_sha256(path)
    if digest != wheel.sha256:
        raise Refused(mismatch_line(f"{where}: sha256", expected=wheel.sha256, found=digest, remedy=remedy))


def _from_index(wheels: list[Wheel], into: Path, python: str) -> None:
    """Let pip download by name and hash: its index and cache decide where from, the hash decides what."""
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar", "off"]
    arguments += ["--python-version", python, "--implementation", "cp"]
    tags = [WheelName.parse(wheel.file) for wheel in wheels]
    for abi in sorted({abi for tag in tags for abi in tag.abis}):
        arguments += ["--abi", abi]
    for platform in sorted({platform for tag in tags for platform in tag.platforms} - {"any"}):
        arguments += ["--platform", platform]
    requirements = into / "requirements-index.txt"
    requirements.write_text("".join(f"{w.name}=={w.version} --hash=sha256:{w.sha256}\n" for w in wheels))
    try:
        run_pip([*arguments, "-r", requirements.name, "-d", "."], cwd=into, environment=index_environment(os.environ))
    except Differs as error:
        names = ", ".join(wheel.file for wheel in wheels)
        raise Differs(f"{error}; wanted from pip's index by sha256: {names}; or give them with wheels=DIR") from error
    finally:
        requirements.unlink(missing_ok=True)
    for wheel in wheels:
        path = into / wheel.file
        if not path.is_file():
            raise Differs(f"{wheel.file}: pip ended well without it; give it with wheels=DIR")
        check_bytes(wheel, path, wheel.file)


def index_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which pip finds the caller's index and nothing else of the caller's pip settings."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PIP_", "PYTHON")) or name in _INDEX_SETTINGS
    }


def isolated_environment(home: Path) -> dict[str, str]:
    """Return an environment in which pip reads no configuration at all and reaches nobody's home folder.

    Nor does it find programs: it needs none for wheels, and would ask lsb_release and rustc for words to an index.
    """
    return {
        "PATH": str(home),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C.UTF-8",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def run_pip(arguments: list[str], *, cwd: Path, environment: Mapping[str, str], python: Path | None = None) -> str:
    """Run elfkiln's own pip, on the interpreter `python` if given, and return what it printed.

    `Differs` with pip's last complaint when it fails, `Refused` when elfkiln's Python has no pip.
    """
    chosen = ["--python", str(python)] if python is not None else []
    command = [sys.executable, "-I", "-m", "pip", *chosen, "--disable-pip-version-check", "--no-input", *arguments]
    try:
        run = run_child(command, name="pip", cwd=cwd, environment=environment, limits=limits_of(_PIP_SECONDS))
    except ChildStopped as error:
        raise Differs(str(error)) from error
    if run.exit_code == 0:
        return run.out
    if "No module named pip" in run.err:
        raise Refused("pip is missing in elfkiln's own Python; run python -m ensurepip with it, or use ./doit")
    if "No space left on device" in run.err:
        raise Refused(f"{cwd}: no space left on the device; free some and run again, nothing was half-installed")
    raise Differs(f"pip {arguments[0]}: {complaint(run.out + run.err, otherwise_all=True)}")


def unpacked_bytes(folder: Path) -> int:
    """Return what the wheels of a folder hold unpacked, in bytes; `Refused` when one is not a zip archive."""
    total = 0
    for path in sorted(folder.glob("*.whl")):
        try:
            with zipfile.ZipFile(path) as archive:
                total += sum(entry.file_size for entry in archive.infolist())
        except (zipfile.BadZipFile, OSError) as error:
            raise Refused(
                f"{path.name}: has the pinned digest but is not a wheel ({error}); correct the lock"
            ) from error
    return total

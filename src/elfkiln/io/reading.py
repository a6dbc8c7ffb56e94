"""The one reader of files: regular files alone, never waiting, and never more bytes than the caller says.

A pipe would block, a device never end, a folder fail half-way and a sparse file fill the memory: each is refused before
a byte is read. The fast path of `check-missing` reads through this too, so it imports next to nothing.
"""

from __future__ import annotations

import errno
import os
import stat

from elfkiln.errors import Refused, brief, refusal
from elfkiln.io.file_kinds import HEAD_BYTES, disguise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK = 1 << 20

_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class Unreadable(OSError):
    """A path that is there and is not to be read: no regular file, a longer one, or a name no file can have."""

    def __init__(self, reason: str, path: str | os.PathLike[str]) -> None:
        """Take the reason, which stands where the system's own words would, and the path as it was given."""
        super().__init__(errno.EINVAL, reason, path)


class TooLong(Unreadable):
    """A file of more bytes than its reader takes."""


def kind_of(mode: int) -> str:
    """Return what a file is by the mode of its `stat`, with its article.

    >>> kind_of(os.stat(os.curdir).st_mode), kind_of(os.stat(os.devnull).st_mode)
    ('a folder', 'a device')
    """
    return _KINDS.get(stat.S_IFMT(mode), "a device")


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> int:
    """Open a regular file for reading and return its descriptor, as `open_sized` does."""
    return open_sized(path, follow=follow)[0]


def open_sized(path: str | os.PathLike[str], *, follow: bool = True) -> tuple[int, int]:
    """Open a regular file for reading and return its descriptor and size in bytes, never waiting for anybody.

    `follow` says whether a symbolic link counts as what it leads to. Raises `OSError`: `Unreadable` for what is no
    regular file and for a name that no file can have (a NUL byte, half of a surrogate pair).
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except ValueError:
        raise Unreadable("not a name that a file can have", path) from None
    except OSError as error:
        if error.errno == errno.ENXIO:
            # The one kind that cannot be opened at all.
            raise Unreadable("not a regular file (a socket or a device)", path) from None
        if error.errno in (errno.ELOOP, errno.ENOENT) and os.path.islink(path):
            # Which is not to be followed, or cannot be.
            where = "" if os.path.exists(path) else " that leads nowhere"
            raise Unreadable(f"not a regular file (a symbolic link{where})", path) from None
        raise
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        os.close(descriptor)
        raise Unreadable(f"not a regular file ({kind_of(state.st_mode)})", path)
    return descriptor, state.st_size


def read_bytes(path: str | os.PathLike[str], limit: int, *, follow: bool = True) -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes; raises `OSError` as `open_regular` does.

    A longer file is `TooLong`, by its size, before it is read; one that grows meanwhile is too.
    """
    with open(open_regular(path, follow=follow), "rb", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        parts, left = [], limit + 1
        while size <= limit and left > 0:
            # In parts, so that a small file does not take the memory of a large limit.
            part = stream.read(min(left, max(size, _CHUNK)))
            if not part:
                break
            parts.append(part)
            left -= len(part)
    if size > limit or left <= 0:
        raise TooLong(f"longer than {limit} bytes", path)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_parts(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the bytes of a regular file in parts of a mebibyte; raises as `open_regular` does."""
    with open(open_regular(path), "rb", buffering=0) as stream:
        while part := stream.read(_CHUNK):
            yield part


def sha256_of(path: str | os.PathLike[str], *, follow: bool = True, limit: int | None = None) -> str:
    """Return the sha256 of a regular file's bytes as 64 hex digits, read in parts; raises as `open_regular` does.

    A file of more than `limit` bytes is `TooLong`, by its size, before it is read: a sparse one of any size costs its
    writer nothing.
    """
    # Not at the top: check-missing hashes without it.
    import hashlib

    with open(open_regular(path, follow=follow), "rb", buffering=0) as stream:
        if limit is not None and os.fstat(stream.fileno()).st_size > limit:
            raise TooLong(f"longer than {limit} bytes", path)
        return hashlib.file_digest(stream, "sha256").hexdigest()


def reason_of(error: OSError) -> str:
    """Return what an `OSError` says was wrong, without the path and the number Python puts around it."""
    return error.strerror or str(error)


def read_regular(path: str | os.PathLike[str], *, limit: int, remedy: str = "") -> bytes:
    """Return the bytes of a regular file of at most `limit` bytes.

    Raises `Refused` in one line, with the path as it was given, for an absent file, for what is not a regular file
    and for a longer one; `remedy` says what to do.
    """
    where = brief(os.fspath(path), 4096)
    after = f"; {remedy}" if remedy else ""
    try:
        return read_bytes(path, limit)
    except FileNotFoundError:
        raise Refused(f"{where}: missing{after}") from None
    except TooLong:
        raise refusal(where, expected=f"at most {limit} bytes", found="a longer file", remedy=remedy) from None
    except OSError as error:
        raise Refused(f"{where}: {reason_of(error)}{after}") from error


def read_text(path: str | os.PathLike[str], *, limit: int, remedy: str = "") -> str:
    """Return a file's UTF-8 text, read as `read_regular` does; `Refused` for bytes that are none."""
    return utf8_text(read_regular(path, limit=limit, remedy=remedy), brief(os.fspath(path), 4096), remedy=remedy)


def utf8_text(data: bytes, where: str, *, remedy: str = "") -> str:
    """Return bytes as text; `Refused`, naming the first byte that does not fit, when they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        found, what_to_do = disguise(data[:HEAD_BYTES]) or (f"byte {error.start} is not UTF-8", remedy)
        raise refusal(where, expected="UTF-8 text", found=found, remedy=what_to_do) from None


def require_inside(folder: Path, path: Path, what: str) -> Path:
    """Return where a path leads, links resolved; `Refused`, naming `what`, when that is outside its folder."""
    real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise refusal(what, expected=f"a file below {folder.name}/", found="a link that leads outside it")
    return real

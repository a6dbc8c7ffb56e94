"""Tells what a file really is when it is not what its name says: what downloads and checkouts leave in its place."""

from __future__ import annotations

HEAD_BYTES = 512
"""How much of a file `disguise` looks at."""

_STARTS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs.github.com/spec/", "a git-lfs pointer", "fetch the file it stands for: git lfs pull"),
    (b"/annex/objects/", "a git-annex pointer", "fetch the file it stands for: git annex get"),
    (b"\x1f\x8b\x08", "gzip data", "unpack it first: gunzip"),
    (b"PK\x03\x04", "a zip archive", "unpack it first: unzip"),
    (b"\x28\xb5\x2f\xfd", "zstd data", "unpack it first: unzstd"),
    (b"\xfd7zXZ\x00", "xz data", "unpack it first: unxz"),
    (b"BZh", "bzip2 data", "unpack it first: bunzip2"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)
_HTML = (b"<!doctype html", b"<html", b"<head", b"<?xml")
_SERVER_TEXTS = (
    b"entry not found",
    b"not found",
    b"404: not found",
    b"access denied",
    b"invalid username or password.",
)
_BOM = b"\xef\xbb\xbf"


def disguise(head: bytes) -> tuple[str, str] | None:
    """Return in words what a file is that begins with `head`, and what to do about it; None if nothing tells.

    >>> disguise(b"version https://git-lfs.github.com/spec/v1\\noid sha256:00")
    ('a git-lfs pointer', 'fetch the file it stands for: git lfs pull')
    >>> disguise(b'{"format": "1bit-npu-plan/1"}')
    """
    for start, found, remedy in _STARTS:
        if head.startswith(start):
            return found, remedy
    text = head.removeprefix(_BOM).strip().lower()
    if text.startswith(_HTML):
        return "an HTML page", "download the file itself, not the page that shows it"
    if text in _SERVER_TEXTS:
        return f"a server's answer {text.decode()!r}", "download the file again, from where it is"
    if head.startswith(_BOM):
        return "a byte-order mark before the text", "save it as UTF-8 without one"
    return None

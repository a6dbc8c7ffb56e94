"""Canonical JSON and digests: one spelling of a value, so that equal values have equal digests."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path


def canonical_json(value: object) -> bytes:
    """Return UTF-8 JSON with sorted keys, no white space and no NaN; equal values give equal bytes.

    >>> canonical_json({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256_hex(data: bytes) -> str:
    """Return the sha256 of bytes as 64 hex digits.

    >>> sha256_hex(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a regular file's bytes as 64 hex digits.

    Raises `OSError` as `open` does, and for what is no regular file: a FIFO would block and a device never end.
    """
    with open(path, "rb", opener=open_regular) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_regular(name: str, flags: int) -> int:
    """Open a regular file, never waiting: an `opener` for `open`. Raises `OSError` for what is no regular file."""
    descriptor = os.open(name, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        raise OSError(errno.EINVAL, "is not a regular file", name)
    return descriptor

"""Canonical JSON and digests: one spelling of a value, so that equal values have equal digests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from elfkiln.io.reading import sha256_of


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

    Raises `OSError` as `open` does, and for what is not a regular file: a FIFO would block and a device never end.
    """
    return sha256_of(path)
